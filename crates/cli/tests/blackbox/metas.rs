//! Three metadata servers: the one that leads is killed, stopped and wakes again, while a program works on many small files. It
//! sees pauses and nothing else. A server that lost its disk joins again, one that was removed ends, and what cannot be is
//! refused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, kill_now, text, wait_for, within};

/// Time in which a leader is elected, or a server is level, however slow the machine is.
const SOON: Duration = Duration::from_secs(120);
const SERVERS: usize = 3;
const BRICKS: u16 = 4;

fn port(n: u16) -> u16 {
    20_000 + (std::process::id() % 400) as u16 * 20 + n
}

fn address(server: usize) -> String {
    format!("127.0.0.1:{}", port(server as u16))
}

struct Cluster {
    fixture: Fixture,
    key: PathBuf,
    /// What is in that file.
    key_text: String,
    pids: RefCell<BTreeMap<usize, u32>>,
    /// How often each server was started.
    lives: RefCell<BTreeMap<usize, u32>>,
}

impl Cluster {
    /// Three servers that know each other, and a volume.
    fn new(name: &str) -> Cluster {
        let fixture = Fixture::new(name);
        let dir = fixture.path("meta0");
        fixture.must(&["cluster", "init", "--dir", text(&dir)]);
        let key = dir.join("key");
        let key_text = fs::read_to_string(&key).expect("a key").trim().to_owned();
        let cluster = Cluster { fixture, key, key_text, pids: RefCell::default(), lives: RefCell::default() };
        (0..SERVERS).for_each(|server| cluster.start(server));
        cluster
            .until("three servers", |servers| count(servers, "leads") == 1 && count(servers, "follows") == 2);
        for n in 1..=BRICKS {
            let (id, disk) = (n.to_string(), cluster.fixture.path(&format!("disk{n}")));
            let listen = format!("127.0.0.1:{}", port(10 + n));
            let words =
                ["brick", "--disk", text(&disk), "--format", "--size", "256M", "--id", &id, "--node", &id];
            cluster
                .fixture
                .daemon(&format!("brick{n}"), &cluster.at(&[&words[..], &["--listen", &listen]].concat()));
        }
        let made = || cluster.shoal(&["volume", "create", "main", "--code", "2+1"]).ok;
        assert!(wait_for(SOON, made), "{}", cluster.shoal(&["volume", "create", "main"]).stderr);
        cluster
    }

    fn log(&self, server: usize) -> String {
        format!("meta{server}.{}", self.lives.borrow().get(&server).copied().unwrap_or(0))
    }

    fn start(&self, server: usize) {
        *self.lives.borrow_mut().entry(server).or_default() += 1;
        let dir = self.fixture.path(&format!("meta{server}"));
        let (listen, first) = (address(server), address(0));
        let mut words = vec!["meta", "--dir", text(&dir), "--listen", &listen, "--key-file", text(&self.key)];
        if server > 0 {
            words.extend(["--join", &first]);
        }
        let pid = self.fixture.daemon(&self.log(server), &words);
        self.pids.borrow_mut().insert(server, pid);
    }

    fn kill(&self, server: usize) {
        kill_now(self.pids.borrow()[&server] as i32);
    }

    fn list(&self) -> String {
        (0..SERVERS).map(address).collect::<Vec<_>>().join(",")
    }

