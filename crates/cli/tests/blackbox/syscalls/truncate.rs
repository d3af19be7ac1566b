//! `truncate` and `ftruncate` make a file shorter or longer, with zeros in what is new: sizes, bytes, times and errors
//! are compared.

use std::fs;

use nix::errno::Errno;
use nix::libc::{O_CREAT, O_RDONLY, O_RDWR, O_WRONLY};

use super::calls::{Kind, SysResult, chmod, chown, fstat, ftruncate, open, truncate};
use super::context::{NOBODY, ROOT, STRAY, TestContext};
use super::paths::{self, PathCall};
use super::{Case, Tried};

const USES: [PathCall; 1] = [PathCall { call: |path| truncate(path, 123), prepare: paths::file, settle }];
/// By what is open. The path is that of `open`.
const OPENED: [PathCall; 2] = [
    PathCall {
        call: |path| open(path, O_RDWR, 0).and_then(|file| ftruncate(&file, 123)),
        prepare: paths::file,
        settle,
    },
    PathCall {
        call: |path| open(path, O_WRONLY, 0).and_then(|file| ftruncate(&file, 123)),
        prepare: paths::file,
        settle,
    },
];

fn settle(g: &mut TestContext, path: &str) {
    g.size(path, 123);
    g.remove(Kind::Regular, path);
}

pub(super) const CASES: &[Case] = &[
    Case { of: "truncate/00", run: Tried(by_name) },
    Case { of: "truncate/01", run: Tried(|g| paths::through_files(g, &USES)) },
    Case { of: "truncate/02", run: Tried(|g| paths::long_names(g, &USES)) },
    Case { of: "truncate/03", run: Tried(|g| paths::long_paths(g, &USES)) },
    Case { of: "truncate/04", run: Tried(|g| paths::missing(g, &USES)) },
    Case { of: "truncate/05", run: Tried(|g| paths::unsearchable(g, &USES)) },
    Case { of: "truncate/06", run: Tried(|g| unwritable(g, &USES)) },
    Case { of: "truncate/07", run: Tried(|g| paths::loops_at_end(g, &USES)) },
    Case { of: "truncate/08", run: super::FLAGS },
    Case { of: "truncate/09", run: Tried(|g| directories(g, &USES)) },
    Case { of: "truncate/10", run: Tried(|g| paths::read_only(g, &USES)) },
    Case { of: "truncate/11", run: Tried(|g| paths::running(g, &USES)) },
    Case { of: "truncate/12", run: Tried(|g| longest(g, |length| truncate("a", length))) },
    Case { of: "truncate/13", run: Tried(|g| negative(g, |length| truncate("a", length))) },
    Case { of: "truncate/14", run: Tried(|g| paths::outside_memory(g, &USES)) },
    Case { of: "ftruncate/00", run: Tried(by_file) },
    Case { of: "ftruncate/01", run: Tried(|g| paths::through_files(g, &OPENED)) },
    Case { of: "ftruncate/02", run: Tried(|g| paths::long_names(g, &OPENED)) },
    Case { of: "ftruncate/03", run: Tried(|g| paths::long_paths(g, &OPENED)) },
    Case { of: "ftruncate/04", run: Tried(|g| paths::missing(g, &OPENED)) },
    Case { of: "ftruncate/05", run: Tried(|g| paths::unsearchable(g, &OPENED)) },
    Case { of: "ftruncate/06", run: Tried(|g| unwritable(g, &OPENED)) },
    Case { of: "ftruncate/07", run: Tried(|g| paths::loops_at_end(g, &OPENED)) },
    Case { of: "ftruncate/08", run: super::FLAGS },
    Case { of: "ftruncate/09", run: Tried(|g| directories(g, &OPENED)) },
    Case { of: "ftruncate/10", run: Tried(|g| paths::read_only(g, &OPENED)) },
    Case { of: "ftruncate/11", run: Tried(|g| paths::running(g, &OPENED)) },
    Case { of: "ftruncate/12", run: Tried(|g| longest(g, |length| by("a", O_RDWR, length))) },
    Case { of: "ftruncate/13", run: Tried(|g| negative(g, |length| by("a", O_WRONLY, length))) },
    Case { of: "ftruncate/14", run: Tried(|g| paths::outside_memory(g, &OPENED)) },
];

