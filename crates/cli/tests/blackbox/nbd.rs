//! A volume over NBD is an honest disk for the programs that people use: nbdcopy, qemu, fio and the loop device write
//! and compare, gates are killed and replaced, and other gates and mounts look at the same bytes.

mod hostile;
mod together;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{CommandOutput, Fixture, Prng, kill_now, text, within};

const MIB: u64 = 1 << 20;

/// A gate of the fixture.
struct Gate {
    socket: PathBuf,
    uri: String,
    pid: i32,
}

impl Fixture {
    /// Makes the block volume `vm`.
    fn disk(&self, code: &str, size: &str) {
        self.must(&["volume", "create", "vm", "--code", code, "--same-node", "--block", size]);
    }

    fn try_gate(&self, volume: &str, name: &str, options: &[&str]) -> (PathBuf, CommandOutput) {
        let (socket, log) = (self.path(&format!("{name}.sock")), self.path(&format!("{name}.log")));
        let words = ["nbd", volume, "--socket", text(&socket), "--log", text(&log), "--json"];
        let ran = self.shoal(&[&words, options].concat());
        (socket, ran)
    }

    /// Opens a gate of a volume at a socket of the fixture.
    fn gate(&self, volume: &str, name: &str, options: &[&str]) -> Gate {
        let (socket, ran) = self.try_gate(volume, name, options);
        let uri = ran.json()["uri"].as_str().expect("a URI").to_owned();
        let pid = self.gate_pid(&socket);
        Gate { socket, uri, pid }
    }

    /// The daemon that listens at a socket.
    fn gate_pid(&self, socket: &Path) -> i32 {
        let words = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_gate = |words: &str| words.contains("--foreground") && words.contains(text(socket));
        let gates: Vec<i32> = self.processes().into_iter().filter(|pid| is_gate(&words(pid))).collect();
        assert_eq!(gates.len(), 1, "one gate at {}", socket.display());
        gates[0]
    }

    fn stop_gate(&self, volume: &str, gate: &Gate) {
        self.must(&["nbd", volume, "--stop", "--socket", text(&gate.socket)]);
        assert!(!gate.socket.exists());
    }
}

