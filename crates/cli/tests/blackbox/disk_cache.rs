//! The cache of a mount on a local disk: what the next mount finds there, that nothing old or damaged comes from it, that
//! programs go on when the disk fails, and which directories are refused.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{Fixture, Prng, kill_now, make_stable, read_direct, text, wait_for};
use crate::loop_device::{Loop, ran};

const FILE: usize = 4 << 20;
/// Time in which what was read is in the cache, however slow the machine is.
const SOON: Duration = Duration::from_secs(60);

impl Fixture {
    /// A mount with a cache in the directory `cache`; nothing else of the client keeps bytes.
    fn cached(&self, name: &str, cache: &Path) -> std::path::PathBuf {
        let mount = self.mount_with(name, &["--cache-dir", text(cache), "--cache", "64M"]);
        self.must(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]);
        mount
    }

    /// What `shoal xray` says of all since the mount began.
    fn seen(&self, mount: &Path) -> Value {
        self.must(&["xray", text(mount), "--once", "--json"]).json()
    }

    /// Bytes that were asked of bricks, and the numbers of the cache.
    fn bricks_and_cache(&self, mount: &Path) -> (u64, Value) {
        let seen = self.seen(mount);
        let layers = seen["layers"].as_array().expect("layers");
        let bricks = layers.iter().find(|layer| layer["name"] == "bricks").expect("bricks");
        (bricks["reads"]["bytes"].as_u64().expect("a number"), seen["disk_cache"].clone())
    }

    /// Reads a file until all of it comes from the cache: what the cache's disk was too busy for is not added.
    fn wait_until_filled(&self, mount: &Path, path: &Path) {
        let hits = || self.bricks_and_cache(mount).1["hit_bytes"].as_u64().expect("a number");
        let filled = || {
            let before = hits();
            let read = read(path, FILE + 4096).len();
            hits() - before >= read as u64
        };
        assert!(wait_for(SOON, filled), "{:#}", self.seen(mount));
    }
}

/// The file without the kernel's cache.
fn read(path: &Path, len: usize) -> Vec<u8> {
    read_direct(path, len, 4096)
}

#[test]
fn the_next_mount_reads_from_the_cache_and_nothing_old_or_damaged() {
    let fixture = Fixture::new("disk-cache");
    fixture.up(3, "2+1", "512M");
    let cache = fixture.path("cache");
    fs::create_dir(&cache).expect("a directory");
    let plain = fixture.mount("plain");
    let mut bytes = Prng::new(1).bytes(FILE + 777);
    make_stable(&plain.join("f"), &bytes);

    let mount = fixture.cached("mnt", &cache);
    let path = mount.join("f");
    assert!(read(&path, FILE + 4096) == bytes);
    fixture.wait_until_filled(&mount, &path);
    assert_eq!(fs::metadata(cache.join("shoal-cache")).expect("the file").mode() & 0o777, 0o600);
    assert!(fs::read_to_string(mount.join(".shoal/status")).expect("status").contains("\ndisk_cache on\n"));

    // Another mount may not have the same directory; this one goes on.
    let (_, ran) = fixture.try_mount("other", &["--cache-dir", text(&cache), "--cache", "64M"]);
    ran.refused(&["is in use by another process", "every mount needs its own"]);

    // The next mount: nothing comes from bricks.
    fixture.umount(&mount);
    let mount = fixture.cached("mnt", &cache);
    assert!(read(&path, FILE + 4096) == bytes);
    let (bricks, seen) = fixture.bricks_and_cache(&mount);
    assert_eq!((bricks, &seen["damaged"], &seen["state"]), (0, &0.into(), &"on".into()), "{seen}");
    let said = fixture.must(&["xray", text(&mount), "--once"]).stdout;
    assert!(said.contains("100 % of the bytes that programs read come from disk-cache"), "{said}");

    // Another mount writes over bytes, with the times as they were.
    let times = fs::metadata(plain.join("f")).expect("the file");
    let file = OpenOptions::new().write(true).open(plain.join("f")).expect("the file");
    file.write_all_at(&[7; 10_000], 5000).expect("bytes");
    file.set_modified(times.modified().expect("a time")).expect("a time");
    drop(file);
    bytes[5000..15_000].fill(7);
    assert!(read(&path, FILE + 4096) == bytes);
    assert_eq!(fs::metadata(&path).expect("the file").mtime_nsec(), times.mtime_nsec());
    fixture.wait_until_filled(&mount, &path);

    // The mount is killed, and its cache damaged.
    let wait = || fixture.bricks_and_cache(&mount).1["bytes"].as_u64() > Some(0);
    assert!(wait_for(SOON, wait));
    kill_now(fixture.mount_pid(&mount));
    fixture.umount(&mount);
    let mut file = OpenOptions::new().write(true).open(cache.join("shoal-cache")).expect("the cache");
    let noise = Prng::new(2).bytes(100_000);
    for at in (1 << 20..60 << 20).step_by(1 << 20) {
        file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&noise)).expect("bytes");
    }
    drop(file);
    let mount = fixture.cached("mnt", &cache);
    assert!(read(&path, FILE + 4096) == bytes);
    assert!(read(&path, FILE + 4096) == bytes);
    let seen = fixture.bricks_and_cache(&mount).1;
    assert_eq!(seen["state"], "on", "{seen}");

    // Through the kernel's cache, and with memory mapped: cp reads, dd writes.
    let copy = fixture.path("copy");
    for n in 0..3 {
        let ran = Command::new("cp").args([&path, &copy]).status().expect("cp runs");
        assert!(ran.success() && fs::read(&copy).expect("the copy") == bytes, "copy {n}");
        let part = Prng::new(n).bytes(4096);
        let writer = if n % 2 == 0 { &plain } else { &mount };
        let file = OpenOptions::new().write(true).open(writer.join("f")).expect("the file");
        file.write_all_at(&part, 8192 * n).expect("bytes");
        bytes[8192 * n as usize..][..4096].copy_from_slice(&part);
    }
    assert!(read(&path, FILE + 4096) == bytes);
    fixture.check_logs(&[]);
}

