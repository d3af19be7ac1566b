//! A brick that was away is brought level, and another one can take its place: bricks are killed and files written
//! without them, then other bricks are taken away and every byte is compared.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fixture::{CommandOutput, Fixture, Prng, kill_now, text, wait_for, within};
use crate::remote::Cluster;
use crate::script::tree;

/// Time in which a lost brick is noticed, or a slot is brought level, however slow the machine is.
const SOON: Duration = Duration::from_secs(120);

fn write(path: &Path, prng: &mut Prng, len: usize) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
    let mut file = File::create(path).expect("a file");
    file.write_all(&prng.bytes(len)).expect("a write");
    file.sync_all().expect("stable");
}

fn write_at(path: &Path, prng: &mut Prng, at: u64, len: usize) {
    let mut file = File::options().write(true).open(path).expect("the file");
    file.seek(SeekFrom::Start(at)).expect("a place");
    file.write_all(&prng.bytes(len)).expect("a write");
    file.sync_all().expect("stable");
}

/// Files of all kinds: `kept` stay as they are, `changed` and `removed` wait for [`change`].
fn fill(mount: &Path, prng: &mut Prng) {
    for dir in ["kept", "changed", "removed"] {
        for (at, len) in [10, 4096, 300_000, 1 << 20, 9_000_000].into_iter().enumerate() {
            write(&mount.join(dir).join(format!("f{at}")), prng, len);
        }
    }
}

/// What happens while a brick is away.
fn change(mount: &Path, prng: &mut Prng) {
    for at in 0..5 {
        fs::remove_file(mount.join(format!("removed/f{at}"))).expect("the file");
        write(&mount.join(format!("new/f{at}")), prng, 100_000 * (at + 1));
    }
    write(&mount.join("changed/f0"), prng, 70_000);
    write_at(&mount.join("changed/f2"), prng, 5_000, 100);
    File::options()
        .write(true)
        .open(mount.join("changed/f3"))
        .expect("the file")
        .set_len(200_000)
        .expect("cut");
    // Whole stripes, and small pieces of others.
    write_at(&mount.join("changed/f4"), prng, 1 << 20, 4 << 20);
    for at in 0..20 {
        write_at(&mount.join("changed/f4"), prng, 5_500_000 + at * 100_001, 3_000);
    }
}

/// A command's further words: which cluster, if not the embedded one.
struct To<'a>(&'a Fixture, Vec<String>);

impl To<'_> {
    fn run(&self, args: &[&str]) -> CommandOutput {
        let to: Vec<&str> = self.1.iter().map(String::as_str).collect();
        self.0.shoal(&[args, &to[..]].concat())
    }

    fn status(&self) -> serde_json::Value {
        self.run(&["status", "--json"]).json()
    }

    fn state_of(&self, brick: &str) -> String {
        let status = self.status();
        let bricks = status["bricks"].as_array().cloned().unwrap_or_default();
        let found = bricks.iter().find(|b| b["id"] == brick);
        found.and_then(|b| b["state"].as_str()).unwrap_or("unknown").to_owned()
    }

    fn wait_until(&self, brick: &str, state: &str) {
        assert!(wait_for(SOON, || self.state_of(brick) == state), "{brick} is {}", self.state_of(brick));
    }

    fn groups_of(&self, brick: &str) -> u64 {
        self.number_of(brick, "groups")
    }

    /// What a brick had told of itself when it last kept its lease.
    fn used_by(&self, brick: &str) -> u64 {
        self.number_of(brick, "capacity") - self.number_of(brick, "free")
    }

    fn number_of(&self, brick: &str, what: &str) -> u64 {
        let status = self.status();
        let bricks = status["bricks"].as_array().cloned().unwrap_or_default();
        bricks.iter().find(|b| b["id"] == brick).and_then(|b| b[what].as_u64()).expect("a known brick")
    }
}

fn embedded(fixture: &Fixture) -> To<'_> {
    To(fixture, Vec::new())
}

/// Starts a new brick beside the embedded cluster's.
pub(crate) fn start_brick(fixture: &Fixture, id: u32, node: u32, size: &str, meta: &str, key: &Path) -> u32 {
    let (disk, id_word, node) = (fixture.path(&format!("disk{id}")), id.to_string(), node.to_string());
    let mut args = vec!["brick", "--disk", text(&disk), "--listen", "127.0.0.1:0", "--node", &node];
    args.extend(["--meta", meta, "--key-file", text(key), "--format", "--id", &id_word, "--size", size]);
    fixture.daemon(&format!("brick{id}"), &args)
}

