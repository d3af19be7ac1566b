//! `rmdir` and `unlink` remove a name and leave what is open: links, times and errors are compared case by case.

use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::libc::{O_CREAT, O_RDONLY, O_RDWR};

use super::calls::{
    ALL, FILES, Kind, LEAVES, SysResult, chmod, chown, fstat, link, lstat, mkdir, open, rmdir, unlink,
};
use super::context::{NOBODY, STRAY, TestContext};
use super::paths::{self, Mounted, PathCall};
use super::{Case, Tried};

const DIRS: [PathCall; 1] = [PathCall {
    call: |path| rmdir(path),
    prepare: |g, path| g.make_for(Kind::Dir, path, NOBODY.uid),
    settle: |g, path| {
        g.gone(path);
        g.fails(Errno::ENOENT, rmdir(path));
    },
}];
const NAMES: [PathCall; 1] = [PathCall {
    call: |path| unlink(path),
    prepare: paths::file,
    settle: |g, path| {
        g.gone(path);
        g.fails(Errno::ENOENT, unlink(path));
    },
}];

pub(super) const CASES: &[Case] = &[
    Case { of: "rmdir/00", run: Tried(directories) },
    Case { of: "rmdir/01", run: Tried(no_directories) },
    Case { of: "rmdir/02", run: Tried(|g| paths::long_names(g, &DIRS)) },
    Case { of: "rmdir/03", run: Tried(|g| paths::long_paths(g, &DIRS)) },
    Case { of: "rmdir/04", run: Tried(|g| paths::missing(g, &DIRS)) },
    Case { of: "rmdir/05", run: Tried(|g| paths::loops(g, &DIRS)) },
    Case { of: "rmdir/06", run: Tried(not_empty) },
    Case { of: "rmdir/07", run: Tried(|g| paths::unsearchable(g, &DIRS)) },
    Case { of: "rmdir/08", run: Tried(|g| paths::unwritable(g, &DIRS)) },
    Case { of: "rmdir/09", run: super::FLAGS },
    Case { of: "rmdir/10", run: super::FLAGS },
    Case { of: "rmdir/11", run: Tried(|g| sticky(g, &[Kind::Dir])) },
    Case { of: "rmdir/12", run: Tried(dots) },
    Case { of: "rmdir/13", run: Tried(mount_point) },
    Case { of: "rmdir/14", run: Tried(|g| paths::read_only(g, &DIRS)) },
    Case { of: "rmdir/15", run: Tried(|g| paths::outside_memory(g, &DIRS)) },
    Case { of: "unlink/00", run: Tried(names) },
    Case { of: "unlink/01", run: Tried(|g| paths::through_files(g, &NAMES)) },
    Case { of: "unlink/02", run: Tried(|g| paths::long_names(g, &NAMES)) },
    Case { of: "unlink/03", run: Tried(|g| paths::long_paths(g, &NAMES)) },
    Case { of: "unlink/04", run: Tried(|g| paths::missing(g, &NAMES)) },
    Case { of: "unlink/05", run: Tried(|g| paths::unsearchable(g, &NAMES)) },
    Case { of: "unlink/06", run: Tried(|g| paths::unwritable(g, &NAMES)) },
    Case { of: "unlink/07", run: Tried(|g| paths::loops(g, &NAMES)) },
    Case { of: "unlink/08", run: Tried(no_names) },
    Case { of: "unlink/09", run: super::FLAGS },
    Case { of: "unlink/10", run: super::FLAGS },
    Case { of: "unlink/11", run: Tried(|g| sticky(g, &LEAVES)) },
    Case { of: "unlink/12", run: Tried(|g| paths::read_only(g, &NAMES)) },
    Case { of: "unlink/13", run: Tried(|g| paths::outside_memory(g, &NAMES)) },
    Case { of: "unlink/14", run: Tried(open_files) },
];

fn directories(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.kind("a", Kind::Dir);
    g.make(Kind::Dir, "a/b");
    g.links("a", 3);
    g.modifies("a", |g| g.ok(rmdir("a/b")));
    g.gone("a/b");
    g.links("a", 2);
    g.ok(rmdir("a"));
    g.gone("a");
}

fn no_directories(g: &mut TestContext) {
    paths::through_files(g, &DIRS);
    for kind in LEAVES {
        g.make(kind, "a");
        g.fails(Errno::ENOTDIR, rmdir("a"));
        g.kind("a", kind);
        g.remove(kind, "a");
    }
}

