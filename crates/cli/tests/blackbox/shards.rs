//! Two shards, each with one metadata server, on the same bricks. One of them is killed: the volumes of the other go on. What
//! commands say about shards, a backup of one that is restored, and what cannot be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, kill_now, make_stable, text, wait_for};

/// Time in which a shard serves again, however slow the machine is.
const SOON: Duration = Duration::from_secs(120);
const BRICKS: u16 = 3;

fn port(n: u16) -> u16 {
    28_000 + (std::process::id() % 400) as u16 * 10 + n
}

fn address(shard: u16) -> String {
    format!("127.0.0.1:{}", port(shard))
}

struct Cluster {
    fixture: Fixture,
    key: PathBuf,
    pids: RefCell<BTreeMap<u16, u32>>,
    lives: Cell<u32>,
}

impl Cluster {
    /// A first shard with the volume `main` and a second one with `more`.
    fn new(name: &str) -> Cluster {
        let fixture = Fixture::new(name);
        let dir = fixture.path("meta0");
        fixture.must(&["cluster", "init", "--dir", text(&dir)]);
        let key = dir.join("key");
        let cluster = Cluster { fixture, key, pids: RefCell::default(), lives: Cell::new(0) };
        cluster.start(0, "meta0");
        assert!(
            wait_for(SOON, || cluster.shoal(&["meta", "list"]).ok),
            "{}",
            cluster.fixture.said("meta0.1")
        );
        for n in 1..=BRICKS {
            let (id, disk) = (n.to_string(), cluster.fixture.path(&format!("disk{n}")));
            let listen = format!("127.0.0.1:{}", port(5 + n));
            let words =
                ["brick", "--disk", text(&disk), "--format", "--size", "256M", "--id", &id, "--node", &id];
            let words = cluster.at(&[&words[..], &["--listen", &listen]].concat());
            cluster.fixture.daemon(&format!("brick{n}"), &words);
        }
        let made = ["volume", "create", "main", "--code", "2+1"];
        assert!(wait_for(SOON, || cluster.shoal(&made).ok), "{}", cluster.shoal(&made).stderr);
        let made = cluster.add_shard("meta1");
        assert!(made.ok && made.stdout.contains("shard 1 of cluster"), "{}{}", made.stdout, made.stderr);
        cluster.start(1, "meta1");
        // Until all bricks have joined it, the first shard takes new volumes.
        let made = || {
            let made =
                cluster.shoal(&["volume", "create", "more", "--code", "2+1", "--shard", "1", "--json"]);
            made.ok && made.json()["shard"] == 1
        };
        assert!(wait_for(SOON, made), "{}", cluster.shoal(&["meta", "list"]).stdout);
        cluster
    }

    fn add_shard(&self, dir: &str) -> CommandOutput {
        let (dir, first) = (self.fixture.path(dir), address(0));
        let words =
            ["cluster", "init", "--dir", text(&dir), "--shard-of", &first, "--key-file", text(&self.key)];
        self.fixture.shoal(&words)
    }

    /// Starts the server of a shard.
    fn start(&self, shard: u16, dir: &str) {
        self.lives.set(self.lives.get() + 1);
        let (dir, listen) = (self.fixture.path(dir), address(shard));
        let words = ["meta", "--dir", text(&dir), "--listen", &listen, "--key-file", text(&self.key)];
        let pid = self.fixture.daemon(&format!("meta{shard}.{}", self.lives.get()), &words);
        self.pids.borrow_mut().insert(shard, pid);
    }

    /// Starts one more server of the second shard.
    fn join(&self, n: u16) {
        let (dir, listen, first) = (self.fixture.path(&format!("meta1-{n}")), address(n), address(1));
        let words = ["meta", "--dir", text(&dir), "--listen", &listen, "--join", &first];
        self.fixture.daemon(&format!("meta1-{n}"), &[&words[..], &["--key-file", text(&self.key)]].concat());
    }

    /// How many servers of the second shard follow.
    fn followers(&self) -> usize {
        let listed = self.must(&["meta", "list", "--json"]).json();
        let servers = listed["servers"].as_array().cloned().unwrap_or_default();
        servers.iter().filter(|server| server["shard"] == 1 && server["state"] == "follows").count()
    }

