//! A brick that is cut off, both ways or one way, costs a program a pause and never an error or a wrong byte: a writer
//! and reader works meanwhile, and compares every piece.
//!
//! The brick lives in a network namespace of its own behind a pair of virtual interfaces. A way is cut by a wrong
//! address of the next hop in the neighbour table: what is sent vanishes, and nobody is told.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, Prng, kill_now, text, wait_for};
use crate::nemesis::is_long;

const BRICKS: u32 = 4;
const PIECE: usize = 64 << 10;
const PIECES: u64 = 64;
/// The outside and the inside end of the wire.
const ENDS: [&str; 2] = ["198.18.77.1", "198.18.77.2"];

fn ip(args: &[&str]) {
    let ran = Command::new("ip").args(args).output().expect("ip runs: `apt-get install iproute2`");
    assert!(ran.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A namespace and the wire to it; both are gone when it is dropped.
struct Wire {
    space: String,
    outside: String,
    inside: String,
    /// Hardware addresses, outside and inside.
    macs: [String; 2],
}

impl Wire {
    fn new() -> Wire {
        let id = std::process::id() % 100_000;
        let (space, outside, inside) = (format!("shoal{id}"), format!("sho{id}"), format!("shi{id}"));
        let mut wire = Wire { space, outside, inside, macs: Default::default() };
        let (space, outside, inside) = (&*wire.space, &*wire.outside, &*wire.inside);
        ip(&["netns", "add", space]);
        ip(&["link", "add", outside, "type", "veth", "peer", "name", inside, "netns", space]);
        ip(&["address", "add", &format!("{}/30", ENDS[0]), "dev", outside]);
        ip(&["-n", space, "address", "add", &format!("{}/30", ENDS[1]), "dev", inside]);
        ip(&["link", "set", outside, "up"]);
        ip(&["-n", space, "link", "set", inside, "up"]);
        ip(&["-n", space, "link", "set", "lo", "up"]);
        wire.macs = [wire.mac(&["link", "show", outside]), wire.mac(&["-n", space, "link", "show", inside])];
        wire
    }

    fn mac(&self, args: &[&str]) -> String {
        let ran = Command::new("ip").args(args).output().expect("ip runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let mac = said.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        mac.unwrap_or_else(|| panic!("no address in {said}")).to_owned()
    }

    /// Cuts or mends what goes in, and what comes out.
    fn cut(&self, to: bool, from: bool) {
        let nobody = "02:00:00:00:00:01";
        let inner = if to { nobody } else { &self.macs[1] };
        let outer = if from { nobody } else { &self.macs[0] };
        ip(&["neigh", "replace", ENDS[1], "lladdr", inner, "nud", "permanent", "dev", &self.outside]);
        let space = &self.space;
        ip(&[
            "-n",
            space,
            "neigh",
            "replace",
            ENDS[0],
            "lladdr",
            outer,
            "nud",
            "permanent",
            "dev",
            &self.inside,
        ]);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.outside]).output();
        let _ = Command::new("ip").args(["netns", "del", &self.space]).output();
    }
}

/// A cluster of daemons of their own; brick 1 is at the far end of the wire.
struct Islands {
    fixture: Fixture,
    wire: Wire,
    meta: String,
    key: String,
}

impl Islands {
    fn new(name: &str) -> Islands {
        let (fixture, wire) = (Fixture::new(name), Wire::new());
        let dir = fixture.path("cluster");
        fixture.must(&["cluster", "init", "--dir", text(&dir)]);
        let (meta, key) = (format!("{}:7400", ENDS[0]), text(&dir.join("key")).to_owned());
        fixture.daemon("meta", &["meta", "--dir", text(&dir), "--listen", &meta, "--key-file", &key]);
        let islands = Islands { fixture, wire, meta, key };
        let serves = || islands.shoal(&["status"]).ok;
        assert!(wait_for(Duration::from_secs(30), serves), "the metadata service serves");
        for id in 1..=BRICKS {
            let (id, port) = (id.to_string(), format!("{}", 7400 + id));
            let at = format!("{}:{port}", ENDS[usize::from(id == "1")]);
            let disk = islands.fixture.path(&format!("brick{id}"));
            let mut args = vec!["brick", "--disk", text(&disk), "--format", "--id", &id, "--size", "256M"];
            args.extend([
                "--node",
                &id,
                "--listen",
                &at,
                "--meta",
                &islands.meta,
                "--key-file",
                &islands.key,
            ]);
            match &*id {
                "1" => islands.fixture.daemon_in(&islands.wire.space, "b1", &args),
                _ => islands.fixture.daemon(&format!("b{id}"), &args),
            };
        }
        let up = || {
            let status = islands.shoal(&["status", "--json"]);
            status.ok && status.json()["bricks"].as_array().map(Vec::len) == Some(BRICKS as usize)
        };
        assert!(wait_for(Duration::from_secs(30), up), "the bricks join");
        let made = islands.shoal(&["volume", "create", "main", "--code", "2+2"]);
        assert!(made.ok, "{}", made.stderr);
        islands
    }

    fn shoal(&self, args: &[&str]) -> crate::fixture::CommandOutput {
        self.fixture.shoal(&[args, &["--meta", &self.meta, "--key-file", &self.key]].concat())
    }

    fn verified(&self) {
        let found = self.shoal(&["volume", "verify", "main", "--json"]);
        assert!(found.ok, "volume verify:\n{}\n{}", found.stdout, found.stderr);
    }
}

/// Writes pieces of a file and reads them back, while the wire is cut and mended. Returns the longest time of one call.
fn work(file: &File, right: &mut [Vec<u8>], until: Instant, prng: &mut Prng) -> Duration {
    let mut longest = Duration::ZERO;
    while Instant::now() < until {
        let piece = prng.below(PIECES) as usize;
        let (begun, at) = (Instant::now(), (piece * PIECE) as u64);
        if prng.below(2) == 0 {
            right[piece] = prng.bytes(PIECE);
            file.write_all_at(&right[piece], at).expect("a write");
            file.sync_all().expect("an fsync");
        } else {
            let mut found = vec![0; PIECE];
            file.read_exact_at(&mut found, at).expect("a read");
            assert!(found == right[piece], "piece {piece}");
        }
        longest = longest.max(begun.elapsed());
    }
    longest
}

/// Cuts the wire so many times, both ways and each way in turn, for one second up to `longest` milliseconds.
fn cut_off(name: &str, times: usize, longest: u64) {
    let islands = Islands::new(name);
    let (dir, log) = (islands.fixture.path("mnt"), islands.fixture.path("mnt.log"));
    fs::create_dir_all(&dir).expect("a mount point");
    let mounted = islands.shoal(&["mount", "main", text(&dir), "--log", text(&log)]);
    assert!(mounted.ok, "{}", mounted.stderr);
    let path = dir.join("file");
    let mut right = vec![vec![0; PIECE]; PIECES as usize];
    fs::write(&path, right.concat()).expect("a file");
    // Around the page cache, so that reads ask the bricks.
    let file = {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(nix::libc::O_DIRECT).open(&path).expect("the file")
    };
    let mut prng = Prng::new(9);
    let mut pause = Duration::ZERO;
    for time in 0..times {
        let (to, from) = [(true, true), (true, false), (false, true)][time % 3];
        let cut = Duration::from_millis(1000 + prng.below(longest - 1000));
        let end = Instant::now() + cut + Duration::from_secs(2);
        let longest = thread::scope(|scope| {
            scope.spawn(|| {
                islands.wire.cut(to, from);
                thread::sleep(cut);
                islands.wire.cut(false, false);
            });
            work(&file, &mut right, end, &mut prng)
        });
        println!("{name}: cut to {to}, from {from} for {cut:?}: the longest pause was {longest:?}");
        pause = pause.max(longest);
    }
    assert!(pause < Duration::from_secs(30), "a call took {pause:?}");
    drop(file);
    assert!(fs::read(&path).expect("the file") == right.concat());
    islands.shoal(&["umount", text(&dir)]);
    islands.verified();
    let pids = islands.fixture.processes();
    pids.into_iter().for_each(kill_now);
}

/// A short cut is over before the brick loses its lease. After a long one it was put Out, and comes back.
#[test]
fn a_brick_that_is_cut_off_costs_a_pause() {
    let (times, longest) = if is_long() { (30, 10_000) } else { (4, 5_000) };
    cut_off("partition", times, longest);
}
