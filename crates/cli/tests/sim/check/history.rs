//! Reads and writes of 4-KiB blocks by several clients could have happened one after the other: the checker looks for
//! such an order for each block.
//!
//! Every write of a block has a value of its own, so the check is fast. The write and the reads of a value form a
//! cluster; it spans from its earliest end to its latest start. Where that is a real stretch of time, the value was the
//! block's throughout (*forward*), and no other's may be so at the same moment; else some moment between the two will do
//! (*backward*), and one must be left outside of every forward stretch. Source: Gibbons and Korach, "Testing Shared
//! Memories", 1997.
//!
//! A cut writes zeros to every block beyond it, as far as reads can tell, and there is no telling which cut the zeros of a
//! read come from: of them it is asked only whether there is one, or the beginning, that fits. A cut takes part in a
//! value's history as a write does that nobody has read.
//!
//! A write whose end was never seen may have happened or not. Reads that go back in time, of one client or of two, are
//! such a contradiction as well, and so is a write that was undone or was repeated over a newer one.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a block.
const BLOCK: usize = 4096;
/// When nothing had happened yet: the zeros of every block are written before.
const BEFORE: u64 = 0;
/// Never, so far.
const NEVER: u64 = u64::MAX;

/// One write of several blocks.
#[derive(Clone, Debug)]
struct Write {
    start: u64,
    end: u64,
    blocks: BTreeSet<u64>,
}

/// One cut, which leaves the blocks before `from`.
#[derive(Clone, Debug)]
struct Cut {
    start: u64,
    end: u64,
    from: u64,
}

/// A stretch of time: first moment, last moment.
type Stretch = (u64, u64);

/// Everything that happened to one file.
#[derive(Default)]
pub(crate) struct History {
    clock: u64,
    writes: Vec<Write>,
    cuts: Vec<Cut>,
    /// Of each block, the reads of each value: start and end.
    reads: BTreeMap<u64, BTreeMap<u64, Vec<(u64, u64)>>>,
    pub(crate) reads_checked: u64,
}

impl History {
    /// A moment after every one before.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write of some blocks begins. Returns the value that each of them gets: not 0.
    pub(crate) fn write(&mut self, blocks: impl IntoIterator<Item = u64>) -> u64 {
        let start = self.tick();
        self.writes.push(Write { start, end: NEVER, blocks: blocks.into_iter().collect() });
        self.writes.len() as u64
    }

    /// It is done.
    pub(crate) fn written(&mut self, value: u64) {
        self.writes[value as usize - 1].end = self.tick();
    }

    /// A cut begins that leaves the blocks before `from`. Returns its number.
    pub(crate) fn cut(&mut self, from: u64) -> usize {
        let start = self.tick();
        self.cuts.push(Cut { start, end: NEVER, from });
        self.cuts.len() - 1
    }

    /// It is done.
    pub(crate) fn has_cut(&mut self, number: usize) {
        self.cuts[number].end = self.tick();
    }