    fn kill(&self, shard: u16) {
        kill_now(self.pids.borrow()[&shard] as i32);
    }

    fn at<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let first: &'static str = Box::leak(address(0).into_boxed_str());
        [words, &["--meta", first, "--key-file", text(&self.key)]].concat()
    }

    fn shoal(&self, words: &[&str]) -> CommandOutput {
        self.fixture.shoal(&self.at(words))
    }

    fn must(&self, words: &[&str]) -> CommandOutput {
        let ran = self.shoal(words);
        assert!(ran.ok, "{words:?}: {}{}", ran.stdout, ran.stderr);
        ran
    }

    fn mount(&self, volume: &str) -> PathBuf {
        let (dir, log) = (self.fixture.path(volume), self.fixture.path(&format!("{volume}.log")));
        fs::create_dir_all(&dir).expect("a directory");
        self.must(&["mount", volume, text(&dir), "--log", text(&log)]);
        dir
    }

    /// The volumes, with their shards.
    fn volumes(&self) -> BTreeMap<String, u64> {
        let listed = self.must(&["volume", "list", "--json"]).json();
        let volume = |volume: &Value| {
            (volume["name"].as_str().expect("a name").to_owned(), volume["shard"].as_u64().expect("a number"))
        };
        listed.as_array().expect("a list").iter().map(volume).collect()
    }
}

/// Makes files in a directory, each stable before the next.
fn make_files(dir: &Path, name: &str) {
    for n in 0..20 {
        make_stable(&dir.join(format!("{name}{n}")), &contents(name, n));
    }
}

fn contents(name: &str, n: usize) -> Vec<u8> {
    format!("{name}{n} ").repeat(3000 + n).into_bytes()
}

fn check_files(dir: &Path, name: &str) {
    for n in 0..20 {
        let found = fs::read(dir.join(format!("{name}{n}"))).expect("the file");
        assert!(found == contents(name, n), "{name}{n}");
    }
}

#[test]
fn a_dead_shard_takes_only_its_own_volumes_with_it() {
    let cluster = Cluster::new("shards-dead");
    let volumes = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(name, shard)| ((*name).to_owned(), *shard)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(cluster.volumes(), volumes(&[("main", 0), ("more", 1)]));
    let listed = cluster.must(&["volume", "list"]).stdout;
    assert!(listed.lines().next().is_some_and(|head| head.contains("shard")), "{listed}");
    let listed = cluster.must(&["meta", "list"]).stdout;
    assert!(listed.contains("shard 0") && listed.contains("shard 1"), "{listed}");
    let (main, more) = (cluster.mount("main"), cluster.mount("more"));
    make_files(&main, "first");
    make_files(&more, "first");

    cluster.kill(1);
    // Longer than any lease.
    std::thread::sleep(Duration::from_secs(5));
    make_files(&main, "alone");
    check_files(&main, "first");
    let listed = cluster.must(&["volume", "list"]);
    assert!(listed.stderr.contains("without the volumes of shard 1"), "{}", listed.stderr);
    cluster.shoal(&["volume", "create", "third", "--code", "2+1"]).refused(&["a shard does not answer"]);
    cluster.shoal(&["volume", "verify", "more"]).refused(&["shard 1"]);
    cluster.shoal(&["meta", "remove-shard", "1"]).refused(&["shard 1 does not answer", "--lost"]);
    let silent = cluster.must(&["meta", "list"]).stdout;
    assert!(silent.contains("None of its servers answers"), "{silent}");
    cluster.start(1, "meta1");
    make_files(&more, "again");
    check_files(&more, "first");

    cluster.kill(0);
    std::thread::sleep(Duration::from_secs(5));
    make_files(&more, "alone");
    check_files(&more, "again");
    cluster.start(0, "meta0");
    make_files(&main, "again");
    for volume in ["main", "more"] {
        cluster.must(&["volume", "verify", volume]);
    }
    for dir in [&main, &more] {
        ["first", "alone", "again"].iter().for_each(|name| check_files(dir, name));
        cluster.fixture.umount(dir);
    }
    let checked = cluster.must(&["meta", "check"]).stdout;
    assert!(checked.contains("the others: --shard 1"), "{checked}");
    for shard in ["0", "1"] {
        let checked = cluster.must(&["meta", "check", "--bricks", "--shard", shard]);
        assert!(checked.stdout.contains("all is well"), "{}", checked.stdout);
    }
}