/// Loses bricks for good and compares everything, through a mount that has nothing in its caches.
fn compare_without(fixture: &Fixture, mount: PathBuf, bricks: &[&str], right: &impl PartialEq<Tree>) {
    fixture.umount(&mount);
    for brick in bricks {
        fixture.kill(brick);
    }
    for brick in bricks {
        embedded(fixture).wait_until(brick, "out");
    }
    let mount = fixture.mount("mnt-after");
    let now = within(SOON, "reading with bricks dead", || tree(&mount));
    assert!(*right == now, "some file is another one without {bricks:?}");
    fixture.umount(&mount);
}

type Tree = std::collections::BTreeMap<PathBuf, String>;

#[test]
fn a_brick_that_was_away_is_brought_level() {
    let fixture = Fixture::new("rejoin");
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount("mnt");
    let mut prng = Prng::new(5);
    fill(&mount, &mut prng);
    let cluster = embedded(&fixture);
    fixture.kill("b2");
    cluster.wait_until("b2", "out");
    let out = cluster.status()["progress"]["out"].as_u64().expect("a count");
    assert_eq!(out, cluster.groups_of("b2"));
    within(SOON, "writing without a brick", || change(&mount, &mut prng));
    let right = tree(&mount);
    fixture.must(&["up"]);
    cluster.wait_until("b2", "up");
    let level = || cluster.status()["progress"]["out"] == 0;
    assert!(wait_for(SOON, level), "{}", fixture.must(&["status"]).stdout);
    assert!(fixture.must(&["status"]).stdout.contains("slots are live"));
    assert!(tree(&mount) == right, "nothing has changed for the mount");
    compare_without(&fixture, mount, &["b1", "b5"], &right);
}

#[test]
fn another_brick_takes_the_place_of_one_that_is_gone() {
    let fixture = Fixture::new("replace");
    fixture.up(6, "4+2", "512M");
    let mount = fixture.mount("mnt");
    let mut prng = Prng::new(6);
    fill(&mount, &mut prng);
    let cluster = embedded(&fixture);
    fixture.kill("b3");
    cluster.wait_until("b3", "out");
    within(SOON, "writing without a brick", || change(&mount, &mut prng));
    let right = tree(&mount);
    let groups = cluster.groups_of("b3");
    start_brick(&fixture, 7, 1, "512M", &fixture.status_meta(), &fixture.home().join("key"));
    cluster.wait_until("b7", "up");
    assert!(fixture.must(&["status"]).stdout.contains("up, in no group"));
    let replaced = within(SOON, "a replacement", || {
        fixture.must(&["brick", "replace", "b3", "b7", "--wait", "--json"]).json()
    });
    assert_eq!((&replaced["groups"], &replaced["progress"]["out"]), (&groups.into(), &0.into()));
    assert_eq!((cluster.groups_of("b3"), cluster.groups_of("b7")), (0, groups));
    assert_eq!(cluster.status()["progress"]["out"], 0, "redundancy is back");
    // The old one is back after all: it is in no group, and does no harm.
    fixture.must(&["up"]);
    cluster.wait_until("b3", "up");
    assert!(fixture.must(&["brick", "replace", "3", "7"]).stdout.contains("nothing to do"));
    assert!(tree(&mount) == right, "nothing has changed for the mount");
    compare_without(&fixture, mount, &["b1", "b6"], &right);
}

