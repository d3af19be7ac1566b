//! Payloads whose checksums stand in their record: summed once where they are made, compared once where they arrive.

use types::checksum::blocks_match;
use types::wire::{Flags, Record};

/// The flags of a frame with this record.
pub(super) fn flags<R: Record>(record: &R, flags: Flags) -> Flags {
    if record.block_sums().is_empty() { flags } else { flags.with(Flags::COVERED) }
}

/// Whether the record keeps what the frame's header promises: that it covers the payload, or that it does not.
pub(super) fn matches_header<R: Record>(record: &R, covered: bool) -> bool {
    covered != record.block_sums().is_empty()
}

/// Whether the payload is what its record says. One that the record does not cover was compared with the frame.
pub(super) fn is_whole<R: Record>(record: &R, payload: &[u8]) -> bool {
    let sums = record.block_sums();
    sums.is_empty() || blocks_match(payload, sums)
}
