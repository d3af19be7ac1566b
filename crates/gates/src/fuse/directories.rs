//! What was heard of directories a moment ago.
//!
//! When it has listed a directory, the kernel forgets the time of its last access and asks for all attributes at the next
//! question, although it may believe the others for a while yet; the C library puts that question at each `opendir`. So as
//! long as the kernel may believe what was heard of a directory, it gets that again. A change by this mount ends it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::InodeId;
use types::messages::names::{Attr, FileKind};

use super::versions::TTL;

/// Directories that are remembered; beyond, everything is forgotten and learned anew.
const REMEMBERED_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct Directories {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Changes by this mount so far.
    changes: u64,
    /// Attributes, and until when they may be believed.
    heard: BTreeMap<InodeId, (Attr, Instant)>,
}

/// A question to the service: when it was put, and after how many changes.
#[derive(Clone, Copy)]
pub(super) struct Question {
    changes: u64,
    at: Instant,
}

impl Directories {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What may still be believed of a directory, and for how long.
    pub(super) fn known(&self, inode: InodeId, now: Instant) -> Option<(Attr, Duration)> {
        let state = self.lock();
        let (attr, until) = state.heard.get(&inode)?;
        let left = until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some((attr.clone(), left))
    }

    /// The service is about to be asked.
    pub(super) fn question(&self, at: Instant) -> Question {
        Question { changes: self.lock().changes, at }
    }

    /// What the service has answered. After a change it may be too old.
    pub(super) fn hear(&self, question: Question, attr: &Attr) {
        if attr.kind != FileKind::Directory {
            return;
        }
        let mut state = self.lock();
        if state.changes != question.changes {
            return;
        }
        if state.heard.len() >= REMEMBERED_MAX {
            state.heard.clear();
        }
        state.heard.insert(attr.inode, (attr.clone(), question.at + TTL));
    }

    /// This mount has changed a directory, or tried to: called before whoever wanted that is answered.
    pub(super) fn changed(&self, inode: InodeId) {
        let mut state = self.lock();
        state.changes += 1;
        state.heard.remove(&inode);
    }

    /// This mount has changed directories, not all of which it knows: a name that went may be that of a directory.
    pub(super) fn some_changed(&self) {
        let mut state = self.lock();
        state.changes += 1;
        state.heard.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjectId;

    const DIR: InodeId = InodeId(5);

    fn attr(inode: InodeId, kind: FileKind) -> Attr {
        Attr {
            inode,
            kind,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            object: ObjectId(0),
            stale_end: 0,
            cuts: 0,
            changes: 0,
        }
    }

    fn heard_at(now: Instant) -> Directories {
        let directories = Directories::default();
        directories.hear(directories.question(now), &attr(DIR, FileKind::Directory));
        directories
    }

    #[test]
    fn an_answer_counts_from_its_question_on() {
        let now = Instant::now();
        let directories = heard_at(now);
        let after = |ms| directories.known(DIR, now + Duration::from_millis(ms)).map(|(_, left)| left);
        assert_eq!(after(0), Some(TTL));
        assert_eq!(after(300), Some(TTL - Duration::from_millis(300)));
        assert_eq!(after(1000), None);
        assert_eq!(after(5000), None);
        assert!(directories.known(InodeId(6), now).is_none());
    }

    #[test]
    fn a_change_ends_it() {
        let now = Instant::now();
        let directories = heard_at(now);
        directories.changed(InodeId(6));
        assert!(directories.known(DIR, now).is_some(), "that was another one");
        directories.changed(DIR);
        assert!(directories.known(DIR, now).is_none());
        let directories = heard_at(now);
        directories.some_changed();
        assert!(directories.known(DIR, now).is_none());
    }

    #[test]
    fn an_answer_that_a_change_has_overtaken_does_not_count() {
        let (directories, now) = (Directories::default(), Instant::now());
        let question = directories.question(now);
        directories.changed(DIR);
        directories.hear(question, &attr(DIR, FileKind::Directory));
        assert!(directories.known(DIR, now).is_none());
    }

    #[test]
    fn only_directories_are_remembered_and_not_too_many() {
        let (directories, now) = (Directories::default(), Instant::now());
        directories.hear(directories.question(now), &attr(DIR, FileKind::File));
        assert!(directories.known(DIR, now).is_none());
        for inode in 0..2 * REMEMBERED_MAX as u64 {
            directories.hear(directories.question(now), &attr(InodeId(inode), FileKind::Directory));
        }
        assert!(directories.lock().heard.len() <= REMEMBERED_MAX);
    }
}
