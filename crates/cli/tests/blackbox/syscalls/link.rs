//! `link` gives a file one more name: links, times and errors are compared for all kinds of files and users.

use nix::errno::Errno;

use super::calls::{ALL, FILES, Kind, SAME, chmod, chown, link, lstat, mkdir, rmdir, unlink};
use super::context::{NOBODY, STRAY, TestContext};
use super::paths::{self, ADDRESSES, PathCall};
use super::{Absent, Case, Tried};

/// The path is the name that there is, or the one that is to be.
const USES: [PathCall; 2] = [
    PathCall { call: |path| link(path, "beside"), prepare: paths::file, settle },
    PathCall { call: |path| link("beside", path), prepare: |g, _| paths::file(g, "beside"), settle },
];

fn settle(g: &mut TestContext, path: &str) {
    g.links(path, 2);
    g.same(lstat(path), lstat("beside"));
    g.remove(Kind::Regular, path);
    g.links("beside", 1);
    g.remove(Kind::Regular, "beside");
}

/// The same with both names in one directory that its user may write to.
const USES_WITHIN: [PathCall; 1] = [PathCall {
    call: |path| link("dir/from", path),
    prepare: |g, _| paths::file(g, "dir/from"),
    settle: |g, path| {
        g.links(path, 2);
        g.remove(Kind::Regular, path);
        g.remove(Kind::Regular, "dir/from");
    },
}];

/// The name that there is, seen from another directory that its user may write to.
const USES_FROM: [PathCall; 1] = [PathCall {
    call: |path| link(path, "to/name"),
    prepare: paths::file,
    settle: |g, path| {
        g.links(path, 2);
        g.remove(Kind::Regular, path);
        g.remove(Kind::Regular, "to/name");
    },
}];

/// The name that is to be, in another directory.
const USES_TO: [PathCall; 1] = [PathCall {
    call: |path| link("to/name", path),
    prepare: |g, _| paths::file(g, "to/name"),
    settle: |g, path| {
        g.links(path, 2);
        g.remove(Kind::Regular, path);
        g.remove(Kind::Regular, "to/name");
    },
}];

pub(super) const CASES: &[Case] = &[
    Case { of: "link/00", run: Tried(links) },
    Case { of: "link/01", run: Tried(through_files) },
    Case { of: "link/02", run: Tried(|g| paths::long_names(g, &USES)) },
    Case { of: "link/03", run: Tried(|g| paths::long_paths(g, &USES)) },
    Case { of: "link/04", run: Tried(through_nothing) },
    Case {
        of: "link/05",
        run: Absent("65,000 links take minutes; crates/meta/src/ops/tests.rs has the limit, and EMLINK"),
    },
    Case { of: "link/06", run: Tried(|g| from_elsewhere(g, paths::unsearchable)) },
    Case { of: "link/07", run: Tried(unwritable) },
    Case { of: "link/08", run: Tried(loops) },
    Case { of: "link/09", run: Tried(missing) },
    Case { of: "link/10", run: Tried(taken) },
    Case { of: "link/11", run: Tried(directories) },
    Case { of: "link/12", run: super::FLAGS },
    Case { of: "link/13", run: super::FLAGS },
    Case { of: "link/14", run: Tried(|g| paths::across(g, |from, to| link(from, to), &FILES)) },
    Case { of: "link/15", run: super::FULL },
    Case { of: "link/16", run: Tried(read_only) },
    Case { of: "link/17", run: Tried(outside_memory) },
];

fn links(g: &mut TestContext) {
    for kind in FILES {
        let is = |g: &mut TestContext, names: &[&str], mode, owner| {
            for name in ["a", "b", "c"] {
                if names.contains(&name) {
                    let seen = lstat(name).map(|a| (a.kind, a.mode, a.links, a.owner));
                    g.sees(seen, (kind, mode, names.len() as u64, owner));
                } else {
                    g.gone(name);
                }
            }
        };
        g.make(kind, "a");
        g.ok(chmod("a", 0o644));
        is(g, &["a"], 0o644, (0, 0));
        g.ok(link("a", "b"));
        is(g, &["a", "b"], 0o644, (0, 0));
        g.ok(link("b", "c"));
        is(g, &["a", "b", "c"], 0o644, (0, 0));
        g.ok(chmod("b", 0o201));
        g.ok(chown("b", 65534, 65533));
        is(g, &["a", "b", "c"], 0o201, (65534, 65533));
        for (gone, left) in [("a", &["b", "c"][..]), ("c", &["b"]), ("b", &[])] {
            g.ok(unlink(gone));
            is(g, left, 0o201, (65534, 65533));
        }
        g.make(kind, "a");
        g.modifies(".", |g| g.changes("a", |g| g.ok(link("a", "b"))));
        g.remove(kind, "b");
        g.ok(chown("a", 65534, SAME));
        g.keeps(".", |g| g.leaves("a", |g| g.fails(Errno::EACCES, STRAY.does(|| link("a", "b")))));
        g.remove(kind, "a");
    }
}