    fn at<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let list: &'static str = Box::leak(self.list().into_boxed_str());
        [words, &["--meta", list, "--key-file", text(&self.key)]].concat()
    }

    fn shoal(&self, words: &[&str]) -> CommandOutput {
        self.fixture.shoal(&self.at(words))
    }

    fn servers(&self) -> Vec<Value> {
        let listed = self.shoal(&["meta", "list", "--json"]);
        if !listed.ok {
            return Vec::new();
        }
        listed.json()["servers"].as_array().cloned().unwrap_or_default()
    }

    fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        let held = wait_for(SOON, || holds(&self.servers()));
        let said: String = (0..SERVERS).map(|server| self.fixture.said(&self.log(server))).collect();
        assert!(held, "there are never {what}: {}\n{said}", self.shoal(&["meta", "list"]).stdout);
    }

    fn leader(&self) -> usize {
        let leader = RefCell::new(None);
        self.until("leaders", |servers| {
            let leads = servers.iter().find(|server| server["state"] == "leads");
            let leads = leads.and_then(|leads| (0..SERVERS).find(|n| leads["address"] == address(*n)));
            leader.replace(leads).is_some() || leader.borrow().is_some()
        });
        leader.into_inner().expect("somebody leads")
    }

    fn mount(&self, name: &str) -> PathBuf {
        let (dir, log) = (self.fixture.path(name), self.fixture.path(&format!("{name}.log")));
        fs::create_dir_all(&dir).expect("a directory");
        let ran = self.shoal(&["mount", "main", text(&dir), "--log", text(&log)]);
        assert!(ran.ok, "{}", ran.stderr);
        dir
    }
}

fn count(servers: &[Value], state: &str) -> usize {
    servers.iter().filter(|server| server["state"] == state).count()
}

/// Works in two directories of two mounts while `faults` come. Then both mounts see all of it. Returns the longest operation,
/// in seconds.
fn under(cluster: &Cluster, faults: impl FnOnce()) -> f64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox/metas.py");
    let mounts = [cluster.mount("a"), cluster.mount("b")];
    let at_work: Vec<Child> = (0..2)
        .map(|seed| {
            let name = format!("of-{seed}");
            let (dir, other) = (mounts[seed].join(&name), mounts[1 - seed].join(&name));
            fs::create_dir(&dir).expect("a new directory");
            let mut command = Command::new("python3");
            command.arg(&script).arg(seed.to_string()).args([dir, other]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("python3 runs")
        })
        .collect();
    faults();
    let longest = at_work.into_iter().map(|work| {
        // This ends its standard input.
        let ran = within(SOON, "the work", || work.wait_with_output().expect("it was started"));
        let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{said}{wrong}");
        said.trim().parse::<f64>().expect("a number")
    });
    let longest = longest.fold(0.0, f64::max);
    mounts.iter().for_each(|mount| cluster.fixture.umount(mount));
    longest
}

#[test]
fn a_killed_leader_costs_a_pause() {
    let cluster = Cluster::new("metas-killed");
    let longest = under(&cluster, || {
        for _ in 0..4 {
            thread::sleep(Duration::from_secs(2));
            let leads = cluster.leader();
            cluster.kill(leads);
            cluster.until("new leaders", |servers| count(servers, "leads") == 1);
            cluster.start(leads);
            cluster.until("three servers", |servers| {
                count(servers, "leads") == 1 && count(servers, "follows") == 2
            });
        }
    });
    println!("the longest operation took {longest:.1} s");
}

#[test]
fn a_leader_that_stood_still_leads_no_more() {
    let cluster = Cluster::new("metas-stopped");
    under(&cluster, || {
        for seconds in [1, 8, 15] {
            thread::sleep(Duration::from_secs(1));
            let leads = cluster.leader();
            let pid = Pid::from_raw(cluster.pids.borrow()[&leads] as i32);
            kill(pid, Signal::SIGSTOP).expect("a signal");
            thread::sleep(Duration::from_secs(seconds));
            kill(pid, Signal::SIGCONT).expect("a signal");
            cluster.until("three servers", |servers| {
                count(servers, "leads") == 1 && count(servers, "follows") == 2
            });
        }
    });
}

