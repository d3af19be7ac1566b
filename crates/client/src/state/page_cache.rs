//! Pages of files that were read, of all files of a mount. The cache resists scans (S3-FIFO and CLOCK-Pro, see the
//! crate quick_cache and docs/decisions/0027-pages-in-quick-cache.md).

use std::hash::{BuildHasherDefault, DefaultHasher};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use types::Buf;

/// Parts of the cache with a lock each.
const SHARDS: usize = 4;
/// What a page costs beside its bytes.
const OVERHEAD: u64 = 128;
/// Bytes of a usual page, to size tables.
const USUAL_PAGE: u64 = 16 << 10;

/// Which page of which file. Pages of a file that is closed, or that changed as a whole, are never asked for again, and
/// leave the cache when others need their place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PageKey {
    /// The file: see `FileState::cache_id`.
    pub(crate) file: u64,
    /// Its contents: see `FileState::generation`.
    pub(crate) generation: u64,
    /// Number of the page.
    pub(crate) page: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<PageKey, Buf> for Weight {
    fn weight(&self, _: &PageKey, page: &Buf) -> u64 {
        page.len() as u64 + OVERHEAD
    }
}

/// Deterministic, so that simulated runs can be repeated.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// The cache.
pub(crate) struct PageCache(Cache<PageKey, Buf, Weight, Hasher, DefaultLifecycle<PageKey, Buf>>);

impl PageCache {
    /// For at most `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> PageCache {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity((bytes / USUAL_PAGE).max(SHARDS as u64) as usize)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are given");
        PageCache(Cache::with_options(options, Weight, Hasher::default(), DefaultLifecycle::default()))
    }

    /// Changes the number of bytes that it may take.
    pub(crate) fn resize(&self, bytes: u64) {
        self.0.set_capacity(bytes);
    }

    /// Bytes that it may take.
    pub(crate) fn limit(&self) -> u64 {
        self.0.capacity()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }

    pub(crate) fn get(&self, key: &PageKey) -> Option<Buf> {
        self.0.get(key)
    }

    pub(crate) fn insert(&self, key: PageKey, page: Buf) {
        self.0.insert(key, page);
    }

    pub(crate) fn remove(&self, key: &PageKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use types::BufMut;

    use super::*;

    fn key(page: u64) -> PageKey {
        PageKey { file: 1, generation: 0, page }
    }

    fn fill(cache: &PageCache, pages: std::ops::Range<u64>) {
        pages.for_each(|page| cache.insert(key(page), BufMut::zeroed(4096).freeze()));
    }

    #[test]
    fn it_keeps_within_its_bytes_and_survives_a_scan() {
        let cache = PageCache::new(4 << 20);
        for _ in 0..3 {
            for page in 0..200 {
                if cache.get(&key(page)).is_none() {
                    fill(&cache, page..page + 1);
                }
            }
        }
        fill(&cache, 1000..100_000);
        assert!(cache.bytes() <= 4 << 20, "{}", cache.bytes());
        let kept = (0..200).filter(|page| cache.get(&key(*page)).is_some()).count();
        assert!(kept > 150, "pages that are used stay while others pass: {kept} of 200");
        cache.resize(1 << 20);
        assert!(cache.bytes() <= 1 << 20);
        cache.resize(0);
        fill(&cache, 0..10);
        assert_eq!(cache.bytes(), 0);
    }
}
