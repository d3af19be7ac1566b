//! The disks: what the page cache shows, what would survive a power cut, and the writes in between.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;

use types::{Buf, BufMut};

use super::chance::Chance;
use super::recording::{DiskImage, Recording};
use super::sparse::Sparse;
use super::state::{State, Traced, dead};

/// What a device writes whole or not at all.
const SECTOR: u64 = 512;

/// Every disk of every node; they outlive the lives of their nodes.
#[derive(Default)]
pub(super) struct Disks {
    files: BTreeMap<(u32, String), Rc<File>>,
    holders: Cell<u64>,
}

pub(super) struct File {
    len: u64,
    /// Who has it open; 0 if nobody.
    holder: Cell<u64>,
    cached: RefCell<Sparse>,
    durable: RefCell<Sparse>,
    /// Writes that are in `cached` and not yet in `durable`, the first one's number being `log_start`.
    log: RefCell<VecDeque<(u64, Buf)>>,
    log_start: Cell<u64>,
    /// Every operation takes so many times as long.
    slowness: Cell<u64>,
    /// Every operation fails.
    failing: Cell<bool>,
    recording: RefCell<Option<Recording>>,
}

impl Disks {
    pub(super) fn create(&mut self, node: u32, path: &str, len: u64) -> io::Result<()> {
        let std::collections::btree_map::Entry::Vacant(entry) = self.files.entry((node, path.to_owned()))
        else {
            return Err(io::ErrorKind::AlreadyExists.into());
        };
        entry.insert(Rc::new(File {
            len,
            holder: Cell::new(0),
            cached: RefCell::default(),
            durable: RefCell::default(),
            log: RefCell::default(),
            log_start: Cell::new(0),
            slowness: Cell::new(1),
            failing: Cell::new(false),
            recording: RefCell::default(),
        }));
        Ok(())
    }

    pub(super) fn find(&self, node: u32, path: &str) -> Option<Rc<File>> {
        self.files.get(&(node, path.to_owned())).cloned()
    }

    /// Opens a file for one holder.
    pub(super) fn open(&self, node: u32, path: &str) -> io::Result<(Rc<File>, u64)> {
        let file = self.find(node, path).ok_or(io::ErrorKind::NotFound)?;
        if file.holder.get() != 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.holders.set(self.holders.get() + 1);
        file.holder.set(self.holders.get());
        Ok((file, self.holders.get()))
    }

    pub(super) fn node_died(&self, chance: &Chance, node: u32, power_cut: bool) {
        let first = (node, String::new());
        for (_, file) in self.files.range(first..).take_while(|((owner, _), _)| *owner == node) {
            file.holder.set(0);
            if power_cut {
                file.lose_cache(chance);
            }
        }
    }
}

impl File {
    fn write(&self, offset: u64, parts: Vec<Buf>) {
        if let Some(recording) = &*self.recording.borrow() {
            recording.wrote(offset, &parts);
        }
        let (mut cached, mut log) = (self.cached.borrow_mut(), self.log.borrow_mut());
        let mut at = offset;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            cached.write(at, &part);
            let len = part.len() as u64;
            log.push_back((at, part));
            at += len;
        }
    }

    /// The number that the next write will have.
    fn log_end(&self) -> u64 {
        self.log_start.get() + self.log.borrow().len() as u64
    }

    /// Makes the writes before number `end` durable.
    fn settle(&self, end: u64) {
        let (mut durable, mut log) = (self.durable.borrow_mut(), self.log.borrow_mut());
        while self.log_start.get() < end
            && let Some((offset, bytes)) = log.pop_front()
        {
            durable.write(offset, &bytes);
            self.log_start.set(self.log_start.get() + 1);
        }
    }

    /// The power goes: of each sector any version since the last sync may be the one that reached the medium.
    fn lose_cache(&self, chance: &Chance) {
        let log: Vec<_> = self.log.borrow_mut().drain(..).collect();
        self.log_start.set(self.log_start.get() + log.len() as u64);
        // All, nothing, or a share of its own: each loss is of another kind.
        let kept = match chance.below(4) {
            0 => 0,
            1 => 1_000_000,
            _ => chance.below(1_000_000) as u32,
        };
        // The newest version kept of each sector, as the index of its write.
        let mut newest: Vec<(u64, usize)> = Vec::new();
        for (index, (offset, bytes)) in log.iter().enumerate() {
            let sectors = offset / SECTOR..(offset + bytes.len() as u64).div_ceil(SECTOR);
            newest.extend(sectors.filter(|_| chance.hits(kept)).map(|sector| (sector, index)));
        }
        newest.sort_unstable_by_key(|&(sector, index)| (sector, std::cmp::Reverse(index)));
        newest.dedup_by_key(|(sector, _)| *sector);
        let mut durable = self.durable.borrow_mut();
        for (index, (offset, bytes)) in log.iter().enumerate() {
            // A version holds all writes up to its own: those to other parts of its sector too.
            let holds = |sector: u64| {
                newest
                    .binary_search_by_key(&sector, |&(sector, _)| sector)
                    .is_ok_and(|at| newest[at].1 >= index)
            };
            write_sectors(&mut durable, *offset, bytes, holds);
        }
        *self.cached.borrow_mut() = durable.clone();
    }

    /// Flips one bit in each sector of a range, in both views.
    pub(super) fn damage(&self, chance: &Chance, offset: u64, len: u64) {
        let end = (offset + len).min(self.len);
        let mut at = offset;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            let (place, bit) = (at + chance.below(next - at), chance.below(8));
            for view in [&self.cached, &self.durable] {
                let mut view = view.borrow_mut();
                let mut byte = BufMut::copy_of(&view.read(place, 1));
                byte[0] ^= 1 << bit;
                view.write(place, &byte.freeze());
            }
            at = next;
        }
    }

    /// Records from here on what is asked of the disk, on which nothing may be unsynced. Also its bytes now.
    pub(super) fn record(&self) -> (DiskImage, Recording) {
        assert!(self.log.borrow().is_empty(), "a recording begins behind a sync");
        let recording = Recording::default();
        *self.recording.borrow_mut() = Some(recording.clone());
        (DiskImage(self.durable.borrow().clone()), recording)
    }

    /// Puts other bytes in place of all that there are.
    pub(super) fn restore(&self, image: &DiskImage) {
        assert_eq!(self.holder.get(), 0, "nobody has the disk open");
        self.log_start.set(self.log_end());
        self.log.borrow_mut().clear();
        *self.cached.borrow_mut() = image.0.clone();
        *self.durable.borrow_mut() = image.0.clone();
        *self.recording.borrow_mut() = None;
    }

    pub(super) fn set_slowness(&self, times: u64) {
        self.slowness.set(times.max(1));
    }

    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.set(failing);
    }
}

