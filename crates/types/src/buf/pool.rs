//! Memory for payloads: slabs of pages of one size. Free slabs are reused, and given back to the system beyond a
//! bound.
//!
//! The system's allocator would keep the peak of large allocations for each thread, and take twice the space for
//! small aligned ones.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::BLOCK;

/// Bytes of a slab, unless one allocation is larger. Slabs of this size go back to the system as soon as they are
/// freed.
const SLAB: usize = 256 << 10;
/// Sizes are powers of two from [`BLOCK`] on.
const CLASSES: usize = 36;
/// Default of [`set_pool_limit`], in bytes.
const KEPT_MAX: usize = 96 << 20;

static POOL: Mutex<Pool> =
    Mutex::new(Pool { classes: [const { Class::new() }; CLASSES], bytes: 0, kept_max: KEPT_MAX });

/// Sets the bytes of slabs, used and free, up to which the process keeps free slabs: a new slab costs one page fault
/// per page. Used slabs may exceed this limit; then every free slab goes back to the system.
pub fn set_pool_limit(bytes: usize) {
    let mut pool = lock();
    pool.kept_max = bytes;
    let spare = pool.shrink(0);
    drop(pool);
    drop(spare);
}

/// Bytes that the process holds for payloads, used or not.
pub fn pool_bytes() -> usize {
    lock().bytes
}

fn lock() -> MutexGuard<'static, Pool> {
    // Nothing here panics halfway.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Consecutive pages with one owner, aligned to [`BLOCK`] and initialised. They go back to the pool when dropped.
pub(super) struct Pages {
    pub(super) start: NonNull<u8>,
    pub(super) capacity: usize,
    /// Index of the slab in its class.
    slab: usize,
}

