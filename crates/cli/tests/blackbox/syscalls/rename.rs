//! `rename` moves and replaces only what it may: names, links, times and errors are compared for all kinds of files and
//! users.

use nix::errno::Errno;

use super::calls::{
    ALL, FILES, Kind, LEAVES, SysResult, chmod, chown, link, lstat, mkdir, rename, rmdir, stat, symlink,
    unlink,
};
use super::context::{NOBODY, OTHER, ROOT, STRAY, TestContext};
use super::paths::{self, ADDRESSES, PathCall};
use super::{Case, Tried};

/// The path is the old name, or the new one.
const USES: [PathCall; 2] = [
    PathCall {
        call: |path| rename(path, "beside"),
        prepare: paths::file,
        settle: |g, path| moved(g, path, "beside"),
    },
    PathCall {
        call: |path| rename("beside", path),
        prepare: |g, _| paths::file(g, "beside"),
        settle: |g, path| moved(g, "beside", path),
    },
];
/// The same with another directory that its user may write to.
const USES_ELSEWHERE: [PathCall; 2] = [
    PathCall {
        call: |path| rename(path, "to/name"),
        prepare: paths::file,
        settle: |g, path| moved(g, path, "to/name"),
    },
    PathCall {
        call: |path| rename("to/name", path),
        prepare: |g, _| paths::file(g, "to/name"),
        settle: |g, path| moved(g, "to/name", path),
    },
];
/// Both names in one directory.
const USES_WITHIN: [PathCall; 1] = [PathCall {
    call: |path| rename(path, "dir/to"),
    prepare: paths::file,
    settle: |g, path| moved(g, path, "dir/to"),
}];

fn moved(g: &mut TestContext, from: &str, to: &str) {
    g.gone(from);
    g.remove(Kind::Regular, to);
}

pub(super) const CASES: &[Case] = &[
    Case { of: "rename/00", run: Tried(renames) },
    Case { of: "rename/01", run: Tried(|g| paths::long_names(g, &USES)) },
    Case { of: "rename/02", run: Tried(|g| paths::long_paths(g, &USES)) },
    Case { of: "rename/03", run: Tried(missing) },
    Case { of: "rename/04", run: Tried(|g| elsewhere(g, paths::unsearchable)) },
    Case { of: "rename/05", run: Tried(|g| elsewhere(g, paths::unwritable)) },
    Case { of: "rename/06", run: super::FLAGS },
    Case { of: "rename/07", run: super::FLAGS },
    Case { of: "rename/08", run: super::FLAGS },
    Case { of: "rename/09", run: Tried(from_sticky) },
    Case { of: "rename/10", run: Tried(to_sticky) },
    Case { of: "rename/11", run: Tried(|g| with_another(g, paths::loops)) },
    Case { of: "rename/12", run: Tried(through_files) },
    Case { of: "rename/13", run: Tried(|g| mixed(g, |dir, file| (Errno::ENOTDIR, rename(dir, file)))) },
    Case { of: "rename/14", run: Tried(|g| mixed(g, |dir, file| (Errno::EISDIR, rename(file, dir)))) },
    Case { of: "rename/15", run: Tried(|g| paths::across(g, |from, to| rename(from, to), &ALL)) },
    Case { of: "rename/16", run: Tried(read_only) },
    Case { of: "rename/17", run: Tried(outside_memory) },
    Case { of: "rename/18", run: Tried(below_itself) },
    Case { of: "rename/19", run: Tried(dots) },
    Case { of: "rename/20", run: Tried(not_empty) },
    Case { of: "rename/21", run: Tried(moving_a_directory) },
    Case { of: "rename/22", run: Tried(change_time) },
    Case { of: "rename/23", run: Tried(over_one_of_several_names) },
    Case { of: "rename/24", run: Tried(parents) },
];

