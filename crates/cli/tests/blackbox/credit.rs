//! Answers and requests that need credit: bricks at another address of this machine pass for other machines, and the mount, or
//! the bricks, have a window that is far smaller than what is on its way to them. Bricks die while they hold grants; every byte
//! is right.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::libc::O_DIRECT;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture, Pages, Prng, kill_now, make_stable, text, wait_for};

const SOON: Duration = Duration::from_secs(120);
const BRICKS: u32 = 4;
const PIECE: usize = 1 << 20;
const PIECES: usize = 24;

struct Cluster {
    fixture: Fixture,
    meta: String,
    meta_pid: u32,
    key: String,
    bricks: Vec<u32>,
}

fn free_port(host: &str) -> u16 {
    let listener = std::net::TcpListener::bind((host, 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

impl Cluster {
    fn new(name: &str) -> Cluster {
        Cluster::of(name, "auto")
    }

    /// Its bricks have this receive window.
    fn of(name: &str, window: &str) -> Cluster {
        let fixture = Fixture::new(name);
        let dir = fixture.path("meta");
        fixture.must(&["cluster", "init", "--dir", text(&dir)]);
        let (meta, key) =
            (format!("127.0.0.1:{}", free_port("127.0.0.1")), text(&dir.join("key")).to_owned());
        let meta_pid =
            fixture.daemon("meta", &["meta", "--dir", text(&dir), "--listen", &meta, "--key-file", &key]);
        let mut cluster = Cluster { fixture, meta, meta_pid, key, bricks: Vec::new() };
        assert!(wait_for(SOON, || cluster.shoal(&["status"]).ok), "{}", cluster.fixture.said("meta"));
        for id in 1..=BRICKS {
            let (number, disk) = (id.to_string(), cluster.fixture.path(&format!("disk{id}")));
            let listen = format!("127.0.0.2:{}", free_port("127.0.0.2"));
            let words = [
                "brick",
                "--disk",
                text(&disk),
                "--format",
                "--id",
                &number,
                "--node",
                &number,
                "--size",
                "256M",
                "--receive-window",
                window,
            ];
            let pid = cluster
                .fixture
                .daemon(&format!("b{id}"), &cluster.at(&[&words[..], &["--listen", &listen]].concat()));
            cluster.bricks.push(pid);
        }
        assert!(wait_for(SOON, || cluster.shoal(&["volume", "create", "main", "--code", "2+2"]).ok));
        cluster
    }

    fn at<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [words, &["--meta", &self.meta, "--key-file", &self.key]].concat()
    }

    fn shoal(&self, words: &[&str]) -> CommandOutput {
        self.fixture.shoal(&self.at(words))
    }

    fn mount(&self, window: &str) -> PathBuf {
        let dir = self.fixture.path(&format!("mnt-{window}"));
        fs::create_dir_all(&dir).expect("a mount point");
        let log = self.fixture.path(&format!("{window}.log"));
        let mounted =
            self.shoal(&["mount", "main", text(&dir), "--receive-window", window, "--log", text(&log)]);
        assert!(mounted.ok, "{}", mounted.stderr);
        dir
    }
}

/// Reads the whole file by several threads at once, around all caches.
fn compare(path: &Path, right: &[u8]) {
    thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || {
                let mut options = fs::File::options();
                let file = options.read(true).custom_flags(O_DIRECT).open(path).expect("the file");
                let mut pages = Pages::new();
                for at in (0..PIECES * PIECE).step_by(pages.0.len()).skip(first).step_by(4) {
                    let bytes = pages.0.len();
                    file.read_exact_at(&mut pages.0, at as u64).expect("a read");
                    assert!(pages.0[..] == right[at..at + bytes], "at {at}");
                }
            });
        }
    });
}

/// A number of the mount's receive window; `None` while nothing needed credit.
fn number(dir: &Path, name: &str) -> Option<u64> {
    let status = fs::read_to_string(dir.join(".shoal/status")).expect("the status");
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("receive_window_")?.strip_prefix(name)?.strip_prefix(' '));
    value.map(|value| value.parse().expect("a number"))
}

