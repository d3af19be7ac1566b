//! Descriptor pages: the units at rest, on the brick, with a bounded cache.
//!
//! A page has two copies on the brick, and a write goes to the older one. So a torn write leaves the previous copy. A
//! page is written at most once between two syncs; otherwise the previous copy could be torn too.
//!
//! The checksums begin with a salt of the brick, so pages from a time when the disk was another brick do not match.
//!
//! ```text
//! | crc | version u64 | class u16 | count u16 | entries of `class` bytes: length u16, descriptor ... |
//! ```
//!
//! # Invariants
//! - A used entry has one unit, whose handle is in the index. It is taken only while free, and released once.
//! - After each write, the used entries of a page in RAM are those of its newest copy.
//! - A page changes its class only while it durably has no entries.
//! - A page has one writer at a time, and its version grows by one with each write.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use types::checksum::crc_append;
use types::limits::BLOCK;
use types::wire::{from_bytes, to_bytes};
use types::{Buf, BufMut, ObjectId, StripeKey};
use world::Disk;

use crate::descriptor::Descriptor;
use crate::error::BrickError;
use crate::index::{Handle, Index};
use crate::stripe_index::{Row, StripeIndex};

/// Bytes of a page: the descriptor of the largest unit fits.
pub(crate) const PAGE: usize = 8192;
/// Most pages of a brick: a handle has 26 bits for the page.
pub(crate) const PAGES_MAX: u32 = 1 << 26;
/// Bytes before the first entry.
const HEADER: usize = 64;
/// Entries are multiples of this.
const GRAIN: usize = 64;
/// Most classes.
const CLASSES: usize = 8;
/// Most entries of a page: a handle has 6 bits for the entry.
const ENTRIES_MAX: usize = 64;

/// Most pages written between two syncs. Pages come into use in order, so after so many unwritten ones in a row no
/// more follow.
pub(crate) const UNSYNCED_PAGES_MAX: u32 = 4096;

/// What RAM knows of a page.
#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    version: u64,
    /// Bytes of an entry, 0 for an unused page.
    class: u16,
    /// Mask of the used entries.
    used: u64,
}

impl PageState {
    fn entries(&self) -> u32 {
        entries_of(self.class)
    }

    fn has_room(&self) -> bool {
        self.used.count_ones() < self.entries()
    }
}

/// A change of one unit's descriptor.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: StripeKey,
    /// `None` erases it.
    pub(crate) descriptor: Option<Descriptor>,
    /// The unit has none at rest.
    pub(crate) is_new: bool,
}

/// The descriptor table of a brick.
pub(crate) struct Table {
    disk: Disk,
    start: u64,
    /// Start of every checksum.
    salt: u32,
    state: RefCell<State>,
}

struct State {
    /// The pages in use; later ones were never written.
    pages: Vec<PageState>,
    pages_max: u32,
    /// Pages with room, by class.
    roomy: BTreeMap<u16, BTreeSet<u32>>,
    /// Pages that durably have no entries: they may change their class.
    empty: BTreeSet<u32>,
    /// Pages that lost their last entry in the last write.
    emptied: BTreeSet<u32>,
    index: Index,
    /// The stripes with descriptors.
    stripes: StripeIndex,
    cache: BTreeMap<u32, Buf>,
    /// Cached pages, oldest first.
    cached: std::collections::VecDeque<u32>,
    cache_max: usize,
    /// During a listing: units whose descriptors were written since it began.
    rewritten: Option<BTreeSet<StripeKey>>,
}

/// A listing of the table goes on until this is dropped.
pub(crate) struct Listing<'a> {
    table: &'a Table,
}

impl Listing<'_> {
    /// Units whose descriptors were written since the listing began, or since the last call: the listing may have
    /// seen older descriptors of them.
    pub(crate) fn rewritten(&self) -> BTreeSet<StripeKey> {
        let mut state = self.table.state.borrow_mut();
        let rewritten = state.rewritten.as_mut().map(std::mem::take);
        assert!(rewritten.is_some(), "units written during the listing would be missing from it");
        rewritten.unwrap_or_default()
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.table.state.borrow_mut().rewritten = None;
    }
}

