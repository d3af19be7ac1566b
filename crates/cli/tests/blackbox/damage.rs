//! Damaged, foreign and full disks give an error and never a wrong byte: bytes of bricks are changed on purpose, and
//! all files are compared.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use store::Superblock;
use types::{BrickId, ClusterId};

use crate::fixture::{Fixture, Prng, text};
use crate::script::tree;

const MIB: u64 = 1 << 20;

/// Where things lie on a brick of `size` bytes.
fn layout(size: u64) -> Superblock {
    Superblock::lay_out(ClusterId::default(), BrickId(1), [0; 16], size, None).expect("a layout")
}

/// Changes one byte in every piece of `step` bytes of a zone that holds anything. Returns how many.
fn rot(disk: &Path, zone: std::ops::Range<u64>, step: usize) -> usize {
    let file = OpenOptions::new().read(true).write(true).open(disk).expect("a brick");
    let mut piece = vec![0; step];
    let mut changed = 0;
    for at in zone.step_by(step) {
        let Ok(n) = file.read_at(&mut piece, at) else { continue };
        if let Some(place) = piece[..n].iter().position(|b| *b != 0) {
            file.write_all_at(&[piece[place] ^ 0x55], at + place as u64).expect("a change");
            changed += 1;
        }
    }
    changed
}

fn brick_args<'a>(fixture: &Fixture, disk: &'a Path, port: &'a str) -> Vec<String> {
    let meta = fixture.status_meta();
    let key = fixture.home().join("key");
    let words = [
        "brick",
        "--disk",
        text(disk),
        "--meta",
        &meta,
        "--key-file",
        text(&key),
        "--node",
        "1",
        "--listen",
        port,
    ];
    words.map(str::to_owned).to_vec()
}

impl Fixture {
    /// Address of the embedded cluster's metadata service.
    pub(crate) fn status_meta(&self) -> String {
        let plan = fs::read_to_string(self.home().join("cluster.json")).expect("a plan");
        let plan: serde_json::Value = serde_json::from_str(&plan).expect("a plan");
        format!("127.0.0.1:{}", plan["port"])
    }

    fn brick_refused(&self, disk: &Path, words: &[&str]) {
        let args = brick_args(self, disk, "127.0.0.1:0");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.shoal(&args).refused(words);
    }
}

#[test]
fn rotten_units_are_decoded_around() {
    let fixture = Fixture::new("rot");
    fixture.up(6, "4+2", "256M");
    let mount = fixture.mount("mnt");
    for (name, len) in [("a", 10_000_000), ("b", 70_000), ("c", 3)] {
        fs::write(mount.join(name), Prng::new(len).bytes(len as usize)).expect("a file");
    }
    let right = tree(&mount);
    fixture.must(&["down"]);
    let zone = layout(256 * MIB);
    let changed = rot(&fixture.home().join("bricks/b1"), zone.data_start..256 * MIB, 65_536)
        + rot(&fixture.home().join("bricks/b2"), zone.data_start..256 * MIB, 65_536);
    assert!(changed > 4, "the bricks hold something");
    fixture.must(&["up"]);
    let mount = fixture.mount("mnt");
    assert_eq!(tree(&mount), right, "no rotten byte is returned");
    let status = fixture.status();
    let bricks = status["bricks"].as_array().expect("bricks");
    let sum = |what: &str| bricks.iter().filter_map(|b| b[what].as_u64()).sum::<u64>();
    assert!(sum("damaged") > 0 && sum("decoded") > 0, "{bricks:?}");
}

#[test]
fn a_damaged_superblock_has_a_second_copy() {
    let fixture = Fixture::new("superblock");
    fixture.up(3, "2+1", "128M");
    let mount = fixture.mount("mnt");
    fs::write(mount.join("file"), b"here").expect("a file");
    fixture.must(&["down"]);
    let disk = fixture.home().join("bricks/b2");
    rot(&disk, 0..4096, 4096);
    fixture.must(&["up"]);
    let mount = fixture.mount("mnt");
    assert_eq!(fs::read(mount.join("file")).expect("the file"), b"here");
    fixture.must(&["down"]);
    rot(&disk, 4096..8192, 4096);
    rot(&disk, 40..4096, 4096);
    fixture.shoal(&["up"]).refused(&["b2", "superblock"]);
}

