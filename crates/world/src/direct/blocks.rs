//! Blocks of a direct disk in memory: those that were read, and those of small writes.
//!
//! A block is taken from here only if nobody has written it since it was read. So a read that a write of the same block overtakes
//! keeps nothing, and while a write is under way nothing of its blocks is here.
//!
//! Of large writes only the last block is kept: units are written once, and read, if ever, much later. Small ones are kept whole,
//! because folding reads what the journal has.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::{Buf, BufMut};

/// Bytes of memory for a block: itself, and what the cache needs to find it.
const BLOCK_BYTES: u64 = BLOCK as u64 + 256;
/// A write of at most so many bytes is kept.
const KEPT_WRITE_MAX: usize = 64 << 10;

/// Deterministic, so that simulated runs can be repeated.
type Hasher = BuildHasherDefault<DefaultHasher>;

type Order = Cache<u64, Buf, UnitWeighter, Hasher, DefaultLifecycle<u64, Buf>>;

pub(super) struct Blocks {
    /// By number. It resists scans: what was used once goes first.
    cache: RefCell<Order>,
    under_way: RefCell<UnderWay>,
    hit_bytes: Cell<u64>,
}

/// Reads and writes that have begun and not ended.
#[derive(Default)]
struct UnderWay {
    next: u64,
    /// The blocks of each read. It is taken out when any of them is written: the read keeps nothing.
    reads: BTreeMap<u64, Range<u64>>,
    /// The blocks of each write, and whether another one of some of them was under way meanwhile: nobody knows which came last.
    writes: BTreeMap<u64, (Range<u64>, bool)>,
}

impl UnderWay {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The bytes of `parts`, without the first `skipped`.
fn end_of(parts: &[Buf], skipped: usize) -> Buf {
    match parts {
        [all] => all.slice(skipped..all.len()),
        _ => joined(parts).slice(skipped..parts.iter().map(|part| part.len()).sum()),
    }
}

/// The bytes of `parts`, one after the other, in memory that is aligned to a block.
pub(crate) fn joined(parts: &[Buf]) -> Buf {
    let mut bytes = BufMut::dirty(parts.iter().map(|part| part.len()).sum());
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    bytes.freeze()
}

/// The blocks that bytes of a device lie in.
fn blocks_of(offset: u64, len: usize) -> Range<u64> {
    let block = BLOCK as u64;
    offset / block..(offset + len as u64).div_ceil(block)
}

impl Blocks {
    /// At most `bytes` bytes of memory.
    pub(super) fn new(bytes: u64) -> Blocks {
        let most = bytes / BLOCK_BYTES;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(most.max(1) as usize)
            .weight_capacity(most)
            .build()
            .expect("both capacities are given");
        let cache =
            Order::with_options(options, UnitWeighter, Hasher::default(), DefaultLifecycle::default());
        Blocks { cache: RefCell::new(cache), under_way: RefCell::default(), hit_bytes: Cell::new(0) }
    }

    /// Bytes that were taken from here.
    pub(super) fn hit_bytes(&self) -> u64 {
        self.hit_bytes.get()
    }

    /// Bytes that are here.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.borrow().len() as u64 * BLOCK as u64
    }

    /// Bytes that may be here.
    pub(super) fn most_bytes(&self) -> u64 {
        self.cache.borrow().capacity() * BLOCK as u64
    }

    /// Bytes of the device, if all their blocks are here.
    pub(super) fn get(&self, offset: u64, len: usize) -> Option<Buf> {
        let blocks = blocks_of(offset, len);
        let cache = self.cache.borrow();
        let before = (offset - blocks.start * BLOCK as u64) as usize;
        let found = if blocks.end - blocks.start == 1 {
            cache.get(&blocks.start)?.slice(before..before + len)
        } else {
            if len == 0 || !blocks.clone().all(|number| cache.peek(&number).is_some()) {
                return None;
            }
            let mut bytes = BufMut::dirty((blocks.end - blocks.start) as usize * BLOCK);
            for (number, at) in blocks.zip((0..).step_by(BLOCK)) {
                bytes[at..at + BLOCK].copy_from_slice(cache.get(&number)?);
            }
            types::cost::bytes(bytes.len());
            bytes.freeze().slice(before..before + len)
        };
        hit(CodeProbe::BlockInMemory);
        self.hit_bytes.set(self.hit_bytes.get() + len as u64);
        Some(found)
    }

