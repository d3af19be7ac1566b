//! Bricks that can be reached by two networks are reached by both, and go on being reached when either is cut: a writer and reader
//! works meanwhile, and compares every piece.
//!
//! All daemons are in a network namespace behind two pairs of virtual interfaces. To cut one, its inner end is set down, as if a cable
//! were pulled: what is sent vanishes.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::libc::{O_DIRECT, O_DSYNC};

use crate::fixture::{Fixture, Pages, Prng, text, wait_for};

const BRICKS: u32 = 3;
const SOON: Duration = Duration::from_secs(60);
/// A call that is cut off is noticed within 4 s on an idle machine.
const PAUSE_MAX: Duration = Duration::from_secs(30);
const ROUNDS: u64 = 60;

fn ip(line: &str) {
    let ran = Command::new("ip").args(line.split(' ')).output().expect("ip runs: `apt-get install iproute2`");
    assert!(ran.status.success(), "ip {line}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A namespace with two networks to it, all gone when it is dropped.
struct Networks {
    space: String,
    outside: [String; 2],
    inside: [String; 2],
}

impl Networks {
    fn new() -> Networks {
        let id = std::process::id() % 100_000;
        let names = |begin: &str| [1, 2].map(|number| format!("{begin}{number}-{id}"));
        let networks = Networks { space: format!("rails{id}"), outside: names("ro"), inside: names("ri") };
        let space = &networks.space;
        ip(&format!("netns add {space}"));
        ip(&format!("-n {space} link set lo up"));
        for (at, (outside, inside)) in networks.outside.iter().zip(&networks.inside).enumerate() {
            let subnet = Networks::subnet(at);
            ip(&format!("link add {outside} type veth peer name {inside} netns {space}"));
            ip(&format!("address add {subnet}.1/30 dev {outside}"));
            ip(&format!("-n {space} address add {subnet}.2/30 dev {inside}"));
            ip(&format!("link set {outside} up"));
            ip(&format!("-n {space} link set {inside} up"));
        }
        networks
    }

    fn subnet(at: usize) -> String {
        format!("198.18.{}", 78 + at)
    }

    /// The addresses of a port of the daemons, with commas.
    fn addresses(port: u32) -> String {
        [0, 1].map(|at| format!("{}.2:{port}", Networks::subnet(at))).join(",")
    }

    /// Cuts one of them, or mends it.
    fn cut(&self, at: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        ip(&format!("-n {} link set {} {state}", self.space, self.inside[at]));
    }

    /// Bytes that went through each, both ways.
    fn bytes(&self) -> [u64; 2] {
        let read = |interface: &str, name: &str| {
            let file = format!("/sys/class/net/{interface}/statistics/{name}_bytes");
            fs::read_to_string(file).expect("counters").trim().parse::<u64>().expect("a number")
        };
        [0, 1].map(|at| ["rx", "tx"].map(|name| read(&self.outside[at], name)).iter().sum())
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for outside in &self.outside {
            let _ = Command::new("ip").args(["link", "del", outside]).output();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.space]).output();
    }
}

#[test]
fn two_networks_are_used_at_once_and_either_may_be_cut() {
    let (fixture, networks) = (Fixture::new("rails"), Networks::new());
    let dir = fixture.path("cluster");
    fixture.must(&["cluster", "init", "--dir", text(&dir)]);
    let (meta, key) = (Networks::addresses(7400), text(&dir.join("key")).to_owned());
    let access = ["--meta", &meta, "--key-file", &key];
    let words = ["meta", "--dir", text(&dir), "--listen", "0.0.0.0:7400", "--key-file", &key];
    fixture.daemon_in(&networks.space, "meta", &words);
    let shoal = |words: &[&str]| fixture.shoal(&[words, &access].concat());
    assert!(wait_for(SOON, || shoal(&["status"]).ok), "{}", fixture.said("meta"));
    for id in 1..=BRICKS {
        let (port, number, disk) = (7400 + id, id.to_string(), fixture.path(&format!("disk{id}")));
        let (listen, all) = (format!("0.0.0.0:{port}"), Networks::addresses(port));
        let mut words = vec!["brick", "--disk", text(&disk), "--format", "--id", &number, "--size", "256M"];
        words.extend([
            "--node",
            &number,
            "--listen",
            &listen,
            "--meta",
            "127.0.0.1:7400",
            "--key-file",
            &key,
        ]);
        if id == 1 {
            let wrong = |advertise: &str| fixture.shoal(&[&words[..], &["--advertise", advertise]].concat());
            wrong("10.0.0.2").refused(&["an address is HOST:PORT"]);
            wrong("10.0.0.2:7411,10.0.0.2:7411").refused(&["10.0.0.2:7411 twice"]);
            let many = (1..10).map(|host| format!("10.0.0.{host}:7411")).collect::<Vec<_>>().join(",");
            wrong(&many).refused(&["has 9 addresses, and 8 are possible"]);
        }
        words.extend(["--advertise", &all]);
        fixture.daemon_in(&networks.space, &format!("b{id}"), &words);
    }
    assert!(wait_for(SOON, || shoal(&["volume", "create", "main", "--code", "2+1"]).ok));
    let mnt = fixture.path("mnt");
    fs::create_dir_all(&mnt).expect("a mount point");
    let mounted = shoal(&["mount", "main", text(&mnt)]);
    assert!(mounted.ok, "{}", mounted.stderr);
    fixture.must(&["tune", text(&mnt), "io-cache=off", "read-ahead=off"]);

    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).custom_flags(O_DIRECT | O_DSYNC);
    let file = options.open(mnt.join("file")).expect("a file");
    let (mut prng, mut pages, mut longest) = (Prng::new(8), Pages::new(), Duration::ZERO);
    let mut right: Vec<Vec<u8>> = Vec::new();
    let before = networks.bytes();
    for round in 0..ROUNDS {
        match round {
            20 => {
                let through: Vec<u64> =
                    networks.bytes().iter().zip(before).map(|(after, before)| after - before).collect();
                let all: u64 = through.iter().sum();
                assert!(through.iter().all(|bytes| *bytes > all / 8), "both are used: {through:?}");
                networks.cut(1, true);
            }
            // The other one is taken again only after its pause, so both work for a while.
            40 => {
                networks.cut(1, false);
                let (at, used) = (networks.bytes()[1], 1 << 20);
                let is_used = || {
                    file.read_exact_at(&mut Pages::new().0, 0).expect("a read");
                    networks.bytes()[1] > at + used
                };
                assert!(wait_for(SOON, is_used), "what is mended is used again");
                networks.cut(0, true);
            }
            _ => {}
        }
        let start = Instant::now();
        let piece = prng.bytes(pages.0.len());
        pages.0.copy_from_slice(&piece);
        file.write_all_at(&pages.0, round * piece.len() as u64).expect("a write");
        right.push(piece);
        let back = prng.next() as usize % right.len();
        file.read_exact_at(&mut pages.0, (back * right[back].len()) as u64).expect("a read");
        assert!(pages.0[..] == right[back][..], "piece {back} in round {round}");
        longest = longest.max(start.elapsed());
    }
    assert!(longest < PAUSE_MAX, "one round took {longest:?}");
    file.sync_all().expect("it is stable");
    networks.cut(0, false);
    drop(file);
    let verified = shoal(&["volume", "verify", "main", "--json"]);
    assert!(verified.ok, "{}\n{}", verified.stdout, verified.stderr);
}