fn renames(g: &mut TestContext) {
    let seen = |path| lstat(path).map(|a| (a.kind, a.inode, a.mode));
    for kind in ALL {
        g.make(kind, "a");
        let before = seen("a");
        g.ok(rename("a", "b"));
        g.gone("a");
        g.same(seen("b"), before);
        if kind != Kind::Dir {
            g.links("b", 1);
            g.ok(link("b", "a"));
            g.ok(rename("b", "c"));
            for name in ["a", "c"] {
                g.same(seen(name), before);
                g.links(name, 2);
            }
            g.gone("b");
            // Two names of one file: nothing happens.
            g.ok(rename("a", "c"));
            g.links("a", 2);
            g.remove(kind, "a");
            g.ok(rename("c", "b"));
        }
        g.remove(kind, "b");
        g.make(kind, "a");
        if kind == Kind::Symlink {
            g.make(Kind::Regular, "test");
        }
        g.leaves("a", |g| g.fails(Errno::EACCES, STRAY.does(|| rename("a", "b"))));
        if kind == Kind::Symlink {
            g.remove(Kind::Regular, "test");
        }
        g.remove(kind, "a");
    }
    g.make(Kind::Regular, "a");
    g.ok(symlink("a", "b"));
    let (file, name) = (stat("b"), seen("b"));
    g.ok(rename("b", "c"));
    g.same(stat("a").map(|a| a.inode), file.map(|a| a.inode));
    g.gone("b");
    g.same(seen("c"), name);
    g.remove(Kind::Regular, "a");
    g.remove(Kind::Symlink, "c");
}

/// With a name that is there for the other end.
fn with_another(g: &mut TestContext, act: fn(&mut TestContext, &[PathCall])) {
    act(g, &USES[..1]);
    g.make(Kind::Regular, "beside");
    act(g, &USES[1..]);
    g.remove(Kind::Regular, "beside");
}

fn missing(g: &mut TestContext) {
    with_another(g, paths::missing_prefix);
    g.fails(Errno::ENOENT, rename("never", "beside"));
}

fn elsewhere(g: &mut TestContext, act: fn(&mut TestContext, &[PathCall])) {
    g.make_for(Kind::Dir, "to", NOBODY.uid);
    act(g, &USES_ELSEWHERE);
    g.remove(Kind::Dir, "to");
    act(g, &USES_WITHIN);
}

/// Who owns the sticky directory, and who the file in it, and whether nobody may move or replace that file.
const STICKY: [(u32, u32, bool); 7] = [
    (65534, 65534, true),
    (65534, 0, true),
    (65534, 65533, true),
    (0, 65534, true),
    (65533, 65534, true),
    (0, 0, false),
    (65533, 65533, false),
];

/// `sticky` and `free`, and nobody's business with them.
fn with_sticky(g: &mut TestContext, act: fn(&mut TestContext, (u32, u32, bool))) {
    g.make(Kind::Dir, "sticky");
    g.ok(chmod("sticky", 0o1777));
    g.make_for(Kind::Dir, "free", NOBODY.uid);
    for (of_dir, of_file, may) in STICKY {
        g.ok(chown("sticky", of_dir, of_dir));
        act(g, (of_dir, of_file, may));
    }
    g.remove(Kind::Dir, "free");
    g.remove(Kind::Dir, "sticky");
}

fn inode(path: &str) -> SysResult<u64> {
    lstat(path).map(|a| a.inode)
}

#[track_caller]
fn refused(g: &mut TestContext, seen: SysResult) {
    g.either(seen, &[Err(Errno::EACCES), Err(Errno::EPERM)]);
}

fn from_sticky(g: &mut TestContext) {
    with_sticky(g, |g, (_, of_file, may)| {
        for kind in LEAVES {
            g.make_for(kind, "sticky/a", of_file);
            for over in [None].into_iter().chain(LEAVES.map(Some)) {
                out_and_back(g, of_file, may, over);
            }
            g.remove(kind, "sticky/a");
        }
        directory_from_sticky(g, of_file, may);
    });
}

fn out_and_back(g: &mut TestContext, of_file: u32, may: bool, over: Option<Kind>) {
    let moved = inode("sticky/a");
    if let Some(over) = over {
        g.make_for(over, "free/b", NOBODY.uid);
    }
    if may {
        g.ok(NOBODY.does(|| rename("sticky/a", "free/b")));
        g.gone("sticky/a");
        g.inode("free/b", moved);
        g.owner("free/b", (of_file, of_file));
        g.ok(NOBODY.does(|| rename("free/b", "sticky/a")));
        g.inode("sticky/a", moved);
        g.gone("free/b");
    } else {
        refused(g, NOBODY.does(|| rename("sticky/a", "free/b")));
        g.inode("sticky/a", moved);
        g.owner("sticky/a", (of_file, of_file));
        if let Some(over) = over {
            g.owner("free/b", (65534, 65534));
            g.remove(over, "free/b");
        }
    }
}