    /// A read of the device begins.
    pub(super) fn begin_read(&self, offset: u64, len: usize) -> Reading<'_> {
        let blocks = blocks_of(offset, len);
        let mut under_way = self.under_way.borrow_mut();
        let number = under_way.number();
        if !under_way.writes.values().any(|(write, _)| overlap(write, &blocks)) {
            under_way.reads.insert(number, blocks);
        }
        Reading { blocks: self, offset, number }
    }

    /// A write of the device begins.
    pub(super) fn begin_write(&self, offset: u64, len: usize) -> Writing<'_> {
        let range = blocks_of(offset, len);
        let mut cache = self.cache.borrow_mut();
        range.clone().for_each(|number| drop(cache.remove(&number)));
        let mut under_way = self.under_way.borrow_mut();
        // These reads have become stale.
        under_way.reads.retain(|_, read| !overlap(read, &range));
        let number = under_way.number();
        let others = under_way.writes.values_mut().filter(|(other, _)| overlap(other, &range));
        let is_disturbed = others.map(|(_, disturbed)| *disturbed = true).count() > 0;
        under_way.writes.insert(number, (range, is_disturbed));
        Writing { blocks: self, offset, number }
    }

    /// Keeps the whole blocks of `bytes`, which begin at `offset`.
    fn insert(&self, offset: u64, bytes: &Buf) {
        let skipped = (offset.next_multiple_of(BLOCK as u64) - offset) as usize;
        let mut cache = self.cache.borrow_mut();
        if cache.capacity() == 0 || skipped > bytes.len() {
            return;
        }
        let first = (offset + skipped as u64) / BLOCK as u64;
        if (skipped, bytes.len()) == (0, BLOCK) {
            cache.insert(first, bytes.clone());
            return;
        }
        for (number, block) in (first..).zip(bytes[skipped..].chunks_exact(BLOCK)) {
            // A copy: a part of a larger buffer would keep all of that.
            cache.insert(number, Buf::copy_of(block));
        }
    }
}

/// A read under way.
pub(super) struct Reading<'a> {
    blocks: &'a Blocks,
    offset: u64,
    number: u64,
}

impl Reading<'_> {
    /// It has succeeded. Its bytes are kept, unless they were written meanwhile.
    pub(super) fn keep(self, bytes: &Buf) {
        if self.blocks.under_way.borrow().reads.contains_key(&self.number) {
            self.blocks.insert(self.offset, bytes);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.blocks.under_way.borrow_mut().reads.remove(&self.number);
    }
}

/// A write under way.
pub(super) struct Writing<'a> {
    blocks: &'a Blocks,
    offset: u64,
    number: u64,
}

impl Writing<'_> {
    /// It has succeeded.
    pub(super) fn keep(self, parts: &[Buf]) {
        let (blocks, offset) = (self.blocks, self.offset);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let keeps = !self.is_disturbed();
        drop(self);
        if keeps && len.is_multiple_of(BLOCK) {
            // Of a large write the last block: the next one may begin in it.
            let skipped = if len <= KEPT_WRITE_MAX { 0 } else { len - BLOCK };
            blocks.insert(offset + skipped as u64, &end_of(parts, skipped));
        }
    }

    fn is_disturbed(&self) -> bool {
        self.blocks.under_way.borrow().writes.get(&self.number).is_none_or(|(_, disturbed)| *disturbed)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Nothing of its blocks has come into the cache meanwhile: reads that began before are spoiled, later ones keep nothing.
        self.blocks.under_way.borrow_mut().writes.remove(&self.number);
    }
}
