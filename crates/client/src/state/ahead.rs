//! Bytes of a file that were fetched before anybody asked for them: which to fetch next, and which are here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::Buf;
use world::Notify;

use crate::state::streams::{Step, Streams};

/// Smallest and largest piece that is fetched at once, in bytes.
const CHUNK_MIN: u64 = 128 << 10;
const CHUNK_MAX: u64 = 1 << 20;
/// Number of reads that continued a reader before bytes are fetched ahead of it.
const RUN_MIN: u32 = 2;
/// Most pieces of a file at a time.
const CHUNKS_MAX: usize = 256;
/// How long bytes that nobody asks for are kept, in microseconds.
const UNUSED_US: u64 = 5_000_000;
/// What a reader that never waits can take, in bytes per microsecond: about what a copy in memory can.
const FASTEST: u64 = 8_000;

/// Room for bytes fetched ahead, shared by all files of a mount.
pub(crate) struct AheadRoom {
    used: AtomicU64,
    most: u64,
}

impl AheadRoom {
    pub(crate) fn new(most: u64) -> Arc<AheadRoom> {
        Arc::new(AheadRoom { used: AtomicU64::new(0), most })
    }

    /// Bytes that there are.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether less than an eighth is left.
    pub(crate) fn is_short(&self) -> bool {
        self.used() > self.most / 8 * 7
    }

    /// Takes `bytes`, until the result is dropped; `None` if there is not enough.
    fn take(self: &Arc<AheadRoom>, bytes: u64) -> Option<Taken> {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Taken { room: self.clone(), bytes })
    }
}

/// A part of the room.
struct Taken {
    room: Arc<AheadRoom>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A piece that was fetched, or is being fetched.
struct Chunk {
    end: u64,
    /// The contents of the file that it belongs to.
    generation: u64,
    /// `None` while it is being fetched.
    bytes: Option<Buf>,
    /// Bytes that readers have taken.
    taken: u64,
    /// When it was asked for.
    since: u64,
    /// Notified when the bytes are here, or never will be.
    ended: Notify,
    _room: Taken,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.ended.notify();
    }
}

/// What is here of a range.
pub(crate) enum Cover {
    /// All of it, in these parts.
    Here(Vec<Buf>),
    /// All of it is here or being fetched; notified when the fetch of the first missing part has ended.
    Coming(Notify),
    /// Some of it is neither.
    Missing,
}

/// The readers of a file, and what was fetched ahead of them.
#[derive(Default)]
pub(crate) struct Ahead {
    streams: Streams,
    /// By their start; they do not overlap.
    chunks: BTreeMap<u64, Chunk>,
    /// How long a fetch takes, in microseconds: a moving average.
    latency_us: u64,
    /// How long readers do other things between two reads, in microseconds: a moving average.
    pause_us: u64,
    /// When the last read ended.
    pub(crate) read_at: u64,
    /// The mount has the file in its list of those for which something was fetched.
    pub(crate) is_listed: bool,
}

/// A moving average over about eight values.
fn average(average: &mut u64, value: u64) {
    *average = if *average == 0 { value } else { (*average * 7 + value) / 8 };
}

impl Ahead {
    /// Records a read of a range, of a file of `size` bytes. Returns ranges to fetch, at most `window` bytes ahead.
    pub(crate) fn note(&mut self, range: &Range<u64>, size: u64, window: u64, now: u64) -> Vec<Range<u64>> {
        self.chunks.retain(|_, chunk| chunk.bytes.is_none() || now.saturating_sub(chunk.since) < UNUSED_US);
        if self.read_at > 0 {
            average(&mut self.pause_us, now.saturating_sub(self.read_at).min(1_000_000));
        }
        let len = range.end - range.start;
        let window = self.window(len).min(window);
        let stream = self.streams.note(range.start, len);
        if stream.run < RUN_MIN {
            return Vec::new();
        }
        // At least two, so that one is fetched while the other is read.
        let chunk = len.clamp(CHUNK_MIN, CHUNK_MAX).min((window / 2).max(len));
        let mut wanted = Vec::new();
        let room = CHUNKS_MAX.saturating_sub(self.chunks.len());
        match stream.step {
            Step::None => {}
            Step::Forward => {
                let mut at = stream.ahead.filter(|at| *at >= range.end).unwrap_or(range.end);
                while at < size && at - range.end + chunk <= window.max(chunk) && wanted.len() < room {
                    let end = (at + chunk).min(size);
                    wanted.push(at..end);
                    at = end;
                }
                stream.ahead = Some(at);
            }
            Step::Backward => {
                let mut at = stream.ahead.filter(|at| *at <= range.start).unwrap_or(range.start);
                while at > 0 && range.start - at + chunk <= window.max(chunk) && wanted.len() < room {
                    let start = at.saturating_sub(chunk);
                    wanted.push(start..at);
                    at = start;
                }
                stream.ahead = Some(at);
            }
            Step::Stride(stride) => {
                // The last place that was asked for, if the reader has not passed it.
                let is_before = |at: &u64| if stride > 0 { *at >= range.start } else { *at <= range.start };
                let mut at = stream.ahead.filter(is_before).unwrap_or(range.start);
                let mut steps = at.abs_diff(range.start) / stride.unsigned_abs();
                while (steps + 1) * len <= window.max(len) && wanted.len() < room {
                    let Some(next) = at.checked_add_signed(stride).filter(|next| *next < size) else { break };
                    wanted.push(next..(next + len).min(size));
                    at = next;
                    steps += 1;
                }
                stream.ahead = Some(at);
            }
        }
        wanted
    }

