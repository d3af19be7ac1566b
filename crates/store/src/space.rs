//! Which data blocks are free: one bit per 4-KiB block, rebuilt at start from the references to blocks.
//!
//! # Invariants
//! - A block has one owner: it is allocated only while free, and released once.
//! - The counts of free blocks, in total and per region, match the bits.
//! - An allocation takes exactly the requested number of blocks, in at most [`RUNS_MAX`] runs, or none.

use std::ops::Range;

use types::records;

records! {
    /// Consecutive data blocks.
    fixed part Run {
        /// First block, counted from the start of the data zone.
        start: u64,
        /// Number of blocks.
        blocks: u32,
    }
}

/// Most runs of one unit: its descriptor has room for so many.
pub(crate) const RUNS_MAX: usize = 16;

/// Blocks of a region: 64 MiB.
const REGION: u64 = 16_384;

/// Regions that are tried before the whole zone is searched.
const REGIONS_TRIED: usize = 8;

/// The allocator. Pure: before a caller frees blocks, nothing durable may refer to them any more.
///
/// It fills one region after the other, so that streams lie in order. The next region is the first one of which a
/// quarter is free, so space is reused before untouched space is taken. This keeps a brick's file small on thin
/// storage, and keeps its blocks in the page cache.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct Space {
    /// A set bit is a used block.
    used: Vec<u64>,
    blocks: u64,
    free: u64,
    /// Free blocks of each region.
    free_in: Vec<u32>,
    /// Where the next search starts: after the last allocation.
    next: u64,
}

impl Space {
    pub(crate) fn new(blocks: u64) -> Space {
        let free_in =
            (0..blocks).step_by(REGION as usize).map(|start| REGION.min(blocks - start) as u32).collect();
        Space { used: vec![0; blocks.div_ceil(64) as usize], blocks, free: blocks, free_in, next: 0 }
    }

    /// Free blocks.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Takes `count` blocks in one run, or in a few where no run is long enough. `None` takes nothing.
    pub(crate) fn allocate(&mut self, count: u32) -> Option<Vec<Run>> {
        if u64::from(count) > self.free {
            return None;
        }
        if count == 0 {
            return Some(Vec::new());
        }
        let runs = match self.find_near(count).or_else(|| self.find(count, 1)) {
            Some(runs) => runs,
            None => self.find(count, RUNS_MAX)?,
        };
        assert!(runs.len() <= RUNS_MAX, "a descriptor has no room for more runs: their blocks would be lost");
        let before = self.free;
        runs.iter().for_each(|run| self.mark(run));
        assert_eq!(
            before - self.free,
            u64::from(count),
            "a unit with too few blocks would end in those of another one"
        );
        if let Some(last) = runs.last() {
            self.next = last.start + u64::from(last.blocks);
        }
        Some(runs)
    }

    /// Searches the rest of the region of the last allocation, then the first regions with much free space, for one run.
    fn find_near(&self, count: u32) -> Option<Vec<Run>> {
        let begun = self.next < self.blocks && !self.next.is_multiple_of(REGION);
        let current = begun.then(|| self.next..self.end_of_region(self.next / REGION));
        let roomy = self.free_in.iter().enumerate().filter(|&(_, &free)| u64::from(free) >= REGION / 4);
        let regions = roomy.take(REGIONS_TRIED).map(|(region, _)| {
            let region = region as u64;
            region * REGION..self.end_of_region(region)
        });
        current.into_iter().chain(regions).find_map(|range| self.find_in(range, count)).map(|run| vec![run])
    }

    fn end_of_region(&self, region: u64) -> u64 {
        ((region + 1) * REGION).min(self.blocks)
    }

    /// The first run of `count` free blocks in `range`.
    fn find_in(&self, range: Range<u64>, count: u32) -> Option<Run> {
        let mut at = range.start;
        while let Some(run) = self.free_run(at, range.end, count) {
            if run.blocks == count {
                return Some(run);
            }
            at = run.start + u64::from(run.blocks);
        }
        None
    }

    /// Searches the whole zone once for `count` free blocks in at most `runs_max` runs, longest run first.
    fn find(&self, count: u32, runs_max: usize) -> Option<Vec<Run>> {
        let mut best: Vec<Run> = Vec::new();
        let start = if self.next >= self.blocks { 0 } else { self.next };
        for (from, to) in [(start, self.blocks), (0, start)] {
            let mut at = from;
            while let Some(run) = self.next_run(at, to, count) {
                at = run.start + u64::from(run.blocks);
                if run.blocks == count {
                    return Some(vec![run]);
                }
                if runs_max > 1 {
                    best.push(run);
                    best.sort_by_key(|r| std::cmp::Reverse(r.blocks));
                    best.truncate(runs_max);
                }
            }
        }
        let mut left = count;
        best.retain_mut(|run| {
            run.blocks = run.blocks.min(left);
            left -= run.blocks;
            run.blocks > 0
        });
        (left == 0).then_some(best)
    }

