//! Simulated disks: the bytes in the page cache, the bytes that survive a power cut, and the writes in between.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use types::limits::BLOCK;
use types::{Buf, BufMut};

use super::faults::{Counts, DiskFaults, Fault};
use super::prng::Prng;
use super::recording::{DiskImage, Recording};
use super::sparse::Sparse;
use super::state::{State, Traced, dead};

/// One bit is flipped in each part of a damaged range with this many bytes.
const DAMAGED: u64 = 512;

/// All disks of all nodes. They survive the death of their nodes.
#[derive(Default)]
pub(super) struct Disks {
    files: BTreeMap<(u32, String), Rc<File>>,
    holders: Cell<u64>,
}

pub(super) struct File {
    name: String,
    len: u64,
    /// The number of the holder that has it open; 0 if none.
    holder: Cell<u64>,
    /// How many handles that holder has, and whether others share its disk.
    handles: Cell<u32>,
    shared: RefCell<Weak<()>>,
    cached: RefCell<Sparse>,
    durable: RefCell<Sparse>,
    /// Writes that are in `cached` and not yet in `durable`. The first one has the number `log_start`.
    log: RefCell<VecDeque<(u64, Buf)>>,
    log_start: Cell<u64>,
    /// When each page was last written, in microseconds.
    written: RefCell<BTreeMap<u64, u64>>,
    /// Factor on the duration of every operation.
    slowness: Cell<u64>,
    /// Every operation fails.
    failing: Cell<bool>,
    recording: RefCell<Option<Recording>>,
    faults: RefCell<DiskFaults>,
}

impl Disks {
    pub(super) fn create(&mut self, node: u32, path: &str, len: u64) -> io::Result<()> {
        let std::collections::btree_map::Entry::Vacant(entry) = self.files.entry((node, path.to_owned()))
        else {
            return Err(io::ErrorKind::AlreadyExists.into());
        };
        entry.insert(Rc::new(File {
            name: path.to_owned(),
            len,
            holder: Cell::new(0),
            handles: Cell::new(0),
            shared: RefCell::default(),
            cached: RefCell::default(),
            durable: RefCell::default(),
            log: RefCell::default(),
            log_start: Cell::new(0),
            written: RefCell::default(),
            slowness: Cell::new(1),
            failing: Cell::new(false),
            recording: RefCell::default(),
            faults: RefCell::default(),
        }));
        Ok(())
    }

    pub(super) fn find(&self, node: u32, path: &str) -> Option<Rc<File>> {
        self.files.get(&(node, path.to_owned())).cloned()
    }

    /// Opens a file for one holder.
    pub(super) fn open(&self, node: u32, path: &str) -> io::Result<(Rc<File>, u64)> {
        let file = self.find(node, path).ok_or(io::ErrorKind::NotFound)?;
        if file.is_held() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file.handles.set(0);
        *file.shared.borrow_mut() = Weak::new();
        self.holders.set(self.holders.get() + 1);
        file.holder.set(self.holders.get());
        Ok((file, self.holders.get()))
    }

    pub(super) fn node_died(&self, state: &State, node: u32, power_cut: bool) {
        let first = (node, String::new());
        for (_, file) in self.files.range(first..).take_while(|((owner, _), _)| *owner == node) {
            file.holder.set(0);
            if power_cut {
                file.lose_cache(&state.disk_prng, state.options.sector_bytes, &state.faults);
            }
        }
    }
}

impl File {
    fn is_held(&self) -> bool {
        self.holder.get() != 0 && (self.handles.get() > 0 || self.shared.borrow().upgrade().is_some())
    }