/// Runs a tool that must succeed; what it said.
fn tool(words: &[&str]) -> String {
    let ran = run(words);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{words:?}:\n{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    said
}

fn run(words: &[&str]) -> Output {
    let ran = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    ran.unwrap_or_else(|error| panic!("{}: {error}; see ./dev test for what it needs", words[0]))
}

/// What `nbdsh` starts; the library is for the system's own Python.
const NBDSH: [&str; 3] = ["/usr/bin/python3", "-m", "nbd"];

/// Runs Python with the client library; `h` is connected.
fn nbdsh(uri: &str, script: &str) -> String {
    tool(&[&NBDSH[..], &["--base-allocation", "-u", uri, "-c", script]].concat())
}

/// An image with bytes here and there, and holes between.
fn image(path: &Path, size: u64, seed: u64) {
    let mut prng = Prng::new(seed);
    let file = File::create(path).expect("an image");
    file.set_len(size).expect("its size");
    let mut at = 0;
    while at < size {
        let len = (4096 * (1 + prng.below(300))).min(size - at);
        if prng.below(2) == 0 {
            file.write_all_at(&prng.bytes(len as usize), at).expect("some bytes");
        }
        at += len;
    }
}

/// Extents of a map: bytes, and whether they are holes.
fn extents(uri: &str) -> Vec<(u64, bool)> {
    let map: Value = serde_json::from_str(&tool(&["nbdinfo", "--map", "--json", uri])).expect("a map");
    let extents = map.as_array().expect("extents").iter();
    extents.map(|e| (e["length"].as_u64().expect("bytes"), e["type"] == 3)).collect()
}

fn bytes_of(uri: &str) -> u64 {
    extents(uri).iter().filter(|(_, hole)| !hole).map(|(len, _)| len).sum()
}

fn same(one: &Path, other: &Path) {
    let (one, other) = (fs::read(one).expect("an image"), fs::read(other).expect("an image"));
    let differs = one.iter().zip(&other).position(|(a, b)| a != b);
    assert_eq!((one.len(), differs), (other.len(), None));
}

#[test]
fn the_usual_nbd_tools_read_what_they_wrote() {
    let fixture = Fixture::new("nbd-tools");
    fixture.up(6, "4+2", "512M");
    fixture.disk("4+2", "64M");
    let gate = fixture.gate("vm", "gate", &[]);
    let uri = gate.uri.as_str();

    let info: Value = serde_json::from_str(&tool(&["nbdinfo", "--json", uri])).expect("JSON");
    let export = &info["exports"][0];
    assert_eq!((&info["protocol"], &export["export-size"]), (&"newstyle-fixed".into(), &(64 * MIB).into()));
    for can in ["can_multi_conn", "can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_df"] {
        assert_eq!(export[can], true, "{can}: {export}");
    }
    assert_eq!((&export["is_read_only"], &export["can_cache"]), (&false.into(), &false.into()));
    assert_eq!(
        (&export["block_size_preferred"], &export["block_size_maximum"]),
        (&4096.into(), &(32 * MIB).into())
    );
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]));
    let listed: Value = serde_json::from_str(&tool(&["nbdinfo", "--list", "--json", uri])).expect("JSON");
    assert_eq!(listed["exports"][0]["export-name"], "vm");
    assert_eq!(extents(uri), [(64 * MIB, true)], "a new disk is one hole");

    let (source, back) = (fixture.path("source"), fixture.path("back"));
    image(&source, 48 * MIB, 1);
    tool(&["nbdcopy", "--connections=4", text(&source), uri]);
    tool(&["nbdcopy", "--connections=4", uri, text(&back)]);
    File::options().write(true).open(&back).and_then(|f| f.set_len(48 * MIB)).expect("cut");
    same(&source, &back);
    let copied = bytes_of(uri);
    assert!((16 * MIB..48 * MIB).contains(&copied), "{copied} bytes of a sparse image");

    // Zeros instead of bytes give the space back, also half units; and read as zeros.
    nbdsh(
        uri,
        "h.trim(40*2**20, 0); h.flush(); assert not any(any(h.pread(2**22, i*2**22)) for i in range(10))",
    );
    let left = bytes_of(uri);
    assert!(left <= 9 * MIB, "{left} of {copied} bytes are left");
    nbdsh(uri, "h.zero(64*2**20, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_FUA)");
    assert_eq!(bytes_of(uri), 0);

    image(&source, 64 * MIB, 2);
    tool(&["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", text(&source), uri]);
    tool(&["qemu-img", "compare", "-f", "raw", "-F", "raw", text(&source), uri]);
    tool(&["qemu-img", "create", "-f", "qcow2", uri, "32M"]);
    tool(&["qemu-io", "-f", "qcow2", uri, "-c", "write -P 7 1M 3M", "-c", "write -z 2M 1M", "-c", "flush"]);
    tool(&["qemu-img", "check", "-f", "qcow2", uri]);
    tool(&["qemu-io", "-f", "qcow2", uri, "-c", "read -P 7 1M 1M", "-c", "read -P 0 2M 1M"]);

    let patterns = [
        "write -P 0xab 4k 64k",
        "read -P 0xab 4k 64k",
        "write -P 1 513 1000",
        "read -P 1 513 1000",
        "write -z 8k 12k",
        "read -P 0 8k 12k",
        "write -f -P 3 1M 5M",
        "discard 2M 2M",
        "read -P 3 1M 1M",
        "write -z -u 30M 30M",
        "read -P 0 30M 30M",
        "aio_write -P 9 20M 4M",
        "aio_write -P 8 24M 4M",
        "aio_flush",
        "read -P 9 20M 4M",
        "read -P 8 24M 4M",
        "flush",
    ];
    let commands: Vec<&str> = patterns.iter().flat_map(|pattern| ["-c", pattern]).collect();
    let said = tool(&[&["qemu-io", "-f", "raw", uri][..], &commands].concat());
    assert!(!said.contains("verification failed"), "{said}");

    let status = fixture.status();
    assert_eq!((&status["exports"][0], &status["volumes"][1]["block"]), (&uri.into(), &(64 * MIB).into()));
    assert!(fixture.must(&["volume", "list"]).stdout.contains("64 MiB"));
    assert!(fixture.must(&["status"]).stdout.contains("volume vm (a disk of 64 MiB, "));
    fixture.stop_gate("vm", &gate);
    fixture.verified_volume("vm");
    fixture.check_logs(&[]);
}

