//! The wire format. A frame has a fixed header, a small record, and a payload that is kept apart so that it can be
//! aligned.
//!
//! ```text
//! 0        80           80+record          80+record+payload
//! | header | record ... | payload ...      |
//! ```
//!
//! The header has a checksum of itself. A receiver uses the lengths only after this checksum has matched. After the handshake a
//! tag authenticates header, record and payload ([`Seal`]). During it, and in a cluster without a key, record and payload have
//! checksums instead. If the record holds checksums of the payload's blocks, the payload has no other one ([`Flags::COVERED`]). In front of the record of an answer that took a brick long is where the time went
//! ([`Flags::TIMED`]). All integers are little-endian.

mod codec;
mod forms;
mod handshake;
mod header;
mod reader;
mod records;
mod seal;
mod served;

pub use codec::{Codec, Last, Unknown, encode_part, from_bytes, from_plain_bytes, to_bytes};
pub use forms::{Forms, at_head_of, check_document};
pub use handshake::{Key, Proof, Side, Transcript, prove, seal};
pub use header::{Flags, FrameHeader, HEADER_LEN, HeaderError, MAGIC, TAGGED_LEN, VERSION, VERSION_MIN};
pub use reader::{DecodeError, Reader};
pub use seal::{Seal, TAG_LEN, Tag};
pub use served::{OtherServed, SERVED_MIN_US, Served, StageTimes};

/// A message body with its own number.
pub trait Record: Codec + std::fmt::Debug + 'static {
    /// The number in the frame's header.
    const KIND: u16;
    /// The name in logs.
    const NAME: &'static str;

    /// Checksum of each 4-KiB block of the payload. If there are any, the frame has no other checksum of the payload,
    /// and the code that takes the record out of the frame must compare these.
    fn block_sums(&self) -> &[u32] {
        &[]
    }
}

/// A record that asks for an answer.
pub trait Request: Record {
    /// The record of the answer.
    type Reply: Record;

    /// Most bytes of the answer's payload, as far as the request tells; 0 if it does not.
    fn reply_bytes(&self) -> usize {
        0
    }
}
