//! The cache of a brick on a faster disk: blocks of bases that clients have read.
//!
//! It may be lost at any moment, and nothing that is in it counts for more than the descriptor of its unit says.
//!
//! # Invariants
//! - A key names the base by its identity, which no other bytes of the unit ever have. So nothing need be removed when a
//!   unit changes, and what is there stays good over restarts.
//! - Every block that comes from it is compared with the checksum in the unit's descriptor, as one from the disk is.
//! - Only direct reads by clients use it. Whatever looks for damage on the disk, or repairs it, reads the disk.
//! - No failure of its disk fails a read, or the brick.

use std::ops::Range;
use std::rc::Rc;

use cache::{BLOCKS, CacheError, CacheFile, DiskCache, Fill, KEY_BYTES, Key, STRIDE, Wanted};
use futures_util::future::join_all;
use types::checksum::crc;
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::CacheReport;
use types::{Buf, BufMut, ClusterId, Refusal, Seq, StripeKey, VolumeId};
use world::{Disk, World};

use crate::server::Server;

const _: () = assert!(cache::BLOCK == BLOCK, "a block of a unit is a block of the cache");

/// A cache, or why there is none although there should be.
pub(crate) enum ReadCache {
    /// It was loaded. It may have failed since.
    Loaded { cache: Box<DiskCache>, disk: Disk },
    /// Its disk failed when the brick started.
    Off { reason: String },
}

/// The base of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseName {
    pub(crate) volume: VolumeId,
    pub(crate) slot: u8,
    pub(crate) key: StripeKey,
    pub(crate) identity: Seq,
}

impl BaseName {
    /// The key of a chunk of the base. No client's key begins like this: volumes have small numbers.
    pub(crate) fn chunk(&self, chunk: u32) -> Key {
        let StripeKey { object, stripe } = self.key;
        let mut key = [0; KEY_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            key[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&u32::MAX.to_le_bytes());
        put(&self.volume.0.to_le_bytes());
        put(&u32::from(self.slot).to_le_bytes());
        put(&chunk.to_le_bytes());
        put(&object.0.to_le_bytes());
        put(&stripe.to_le_bytes());
        put(&self.identity.0.to_le_bytes());
        Key(key)
    }
}

/// The blocks of a read in one chunk.
struct Part {
    wanted: Wanted,
    /// Which ones of the blocks of the read they are.
    of: Range<usize>,
}

/// Cuts `count` blocks from the block `first` of a unit on into chunks.
fn parts(base: &BaseName, first: usize, count: usize) -> Vec<Part> {
    let end = first + count;
    let part = |chunk: usize| {
        let start = chunk * BLOCKS;
        let (from, to) = (first.max(start), end.min(start + BLOCKS));
        let (blocks, key) = (from - start..to - start, base.chunk(chunk as u32));
        Part { wanted: Wanted { key, end: blocks.end * BLOCK, blocks }, of: from - first..to - first }
    };
    (first / BLOCKS..end.div_ceil(BLOCKS)).map(part).collect()
}

impl ReadCache {
    /// Loads a cache, which may take a quarter of the brick's memory.
    ///
    /// # Errors
    /// If it was set up wrongly. If its disk fails, there is none.
    pub(crate) async fn load(
        world: &World,
        file: CacheFile,
        cluster: ClusterId,
        memory_budget: u64,
    ) -> Result<ReadCache, CacheError> {
        let path = file.path().to_owned();
        let loaded = file.load(world, cluster, memory_budget / 4).await.and_then(|cache| {
            let disk = cache.disk_for(world).map_err(|error| CacheError::Disk(error.to_string()))?;
            Ok(ReadCache::Loaded { cache: Box::new(cache), disk })
        });
        match loaded {
            Err(CacheError::Disk(reason)) => {
                tracing::warn!("the cache {path} fails: the brick starts without it: {reason}");
                Ok(ReadCache::Off { reason })
            }
            loaded => loaded,
        }
    }