#[test]
fn programs_go_on_when_the_disk_fails_under_the_cache() {
    let fixture = Fixture::new("disk-cache-fails");
    fixture.up(3, "2+1", "512M");
    let disk = Loop::new(&fixture, "disk", 128 << 20);
    ran("mkfs.ext4", &["-q", &disk.device]);
    let cache = fixture.path("cache");
    fs::create_dir(&cache).expect("a directory");
    ran("mount", &["-o", "errors=continue", &disk.device, text(&cache)]);
    let plain = fixture.mount("plain");
    let mut bytes = Prng::new(1).bytes(FILE);
    make_stable(&plain.join("f"), &bytes);
    let mount = fixture.cached("mnt", &cache);
    let path = mount.join("f");
    fixture.wait_until_filled(&mount, &path);

    let (ended, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                assert!(read(&path, FILE + 4096) == bytes);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let has_begun = wait_for(SOON, || reads.load(Ordering::Relaxed) > 2);
        let file = cache.join("shoal-cache");
        ran("sync", &[text(&file)]);
        disk.resize(4096);
        // The kernel has all of it in RAM, and would not ask the disk.
        let forget = || ran("dd", &[&format!("if={}", text(&file)), "iflag=nocache", "count=0"]);
        let is_off = || {
            forget();
            fixture.bricks_and_cache(&mount).1["state"] == "off"
        };
        let was_off = wait_for(SOON, is_off);
        let then = reads.load(Ordering::Relaxed);
        let went_on = wait_for(SOON, || reads.load(Ordering::Relaxed) > then + 1);
        ended.store(true, Ordering::Relaxed);
        reader.join().expect("all bytes are right");
        assert!(has_begun && was_off && went_on, "{:#}", fixture.seen(&mount));
    });
    let said = fixture.must(&["xray", text(&mount), "--once"]).stdout;
    assert!(said.contains("the cache on the disk is off"), "{said}");
    let status = fs::read_to_string(mount.join(".shoal/status")).expect("status");
    assert!(status.contains("\ndisk_cache off\ndisk_cache_reason "), "{status}");

    // What others write is seen, and the next mount has a disk that works.
    let file = OpenOptions::new().write(true).open(plain.join("f")).expect("the file");
    file.write_all_at(&[7; 10_000], 5000).expect("bytes");
    drop(file);
    bytes[5000..15_000].fill(7);
    assert!(read(&path, FILE + 4096) == bytes);
    fixture.umount(&mount);
    // The process that had the file open ends soon after.
    let is_free = || Command::new("umount").arg(&cache).status().is_ok_and(|ended| ended.success());
    assert!(wait_for(SOON, is_free), "the disk of the cache stays in use");
    let mount = fixture.cached("mnt", &cache);
    fixture.wait_until_filled(&mount, &path);
    assert!(read(&path, FILE + 4096) == bytes);
    fixture.check_logs(&["it is off until the next start"]);
}

