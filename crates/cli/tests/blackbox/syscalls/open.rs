//! `open` makes, opens and refuses as Linux says, and `posix_fallocate` adds what it should: answers and attributes are
//! compared case by case.

use std::io::Write;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::libc::{
    LOCK_EX, LOCK_NB, LOCK_SH, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY,
};

use super::calls::{Kind, SysResult, chmod, flock, fstat, lstat, open, posix_fallocate, symlink, unlink};
use super::context::{NOBODY, OTHER, ROOT, STRAY, TestContext, User};
use super::paths::{self, PathCall};
use super::{Case, Tried};

/// What is there, and what is made.
const USES: [PathCall; 2] = [
    PathCall {
        call: |path| open(path, O_RDONLY, 0).map(drop),
        prepare: paths::file,
        settle: |g, path| g.remove(Kind::Regular, path),
    },
    PathCall {
        call: |path| open(path, O_CREAT, 0o620).map(drop),
        prepare: paths::nothing,
        settle: |g, path| {
            g.is(path, Kind::Regular, 0o620);
            g.remove(Kind::Regular, path);
        },
    },
];
/// In ways that change the file.
const CHANGES: [PathCall; 3] = [
    PathCall { call: |path| open(path, O_WRONLY, 0).map(drop), prepare: paths::file, settle: USES[0].settle },
    PathCall { call: |path| open(path, O_RDWR, 0).map(drop), prepare: paths::file, settle: USES[0].settle },
    PathCall {
        call: |path| open(path, O_RDONLY | O_TRUNC, 0).map(drop),
        prepare: paths::file,
        settle: USES[0].settle,
    },
];
const CREATES: [PathCall; 1] =
    [PathCall { call: |path| open(path, O_CREAT | O_EXCL, 0o644).map(drop), ..USES[1] }];

pub(super) const CASES: &[Case] = &[
    Case { of: "open/00", run: Tried(creates) },
    Case { of: "open/01", run: Tried(|g| paths::through_files(g, &USES)) },
    Case { of: "open/02", run: Tried(|g| paths::long_names(g, &USES)) },
    Case { of: "open/03", run: Tried(|g| paths::long_paths(g, &USES)) },
    Case {
        of: "open/04",
        run: Tried(|g| {
            paths::missing_prefix(g, &USES);
            paths::missing(g, &USES[..1]);
            paths::dangling(g, &USES[..1]);
        }),
    },
    Case { of: "open/05", run: Tried(|g| paths::unsearchable(g, &USES)) },
    Case { of: "open/06", run: Tried(permissions) },
    Case { of: "open/07", run: Tried(cutting_is_writing) },
    Case { of: "open/08", run: Tried(|g| paths::unwritable(g, &USES[1..])) },
    Case { of: "open/09", run: super::FLAGS },
    Case { of: "open/10", run: super::FLAGS },
    Case { of: "open/11", run: super::FLAGS },
    Case {
        of: "open/12",
        run: Tried(|g| {
            paths::loops(g, &USES);
            paths::loops_at_end(g, &USES[..1]);
        }),
    },
    Case { of: "open/13", run: Tried(directories) },
    Case { of: "open/14", run: Tried(|g| paths::read_only(g, &CHANGES)) },
    Case { of: "open/15", run: Tried(|g| paths::read_only(g, &USES[1..])) },
    Case { of: "open/16", run: Tried(links) },
    Case { of: "open/17", run: Tried(fifo_without_reader) },
    Case { of: "open/18", run: Tried(locks) },
    Case { of: "open/19", run: super::FULL },
    Case { of: "open/20", run: Tried(|g| paths::running(g, &CHANGES)) },
    Case { of: "open/21", run: Tried(|g| paths::outside_memory(g, &USES)) },
    Case { of: "open/22", run: Tried(|g| paths::taken(g, &CREATES)) },
    Case { of: "open/23", run: Tried(odd_modes) },
    Case { of: "open/24", run: Tried(sockets) },
    Case { of: "open/25", run: Tried(beyond_two_gigabytes) },
    Case { of: "open/26", run: Tried(without_permissions) },
    Case { of: "posix_fallocate/00", run: Tried(allocates) },
];

