//! Files and mounts do what the manual of Linux promises: `posix.py` makes the system calls on one or two mounts, and
//! compares what they answer.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use crate::fixture::{Fixture, text, within};

/// Runs a check of `posix.py`; returns what it says.
fn check(name: &str, arguments: &[&Path]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox/posix.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(name).args(arguments);
    let ran = within(Duration::from_secs(120), name, || command.output().expect("python3 runs"));
    let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{name}: {said}{wrong}");
    said.into_owned()
}

/// A cluster with its volume mounted twice.
fn twice(name: &str) -> (Fixture, PathBuf, PathBuf) {
    let fixture = Fixture::new(name);
    fixture.up(4, "2+2", "1G");
    let (a, b) = (fixture.mount("a"), fixture.mount("b"));
    (fixture, a, b)
}

/// What mount(8) looks for to mount our type, and to remount it.
const HELPER: &str = "/sbin/mount.fuse.shoal";

/// The link that a user makes, for as long as a test needs it. Tests that run at the same time share the directory: one of them
/// has the link at a time.
struct Helper {
    _turn: Flock<File>,
}

impl Helper {
    fn new() -> Helper {
        let dir = File::open("/sbin").expect("a directory");
        let turn = Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, error)| error).expect("a lock");
        // One of a test that was killed, or of a user: for now it is ours.
        let _ = fs::remove_file(HELPER);
        symlink(env!("CARGO_BIN_EXE_shoal"), HELPER).expect("a link");
        Helper { _turn: turn }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = fs::remove_file(HELPER);
    }
}

