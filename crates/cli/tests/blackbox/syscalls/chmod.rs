//! `chmod` changes permissions for those who may: bits, times and errors are compared for all kinds of files and users.

use std::io::Write;

use nix::errno::Errno;
use nix::libc;

use super::calls::{ENDS, FILES, Kind, chmod, chown, fstat, lstat, open, symlink};
use super::context::{NOBODY, OTHER, STRAY, TestContext, User};
use super::paths::{self, PathCall};
use super::{Case, Tried};

const USES: [PathCall; 1] = [PathCall {
    call: |path| chmod(path, 0o642),
    prepare: paths::file,
    settle: |g, path| {
        g.mode(path, 0o642);
        g.remove(Kind::Regular, path);
    },
}];

pub(super) const CASES: &[Case] = &[
    Case { of: "chmod/00", run: Tried(permissions) },
    Case { of: "chmod/01", run: Tried(|g| paths::through_files(g, &USES)) },
    Case { of: "chmod/02", run: Tried(|g| paths::long_names(g, &USES)) },
    Case { of: "chmod/03", run: Tried(|g| paths::long_paths(g, &USES)) },
    Case {
        of: "chmod/04",
        run: Tried(|g| {
            paths::missing(g, &USES);
            paths::dangling(g, &USES);
        }),
    },
    Case { of: "chmod/05", run: Tried(|g| paths::unsearchable(g, &USES)) },
    Case { of: "chmod/06", run: Tried(|g| paths::loops_at_end(g, &USES)) },
    Case { of: "chmod/07", run: Tried(only_owners) },
    Case { of: "chmod/08", run: super::FLAGS },
    Case { of: "chmod/09", run: Tried(|g| paths::read_only(g, &USES)) },
    Case { of: "chmod/10", run: Tried(|g| paths::outside_memory(g, &USES)) },
    Case { of: "chmod/11", run: Tried(sticky) },
    Case { of: "chmod/12", run: Tried(writing_clears) },
];

fn permissions(g: &mut TestContext) {
    for kind in ENDS {
        g.make(kind, "a");
        g.ok(chmod("a", 0o111));
        g.mode("a", 0o111);
        g.ok(symlink("a", "b"));
        let link = lstat("b").map(|a| a.mode);
        g.ok(chmod("b", 0o222));
        g.mode("b", 0o222);
        g.mode("a", 0o222);
        g.same(lstat("b").map(|a| a.mode), link);
        g.remove(Kind::Symlink, "b");
        g.changes("a", |g| g.ok(chmod("a", 0o111)));
        g.leaves("a", |g| g.fails(Errno::EPERM, STRAY.does(|| chmod("a", 0o222))));
        g.mode("a", 0o111);
        g.remove(kind, "a");
    }
    // The group's bit goes if the owner is not in the group.
    g.make_for(Kind::Regular, "a", NOBODY.uid);
    for (groups, asked, right) in
        [(&[65534][..], 0o2755, 0o2755), (&[65534], 0o755, 0o755), (&[65533], 0o2755, 0o755)]
    {
        g.ok(User { uid: NOBODY.uid, groups }.does(|| chmod("a", asked)));
        g.mode("a", right);
    }
    g.remove(Kind::Regular, "a");
}

fn only_owners(g: &mut TestContext) {
    g.make_for(Kind::Dir, "dir", NOBODY.uid);
    for through in ["dir/a", "dir/b"] {
        g.make_for(Kind::Regular, "dir/a", NOBODY.uid);
        g.ok(NOBODY.does(|| symlink("a", "dir/b")));
        g.ok(NOBODY.does(|| chmod(through, 0o642)));
        g.mode("dir/a", 0o642);
        g.fails(Errno::EPERM, OTHER.does(|| chmod(through, 0o641)));
        g.mode("dir/a", 0o642);
        g.owner("dir/a", (65534, 65534));
        g.ok(chown(through, 0, 0));
        g.fails(Errno::EPERM, NOBODY.does(|| chmod(through, 0o641)));
        g.mode("dir/a", 0o642);
        g.owner("dir/a", (0, 0));
        g.remove(Kind::Regular, "dir/a");
        g.remove(Kind::Symlink, "dir/b");
    }
    g.remove(Kind::Dir, "dir");
}

/// Linux lets every owner set the sticky bit, of files as of directories.
fn sticky(g: &mut TestContext) {
    for kind in ENDS {
        g.make(kind, "a");
        g.ok(chmod("a", 0o1621));
        g.mode("a", 0o1621);
        g.ok(symlink("a", "b"));
        g.ok(chmod("b", 0o1700));
        g.mode("a", 0o1700);
        g.remove(Kind::Symlink, "b");
        g.remove(kind, "a");
    }
    for kind in [&FILES[..], &[Kind::Dir]].concat() {
        g.make_for(kind, "a", NOBODY.uid);
        g.ok(chmod("a", 0o640));
        g.ok(symlink("a", "b"));
        g.ok(NOBODY.does(|| chmod("a", 0o1644)));
        g.mode("a", 0o1644);
        g.ok(NOBODY.does(|| chmod("b", 0o1640)));
        g.mode("a", 0o1640);
        g.remove(Kind::Symlink, "b");
        g.remove(kind, "a");
    }
}

/// Whoever writes to a file of somebody else takes its rights as that user or group away.
fn writing_clears(g: &mut TestContext) {
    for (mode, flags) in [(0o4777, libc::O_WRONLY), (0o2777, libc::O_RDWR), (0o6777, libc::O_RDWR)] {
        g.make(Kind::Regular, "a");
        g.ok(chmod("a", mode));
        NOBODY.does(|| {
            let file = open("a", flags, 0);
            g.holds(file.as_ref().is_ok_and(|mut file| file.write_all(b"x").is_ok()), "a write");
            g.sees(file.and_then(|file| fstat(&file)).map(|a| a.mode), 0o777);
        });
        g.mode("a", 0o777);
        g.remove(Kind::Regular, "a");
    }
}
