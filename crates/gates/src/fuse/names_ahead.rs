//! Names read ahead of a program that removes files, as Lustre's statahead does for one that lists them.
//!
//! Before each removal the kernel asks which file the name is of, unless it was told within the last second ([`TTL`]). Whoever
//! removes a large directory has listed it longer ago than that, so it waits for two answers of the service for each file. But it
//! removes one name after the other as they were listed. So when a thread that has just removed some names asks for another one of
//! the same directory, this mount asks for those that follow it too, and answers the thread's next lookups from them. Several threads
//! that share the work share these names.
//!
//! What may be shown, and to whom:
//!
//! * The kernel believes such an answer until a second has passed since the request for the names, and no longer.
//! * What this mount does, or tells the kernel, of a name or a file is newer: it drops what was read ahead of it, also from an answer
//!   that is on its way meanwhile ([`NamesAhead::name_told`], [`NamesAhead::file_told`]).
//! * Files that are open here, or have several names, are left out: their attributes may change by what is done elsewhere or to
//!   another name. So are directories ([`dir_names`](super::dir_names)).
//! * Only a thread that removes gets these answers, within [`PAUSE_MAX`] of its last removal, for the next of the names in their
//!   order ([`SKIP_MAX`]), or the next of another such thread ([`SHARED_MAX`]). For whoever looks for what others have just done, the
//!   service is asked.
//!
//! The kernel does not say what a lookup is for. For a name that is about to be made it wants a fresh answer (`O_EXCL`, `mkdir`, `link`),
//! and does not get one if this is one of the names that would be removed next.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::InodeId;
use types::messages::names::{Attr, DirEntry, FileKind};

use super::kernel_cache::TTL;

/// Longest pause between a removal and the next lookup.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A thread has removed so many names of a directory before others are read ahead of it.
const REMOVALS_MIN: u32 = 3;
/// Names in the first request of a thread, and most in any.
const NAMES: std::ops::RangeInclusive<u32> = 8..=192;
/// A lookup may leave out so many names: other threads may be about to remove them.
const SKIP_MAX: usize = 15;
/// A thread shares what was read ahead of another one if its name is one of the next so many there.
const SHARED_MAX: usize = 64;
/// Lookups of other names, one after the other, until a thread is taken for one that does not remove them in the order of listing.
const MISSES_MAX: u32 = 16;
/// It is tried again once there are a quarter more removals than then: seldom in a large directory.
const RETRY_AFTER: u32 = 4;
/// Most threads that remove at a time. Nothing is read ahead of others.
const THREADS_MAX: usize = 16;
/// What the kernel says of a thread that it cannot name here.
const UNKNOWN_THREAD: u32 = 0;
/// Most names and files that are told while a request is on its way. Beyond this, nothing is kept of its answer.
const TOLD_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct NamesAhead {
    streaks: Mutex<Vec<Streak>>,
}

/// A thread that removes names of a directory.
struct Streak {
    thread: u32,
    directory: InodeId,
    /// The end of its last removal, and how many there were.
    removed: Instant,
    removals: u32,
    /// Names in the next request. None if the thread does not remove them in the order of listing.
    count: Option<u32>,
    /// How many removals there were when this showed last.
    gave_up: u32,
    /// What was told since the request was sent that is on its way, if there is one.
    told: Option<Told>,
    /// When the request for these names was sent.
    asked: Instant,
    /// How many names were kept of them, and whether somebody has asked for any of these.
    kept: usize,
    used: bool,
    /// For how many others it has asked since.
    misses: u32,
    /// In the order of listing.
    ahead: VecDeque<(Vec<u8>, Attr)>,
}

#[derive(Default)]
struct Told {
    names: HashSet<Vec<u8>>,
    files: HashSet<InodeId>,
}

/// How to answer a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The name is of this file, and the kernel may believe it for so long.
    Known(Box<Attr>, Duration),
    /// Ask for so many names from this one on, and pass the answer to [`NamesAhead::answered`].
    Ask(u32),
    /// Ask for this name alone.
    Alone,
}

