//! What kind of work is done on an open file, from its last reads.

use crate::state::settings::{Choice, DiskCaching};
use crate::state::streams::{Step, Streams};

/// Reads that are looked at.
const RECENT: u32 = 32;
/// How many of them must be of a kind.
const MOST: u32 = 24;
/// How many reads in a row must show another kind before it counts.
const STEADY: u32 = 8;
/// Reads in which a file that fits into io-cache is cached, though nothing of it has been read again yet.
const LEARNING: u32 = 1024;
/// A share of reads as it is computed: this is all of them.
const ALL: u32 = 1 << 16;
/// The shares of random reads that come again from which on they are cached, and below which they are not. A page that is
/// cached costs a tenth more than one that is not, and saves most of a read each time it is found.
const CACHED_FROM: u32 = ALL / 8;
const CACHED_BELOW: u32 = ALL / 16;
/// Over so many reads that share is an average.
const AVERAGED: u32 = 64;
/// Bytes of a block whose reads are remembered.
const BLOCK: u64 = 4096;
/// Reads in a row that a larger page must fit before it is chosen.
const GROW: u32 = 1024;
/// Smallest and largest page that is chosen. Random reads of the largest one or more are cached only if they are read
/// again.
const PAGE_MIN: u64 = 4096;
const PAGE_MAX: u64 = 128 << 10;
/// Most bytes ahead of a reader, unless somebody sets more.
const WINDOW: u64 = 8 << 20;

/// What kind of work is done on an open file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Class {
    /// Not known yet.
    #[default]
    Unknown,
    /// From one end to the other.
    Sequential,
    /// At constant distances.
    Strided,
    /// Anywhere.
    Random,
    /// Several of these.
    Mixed,
}

impl Class {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Unknown => "unknown",
            Class::Sequential => "sequential",
            Class::Strided => "strided",
            Class::Random => "random",
            Class::Mixed => "mixed",
        }
    }
}

/// The last reads of an open file, and what they say.
#[derive(Default, Debug)]
pub(crate) struct Pattern {
    streams: Streams,
    /// The last reads, newest in the lowest bit: those that continued a reader, those of them at a distance, and those
    /// of blocks that were read not long ago.
    steps: u32,
    strides: u32,
    again: u32,
    reads: u32,
    class: Class,
    /// Another class that the last reads show, and for how many.
    next: Class,
    steady: u32,
    /// Whether bytes are read again, by the last reads.
    rereads: bool,
    /// The share of reads that come again, of [`ALL`], and whether it is large enough to cache random reads.
    share_again: u32,
    is_worth_caching: bool,
    /// Whether all of the file fits into io-cache.
    fits: bool,
    /// Bytes that were read.
    bytes: u64,
    /// The page that fits the reads, and for how many reads a larger one would have done, with the smallest such one.
    page: u64,
    larger: u32,
    next_page: u64,
}

impl Pattern {
    /// Records a read.
    pub(crate) fn note_read(&mut self, read: Noted, blocks: &mut RecentBlocks) {
        let was_read = blocks.note(&read, self.bytes);
        self.fits = read.size <= read.cache;
        self.note(read.offset, read.len, was_read);
    }

    /// `was_read`: whether its first block was read not long ago.
    fn note(&mut self, offset: u64, len: u64, was_read: bool) {
        let stream = self.streams.note(offset, len);
        let (step, run) = (stream.step, stream.run);
        let continues = step != Step::None && run > 0;
        let is_stride = matches!(step, Step::Stride(_));
        let push = |bits: u32, bit: bool| bits << 1 | u32::from(bit);
        self.steps = push(self.steps, continues);
        self.strides = push(self.strides, continues && is_stride);
        self.again = push(self.again, was_read);
        self.fit_page(len);
        self.reads = self.reads.saturating_add(1);
        self.bytes = self.bytes.wrapping_add(len);
        self.share_again =
            self.share_again - self.share_again / AVERAGED + u32::from(was_read) * ALL / AVERAGED;
        let enough = if self.is_worth_caching { CACHED_BELOW } else { CACHED_FROM };
        self.is_worth_caching = self.share_again >= enough;
        self.judge();
    }

    /// Smaller at once, because a page that is too large reads what nobody wants. Larger only after many reads, because
    /// pages of another size are a new cache, while small ones cost little.
    fn fit_page(&mut self, len: u64) {
        let fits = 1 << len.clamp(PAGE_MIN, PAGE_MAX).ilog2();
        if self.page == 0 || fits <= self.page {
            (self.page, self.larger, self.next_page) = (fits, 0, PAGE_MAX);
            return;
        }
        (self.larger, self.next_page) = (self.larger + 1, self.next_page.min(fits));
        if self.larger >= GROW {
            (self.page, self.larger, self.next_page) = (self.next_page, 0, PAGE_MAX);
        }
    }

