//! The oracle: every operation that was ever ordered, and what clients were told. No part of the system knows all of
//! this.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use types::{Seq, StripeKey};

use super::bytes::Cell;

/// The fate of an operation, as the oracle sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Fate {
    Open,
    /// Committed by its primary, forwarded by a take-over that ended, or shown to a reader.
    Committed,
    /// Aborted by a take-over that ended.
    Aborted,
}

/// An operation that was ordered.
#[derive(Clone, Hash, Debug)]
pub(super) struct Op {
    pub(super) key: StripeKey,
    /// The write that it carries; `None` for a fold, which changes no content.
    pub(super) write: Option<usize>,
    /// It is an overlay, or zeros over an existing stripe.
    pub(super) small: bool,
    pub(super) participants: u64,
    /// Blocks of the stripe and their bytes.
    pub(super) cells: Vec<(usize, Cell)>,
    pub(super) fate: Fate,
}

/// Everything.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Oracle {
    pub(super) ops: BTreeMap<Seq, Op>,
    /// Masks of writes: those that some primary has accepted, and those that were reported stable.
    pub(super) begun: u64,
    pub(super) stable: u64,
    /// The epoch in which each write was accepted last.
    pub(super) accepted: Vec<u32>,
    /// The writes that must come before each write: stable when it began, or earlier ones of the same client.
    pub(super) before: Vec<u64>,
}

impl Oracle {
    /// The blocks of a stripe after the operations that `counts` selects, and the write that each block is from.
    pub(super) fn content(
        &self,
        key: StripeKey,
        len: usize,
        counts: impl Fn(Seq, &Op) -> bool,
    ) -> (Vec<Cell>, Vec<Option<usize>>) {
        let (mut cells, mut from) = (vec![0; len], vec![None; len]);
        for (_, op) in self.ops.iter().filter(|(seq, op)| op.key == key && counts(**seq, op)) {
            for (at, cell) in &op.cells {
                (cells[*at], from[*at]) = (*cell, op.write);
            }
        }
        (cells, from)
    }

    /// Whether clients may find a stripe whose blocks are from these writes: no stable write is lost, and no older
    /// write lies over a newer one. `covers`: whether a write touches a block.
    pub(super) fn check_order(
        &self,
        from: &[Option<usize>],
        covers: impl Fn(usize, usize) -> bool,
    ) -> Result<(), String> {
        for (at, last) in from.iter().enumerate() {
            for write in (0..self.before.len()).filter(|write| self.stable & 1 << write != 0) {
                if Some(write) == *last || !covers(write, at) {
                    continue;
                }
                match last {
                    None => return Err(format!("I1 write {write} was stable, block {at} lacks it")),
                    Some(last) if self.before[write] & 1 << last != 0 => {
                        return Err(format!(
                            "I8 block {at}: write {last} lies over write {write}, which came later"
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Whether no write takes effect a second time over a later one.
    pub(super) fn check_once(&self, key: StripeKey) -> Result<(), String> {
        let ops = || {
            self.ops
                .iter()
                .filter(|(_, op)| op.key == key && op.fate == Fate::Committed && op.write.is_some())
        };
        for (first, op) in ops() {
            let touches =
                |other: &Op| other.cells.iter().any(|(at, _)| op.cells.iter().any(|(own, _)| own == at));
            let mut between =
                ops().filter(|(seq, other)| *seq > first && other.write != op.write && touches(other));
            let Some((followed, _)) = between.next() else { continue };
            if let Some((again, _)) = ops().find(|(seq, other)| *seq > followed && other.write == op.write) {
                return Err(format!("I8 {again} repeats {first} although {followed} came between"));
            }
        }
        Ok(())
    }

    pub(super) fn fingerprint(&self, state: &mut impl Hasher) {
        self.hash(state);
    }
}