impl NamesAhead {
    fn lock(&self) -> MutexGuard<'_, Vec<Streak>> {
        self.streaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread has removed a name.
    pub(super) fn removed(&self, thread: u32, directory: InodeId, now: Instant) {
        if thread == UNKNOWN_THREAD {
            return;
        }
        let mut streaks = self.lock();
        streaks.retain(|streak| match streak.thread == thread {
            true => streak.goes_on(directory, now),
            false => now.saturating_duration_since(streak.removed) <= TTL || streak.told.is_some(),
        });
        if let Some(streak) = streaks.iter_mut().find(|streak| streak.thread == thread) {
            (streak.removed, streak.removals) = (now, streak.removals.saturating_add(1));
        } else if streaks.len() < THREADS_MAX {
            streaks.push(Streak::new(thread, directory, now));
        }
    }

    /// The kernel is about to be told what a name is now: that it was made, moved, removed or found, or that this has failed.
    pub(super) fn name_told(&self, directory: InodeId, name: &[u8]) {
        for streak in recent(&mut self.lock()).filter(|streak| streak.directory == directory) {
            streak.note(|told| told.names.insert(name.to_vec()));
            // If somebody else has removed it, its order was right.
            streak.used |= streak.drop_first(|ahead, _| ahead == name);
        }
    }

    /// The kernel is about to be told of a file: its attributes, or that it was opened, written or closed.
    pub(super) fn file_told(&self, inode: InodeId) {
        for streak in recent(&mut self.lock()) {
            streak.note(|told| told.files.insert(inode));
            streak.drop_first(|_, attr| attr.inode == inode);
        }
    }

    /// A thread looks for a name.
    pub(super) fn next(&self, thread: u32, directory: InodeId, name: &[u8], now: Instant) -> Next {
        let mut streaks = self.lock();
        let at = streaks.iter().position(|streak| streak.thread == thread && streak.goes_on(directory, now));
        let Some(at) = at.filter(|at| streaks[*at].removals >= REMOVALS_MIN) else { return Next::Alone };
        streaks.swap(0, at);
        let Some((streak, others)) = streaks.split_first_mut() else { return Next::Alone };
        if let Some(known) = streak.take(name, now) {
            return known;
        }
        if streak.count.is_some() {
            streak.misses += 1;
            if streak.misses == MISSES_MAX {
                streak.give_up();
            }
        }
        if !streak.is_used_up(now) {
            return Next::Alone;
        }
        let other = streak.count.and_then(|_| others.iter().find(|other| other.has(directory, name, now)));
        if let Some(other) = other {
            streak.join(other, name);
            return streak.take(name, now).unwrap_or(Next::Alone);
        }
        streak.adapt(now);
        let Some(count) = streak.count else { return Next::Alone };
        streak.ahead.clear();
        (streak.told, streak.asked) = (Some(Told::default()), now);
        Next::Ask(count)
    }

    /// The names that follow the one for which a thread has asked. Files that are open here must not be among them.
    pub(super) fn answered<'a>(
        &self,
        thread: u32,
        directory: InodeId,
        entries: impl Iterator<Item = &'a DirEntry>,
    ) {
        // Here, because this may take a while.
        let is_fit = |entry: &&DirEntry| entry.attr.kind == FileKind::File && entry.attr.links == 1;
        let fit: Vec<_> =
            entries.filter(is_fit).map(|entry| (entry.name.clone(), entry.attr.clone())).collect();
        let mut streaks = self.lock();
        let streak =
            streaks.iter_mut().find(|streak| streak.thread == thread && streak.directory == directory);
        let Some(streak) = streak else { return };
        streak.ahead.clear();
        (streak.used, streak.misses) = (false, 0);
        if let Some(told) = streak.told.take() {
            let is_told =
                |name: &[u8], attr: &Attr| told.names.contains(name) || told.files.contains(&attr.inode);
            streak.ahead.extend(fit.into_iter().filter(|(name, attr)| !is_told(name, attr)));
        } else {
            // That is not because of its order.
            streak.used = true;
        }
        streak.kept = streak.ahead.len();
    }

    /// What a thread has asked for has failed: there is no such name, for example.
    pub(super) fn failed(&self, thread: u32, directory: InodeId) {
        let mut streaks = self.lock();
        let streak =
            streaks.iter_mut().find(|streak| streak.thread == thread && streak.directory == directory);
        if let Some(streak) = streak {
            // That is not because of its order.
            (streak.told, streak.kept, streak.used) = (None, 0, true);
        }
    }
}

