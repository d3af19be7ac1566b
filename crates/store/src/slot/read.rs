//! What a read of a unit must fetch, and whether it may be answered.
//!
//! # Invariants
//! - An answer contains no bytes of an operation whose decision is not known.
//! - An answer is not longer than its range, and whole blocks leave with their checksums.

use std::ops::Range;

use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{OpKind, Span};
use types::{Refusal, Seq, StripeKey};

use super::{LogEntry, SlotCore, Unit};
use crate::descriptor::Base;
use crate::journal::Position;

/// Bytes of an overlay that belong over a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverlayPiece {
    /// The overlay's bytes; `None` for zeros.
    pub(crate) source: Option<(Position, u32)>,
    /// First byte within the overlay.
    pub(crate) from: usize,
    /// First byte within the range that is read.
    pub(crate) to: usize,
    /// Bytes.
    pub(crate) len: usize,
}

/// How to answer a read of a unit.
#[derive(Debug, Default)]
pub(crate) struct ReadPlan {
    /// The base's identity, [`Seq::NONE`] if absent.
    pub(crate) identity: Seq,
    /// Blocks of the base that the range touches: the first one's index in the unit, then `(data block, checksum)`.
    pub(crate) blocks: (u32, Vec<(u64, u32)>),
    /// Overlays, in order.
    pub(crate) overlays: Vec<OverlayPiece>,
    /// Bytes of the range up to the point from which all are zeros.
    pub(crate) present: usize,
}

impl ReadPlan {
    /// Checksums of the blocks of the first `len` bytes of the range, if those are whole blocks without overlays. The
    /// fetch has compared them, and the receiver may compare them again.
    pub(crate) fn sums_of(&self, range: &Range<usize>, len: usize) -> Vec<u32> {
        if !self.overlays.is_empty() || !range.start.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            return Vec::new();
        }
        let sums: Vec<u32> = self.blocks.1.iter().take(len / BLOCK).map(|(_, sum)| *sum).collect();
        assert_eq!(sums.len() * BLOCK, len, "bytes without a checksum would leave the brick");
        sums
    }
}

/// What a primary must know of a stripe to plan a write, from its own slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Something of the stripe exists.
    pub(crate) exists: bool,
    /// Identity of the base.
    pub(crate) identity: Seq,
    /// For a parity slot: identity of every data unit's base; empty if all equal its own.
    pub(crate) identities: Vec<Seq>,
    /// Blocks of every data unit's base.
    pub(crate) unit_blocks: Vec<u32>,
    /// Ranges of the stripe with overlays.
    pub(crate) overlays: Vec<Range<usize>>,
}

impl Shape {
    /// Identity of a slot's base, as a parity slot knows it.
    pub(crate) fn identity_of(&self, slot: usize) -> Seq {
        self.identities.get(slot).copied().unwrap_or(self.identity)
    }
}

impl SlotCore {
    /// Plans a read of `range` of the unit. `at` is the unit's place in the stripe (for data slots).
    ///
    /// `identity`: the base with this identity and nothing over it. `decided`: operations known to be decided.
    pub(crate) fn plan_read(
        &self,
        key: StripeKey,
        slot: u8,
        at: usize,
        range: Range<usize>,
        identity: Option<Seq>,
        decided: &[Seq],
    ) -> Result<ReadPlan, Refusal> {
        let Some(unit) = self.units.get(&key) else {
            if let Some(wanted) = identity.filter(|wanted| *wanted != Seq::NONE) {
                tracing::debug!(%key, slot, %wanted, "no such unit");
                return Err(Refusal::Corrupt);
            }
            return Ok(ReadPlan::default());
        };
        if unit.slot != slot {
            return Err(Refusal::Malformed);
        }
        let upto = self.decided(unit.group);
        let known = |seq: Seq| seq <= upto || decided.contains(&seq);
        if let Some(identity) = identity {
            let base = unit.base_at(identity, &known).inspect_err(|_| {
                hit(CodeProbe::OtherIdentity);
                let found = unit.base.as_ref().map(|base| base.identity);
                tracing::debug!(%key, slot, wanted = %identity, ?found, pending = ?unit.pending.keys(), %upto, "not this base");
            })?;
            return Ok(plan_base(base, &range));
        }
        // A patch does not change the content: until its decision is known, its input answers.
        let newest =
            unit.pending.iter().rev().find(|(seq, entry)| known(**seq) || entry.record.kind != OpKind::Patch);
        let base = match newest {
            Some((seq, entry)) if known(*seq) => Some(BaseRef::Pending(*seq, entry)),
            Some(_) => return Err(Refusal::Pending),
            None => unit.base.as_ref().map(BaseRef::Base),
        };
        let identity = base.map_or(Seq::NONE, |base| base.identity());
        let mut plan = base.map_or_else(ReadPlan::default, |base| plan_base(base, &range));
        let stripe_range = at + range.start..at + range.end;
        for (seq, entry) in unit.overlays.range(identity.next()..) {
            for piece in pieces(entry, &stripe_range) {
                if !known(*seq) {
                    return Err(Refusal::Pending);
                }
                plan.present = plan.present.max(piece.to + piece.len);
                plan.overlays.push(piece);
            }
        }
        assert!(plan.present <= range.len(), "a reader would get bytes of the next unit");
        Ok(plan)
    }