    /// When a block was cut off.
    fn cuts_of(&self, block: u64) -> impl Iterator<Item = Stretch> + '_ {
        self.cuts.iter().filter(move |cut| cut.from <= block).map(|cut| (cut.start, cut.end))
    }

    /// A read that began at `start` found this in a block, and is done.
    pub(crate) fn read(&mut self, start: u64, block: u64, value: u64) -> Result<(), String> {
        let end = self.tick();
        let known =
            value == 0 || self.writes.get(value as usize - 1).is_some_and(|w| w.blocks.contains(&block));
        if !known {
            return Err(format!("block {block} holds {value:#x}, which nobody wrote there"));
        }
        self.reads.entry(block).or_default().entry(value).or_default().push((start, end));
        self.reads_checked += 1;
        self.check(block)
    }

    /// A read of `len` blocks that began at `start` found these bytes, and is done. What lies beyond them counts as zeros.
    pub(crate) fn read_blocks(
        &mut self,
        start: u64,
        first: u64,
        len: u64,
        found: &[u8],
    ) -> Result<(), String> {
        for (block, index) in (first..).zip(0..len as usize) {
            let from = (index * BLOCK).min(found.len());
            let value = value_of(&found[from..found.len().min(from + BLOCK)]);
            self.read(start, block, value.map_err(|why| format!("block {block}: {why}"))?)?;
        }
        Ok(())
    }

    fn interval(&self, value: u64) -> (u64, u64) {
        match value {
            0 => (BEFORE, BEFORE),
            value => (self.writes[value as usize - 1].start, self.writes[value as usize - 1].end),
        }
    }

    fn check(&self, block: u64) -> Result<(), String> {
        let none = BTreeMap::new();
        let reads = self.reads.get(&block).unwrap_or(&none);
        let written =
            (1..=self.writes.len() as u64).filter(|v| self.writes[*v as usize - 1].blocks.contains(&block));
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        // Once a block has been cut off its zeros have no one origin.
        let first = Some(0).filter(|_| self.cuts_of(block).next().is_none());
        for value in first.into_iter().chain(written) {
            let (start, end) = self.interval(value);
            let reads = reads.get(&value).map_or(&[][..], |reads| reads);
            if end == NEVER && reads.is_empty() {
                continue;
            }
            if let Some(early) = reads.iter().find(|read| read.1 < start) {
                return Err(format!("block {block}: {value} was read at {early:?}, before {start}"));
            }
            let first_end = reads.iter().map(|read| read.1).fold(end, u64::min);
            let last_start = reads.iter().map(|read| read.0).fold(start, u64::max);
            match first_end < last_start {
                true => forward.push((first_end, last_start, value)),
                false => backward.push((last_start, first_end, value)),
            }
        }
        forward.sort_unstable();
        for pair in forward.windows(2) {
            if pair[1].0 < pair[0].1 {
                return Err(format!("block {block}: {} and {} held at once: {pair:?}", pair[0].2, pair[1].2));
            }
        }
        for (from, to, value) in &backward {
            if let Some(other) = forward.iter().find(|other| other.0 < *from && *to < other.1) {
                return Err(format!("block {block}: {value} of {from}..{to} within {other:?}"));
            }
        }
        for (from, to) in self.cuts_of(block) {
            if let Some(other) = forward.iter().find(|other| other.0 < from && to < other.1) {
                return Err(format!("block {block}: cut off at {from}..{to} within {other:?}"));
            }
        }
        let forward: Vec<Stretch> = forward.iter().map(|(from, to, _)| (*from, *to)).collect();
        let backward: Vec<Stretch> = backward.iter().map(|(from, to, _)| (*from, *to)).collect();
        self.check_zeros(block, &forward, &backward)
    }

    /// Zeros that were read of a block that has been cut off come from some cut, or from the beginning.
    fn check_zeros(&self, block: u64, forward: &[Stretch], backward: &[Stretch]) -> Result<(), String> {
        let reads = self.reads.get(&block).and_then(|reads| reads.get(&0));
        if self.cuts_of(block).next().is_none() {
            return Ok(());
        }
        for read in reads.into_iter().flatten() {
            let fits = |zeros: Stretch| zeros_fit(zeros, *read, forward, backward);
            if !self.cuts_of(block).chain([(BEFORE, BEFORE)]).any(fits) {
                return Err(format!(
                    "block {block}: zeros at {read:?} undo a write: {forward:?} {backward:?}"
                ));
            }
        }
        Ok(())
    }

    /// At rest, with these values found: a write within one stripe shows in all of its blocks or in none, those left out
    /// that were written by somebody else since it began.
    pub(crate) fn all_or_nothing(
        &self,
        found: &BTreeMap<u64, u64>,
        stripe_blocks: u64,
    ) -> Result<u64, String> {
        let mut looked_at = 0;
        for (index, write) in self.writes.iter().enumerate() {
            let stripes: BTreeSet<u64> = write.blocks.iter().map(|block| block / stripe_blocks).collect();
            if stripes.len() > 1 {
                continue;
            }
            looked_at += 1;
            let value = index as u64 + 1;
            let holds = |block: &&u64| found.get(block) == Some(&value);
            let lacks = |block: &&u64| {
                let other = found.get(block).copied().unwrap_or(0);
                let cut_off = other == 0 && self.cuts_of(**block).any(|cut| cut.1 > write.start);
                other != value && self.interval(other).1 < write.start && !cut_off
            };
            let (shown, missing) = (write.blocks.iter().find(holds), write.blocks.iter().find(lacks));
            if let (Some(shown), Some(missing)) = (shown, missing) {
                return Err(format!(
                    "write {value} shows in block {shown}, not in block {missing}: {write:?}"
                ));
            }
        }
        Ok(looked_at)
    }
}

/// Whether zeros that were made at `zeros` may be those that were found at `read`.
fn zeros_fit(zeros: Stretch, read: Stretch, forward: &[Stretch], backward: &[Stretch]) -> bool {
    let (first_end, last_start) = (zeros.1.min(read.1), zeros.0.max(read.0));
    if read.1 < zeros.0 {
        false
    } else if first_end < last_start {
        !forward.iter().any(|other| other.0 < last_start && first_end < other.1)
            && !backward.iter().any(|other| first_end < other.0 && other.1 < last_start)
    } else {
        !forward.iter().any(|other| other.0 < last_start && first_end < other.1)
    }
}

