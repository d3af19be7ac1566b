//! Files move between the tiers of a volume and stay what they are: beside readers and writers, while movers and bricks
//! are killed, and for every shape of file.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{Fixture, Prng, kill_now, text, wait_for, within};
use crate::nemesis::{Plan, under_nemesis};

/// A file: its name, how long it is, and where it has bytes.
type Shape = (&'static str, u64, &'static [(u64, usize)]);

const SHAPES: [Shape; 7] = [
    ("empty", 0, &[]),
    ("one", 1, &[(0, 1)]),
    ("small", 5000, &[(0, 5000)]),
    ("stripes", 5 << 20, &[(0, 5 << 20)]),
    ("sparse", 3 << 30, &[(700 << 20, 4096), ((3 << 30) - 10, 10)]),
    ("hole", 1 << 20, &[]),
    ("tail", 4 << 20, &[(100, 300_000)]),
];

fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    Prng::new(seed).bytes(len)
}

fn make(path: &Path, (_, len, parts): Shape) {
    let file = File::create(path).expect("a file");
    file.set_len(len).expect("its length");
    for (at, len) in parts {
        file.write_all_at(&bytes_of(*at, *len), *at).expect("its bytes");
    }
}

fn check(path: &Path, (name, len, parts): Shape) {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(file.metadata().expect("its attributes").len(), len, "the length of {name}");
    let mut end = 0;
    for (at, part) in parts {
        let mut found = vec![0xff; *part];
        file.read_exact_at(&mut found, *at).expect("its bytes");
        assert!(found == bytes_of(*at, *part), "{name} at {at}");
        // A little of the hole before.
        let hole = (at - end).min(100_000) as usize;
        let mut zeros = vec![0xff; hole];
        file.read_exact_at(&mut zeros, end).expect("a hole");
        assert!(zeros.iter().all(|byte| *byte == 0), "{name}: the hole at {end}");
        end = at + *part as u64;
    }
}

/// What `shoal tier list --files` says: the files and the bytes of each tier.
fn contents(fixture: &Fixture) -> Vec<(u64, u64)> {
    let listed = fixture.must(&["tier", "list", "main", "--files", "--json"]).json();
    let number = |value: &Value| value.as_u64().expect("a number");
    let tiers = listed.as_array().expect("tiers");
    tiers.iter().map(|tier| (number(&tier["files"]), number(&tier["bytes"]))).collect()
}

fn units(fixture: &Fixture) -> u64 {
    let status = fixture.status();
    status["bricks"].as_array().expect("bricks").iter().map(|b| b["units"].as_u64().expect("units")).sum()
}

/// What nobody may see change.
fn attributes(path: &Path) -> (u64, u64, i64, i64, u32, u64) {
    let meta = fs::metadata(path).expect("its attributes");
    // The mount may tell its kernel a time that differs by less than a microsecond, to make it drop what it caches.
    (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec() / 1000, meta.mode(), meta.nlink())
}