/// Moving a directory changes its `..`: who does not own it may only rename it where it is.
fn directory_from_sticky(g: &mut TestContext, of_file: u32, may: bool) {
    for over in [false, true] {
        g.make_for(Kind::Dir, "sticky/a", of_file);
        let moved = inode("sticky/a");
        if over {
            g.ok(NOBODY.does(|| mkdir("free/b", 0o755)));
        }
        if may && of_file == NOBODY.uid {
            g.ok(NOBODY.does(|| rename("sticky/a", "free/b")));
            g.gone("sticky/a");
            g.inode("free/b", moved);
            g.owner("free/b", (of_file, of_file));
            g.remove(Kind::Dir, "free/b");
            continue;
        }
        refused(g, NOBODY.does(|| rename("sticky/a", "free/b")));
        g.inode("sticky/a", moved);
        g.owner("sticky/a", (of_file, of_file));
        if over {
            g.owner("free/b", (65534, 65534));
            g.remove(Kind::Dir, "free/b");
        }
        if may {
            if over {
                g.ok(NOBODY.does(|| mkdir("sticky/b", 0o755)));
            }
            g.ok(NOBODY.does(|| rename("sticky/a", "sticky/b")));
            g.gone("sticky/a");
            g.inode("sticky/b", moved);
            g.remove(Kind::Dir, "sticky/b");
        } else {
            g.remove(Kind::Dir, "sticky/a");
        }
    }
}

fn to_sticky(g: &mut TestContext) {
    with_sticky(g, |g, (_, of_file, may)| {
        for kind in LEAVES {
            g.make_for(kind, "free/a", NOBODY.uid);
            for over in LEAVES {
                in_and_back(g, of_file, may, over);
            }
            g.remove(kind, "free/a");
        }
        directory_to_sticky(g, of_file, may);
    });
}

fn in_and_back(g: &mut TestContext, of_file: u32, may: bool, over: Kind) {
    let moved = inode("free/a");
    g.make_for(over, "sticky/b", of_file);
    if may {
        g.ok(NOBODY.does(|| rename("free/a", "sticky/b")));
        g.gone("free/a");
        g.inode("sticky/b", moved);
        g.ok(NOBODY.does(|| rename("sticky/b", "free/a")));
        g.inode("free/a", moved);
        g.gone("sticky/b");
    } else {
        refused(g, NOBODY.does(|| rename("free/a", "sticky/b")));
        g.inode("free/a", moved);
        g.owner("sticky/b", (of_file, of_file));
        g.remove(over, "sticky/b");
    }
}

fn directory_to_sticky(g: &mut TestContext, of_file: u32, may: bool) {
    g.ok(NOBODY.does(|| mkdir("free/a", 0o755)));
    g.make_for(Kind::Dir, "sticky/b", of_file);
    let moved = inode("free/a");
    let seen = NOBODY.does(|| rename("free/a", "sticky/b"));
    if may {
        g.ok(seen);
        g.gone("free/a");
        g.inode("sticky/b", moved);
    } else {
        refused(g, seen);
        g.inode("free/a", moved);
        g.owner("sticky/b", (of_file, of_file));
        g.remove(Kind::Dir, "free/a");
    }
    g.remove(Kind::Dir, "sticky/b");
}

fn through_files(g: &mut TestContext) {
    g.make(Kind::Dir, "dir");
    for kind in FILES {
        g.make(kind, "dir/a");
        g.fails(Errno::ENOTDIR, rename("dir/a/test", "dir/b"));
        g.make(kind, "dir/b");
        g.fails(Errno::ENOTDIR, rename("dir/b", "dir/a/test"));
        g.kind("dir/b", kind);
        g.remove(kind, "dir/a");
        g.remove(kind, "dir/b");
    }
    g.remove(Kind::Dir, "dir");
}

/// A directory and something else, one over the other.
fn mixed(g: &mut TestContext, act: fn(&str, &str) -> (Errno, SysResult)) {
    g.make(Kind::Dir, "dir");
    for kind in LEAVES {
        g.make(kind, "a");
        let (right, seen) = act("dir", "a");
        g.fails(right, seen);
        g.kind("dir", Kind::Dir);
        g.kind("a", kind);
        g.remove(kind, "a");
    }
    g.remove(Kind::Dir, "dir");
}

fn read_only(g: &mut TestContext) {
    g.make(Kind::Dir, "dir");
    g.make(Kind::Dir, "view");
    g.make(Kind::Regular, "dir/a");
    g.make(Kind::Regular, "b");
    paths::viewed(|| {
        g.fails(Errno::EROFS, rename("view/a", "view/b"));
        for (from, to) in [("view/a", "c"), ("b", "view/b")] {
            // Another view of the same files is another mount.
            g.either(rename(from, to), &[Err(Errno::EROFS), Err(Errno::EXDEV)]);
        }
    });
    g.ok(rename("dir/a", "dir/b"));
    g.remove(Kind::Regular, "dir/b");
    g.remove(Kind::Regular, "b");
    g.remove(Kind::Dir, "view");
    g.remove(Kind::Dir, "dir");
}