impl Table {
    /// Reads every page once and fills the index.
    pub(crate) async fn open(
        disk: Disk,
        start: u64,
        pages: u32,
        salt: u32,
        cache_max: usize,
    ) -> Result<Table, BrickError> {
        let table = Table {
            disk,
            start,
            salt,
            state: RefCell::new(State {
                pages: Vec::new(),
                pages_max: pages,
                roomy: BTreeMap::new(),
                empty: BTreeSet::new(),
                emptied: BTreeSet::new(),
                index: Index::new(),
                stripes: StripeIndex::default(),
                cache: BTreeMap::new(),
                cached: std::collections::VecDeque::new(),
                cache_max: cache_max.max(4),
                rewritten: None,
            }),
        };
        table.clear_torn().await?;
        let mut suspects = BTreeSet::new();
        table
            .scan(|state, page, header, descriptors| {
                if header.class == 0 {
                    return;
                }
                while state.pages.len() <= page as usize {
                    state.pages.push(PageState::default());
                }
                state.pages[page as usize] = header;
                if header.has_room() {
                    state.roomy.entry(header.class).or_default().insert(page);
                }
                for (entry, descriptor) in descriptors {
                    if !state.index.candidates(descriptor.key).is_empty() {
                        suspects.insert(descriptor.key);
                    }
                    state.index.insert(descriptor.key, Handle::new(page, entry));
                    state.stripes.insert(descriptor.key);
                }
            })
            .await?;
        {
            let state = &mut *table.state.borrow_mut();
            let unused = state.pages.iter().zip(0..).filter(|(page, _)| page.used == 0);
            state.empty = unused.map(|(_, page)| page).collect();
        }
        table.drop_older(suspects).await?;
        Ok(table)
    }

    /// Clears the headers of copies that a power cut has torn. Otherwise a later torn write to the same place could
    /// complete such a copy, and obsolete entries would be back. The rest of the first block is written unchanged, so
    /// no part of this write can complete the copy.
    async fn clear_torn(&self) -> Result<(), BrickError> {
        let mut torn = Vec::new();
        self.read_pages(|page, copies| {
            for (place, copy) in (0u64..).zip(copies) {
                if self.header(copy).is_none() && copy[..HEADER].iter().any(|byte| *byte != 0) {
                    let mut block = BufMut::zeroed(BLOCK);
                    block[HEADER..].copy_from_slice(&copy[HEADER..BLOCK]);
                    torn.push((self.place(page, place), block.freeze()));
                }
            }
            self.header(copies[0]).is_some() || self.header(copies[1]).is_some()
        })
        .await?;
        if torn.is_empty() {
            return Ok(());
        }
        for (at, block) in torn {
            self.disk.write(at, vec![block]).await?;
        }
        Ok(self.disk.sync().await?)
    }

    /// If the power failed while a descriptor moved to another page, both pages may have it. The newer one counts;
    /// the older one must be removed, or it could survive the newer one.
    async fn drop_older(&self, suspects: BTreeSet<StripeKey>) -> Result<(), BrickError> {
        let mut by_page: BTreeMap<u32, Vec<(u32, Option<Descriptor>)>> = BTreeMap::new();
        for key in suspects {
            let mut found = Vec::new();
            let candidates = self.state.borrow().index.candidates(key);
            for handle in candidates {
                let Some(bytes) = self.page(handle.page()).await? else { continue };
                let descriptor = entry(class_in(&bytes), &bytes, handle.entry());
                if let Some(descriptor) = descriptor.filter(|d| d.key == key) {
                    found.push((descriptor.base.identity, handle));
                }
            }
            found.sort();
            found.pop();
            for (_, handle) in found {
                self.state.borrow_mut().release(key, handle);
                by_page.entry(handle.page()).or_default().push((handle.entry(), None));
            }
            // The newest descriptor stays.
            self.state.borrow_mut().stripes.insert(key);
        }
        for (page, entries) in by_page {
            self.write_page(page, entries).await?;
        }
        Ok(())
    }

