//! Who has which inode open, and in what mode (`docs/ARCHITECTURE.md`, "Names and modes").
//!
//! | holders | mode |
//! |---|---|
//! | one client, which writes or wrote | `Alone`: it may buffer |
//! | one client or several, none of which writes | `Readers`: they may cache |
//! | otherwise, and from then on until all have closed | `Shared`: nobody buffers or caches |
//!
//! An open that conflicts with the modes of other clients recalls these modes. It is answered only when each of these
//! clients has acknowledged the recall, closed the file, or lost its lease. Recalls are numbered, and a `RecallAck`
//! names the number. So a late copy of an acknowledgement has no effect, even if the client has opened the file again
//! since. The numbers begin at random, so those from an earlier life of the service have no effect either.
//!
//! # Invariants
//! - A client is granted `Alone` only while nobody else has the file open; no recall is to `Alone`.
//! - A client is in the table before the others' modes are recalled, so their new modes allow for it.
//! - A recall is for a client that has the file open, and is sent again until it is acknowledged.
//! - An inode in the table has a holder, or a client that truncates it; a holder has at least one open.
//! - Nothing is opened, recalled or truncated before all clients are back.
//!
//! A close of a file that is not open, or an acknowledgement without a recall, is ignored.

use std::collections::BTreeMap;

use types::messages::cluster::{Mode, Recall};
use types::{ClientId, cost};

use crate::volume_inode::VolumeInode;

/// A client that has an inode open.
#[derive(Debug)]
struct Holder {
    readers: u32,
    writers: u32,
    /// Opens that have not been answered.
    waiting: u32,
    mode: Mode,
    /// The recall in progress, if any: the new mode and the recall's number.
    recall: Option<(Mode, u64)>,
}

impl Holder {
    fn new(mode: Mode) -> Holder {
        Holder { readers: 0, writers: 0, waiting: 0, mode, recall: None }
    }

    fn count(&mut self, write: bool) -> &mut u32 {
        if write { &mut self.writers } else { &mut self.readers }
    }

    fn opens(&self) -> u32 {
        self.readers.saturating_add(self.writers)
    }

    /// Recalls the mode, under the number after `last`. Returns whether the holder must be told. If none of its opens
    /// has been answered yet, its mode just changes.
    fn recall(&mut self, to: Mode, last: &mut u64) -> bool {
        assert_ne!(to, Mode::Alone, "this client would buffer writes that another one does not see");
        if self.opens() == self.waiting {
            self.mode = to;
            false
        } else if self.mode == to {
            self.recall = None;
            false
        } else if self.recall.is_some_and(|(mode, _)| mode == to) {
            false
        } else {
            *last = last.wrapping_add(1);
            self.recall = Some((to, *last));
            true
        }
    }
}

/// The holders of one inode.
#[derive(Debug, Default)]
struct Holders {
    by_client: BTreeMap<ClientId, Holder>,
    /// Clients that are truncating the file; each counts as a writer meanwhile.
    cutters: Vec<ClientId>,
    /// It has been in mode `Shared` since the first open.
    shared: bool,
}

impl Holders {
    fn mode(&self) -> Mode {
        let writes = !self.cutters.is_empty() || self.by_client.values().any(|holder| holder.writers > 0);
        let mut clients = self.by_client.keys().chain(&self.cutters);
        let first = clients.next();
        match clients.all(|client| Some(client) == first) {
            _ if self.shared => Mode::Shared,
            true if writes => Mode::Alone,
            false if writes => Mode::Shared,
            _ => Mode::Readers,
        }
    }

    fn is_empty(&self) -> bool {
        self.by_client.is_empty() && self.cutters.is_empty()
    }

