//! A mount that alone does not reach a brick writes, reads and removes by way of the other bricks.
//!
//! The mount lives in a network namespace behind a pair of virtual interfaces; the cluster is outside, and each of its daemons has an
//! address of its own. A brick is cut off by a wrong address of the next hop in the mount's neighbour table: what is sent there vanishes,
//! and nobody hears of it.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixture::{CommandOutput, Fixture, kill_now, text, wait_for};

const BRICKS: u32 = 4;
const FILES: u64 = 24;
const LEN: usize = 50_000;
/// The network of the wire; daemons are at `.10` and above, the mount at `.2`.
const NETWORK: &str = "198.18.78";

fn ip(args: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    let ran = Command::new("ip").args(&args).output().expect("ip runs: `apt-get install iproute2`");
    assert!(ran.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// The address of a daemon: 0 is the metadata service, then the bricks.
fn host(daemon: u32) -> String {
    format!("{NETWORK}.{}", 10 + daemon)
}

/// The namespace of the mount and the wire to it; both are gone when it is dropped.
struct Wire {
    space: String,
    outside: String,
    inside: String,
}

impl Wire {
    fn new() -> Wire {
        let id = std::process::id() % 100_000;
        let wire =
            Wire { space: format!("alone{id}"), outside: format!("alo{id}"), inside: format!("ali{id}") };
        let Wire { space, outside, inside } = &wire;
        ip(&format!("netns add {space}"));
        ip(&format!("link add {outside} type veth peer name {inside} netns {space}"));
        (0..=BRICKS).for_each(|daemon| ip(&format!("address add {}/24 dev {outside}", host(daemon))));
        ip(&format!("-n {space} address add {NETWORK}.2/24 dev {inside}"));
        ip(&format!("link set {outside} up"));
        ip(&format!("-n {space} link set {inside} up"));
        ip(&format!("-n {space} link set lo up"));
        wire
    }

    /// What the mount sends to a brick vanishes, or goes its way again.
    fn cut(&self, brick: u32, cut: bool) {
        let (space, inside, host) = (&self.space, &self.inside, host(brick));
        if cut {
            let nobody = "lladdr 02:00:00:00:00:01 nud permanent";
            ip(&format!("-n {space} neigh replace {host} {nobody} dev {inside}"));
        } else {
            ip(&format!("-n {space} neigh del {host} dev {inside}"));
        }
    }

    /// Runs a command of ours in the namespace, with mounts where everybody sees them.
    fn shoal(&self, fixture: &Fixture, args: &[&str]) -> CommandOutput {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.space));
        command.arg(env!("CARGO_BIN_EXE_shoal")).args(args).env("SHOAL_DIR", fixture.home());
        CommandOutput::of(command.output().expect("nsenter runs: `apt-get install util-linux`"))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.outside]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.space]).output();
    }
}

fn bytes(version: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ version.wrapping_mul(97)) as u8).collect()
}

/// A cluster whose daemons are at addresses of their own. Returns the options that name it.
fn cluster(fixture: &Fixture) -> [String; 4] {
    let dir = fixture.path("cluster");
    fixture.must(&["cluster", "init", "--dir", text(&dir)]);
    let (meta, key) = (format!("{}:7400", host(0)), text(&dir.join("key")).to_owned());
    let there = ["--meta".to_owned(), meta.clone(), "--key-file".to_owned(), key.clone()];
    let shoal = |args: &[&str]| fixture.shoal(&[args, &there.each_ref().map(String::as_str)].concat());
    fixture.daemon("meta", &["meta", "--dir", text(&dir), "--listen", &meta, "--key-file", &key]);
    assert!(wait_for(Duration::from_secs(30), || shoal(&["status"]).ok), "the metadata service serves");
    for brick in 1..=BRICKS {
        let (id, disk) = (brick.to_string(), fixture.path(&format!("brick{brick}")));
        let at = format!("{}:7400", host(brick));
        let made = ["brick", "--disk", text(&disk), "--format", "--id", &id, "--size", "256M"];
        let served = ["--node", &id, "--listen", &at, "--meta", &meta, "--key-file", &key];
        fixture.daemon(&format!("b{id}"), &[&made[..], &served].concat());
    }
    let up = || {
        let status = shoal(&["status", "--json"]);
        status.ok && status.json()["bricks"].as_array().map(Vec::len) == Some(BRICKS as usize)
    };
    assert!(wait_for(Duration::from_secs(30), up), "the bricks join");
    let made = shoal(&["volume", "create", "main", "--code", "2+2"]);
    assert!(made.ok, "{}", made.stderr);
    there
}

#[test]
fn a_mount_that_alone_does_not_reach_a_brick_works() {
    let (fixture, wire) = (Fixture::new("alone"), Wire::new());
    let there = cluster(&fixture);
    let with = |args: &[&str]| -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).chain(there.iter().cloned()).collect()
    };
    let run = |inside: bool, args: &[&str]| {
        let args = with(args);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if inside { wire.shoal(&fixture, &args) } else { fixture.shoal(&args) }
    };
    let mounts = ["inside", "outside"].map(|name| {
        let dir = fixture.path(name);
        fs::create_dir_all(&dir).expect("a mount point");
        let log = fixture.path(&format!("{name}.log"));
        let mounted = run(name == "inside", &["mount", "main", text(&dir), "--log", text(&log)]);
        assert!(mounted.ok, "{name}: {}", mounted.stderr);
        dir
    });
    let [inside, outside] = &mounts;
    let mut longest = Duration::ZERO;
    for (round, brick) in (1..).zip([1, BRICKS]) {
        wire.cut(brick, true);
        for n in 0..FILES {
            let (name, version, begun) = (format!("{round}-{n}"), round * 1_000 + n, Instant::now());
            let mut file = File::create(inside.join(&name)).expect("a file");
            file.write_all(&bytes(version)).expect("a write");
            file.sync_all().expect("an fsync");
            assert!(fs::read(outside.join(&name)).expect("the file") == bytes(version), "{name}");
            assert!(fs::read(inside.join(&name)).expect("the file") == bytes(version), "{name}");
            if n % 4 == 0 {
                file.set_len(1_000).expect("a truncation");
                file.sync_all().expect("an fsync");
                assert!(fs::read(outside.join(&name)).expect("the file") == bytes(version)[..1_000]);
                fs::remove_file(inside.join(&name)).expect("an unlink");
            }
            longest = longest.max(begun.elapsed());
        }
        let status = fs::read_to_string(inside.join(".shoal/status")).expect("status");
        let proxied = status.lines().find_map(|line| line.strip_prefix("requests_proxied "));
        let proxied: u64 = proxied.and_then(|number| number.parse().ok()).expect("a counter");
        assert!(proxied > 0, "nothing went by way of another brick");
        wire.cut(brick, false);
    }
    println!("alone: the longest pause was {longest:?}");
    assert!(longest < Duration::from_secs(30), "a file took {longest:?}");
    mounts.iter().for_each(|dir| fixture.umount(dir));
    let found = run(false, &["volume", "verify", "main", "--json"]);
    assert!(found.ok, "volume verify:\n{}\n{}", found.stdout, found.stderr);
    fixture.processes().into_iter().for_each(kill_now);
}
