//! `symlink` makes a name that stands for another: what it shows and what it refuses is compared case by case.

use nix::errno::Errno;

use super::calls::{Kind, lstat, open, stat, symlink};
use super::context::TestContext;
use super::paths::{self, ADDRESSES, PathCall};
use super::{Case, Tried};

const USES: [PathCall; 1] = [PathCall {
    call: |path| symlink("test", path),
    prepare: paths::nothing,
    settle: |g, path| {
        g.kind(path, Kind::Symlink);
        g.remove(Kind::Symlink, path);
    },
}];

pub(super) const CASES: &[Case] = &[
    Case { of: "symlink/00", run: Tried(links) },
    Case { of: "symlink/01", run: Tried(|g| paths::through_files(g, &USES)) },
    Case { of: "symlink/02", run: Tried(|g| targets(g, 255, &[256], paths::long_names)) },
    Case { of: "symlink/03", run: Tried(|g| targets(g, 4095, &[], paths::long_paths)) },
    Case { of: "symlink/04", run: Tried(|g| paths::missing_prefix(g, &USES)) },
    Case { of: "symlink/05", run: Tried(|g| paths::unsearchable(g, &USES)) },
    Case { of: "symlink/06", run: Tried(|g| paths::unwritable(g, &USES)) },
    Case { of: "symlink/07", run: Tried(|g| paths::loops(g, &USES)) },
    Case { of: "symlink/08", run: Tried(|g| paths::taken(g, &USES)) },
    Case { of: "symlink/09", run: super::FLAGS },
    Case { of: "symlink/10", run: Tried(|g| paths::read_only(g, &USES)) },
    Case { of: "symlink/11", run: super::FULL },
    Case { of: "symlink/12", run: Tried(outside_memory) },
];

fn links(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    g.is("a", Kind::Regular, 0o644);
    g.ok(symlink("a", "b"));
    g.kind("b", Kind::Symlink);
    g.same(stat("b"), lstat("a"));
    g.sees(lstat("b").map(|a| a.size), 1);
    g.remove(Kind::Regular, "a");
    g.fails(Errno::ENOENT, stat("b"));
    g.remove(Kind::Symlink, "b");
    g.make(Kind::Dir, "dir");
    g.modifies("dir", |g| g.ok(symlink("test", "dir/a")));
    g.remove(Kind::Symlink, "dir/a");
    g.remove(Kind::Dir, "dir");
}

/// Targets may be as long as a path, whatever is in them; the name of the link is subject to `act`.
fn targets(g: &mut TestContext, longest: usize, more: &[usize], act: fn(&mut TestContext, &[PathCall])) {
    for len in [&[longest], more].concat() {
        let target = "t".repeat(len);
        g.ok(symlink(&target, "a"));
        g.same(std::fs::read_link("a").ok(), Some(target.into()));
        g.sees(lstat("a").map(|a| a.size), len as i64);
        g.remove(Kind::Symlink, "a");
    }
    g.fails(Errno::ENAMETOOLONG, symlink(&"t".repeat(4096), "a"));
    g.fails(Errno::ENOENT, symlink("", "a"));
    g.gone("a");
    act(g, &USES);
}

fn outside_memory(g: &mut TestContext) {
    paths::outside_memory(g, &USES);
    paths::outside_memory(g, &[PathCall { call: |target| symlink(target, "a"), ..USES[0] }]);
    for (target, path) in [(ADDRESSES[0], ADDRESSES[1]), (ADDRESSES[1], ADDRESSES[0])] {
        g.fails(Errno::EFAULT, symlink(target, path));
    }
    g.fails(Errno::ENOENT, open("a", 0, 0));
}
