//! A length that is only claimed costs nothing, and a long file gives all its space back: files are claimed, written
//! and removed, and a bystander works without any error meanwhile.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::fixture::{Fixture, Prng, text, wait_for, within};
use crate::rejoin::start_brick;

const BLOCK: usize = 4096;
/// Bytes of a piece that a bystander writes and reads.
const PIECE: usize = 64 << 10;
/// Stripes of the long file: more than a brick keeps units of in its memory. With `SHOAL_LONG=1` a million.
const STRIPES: u64 = 150_000;

fn long(short: u64) -> u64 {
    if std::env::var_os("SHOAL_LONG").is_some() { 1_000_000 } else { short }
}

fn created(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true).open(path).expect("a file")
}

/// Stops the bystander in the end, also if the test panics.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes, syncs and reads back until it shall stop. Any error is the test's.
fn bystander(dir: &Path, stop: &AtomicBool) -> u64 {
    let file = created(&dir.join("bystander"));
    let mut pieces = 0;
    while !stop.load(Ordering::Relaxed) {
        let (bytes, at) = (Prng::new(pieces).bytes(PIECE), (pieces % 64) * PIECE as u64);
        file.write_all_at(&bytes, at).expect("written");
        file.sync_all().expect("stable");
        let mut found = vec![0; PIECE];
        file.read_exact_at(&mut found, at).expect("read");
        assert!(found == bytes, "piece {pieces} is as it was written");
        pieces += 1;
    }
    pieces
}

/// What bricks hold together: units, and bytes used. Bricks that are out are left out.
fn held(fixture: &Fixture) -> (u64, u64) {
    let status = fixture.status();
    let bricks = status["bricks"].as_array().expect("bricks").clone();
    let up: Vec<_> = bricks.iter().filter(|brick| brick["state"] == "up").collect();
    let sum = |what: &str| up.iter().map(|brick| brick[what].as_u64().expect("a number")).sum::<u64>();
    (sum("units"), sum("capacity") - sum("free"))
}

fn state_is(fixture: &Fixture, brick: &str, state: &str) -> bool {
    let status = fixture.status();
    let bricks = status["bricks"].as_array().expect("bricks");
    bricks.iter().any(|one| one["id"] == brick && one["state"] == state)
}

/// Loses brick b3 for good; a new one takes its place and is filled.
fn replaced(fixture: &Fixture, size: &str) {
    fixture.kill("b3");
    assert!(wait_for(Duration::from_secs(30), || state_is(fixture, "b3", "out")), "b3 is not out");
    start_brick(fixture, 4, 1, size, &fixture.status_meta(), &fixture.home().join("key"));
    assert!(wait_for(Duration::from_secs(30), || state_is(fixture, "b4", "up")), "b4 is not up");
    let done = within(Duration::from_secs(300), "a replacement", || {
        fixture.must(&["brick", "replace", "b3", "b4", "--wait", "--json"]).json()
    });
    assert_eq!(done["progress"]["out"], 0, "redundancy is back: {done}");
}

fn all_is_purged(fixture: &Fixture) -> bool {
    fixture.status()["meta"]["purges"].as_u64() == Some(0)
}

fn nobody_was_out(fixture: &Fixture) {
    let log = fs::read_to_string(fixture.home().join("log/meta.log")).expect("the service's log");
    assert!(!log.contains("bricks are out"), "{log}");
}