    fn judge(&mut self) {
        let seen = self.reads.min(RECENT);
        let most = |count: u32| count * RECENT >= MOST * seen;
        let (steps, strides) = (self.steps.count_ones(), self.strides.count_ones());
        // A few reads say enough if they all agree.
        let found = if seen < STEADY {
            Class::Unknown
        } else if most(strides) {
            Class::Strided
        } else if most(steps) {
            Class::Sequential
        } else if most(seen - steps) {
            Class::Random
        } else if seen < RECENT {
            Class::Unknown
        } else {
            Class::Mixed
        };
        self.steady = if found == self.next { self.steady.saturating_add(1) } else { 1 };
        self.next = found;
        if self.class == Class::Unknown || self.steady >= STEADY {
            self.class = found;
        }
        // Half of the reads to begin, an eighth to go on.
        let again = self.again.count_ones();
        self.rereads = if self.rereads { again * 8 >= seen } else { seen >= STEADY && again * 2 >= seen };
    }

    /// The kind of work now, and whether bytes are read again.
    pub(crate) fn class(&self) -> (Class, bool) {
        (self.class, self.rereads)
    }

    /// What is best for this work. The kernel caches and reads ahead itself if `in_kernel`.
    pub(crate) fn choice(&self, in_kernel: bool) -> Choice {
        let page = self.page.max(PAGE_MIN);
        let is_learning = self.fits && self.reads < LEARNING;
        let io_cache = match self.class {
            _ if in_kernel => false,
            Class::Sequential | Class::Strided => self.rereads,
            Class::Random | Class::Unknown | Class::Mixed => {
                self.rereads || (page < PAGE_MAX && (self.is_worth_caching || is_learning))
            }
        };
        let is_scan = self.class == Class::Sequential && !self.rereads;
        let disk_cache = if is_scan { DiskCaching::UnlessLarge } else { DiskCaching::On };
        Choice {
            io_cache,
            page,
            disk_cache,
            read_ahead: self.class != Class::Random && !in_kernel,
            window: WINDOW,
        }
    }
}

/// A read, as [`Pattern::note_read`] wants it.
pub(crate) struct Noted {
    pub(crate) file: u64,
    /// Bytes of the file, and of io-cache.
    pub(crate) size: u64,
    pub(crate) cache: u64,
    /// First byte and number of bytes of the read.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Blocks that were read not long ago, of all files of a mount: one place for each of many hashes. Another block of the
/// same hash takes the place. A place has 32 bits of the hash, and how many blocks of the file had been read before.
pub(crate) struct RecentBlocks(Box<[(u32, u32)]>);

/// Places. With blocks of 4 KiB they remember about 256 MiB.
const PLACES: usize = 1 << 16;

impl Default for RecentBlocks {
    fn default() -> RecentBlocks {
        RecentBlocks(vec![(0, 0); PLACES].into_boxed_slice())
    }
}

impl RecentBlocks {
    /// Records that the first block of a read is read; `bytes` of the file were read before. Returns whether it was read
    /// not long ago: no more of the file has been read since than io-cache keeps.
    fn note(&mut self, read: &Noted, bytes: u64) -> bool {
        let mixed = (read.file ^ (read.offset / BLOCK).wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let (place, print) = (mixed as usize % PLACES, (mixed >> 32) as u32 | 1);
        let now = (bytes / BLOCK) as u32;
        let (found, then) = std::mem::replace(&mut self.0[place], (print, now));
        // Less than it was: the file has been closed since, and nobody knows what was read of it.
        let since = now.checked_sub(then).map_or(0, |blocks| u64::from(blocks) * BLOCK);
        found == print && since <= read.cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class after each of these reads.
    fn classes(reads: impl IntoIterator<Item = (u64, u64)>) -> Vec<Class> {
        let mut pattern = Pattern::default();
        let note = |(offset, len)| {
            pattern.note(offset, len, false);
            pattern.class().0
        };
        reads.into_iter().map(note).collect()
    }

    fn random(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 40) / 4096 * 4096
    }

    #[test]
    fn work_is_classified_within_32_reads() {
        let at = |reads: Vec<(u64, u64)>| classes(reads)[31];
        assert_eq!(at((0..32).map(|n| (n * 65_536, 65_536)).collect()), Class::Sequential);
        assert_eq!(
            at((0..32).map(|n| (1 << 30, n)).map(|(top, n)| (top - n * 4096, 4096)).collect()),
            Class::Sequential
        );
        assert_eq!(at((0..32).map(|n| (n * 65_536, 4096)).collect()), Class::Strided);
        assert_eq!(at((0..32).map(|n| (random(n), 4096)).collect()), Class::Random);
        let sixteen = (0..32).map(|n| (((n % 16 * (n % 16)) << 32) | (n / 16 * 4096), 4096));
        assert_eq!(at(sixteen.collect()), Class::Mixed, "each of 16 readers has made two reads");
        let mixed = (0..32).map(|n| if n % 2 == 0 { (n * 2048, 4096) } else { (random(n), 4096) });
        assert_eq!(at(mixed.collect()), Class::Mixed);
    }

    #[test]
    fn a_flip_is_seen_and_a_single_read_is_none() {
        let forward = (0..64).map(|n| (n * 4096, 4096));
        let found =
            classes(forward.clone().chain([(1 << 39, 4096)]).chain((64..96).map(|n| (n * 4096, 4096))));
        assert!(
            found[31..].iter().all(|class| *class == Class::Sequential),
            "one other read changes nothing"
        );
        let found = classes(forward.chain((0..64).map(|n| (random(n), 4096))));
        assert_eq!(found[63], Class::Sequential);
        assert_eq!(found[63 + 48], Class::Random);
        let changes = found[63..].windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 2, "it goes through `mixed` at most once");
    }

