//! `chown` and `lchown` change owner and group for those who may: bits, times and errors are compared for all kinds of
//! files and users.

use nix::errno::Errno;

use super::calls::{ALL, ENDS, Kind, SAME, SysResult, chmod, chown, lchown, lstat, stat, symlink};
use super::context::{NOBODY, OTHER, STRAY, TestContext, User};
use super::paths::{self, PathCall};
use super::{Case, Tried};

const USES: [PathCall; 2] = [
    PathCall { call: |path| chown(path, SAME, 65534), prepare: for_nobody, settle },
    PathCall { call: |path| lchown(path, SAME, 65534), prepare: for_nobody, settle },
];

/// A file of nobody in the group of root.
fn for_nobody(g: &mut TestContext, path: &str) {
    g.make(Kind::Regular, path);
    g.ok(chown(path, 65534, 0));
}

fn settle(g: &mut TestContext, path: &str) {
    g.owner(path, (65534, 65534));
    g.remove(Kind::Regular, path);
}

pub(super) const CASES: &[Case] = &[
    Case { of: "chown/00", run: Tried(ownership) },
    Case { of: "chown/01", run: Tried(|g| paths::through_files(g, &USES)) },
    Case { of: "chown/02", run: Tried(|g| paths::long_names(g, &USES)) },
    Case { of: "chown/03", run: Tried(|g| paths::long_paths(g, &USES)) },
    Case {
        of: "chown/04",
        run: Tried(|g| {
            paths::missing(g, &USES);
            paths::dangling(g, &USES[..1]);
        }),
    },
    Case { of: "chown/05", run: Tried(|g| paths::unsearchable(g, &USES)) },
    Case {
        of: "chown/06",
        run: Tried(|g| {
            paths::loops(g, &USES);
            paths::loops_at_end(g, &USES[..1]);
        }),
    },
    Case { of: "chown/07", run: Tried(only_owners) },
    Case { of: "chown/08", run: super::FLAGS },
    Case { of: "chown/09", run: Tried(|g| paths::read_only(g, &USES)) },
    Case { of: "chown/10", run: Tried(|g| paths::outside_memory(g, &USES)) },
];

/// How a file is reached: by itself or through a link, and which call is made.
struct Way {
    path: &'static str,
    call: fn(&str, u32, u32) -> SysResult,
    /// Whether it works on a symbolic link itself.
    itself: bool,
}

const WAYS: [Way; 3] = [
    Way { path: "a", call: |path, uid, gid| chown(path, uid, gid), itself: false },
    Way { path: "b", call: |path, uid, gid| chown(path, uid, gid), itself: false },
    Way { path: "a", call: |path, uid, gid| lchown(path, uid, gid), itself: true },
];

/// Tries every kind in every way: `b` is a symbolic link to `a` throughout, and never changes.
fn everywhere(g: &mut TestContext, mut act: impl FnMut(&mut TestContext, Kind, &Way)) {
    for kind in ALL {
        for way in WAYS.iter().filter(|way| way.itself || kind != Kind::Symlink) {
            g.make(kind, "a");
            g.ok(symlink("a", "b"));
            let link = lstat("b").map(|a| (a.owner, a.mode));
            act(g, kind, way);
            g.same(lstat("b").map(|a| (a.owner, a.mode)), link);
            g.remove(Kind::Symlink, "b");
            g.remove(kind, "a");
        }
    }
}

const MEMBER: User = User { uid: 65534, groups: &[65532, 65531] };

fn ownership(g: &mut TestContext) {
    // Root may do everything.
    everywhere(g, |g, _, way| {
        for owner in [(123, 456), (0, 0)] {
            g.ok((way.call)(way.path, owner.0, owner.1));
            g.owner("a", owner);
        }
    });
    // The owner may choose among the groups that it is in.
    everywhere(g, |g, _, way| {
        g.ok((way.call)(way.path, 65534, 65533));
        g.owner("a", (65534, 65533));
        for (uid, gid) in [(SAME, 65532), (65534, 65531)] {
            g.ok(MEMBER.does(|| (way.call)(way.path, uid, gid)));
            g.owner("a", (65534, gid));
        }
    });
    // To change nothing is everybody's right.
    everywhere(g, |g, _, way| {
        g.ok(NOBODY.does(|| (way.call)(way.path, SAME, SAME)));
        g.owner("a", (0, 0));
    });
    everywhere(g, as_somebody_else);
    everywhere(g, times);
}

