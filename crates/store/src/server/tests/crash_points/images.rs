//! What a disk may hold after a crash, from a recording of what it was asked to do.

use types::Buf;
use world::sim::{DiskEvent, DiskImage};

/// What a device writes whole, and what a page cache does.
const TORN_AT: [usize; 2] = [512, 4096];
/// So many writes between two syncs have every subset tried.
const ALL_SUBSETS_MAX: usize = 6;
/// Subsets tried of more.
const SAMPLED: usize = 40;

/// A write that no sync has covered.
type Write<'a> = (u64, &'a Buf);

/// A crash: what it has left, and when it was.
pub(super) struct Crash<'a> {
    /// What is durable.
    pub(super) image: DiskImage,
    /// What is in the page cache only, if not the power failed but the process ended.
    pub(super) cached: Vec<Write<'a>>,
    /// Requests before it.
    pub(super) at: usize,
    how: String,
}

impl std::fmt::Display for Crash<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {} requests, {}", self.at, self.how)
    }
}

/// Tells `each` every crash between the requests that a disk was asked for.
pub(super) fn crash_images(start: &DiskImage, events: &[DiskEvent], mut each: impl FnMut(Crash<'_>)) {
    let mut durable = start.clone();
    let mut unsynced: Vec<Write<'_>> = Vec::new();
    let mut settled = 0;
    for (at, event) in events.iter().enumerate() {
        match event {
            DiskEvent::Write { offset, bytes } => unsynced.push((*offset, bytes)),
            DiskEvent::Sync { upto } => {
                interval(&durable, &unsynced, at, &mut each);
                // One that began before the last one may end after it: it has nothing to add.
                for (offset, bytes) in unsynced.drain(..upto.saturating_sub(settled)) {
                    durable.write(offset, bytes);
                }
                settled = settled.max(*upto);
            }
        }
    }
    interval(&durable, &unsynced, events.len(), &mut each);
}

/// What may be left of the writes between two syncs.
fn interval(durable: &DiskImage, writes: &[Write<'_>], at: usize, each: &mut impl FnMut(Crash<'_>)) {
    let mut tell = |image, how| each(Crash { image, cached: Vec::new(), at, how });
    for kept in subsets(writes.len()) {
        tell(image_of(durable, writes, &kept), format!("kept {kept:?}"));
    }
    for (index, (offset, bytes)) in writes.iter().enumerate() {
        for others in [false, true] {
            let kept: Vec<bool> = (0..writes.len()).map(|i| i < index || (others && i > index)).collect();
            let around = image_of(durable, writes, &kept);
            for (from, to) in torn(bytes.len()) {
                let mut image = around.clone();
                image.write(offset + from as u64, &bytes.slice(from..to));
                tell(image, format!("kept {kept:?}, of {index} bytes {from}..{to}"));
            }
        }
    }
    let how = "killed".to_owned();
    each(Crash { image: durable.clone(), cached: writes.to_vec(), at, how });
}

fn image_of(durable: &DiskImage, writes: &[Write<'_>], kept: &[bool]) -> DiskImage {
    let mut image = durable.clone();
    for ((offset, bytes), _) in writes.iter().zip(kept).filter(|(_, kept)| **kept) {
        image.write(*offset, bytes);
    }
    image
}

/// Which writes are kept: every way for a few; else every prefix, all but one, one alone, and some drawn ways.
fn subsets(count: usize) -> Vec<Vec<bool>> {
    if count <= ALL_SUBSETS_MAX {
        return (0..1u32 << count).map(|mask| (0..count).map(|i| mask >> i & 1 == 1).collect()).collect();
    }
    let prefixes = (0..=count).map(|end| (0..count).map(|i| i < end).collect());
    let but_one = (0..count).map(|one| (0..count).map(|i| i != one).collect());
    let one = (0..count).map(|one| (0..count).map(|i| i == one).collect());
    let mut state = count as u64;
    let drawn = (0..SAMPLED).map(|_| {
        let mut coin = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 1
        };
        (0..count).map(|_| coin()).collect()
    });
    prefixes.chain(but_one).chain(one).chain(drawn).collect()
}

/// Parts of a write that may have reached the disk alone: its start, its end, and without its first sector or page.
fn torn(len: usize) -> Vec<(usize, usize)> {
    let at = TORN_AT.iter().filter(|at| **at < len);
    let mut parts: Vec<(usize, usize)> = at
        .flat_map(|at| {
            let last = (len - 1) / at * at;
            [(0, *at), (0, last), (*at, len), (last, len)]
        })
        .collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}