/// fio's own engine: writes at random, each with its checksum, and reads all of it back.
#[test]
fn fio_verifies_what_it_wrote() {
    let fixture = Fixture::new("nbd-fio");
    fixture.up(6, "4+2", "512M");
    fixture.disk("4+2", "64M");
    let gate = fixture.gate("vm", "gate", &[]);
    for (name, options) in [
        ("mixed", &["--rw=randwrite", "--bsrange=4k-256k", "--size=48m", "--fsync=32"][..]),
        ("unaligned", &["--rw=randwrite", "--bsrange=512-70k", "--bs_unaligned=1", "--size=16m"]),
    ] {
        let uri = format!("--uri={}", gate.uri);
        let verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_backlog=128"];
        let job = format!("--name={name}");
        let words = ["fio", &job, "--ioengine=nbd", &uri, "--iodepth=16", "--verify_state_save=0"];
        tool(&[&words[..], &verify, options].concat());
    }
    fixture.stop_gate("vm", &gate);
    fixture.verified_volume("vm");
    fixture.check_logs(&[]);
}

/// A file system on a loop device over a mounted block volume. Detached with the fixture, also if the test fails.
struct Loop {
    device: String,
}

impl Loop {
    fn over(file: &Path) -> Loop {
        let said = tool(&["losetup", "--find", "--show", "--sector-size", "512", text(file)]);
        Loop { device: said.trim().to_owned() }
    }

    /// Makes a file system, fills it, and checks it as clean. The files' sums.
    fn file_system(&self, fixture: &Fixture, kind: &str, quiet: &[&str], check: &[&str]) -> String {
        let dir = fixture.path(kind);
        fs::create_dir_all(&dir).expect("a mount point");
        tool(&[&[&*format!("mkfs.{kind}")], quiet, &[&self.device]].concat());
        tool(&["mount", &self.device, text(&dir)]);
        let mut prng = Prng::new(5);
        for file in 0..30 {
            let len = prng.below(400_000) as usize;
            fs::write(dir.join(format!("file{file}")), prng.bytes(len)).expect("a file");
        }
        (0..10).for_each(|file| fs::remove_file(dir.join(format!("file{file}"))).expect("gone"));
        let sums = sums(&dir);
        tool(&["umount", text(&dir)]);
        tool(&[check, &[&self.device]].concat());
        sums
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(&["losetup", "--detach", &self.device]);
    }
}

fn sums(dir: &Path) -> String {
    tool(&["sh", "-c", "cd \"$0\" && sha256sum file* | sort", text(dir)])
}

#[test]
fn a_loop_device_over_a_mounted_disk() {
    let fixture = Fixture::new("nbd-loop");
    fixture.up(6, "4+2", "512M");
    fixture.disk("2+1", "400M");
    let mount = fixture.path("mnt");
    fs::create_dir_all(&mount).expect("a mount point");
    let mount_disk = || {
        let log = fixture.path("mnt.log");
        fixture.must(&["mount", "vm", text(&mount), "--log", text(&log)]);
    };
    mount_disk();
    let disk = mount.join("disk");
    let names: Vec<_> = fs::read_dir(&mount).expect("a listing").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["disk"]);
    assert_eq!(fs::metadata(&disk).expect("attributes").len(), 400 * MIB);
    let refused = [
        fs::write(mount.join("other"), b"x").err(),
        fs::create_dir(mount.join("dir")).err(),
        fs::remove_file(&disk).err(),
        fs::rename(&disk, mount.join("other")).err(),
        fs::hard_link(&disk, mount.join("other")).err(),
        File::create(&disk).err(),
        OpenOptions::new().write(true).open(&disk).and_then(|file| file.set_len(MIB)).err(),
    ];
    for (which, error) in refused.into_iter().enumerate() {
        assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::PermissionDenied), "change {which}");
    }
    let file = OpenOptions::new().write(true).open(&disk).expect("the disk");
    let beyond = file.write_at(b"x", 400 * MIB).and_then(|_| file.sync_all()).err();
    assert_eq!(beyond.map(|e| e.kind()), Some(ErrorKind::StorageFull));
    drop(file);

    // Written as a file, read as a disk; twice, with two file systems.
    for (kind, quiet, check) in [
        ("ext4", &["-q", "-F"][..], &["e2fsck", "-f", "-n"][..]),
        ("xfs", &["-q", "-f"], &["xfs_repair", "-n"]),
    ] {
        let looped = Loop::over(&disk);
        let files = looped.file_system(&fixture, kind, quiet, check);
        drop(looped);
        fixture.umount(&mount);
        let gate = fixture.gate("vm", "gate", &[]);
        let image = fixture.path("image");
        tool(&["nbdcopy", &gate.uri, text(&image)]);
        // Read as a disk, and as a file again.
        fixture.stop_gate("vm", &gate);
        mount_disk();
        tool(&["cmp", text(&image), text(&disk)]);
        tool(&[check, &[text(&image)]].concat());
        let looped = Loop::over(&disk);
        let dir = fixture.path(kind);
        tool(&["mount", &looped.device, text(&dir)]);
        assert_eq!(sums(&dir), files);
        tool(&["umount", text(&dir)]);
        fs::remove_file(&image).expect("gone");
    }

    // And the other way, both at once: what the disk was told is in the file.
    let gate = fixture.gate("vm", "gate", &[]);
    nbdsh(&gate.uri, "h.pwrite(b'through the gate', 12345); h.zero(4096, 2**20); h.flush()");
    let mut seen = [0; 16];
    File::open(&disk).and_then(|f| f.read_exact_at(&mut seen, 12345)).expect("a read");
    assert_eq!(&seen, b"through the gate");
    fixture.stop_gate("vm", &gate);
    fixture.umount(&mount);
    fixture.verified_volume("vm");
    fixture.check_logs(&[]);
}

