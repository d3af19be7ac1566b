//! Payload bytes: aligned, counted, shared without copying, and reused through a bounded pool.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use crate::limits::BLOCK;

/// Pages of one allocation, aligned to [`BLOCK`], given back to the pool when the last user drops it.
struct Pages {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: `Pages` owns its memory alone; access goes through `Buf` (shared, read only) and `BufMut` (unique).
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference only ever reads.
unsafe impl Sync for Pages {}

/// Free pages by size class (log2 of the capacity).
static POOL: Mutex<Pool> = Mutex::new(Pool { classes: [const { Vec::new() }; CLASSES], bytes: 0 });

/// Size classes from 4 KiB (class 0) to 32 MiB.
const CLASSES: usize = 14;
/// Free bytes that a process keeps for reuse: a large allocation from the system costs a page fault per page.
const POOL_BYTES_MAX: usize = 24 << 20;

struct Pool {
    classes: [Vec<Pages>; CLASSES],
    bytes: usize,
}

impl Pages {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, BLOCK).expect("a payload's size is far below isize::MAX")
    }

    fn class(capacity: usize) -> usize {
        (capacity / BLOCK).trailing_zeros() as usize
    }

    fn take(len: usize) -> Pages {
        let capacity = len.max(BLOCK).next_power_of_two();
        if let Some(classes) = POOL.lock().ok().as_mut()
            && let Some(class) = classes.classes.get_mut(Self::class(capacity))
            && let Some(pages) = class.pop()
        {
            classes.bytes -= capacity;
            return pages;
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is at least one block, never zero.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: freshly allocated, `capacity` bytes long: from here on every byte is initialised.
        unsafe { start.as_ptr().write_bytes(0, capacity) };
        Pages { start, capacity }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Ok(mut pool) = POOL.lock()
            && pool.bytes + self.capacity <= POOL_BYTES_MAX
            && Self::class(self.capacity) < CLASSES
        {
            pool.bytes += self.capacity;
            let class = Self::class(self.capacity);
            pool.classes[class].push(Pages { start: self.start, capacity: self.capacity });
            return;
        }
        // SAFETY: allocated by `take` with this layout, and nobody else knows it any more.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) };
    }
}

/// Bytes that one owner may change. [`BufMut::freeze`] makes them shareable.
pub struct BufMut {
    pages: Pages,
    len: usize,
}

impl BufMut {
    /// `len` bytes of whatever the pool held: for callers that overwrite them all.
    pub fn dirty(len: usize) -> BufMut {
        BufMut { pages: Pages::take(len), len }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> BufMut {
        let mut buf = BufMut::dirty(len);
        buf.fill(0);
        buf
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> BufMut {
        let mut buf = BufMut::dirty(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes that fit without a new allocation.
    pub fn capacity(&self) -> usize {
        self.pages.capacity
    }

    /// Shortens to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The same bytes, shareable and no longer changeable.
    pub fn freeze(self) -> Buf {
        let range = 0..self.len;
        Buf { pages: Some(Arc::new(self.pages)), range }
    }
}

impl Deref for BufMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are ours and initialised (zeroed at allocation).
        unsafe { std::slice::from_raw_parts(self.pages.start.as_ptr(), self.len) }
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.pages.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len)
    }
}

/// Shared, immutable bytes: cloning and slicing copy nothing.
#[derive(Clone, Default)]
pub struct Buf {
    pages: Option<Arc<Pages>>,
    range: Range<usize>,
}

impl Buf {
    /// No bytes.
    pub fn empty() -> Buf {
        Buf::default()
    }

    /// A copy of `bytes`, aligned.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        if bytes.is_empty() { Buf::empty() } else { BufMut::copy_of(bytes).freeze() }
    }

    /// The part `range` of these bytes, sharing them.
    ///
    /// # Panics
    /// If `range` does not lie within.
    pub fn slice(&self, range: Range<usize>) -> Buf {
        assert!(range.start <= range.end && range.end <= self.len(), "a slice lies within its buffer");
        let start = self.range.start + range.start;
        Buf { pages: self.pages.clone(), range: start..start + range.len() }
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.pages {
            // SAFETY: `range` lies within the initialised pages, which live as long as the `Arc`; nobody writes.
            Some(pages) => unsafe {
                std::slice::from_raw_parts(pages.start.as_ptr().add(self.range.start), self.range.len())
            },
            None => &[],
        }
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Buf) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Buf {
        Buf::copy_of(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_shared_and_reused() {
        let mut buf = BufMut::zeroed(10_000);
        assert_eq!(buf.as_ptr() as usize % BLOCK, 0);
        assert!(buf.iter().all(|&b| b == 0));
        buf[9_999] = 7;
        let buf = buf.freeze();
        let part = buf.slice(9_990..10_000);
        drop(buf);
        assert_eq!(part[9], 7);
        assert!(Buf::empty().is_empty());
        assert_eq!(&*Buf::copy_of(b"shoal"), b"shoal");
    }

    #[test]
    #[should_panic(expected = "a slice lies within its buffer")]
    fn a_slice_past_the_end_is_refused() {
        let _ = Buf::copy_of(b"abc").slice(1..5);
    }
}
