//! Recent attributes of directories, to answer the kernel's repeated requests.
//!
//! After it has listed a directory, the kernel drops the directory's access time and asks for all attributes at their
//! next use, although the others are still valid; the C library uses them at each `opendir`. After it has changed a
//! name, the kernel drops all attributes and asks for them before the next lookup; but the service's answer to the
//! change already had them. So the first request after either event is answered from here, while the attributes are
//! valid. Any other request has another reason and goes to the service.
//!
//! Answers may overtake each other. Of two answers, the one with more changes of the directory is newer. If a change
//! was made whose answer has no attributes of the directory, then the known attributes and those of requests in
//! flight are not valid any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::Opened;
use types::InodeId;
use types::messages::names::{Attr, FileKind, Linked, Unlinked};

use super::kernel_cache::TTL;

/// Most directories in the table. Beyond this, all are dropped.
const REMEMBERED_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct DirAttrCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of changes by this mount whose answers had no attributes.
    untold: u64,
    heard: BTreeMap<InodeId, CachedAttr>,
}

struct CachedAttr {
    attr: Attr,
    /// End of its validity.
    until: Instant,
    /// The kernel has listed or changed it since its last request.
    asked_again: bool,
}

/// A request to the service: when it was sent, and the value of `untold` then.
#[derive(Clone, Copy)]
pub(super) struct Question {
    untold: u64,
    at: Instant,
}

/// The answer to a change of a directory's names.
pub(super) trait ChangedNames {
    /// The directory's attributes after the change.
    fn directory(&self) -> Option<&Attr>;
}

impl ChangedNames for Linked {
    fn directory(&self) -> Option<&Attr> {
        Some(&self.parent)
    }
}

impl ChangedNames for Unlinked {
    fn directory(&self) -> Option<&Attr> {
        Some(&self.parent)
    }
}

impl ChangedNames for Opened {
    fn directory(&self) -> Option<&Attr> {
        self.parent.as_ref()
    }
}

impl DirAttrCache {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The valid attributes of a directory and their remaining validity, if the kernel asks because it has listed or
    /// changed the directory.
    pub(super) fn known(&self, inode: InodeId, now: Instant) -> Option<(Attr, Duration)> {
        let mut state = self.lock();
        let heard = state.heard.get_mut(&inode)?;
        let asked_again = std::mem::take(&mut heard.asked_again);
        let left = heard.until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        asked_again.then(|| (heard.attr.clone(), left))
    }

    /// The last known attributes of a directory, even if outdated.
    pub(super) fn last(&self, inode: InodeId) -> Option<Attr> {
        self.lock().heard.get(&inode).map(|heard| heard.attr.clone())
    }

    /// Sets the access time of a directory that was read.
    pub(super) fn accessed(&self, attr: &Attr) {
        if let Some(heard) = self.lock().heard.get_mut(&attr.inode) {
            heard.attr.atime = attr.atime;
        }
    }

    /// Records that the kernel lists a directory.
    pub(super) fn listed(&self, inode: InodeId) {
        if let Some(heard) = self.lock().heard.get_mut(&inode) {
            heard.asked_again = true;
        }
    }

    /// Begins a request to the service.
    pub(super) fn question(&self, at: Instant) -> Question {
        Question { untold: self.lock().untold, at }
    }

    /// Takes attributes from an answer of the service.
    pub(super) fn update(&self, question: Question, attr: &Attr) {
        if attr.kind == FileKind::Directory {
            self.lock().update(question, attr);
        }
    }

    /// This mount has changed a directory's names, and the answer has its attributes. Must be called before the
    /// kernel gets its answer.
    pub(super) fn changed_to(&self, question: Question, attr: &Attr) {
        let mut state = self.lock();
        state.update(question, attr);
        if let Some(heard) = state.heard.get_mut(&attr.inode) {
            heard.asked_again = true;
        }
    }

    /// This mount has changed a directory, or tried to. Must be called before the kernel gets its answer.
    pub(super) fn changed(&self, inode: InodeId) {
        let mut state = self.lock();
        state.untold += 1;
        state.heard.remove(&inode);
    }

    /// This mount has changed directories that it does not all know: a name that was removed or replaced may be that
    /// of a directory.
    pub(super) fn some_changed(&self) {
        let mut state = self.lock();
        state.untold += 1;
        state.heard.clear();
    }
}

