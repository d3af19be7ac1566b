//! `mkdir`, `mkfifo` and `mknod` make what they are told: modes, owners, times and errors are compared case by case.

use nix::errno::Errno;

use super::calls::{Kind, SysResult, chmod, chown, lstat, mkdir, mkfifo, mknod};
use super::context::{NOBODY, OTHER, TestContext, User, masked};
use super::paths::{self, PathCall};
use super::{Case, Tried};

const DIRS: [PathCall; 1] = [PathCall {
    call: |path| mkdir(path, 0o755),
    prepare: paths::nothing,
    settle: |g, path| settle(g, path, Kind::Dir, 0o755),
}];
const FIFOS: [PathCall; 1] = [PathCall {
    call: |path| mkfifo(path, 0o644),
    prepare: paths::nothing,
    settle: |g, path| settle(g, path, Kind::Fifo, 0o644),
}];
/// Devices are for root only: the first can be used by everybody.
const NODES: [PathCall; 3] = [
    PathCall {
        call: |path| mknod(path, Kind::Fifo, 0o644, (0, 0)),
        prepare: paths::nothing,
        settle: |g, path| settle(g, path, Kind::Fifo, 0o644),
    },
    PathCall {
        call: |path| mknod(path, Kind::Block, 0o644, (1, 2)),
        prepare: paths::nothing,
        settle: |g, path| settle(g, path, Kind::Block, 0o644),
    },
    PathCall {
        call: |path| mknod(path, Kind::Char, 0o644, (1, 2)),
        prepare: paths::nothing,
        settle: |g, path| settle(g, path, Kind::Char, 0o644),
    },
];

fn settle(g: &mut TestContext, path: &str, kind: Kind, mode: u32) {
    g.is(path, kind, mode);
    g.remove(kind, path);
}

pub(super) const CASES: &[Case] = &[
    Case { of: "mkdir/00", run: Tried(|g| made(g, Kind::Dir, |mode| mkdir("a", mode))) },
    Case { of: "mkdir/01", run: Tried(|g| paths::through_files(g, &DIRS)) },
    Case { of: "mkdir/02", run: Tried(|g| paths::long_names(g, &DIRS)) },
    Case { of: "mkdir/03", run: Tried(|g| paths::long_paths(g, &DIRS)) },
    Case { of: "mkdir/04", run: Tried(|g| paths::missing_prefix(g, &DIRS)) },
    Case { of: "mkdir/05", run: Tried(|g| paths::unsearchable(g, &DIRS)) },
    Case { of: "mkdir/06", run: Tried(|g| paths::unwritable(g, &DIRS)) },
    Case { of: "mkdir/07", run: Tried(|g| paths::loops(g, &DIRS)) },
    Case { of: "mkdir/08", run: super::FLAGS },
    Case { of: "mkdir/09", run: Tried(|g| paths::read_only(g, &DIRS)) },
    Case { of: "mkdir/10", run: Tried(|g| paths::taken(g, &DIRS)) },
    Case { of: "mkdir/11", run: super::FULL },
    Case { of: "mkdir/12", run: Tried(|g| paths::outside_memory(g, &DIRS)) },
    Case { of: "mkfifo/00", run: Tried(|g| made(g, Kind::Fifo, |mode| mkfifo("a", mode))) },
    Case { of: "mkfifo/01", run: Tried(|g| paths::through_files(g, &FIFOS)) },
    Case { of: "mkfifo/02", run: Tried(|g| paths::long_names(g, &FIFOS)) },
    Case { of: "mkfifo/03", run: Tried(|g| paths::long_paths(g, &FIFOS)) },
    Case { of: "mkfifo/04", run: Tried(|g| paths::missing_prefix(g, &FIFOS)) },
    Case { of: "mkfifo/05", run: Tried(|g| paths::unsearchable(g, &FIFOS)) },
    Case { of: "mkfifo/06", run: Tried(|g| paths::unwritable(g, &FIFOS)) },
    Case { of: "mkfifo/07", run: Tried(|g| paths::loops(g, &FIFOS)) },
    Case { of: "mkfifo/08", run: Tried(|g| paths::read_only(g, &FIFOS)) },
    Case { of: "mkfifo/09", run: Tried(|g| paths::taken(g, &FIFOS)) },
    Case { of: "mkfifo/10", run: super::FLAGS },
    Case { of: "mkfifo/11", run: super::FULL },
    Case { of: "mkfifo/12", run: Tried(|g| paths::outside_memory(g, &FIFOS)) },
    Case { of: "mknod/00", run: Tried(|g| made(g, Kind::Fifo, |mode| mknod("a", Kind::Fifo, mode, (0, 0)))) },
    Case { of: "mknod/01", run: Tried(|g| paths::through_files(g, &NODES)) },
    Case { of: "mknod/02", run: Tried(|g| paths::long_names(g, &NODES)) },
    Case { of: "mknod/03", run: Tried(|g| paths::long_paths(g, &NODES)) },
    Case { of: "mknod/04", run: Tried(|g| paths::missing_prefix(g, &NODES)) },
    Case { of: "mknod/05", run: Tried(|g| paths::unsearchable(g, &NODES[..1])) },
    Case { of: "mknod/06", run: Tried(|g| paths::unwritable(g, &NODES[..1])) },
    Case { of: "mknod/07", run: Tried(|g| paths::loops(g, &NODES)) },
    Case { of: "mknod/08", run: Tried(|g| paths::taken(g, &NODES)) },
    Case { of: "mknod/09", run: super::FLAGS },
    Case { of: "mknod/10", run: Tried(|g| paths::outside_memory(g, &NODES)) },
    Case { of: "mknod/11", run: Tried(devices) },
];