// SAFETY: `Pages` owns its memory alone; access goes through `Buf` (shared, read only) and `BufMut` (unique).
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference only ever reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` bytes with arbitrary contents.
    pub(super) fn take(len: usize) -> Pages {
        let capacity = len.max(BLOCK).next_power_of_two();
        let class = class_of(capacity);
        let mut pool = lock();
        if let Some(pages) = pool.take(class) {
            return pages;
        }
        let spare = pool.shrink(SLAB.max(capacity));
        drop(pool);
        drop(spare);
        let memory = Memory::new(SLAB.max(capacity));
        lock().add(class, memory)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let spare = lock().give(self);
        // Memory is freed outside the lock.
        drop(spare);
    }
}

/// Memory of a slab.
struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the memory that its address and length describe.
unsafe impl Send for Memory {}

impl Memory {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, BLOCK).expect("a payload's size is far below isize::MAX")
    }

    fn new(len: usize) -> Memory {
        let layout = Memory::layout(len);
        // SAFETY: the layout's size is at least one slab, never zero. From here on every byte is initialised.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Memory { start, len }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; a slab's memory is dropped only when all its pages are back.
        unsafe { dealloc(self.start.as_ptr(), Memory::layout(self.len)) };
    }
}

struct Slab {
    memory: Memory,
    /// One bit per free place.
    free: u64,
}

/// Slabs with places of one size.
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Indices of `slabs` without a slab.
    vacant: Vec<usize>,
    /// Slabs with both free and used places. The first is filled first, so that the others become empty.
    partial: BTreeSet<usize>,
    /// Slabs without a used place.
    idle: BTreeSet<usize>,
}

impl Class {
    const fn new() -> Class {
        Class { slabs: Vec::new(), vacant: Vec::new(), partial: BTreeSet::new(), idle: BTreeSet::new() }
    }
}

struct Pool {
    classes: [Class; CLASSES],
    /// Bytes of all slabs.
    bytes: usize,
    kept_max: usize,
}

fn class_of(capacity: usize) -> usize {
    (capacity / BLOCK).trailing_zeros() as usize
}

/// Every place of a slab.
fn all_free(capacity: usize) -> u64 {
    u64::MAX >> (u64::BITS as usize - (SLAB / capacity).max(1))
}

impl Pool {
    fn take(&mut self, at: usize) -> Option<Pages> {
        let capacity = BLOCK << at;
        let class = &mut self.classes[at];
        let number = match class.partial.first() {
            Some(number) => *number,
            None => class.idle.pop_first()?,
        };
        let slab = class.slabs.get_mut(number)?.as_mut()?;
        let place = slab.free.trailing_zeros() as usize;
        slab.free &= slab.free - 1;
        match slab.free {
            0 => class.partial.remove(&number),
            _ => class.partial.insert(number),
        };
        // SAFETY: the place lies in the slab.
        let start = unsafe { slab.memory.start.add(place * capacity) };
        Some(Pages { start, capacity, slab: number })
    }

    /// Adds a new slab and takes its first place.
    fn add(&mut self, at: usize, memory: Memory) -> Pages {
        let capacity = BLOCK << at;
        self.bytes += memory.len;
        let start = memory.start;
        let class = &mut self.classes[at];
        let free = all_free(capacity) & !1;
        let slab = Some(Slab { memory, free });
        let number = match class.vacant.pop() {
            Some(number) => {
                class.slabs[number] = slab;
                number
            }
            None => {
                class.slabs.push(slab);
                class.slabs.len() - 1
            }
        };
        if free != 0 {
            class.partial.insert(number);
        }
        Pages { start, capacity, slab: number }
    }

    /// Takes pages back. Returns the slab's memory if it is to be freed.
    fn give(&mut self, pages: &Pages) -> Option<Memory> {
        let at = class_of(pages.capacity);
        let class = &mut self.classes[at];
        let slab = class.slabs.get_mut(pages.slab)?.as_mut()?;
        let place = (pages.start.as_ptr() as usize - slab.memory.start.as_ptr() as usize) / pages.capacity;
        slab.free |= 1 << place;
        if slab.free != all_free(pages.capacity) {
            class.partial.insert(pages.slab);
            return None;
        }
        class.partial.remove(&pages.slab);
        class.idle.insert(pages.slab);
        if self.bytes > self.kept_max { self.drop_idle(at) } else { None }
    }

    /// Removes idle slabs, the largest first, until `more` bytes fit below the bound.
    fn shrink(&mut self, more: usize) -> Vec<Memory> {
        let mut spare = Vec::new();
        for at in (0..CLASSES).rev() {
            while self.bytes + more > self.kept_max {
                let Some(memory) = self.drop_idle(at) else { break };
                spare.push(memory);
            }
        }
        spare
    }

    fn drop_idle(&mut self, at: usize) -> Option<Memory> {
        let class = &mut self.classes[at];
        let number = class.idle.pop_last()?;
        let slab = class.slabs.get_mut(number)?.take()?;
        class.vacant.push(number);
        self.bytes -= slab.memory.len;
        Some(slab.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(kept_max: usize) -> Pool {
        Pool { classes: [const { Class::new() }; CLASSES], bytes: 0, kept_max }
    }

    fn take(pool: &mut Pool, capacity: usize) -> std::mem::ManuallyDrop<Pages> {
        let class = class_of(capacity);
        // Pages of a pool of one's own must not go back to the process's.
        std::mem::ManuallyDrop::new(pool.take(class).unwrap_or_else(|| {
            drop(pool.shrink(SLAB.max(capacity)));
            pool.add(class, Memory::new(SLAB.max(capacity)))
        }))
    }

    #[test]
    fn small_pages_share_slabs_and_never_overlap() {
        let mut pool = empty(0);
        let pages: Vec<_> = (0..200).map(|_| take(&mut pool, BLOCK)).collect();
        let starts: BTreeSet<usize> = pages.iter().map(|p| p.start.as_ptr() as usize).collect();
        assert_eq!(starts.len(), 200);
        assert!(starts.iter().zip(starts.iter().skip(1)).all(|(a, b)| b - a >= BLOCK));
        assert_eq!(pool.bytes, 4 * SLAB, "200 blocks need as many slabs as hold them");
        for (at, page) in pages.iter().enumerate() {
            drop(pool.give(page));
            assert!(at < 199 || pool.bytes == 0, "nothing is kept beyond the bound");
        }
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn a_slab_with_something_in_it_stays_and_fills_first() {
        let mut pool = empty(0);
        let pages: Vec<_> = (0..128).map(|_| take(&mut pool, BLOCK)).collect();
        pages.iter().skip(1).for_each(|page| drop(pool.give(page)));
        assert_eq!(pool.bytes, SLAB);
        let again = take(&mut pool, BLOCK);
        assert_eq!((again.slab, pool.bytes), (pages[0].slab, SLAB));
    }

    #[test]
    fn free_slabs_stay_up_to_the_bound_and_make_way_for_other_sizes() {
        let mut pool = empty(4 << 20);
        let large: Vec<_> = (0..8).map(|_| take(&mut pool, 1 << 20)).collect();
        assert_eq!(pool.bytes, 8 << 20, "what is used is not bounded here");
        large.iter().for_each(|page| drop(pool.give(page)));
        assert_eq!(pool.bytes, 4 << 20);
        let again = take(&mut pool, 1 << 20);
        assert_eq!(pool.bytes, 4 << 20, "used again");
        let other = take(&mut pool, 128 << 10);
        assert_eq!(pool.bytes, (3 << 20) + SLAB, "one of the free ones has made way");
        drop(pool.give(&again));
        drop(pool.give(&other));
        pool.kept_max = 0;
        drop(pool.shrink(0));
        assert_eq!(pool.bytes, 0);
    }
}