#[test]
fn files_of_every_shape_move_and_stay_the_same() {
    let fixture = Fixture::new("tiers");
    fixture.up(6, "4+2", "1G");
    fixture.must(&["tier", "add", "main", "1+2", "--unit", "64K"]);
    let mount = fixture.mount("mnt");
    let dir = mount.join("dir");
    fs::create_dir(&dir).expect("a directory");
    for shape in SHAPES {
        make(&dir.join(shape.0), shape);
    }
    fs::hard_link(dir.join("stripes"), dir.join("another-name")).expect("a second name");
    std::os::unix::fs::symlink("stripes", dir.join("symlink")).expect("a symbolic link");
    let before: BTreeMap<_, _> =
        SHAPES.iter().map(|(name, ..)| (*name, attributes(&dir.join(name)))).collect();
    let reader = File::open(dir.join("stripes")).expect("a reader");
    let files = SHAPES.len() as u64;
    for (code, to) in [("1+2", 1), ("4+2", 0), ("1+2", 1)] {
        let moved = fixture.must(&["convert", text(&dir), "--code", code, "--json"]).json();
        assert_eq!((&moved["moved"], &moved["busy"]), (&files.into(), &0.into()), "{moved}");
        let again = fixture.must(&["convert", text(&dir), "--code", code, "--json"]).json();
        assert_eq!((&again["moved"], &again["in_place"]), (&0.into(), &files.into()), "{again}");
        let counted = contents(&fixture);
        assert_eq!((counted[to].0, counted[1 - to].0), (files, 0), "{counted:?}");
        for shape in SHAPES {
            check(&dir.join(shape.0), shape);
            assert_eq!(attributes(&dir.join(shape.0)), before[shape.0], "{}", shape.0);
        }
        let mut found = vec![0; 5 << 20];
        reader.read_exact_at(&mut found, 0).expect("a reader reads on");
        assert!(found == bytes_of(0, 5 << 20), "what a reader reads whose file has moved");
    }
    // A file in the second tier is a file like any other.
    let file = OpenOptions::new().write(true).open(dir.join("small")).expect("open for writing");
    file.write_all_at(&bytes_of(9, 3 << 20), 5000).expect("written");
    file.set_len(2 << 20).expect("truncated");
    file.sync_all().expect("synced");
    let mut found = vec![0; (2 << 20) - 5000];
    drop((file, reader));
    fixture.umount(&mount);
    let mount = fixture.mount("mnt");
    let small = File::open(mount.join("dir/small")).expect("open");
    small.read_exact_at(&mut found, 5000).expect("read");
    assert!(found == bytes_of(9, 3 << 20)[..found.len()]);
    drop(small);
    for shape in SHAPES.into_iter().filter(|shape| shape.0 != "small") {
        check(&mount.join("dir").join(shape.0), shape);
    }
    let verified = fixture.must(&["volume", "verify", "main", "--json"]).json();
    assert_eq!((&verified["mismatched"], &verified["damaged"]), (&0.into(), &0.into()), "{verified}");
    fs::remove_dir_all(mount.join("dir")).expect("all of it is removed");
    assert!(wait_for(Duration::from_secs(60), || units(&fixture) == 0), "{} units are left", units(&fixture));
    fixture.check_logs(&[]);
}

/// Nobody may keep a mover busy with a length that costs nothing.
#[test]
fn a_petabyte_of_nothing_moves_at_once_with_parity_and_without() {
    let fixture = Fixture::new("tiers-long");
    fixture.up(4, "2+0", "512M");
    fixture.must(&["tier", "add", "main", "3+0", "--unit", "64K"]);
    fixture.must(&["tier", "add", "main", "1+1", "--unit", "64K"]);
    let mount = fixture.mount("mnt");
    let shape: Shape = ("long", 1 << 50, &[(5 << 20, 4096), (1 << 40, 70_000), ((1 << 50) - 10, 10)]);
    let path = mount.join(shape.0);
    make(&path, shape);
    for code in ["3+0", "1+1", "2+0", "1+1", "3+0"] {
        let moved = fixture.must(&["convert", text(&path), "--code", code, "--json"]).json();
        assert_eq!(moved["moved"], 1, "{moved}");
        check(&path, shape);
    }
    fixture.check_logs(&[]);
}

#[test]
fn a_file_that_is_written_stays_where_it_is() {
    let fixture = Fixture::new("tiers-busy");
    fixture.up(3, "2+1", "512M");
    // The mount learns of the tier when a file of it is there.
    let mount = fixture.mount("mnt");
    fixture.must(&["tier", "add", "main", "1+2"]);
    let path = mount.join("file");
    fs::write(&path, bytes_of(1, 3 << 20)).expect("written");
    let writer = OpenOptions::new().write(true).open(&path).expect("a writer");
    fixture.shoal(&["convert", text(&path), "--code", "1+2"]).refused(&["open for writing"]);
    writer.write_all_at(&bytes_of(2, 4096), 10_000).expect("it goes on writing");
    drop(writer);
    let moved =
        wait_for(Duration::from_secs(30), || fixture.shoal(&["convert", text(&path), "--code", "1+2"]).ok);
    assert!(moved, "it can be moved when it is closed");
    let mut expected = bytes_of(1, 3 << 20);
    expected[10_000..10_000 + 4096].copy_from_slice(&bytes_of(2, 4096));
    assert!(fs::read(&path).expect("read") == expected);
    // What is truncated to nothing begins in the first tier again.
    fs::write(&path, b"new").expect("written anew");
    assert_eq!(contents(&fixture), [(1, 3), (0, 0)]);
    fixture.check_logs(&[]);
}