    /// Recalls the modes of the other holders that conflict with `client`; returns the clients to tell.
    fn settle(&mut self, client: ClientId, last: &mut u64) -> Vec<ClientId> {
        assert!(
            self.by_client.contains_key(&client) || self.cutters.last() == Some(&client),
            "the others would keep a mode that does not allow for this client"
        );
        let mode = self.mode();
        self.shared |= mode == Mode::Shared;
        let others = self.by_client.iter_mut().filter(|(id, _)| **id != client);
        others.filter_map(|(id, holder)| holder.recall(mode, last).then_some(*id)).collect()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OpenTable {
    inodes: BTreeMap<VolumeInode, Holders>,
    /// The inodes on which each client has a recall, and whether it has been told.
    recalled: BTreeMap<ClientId, BTreeMap<VolumeInode, bool>>,
    /// The number of the last recall.
    last: u64,
}

impl OpenTable {
    /// Sets the number before that of the next recall.
    pub(crate) fn count_from(&mut self, number: u64) {
        assert!(
            self.recalled.is_empty(),
            "a later recall could get the number of one in progress, and its acknowledgement"
        );
        self.last = number;
    }

    pub(crate) fn is_open(&self, place: VolumeInode) -> bool {
        let holders = self.inodes.get(&place);
        assert!(
            holders.is_none_or(|holders| !holders.is_empty()),
            "a removed file would keep its bytes for ever"
        );
        holders.is_some()
    }

    /// Whether a client has an inode open.
    pub(crate) fn has(&self, place: VolumeInode, client: ClientId) -> bool {
        let holder = self.inodes.get(&place).and_then(|holders| holders.by_client.get(&client));
        assert!(
            holder.is_none_or(|holder| holder.opens() > 0),
            "others would wait for a recall of a client that has closed the file"
        );
        holder.is_some()
    }

    /// Whether a client has an inode open alone, and keeps it so.
    pub(crate) fn is_alone(&self, place: VolumeInode, client: ClientId) -> bool {
        let holder = self.inodes.get(&place).and_then(|holders| holders.by_client.get(&client));
        holder.is_some_and(|holder| holder.mode == Mode::Alone && holder.recall.is_none())
    }

    /// Whether a client has an inode open alone. It may be asked to let others in, and has not done so yet.
    pub(crate) fn is_still_alone(&self, place: VolumeInode, client: ClientId) -> bool {
        let holder = self.inodes.get(&place).and_then(|holders| holders.by_client.get(&client));
        holder.is_some_and(|holder| holder.mode == Mode::Alone)
    }

    /// Whether another client has an inode open for writing.
    pub(crate) fn is_written_by_others(&self, place: VolumeInode, client: ClientId) -> bool {
        let holders = self.inodes.get(&place).map(|holders| &holders.by_client);
        holders.into_iter().flatten().any(|(id, holder)| *id != client && holder.writers > 0)
    }

    /// Clients that have an inode open and have had the answer.
    pub(crate) fn openers(&self, place: VolumeInode) -> impl Iterator<Item = ClientId> + '_ {
        let holders = self.inodes.get(&place).into_iter().flat_map(|holders| &holders.by_client);
        holders.filter(|(_, holder)| holder.opens() > holder.waiting).map(|(client, _)| *client)
    }

    /// Counts an open and recalls the modes that conflict with it. When [`OpenTable::may_proceed`] returns true, the
    /// open is answered by [`OpenTable::granted`]. [`OpenTable::give_up`] cancels it.
    pub(crate) fn open(&mut self, place: VolumeInode, client: ClientId, write: bool) {
        let holders = self.inodes.entry(place).or_default();
        let holder = holders.by_client.entry(client).or_insert_with(|| Holder::new(Mode::Readers));
        // A rejoining client may have reported any number of opens.
        *holder.count(write) = holder.count(write).saturating_add(1);
        holder.waiting += 1;
        let recalled = holders.settle(client, &mut self.last);
        let mode = holders.mode();
        let holder = holders.by_client.get_mut(&client).expect("just counted");
        // A client with a recall acts by the old mode until it acknowledges the recall.
        if holder.recall.is_none() && !(holder.mode == Mode::Alone && mode != Mode::Alone) {
            holder.mode = mode;
        }
        self.tell(place, recalled);
    }

    /// Counts the open of a client that has created the file.
    pub(crate) fn open_new(&mut self, place: VolumeInode, client: ClientId) {
        self.open(place, client, true);
        self.granted(place, client);
    }

    /// Records the opens of a client that has rejoined. It knows its mode and keeps it until another open conflicts.
    pub(crate) fn reclaim(&mut self, place: VolumeInode, client: ClientId, readers: u32, writers: u32) {
        if readers == 0 && writers == 0 {
            return;
        }
        let holders = self.inodes.entry(place).or_default();
        let holder = holders.by_client.entry(client).or_insert_with(|| Holder::new(Mode::Readers));
        assert!(
            holder.waiting == 0 && holder.recall.is_none(),
            "an open since the restart would be forgotten, and conflicting opens would be allowed"
        );
        (holder.readers, holder.writers) = (readers, writers);
        holder.mode = if writers > 0 { Mode::Alone } else { Mode::Readers };
        // With a writer and another client, the mode can only have been `Shared`.
        let several = holders.by_client.len() > 1;
        let writes = holders.by_client.values().any(|holder| holder.writers > 0);
        if several && writes {
            holders.shared = true;
            holders.by_client.values_mut().for_each(|holder| holder.mode = Mode::Shared);
        }
        let alone = holders.by_client.get(&client).is_some_and(|holder| holder.mode == Mode::Alone);
        assert!(
            !alone || !several,
            "two clients would have mode Alone, and each would buffer what the other reads"
        );
    }

    /// Recalls the modes that conflict with a truncation by `client`, whether or not it has the file open. The
    /// truncation may be made when [`OpenTable::may_proceed`] returns true.
    pub(crate) fn begin_truncate(&mut self, place: VolumeInode, client: ClientId) {
        let holders = self.inodes.entry(place).or_default();
        holders.cutters.push(client);
        let recalled = holders.settle(client, &mut self.last);
        self.tell(place, recalled);
    }

    /// Ends a truncation, made or cancelled.
    pub(crate) fn end_truncate(&mut self, place: VolumeInode, client: ClientId) {
        let cutters = self.inodes.get_mut(&place).map(|holders| &mut holders.cutters);
        let found = cutters.and_then(|cutters| {
            let at = cutters.iter().position(|cutter| *cutter == client)?;
            Some(cutters.remove(at))
        });
        assert!(found.is_some(), "others could have opened the file during the truncation");
        if self.inodes.get(&place).is_some_and(Holders::is_empty) {
            self.inodes.remove(&place);
        }
    }

    /// Whether no client other than `client` has a recall in progress.
    pub(crate) fn may_proceed(&self, place: VolumeInode, client: ClientId) -> bool {
        self.inodes.get(&place).is_none_or(|holders| {
            holders.by_client.iter().all(|(id, holder)| *id == client || holder.recall.is_none())
        })
    }

    /// The mode for the answer to an open.
    pub(crate) fn granted(&mut self, place: VolumeInode, client: ClientId) -> Mode {
        let Some(holders) = self.inodes.get_mut(&place) else { return Mode::Shared };
        let mode = holders.mode();
        let Some(holder) = holders.by_client.get_mut(&client) else { return Mode::Shared };
        holder.waiting = holder.waiting.saturating_sub(1);
        // A holder with a recall gets the mode after the recall, never more.
        let granted = match holder.recall {
            Some((to, _)) => to,
            None if mode == Mode::Shared => mode,
            None => holder.mode,
        };
        assert!(
            granted != Mode::Alone || holders.by_client.len() == 1,
            "this client would buffer writes that another one with the file open must read"
        );
        granted
    }

    /// Cancels an open that will not be answered.
    pub(crate) fn give_up(&mut self, place: VolumeInode, client: ClientId, write: bool) {
        if let Some(holder) = self.holder(place, client) {
            holder.waiting = holder.waiting.saturating_sub(1);
            self.release(place, client, write);
        }
    }

    /// Counts a close.
    pub(crate) fn release(&mut self, place: VolumeInode, client: ClientId, write: bool) {
        let Some(holder) = self.holder(place, client) else { return };
        let count = holder.count(write);
        *count = count.saturating_sub(1);
        if holder.opens() == 0 {
            self.remove(place, client);
        }
    }

    /// A client has acknowledged a recall: it acts by the new mode from now on.
    pub(crate) fn taken(&mut self, place: VolumeInode, client: ClientId, number: u64) {
        let Some(holder) = self.holder(place, client) else { return };
        if let Some((mode, _)) = holder.recall.take_if(|(_, asked)| *asked == number) {
            holder.mode = mode;
        }
    }

    /// Whether a client has recalls that it has not been told of.
    pub(crate) fn has_news(&self, client: ClientId) -> bool {
        self.recalled.get(&client).is_some_and(|places| cost::walked(places.values()).any(|told| !told))
    }

    /// All recalls that a client has not acknowledged.
    pub(crate) fn recalls(&mut self, client: ClientId) -> Vec<Recall> {
        let Some(mut places) = self.recalled.remove(&client) else { return Vec::new() };
        let mut recalls = Vec::new();
        cost::entries(places.len());
        places.retain(|place, told| {
            *told = true;
            let to = self.holder(*place, client).and_then(|holder| holder.recall);
            recalls.extend(to.map(|(mode, number)| Recall { inode: place.1, mode, number }));
            to.is_some()
        });
        if !places.is_empty() {
            self.recalled.insert(client, places);
        }
        recalls
    }

    /// The inodes that a client has open for writing.
    pub(crate) fn written_by(&self, client: ClientId) -> Vec<VolumeInode> {
        let writes = |(place, holders): (&VolumeInode, &Holders)| {
            holders.by_client.get(&client).is_some_and(|holder| holder.writers > 0).then_some(*place)
        };
        cost::walked(&self.inodes).filter_map(writes).collect()
    }

    /// Forgets a client, but for the inodes that it keeps; returns those that it had open and that are closed now.
    pub(crate) fn drop_client(
        &mut self,
        client: ClientId,
        keeps: impl Fn(VolumeInode) -> bool,
    ) -> Vec<VolumeInode> {
        let held = |(place, holders): (&VolumeInode, &Holders)| {
            (holders.by_client.contains_key(&client) && !keeps(*place)).then_some(*place)
        };
        let places: Vec<VolumeInode> = cost::walked(&self.inodes).filter_map(held).collect();
        places.iter().for_each(|place| self.remove(*place, client));
        self.recalled.remove(&client);
        places
    }

    fn holder(&mut self, place: VolumeInode, client: ClientId) -> Option<&mut Holder> {
        self.inodes.get_mut(&place)?.by_client.get_mut(&client)
    }

    fn remove(&mut self, place: VolumeInode, client: ClientId) {
        let Some(holders) = self.inodes.get_mut(&place) else { return };
        holders.by_client.remove(&client);
        if holders.is_empty() {
            self.inodes.remove(&place);
        } else if holders.by_client.values().all(|holder| holder.opens() == holder.waiting) {
            // No open of the remaining clients has been answered, so the mode is computed afresh.
            holders.shared = false;
            let mode = holders.mode();
            holders.shared = mode == Mode::Shared;
            holders.by_client.values_mut().for_each(|holder| holder.mode = mode);
        }
    }

    fn tell(&mut self, place: VolumeInode, clients: Vec<ClientId>) {
        for client in clients {
            let holder = self.holder(place, client);
            assert!(
                holder.is_some_and(|holder| holder.recall.is_some()),
                "a recall would go to a client without the file, and the waiting open would be answered too early"
            );
            self.recalled.entry(client).or_default().insert(place, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{InodeId, VolumeId};

    const FILE: VolumeInode = (VolumeId(1), InodeId(7));
    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    fn recall(mode: Mode, number: u64) -> Vec<Recall> {
        vec![Recall { inode: FILE.1, mode, number }]
    }

    #[test]
    fn readers_then_a_writer_then_all_closed() {
        let mut table = OpenTable::default();
        for client in [A, B] {
            table.open(FILE, client, false);
            assert!(table.may_proceed(FILE, client));
            assert_eq!(table.granted(FILE, client), Mode::Readers);
        }
        table.open(FILE, C, true);
        assert!(!table.may_proceed(FILE, C));
        assert_eq!(table.recalls(A), recall(Mode::Shared, 1));
        assert!(!table.has_news(A) && table.has_news(B));
        assert_eq!(table.recalls(A), recall(Mode::Shared, 1), "told again until it is taken");
        table.taken(FILE, A, 1);
        assert!(!table.may_proceed(FILE, C));
        table.taken(FILE, B, 2);
        assert!(table.may_proceed(FILE, C));
        assert_eq!(table.granted(FILE, C), Mode::Shared);
        table.release(FILE, C, true);
        table.release(FILE, A, false);
        table.open(FILE, B, false);
        assert_eq!(table.granted(FILE, B), Mode::Shared, "not up again while it is open");
        table.release(FILE, B, false);
        table.release(FILE, B, false);
        assert!(!table.is_open(FILE));
        table.open(FILE, B, false);
        assert_eq!(table.granted(FILE, B), Mode::Readers);
    }

    #[test]
    fn a_writer_alone_gives_way_to_a_reader() {
        let mut table = OpenTable::default();
        table.open_new(FILE, A);
        table.open(FILE, A, false);
        assert_eq!(table.granted(FILE, A), Mode::Alone);
        table.open(FILE, B, false);
        assert!(!table.may_proceed(FILE, B));
        assert!(table.may_proceed(FILE, A));
        // It opens once more before it has heard of the recall: the new open may do no more than will be left.
        table.open(FILE, A, false);
        assert_eq!(table.granted(FILE, A), Mode::Shared);
        assert!(!table.may_proceed(FILE, B));
        let lost = table.drop_client(A, |_| false);
        assert_eq!(lost, vec![FILE]);
        assert!(table.may_proceed(FILE, B));
    }

    #[test]
    fn a_writer_that_has_closed_is_still_asked_while_it_reads() {
        let mut table = OpenTable::default();
        table.open_new(FILE, A);
        table.open(FILE, A, false);
        table.granted(FILE, A);
        table.release(FILE, A, true);
        table.open(FILE, B, false);
        assert!(!table.may_proceed(FILE, B));
        assert_eq!(table.recalls(A), recall(Mode::Readers, 1));
        table.taken(FILE, A, 1);
        assert!(table.may_proceed(FILE, B));
        assert_eq!(table.granted(FILE, B), Mode::Readers);
    }

    #[test]
    fn opens_that_wait_need_no_recall() {
        let mut table = OpenTable::default();
        table.open_new(FILE, A);
        table.open(FILE, B, false);
        table.open(FILE, C, true);
        table.taken(FILE, A, 1);
        assert!(table.may_proceed(FILE, B) && table.may_proceed(FILE, C));
        assert_eq!(table.granted(FILE, B), Mode::Shared);
        assert_eq!(table.granted(FILE, C), Mode::Shared);
        table.open(FILE, B, true);
        table.give_up(FILE, B, true);
        assert_eq!(table.drop_client(B, |_| false), vec![FILE]);
    }

    #[test]
    fn a_reader_alone_may_begin_to_write() {
        let mut table = OpenTable::default();
        table.open(FILE, A, false);
        assert_eq!(table.granted(FILE, A), Mode::Readers);
        table.open(FILE, A, true);
        assert_eq!(table.granted(FILE, A), Mode::Alone);
    }

    #[test]
    fn announced_writers_are_recalled() {
        let mut table = OpenTable::default();
        table.reclaim(FILE, A, 1, 1);
        table.open(FILE, B, false);
        assert!(!table.may_proceed(FILE, B));
        assert_eq!(table.recalls(A), recall(Mode::Shared, 1));
        let mut table = OpenTable::default();
        table.reclaim(FILE, A, 1, 0);
        table.reclaim(FILE, B, 0, 1);
        table.open(FILE, C, false);
        assert!(table.may_proceed(FILE, C));
    }

    #[test]
    fn cutting_recalls_the_others_only() {
        let mut table = OpenTable::default();
        table.open_new(FILE, A);
        table.begin_truncate(FILE, A);
        assert!(table.may_proceed(FILE, A) && !table.has_news(A));
        table.end_truncate(FILE, A);
        table.begin_truncate(FILE, B);
        assert!(!table.may_proceed(FILE, B));
        assert_eq!(table.recalls(A), recall(Mode::Shared, 1));
        table.release(FILE, A, true);
        // A client that opens the file during the truncation shares it.
        table.open(FILE, C, true);
        assert_eq!(table.granted(FILE, C), Mode::Shared);
        table.release(FILE, C, true);
        table.end_truncate(FILE, B);
        assert!(!table.is_open(FILE));
    }

    #[test]
    fn a_cutter_keeps_the_mode_that_it_knows() {
        let mut table = OpenTable::default();
        for client in [A, B] {
            table.open(FILE, client, false);
            table.granted(FILE, client);
        }
        table.begin_truncate(FILE, A);
        table.taken(FILE, B, 1);
        table.end_truncate(FILE, A);
        // The client may cache, so a writer recalls its mode.
        table.open(FILE, C, true);
        assert!(!table.may_proceed(FILE, C));
        assert_eq!(table.recalls(A), recall(Mode::Shared, 2));
    }

    #[test]
    fn a_late_copy_of_an_answer_takes_nothing_away() {
        let mut table = OpenTable::default();
        table.open_new(FILE, A);
        table.open(FILE, B, true);
        assert_eq!(table.recalls(A), recall(Mode::Shared, 1));
        table.taken(FILE, A, 1);
        table.release(FILE, A, true);
        table.drop_client(B, |_| false);
        table.open(FILE, A, true);
        assert_eq!(table.granted(FILE, A), Mode::Alone);
        table.taken(FILE, A, 1);
        table.open(FILE, B, true);
        assert!(!table.may_proceed(FILE, B), "it may buffer");
        assert_eq!(table.recalls(A), recall(Mode::Shared, 2));
        table.taken(FILE, A, 1);
        assert!(!table.may_proceed(FILE, B));
        table.taken(FILE, A, 2);
        assert!(table.may_proceed(FILE, B));
    }

    /// Clients that open, close, truncate, acknowledge and go in any order, and sometimes send invalid messages.
    struct Storm {
        random: u64,
        table: OpenTable,
        /// Opens that wait.
        waiting: Vec<(ClientId, bool)>,
        /// What clients have open, and the mode that each acts by.
        told: BTreeMap<ClientId, (Vec<bool>, Mode)>,
        cutting: Vec<ClientId>,
        gone: u64,
    }

    impl Storm {
        fn below(&mut self, end: usize) -> usize {
            // The generator of Knuth's MMIX; its high bits are the good ones.
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 33) as usize % end
        }

        fn client(&mut self) -> ClientId {
            ClientId(self.gone + self.below(4) as u64)
        }

        fn step(&mut self) {
            let client = self.client();
            match self.below(16) {
                0..=2 => {
                    let write = self.below(3) == 0;
                    self.table.open(FILE, client, write);
                    self.waiting.push((client, write));
                }
                3..=6 => self.answer(),
                7..=9 => self.close(client),
                10 | 11 => self.give_way(client),
                12 if self.cutting.len() < 2 => {
                    self.table.begin_truncate(FILE, client);
                    self.cutting.push(client);
                }
                12 | 13 if !self.cutting.is_empty() => {
                    let at = self.below(self.cutting.len());
                    let client = self.cutting.swap_remove(at);
                    self.table.end_truncate(FILE, client);
                }
                14 if self.below(8) == 0 => {
                    let client = ClientId(self.gone);
                    self.gone += 1;
                    self.told.remove(&client);
                    self.table.drop_client(client, |_| false);
                }
                _ => self.table.taken(FILE, client, self.random),
            }
        }

        /// An open is answered if it may be, or given up.
        fn answer(&mut self) {
            if self.waiting.is_empty() {
                return;
            }
            let at = self.below(self.waiting.len());
            let (client, write) = self.waiting[at];
            if client.0 < self.gone || self.below(8) == 0 {
                self.waiting.swap_remove(at);
                self.table.give_up(FILE, client, write);
            } else if self.table.may_proceed(FILE, client) {
                self.waiting.swap_remove(at);
                let mode = self.table.granted(FILE, client);
                let (opens, acts) = self.told.entry(client).or_insert((Vec::new(), mode));
                opens.push(write);
                if *acts != Mode::Alone || mode == Mode::Alone {
                    *acts = mode;
                }
            }
        }

        fn close(&mut self, client: ClientId) {
            let Some((opens, _)) = self.told.get_mut(&client) else { return };
            let write = opens.pop().expect("it has it open");
            if opens.is_empty() {
                self.told.remove(&client);
            }
            self.table.release(FILE, client, write);
        }

        fn give_way(&mut self, client: ClientId) {
            for Recall { mode, number, .. } in self.table.recalls(client) {
                self.told.entry(client).and_modify(|(_, acts)| *acts = mode);
                self.table.taken(FILE, client, number);
            }
        }

        fn check(&self) {
            for (client, (opens, mode)) in &self.told {
                assert!(self.table.has(FILE, *client), "{client} has {opens:?}");
                assert!(*mode != Mode::Alone || self.told.len() == 1, "{:?}", self.told);
            }
            let open = !self.told.is_empty() || !self.cutting.is_empty();
            assert!(self.table.is_open(FILE) || !open);
        }
    }

    #[test]
    fn whoever_is_alone_is_so_in_any_order_of_events() {
        for seed in 0..200 {
            let mut storm = Storm {
                random: seed,
                table: OpenTable::default(),
                waiting: Vec::new(),
                told: BTreeMap::new(),
                cutting: Vec::new(),
                gone: 1,
            };
            for _ in 0..500 {
                storm.step();
                storm.check();
            }
        }
    }
}