/// Those that may still be answered from, or whose request is on its way. The others are dropped.
fn recent(streaks: &mut Vec<Streak>) -> impl Iterator<Item = &mut Streak> {
    if !streaks.is_empty() {
        let now = Instant::now();
        streaks
            .retain(|streak| now.saturating_duration_since(streak.removed) <= TTL || streak.told.is_some());
    }
    streaks.iter_mut()
}

impl Streak {
    fn new(thread: u32, directory: InodeId, now: Instant) -> Streak {
        Streak {
            thread,
            directory,
            removed: now,
            removals: 1,
            count: Some(*NAMES.start()),
            gave_up: 0,
            told: None,
            asked: now,
            kept: 0,
            used: true,
            misses: 0,
            ahead: VecDeque::new(),
        }
    }

    fn goes_on(&self, directory: InodeId, now: Instant) -> bool {
        self.directory == directory && now.saturating_duration_since(self.removed) <= PAUSE_MAX
    }

    /// Notes what was told, if an answer is on its way.
    fn note(&mut self, add: impl FnOnce(&mut Told) -> bool) {
        if let Some(told) = &mut self.told {
            add(told);
            if told.names.len() + told.files.len() > TOLD_MAX {
                self.told = None;
            }
        }
    }

    /// Drops the entry for which this holds, if there is one: no name is there twice, and no file has two names.
    fn drop_first(&mut self, is_it: impl Fn(&[u8], &Attr) -> bool) -> bool {
        let at = self.ahead.iter().position(|(name, attr)| is_it(name, attr));
        at.and_then(|at| self.ahead.remove(at)).is_some()
    }

    /// How long the names may still be believed.
    fn left(&self, now: Instant) -> Duration {
        (self.asked + TTL).saturating_duration_since(now)
    }

    /// Takes a name, if it is one of the next, and leaves out those before it.
    fn take(&mut self, name: &[u8], now: Instant) -> Option<Next> {
        let left = Some(self.left(now)).filter(|left| !left.is_zero())?;
        let at = self.ahead.iter().take(1 + SKIP_MAX).position(|(ahead, _)| ahead == name)?;
        let (_, attr) = self.ahead.drain(..=at).next_back()?;
        (self.used, self.misses) = (true, 0);
        Some(Next::Known(Box::new(attr), left))
    }

    /// Whether a name that is not one of the next may follow them all.
    fn is_used_up(&self, now: Instant) -> bool {
        self.left(now).is_zero() || self.ahead.len() <= SKIP_MAX
    }

    /// Whether a thread that is about to remove a name may share these.
    fn has(&self, directory: InodeId, name: &[u8], now: Instant) -> bool {
        let mut next = self.ahead.iter().take(SHARED_MAX);
        self.directory == directory && !self.left(now).is_zero() && next.any(|(ahead, _)| ahead == name)
    }

    /// Goes on with the names that were read ahead of another thread, from this one on.
    fn join(&mut self, other: &Streak, name: &[u8]) {
        self.ahead = other.ahead.iter().skip_while(|(ahead, _)| ahead != name).cloned().collect();
        (self.asked, self.kept) = (other.asked, self.ahead.len());
    }

    /// Takes the thread for one that does not remove names in the order of listing, for a while.
    fn give_up(&mut self) {
        (self.count, self.gave_up) = (None, self.removals);
        self.ahead.clear();
        self.kept = 0;
    }

    /// Decides how many names the next request is for, by how many of the last one's are left. Other threads may have removed some.
    fn adapt(&mut self, now: Instant) {
        let is_in_time = !self.left(now).is_zero();
        let was_too_few = self.kept > 0 && (is_in_time || 2 * self.ahead.len() < self.kept);
        match self.count {
            // A directory that several programs have filled may have names in another order only here and there.
            None if self.removals - self.gave_up > self.gave_up / RETRY_AFTER => {
                (self.count, self.used, self.misses) = (Some(*NAMES.start()), true, 0);
            }
            None => {}
            Some(count) if !self.used && count == *NAMES.start() => self.give_up(),
            Some(count) if self.used && was_too_few => self.count = Some((2 * count).min(*NAMES.end())),
            Some(count) => self.count = Some((count / 2).max(*NAMES.start())),
        }
    }
}

#[cfg(test)]
mod tests;
