//! A full disk under the metadata service refuses changes and ends nothing. One under a brick ends this brick, which says so.
//!
//! Full bricks give an error, lose nothing that was acknowledged, and go on when there is space: four writers fill
//! them, twice, and every synced piece is compared.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::fixture::{Fixture, Prng, make_stable, text, wait_for, within};

const WRITERS: u64 = 4;
const PIECE: usize = 192 << 10;

/// A file and how many pieces of it were synced.
struct Written {
    path: PathBuf,
    seed: u64,
    synced: usize,
}

fn pieces(seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut prng = Prng::new(seed);
    std::iter::repeat_with(move || prng.bytes(PIECE))
}

/// Appends and syncs piece by piece until an error comes out; then gives what was synced before.
fn fill(dir: &Path, writer: u64) -> (Written, Option<i32>) {
    let path = dir.join(format!("w{writer}"));
    let seed = writer + 100;
    let file = File::create(&path).expect("a file");
    let mut written = Written { path, seed, synced: 0 };
    for (number, piece) in pieces(seed).enumerate() {
        let offset = (number * PIECE) as u64;
        // Half of the writers write small parts. They mostly hear of the error from an fsync.
        let parts: Vec<&[u8]> = piece.chunks(if writer.is_multiple_of(2) { PIECE } else { 5000 }).collect();
        let mut at = offset;
        let mut done = Ok(());
        for part in parts {
            done = done.and_then(|()| file.write_all_at(part, at));
            at += part.len() as u64;
        }
        match done.and_then(|()| file.sync_all()) {
            Ok(()) => written.synced = number + 1,
            Err(error) => return (written, error.raw_os_error()),
        }
        assert!(number < 4000, "the bricks never fill up");
    }
    unreachable!("pieces never end")
}

fn check(mount: &Path, written: &Written) {
    let found = fs::read(mount.join(written.path.file_name().expect("a name"))).expect("the file");
    for (number, piece) in pieces(written.seed).take(written.synced).enumerate() {
        let at = number * PIECE;
        assert!(found.get(at..at + PIECE) == Some(&piece[..]), "{}: piece {number}", written.path.display());
    }
}

#[test]
fn full_bricks_say_so_and_go_on_when_there_is_space() {
    let fixture = Fixture::new("full-writers");
    fixture.up(6, "4+2", "48M");
    let mount = fixture.mount("mnt");
    for round in 0..2 {
        let dir = mount.join(format!("round{round}"));
        fs::create_dir(&dir).expect("a directory");
        let all: Vec<(Written, Option<i32>)> = within(Duration::from_secs(120), "filling up", || {
            thread::scope(|scope| {
                let writers: Vec<_> = (0..WRITERS).map(|writer| (writer, dir.clone())).collect();
                let writers: Vec<_> = writers
                    .into_iter()
                    .map(|(writer, dir)| scope.spawn(move || fill(&dir, writer)))
                    .collect();
                writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
            })
        });
        for (written, errno) in &all {
            assert_eq!(*errno, Some(nix::libc::ENOSPC), "round {round}: {}", written.path.display());
            check(&dir, written);
        }
        let pieces: usize = all.iter().map(|(written, _)| written.synced).sum();
        println!("round {round}: {} MiB fit", (pieces * PIECE) >> 20);
        assert!(pieces * PIECE > 50 << 20, "round {round}: {pieces} pieces fit");
        fixture.verified();
        // Half of it goes, and that much comes back.
        for (written, _) in &all[..2] {
            fs::remove_file(&written.path).expect("a file goes");
        }
        let fits = || {
            let file = File::create(dir.join("again"));
            file.and_then(|file| file.write_all_at(&[3; 4 << 20], 0).and_then(|()| file.sync_all())).is_ok()
        };
        assert!(wait_for(Duration::from_secs(60), fits), "round {round}: the space comes back");
        for (written, _) in &all[2..] {
            check(&dir, written);
        }
        fs::remove_dir_all(&dir).expect("all of it goes");
        let has_room = || {
            let status = fixture.status();
            let mut bricks = status["bricks"].as_array().expect("bricks").iter();
            bricks.all(|b| b["free"].as_u64() > b["capacity"].as_u64().map(|capacity| capacity * 9 / 10))
        };
        assert!(wait_for(Duration::from_secs(60), has_room), "round {round}: {}", fixture.status());
    }
}

/// A file system of its own, small, at a directory.
struct Small(PathBuf);

impl Small {
    /// What the directory has moves there.
    fn at(dir: &Path, size: &str) -> Small {
        let aside = dir.with_extension("aside");
        fs::rename(dir, &aside).expect("nobody uses it");
        fs::create_dir(dir).expect("free");
        let options = format!("size={size},mode=0700");
        run("mount", &["-t", "tmpfs", "-o", &options, "small", text(dir)]);
        run("cp", &["-a", &format!("{}/.", text(&aside)), text(dir)]);
        Small(dir.to_owned())
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).expect("a file");
        let piece = vec![1; 1 << 16];
        while file.write(&piece).is_ok_and(|taken| taken > 0) {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).expect("it is there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", text(&self.0)]).status();
    }
}

