//! The description of a unit at rest: identity, place and checksums.

use types::{GroupId, Seq, StripeKey, records};

use crate::space::{RUNS_MAX, Run};
use crate::table::class_for;

records! {
    /// The decided bytes of a unit, overlays left out.
    fixed part Base {
        /// The operation that wrote them.
        identity: Seq,
        /// Number of 4-KiB blocks; the rest of the unit is zeros.
        blocks: u32,
        /// Where they lie.
        runs: Vec<Run>,
        /// Checksum of each block.
        crcs: Vec<u32>,
        /// Blocks of every data unit of the stripe: what a parity unit was computed from.
        unit_blocks: Vec<u32>,
        /// Identity of every data unit that a parity unit was computed from; empty if all equal `identity`.
        identities: Vec<Seq>,
    }
    /// A unit as it stands in a descriptor page.
    part Descriptor {
        /// The stripe.
        key: StripeKey,
        /// Its group.
        group: GroupId,
        /// The slot.
        slot: u8,
        /// The bytes.
        base: Base,
    }
}

/// Most bytes of a descriptor of a unit with so many blocks.
pub(crate) fn descriptor_max(blocks: u32, data_units: usize) -> usize {
    // Key, group, slot, identity, blocks; four counts; runs of 12 bytes, checksums and lengths of 4, identities of 8.
    let blocks = blocks as usize;
    16 + 8 + 1 + 8 + 4 + 4 * 4 + 12 * RUNS_MAX.min(blocks) + 4 * blocks + (4 + 8) * data_units
}

impl Base {
    /// The class of the descriptor, at most.
    pub(crate) fn class(&self) -> u16 {
        class_for(descriptor_max(self.blocks, self.unit_blocks.len()))
    }

    /// The data block that holds block `index` of the unit, with its checksum. `None` beyond the end.
    pub(crate) fn block(&self, index: u32) -> Option<(u64, u32)> {
        block_of(&self.runs, &self.crcs, index)
    }
}

/// The data block of block `index` of a unit that lies at `runs`, with its checksum.
pub(crate) fn block_of(runs: &[Run], crcs: &[u32], index: u32) -> Option<(u64, u32)> {
    let sum = *crcs.get(index as usize)?;
    let mut left = index;
    for run in runs {
        if left < run.blocks {
            return Some((run.start + u64::from(left), sum));
        }
        left -= run.blocks;
    }
    None
}
