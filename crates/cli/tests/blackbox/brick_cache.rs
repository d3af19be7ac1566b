//! The cache of a brick on a faster disk: what it saves the slow one, that a killed brick finds it again, that programs go
//! on when its disk fails under them, and what is refused.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{Fixture, Pages, Prng, kill_now, make_stable, read_direct, text, wait_for, within};
use crate::loop_device::Loop;
use crate::remote::{Cluster, nbdkit};

const FILE: usize = 8 << 20;
/// Time in which what was read is in the cache, or a brick is back, however slow the machine is.
const SOON: Duration = Duration::from_secs(120);

impl Cluster<'_> {
    /// A mount of a volume on the one brick. Nothing of the client keeps bytes.
    fn plain_mount(&self) -> PathBuf {
        self.wait_until("b1", "up");
        let made = self.run(&["volume", "create", "main", "--code", "1+0"]);
        assert!(made.ok, "{}", made.stderr);
        let mount = self.mount("mnt");
        let tuned = self.run(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]);
        assert!(tuned.ok, "{}", tuned.stderr);
        mount
    }

    fn cache(&self) -> Value {
        self.find("b1")["cache"].clone()
    }

    fn number(&self, name: &str) -> u64 {
        self.cache()[name].as_u64().unwrap_or(0)
    }

    /// Reads a file until all of it comes from the cache.
    fn read_until_cached(&self, path: &Path, bytes: &[u8]) {
        let cached = || {
            let before = self.number("hit_bytes");
            assert!(read(path) == bytes);
            self.number("hit_bytes") - before >= bytes.len() as u64
        };
        assert!(wait_for(SOON, cached), "{:#}", self.cache());
    }
}

/// The file without the kernel's cache.
fn read(path: &Path) -> Vec<u8> {
    read_direct(path, FILE, Pages::LEN)
}

#[test]
fn a_killed_brick_finds_its_cache_again() {
    let fixture = Fixture::new("brick-cache");
    let fast = Loop::new(&fixture, "fast", 96 << 20);
    let slow = nbdkit(&fixture, "slow", 12, &[]);
    slow.start();
    let cluster = Cluster::new(&fixture);
    let new = ["--format", "--id", "1", "--cache", &fast.device, "--format-cache"];
    let mut pid = cluster.brick_with(1, &slow.url, &new);
    let mount = cluster.plain_mount();
    let (path, mut bytes) = (mount.join("f"), Prng::new(1).bytes(FILE));
    make_stable(&path, &bytes);
    cluster.read_until_cached(&path, &bytes);
    let said = cluster.run(&["status"]).stdout;
    assert!(said.contains("cache of b1: ") && said.contains(" % of the bytes that were read"), "{said}");

    for round in 0..3 {
        // A killed brick forgets what it has added in the last two seconds.
        thread::sleep(Duration::from_secs(3));
        // Another file is read, and so added, while the brick is killed.
        let other = mount.join(format!("other{round}"));
        let others = Prng::new(9 + round).bytes(FILE);
        make_stable(&other, &others);
        thread::scope(|scope| {
            let reader = scope.spawn(|| within(SOON, "a read while a brick is away", || read(&other)));
            assert!(wait_for(SOON, || cluster.number("misses") > 10), "it is read: {:#}", cluster.cache());
            kill_now(pid as i32);
            pid = cluster.brick_with(1, &slow.url, &["--cache", &fast.device]);
            assert!(reader.join().expect("a reader") == others, "round {round}");
        });
        cluster.wait_until("b1", "up");
        // Until the brick knows all decisions, and the mount knows that it is back, reads go through the primary.
        let missed = cluster.number("missed_bytes");
        let most = FILE as u64 * 3 / 4;
        let found = wait_for(SOON, || {
            let before = cluster.number("hit_bytes");
            assert!(read(&path) == bytes, "round {round}");
            cluster.number("hit_bytes") - before >= most
        });
        let is_found = found && cluster.number("missed_bytes") - missed < most / 2;
        assert!(is_found, "round {round}: {missed} bytes were missed before: {:#}", cluster.cache());
        // It changes, and is read as it is.
        let part = Prng::new(100 + round).bytes(100_000);
        let file = OpenOptions::new().write(true).open(&path).expect("the file");
        file.write_all_at(&part, 300_000 * round).and_then(|()| file.sync_all()).expect("stable bytes");
        bytes[300_000 * round as usize..][..part.len()].copy_from_slice(&part);
        assert!(read(&path) == bytes, "round {round}");
        cluster.read_until_cached(&path, &bytes);
    }

    // Without its cache the brick has everything.
    kill_now(pid as i32);
    cluster.brick_with(1, &slow.url, &[]);
    assert!(within(SOON, "a read", || read(&path)) == bytes);
    assert_eq!(cluster.cache(), Value::Null);
    fixture.check_logs(&["is in use by another process: waiting"]);
}

