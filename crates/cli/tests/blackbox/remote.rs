//! A brick on a disk that another machine lends loses nothing when the lender dies: nbdkit and qemu-nbd, the servers
//! that people use, are killed, stay away and change, and every byte is compared.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, Prng, kill_now, text, wait_for, within};

/// Time in which a lost lender or a brick that is back is noticed, however slow the machine is.
const SOON: Duration = Duration::from_secs(180);
/// Bytes of a lent disk.
const SIZE: u64 = 256 << 20;
/// Pieces of the file that is worked on, and their bytes.
const PIECES: u64 = 64;
const PIECE: usize = 48 << 10;

/// A cluster of daemons by hand, on disks that are lent.
pub(crate) struct Cluster<'a> {
    fixture: &'a Fixture,
    meta: String,
    key: PathBuf,
}

/// Has nbdkit refuse what is not whole blocks, and more than 64 KiB at once.
const STRICT: [&str; 4] = [
    "blocksize-minimum=4096",
    "blocksize-preferred=4096",
    "blocksize-maximum=64k",
    "blocksize-error-policy=error",
];

/// Ports of this test binary: the metadata service has the first, then the bricks, then the lenders.
fn port(n: u16) -> u16 {
    14_000 + (std::process::id() % 300) as u16 * 20 + n
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(fixture: &'a Fixture) -> Cluster<'a> {
        let dir = fixture.path("meta");
        fixture.must(&["cluster", "init", "--dir", text(&dir)]);
        let (meta, key) = (format!("127.0.0.1:{}", port(0)), dir.join("key"));
        fixture.daemon("meta", &["meta", "--dir", text(&dir), "--listen", &meta, "--key-file", text(&key)]);
        let cluster = Cluster { fixture, meta, key };
        assert!(wait_for(SOON, || cluster.run(&["status"]).ok), "{}", fixture.said("meta"));
        cluster
    }

    fn to<'b>(&'b self, args: &[&'b str]) -> Vec<&'b str> {
        [args, &["--meta", &self.meta, "--key-file", text(&self.key)]].concat()
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        self.fixture.shoal(&self.to(args))
    }

    fn brick_args(disk: &str, n: u16) -> Vec<String> {
        let (node, listen) = (n.to_string(), format!("127.0.0.1:{}", port(n)));
        ["brick", "--disk", disk, "--node", &node, "--listen", &listen].map(str::to_owned).to_vec()
    }

    /// Starts brick `n` on a disk, formatted first if `new`.
    fn brick(&self, n: u16, disk: &str, new: bool) -> u32 {
        let id = n.to_string();
        let more = ["--format", "--id", &id];
        self.brick_with(n, disk, if new { &more } else { &[] })
    }

    /// Starts brick `n` on a disk, with more options.
    pub(crate) fn brick_with(&self, n: u16, disk: &str, more: &[&str]) -> u32 {
        let args = Cluster::brick_args(disk, n);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.fixture.daemon(&format!("brick{n}"), &self.to(&args))
    }

    /// A brick that must not come up.
    fn no_brick(&self, disk: &str, more: &[&str], words: &[&str]) {
        let args = Cluster::brick_args(disk, 9);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--format", "--id", "9"]).collect();
        let ran = within(SOON, "a brick that is refused", || self.run(&[&args, more].concat()));
        ran.refused(words);
    }

    pub(crate) fn find(&self, brick: &str) -> Value {
        let status = self.run(&["status", "--json"]).json();
        let bricks = status["bricks"].as_array().cloned().unwrap_or_default();
        bricks.into_iter().find(|b| b["id"] == brick).unwrap_or_default()
    }

    pub(crate) fn wait_until(&self, brick: &str, state: &str) {
        let found = wait_for(SOON, || self.find(brick)["state"] == state);
        assert!(found, "{brick} is {}, not {state}", self.find(brick));
    }

    fn wait_until_level(&self) {
        let level = || self.run(&["status", "--json"]).json()["progress"]["out"] == 0;
        assert!(wait_for(SOON, level), "{}", self.run(&["status"]).stdout);
    }

    pub(crate) fn mount(&self, name: &str) -> PathBuf {
        let (dir, log) = (self.fixture.path(name), self.fixture.path(&format!("{name}.log")));
        fs::create_dir_all(&dir).expect("a directory");
        let ran = self.run(&["mount", "main", text(&dir), "--log", text(&log)]);
        assert!(ran.ok, "{}", ran.stderr);
        dir
    }

    /// Every unit is read, encoded again and compared.
    fn verified(&self) {
        let found = self.run(&["volume", "verify", "main", "--json"]).json();
        assert_eq!((&found["mismatched"], &found["damaged"]), (&0.into(), &0.into()), "{found}");
    }
}

/// Somebody's disk, lent.
pub(crate) struct Lender<'a> {
    fixture: &'a Fixture,
    name: String,
    pub(crate) url: String,
    words: Vec<String>,
}

impl<'a> Lender<'a> {
    fn new(fixture: &'a Fixture, name: &str, url: String, words: &[&str]) -> Lender<'a> {
        let words = words.iter().map(ToString::to_string).collect();
        let lender = Lender { fixture, name: name.to_owned(), url, words };
        File::create(lender.file()).and_then(|file| file.set_len(SIZE)).expect("a disk");
        lender
    }

    fn file(&self) -> PathBuf {
        self.fixture.path(&format!("{}.disk", self.name))
    }

    /// Starts the server; it listens when this returns.
    pub(crate) fn start(&self) -> i32 {
        // The socket of one that was killed is in the way of the next.
        let socket = self.fixture.path(&format!("{}.sock", self.name));
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        let pid = self.fixture.start(&self.name, command) as i32;
        let listens = || match self.url.strip_prefix("nbd://").and_then(|rest| rest.strip_suffix("/disk")) {
            Some(address) => TcpStream::connect(address).is_ok(),
            None => UnixStream::connect(&socket).is_ok(),
        };
        assert!(wait_for(SOON, listens), "{}: {}", self.name, self.fixture.said(&self.name));
        pid
    }
}

/// nbdkit at a TCP port; one client at a time.
pub(crate) fn nbdkit<'a>(fixture: &'a Fixture, name: &str, n: u16, more: &[&str]) -> Lender<'a> {
    let (port, file) =
        (port(n).to_string(), format!("file={}", text(&fixture.path(&format!("{name}.disk")))));
    let words = ["nbdkit", "--foreground", "--ipaddr", "127.0.0.1", "--port", &port, "--filter=limit"];
    let words = [&words[..], &["--filter=blocksize-policy", "file", &file, "limit=1"], more].concat();
    Lender::new(fixture, name, format!("nbd://127.0.0.1:{port}/disk"), &words)
}