#[test]
fn a_disk_grows_in_use() {
    let fixture = Fixture::new("nbd-grow");
    fixture.up(3, "2+1", "256M");
    fixture.disk("2+1", "8M");
    let gate = fixture.gate("vm", "gate", &[]);
    let grow = |size: &str| fixture.shoal(&["volume", "grow", "vm", size]);
    // The client that is there keeps the size that it knows; a new one has the new size, on the same open disk.
    let shoal = env!("CARGO_BIN_EXE_shoal");
    let home = fixture.home();
    let script = format!(
        "import os, subprocess\n\
         h.pwrite(b'a' * 4096, 8*2**20 - 4096)\n\
         subprocess.run(['{shoal}', 'volume', 'grow', 'vm', '20M', '--dir', '{}'], check=True, stdout=2)\n\
         import time\n\
         g = nbd.NBD()\n\
         for _ in range(100):\n    \
             g = nbd.NBD(); g.connect_uri('{}')\n    \
             if g.get_size() == 20*2**20: break\n    \
             time.sleep(0.05)\n\
         assert (h.get_size(), g.get_size()) == (8*2**20, 20*2**20), g.get_size()\n\
         g.pwrite(b'b' * 4096, 20*2**20 - 4096)\n\
         h.pwrite(b'c' * 4096, 0)\n\
         h.set_strict_mode(0)\n\
         try:\n    h.pwrite(b'd' * 4096, 8*2**20)\n    raise Exception('written beyond its end')\n\
         except nbd.Error as e: assert e.errno == 'ENOSPC', e.errno\n\
         g.flush()\n\
         assert g.pread(4096, 8*2**20 - 4096) == b'a' * 4096\n\
         assert g.pread(4096, 20*2**20 - 4096) == b'b' * 4096\n\
         assert g.pread(8192, 8*2**20) == bytearray(8192)\n",
        text(&home),
        gate.uri
    );
    nbdsh(&gate.uri, &script);
    grow("10M").refused(&["`vm` has 20 MiB and is never made smaller", "try:"]);
    grow("20000001").refused(&["a multiple of 4096"]);
    assert!(grow("20M").ok, "it has that size already");
    fixture.shoal(&["volume", "grow", "main", "1G"]).refused(&["holds files"]);
    fixture.kill("meta");
    fixture.must(&["up"]);
    nbdsh(&gate.uri, "assert h.get_size() == 20*2**20 and h.pread(4096, 0) == b'c' * 4096");
    fixture.must(&["down"]);
    fixture.must(&["up"]);
    let gate = fixture.gate("vm", "gate", &[]);
    nbdsh(&gate.uri, "assert h.get_size() == 20*2**20 and h.pread(4096, 20*2**20 - 4096) == b'b' * 4096");
    fixture.must(&["nbd", "vm", "--stop"]);
    fixture.must(&["volume", "delete", "vm", "--yes"]);
}