fn not_empty(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    for kind in ALL {
        g.make(kind, "a/b");
        g.either(rmdir("a"), &[Err(Errno::EEXIST), Err(Errno::ENOTEMPTY)]);
        g.kind("a/b", kind);
        g.remove(kind, "a/b");
    }
    g.remove(Kind::Dir, "a");
}

/// In a sticky directory only its owner and the file's may remove a name.
fn sticky(g: &mut TestContext, kinds: &[Kind]) {
    g.make(Kind::Dir, "dir");
    g.ok(chmod("dir", 0o1777));
    for kind in kinds {
        for (of_dir, of_file, may) in [
            (65534, 65534, true),
            (65534, 0, true),
            (65534, 65533, true),
            (0, 65534, true),
            (65533, 65534, true),
            (0, 0, false),
            (65533, 65533, false),
            (65533, 0, false),
            (0, 65533, false),
        ] {
            g.ok(chown("dir", of_dir, of_dir));
            g.make_for(*kind, "dir/a", of_file);
            let is = |a: super::calls::Attr| (a.kind, a.owner);
            g.sees(lstat("dir/a").map(is), (*kind, (of_file, of_file)));
            let seen = NOBODY.does(|| kind.remove("dir/a"));
            if may {
                g.ok(seen);
                g.gone("dir/a");
            } else {
                g.either(seen, &[Err(Errno::EACCES), Err(Errno::EPERM)]);
                g.sees(lstat("dir/a").map(is), (*kind, (of_file, of_file)));
                g.remove(*kind, "dir/a");
            }
        }
    }
    g.remove(Kind::Dir, "dir");
}

fn dots(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.make(Kind::Dir, "a/b");
    g.fails(Errno::EINVAL, rmdir("a/b/."));
    g.either(rmdir("a/b/.."), &[Err(Errno::ENOTEMPTY), Err(Errno::EEXIST)]);
    g.remove(Kind::Dir, "a/b");
    g.remove(Kind::Dir, "a");
}

fn mount_point(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    let other = Mounted::other("a");
    g.fails(Errno::EBUSY, rmdir("a"));
    drop(other);
    g.remove(Kind::Dir, "a");
}

fn names(g: &mut TestContext) {
    for kind in LEAVES {
        g.make(kind, "a");
        g.kind("a", kind);
        g.ok(unlink("a"));
        g.gone("a");
        g.ok(mkdir("dir", 0o755));
        g.make(kind, "dir/a");
        g.modifies("dir", |g| g.ok(unlink("dir/a")));
        g.remove(Kind::Dir, "dir");
    }
    for kind in FILES {
        g.make(kind, "a");
        g.ok(link("a", "b"));
        g.changes("a", |g| g.ok(unlink("b")));
        g.links("a", 1);
        g.leaves("a", |g| g.fails(Errno::EACCES, STRAY.does(|| unlink("a"))));
        g.remove(kind, "a");
    }
}

/// POSIX has EPERM, Linux EISDIR.
fn no_names(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.either(unlink("a"), &[Err(Errno::EISDIR), Err(Errno::EPERM)]);
    g.kind("a", Kind::Dir);
    g.remove(Kind::Dir, "a");
}

fn unlinked(path: &str) -> SysResult<std::fs::File> {
    let file = open(path, O_CREAT | O_RDWR, 0o644)?;
    unlink(path)?;
    Ok(file)
}

fn open_files(g: &mut TestContext) {
    const WORDS: &[u8] = b"still there";
    let file = unlinked("a").expect("a file");
    g.sees(fstat(&file).map(|a| a.links), 0);
    g.holds(file.write_all_at(WORDS, 0).is_ok(), "a write");
    let mut found = vec![0; WORDS.len()];
    g.holds(file.read_exact_at(&mut found, 0).is_ok(), "a read");
    g.same(&found[..], WORDS);
    g.sees(fstat(&file).map(|a| (a.links, a.size)), (0, WORDS.len() as i64));
    g.fails(Errno::ENOENT, open("a", O_RDONLY, 0));
    // Written before the name went, by somebody else.
    std::fs::write("b", WORDS).expect("a file");
    let file = open("b", O_RDONLY, 0).expect("the file");
    g.ok(unlink("b"));
    g.sees(fstat(&file).map(|a| a.links), 0);
    g.holds(file.read_exact_at(&mut found, 0).is_ok(), "a read");
    g.same(&found[..], WORDS);
}