/// nbdkit at a socket in the file system.
fn nbdkit_at_path<'a>(fixture: &'a Fixture, name: &str) -> Lender<'a> {
    let (file, socket) = (fixture.path(&format!("{name}.disk")), fixture.path(&format!("{name}.sock")));
    let url = format!("nbd+unix:///disk?socket={}", text(&socket));
    Lender::new(fixture, name, url, &["nbdkit", "--foreground", "--unix", text(&socket), "file", text(&file)])
}

/// qemu-nbd at a TCP port.
fn qemu<'a>(fixture: &'a Fixture, name: &str, n: u16, more: &[&str]) -> Lender<'a> {
    let (port, file) = (port(n).to_string(), fixture.path(&format!("{name}.disk")));
    let words = ["qemu-nbd", "--persistent", "--bind", "127.0.0.1", "--port", &port, "--export-name", "disk"];
    let words = [&words[..], &["--format", "raw"], more, &[text(&file)]].concat();
    Lender::new(fixture, name, format!("nbd://127.0.0.1:{port}/disk"), &words)
}

/// A file of pieces that are written over and read back.
struct Work {
    file: File,
    right: Vec<Vec<u8>>,
    prng: Prng,
}

impl Work {
    fn new(mount: &Path) -> Work {
        let path = mount.join("file");
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        let mut work = Work { file, right: vec![Vec::new(); PIECES as usize], prng: Prng::new(21) };
        (0..PIECES).for_each(|piece| work.write(piece));
        work
    }

    fn write(&mut self, piece: u64) {
        let bytes = self.prng.bytes(PIECE);
        self.file.write_all_at(&bytes, piece * PIECE as u64).expect("a write");
        self.file.sync_all().expect("an fsync");
        self.right[piece as usize] = bytes;
    }

    /// Writes and reads for so long; the longest that one step took.
    fn go_on(&mut self, time: Duration) -> Duration {
        self.go_on_until(time, || false)
    }

    /// As [`Work::go_on`], but it ends as soon as `done`.
    fn go_on_until(&mut self, time: Duration, done: impl Fn() -> bool) -> Duration {
        let (end, mut longest) = (Instant::now() + time, Duration::ZERO);
        while Instant::now() < end && !done() {
            let (begun, piece) = (Instant::now(), self.prng.below(PIECES));
            if self.prng.below(2) == 0 {
                self.write(piece);
            } else {
                let mut found = vec![0; PIECE];
                self.file.read_exact_at(&mut found, piece * PIECE as u64).expect("a read");
                assert!(found == self.right[piece as usize], "piece {piece}");
            }
            longest = longest.max(begun.elapsed());
        }
        longest
    }
}

