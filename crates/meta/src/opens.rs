//! Who has which inode open, and in what mode (decision 1 of the architecture).
//!
//! | holders | mode |
//! |---|---|
//! | one client, which writes or wrote | `Alone`: it may buffer |
//! | none of them writes | `Readers`: they may cache |
//! | otherwise, and from then on until all have closed | `Shared`: nobody buffers or caches |
//!
//! An open that takes away what others may do recalls their mode, and is answered only when each of them has said
//! that it acts by the new one, has closed, or has lost its lease. A number says which recall is answered: a late copy of
//! an answer means nothing, also if the client has opened the file anew since. Numbers begin at a random one, so those
//! of an earlier life of the service mean nothing either.

use std::collections::BTreeMap;

use types::messages::cluster::{Mode, Recall};
use types::{ClientId, cost};

use crate::volatile::VolumeInode;

/// A client that has an inode open.
#[derive(Debug)]
struct Holder {
    readers: u32,
    writers: u32,
    /// Opens that have not been answered.
    waiting: u32,
    mode: Mode,
    /// What is to become of the mode, while it is being taken away, and the number of that.
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

    /// Takes the mode away, under the number after `last`; returns whether the holder must be told. One that has not been
    /// told of any mode yet just gets another one.
    fn recall(&mut self, to: Mode, last: &mut u64) -> bool {
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
    /// Clients that are cutting the file; each counts as a writer meanwhile.
    cutters: Vec<ClientId>,
    /// It has been shared since somebody opened it.
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

    /// Recalls what the holders other than `client` may no longer do; returns whom to tell.
    fn settle(&mut self, client: ClientId, last: &mut u64) -> Vec<ClientId> {
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
    /// Where each client has a recall, and whether it has been told.
    recalled: BTreeMap<ClientId, BTreeMap<VolumeInode, bool>>,
    /// The number of the last recall.
    last: u64,
}

impl OpenTable {
    /// The next recall's number is the one after this.
    pub(crate) fn count_from(&mut self, number: u64) {
        self.last = number;
    }

    pub(crate) fn is_open(&self, place: VolumeInode) -> bool {
        self.inodes.contains_key(&place)
    }

    /// Whether a client has an inode open.
    pub(crate) fn has(&self, place: VolumeInode, client: ClientId) -> bool {
        self.inodes.get(&place).is_some_and(|holders| holders.by_client.contains_key(&client))
    }

    /// Clients that have an inode open, and know it.
    pub(crate) fn openers(&self, place: VolumeInode) -> impl Iterator<Item = ClientId> + '_ {
        let holders = self.inodes.get(&place).into_iter().flat_map(|holders| &holders.by_client);
        holders.filter(|(_, holder)| holder.opens() > holder.waiting).map(|(client, _)| *client)
    }

    /// Counts an open and recalls what it conflicts with. It may be answered when [`OpenTable::may_proceed`] says so,
    /// by [`OpenTable::granted`]; or be taken back by [`OpenTable::give_up`].
    pub(crate) fn open(&mut self, place: VolumeInode, client: ClientId, write: bool) {
        let holders = self.inodes.entry(place).or_default();
        let holder = holders.by_client.entry(client).or_insert_with(|| Holder::new(Mode::Readers));
        *holder.count(write) += 1;
        holder.waiting += 1;
        let recalled = holders.settle(client, &mut self.last);
        let mode = holders.mode();
        let holder = holders.by_client.get_mut(&client).expect("just counted");
        // Whoever is being recalled acts by the old mode until it says otherwise.
        if holder.recall.is_none() && !(holder.mode == Mode::Alone && mode != Mode::Alone) {
            holder.mode = mode;
        }
        self.tell(place, recalled);
    }

    /// A client has made a file and has it open for writing.
    pub(crate) fn open_new(&mut self, place: VolumeInode, client: ClientId) {
        self.open(place, client, true);
        self.granted(place, client);
    }

    /// A client that came back has this open. What it may do, it knows; it keeps it until somebody conflicts.
    pub(crate) fn reclaim(&mut self, place: VolumeInode, client: ClientId, readers: u32, writers: u32) {
        if readers == 0 && writers == 0 {
            return;
        }
        let holders = self.inodes.entry(place).or_default();
        let holder = holders.by_client.entry(client).or_insert_with(|| Holder::new(Mode::Readers));
        (holder.readers, holder.writers) = (readers, writers);
        holder.mode = if writers > 0 { Mode::Alone } else { Mode::Readers };
        // Two that both write, or one beside readers, can only have shared it.
        let several = holders.by_client.len() > 1;
        let writes = holders.by_client.values().any(|holder| holder.writers > 0);
        if several && writes {
            holders.shared = true;
            holders.by_client.values_mut().for_each(|holder| holder.mode = Mode::Shared);
        }
    }

    /// `client` is about to cut the file, open or not: recalls what others may not do beside a writer. The cut may be
    /// made when [`OpenTable::may_proceed`] says so.
    pub(crate) fn begin_truncate(&mut self, place: VolumeInode, client: ClientId) {
        let holders = self.inodes.entry(place).or_default();
        holders.cutters.push(client);
        let recalled = holders.settle(client, &mut self.last);
        self.tell(place, recalled);
    }

    /// The cut is made, or given up.
    pub(crate) fn end_truncate(&mut self, place: VolumeInode, client: ClientId) {
        let Some(holders) = self.inodes.get_mut(&place) else { return };
        if let Some(at) = holders.cutters.iter().position(|cutter| *cutter == client) {
            holders.cutters.remove(at);
        }
        if holders.is_empty() {
            self.inodes.remove(&place);
        }
    }

    /// Whether nobody but `client` still acts by a recalled mode.
    pub(crate) fn may_proceed(&self, place: VolumeInode, client: ClientId) -> bool {
        self.inodes.get(&place).is_none_or(|holders| {
            holders.by_client.iter().all(|(id, holder)| *id == client || holder.recall.is_none())
        })
    }

    /// The mode that an open is answered with.
    pub(crate) fn granted(&mut self, place: VolumeInode, client: ClientId) -> Mode {
        let Some(holders) = self.inodes.get_mut(&place) else { return Mode::Shared };
        let mode = holders.mode();
        let Some(holder) = holders.by_client.get_mut(&client) else { return Mode::Shared };
        holder.waiting = holder.waiting.saturating_sub(1);
        // A holder that is being recalled, or was alone, may not be told of more than it will be left with.
        match holder.recall {
            Some((to, _)) => to,
            None if mode == Mode::Shared => mode,
            None => holder.mode,
        }
    }

    /// An open is not going to be answered.
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

    /// A client acts by a recalled mode from now on.
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

    /// What a client is to be told: every mode that it has not yet given up.
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

    /// Forgets a client; returns the inodes that it had open.
    pub(crate) fn drop_client(&mut self, client: ClientId) -> Vec<VolumeInode> {
        let held = |(place, holders): (&VolumeInode, &Holders)| {
            holders.by_client.contains_key(&client).then_some(*place)
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
            // Nobody who is left has been told of a mode: they begin anew.
            holders.shared = false;
            let mode = holders.mode();
            holders.shared = mode == Mode::Shared;
            holders.by_client.values_mut().for_each(|holder| holder.mode = mode);
        }
    }

    fn tell(&mut self, place: VolumeInode, clients: Vec<ClientId>) {
        for client in clients {
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
        let lost = table.drop_client(A);
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
        assert_eq!(table.drop_client(B), vec![FILE]);
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
        // Whoever opens it during the cut shares it.
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
        // It believes that it may cache, so it is asked when somebody writes.
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
        table.drop_client(B);
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
}
