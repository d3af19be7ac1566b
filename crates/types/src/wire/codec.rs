//! Records as bytes. Decoding never panics and never allocates more than the input's length allows.

use super::forms::Forms;
use super::reader::{DecodeError, Reader};
use crate::limits::EXTENT_WHOLE_FILE;
use crate::{
    BrickId, ClientId, ClientSeq, ClusterId, Code, Epoch, Geometry, GroupId, Incarnation, InodeId,
    MapVersion, NodeId, ObjectId, Seq, ShardId, StripeKey, VolumeId, cost,
};

/// Items of a list for which memory is allocated before they have been read.
const LIST_ROOM: usize = 64;

/// A value with a form as bytes.
pub trait Codec: Sized {
    /// Whether later builds may add fields at the end. A reader ignores fields that it does not know. A field that is missing gets its default.
    const GROWS: bool = false;

    /// Appends the value's bytes. Other values may follow.
    fn encode(&self, out: &mut Vec<u8>);

    /// Takes the value off the reader.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Appends the value's bytes where nothing follows: a record that grows needs no length there.
    fn encode_last(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// Takes the value off a reader that has nothing else.
    fn decode_last(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::decode(reader)
    }

    /// The form in words, for `docs/formats.md`. Adds the tables that it needs.
    #[doc(hidden)]
    fn describe(forms: &mut Forms) -> String;

    /// A value for tests of the byte format, different at each call.
    #[doc(hidden)]
    fn sample(n: &mut u8) -> Self;
}

/// The bytes of a value.
pub fn to_bytes<T: Codec>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    value.encode_last(&mut out);
    cost::bytes(out.len());
    out
}

/// The value of exactly these bytes; behind a record that grows may be fields of later builds.
pub fn from_bytes<T: Codec>(bytes: &[u8]) -> Result<T, DecodeError> {
    cost::bytes(bytes.len());
    read_all(Reader::new(bytes))
}

/// The value of exactly the bytes that a build has written whose records did not grow.
pub fn from_plain_bytes<T: Codec>(bytes: &[u8]) -> Result<T, DecodeError> {
    read_all(Reader::plain(bytes))
}

fn read_all<T: Codec>(mut reader: Reader<'_>) -> Result<T, DecodeError> {
    let value = T::decode_last(&mut reader)?;
    if !T::GROWS || reader.is_plain {
        reader.finish()?;
    }
    Ok(value)
}

/// Appends a part that grows: its length in groups of seven bits, the lowest first, all but the last with the eighth bit; then what
/// `write` appends.
pub fn encode_part(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    write(out);
    let mut len = out.len() - at - 1;
    let mut groups = [0; 5];
    let mut count = 0;
    while len >= 0x80 {
        groups[count] = (len & 0x7f) as u8 | 0x80;
        count += 1;
        len >>= 7;
    }
    groups[count] = len as u8;
    out[at] = groups[0];
    // Seldom: most parts are short.
    if count > 0 {
        out.splice(at + 1..at + 1, groups[1..=count].iter().copied());
    }
}

/// The last field of a record that is stored, in the form that it had before it grew: without a length. The record grows by what it
/// adds to this field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last<T>(pub T);

impl<T: Codec> Codec for Last<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode_last(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Last<T>, DecodeError> {
        Ok(Last(T::decode_last(reader)?))
    }

    fn describe(forms: &mut Forms) -> String {
        format!("{}, without a length", T::describe(forms))
    }

    fn sample(n: &mut u8) -> Last<T> {
        Last(T::sample(n))
    }
}

/// Fields of later builds, which this one keeps as they are when it changes a record. The last field of a record that is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unknown(Vec<u8>);

impl Codec for Unknown {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Unknown, DecodeError> {
        Ok(Unknown(reader.unknown().to_vec()))
    }

    fn describe(_: &mut Forms) -> String {
        "fields of later builds, kept as they are".to_owned()
    }

    fn sample(_: &mut u8) -> Unknown {
        Unknown::default()
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Codec for $int {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(reader: &mut Reader<'_>) -> Result<$int, DecodeError> {
                Ok(<$int>::from_le_bytes(reader.array()?))
            }

            fn describe(_: &mut Forms) -> String {
                stringify!($int).to_owned()
            }

            fn sample(n: &mut u8) -> $int {
                *n = n.wrapping_add(1);
                (*n).into()
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i64);

macro_rules! newtypes {
    ($($name:ident),*) => {$(
        impl Codec for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }

            fn decode(reader: &mut Reader<'_>) -> Result<$name, DecodeError> {
                Ok($name(Codec::decode(reader)?))
            }

            fn describe(forms: &mut Forms) -> String {
                fn of<T: Codec>(_: fn(T) -> $name, forms: &mut Forms) -> String {
                    T::describe(forms)
                }
                format!("{} ({})", stringify!($name), of($name, forms))
            }

            fn sample(n: &mut u8) -> $name {
                $name(Codec::sample(n))
            }
        }
    )*};
}
newtypes!(
    BrickId,
    NodeId,
    ShardId,
    VolumeId,
    InodeId,
    ObjectId,
    ClientId,
    ClientSeq,
    Epoch,
    MapVersion,
    Incarnation,
    Seq,
    ClusterId
);

impl<const N: usize> Codec for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<[u8; N], DecodeError> {
        reader.array()
    }

