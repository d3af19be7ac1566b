//! What vouches for bytes of a file that are kept after it was closed, and after this mount has ended.
//!
//! The service tells the version of a file at each open: its object, and numbers that grow with every change of the
//! contents. If it tells the same version again, no byte has changed in between, because
//! - a mount that writes has told of its changes before its close is counted (`reports.rs`), and a file that it has open
//!   lets nobody else open it in mode Readers;
//! - the files that a lost mount had open for writing count as changed before anybody else opens them.
//!
//! Here the version counts only in mode Readers, and while this mount neither has the file open for writing nor has
//! anything to report about it. Whatever makes cached pages invalid ends it, until the next open.

use types::ObjectId;
use types::messages::cluster::Mode;
use types::messages::names::Attr;

use crate::state::open_file::FileState;

/// The contents of a file, as the service tells them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ContentVersion {
    /// The object with the bytes.
    pub(crate) object: ObjectId,
    /// How often the file was truncated.
    pub(crate) truncate_seq: u64,
    /// How often its contents have changed.
    pub(crate) changes: u64,
    /// Its bytes.
    pub(crate) size: u64,
    /// The time of its last change: clocks decide nothing, but a service that was set back to an old copy of its store
    /// hardly tells the same time for other contents.
    pub(crate) mtime: i64,
}

impl ContentVersion {
    fn of(attr: &Attr) -> ContentVersion {
        let Attr { object, truncate_seq, changes, size, mtime, .. } = *attr;
        ContentVersion { object, truncate_seq, changes, size, mtime }
    }
}

impl FileState {
    /// The number of changes by this mount so far, if it does not write the file and has nothing to report about it. Taken
    /// before an open is asked for.
    pub(crate) fn quiet(&self) -> Option<u64> {
        (self.writers == 0 && self.write_handles == 0 && self.may_close()).then_some(self.changed)
    }

    /// An open was answered with these attributes, and they were adopted. `quiet` is that from before the request.
    pub(crate) fn set_version(&mut self, attr: &Attr, quiet: Option<u64>) {
        let is_quiet = quiet.is_some() && self.quiet() == quiet;
        let is_adopted =
            (attr.object, attr.truncate_seq, attr.size) == (self.object, self.truncate_seq, self.size);
        let is_good = self.mode == Mode::Readers && !self.fenced && is_quiet && is_adopted;
        self.version = is_good.then(|| ContentVersion::of(attr));
    }

    /// The version of the present contents, if the service has told it and nothing can have changed since.
    pub(crate) fn version(&self) -> Option<ContentVersion> {
        self.version.filter(|_| self.mode == Mode::Readers && !self.fenced && self.quiesced == 0)
    }
}
