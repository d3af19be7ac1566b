//! For the model checker: the owners of blocks, and a fingerprint of a slot's state.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use types::StripeKey;

use super::{LogEntry, SlotCore};
use crate::space::Run;

impl SlotCore {
    /// Every referenced block, once per reference. A block that a patch shares with its base counts for the base.
    pub(crate) fn owned(&self) -> Vec<u64> {
        let of = |runs: &[Run]| super::expand(runs);
        let mut blocks = Vec::new();
        for unit in self.units.values() {
            blocks.extend(unit.base.iter().flat_map(|base| of(&base.runs)));
            blocks.extend(unit.pending.values().flat_map(|entry| of(&entry.record.fresh)));
        }
        blocks.extend(self.released.iter().flat_map(|(_, runs)| of(runs)));
        blocks.extend(self.in_flight.values().flat_map(|runs| of(runs)));
        blocks
    }

    /// Fresh space for a filled unit.
    pub(crate) fn allocate_for_fill(&mut self, blocks: u32) -> Option<Vec<Run>> {
        self.space.allocate(blocks)
    }

    /// Blocks that the allocator has given out.
    pub(crate) fn allocated(&self, data_blocks: u64) -> u64 {
        data_blocks - self.space.free()
    }

    /// Feeds the state that determines the next checkpoint to a hasher; serials count from `oldest`.
    pub(crate) fn fingerprint_for_checkpoint(&self, state: &mut impl Hasher, oldest: u64) {
        // The greatest serial means "nowhere in the journal".
        let age = |serial: u64| (serial < u64::MAX).then(|| (serial + 1).saturating_sub(oldest));
        for unit in self.units.values() {
            (unit.dirty.map(age), age(unit.emptied)).hash(state);
            let entries = unit.pending.values().chain(unit.overlays.values());
            entries.for_each(|entry| age(entry.serial).hash(state));
        }
        for group in self.groups.values() {
            (age(group.snapshot_serial), age(group.windows_serial)).hash(state);
        }
    }

    /// Feeds the state that determines the next steps of this slot to a hasher. Blocks count by their `content`: two
    /// states that differ only in the places of bytes behave alike.
    pub(crate) fn fingerprint<C: Hash>(&self, state: &mut impl Hasher, content: impl Fn(u64) -> C) {
        let runs = |runs: &[Run], state: &mut dyn FnMut(C)| {
            super::expand(runs).into_iter().for_each(|block| state(content(block)));
        };
        for (id, group) in &self.groups {
            (id, group.promised, group.served, group.decided, &group.held, &group.aborted).hash(state);
            group.applied.keys().for_each(|seq| seq.hash(state));
            for (client, seen) in &group.clients.0 {
                (client, seen.acked, &seen.seqs).hash(state);
                seen.notes.values().for_each(|kept| kept.seq.hash(state));
            }
        }
        let entries = |all: &BTreeMap<_, Box<LogEntry>>, state: &mut dyn FnMut(C)| {
            all.values().for_each(|entry| runs(&entry.record.runs, state));
        };
        for (key, unit) in &self.units {
            (key, unit.slot, unit.at_rest, unit.pending.len(), unit.overlays.len()).hash(state);
            if let Some(base) = &unit.base {
                (base.identity, base.blocks, &base.crcs, &base.unit_blocks, &base.identities).hash(state);
                runs(&base.runs, &mut |content| content.hash(state));
            }
            for LogEntry { record: hold, .. } in
                unit.pending.values().chain(unit.overlays.values()).map(|entry| &**entry)
            {
                (hold.seq, hold.kind, hold.participants, hold.base, hold.blocks).hash(state);
                (&hold.crcs, &hold.unit_blocks, &hold.identities).hash(state);
                hold.origins.iter().for_each(|origin| (origin.client, origin.seq).hash(state));
                hold.acked.hash(state);
                hold.spans.iter().for_each(|span| (span.offset, span.len).hash(state));
            }
            entries(&unit.pending, &mut |content| content.hash(state));
        }
        self.erased.iter().for_each(|erased: (&StripeKey, &u64)| erased.hash(state));
        self.released.iter().for_each(|(lsn, runs)| (lsn, super::expand(runs).len()).hash(state));
        self.in_flight.keys().for_each(|coming| coming.hash(state));
        (&self.dropped, self.replaying, self.space.free()).hash(state);
    }
}