fn compare(mount: &Path, right: &[Vec<u8>]) {
    assert!(fs::read(mount.join("file")).expect("the file") == right.concat(), "at {}", mount.display());
}

#[test]
fn raid_5_over_three_machines_that_run_nothing_of_ours() {
    let fixture = Fixture::new("remote");
    let lenders = [
        nbdkit(&fixture, "lender1", 11, &STRICT),
        nbdkit_at_path(&fixture, "lender2"),
        qemu(&fixture, "lender3", 13, &["--cache", "none"]),
    ];
    let mut servers = [0; 3].map(|_: i32| 0);
    for (server, lender) in servers.iter_mut().zip(&lenders) {
        *server = lender.start();
    }
    let cluster = Cluster::new(&fixture);
    let mut bricks: Vec<u32> =
        (1..).zip(&lenders).map(|(n, lender)| cluster.brick(n, &lender.url, true)).collect();
    for (n, lender) in (1..).zip(&lenders) {
        cluster.wait_until(&format!("b{n}"), "up");
        assert_eq!(cluster.find(&format!("b{n}"))["disk"], lender.url.as_str());
    }
    assert!(cluster.run(&["status"]).stdout.contains(&lenders[1].url));
    assert!(cluster.run(&["volume", "create", "main", "--code", "2+1"]).ok);
    let mount = cluster.mount("mnt");
    let mut work = within(SOON, "the first writes", || Work::new(&mount));

    // Each server is killed and comes back soon: a pause, and the same brick goes on.
    for (at, lender) in lenders.iter().enumerate() {
        kill_now(servers[at]);
        std::thread::sleep(Duration::from_secs(2));
        servers[at] = lender.start();
        within(SOON, "work after a short absence", || work.go_on(Duration::from_secs(3)));
        let back = || fixture.said(&format!("brick{}", at + 1)).contains("connected again");
        assert!(wait_for(SOON, back), "{}", fixture.said(&format!("brick{}", at + 1)));
        assert_eq!(cluster.find(&format!("b{}", at + 1))["pid"], bricks[at]);
    }
    cluster.wait_until_level();
    cluster.verified();

    // A brick that is killed itself finds everything.
    kill_now(bricks[0] as i32);
    bricks[0] = cluster.brick(1, &lenders[0].url, false);
    within(SOON, "work after a brick's death", || work.go_on(Duration::from_secs(3)));

    // A server that stays away: its brick ends with the reason, the others go on.
    kill_now(servers[2]);
    let gone = || fixture.said("brick3").contains("nothing came from it for 30 s");
    let longest = within(SOON, "work without a lender", || work.go_on_until(Duration::from_secs(45), gone));
    assert!(wait_for(SOON, gone), "{}", fixture.said("brick3"));
    assert!(fixture.said("brick3").contains(&lenders[2].url), "{}", fixture.said("brick3"));
    assert!(longest < Duration::from_secs(50), "the longest step took {longest:?}");
    cluster.wait_until("b3", "out");
    within(SOON, "work with a brick out", || work.go_on(Duration::from_secs(3)));
    let fresh = cluster.mount("mnt-2");
    within(SOON, "reading without a lender", || compare(&fresh, &work.right));
    fixture.umount(&fresh);

    // It is back, and its brick is started again.
    lenders[2].start();
    cluster.brick(3, &lenders[2].url, false);
    cluster.wait_until("b3", "up");
    cluster.wait_until_level();
    within(SOON, "work with all three", || work.go_on(Duration::from_secs(2)));
    cluster.verified();

    // What it holds is good for a decode.
    let Work { file, right, .. } = work;
    drop(file);
    fixture.umount(&mount);
    kill_now(bricks[1] as i32);
    cluster.wait_until("b2", "out");
    let fresh = cluster.mount("mnt-3");
    within(SOON, "reading without another brick", || compare(&fresh, &right));
    fixture.umount(&fresh);
}

