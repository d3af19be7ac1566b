//! System calls on a mount do what POSIX and Linux say: each case runs on a mount, on an exclusive mount and on a file
//! system of this machine, and their answers must be the same.
//!
//! Every test file of pjdfstest has its case here, by its name: [`Case::of`]. The cases are told anew, by what is checked
//! there, so that all of them take seconds: one thread changes who it is instead of starting a program for every call,
//! and compares nanoseconds instead of waiting for the next second. `every_case_is_here` compares the names with the list of the
//! original's files.
//!
//! | original | here |
//! |---|---|
//! | `chflags/`, `granular/` | not on Linux: [`FLAGS`], [`ACCESS_LISTS`] |
//! | `chmod/` | `syscalls/chmod.rs` |
//! | `chown/` | `syscalls/chown.rs` |
//! | `truncate/`, `ftruncate/` | `syscalls/truncate.rs` |
//! | `link/` | `syscalls/link.rs` |
//! | `mkdir/`, `mkfifo/`, `mknod/` | `syscalls/make.rs` |
//! | `open/`, `posix_fallocate/` | `syscalls/open.rs` |
//! | `rename/` | `syscalls/rename.rs` |
//! | `rmdir/`, `unlink/` | `syscalls/remove.rs` |
//! | `symlink/` | `syscalls/symlink.rs` |
//! | `utimensat/` | `syscalls/utimensat.rs` |
//!
//! What is the same for every call that takes a path is in `syscalls/paths.rs`, and tried with every such call. Cases that
//! the original has for FreeBSD only are tried here where Linux has the same in another way: a read-only view of a
//! directory, a mounted file system, a running program, locks.

mod calls;
mod chmod;
mod chown;
mod context;
mod link;
mod make;
mod open;
mod paths;
mod remove;
mod rename;
mod symlink;
mod truncate;
mod utimensat;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use crate::fixture::{Fixture, within};
use context::TestContext;

/// What is done about one file of the original.
struct Case {
    /// Its directory and number.
    of: &'static str,
    run: Run,
}

enum Run {
    Tried(fn(&mut TestContext)),
    /// It cannot be tried, for this reason.
    Absent(&'static str),
}

use Run::{Absent, Tried};

/// `chflags` and its flags.
const FLAGS: Run = Absent("Linux has no chflags; `chattr` is refused with ENOTTY");
const ACCESS_LISTS: Run = Absent("Linux has no NFSv4 access lists");
/// What needs a file system without space.
const FULL: Run = Absent("a full file system: `full.rs` has it");

/// Threads that try cases.
const THREADS: usize = 8;
/// A case that fails on a mount today, and why; a table in docs/RELIABILITY.md says the same.
const KNOWN: [(&str, &str); 0] = [];

/// Every case, by the name of its original.
fn cases() -> BTreeMap<&'static str, &'static Run> {
    const MODULES: [&[Case]; 10] = [
        chmod::CASES,
        chown::CASES,
        link::CASES,
        make::CASES,
        open::CASES,
        remove::CASES,
        rename::CASES,
        symlink::CASES,
        truncate::CASES,
        utimensat::CASES,
    ];
    let cases = MODULES.into_iter().flatten().map(|case| (case.of, &case.run));
    let all: BTreeMap<_, _> = cases.collect();
    assert_eq!(all.len(), MODULES.iter().map(|cases| cases.len()).sum::<usize>(), "a case is there twice");
    all
}

#[test]
fn every_case_is_here() {
    // Directories of pjdfstest, and how many files each has, from 00 on.
    let files = [
        ("chmod", 13),
        ("chown", 11),
        ("ftruncate", 15),
        ("link", 18),
        ("mkdir", 13),
        ("mkfifo", 13),
        ("mknod", 12),
        ("open", 27),
        ("posix_fallocate", 1),
        ("rename", 25),
        ("rmdir", 16),
        ("symlink", 13),
        ("truncate", 15),
        ("unlink", 15),
        ("utimensat", 10),
    ];
    let right = files.into_iter().flat_map(|(name, count)| (0..count).map(move |n| format!("{name}/{n:02}")));
    let mut right: Vec<String> = right.collect();
    right.sort();
    assert_eq!(cases().into_keys().collect::<Vec<_>>(), right);
    let others = [("chflags", &FLAGS), ("granular", &ACCESS_LISTS)];
    for (name, run) in cases().into_iter().chain(others) {
        if let Absent(why) = run {
            println!("{name} is not tried: {why}");
        }
    }
}

/// What came of a case.
struct Outcome {
    checks: u32,
    failures: Vec<String>,
    took: Duration,
}

/// Tries a case in a directory of its own. The thread shares working directory and mask with nobody.
fn attempt(root: &Path, name: &str, run: fn(&mut TestContext)) -> Outcome {
    let begun = Instant::now();
    let dir = root.join(name.replace('/', "-"));
    let mut context = TestContext::default();
    calls::mkdir(dir.to_str().expect("text"), 0o755).expect("a directory");
    std::env::set_current_dir(&dir).expect("it can be entered");
    run(&mut context);
    std::env::set_current_dir(root).expect("the root is there");
    let left: Vec<_> = fs::read_dir(&dir).expect("a listing").flatten().map(|e| e.file_name()).collect();
    context.same(left, Vec::new());
    fs::remove_dir_all(&dir).expect("what a case leaves can be removed");
    Outcome { checks: context.checks, failures: context.failures, took: begun.elapsed() }
}

/// Tries every case below a directory, or those that `SHOAL_SYSCALLS` names in part.
fn attempt_all(root: &Path) -> BTreeMap<&'static str, Outcome> {
    let wanted = std::env::var("SHOAL_SYSCALLS").unwrap_or_default();
    let tried = cases().into_iter().filter_map(|(name, run)| match run {
        Tried(run) if name.contains(&wanted) => Some((name, *run)),
        _ => None,
    });
    let (left, done) = (Mutex::new(tried), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // SAFETY: it concerns this thread alone, which ends with the scope.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0, "only root may");
                context::masked(0, || {
                    loop {
                        let next = left.lock().expect("no thread panics with it").next();
                        let Some((name, run)) = next else { break };
                        let outcome = attempt(root, name, run);
                        done.lock().expect("no thread panics with it").insert(name, outcome);
                    }
                });
            });
        }
    });
    done.into_inner().expect("no thread has panicked with it")
}