impl State {
    fn update(&mut self, question: Question, attr: &Attr) {
        // An answer from before an untold change may be outdated. It is kept, already expired, to recognise answers
        // that are even older.
        let believed = self.untold == question.untold;
        let until = if believed { question.at + TTL } else { question.at };
        if let Some(heard) = self.heard.get_mut(&attr.inode) {
            let later = (attr.changes, until) >= (heard.attr.changes, heard.until);
            if later {
                heard.until = if believed { until.max(heard.until) } else { until };
                heard.attr = attr.clone();
            }
            return;
        }
        if self.heard.len() >= REMEMBERED_MAX {
            self.heard.clear();
            // Answers to requests in flight may be older than the dropped attributes.
            self.untold += 1;
        }
        self.heard.insert(attr.inode, CachedAttr { attr: attr.clone(), until, asked_again: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::attributes::plain_attr;

    const DIR: InodeId = InodeId(5);

    fn attr(inode: InodeId, kind: FileKind) -> Attr {
        Attr { links: 2, ..plain_attr(inode, kind) }
    }

    /// The directory after so many changes of its names.
    fn changed(changes: u64) -> Attr {
        Attr { changes, ..attr(DIR, FileKind::Directory) }
    }

    /// Heard and listed.
    fn heard_at(now: Instant) -> DirAttrCache {
        let directories = DirAttrCache::default();
        directories.update(directories.question(now), &attr(DIR, FileKind::Directory));
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
    fn the_first_question_after_a_told_change_is_answered() {
        let now = Instant::now();
        let directories = DirAttrCache::default();
        directories.changed_to(directories.question(now), &changed(1));
        let left = now + Duration::from_millis(300);
        let (attr, ttl) = directories.known(DIR, left).expect("heard with the change");
        assert_eq!((attr.changes, ttl), (1, TTL - Duration::from_millis(300)));
        assert!(directories.known(DIR, left).is_none(), "it was answered");
    }

    /// Whoever has been told of the second change must not find the directory as it was after the first.
    #[test]
    fn of_changes_that_overtake_each_other_the_last_counts() {
        let now = Instant::now();
        let directories = heard_at(now);
        let (first, second) = (directories.question(now), directories.question(now));
        let asked = directories.question(now + Duration::from_millis(1));
        directories.changed_to(second, &changed(2));
        directories.changed_to(first, &changed(1));
        directories.update(asked, &changed(1));
        assert_eq!(directories.known(DIR, now).map(|(attr, _)| attr.changes), Some(2));
    }

    /// An answer that began before an untold change says nothing of that change, but that what is known is older still.
    #[test]
    fn a_told_change_beside_an_untold_one_ends_it() {
        let now = Instant::now();
        for directories in [heard_at(now), DirAttrCache::default()] {
            let question = directories.question(now);
            directories.changed(InodeId(6));
            // Asked after the untold change, and answered before the told one.
            let overtaken = directories.question(now);
            directories.changed_to(question, &changed(1));
            directories.update(overtaken, &changed(0));
            directories.listed(DIR);
            assert!(directories.known(DIR, now).is_none());
            directories.update(overtaken, &changed(1));
            directories.listed(DIR);
            assert_eq!(directories.known(DIR, now).map(|(attr, _)| attr.changes), Some(1));
        }
    }

    #[test]
    fn an_untold_change_ends_it() {
        let now = Instant::now();
        let directories = heard_at(now);
        directories.changed(InodeId(6));
        assert!(directories.known(DIR, now).is_some(), "that was another one");
        for change in [|d: &DirAttrCache| d.changed(DIR), |d: &DirAttrCache| d.some_changed()] {
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
        directories.update(question, &Attr { links: 3, ..attr(DIR, FileKind::Directory) });
        assert_eq!(
            directories.known(DIR, now).map(|(attr, _)| attr.links),
            Some(2),
            "a change has overtaken it"
        );

        directories.listed(DIR);
        let early = directories.question(now);
        let late = directories.question(now + Duration::from_millis(10));
        directories.update(late, &Attr { links: 4, ..attr(DIR, FileKind::Directory) });
        directories.update(early, &Attr { links: 5, ..attr(DIR, FileKind::Directory) });
        assert_eq!(directories.known(DIR, now).map(|(attr, _)| attr.links), Some(4), "another answer has");
    }

    #[test]
    fn only_directories_are_remembered_and_not_too_many() {
        let (directories, now) = (DirAttrCache::default(), Instant::now());
        directories.update(directories.question(now), &attr(DIR, FileKind::File));
        assert!(directories.lock().heard.is_empty());
        for inode in 0..2 * REMEMBERED_MAX as u64 {
            directories.update(directories.question(now), &attr(InodeId(inode), FileKind::Directory));
        }
        assert!(directories.lock().heard.len() <= REMEMBERED_MAX);
    }
}
