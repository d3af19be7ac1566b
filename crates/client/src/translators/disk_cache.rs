//! Disk-cache: keeps bytes that were read on a disk of this machine, for the next read and for the next mount.
//!
//! It is below the caches in memory, which are faster, and below read-ahead, so that bytes which are fetched ahead come
//! from the disk too. It is above write-behind, which knows unstable bytes: those never come here, because nothing is kept
//! of a file that this mount has open for writing.
//!
//! ```text
//!   read -- version? (state/content_version.rs) -- the cache (crates/cache) --+-- found ---------> reader
//!                                                                             `-- below ---------> reader
//!                                                                                    `-- queue, if there is room
//! ```

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cache::{BLOCK, CHUNK, DiskCache, Fill, Key, STRIDE, Wanted};
use futures_util::future::{LocalBoxFuture, join_all};
use types::{Buf, BufMut, VolumeId};
use world::Disk;

use crate::error::ClientError;
use crate::routes::link::Link;
use crate::state::chunk_key::ChunkKey;
use crate::state::content_version::ContentVersion;
use crate::state::open_file::OpenFile;
use crate::state::settings::DiskCaching;
use crate::translators::{Answer, Below, Read, Translator};

/// The cache, as one thread uses it.
pub(crate) struct DiskCacheUse {
    link: Rc<Link>,
    volume: VolumeId,
    shared: Arc<DiskCache>,
    /// `None` if this thread cannot use the disk.
    disk: OnceCell<Option<Disk>>,
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
    /// In the file.
    range: Range<u64>,
    /// Where the chunk begins in the file.
    chunk: u64,
    /// The blocks that the range touches.
    wanted: Wanted,
}

impl DiskCacheUse {
    /// For one thread.
    pub(crate) fn new(link: Rc<Link>, volume: VolumeId, shared: Arc<DiskCache>) -> DiskCacheUse {
        DiskCacheUse { link, volume, shared, disk: OnceCell::new() }
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
        let parts = self.parts(read.file, vouched, &range);
        let found = self.read_parts(disk, &parts).await;
        let mut fetched = Vec::new();
        for run in missing(&parts, &found, vouched.version.size) {
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

    fn parts(&self, file: &OpenFile, vouched: Vouched, range: &Range<u64>) -> Vec<Part> {
        let part = |number: u64| {
            let chunk = number * CHUNK;
            let range = range.start.max(chunk)..range.end.min(chunk + CHUNK);
            let end = (range.end - chunk) as usize;
            let blocks = (range.start - chunk) as usize / BLOCK..end.div_ceil(BLOCK);
            let key = self.key(file, vouched, number);
            Part { range, chunk, wanted: Wanted { key, blocks, end } }
        };
        (range.start / CHUNK..range.end.div_ceil(CHUNK)).map(part).collect()
    }

    fn key(&self, file: &OpenFile, vouched: Vouched, chunk: u64) -> Key {
        ChunkKey { volume: self.volume, inode: file.inode, version: vouched.version, chunk }.to_key()
    }

    /// The blocks of the parts that are there, as they are on the disk, checked.
    async fn read_parts(&self, disk: &Disk, parts: &[Part]) -> Vec<Option<Buf>> {
        if let [part] = parts {
            return vec![self.read_part(disk, part).await];
        }
        join_all(parts.iter().map(|part| self.read_part(disk, part))).await
    }

    async fn read_part(&self, disk: &Disk, part: &Part) -> Option<Buf> {
        let found = self.shared.read(&self.link.world, disk, &part.wanted).await;
        let len = (part.range.end - part.range.start) as usize;
        match found {
            Some(_) => self.shared.hit(len),
            None => self.shared.missed(len),
        }
        found
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
            let key = self.key(file, vouched, chunk);
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

/// What must be fetched for the parts that were not found: whole blocks, but nothing beyond the end of the file, which has
/// `size` bytes. Every part but the first one begins with a chunk, so these join.
fn missing(parts: &[Part], found: &[Option<Buf>], size: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (part, _) in parts.iter().zip(found).filter(|(_, found)| found.is_none()) {
        let start = part.chunk + (part.wanted.blocks.start * BLOCK) as u64;
        let end = (part.chunk + (part.wanted.blocks.end * BLOCK) as u64).min(size);
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
        for (block, bytes) in part.wanted.blocks.clone().zip(read.chunks(STRIDE)) {
            let start = part.chunk + (block * BLOCK) as u64;
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
