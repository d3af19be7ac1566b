//! Direct bricks: bytes stay right over kills and changes between both ways, the queue is shown and tuned, and what makes no
//! sense is refused.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{Fixture, Pages, Prng, kill_now, make_stable, read_direct, text, within};
use crate::loop_device::Loop;
use crate::remote::Cluster;

const FILE: usize = 24 << 20;
/// Time in which a brick is back, however slow the machine is.
const SOON: Duration = Duration::from_secs(120);

impl Cluster<'_> {
    fn queue(&self) -> Value {
        self.run(&["brick", "tune", "b1", "--json"]).json()
    }

    fn class(&self, name: &str) -> Value {
        let queue = self.queue();
        let classes = queue["classes"].as_array().cloned().unwrap_or_default();
        classes.into_iter().find(|class| class["class"] == name).unwrap_or_default()
    }
}

#[test]
fn a_brick_changes_between_both_ways_and_is_killed_in_each() {
    let fixture = Fixture::new("direct");
    let device = Loop::new(&fixture, "disk", 512 << 20);
    let cluster = Cluster::new(&fixture);
    let direct = ["--io", "direct", "--memory", "32M", "--scheduler", "slq-auto"];
    let mut pid = cluster.brick_with(1, &device.device, &[&["--format", "--id", "1"], &direct[..]].concat());
    cluster.wait_until("b1", "up");
    let made = cluster.run(&["volume", "create", "main", "--code", "1+0", "--unit", "64K"]);
    assert!(made.ok, "{}", made.stderr);
    let mount = cluster.mount("mnt");
    let tuned = cluster.run(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]);
    assert!(tuned.ok, "{}", tuned.stderr);
    let (path, mut bytes, mut prng) = (mount.join("f"), Prng::new(1).bytes(FILE), Prng::new(2));
    make_stable(&path, &bytes);

    for round in 0..4 {
        assert!(within(SOON, "a read", || read_direct(&path, FILE, Pages::LEN)) == bytes, "round {round}");
        if round % 2 == 0 {
            let queue = cluster.queue();
            assert_eq!((&queue["depth"], &queue["scheduler"]), (&32.into(), &"slq-auto".into()));
            assert!(queue["cache_used"].as_u64() > Some(1 << 20), "{queue:#}");
            assert!(cluster.class("read")["requests"].as_u64() > Some(100), "{queue:#}");
        } else {
            cluster.run(&["brick", "tune", "b1"]).refused(&["b1 has no queue of its own", "--io direct"]);
        }
        // Small writes, which are folded, of any offset and length.
        let file = OpenOptions::new().write(true).open(&path).expect("the file");
        for _ in 0..60 {
            let len = 1 + prng.below(20_000) as usize;
            let part = prng.bytes(len);
            let at = prng.below((FILE - part.len()) as u64);
            file.write_all_at(&part, at).expect("written");
            bytes[at as usize..][..part.len()].copy_from_slice(&part);
        }
        file.sync_all().expect("stable");
        drop(file);
        kill_now(pid as i32);
        let way: &[&str] = if round % 2 == 0 { &[] } else { &direct };
        pid = cluster.brick_with(1, &device.device, way);
        cluster.wait_until("b1", "up");
    }
    assert!(within(SOON, "a read", || read_direct(&path, FILE, Pages::LEN)) == bytes);
    let verified = cluster.run(&["volume", "verify", "main"]);
    assert!(verified.ok && verified.stdout.contains("all is well"), "{}{}", verified.stdout, verified.stderr);
    assert!(cluster.class("scrub")["requests"].as_u64() > Some(0), "who checks reads the device");
    fixture.check_logs(&["is in use by another process: waiting"]);
}

#[test]
fn the_queue_of_a_direct_brick_is_tuned_while_it_serves() {
    let fixture = Fixture::new("direct-tune");
    let device = Loop::new(&fixture, "disk", 256 << 20);
    let cluster = Cluster::new(&fixture);
    cluster.brick_with(1, &device.device, &["--format", "--id", "1", "--io", "direct", "--depth", "4"]);
    cluster.wait_until("b1", "up");
    let tune = |words: &[&str]| cluster.run(&[&["brick", "tune", "b1"], words].concat());
    let said = tune(&[]).stdout;
    for words in ["which has 4 at a time; order within a class: noop", "journal  first, always", "rebuild"] {
        assert!(said.contains(words), "{said}");
    }
    let changes = [
        "depth=8",
        "scheduler=slq-nearest",
        "read-priority=16K",
        "rebuild.reservation=300",
        "scrub.limit=100",
    ];
    let tuned = tune(&[&changes[..], &["--json"]].concat()).json();
    assert_eq!((&tuned["depth"], &tuned["scheduler"]), (&8.into(), &"slq-nearest".into()));
    assert_eq!(tuned["parameters"]["read-priority"], 16 << 10);
    let rebuild = cluster.class("rebuild");
    assert_eq!((&rebuild["reservation"], &rebuild["weight"]), (&300.into(), &100.into()));
    for (changes, words) in [
        (&["depth=0"][..], &["`depth=0`: a depth is 1 to 1024"][..]),
        (&["speed=9"], &["there is no key `speed`", "brick tune --help"]),
        (&["journal.weight=3"], &["the journal goes first"]),
        (&["read.reservation=900"], &["thousandths together"]),
        (&["scheduler=lottery"], &["`lottery` is no policy", "slq-auto"]),
        (&["read-priority=1G"], &["read-priority 1073741824 is out of range"]),
    ] {
        tune(changes).refused(words);
    }
    assert_eq!(cluster.queue()["depth"], 8, "nothing has changed");
    cluster.run(&["brick", "tune", "b7"]).refused(&["no brick b7", "shoal status"]);
    cluster.run(&["brick", "tune", "seven"]).refused(&["`seven` is no brick"]);
}