    /// Number of units with descriptors.
    pub(crate) fn len(&self) -> usize {
        self.state.borrow().index.len()
    }

    /// Stripes of an object with descriptors, from `from` on: ascending, at most `max` that are `wanted`.
    pub(crate) fn stripes_of(
        &self,
        object: ObjectId,
        from: u64,
        max: usize,
        wanted: impl Fn(StripeKey) -> bool,
    ) -> Vec<StripeKey> {
        let state = self.state.borrow();
        state.stripes.of_object(object, from).filter(|key| wanted(*key)).take(max).collect()
    }

    /// The first row of stripes with descriptors from `from` on.
    pub(crate) fn next_row(&self, from: StripeKey) -> Option<Row> {
        self.state.borrow().stripes.next_row(from)
    }

    /// Number of descriptors of this class that certainly find room.
    pub(crate) fn room(&self, class: u16) -> usize {
        let state = self.state.borrow();
        let unused = state.pages_max as usize - state.pages.len() + state.empty.len() + state.emptied.len();
        unused.saturating_sub(CLASSES) * entries_of(class) as usize
    }

    /// The header of a page's copy.
    fn header(&self, bytes: &[u8]) -> Option<PageState> {
        parse_header(bytes, self.salt)
    }

    /// Calls `seen` with every descriptor at rest.
    pub(crate) async fn for_each(&self, mut seen: impl FnMut(&Descriptor)) -> Result<(), BrickError> {
        self.scan(|_, _, _, descriptors| descriptors.iter().for_each(|(_, descriptor)| seen(descriptor)))
            .await
    }

    async fn scan(
        &self,
        mut each: impl FnMut(&mut State, u32, PageState, Vec<(u32, Descriptor)>),
    ) -> Result<(), BrickError> {
        self.read_pages(|page, copies| {
            let newest = copies
                .into_iter()
                .filter_map(|copy| Some((self.header(copy)?, copy)))
                .max_by_key(|(header, _)| header.version);
            let (header, descriptors) = match newest {
                Some((header, copy)) => (header, entries(header.class, copy)),
                None => (PageState::default(), Vec::new()),
            };
            each(&mut self.state.borrow_mut(), page, header, descriptors);
            header.class != 0
        })
        .await
    }

    /// Reads the pages in order, both copies of each; `each` returns whether one of them was ever written.
    async fn read_pages(&self, mut each: impl FnMut(u32, [&[u8]; 2]) -> bool) -> Result<(), BrickError> {
        let pages = self.state.borrow().pages_max;
        let mut unwritten = 0;
        const BATCH: u32 = 32;
        for first in (0..pages).step_by(BATCH as usize) {
            if unwritten >= UNSYNCED_PAGES_MAX {
                break;
            }
            let count = BATCH.min(pages - first);
            let bytes = self.disk.read(self.place(first, 0), count as usize * 2 * PAGE).await?;
            assert_eq!(
                bytes.len(),
                count as usize * 2 * PAGE,
                "truncated pages look as if they had never been written: their units would be lost"
            );
            for page in first..first + count {
                let at = (page - first) as usize * 2 * PAGE;
                let written = each(page, [&bytes[at..at + PAGE], &bytes[at + PAGE..at + 2 * PAGE]]);
                unwritten = if written { 0 } else { unwritten + 1 };
            }
        }
        Ok(())
    }

    /// Where a copy of a page lies.
    fn place(&self, page: u32, version: u64) -> u64 {
        assert!(page < self.state.borrow().pages_max, "the page would overwrite the bytes of units");
        self.start + (2 * u64::from(page) + version % 2) * PAGE as u64
    }

