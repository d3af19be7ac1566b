//! `utimensat` sets the times that it is told, for those who may: times and errors are compared to the nanosecond.

use nix::errno::Errno;
use nix::libc::AT_SYMLINK_NOFOLLOW;

use super::calls::{Attr, ENDS, Kind, NOW, OMIT, SysResult, chmod, chown, lstat, symlink, utimensat};
use super::context::{NOBODY, ROOT, STRAY, TestContext};
use super::{Absent, Case, Tried};

type Time = (i64, i64);

/// Some years from now, one after the other.
const LATER: [Time; 6] = [
    (1_900_000_000, 0),
    (1_950_000_000, 0),
    (1_960_000_000, 0),
    (1_970_000_000, 0),
    (1_980_000_000, 0),
    (1_990_000_000, 0),
];
/// Long ago, with tenths of seconds.
const EARLIER: [Time; 2] = [(100_000_000, 100_000_000), (200_000_000, 200_000_000)];

pub(super) const CASES: &[Case] = &[
    Case { of: "utimensat/00", run: Tried(every_kind) },
    Case { of: "utimensat/01", run: Tried(now) },
    Case { of: "utimensat/02", run: Tried(omitted) },
    Case { of: "utimensat/03", run: Absent("Linux has no call that sets the time of birth") },
    Case { of: "utimensat/04", run: Tried(either_first) },
    Case { of: "utimensat/05", run: Tried(links) },
    Case { of: "utimensat/06", run: Tried(who_may_say_now) },
    Case { of: "utimensat/07", run: Tried(who_may_say_when) },
    Case { of: "utimensat/08", run: Tried(fractions) },
    Case { of: "utimensat/09", run: Tried(centuries) },
];

fn times(path: &str) -> SysResult<(Time, Time)> {
    lstat(path).map(|a: Attr| (a.atime, a.mtime))
}

/// Sets both, and looks.
#[track_caller]
fn set(g: &mut TestContext, accessed: Time, modified: Time) {
    g.ok(utimensat("a", accessed, modified, 0));
    g.sees(times("a"), (accessed, modified));
}

fn every_kind(g: &mut TestContext) {
    for kind in ENDS {
        g.make(kind, "a");
        g.changes("a", |g| set(g, LATER[0], LATER[1]));
        g.remove(kind, "a");
    }
}

fn now(g: &mut TestContext) {
    const SOON: i64 = 300;
    g.make(Kind::Regular, "a");
    let before = times("a");
    std::thread::sleep(std::time::Duration::from_millis(25));
    g.ok(utimensat("a", NOW, NOW, 0));
    let (before, after) = (before.unwrap_or_default(), times("a").unwrap_or_default());
    for (before, after) in [(before.0, after.0), (before.1, after.1)] {
        g.holds(before < after, "the present is later than the past");
        g.holds(after.0 < before.0 + SOON, "the present is not the future");
    }
    g.remove(Kind::Regular, "a");
}

fn omitted(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    let modified = times("a").map(|a| a.1).unwrap_or_default();
    g.ok(utimensat("a", LATER[0], OMIT, 0));
    g.sees(times("a"), (LATER[0], modified));
    g.ok(utimensat("a", OMIT, LATER[1], 0));
    g.sees(times("a"), (LATER[0], LATER[1]));
    g.ok(utimensat("a", OMIT, OMIT, 0));
    g.sees(times("a"), (LATER[0], LATER[1]));
    g.remove(Kind::Regular, "a");
}

fn either_first(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    set(g, EARLIER[0], EARLIER[1]);
    set(g, EARLIER[1], EARLIER[0]);
    g.remove(Kind::Regular, "a");
}

fn links(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    g.ok(symlink("a", "b"));
    set(g, LATER[0], LATER[1]);
    g.ok(utimensat("b", LATER[2], LATER[3], AT_SYMLINK_NOFOLLOW));
    g.sees(times("a"), (LATER[0], LATER[1]));
    g.sees(times("b"), (LATER[2], LATER[3]));
    g.ok(utimensat("b", LATER[4], LATER[5], 0));
    g.sees(times("a"), (LATER[4], LATER[5]));
    // To follow the link may have been an access to it.
    g.holds(times("b").map(|a| a.0) != Ok(LATER[4]), "the link's own time of access is not its target's");
    g.sees(times("b").map(|a| a.1), LATER[3]);
    g.remove(Kind::Symlink, "b");
    g.remove(Kind::Regular, "a");
}

/// Whoever may write.
fn who_may_say_now(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    let say = || utimensat("a", NOW, NOW, 0);
    for user in [NOBODY, STRAY] {
        g.fails(Errno::EACCES, user.does(say));
    }
    g.ok(chown("a", 65534, 65534));
    g.ok(chmod("a", 0o444));
    for user in [NOBODY, STRAY, ROOT] {
        g.ok(user.does(say));
        g.ok(user.does(|| utimensat("a", OMIT, OMIT, 0)));
    }
    g.ok(chown("a", 0, 0));
    g.ok(chmod("a", 0o666));
    for user in [NOBODY, STRAY] {
        g.ok(user.does(say));
    }
    g.remove(Kind::Regular, "a");
}

/// Owners only, and root.
fn who_may_say_when(g: &mut TestContext) {
    let choices = [(OMIT, LATER[1]), (LATER[0], OMIT), (LATER[0], LATER[1])];
    g.make(Kind::Regular, "a");
    for mode in [0o644, 0o666] {
        g.ok(chmod("a", mode));
        let before = times("a");
        for user in [NOBODY, STRAY] {
            for (accessed, modified) in choices {
                g.fails(Errno::EPERM, user.does(|| utimensat("a", accessed, modified, 0)));
            }
        }
        g.same(times("a"), before);
    }
    g.ok(chown("a", 65534, 65534));
    g.ok(chmod("a", 0o444));
    for user in [NOBODY, STRAY, ROOT] {
        for (accessed, modified) in choices {
            g.ok(user.does(|| utimensat("a", accessed, modified, 0)));
        }
        g.sees(times("a"), (LATER[0], LATER[1]));
    }
    g.remove(Kind::Regular, "a");
}

fn fractions(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    set(g, EARLIER[0], EARLIER[1]);
    set(g, (EARLIER[0].0, 123_456_789), (EARLIER[1].0, 999_999_999));
    g.remove(Kind::Regular, "a");
}

/// Beyond the 31 and 32 bits that counts of seconds once had.
fn centuries(g: &mut TestContext) {
    g.make(Kind::Regular, "a");
    set(g, (1 << 31, 0), (1 << 32, 0));
    set(g, (1 << 33, 0), (0, 0));
    g.remove(Kind::Regular, "a");
}
