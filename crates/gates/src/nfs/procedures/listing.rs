//! Lists directories by pages.
//!
//! A cookie is the volume's cookie plus two, to make room for `.` and `..`. So cookies are the same at every gate,
//! and do not change when names are added or removed.

use types::InodeId;
use types::messages::names::Attr;

use crate::nfs::access::{Caller, READ, SEARCH};
use crate::nfs::gate::Gate;
use crate::nfs::handle::HANDLE_LEN;
use crate::nfs::wire::{AttrWriter, IO_MAX, Results, Status, Writer, padding};

/// Number of cookies for `.` and `..`; the directory's own entries follow.
const DOTS: u64 = 2;
/// Bytes of a page without entries: attributes, the cookies' verifier, the end of the list and of the directory.
const PAGE_LEN: usize = AttrWriter::POST_OP_ATTR_LEN + 8 + 4 + 4;
/// Bytes of an entry without its name: the mark that it follows, the inode, the length, the cookie.
const ENTRY_LEN: usize = 4 + 8 + 4 + 8;
/// Bytes of an entry's attributes and handle.
const PLUS_LEN: usize = AttrWriter::POST_OP_ATTR_LEN + 4 + 4 + HANDLE_LEN;
/// Most entries in one request to the metadata service.
const ENTRIES_MAX: usize = 512;
/// A short name: most names are longer. It bounds the number of entries expected on a page.
const NAME_SHORT: usize = 8;

/// A page that is being filled.
struct Page<'a> {
    gate: &'a Gate,
    writer: Writer,
    /// Bytes that are left.
    room: usize,
    /// With attributes and handles.
    plus: bool,
    empty: bool,
}

impl Page<'_> {
    /// Adds an entry; false if the page is full.
    fn add(&mut self, inode: InodeId, name: &[u8], cookie: u64, attr: Option<&Attr>) -> bool {
        let len = ENTRY_LEN + name.len() + padding(name.len()) + if self.plus { PLUS_LEN } else { 0 };
        let Some(room) = self.room.checked_sub(len) else { return false };
        self.room = room;
        self.empty = false;
        self.writer.bool(true).u64(inode.0).opaque(name).u64(cookie);
        if self.plus {
            self.gate.attributes().put_post_op_attr(&mut self.writer, attr);
            self.writer.bool(attr.is_some());
            if attr.is_some() {
                self.writer.opaque(&self.gate.shared.file_system.handle(inode));
            }
        }
        true
    }

    /// Entries that may still fit.
    fn expects(&self) -> usize {
        let entry = ENTRY_LEN + NAME_SHORT + if self.plus { PLUS_LEN } else { 0 };
        (self.room / entry + 1).min(ENTRIES_MAX)
    }
}

impl Gate {
    pub(super) async fn read_directory(
        &self,
        caller: &Caller,
        directory: &[u8],
        cookie: u64,
        count: u32,
        plus: bool,
    ) -> Result<Results, Status> {
        let attr = self.attr_of(directory).await?;
        caller.check_directory(&attr, READ)?;
        // A caller without search permission sees only names.
        let shows = caller.may(&attr, SEARCH);
        let room = (count.min(IO_MAX) as usize).checked_sub(PAGE_LEN).ok_or(Status::TooSmall)?;
        let mut page = Page { gate: self, writer: Writer::default(), room, plus, empty: true };
        self.attributes().put_post_op_attr(&mut page.writer, Some(&attr));
        // Cookies stay valid for ever, so their verifier is constant.
        page.writer.u64(0);
        let ended = self.fill(&mut page, &attr, cookie, shows).await?;
        if cookie == 0 {
            self.session.note_access(&attr);
        }
        if page.empty && !ended {
            return Err(Status::TooSmall);
        }
        page.writer.bool(false).bool(ended);
        Ok(page.writer.into())
    }

    /// Fills a page with the entries after a cookie; true if none are left.
    async fn fill(&self, page: &mut Page<'_>, attr: &Attr, cookie: u64, shows: bool) -> Result<bool, Status> {
        let mut last = cookie.saturating_sub(DOTS);
        let mut dots = cookie;
        loop {
            let listed = self.session.readdir(attr.inode, last, page.expects() as u32).await?;
            if dots == 0 {
                dots = 1;
                if !page.add(attr.inode, b".", 1, Some(attr).filter(|_| shows)) {
                    return Ok(false);
                }
            }
            if dots == 1 {
                dots = DOTS;
                if !page.add(listed.parent, b"..", DOTS, None) {
                    return Ok(false);
                }
            }
            for entry in &listed.entries {
                let shown = Some(&entry.attr).filter(|_| shows);
                if !page.add(entry.attr.inode, &entry.name, entry.cookie.saturating_add(DOTS), shown) {
                    return Ok(false);
                }
                last = entry.cookie;
            }
            if listed.end {
                return Ok(true);
            }
        }
    }
}
