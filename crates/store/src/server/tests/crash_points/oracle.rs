//! What a brick must hold, from the operations that it was told: written without a look at how it does that.

use std::ops::Range;

use types::limits::BLOCK;
use types::messages::brick::{OpKind, Span};
use types::{ClientSeq, Seq, StripeKey};

use super::UNIT;

/// Requests to the disk until something happened.
pub(super) type RequestCount = usize;

/// An operation that was sent to the slot.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) seq: Seq,
    pub(super) key: StripeKey,
    pub(super) kind: OpKind,
    pub(super) spans: Vec<Span>,
    /// A unit, the spans' bytes, or what the touched blocks of a parity unit change by.
    pub(super) bytes: Vec<u8>,
    /// Touched blocks, of a patch.
    pub(super) rows: Vec<u32>,
    /// The number of the write that it carries.
    pub(super) origin: Option<ClientSeq>,
    pub(super) issued: RequestCount,
    /// Answered as durable.
    pub(super) acked: Option<RequestCount>,
    /// Answered with a refusal: as if it had never been sent.
    pub(super) refused: bool,
    /// A recovery has told that it is not held.
    pub(super) gone: Option<RequestCount>,
    /// The slot has missed it, and was given the unit that it made.
    pub(super) filled: bool,
}

/// A take-over.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) upto: Seq,
    pub(super) aborted: Vec<Seq>,
    pub(super) issued: RequestCount,
    pub(super) acked: Option<RequestCount>,
}

/// All that happened to a brick, with the times.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) ops: Vec<Op>,
    pub(super) settled: Vec<Settled>,
    /// Of the first object: sent and answered.
    pub(super) purged: Option<(RequestCount, Option<RequestCount>)>,
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Committed,
    Held,
    Gone,
}

/// A unit as it must be.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct UnitContent {
    /// Bytes of the base.
    pub(super) base: Vec<u8>,
    /// Bytes of the stripe's data that overlays cover.
    pub(super) over: Vec<Option<u8>>,
}

impl UnitContent {
    pub(super) fn empty(stripe: usize) -> UnitContent {
        UnitContent { base: vec![0; UNIT], over: vec![None; stripe] }
    }

    /// The unit's bytes with what lies over them, for the data unit that begins at `start` of the stripe.
    pub(super) fn read(&self, unit: Range<usize>) -> Vec<u8> {
        let over = self.over.get(unit).unwrap_or_default();
        let none = over.iter().chain(std::iter::repeat(&None));
        self.base.iter().zip(none).map(|(base, over)| over.unwrap_or(*base)).collect()
    }

    /// Applies an operation; `unit` is the part of the stripe that is this slot's, empty for parity.
    fn apply(&mut self, op: &Op, unit: Range<usize>) {
        match op.kind {
            OpKind::Full => {
                self.base = op.bytes.clone();
                self.base.resize(UNIT, 0);
                self.over.fill(None);
            }
            OpKind::Overlay | OpKind::Zero => {
                let mut bytes = op.bytes.iter();
                for at in op.spans.iter().flat_map(Span::range) {
                    self.over[at] = Some(bytes.next().copied().unwrap_or(0));
                }
            }
            OpKind::Patch => {
                if !unit.is_empty() {
                    self.base = self.read(unit);
                }
                for (row, delta) in op.rows.iter().zip(op.bytes.chunks(BLOCK)) {
                    let at = *row as usize * BLOCK;
                    self.base[at..at + BLOCK].iter_mut().zip(delta).for_each(|(byte, delta)| *byte ^= delta);
                }
                self.over.fill(None);
            }
        }
    }
}

impl History {
    /// The unit of a stripe made by some of the operations.
    pub(super) fn content(
        &self,
        key: StripeKey,
        stripe: usize,
        unit: Range<usize>,
        with: impl Fn(&Op) -> bool,
    ) -> UnitContent {
        let mut content = UnitContent::empty(stripe);
        for op in self.ops.iter().filter(|op| op.key == key && !op.refused && with(op)) {
            content.apply(op, unit.clone());
        }
        content
    }

    /// The last take-over that a slot knows of which has decided up to `decided`.
    pub(super) fn known(&self, decided: Seq) -> impl Iterator<Item = &Settled> {
        self.settled.iter().filter(move |settled| settled.upto <= decided)
    }

    /// What of it had happened by then, as a past of which nothing more is to come.
    pub(super) fn until(&self, at: RequestCount) -> History {
        let ended = |time: Option<RequestCount>| time.filter(|time| *time <= at).map(|_| 0);
        let ops = self.ops.iter().filter(|op| op.issued <= at).map(|op| Op {
            issued: 0,
            acked: ended(op.acked),
            gone: ended(op.gone),
            ..op.clone()
        });
        let settled = self.settled.iter().filter(|settled| settled.issued <= at).map(|settled| Settled {
            issued: 0,
            acked: ended(settled.acked),
            ..settled.clone()
        });
        let purged = self.purged.filter(|(issued, _)| *issued <= at).map(|(_, acked)| (0, ended(acked)));
        History { ops: ops.collect(), settled: settled.collect(), purged }
    }

    /// Whether a take-over that the slot knows of has decided against an operation.
    pub(super) fn is_aborted(&self, seq: Seq, decided: Seq) -> bool {
        self.known(decided).any(|settled| settled.aborted.contains(&seq))
    }
}
