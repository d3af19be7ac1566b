//! XDR (RFC 4506), as far as the protocols here need it.
//!
//! The reader refers to the received bytes. It never allocates memory because of a received length.

/// The bytes are not a valid value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

/// Reads values from received bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Garbage)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        const { assert!(N.is_multiple_of(4), "arrays of other lengths have padding") };
        self.take(N)?.try_into().map_err(|_| Garbage)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Garbage> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Garbage> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Bytes with their length before them, at most `most`.
    pub(crate) fn opaque(&mut self, most: usize) -> Result<&'a [u8], Garbage> {
        let len = self.u32()? as usize;
        if len > most {
            return Err(Garbage);
        }
        let bytes = self.take(len)?;
        self.take(padding(len))?;
        Ok(bytes)
    }

    /// A value that may be missing.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// Writes values one after the other.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Writer {
        self.u32(value.into())
    }

    /// Bytes with their length before them.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) -> &mut Writer {
        // Nothing here is longer than a record, which is far below 4 GiB.
        self.u32(bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len() + padding(bytes.len()), 0);
        self
    }

    /// Appends the bytes of another writer.
    pub(crate) fn append(&mut self, other: &Writer) -> &mut Writer {
        self.bytes.extend_from_slice(&other.bytes);
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Number of padding bytes after `len` bytes.
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_come_back() {
        let mut writer = Writer::default();
        writer.u32(7).u64(1 << 40).bool(true).opaque(b"abcde").u64(0x3132_3334_3536_3738).opaque(b"");
        let bytes = writer.into_bytes();
        assert_eq!(bytes.len() % 4, 0);
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u32(), reader.u64(), reader.bool()), (Ok(7), Ok(1 << 40), Ok(true)));
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.array(), Ok(*b"12345678"));
        assert_eq!(reader.opaque(0), Ok(&b""[..]));
        assert_eq!(reader.u32(), Err(Garbage));
    }

    #[test]
    fn lengths_are_not_believed() {
        let mut reader = Reader::new(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(reader.clone().opaque(usize::MAX), Err(Garbage));
        assert_eq!(reader.opaque(100), Err(Garbage));
        assert_eq!(
            Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).opaque(8),
            Err(Garbage),
            "the padding is missing"
        );
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
    }

    proptest! {
        #[test]
        fn opaque_bytes_come_back(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let mut writer = Writer::default();
            parts.iter().for_each(|part| { writer.opaque(part); });
            let bytes = writer.into_bytes();
            let mut reader = Reader::new(&bytes);
            for part in &parts {
                prop_assert_eq!(reader.opaque(40), Ok(&part[..]));
            }
            prop_assert_eq!(reader.u32(), Err(Garbage));
        }
    }
}
