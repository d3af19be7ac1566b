//! How records are declared. One declaration gives the struct, its form as bytes, its samples for tests, and its table in
//! `docs/formats.md`.

#[macro_export]
/// Declares an enum whose variants are numbers on the wire. A new variant is a value that older builds refuse: only a cluster whose level
/// knows it may send it.
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

            fn describe(forms: &mut $crate::wire::Forms) -> String {
                forms.codes(stringify!($name), stringify!($int), &[$((stringify!($variant), stringify!($code)),)*])
            }

            fn sample(n: &mut u8) -> $name {
                *n = n.wrapping_add(1);
                $name::ALL[usize::from(*n) % $name::ALL.len()]
            }
        }
    };
}

#[macro_export]
/// Declares structs with a form as bytes. Structs with a number are records, records with `=>` are requests, and a `part` is in records
/// or is stored.
///
/// Records and parts grow: a build may add fields at the end, each with its default (`field: Type = default,`). A part inside of another
/// record has its length in front. A `fixed part` never grows and has no length: for what is small and comes in great numbers.
///
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
    (@names $table:ident [$($done:tt)*] $(#[$doc:meta])* $(fixed)? part $name:ident { $($fields:tt)* } $($rest:tt)*) => {
        $crate::records!(@names $table [$($done)*] $($rest)*);
    };
    (@names $table:ident [$($done:tt)*] $(#[$doc:meta])* $kind:literal $name:ident $(covered by $sums:ident)? { $($fields:tt)* } => $reply:ident $(of $most:ident)?; $($rest:tt)*) => {
        $crate::records!(@names $table [$($done)* ($kind, concat!("request ", stringify!($name))),] $($rest)*);
    };
    (@names $table:ident [$($done:tt)*] $(#[$doc:meta])* $kind:literal $name:ident $(covered by $sums:ident)? { $($fields:tt)* }; $($rest:tt)*) => {
        $crate::records!(@names $table [$($done)*] $($rest)*);
    };
    (@field $reader:ident []) => { $crate::wire::Codec::decode($reader)? };
    (@field $reader:ident [$default:expr]) => {
        if $reader.is_at_end() { $default } else { $crate::wire::Codec::decode($reader)? }
    };
    (@codec $name:ident [$($doc:meta)*] { $($(#[$fdoc:meta])* $field:ident: $ty:ty $(= $default:expr)?,)* }) => {
        impl $crate::wire::Codec for $name {
            const GROWS: bool = true;

            fn encode(&self, out: &mut Vec<u8>) {
                $crate::wire::encode_part(out, |out| $crate::wire::Codec::encode_last(self, out));
            }

            fn decode(reader: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::DecodeError> {
                reader.part(<$name as $crate::wire::Codec>::decode_last)
            }

            fn encode_last(&self, _out: &mut Vec<u8>) {
                $($crate::wire::Codec::encode(&self.$field, _out);)*
            }

            fn decode_last(_reader: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::DecodeError> {
                Ok($name { $($field: $crate::records!(@field _reader [$($default)?]),)* })
            }

            fn describe(forms: &mut $crate::wire::Forms) -> String {
                forms.record(stringify!($name), true, &[$(stringify!($doc),)*], |_forms| vec![
                    $((stringify!($field), <$ty as $crate::wire::Codec>::describe(_forms),
                       [$(stringify!($default),)? ""][0], [$(stringify!($fdoc),)* ""].concat()),)*
                ])
            }

            fn sample(_n: &mut u8) -> $name {
                $name { $($field: $crate::wire::Codec::sample(_n),)* }
            }
        }
    };
    (@fixed $name:ident [$($doc:meta)*] { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        impl $crate::wire::Codec for $name {
            fn encode(&self, _out: &mut Vec<u8>) {
                $($crate::wire::Codec::encode(&self.$field, _out);)*
            }

            fn decode(_reader: &mut $crate::wire::Reader<'_>) -> Result<$name, $crate::wire::DecodeError> {
                Ok($name { $($field: $crate::wire::Codec::decode(_reader)?,)* })
            }

            fn describe(forms: &mut $crate::wire::Forms) -> String {
                forms.record(stringify!($name), false, &[$(stringify!($doc),)*], |_forms| vec![
                    $((stringify!($field), <$ty as $crate::wire::Codec>::describe(_forms), "", [$(stringify!($fdoc),)* ""].concat()),)*
                ])
            }

            fn sample(_n: &mut u8) -> $name {
                $name { $($field: $crate::wire::Codec::sample(_n),)* }
            }
        }
    };
    () => {};
    ($(#[$doc:meta])* fixed part $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* } $($rest:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        $crate::records!(@fixed $name [$($doc)*] { $($(#[$fdoc])* $field: $ty,)* });
        $crate::records! { $($rest)* }
    };
    ($(#[$doc:meta])* part $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty $(= $default:expr)?,)* } $($rest:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        $crate::records!(@codec $name [$($doc)*] { $($(#[$fdoc])* $field: $ty $(= $default)?,)* });
        $crate::records! { $($rest)* }
    };
    ($(#[$doc:meta])* $kind:literal $name:ident $(covered by $sums:ident)? { $($(#[$fdoc:meta])* $field:ident: $ty:ty $(= $default:expr)?,)* } $(=> $reply:ident $(of $most:ident)?)?; $($rest:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        $crate::records!(@codec $name [$($doc)*] { $($(#[$fdoc])* $field: $ty $(= $default)?,)* });
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
    use proptest::prelude::*;

    use crate::Epoch;
    use crate::wire::{Codec, DecodeError, Last, Unknown, from_bytes, from_plain_bytes, to_bytes};

    /// What a build knows of a file and its parts.
    #[expect(unreachable_pub, reason = "the macro declares what is public")]
    mod before {
        crate::records! {
            fixed part Place {
                at: u32,
            }
            part Piece {
                name: String,
                places: Vec<Place>,
            }
            500 File {
                pieces: Vec<Piece>,
                size: u64,
                last: Option<Piece>,
            };
            part Kept {
                size: u64,
                unknown: Unknown = Unknown::default(),
            }
        }
        use super::*;
    }

    /// What the next build knows.
    #[expect(unreachable_pub, reason = "the macro declares what is public")]
    mod after {
        crate::records! {
            fixed part Place {
                at: u32,
            }
            part Piece {
                name: String,
                places: Vec<Place>,
                epoch: Epoch = Epoch(7),
                more: Vec<String> = vec!["more".to_owned()],
            }
            500 File {
                pieces: Vec<Piece>,
                size: u64,
                last: Option<Piece>,
                owner: Option<Piece> = None,
            };
            part Kept {
                size: u64,
                born: u64 = 1970,
                unknown: Unknown = Unknown::default(),
            }
        }
        use super::*;
    }

    fn places() -> impl Strategy<Value = Vec<u32>> {
        proptest::collection::vec(any::<u32>(), 0..5000)
    }

    fn pieces() -> impl Strategy<Value = Vec<(String, Vec<u32>)>> {
        let piece = prop_oneof![8 => ("[a-z]{0,9}", proptest::collection::vec(any::<u32>(), 0..9)), 1 => ("[a-z]{0,200}", places())];
        proptest::collection::vec(piece, 0..6)
    }

    fn old_piece((name, places): (String, Vec<u32>)) -> before::Piece {
        before::Piece { name, places: places.into_iter().map(|at| before::Place { at }).collect() }
    }

    fn new_piece((name, places): (String, Vec<u32>), epoch: u32, more: Vec<String>) -> after::Piece {
        let places = places.into_iter().map(|at| after::Place { at }).collect();
        after::Piece { name, places, epoch: Epoch(epoch), more }
    }

    proptest! {
        #[test]
        fn a_build_reads_what_the_one_before_has_written(found in pieces(), size in any::<u64>()) {
            let last = found.last().cloned();
            let old = before::File {
                pieces: found.iter().cloned().map(old_piece).collect(),
                size,
                last: last.clone().map(old_piece),
            };
            let with_defaults = |piece| new_piece(piece, 7, vec!["more".to_owned()]);
            let new = after::File {
                pieces: found.into_iter().map(with_defaults).collect(),
                size,
                last: last.map(with_defaults),
                owner: None,
            };
            prop_assert_eq!(from_bytes::<after::File>(&to_bytes(&old)), Ok(new));
        }

        #[test]
        fn a_build_reads_what_the_next_one_has_written(found in pieces(), size in any::<u64>(), epoch in any::<u32>(), more in proptest::collection::vec("[a-z]{0,90}", 0..9)) {
            let newer = |piece| new_piece(piece, epoch, more.clone());
            let new = after::File {
                pieces: found.iter().cloned().map(newer).collect(),
                size,
                last: found.last().cloned().map(newer),
                owner: found.first().cloned().map(newer),
            };
            let old = before::File {
                last: found.last().cloned().map(old_piece),
                pieces: found.into_iter().map(old_piece).collect(),
                size,
            };
            prop_assert_eq!(from_bytes::<before::File>(&to_bytes(&new)), Ok(old));
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = from_bytes::<after::File>(&bytes);
            let _ = from_plain_bytes::<after::File>(&bytes);
            let _ = from_bytes::<Vec<after::Piece>>(&bytes);
        }
    }

    #[test]
    fn a_change_by_the_build_before_keeps_what_it_does_not_know() {
        let new = after::Kept { size: 5, born: 2026, unknown: Unknown::default() };
        let mut old: before::Kept = from_bytes(&to_bytes(&new)).expect("it grows");
        old.size = 9;
        let read: after::Kept = from_bytes(&to_bytes(&old)).expect("it grows");
        assert_eq!(read, after::Kept { size: 9, ..new });
        let read: after::Kept = from_bytes(&5u64.to_le_bytes()).expect("it grows");
        assert_eq!(read.born, 1970);
    }

    #[test]
    fn a_missing_field_without_a_default_is_an_error_and_so_is_half_a_field() {
        let piece = old_piece(("a".to_owned(), vec![1, 2]));
        let file = before::File { pieces: vec![piece], size: 9, last: None };
        let bytes = to_bytes(&file);
        for cut in 0..bytes.len() {
            assert_eq!(from_bytes::<after::File>(&bytes[..cut]), Err(DecodeError::TooShort), "cut at {cut}");
        }
        // Half of the field that this build has added.
        assert!(from_bytes::<after::File>(&[&bytes[..], &[1, 200]].concat()).is_err());
        // A megabyte of what a later build has added costs nothing.
        let long = [&bytes[..], &vec![0xee; 1 << 20]].concat();
        assert_eq!(from_bytes::<before::File>(&long), Ok(file));
    }

    #[test]
    fn a_length_is_as_short_as_it_can_be_and_a_wild_one_is_refused() {
        for (places, head) in [(0, 1), (29, 1), (30, 2), (4093, 2), (4094, 3)] {
            let piece = old_piece((String::new(), (0..places).collect()));
            let mut bytes = Vec::new();
            piece.encode(&mut bytes);
            let mut last = Vec::new();
            piece.encode_last(&mut last);
            assert_eq!(bytes.len(), head + last.len(), "{places}");
            assert_eq!(
                from_bytes::<Vec<before::Piece>>(&[&1u32.to_le_bytes()[..], &bytes].concat()),
                Ok(vec![piece])
            );
        }
        for wild in [&[0xff; 8][..], &[0xff, 0xff, 0xff, 0xff, 0x7f], &[0x80], &[5, 0]] {
            let bytes = [&1u32.to_le_bytes()[..], wild].concat();
            assert!(from_bytes::<Vec<before::Piece>>(&bytes).is_err(), "{wild:?}");
        }
    }

    #[test]
    fn a_plain_form_has_no_lengths_and_a_last_field_needs_none() {
        let piece = old_piece(("ab".to_owned(), vec![3]));
        let plain = [&2u32.to_le_bytes()[..], b"ab", &1u32.to_le_bytes(), &3u32.to_le_bytes()].concat();
        let list = [&1u32.to_le_bytes()[..], &plain].concat();
        assert_eq!(from_plain_bytes::<Vec<before::Piece>>(&list), Ok(vec![piece.clone()]));
        let read = from_plain_bytes::<Vec<after::Piece>>(&list).expect("with defaults");
        assert_eq!(read[0].epoch, Epoch(7));
        assert_eq!(to_bytes(&(5u8, Last(piece.clone()))), [&[5][..], &plain].concat());
        assert_eq!(from_bytes(&[&[5][..], &plain].concat()), Ok((5u8, Last(piece))));
        assert_eq!(
            from_plain_bytes::<Vec<before::Piece>>(&[&list[..], &[0]].concat()),
            Err(DecodeError::TooLong)
        );
    }
}
