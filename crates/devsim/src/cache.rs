//! The page cache: bytes that programs have written and the device has not.

use std::collections::{BTreeMap, VecDeque};

use crate::time::{MS, Time};

/// Write-back begins with so many dirty bytes, and ends with three quarters of them.
const BACKGROUND: u64 = 64 << 20;
/// Programs that write wait while so many bytes are dirty or on their way.
const LIMIT: u64 = 128 << 20;
/// Bytes that are older are written in any case.
const AGE: Time = 5_000 * MS;
/// Bytes of one file that are written before other files have their turn.
const TURN: u64 = 4 << 20;

/// Bytes of a file, by their place on the device.
pub(crate) type Range = (u64, u64);

#[derive(Default, Debug)]
struct Dirty {
    since: Time,
    ranges: VecDeque<Range>,
}

#[derive(Default, Debug)]
pub(crate) struct Cache {
    files: BTreeMap<u64, Dirty>,
    /// The files in the order in which they became dirty. Those that no longer are have not been taken out.
    order: VecDeque<u64>,
    dirty: u64,
    /// Bytes of write-back on their way.
    leaving: u64,
    is_writing: bool,
}

impl Cache {
    /// A program has written `length` bytes of a file at `offset` of the device.
    pub(crate) fn write(&mut self, now: Time, file: u64, offset: u64, length: u64) {
        let order = &mut self.order;
        let dirty = self.files.entry(file).or_insert_with(|| {
            order.push_back(file);
            Dirty { since: now, ranges: VecDeque::new() }
        });
        match dirty.ranges.back_mut() {
            Some(last) if last.0 + last.1 == offset => last.1 += length,
            // Written once more before it was written back.
            Some(last) if last.0 <= offset && offset + length <= last.0 + last.1 => return,
            _ => dirty.ranges.push_back((offset, length)),
        }
        self.dirty += length;
    }

    /// Whether a program that writes has to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.dirty + self.leaving >= LIMIT
    }

    /// Forgets what was written to a file: it was removed.
    pub(crate) fn forget(&mut self, file: u64) {
        self.take(file);
    }

    /// All that is dirty of a file: somebody writes it now.
    pub(crate) fn take(&mut self, file: u64) -> Vec<Range> {
        let ranges = self.files.remove(&file).map(|dirty| Vec::from(dirty.ranges)).unwrap_or_default();
        self.dirty -= ranges.iter().map(|range| range.1).sum::<u64>();
        ranges
    }

    /// What write-back writes next, if it has to.
    pub(crate) fn next(&mut self, now: Time) -> Option<Vec<Range>> {
        self.is_writing =
            if self.is_writing { self.dirty > BACKGROUND / 4 * 3 } else { self.dirty > BACKGROUND };
        while let Some(file) = self.order.front().copied() {
            let Some(dirty) = self.files.get_mut(&file) else {
                self.order.pop_front();
                continue;
            };
            if !self.is_writing && now < dirty.since + AGE {
                return None;
            }
            let (mut taken, mut bytes) = (Vec::new(), 0);
            while bytes < TURN
                && let Some((offset, length)) = dirty.ranges.pop_front()
            {
                let part = length.min(TURN - bytes);
                taken.push((offset, part));
                bytes += part;
                if part < length {
                    dirty.ranges.push_front((offset + part, length - part));
                    break;
                }
            }
            self.order.pop_front();
            if dirty.ranges.is_empty() {
                self.files.remove(&file);
            } else {
                self.order.push_back(file);
            }
            self.dirty -= bytes;
            self.leaving += bytes;
            return Some(taken);
        }
        None
    }

    /// So many bytes of write-back are on the device.
    pub(crate) fn left(&mut self, bytes: u64) {
        self.leaving -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_back_takes_files_in_turns_and_stops() {
        let mut cache = Cache::default();
        cache.write(0, 1, 0, 60 << 20);
        cache.write(0, 2, 1 << 30, 10 << 20);
        cache.write(0, 2, (1 << 30) + (1 << 20), 1 << 20);
        assert_eq!(cache.next(0), Some(vec![(0, 4 << 20)]));
        assert_eq!(cache.next(0), Some(vec![(1 << 30, 4 << 20)]));
        let mut left = 8 << 20;
        while let Some(ranges) = cache.next(0) {
            left += ranges.iter().map(|range| range.1).sum::<u64>();
        }
        assert_eq!(left, 22 << 20, "down to three quarters of 64 MiB");
        assert_eq!(cache.next(AGE).map(|ranges| ranges.len()), Some(1), "what is old goes all the same");
    }

    #[test]
    fn programs_wait_for_what_is_on_its_way_and_removed_files_are_not_written() {
        let mut cache = Cache::default();
        cache.write(0, 1, 0, LIMIT);
        assert!(cache.is_full());
        let bytes = cache.next(0).map_or(0, |ranges| ranges.iter().map(|range| range.1).sum());
        assert!(cache.is_full());
        cache.left(bytes);
        assert!(!cache.is_full());
        cache.forget(1);
        assert_eq!(cache.next(AGE), None);
        cache.write(0, 3, 4096, 4096);
        assert_eq!((cache.take(3), cache.take(3)), (vec![(4096, 4096)], vec![]));
    }
}
