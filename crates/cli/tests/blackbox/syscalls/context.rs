//! The directory in which one case is tried, who tries it, and what was found.

use std::fmt::Debug;
use std::panic::Location;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use super::calls::{Attr, Kind, SysResult, lchown, lstat, stat};

/// Files' times are as fine as the kernel's clock for them, 10 ms at most: this long is longer.
const TICK: Duration = Duration::from_millis(25);

/// Somebody who makes system calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// The first is the group of what is made. None: those of root.
    pub(crate) groups: &'static [u32],
}

/// An ordinary user.
pub(crate) const NOBODY: User = User { uid: 65534, groups: &[65534] };
/// Another one, with nothing in common with the first.
pub(crate) const OTHER: User = User { uid: 65533, groups: &[65533] };
/// The first user, in the groups of root.
pub(crate) const STRAY: User = User { uid: 65534, groups: &[] };
/// The owner of everything, if nobody else is.
pub(crate) const ROOT: User = User { uid: 0, groups: &[] };

/// One of the raw calls about who a thread is: libc's own would ask all threads of the process.
fn become_so(number: libc::c_long, words: [usize; 3]) {
    // SAFETY: numbers, and a list of groups that is as long as it says.
    let answer = unsafe { libc::syscall(number, words[0], words[1], words[2]) };
    assert_eq!(answer, 0, "only root can be somebody else: {}", Errno::last());
}

impl User {
    /// Makes calls as this user; the thread is root again afterwards.
    pub(crate) fn does<T>(self, act: impl FnOnce() -> T) -> T {
        const KEEP: usize = u32::MAX as usize;
        let groups = nix::unistd::getgroups().expect("this process has groups");
        if let Some(first) = self.groups.first() {
            become_so(libc::SYS_setgroups, [self.groups.len(), self.groups.as_ptr() as usize, 0]);
            become_so(libc::SYS_setresgid, [KEEP, *first as usize, KEEP]);
        }
        become_so(libc::SYS_setresuid, [KEEP, self.uid as usize, KEEP]);
        let made = act();
        become_so(libc::SYS_setresuid, [KEEP, 0, KEEP]);
        become_so(libc::SYS_setresgid, [KEEP, 0, KEEP]);
        become_so(libc::SYS_setgroups, [groups.len(), groups.as_ptr() as usize, 0]);
        made
    }
}

/// Makes calls with a file mode creation mask.
pub(crate) fn masked<T>(mask: u32, act: impl FnOnce() -> T) -> T {
    let set = |mask| nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
    let before = set(mask);
    let made = act();
    set(before.bits());
    made
}

/// See the module. The thread's working directory is a directory of the case, empty and root's.
#[derive(Default)]
pub(crate) struct TestContext {
    pub(crate) checks: u32,
    pub(crate) failures: Vec<String>,
}

impl TestContext {
    #[track_caller]
    fn count(&mut self, right: bool, words: impl FnOnce() -> String) {
        self.checks += 1;
        if !right {
            let place = Location::caller();
            let file = place.file().rsplit('/').next().unwrap_or_default();
            self.failures.push(format!("{file}:{}: {}", place.line(), words()));
        }
    }

    /// The call must succeed.
    #[track_caller]
    pub(crate) fn ok<T>(&mut self, seen: SysResult<T>) {
        let error = seen.err();
        self.count(error.is_none(), || format!("failed: {error:?}"));
    }

    /// The call must be refused with this error.
    #[track_caller]
    pub(crate) fn fails<T>(&mut self, right: Errno, seen: SysResult<T>) {
        let error = seen.err();
        self.count(error == Some(right), || format!("{error:?}, not {right}"));
    }

    /// The call must come to one of these.
    #[track_caller]
    pub(crate) fn either<T: PartialEq + Debug>(&mut self, seen: SysResult<T>, right: &[SysResult<T>]) {
        self.count(right.contains(&seen), || format!("{seen:?}, none of {right:?}"));
    }

    /// The call must tell this.
    #[track_caller]
    pub(crate) fn sees<T: PartialEq + Debug>(&mut self, seen: SysResult<T>, right: T) {
        self.count(seen.as_ref() == Ok(&right), || format!("{seen:?}, not {right:?}"));
    }

    #[track_caller]
    pub(crate) fn same<T: PartialEq + Debug>(&mut self, seen: T, right: T) {
        self.count(seen == right, || format!("{seen:?}, not {right:?}"));
    }

    #[track_caller]
    pub(crate) fn holds(&mut self, right: bool, what: &str) {
        self.count(right, || what.to_owned());
    }

    /// Two times, the one after the other.
    #[track_caller]
    pub(crate) fn later(&mut self, before: SysResult<(i64, i64)>, after: SysResult<(i64, i64)>) {
        let right = matches!((before, after), (Ok(before), Ok(after)) if before < after);
        self.count(right, || format!("{after:?} is not later than {before:?}"));
    }

