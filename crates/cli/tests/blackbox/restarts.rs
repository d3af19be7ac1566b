//! Stops, crashes and restarts of the cluster lose nothing that was synced: daemons are stopped or killed, and all
//! files are compared afterwards.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use crate::fixture::{Fixture, Prng, text, wait_for, within};
use crate::script::tree;

fn fill(dir: &Path, seed: u64) {
    let mut prng = Prng::new(seed);
    fs::create_dir_all(dir.join("sub")).expect("directories");
    for (name, len) in [("small", 10), ("block", 4096), ("stripe", 1 << 20), ("sub/large", 9_000_000)] {
        let mut file = File::create(dir.join(name)).expect("a file");
        file.write_all(&prng.bytes(len)).expect("a write");
        file.sync_all().expect("stable");
    }
}

#[test]
fn down_and_up_keeps_everything() {
    let fixture = Fixture::new("down-up");
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount("mnt");
    fill(&mount.join("first"), 1);
    let right = tree(&mount);
    for round in 0..3 {
        // `down` unmounts too.
        let down = fixture.must(&["down", "--json"]).json();
        assert_eq!(down["unmounted"].as_array().map(Vec::len), Some(1), "round {round}");
        assert_eq!(down["killed"].as_array().map(Vec::len), Some(0), "round {round}");
        assert!(fixture.processes().is_empty(), "round {round}: nothing is left running");
        fixture.must(&["up"]);
        let mount = fixture.mount("mnt");
        assert_eq!(tree(&mount), right, "round {round}");
        let status = fixture.status();
        let bricks = status["bricks"].as_array().expect("bricks");
        assert!(bricks.iter().all(|b| b["state"] == "up"), "round {round}: {bricks:?}");
    }
    // The metadata service stops first.
    fixture.check_logs(&["the lease was not renewed"]);
}

#[test]
fn a_crash_of_everything_keeps_what_was_synced() {
    let fixture = Fixture::new("crash");
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount("mnt");
    fill(&mount, 2);
    let right = tree(&mount);
    // Unsynced bytes may or may not survive; they must do no harm.
    fs::write(mount.join("unsynced"), vec![1; 3 << 20]).expect("a file");
    for name in ["meta", "b1", "b2", "b3", "b4", "b5", "b6"] {
        fixture.kill(name);
    }
    fixture.must(&["up"]);
    within(Duration::from_secs(60), "the mount after a crash of the cluster", || {
        let now = tree(&mount);
        for (path, what) in &right {
            assert_eq!(now.get(path), Some(what), "{}", path.display());
        }
    });
    fill(&mount.join("after"), 3);
    assert!(mount.join("after/sub/large").exists());
}

#[test]
fn a_brick_that_is_back_at_once_is_not_lost() {
    let fixture = Fixture::new("brick-restart");
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount("mnt");
    fill(&mount, 4);
    let right = tree(&mount);
    for name in ["b1", "b4"] {
        fixture.kill(name);
        fixture.must(&["up"]);
        within(Duration::from_secs(60), "a write after a brick's restart", || {
            fs::write(mount.join("small"), fs::read(mount.join("small")).expect("the file"))
                .expect("written anew");
        });
    }
    assert_eq!(tree(&mount), right);
    let status = fixture.status();
    let slots = status["volumes"][0]["groups"].as_array().expect("groups").iter();
    let mut states =
        slots.flat_map(|g| g["slots"].as_array().expect("slots").iter().map(|s| s["state"].clone()));
    assert!(states.all(|state| state == "live"), "no slot was lost");
}