/// Permissions, owner and times of what a call makes at `a`.
pub(super) fn made(g: &mut TestContext, kind: Kind, make: impl Fn(u32) -> SysResult) {
    for (mask, asked, right) in [
        (0, 0o755, 0o755),
        (0, 0o151, 0o151),
        (0o077, 0o151, 0o100),
        (0o070, 0o345, 0o305),
        (0o501, 0o345, 0o244),
    ] {
        g.ok(masked(mask, || make(asked)));
        g.is("a", kind, right);
        g.remove(kind, "a");
    }
    // The group is the maker's, or the directory's.
    g.ok(chown(".", 65534, 65534));
    let in_another = User { uid: 65534, groups: &[65533] };
    for (user, mode) in [(NOBODY, 0o755), (in_another, 0o755), (OTHER, 0o777)] {
        g.ok(chmod(".", mode));
        g.ok(user.does(|| make(0o755)));
        g.either(lstat("a").map(|a| a.owner), &[Ok((user.uid, user.groups[0])), Ok((user.uid, 65534))]);
        g.remove(kind, "a");
    }
    g.ok(chown(".", 0, 0));
    g.ok(chmod(".", 0o755));
    g.dated("a", |g| g.ok(make(0o755)));
    g.remove(kind, "a");
}

fn devices(g: &mut TestContext) {
    for kind in [Kind::Char, Kind::Block] {
        for device in [(1, 2), (4095, 1_048_575), (0, 0)] {
            g.ok(mknod("a", kind, 0o755, device));
            g.sees(lstat("a").map(|a| (a.kind, a.mode, a.device)), (kind, 0o755, device));
            g.fails(Errno::EEXIST, mknod("a", kind, 0o777, (3, 4)));
            g.remove(kind, "a");
        }
        g.dated("a", |g| g.ok(mknod("a", kind, 0o755, (1, 2))));
        g.remove(kind, "a");
        g.ok(chmod(".", 0o777));
        g.fails(Errno::EPERM, NOBODY.does(|| mknod("a", kind, 0o755, (1, 2))));
        g.ok(chmod(".", 0o755));
    }
}
