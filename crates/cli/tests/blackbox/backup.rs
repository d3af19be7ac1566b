//! The metadata store is lost, and comes back from a backup that is older than what is on the bricks.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::fixture::{Fixture, Prng, make_stable, text, wait_for};

const SOON: Duration = Duration::from_secs(120);
const LEN: usize = 6 << 20;

/// The source of this program, as a tree of many small files.
fn tree() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

fn are_alike(one: &Path, other: &Path) {
    let ran = Command::new("diff").args(["-r", text(one), text(other)]).output().expect("diff runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

fn recovery(fixture: &Fixture) -> serde_json::Value {
    fixture.status()["recovery"].clone()
}

#[test]
fn names_come_back_and_bytes_are_the_newest() {
    let fixture = Fixture::new("backup");
    fixture.up(4, "2+1", "256M");
    let mount = fixture.mount("mnt");
    let copied = Command::new("cp").args(["-r", text(tree()), text(&mount.join("tree"))]).status();
    assert!(copied.expect("cp runs").success());
    // What is not stable yet is in no backup.
    let synced = Command::new("find").args([text(&mount), "-type", "f", "-exec", "sync", "{}", "+"]).status();
    assert!(synced.expect("find runs").success());
    let mut bytes = Prng::new(5).bytes(LEN);
    make_stable(&mount.join("data"), &bytes);
    make_stable(&mount.join("gone"), &bytes[..1 << 20]);

    let backup = fixture.path("names.bak");
    let made = fixture.must(&["meta", "backup", text(&backup), "--json"]).json();
    assert_eq!(made["bytes"].as_u64(), Some(fs::metadata(&backup).expect("there").len()));
    fixture.shoal(&["meta", "backup", text(&backup)]).refused(&["is there already", "another name"]);
    fixture.shoal(&["meta", "backup", "/no/such/place/x"]).refused(&["cannot write /no/such/place/x"]);

    // Since then: bytes are written while a brick is away, a file is new, and one is gone.
    fixture.kill("b2");
    let data = fs::OpenOptions::new().write(true).open(mount.join("data")).expect("there");
    for (at, len) in [(100_000, 3_000_000), (5_000_000, 9000)] {
        let newer = Prng::new(at as u64).bytes(len);
        data.write_all_at(&newer, at as u64).expect("room");
        bytes[at..at + len].copy_from_slice(&newer);
    }
    data.sync_all().expect("stable");
    drop(data);
    make_stable(&mount.join("new"), b"without a name after the restoration");
    fs::remove_file(mount.join("gone")).expect("there");
    fixture.umount(&mount);
    // What is removed is purged, with two bricks or three.
    let is_purged = || fixture.status()["meta"]["purges"] == 0;
    assert!(wait_for(SOON, is_purged), "{}", fixture.status());

    let meta = fixture.home().join("meta");
    let restore =
        |source: &Path, dir: &Path| fixture.shoal(&["meta", "restore", text(source), "--dir", text(dir)]);
    restore(&backup, &meta).refused(&["is there already", "--dir with a new directory"]);
    restore(&meta, &fixture.path("other")).refused(&["is served already", "stop it first"]);
    fixture.must(&["down"]);
    fs::rename(&meta, fixture.path("lost")).expect("on one disk");
    let whole = fs::read(&backup).expect("there");
    let bad = fixture.path("bad.bak");
    for (part, said) in [(&whole[..whole.len() - 1], "its end is missing"), (b"#!/bin/sh", "is no backup")] {
        fs::write(&bad, part).expect("room");
        restore(&bad, &meta).refused(&[said]);
        assert_eq!(fs::read_dir(&meta).expect("made").count(), 0, "nothing is left of it");
    }
    let said = restore(&backup, &meta);
    assert!(said.ok && said.stdout.contains("volumes main"), "{said:?}");
    fs::copy(fixture.path("lost").join("key"), meta.join("key")).ok();

    fixture.must(&["up"]);
    assert!(wait_for(SOON, || recovery(&fixture).is_null()), "{}", fixture.shoal(&["status"]).stdout);
    let mount = fixture.mount("mnt");
    are_alike(tree(), &mount.join("tree"));
    assert!(fs::read(mount.join("data")).expect("readable") == bytes, "what was written since is there");
    assert!(!mount.join("new").exists());
    let back = fs::read(mount.join("gone")).expect("its name is back");
    assert!(back.len() == 1 << 20 && back.iter().all(|byte| *byte == 0), "its bytes were purged");
    // Bricks have forgotten that it was removed.
    let again = Prng::new(7).bytes(300_000);
    let file = fs::OpenOptions::new().write(true).open(mount.join("gone")).expect("there");
    file.write_all_at(&again, 200_000).and_then(|()| file.sync_all()).expect("room");
    drop(file);
    make_stable(&mount.join("later"), b"new ids are not those of before");
    let checked = fixture.shoal(&["meta", "check", "--bricks"]);
    assert!(!checked.ok && checked.stdout.contains("no file"), "{checked:?}");
    fixture.must(&["meta", "check", "--bricks", "--repair"]);
    assert_eq!(fs::read(mount.join("later")).expect("there"), b"new ids are not those of before");
    assert!(fs::read(mount.join("data")).expect("readable") == bytes);
    fixture.umount(&mount);
    let mount = fixture.mount("mnt");
    let back = fs::read(mount.join("gone")).expect("there");
    assert!(back[200_000..500_000] == again, "what was written after the restoration is there");
    let verified = fixture.shoal(&["volume", "verify", "main"]);
    assert!(verified.ok, "{verified:?}");
    fixture.umount(&mount);
}

#[test]
fn a_brick_that_is_gone_for_good_is_awaited_unless_it_is_named() {
    let fixture = Fixture::new("backup-without");
    fixture.up(4, "2+1", "256M");
    let mount = fixture.mount("mnt");
    let bytes = Prng::new(6).bytes(LEN);
    make_stable(&mount.join("data"), &bytes);
    fixture.umount(&mount);
    let backup = fixture.path("names.bak");
    fixture.must(&["meta", "backup", text(&backup)]);
    fixture.must(&["down"]);
    let meta = fixture.home().join("meta");
    let restore = |without: &[&str]| {
        fs::rename(&meta, fixture.path(&format!("lost{}", without.len()))).expect("on one disk");
        let words = ["meta", "restore", text(&backup), "--dir", text(&meta)];
        fixture.must(&[&words[..], without].concat())
    };
    restore(&[]);
    fixture.must(&["up"]);
    fixture.kill("b3");
    let waits = || recovery(&fixture)["waits_for"].as_array().is_some_and(|bricks| bricks.len() == 1);
    if wait_for(Duration::from_secs(20), waits) {
        let status = fixture.shoal(&["status"]).stdout;
        assert!(status.contains("groups wait for what bricks know") && status.contains("b3"), "{status}");
    }
    fixture.must(&["down"]);
    let said = restore(&["--without", "b3,99"]);
    assert!(said.stdout.contains("b99 of --without is not known"), "{}", said.stdout);
    fixture.must(&["up"]);
    fixture.kill("b3");
    assert!(wait_for(SOON, || recovery(&fixture).is_null()), "{}", fixture.shoal(&["status"]).stdout);
    let mount = fixture.mount("mnt");
    assert!(fs::read(mount.join("data")).expect("readable") == bytes);
    fixture.umount(&mount);
}