#[test]
fn leaders_let_others_lead() {
    let cluster = Cluster::new("metas-lead");
    let longest = under(&cluster, || {
        for round in 0..6 {
            thread::sleep(Duration::from_secs(1));
            let leads = cluster.leader();
            let next = (leads + 1 + round % 2) % SERVERS;
            if round % 2 == 0 {
                let led = cluster.shoal(&["meta", "lead", &address(next)]);
                assert!(led.ok, "{}", led.stderr);
                cluster.until("leaders that were asked for", |servers| {
                    servers
                        .iter()
                        .any(|server| server["state"] == "leads" && server["address"] == address(next))
                });
            } else {
                // A server that is stopped in order lets another one lead first.
                let pid = Pid::from_raw(cluster.pids.borrow()[&leads] as i32);
                kill(pid, Signal::SIGTERM).expect("a signal");
                let said = || cluster.fixture.said(&cluster.log(leads)).contains("is to lead");
                assert!(wait_for(SOON, said), "{}", cluster.fixture.said(&cluster.log(leads)));
                cluster.until("new leaders", |servers| count(servers, "leads") == 1);
                cluster.start(leads);
            }
            cluster.until("three servers", |servers| {
                count(servers, "leads") == 1 && count(servers, "follows") == 2
            });
        }
        cluster
            .shoal(&["meta", "lead", "10.1.2.3:7400"])
            .refused(&["10.1.2.3:7400 is not a member", "meta list"]);
    });
    println!("the longest operation took {longest:.1} s");
}

#[test]
fn followers_come_and_go_unnoticed() {
    let cluster = Cluster::new("metas-followers");
    under(&cluster, || {
        for round in 0..3 {
            let leads = cluster.leader();
            let follows = (leads + 1 + round % 2) % SERVERS;
            cluster.kill(follows);
            thread::sleep(Duration::from_secs(3));
            cluster.start(follows);
            cluster.until("three servers", |servers| {
                count(servers, "leads") == 1 && count(servers, "follows") == 2
            });
        }
    });
}

#[test]
fn all_servers_at_once_come_back_with_everything() {
    let cluster = Cluster::new("metas-all");
    under(&cluster, || {
        thread::sleep(Duration::from_secs(2));
        (0..SERVERS).for_each(|server| cluster.kill(server));
        thread::sleep(Duration::from_secs(2));
        (0..SERVERS).for_each(|server| cluster.start(server));
        cluster
            .until("three servers", |servers| count(servers, "leads") == 1 && count(servers, "follows") == 2);
        thread::sleep(Duration::from_secs(2));
    });
}

/// Appends lines to a log, syncs each one, and says then how many there are.
const APPEND: &str = "
import os, sys
log = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
for n in range(1, 1000000):
    os.write(log, b'%099d\\n' % n)
    os.fsync(log)
    print(n, flush=True)
";

#[test]
fn a_log_is_as_long_as_it_was_synced_when_its_mount_and_the_leader_die_at_once() {
    let cluster = Cluster::new("metas-log");
    let (written, read) = (cluster.mount("a"), cluster.mount("b"));
    let said = cluster.fixture.path("said");
    for round in 0..3 {
        let (log, seen) = (written.join(format!("log{round}")), read.join(format!("log{round}")));
        let mut command = Command::new("python3");
        command.args(["-c", APPEND]).arg(&log).stdout(fs::File::create(&said).expect("a file"));
        let mut writer = command.stderr(Stdio::null()).spawn().expect("python3 runs");
        let synced = || {
            let said = fs::read_to_string(&said).expect("a file");
            said.lines().last().and_then(|line| line.parse::<u64>().ok()).unwrap_or(0)
        };
        assert!(wait_for(SOON, || synced() > 300 + 100 * round), "only {} records", synced());
        let status = fs::read_to_string(written.join(".shoal/status")).expect("a status");
        let noted = status.lines().find_map(|line| line.strip_prefix("syncs_noted "));
        assert!(noted.is_some_and(|noted| noted.parse::<u64>().is_ok_and(|noted| noted > 250)), "{status}");
        // Another mount sees what was synced before it asked.
        let (before, shown) = (synced(), fs::metadata(&seen).expect("the log").len());
        assert!(shown >= 100 * before, "{shown} bytes are shown after {before} records");
        let leads = cluster.leader();
        kill_now(cluster.fixture.mount_pid(&written));
        cluster.kill(leads);
        within(SOON, "the end of the writer", || writer.wait().expect("it was started"));
        cluster.start(leads);
        // The kernel keeps attributes for a second.
        thread::sleep(Duration::from_millis(1100));
        let shown = fs::metadata(&seen).expect("the log").len();
        assert!(shown >= 100 * synced(), "{shown} bytes are shown after {} records", synced());
        let text = fs::read_to_string(&seen).expect("the log");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() as u64 >= synced(), "{} of {} records", lines.len(), synced());
        let is_whole = |(at, line): (usize, &&str)| line.len() == 99 && line.parse() == Ok(at + 1);
        assert!(lines.iter().enumerate().all(is_whole), "{text}");
        cluster.fixture.umount(&written);
        assert_eq!(cluster.mount("a"), written);
        cluster
            .until("three servers", |servers| count(servers, "leads") == 1 && count(servers, "follows") == 2);
    }
    [read, written].iter().for_each(|mount| cluster.fixture.umount(mount));
}

