//! What a slot remembers of a group: its epoch, its order, whose writes it has seen, and what these say about sizes.
//!
//! # Invariants
//! - Of a client's seen writes, only the numbers above its acknowledged number are kept individually.
//! - A note is kept until a newer one of its file is decided, its writer says that nobody needs it, or the writer is gone.
//! - A newer snapshot of a group always lies further on in the journal.

use std::collections::{BTreeMap, BTreeSet};

use types::limits::NOTES_MAX;
use types::messages::brick::{DedupWindow, WriteId};
use types::messages::cluster::GroupConfig;
use types::messages::notes::NumberedNote;
use types::{ClientId, ClientSeq, Epoch, InodeId, Seq, StripeKey};

/// The seen writes of a client in a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientWindow {
    /// Up to here the client never repeats.
    pub(crate) acked: ClientSeq,
    /// Seen above that.
    pub(crate) seqs: BTreeSet<ClientSeq>,
    /// The newest note of each file.
    pub(crate) notes: BTreeMap<InodeId, NumberedNote>,
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

    /// The write is decided, and so is what it says about its file.
    pub(crate) fn mark_seen(&mut self, origin: &WriteId) {
        if origin.seq > self.acked {
            self.seqs.insert(origin.seq);
        }
        if let Some(note) = &origin.note {
            self.keep_note(NumberedNote { seq: origin.seq, note: note.clone() });
        }
    }

    /// Keeps a note, unless a newer one is known. A note that is kept for too long does no harm: it is true until its file is
    /// truncated.
    fn keep_note(&mut self, new: NumberedNote) {
        let (inode, told) = (new.note.inode, new.note.told);
        self.notes.retain(|_, kept| kept.seq > told);
        if self.notes.get(&inode).is_none_or(|kept| kept.seq < new.seq) {
            self.notes.insert(inode, new);
        }
        if self.notes.len() > NOTES_MAX {
            let oldest = self.notes.iter().min_by_key(|(_, kept)| kept.seq).map(|(inode, _)| *inode);
            oldest.map(|inode| self.notes.remove(&inode));
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
            seen.seqs.extend(window.seen.iter().filter(|seq| **seq > seen.acked));
            window.notes.iter().for_each(|note| seen.keep_note(note.clone()));
        }
    }

    pub(crate) fn forget(&mut self, which: impl Fn(ClientId) -> bool) {
        self.0.retain(|client, _| !which(*client));
    }

    /// A write is decided.
    pub(crate) fn mark_seen(&mut self, origin: &WriteId) {
        self.0.entry(origin.client).or_default().mark_seen(origin);
    }

    pub(crate) fn windows(&self) -> Vec<DedupWindow> {
        let window = |(client, seen): (&ClientId, &ClientWindow)| DedupWindow {
            client: *client,
            acked: seen.acked,
            seen: seen.seqs.iter().copied().collect(),
            notes: seen.notes.values().cloned().collect(),
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
        origins.iter().for_each(|origin| self.clients.mark_seen(origin));
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
    use types::messages::notes::SizeNote;

    use super::*;

    fn written(seq: u64, note: Option<(u64, u64, u64)>) -> WriteId {
        let of = |(inode, size, told)| SizeNote {
            inode: InodeId(inode),
            truncate_seq: 0,
            size,
            mtime: 0,
            told: ClientSeq(told),
        };
        WriteId { client: ClientId(1), seq: ClientSeq(seq), note: note.map(of) }
    }

    fn sizes(window: &ClientWindow) -> Vec<(u64, u64)> {
        window.notes.iter().map(|(inode, kept)| (inode.0, kept.note.size)).collect()
    }

    #[test]
    fn the_newest_note_of_each_file_is_kept_until_its_writer_says_that_it_is_told() {
        let mut window = ClientWindow::default();
        window.mark_seen(&written(3, Some((7, 30, 0))));
        window.mark_seen(&written(2, Some((7, 20, 0))));
        window.mark_seen(&written(4, Some((8, 5, 0))));
        assert_eq!(sizes(&window), [(7, 30), (8, 5)], "in whatever order they are decided");
        // What is acknowledged is seen for good, and what it has noted stays.
        window.acknowledge(ClientSeq(9));
        window.mark_seen(&written(6, Some((9, 1, 0))));
        assert_eq!(sizes(&window), [(7, 30), (8, 5), (9, 1)]);
        let mut merged = ClientTable::default();
        merged.merge(&ClientTable(BTreeMap::from([(ClientId(1), window)])).windows());
        let window = merged.0.get_mut(&ClientId(1)).expect("merged");
        assert_eq!(sizes(window), [(7, 30), (8, 5), (9, 1)], "a take-over carries all of them");
        window.mark_seen(&written(12, Some((9, 2, 4))));
        assert_eq!(sizes(window), [(9, 2)]);
    }

    #[test]
    fn a_client_that_never_says_what_is_told_fills_no_memory() {
        let mut window = ClientWindow::default();
        for seq in 1..1000 {
            window.mark_seen(&written(seq, Some((seq, seq, 0))));
        }
        assert_eq!(window.notes.len(), NOTES_MAX);
        assert_eq!(sizes(&window).first(), Some(&(1000 - NOTES_MAX as u64, 1000 - NOTES_MAX as u64)));
    }

    #[test]
    fn the_greatest_number_from_the_wire_covers_all() {
        let mut window = ClientWindow::default();
        window.mark_seen(&written(3, None));
        window.acknowledge(ClientSeq(u64::MAX));
        assert!(window.seqs.is_empty() && window.has(ClientSeq(3)));
        let mut map = BTreeMap::from([(Seq(1), ()), (Seq(u64::MAX), ())]);
        assert_eq!(take_upto(&mut map, Seq(u64::MAX)).len(), 2);
        assert!(map.is_empty());
    }
}