#[test]
fn a_cache_directory_that_cannot_be_used_is_refused() {
    let fixture = Fixture::new("disk-cache-refused");
    fixture.up(3, "2+1", "512M");
    let cache = fixture.path("cache");
    fs::create_dir(&cache).expect("a directory");
    let refused = |options: &[&str], words: &[&str]| {
        let (dir, ran) = fixture.try_mount("mnt", options);
        ran.refused(words);
        assert!(!dir.join(".shoal").exists(), "it is not mounted");
    };
    let at = text(&cache);
    refused(&["--cache", "64M"], &["--cache-dir"]);
    refused(&["--cache-dir", at, "--cache", "1M"], &["too small: the least is 64 MiB"]);
    refused(&["--cache-dir", at, "--cache", "x"], &["is not a size"]);
    refused(&["--cache-dir", at, "--cache", "900T"], &["there is no room for a cache of 900 TiB"]);
    refused(&["--cache-dir", at, "--cache", "1G", "--memory", "1M"], &["MiB of the process's memory"]);
    refused(&["--cache-dir", "/nowhere/at/all"], &["/nowhere/at/all cannot be used", "mkdir -p"]);
    let file = fixture.path("file");
    fs::write(&file, "x").expect("a file");
    refused(&["--cache-dir", text(&file)], &["is not a directory"]);

    // Somebody else's file stays as it is, and so does the cache of another cluster.
    let kept = cache.join("shoal-cache");
    fs::write(&kept, "precious").expect("a file");
    refused(&["--cache-dir", at, "--cache", "64M"], &["is not a cache of Shoal"]);
    assert_eq!(fs::read(&kept).expect("the file"), b"precious");
    let mut header = b"SHOALCCH\x01\0\0\0".to_vec();
    header.extend([9; 16]);
    header.extend(29_u32.to_le_bytes());
    header.extend(types::checksum::crc(&header).to_le_bytes());
    fs::write(&kept, &header).expect("a file");
    refused(&["--cache-dir", at, "--cache", "64M"], &["belongs to cluster"]);
    assert_eq!(fs::read(&kept).expect("the file"), header);
    fs::remove_file(&kept).expect("a file");

    // Disks that are too small, and read-only.
    let small = fixture.path("small");
    fs::create_dir(&small).expect("a directory");
    let tmpfs = |options: &str| {
        let ran = Command::new("mount").args(["-t", "tmpfs", "-o", options, "cache", text(&small)]).status();
        assert!(ran.expect("mount runs").success());
    };
    let end = || assert!(Command::new("umount").arg(&small).status().expect("umount runs").success());
    tmpfs("size=80m");
    refused(
        &["--cache-dir", text(&small), "--cache", "128M"],
        &["there is no room for a cache of 128 MiB", "--cache with"],
    );
    end();
    tmpfs("size=80m,ro");
    refused(&["--cache-dir", text(&small), "--cache", "64M"], &["Read-only file system"]);
    end();

    // After all this, a good one.
    let mount = fixture.mount_with("mnt", &["--cache-dir", at, "--cache", "64M"]);
    fixture.must(&["tune", text(&mount), "disk-cache=off"]);
    fixture.must(&["tune", text(&mount), "disk-cache=on"]);
    let plain = fixture.mount("plain");
    fixture.shoal(&["tune", text(&plain), "disk-cache=on"]).refused(&["no disk for it", "--cache-dir"]);
    fixture.check_logs(&[]);
}

#[test]
fn a_gate_has_a_cache_too() {
    let fixture = Fixture::new("disk-cache-nfs");
    fixture.up(3, "2+1", "512M");
    let cache = fixture.path("cache");
    fs::create_dir(&cache).expect("a directory");
    let log = fixture.path("nfs.log");
    let words = ["nfs", "main", "--listen", "127.0.0.1:0", "--log", text(&log)];
    fixture.must(&[&words[..], &["--cache-dir", text(&cache), "--cache", "64M"]].concat());
    assert_eq!(fs::metadata(cache.join("shoal-cache")).expect("the file").len(), 64 << 20);
    fixture.must(&["nfs", "main", "--stop"]);
    fixture.check_logs(&[]);
}