#[test]
fn disks_that_no_brick_can_be_on_are_refused_with_the_reason() {
    let fixture = Fixture::new("remote-not");
    let cluster = Cluster::new(&fixture);
    let nobody = format!("nbd://127.0.0.1:{}/disk", port(10));
    cluster.no_brick(&nobody, &[], &[&nobody, "cannot connect", "refused"]);
    cluster.no_brick("nbd://host:port/x", &[], &["host or port", "nbd://HOST[:PORT]/EXPORT"]);
    cluster.no_brick("nbds://host/x", &[], &["no TLS"]);

    let reading = nbdkit(&fixture, "reading", 11, &["--readonly"]);
    let large = nbdkit(
        &fixture,
        "large",
        12,
        &["blocksize-minimum=8192", "blocksize-preferred=8192", "blocksize-maximum=1M"],
    );
    let other = qemu(&fixture, "other", 13, &[]);
    let strict = nbdkit(
        &fixture,
        "strict",
        14,
        &[
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=64k",
            "blocksize-error-policy=error",
        ],
    );
    for lender in [&reading, &large, &other, &strict] {
        lender.start();
    }
    cluster.no_brick(&reading.url, &[], &[&reading.url, "read-only"]);
    cluster.no_brick(&large.url, &[], &["8192 to 1048576", "4096 bytes are needed"]);
    let unknown = other.url.replace("/disk", "/dusk");
    cluster.no_brick(&unknown, &[], &["no export `dusk`", "nbdinfo --list"]);
    cluster.no_brick(&other.url, &["--size", "1G"], &["has 268435456 bytes, 1073741824 are wanted"]);
    let pid = cluster.brick(1, &strict.url, true);
    cluster.wait_until("b1", "up");
    cluster.no_brick(&strict.url, &[], &[&strict.url, "one client at a time"]);
    kill_now(pid as i32);
    cluster.no_brick(&strict.url, &[], &["already a brick", "without --format"]);
    // What was on the disk of somebody else is as it was.
    assert!(fs::read(other.file()).expect("the disk").iter().all(|byte| *byte == 0));
}

#[test]
fn an_export_that_shrinks_ends_its_brick() {
    let fixture = Fixture::new("remote-shrinks");
    let cluster = Cluster::new(&fixture);
    let lender = nbdkit(&fixture, "lender", 11, &[]);
    let server = lender.start();
    cluster.brick(1, &lender.url, true);
    cluster.wait_until("b1", "up");
    kill_now(server);
    File::options()
        .write(true)
        .open(lender.file())
        .and_then(|file| file.set_len(SIZE - 4096))
        .expect("smaller");
    lender.start();
    let words = format!("has {} bytes now and had {SIZE}", SIZE - 4096);
    assert!(wait_for(SOON, || fixture.said("brick1").contains(&words)), "{}", fixture.said("brick1"));
    cluster.wait_until("b1", "out");
    // With its size back it serves as before.
    File::options().write(true).open(lender.file()).and_then(|file| file.set_len(SIZE)).expect("its size");
    cluster.brick(1, &lender.url, false);
    cluster.wait_until("b1", "up");
}

/// While this file is there, a disk's syncs take two seconds. Loaded before the C library's `fdatasync`.
const SLOW_SYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (access(getenv("SLOW_WHILE"), F_OK) == 0) sleep(2);
    return next(fd);
}
"#;

/// A brick that is slow is not taken for dead: one disk syncs for two seconds each time, and both the processors and the
/// memory have other work.
#[test]
fn a_slow_disk_and_a_busy_machine_cost_patience_and_no_lease() {
    let fixture = Fixture::new("busy");
    let (source, library, slow) = (fixture.path("slow.c"), fixture.path("slow.so"), fixture.path("slow"));
    fs::write(&source, SLOW_SYNC).expect("a source");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o", text(&library), text(&source), "-ldl"]).status();
    assert!(built.expect("cc runs").success());
    let mut lenders = [1, 2, 3].map(|n| nbdkit(&fixture, &format!("lender{n}"), 10 + n, &[]));
    let before = [format!("LD_PRELOAD={}", text(&library)), format!("SLOW_WHILE={}", text(&slow))];
    lenders[0].words.splice(0..0, ["env".to_owned()].into_iter().chain(before));
    for lender in &lenders {
        lender.start();
    }
    let cluster = Cluster::new(&fixture);
    for (n, lender) in (1..).zip(&lenders) {
        cluster.brick(n, &lender.url, true);
        cluster.wait_until(&format!("b{n}"), "up");
    }
    assert!(cluster.run(&["volume", "create", "main", "--code", "2+1"]).ok);
    let mount = cluster.mount("mnt");
    let mut work = within(SOON, "the first writes", || Work::new(&mount));

    File::create(&slow).expect("slow from here on");
    let mut others = Command::new("stress-ng");
    others.args(["--cpu", "8", "--vm", "2", "--vm-bytes", "256M", "--fork", "2", "--switch", "2"]);
    others.args(["--timeout", "15", "--temp-path", text(&fixture.path(""))]);
    fixture.start("others", others);
    let longest = within(SOON, "work on a busy machine", || work.go_on(Duration::from_secs(12)));
    println!("the longest step took {longest:?}");
    fs::remove_file(&slow).expect("quick again");
    within(SOON, "work after that", || work.go_on(Duration::from_secs(1)));
    assert!(longest >= Duration::from_secs(2), "the disk was not slow at all");
    compare(&mount, &work.right);
    assert!(!fixture.said("meta").contains("bricks are out"), "{}", fixture.said("meta"));
    cluster.verified();
}