fn by(path: &str, flags: i32, length: i64) -> SysResult {
    ftruncate(&open(path, flags, 0)?, length)
}

/// Longer, with zeros; shorter; and what was cut off does not come back.
fn lengths(g: &mut TestContext, cut: impl Fn(i64) -> SysResult) {
    g.make(Kind::Regular, "a");
    for length in [1_234_567, 567] {
        g.ok(cut(length));
        g.size("a", length);
    }
    let bytes: Vec<u8> = (1..=255).cycle().take(12345).collect();
    fs::write("a", &bytes).expect("a file");
    for (length, kept) in [(23456, 12345), (1, 1), (20, 1), (0, 0), (3, 0)] {
        g.ok(cut(length));
        g.size("a", length);
        let found = fs::read("a").unwrap_or_default();
        g.same(found.len(), length as usize);
        g.holds(found.starts_with(&bytes[..kept]), "the first bytes stay");
        g.holds(found.iter().skip(kept).all(|byte| *byte == 0), "the others are zeros");
    }
    g.changes("a", |g| g.ok(cut(123)));
    g.remove(Kind::Regular, "a");
}

fn by_name(g: &mut TestContext) {
    lengths(g, |length| truncate("a", length));
    g.make(Kind::Regular, "a");
    g.leaves("a", |g| g.fails(Errno::EACCES, STRAY.does(|| truncate("a", 123))));
    g.size("a", 0);
    g.remove(Kind::Regular, "a");
}

fn by_file(g: &mut TestContext) {
    lengths(g, |length| by("a", O_RDWR, length));
    lengths(g, |length| by("a", O_WRONLY, length));
    g.make(Kind::Regular, "a");
    g.leaves("a", |g| g.fails(Errno::EINVAL, STRAY.does(|| by("a", O_RDONLY, 123))));
    g.size("a", 0);
    g.remove(Kind::Regular, "a");
    // What was opened for writing may be cut, whatever the permissions say.
    g.ok(chmod(".", 0o777));
    for user in [ROOT, STRAY] {
        for length in [0, 5] {
            let made = user.does(|| {
                let file = open("a", O_CREAT | O_RDWR, 0)?;
                ftruncate(&file, length)?;
                fstat(&file)
            });
            g.sees(made.map(|a| (a.size, a.mode)), (length, 0));
            g.remove(Kind::Regular, "a");
        }
    }
}

fn unwritable(g: &mut TestContext, uses: &[PathCall]) {
    for used in uses {
        g.make(Kind::Regular, "a");
        g.fails(Errno::EACCES, NOBODY.does(|| (used.call)("a".into())));
        g.ok(chown("a", 65534, 65534));
        g.ok(chmod("a", 0o444));
        g.fails(Errno::EACCES, NOBODY.does(|| (used.call)("a".into())));
        g.size("a", 0);
        g.remove(Kind::Regular, "a");
    }
}

fn directories(g: &mut TestContext, uses: &[PathCall]) {
    g.make(Kind::Dir, "a");
    for used in uses {
        g.fails(Errno::EISDIR, (used.call)("a".into()));
    }
    g.remove(Kind::Dir, "a");
}

/// Either so long, or refused and as it was.
fn longest(g: &mut TestContext, cut: impl Fn(i64) -> SysResult) {
    for length in [999_999_999_999_999, i64::MAX] {
        g.make(Kind::Regular, "a");
        let seen = cut(length);
        g.either(seen, &[Ok(()), Err(Errno::EFBIG), Err(Errno::EINVAL)]);
        g.size("a", if seen.is_ok() { length } else { 0 });
        g.remove(Kind::Regular, "a");
    }
}

fn negative(g: &mut TestContext, cut: impl Fn(i64) -> SysResult) {
    g.make(Kind::Regular, "a");
    for length in [-1, -999_999, i64::MIN] {
        g.fails(Errno::EINVAL, cut(length));
        g.size("a", 0);
    }
    g.remove(Kind::Regular, "a");
}