#[test]
fn the_metadata_service_may_restart_under_a_mount() {
    let fixture = Fixture::new("meta-restart");
    fixture.up(4, "2+2", "512M");
    let mount = fixture.mount("mnt");
    // A program that is started while the file is open inherits it and closes it, and that close waits for the service.
    // So the program that brings the service back is started before.
    let mut medic = Command::new("sh")
        .args(["-c", "read go; exec \"$0\" up", env!("CARGO_BIN_EXE_shoal")])
        .env("SHOAL_DIR", fixture.home())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell");
    let mut file = File::create(mount.join("file")).expect("a file");
    file.write_all(&[1; 100_000]).expect("a write");
    fixture.kill("meta");
    drop(medic.stdin.take());
    within(Duration::from_secs(90), "a file that was open while the service restarted", || {
        file.write_all(&[2; 100_000]).expect("a write after the restart");
        file.sync_all().expect("stable");
        assert_eq!(fs::metadata(mount.join("file")).expect("attributes").len(), 200_000);
        fs::write(mount.join("another"), b"x").expect("another file");
    });
    assert!(medic.wait().expect("it ends").success());
}

/// Locks a file as soon as whoever had it has ended.
fn hold(path: &Path) -> Flock<File> {
    for _ in 0..500 {
        let file = File::options().read(true).write(true).open(path).expect("the file");
        if let Ok(held) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            return held;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} is not let go", path.display());
}

/// A process that was killed a moment ago may still have its locks. Its successor waits for them, but not for ever.
#[test]
fn what_is_locked_is_waited_for_and_its_holder_is_named() {
    let fixture = Fixture::new("locked");
    fixture.up(3, "2+1", "128M");
    for (name, file) in [("meta", "meta/meta.redb"), ("meta", "meta/meta.journal"), ("b1", "bricks/b1")] {
        fixture.kill(name);
        let held = hold(&fixture.home().join(file));
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(2));
            drop(held);
        });
        fixture.must(&["up"]);
        ends.join().expect("it ends");
    }
    fixture.kill("meta");
    let store = fixture.home().join("meta");
    let _held = hold(&store.join("meta.redb"));
    let holder = format!("process {}", std::process::id());
    fixture.shoal(&["meta", "--dir", text(&store), "--no-key"]).refused(&[
        "is served already",
        &holder,
        "try:",
    ]);
}

#[test]
fn two_bricks_may_die_while_files_are_written_and_read() {
    let fixture = Fixture::new("degraded");
    fixture.up(6, "4+2", "1G");
    let mount = fixture.mount("mnt");
    fill(&mount.join("before"), 7);
    let out = |name: &str| {
        let gone = || {
            let status = fixture.status();
            let bricks = status["bricks"].as_array().cloned().unwrap_or_default();
            bricks.iter().any(|b| b["id"] == name && b["state"] == "out")
        };
        assert!(wait_for(Duration::from_secs(30), gone), "the arbiter puts {name} out");
    };
    fixture.kill("b2");
    within(Duration::from_secs(90), "writing with one brick dead", || fill(&mount.join("one-dead"), 8));
    out("b2");
    fixture.kill("b5");
    out("b5");
    let late = ["volume", "create", "late", "--code", "4+2", "--same-node"];
    fixture.shoal(&late).refused(&[
        "code 4+2 needs 6 failure domains",
        "that are up; 6 bricks are known, 4 bricks are up: b2, b5 are Out",
        "try: start the bricks that are Out; or --code 2+2",
    ]);
    fixture.umount(&mount);
    let mount = fixture.mount("mnt-2");
    within(Duration::from_secs(90), "reading with two bricks dead", || {
        for (dir, seed) in [("before", 7), ("one-dead", 8)] {
            let mut prng = Prng::new(seed);
            for (name, len) in [("small", 10), ("block", 4096), ("stripe", 1 << 20), ("sub/large", 9_000_000)]
            {
                let bytes = fs::read(mount.join(dir).join(name)).expect("a file");
                assert!(bytes == prng.bytes(len), "{dir}/{name}");
            }
        }
    });
    let status = fs::read_to_string(mount.join(".shoal/status")).expect("status");
    assert!(!status.contains("units_decoded 0\n"), "{status}");
}
