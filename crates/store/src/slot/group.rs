//! What a slot remembers of a group: its epoch, its order, and whose writes it has seen.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::brick::{DedupWindow, WriteId};
use types::{ClientId, ClientSeq, Epoch, Seq, StripeKey};

/// A client's writes in a group.
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
            self.seqs = self.seqs.split_off(&ClientSeq(acked.0 + 1));
        }
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
    /// The epoch whose take-over has ended here; reads and operations are for it.
    pub(crate) served: Option<Epoch>,
    /// Every operation up to here is decided.
    pub(crate) decided: Seq,
    /// What the last take-over that this slot was told of aborted. It may not have been told to all: then the next one asks.
    pub(crate) aborted: Vec<Seq>,
    /// Operations above that, with their stripes.
    pub(crate) held: BTreeMap<Seq, StripeKey>,
    /// Found by a replay, undecided so far, but their effect is at rest.
    pub(crate) applied: BTreeMap<Seq, AppliedOp>,
    pub(crate) clients: ClientTable,
    /// Serial of the segment with the last record of the group as a whole.
    pub(crate) snapshot_serial: u64,
    /// Serial of the first segment that tells, since that record, whose writes were seen.
    pub(crate) windows_serial: u64,
}

impl SlotGroup {
    pub(crate) fn new(serial: u64) -> SlotGroup {
        SlotGroup {
            promised: Epoch(0),
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
        (self.snapshot_serial, self.windows_serial) = (serial, u64::MAX);
    }

    pub(crate) fn acknowledge(&mut self, client: ClientId, acked: ClientSeq) {
        self.clients.0.entry(client).or_default().acknowledge(acked);
    }

    pub(crate) fn mark_seen(&mut self, client: ClientId, seq: ClientSeq) {
        self.clients.0.entry(client).or_default().mark_seen(seq);
    }

    /// Remembers the writes of past operations up to `upto`: they are decided.
    pub(crate) fn mark_applied_seen(&mut self, upto: Seq) {
        let rest = self.applied.split_off(&upto.next());
        for AppliedOp { origins, serial, .. } in std::mem::replace(&mut self.applied, rest).into_values() {
            self.mark_all_seen(&origins, serial);
        }
    }

    /// Forgets undecided operations of a unit that is dropped: those of which a replay knows only whose writes they were.
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
