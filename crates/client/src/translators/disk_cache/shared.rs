//! What all threads of a mount share of its cache on a disk: its file, its index, the bytes that wait to be written, and
//! whether it works.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use async_lock::Semaphore;
use types::{Buf, BufMut, ClusterId, VolumeId};
use world::{Disk, SharedDisk, World};

use crate::error::CacheError;
use crate::state::disk_cache::format::{BLOCK, CHUNK, Header, Places, encode};
use crate::state::disk_cache::index::{CELL_MEMORY, Index};
use crate::state::disk_cache::key::ChunkKey;
use crate::state::lock;
use crate::translators::disk_cache::bits;

/// Most chunks that wait to be written.
const QUEUE_MAX: usize = 256;
/// Most reads of the disk in progress.
const READS_MAX: usize = 32;
/// How long the disk may take for a write before the cache is given up, in microseconds.
const WRITE_US: u64 = 10_000_000;
/// Longest time until the table has what was added, in microseconds: what a mount that is killed forgets.
const TABLE_US: u64 = 2_000_000;
/// Bytes of the table that are read or written at once.
const TABLE_PIECE: usize = 1 << 20;

/// A cache file that is open and locked, before its mount has joined.
pub(crate) struct CacheFile {
    disk: Disk,
    header: Header,
    places: Places,
}

impl CacheFile {
    /// Opens and locks it.
    pub(crate) async fn open(world: &World, path: &str) -> Result<CacheFile, CacheError> {
        let disk = world.open_disk_when_free(path).await.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => CacheError::InUse(path.to_owned()),
            _ => CacheError::Disk(error.to_string()),
        })?;
        let places = Places::for_len(disk.len()).ok_or_else(|| CacheError::TooSmall(path.to_owned()))?;
        let header = Header::parse(&in_time(world, "read", disk.read(0, BLOCK)).await?);
        if header == Header::Foreign {
            return Err(CacheError::Foreign(path.to_owned()));
        }
        Ok(CacheFile { disk, header, places })
    }

    /// Loads what is in it, unless it belongs to another cluster. One of another size or format begins empty. It takes at
    /// most `room` bytes of memory.
    pub(crate) async fn load(
        self,
        world: &World,
        cluster: ClusterId,
        volume: VolumeId,
        room: u64,
    ) -> Result<DiskCache, CacheError> {
        let CacheFile { disk, header, places } = self;
        let cells = places.cells;
        if let Header::Cache { cluster: theirs, .. } = header
            && theirs != cluster
        {
            return Err(CacheError::OtherCluster { path: disk.name().to_owned(), theirs });
        }
        let needed = memory(cells, room);
        if needed > room {
            return Err(CacheError::Memory { needed, room });
        }
        let index = if header == (Header::Cache { cluster, cells }) {
            let mut table = Vec::with_capacity(places.table_len());
            while table.len() < places.table_len() {
                let len = (places.table_len() - table.len()).min(TABLE_PIECE);
                let read = disk.read((BLOCK + table.len()) as u64, len);
                table.extend_from_slice(&in_time(world, "read", read).await?);
            }
            Index::load(cells, &table)
        } else {
            if header != Header::Empty {
                tracing::info!(
                    "the cache {} has another size or format than before: it begins empty",
                    disk.name()
                );
            }
            for at in (0..places.table_len()).step_by(TABLE_PIECE) {
                let zeros = BufMut::zeroed((places.table_len() - at).min(TABLE_PIECE)).freeze();
                in_time(world, "write", disk.write((BLOCK + at) as u64, vec![zeros])).await?;
            }
            in_time(world, "write", disk.write(0, vec![Header::of(cluster, cells)])).await?;
            Index::new(cells)
        };
        let (fills, queue) = async_channel::bounded(QUEUE_MAX);
        Ok(DiskCache {
            path: disk.name().to_owned(),
            places,
            volume,
            disk: disk.shared().map_err(broken)?,
            index: Mutex::new(index),
            fills,
            queue,
            queued: AtomicU64::new(0),
            queued_most: fill_bytes_most(room),
            memory: needed,
            state: AtomicU8::new(ON),
            reason: Mutex::default(),
            counts: Counts::default(),
            reading: Semaphore::new(READS_MAX),
        })
    }
}