#[test]
fn a_shard_is_restored_from_its_backup_and_removed_when_it_is_empty() {
    let cluster = Cluster::new("shards-moves");
    let more = cluster.mount("more");
    make_files(&more, "kept");
    // The mount knows one server, and learns of the others when that one follows.
    [2, 3].iter().for_each(|n| cluster.join(*n));
    assert!(wait_for(SOON, || cluster.followers() == 2), "{}", cluster.must(&["meta", "list"]).stdout);
    cluster.must(&["meta", "lead", &address(2), "--shard", "1"]);
    make_files(&more, "led");
    check_files(&more, "kept");
    cluster.must(&["meta", "lead", &address(1), "--shard", "1"]);
    [2, 3].iter().for_each(|n| drop(cluster.must(&["meta", "remove", &address(*n), "--shard", "1"])));
    check_files(&more, "led");
    let backup = cluster.fixture.path("names.bak");
    cluster.must(&["meta", "backup", text(&backup), "--shard", "1"]);
    cluster.fixture.umount(&more);
    cluster.kill(1);
    let restored = cluster.fixture.path("restored");
    // A server that was removed may need a moment to end.
    let restore = || cluster.fixture.shoal(&["meta", "restore", text(&backup), "--dir", text(&restored)]);
    assert!(wait_for(SOON, || restore().ok), "{}", restore().stderr);
    cluster.start(1, "restored");
    let is_known = || cluster.shoal(&["mount", "more", text(&more)]).ok;
    assert!(wait_for(SOON, is_known), "{}", cluster.shoal(&["status"]).stdout);
    check_files(&more, "kept");
    make_files(&more, "new");
    check_files(&more, "new");

    // What cannot be.
    cluster.shoal(&["volume", "create", "more", "--code", "2+1"]).refused(&["`more` exists already"]);
    cluster.shoal(&["volume", "create", "x", "--code", "2+1", "--shard", "5"]).refused(&["no such shard"]);
    cluster.shoal(&["meta", "check", "--shard", "5"]).refused(&["no shard 5", "meta list"]);
    cluster.shoal(&["meta", "remove-shard", "1"]).refused(&["shard 1 has volumes"]);
    cluster.shoal(&["meta", "remove-shard", "1", "--lost"]).refused(&["not lost"]);
    cluster.add_shard("meta1").refused(&["is the metadata store of cluster"]);
    let other = address(1);
    let of_other = |words: &[&str]| {
        cluster.fixture.shoal(&[words, &["--meta", &other, "--key-file", text(&cluster.key)]].concat())
    };
    of_other(&["volume", "create", "x", "--code", "2+1"]).refused(&["serves shard 1", "first shard"]);
    of_other(&["brick", "replace", "b1", "b2"]).refused(&["serves shard 1", "first shard"]);
    let (disk, listen) = (cluster.fixture.path("disk9"), format!("127.0.0.1:{}", port(9)));
    let brick = ["brick", "--disk", text(&disk), "--format", "--size", "256M", "--id", "9", "--node", "9"];
    of_other(&[&brick[..], &["--listen", &listen]].concat()).refused(&["first shard"]);
    let (dir, key) = (cluster.fixture.path("never"), text(&cluster.key));
    let words = ["cluster", "init", "--dir", text(&dir), "--shard-of", &other, "--key-file", key];
    cluster.fixture.shoal(&words).refused(&["not those of the first shard"]);

    cluster.fixture.umount(&more);
    let deleted = || cluster.shoal(&["volume", "delete", "more", "--yes"]).ok;
    assert!(wait_for(SOON, deleted));
    let removed = || cluster.shoal(&["meta", "remove-shard", "1"]).ok;
    assert!(wait_for(SOON, removed), "{}", cluster.shoal(&["meta", "remove-shard", "1"]).stderr);
    cluster.kill(1);
    cluster.must(&["volume", "create", "more", "--code", "2+1"]);
    assert_eq!(cluster.volumes()["more"], 0, "there is no other shard");
}