fn creates(g: &mut TestContext) {
    super::make::made(g, Kind::Regular, |mode| open("a", O_CREAT | O_WRONLY, mode).map(drop));
    g.make(Kind::Regular, "a");
    g.keeps(".", |g| g.ok(open("a", O_CREAT | O_RDONLY, 0o644)));
    write(g, "a", b"test\n");
    g.size("a", 5);
    g.modifies("a", |g| g.ok(open("a", O_WRONLY | O_TRUNC, 0)));
    g.size("a", 0);
    g.remove(Kind::Regular, "a");
}

#[track_caller]
fn write(g: &mut TestContext, path: &str, bytes: &[u8]) {
    let written = open(path, O_WRONLY, 0).map(|mut file| file.write_all(bytes).is_ok());
    g.sees(written, true);
}

/// For owner, group and others alone: the three bits decide, those of the others do not matter.
fn permissions(g: &mut TestContext) {
    let in_group = User { uid: 65533, groups: &[65534] };
    for kind in [Kind::Regular, Kind::Fifo, Kind::Dir] {
        g.make_for(kind, "a", NOBODY.uid);
        for (user, shift) in [(NOBODY, 6), (in_group, 3), (OTHER, 0)] {
            for bits in 0..8 {
                for rest in [0, 0o777] {
                    let mode = rest & !(7 << shift) | bits << shift;
                    g.ok(NOBODY.does(|| chmod("a", mode)));
                    may_open(g, kind, user, bits);
                }
            }
        }
        g.remove(kind, "a");
    }
}

fn may_open(g: &mut TestContext, kind: Kind, user: User, bits: u32) {
    let (read, write) = (bits & 4 != 0, bits & 2 != 0);
    let wait = if kind == Kind::Fifo { O_NONBLOCK } else { 0 };
    let mut asks = |flags: i32, right: bool| {
        let seen = user.does(|| open("a", flags, 0));
        if right { g.ok(seen) } else { g.fails(Errno::EACCES, seen) }
    };
    asks(O_RDONLY | wait, read);
    if kind != Kind::Dir {
        asks(O_RDWR, read && write);
    }
    if kind == Kind::Regular {
        asks(O_WRONLY, write);
    }
    if kind == Kind::Fifo && !write {
        asks(O_WRONLY | wait, false);
    }
}

fn cutting_is_writing(g: &mut TestContext) {
    let in_group = User { uid: 65533, groups: &[65534] };
    g.make_for(Kind::Regular, "a", NOBODY.uid);
    write(g, "a", b"x");
    for (user, shift) in [(NOBODY, 6), (in_group, 3), (OTHER, 0)] {
        for bits in [4, 1, 0] {
            g.ok(NOBODY.does(|| chmod("a", 0o777 & !(7 << shift) | bits << shift)));
            g.fails(Errno::EACCES, user.does(|| open("a", O_RDONLY | O_TRUNC, 0)));
        }
    }
    g.size("a", 1);
    g.remove(Kind::Regular, "a");
}

fn directories(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.ok(open("a", O_RDONLY, 0));
    for flags in [O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC, O_RDWR | O_TRUNC] {
        g.fails(Errno::EISDIR, open("a", flags, 0));
    }
    g.remove(Kind::Dir, "a");
}

fn links(g: &mut TestContext) {
    g.ok(symlink("a", "b"));
    for flags in [O_RDONLY | O_CREAT, O_RDONLY, O_WRONLY, O_RDWR] {
        g.fails(Errno::ELOOP, open("b", flags | O_NOFOLLOW, 0o644));
    }
    g.gone("a");
    g.remove(Kind::Symlink, "b");
}

fn fifo_without_reader(g: &mut TestContext) {
    g.make(Kind::Fifo, "a");
    g.fails(Errno::ENXIO, open("a", O_WRONLY | O_NONBLOCK, 0));
    g.remove(Kind::Fifo, "a");
}