    /// Bytes of memory that it takes, at most.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            ReadCache::Loaded { cache, .. } => cache.memory(),
            ReadCache::Off { .. } => 0,
        }
    }

    /// What it has done since the start.
    pub(crate) fn report(&self) -> CacheReport {
        let cache = match self {
            ReadCache::Loaded { cache, .. } => cache,
            ReadCache::Off { reason } => {
                let (state, reason) = ("off".to_owned(), Some(reason.clone()));
                return CacheReport { state, reason, ..CacheReport::default() };
            }
        };
        let report = cache.report();
        CacheReport {
            state: report.state.to_owned(),
            reason: report.reason,
            bytes_most: report.bytes_most,
            bytes: report.bytes,
            hits: report.hits,
            hit_bytes: report.hit_bytes,
            misses: report.misses,
            missed_bytes: report.missed_bytes,
            damaged: report.damaged,
            filled_bytes: report.filled_bytes,
            skipped_bytes: report.skipped_bytes,
        }
    }
}

impl Server {
    /// Adds to the cache what reads have fetched.
    pub(crate) async fn fill_cache(self: Rc<Server>) {
        if let Some(ReadCache::Loaded { cache, .. }) = &self.cache {
            cache.serve(&self.world).await;
        }
    }

    /// Blocks of a base, from the block `first` of its unit on: as [`Server::fetch_blocks`], but what is in the cache comes
    /// from there, and the rest is added to it.
    pub(crate) async fn fetch_through_cache(
        &self,
        base: &BaseName,
        first: usize,
        blocks: &[(u64, u32)],
    ) -> Result<Buf, Refusal> {
        let Some(ReadCache::Loaded { cache, disk }) = &self.cache else {
            return self.fetch_blocks(blocks).await;
        };
        if blocks.is_empty() || !cache.is_on() {
            return self.fetch_blocks(blocks).await;
        }
        let parts = parts(base, first, blocks.len());
        let found = join_all(parts.iter().map(|part| self.find(cache, disk, part, blocks))).await;
        let parts: Vec<(Part, Option<Buf>)> = parts.into_iter().zip(found).collect();
        let mut all = BufMut::dirty(blocks.len() * BLOCK);
        // Adjacent parts that are missing are read in one go: on a disk that seeks, this is what counts.
        for run in parts.chunk_by(|(_, one), (_, next)| one.is_none() && next.is_none()) {
            if let [(part, Some(read))] = run {
                for (block, read) in all[bytes_of(&part.of)].chunks_mut(BLOCK).zip(read.chunks(STRIDE)) {
                    block.copy_from_slice(&read[..BLOCK]);
                }
                continue;
            }
            let of = run[0].0.of.start..run[run.len() - 1].0.of.end;
            let bytes = self.fetch_blocks(&blocks[of.clone()]).await?;
            for (part, _) in run {
                let here = part.of.start - of.start..part.of.end - of.start;
                let (key, first) = (part.wanted.key, part.wanted.blocks.start);
                cache.queue(Fill { key, first, bytes: bytes.slice(bytes_of(&here)) });
            }
            if run.len() == parts.len() {
                return Ok(bytes);
            }
            all[bytes_of(&of)].copy_from_slice(&bytes);
        }
        Ok(all.freeze())
    }

    /// A part as it is in the cache, if it is there and its blocks are what the descriptor says of them.
    async fn find(&self, cache: &DiskCache, disk: &Disk, part: &Part, blocks: &[(u64, u32)]) -> Option<Buf> {
        let len = part.of.len() * BLOCK;
        let Some(read) = cache.read(&self.world, disk, &part.wanted).await else {
            cache.missed(len);
            return None;
        };
        let sums = blocks[part.of.clone()].iter().map(|(_, sum)| *sum);
        if !sums.eq(read.chunks(STRIDE).map(|block| crc(&block[..BLOCK]))) {
            cache.is_wrong(part.wanted.key);
            cache.missed(len);
            return None;
        }
        hit(CodeProbe::CachedBlock);
        cache.hit(len);
        Some(read)
    }
}

fn bytes_of(blocks: &Range<usize>) -> Range<usize> {
    blocks.start * BLOCK..blocks.end * BLOCK
}