    /// How far to read ahead: what readers that never wait take in twice the time of a fetch.
    fn window(&self, len: u64) -> u64 {
        let pause = self.pause_us.max(len / FASTEST).max(1);
        (2 * self.latency_us * len / pause).max(2 * len).max(2 * CHUNK_MIN)
    }

    /// Records that a piece will be fetched. False if it overlaps another, or there is no room.
    pub(crate) fn begin(
        &mut self,
        range: &Range<u64>,
        generation: u64,
        room: &Arc<AheadRoom>,
        now: u64,
    ) -> bool {
        self.remove_old(generation);
        let before = self.chunks.range(..range.end).next_back();
        if before.is_some_and(|(_, chunk)| chunk.end > range.start) {
            return false;
        }
        let Some(taken) = room.take(range.end - range.start) else { return false };
        let chunk = Chunk {
            end: range.end,
            generation,
            bytes: None,
            taken: 0,
            since: now,
            ended: Notify::new(),
            _room: taken,
        };
        self.chunks.insert(range.start, chunk);
        true
    }

    /// Drops pieces of older contents.
    fn remove_old(&mut self, generation: u64) {
        if self.chunks.first_key_value().is_some_and(|(_, chunk)| chunk.generation != generation) {
            self.chunks.retain(|_, chunk| chunk.generation == generation);
        }
    }

    /// Whether a piece is still to be fetched.
    pub(crate) fn is_wanted(&self, range: &Range<u64>, generation: u64) -> bool {
        let chunk = self.chunks.get(&range.start);
        chunk.is_some_and(|c| c.end == range.end && c.generation == generation && c.bytes.is_none())
    }

    /// Records what a fetch brought: nothing if it failed, or if its bytes are no longer those of the file.
    pub(crate) fn end(&mut self, range: &Range<u64>, generation: u64, bytes: Option<Buf>, now: u64) {
        let Some(chunk) = self.chunks.get_mut(&range.start) else { return };
        if chunk.end != range.end || chunk.generation != generation || chunk.bytes.is_some() {
            return;
        }
        average(&mut self.latency_us, now.saturating_sub(chunk.since).max(1));
        match bytes.filter(|bytes| bytes.len() as u64 == range.end - range.start) {
            Some(bytes) => {
                (chunk.bytes, chunk.since) = (Some(bytes), now);
                chunk.ended.notify();
            }
            None => drop(self.chunks.remove(&range.start)),
        }
    }

    /// What is here of a range. Parts that are returned count as taken, and leave when nothing is left of them.
    pub(crate) fn take(&mut self, range: &Range<u64>, generation: u64) -> Cover {
        let cover = self.cover(range, generation);
        if matches!(cover, Cover::Here(_)) {
            let first =
                self.chunks.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
            let mut done = Vec::new();
            for (start, chunk) in self.chunks.range_mut(first..range.end) {
                chunk.taken += chunk.end.min(range.end) - range.start.max(*start);
                if chunk.taken >= chunk.end - start {
                    done.push(*start);
                }
            }
            done.iter().for_each(|start| drop(self.chunks.remove(start)));
        }
        cover
    }

