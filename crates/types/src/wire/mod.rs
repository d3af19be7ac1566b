//! The wire: frames of a fixed header, a small record, and an aligned payload apart from it.
//!
//! ```text
//! 0        64           64+record          64+record+payload
//! | header | record ... | payload ...      |
//! ```
//!
//! The header carries a checksum of itself; only after that matched are its lengths believed. Record and
//! payload have checksums of their own; where the record holds checksums of the payload's blocks, those are the
//! payload's only ones ([`Flags::COVERED`]). All integers are little-endian.

mod codec;
mod handshake;
mod header;

pub use codec::{Codec, DecodeError, Reader, from_bytes, to_bytes};
pub use handshake::{Key, Proof, prove};
pub use header::{Flags, FrameHeader, HEADER_LEN, HeaderError, MAGIC, VERSION, VERSION_MIN};

/// A message body with a number of its own.
pub trait Record: Codec + std::fmt::Debug + 'static {
    /// The number in the frame's header.
    const KIND: u16;
    /// The name in logs.
    const NAME: &'static str;

    /// Checksum of each 4-KiB block of the payload. If there are any, the frame carries no other one of the payload, and
    /// whoever takes the record out of the frame compares them.
    fn block_sums(&self) -> &[u32] {
        &[]
    }
}

/// A record that asks for another one.
pub trait Request: Record {
    /// What the answer holds.
    type Reply: Record;
}