#[test]
fn programs_go_on_when_the_disk_of_the_cache_fails_under_them() {
    let fixture = Fixture::new("brick-cache-fails");
    let fast = Loop::new(&fixture, "fast", 96 << 20);
    let cluster = Cluster::new(&fixture);
    let disk = fixture.path("disk");
    let new = ["--format", "--id", "1", "--size", "512M", "--cache", &fast.device, "--format-cache"];
    let pid = cluster.brick_with(1, text(&disk), &new);
    let mount = cluster.plain_mount();
    let (path, bytes) = (mount.join("f"), Prng::new(1).bytes(FILE));
    make_stable(&path, &bytes);
    cluster.read_until_cached(&path, &bytes);

    thread::scope(|scope| {
        // Reads and writes at random; each block that is read has its checksum.
        let load = scope.spawn(|| {
            Command::new("fio")
                .args(["--name=load", "--rw=randrw", "--rwmixread=70", "--bs=4k", "--direct=1", "--size=16m"])
                .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--do_verify=1"])
                .args(["--ioengine=psync", "--loops=3", "--verify_backlog=64"])
                .arg(format!("--directory={}", text(&mount)))
                .output()
                .expect("fio runs: `apt-get install fio`")
        });
        let from = cluster.number("hits");
        assert!(wait_for(SOON, || cluster.number("hits") > from + 100), "{:#}", cluster.cache());
        fast.resize(4096);
        assert!(wait_for(SOON, || cluster.cache()["state"] == "off"), "{:#}", cluster.cache());
        assert!(within(SOON, "a read", || read(&path)) == bytes);
        let ran = load.join().expect("fio");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    });
    let said = cluster.run(&["status"]).stdout;
    let line = said.lines().find(|line| line.starts_with("cache of b1: ")).expect("a line");
    assert!(line.contains(", off: "), "{line}");
    assert_eq!(cluster.find("b1")["state"], "up");
    let hits = cluster.number("hits");
    assert!(read(&path) == bytes);
    assert_eq!(cluster.number("hits"), hits, "it stays off");

    // A disk that is replaced.
    fast.resize(64 << 20);
    kill_now(pid as i32);
    cluster.brick_with(1, text(&disk), &["--cache", &fast.device, "--format-cache"]);
    assert!(within(SOON, "a read", || read(&path)) == bytes);
    cluster.read_until_cached(&path, &bytes);
    fixture.check_logs(&["it is off until the next start", "nothing is added until the next start"]);
}