#[test]
fn what_cannot_be_replaced_is_said() {
    let fixture = Fixture::new("replace-not");
    let init = fixture.path("meta");
    fixture.must(&["cluster", "init", "--dir", text(&init)]);
    let key = init.join("key");
    let meta = format!("127.0.0.1:{}", 25_000 + (std::process::id() % 5_000) as u16);
    fixture.daemon("meta", &["meta", "--dir", text(&init), "--listen", &meta, "--key-file", text(&key)]);
    let to = ["--meta", &meta, "--key-file", text(&key)].map(str::to_owned).to_vec();
    let cluster = To(&fixture, to);
    assert!(wait_for(SOON, || cluster.run(&["status"]).ok));
    let start = |id: u32, node: u32, size: &str| {
        let pid = start_brick(&fixture, id, node, size, &meta, &key);
        cluster.wait_until(&format!("b{id}"), "up");
        pid as i32
    };
    let pids: Vec<i32> = (1..=4).map(|id| start(id, id, "512M")).collect();
    assert!(cluster.run(&["volume", "create", "main", "--code", "2+1"]).ok);
    let mount = fixture.path("mnt");
    fs::create_dir(&mount).expect("a directory");
    assert!(cluster.run(&["mount", "main", text(&mount), "--log", text(&fixture.path("mnt.log"))]).ok);
    write(&mount.join("file"), &mut Prng::new(7), 300_000_000);
    fixture.umount(&mount);
    // The same number that decides whether b7 is too small.
    assert!(wait_for(SOON, || cluster.used_by("b1") > 96 << 20), "b1 has {}", cluster.used_by("b1"));

    let replace = |old: &str, new: &str| cluster.run(&["brick", "replace", old, new]);
    replace("9", "1").refused(&["the cluster has no brick b9", "shoal status"]);
    replace("1", "9").refused(&["no brick b9 that could take the place of b1", "--format --id 9"]);
    replace("b1", "b1").refused(&["b1 cannot take its own place", "start its process"]);
    replace("b1", "b2").refused(&["b1 is up", "stop the process of b1"]);
    fixture.shoal(&["brick", "replace", "one", "2"]).refused(&["`one` is no brick"]);
    kill_now(pids[0]);
    cluster.wait_until("b1", "out");
    replace("b1", "b2").refused(&["b2 is in group main/g", "two units of each stripe", "format a new one"]);
    start(6, 2, "512M");
    replace("b1", "b6").refused(&["b6 is on machine n2, as is b2", "in group main/g", "--same-node"]);
    start(7, 7, "96M");
    replace("b1", "b7").refused(&["b7 has ", " free, and b1 had ", " in use", "larger"]);
    let lost = start(8, 8, "512M");
    kill_now(lost);
    cluster.wait_until("b8", "out");
    replace("b1", "b8").refused(&["b8 is out: it cannot take the place of b1", "start the process of b8"]);
    kill_now(pids[1]);
    cluster.wait_until("b2", "out");
    start(9, 9, "512M");
    replace("b2", "b9").refused(&[
        "group main/g",
        "units of b2 cannot be computed",
        "start the process of b2",
    ]);
    assert_eq!(cluster.groups_of("b9"), 0, "a refusal changes nothing");

    let groups = cluster.groups_of("b1");
    let replaced = cluster.run(&["brick", "replace", "b1", "b9"]);
    assert!(replaced.stdout.contains(&format!("in {groups} groups")), "{}", replaced.stdout);
    assert_eq!((cluster.groups_of("b1"), cluster.groups_of("b9")), (0, groups));
    let again = replace("b1", "b9");
    assert!(again.ok && again.stdout.contains("nothing to do: b1 is in no group"), "{}", again.stdout);
    let spare = replace("b7", "b9");
    assert!(spare.ok && spare.stdout.contains("nothing to do: b7 is in no group"), "{}", spare.stdout);
}

#[test]
fn a_replacement_is_of_the_tiers_class() {
    let fixture = Fixture::new("replace-class");
    let cluster = Cluster::new(&fixture);
    let start = |id: u16, class: &str| {
        let (disk, word) = (fixture.path(&format!("disk{id}")), id.to_string());
        let new = ["--format", "--id", &word, "--size", "96M", "--class", class];
        let pid = cluster.brick_with(id, text(&disk), &new);
        cluster.wait_until(&format!("b{id}"), "up");
        pid as i32
    };
    let first = start(1, "ssd");
    for (id, class) in [(2, "ssd"), (3, "hdd"), (4, "hdd")] {
        start(id, class);
    }
    let created = cluster.run(&["volume", "create", "main", "--hot", "1+1@ssd", "--cold", "2+0@hdd"]);
    assert!(created.ok, "{}", created.stderr);
    kill_now(first);
    cluster.wait_until("b1", "out");
    start(5, "hdd");
    let replace = |words: &[&str]| cluster.run(&[&["brick", "replace", "b1", "b5"], words].concat());
    let groups = |brick: &str| cluster.find(brick)["groups"].as_u64().expect("a known brick");
    replace(&[]).refused(&[
        "b5 is of class hdd",
        "b1 holds units of tier 1+1@ssd of volume `main`",
        "--any-class",
    ]);
    let before = groups("b1");
    assert!(before > 0 && groups("b5") == 0, "a refusal changes nothing");
    let replaced = replace(&["--any-class"]);
    assert!(replaced.ok, "{}", replaced.stderr);
    assert_eq!((groups("b1"), groups("b5")), (0, before));
}