fn outside_memory(g: &mut TestContext) {
    with_another(g, paths::outside_memory);
    for (from, to) in [(ADDRESSES[0], ADDRESSES[1]), (ADDRESSES[1], ADDRESSES[0])] {
        g.fails(Errno::EFAULT, rename(from, to));
    }
}

fn below_itself(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.make(Kind::Dir, "a/b");
    g.fails(Errno::EINVAL, rename("a", "a/b"));
    g.fails(Errno::EINVAL, rename("a", "a/b/c"));
    g.remove(Kind::Dir, "a/b");
    g.remove(Kind::Dir, "a");
}

fn dots(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.make(Kind::Dir, "a/b");
    for from in ["a/b/.", "a/b/.."] {
        g.either(rename(from, "c"), &[Err(Errno::EINVAL), Err(Errno::EBUSY)]);
    }
    g.remove(Kind::Dir, "a/b");
    g.remove(Kind::Dir, "a");
}

fn not_empty(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.make(Kind::Dir, "b");
    for kind in ALL {
        g.make(kind, "b/c");
        g.either(rename("a", "b"), &[Err(Errno::EEXIST), Err(Errno::ENOTEMPTY)]);
        g.kind("b/c", kind);
        g.remove(kind, "b/c");
    }
    g.remove(Kind::Dir, "b");
    g.remove(Kind::Dir, "a");
}

/// Who may write to both parents but not to a directory may move it or not; a file yes.
fn moving_a_directory(g: &mut TestContext) {
    for parent in ["from", "to"] {
        g.make(Kind::Dir, parent);
        g.ok(chmod(parent, 0o777));
    }
    g.ok(mkdir("from/a", 0o700));
    let mut at = "from/a";
    for to in ["from/b", "from/a", "to/b"] {
        let seen = NOBODY.does(|| rename(at, to));
        g.either(seen, &[Ok(()), Err(Errno::EACCES)]);
        if seen.is_ok() {
            g.gone(at);
            at = to;
        }
        g.kind(at, Kind::Dir);
    }
    g.ok(rmdir(at));
    g.make(Kind::Regular, "from/a");
    g.ok(NOBODY.does(|| rename("from/a", "to/b")));
    g.ok(unlink("to/b"));
    g.gone("from/a");
    g.remove(Kind::Dir, "from");
    g.remove(Kind::Dir, "to");
}

/// Both parents are modified; what is renamed has its time of the last change set, as local file systems do.
fn change_time(g: &mut TestContext) {
    for kind in ALL {
        g.make(Kind::Dir, "to");
        g.make(kind, "a");
        let before = lstat("a").map(|a| a.ctime);
        g.modifies(".", |g| g.modifies("to", |g| g.ok(rename("a", "to/b"))));
        g.later(before, lstat("to/b").map(|a| a.ctime));
        g.remove(kind, "to/b");
        g.remove(Kind::Dir, "to");
    }
}

fn over_one_of_several_names(g: &mut TestContext) {
    for kind in FILES {
        g.make(kind, "a");
        g.make(kind, "b");
        g.ok(link("b", "c"));
        g.changes("c", |g| g.ok(rename("a", "b")));
        g.kind("c", kind);
        g.links("c", 1);
        g.remove(kind, "b");
        g.remove(kind, "c");
    }
}

fn parents(g: &mut TestContext) {
    g.make(Kind::Dir, "from");
    g.make(Kind::Dir, "to");
    g.make(Kind::Dir, "from/a");
    let are = |g: &mut TestContext, from, to, child: &str, parent| {
        g.links("from", from);
        g.links("to", to);
        g.inode(&format!("{child}/.."), inode(parent));
    };
    are(g, 3, 2, "from/a", "from");
    g.ok(rename("from/a", "to/b"));
    are(g, 2, 3, "to/b", "to");
    g.ok(NOBODY.does(|| lstat("to/b")));
    g.fails(Errno::EACCES, OTHER.does(|| rename("to/b", "from/a")));
    g.ok(ROOT.does(|| rename("to/b", "from/b")));
    are(g, 3, 2, "from/b", "from");
    g.remove(Kind::Dir, "from/b");
    g.remove(Kind::Dir, "to");
    g.remove(Kind::Dir, "from");
}