#[test]
fn a_newer_format_is_left_alone() {
    let fixture = Fixture::new("format");
    fixture.up(3, "2+1", "128M");
    fixture.must(&["down"]);
    let disk = fixture.home().join("bricks/b3");
    let file = OpenOptions::new().read(true).write(true).open(&disk).expect("a brick");
    // Magic, then the format, then the rest, then the checksum of all that.
    const SUM_AT: usize = 8 + 100;
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, 0).expect("a superblock");
    let sum = types::checksum::crc(&block[..SUM_AT]).to_le_bytes();
    assert_eq!(block[SUM_AT..SUM_AT + 4], sum, "the checksum lies where this test expects it");
    block[8..12].copy_from_slice(&99u32.to_le_bytes());
    let sum = types::checksum::crc(&block[..SUM_AT]).to_le_bytes();
    block[SUM_AT..SUM_AT + 4].copy_from_slice(&sum);
    file.write_all_at(&block, 0).expect("the first copy");
    file.write_all_at(&block, 4096).expect("the second copy");
    let before = fs::read(&disk).expect("the brick");
    fixture.shoal(&["up"]).refused(&["format 99", "newer Shoal"]);
    assert!(fs::read(&disk).expect("the brick") == before, "nothing was written to it");
}

#[test]
fn a_damaged_journal_never_yields_wrong_bytes() {
    let fixture = Fixture::new("journal");
    fixture.up(6, "4+2", "128M");
    let mount = fixture.mount("mnt");
    let mut prng = Prng::new(21);
    for name in 0..20 {
        let file = File::create(mount.join(name.to_string())).expect("a file");
        file.write_all_at(&prng.bytes(50_000), 0).expect("a write");
        file.sync_all().expect("stable");
        file.write_all_at(&prng.bytes(5_000), 700).expect("an overwrite");
        file.sync_all().expect("stable");
    }
    let right = tree(&mount);
    fixture.umount(&mount);
    for name in ["meta", "b1", "b2", "b3", "b4", "b5", "b6"] {
        fixture.kill(name);
    }
    let zone = layout(128 * MIB);
    let disk = fixture.home().join("bricks/b1");
    let journal = fs::read(&disk).expect("the brick");
    let journal = &journal[zone.journal_start as usize..zone.pages_start as usize];
    let last = journal.iter().rposition(|b| *b != 0).expect("the journal holds something") as u64;
    let file = OpenOptions::new().write(true).open(&disk).expect("a brick");
    file.write_all_at(&[0xaa; 64], zone.journal_start + last.saturating_sub(100)).expect("damage");
    drop(file);
    if fixture.shoal(&["up"]).ok {
        let mount = fixture.mount("mnt-2");
        assert_eq!(tree(&mount), right);
    } else {
        // The brick may refuse; the others must do without it.
        assert!(fs::read_to_string(fixture.home().join("log/b1.log")).expect("a log").contains("journal"));
    }
}

#[test]
fn a_brick_of_another_cluster_is_refused() {
    let fixture = Fixture::new("other-cluster");
    fixture.up(3, "2+1", "128M");
    let other = fixture.path("other");
    fixture.must(&["up", "--dir", text(&other), "--bricks", "1", "--size", "128M"]);
    fixture.must(&["down", "--dir", text(&other)]);
    fixture.brick_refused(&other.join("bricks/b1"), &["cluster"]);
    // The cluster is none the worse.
    let mount = fixture.mount("mnt");
    fs::write(mount.join("file"), b"here").expect("a file");
}

#[test]
fn one_brick_is_served_once() {
    let fixture = Fixture::new("twice");
    fixture.up(3, "2+1", "128M");
    let disk = fixture.home().join("bricks/b1");
    fixture.brick_refused(&disk, &["is served by another process already"]);
    // A copy of the disk elsewhere is the same brick too.
    let copy = fixture.path("copy");
    let copied = Command::new("cp").arg("--sparse=always").arg(&disk).arg(&copy).status().expect("cp runs");
    assert!(copied.success());
    fixture.brick_refused(&copy, &["already served by another process"]);
    // Another disk under an id that is taken.
    let fresh = fixture.path("fresh");
    let mut args = brick_args(&fixture, &fresh, "127.0.0.1:0");
    args.extend(["--format", "--id", "1", "--size", "128M"].map(str::to_owned));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    fixture.shoal(&args).refused(&["exists already"]);
    let mount = fixture.mount("mnt");
    fs::write(mount.join("file"), b"here").expect("a file");
    assert_eq!(fs::read(mount.join("file")).expect("the file"), b"here");
}