/// Tries everything, prints how much that is, and fails with all that is wrong.
fn try_all(what: &str, root: &Path, known: &[(&str, &str)]) {
    let begun = Instant::now();
    let outcomes = within(Duration::from_secs(600), what, || attempt_all(root));
    let checks: u32 = outcomes.values().map(|outcome| outcome.checks).sum();
    let (name, slowest) = outcomes.iter().max_by_key(|(_, outcome)| outcome.took).expect("there are cases");
    println!(
        "{what}: {checks} checks in {} cases, {:?}; the longest case is {name}, {:?}",
        outcomes.len(),
        begun.elapsed(),
        slowest.took
    );
    let mut wrong = Vec::new();
    for (name, outcome) in &outcomes {
        let known = known.iter().any(|(known, _)| known == name);
        if known && outcome.failures.is_empty() {
            wrong.push(format!("{name} is known to fail, and does not"));
        } else if !known {
            wrong.extend(outcome.failures.iter().map(|failure| format!("{name}: {failure}")));
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// What fails here is a mistake of the cases.
#[test]
fn syscalls_on_a_file_system_of_this_machine() {
    let dir = Scratch(Path::new("/dev/shm").join(format!("shoal-test-{}-syscalls", std::process::id())));
    fs::create_dir_all(&dir.0).expect("/dev/shm is a tmpfs");
    try_all("a tmpfs", &dir.0, &[]);
}

/// A directory that ends with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn syscalls_on_a_mount() {
    let fixture = Fixture::new("syscalls");
    fixture.up(6, "4+2", "1G");
    let mount = fixture.mount("mnt");
    try_all("a mount", &mount, &KNOWN);
    fixture.umount(&mount);
    fixture.verified();
    fixture.check_logs(&[]);
}

#[test]
fn syscalls_on_an_exclusive_mount() {
    let fixture = Fixture::new("syscalls-exclusive");
    fixture.up(6, "4+2", "1G");
    let mount = fixture.mount_with("mnt", &["--exclusive"]);
    try_all("an exclusive mount", &mount, &KNOWN);
    fixture.umount(&mount);
    fixture.verified();
    fixture.check_logs(&[]);
}