/// What becomes of the bits that let a file run as its owner.
fn as_somebody_else(g: &mut TestContext, kind: Kind, way: &Way) {
    if kind == Kind::Symlink {
        return;
    }
    let seen = |path| stat(path).map(|a| (a.mode, a.owner));
    let armed = |g: &mut TestContext, owner: (u32, u32)| {
        g.ok(chmod(way.path, 0o6555));
        g.sees(seen("a"), (0o6555, owner));
    };
    g.ok((way.call)(way.path, 65534, 65533));
    // Root: they may go.
    let mut owner = (65534, 65533);
    for next in [(65532, 65531), (0, 0), (65534, 65533)] {
        armed(g, owner);
        g.ok((way.call)(way.path, next.0, next.1));
        g.either(seen(way.path), &[Ok((0o6555, next)), Ok((0o555, next))]);
        g.either(seen("a"), &[Ok((0o6555, next)), Ok((0o555, next))]);
        owner = next;
    }
    // Others: they must go, of what can be run. Linux leaves them with directories, where they mean something else.
    let right = if kind == Kind::Dir { 0o6555 } else { 0o555 };
    let user = User { uid: 65534, groups: &[65533, 65532] };
    for (uid, gid) in [(65534, 65532), (SAME, 65533)] {
        armed(g, owner);
        g.ok(user.does(|| (way.call)(way.path, uid, gid)));
        owner = (65534, gid);
        g.sees(seen(way.path), (right, owner));
        g.sees(seen("a"), (right, owner));
    }
    armed(g, owner);
    g.ok(user.does(|| (way.call)(way.path, SAME, SAME)));
    g.either(seen("a"), &[Ok((0o6555, owner)), Ok((0o555, owner))]);
}

/// The time of the last change goes with success. To change nothing may or may not be a change.
fn times(g: &mut TestContext, kind: Kind, way: &Way) {
    // Those of a symbolic link itself are asked for in another way.
    if kind == Kind::Symlink {
        return link_times(g);
    }
    g.leaves("a", |g| {
        g.fails(Errno::EPERM, STRAY.does(|| (way.call)(way.path, 65534, SAME)));
        g.fails(Errno::EPERM, NOBODY.does(|| (way.call)(way.path, SAME, 65534)));
        g.fails(Errno::EPERM, NOBODY.does(|| (way.call)(way.path, 65534, 65534)));
    });
    g.owner("a", (0, 0));
    g.changes("a", |g| g.ok((way.call)(way.path, 65534, 65533)));
    g.owner("a", (65534, 65533));
    let user = User { uid: 65534, groups: &[65532] };
    g.changes("a", |g| g.ok(user.does(|| (way.call)(way.path, 65534, 65532))));
    g.owner("a", (65534, 65532));
    g.ok((way.call)(way.path, SAME, SAME));
    g.owner("a", (65534, 65532));
}

fn link_times(g: &mut TestContext) {
    let ctime = || lstat("a").map(|a| a.ctime);
    let before = ctime();
    std::thread::sleep(std::time::Duration::from_millis(25));
    g.fails(Errno::EPERM, STRAY.does(|| lchown("a", 65534, SAME)));
    g.fails(Errno::EPERM, NOBODY.does(|| lchown("a", SAME, 65534)));
    g.fails(Errno::EPERM, NOBODY.does(|| lchown("a", 65534, 65534)));
    g.same(ctime(), before);
    g.owner("a", (0, 0));
    g.ok(lchown("a", 65534, 65533));
    g.later(before, ctime());
    g.owner("a", (65534, 65533));
}

fn only_owners(g: &mut TestContext) {
    for kind in ENDS {
        g.make_for(kind, "a", NOBODY.uid);
        g.ok(symlink("a", "b"));
        for way in &WAYS {
            refused(g, way);
        }
        g.remove(Kind::Symlink, "b");
        g.remove(kind, "a");
    }
    g.make_for(Kind::Symlink, "a", NOBODY.uid);
    refused(g, &WAYS[2]);
    g.remove(Kind::Symlink, "a");
}

fn refused(g: &mut TestContext, way: &Way) {
    for (user, uid, gid) in
        [(NOBODY, 65533, 65533), (OTHER, 65534, 65534), (OTHER, 65533, 65533), (NOBODY, SAME, 65533)]
    {
        g.fails(Errno::EPERM, user.does(|| (way.call)(way.path, uid, gid)));
    }
    g.owner("a", (65534, 65534));
}
