//! The file of a cache before it is used: open, locked, and not read further than its header.

use std::io;

use types::{BufMut, ClusterId};
use world::{Disk, DiskMode, World};

use crate::disk_cache::{DiskCache, WRITE_US};
use crate::error::CacheError;
use crate::format::{BLOCK, CHUNK, Header, Places};
use crate::index::{CELL_MEMORY, Index};

/// Bytes of the table that are read or written at once.
const TABLE_PIECE: usize = 1 << 20;
/// Most bytes that wait to be written, however much memory there is.
const QUEUED_MAX: u64 = 16 << 20;

/// A file or block device that is to be a cache. It is locked while this or the [`DiskCache`] lives.
pub struct CacheFile {
    disk: Disk,
    places: Places,
    /// Or why it cannot be read, which [`CacheFile::load`] tells.
    header: Result<Header, CacheError>,
}

impl CacheFile {
    /// Opens and locks it.
    ///
    /// # Errors
    /// If it is not there, in use, too small, or somebody else's.
    pub async fn open(world: &World, path: &str) -> Result<CacheFile, CacheError> {
        let (disk, places) = CacheFile::lock(world, path).await?;
        let header = in_time(world, "read", disk.read(0, BLOCK)).await.map(|bytes| Header::parse(&bytes));
        if header == Ok(Header::Foreign) {
            return Err(CacheError::Foreign(path.to_owned()));
        }
        Ok(CacheFile { disk, places, header })
    }

    /// Opens and locks it, and gives up what is in it, whatever that is: it becomes an empty cache.
    ///
    /// # Errors
    /// If it is not there, in use, or too small.
    pub async fn format(world: &World, path: &str) -> Result<CacheFile, CacheError> {
        let (disk, places) = CacheFile::lock(world, path).await?;
        let zeros = BufMut::zeroed(BLOCK).freeze();
        let header = in_time(world, "write", disk.write(0, vec![zeros])).await.map(|()| Header::Empty);
        Ok(CacheFile { disk, places, header })
    }

    async fn lock(world: &World, path: &str) -> Result<(Disk, Places), CacheError> {
        let disk = world.open_disk_when_free(path, DiskMode::Buffered).await.map_err(|error| match error
            .kind()
        {
            io::ErrorKind::WouldBlock => CacheError::InUse(path.to_owned()),
            _ => CacheError::Open(error.to_string()),
        })?;
        let places = Places::for_len(disk.len()).ok_or_else(|| CacheError::TooSmall(path.to_owned()))?;
        Ok((disk, places))
    }

    /// Whether it begins with zeros: it is new, or somebody's disk whose first bytes are zeros.
    pub fn is_blank(&self) -> bool {
        self.header == Ok(Header::Empty)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.disk.name()
    }

    /// Loads what is in it. One of another size or format begins empty. It takes at most `room` bytes of memory.
    ///
    /// # Errors
    /// If it belongs to another cluster, needs more memory, or its disk fails or does not answer for 10 s.
    pub async fn load(self, world: &World, cluster: ClusterId, room: u64) -> Result<DiskCache, CacheError> {
        let CacheFile { disk, places, header } = self;
        let header = header?;
        let cells = places.cells;
        if let Header::Cache { cluster: theirs, .. } = header
            && theirs != cluster
        {
            return Err(CacheError::OtherCluster { path: disk.name().to_owned(), theirs });
        }
        let memory = Memory::within(cells, room);
        if memory.all() > room {
            return Err(CacheError::Memory { needed: memory_needed(cells), room });
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
            // Nothing depends on it, but without its header a disk is not known as a cache after a power failure.
            in_time(world, "sync", disk.sync()).await?;
            Index::new(cells)
        };
        DiskCache::new(&disk, places, index, memory).map_err(broken)
    }
}

/// Bytes of memory of a cache.
pub(crate) struct Memory {
    index: u64,
    /// Bytes that may wait to be written.
    pub(crate) queue: u64,
}

impl Memory {
    /// An eighth of the room for bytes that wait.
    fn within(cells: u32, room: u64) -> Memory {
        Memory { index: u64::from(cells) * CELL_MEMORY, queue: (room / 8).clamp(CHUNK, QUEUED_MAX) }
    }

    pub(crate) fn all(&self) -> u64 {
        self.index + self.queue
    }
}

/// The least room in which a cache with so many cells fits, in bytes.
fn memory_needed(cells: u32) -> u64 {
    let index = u64::from(cells) * CELL_MEMORY;
    (index + CHUNK).max((index * 8).div_ceil(7).min(index + QUEUED_MAX))
}

/// A request to the disk before it is used.
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

/// The disk has not answered in time.
pub(crate) fn too_slow(what: &str, us: u64) -> io::Error {
    let text = format!("the disk has not completed a {what} within {} s", us / 1_000_000);
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_is_asked_for_is_enough_and_not_too_much() {
        for cells in [1, 15, 1000, 8_000, 1_000_000, 1 << 30] {
            let needed = memory_needed(cells);
            assert!(Memory::within(cells, needed).all() <= needed, "{cells}");
            assert!(Memory::within(cells, needed - 2).all() > needed - 2, "{cells}: less is not enough");
        }
    }
}