#[test]
fn files_go_where_their_use_puts_them() {
    let fixture = Fixture::new("tiers-run");
    fixture.up(3, "1+2", "512M");
    fixture.must(&["tier", "add", "main", "2+1"]);
    let mount = fixture.mount("mnt");
    let old = std::time::SystemTime::now() - Duration::from_secs(40 * 86_400);
    for name in ["old", "new"] {
        fs::write(mount.join(name), bytes_of(3, 100_000)).expect("written");
    }
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    File::options().write(true).open(mount.join("old")).expect("open").set_times(times).expect("times");
    let run = ["tier", "run", "main", "--cold-after", "30d", "--hot-within", "1d", "--json"];
    let with = |more: &[&str]| fixture.must(&[&run[..], more].concat()).json();
    let dry = with(&["--dry-run"]);
    assert_eq!((&dry["seen"], &dry["moved"]), (&2.into(), &1.into()), "{dry}");
    assert_eq!(contents(&fixture), [(2, 200_000), (0, 0)], "nothing has moved");
    let closed = || with(&["--once", "--rate", "10M"])["busy"] == 0;
    assert!(wait_for(Duration::from_secs(30), closed), "nobody has the files open");
    assert_eq!(contents(&fixture), [(1, 100_000), (1, 100_000)]);
    assert!(fs::read(mount.join("old")).expect("read") == bytes_of(3, 100_000));
    // A write is use.
    OpenOptions::new()
        .write(true)
        .open(mount.join("old"))
        .expect("open")
        .write_all_at(b"x", 5)
        .expect("written");
    let back = || with(&["--once"])["moved"] == 1;
    assert!(wait_for(Duration::from_secs(30), back), "what is used comes back");
    assert_eq!(contents(&fixture), [(2, 200_000), (0, 0)]);
    fixture.check_logs(&[]);
}

/// Moves everything to and fro by processes that are killed at any moment.
fn move_about(fixture: &Fixture, dir: &Path, done: &AtomicBool) -> u64 {
    let (mut prng, mut moved) = (Prng::new(7), 0);
    while !done.load(Ordering::Relaxed) {
        let code = if prng.below(2) == 0 { "4+2" } else { "1+2" };
        let mut command = fixture.command(&["convert", text(dir), "--code", code, "--json"]);
        let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut mover = command.spawn().expect("a mover");
        if prng.below(2) == 0 {
            thread::sleep(Duration::from_millis(prng.below(1500)));
            kill_now(mover.id() as i32);
            mover.wait().expect("killed");
            continue;
        }
        let said = mover.wait_with_output().expect("a mover");
        if let Ok(tally) = serde_json::from_slice::<Value>(&said.stdout) {
            moved += tally["moved"].as_u64().unwrap_or(0);
        }
    }
    moved
}

/// Reads and rewrites files of its own, and knows what is in them.
fn use_files(dir: &Path, who: u64, rounds: u64) {
    let mut prng = Prng::new(who);
    let mut known: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for round in 0..rounds {
        let path = dir.join(format!("{who}-{}", prng.below(4)));
        match known.get_mut(&path) {
            None => {
                let bytes = bytes_of(who * 1000 + round, 1 + prng.below(2 << 20) as usize);
                fs::write(&path, &bytes).expect("written");
                known.insert(path, bytes);
            }
            Some(bytes) if prng.below(3) == 0 => {
                let at = prng.below(bytes.len() as u64);
                let part = bytes_of(round, 1 + prng.below(200_000) as usize);
                let file = File::options().write(true).open(&path).expect("open");
                file.write_all_at(&part, at).expect("written");
                let end = at as usize + part.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(&part);
            }
            Some(_) if prng.below(6) == 0 => {
                fs::remove_file(&path).expect("removed");
                known.remove(&path);
            }
            Some(bytes) => {
                let found = fs::read(&path).expect("read");
                assert!(found == *bytes, "{}: not what was written, in round {round}", path.display());
            }
        }
    }
    for (path, bytes) in known {
        assert!(fs::read(&path).expect("read") == bytes, "{} at the end", path.display());
    }
}

