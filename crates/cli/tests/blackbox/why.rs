//! Which brick a slow request has waited for, as `shoal why` says: a brick that stands still, and one whose disk is slow. And what
//! gates without files tell of themselves.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nfs3_types::nfs3::stable_how;
use nix::libc::O_DIRECT;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fixture::{Fixture, Pages, Prng, text, wait_for};
use crate::nfs_client::{NfsClient, ROOT};

/// Bytes of the file, and of a read.
const FILE: u64 = 8 << 20;
const READ: usize = 4096;
/// How long a brick stands still.
const STILL: Duration = Duration::from_millis(400);
/// Between two reads.
const PAUSE: Duration = Duration::from_millis(3);

/// A file of random bytes that is stable, open without the kernel's cache.
fn file(path: &Path) -> File {
    let mut file = File::create(path).expect("a file");
    file.write_all(&Prng::new(1).bytes(FILE as usize)).and_then(|()| file.sync_all()).expect("stable bytes");
    OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).expect("the file")
}

/// Reads at random places, less than 500 times a second: of more, only a part is traced.
fn read_some(file: &File, until: impl Fn() -> bool) {
    let mut buffer = Pages::new();
    let mut prng = Prng::new(2);
    while !until() {
        let at = prng.below(FILE / READ as u64) * READ as u64;
        file.read_exact_at(&mut buffer.0[..READ], at).expect("bytes");
        thread::sleep(PAUSE);
    }
}

/// The slowest request of a document.
fn slowest(document: &Value) -> &Value {
    document["requests"].get(0).unwrap_or_else(|| panic!("nothing is slow: {document:#}"))
}

#[test]
fn a_brick_that_stands_still_is_named() {
    let fixture = Fixture::new("why-still");
    // Every brick has a third of each stripe.
    fixture.up(3, "3+0", "512M");
    let mount = fixture.mount("mnt");
    let path = mount.join("file");
    let open = file(&path);
    fixture.must(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]);
    let brick = Pid::from_raw(fixture.pid("b2"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| read_some(&open, || done.load(Ordering::Relaxed)));
        thread::sleep(STILL);
        kill(brick, Signal::SIGSTOP).expect("it runs");
        thread::sleep(STILL);
        kill(brick, Signal::SIGCONT).expect("it stands");
        thread::sleep(STILL);
        done.store(true, Ordering::Relaxed);
    });
    let seen = fixture.must(&["why", text(&path), "--json"]).json();
    let request = slowest(&seen);
    assert_eq!((&request["op"], &request["cause"]["brick"]), (&"read".into(), &"b2".into()), "{seen:#}");
    let (took, share) = (request["took_us"].as_u64(), request["cause"]["us"].as_u64());
    let most = STILL.as_micros() as u64 / 2;
    assert!(took.is_some_and(|us| us > most) && share.is_some_and(|us| us > most), "{seen:#}");
    let said = fixture.must(&["why", text(&path), "--count", "1"]).stdout;
    assert!(said.contains("ms were spent") && said.contains("b2") && said.contains("\n  try: "), "{said}");
    assert!(said.contains("\n      ReadUnit b2 ") || said.contains("\n    ReadUnit b2 "), "{said}");

    // The mount remembers it when the file is closed.
    drop(open);
    let remembered = || fixture.must(&["why", text(&path)]).stdout.contains("which is not open any more");
    assert!(wait_for(Duration::from_secs(30), remembered), "it is closed");
    let of_mount = fixture.must(&["why", "--slow", text(&mount), "--json"]).json();
    let inode = fs::metadata(&path).expect("attributes").ino();
    assert_eq!(
        (&slowest(&of_mount)["inode"], &of_mount["open"]),
        (&inode.into(), &Value::Null),
        "{of_mount:#}"
    );
    fixture.check_logs(&["did not answer", "no answer", "a turn of the task"]);
}

