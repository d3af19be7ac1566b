//! The fixed header of every frame.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `SHOL` |
//! | 4..6 | wire version |
//! | 6..8 | kind of the record |
//! | 8..16 | request id, chosen by the caller, repeated in the answer |
//! | 16..32 | cluster id |
//! | 32..36 | epoch of the group that the message is about, 0 if none |
//! | 36..40 | flags |
//! | 40..44 | length of the record |
//! | 44..48 | length of the payload |
//! | 48..52 | checksum of the record, 0 if the frame has a tag |
//! | 52..56 | checksum of the payload, 0 if the record has checksums of it or the frame has a tag |
//! | 56..60 | of an announcement: bytes to come; of a large request or answer: packets lost; of another request: bytes of the answer's payload that may be sent at once; else 0 |
//! | 60..64 | checksum of bytes 0..60 |
//! | 64..80 | tag of bytes 0..64, the record and the payload; zeros before the handshake has ended, and in a cluster without a key |

use crate::checksum::crc;
use crate::limits::{PAYLOAD_MAX, RECORD_MAX};
use crate::wire::seal::{TAG_LEN, Tag};
use crate::{ClusterId, Epoch};

/// Bytes of the header.
pub const HEADER_LEN: usize = TAGGED_LEN + TAG_LEN;
/// Bytes of the header that its tag covers: all before it.
pub const TAGGED_LEN: usize = 64;
/// The first four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"SHOL";
/// The newest wire version that this build speaks.
pub const VERSION: u16 = 24;
/// The oldest wire version that this build speaks.
pub const VERSION_MIN: u16 = 24;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// A request.
    pub const REQUEST: Flags = Flags(0);
    /// The answer to a request.
    pub const REPLY: Flags = Flags(1);
    /// An answer that is a refusal.
    pub const REFUSED: Flags = Flags(3);
    /// Combined with another flag: the record holds checksums of the payload's blocks, and the header has none of the
    /// payload.
    pub const COVERED: Flags = Flags(4);
    /// Combined with [`Flags::REPLY`]: in front of the record is a [`Served`](super::Served).
    pub const TIMED: Flags = Flags(8);
    /// Combined with [`Flags::REQUEST`]: the caller wants to know where the time of a slow answer goes.
    pub const TRACED: Flags = Flags(16);
    /// Of a request or an answer: the payload follows in [`Piece`](crate::messages::session::Piece)s, as far as the other side
    /// grants it ([`FrameHeader::bulk`]).
    pub const ANNOUNCED: Flags = Flags(32);

    /// Combined with [`Flags::REPLY`]: large requests have to be announced, until an answer comes without this flag.
    pub const CROWDED: Flags = Flags(64);

    /// Combined with [`Flags::REQUEST`]: what it is for, 1 to 3; 0 is for a client. `world::direct` knows the classes.
    pub fn of_class(class: u8) -> Flags {
        Flags(u32::from(class & 3) << 7)
    }

    /// What the request is for, 0 to 3.
    pub fn class(self) -> u8 {
        (self.0 >> 7 & 3) as u8
    }

    /// Both flags.
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether the record holds the checksums of the payload.
    pub fn is_covered(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether a [`Served`](super::Served) is in front of the record.
    pub fn is_timed(self) -> bool {
        self.0 & 8 != 0
    }

    /// Whether the caller wants to know where the time of a slow answer goes.
    pub fn is_traced(self) -> bool {
        self.0 & 16 != 0
    }

    /// Whether the payload follows in pieces.
    pub fn is_announced(self) -> bool {
        self.0 & 32 != 0
    }

    /// Whether large requests have to be announced.
    pub fn is_crowded(self) -> bool {
        self.0 & 64 != 0
    }

    /// Whether the frame is an answer.
    pub fn is_reply(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the answer is a refusal.
    pub fn is_refusal(self) -> bool {
        self.0 & 3 == 3
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Wire version.
    pub version: u16,
    /// Kind of the record.
    pub kind: u16,
    /// Request id: chosen by the caller, repeated in the answer.
    pub request: u64,
    /// The cluster that both ends belong to.
    pub cluster: ClusterId,
    /// Epoch of the group that the message is about, 0 if none.
    pub epoch: Epoch,
    /// Request, answer or refusal.
    pub flags: Flags,
    /// Bytes of the record.
    pub record_len: u32,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// Checksum of the record, 0 if the frame has a tag.
    pub record_crc: u32,
    /// Checksum of the payload, 0 if the record has checksums of it or the frame has a tag.
    pub payload_crc: u32,
    /// In an announcement ([`Flags::ANNOUNCED`]): bytes of the payload, which follow. In another large request or answer: packets
    /// that the sender has lost on the connection, as in a [`Piece`](crate::messages::session::Piece). In another request: bytes of
    /// the answer's payload that may be sent without an announcement, even if they are many; none after a large request.
    /// Otherwise 0.
    pub bulk: u32,
    /// Authenticates the frame ([`Seal`](super::Seal)), or zeros.
    pub tag: Tag,
}

/// A header that is not valid. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not a frame of Shoal.
    #[error("not a Shoal frame")]
    Magic,
    /// The header was damaged in transit.
    #[error("frame header damaged")]
    Checksum,
    /// A version that this build does not speak.
    #[error("wire version {0} is not supported (this build speaks {VERSION_MIN} to {VERSION})")]
    Version(u16),
    /// A length above the limits.
    #[error("frame of {record} + {payload} bytes is larger than allowed ({RECORD_MAX} + {PAYLOAD_MAX})")]
    TooLarge {
        /// Bytes of the record.
        record: u32,
        /// Bytes of the payload.
        payload: u32,
    },
}

impl FrameHeader {
    /// The header as bytes of the frame.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&self.version.to_le_bytes());
        put(&self.kind.to_le_bytes());
        put(&self.request.to_le_bytes());
        put(&self.cluster.0);
        put(&self.epoch.0.to_le_bytes());
        put(&self.flags.0.to_le_bytes());
        put(&self.record_len.to_le_bytes());
        put(&self.payload_len.to_le_bytes());
        put(&self.record_crc.to_le_bytes());
        put(&self.payload_crc.to_le_bytes());
        put(&self.bulk.to_le_bytes());
        let sum = crc(&bytes[..60]);
        bytes[60..TAGGED_LEN].copy_from_slice(&sum.to_le_bytes());
        bytes[TAGGED_LEN..].copy_from_slice(&self.tag);
        bytes
    }

    /// Reads the version of a header. Checks magic, checksum and version, in this order. Headers of all versions begin with these
    /// bytes, and the frames of older ones can end before the tag.
    pub fn check_version(bytes: &[u8; TAGGED_LEN]) -> Result<u16, HeaderError> {
        if bytes[..4] != MAGIC {
            return Err(HeaderError::Magic);
        }
        if crc(&bytes[..60]).to_le_bytes() != bytes[60..] {
            return Err(HeaderError::Checksum);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        Ok(version)
    }

    /// Reads a header. Checks magic, checksum, version and lengths, in this order.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<FrameHeader, HeaderError> {
        let (tagged, _) = bytes.split_first_chunk().expect("the tag comes last");
        let version = FrameHeader::check_version(tagged)?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (record_len, payload_len) = (u32_at(40), u32_at(44));
        if record_len as usize > RECORD_MAX || payload_len as usize > PAYLOAD_MAX {
            return Err(HeaderError::TooLarge { record: record_len, payload: payload_len });
        }
        let mut cluster = ClusterId::default();
        cluster.0.copy_from_slice(&bytes[16..32]);
        let mut tag = Tag::default();
        tag.copy_from_slice(&bytes[TAGGED_LEN..]);
        Ok(FrameHeader {
            version,
            kind: u16_at(6),
            request: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            cluster,
            epoch: Epoch(u32_at(32)),
            flags: Flags(u32_at(36)),
            record_len,
            payload_len,
            record_crc: u32_at(48),
            payload_crc: u32_at(52),
            bulk: u32_at(56),
            tag,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> FrameHeader {
        FrameHeader {
            version: VERSION,
            kind: 33,
            request: 0x0102_0304_0506_0708,
            cluster: ClusterId(*b"0123456789abcdef"),
            epoch: Epoch(7),
            flags: Flags::REPLY,
            record_len: 300,
            payload_len: 131_072,
            record_crc: 0xdead_beef,
            payload_crc: 0x1234_5678,
            bulk: 0x0010_0000,
            tag: *b"ABCDEFGHIJKLMNOP",
        }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = sample().encode().iter().map(|b| format!("{b:02x}")).collect();
        let expected = concat!(
            "53484f4c1800210008070605040302013031323334353637383961626364656607000000010000002c01000000000200",
            "efbeadde7856341200001000"
        );
        assert_eq!(&hex[..120], expected);
        assert_eq!(&hex[128..], "4142434445464748494a4b4c4d4e4f50");
        assert_eq!(FrameHeader::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn lengths_are_believed_only_after_the_checksum() {
        let mut bytes = sample().encode();
        bytes[43] = 0xff;
        assert_eq!(FrameHeader::decode(&bytes), Err(HeaderError::Checksum));
        let huge = FrameHeader { record_len: u32::MAX, ..sample() };
        assert!(matches!(FrameHeader::decode(&huge.encode()), Err(HeaderError::TooLarge { .. })));
        let newer = FrameHeader { version: VERSION + 1, ..sample() };
        assert_eq!(FrameHeader::decode(&newer.encode()), Err(HeaderError::Version(VERSION + 1)));
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::array::uniform32(any::<u8>()), tail in proptest::array::uniform32(any::<u8>())) {
            let mut all = [0; HEADER_LEN];
            all[..32].copy_from_slice(&bytes);
            all[32..TAGGED_LEN].copy_from_slice(&tail);
            let _ = FrameHeader::decode(&all);
        }

        #[test]
        fn every_flipped_bit_before_the_tag_is_noticed(bit in 0usize..8 * TAGGED_LEN) {
            let mut bytes = sample().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FrameHeader::decode(&bytes).is_err());
        }
    }
}
