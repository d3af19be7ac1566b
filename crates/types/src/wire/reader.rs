//! Takes records apart. Nothing here panics, whatever the bytes are.

/// Bytes that are not a valid record of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The record ends too early.
    #[error("record too short")]
    TooShort,
    /// Bytes are left over.
    #[error("record too long")]
    TooLong,
    /// A value outside its range.
    #[error("value out of range in a record")]
    OutOfRange,
    /// Text that is not UTF-8.
    #[error("text in a record is not UTF-8")]
    NotText,
}

/// Takes values off the front of a byte string.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    pub(super) is_plain: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, is_plain: false }
    }

    /// Reads what a build has written whose records did not grow: no part has a length, and no field is missing that was there.
    pub fn plain(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, is_plain: true }
    }

    /// Reads a part that grows: its length, then its fields. Passes over what follows the fields that are known.
    pub fn part<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if self.is_plain {
            return read(self);
        }
        let len = self.length()?;
        read(&mut Reader::new(self.bytes(len)?))
    }

    /// A length, as [`encode_part`](super::encode_part) writes it.
    fn length(&mut self) -> Result<usize, DecodeError> {
        let mut len = 0;
        for shift in (0..32).step_by(7) {
            let [byte] = self.array()?;
            len |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(len).map_err(|_| DecodeError::OutOfRange);
            }
        }
        Err(DecodeError::OutOfRange)
    }

    /// Whether the record ends here, so that the fields that follow have their defaults.
    pub fn is_at_end(&self) -> bool {
        self.is_plain || self.rest.is_empty()
    }

    /// All bytes that are left: fields that a later build has added.
    pub fn unknown(&mut self) -> &'a [u8] {
        if self.is_plain { &[] } else { std::mem::take(&mut self.rest) }
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::TooShort)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Bytes not yet taken.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Ends the reading; everything must have been taken.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TooLong) }
    }
}
