//! Io-cache: keeps pages that were read, for the next read of the same bytes.
//!
//! A page lives under a mode that lets no other client write, and for the contents that the file had. Its key has the
//! number of these contents, so pages of older ones are not found any more. A write of this mount removes the pages that
//! it overlaps. A miss reads whole pages, so a page that is larger than the usual read reads more than was asked for.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use types::tuning::{Key, Value};
use types::{Buf, BufMut, Tuning};

use crate::error::ClientError;
use crate::state::open_file::OpenFile;
use crate::state::page_cache::{PageCache, PageKey};
use crate::translators::{Answer, Below, Read, Translator, Write};

/// Largest page, in bytes, that is copied so that it does not keep the buffer of a larger answer alive.
const COPIED_MAX: usize = 16 << 10;

/// The cache of one thread, whose pages all threads share.
pub(crate) struct IoCache {
    pub(crate) pages: Arc<PageCache>,
    /// Bytes of the cache, if nobody sets them, and the most that may be set.
    pub(crate) usual: u64,
    pub(crate) most: u64,
}

/// Where the pages of a read belong.
#[derive(Clone, Copy)]
struct Place {
    file: u64,
    generation: u64,
    /// Bytes of a page.
    page: u64,
    /// Number of finished writes before the read.
    count: u64,
}

impl Place {
    /// The place for pages of a file. A page of another size than before makes all earlier ones invalid. `None` if nothing
    /// may be cached. Also returns the size of the file.
    fn of(file: &OpenFile, page: u64) -> Option<(Place, u64)> {
        let mut state = file.lock();
        state.cacheable()?;
        if state.page != page {
            if state.page != 0 {
                state.invalidate();
            }
            state.page = page;
        }
        let (generation, count) = (state.cacheable()?, state.writes.count());
        Some((Place { file: state.cache_id, generation, page, count }, state.size))
    }

    fn key(&self, page: u64) -> PageKey {
        PageKey { file: self.file, generation: self.generation, page }
    }
}

impl IoCache {
    async fn read_pages(&self, read: Read<'_>, page: u64, below: Below<'_>) -> Result<Buf, ClientError> {
        let Some((place, size)) = Place::of(read.file, page) else { return below.read(read).await };
        let end = read.range().end.min(size);
        if end <= read.offset {
            return below.read(read).await;
        }
        let numbers = read.offset / page..end.div_ceil(page);
        // A page at what was the end of the file may be short.
        let wanted = |number: u64| (end - number * page).min(page) as usize;
        let mut pages: Vec<Option<Buf>> = numbers
            .clone()
            .map(|number| self.pages.get(&place.key(number)).filter(|found| found.len() >= wanted(number)))
            .collect();
        for (run, bytes) in self.fetch(read, &place, missing(&pages, numbers.start), below).await? {
            for number in run.clone() {
                let from = ((number - run.start) * page) as usize;
                if from >= bytes.len() {
                    break;
                }
                let fetched = bytes.slice(from..bytes.len().min(from + page as usize));
                self.keep(read.file, &place, number, &fetched, run.end - run.start == 1);
                pages[(number - numbers.start) as usize] = Some(fetched);
            }
        }
        Ok(join(
            &pages,
            (read.offset - numbers.start * page) as usize,
            (end - read.offset) as usize,
            page as usize,
        ))
    }

    /// Reads runs of pages, all at once.
    async fn fetch(
        &self,
        read: Read<'_>,
        place: &Place,
        runs: Vec<Range<u64>>,
        below: Below<'_>,
    ) -> Result<Vec<(Range<u64>, Buf)>, ClientError> {
        let one = |run: Range<u64>| async move {
            let (offset, len) = (run.start * place.page, ((run.end - run.start) * place.page) as usize);
            Ok((run, below.read(Read { offset, len, ..read }).await?))
        };
        match <[_; 1]>::try_from(runs) {
            Ok([run]) => Ok(vec![one(run).await?]),
            Err(runs) => join_all(runs.into_iter().map(one)).await.into_iter().collect(),
        }
    }