    fn write(&self, now: u64, offset: u64, parts: Vec<Buf>) {
        if let Some(recording) = &*self.recording.borrow() {
            recording.wrote(offset, &parts);
        }
        let (mut cached, mut log) = (self.cached.borrow_mut(), self.log.borrow_mut());
        let mut at = offset;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            cached.write(at, &part);
            let len = part.len() as u64;
            let pages = at / BLOCK as u64..(at + len).div_ceil(BLOCK as u64);
            self.written.borrow_mut().extend(pages.map(|page| (page, now)));
            log.push_back((at, part));
            at += len;
        }
    }

    /// The number of the next write.
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

    /// A power cut: each sector keeps any one of its versions since the last sync.
    fn lose_cache(&self, prng: &Prng, sector_bytes: u64, faults: &Counts) {
        let log: Vec<_> = self.log.borrow_mut().drain(..).collect();
        self.log_start.set(self.log_start.get() + log.len() as u64);
        // Keep nothing, everything, or a random share.
        let kept = match prng.below(4) {
            0 => 0,
            1 => 1_000_000,
            _ => prng.below(1_000_000) as u32,
        };
        // The newest version of each sector that is kept, as the index of its write.
        let mut newest: Vec<(u64, usize)> = Vec::new();
        for (index, (offset, bytes)) in log.iter().enumerate() {
            let sectors = offset / sector_bytes..(offset + bytes.len() as u64).div_ceil(sector_bytes);
            let (all, before) = (sectors.end - sectors.start, newest.len());
            newest.extend(sectors.filter(|_| prng.hits(kept)).map(|sector| (sector, index)));
            let reached = (newest.len() - before) as u64;
            faults.add(Fault::LostSector, all - reached);
            faults.add(Fault::TornWrite, u64::from(0 < reached && reached < all));
        }
        newest.sort_unstable_by_key(|&(sector, index)| (sector, std::cmp::Reverse(index)));
        newest.dedup_by_key(|(sector, _)| *sector);
        let mut durable = self.durable.borrow_mut();
        for (index, (offset, bytes)) in log.iter().enumerate() {
            // A version includes all earlier writes to its sector, also those to other parts of the sector.
            let holds = |sector: u64| {
                newest
                    .binary_search_by_key(&sector, |&(sector, _)| sector)
                    .is_ok_and(|at| newest[at].1 >= index)
            };
            write_sectors(&mut durable, sector_bytes, *offset, bytes, holds);
        }
        *self.cached.borrow_mut() = durable.clone();
    }

    /// Flips one bit in each 512 bytes of a range, in both views.
    pub(super) fn damage(&self, prng: &Prng, offset: u64, len: u64) {
        let end = (offset + len).min(self.len);
        let mut at = offset;
        while at < end {
            let next = ((at / DAMAGED + 1) * DAMAGED).min(end);
            let (place, bit) = (at + prng.below(next - at), prng.below(8));
            self.flip(place, 1 << bit);
            at = next;
        }
    }

    /// Starts a recording; the disk must have no unsynced writes. Also returns its present bytes.
    pub(super) fn record(&self) -> (DiskImage, Recording) {
        assert!(self.log.borrow().is_empty(), "a recording begins after a sync");
        let recording = Recording::default();
        *self.recording.borrow_mut() = Some(recording.clone());
        (DiskImage(self.durable.borrow().clone()), recording)
    }

    /// Replaces all bytes.
    pub(super) fn restore(&self, image: &DiskImage) {
        assert!(!self.is_held(), "nobody has the disk open");
        self.log_start.set(self.log_end());
        self.log.borrow_mut().clear();
        *self.cached.borrow_mut() = image.0.clone();
        *self.durable.borrow_mut() = image.0.clone();
        *self.recording.borrow_mut() = None;
    }

    fn flip(&self, place: u64, bits: u8) {
        for view in [&self.cached, &self.durable] {
            let mut view = view.borrow_mut();
            let mut byte = BufMut::copy_of(&view.read(place, 1));
            byte[0] ^= bits;
            view.write(place, &byte.freeze());
        }
    }

    /// Flips one bit in each of up to `count` pages of a range that are not all zeros and were not written since
    /// `before`.
    pub(super) fn rot(&self, prng: &Prng, within: Range<u64>, count: u64, before: u64) -> u64 {
        let mut pages = self.durable.borrow().pages_within(&within);
        let written = self.written.borrow();
        pages.retain(|page| written.get(&(page / BLOCK as u64)).is_none_or(|at| *at <= before));
        let count = count.min(pages.len() as u64);
        for _ in 0..count {
            let page = pages.swap_remove(prng.below(pages.len() as u64) as usize);
            self.flip(page + prng.below(BLOCK as u64), 1 << prng.below(8));
        }
        count
    }

    pub(super) fn set_faults(&self, faults: DiskFaults) {
        *self.faults.borrow_mut() = faults;
    }

    /// The offset to which a write of `len` bytes at `offset` really goes.
    fn astray(&self, state: &State, offset: u64, len: u64) -> u64 {
        let faults = self.faults.borrow();
        let within = &faults.within;
        let inside = within.contains(&offset) && offset + len <= within.end;
        if !inside || !state.disk_prng.hits(faults.misdirect_per_million) {
            return offset;
        }
        let places = (within.end - within.start - len) / BLOCK as u64 + 1;
        let place = within.start + state.disk_prng.below(places) * BLOCK as u64;
        state.faults.add(Fault::Misdirected, u64::from(place != offset));
        place
    }

    /// A sync fails: each write that it should have made durable has reached the medium or never will.
    fn fail_sync(&self, prng: &Prng) {
        let (mut durable, mut log) = (self.durable.borrow_mut(), self.log.borrow_mut());
        for (offset, bytes) in log.drain(..) {
            self.log_start.set(self.log_start.get() + 1);
            if prng.coin() {
                durable.write(offset, &bytes);
            }
        }
    }

    pub(super) fn set_slowness(&self, times: u64) {
        self.slowness.set(times.max(1));
    }

    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.set(failing);
    }
}