    /// A read of a file of 1 GiB, with an io-cache of 64 MiB.
    fn read(offset: u64, len: u64) -> Noted {
        Noted { file: 1, size: 1 << 30, cache: 64 << 20, offset, len }
    }

    #[test]
    fn bytes_that_are_read_again_are_cached_if_the_cache_keeps_them_so_long() {
        for (reads, is_cached) in [(1000, true), (1100, false)] {
            let (mut pattern, mut blocks) = (Pattern::default(), RecentBlocks::default());
            for round in 0..3 {
                (0..reads).for_each(|n| pattern.note_read(read(n * 65_536, 65_536), &mut blocks));
                let choice = pattern.choice(false);
                let found = (choice.io_cache, choice.page, choice.read_ahead);
                assert_eq!(found, (is_cached && round > 0, 65_536, true));
                assert!(!pattern.choice(true).io_cache, "the kernel has them");
            }
        }
    }

    #[test]
    fn a_page_shrinks_at_once_and_grows_after_many_reads() {
        let mut pattern = Pattern::default();
        let mut page = |len: u64, reads: u32| {
            (0..reads).for_each(|n| pattern.note(random(u64::from(n)), len, true));
            pattern.choice(false).page
        };
        assert_eq!(page(64 << 10, 1), 64 << 10);
        assert_eq!(page(5000, 1), 4096);
        assert_eq!(page(64 << 10, GROW - 1), 4096);
        assert_eq!(page(4096, 1), 4096, "one small read begins the count anew");
        assert_eq!(page(64 << 10, GROW - 1), 4096);
        assert_eq!(page(32 << 10, 1), 32 << 10, "the smallest of the larger ones");
    }

    #[test]
    fn random_reads_are_cached_if_enough_of_them_come_again() {
        let blocks_of = |bytes: u64| bytes / 4096;
        // Of 32 MiB, of what the cache just keeps, and of many times that.
        for (span, is_cached) in [(32 << 20, true), (64 << 20, true), (1 << 30, false)] {
            let (mut pattern, mut blocks) = (Pattern::default(), RecentBlocks::default());
            let mut note = |n: u64| {
                pattern.note_read(read(random(n) / 4096 % blocks_of(span) * 4096, 4096), &mut blocks);
                pattern.choice(false).io_cache
            };
            let cached = (0..100_000).filter(|n| note(*n)).count();
            if is_cached {
                assert!(cached > 90_000, "{cached} of 100,000 within {span}");
            } else {
                assert!(cached < 1000, "{cached} of 100,000 within {span}");
            }
        }
    }

    #[test]
    fn a_small_file_is_cached_before_anything_comes_again() {
        let (mut pattern, mut blocks) = (Pattern::default(), RecentBlocks::default());
        let small = |n: u64| Noted { size: 60 << 20, ..read(n * 7919 % 15_000 * 4096, 4096) };
        for n in 0..u64::from(LEARNING) - 1 {
            pattern.note_read(small(n), &mut blocks);
            assert!(pattern.choice(false).io_cache);
        }
        pattern.note_read(small(1 << 20), &mut blocks);
        assert!(!pattern.choice(false).io_cache);
    }

    #[test]
    fn blocks_of_a_file_that_was_closed_count_as_read() {
        let mut blocks = RecentBlocks::default();
        assert!(!blocks.note(&read(0, 4096), 1 << 30));
        assert!(blocks.note(&read(0, 4096), 0));
        assert!(!blocks.note(&Noted { file: 2, ..read(0, 4096) }, 0));
    }
}
