//! The demo loses nothing although two bricks die, and leaves nothing behind when it is interrupted: it runs with
//! little input, and its report and the processes that are left are read.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Fixture, Prng, text, wait_for, within};

/// Files of many sizes.
fn input(dir: &Path, bytes: usize) {
    let mut prng = Prng::new(bytes as u64);
    fs::create_dir_all(dir.join("deep/er")).expect("directories");
    let mut left = bytes;
    for file in 0.. {
        let len = [0, 1, 4096, 100_000, 1 << 20, 3_000_001][file % 6].min(left);
        let path = if file % 2 == 0 {
            dir.join(file.to_string())
        } else {
            dir.join("deep/er").join(file.to_string())
        };
        fs::write(path, prng.bytes(len)).expect("a file");
        left -= len;
        if left == 0 {
            break;
        }
    }
    std::os::unix::fs::symlink("deep/er/1", dir.join("link")).expect("a link");
}

/// All of a small input fits into the mount's buffers: no brick knows of it yet when the first one is to be killed.
#[test]
fn a_small_input_is_enough() {
    let fixture = Fixture::new("demo-small");
    let (files, dir) = (fixture.path("files"), fixture.path("demo"));
    input(&files, 5 << 20);
    let ran = within(Duration::from_secs(120), "the demo", || {
        fixture.shoal(&["demo", "--json", "--input", text(&files), "--dir", text(&dir)])
    });
    let report = ran.json();
    assert_eq!((&report["good"], &report["mismatches"]), (&true.into(), &0.into()), "{report:#}");
    assert_eq!(report["killed_was_primary"], true);
}

#[test]
fn two_bricks_die_and_nothing_is_lost() {
    let fixture = Fixture::new("demo");
    let (files, dir) = (fixture.path("files"), fixture.path("demo"));
    input(&files, 24 << 20);
    let ran = within(Duration::from_secs(300), "the demo", || {
        fixture.shoal(&["demo", "--json", "--input", text(&files), "--dir", text(&dir)])
    });
    let report = ran.json();
    assert_eq!(report["good"], true, "{report:#}");
    assert_eq!(report["mismatches"], 0);
    assert_eq!(report["bytes_from_client_caches"], 0);
    assert!(report["bytes"].as_u64().is_some_and(|bytes| bytes == 24 << 20));
    assert!(report["units_decoded"].as_u64().is_some_and(|units| units > 0));
    assert_eq!(report["killed_was_primary"], true);
    let killed = report["killed"].as_array().expect("killed bricks");
    assert_eq!(killed.len(), 2);
    assert_ne!(killed[0]["brick"], killed[1]["brick"]);
    for phase in ["start", "mount", "copy", "settle", "mount again", "compare"] {
        assert!(report["seconds"][phase].is_number(), "{phase}");
    }
    assert!(!dir.exists(), "the demo clears up");
    assert!(fixture.mount_points().is_empty());
    assert!(fixture.processes().is_empty(), "{:?}", fixture.processes());
}

#[test]
fn the_leading_metadata_server_dies_too() {
    let fixture = Fixture::new("demo-ha");
    let (files, dir) = (fixture.path("files"), fixture.path("demo"));
    input(&files, 24 << 20);
    let ran = within(Duration::from_secs(300), "the demo", || {
        let words = ["demo", "--ha", "--json", "--bricks", "6", "--code", "4+2"];
        fixture.shoal(&[&words[..], &["--input", text(&files), "--dir", text(&dir)]].concat())
    });
    let report = ran.json();
    assert_eq!((&report["good"], &report["mismatches"]), (&true.into(), &0.into()), "{report:#}");
    let lost = &report["killed_leader"];
    assert_ne!(lost["server"], lost["next"], "{report:#}");
    assert!(!dir.exists(), "the demo clears up");
    assert!(fixture.processes().is_empty(), "{:?}", fixture.processes());
}

#[test]
fn an_interrupted_demo_clears_up() {
    let fixture = Fixture::new("interrupted");
    let (files, dir) = (fixture.path("files"), fixture.path("demo"));
    input(&files, 64 << 20);
    let args = ["demo", "--input", text(&files), "--dir", text(&dir)];
    let mut demo =
        fixture.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let written =
        || fs::read_dir(dir.join("mount-1/input")).is_ok_and(|mut entries| entries.next().is_some());
    assert!(wait_for(Duration::from_secs(60), written), "files are being copied");
    kill(Pid::from_raw(i32::try_from(demo.id()).expect("a pid")), Signal::SIGINT).expect("the demo runs");
    let status = within(Duration::from_secs(60), "the interrupted demo", || demo.wait().expect("it ends"));
    assert!(!status.success());
    assert!(fixture.mount_points().is_empty(), "{:?}", fixture.mount_points());
    assert!(wait_for(Duration::from_secs(5), || fixture.processes().is_empty()), "{:?}", fixture.processes());
    assert!(!dir.exists());
}

#[test]
fn a_demo_that_cannot_be_good_does_not_begin() {
    let fixture = Fixture::new("weak-demo");
    fixture.shoal(&["demo", "--code", "4+1", "--bricks", "5"]).refused(&["kills two bricks", "--code 4+2"]);
    fixture.shoal(&["demo", "--code", "8+2", "--bricks", "4"]).refused(&["8+2 needs 10 bricks"]);
    fs::create_dir(fixture.path("empty")).expect("a directory");
    fixture.shoal(&["demo", "--input", text(&fixture.path("empty"))]).refused(&["no file to copy"]);
    let full = fixture.path("full");
    fs::create_dir(&full).expect("a directory");
    fs::write(full.join("mine"), b"x").expect("a file");
    fixture.shoal(&["demo", "--dir", text(&full)]).refused(&["is not empty"]);
    assert_eq!(fs::read(full.join("mine")).expect("the file"), b"x");
}