#[test]
fn servers_join_and_go() {
    let cluster = Cluster::new("metas-members");
    let dir = cluster.mount("a");
    (0..200).for_each(|n| fs::write(dir.join(format!("{n}")), vec![n as u8; 100]).expect("room"));
    // A follower loses its disk.
    let leads = cluster.leader();
    let lost = if leads == 2 { 1 } else { 2 };
    cluster.kill(lost);
    fs::remove_dir_all(cluster.fixture.path(&format!("meta{lost}"))).expect("it was there");
    cluster.start(lost);
    cluster.until("three servers", |servers| count(servers, "leads") == 1 && count(servers, "follows") == 2);
    let table = cluster.shoal(&["meta", "list"]);
    assert!(
        table.ok && table.stdout.contains("leads") && table.stdout.contains("ms ago"),
        "{}",
        table.stdout
    );
    // It counts: without the leader, the two others go on.
    let leads = cluster.leader();
    cluster.kill(leads);
    cluster.until("new leaders", |servers| count(servers, "leads") == 1);
    let names = fs::read_dir(&dir).expect("a directory").count();
    assert_eq!(names, 200);
    cluster.start(leads);
    cluster.until("three servers", |servers| count(servers, "leads") == 1 && count(servers, "follows") == 2);

    // What cannot be.
    cluster
        .shoal(&["meta", "remove", "10.1.2.3:7400"])
        .refused(&["10.1.2.3:7400 is not a member", "meta list"]);
    let leads = cluster.leader();
    let follows = (0..SERVERS).find(|server| *server != leads && *server != 0).expect("there are three");
    let only =
        cluster.fixture.shoal(&["status", "--meta", &address(follows), "--key-file", text(&cluster.key)]);
    only.refused(&["follows another one", "shoal meta list"]);
    let elsewhere = format!("127.0.0.1:{}", port(9));
    let meta = cluster.fixture.path(&format!("meta{follows}"));
    cluster.kill(follows);
    let words = ["meta", "--dir", text(&meta), "--listen", &elsewhere, "--key-file", text(&cluster.key)];
    cluster.fixture.shoal(&words).refused(&[&address(follows), "--advertise"]);
    let empty = cluster.fixture.path("empty");
    let words = ["meta", "--dir", text(&empty), "--listen", "0.0.0.0:0", "--join", &address(0)];
    cluster
        .fixture
        .shoal(&[&words[..], &["--key-file", text(&cluster.key)]].concat())
        .refused(&["cannot call 0.0.0.0:0", "--advertise"]);
    let wrong = cluster.fixture.path("wrong-key");
    fs::write(&wrong, format!("{}\n", "7".repeat(64))).expect("a key");
    let words = ["meta", "--dir", text(&empty), "--listen", &elsewhere, "--join", &address(0)];
    cluster
        .fixture
        .shoal(&[&words[..], &["--key-file", text(&wrong)]].concat())
        .refused(&["different cluster key", "--key-file"]);
    fs::remove_dir_all(&empty).expect("it was made");
    let words = ["meta", "--dir", text(&empty), "--listen", &elsewhere];
    cluster.fixture.shoal(&words).refused(&["is not there", "--join"]);
    cluster.start(follows);
    cluster.until("three servers", |servers| count(servers, "leads") == 1 && count(servers, "follows") == 2);

    // One less.
    let gone = cluster.shoal(&["meta", "remove", &address(follows)]);
    assert!(gone.ok, "{}", gone.stderr);
    let ended = wait_for(SOON, || {
        cluster.fixture.said(&cluster.log(follows)).contains("was removed from the cluster")
    });
    assert!(ended, "{}", cluster.fixture.said(&cluster.log(follows)));
    let meta = cluster.fixture.path(&format!("meta{follows}"));
    let (listen, first) = (address(follows), address(0));
    let words = ["meta", "--dir", text(&meta), "--listen", &listen, "--join", &first];
    cluster
        .fixture
        .shoal(&[&words[..], &["--key-file", text(&cluster.key)]].concat())
        .refused(&["was removed from the cluster", "--join"]);
    assert_eq!(fs::read(dir.join("7")).expect("it is there"), [7; 100]);
    cluster.fixture.umount(&dir);
}

