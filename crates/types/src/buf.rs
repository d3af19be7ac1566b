//! Payload bytes: aligned, counted, shared without copying, and reused through a bounded pool.

mod pool;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

pub use pool::{pool_bytes, set_pool_limit};

use pool::Pages;

/// Bytes that one owner may change. [`BufMut::freeze`] makes them shareable.
pub struct BufMut {
    pages: Pages,
    len: usize,
}

impl BufMut {
    /// `len` bytes with arbitrary contents, for callers that overwrite all of them.
    pub fn dirty(len: usize) -> BufMut {
        BufMut { pages: Pages::take(len), len }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> BufMut {
        crate::cost::bytes(len);
        let mut buf = BufMut::dirty(len);
        buf.fill(0);
        buf
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> BufMut {
        crate::cost::bytes(bytes.len());
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
    use crate::limits::BLOCK;

    #[test]
    fn a_buffer_is_aligned_and_its_slices_outlive_it() {
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
