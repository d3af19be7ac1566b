//! Patches at one slot: overlays become part of the unit that they touch, in fresh blocks; its other blocks stay.
//!
//! ```text
//! unit:   | a | b | c | d |     overlay over c, patch:     | a | b | c'| d |     runs: a b, c', d
//! ```
//!
//! # Invariants
//! - A patch allocates a fresh block for each touched block, or for every block of the unit.
//! - A block belongs to one unit of the stripe.

use std::collections::BTreeSet;
use std::ops::Range;

use types::limits::BLOCK;
use types::messages::brick::{Prepare, Span};
use types::{Refusal, Seq};

use super::read::{BaseRef, pieces};
use super::{OverlayPiece, SlotCore, Unit};
use crate::space::{RUNS_MAX, Run};

/// The input of a patch at a slot.
#[derive(Debug)]
pub(crate) struct PatchInput {
    /// Touched blocks of the unit, ascending.
    pub(crate) rows: Vec<u32>,
    /// Every block of the base, with its checksum.
    pub(crate) blocks: Vec<(u64, u32)>,
    /// Blocks of every data unit.
    pub(crate) unit_blocks: Vec<u32>,
    /// For a data slot: its overlays, as in a read of the whole unit.
    pub(crate) overlays: Vec<OverlayPiece>,
}

impl PatchInput {
    /// The place of the unit after its touched blocks were written to `fresh`, or all its blocks if `fresh` has that
    /// many.
    pub(crate) fn runs(&self, fresh: &[Run]) -> Vec<Run> {
        let fresh_blocks = expand(fresh);
        if fresh_blocks.len() == self.blocks.len() {
            return fresh.to_vec();
        }
        assert!(
            fresh.is_empty() || fresh_blocks.len() == self.rows.len(),
            "a touched block would keep its old bytes, and its overlay would be lost"
        );
        let mut blocks: Vec<u64> = self.blocks.iter().map(|(block, _)| *block).collect();
        for (row, block) in self.rows.iter().zip(fresh_blocks) {
            blocks[*row as usize] = block;
        }
        coalesce(&blocks)
    }
}

impl SlotCore {
    /// The input of a patch at this slot: the base that it names, which must be the newest before it, and the
    /// overlays over that base. `unit` is the length of a unit in bytes.
    pub(crate) fn patch_input(&self, p: &Prepare, unit: usize) -> Result<PatchInput, Refusal> {
        let found = self.units.get(&p.key).filter(|found| found.slot == p.slot).ok_or(Refusal::Corrupt)?;
        let base = found.newest_before(p.seq).filter(|base| base.identity() == p.base);
        let base = base.ok_or(Refusal::Corrupt)?;
        let overlays = found.overlays.range(p.base.next()..p.seq);
        let spans = overlays.clone().flat_map(|(_, entry)| entry.record.spans.iter().map(Span::range));
        // For a data slot its own unit counts; parity depends on every data unit.
        let is_data = p.identities.is_empty();
        let rows = touched_rows(spans, unit, is_data.then_some(usize::from(p.slot)));
        if rows.last().is_none_or(|last| *last >= base.blocks()) {
            return Err(Refusal::Corrupt);
        }
        let at = usize::from(p.slot) * unit;
        let range = at..at + unit;
        let overlays = if is_data {
            overlays.flat_map(|(_, entry)| pieces(entry, &range)).collect()
        } else {
            Vec::new()
        };
        let blocks = (0..base.blocks()).filter_map(|index| base.block(index)).collect();
        Ok(PatchInput { rows, blocks, unit_blocks: base.unit_blocks().to_vec(), overlays })
    }