#[test]
fn a_loss_that_a_write_has_told_is_told_by_fsync_too() {
    let fixture = Fixture::new("told-loss");
    fixture.up(3, "2+1", "64M");
    let mount = fixture.mount("mnt");
    let fill = File::create(mount.join("fill")).expect("a file");
    let fits =
        |number: u64| fill.write_all_at(&[7; 1 << 20], number << 20).and_then(|()| fill.sync_all()).is_ok();
    assert!((0..200).any(|number| !fits(number)), "the bricks never fill up");
    let file = File::create(mount.join("file")).expect("a file");
    // The kernel sends these bytes in two requests. The second one fails if the first one is lost by then.
    let at_once = file.write_all_at(&[1; 1 << 20], 0).map_err(|error| error.raw_os_error());
    assert!(matches!(at_once, Ok(()) | Err(Some(nix::libc::ENOSPC))), "{at_once:?}");
    // Writes until one fails, because an earlier one was lost. The write that fails adds nothing, so it loses nothing.
    let told = || {
        std::thread::sleep(std::time::Duration::from_secs(2));
        file.write_at(&[2; 4096], 1 << 20).is_err()
    };
    assert!(at_once.is_err() || (0..10).any(|_| told()), "no write has failed");
    let synced = file.sync_all().map_err(|error| error.raw_os_error());
    assert_eq!(synced, Err(Some(nix::libc::ENOSPC)), "what was written is not there");
    assert!(file.sync_all().is_ok(), "it is told once");
}

#[test]
fn a_full_cluster_says_so_and_loses_nothing() {
    let fixture = Fixture::new("full");
    fixture.up(3, "2+1", "64M");
    let mount = fixture.mount("mnt");
    let mut prng = Prng::new(31);
    let mut kept: Vec<(std::path::PathBuf, Vec<u8>)> = Vec::new();
    let full = loop {
        let (path, bytes) = (mount.join(format!("f{}", kept.len())), prng.bytes(2 << 20));
        let written = File::create(&path)
            .and_then(|file| file.write_all_at(&bytes, 0).and_then(|()| file.sync_all()))
            .map_err(|error| error.raw_os_error());
        match written {
            Ok(()) => kept.push((path, bytes)),
            Err(errno) => break errno,
        }
        assert!(kept.len() < 100, "200 MiB do not fit 128 MiB");
    };
    assert_eq!(full, Some(nix::libc::ENOSPC));
    assert!(kept.len() > 10, "{} files fit", kept.len());
    for (path, bytes) in &kept {
        assert!(fs::read(path).expect("a file") == *bytes, "{}", path.display());
    }
    for (path, _) in kept.drain(..8) {
        fs::remove_file(path).expect("a file goes");
    }
    // With an fsync: `fs::write` does not report an error of the close.
    let fits = || {
        let file = File::create(mount.join("again"));
        file.and_then(|file| file.write_all_at(&[3; 4 << 20], 0).and_then(|()| file.sync_all())).is_ok()
    };
    assert!(crate::fixture::wait_for(std::time::Duration::from_secs(60), fits), "the space comes back");
    fixture.umount(&mount);
    let mount = fixture.mount("mnt-2");
    for (path, bytes) in &kept {
        let path = mount.join(path.file_name().expect("a name"));
        assert!(fs::read(&path).expect("a file") == *bytes, "{}", path.display());
    }
    let again = fs::read(mount.join("again")).expect("a file");
    let wrong: Vec<usize> = (0..again.len()).step_by(4096).filter(|at| again[*at] != 3).collect();
    assert!(again == vec![3; 4 << 20], "{} bytes, wrong at {wrong:?}", again.len());
}