#[test]
fn a_cache_of_a_brick_that_cannot_be_used_is_refused() {
    let fixture = Fixture::new("brick-cache-refused");
    let cluster = Cluster::new(&fixture);
    let (disk, file) = (fixture.path("disk"), fixture.path("cache"));
    let (at, cache) = (text(&disk), text(&file));
    let pid = cluster.brick_with(1, at, &["--format", "--id", "1", "--size", "256M"]);
    cluster.wait_until("b1", "up");
    kill_now(pid as i32);
    let refused = |more: &[&str], words: &[&str]| {
        let args = ["brick", "--disk", at, "--node", "1", "--listen", "127.0.0.1:0"];
        within(SOON, "a brick that is refused", || cluster.run(&[&args, more].concat())).refused(words);
    };
    refused(&["--cache-size", "64M"], &["--cache"]);
    refused(&["--format-cache"], &["--cache"]);
    refused(&["--cache", cache], &["there is no cache", "--cache-size"]);
    refused(&["--cache", cache, "--cache-size", "1M"], &["too small: the least is 64 MiB"]);
    refused(&["--cache", cache, "--cache-size", "900T"], &["there is no room for a cache of 900 TiB"]);
    refused(
        &["--cache", text(&fixture.path("")), "--cache-size", "64M"],
        &["neither a file nor a block device"],
    );
    let _ = fs::remove_file(&file);

    // Somebody's file, and somebody's disk that begins with zeros, stay as they are.
    fs::write(&file, "precious").expect("a file");
    refused(&["--cache", cache, "--cache-size", "64M"], &["is not a cache of Shoal", "--format-cache"]);
    assert_eq!(fs::read(&file).expect("the file"), b"precious");
    fs::write(&file, [vec![0; 1 << 20], b"precious".to_vec()].concat()).expect("a file");
    refused(&["--cache", cache], &["is not a cache of Shoal", "--format-cache"]);
    refused(&["--cache", cache, "--cache-size", "64M"], &["is not a cache of Shoal", "--format-cache"]);
    assert_eq!(fs::metadata(&file).expect("the file").len(), (1 << 20) + 8);
    let device = Loop::new(&fixture, "device", 64 << 20);
    refused(&["--cache", &device.device], &["is not a cache of Shoal", "--format-cache"]);
    refused(&["--cache", &device.device, "--cache-size", "64M"], &["is a block device", "--cache-size"]);
    assert!(fs::read(&device.file).expect("the file").iter().all(|byte| *byte == 0), "nothing was written");
    // A cache of another cluster, and the brick's own disk and another one's.
    let mut header = b"SHOALCCH\x01\0\0\0".to_vec();
    header.extend([9; 16]);
    header.extend(29_u32.to_le_bytes());
    header.extend(types::checksum::crc(&header).to_le_bytes());
    header.resize(1 << 20, 0);
    fs::write(&file, &header).expect("a file");
    refused(&["--cache", cache], &["belongs to cluster", "--format-cache"]);
    refused(&["--cache", cache, "--cache-size", "64M"], &["belongs to cluster", "--format-cache"]);
    refused(
        &["--cache", at, "--format-cache"],
        &["is in use by another process", "every brick needs its own"],
    );
    let brick = fixture.path("brick");
    fs::copy(&disk, &brick).expect("a copy");
    let larger = ["--cache", text(&brick), "--format-cache", "--cache-size", "64M"];
    refused(&larger[..3], &["is brick b1 of cluster"]);
    refused(&larger, &["is brick b1 of cluster"]);
    assert_eq!(fs::metadata(&brick).expect("the copy").len(), 256 << 20);
    // Too little memory: what it takes is said, and is enough.
    let large = fixture.path("large");
    let small = ["--cache", text(&large), "--cache-size", "1G", "--memory", "2M"];
    refused(&small, &["MiB of the process's memory", "--memory 7M"]);
    assert!(!large.exists(), "what was made for nothing is not left");

    // After all this, good ones: made, given up and made anew, and found.
    let steps: [&[&str]; 4] = [
        &["--cache", text(&large), "--cache-size", "1G", "--memory", "7M"],
        &["--cache", cache, "--format-cache", "--cache-size", "64M"],
        &["--cache", cache, "--cache-size", "64M"],
        &["--cache", &device.device, "--format-cache"],
    ];
    for more in steps {
        let pid = cluster.brick_with(1, at, more);
        let on = wait_for(SOON, || cluster.find("b1")["pid"] == pid && cluster.cache()["state"] == "on");
        assert!(on, "{more:?}: {:#} {}", cluster.cache(), fixture.said("brick1"));
        kill_now(pid as i32);
    }
    assert_eq!(fs::metadata(&file).expect("the file").len(), 64 << 20);
}
