//! Disk-cache: keeps bytes that were read on a disk of this machine, for the next read and for the next mount.
//!
//! It is below the caches in memory, which are faster, and below read-ahead, so that bytes which are fetched ahead come
//! from the disk too. It is above write-behind, which knows unstable bytes: those never come here, because nothing is kept
//! of a file that this mount has open for writing.
//!
//! ```text
//!   read -- version? (state/content_version.rs) -- index: which blocks are there --+-- disk: checked --> reader
//!                                                                                  `-- below ---------> reader
//!                                                                                         `-- queue, if there is room
//!   background:  queue --> cell of the chunk --> index --> table, every few seconds       (shared.rs)
//! ```
//!
//! A reader waits for this disk only to read what is there, and not for long. Nothing is ever synced: what a crash leaves
//! is checked when it is read.

pub(crate) mod shared;

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{LocalBoxFuture, join_all};
use types::{Buf, BufMut};
use world::Disk;

use crate::error::ClientError;
use crate::routes::link::Link;
use crate::state::content_version::ContentVersion;
use crate::state::disk_cache::format::{BLOCK, BLOCKS, CHUNK, STRIDE, decode};
use crate::state::disk_cache::key::ChunkKey;
use crate::state::open_file::OpenFile;
use crate::state::settings::DiskCaching;
use crate::translators::{Answer, Below, Read, Translator};

use self::shared::{DiskCache, Fill};

/// How long the disk may take for a read before the cache is given up, in microseconds. The bricks are asked then.
const READ_US: u64 = 2_000_000;

/// The cache, as one thread uses it.
pub(crate) struct DiskCacheUse {
    pub(crate) link: Rc<Link>,
    pub(crate) shared: Arc<DiskCache>,
    /// `None` if this thread cannot use the disk.
    pub(crate) disk: OnceCell<Option<Disk>>,
}

/// What vouches for the bytes of a read.
#[derive(Clone, Copy)]
struct Vouched {
    version: ContentVersion,
    /// Number of finished writes before.
    count: u64,
}

/// The part of a read in one chunk.
struct Part {
    key: ChunkKey,
    /// In the file.
    range: Range<u64>,
    /// The blocks of the chunk that it touches.
    blocks: Range<usize>,
    /// Where the chunk is, if all of these blocks are there.
    cell: Option<u32>,
}

impl DiskCacheUse {
    /// For one thread.
    pub(crate) fn new(link: Rc<Link>, shared: Arc<DiskCache>) -> DiskCacheUse {
        DiskCacheUse { link, shared, disk: OnceCell::new() }
    }

    async fn read_cached(
        &self,
        read: Read<'_>,
        caching: DiskCaching,
        below: Below<'_>,
    ) -> Result<Buf, ClientError> {
        let (vouched, size) = {
            let state = read.file.lock();
            let count = state.writes.count();
            (state.version().map(|version| Vouched { version, count }), state.size)
        };
        let range = read.offset..read.range().end.min(size);
        let Some((vouched, disk)) = vouched.zip(self.disk()).filter(|_| !range.is_empty()) else {
            return below.read(read).await;
        };
        let parts = self.find(read.file, vouched, &range);
        let found = self.read_parts(disk, &parts).await;
        let mut fetched = Vec::new();
        for run in missing(&parts, &found) {
            let (offset, len) = (run.start, (run.end - run.start) as usize);
            fetched.push((run, below.read(Read { offset, len, ..read })));
        }
        let (runs, answers): (Vec<_>, Vec<_>) = fetched.into_iter().unzip();
        let mut fetched = Vec::with_capacity(runs.len());
        for (run, bytes) in runs.into_iter().zip(join_all(answers).await) {
            let bytes = bytes?;
            if bytes.len() as u64 != run.end - run.start {
                // The file has become shorter: what was asked for is not what is there.
                return below.read(read).await;
            }
            fetched.push((run, bytes));
        }
        if self.may_fill(caching, size) {
            fetched.iter().for_each(|(run, bytes)| self.fill(read.file, vouched, run, bytes));
        }
        Ok(join(&range, &parts, &found, &fetched))
    }

    /// This thread's disk, while the cache is in use.
    fn disk(&self) -> Option<&Disk> {
        if !self.shared.is_on() {
            return None;
        }
        let open = || match self.shared.disk_for(&self.link.world) {
            Ok(disk) => Some(disk),
            Err(error) => {
                self.shared.fail(&error);
                None
            }
        };
        self.disk.get_or_init(open).as_ref()
    }

    /// The parts of a range, and what is there of them.
    fn find(&self, file: &OpenFile, vouched: Vouched, range: &Range<u64>) -> Vec<Part> {
        let index = self.shared.index();
        let part = |chunk: u64| {
            let (start, first) = (chunk * CHUNK, range.start.max(chunk * CHUNK));
            let range = first..range.end.min(start + CHUNK);
            let blocks =
                (range.start - start) as usize / BLOCK..((range.end - start) as usize).div_ceil(BLOCK);
            let key =
                ChunkKey { volume: self.shared.volume(), inode: file.inode, version: vouched.version, chunk };
            let wanted = bits(&blocks);
            let cell =
                index.find(key.print()).filter(|(_, has)| has & wanted == wanted).map(|(cell, _)| cell);
            Part { key, range, blocks, cell }
        };
        (range.start / CHUNK..range.end.div_ceil(CHUNK)).map(part).collect()
    }