/// Two of three servers are lost for good, and the third one goes on, with everything.
#[test]
fn the_only_server_left_is_made_a_cluster_of_one() {
    let cluster = Cluster::new("metas-alone");
    let dir = cluster.mount("a");
    (0..300).for_each(|n| fs::write(dir.join(format!("{n}")), vec![n as u8; 1000]).expect("room"));
    fs::File::open(&dir).and_then(|dir| dir.sync_all()).expect("stable");
    let (left, alone) = (cluster.fixture.path("meta2"), cluster.fixture.path("alone"));
    let restore = ["meta", "restore", text(&left), "--dir", text(&alone)];
    cluster.fixture.shoal(&restore).refused(&["is served already", "stop it first"]);
    cluster.kill(2);
    cluster.fixture.shoal(&restore).refused(&["is still there, at 127.0.0.1:", "stop it for good first"]);
    // The mount writes what it has while it can.
    cluster.fixture.umount(&dir);
    (0..2).for_each(|server| cluster.kill(server));
    (0..2).for_each(|server| {
        fs::remove_dir_all(cluster.fixture.path(&format!("meta{server}"))).expect("it was there");
    });
    let restored = cluster.fixture.must(&restore);
    assert!(restored.stdout.contains("volumes main"), "{}", restored.stdout);
    cluster.fixture.shoal(&restore).refused(&["is there already", "--dir with a new directory"]);

    let key = cluster.fixture.path("key");
    fs::write(&key, format!("{}\n", cluster.key_text)).expect("room");
    let listen = address(0);
    let words = ["meta", "--dir", text(&alone), "--listen", &listen, "--key-file", text(&key)];
    cluster.fixture.daemon("alone", &words);
    let shoal = |words: &[&str]| {
        cluster.fixture.shoal(&[words, &["--meta", &listen, "--key-file", text(&key)]].concat())
    };
    let is_whole = || {
        let status = shoal(&["status", "--json"]);
        status.ok && status.json()["recovery"].is_null()
    };
    assert!(wait_for(SOON, is_whole), "{}", shoal(&["status"]).stdout);
    let again = cluster.fixture.path("again");
    fs::create_dir_all(&again).expect("new");
    let log = cluster.fixture.path("again.log");
    let ran = shoal(&["mount", "main", text(&again), "--log", text(&log)]);
    assert!(ran.ok, "{}", ran.stderr);
    (0..300).for_each(|n| {
        assert_eq!(fs::read(again.join(format!("{n}"))).expect("it is there"), vec![n as u8; 1000]);
    });
    fs::write(again.join("new"), "written").expect("room");
    cluster.fixture.umount(&again);
    let checked = shoal(&["meta", "check", "--bricks"]);
    assert!(checked.ok, "{checked:?}");
}