fn run(program: &str, words: &[&str]) {
    let ran = Command::new(program).args(words).status().expect("it is installed");
    assert!(ran.success(), "{program} {words:?}");
}

#[test]
fn a_brick_whose_disk_is_full_says_so_and_comes_back_when_there_is_room() {
    let fixture = Fixture::new("full-disk");
    fixture.up(4, "2+1", "64M");
    fixture.must(&["down"]);
    let (bricks, disk) = (fixture.home().join("bricks"), fixture.path("disk"));
    fs::create_dir(&disk).expect("a directory");
    let small = Small::at(&disk, "32M");
    // Its blocks are taken when they are written.
    run("cp", &["--sparse=always", text(&bricks.join("b1")), text(&disk.join("b1"))]);
    fs::set_permissions(disk.join("b1"), fs::Permissions::from_mode(0o600)).expect("ours");
    fs::remove_file(bricks.join("b1")).expect("it is copied");
    symlink(disk.join("b1"), bricks.join("b1")).expect("free");
    fixture.must(&["up"]);
    let mount = fixture.mount("mnt");
    small.fill();
    let bytes = Prng::new(3).bytes(24 << 20);
    make_stable(&mount.join("file"), &bytes);
    let log = || fs::read_to_string(fixture.home().join("log/b1.log")).expect("a log");
    let has_ended = || log().lines().any(|line| line.starts_with("error:"));
    assert!(wait_for(Duration::from_secs(30), has_ended), "{}", log());
    let said: Vec<String> = log().lines().map(str::to_owned).collect();
    let error = said.iter().find(|line| line.starts_with("error:")).expect("it is there");
    assert!(
        error.contains("no space is left for the brick") && !error.contains("the disk failed"),
        "{error}"
    );
    assert!(said.iter().any(|line| line.contains("try: room on its file system")), "{said:?}");
    assert!(fs::read(mount.join("file")).expect("the others have it") == bytes);
    small.make_room();
    fixture.must(&["up"]);
    let is_level = || {
        let status = fixture.status();
        status["bricks"][0]["state"] == "up" && status["progress"]["out"] == 0
    };
    assert!(wait_for(Duration::from_secs(60), is_level), "{}", fixture.status());
    fixture.verified();
    fixture.umount(&mount);
}

/// Makes files until there is no room. Returns how many were made.
fn make_until_full(dir: &Path) -> usize {
    for n in 0..20_000 {
        if let Err(error) = File::create_new(dir.join(format!("f{n}"))) {
            assert_eq!(error.raw_os_error(), Some(nix::libc::ENOSPC), "file {n}");
            return n;
        }
    }
    panic!("the disk of the metadata service is never full");
}

#[test]
fn a_full_disk_of_the_metadata_service_refuses_changes_until_there_is_room() {
    let fixture = Fixture::new("full-meta");
    fixture.up(3, "2+1", "64M");
    fixture.must(&["down"]);
    let small = Small::at(&fixture.home().join("meta"), "64M");
    fixture.must(&["up"]);
    let mount = fixture.mount("mnt");
    let kept = mount.join("kept");
    fs::write(&kept, [7; 100_000]).expect("there is room");
    let before = fixture.pid("meta");

    small.fill();
    let first = mount.join("first");
    fs::create_dir(&first).expect("the journal has room");
    let made = within(Duration::from_secs(120), "making files", || make_until_full(&first));
    assert!(fs::read(&kept).expect("reads go on") == [7; 100_000]);
    assert_eq!(fs::read_dir(&first).expect("it is listed").count(), made);
    fs::remove_file(first.join("f0")).expect("a removal needs little room");
    assert_eq!(fixture.pid("meta"), before, "the service runs");
    small.make_room();
    let goes_on = || File::create(mount.join("again")).is_ok();
    assert!(wait_for(Duration::from_secs(10), goes_on), "nobody has to start it again");
    assert_eq!(fixture.pid("meta"), before, "nobody has started it again");

    small.fill();
    let second = mount.join("second");
    fs::create_dir(&second).expect("the journal has room");
    let more = within(Duration::from_secs(120), "making files", || make_until_full(&second));
    fixture.kill("meta");
    small.make_room();
    fixture.must(&["up"]);
    assert_eq!(fs::read_dir(&first).expect("it is listed").count(), made - 1);
    assert_eq!(fs::read_dir(&second).expect("it is listed").count(), more);
    assert!(fs::read(&kept).expect("it is there") == [7; 100_000]);
    fixture.umount(&mount);
    fixture.must(&["meta", "check"]);
    fixture.must(&["down"]);
}
