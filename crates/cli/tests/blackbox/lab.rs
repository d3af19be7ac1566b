//! Labs: bytes are right while cables are cut and bricks killed, nothing is left of a lab however it ends, and wrong words are
//! told the right ones.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, text, wait_for};

/// Where a lab has its files, within its own mounts only.
const ROOM: &str = "/run/lab";
/// How long something may take that has no reason to take long.
const SOON: Duration = Duration::from_secs(30);

/// A lab of a test; it ends with the test, also if that panics.
struct Lab<'f> {
    fixture: &'f Fixture,
    name: &'static str,
}

impl<'f> Lab<'f> {
    fn up(fixture: &'f Fixture, name: &'static str, words: &[&str]) -> Lab<'f> {
        let lab = Lab { fixture, name };
        // Of a test that was killed.
        lab.run(&["down"]);
        lab.must(&[&["up", "--brick", "128M"], words].concat());
        lab
    }

    fn words<'w>(&self, words: &[&'w str]) -> Vec<&'w str>
    where
        'f: 'w,
    {
        [&["lab", "--name", self.name], words].concat()
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        self.fixture.shoal(&self.words(words))
    }

    fn must(&self, words: &[&str]) -> CommandOutput {
        self.fixture.must(&self.words(words))
    }

    fn json(&self, words: &[&str]) -> Value {
        self.must(&[&["--json"], words].concat()).json()
    }

    /// What a command at node 1 printed.
    fn at(&self, words: &[&str]) -> String {
        self.must(&[&["shell", "1"], words].concat()).stdout
    }

    fn dir(&self) -> PathBuf {
        Path::new("/run/shoal/lab").join(self.name)
    }

    /// Its processes, as a namespace: other labs may be up on this machine.
    fn processes(&self) -> Processes {
        let first = fs::read_to_string(self.dir().join("first")).expect("the pid of its first process");
        let namespace = fs::read_link(format!("/proc/{}/ns/pid", first.trim())).expect("it runs");
        Processes { own: format!("lab --name {} ", self.name), namespace }
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

/// The processes of a lab, in its sandbox and outside.
struct Processes {
    /// In the arguments of those outside.
    own: String,
    namespace: PathBuf,
}

impl Processes {
    /// Their pids.
    fn left(&self) -> Vec<i32> {
        let is_one = |pid: &i32| {
            let is_inside =
                fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|found| found == self.namespace);
            is_inside || arguments(*pid).contains(&self.own)
        };
        pids().filter(is_one).collect()
    }

    fn nothing_is_left(&self) {
        assert!(wait_for(SOON, || self.left().is_empty()), "{:?}", self.left());
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(!mounts.contains(ROOM), "{mounts}");
        assert!(!Path::new("/run/netns/node1").exists() && !Path::new(ROOM).exists());
    }
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn arguments(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

#[test]
fn bytes_are_right_while_a_cable_is_cut_and_a_brick_killed() {
    let fixture = Fixture::new("lab-faults");
    let lab = Lab::up(&fixture, "test-faults", &["--topology", "torus:3x3", "--code", "4+2"]);
    let (before, processes) = (lab.json(&["status"]), lab.processes());
    let fio = [
        "shell",
        "1",
        "fio",
        "--name=lab",
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--ioengine=psync",
        "--numjobs=2",
        "--size=12m",
        "--fsync=64",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--do_verify=1",
        "--verify_backlog=256",
    ];
    let mut command = fixture.command(&lab.words(&fio));
    let mut fio = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let works = || lab.at(&["ls", "-s"]).contains("lab.1.0");
    assert!(wait_for(SOON, works), "fio has made no file");
    lab.must(&["slow", "5", "20ms"]);
    lab.must(&["cut", "1-2"]);
    lab.must(&["kill", "6"]);
    assert!(fio.try_wait().expect("its state").is_none(), "fio has ended before the faults");
    let ended = fio.wait_with_output().expect("fio ends");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "fio: {said}");

    let after = lab.json(&["watch", "--once"]);
    let node = |number: usize| after["nodes"][number - 1].clone();
    assert_eq!((&node(6)["brick"], &node(5)["slow_ms"]), (&"killed".into(), &20.into()), "{after:#}");
    let cable = |look: &Value, name: &str| {
        let cables = look["since_it_is_up"]["cables"].as_array().expect("cables").clone();
        cables.into_iter().find(|cable| cable["cable"] == name).expect("a cable")
    };
    assert_eq!((&cable(&after, "1-2")["cut"], &node(6)["at"]), (&true.into(), &serde_json::json!([2, 1])));
    let bytes = |name: &str| {
        let sent = |look: &Value| cable(look, name)["there"]["bytes"].as_u64().expect("bytes");
        sent(&after) - sent(&before)
    };
    // What went over the cable before now goes by node 3.
    assert!(bytes("1-3") > bytes("1-2"), "{} {}", bytes("1-3"), bytes("1-2"));
    let map = lab.must(&["status"]).stdout;
    assert!(map.contains("[1 ] - cut - [2 ]") && map.contains("[6x]") && map.contains("[5~]"), "{map}");

    let healed = lab.json(&["heal"]);
    let expected = serde_json::json!({ "mended": ["1-2"], "started": [6], "quick": [5] });
    assert_eq!(healed, expected);
    let healthy = || lab.json(&["status"])["nodes_up"] == 9;
    assert!(wait_for(SOON, healthy), "{:#}", lab.json(&["status"]));
    let found: Value = serde_json::from_str(&lab.at(&["shoal", "--json", "volume", "verify", "main"]))
        .expect("one document");
    assert_eq!((&found["mismatched"], &found["damaged"]), (&0.into(), &0.into()), "{found}");
    lab.must(&["down"]);
    assert!(!lab.dir().exists());
    processes.nothing_is_left();
}

#[test]
fn nothing_is_left_of_a_lab_whose_owner_is_killed() {
    let fixture = Fixture::new("lab-killed");
    let lab = Lab::up(&fixture, "test-killed", &["--topology", "fat-tree:2", "--nodes", "4"]);
    let bytes = "x".repeat(1000);
    lab.at(&["sh", "-c", &format!("echo {bytes} > file; setsid sleep 1000 > /dev/null 2>&1 &")]);
    assert_eq!(lab.at(&["cat", "file"]).trim_end(), bytes);
    let processes = lab.processes();
    // The shell has gone, and what it has left behind becomes `sleep` soon.
    let sleeps = || processes.left().into_iter().any(|pid| arguments(pid).starts_with("sleep "));
    assert!(wait_for(SOON, sleeps), "{:?}", processes.left());
    let is_owner = |pid: &i32| arguments(*pid).contains(&format!("{}own", processes.own));
    let owner: Vec<i32> = processes.left().into_iter().filter(is_owner).collect();
    assert_eq!(owner.len(), 1, "{owner:?}");
    kill(Pid::from_raw(owner[0]), Signal::SIGKILL).expect("it runs");
    processes.nothing_is_left();
    lab.run(&["status"]).refused(&["no lab `test-killed` is up", "shoal lab up"]);
    lab.run(&["down"]).refused(&["no lab `test-killed` is up"]);
    // Its files are replaced.
    assert!(lab.dir().join("control").exists());
    lab.must(&["up", "--nodes", "2", "--brick", "64M"]);
    assert!(lab.at(&["ls"]).is_empty(), "a new lab has a new volume");
    let processes = lab.processes();
    lab.must(&["down"]);
    assert!(!lab.dir().exists());
    processes.nothing_is_left();
}

#[test]
fn a_command_at_a_node_finds_the_cluster_and_its_exit_code_is_passed_on() {
    let fixture = Fixture::new("lab-shell");
    let lab = Lab::up(&fixture, "test-shell", &["--nodes", "3", "--mount-at", "2"]);
    let status: Value = serde_json::from_str(&lab.at(&["shoal", "--json", "status"])).expect("one document");
    assert_eq!(status["bricks"].as_array().map(Vec::len), Some(3));
    assert_eq!(lab.at(&["pwd"]), "/run/lab/main\n");
    let addresses = lab.must(&["shell", "3", "ip", "-brief", "address", "show", "lo"]).stdout;
    assert!(addresses.contains("198.18.0.3/32"), "{addresses}");
    let ran = fixture.command(&lab.words(&["shell", "3", "sh", "-c", "exit 7"])).output().expect("it runs");
    assert_eq!(ran.status.code(), Some(7));
    let ran = fixture.command(&lab.words(&["--json", "shell", "3", "sh", "-c", "echo said; kill -9 $$"]));
    let ran = { ran }.output().expect("it runs");
    let document: Value = serde_json::from_slice(&ran.stdout).expect("one document");
    assert_eq!((ran.status.code(), &document["exit_code"]), (Some(137), &137.into()));
    assert_eq!(document["stdout"], "said\n");
    lab.run(&["--json", "shell", "3"]).refused(&["a shell has no JSON"]);
    lab.run(&["shell", "3", "no-such-program"]).refused(&["cannot start no-such-program"]);
    // Whoever is at a node when the lab ends, ends too.
    let mut sleeper = fixture.command(&lab.words(&["shell", "3", "sleep", "1000"])).spawn().expect("it runs");
    assert!(wait_for(SOON, || lab.at(&["ps", "-e"]).contains("sleep")));
    let processes = lab.processes();
    lab.must(&["down"]);
    assert_eq!(sleeper.wait().expect("it ends").code(), Some(137));
    processes.nothing_is_left();
}

/// Files of a mount at node 5 lie on nodes around it, and stay there.
#[test]
fn files_lie_near_their_writers_where_a_volume_says_so() {
    let fixture = Fixture::new("lab-near");
    let lab = Lab::up(&fixture, "test-near", &["--topology", "torus:4x4", "--code", "2+1"]);
    let at = |words: &[&str]| lab.must(&[&["shell", "6"], words].concat()).stdout;
    let create = [
        "shoal",
        "volume",
        "create",
        "takes",
        "--code",
        "2+1",
        "--whole-files",
        "--near-writer",
        "--unit",
        "16K",
    ];
    at(&create);
    let info = at(&["shoal", "volume", "info", "takes"]);
    assert!(info.contains("each file whole in one, new files begin near their writers"), "{info}");
    let units = || {
        let status: Value = serde_json::from_str(&at(&["shoal", "--json", "status"])).expect("one document");
        let bricks = status["bricks"].as_array().cloned().unwrap_or_default();
        let node_of = |brick: &Value| brick["node"].as_str()?.trim_start_matches('n').parse::<u64>().ok();
        let held = |brick: &Value| Some((node_of(brick)?, brick["units"].as_u64()?));
        bricks
            .iter()
            .filter_map(held)
            .filter(|(_, units)| *units > 0)
            .map(|(node, _)| node)
            .collect::<Vec<_>>()
    };
    // Of the torus' 16 nodes, 6 has four neighbours: 5, 7, 2 and 10.
    let is_near =
        |nodes: &[u64]| !nodes.is_empty() && nodes.iter().all(|node| [6, 5, 7, 2, 10].contains(node));
    at(&["sh", "-c", "mkdir /run/near && shoal mount takes /run/near"]);
    let script =
        "cd /run/near && for n in 1 2 3 4 5 6 7 8; do head -c 3000000 /dev/urandom > f$n; done && sync -f .";
    at(&["sh", "-c", script]);
    assert!(is_near(&units()), "{:?}", units());
    // Truncated to nothing, and written again by another node.
    let there = |words: &[&str]| lab.must(&[&["shell", "16"], words].concat()).stdout;
    there(&["sh", "-c", "mkdir /run/far && shoal mount takes /run/far"]);
    there(&["sh", "-c", "head -c 2000000 /dev/urandom > /run/far/f1; sync -f /run/far"]);
    assert!(is_near(&units()), "{:?}", units());
    there(&["sh", "-c", "head -c 2000000 /dev/urandom > /run/far/g1; sync -f /run/far"]);
    assert!(!is_near(&units()), "a file of node 16 lies there: {:?}", units());
}

#[test]
fn wrong_words_are_told_the_right_ones() {
    let fixture = Fixture::new("lab-refusals");
    let lab = Lab::up(&fixture, "test-refusals", &["--nodes", "4", "--topology", "torus:2x2"]);
    let wrong: [(&[&str], &[&str]); 15] = [
        (&["up", "--nodes", "4"], &["a lab `test-refusals` is up already", "shoal lab down"]),
        (&["cut", "1-4"], &["no cable joins 1 and 4", "neighbours of 1: 2, 3"]),
        (&["cut", "1-5"], &["there is no node `5`", "1 to 4"]),
        (&["cut", "switch-1"], &["there is no node `switch`"]),
        (&["cut", "12"], &["`12` names no cable", "as in 1-2"]),
        (&["mend", "1-2"], &["no cable is cut"]),
        (&["kill", "0"], &["there is no node `0`"]),
        (&["slow", "1", "20"], &["`20` is no time", "such as 20ms"]),
        (&["slow", "1", "30s"], &["pauses of 30000 ms are too long"]),
        (&["slow", "1", "0"], &["node 1 is not slow"]),
        (&["shell", "9", "true"], &["there is no node `9`"]),
        (&["up", "--nodes", "16", "--topology", "torus:4x5"], &["has 20 nodes, not 16", "torus:4x4"]),
        (&["up", "--nodes", "4", "--code", "8+2"], &["code 8+2 needs 10 nodes", "--code 2+2"]),
        (&["up", "--link", "1"], &["`1` is no rate", "100mbit"]),
        (&["up", "--topology", "links"], &["--topology-file"]),
    ];
    for (words, said) in wrong {
        lab.run(words).refused(said);
    }
    lab.must(&["cut", "3-1"]);
    lab.run(&["cut", "1-3"]).refused(&["1-3 is cut already", "mend 1-3"]);
    lab.run(&["mend", "1-2"]).refused(&["1-2 is not cut", "one that is: 1-3"]);
    lab.must(&["mend", "1-3"]);
    lab.must(&["kill", "2"]);
    lab.run(&["kill", "2"]).refused(&["the brick of node 2 does not run", "heal"]);
    lab.run(&["slow", "2", "5ms"]).refused(&["the brick of node 2 does not run"]);
    fixture.shoal(&["lab", "--name", "A/B", "status"]).refused(&["`A/B` is no name of a lab"]);
    let much = ["lab", "--name", "other", "up", "--nodes", "100", "--brick", "1T"];
    fixture.shoal(&much).refused(&["MiB are available", "--brick"]);
    fixture.shoal(&["lab", "--name", "other", "status"]).refused(&["no lab `other`", "--name test-refusals"]);

    // Whoever may talk to the socket at all cannot hurt the lab by what it says.
    for line in ["\n", "nonsense\n", "{\"request\":\"cut\"}\n", &"x".repeat(1 << 20)] {
        let mut stream = UnixStream::connect(lab.dir().join("control")).expect("a server");
        let _ = stream.write_all(line.as_bytes());
        let mut said = String::new();
        // It may close the connection with bytes unread.
        let _ = stream.read_to_string(&mut said);
        assert!(said.is_empty() || said.contains("failed"), "{said}");
    }
    assert_eq!(lab.json(&["heal"])["started"], serde_json::json!([2]));
}

#[test]
fn a_network_is_described_by_a_file() {
    let fixture = Fixture::new("lab-file");
    let file = fixture.path("network");
    fs::write(&file, "links\nnode 1\nnode 2\nnode 3\nlink 1 2\nlink 2 3\n").expect("a file");
    let lab = Lab::up(&fixture, "test-file", &["--topology-file", text(&file), "--link", "100mbit"]);
    let document = lab.json(&["status"]);
    let names: Vec<&Value> =
        document["cables"].as_array().expect("cables").iter().map(|c| &c["cable"]).collect();
    assert_eq!(names, ["1-2", "2-3"]);
    // From 1 to 3 by way of 2.
    let route = lab.at(&["ip", "route", "get", "198.18.0.3"]);
    assert!(route.contains("via 198.18.0.2 dev node2 src 198.18.0.1"), "{route}");
    lab.must(&["cut", "2-3"]);
    let cut_off = lab.run(&["shell", "1", "ip", "route", "get", "198.18.0.3"]);
    cut_off.refused(&["unreachable"]);
    lab.must(&["down"]);
    fs::write(&file, "links\nnode 1\nnode 2\n").expect("a file");
    lab.run(&["up", "--topology-file", text(&file)]).refused(&["no way leads from", "add a link"]);
}