/// Writes those sectors of `bytes` that `chosen` picks, neighbours at once.
fn write_sectors(to: &mut Sparse, offset: u64, bytes: &Buf, chosen: impl Fn(u64) -> bool) {
    let end = offset + bytes.len() as u64;
    let mut run = offset;
    let mut at = offset;
    while at < end {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        if !chosen(at / SECTOR) {
            to.write(run, &bytes.slice((run - offset) as usize..(at - offset) as usize));
            run = next;
        }
        at = next;
    }
    to.write(run, &bytes.slice((run - offset) as usize..bytes.len()));
}

/// A disk opened by one life of a node.
#[derive(Clone)]
pub(crate) struct Disk(Rc<Handle>);

struct Handle {
    state: Rc<State>,
    node: u32,
    life: u32,
    file: Rc<File>,
    holder: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.file.holder.get() == self.holder {
            self.file.holder.set(0);
        }
    }
}

impl Disk {
    pub(super) fn new(state: Rc<State>, node: u32, life: u32, file: Rc<File>, holder: u64) -> Disk {
        Disk(Rc::new(Handle { state, node, life, file, holder }))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.file.len
    }

    pub(crate) async fn read(&self, offset: u64, len: usize) -> io::Result<Buf> {
        let wait = self.wait(self.chance().within(&self.0.state.options.read_us));
        self.sleep(wait.0).await?;
        if offset.checked_add(len as u64).is_none_or(|end| end > self.0.file.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = self.0.file.cached.borrow().read(offset, len);
        self.trace(Traced::Read, offset, &bytes);
        self.sleep(wait.1).await?;
        Ok(bytes)
    }

    pub(crate) async fn write(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        let wait = self.wait(self.chance().within(&self.0.state.options.write_us));
        self.sleep(wait.0).await?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if offset.checked_add(len as u64).is_none_or(|end| end > self.0.file.len) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "write past the end of the disk"));
        }
        for part in &parts {
            self.trace(Traced::Write, offset, part);
        }
        self.0.file.write(offset, parts);
        self.sleep(wait.1).await
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        let end = self.0.file.log_end();
        let recording = self.0.file.recording.borrow().clone();
        let recorded = recording.as_ref().map_or(0, Recording::writes);
        let wait = self.chance().within(&self.0.state.options.sync_us) * self.0.file.slowness.get();
        self.sleep(wait).await?;
        self.0.file.settle(end);
        recording.inspect(|recording| recording.synced(recorded));
        self.trace(Traced::Sync, end, &[]);
        Ok(())
    }

    fn chance(&self) -> &Chance {
        &self.0.state.disk_chance
    }

    /// Time before and after an operation takes effect: one of the two is zero, by chance.
    fn wait(&self, us: u64) -> (u64, u64) {
        let us = us * self.0.file.slowness.get();
        if self.chance().coin() { (us, 0) } else { (0, us) }
    }

    async fn sleep(&self, us: u64) -> io::Result<()> {
        let state = &self.0.state;
        state.executor.until(state.executor.now() + us).await;
        if !state.is_alive(self.0.node, self.0.life) {
            return dead();
        }
        if self.0.file.failing.get() {
            return Err(io::Error::other("the disk fails"));
        }
        Ok(())
    }

    fn trace(&self, what: Traced, offset: u64, bytes: &[u8]) {
        self.0.state.trace(self.0.node, what, offset << 32 ^ u64::from(types::checksum::crc(bytes)));
    }
}
