//! All files of a tree, one after the other.

use std::collections::VecDeque;

use client::{ClientError, Session};
use types::messages::names::{Attr, DirEntry, FileKind};
use types::{InodeId, Refusal};

/// Entries per request: with the depth of the tree, they bound the memory of a walk.
const ENTRIES: u32 = 256;

/// A directory that is being listed.
struct Level {
    inode: InodeId,
    /// Where the next request goes on; [`None`] after the last.
    cookie: Option<u64>,
    entries: VecDeque<DirEntry>,
}

/// A walk over the tree below a directory, depth first. What changes meanwhile may be seen or not; nothing else is left
/// out, and a file with several names comes several times.
pub struct Walk {
    session: Session,
    levels: Vec<Level>,
}

impl Walk {
    /// A walk over everything below `top`.
    pub fn new(session: Session, top: InodeId) -> Walk {
        let top = Level { inode: top, cookie: Some(0), entries: VecDeque::new() };
        Walk { session, levels: vec![top] }
    }

    /// The attributes of the next file, pipe, link or device; [`None`] at the end. Directories are walked, not returned.
    ///
    /// # Errors
    /// If the metadata service does not answer. A directory that is removed meanwhile is no error.
    pub async fn next(&mut self) -> Result<Option<Attr>, ClientError> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(entry) = level.entries.pop_front() {
                if entry.attr.kind != FileKind::Directory {
                    return Ok(Some(entry.attr));
                }
                let below = Level { inode: entry.attr.inode, cookie: Some(0), entries: VecDeque::new() };
                self.levels.push(below);
                continue;
            }
            let Some(cookie) = level.cookie else {
                self.levels.pop();
                continue;
            };
            match self.session.readdir(level.inode, cookie, ENTRIES).await {
                Ok(listed) => {
                    let last = listed.entries.last().map(|entry| entry.cookie);
                    level.cookie = last.filter(|_| !listed.end);
                    level.entries = listed.entries.into();
                }
                Err(ClientError::Refused(Refusal::Stale | Refusal::NotFound)) => level.cookie = None,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