    /// Allocates blocks for a patch: for the touched blocks, or for the whole unit if it would lie in too many runs.
    pub(super) fn allocate_patch(&mut self, patched: &PatchInput) -> Result<Vec<Run>, Refusal> {
        let count = patched.rows.len();
        if count * 2 < patched.blocks.len() {
            let fresh = self.allocate(count as u32)?;
            if patched.runs(&fresh).len() <= RUNS_MAX {
                return Ok(fresh);
            }
            fresh.iter().for_each(|run| self.space.release(run));
        }
        self.allocate(patched.blocks.len() as u32)
    }
}

impl Unit {
    /// The newest base before an operation. It may be undecided here, because a primary patches only committed bases.
    fn newest_before(&self, seq: Seq) -> Option<BaseRef<'_>> {
        match self.pending.range(..seq).next_back() {
            Some((seq, entry)) => Some(BaseRef::Pending(*seq, entry)),
            None => self.base.as_ref().map(BaseRef::Base),
        }
    }
}

/// Blocks that ranges of a stripe touch: of one unit, or of any if it is `None`. `unit` is the length of a unit.
pub(crate) fn touched_rows(
    ranges: impl Iterator<Item = Range<usize>>,
    unit: usize,
    only: Option<usize>,
) -> Vec<u32> {
    assert!(
        unit > 0 && unit.is_multiple_of(BLOCK),
        "a block would lie in two units, and the fold of one would leave out half of it"
    );
    let mut rows = BTreeSet::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        for index in range.start / unit..=(range.end - 1) / unit {
            let at = index * unit;
            let (from, to) = (range.start.max(at), range.end.min(at + unit));
            if only.is_none_or(|only| only == index) && from < to {
                rows.extend(((from - at) / BLOCK) as u32..=((to - 1 - at) / BLOCK) as u32);
            }
        }
    }
    rows.into_iter().collect()
}

/// The blocks of runs, in order.
pub(crate) fn expand(runs: &[Run]) -> Vec<u64> {
    runs.iter().flat_map(|run| run.start..run.start + u64::from(run.blocks)).collect()
}

/// How many blocks runs have.
pub(super) fn blocks_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.blocks)).sum()
}

/// Blocks as runs.
pub(crate) fn coalesce(blocks: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.start + u64::from(run.blocks) == *block => run.blocks += 1,
            _ => runs.push(Run { start: *block, blocks: 1 }),
        }
    }
    runs
}

/// The parts of `old` that are not in `new`.
pub(super) fn without(old: &[Run], new: &[Run]) -> Vec<Run> {
    let kept: BTreeSet<u64> = expand(new).into_iter().collect();
    let blocks: Vec<u64> = expand(old).into_iter().filter(|block| !kept.contains(block)).collect();
    coalesce(&blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_rows_of_one_unit_and_of_all() {
        let unit = 4 * BLOCK;
        let ranges =
            [10..20, BLOCK - 1..BLOCK + 1, unit - 1..unit + 1, 2 * unit + BLOCK..2 * unit + 2 * BLOCK];
        let rows = |only| touched_rows(ranges.iter().cloned(), unit, only);
        assert_eq!(rows(Some(0)), [0, 1, 3]);
        assert_eq!(rows(Some(1)), [0]);
        assert_eq!(rows(Some(2)), [1]);
        assert_eq!(rows(None), [0, 1, 3]);
        assert!(rows(Some(3)).is_empty());
    }

    #[test]
    fn touched_blocks_move_and_the_rest_stays() {
        let run = |start, blocks| Run { start, blocks };
        let patched = PatchInput {
            rows: vec![1, 2],
            blocks: (10..14).map(|block| (block, 0)).collect(),
            unit_blocks: vec![4],
            overlays: Vec::new(),
        };
        let runs = patched.runs(&[run(50, 1), run(40, 1)]);
        assert_eq!(runs, [run(10, 1), run(50, 1), run(40, 1), run(13, 1)]);
        assert_eq!(without(&[run(10, 4)], &runs), [run(11, 2)]);
        assert_eq!(patched.runs(&[run(70, 4)]), [run(70, 4)], "so many that it is the whole");
    }
}
