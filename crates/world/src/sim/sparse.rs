//! The bytes of a simulated disk, as pages. Pages of zeros take no memory.

use std::collections::BTreeMap;

use types::limits::BLOCK;
use types::{Buf, BufMut};

const PAGE: u64 = BLOCK as u64;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Pages by number. A clone copies no bytes. A page that is written whole shares the writer's memory.
#[derive(Clone, Default)]
pub(super) struct Sparse {
    pages: BTreeMap<u64, Buf>,
}

impl Sparse {
    pub(super) fn write(&mut self, offset: u64, bytes: &Buf) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE, (at % PAGE) as usize);
            let len = (BLOCK - start).min(bytes.len() - done);
            if len == BLOCK {
                self.put(page, bytes.slice(done..done + BLOCK));
            } else {
                self.patch(page, start, &bytes[done..done + len]);
            }
            done += len;
        }
    }

    fn put(&mut self, page: u64, bytes: Buf) {
        if bytes[..] == ZEROS {
            self.pages.remove(&page);
        } else {
            self.pages.insert(page, bytes);
        }
    }

    fn patch(&mut self, page: u64, start: usize, bytes: &[u8]) {
        let old = self.pages.get(&page);
        if old.is_none() && *bytes == ZEROS[..bytes.len()] {
            return;
        }
        let mut copy = old.map_or_else(|| BufMut::zeroed(BLOCK), |page| BufMut::copy_of(page));
        copy[start..start + bytes.len()].copy_from_slice(bytes);
        self.pages.insert(page, copy.freeze());
    }

    /// Offsets of the whole pages of a range that are not all zeros.
    pub(super) fn pages_within(&self, range: &std::ops::Range<u64>) -> Vec<u64> {
        let pages = range.start.div_ceil(PAGE)..(range.end / PAGE).max(range.start.div_ceil(PAGE));
        self.pages.range(pages).map(|(page, _)| page * PAGE).collect()
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Buf {
        if len == 0 {
            return Buf::empty();
        }
        let end = offset + len as u64;
        let mut pages = self.pages.range(offset / PAGE..end.div_ceil(PAGE)).peekable();
        if len == BLOCK
            && offset.is_multiple_of(PAGE)
            && let Some((_, page)) = pages.peek()
        {
            return Buf::clone(page);
        }
        let mut out = BufMut::dirty(len);
        let mut filled = 0;
        for (number, page) in pages {
            let (first, last) = ((number * PAGE).max(offset), ((number + 1) * PAGE).min(end));
            let (from, to) = ((first - offset) as usize, (last - offset) as usize);
            out[filled..from].fill(0);
            let start = (first - number * PAGE) as usize;
            out[from..to].copy_from_slice(&page[start..start + (to - from)]);
            filled = to;
        }
        out[filled..].fill(0);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_plain_array(writes in proptest::collection::vec((0u64..40_000, 0usize..9_000, any::<u8>()), 0..20),
                            from in 0usize..50_000, len in 0usize..14_000) {
            let mut plain = vec![0u8; 64 << 10];
            let mut sparse = Sparse::default();
            for (offset, len, byte) in writes {
                let byte = byte & 3;
                plain[offset as usize..offset as usize + len].fill(byte);
                sparse.write(offset, &Buf::from(vec![byte; len]));
            }
            prop_assert_eq!(&sparse.read(from as u64, len)[..], &plain[from..from + len]);
            prop_assert_eq!(&sparse.read(0, plain.len())[..], &plain[..]);
        }
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut sparse = Sparse::default();
        sparse.write(8192, &BufMut::zeroed(1 << 20).freeze());
        assert!(sparse.pages.is_empty());
    }
}