    /// Keeps a page, if the file is still as it was when the page was read.
    fn keep(&self, file: &OpenFile, place: &Place, number: u64, bytes: &Buf, is_whole: bool) {
        let owned = if is_whole && bytes.len() > COPIED_MAX { bytes.clone() } else { Buf::copy_of(bytes) };
        let start = number * place.page;
        let state = file.lock();
        if state.may_keep(place.generation, place.count, &(start..start + place.page)) {
            self.pages.insert(place.key(number), owned);
        }
    }

    /// Removes the pages that a write overlaps.
    fn remove(&self, write: &Write<'_>) {
        let (file, generation, page) = {
            let state = write.file.lock();
            match state.cacheable() {
                Some(generation) if state.page > 0 => (state.cache_id, generation, state.page),
                _ => return,
            }
        };
        let range = write.range();
        for page in range.start / page..range.end.div_ceil(page) {
            self.pages.remove(&PageKey { file, generation, page });
        }
    }
}

impl Translator for IoCache {
    fn name(&self) -> &'static str {
        "io-cache"
    }

    fn read<'a>(&'a self, read: Read<'a>, below: Below<'a>) -> Answer<'a, Buf> {
        match read.settings.io_cache {
            Some(page) => Box::pin(self.read_pages(read, page, below)),
            None => below.read(read),
        }
    }

    fn write<'a>(&'a self, write: Write<'a>, below: Below<'a>) -> Answer<'a, ()> {
        self.remove(&write);
        below.write(write)
    }

    fn tune(&self, tuning: &Tuning) {
        let bytes = match tuning.get(Key::IoCacheSize) {
            Some(Value::Number(bytes)) => bytes.min(self.most),
            _ => self.usual,
        };
        self.pages.resize(bytes);
    }
}

/// The runs of pages that are missing. `first` is the number of the first page.
fn missing(pages: &[Option<Buf>], first: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (number, _) in (first..).zip(pages).filter(|(_, page)| page.is_none()) {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// `len` bytes from `within` the first of some pages; fewer if a page has less than it should.
fn join(pages: &[Option<Buf>], within: usize, len: usize, page: usize) -> Buf {
    let part = |index: usize| {
        let from = if index == 0 { within } else { 0 };
        let to = (within + len).saturating_sub(index * page).min(page);
        let bytes = pages[index].as_ref().map_or(&[][..], |bytes| bytes);
        (from.min(bytes.len())..to.min(bytes.len()), to)
    };
    if let [Some(only)] = pages {
        return only.slice(part(0).0);
    }
    let (mut out, mut at) = (BufMut::dirty(len), 0);
    for (index, bytes) in pages.iter().enumerate() {
        let (range, to) = part(index);
        let is_short = range.end < to;
        if let Some(bytes) = bytes {
            out[at..at + range.len()].copy_from_slice(&bytes[range.clone()]);
            at += range.len();
        }
        if is_short {
            break;
        }
    }
    out.truncate(at);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8, len: usize) -> Option<Buf> {
        Some(Buf::copy_of(&vec![byte; len]))
    }

    #[test]
    fn runs_of_missing_pages() {
        assert_eq!(missing(&[page(1, 4), None, None, page(1, 4), None], 7), [8..10, 11..12]);
        assert_eq!(missing(&[page(1, 4)], 7), []);
    }

    #[test]
    fn pages_are_joined_up_to_the_first_short_one() {
        let pages = [page(1, 4), page(2, 4), page(3, 2)];
        assert_eq!(*join(&pages, 1, 9, 4), [1, 1, 1, 2, 2, 2, 2, 3, 3]);
        assert_eq!(*join(&pages, 3, 4, 4), [1, 2, 2, 2], "up to within the second page");
        assert_eq!(*join(&[page(1, 4), page(2, 3), page(3, 4)], 0, 12, 4), [1, 1, 1, 1, 2, 2, 2]);
        assert_eq!(*join(&[page(1, 4)], 1, 2, 4), [1, 1]);
        assert_eq!(*join(&[page(1, 2)], 3, 1, 4), []);
    }
}
