//! A cache in use, which the threads of a process may share: its index, the bytes that wait to be written, and whether it
//! works.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_lock::Semaphore;
use types::Buf;
use world::{Disk, SharedDisk, World};

use crate::file::{Memory, too_slow};
use crate::format::{BLOCK, BLOCKS, CHUNK, Places, STRIDE, bits, decode, encode};
use crate::index::Index;
use crate::key::Key;

/// Most chunks that wait to be written.
const QUEUE_MAX: usize = 256;
/// Most reads of the disk in progress.
const READS_MAX: usize = 32;
/// How long the disk may take for a read before the cache is given up, in microseconds.
const READ_US: u64 = 2_000_000;
/// How long the disk may take for a write before the cache is given up, in microseconds.
pub(crate) const WRITE_US: u64 = 10_000_000;
/// Longest time until the table has what was added, in microseconds: what a process that is killed forgets.
const TABLE_US: u64 = 2_000_000;

const ON: u8 = 0;
/// The disk is full: nothing is added any more.
const FULL: u8 = 1;
/// The disk has failed: it is not used any more.
const OFF: u8 = 2;

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
    damaged: AtomicU64,
    filled_bytes: AtomicU64,
    skipped_bytes: AtomicU64,
}

/// What a cache has done since its process began.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DiskCacheReport {
    /// `on`, `full` if nothing can be added any more, or `off` if its disk has failed.
    pub state: &'static str,
    /// Why it is not on.
    pub reason: Option<String>,
    /// Bytes that fit, and bytes of the cells in use. A cell may have a part of its bytes only.
    pub bytes_most: u64,
    /// See above.
    pub bytes: u64,
    /// Parts of reads, each in one chunk, that came from it, and their bytes.
    pub hits: u64,
    /// See above.
    pub hit_bytes: u64,
    /// Those that did not.
    pub misses: u64,
    /// See above.
    pub missed_bytes: u64,
    /// Chunks that were not what they should be, and were dropped.
    pub damaged: u64,
    /// Bytes that were added.
    pub filled_bytes: u64,
    /// Bytes that were not added because the disk was busy.
    pub skipped_bytes: u64,
}

/// Bytes to be added.
pub struct Fill {
    /// Their chunk.
    pub key: Key,
    /// Their first block in the chunk.
    pub first: usize,
    /// Whole blocks; the last one may be short.
    pub bytes: Buf,
}

/// What is wanted of a chunk.
#[derive(Clone)]
pub struct Wanted {
    /// The chunk.
    pub key: Key,
    /// Blocks of it.
    pub blocks: Range<usize>,
    /// Number of bytes from the start of the chunk up to the last one that is wanted: only the last block of a file is
    /// short.
    pub end: usize,
}

/// See the module.
pub struct DiskCache {
    path: String,
    places: Places,
    disk: SharedDisk,
    index: Mutex<Index>,
    fills: async_channel::Sender<Fill>,
    queue: async_channel::Receiver<Fill>,
    queued: AtomicU64,
    queued_most: u64,
    memory: u64,
    state: AtomicU8,
    reason: Mutex<Option<String>>,
    counts: Counts,
    /// Bounds the reads in progress, so that the time of one is not the length of the process's own queue.
    reading: Semaphore,
}

impl DiskCache {
    pub(crate) fn new(disk: &Disk, places: Places, index: Index, memory: Memory) -> io::Result<DiskCache> {
        let (fills, queue) = async_channel::bounded(QUEUE_MAX);
        Ok(DiskCache {
            path: disk.name().to_owned(),
            places,
            disk: disk.shared()?,
            index: Mutex::new(index),
            fills,
            queue,
            queued: AtomicU64::new(0),
            queued_most: memory.queue,
            memory: memory.all(),
            state: AtomicU8::new(ON),
            reason: Mutex::default(),
            counts: Counts::default(),
            reading: Semaphore::new(READS_MAX),
        })
    }

    /// Its disk, for a thread.
    ///
    /// # Errors
    /// As [`World::disk_of`].
    pub fn disk_for(&self, world: &World) -> io::Result<Disk> {
        world.disk_of(&self.disk)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// Whether what is there may be used.
    pub fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OFF
    }

    /// Bytes that fit.
    pub fn bytes_most(&self) -> u64 {
        u64::from(self.places.cells) * CHUNK
    }

    /// Bytes of memory that it takes, at most.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Ends the background.
    pub fn close(&self) {
        self.fills.close();
    }

    /// The disk has failed. If it is full, what is there stays in use; otherwise the cache is off until the next start.
    pub fn fail(&self, error: &io::Error) {
        let state = if error.kind() == io::ErrorKind::StorageFull { FULL } else { OFF };
        if self.state.fetch_max(state, Ordering::Relaxed) >= state {
            return;
        }
        let path = &self.path;
        *lock(&self.reason) = Some(error.to_string());
        if state == FULL {
            tracing::warn!(%error, "the disk of the cache {path} is full: nothing is added until the next start");
        } else {
            tracing::warn!(%error, "the cache {path} fails: it is off until the next start, and reads go on without it");
        }
    }