#[test]
fn nothing_is_lost_while_movers_and_bricks_are_killed() {
    let fixture = Fixture::new("tiers-nemesis");
    fixture.up(6, "4+2", "1G");
    fixture.must(&["tier", "add", "main", "1+2"]);
    let mounts = [fixture.mount("mnt-0"), fixture.mount("mnt-1")];
    let dir = mounts[0].join("dir");
    fs::create_dir(&dir).expect("a directory");
    let dirs: Vec<PathBuf> = mounts.iter().map(|mount| mount.join("dir")).collect();
    let done = AtomicBool::new(false);
    let plan = Plan::harsh(6);
    let work = || {
        thread::scope(|scope| {
            let mover = scope.spawn(|| move_about(&fixture, &dir, &done));
            let users: Vec<_> = (1..=4)
                .map(|who| {
                    let dir = &dirs[who as usize % 2];
                    scope.spawn(move || use_files(dir, who, 600))
                })
                .collect();
            let ended: Vec<_> = users.into_iter().map(|user| user.join()).collect();
            done.store(true, Ordering::Relaxed);
            let moved = mover.join().expect("the movers");
            ended.into_iter().for_each(|user| user.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            moved
        })
    };
    let (moved, faults) =
        within(Duration::from_secs(300), "tiers", || under_nemesis(&fixture, &plan, 11, work));
    println!("{moved} files moved by movers that were not killed; {faults} faults");
    assert!(moved > 0, "nothing has moved");
    fixture.verified();
    fs::remove_dir_all(&dir).expect("all of it is removed");
    // What killed movers had copied goes with their leases.
    assert!(wait_for(Duration::from_secs(60), || units(&fixture) == 0), "{} units are left", units(&fixture));
}

#[test]
fn what_cannot_be_moved_is_refused_with_a_remedy() {
    let fixture = Fixture::new("tiers-refused");
    fixture.up(3, "2+1", "512M");
    fixture.must(&["volume", "create", "vm", "--code", "2+1", "--same-node", "--block", "16M"]);
    let mount = fixture.mount("mnt");
    let file = mount.join("file");
    fs::write(&file, b"bytes").expect("written");
    let refused = |words: &[&str], what: &str| fixture.shoal(words).refused(&[what]);
    refused(&["convert", text(&file), "--code", "1+2"], "no tier of code 1+2");
    refused(&["convert", "/etc/hostname", "--code", "2+1"], "not on a mount of Shoal");
    refused(&["tier", "run", "main", "--cold-after", "30d"], "has one tier");
    refused(&["tier", "run", "main", "--cold-after", "soon"], "not a time");
    refused(&["tier", "add", "main", "2+1"], "has a tier of code 2+1 already");
    refused(&["tier", "add", "main", "8+2"], "needs 10 failure domains");
    let class = if fixture.status()["bricks"][0]["class"] == "hdd" { "ssd" } else { "hdd" };
    refused(&["tier", "add", "main", &format!("1+2@{class}")], &format!("of class {class}"));
    refused(&["tier", "add", "main", "1+2@tape"], "not a class of bricks");
    refused(&["tier", "add", "vm", "1+2"], "is a disk");
    refused(&["tier", "list", "nothing"], "no volume `nothing`");
    refused(&["volume", "create", "x", "--hot", "1+2"], "--cold");
    refused(&["volume", "create", "x", "--hot", "1+2", "--cold", "2+1", "--block", "1G"], "--block");
    refused(&["volume", "create", "x", "--hot", "1+2", "--cold", "1+2"], "both tiers have code 1+2");
    fixture.must(&["tier", "add", "main", "1+2"]);
    fixture.must(&["tier", "add", "main", "1+1"]);
    fixture.must(&["tier", "add", "main", "3+0"]);
    refused(&["tier", "add", "main", "1+0"], "as many tiers as it can");
    refused(&["tier", "run", "main", "--cold-after", "1h", "--hot-within", "2h"], "back and forth");
    assert_eq!(fs::read(&file).expect("read"), b"bytes");
    fixture.check_logs(&[]);
}