    #[track_caller]
    pub(crate) fn gone(&mut self, path: &str) {
        self.fails(Errno::ENOENT, lstat(path));
    }

    #[track_caller]
    pub(crate) fn kind(&mut self, path: &str, right: Kind) {
        self.sees(lstat(path).map(|a| a.kind), right);
    }

    /// Kind and permissions.
    #[track_caller]
    pub(crate) fn is(&mut self, path: &str, kind: Kind, mode: u32) {
        self.sees(lstat(path).map(|a| (a.kind, a.mode)), (kind, mode));
    }

    /// Permissions, of a symbolic link's target.
    #[track_caller]
    pub(crate) fn mode(&mut self, path: &str, right: u32) {
        self.sees(stat(path).map(|a| a.mode), right);
    }

    /// User and group, of a symbolic link itself.
    #[track_caller]
    pub(crate) fn owner(&mut self, path: &str, right: (u32, u32)) {
        self.sees(lstat(path).map(|a| a.owner), right);
    }

    #[track_caller]
    pub(crate) fn links(&mut self, path: &str, right: u64) {
        self.sees(lstat(path).map(|a| a.links), right);
    }

    #[track_caller]
    pub(crate) fn size(&mut self, path: &str, right: i64) {
        self.sees(stat(path).map(|a| a.size), right);
    }

    #[track_caller]
    pub(crate) fn inode(&mut self, path: &str, right: SysResult<u64>) {
        self.same(lstat(path).map(|a| a.inode), right);
    }

    #[track_caller]
    pub(crate) fn make(&mut self, kind: Kind, path: &str) {
        self.ok(kind.make(path));
    }

    /// Makes one that belongs to somebody.
    #[track_caller]
    pub(crate) fn make_for(&mut self, kind: Kind, path: &str, owner: u32) {
        self.ok(kind.make(path));
        self.ok(lchown(path, owner, owner));
    }

    #[track_caller]
    pub(crate) fn remove(&mut self, kind: Kind, path: &str) {
        self.ok(kind.remove(path));
    }

    /// Both times of the last change, of the file's bytes and of anything, before and after `act`.
    fn around(&mut self, path: &str, act: impl FnOnce(&mut TestContext)) -> [SysResult<Attr>; 2] {
        let before = stat(path);
        thread::sleep(TICK);
        act(self);
        [before, stat(path)]
    }

    /// The time of a file's last change, of a link's target, must be later afterwards.
    #[track_caller]
    pub(crate) fn changes(&mut self, path: &str, act: impl FnOnce(&mut TestContext)) {
        let [before, after] = self.around(path, act);
        let right = matches!((before, after), (Ok(before), Ok(after)) if before.ctime < after.ctime);
        self.count(right, || format!("{path} has not changed: {before:?}, {after:?}"));
    }

    /// It must not.
    #[track_caller]
    pub(crate) fn leaves(&mut self, path: &str, act: impl FnOnce(&mut TestContext)) {
        let [before, after] = self.around(path, act);
        let right = matches!((before, after), (Ok(before), Ok(after)) if before.ctime == after.ctime);
        self.count(right, || format!("{path} has changed: {before:?}, {after:?}"));
    }

    /// As [`TestContext::changes`], and the time of the last modification with it.
    #[track_caller]
    pub(crate) fn modifies(&mut self, path: &str, act: impl FnOnce(&mut TestContext)) {
        let [before, after] = self.around(path, act);
        for time in [|a: &Attr| a.ctime, |a: &Attr| a.mtime] {
            let right = matches!((before, after), (Ok(before), Ok(after)) if before.ctime < time(&after));
            self.count(right, || format!("{path} is not modified: {before:?}, {after:?}"));
        }
    }

    /// Neither of the two.
    #[track_caller]
    pub(crate) fn keeps(&mut self, path: &str, act: impl FnOnce(&mut TestContext)) {
        let [before, after] = self.around(path, act);
        let times = |seen: SysResult<Attr>| seen.map(|a| (a.ctime, a.mtime));
        self.count(before.is_ok() && times(before) == times(after), || format!("{before:?}, {after:?}"));
    }

    /// `act` makes the name `made` in this directory: its three times, and two of the directory, are of now.
    #[track_caller]
    pub(crate) fn dated(&mut self, made: &str, act: impl FnOnce(&mut TestContext)) {
        let before = stat(".").map(|a| a.ctime);
        self.modifies(".", act);
        let made = lstat(made);
        for time in [|a: &Attr| a.atime, |a: &Attr| a.mtime, |a: &Attr| a.ctime] {
            self.later(before, made.map(|a| time(&a)));
        }
    }
}
