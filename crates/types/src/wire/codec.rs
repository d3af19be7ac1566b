//! Records as bytes. Decoding never panics and never allocates more than the input's length allows.

use crate::limits::EXTENT_WHOLE_FILE;
use crate::{
    BrickId, ClientId, ClientSeq, ClusterId, Code, Epoch, Geometry, GroupId, Incarnation, InodeId,
    MapVersion, NodeId, ObjectId, Seq, ShardId, StripeKey, VolumeId, cost,
};

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

/// Items of a list for which memory is allocated before they have been read.
const LIST_ROOM: usize = 64;

/// Takes values off the front of a byte string.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
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

/// A value with a fixed form as bytes.
pub trait Codec: Sized {
    /// Appends the value's bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Takes the value off the reader.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// A value for tests of the byte format, different at each call.
    #[doc(hidden)]
    fn sample(n: &mut u8) -> Self;
}

/// The bytes of a value.
pub fn to_bytes<T: Codec>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    value.encode(&mut out);
    cost::bytes(out.len());
    out
}

/// The value of exactly these bytes.
pub fn from_bytes<T: Codec>(bytes: &[u8]) -> Result<T, DecodeError> {
    cost::bytes(bytes.len());
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
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

    fn sample(n: &mut u8) -> Geometry {
        *n = n.wrapping_add(1);
        let code = Code::new(8, 2).expect("8+2 is a code");
        Geometry::new(code, 131_072, 64).expect("the default geometry is valid")
    }
}

#[macro_export]
/// Declares an enum whose variants are numbers on the wire.
macro_rules! coded_enum {
    ($(#[$doc:meta])* pub enum $name:ident: $int:ty { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr($int)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)* }

        impl $name {
            /// Every variant, in the order of its number.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::wire::Codec for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                (*self as $int).encode(out);
            }

            fn decode(reader: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::DecodeError> {
                match <$int as $crate::wire::Codec>::decode(reader)? {
                    $($code => Ok($name::$variant),)*
                    _ => Err($crate::wire::DecodeError::OutOfRange),
                }
            }

            fn sample(n: &mut u8) -> $name {
                *n = n.wrapping_add(1);
                $name::ALL[usize::from(*n) % $name::ALL.len()]
            }
        }
    };
}

#[macro_export]
/// Declares structs with a fixed byte form. Structs with a number are records, records with `=>` are requests.
/// `covered by` names the field that holds checksums of the payload's blocks, `of` behind the answer the field with the most
/// bytes of the answer's payload. `names TABLE;` in front makes a table with the number of each request and the name of the
/// task that answers it.
macro_rules! records {
    (names $table:ident; $($rest:tt)*) => {
        $crate::records!(@names $table [] $($rest)*);
        $crate::records! { $($rest)* }
    };
    (@names $table:ident [$($done:tt)*]) => {
        pub(super) const $table: &[(u16, &str)] = &[$($done)*];
    };
    (@names $table:ident [$($done:tt)*] $(#[$doc:meta])* part $name:ident { $($fields:tt)* } $($rest:tt)*) => {
        $crate::records!(@names $table [$($done)*] $($rest)*);
    };
    (@names $table:ident [$($done:tt)*] $(#[$doc:meta])* $kind:literal $name:ident $(covered by $sums:ident)? { $($fields:tt)* } => $reply:ident $(of $most:ident)?; $($rest:tt)*) => {
        $crate::records!(@names $table [$($done)* ($kind, concat!("request ", stringify!($name))),] $($rest)*);
    };
    (@names $table:ident [$($done:tt)*] $(#[$doc:meta])* $kind:literal $name:ident $(covered by $sums:ident)? { $($fields:tt)* }; $($rest:tt)*) => {
        $crate::records!(@names $table [$($done)*] $($rest)*);
    };
    (@codec $name:ident { $($field:ident,)* }) => {
        impl $crate::wire::Codec for $name {
            fn encode(&self, _out: &mut Vec<u8>) {
                $(self.$field.encode(_out);)*
            }

            fn decode(_reader: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::DecodeError> {
                Ok($name { $($field: $crate::wire::Codec::decode(_reader)?,)* })
            }

            fn sample(_n: &mut u8) -> $name {
                $name { $($field: $crate::wire::Codec::sample(_n),)* }
            }
        }
    };
    () => {};
    ($(#[$doc:meta])* part $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* } $($rest:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        $crate::records!(@codec $name { $($field,)* });
        $crate::records! { $($rest)* }
    };
    ($(#[$doc:meta])* $kind:literal $name:ident $(covered by $sums:ident)? { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* } $(=> $reply:ident $(of $most:ident)?)?; $($rest:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        $crate::records!(@codec $name { $($field,)* });
        impl $crate::wire::Record for $name {
            const KIND: u16 = $kind;
            const NAME: &'static str = stringify!($name);
            $(fn block_sums(&self) -> &[u32] {
                &self.$sums
            })?
        }
        $(impl $crate::wire::Request for $name {
            type Reply = $reply;
            $(fn reply_bytes(&self) -> usize {
                self.$most as usize
            })?
        })?
        $crate::records! { $($rest)* }
    };
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
