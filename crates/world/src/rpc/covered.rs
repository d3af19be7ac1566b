//! Payloads whose checksums are in the record: computed once by the sender, compared once by the receiver.

use types::checksum::blocks_match;
use types::limits::BLOCK;
use types::wire::{Flags, Record};

/// The flags of a frame with this record.
pub(super) fn flags<R: Record>(record: &R, flags: Flags) -> Flags {
    if record.block_sums().is_empty() { flags } else { flags.with(Flags::COVERED) }
}

/// Whether the record has checksums of the payload exactly if the frame's header says so.
pub(super) fn matches_header<R: Record>(record: &R, covered: bool) -> bool {
    covered != record.block_sums().is_empty()
}

/// Whether the record has as many checksums as the payload has blocks, or none.
pub(super) fn fits<R: Record>(record: &R, payload: &[u8]) -> bool {
    let sums = record.block_sums();
    sums.is_empty() || sums.len() == payload.len().div_ceil(BLOCK)
}

/// Whether the payload matches the record's checksums. If the record has none, the frame's checksum was already
/// compared.
pub(super) fn is_whole<R: Record>(record: &R, payload: &[u8]) -> bool {
    let sums = record.block_sums();
    sums.is_empty() || blocks_match(payload, sums)
}