/// Writes the sectors of `bytes` that `chosen` selects; adjacent ones with one write.
fn write_sectors(to: &mut Sparse, sector_bytes: u64, offset: u64, bytes: &Buf, chosen: impl Fn(u64) -> bool) {
    let end = offset + bytes.len() as u64;
    let mut run = offset;
    let mut at = offset;
    while at < end {
        let next = ((at / sector_bytes + 1) * sector_bytes).min(end);
        if !chosen(at / sector_bytes) {
            to.write(run, &bytes.slice((run - offset) as usize..(at - offset) as usize));
            run = next;
        }
        at = next;
    }
    to.write(run, &bytes.slice((run - offset) as usize..bytes.len()));
}

/// What others of a node need to use a disk too.
#[derive(Clone)]
pub(crate) struct SharedDisk {
    pub(super) path: String,
    lock: Arc<()>,
}

impl Disks {
    /// The disk of `shared`, and its holder. Fails if the node has died since it was opened.
    pub(super) fn open_shared(&self, node: u32, shared: &SharedDisk) -> io::Result<(Rc<File>, u64)> {
        let file = self.find(node, &shared.path).ok_or(io::ErrorKind::NotFound)?;
        let is_its = file.shared.borrow().ptr_eq(&Arc::downgrade(&shared.lock));
        if file.holder.get() == 0 || !is_its {
            return dead();
        }
        let holder = file.holder.get();
        Ok((file, holder))
    }
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
            self.file.handles.set(self.file.handles.get() - 1);
        }
    }
}

impl Disk {
    pub(super) fn new(state: Rc<State>, node: u32, life: u32, file: Rc<File>, holder: u64) -> Disk {
        file.handles.set(file.handles.get() + 1);
        Disk(Rc::new(Handle { state, node, life, file, holder }))
    }

    pub(crate) fn shared(&self) -> SharedDisk {
        let mut shared = self.0.file.shared.borrow_mut();
        let lock = shared.upgrade().unwrap_or_default();
        *shared = Arc::downgrade(&lock);
        SharedDisk { path: self.0.file.name.clone(), lock }
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.file.name
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.file.len
    }

    pub(crate) async fn read(&self, offset: u64, len: usize) -> io::Result<Buf> {
        let wait = self.wait(self.prng().within(&self.0.state.options.read_us));
        self.sleep(wait.0).await?;
        if offset.checked_add(len as u64).is_none_or(|end| end > self.0.file.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let failed = {
            let faults = self.0.file.faults.borrow();
            faults.within.contains(&offset) && self.prng().hits(faults.read_error_per_million)
        };
        if failed {
            self.0.state.faults.add(Fault::ReadError, 1);
            return Err(io::Error::other("injected fault: a sector cannot be read"));
        }
        let bytes = self.0.file.cached.borrow().read(offset, len);
        self.trace(Traced::Read, offset, &bytes);
        self.sleep(wait.1).await?;
        Ok(bytes)
    }

    pub(crate) async fn write(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        let wait = self.wait(self.prng().within(&self.0.state.options.write_us));
        self.sleep(wait.0).await?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if offset.checked_add(len as u64).is_none_or(|end| end > self.0.file.len) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "write past the end of the disk"));
        }
        if self.0.file.faults.borrow().full {
            self.0.state.faults.add(Fault::WriteError, 1);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let offset = self.0.file.astray(&self.0.state, offset, len as u64);
        for part in &parts {
            self.trace(Traced::Write, offset, part);
        }
        self.0.file.write(self.0.state.executor.now(), offset, parts);
        self.sleep(wait.1).await
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        let end = self.0.file.log_end();
        let recording = self.0.file.recording.borrow().clone();
        let recorded = recording.as_ref().map_or(0, Recording::writes);
        let wait = self.prng().within(&self.0.state.options.sync_us) * self.0.file.slowness.get();
        self.sleep(wait).await?;
        if std::mem::take(&mut self.0.file.faults.borrow_mut().fail_sync) {
            self.0.state.faults.add(Fault::SyncError, 1);
            self.0.file.fail_sync(self.prng());
            return Err(io::Error::other("injected fault: a sync failed"));
        }
        self.0.file.settle(end);
        recording.inspect(|recording| recording.synced(recorded));
        self.trace(Traced::Sync, end, &[]);
        Ok(())
    }

    fn prng(&self) -> &Prng {
        &self.0.state.disk_prng
    }

    /// Time before and after an operation takes effect; at random one of the two is zero.
    fn wait(&self, us: u64) -> (u64, u64) {
        let us = us * self.0.file.slowness.get();
        if self.prng().coin() { (us, 0) } else { (0, us) }
    }

    async fn sleep(&self, us: u64) -> io::Result<()> {
        let state = &self.0.state;
        state.executor.until(state.executor.now() + us).await;
        if !state.is_alive(self.0.node, self.0.life) {
            return dead();
        }
        if self.0.file.failing.get() {
            return Err(io::Error::other("injected fault: every operation of this disk fails"));
        }
        Ok(())
    }

    fn trace(&self, what: Traced, offset: u64, bytes: &[u8]) {
        self.0.state.trace(self.0.node, what, offset << 32 ^ u64::from(types::checksum::crc(bytes)));
    }
}