    /// Begins a listing. One at a time: it reads every page that is in use.
    pub(crate) fn list(&self) -> Listing<'_> {
        let older = self.state.borrow_mut().rewritten.replace(BTreeSet::new());
        assert!(older.is_none(), "one listing at a time");
        Listing { table: self }
    }

    /// The descriptor of a unit at rest.
    pub(crate) async fn find(&self, key: StripeKey) -> Result<Option<Descriptor>, BrickError> {
        let candidates = self.state.borrow().index.candidates(key);
        for handle in candidates {
            let Some(bytes) = self.page(handle.page()).await? else { continue };
            let found = entry(class_in(&bytes), &bytes, handle.entry());
            if let Some(descriptor) = found.filter(|descriptor| descriptor.key == key) {
                return Ok(Some(descriptor));
            }
        }
        Ok(None)
    }

    /// The newest copy of a page, `None` if it was never written.
    async fn page(&self, page: u32) -> Result<Option<Buf>, BrickError> {
        // A checkpoint may write the page during the read; then the copy that was read is no longer the newest.
        for _ in 0..8 {
            let version = {
                let state = self.state.borrow();
                if let Some(bytes) = state.cache.get(&page) {
                    return Ok(Some(bytes.clone()));
                }
                state.pages[page as usize].version
            };
            if version == 0 {
                return Ok(None);
            }
            let bytes = self.disk.read(self.place(page, version), PAGE).await?;
            assert_eq!(bytes.len(), PAGE, "a truncated page would count as damaged, and the brick as lost");
            let mut state = self.state.borrow_mut();
            if state.pages[page as usize].version != version {
                continue;
            }
            if self.header(&bytes).is_none_or(|header| header.version != version) {
                return Err(BrickError::JournalDamaged("a descriptor page does not match its checksum"));
            }
            state.remember(page, bytes.clone());
            return Ok(Some(bytes));
        }
        Err(BrickError::JournalDamaged("a descriptor page kept changing"))
    }

    /// Writes the changes, each page once. The caller syncs the disk afterwards.
    pub(crate) async fn write(&self, changes: Vec<Change>) -> Result<(), BrickError> {
        self.state.borrow_mut().settle_emptied();
        let keys: Vec<StripeKey> = changes.iter().map(|change| change.key).collect();
        let mut by_page: BTreeMap<u32, Vec<(u32, Option<Descriptor>)>> = BTreeMap::new();
        for change in changes {
            let old = self.locate(change.key).await?;
            let mut state = self.state.borrow_mut();
            let class = change.descriptor.as_ref().map(class_of);
            let keeps = old.filter(|h| Some(state.pages[h.page() as usize].class) == class);
            if let Some(handle) = old.filter(|_| keeps.is_none()) {
                state.release(change.key, handle);
                by_page.entry(handle.page()).or_default().push((handle.entry(), None));
            }
            if let (Some(descriptor), Some(class)) = (change.descriptor, class) {
                let handle = match keeps {
                    Some(handle) => handle,
                    None => state
                        .take(change.key, class)
                        .ok_or(BrickError::JournalDamaged("descriptor pages full"))?,
                };
                by_page.entry(handle.page()).or_default().push((handle.entry(), Some(descriptor)));
            }
        }
        for (page, entries) in by_page {
            self.write_page(page, entries).await?;
        }
        // Until now the units are still in RAM, where a listing finds them.
        if let Some(rewritten) = &mut self.state.borrow_mut().rewritten {
            rewritten.extend(keys);
        }
        Ok(())
    }

    /// The place of a unit's descriptor.
    async fn locate(&self, key: StripeKey) -> Result<Option<Handle>, BrickError> {
        let candidates = self.state.borrow().index.candidates(key);
        for handle in candidates {
            if let Some(bytes) = self.page(handle.page()).await?
                && entry(class_in(&bytes), &bytes, handle.entry()).is_some_and(|d| d.key == key)
            {
                return Ok(Some(handle));
            }
        }
        Ok(None)
    }

    async fn write_page(&self, page: u32, entries: Vec<(u32, Option<Descriptor>)>) -> Result<(), BrickError> {
        let old = self.page(page).await?;
        let (bytes, version) = {
            let state = &self.state.borrow();
            let header = state.pages[page as usize];
            assert!(header.class as usize >= 2 * GRAIN, "a scan would take the page for one never written");
            let mut bytes = BufMut::zeroed(PAGE);
            if let Some(old) = old
                && self.header(&old).is_some_and(|h| h.class == header.class)
            {
                bytes.copy_from_slice(&old);
            }
            let mut given = 0u64;
            for (index, descriptor) in entries {
                assert!(index < header.entries(), "no scan would find an entry after the last one");
                assert!(given & 1 << index == 0, "an entry has one unit: the first of two would be lost");
                let at = HEADER + index as usize * header.class as usize;
                let place = &mut bytes[at..at + header.class as usize];
                place.fill(0);
                if let Some(descriptor) = descriptor {
                    given |= 1 << index;
                    let body = to_bytes(&descriptor);
                    assert!(2 + body.len() <= place.len(), "the end of the descriptor would be cut off");
                    place[..2].copy_from_slice(&(body.len() as u16).to_le_bytes());
                    place[2..2 + body.len()].copy_from_slice(&body);
                }
            }
            assert_eq!(
                used_in(header.class, &bytes),
                header.used,
                "an entry that is free in RAM but used in the page would be given to a second unit"
            );
            let version = header.version + 1;
            bytes[8..16].copy_from_slice(&version.to_le_bytes());
            bytes[16..18].copy_from_slice(&header.class.to_le_bytes());
            let sum = crc_append(self.salt, &bytes[8..]);
            bytes[..4].copy_from_slice(&sum.to_le_bytes());
            (bytes.freeze(), version)
        };
        self.disk.write(self.place(page, version), vec![bytes.clone()]).await?;
        let mut state = self.state.borrow_mut();
        let known = &mut state.pages[page as usize].version;
        assert_eq!(*known + 1, version, "two writers of a page would overwrite each other's changes");
        *known = version;
        state.remember(page, bytes);
        Ok(())
    }
}