fn through_files(g: &mut TestContext) {
    g.make(Kind::Dir, "dir");
    for kind in FILES {
        g.make(kind, "dir/a");
        g.fails(Errno::ENOTDIR, link("dir/a/test", "dir/b"));
        g.make(kind, "dir/b");
        g.fails(Errno::ENOTDIR, link("dir/b", "dir/a/test"));
        g.remove(kind, "dir/a");
        g.remove(kind, "dir/b");
    }
    g.remove(Kind::Dir, "dir");
}

/// With a name that is there for the other end.
fn with_another(g: &mut TestContext, act: fn(&mut TestContext, &[PathCall])) {
    act(g, &USES[..1]);
    g.make(Kind::Regular, "beside");
    act(g, &USES[1..]);
    g.remove(Kind::Regular, "beside");
}

fn through_nothing(g: &mut TestContext) {
    with_another(g, paths::missing_prefix);
}

fn loops(g: &mut TestContext) {
    with_another(g, paths::loops);
}

fn from_elsewhere(g: &mut TestContext, act: fn(&mut TestContext, &[PathCall])) {
    g.make_for(Kind::Dir, "to", NOBODY.uid);
    act(g, &USES_FROM);
    act(g, &USES_TO);
    g.remove(Kind::Dir, "to");
    g.make_for(Kind::Dir, "dir", NOBODY.uid);
    g.make_for(Kind::Regular, "dir/a", NOBODY.uid);
    g.ok(chmod("dir", 0o644));
    g.fails(Errno::EACCES, NOBODY.does(|| link("dir/a", "dir/b")));
    g.ok(chmod("dir", 0o755));
    g.remove(Kind::Regular, "dir/a");
    g.remove(Kind::Dir, "dir");
}

fn unwritable(g: &mut TestContext) {
    g.make_for(Kind::Dir, "to", NOBODY.uid);
    paths::unwritable(g, &USES_TO);
    g.remove(Kind::Dir, "to");
    paths::unwritable(g, &USES_WITHIN);
}

fn missing(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    g.ok(link("a", "b"));
    g.remove(Kind::Regular, "a");
    g.remove(Kind::Regular, "b");
    g.fails(Errno::ENOENT, link("a", "b"));
    g.gone("b");
}

fn taken(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    for kind in ALL {
        g.make(kind, "b");
        g.fails(Errno::EEXIST, link("a", "b"));
        g.kind("b", kind);
        g.remove(kind, "b");
    }
    g.remove(Kind::Regular, "a");
}

fn directories(g: &mut TestContext) {
    g.make(Kind::Dir, "a");
    g.fails(Errno::EPERM, link("a", "b"));
    g.gone("b");
    g.ok(chown("a", 65534, 65534));
    g.ok(NOBODY.does(|| mkdir("a/c", 0o755)));
    g.fails(Errno::EPERM, NOBODY.does(|| link("a/c", "a/d")));
    g.ok(NOBODY.does(|| rmdir("a/c")));
    g.remove(Kind::Dir, "a");
}

fn read_only(g: &mut TestContext) {
    g.make(Kind::Dir, "dir");
    g.make(Kind::Dir, "view");
    paths::file(g, "dir/name");
    paths::viewed(|| g.fails(Errno::EROFS, link("view/name", "view/other")));
    g.ok(link("dir/name", "dir/other"));
    g.links("dir/name", 2);
    g.remove(Kind::Regular, "dir/other");
    g.remove(Kind::Regular, "dir/name");
    g.remove(Kind::Dir, "view");
    g.remove(Kind::Dir, "dir");
}

fn outside_memory(g: &mut TestContext) {
    with_another(g, paths::outside_memory);
    for (from, to) in [(ADDRESSES[0], ADDRESSES[1]), (ADDRESSES[1], ADDRESSES[0])] {
        g.fails(Errno::EFAULT, link(from, to));
    }
}