    /// The blocks of the parts that are there, as they are on the disk, checked.
    async fn read_parts(&self, disk: &Disk, parts: &[Part]) -> Vec<Option<Buf>> {
        if let [part] = parts {
            return vec![self.read_part(disk, part).await];
        }
        join_all(parts.iter().map(|part| self.read_part(disk, part))).await
    }

    async fn read_part(&self, disk: &Disk, part: &Part) -> Option<Buf> {
        let len = (part.range.end - part.range.start) as usize;
        let Some(cell) = part.cell else {
            self.shared.missed(len);
            return None;
        };
        let (offset, bytes) = (self.shared.places.block(cell, part.blocks.start), part.blocks.len() * STRIDE);
        let turn = self.shared.reading.acquire().await;
        let answer = self.link.world.timeout(READ_US, disk.read(offset, bytes)).await;
        drop(turn);
        let read = match answer {
            Some(Ok(read)) => read,
            failed => {
                self.shared.fail(&failed.map_or_else(
                    || shared::too_slow("read", READ_US),
                    |read| read.err().unwrap_or_else(|| std::io::ErrorKind::Other.into()),
                ));
                self.shared.missed(len);
                return None;
            }
        };
        // Each block must be the right one, and have all of the bytes that the reader wants of it.
        let end = (part.range.end - part.key.chunk * CHUNK) as usize;
        let is_whole = part.blocks.clone().zip(read.chunks(STRIDE)).all(|(block, bytes)| {
            decode(part.key, block, bytes).is_some_and(|data| data.len() >= (end - block * BLOCK).min(BLOCK))
        });
        if !is_whole {
            self.shared.is_damaged(part.key.print(), cell);
            self.shared.missed(len);
            return None;
        }
        self.shared.hit(len);
        Some(read)
    }

    /// Whether bytes that this request has fetched may be added.
    fn may_fill(&self, caching: DiskCaching, size: u64) -> bool {
        match caching {
            DiskCaching::On => true,
            DiskCaching::UnlessLarge => size <= self.shared.bytes_most() / 2,
            DiskCaching::Off => false,
        }
    }

    /// Queues the bytes of whole blocks, if they are still those of the version.
    fn fill(&self, file: &OpenFile, vouched: Vouched, run: &Range<u64>, bytes: &Buf) {
        let is_good = {
            let state = file.lock();
            state.version() == Some(vouched.version) && state.writes.is_untouched(vouched.count, run)
        };
        if !is_good || !self.link.routes.lease.is_leased(self.link.world.now()) {
            return;
        }
        let mut at = run.start;
        while at < run.end {
            let chunk = at / CHUNK;
            let end = run.end.min((chunk + 1) * CHUNK);
            let key =
                ChunkKey { volume: self.shared.volume(), inode: file.inode, version: vouched.version, chunk };
            let part = bytes.slice((at - run.start) as usize..(end - run.start) as usize);
            self.shared.queue(Fill { key, first: (at - chunk * CHUNK) as usize / BLOCK, bytes: part });
            at = end;
        }
    }
}

impl Translator for DiskCacheUse {
    fn name(&self) -> &'static str {
        "disk-cache"
    }

    fn read<'a>(&'a self, read: Read<'a>, below: Below<'a>) -> Answer<'a, Buf> {
        match read.settings.disk_cache {
            DiskCaching::Off => below.read(read),
            caching => Box::pin(self.read_cached(read, caching, below)),
        }
    }

    fn background<'a>(&'a self, _: Below<'a>) -> LocalBoxFuture<'a, ()> {
        Box::pin(self.shared.serve(&self.link.world))
    }
}

/// A bit for each of these blocks.
pub(super) fn bits(blocks: &Range<usize>) -> u16 {
    blocks.clone().fold(0, |bits, block| bits | 1 << block)
}

/// What must be fetched for the parts that were not found: whole blocks, but nothing beyond the end of the file. Every
/// part but the first one begins with a chunk, so these join.
fn missing(parts: &[Part], found: &[Option<Buf>]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (part, _) in parts.iter().zip(found).filter(|(_, found)| found.is_none()) {
        let start = part.key.chunk * CHUNK + (part.blocks.start * BLOCK) as u64;
        let end = (part.key.chunk * CHUNK + (part.blocks.end * BLOCK) as u64).min(part.key.version.size);
        match runs.last_mut() {
            Some(run) if run.end == start => run.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

/// One buffer with the bytes of a range.
fn join(range: &Range<u64>, parts: &[Part], found: &[Option<Buf>], fetched: &[(Range<u64>, Buf)]) -> Buf {
    if let ([(run, bytes)], true) = (fetched, found.iter().all(Option::is_none)) {
        return bytes.slice((range.start - run.start) as usize..(range.end - run.start) as usize);
    }
    let mut out = BufMut::dirty((range.end - range.start) as usize);
    for (part, read) in parts.iter().zip(found) {
        let Some(read) = read else { continue };
        let chunk = part.key.chunk * CHUNK;
        for (block, bytes) in part.blocks.clone().zip(read.chunks(STRIDE)) {
            let start = chunk + (block * BLOCK) as u64;
            let (from, to) = (part.range.start.max(start), part.range.end.min(start + BLOCK as u64));
            let target = (from - range.start) as usize..(to - range.start) as usize;
            out[target].copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
    }
    for (run, bytes) in fetched {
        let (from, to) = (run.start.max(range.start), run.end.min(range.end));
        let target = (from - range.start) as usize..(to - range.start) as usize;
        out[target].copy_from_slice(&bytes[(from - run.start) as usize..(to - run.start) as usize]);
    }
    out.freeze()
}

const _: () = assert!(BLOCKS <= u16::BITS as usize, "a bit for each block");
