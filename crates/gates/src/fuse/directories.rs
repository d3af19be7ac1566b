//! What was heard of directories a moment ago.
//!
//! When it has listed a directory, the kernel forgets the time of its last access and asks for all attributes at the next
//! look at them, although it may believe the others for a while yet; the C library has such a look at each `opendir`. So the
//! first question after a listing is answered with what was heard, as long as the kernel may believe that. A change by this
//! mount ends it. Whatever else the kernel asks has another reason, and the service is asked.

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
    heard: BTreeMap<InodeId, Heard>,
}

struct Heard {
    attr: Attr,
    /// Until when it may be believed.
    until: Instant,
    /// The kernel has listed it since its last question.
    listed: bool,
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

    /// What the kernel may still believe of a directory, and for how long, if it asks because it has listed it.
    pub(super) fn known(&self, inode: InodeId, now: Instant) -> Option<(Attr, Duration)> {
        let mut state = self.lock();
        let heard = state.heard.get_mut(&inode)?;
        let left = heard.until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        std::mem::take(&mut heard.listed).then(|| (heard.attr.clone(), left))
    }

    /// The kernel is listing a directory.
    pub(super) fn listed(&self, inode: InodeId) {
        if let Some(heard) = self.lock().heard.get_mut(&inode) {
            heard.listed = true;
        }
    }

    /// The service is about to be asked.
    pub(super) fn question(&self, at: Instant) -> Question {
        Question { changes: self.lock().changes, at }
    }

    /// What the service has answered. After a change it may be too old, and after the answer to a later question it is.
    pub(super) fn hear(&self, question: Question, attr: &Attr) {
        if attr.kind != FileKind::Directory {
            return;
        }
        let mut state = self.lock();
        if state.changes != question.changes {
            return;
        }
        let until = question.at + TTL;
        if let Some(heard) = state.heard.get_mut(&attr.inode) {
            if until >= heard.until {
                (heard.attr, heard.until) = (attr.clone(), until);
            }
            return;
        }
        if state.heard.len() >= REMEMBERED_MAX {
            state.heard.clear();
        }
        state.heard.insert(attr.inode, Heard { attr: attr.clone(), until, listed: false });
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

    /// Heard and listed.
    fn heard_at(now: Instant) -> Directories {
        let directories = Directories::default();
        directories.hear(directories.question(now), &attr(DIR, FileKind::Directory));
        directories.listed(DIR);
        directories
    }

    #[test]
    fn an_answer_counts_from_its_question_on() {
        let now = Instant::now();
        let after = |ms| heard_at(now).known(DIR, now + Duration::from_millis(ms)).map(|(_, left)| left);
        assert_eq!(after(0), Some(TTL));
        assert_eq!(after(300), Some(TTL - Duration::from_millis(300)));
        assert_eq!(after(1000), None);
        assert_eq!(after(5000), None);
        assert!(heard_at(now).known(InodeId(6), now).is_none());
    }

    /// The kernel asks although it need not, when a right is missing for example: then it wants to know.
    #[test]
    fn only_the_first_question_after_a_listing_is_answered() {
        let now = Instant::now();
        let directories = heard_at(now);
        assert!(directories.known(DIR, now).is_some());
        assert!(directories.known(DIR, now).is_none());
        directories.listed(DIR);
        assert!(directories.known(DIR, now).is_some());
    }

    #[test]
    fn a_change_ends_it() {
        let now = Instant::now();
        let directories = heard_at(now);
        directories.changed(InodeId(6));
        assert!(directories.known(DIR, now).is_some(), "that was another one");
        for change in [|d: &Directories| d.changed(DIR), |d: &Directories| d.some_changed()] {
            let directories = heard_at(now);
            change(&directories);
            directories.listed(DIR);
            assert!(directories.known(DIR, now).is_none());
        }
    }

    #[test]
    fn what_came_too_late_does_not_count() {
        let now = Instant::now();
        let directories = heard_at(now);
        let question = directories.question(now);
        directories.changed(InodeId(6));
        directories.hear(question, &Attr { links: 3, ..attr(DIR, FileKind::Directory) });
        assert_eq!(
            directories.known(DIR, now).map(|(attr, _)| attr.links),
            Some(2),
            "a change has overtaken it"
        );

        directories.listed(DIR);
        let early = directories.question(now);
        let late = directories.question(now + Duration::from_millis(10));
        directories.hear(late, &Attr { links: 4, ..attr(DIR, FileKind::Directory) });
        directories.hear(early, &Attr { links: 5, ..attr(DIR, FileKind::Directory) });
        assert_eq!(directories.known(DIR, now).map(|(attr, _)| attr.links), Some(4), "another answer has");
    }

    #[test]
    fn only_directories_are_remembered_and_not_too_many() {
        let (directories, now) = (Directories::default(), Instant::now());
        directories.hear(directories.question(now), &attr(DIR, FileKind::File));
        assert!(directories.lock().heard.is_empty());
        for inode in 0..2 * REMEMBERED_MAX as u64 {
            directories.hear(directories.question(now), &attr(InodeId(inode), FileKind::Directory));
        }
        assert!(directories.lock().heard.len() <= REMEMBERED_MAX);
    }
}