impl State {
    fn remember(&mut self, page: u32, bytes: Buf) {
        if self.cache.insert(page, bytes).is_none() {
            self.cached.push_back(page);
            if self.cached.len() > self.cache_max
                && let Some(oldest) = self.cached.pop_front()
            {
                self.cache.remove(&oldest);
            }
        }
        assert!(
            self.cached.len() == self.cache.len() && self.cache.len() <= self.cache_max,
            "uncounted pages would fill the RAM"
        );
    }

    /// Takes an entry of this class.
    fn take(&mut self, key: StripeKey, class: u16) -> Option<Handle> {
        let roomy = self.roomy.get(&class).and_then(|pages| pages.first().copied());
        let page = match roomy.or_else(|| self.reclass(class)) {
            Some(page) => page,
            None => {
                let page = u32::try_from(self.pages.len()).ok().filter(|page| *page < self.pages_max)?;
                self.pages.push(PageState { class, ..PageState::default() });
                self.roomy.entry(class).or_default().insert(page);
                page
            }
        };
        let state = &mut self.pages[page as usize];
        assert_eq!(state.class, class, "a descriptor in a page of another class would be cut off");
        let entry = (!state.used).trailing_zeros();
        assert!(entry < state.entries(), "a full page that counts as roomy would lose a unit");
        state.used |= 1 << entry;
        self.empty.remove(&page);
        self.emptied.remove(&page);
        if !state.has_room()
            && let Some(pages) = self.roomy.get_mut(&class)
        {
            pages.remove(&page);
        }
        let handle = Handle::new(page, entry);
        self.index.insert(key, handle);
        self.stripes.insert(key);
        Some(handle)
    }

