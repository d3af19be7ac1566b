//! A path that is too long, loops or leads nowhere gives its own error: every system call that takes a path is tried
//! with each of them.

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::calls::{ALL, FILES, Kind, PathArg, SysResult, chmod, lchown, lstat, mkdir, symlink, unlink};
use super::context::{NOBODY, TestContext};

/// One way of using a path.
pub(crate) struct PathCall {
    pub(crate) call: fn(PathArg<'_>) -> SysResult,
    /// Makes what the call needs at the path.
    pub(crate) prepare: fn(&mut TestContext, &str),
    /// Compares what the call has made of it, and takes it away.
    pub(crate) settle: fn(&mut TestContext, &str),
}

/// A regular file at the path, of somebody who may do with it what an owner may.
pub(crate) fn file(g: &mut TestContext, path: &str) {
    g.make_for(Kind::Regular, path, NOBODY.uid);
}

pub(crate) fn nothing(_: &mut TestContext, _: &str) {}

/// Longest name, in bytes.
const NAME_MAX: usize = 255;
/// Longest path, in bytes, without the zero byte at its end.
const PATH_MAX: usize = 4095;

/// A component of the path is a file: ENOTDIR.
pub(crate) fn through_files(g: &mut TestContext, uses: &[PathCall]) {
    g.make(Kind::Dir, "dir");
    for kind in FILES {
        g.make(kind, "dir/file");
        for used in uses {
            g.fails(Errno::ENOTDIR, (used.call)("dir/file/test".into()));
        }
        g.remove(kind, "dir/file");
    }
    g.remove(Kind::Dir, "dir");
}

fn longest(g: &mut TestContext, uses: &[PathCall], path: &str) {
    let longer = format!("{path}x");
    for used in uses {
        (used.prepare)(g, path);
        g.ok((used.call)(path.into()));
        (used.settle)(g, path);
        (used.prepare)(g, "short");
        g.fails(Errno::ENAMETOOLONG, (used.call)((&longer).into()));
        g.ok((used.call)("short".into()));
        (used.settle)(g, "short");
    }
}

/// The longest name is good, a longer one is ENAMETOOLONG.
pub(crate) fn long_names(g: &mut TestContext, uses: &[PathCall]) {
    longest(g, uses, &"n".repeat(NAME_MAX));
}

/// The longest path is good, a longer one is ENAMETOOLONG.
pub(crate) fn long_paths(g: &mut TestContext, uses: &[PathCall]) {
    let component = format!("{}/", "p".repeat(NAME_MAX / 2));
    let mut path = component.repeat(PATH_MAX / component.len());
    let directory = path.clone();
    path.push_str(&"f".repeat(PATH_MAX - path.len()));
    fs::create_dir_all(&directory).expect("directories below one another");
    longest(g, uses, &path);
    fs::remove_dir_all(&directory[..component.len() - 1]).expect("they can be removed");
}

/// A component of the path is missing: ENOENT.
pub(crate) fn missing_prefix(g: &mut TestContext, uses: &[PathCall]) {
    g.make(Kind::Dir, "dir");
    for used in uses {
        g.fails(Errno::ENOENT, (used.call)("dir/missing/test".into()));
    }
    g.remove(Kind::Dir, "dir");
}

/// What the call is to work on is missing, or is a symbolic link to what is missing: ENOENT.
pub(crate) fn missing(g: &mut TestContext, uses: &[PathCall]) {
    missing_prefix(g, uses);
    g.make(Kind::Dir, "dir");
    for used in uses {
        (used.prepare)(g, "gone");
        g.ok(unlink("gone").or_else(|_| Kind::Dir.remove("gone")));
        g.fails(Errno::ENOENT, (used.call)("gone".into()));
        g.fails(Errno::ENOENT, (used.call)("dir/never".into()));
    }
    g.remove(Kind::Dir, "dir");
}

/// A symbolic link to nothing: ENOENT for calls that follow it.
pub(crate) fn dangling(g: &mut TestContext, uses: &[PathCall]) {
    g.ok(symlink("nowhere", "link"));
    for used in uses {
        g.fails(Errno::ENOENT, (used.call)("link".into()));
    }
    g.remove(Kind::Symlink, "link");
}

/// A directory on the way that may not be searched, or not be written to: EACCES. With the right again it works.
fn behind(g: &mut TestContext, uses: &[PathCall], mode: u32) {
    g.ok(mkdir("dir", 0o755));
    g.ok(lchown("dir", NOBODY.uid, NOBODY.uid));
    for used in uses {
        let pass = |g: &mut TestContext| {
            (used.prepare)(g, "dir/name");
            g.ok(NOBODY.does(|| (used.call)("dir/name".into())));
            (used.settle)(g, "dir/name");
        };
        pass(g);
        (used.prepare)(g, "dir/name");
        g.ok(chmod("dir", mode));
        g.fails(Errno::EACCES, NOBODY.does(|| (used.call)("dir/name".into())));
        g.ok(chmod("dir", 0o755));
        g.ok(NOBODY.does(|| (used.call)("dir/name".into())));
        (used.settle)(g, "dir/name");
        pass(g);
    }
    g.remove(Kind::Dir, "dir");
}

/// No search permission on the way: EACCES.
pub(crate) fn unsearchable(g: &mut TestContext, uses: &[PathCall]) {
    behind(g, uses, 0o644);
}

/// No write permission where the name is: EACCES.
pub(crate) fn unwritable(g: &mut TestContext, uses: &[PathCall]) {
    behind(g, uses, 0o555);
}

/// Two symbolic links that are one another's targets, on the way: ELOOP.
pub(crate) fn loops(g: &mut TestContext, uses: &[PathCall]) {
    g.ok(symlink("a", "b"));
    g.ok(symlink("b", "a"));
    for used in uses {
        g.fails(Errno::ELOOP, (used.call)("a/test".into()));
        g.fails(Errno::ELOOP, (used.call)("b/test".into()));
    }
    g.remove(Kind::Symlink, "a");
    g.remove(Kind::Symlink, "b");
}

/// The same at the end of the path, for calls that follow it.
pub(crate) fn loops_at_end(g: &mut TestContext, uses: &[PathCall]) {
    loops(g, uses);
    g.ok(symlink("a", "b"));
    g.ok(symlink("b", "a"));
    for used in uses {
        g.fails(Errno::ELOOP, (used.call)("a".into()));
        g.fails(Errno::ELOOP, (used.call)("b".into()));
    }
    g.remove(Kind::Symlink, "a");
    g.remove(Kind::Symlink, "b");
}

/// Addresses that are not this process's: nothing at all, and far out.
pub(crate) const ADDRESSES: [PathArg<'static>; 2] = [PathArg::Address(0), PathArg::Address(0xdead_c0de)];

/// A path that is not in the process's memory: EFAULT.
pub(crate) fn outside_memory(g: &mut TestContext, uses: &[PathCall]) {
    for used in uses {
        for address in ADDRESSES {
            g.fails(Errno::EFAULT, (used.call)(address));
        }
    }
}

/// The name is taken, by whatever: EEXIST.
pub(crate) fn taken(g: &mut TestContext, uses: &[PathCall]) {
    for kind in ALL {
        g.make(kind, "taken");
        for used in uses {
            g.fails(Errno::EEXIST, (used.call)("taken".into()));
        }
        g.remove(kind, "taken");
    }
}

/// A mount below the case's directory, as long as it lives.
pub(crate) struct Mounted(PathBuf);

fn absolute(path: &str) -> PathBuf {
    std::env::current_dir().expect("a working directory").join(path)
}

impl Mounted {
    /// Another file system, empty, in memory.
    pub(crate) fn other(path: &str) -> Mounted {
        let dir = absolute(path);
        mount(Some("none"), &dir, Some("tmpfs"), MsFlags::empty(), Some("size=16m")).expect("a tmpfs");
        Mounted(dir)
    }

    /// A directory as it is, but read-only.
    fn read_only(of: &str, path: &str) -> Mounted {
        let dir = absolute(path);
        let none = None::<&Path>;
        mount(Some(&absolute(of)), &dir, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .expect("a second view");
        let mounted = Mounted(dir);
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(none, &mounted.0, None::<&str>, flags, None::<&str>).expect("a read-only view");
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).expect("what was mounted is unmounted");
    }
}

/// Does something while `view` shows the directory `dir`, read-only.
pub(crate) fn viewed(act: impl FnOnce()) {
    let view = Mounted::read_only("dir", "view");
    act();
    drop(view);
}

/// The directory can only be read where the path leads: EROFS, and nothing has happened; where it is writable it works.
pub(crate) fn read_only(g: &mut TestContext, uses: &[PathCall]) {
    g.make(Kind::Dir, "dir");
    g.make(Kind::Dir, "view");
    for used in uses {
        (used.prepare)(g, "dir/name");
        let before = lstat("dir/name");
        viewed(|| g.fails(Errno::EROFS, (used.call)("view/name".into())));
        g.same(lstat("dir/name"), before);
        g.ok((used.call)("dir/name".into()));
        (used.settle)(g, "dir/name");
    }
    g.remove(Kind::Dir, "view");
    g.remove(Kind::Dir, "dir");
}

/// Two directories of different file systems: EXDEV, for a call that has one path in each.
pub(crate) fn across(g: &mut TestContext, call: fn(&str, &str) -> SysResult, kinds: &[Kind]) {
    g.make(Kind::Dir, "other");
    let other = Mounted::other("other");
    for kind in kinds {
        for (from, to) in [("other/a", "b"), ("b", "other/a")] {
            g.make(*kind, from);
            g.fails(Errno::EXDEV, call(from, to));
            g.remove(*kind, from);
        }
    }
    drop(other);
    g.remove(Kind::Dir, "other");
}

/// The program at the path runs: ETXTBSY.
pub(crate) fn running(g: &mut TestContext, uses: &[PathCall]) {
    fs::copy("/bin/sleep", "program").expect("a program");
    let mut program = std::process::Command::new("./program").arg("60").spawn().expect("it runs");
    for used in uses {
        g.fails(Errno::ETXTBSY, (used.call)("program".into()));
    }
    program.kill().expect("it runs");
    program.wait().expect("it has run");
    g.remove(Kind::Regular, "program");
}