#[test]
fn reads_through_a_narrow_window_are_right_while_bricks_die() {
    let cluster = Cluster::new("credit");
    for (window, said) in [("8K", "out of range"), ("65M", "out of range"), ("narrow", "is not a window")] {
        let refused = cluster.shoal(&["mount", "main", "/mnt", "--receive-window", window]);
        refused.refused(&[said, "16K to 64M"]);
    }
    let narrow = cluster.mount("32K");
    cluster.fixture.must(&["tune", text(&narrow), "io-cache=off", "read-ahead=on"]);
    let (path, right) = (narrow.join("file"), Prng::new(4).bytes(PIECE * PIECES));
    make_stable(&path, &right);
    compare(&path, &right);
    let granted = number(&narrow, "granted_bytes");
    assert!(granted >= Some(right.len() as u64 / 2), "{granted:?} bytes needed a grant");
    assert_eq!(number(&narrow, "bytes"), Some(32 << 10));
    let seen = cluster.fixture.must(&["xray", text(&narrow), "--once", "--json"]).json();
    let peers = seen["peers"].as_array().into_iter().flatten();
    let counted: u64 = peers.filter_map(|peer| peer["bytes"].as_u64()).sum();
    assert!(counted >= right.len() as u64 / 2, "{counted} bytes were counted: {seen:#}");
    assert!(seen["receive_window"]["granted_bytes"].as_u64() >= granted, "{seen:#}");
    let peers = seen["peers"].as_array().expect("peers");
    // The file lies in few groups, so not all bricks have sent something.
    assert!((2..=BRICKS as usize).contains(&peers.len()), "{seen:#}");
    for peer in peers {
        assert!(peer["address"].as_str().is_some_and(|at| at.starts_with("127.0.0.2:")), "{peer:#}");
        assert!(peer["least_us"].as_u64() > Some(0) && peer["lost_packets"] == 0, "{peer:#}");
    }
    let lines = fs::read_to_string(narrow.join(".shoal/status")).expect("the status");
    let told = lines.lines().filter(|line| line.starts_with("peer 127.0.0.2:")).count();
    assert!(told >= peers.len(), "{lines}");

    // One brick hangs for a while and holds grants: the others' answers go on.
    let hanging = Pid::from_raw(cluster.bricks[1] as i32);
    thread::scope(|scope| {
        scope.spawn(|| (0..2).for_each(|_| compare(&path, &right)));
        thread::sleep(Duration::from_millis(100));
        kill(hanging, Signal::SIGSTOP).expect("a signal");
        thread::sleep(Duration::from_secs(1));
        kill(hanging, Signal::SIGCONT).expect("a signal");
    });
    // One brick dies in the middle; the primaries decode, and read from each other by credit too.
    thread::scope(|scope| {
        scope.spawn(|| (0..4).for_each(|_| compare(&path, &right)));
        thread::sleep(Duration::from_millis(200));
        kill_now(cluster.bricks[0] as i32);
    });
    compare(&path, &right);

    let open = cluster.mount("off");
    compare(&open.join("file"), &right);
    assert_eq!(number(&open, "granted_bytes"), None);
    for dir in [narrow, open] {
        cluster.fixture.umount(&dir);
    }
}

/// Writes half of the bytes as whole stripes, which the mount encodes and stages on all bricks, and a part of the other half in
/// pieces, which go through primaries. Returns what the second file should be.
fn write_both(dir: &Path, name: &str, right: &[u8]) -> Vec<u8> {
    let (whole, rest) = right.split_at(right.len() / 2);
    make_stable(&dir.join(name), whole);
    let mut expected = vec![0; rest.len()];
    let pieces = fs::File::create(dir.join(format!("{name}-pieces"))).expect("a file");
    for at in (0..rest.len()).step_by(96 << 10) {
        let end = rest.len().min(at + (40 << 10));
        pieces.write_all_at(&rest[at..end], at as u64).expect("a write");
        expected[at..end].copy_from_slice(&rest[at..end]);
    }
    pieces.set_len(rest.len() as u64).and_then(|()| pieces.sync_all()).expect("stable bytes");
    expected
}

