//! Payloads whose checksums stand in their record: summed once where they are made, compared once where they arrive.

use types::Refusal;
use types::checksum::blocks_match;
use types::wire::{Flags, Record};

/// The flags of a frame with this record.
pub(super) fn flags<R: Record>(record: &R, flags: Flags) -> Flags {
    if record.block_sums().is_empty() { flags } else { flags.with(Flags::COVERED) }
}

/// Compares a payload with the checksums in its record, if the frame left that to them.
pub(super) fn check<R: Record>(record: &R, covered: bool, payload: &[u8]) -> Result<(), Refusal> {
    let sums = record.block_sums();
    if covered == sums.is_empty() {
        // The header promised what the record does not keep, or the other way round.
        return Err(Refusal::Malformed);
    }
    if !covered || blocks_match(payload, sums) { Ok(()) } else { Err(Refusal::Corrupt) }
}
