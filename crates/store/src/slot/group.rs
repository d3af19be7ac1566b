//! What a slot remembers of a group: its epoch, its order, and whose writes it has seen.
//!
//! # Invariants
//! - Of a client's seen writes, only the numbers above its acknowledged number are kept individually.
//! - A newer snapshot of a group always lies further on in the journal.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::brick::{DedupWindow, WriteId};
use types::messages::cluster::GroupConfig;
use types::{ClientId, ClientSeq, Epoch, Seq, StripeKey};

/// The seen writes of a client in a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientWindow {
    /// Up to here the client never repeats.
    pub(crate) acked: ClientSeq,
    /// Seen above that.
    pub(crate) seqs: BTreeSet<ClientSeq>,
}

impl ClientWindow {
    /// Whether the write was seen.
    pub(crate) fn has(&self, seq: ClientSeq) -> bool {
        seq <= self.acked || self.seqs.contains(&seq)
    }

    pub(crate) fn acknowledge(&mut self, acked: ClientSeq) {
        if acked > self.acked {
            self.acked = acked;
            let above = acked.0.checked_add(1);
            self.seqs = above.map_or_else(BTreeSet::new, |above| self.seqs.split_off(&ClientSeq(above)));
        }
        assert!(
            self.seqs.first().is_none_or(|first| *first > self.acked),
            "numbers that the client never repeats would be kept forever, and fill RAM and journal"
        );
    }

    pub(crate) fn mark_seen(&mut self, seq: ClientSeq) {
        if seq > self.acked {
            self.seqs.insert(seq);
        }
    }
}

/// Windows of all clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTable(pub(crate) BTreeMap<ClientId, ClientWindow>);

impl ClientTable {
    pub(crate) fn merge(&mut self, windows: &[DedupWindow]) {
        for window in windows {
            let seen = self.0.entry(window.client).or_default();
            seen.acknowledge(window.acked);
            window.seen.iter().for_each(|seq| seen.mark_seen(*seq));
        }
    }

    pub(crate) fn forget(&mut self, which: impl Fn(ClientId) -> bool) {
        self.0.retain(|client, _| !which(*client));
    }

    pub(crate) fn windows(&self) -> Vec<DedupWindow> {
        let window = |(client, seen): (&ClientId, &ClientWindow)| DedupWindow {
            client: *client,
            acked: seen.acked,
            seen: seen.seqs.iter().copied().collect(),
        };
        self.0.iter().map(window).collect()
    }
}

/// An operation whose effect a replay finds at rest.
#[derive(Clone, Debug)]
pub(crate) struct AppliedOp {
    pub(crate) key: StripeKey,
    /// The writes that it carries.
    pub(crate) origins: Vec<WriteId>,
    /// Serial of the segment with its record.
    pub(crate) serial: u64,
}

/// A group as one of its slots knows it.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct SlotGroup {
    /// Nothing older is accepted.
    pub(crate) promised: Epoch,
    /// The configuration that was promised last; `None` only if an older build made the promise.
    pub(crate) config: Option<GroupConfig>,
    /// Nothing older is promised.
    pub(crate) floor: Epoch,
    /// The epoch whose take-over has ended here; reads and operations are for it.
    pub(crate) served: Option<Epoch>,
    /// Every operation up to here is decided.
    pub(crate) decided: Seq,
    /// Operations aborted by the last take-over that this slot knows of. Other slots may not know them; then the next
    /// take-over learns them from the tail of this slot.
    pub(crate) aborted: Vec<Seq>,
    /// Operations above that, with their stripes.
    pub(crate) held: BTreeMap<Seq, StripeKey>,
    /// Operations that a replay found undecided although their effect is at rest.
    pub(crate) applied: BTreeMap<Seq, AppliedOp>,
    pub(crate) clients: ClientTable,
    /// Serial of the segment with the last record of the group as a whole.
    pub(crate) snapshot_serial: u64,
    /// Serial of the first segment since that record that has newly seen writes.
    pub(crate) windows_serial: u64,
}

impl SlotGroup {
    pub(crate) fn new(serial: u64) -> SlotGroup {
        SlotGroup {
            promised: Epoch(0),
            config: None,
            floor: Epoch(0),
            served: None,
            decided: Seq::NONE,
            aborted: Vec::new(),
            held: BTreeMap::new(),
            applied: BTreeMap::new(),
            clients: ClientTable::default(),
            snapshot_serial: serial,
            windows_serial: u64::MAX,
        }
    }

    /// Remembers the writes of an operation whose record stands in this segment.
    pub(crate) fn mark_all_seen(&mut self, origins: &[WriteId], serial: u64) {
        origins.iter().for_each(|origin| self.mark_seen(origin.client, origin.seq));
        if !origins.is_empty() {
            self.windows_serial = self.windows_serial.min(serial);
        }
    }

    /// The group's whole state stands in this segment.
    pub(crate) fn note_snapshot(&mut self, serial: u64) {
        assert!(
            serial >= self.snapshot_serial,
            "the group's state would stand in a segment that is freed first, and its promise would be lost"
        );
        (self.snapshot_serial, self.windows_serial) = (serial, u64::MAX);
    }

    pub(crate) fn acknowledge(&mut self, client: ClientId, acked: ClientSeq) {
        self.clients.0.entry(client).or_default().acknowledge(acked);
    }

    pub(crate) fn mark_seen(&mut self, client: ClientId, seq: ClientSeq) {
        self.clients.0.entry(client).or_default().mark_seen(seq);
    }

    /// Marks the writes of applied operations up to `upto` as seen: they are decided.
    pub(crate) fn mark_applied_seen(&mut self, upto: Seq) {
        for AppliedOp { origins, serial, .. } in take_upto(&mut self.applied, upto).into_values() {
            self.mark_all_seen(&origins, serial);
        }
    }

    /// Forgets the applied, still undecided operations of a dropped unit: a replay knows only the writes of these.
    pub(crate) fn drop_applied(&mut self, key: StripeKey) {
        self.applied.retain(|_, op| op.key != key);
    }

    pub(crate) fn merge(&mut self, windows: &[DedupWindow]) {
        self.clients.merge(windows);
    }

    pub(crate) fn windows(&self) -> Vec<DedupWindow> {
        self.clients.windows()
    }
}

/// Takes the entries up to and including a number out of a map.
pub(super) fn take_upto<V>(map: &mut BTreeMap<Seq, V>, upto: Seq) -> BTreeMap<Seq, V> {
    // The number may come from the wire and be the greatest possible.
    let above = upto.0.checked_add(1).map_or_else(BTreeMap::new, |above| map.split_off(&Seq(above)));
    std::mem::replace(map, above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_number_from_the_wire_covers_all() {
        let mut window = ClientWindow::default();
        window.mark_seen(ClientSeq(3));
        window.acknowledge(ClientSeq(u64::MAX));
        assert!(window.seqs.is_empty() && window.has(ClientSeq(3)));
        let mut map = BTreeMap::from([(Seq(1), ()), (Seq(u64::MAX), ())]);
        assert_eq!(take_upto(&mut map, Seq(u64::MAX)).len(), 2);
        assert!(map.is_empty());
    }
}