    /// The same as [`Space::free_run`], for long ranges: regions without free blocks are skipped.
    fn next_run(&self, from: u64, to: u64, count: u32) -> Option<Run> {
        let mut at = from;
        while at < to {
            let end = self.end_of_region(at / REGION).min(to);
            let is_full = self.free_in[(at / REGION) as usize] == 0;
            if let Some(run) = (!is_full).then(|| self.free_run(at, end, count)).flatten() {
                // The run may extend beyond the end of the region.
                return self.free_run(run.start, to, count);
            }
            at = end;
        }
        None
    }

    /// The first free run in `from..to`, cut at `count` blocks.
    fn free_run(&self, from: u64, to: u64, count: u32) -> Option<Run> {
        let mut at = from;
        while at < to {
            let word = self.used[(at / 64) as usize] >> (at % 64);
            if word & 1 == 0 {
                break;
            }
            at += u64::from((!word).trailing_zeros().min(64 - (at % 64) as u32).max(1));
        }
        if at >= to {
            return None;
        }
        let end = to.min(at + u64::from(count));
        let mut stop = at;
        while stop < end {
            let word = self.used[(stop / 64) as usize] >> (stop % 64);
            let free = u64::from(word.trailing_zeros()).min(64 - stop % 64);
            stop += free;
            if !stop.is_multiple_of(64) || free == 0 {
                break;
            }
        }
        let blocks = (stop.min(end) - at) as u32;
        assert!(blocks > 0, "a search that finds empty runs would never end");
        Some(Run { start: at, blocks })
    }

    /// Marks a run as used.
    ///
    /// # Panics
    /// If a block of it is in use already: two owners of a block would destroy each other's bytes.
    pub(crate) fn mark(&mut self, run: &Run) {
        for block in run.start..run.start + u64::from(run.blocks) {
            assert!(block < self.blocks, "a run lies within the data zone");
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            assert!(self.used[word] & bit == 0, "a block has one owner");
            self.used[word] |= bit;
            let left = &mut self.free_in[(block / REGION) as usize];
            assert!(*left > 0, "the count of free blocks would wrap around");
            *left -= 1;
        }
        self.free -= u64::from(run.blocks);
    }

    /// Releases a run.
    ///
    /// # Panics
    /// If a block of it is free already.
    pub(crate) fn release(&mut self, run: &Run) {
        let end = run.start + u64::from(run.blocks);
        assert!(end <= self.blocks, "blocks beyond the data zone would be given out");
        for block in run.start..end {
            let (word, bit) = ((block / 64) as usize, 1 << (block % 64));
            assert!(self.used[word] & bit != 0, "a block is released once");
            self.used[word] &= !bit;
            self.free_in[(block / REGION) as usize] += 1;
        }
        self.free += u64::from(run.blocks);
        assert!(self.free <= self.blocks, "writes would be accepted for which there is no space");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_twice_and_never_lost(steps in proptest::collection::vec((any::<bool>(), 1u32..70, any::<usize>()), 1..200), blocks in 1u64..500) {
            let mut space = Space::new(blocks);
            let mut owned: Vec<Vec<Run>> = Vec::new();
            for (take, count, which) in steps {
                if take {
                    let free = space.free();
                    if let Some(runs) = space.allocate(count) {
                        prop_assert_eq!(runs.iter().map(|r| r.blocks).sum::<u32>(), count);
                        prop_assert!(runs.len() <= RUNS_MAX);
                        owned.push(runs);
                    } else {
                        prop_assert_eq!(space.free(), free);
                    }
                } else if !owned.is_empty() {
                    owned.swap_remove(which % owned.len()).iter().for_each(|run| space.release(run));
                }
                let mut all = std::collections::BTreeSet::new();
                for run in owned.iter().flatten() {
                    for block in run.start..run.start + u64::from(run.blocks) {
                        prop_assert!(block < blocks && all.insert(block));
                    }
                }
                prop_assert_eq!(space.free(), blocks - all.len() as u64);
            }
        }
    }

    #[test]
    fn one_run_where_one_fits() {
        let mut space = Space::new(256);
        let first = space.allocate(32).expect("space");
        assert_eq!(first, vec![Run { start: 0, blocks: 32 }]);
        assert_eq!(space.allocate(100).expect("space"), vec![Run { start: 32, blocks: 100 }]);
        assert!(space.allocate(200).is_none());
        assert_eq!(space.free(), 124);
    }

    #[test]
    fn space_that_was_used_comes_before_untouched_space() {
        let mut space = Space::new(10 * REGION);
        for _ in 0..20 {
            let stream: Vec<Run> =
                (0..REGION / 32).flat_map(|_| space.allocate(32).expect("space")).collect();
            assert!(stream.iter().all(|run| run.start < 3 * REGION), "what was given back is used again");
            stream.iter().for_each(|run| space.release(run));
        }
    }

    #[test]
    fn a_region_of_small_holes_is_passed_over() {
        let mut space = Space::new(4 * REGION);
        let singles: Vec<Run> = (0..REGION).flat_map(|_| space.allocate(1).expect("space")).collect();
        singles.iter().step_by(2).for_each(|run| space.release(run));
        let run = space.allocate(32).expect("space");
        assert_eq!(run, vec![Run { start: REGION, blocks: 32 }]);
    }
}