    fn cover(&self, range: &Range<u64>, generation: u64) -> Cover {
        let first = self.chunks.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let (mut at, mut parts, mut coming) = (range.start, Vec::new(), None);
        for (start, chunk) in self.chunks.range(first..range.end) {
            if *start > at || chunk.end <= at || chunk.generation != generation {
                break;
            }
            let end = chunk.end.min(range.end);
            match &chunk.bytes {
                Some(bytes) => parts.push(bytes.slice((at - start) as usize..(end - start) as usize)),
                None => coming = coming.or(Some(&chunk.ended)),
            }
            at = end;
        }
        match coming {
            _ if at < range.end => Cover::Missing,
            Some(ended) => Cover::Coming(ended.clone()),
            None => Cover::Here(parts),
        }
    }

    /// Drops what overlaps a range.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if !self.chunks.is_empty() {
            self.chunks.retain(|start, chunk| chunk.end <= range.start || range.end <= *start);
        }
    }

    /// Drops everything that has been fetched.
    pub(crate) fn clear(&mut self) {
        self.chunks.retain(|_, chunk| chunk.bytes.is_none());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use types::BufMut;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn zeros(range: &Range<u64>) -> Buf {
        BufMut::zeroed((range.end - range.start) as usize).freeze()
    }

    /// Lets a reader read these ranges, with fetches that are done at once. Returns which were all there.
    fn read(
        ahead: &mut Ahead,
        room: &Arc<AheadRoom>,
        reads: impl IntoIterator<Item = Range<u64>>,
    ) -> Vec<bool> {
        let mut now = 1000;
        let one = |range: Range<u64>| {
            now += 100;
            ahead.read_at = now;
            for wanted in ahead.note(&range, 1 << 30, 8 * MIB, now + 50) {
                if ahead.begin(&wanted, 0, room, now) {
                    ahead.end(&wanted, 0, Some(zeros(&wanted)), now + 300);
                }
            }
            matches!(ahead.take(&range, 0), Cover::Here(_))
        };
        reads.into_iter().map(one).collect()
    }

    #[test]
    fn every_reader_with_a_pattern_finds_its_bytes() {
        let forward = |n: u64| n * 64 * KIB..(n + 1) * 64 * KIB;
        let backward = |n: u64| 512 * MIB - (n + 1) * 64 * KIB..512 * MIB - n * 64 * KIB;
        let strided = |n: u64| n * MIB..n * MIB + 4 * KIB;
        for reads in [
            (0..100).map(forward).collect::<Vec<_>>(),
            (0..100).map(backward).collect(),
            (0..100).map(strided).collect(),
        ] {
            let room = AheadRoom::new(32 * MIB);
            let mut ahead = Ahead::default();
            let here = read(&mut ahead, &room, reads);
            assert!(here[6..].iter().all(|here| *here), "{here:?}");
            assert!(room.used() <= 8 * MIB);
            drop(ahead);
            assert_eq!(room.used(), 0);
        }
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let room = AheadRoom::new(32 * MIB);
        let random = (0..100)
            .map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 28))
            .map(|at| at..at + 4 * KIB);
        read(&mut Ahead::default(), &room, random);
        assert_eq!(room.used(), 0);
    }

    #[test]
    fn a_write_and_other_contents_remove_what_was_fetched() {
        let room = AheadRoom::new(MIB);
        let mut ahead = Ahead::default();
        assert!(ahead.begin(&(0..100), 7, &room, 0));
        assert!(!ahead.begin(&(50..150), 7, &room, 0), "they do not overlap");
        let Cover::Coming(ended) = ahead.take(&(0..100), 7) else { panic!("it is being fetched") };
        let mut ended = pin!(ended.wait());
        let mut has_ended = || ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!has_ended() && ahead.is_wanted(&(0..100), 7));
        ahead.remove(&(99..101));
        assert!(has_ended(), "nobody waits for what will not come");
        assert!(!ahead.is_wanted(&(0..100), 7));
        ahead.end(&(0..100), 7, Some(zeros(&(0..100))), 1);
        let is_missing =
            |ahead: &mut Ahead, generation| matches!(ahead.take(&(0..100), generation), Cover::Missing);
        assert!(is_missing(&mut ahead, 7), "what comes after the write is not kept");
        assert!(ahead.begin(&(0..100), 7, &room, 0));
        ahead.end(&(0..100), 7, Some(zeros(&(0..100))), 1);
        assert!(is_missing(&mut ahead, 8));
        assert!(ahead.begin(&(0..100), 8, &room, 0), "old contents give way");
        ahead.end(&(0..100), 8, None, 1);
        assert!(is_missing(&mut ahead, 8) && room.used() == 0, "it failed");
        assert!(!ahead.begin(&(0..2 * MIB), 8, &room, 0), "there is no room");
    }
}