#[test]
fn a_length_that_is_only_claimed_stops_nobody() {
    let fixture = Fixture::new("claimed");
    fixture.up(6, "4+2", "256M");
    let mount = fixture.mount("mnt");
    let before = held(&fixture);
    let stop = AtomicBool::new(false);
    within(Duration::from_secs(180), "removing what was only claimed", || {
        thread::scope(|scope| {
            let bystander = scope.spawn(|| bystander(&mount, &stop));
            let stops = Stops(&stop);
            for (round, claim) in [999_999_999_999_999, 800_000_000_000_000, 1 << 59].into_iter().enumerate()
            {
                let path = mount.join(format!("claims{round}"));
                let file = created(&path);
                file.set_len(claim).expect("long and empty");
                fs::remove_file(&path).expect("removed");
                let file = created(&path);
                file.write_all_at(&[7; BLOCK], claim - BLOCK as u64).expect("written far out");
                file.sync_all().expect("stable");
                let mut found = [0; BLOCK];
                file.read_exact_at(&mut found, claim - BLOCK as u64).expect("read");
                assert!(found == [7; BLOCK], "what was written far out is there");
                file.set_len(1).expect("cut");
                file.write_all_at(&[8; BLOCK], claim / 2).expect("written again");
                file.sync_all().expect("stable");
                fs::remove_file(&path).expect("removed");
            }
            fixture.must(&["volume", "create", "vm", "--code", "4+2", "--same-node", "--block", "100T"]);
            fixture.must(&["volume", "delete", "vm", "--yes"]);
            assert!(
                wait_for(Duration::from_secs(60), || all_is_purged(&fixture)),
                "what is removed is purged"
            );
            drop(stops);
            assert!(bystander.join().expect("nothing fails beside it") > 0);
        });
    });
    fs::remove_file(mount.join("bystander")).expect("removed");
    let back = wait_for(Duration::from_secs(60), || held(&fixture) == before);
    assert!(back, "{:?} units and bytes used, {before:?} before", held(&fixture));
    nobody_was_out(&fixture);
    fixture.umount(&mount);
}

/// Restart, truncation, replacement of a brick, comparison and removal of a file of many stripes: small units, as many of them as a large file has.
#[test]
fn a_long_file_gives_its_space_back() {
    let fixture = Fixture::new("long-file");
    let stripes = long(STRIPES);
    let size = format!("{}M", 512 + stripes * BLOCK as u64 * 2 / (1 << 20));
    fixture.up(3, "2+1", &size);
    fixture.must(&["volume", "create", "small", "--code", "2+1", "--unit", "4K", "--same-node"]);
    let mount = fixture.path("mnt");
    fs::create_dir_all(&mount).expect("a mount point");
    fixture.must(&["mount", "small", text(&mount)]);
    let before = held(&fixture);
    let path = mount.join("long");
    let stripe = 2 * BLOCK as u64;
    let piece = 1 << 20;
    let file = File::create(&path).expect("a file");
    for at in (0..stripes * stripe).step_by(piece) {
        file.write_all_at(&Prng::new(at).bytes(piece), at).expect("written");
    }
    file.sync_all().expect("stable");
    drop(file);
    // Those that a checkpoint has just under way are not counted.
    let counted = wait_for(Duration::from_secs(60), || held(&fixture).0 >= 3 * stripes);
    assert!(counted, "{:?} units and bytes used, for {stripes} stripes", held(&fixture));

    // A brick dies and is back; half of the file is cut off; another brick dies for good; everything fits its parity.
    fixture.kill("b2");
    fixture.must(&["up"]);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
    let half = (stripes / 2 * stripe) / piece as u64 * piece as u64;
    file.set_len(half).expect("cut");
    for at in [0, half / 2 / piece as u64 * piece as u64, half - piece as u64] {
        let mut found = vec![0; piece];
        file.read_exact_at(&mut found, at).expect("read");
        assert!(found == Prng::new(at).bytes(piece), "at {at} it is as it was written");
    }
    replaced(&fixture, &size);
    fixture.verified_volume("small");

    let stop = AtomicBool::new(false);
    within(Duration::from_secs(300), "removing a long file", || {
        thread::scope(|scope| {
            let bystander = scope.spawn(|| bystander(&mount, &stop));
            let stops = Stops(&stop);
            drop(file);
            fs::remove_file(&path).expect("removed");
            assert!(wait_for(Duration::from_secs(200), || all_is_purged(&fixture)), "it is purged");
            drop(stops);
            assert!(bystander.join().expect("nothing fails beside it") > 0);
        });
    });
    fs::remove_file(mount.join("bystander")).expect("removed");
    let back = wait_for(Duration::from_secs(60), || held(&fixture) == before);
    assert!(back, "{:?} units and bytes used, {before:?} before", held(&fixture));
    fixture.umount(&mount);
}