    /// The overlays over `range` of a stripe that are newer than the base with `identity`. A primary lays them over a
    /// decoded unit. All of them count as decided.
    pub(crate) fn overlays_over(
        &self,
        key: StripeKey,
        range: &Range<usize>,
        identity: Seq,
    ) -> Vec<OverlayPiece> {
        let Some(unit) = self.units.get(&key) else { return Vec::new() };
        unit.overlays.range(identity.next()..).flat_map(|(_, entry)| pieces(entry, range)).collect()
    }

    /// What this slot knows of a stripe. All operations on it count as decided.
    pub(crate) fn shape(&self, key: StripeKey) -> Shape {
        let Some(unit) = self.units.get(&key) else { return Shape::default() };
        let (identity, unit_blocks, identities) = match (unit.pending.last_key_value(), &unit.base) {
            (Some((seq, entry)), _) => {
                (*seq, entry.record.unit_blocks.clone(), entry.record.identities.clone())
            }
            (None, Some(base)) => (base.identity, base.unit_blocks.clone(), base.identities.clone()),
            (None, None) => (Seq::NONE, Vec::new(), Vec::new()),
        };
        let overlays = unit.overlays.range(identity.next()..);
        let overlays = overlays.flat_map(|(_, entry)| entry.record.spans.iter().map(Span::range));
        Shape { exists: true, identity, identities, unit_blocks, overlays: overlays.collect() }
    }
}

/// A base, decided or about to be.
#[derive(Clone, Copy)]
pub(super) enum BaseRef<'a> {
    Base(&'a Base),
    Pending(Seq, &'a LogEntry),
}

impl BaseRef<'_> {
    pub(super) fn identity(&self) -> Seq {
        match self {
            BaseRef::Base(base) => base.identity,
            BaseRef::Pending(seq, _) => *seq,
        }
    }

    pub(super) fn block(&self, index: u32) -> Option<(u64, u32)> {
        match self {
            BaseRef::Base(base) => base.block(index),
            BaseRef::Pending(_, entry) => {
                crate::descriptor::block_of(&entry.record.runs, &entry.record.crcs, index)
            }
        }
    }

    pub(super) fn blocks(&self) -> u32 {
        match self {
            BaseRef::Base(base) => base.blocks,
            BaseRef::Pending(_, entry) => entry.record.blocks,
        }
    }

    pub(super) fn unit_blocks(&self) -> &[u32] {
        match self {
            BaseRef::Base(base) => &base.unit_blocks,
            BaseRef::Pending(_, entry) => &entry.record.unit_blocks,
        }
    }
}

impl Unit {
    /// The base with exactly this identity.
    fn base_at(&self, identity: Seq, known: &dyn Fn(Seq) -> bool) -> Result<BaseRef<'_>, Refusal> {
        if let Some(base) = self.base.as_ref().filter(|base| base.identity == identity) {
            return Ok(BaseRef::Base(base));
        }
        match self.pending.get(&identity).filter(|_| known(identity)) {
            Some(entry) => Ok(BaseRef::Pending(identity, entry)),
            None => Err(Refusal::Corrupt),
        }
    }
}

fn plan_base(base: BaseRef<'_>, range: &Range<usize>) -> ReadPlan {
    let first = (range.start / BLOCK) as u32;
    let end = (range.end.div_ceil(BLOCK) as u32).min(base.blocks());
    let blocks: Vec<(u64, u32)> = (first..end).filter_map(|index| base.block(index)).collect();
    let present = (end as usize * BLOCK).saturating_sub(range.start).min(range.len());
    let present = if blocks.is_empty() { 0 } else { present };
    ReadPlan { identity: base.identity(), blocks: (first, blocks), overlays: Vec::new(), present }
}

/// The parts of an overlay that lie over a range of the stripe.
pub(super) fn pieces<'a>(
    entry: &'a LogEntry,
    range: &'a Range<usize>,
) -> impl Iterator<Item = OverlayPiece> + 'a {
    let mut at = 0;
    entry.record.spans.iter().zip(&entry.record.crcs).filter_map(move |(span, sum)| {
        let Range { start, end } = span.range();
        // Zeros have no bytes in the journal, and the checksum of none.
        let source = (entry.record.kind != OpKind::Zero).then(|| {
            let Position { serial, offset, .. } = entry.position;
            (Position { serial, offset: offset + at, len: span.len }, *sum)
        });
        at += u64::from(span.len);
        let (from, to) = (start.max(range.start), end.min(range.end));
        (from < to).then(|| OverlayPiece {
            source,
            from: from - start,
            to: from - range.start,
            len: to - from,
        })
    })
}