    /// The blocks that are wanted, [`STRIDE`] bytes for each: first [`BLOCK`] bytes of the block, of which those of a
    /// short one count as far as they are wanted. They are what was added under the key, which checksums have shown.
    /// `None` if one of them is not there. Takes 2 s at most, and only once: then the cache is off.
    pub async fn read(&self, world: &World, disk: &Disk, wanted: &Wanted) -> Option<Buf> {
        let Wanted { key, blocks, end } = wanted;
        let (print, bits) = (key.print(), bits(blocks));
        let (cell, _) = self.index().find(print).filter(|(_, has)| has & bits == bits)?;
        let turn = self.reading.acquire().await;
        if !self.is_on() {
            return None;
        }
        let (offset, len) = (self.places.block(cell, blocks.start), blocks.len() * STRIDE);
        let answer = world.timeout(READ_US, disk.read(offset, len)).await;
        drop(turn);
        let read = match answer.unwrap_or_else(|| Err(too_slow("read", READ_US))) {
            Ok(read) => read,
            Err(error) => {
                self.fail(&error);
                return None;
            }
        };
        let is_whole = blocks.clone().zip(read.chunks(STRIDE)).all(|(block, bytes)| {
            decode(*key, block, bytes).is_some_and(|data| data.len() >= (end - block * BLOCK).min(BLOCK))
        });
        if !is_whole {
            self.drop_damaged(print, cell);
            return None;
        }
        Some(read)
    }

    /// So many bytes of one chunk came from the cache.
    pub fn hit(&self, bytes: usize) {
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        self.counts.hit_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many bytes of one chunk did not come from the cache.
    pub fn missed(&self, bytes: usize) {
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        self.counts.missed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The owner has found that the bytes of a chunk are not what they should be.
    pub fn is_wrong(&self, key: Key) {
        let print = key.print();
        let found = self.index().find(print);
        if let Some((cell, _)) = found {
            self.drop_damaged(print, cell);
        }
    }

    fn drop_damaged(&self, print: u64, cell: u32) {
        // It may have left while its bytes were read, and the cell may be another's.
        if self.index().remove(print, cell) {
            self.counts.damaged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues bytes to be written, a copy. They are skipped if too many wait.
    pub fn queue(&self, fill: Fill) {
        let len = fill.bytes.len() as u64;
        let has_room = self.queued.fetch_add(len, Ordering::Relaxed) + len <= self.queued_most;
        let is_queued = has_room && self.state.load(Ordering::Relaxed) == ON && {
            let bytes = Buf::copy_of(&fill.bytes);
            self.fills.try_send(Fill { bytes, ..fill }).is_ok()
        };
        if !is_queued {
            self.queued.fetch_sub(len, Ordering::Relaxed);
            self.counts.skipped_bytes.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// Writes what is queued, one chunk at a time, until the cache is closed. Then the table; what is queued is dropped.
    pub async fn serve(&self, world: &World) {
        let disk = match self.disk_for(world) {
            Ok(disk) => disk,
            Err(error) => return self.fail(&error),
        };
        let mut table_due = world.now() + TABLE_US;
        loop {
            let next = if self.index().has_unwritten() {
                let wait = table_due.saturating_sub(world.now()).max(1);
                world.timeout(wait, self.queue.recv()).await
            } else {
                Some(self.queue.recv().await)
            };
            match next {
                Some(Ok(_)) if self.fills.is_closed() => {}
                Some(Ok(fill)) => self.write(world, &disk, fill).await,
                Some(Err(_)) => {
                    // What is not in the table is not found again: that is all. So the end does not wait for it.
                    world.timeout(WRITE_US, self.write_table(world, &disk)).await;
                    return;
                }
                None => {}
            }
            if world.now() >= table_due {
                self.write_table(world, &disk).await;
                table_due = world.now() + TABLE_US;
            }
        }
    }

    async fn write(&self, world: &World, disk: &Disk, fill: Fill) {
        let Fill { key, first, bytes } = fill;
        self.queued.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        if self.state.load(Ordering::Relaxed) != ON {
            return;
        }
        let print = key.print();
        let wanted = bits(&(first..BLOCKS.min(first + bytes.len().div_ceil(BLOCK))));
        let place = self.index().place(print);
        let Some((cell, has)) = place.filter(|(_, has)| has & wanted != wanted) else { return };
        let parts = encode(key, first, &bytes);
        if self.write_at(world, disk, self.places.block(cell, first), parts).await {
            self.index().add(print, cell, wanted);
            self.counts.filled_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        } else if has == 0 {
            self.index().remove(print, cell);
        }
    }

    async fn write_table(&self, world: &World, disk: &Disk) {
        while self.is_on() {
            let next = self.index().next_unwritten();
            let Some((part, bytes)) = next else { return };
            if !self.write_at(world, disk, Places::table_part(part), vec![bytes]).await {
                return;
            }
        }
    }

    /// Returns whether it was written. If not, the cache has failed.
    async fn write_at(&self, world: &World, disk: &Disk, offset: u64, parts: Vec<Buf>) -> bool {
        match world.timeout(WRITE_US, disk.write(offset, parts)).await {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                self.fail(&error);
                false
            }
            None => {
                self.fail(&too_slow("write", WRITE_US));
                false
            }
        }
    }

    /// What it has done, and whether it works.
    pub fn report(&self) -> DiskCacheReport {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let state = match self.state.load(Ordering::Relaxed) {
            ON => "on",
            FULL => "full",
            _ => "off",
        };
        DiskCacheReport {
            state,
            reason: lock(&self.reason).clone(),
            bytes_most: self.bytes_most(),
            bytes: self.index().chunks() * CHUNK,
            hits: of(&self.counts.hits),
            hit_bytes: of(&self.counts.hit_bytes),
            misses: of(&self.counts.misses),
            missed_bytes: of(&self.counts.missed_bytes),
            damaged: of(&self.counts.damaged),
            filled_bytes: of(&self.counts.filled_bytes),
            skipped_bytes: of(&self.counts.skipped_bytes),
        }
    }
}

/// Locks a state that is consistent at any time, also after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
