//! Daemons stay within the memory that they were allowed: several writers and readers work at once, then the most that
//! each daemon has had is compared with its budget.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use crate::fixture::{Fixture, Prng, text};

const WRITERS: u64 = 10;
const MIB: usize = 1 << 20;

/// What a process does, and the most memory that it ever had, in MiB.
fn most(pid: i32) -> (String, u64) {
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (words.split('\0').nth(1).expect("a command").to_owned(), kib / 1024)
}

fn together(work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        let work = &work;
        (0..WRITERS).for_each(|writer| drop(scope.spawn(move || work(writer))));
    });
}

/// Sequential writes, small ones all over, reads: by several at once. Nobody ever needs more than its budget.
#[test]
fn daemons_stay_within_their_memory() {
    const LEN: usize = 48 * MIB;
    const BUDGET: u64 = 128;
    let fixture = Fixture::new("memory");
    fixture.must(&["up", "--bricks", "6", "--code", "4+2", "--size", "512M", "--memory", "128M"]);
    let mount = fixture.path("mnt");
    fs::create_dir(&mount).expect("a directory");
    let log = fixture.path("mnt.log");
    fixture.must(&["mount", "main", text(&mount), "--log", text(&log), "--memory", "128M"]);
    let file = |writer: u64| mount.join(writer.to_string());
    together(|writer| {
        let mut prng = Prng::new(writer);
        let out = fs::File::create(file(writer)).expect("a file");
        for offset in (0..LEN).step_by(MIB) {
            out.write_all_at(&prng.bytes(MIB), offset as u64).expect("room");
        }
    });
    together(|writer| {
        let mut prng = Prng::new(writer + 100);
        let out = OpenOptions::new().write(true).open(file(writer)).expect("the file");
        for _ in 0..2000 {
            out.write_all_at(&prng.bytes(4096), prng.below((LEN / 4096) as u64) * 4096).expect("room");
        }
        out.sync_all().expect("stable");
    });
    together(|writer| assert_eq!(fs::read(file(writer)).expect("the file").len(), LEN));
    // Around the kernel's cache, so that the mount caches and reads ahead itself. By itself it would not cache files that
    // are read from one end to the other and are larger than its cache.
    fixture.must(&["tune", text(&mount), "io-cache=on"]);
    together(|reader| {
        let mut buf = vec![0; 64 << 10];
        let direct = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_DIRECT)
            .open(file(reader))
            .expect("the file");
        for _ in 0..2 {
            for offset in (0..LEN).step_by(64 << 10) {
                assert_eq!(direct.read_at(&mut buf, offset as u64).expect("readable"), 64 << 10);
            }
        }
    });
    let status = fs::read_to_string(mount.join(".shoal/status")).expect("every mount has it");
    let cached = status.lines().find_map(|line| line.strip_prefix("cache_bytes ")).expect("a counter");
    let cached: u64 = cached.parse().expect("a number");
    assert!(cached > 0 && cached <= BUDGET / 4 * MIB as u64, "{cached} bytes are cached");
    check(&fixture, &mount, BUDGET);
}

fn check(fixture: &Fixture, mount: &Path, budget: u64) {
    let seen: Vec<(String, u64)> = fixture.processes().into_iter().map(most).collect();
    for (what, mib) in &seen {
        assert!(*mib < budget, "{what} had {mib} MiB of {budget}: {seen:?}");
    }
    assert_eq!(seen.len(), 8, "six bricks, the metadata service, the mount: {seen:?}");
    let status = fixture.status();
    let mut daemons = status["bricks"].as_array().expect("bricks").clone();
    daemons.push(status["meta"].clone());
    for daemon in daemons {
        let (used, budget) = (daemon["memory"].as_u64(), daemon["memory_budget"].as_u64());
        assert!(used.expect("memory") <= budget.expect("a budget"), "{daemon}");
    }
    fixture.umount(mount);
}