/// Writes block after block, each with its number, and flushes now and then, until the gate dies. Says which numbers
/// were flushed.
const WRITER: &str = "
import struct, sys
blocks = 2000
def write():
    i = 0
    while True:
        i += 1
        h.pwrite(struct.pack('>Q', i) * 512, (i * 7 % blocks) * 4096)
        if i % 16 == 0:
            h.flush()
            print(i, flush=True)
try: write()
except nbd.Error as e: print('dead', e.errno, file=sys.stderr)
";

/// What the writer had flushed is there, or something newer.
const READER: &str = "
import struct
blocks = 2000
newest = {}
for i in range(1, FLUSHED + 1): newest[i * 7 % blocks] = i
data = h.pread(blocks * 4096, 0)
for b, i in newest.items():
    found = struct.unpack('>Q', data[b * 4096:b * 4096 + 8])[0]
    assert found >= i and found * 7 % blocks == b, (b, i, found)
    assert data[b * 4096:b * 4096 + 4096] == struct.pack('>Q', found) * 512, b
h.pwrite(b'still a disk', 0); h.flush()
";

#[test]
fn another_gate_takes_over_and_nothing_that_was_flushed_is_lost() {
    let fixture = Fixture::new("nbd-fail-over");
    fixture.up(6, "4+2", "512M");
    fixture.disk("4+2", "64M");
    let (first, second) = (fixture.gate("vm", "first", &[]), fixture.gate("vm", "second", &[]));
    for (dying, heir) in [(&first, &second), (&second, &first)] {
        let mut writer = Command::new(NBDSH[0]);
        writer.args(&NBDSH[1..]).args(["-u", &dying.uri, "-c", WRITER]);
        let writer = writer.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut writer = writer.expect("nbdsh runs");
        thread::sleep(Duration::from_millis(1500));
        kill_now(fixture.gate_pid(&dying.socket));
        let ran = within(Duration::from_secs(60), "the writer", || {
            let mut said = String::new();
            writer.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
            writer.wait().expect("it ends");
            said
        });
        let flushed: u64 = ran.lines().last().and_then(|line| line.parse().ok()).expect("it has flushed");
        let begun = Instant::now();
        nbdsh(&heir.uri, &READER.replace("FLUSHED", &flushed.to_string()));
        println!("{flushed} writes were flushed; the other gate had them after {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(30), "it takes a lease's time");
        // The dead one's socket is left behind and does not keep its successor away.
        assert!(dying.socket.exists());
        let name = dying.socket.file_stem().and_then(|name| name.to_str()).expect("a name");
        fixture.gate("vm", name, &[]);
    }
    fixture.verified_volume("vm");
}

/// Each client of a gate is served by one of its threads; what any of them was told is done is there for all, and one's
/// flush covers it.
#[test]
fn a_flush_covers_the_clients_of_all_threads() {
    let fixture = Fixture::new("nbd-threads");
    fixture.up(3, "2+1", "256M");
    fixture.disk("2+1", "16M");
    let gate = fixture.gate("vm", "many", &["--threads", "4"]);
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", gate.pid)).expect("it runs").flatten();
        tasks.map(name).filter(|name| name == "nbd\n").count()
    };
    // The first one listens already; the others give themselves their name when they run.
    let end = Instant::now() + Duration::from_secs(10);
    while threads() < 3 && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(threads(), 3, "and the first one");
    let script = format!(
        "more = [nbd.NBD() for _ in range(11)]\n\
         for g in more: g.connect_uri('{}')\n\
         all = [h] + more\n\
         for round in range(20):\n    \
             for i, g in enumerate(all): g.pwrite(bytes([round + i + 1]) * 3000, i * 5000)\n    \
             for i in range(12): assert all[(i + 5) % 12].pread(3000, i * 5000) == bytes([round + i + 1]) * 3000, i\n\
         all[-1].flush(); print('flushed', flush=True)\n\
         import os, signal; os.kill({}, signal.SIGKILL)\n",
        gate.uri, gate.pid
    );
    assert!(nbdsh(&gate.uri, &script).contains("flushed"));
    let heir = fixture.gate("vm", "heir", &[]);
    nbdsh(&heir.uri, "for i in range(12): assert h.pread(3000, i * 5000) == bytes([20 + i]) * 3000, i");
    fixture.stop_gate("vm", &heir);
    fixture.verified_volume("vm");
}