/// A request to the disk before the mount uses it.
async fn in_time<T>(
    world: &World,
    what: &str,
    request: impl Future<Output = io::Result<T>>,
) -> Result<T, CacheError> {
    let done = world.timeout(WRITE_US, request).await;
    done.unwrap_or_else(|| Err(too_slow(what, WRITE_US))).map_err(broken)
}

fn broken(error: io::Error) -> CacheError {
    CacheError::Disk(error.to_string())
}

/// Most bytes that wait to be written, if the cache may take `room` bytes of memory.
fn fill_bytes_most(room: u64) -> u64 {
    (room / 8).clamp(CHUNK, 16 << 20)
}

/// Bytes of memory of a cache.
fn memory(cells: u32, room: u64) -> u64 {
    u64::from(cells) * CELL_MEMORY + fill_bytes_most(room)
}

/// The disk has not answered in time.
pub(crate) fn too_slow(what: &str, us: u64) -> io::Error {
    let text = format!("the disk has not completed a {what} within {} s", us / 1_000_000);
    io::Error::new(io::ErrorKind::TimedOut, text)
}

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

/// What a cache on a disk has done since the mount began.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DiskCacheReport {
    /// `on`, `full` if nothing can be added any more, or `off` if its disk has failed.
    pub state: &'static str,
    /// Why it is not on.
    pub reason: Option<String>,
    /// Bytes of files that fit, and bytes of the cells in use. A cell may have a part of its bytes only.
    pub bytes_most: u64,
    /// See above.
    pub bytes: u64,
    /// Parts of reads in one chunk that came from it, and their bytes.
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

/// Bytes that wait to be written.
pub(crate) struct Fill {
    pub(crate) key: ChunkKey,
    /// Their first block in the chunk.
    pub(crate) first: usize,
    pub(crate) bytes: Buf,
}

/// See the module.
pub(crate) struct DiskCache {
    path: String,
    pub(crate) places: Places,
    volume: VolumeId,
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
    /// Bounds the reads in progress, so that the time of one is not the length of this mount's own queue.
    pub(super) reading: Semaphore,
}

impl DiskCache {
    pub(crate) fn volume(&self) -> VolumeId {
        self.volume
    }

    pub(crate) fn disk_for(&self, world: &World) -> io::Result<Disk> {
        world.disk_of(&self.disk)
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// Whether what is there may be used.
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OFF
    }

    /// Bytes of files that fit.
    pub(crate) fn bytes_most(&self) -> u64 {
        u64::from(self.places.cells) * CHUNK
    }

    /// Bytes of memory that it takes, at most.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Ends the background.
    pub(crate) fn close(&self) {
        self.fills.close();
    }

    /// The disk has failed. If it is full, what is there stays in use; otherwise the cache is off until the next mount.
    pub(crate) fn fail(&self, error: &io::Error) {
        let state = if error.kind() == io::ErrorKind::StorageFull { FULL } else { OFF };
        if self.state.fetch_max(state, Ordering::Relaxed) >= state {
            return;
        }
        let path = &self.path;
        *lock(&self.reason) = Some(error.to_string());
        if state == FULL {
            tracing::warn!(%error, "the disk of the cache {path} is full: nothing is added until the next mount");
        } else {
            tracing::warn!(%error, "the cache {path} fails: it is off until the next mount, and bricks serve all reads");
        }
    }

    pub(crate) fn hit(&self, bytes: usize) {
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        self.counts.hit_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn missed(&self, bytes: usize) {
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        self.counts.missed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes of a chunk are not what they should be.
    pub(crate) fn is_damaged(&self, print: u64, cell: u32) {
        // It may have left while its bytes were read, and the cell may be another's.
        if self.index().remove(print, cell) {
            self.counts.damaged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues bytes to be written, a copy. They are skipped if too many wait.
    pub(crate) fn queue(&self, fill: Fill) {
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

    /// Writes what is queued, one chunk at a time, until the mount ends. Then the table; what is queued is dropped.
    pub(crate) async fn serve(&self, world: &World) {
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
        let wanted = bits(&(first..first + bytes.len().div_ceil(BLOCK)));
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

    pub(crate) fn report(&self) -> DiskCacheReport {
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