#[test]
fn writes_through_narrow_windows_are_right_while_bricks_hang_and_die() {
    let cluster = Cluster::of("credit-writes", "16K");
    let mounts = ["auto", "48K"].map(|window| cluster.mount(window));
    let rights = [5, 6].map(|seed| Prng::new(seed).bytes(PIECE * PIECES));
    let write_all = |round: &str| {
        thread::scope(|scope| {
            let write =
                |writer: usize| write_both(&mounts[writer], &format!("{round}{writer}"), &rights[writer]);
            let both = [0, 1].map(|writer| scope.spawn(move || write(writer)));
            both.map(|writer| writer.join().expect("written"))
        })
    };
    let calm = write_all("calm");
    let status = cluster.shoal(&["status", "--json"]).json();
    let received = |brick: &Value| {
        let window = &brick["receive_window"];
        assert_eq!((&window["bytes"], &window["is_crowded"]), (&json!(16 << 10), &json!(true)), "{window:#}");
        assert!(window["granted_bytes"].as_u64() > Some(0), "{window:#}");
        window["peers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|peer| peer["bytes"].as_u64())
            .sum::<u64>()
    };
    let bytes: u64 = status["bricks"].as_array().expect("bricks").iter().map(received).sum();
    // What came within the last tenth of a second may not be counted yet.
    assert!(bytes >= (PIECE * PIECES / 2) as u64, "the bricks have counted {bytes} bytes");
    let hanging = Pid::from_raw(cluster.bricks[1] as i32);
    let hung = thread::scope(|scope| {
        let writing = scope.spawn(|| write_all("hung"));
        thread::sleep(Duration::from_millis(100));
        kill(hanging, Signal::SIGSTOP).expect("a signal");
        thread::sleep(Duration::from_secs(1));
        kill(hanging, Signal::SIGCONT).expect("a signal");
        writing.join().expect("written")
    });
    let died = thread::scope(|scope| {
        let writing = scope.spawn(|| write_all("died"));
        thread::sleep(Duration::from_millis(200));
        kill_now(cluster.bricks[0] as i32);
        writing.join().expect("written")
    });
    for (round, pieces) in [("calm", calm), ("hung", hung), ("died", died)] {
        for writer in 0..2 {
            // At the other mount.
            let (dir, right) = (&mounts[1 - writer], &rights[writer]);
            let read = |name: String| fs::read(dir.join(name)).expect("the file");
            assert!(read(format!("{round}{writer}")) == right[..right.len() / 2], "{round}, {writer}");
            assert!(read(format!("{round}{writer}-pieces")) == pieces[writer], "{round}, {writer}: pieces");
        }
    }
    for dir in mounts {
        cluster.fixture.umount(&dir);
    }
}

#[test]
fn a_network_is_probed() {
    let cluster = Cluster::new("probe");
    let probed = cluster.shoal(&["net", "probe", "--json"]).json();
    let trips = probed["bricks"].as_array().expect("bricks");
    assert_eq!((trips.len(), probed["here"].as_u64()), (BRICKS as usize, Some(0)), "{probed:#}");
    let trip = |name: &'static str| trips.iter().map(move |trip| trip[name].as_u64().expect("a time"));
    assert!(trip("round_trip_us").zip(trip("least_us")).all(|(usual, least)| usual >= least && least > 0));
    let steps = probed["steps"].as_array().expect("steps");
    let senders: Vec<u64> = steps.iter().filter_map(|step| step["senders"].as_u64()).collect();
    assert_eq!(senders, [1, 2, 4]);
    assert!(probed["mb_per_s"].as_f64() > Some(0.0));
    // Loopback loses nothing, so nobody waits for a timeout.
    assert!(probed["knee_senders"].is_null(), "{probed:#}");
    assert!(probed["burst_whole_bytes"].as_u64() >= Some(16 << 10), "{probed:#}");
    let said = cluster.shoal(&["net", "probe"]);
    for words in ["bricks at once", "4 bricks may send at once", "arrive whole"] {
        assert!(said.stdout.contains(words), "`{words}` is not in\n{}", said.stdout);
    }
    kill_now(cluster.meta_pid as i32);
    cluster.shoal(&["net", "probe"]).refused(&[&cluster.meta, "does not answer"]);
}

#[test]
fn on_one_machine_there_is_no_network_to_probe() {
    let near = Fixture::new("probe-near");
    near.up(3, "2+1", "128M");
    let said = near.must(&["net", "probe"]);
    assert!(said.stdout.contains("all bricks are on this machine"), "{}", said.stdout);
    assert_eq!(near.must(&["net", "probe", "--json"]).json()["here"], 3);
}
