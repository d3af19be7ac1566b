//! What is kept of each inode of a volume.

use std::collections::BTreeSet;

use types::{InodeId, ObjectId};

use super::names::hash_of;
use crate::records::Inode;

/// What is known of an inode, and what was found of it.
pub(super) struct Row {
    pub(super) inode: InodeId,
    /// As stored.
    pub(super) links: u32,
    /// Names that were found.
    pub(super) names: u32,
    /// Where the directory is among the directories.
    directory: u32,
    /// Its value cannot be read: nothing is known of it, and its names stay.
    pub(super) is_unreadable: bool,
    pub(super) is_orphan: bool,
    /// Its size is not the length of its target.
    pub(super) is_cut_link: bool,
}

impl Row {
    fn new(inode: InodeId) -> Row {
        Row {
            inode,
            links: 0,
            names: 0,
            directory: NO_DIRECTORY,
            is_unreadable: false,
            is_orphan: false,
            is_cut_link: false,
        }
    }
}

/// What else there is to know of a directory.
pub(super) struct Directory {
    pub(super) inode: InodeId,
    /// As stored.
    pub(super) parent: InodeId,
    pub(super) size: u64,
    pub(super) cookie_next: u64,
    /// The directory in which its name was found, the last one if there are several.
    pub(super) found_in: InodeId,
    /// Names that were found in it, how many of them are directories, and the last cookie.
    pub(super) entries: u64,
    pub(super) directories: u32,
    pub(super) last_cookie: u64,
    /// Names that are listed in it.
    pub(super) listed: u64,
    /// Sums of hashes of the names and of what is listed. They are equal if both are the same.
    pub(super) names_sum: u64,
    pub(super) listed_sum: u64,
    /// It has names in it, but is not there itself.
    pub(super) is_lost: bool,
}

impl Directory {
    fn new(inode: InodeId, parent: InodeId, size: u64, cookie_next: u64, is_lost: bool) -> Directory {
        Directory {
            inode,
            parent,
            size,
            cookie_next,
            found_in: InodeId(0),
            entries: 0,
            directories: 0,
            last_cookie: 0,
            listed: 0,
            names_sum: 0,
            listed_sum: 0,
            is_lost,
        }
    }
}

const NO_DIRECTORY: u32 = u32::MAX;

/// The inodes of a volume, in the order of their numbers.
#[derive(Default)]
pub(super) struct Inodes {
    pub(super) rows: Vec<Row>,
    pub(super) directories: Vec<Directory>,
    /// Of each file.
    pub(super) objects: Vec<(ObjectId, InodeId)>,
}

impl Inodes {
    /// About how many bytes all of them take.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.directories) + size_of_val(&*self.objects)
    }

    /// Adds the next inode; `None` if it cannot be read.
    pub(super) fn push(&mut self, id: InodeId, inode: Option<&Inode>) {
        let links = inode.map_or(0, |inode| inode.links);
        let mut row = Row { links, is_unreadable: inode.is_none(), ..Row::new(id) };
        if let Some(inode) = inode {
            if inode.is_directory() {
                row.directory = self.directories.len() as u32;
                let (parent, size, cookie_next) = (inode.parent, inode.size, inode.cookie_next);
                self.directories.push(Directory::new(id, parent, size, cookie_next, false));
            } else if inode.is_file() {
                self.objects.push((inode.object, id));
            } else {
                row.is_cut_link = !inode.inline.is_empty() && inode.inline.len() as u64 != inode.size;
            }
        }
        self.rows.push(row);
    }

    /// Adds directories that are not there, but have names in them. What was counted so far is forgotten.
    pub(super) fn add_lost(&mut self, lost: &BTreeSet<InodeId>) {
        for inode in lost {
            let directory = self.directories.len() as u32;
            self.directories.push(Directory::new(*inode, InodeId(0), 0, 0, true));
            self.rows.push(Row { directory, is_unreadable: false, ..Row::new(*inode) });
        }
        self.rows.sort_unstable_by_key(|row| row.inode);
        self.rows.iter_mut().for_each(|row| row.names = 0);
        for found in &mut self.directories {
            *found = Directory::new(found.inode, found.parent, found.size, found.cookie_next, found.is_lost);
        }
    }

    /// Where an inode is.
    pub(super) fn find(&self, inode: InodeId) -> Option<usize> {
        self.rows.binary_search_by_key(&inode, |row| row.inode).ok()
    }

    /// Where a row's directory is among the directories.
    pub(super) fn directory_of(&self, row: usize) -> Option<usize> {
        let directory = self.rows[row].directory;
        (directory != NO_DIRECTORY).then_some(directory as usize)
    }

    /// Where a directory is among the directories.
    pub(super) fn find_directory(&self, inode: InodeId) -> Option<usize> {
        self.directory_of(self.find(inode)?)
    }

    /// Whether an inode should have a name that was not found: its only one, or one of a file's.
    pub(super) fn is_nameless(&self, row: usize) -> bool {
        let is_directory = self.directory_of(row).is_some();
        let row = &self.rows[row];
        let missing = if is_directory { row.names == 0 } else { row.names < row.links.max(1) };
        missing && !row.is_orphan && !row.is_unreadable && row.inode != InodeId::ROOT
    }

    /// A name comes back that is still listed in a directory.
    pub(super) fn give_name(&mut self, row: usize, home: usize, name: &[u8], cookie: u64) {
        self.rows[row].names += 1;
        let inode = self.rows[row].inode;
        let child = self.directory_of(row);
        if let Some(child) = child {
            self.directories[child].found_in = self.directories[home].inode;
        }
        let home = &mut self.directories[home];
        home.entries += 1;
        home.directories += u32::from(child.is_some());
        home.last_cookie = home.last_cookie.max(cookie);
        home.names_sum = home.names_sum.wrapping_add(hash_of(name, inode, cookie));
    }
}