/// Linux has no locks among the flags of `open`: `flock` does it afterwards.
fn locks(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    for (first, second, right) in [
        (LOCK_SH, LOCK_SH, Ok(())),
        (LOCK_EX, LOCK_EX, Err(Errno::EAGAIN)),
        (LOCK_SH, LOCK_EX, Err(Errno::EAGAIN)),
        (LOCK_EX, LOCK_SH, Err(Errno::EAGAIN)),
    ] {
        let locked = |how: i32| open("a", O_RDONLY, 0).and_then(|file| flock(&file, how).map(|()| file));
        let holder = locked(first);
        g.same(locked(second | LOCK_NB).map(drop), right);
        drop(holder);
        // A child of another thread has the file as well, between its fork and its exec.
        let mut again = locked(second | LOCK_NB);
        for _ in 0..500 {
            if !matches!(again, Err(Errno::EAGAIN)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            again = locked(second | LOCK_NB);
        }
        g.ok(again);
    }
    g.remove(Kind::Regular, "a");
}

fn odd_modes(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    for flags in [O_RDONLY | O_RDWR, O_WRONLY | O_RDWR, O_RDONLY | O_WRONLY | O_RDWR] {
        g.either(open("a", flags, 0).map(drop), &[Ok(()), Err(Errno::EINVAL)]);
    }
    g.remove(Kind::Regular, "a");
}

fn sockets(g: &mut TestContext) {
    g.make(Kind::Socket, "a");
    for flags in [O_RDONLY, O_WRONLY, O_RDWR] {
        g.fails(Errno::ENXIO, open("a", flags, 0));
    }
    g.remove(Kind::Socket, "a");
}

fn beyond_two_gigabytes(g: &mut TestContext) {
    const FAR: u64 = (2 << 30) + 1;
    let file = open("a", O_CREAT | O_WRONLY, 0o755);
    g.sees(file.map(|file| file.write_all_at(b"a", FAR).is_ok()), true);
    g.sees(lstat("a").map(|a| a.size), FAR as i64 + 1);
    let mut byte = [0];
    let file = open("a", O_RDONLY, 0);
    g.sees(file.map(|file| file.read_exact_at(&mut byte, FAR).is_ok()), true);
    g.same(byte, *b"a");
    g.remove(Kind::Regular, "a");
}

fn without_permissions(g: &mut TestContext) {
    for flags in [O_WRONLY, O_RDWR, O_RDONLY] {
        g.ok(open("a", O_CREAT | flags, 0));
        g.is("a", Kind::Regular, 0);
        g.remove(Kind::Regular, "a");
    }
    g.ok(chmod(".", 0o777));
    for flags in [O_WRONLY, O_RDWR, O_RDONLY] {
        g.ok(NOBODY.does(|| open("a", O_CREAT | flags, 0)));
        g.is("a", Kind::Regular, 0);
        g.fails(Errno::EACCES, NOBODY.does(|| open("a", flags, 0)));
        g.remove(Kind::Regular, "a");
    }
}

/// Opens, allocates.
fn allocate(flags: i32, offset: i64, length: i64) -> SysResult {
    posix_fallocate(&open("a", flags, 0)?, offset, length)
}

fn allocates(g: &mut TestContext) {
    for (length, offset, more, right) in [(0, 0, 567, 567), (12345, 20000, 3456, 23456), (500, 100, 200, 500)]
    {
        let bytes: Vec<u8> = (1..=255).cycle().take(length).collect();
        g.make(Kind::Regular, "a");
        write(g, "a", &bytes);
        g.ok(allocate(O_RDWR, offset, more));
        g.size("a", right);
        let found = std::fs::read("a").unwrap_or_default();
        g.holds(found.starts_with(&bytes), "bytes that were there are there");
        g.holds(found.iter().skip(length).all(|byte| *byte == 0), "what is new is zeros");
        g.remove(Kind::Regular, "a");
    }
    g.make(Kind::Regular, "a");
    g.changes("a", |g| g.ok(allocate(O_RDWR, 0, 123)));
    g.leaves("a", |g| g.fails(Errno::EINVAL, allocate(O_WRONLY, 0, 0)));
    g.ok(unlink("a"));
    // What was opened for writing may be written, whatever the permissions say.
    g.ok(chmod(".", 0o777));
    for user in [ROOT, STRAY] {
        let made = user.does(|| {
            let file = open("a", O_CREAT | O_RDWR, 0)?;
            posix_fallocate(&file, 0, 1)?;
            fstat(&file)
        });
        g.sees(made.map(|a| (a.size, a.mode)), (1, 0));
        g.remove(Kind::Regular, "a");
    }
}