/// Blocks with a value in every word.
pub(crate) fn filled(value: u64, blocks: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(blocks * BLOCK / 8)
}

/// The value of a block.
pub(crate) fn value_of(block: &[u8]) -> Result<u64, String> {
    let mut words = block.chunks(8).map(|word| {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    let first = words.next().unwrap_or(0);
    match words.find(|word| *word != first) {
        None => Ok(first),
        Some(other) => Err(format!("a block holds {first} and {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(history: &mut History, value: u64) -> Result<(), String> {
        let start = history.tick();
        history.read(start, 0, value)
    }

    #[test]
    fn what_was_acknowledged_must_be_seen() {
        let mut history = History::default();
        let value = history.write([0]);
        history.written(value);
        assert!(read(&mut history, value).is_ok());
        assert!(read(&mut history, 0).is_err(), "lost");
    }

    #[test]
    fn a_pending_write_may_be_seen_and_then_stays() {
        let mut history = History::default();
        let value = history.write([0]);
        assert!(read(&mut history, 0).is_ok());
        assert!(read(&mut history, value).is_ok());
        assert!(read(&mut history, 0).is_err(), "an abort after it was seen");
    }

    #[test]
    fn a_replay_over_a_newer_write_is_found() {
        let mut history = History::default();
        let first = history.write([0]);
        history.written(first);
        let second = history.write([0]);
        history.written(second);
        assert!(read(&mut history, second).is_ok());
        assert!(read(&mut history, first).is_err());
    }

    #[test]
    fn concurrent_writes_may_come_in_either_order() {
        for last in [1, 2] {
            let mut history = History::default();
            let (first, second) = (history.write([0]), history.write([0]));
            let early = history.tick();
            history.written(second);
            history.written(first);
            assert!(history.read(early, 0, 0).is_ok(), "a read that began before both had ended");
            assert!(read(&mut history, last).is_ok());
            assert!(read(&mut history, 3 - last).is_err(), "not both ways");
        }
    }

    #[test]
    fn a_value_that_nobody_wrote_is_found() {
        let mut history = History::default();
        let value = history.write([1]);
        assert!(read(&mut history, value).is_err(), "another block's");
        assert!(read(&mut history, 9).is_err());
        assert_eq!(value_of(&filled(77, 1)), Ok(77));
        assert!(value_of(&[filled(77, 1), filled(78, 1)].concat()).is_err());
    }

    #[test]
    fn what_was_written_after_a_cut_is_not_undone_by_it() {
        for cut_first in [true, false] {
            let mut history = History::default();
            if cut_first {
                let cut = history.cut(0);
                history.has_cut(cut);
            }
            let value = history.write([0]);
            let cut = Some(0).filter(|_| !cut_first).map(|from| history.cut(from));
            history.written(value);
            cut.into_iter().for_each(|cut| history.has_cut(cut));
            assert_eq!(
                read(&mut history, 0).is_ok(),
                !cut_first,
                "the zeros are the cut's, if it may be the last"
            );
        }
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut history = History::default();
        let value = history.write([0, 1]);
        history.written(value);
        assert!(read(&mut history, value).is_ok());
        let cut = history.cut(1);
        let early = history.tick();
        history.has_cut(cut);
        assert!(read(&mut history, value).is_ok(), "block 0 is before the cut");
        assert!(history.read(early, 1, 0).is_ok());
        assert!(history.read(early, 1, value).is_ok(), "it may have come before the cut");
        let start = history.tick();
        assert!(history.read(start, 1, value).is_err());
    }

    #[test]
    fn half_a_write_is_found() {
        let mut history = History::default();
        let old = history.write([0, 1]);
        history.written(old);
        let torn = history.write([0, 1]);
        let found = |a, b| BTreeMap::from([(0, a), (1, b)]);
        assert!(history.all_or_nothing(&found(old, old), 4).is_ok());
        assert!(history.all_or_nothing(&found(torn, torn), 4).is_ok());
        assert!(history.all_or_nothing(&found(torn, old), 4).is_err());
        assert!(history.all_or_nothing(&found(torn, old), 1).is_ok(), "two stripes are two operations");
        let newer = history.write([1]);
        assert!(history.all_or_nothing(&found(torn, newer), 4).is_ok(), "written over since");
    }
}