/// A device is measured, and what was found is what a brick on it goes by; a profile of another device is not.
#[test]
fn a_brick_goes_by_what_was_measured_of_its_device() {
    let fixture = Fixture::new("probe");
    let dir = fixture.path("there");
    fs::create_dir_all(&dir).expect("a directory");
    let measured = |args: &[&str]| {
        let ran = within(SOON, "a probe", || fixture.shoal(&[&["brick", "probe", "--json"], args].concat()));
        assert!(ran.ok, "{}", ran.stderr);
        ran.json()
    };
    // A file of its own, which is gone afterwards.
    let found = measured(&[text(&dir), "--size", "64M"]);
    for direction in ["reads", "writes"] {
        let found = &found[direction];
        assert!(
            found["iops"].as_f64() > Some(10.0) && found["bytes_per_second"].as_f64() > Some(1e5),
            "{found:#}"
        );
        assert!(found["median_us"].as_f64() <= found["p99_us"].as_f64(), "{found:#}");
        assert_eq!(found["by_depth"].as_array().map(Vec::len), Some(9));
    }
    let left: Vec<_> = fs::read_dir(&dir).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["brick.profile.json"]);

    let device = Loop::new(&fixture, "disk", 256 << 20);
    let full = Loop::new(&fixture, "full", 128 << 20);
    OpenOptions::new()
        .write(true)
        .open(&full.device)
        .and_then(|file| file.write_all_at(b"x", 1 << 16))
        .expect("a byte");
    fixture.shoal(&["brick", "probe", "--erase", &full.device]).refused(&["is not empty"]);
    let profile = fixture.path("disk.json");
    let probe = [&device.device[..], "--profile", text(&profile)];
    fixture.shoal(&["brick", "probe", text(&dir), "--erase"]).refused(&["--erase is for a block device"]);
    fixture.shoal(&["brick", "probe", text(&dir), "--size", "1M"]).refused(&["too little to measure", "64M"]);
    fixture.shoal(&["brick", "probe", text(&dir), "--size", "900T"]).refused(&["free", "a smaller --size"]);
    fixture.shoal(&["brick", "probe", "/nowhere/at/all"]).refused(&["/nowhere/at/all"]);
    let cluster = Cluster::new(&fixture);
    let pid = cluster.brick_with(1, &device.device, &["--format", "--id", "1"]);
    cluster.wait_until("b1", "up");
    fixture.shoal(&[&["brick", "probe"], &probe[..]].concat()).refused(&["is served by another process"]);
    kill_now(pid as i32);
    fixture.shoal(&[&["brick", "probe", "--erase"], &probe[..]].concat()).refused(&["holds a brick"]);
    let found = measured(&probe);
    assert!(found["writes"].is_null(), "a device with data is only read: {found:#}");
    let start = ["--io", "direct", "--profile", text(&profile)];
    let pid = cluster.brick_with(1, &device.device, &start);
    cluster.wait_until("b1", "up");
    assert_eq!(cluster.queue()["depth"], found["depth"]);
    kill_now(pid as i32);

    let other =
        fs::read_to_string(&profile).expect("a profile").replace(&*device.file.to_string_lossy(), "S3Z8");
    fs::write(&profile, other).expect("written");
    let refused = |words: &[&str]| {
        let args = ["brick", "--disk", &device.device, "--node", "1", "--listen", "127.0.0.1:1"];
        within(SOON, "a brick", || cluster.run(&[&args[..], &start].concat())).refused(words);
    };
    refused(&["is the profile of another device: S3Z8", "shoal brick probe"]);
    fs::write(&profile, "{}").expect("written");
    refused(&["is no profile of a device"]);
    fs::remove_file(&profile).expect("removed");
    refused(&["is not there", "shoal brick probe"]);
    fixture.check_logs(&["is in use by another process: waiting"]);
}