#[test]
fn who_cannot_be_looked_at_is_told_why() {
    let fixture = Fixture::new("why-refused");
    fixture.up(3, "2+1", "512M");
    let mount = fixture.mount("mnt");
    let path = mount.join("file");
    fs::write(&path, b"few").expect("a file");
    // Nothing of it may have been slow yet; both are answers.
    let said = fixture.must(&["why", text(&path)]).stdout;
    assert!(
        said.contains("took 1 ms or more in the last ten minutes") || said.contains("slow requests"),
        "{said}"
    );
    fixture.shoal(&["why", text(&mount)]).refused(&["is a directory", "shoal why --slow"]);
    fixture.shoal(&["why", "/nowhere"]).refused(&["there is no /nowhere", "shoal why --slow DIR"]);
    fixture.shoal(&["why", "/etc/passwd"]).refused(&["is not on a mount of Shoal", "shoal status"]);
    fixture.shoal(&["why", "--gate", "nbd:none"]).refused(&["there is no gate nbd:none", "shoal nbd"]);
    assert!(!fixture.shoal(&["why"]).ok);
    let control = mount.join(".shoal/why");
    assert_eq!(fs::metadata(&control).expect("it is there").permissions().mode() & 0o7777, 0o600);
    for wrong in ["file x\n", "mount\n"] {
        let error = fs::write(&control, wrong).expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    fixture.check_logs(&[]);
}

#[test]
fn gates_tell_of_themselves() {
    let fixture = Fixture::new("why-gates");
    fixture.up(3, "2+1", "512M");
    let log = |name: &str| text(&fixture.path(name)).to_owned();
    let words =
        ["nfs", "main", "--listen", "127.0.0.1:0", "--no-root-squash", "--json", "--log", &log("nfs.log")];
    let opened = fixture.must(&words).json();
    let address = opened["address"].as_str().expect("an address").to_owned();
    let mut nfs = NfsClient::connect(address.parse().expect("it is one"), ROOT).expect("the gate listens");
    let root = nfs.mount("/main").expect("the export");
    let file = nfs.file(&root, "file", 0o644);
    nfs.write(&file, 0, &[7; 5000], stable_how::FILE_SYNC).expect("a write");
    let seen = fixture.must(&["xray", "--gate", "nfs:main", "--once", "--json"]).json();
    let auto = seen["layers"].get(0).expect("a layer");
    assert_eq!((&auto["name"], &auto["writes"]["bytes"]), (&"auto".into(), &5000.into()), "{seen:#}");
    assert_eq!(seen["gate"], format!("nfs://{address}/main"));
    assert_eq!((&seen["devices"]["scope"], &seen["devices"]["answered"]), (&"cluster".into(), &3.into()));
    let asked = seen["devices"]["asked"]["written_bytes"].as_u64();
    let written = seen["devices"]["device"]["written_bytes"].as_u64();
    assert!(asked.is_some_and(|bytes| bytes >= 5000) && written > asked, "{seen:#}");
    let told = || {
        let clients = fixture.must(&["xray", "--clients", "--once", "--json"]).json()["clients"].clone();
        let gate = clients.as_array().and_then(|all| all.iter().find(|one| one["volume"] == "main")).cloned();
        gate.is_some_and(|gate| gate["written_bytes"] == 5000)
    };
    assert!(wait_for(Duration::from_secs(30), told), "each client tells once a second");
    let why = fixture.must(&["why", "--gate", &format!("nfs://{address}/main"), "--json"]).json();
    assert!(why["requests"].is_array() && why["gate"] == seen["gate"], "{why:#}");

    fixture.must(&["volume", "create", "vm", "--code", "2+1", "--same-node", "--block", "64M"]);
    let socket = fixture.path("nbd.sock");
    fixture.must(&["nbd", "vm", "--socket", text(&socket), "--log", &log("nbd.log")]);
    let text = fixture.must(&["xray", "--gate", "nbd:vm", "--once"]).stdout;
    assert!(
        text.contains("the gate nbd+unix:///vm?socket=") && text.contains("devices: 3 of 3 bricks"),
        "{text}"
    );
    assert!(fixture.must(&["why", "--gate", "nbd:vm"]).stdout.contains("in the last ten minutes"));
    fixture.shoal(&["xray", "--gate", "nfs:vm"]).refused(&["there is no gate nfs:vm", "nfs://127.0.0.1"]);
    fixture.must(&["nbd", "vm", "--stop"]);
    fixture.shoal(&["xray", "--gate", "nbd:vm"]).refused(&["there is no gate nbd:vm"]);
    fixture.must(&["nfs", "main", "--stop"]);
    fixture.check_logs(&[]);
}

/// Takes a port of this machine that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn a_brick_on_a_slow_disk_is_named_by_its_device() {
    let fixture = Fixture::new("why-device");
    let (meta_dir, port) = (fixture.path("meta"), free_port());
    fixture.must(&["cluster", "init", "--dir", text(&meta_dir)]);
    let (meta, key) = (format!("127.0.0.1:{}", free_port()), meta_dir.join("key"));
    let to = |words: &[&str]| [words, &["--meta", &meta, "--key-file", text(&key)]].concat().join("\n");
    let run = |words: &[&str]| fixture.shoal(&to(words).split('\n').collect::<Vec<_>>());
    fixture.daemon("meta", &["meta", "--dir", text(&meta_dir), "--listen", &meta, "--key-file", text(&key)]);
    let soon = Duration::from_secs(120);
    assert!(wait_for(soon, || run(&["status"]).ok), "{}", fixture.said("meta"));

    // Each read of the first brick's disk takes 60 ms.
    let lent = fixture.path("lent.disk");
    File::create(&lent).and_then(|file| file.set_len(256 << 20)).expect("a disk");
    let mut lender = Command::new("nbdkit");
    lender.args(["--foreground", "--ipaddr", "127.0.0.1", "--port", &port.to_string(), "--filter=delay"]);
    lender.args(["file", &format!("file={}", text(&lent)), "rdelay=60ms"]);
    fixture.start("lender", lender);
    assert!(wait_for(soon, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()), "nbdkit");
    let disks = [
        format!("nbd://127.0.0.1:{port}/"),
        text(&fixture.path("d2")).into(),
        text(&fixture.path("d3")).into(),
    ];
    for (n, disk) in (1..).zip(&disks) {
        let (id, listen) = (n.to_string(), format!("127.0.0.1:{}", free_port()));
        let mut words =
            vec!["brick", "--disk", disk, "--node", &id, "--listen", &listen, "--format", "--id", &id];
        if n > 1 {
            words.extend(["--size", "256M"]);
        }
        fixture.daemon(&format!("brick{n}"), &to(&words).split('\n').collect::<Vec<_>>());
    }
    let created = || run(&["volume", "create", "main", "--code", "3+0"]).ok;
    assert!(wait_for(soon, created), "{}", run(&["status"]).stdout);
    let mount = fixture.path("mnt");
    fs::create_dir_all(&mount).expect("a directory");
    let mounted = run(&["mount", "main", text(&mount), "--log", text(&fixture.path("mnt.log"))]);
    assert!(mounted.ok, "{}", mounted.stderr);
    let path = mount.join("file");
    let open = file(&path);
    assert!(run(&["tune", text(&mount), "io-cache=off", "read-ahead=off"]).ok);
    let end = Instant::now() + Duration::from_secs(3);
    read_some(&open, || Instant::now() > end);
    let seen = fixture.must(&["why", text(&path), "--count", "8", "--json"]).json();
    let named = |request: &Value| request["cause"]["what"] == "device" && request["cause"]["brick"] == "b1";
    let reads =
        seen["requests"].as_array().expect("requests").iter().filter(|request| request["op"] == "read");
    assert!(reads.filter(|request| named(request)).count() >= 4, "{seen:#}");
    drop(open);
    let devices = fixture.must(&["xray", text(&mount), "--once", "--json"]).json()["devices"].clone();
    assert_eq!(devices["answered"], 3, "the mount's key is used: {devices}");
    fixture.umount(&mount);
}