fn mount8(options: &str, more: &[&str]) {
    let ran = Command::new("mount").args(["-o", options]).args(more).output().expect("mount(8) runs");
    assert!(ran.status.success(), "{options}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// `mount -o remount`, by mount(8) and what it calls for that.
fn remount(dir: &Path, options: &str) {
    mount8(&format!("remount,{options}"), &[text(dir)]);
    let line = listed(dir);
    for word in [options, "nosuid", "nodev"] {
        assert!(line.split([' ', ',']).any(|found| found == word), "{word} is not in: {line}");
    }
}

/// The words that mount(8) hands to every helper; nothing is said by one that succeeds.
#[test]
fn a_mount_takes_the_usual_words_of_mount_8() {
    let fixture = Fixture::new("mount8");
    fixture.up(3, "2+1", "256M");
    let _helper = Helper::new();
    let dir = fixture.path("mnt");
    fs::create_dir(&dir).expect("a directory");
    let log = fixture.path("mount.log");
    let mut words = vec!["defaults,noatime,relatime,nosuid,nodev,nofail,user=somebody,x-what=ever"];
    words.push("noexec,nodiratime,sync,dirsync");
    for options in words {
        let options = format!("{options},dir={},log={}", text(&fixture.home()), text(&log));
        let ran = Command::new(HELPER).args(["main", text(&dir), "-o", &options]).output().expect("it runs");
        assert!(ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(), "{options}: {ran:?}");
        let line = listed(&dir);
        for word in ["noexec", "nodiratime", "sync"].iter().filter(|word| options.contains(**word)) {
            assert!(line.split([' ', ',']).any(|found| found == *word), "{word} is not in: {line}");
        }
        fixture.umount(&dir);
    }
}

/// The kernel's line about a mount.
fn listed(dir: &Path) -> String {
    let all = fs::read_to_string("/proc/self/mountinfo").expect("the list of mounts");
    all.lines().find(|line| line.contains(text(dir))).expect("it is mounted").to_owned()
}

#[test]
fn what_is_removed_goes_on_working_while_it_is_open() {
    let (fixture, a, b) = twice("posix-removed");
    check("removed", &[&a, &b]);
    check("removed", &[&b, &a]);
    fixture.check_logs(&[]);
}

#[test]
fn an_open_by_name_finds_what_the_name_is_of_now() {
    let (fixture, a, b) = twice("posix-names");
    check("found_by_name", &[&a, &b]);
    check("found_by_name", &[&b, &a]);
    fixture.check_logs(&[]);
}

#[test]
fn allocation_adds_zeros_and_takes_nothing() {
    let (fixture, a, b) = twice("posix-allocate");
    check("allocate", &[&a, &b]);
    check("allocate_beside", &[&a, &b]);
    check("privileges", &[&a]);
    fixture.umount(&a);
    fixture.umount(&b);
    let alone = fixture.mount_with("c", &["--exclusive"]);
    check("allocate", &[&alone, &alone]);
    check("allocate_beside", &[&alone, &alone]);
    fixture.check_logs(&[]);
}

#[test]
fn holes_are_found() {
    let (fixture, a, b) = twice("posix-holes");
    check("seek", &[&a]);
    check("mapped", &[&a]);
    // The other mount asks about the same file, which nobody writes now.
    check("extents", &[&b.join("sparse")]);
    fixture.umount(&a);
    fixture.umount(&b);
    let alone = fixture.mount_with("c", &["--exclusive"]);
    check("seek", &[&alone]);
    check("mapped", &[&alone]);
    fixture.check_logs(&[]);
}

#[test]
fn times_before_1970_and_far_ones_come_back() {
    let (fixture, a, b) = twice("posix-times");
    check("times", &[&a]);
    check("far_times", &[&a]);
    fixture.umount(&a);
    fixture.umount(&b);
    check("times", &[&fixture.mount_with("c", &["--exclusive"])]);
    fixture.check_logs(&[]);
}

#[test]
fn reads_count_as_relatime_says() {
    let (fixture, a, b) = twice("posix-atime");
    let _helper = Helper::new();
    check("relatime", &[&a, &b]);
    let quiet = fixture.mount_with("c", &["--noatime"]);
    check("quiet", &[&quiet]);
    remount(&quiet, "relatime");
    check("counts", &[&quiet]);
    remount(&quiet, "noatime");
    check("quiet", &[&quiet]);
    [a, b, quiet].iter().for_each(|dir| fixture.umount(dir));
    check("relatime", &[&fixture.mount_with("d", &["--exclusive"])]);
    fixture.check_logs(&[]);
}

#[test]
fn through_a_read_only_mount_nothing_is_changed() {
    let (fixture, a, b) = twice("posix-read-only");
    let _helper = Helper::new();
    fs::write(a.join("file"), "content").expect("a file");
    let reader = fixture.mount_with("c", &["--read-only"]);
    check("unchangeable", &[&reader]);
    check("quiet_all", &[&reader, &a]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32.. {
                fs::write(a.join("busy"), format!("{round:08}").repeat(5000)).expect("others write");
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..30 {
            // Between the cut and the write it is empty.
            let seen = fs::read(reader.join("busy")).unwrap_or_default();
            assert!(seen.len() % 8 == 0, "{} bytes", seen.len());
        }
        stop.store(true, Ordering::Relaxed);
    });
    remount(&reader, "rw");
    fs::write(reader.join("written"), "x").expect("it may be written now");
    remount(&b, "ro");
    check("unchangeable", &[&b]);
    remount(&b, "rw");
    fs::write(b.join("written"), "y").expect("it may be written again");
    fixture.check_logs(&[]);
}

/// As from a line of /etc/fstab.
#[test]
fn mount_takes_the_options_of_fstab() {
    let fixture = Fixture::new("posix-mount8");
    fixture.up(4, "2+2", "1G");
    let _helper = Helper::new();
    let (dir, home) = (fixture.path("m"), fixture.home());
    fs::create_dir_all(&dir).expect("a mount point");
    let meta = fixture.status_meta();
    let (key, log) = (home.join("key"), fixture.path("m.log"));
    let options = format!("noatime,nofail,meta={meta},key-file={},log={}", text(&key), text(&log));
    mount8(&options, &["-t", "fuse.shoal", "main", text(&dir)]);
    assert!(listed(&dir).contains("noatime"), "{}", listed(&dir));
    fs::write(dir.join("file"), "content").expect("a file");
    fixture.umount(&dir);
    fixture.check_logs(&[]);
}

#[test]
fn handles_outlive_a_mount() {
    let (fixture, a, b) = twice("posix-handles");
    let kept = fixture.path("handles");
    check("take_handles", &[&a, &kept]);
    fixture.umount(&a);
    let again = fixture.mount("a");
    check("use_handles", &[&again, &kept, &b]);
    fixture.check_logs(&[]);
}

/// It is not removed here: bricks look at every stripe below the size of a file for that.
#[test]
fn the_largest_file_works() {
    let (fixture, a, b) = twice("posix-largest");
    println!("{}", check("largest", &[&a]));
    fixture.umount(&a);
    fixture.umount(&b);
    fixture.check_logs(&[]);
}

/// A disk as large as the largest file, and one that is larger.
#[test]
fn disks_have_a_largest_size_too() {
    let fixture = Fixture::new("posix-disk");
    fixture.up(4, "2+2", "1G");
    let size = |bytes: u64| bytes.to_string();
    let disk = |name: &str, bytes: u64| {
        fixture.shoal(&["volume", "create", name, "--code", "2+2", "--same-node", "--block", &size(bytes)])
    };
    disk("larger", (1 << 62) + 4096).refused(&["a disk cannot have", "4194304 TiB"]);
    let made = disk("largest", 1 << 62);
    assert!(made.ok, "{}", made.stderr);
}