    fn describe(_: &mut Forms) -> String {
        format!("{N} bytes")
    }

    fn sample(n: &mut u8) -> [u8; N] {
        *n = n.wrapping_add(1);
        [*n; N]
    }
}

impl Codec for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
        match u8::decode(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::OutOfRange),
        }
    }

    fn describe(_: &mut Forms) -> String {
        "bool (u8)".to_owned()
    }

    fn sample(_: &mut u8) -> bool {
        true
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("a record's list is far shorter than 2^32").encode(out);
        self.iter().for_each(|item| item.encode(out));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Vec<T>, DecodeError> {
        let count = u32::decode(reader)? as usize;
        // Every item takes at least a byte, so a false count cannot make us allocate more than was sent.
        if count > reader.remaining() {
            return Err(DecodeError::TooShort);
        }
        // Most lists are this short. A longer one grows while its items are read.
        let mut items = Vec::with_capacity(count.min(LIST_ROOM));
        for _ in 0..count {
            items.push(T::decode(reader)?);
        }
        Ok(items)
    }

    fn describe(forms: &mut Forms) -> String {
        format!("list of {}", T::describe(forms))
    }

    fn sample(n: &mut u8) -> Vec<T> {
        vec![T::sample(n), T::sample(n)]
    }
}

impl<T: Codec> Codec for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Option<T>, DecodeError> {
        Ok(if bool::decode(reader)? { Some(T::decode(reader)?) } else { None })
    }

    fn describe(forms: &mut Forms) -> String {
        format!("option of {}", T::describe(forms))
    }

    fn sample(n: &mut u8) -> Option<T> {
        Some(T::sample(n))
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<(A, B), DecodeError> {
        Ok((A::decode(reader)?, B::decode(reader)?))
    }

    fn describe(forms: &mut Forms) -> String {
        format!("({}, {})", A::describe(forms), B::describe(forms))
    }

    fn sample(n: &mut u8) -> (A, B) {
        (A::sample(n), B::sample(n))
    }
}

impl Codec for String {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("a record's text is far shorter than 2^32").encode(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
        let len = u32::decode(reader)? as usize;
        let bytes = reader.bytes(len)?;
        Ok(std::str::from_utf8(bytes).map_err(|_| DecodeError::NotText)?.to_owned())
    }

    fn describe(_: &mut Forms) -> String {
        "text".to_owned()
    }

    fn sample(n: &mut u8) -> String {
        *n = n.wrapping_add(1);
        format!("text-{n}")
    }
}

impl Codec for GroupId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.volume.encode(out);
        self.index.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<GroupId, DecodeError> {
        Ok(GroupId { volume: Codec::decode(reader)?, index: Codec::decode(reader)? })
    }

    fn describe(_: &mut Forms) -> String {
        "GroupId (volume u32, index u32)".to_owned()
    }

    fn sample(n: &mut u8) -> GroupId {
        GroupId { volume: Codec::sample(n), index: Codec::sample(n) }
    }
}

impl Codec for StripeKey {
    fn encode(&self, out: &mut Vec<u8>) {
        self.object.encode(out);
        self.stripe.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<StripeKey, DecodeError> {
        Ok(StripeKey { object: Codec::decode(reader)?, stripe: Codec::decode(reader)? })
    }

    fn describe(_: &mut Forms) -> String {
        "StripeKey (object u64, stripe u64)".to_owned()
    }

    fn sample(n: &mut u8) -> StripeKey {
        StripeKey { object: Codec::sample(n), stripe: Codec::sample(n) }
    }
}

impl Codec for Geometry {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.code().k() as u8).encode(out);
        (self.code().m() as u8).encode(out);
        (self.unit() as u32).encode(out);
        self.extent_stripes().encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Geometry, DecodeError> {
        let code =
            Code::new(u8::decode(reader)?, u8::decode(reader)?).map_err(|_| DecodeError::OutOfRange)?;
        let geometry = match (u32::decode(reader)?, u32::decode(reader)?) {
            (unit, EXTENT_WHOLE_FILE) => Geometry::whole_files(code, unit),
            (unit, extent_stripes) => Geometry::new(code, unit, extent_stripes),
        };
        geometry.map_err(|_| DecodeError::OutOfRange)
    }

    fn describe(_: &mut Forms) -> String {
        "Geometry (K u8, M u8, bytes of a unit u32, stripes of an extent u32)".to_owned()
    }

    fn sample(n: &mut u8) -> Geometry {
        *n = n.wrapping_add(1);
        let code = Code::new(8, 2).expect("8+2 is a code");
        Geometry::new(code, 131_072, 64).expect("the default geometry is valid")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lying_count_allocates_nothing() {
        assert_eq!(from_bytes::<Vec<u64>>(&[0xff; 8]), Err(DecodeError::TooShort));
    }

    proptest! {
        #[test]
        fn values_round_trip(a in any::<u64>(), text in ".*", list in proptest::collection::vec(any::<u32>(), 0..20)) {
            prop_assert_eq!(from_bytes::<u64>(&to_bytes(&a)), Ok(a));
            prop_assert_eq!(from_bytes::<String>(&to_bytes(&text)), Ok(text.clone()));
            prop_assert_eq!(from_bytes::<Option<(Vec<u32>, String)>>(&to_bytes(&Some((list.clone(), text.clone())))), Ok(Some((list, text))));
        }
    }
}