    /// Makes an empty page one of this class.
    fn reclass(&mut self, class: u16) -> Option<u32> {
        let page = self.empty.pop_first()?;
        let state = &mut self.pages[page as usize];
        assert_eq!(state.used, 0, "the units of a page that changes its class would be lost");
        if let Some(pages) = self.roomy.get_mut(&state.class) {
            pages.remove(&page);
        }
        state.class = class;
        self.roomy.entry(class).or_default().insert(page);
        Some(page)
    }

    /// The pages that the last write emptied are durably empty by now, because the caller syncs before the next
    /// write.
    fn settle_emptied(&mut self) {
        self.empty.append(&mut self.emptied);
    }

    /// Releases an entry.
    fn release(&mut self, key: StripeKey, handle: Handle) {
        self.index.remove(key, handle);
        self.stripes.remove(key);
        let page = &mut self.pages[handle.page() as usize];
        assert!(
            page.used & 1 << handle.entry() != 0,
            "an entry that is released twice may belong to another unit"
        );
        page.used &= !(1 << handle.entry());
        if page.used == 0 {
            self.emptied.insert(handle.page());
        }
        self.roomy.entry(page.class).or_default().insert(handle.page());
    }
}

/// Entries of a page of this class.
fn entries_of(class: u16) -> u32 {
    if class == 0 { 0 } else { ((PAGE - HEADER) / class as usize).min(ENTRIES_MAX) as u32 }
}

/// Bytes of an entry for this descriptor: a power of two, so that few classes share the pages.
fn class_of(descriptor: &Descriptor) -> u16 {
    class_for(to_bytes(descriptor).len())
}

/// The class of a descriptor of so many bytes.
pub(crate) fn class_for(len: usize) -> u16 {
    let class = (len + 2).next_power_of_two().clamp(2 * GRAIN, PAGE);
    if class > PAGE - HEADER { (PAGE - HEADER) as u16 } else { class as u16 }
}

/// The header of a page's copy; the mask of used entries follows from the entries.
fn parse_header(bytes: &[u8], salt: u32) -> Option<PageState> {
    if bytes.len() != PAGE || crc_append(salt, &bytes[8..]) != u32::from_le_bytes(bytes[..4].try_into().ok()?)
    {
        return None;
    }
    let version = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    let class = u16::from_le_bytes(bytes[16..18].try_into().ok()?);
    if version == 0 || (class as usize) < 2 * GRAIN || class as usize > PAGE - HEADER {
        return None;
    }
    Some(PageState { version, class, used: used_in(class, bytes) })
}

/// Mask of the used entries of a page of this class: those that have a length.
fn used_in(class: u16, bytes: &[u8]) -> u64 {
    let is_used = |entry: &u32| {
        let at = HEADER + *entry as usize * class as usize;
        bytes[at] != 0 || bytes[at + 1] != 0
    };
    (0..entries_of(class)).filter(is_used).fold(0, |mask, entry| mask | 1 << entry)
}

/// The class of a page whose checksum has been compared.
fn class_in(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[16], bytes[17]])
}

/// An entry of a page of this class whose checksum has been compared.
fn entry(class: u16, bytes: &[u8], index: u32) -> Option<Descriptor> {
    if index >= entries_of(class) {
        return None;
    }
    let at = HEADER + index as usize * usize::from(class);
    let len = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    if len == 0 {
        return None;
    }
    from_bytes(bytes.get(at + 2..at + 2 + len)?).ok()
}

fn entries(class: u16, bytes: &[u8]) -> Vec<(u32, Descriptor)> {
    types::cost::entries(entries_of(class) as usize);
    (0..entries_of(class)).filter_map(|i| Some((i, entry(class, bytes, i)?))).collect()
}

#[cfg(test)]
mod tests;
