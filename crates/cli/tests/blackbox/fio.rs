//! A program sees pauses, never an error and never a wrong byte: fio writes and verifies while daemons are killed and
//! stopped.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{Fixture, text};
use crate::nemesis::{Plan, is_long, under_nemesis};

/// One run: writes at random, each with its checksum, reads back while it writes and all at the end. The longest time
/// that a call took, in milliseconds.
fn verified_run(mount: &Path, seed: u64, args: &[&str]) -> u64 {
    let ran = Command::new("fio")
        .args([
            "--name=verify",
            "--output-format=json",
            "--rw=randwrite",
            "--bsrange=4k-64k",
            "--bs_unaligned=1",
        ])
        .args(["--ioengine=psync", "--numjobs=2", "--size=24m", "--fsync=64", "--randrepeat=1"])
        .args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--do_verify=1",
            "--verify_backlog=256",
        ])
        .arg(format!("--randseed={seed}"))
        .arg(format!("--directory={}", text(mount)))
        .args(args)
        .output()
        .expect("fio runs: `apt-get install fio`");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "fio:\n{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let json = said.find('{').map_or("", |start| &said[start..]);
    let found: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {said}"));
    let jobs = found["jobs"].as_array().expect("jobs");
    let mut most = 0;
    for job in jobs {
        assert_eq!(job["error"], 0, "{job}");
        for (what, latency) in [("write", "clat_ns"), ("read", "clat_ns"), ("sync", "lat_ns")] {
            most = most.max(job[what][latency]["max"].as_u64().unwrap_or(0) / 1_000_000);
        }
        assert!(job["write"]["io_bytes"].as_u64().is_some_and(|bytes| bytes >= 12 << 20), "{job}");
    }
    most
}

fn runs(name: &str, plan: &Plan, time: Duration, args: &[&str]) {
    let fixture = Fixture::new(name);
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount("mnt");
    let end = Instant::now() + time;
    let ((runs, most), faults) = under_nemesis(&fixture, plan, 11, || {
        let (mut runs, mut most) = (0, 0);
        while runs == 0 || Instant::now() < end {
            most = most.max(verified_run(&mount, runs, args));
            runs += 1;
        }
        (runs, most)
    });
    println!("{name}: {runs} runs, {faults} faults, the longest call took {most} ms");
    assert!(faults > 3, "{faults} faults");
    fixture.verified();
    assert!(most < 60_000, "a call took {most} ms");
}

#[test]
fn fio_verifies_under_a_nemesis() {
    runs("fio", &Plan::gentle(6), Duration::from_secs(20), &[]);
}

/// Around the page cache: every write is one request.
#[test]
fn fio_verifies_direct_writes_under_a_nemesis() {
    runs("fio-direct", &Plan::gentle(6), Duration::from_secs(10), &["--direct=1", "--bs_unaligned=0"]);
}

/// Bricks are away for longer than their lease: they come back through rejoining.
#[test]
fn fio_verifies_under_a_long_nemesis() {
    if !is_long() {
        return;
    }
    let bricks = (1..=6).map(|brick| format!("b{brick}")).collect();
    let plan = Plan { victims: bricks, every: 15_000..30_000, stopped: 100..30_000, kills: true };
    runs("fio-long", &plan, Duration::from_secs(600), &[]);
}
