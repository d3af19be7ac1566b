//! Several gates and mounts of one volume at once.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use nfs3_types::nfs3::{Nfs3Option, nfsstat3, sattr3, stable_how};

use super::{MIB, NBDSH, nbdsh, tool};
use crate::fixture::{Fixture, Prng, text};
use crate::nfs_client::{ROOT, with_mode};

/// Clients on several gates at once, and a mount: every write is everywhere, and stable, when it is answered.
#[test]
fn several_gates_and_a_mount_show_the_same_bytes() {
    let fixture = Fixture::new("nbd-shared");
    fixture.up(3, "2+1", "256M");
    fixture.disk("2+1", "16M");
    let (one, other) = (fixture.gate("vm", "one", &[]), fixture.gate("vm", "other", &["--write-through"]));
    let script = format!(
        "g = nbd.NBD(); g.connect_uri('{}')\n\
         for i in range(40):\n    \
             a, b = (h, g) if i % 2 else (g, h)\n    \
             a.pwrite(bytes([i + 1]) * 3000, i * 5000)\n    \
             assert b.pread(3000, i * 5000) == bytes([i + 1]) * 3000, i\n\
         h.zero(5000, 5000); assert g.pread(5000, 5000) == bytearray(5000)\n\
         h.pwrite(b'not flushed here', 2**20); g.flush(); print('flushed', flush=True)\n\
         import os, signal; os.kill({}, signal.SIGKILL)\n\
         assert g.pread(16, 2**20) == b'not flushed here'\n",
        other.uri, one.pid
    );
    nbdsh(&one.uri, &script);
    let dir = fixture.path("mnt");
    fs::create_dir_all(&dir).expect("a mount point");
    let log = fixture.path("mnt.log");
    fixture.must(&["mount", "vm", text(&dir), "--log", text(&log)]);
    let disk = OpenOptions::new().read(true).write(true).open(dir.join("disk")).expect("the disk");
    let mut seen = [0; 16];
    disk.read_exact_at(&mut seen, MIB).expect("a read");
    assert_eq!(&seen, b"not flushed here");
    disk.write_all_at(b"from the mount", 2 * MIB).expect("a write");
    nbdsh(&other.uri, "assert h.pread(14, 2**21) == b'from the mount'; h.pwrite(b'back', 2**21)");
    disk.read_exact_at(&mut seen, 2 * MIB).expect("a read");
    assert_eq!(&seen, b"back the mount\0\0");
    drop(disk);
    fixture.umount(&dir);
    fixture.verified_volume("vm");
}

/// A disk is one file to clients of NFS, and a file written by NFS is a disk to those of NBD.
#[test]
fn gates_of_both_kinds_show_the_same_bytes() {
    let fixture = Fixture::new("nbd-nfs");
    fixture.up(3, "2+1", "256M");
    fixture.disk("2+1", "16M");
    let disk = fixture.gate("vm", "disk", &[]);
    let mut right = vec![0; 16 << 20];
    let mut script = String::new();
    for (at, byte) in [(0, 1), (5 << 20, 2), ((16 << 20) - 3000, 3u8)] {
        right[at..at + 3000].fill(byte);
        script += &format!("h.pwrite(bytes([{byte}]) * 3000, {at})\n");
    }
    nbdsh(&disk.uri, &(script + "h.flush()"));
    let nfs_gate = fixture.nfs_of("vm", "vm-nfs", "127.0.0.1:0", &["--no-root-squash"]);
    let mut nfs = nfs_gate.client(ROOT);
    let root = nfs.mount("/vm").expect("the volume");
    let file = nfs.lookup(&root, "disk").expect("the disk");
    assert!(nfs.read_all(&file) == right);
    nfs.write(&file, 7 << 20, &[4; 3000], stable_how::FILE_SYNC).expect("a disk can be written");
    nbdsh(&disk.uri, &format!("assert h.pread(3000, {}) == b'\\x04' * 3000", 7 << 20));
    assert_eq!(nfs.remove(&root, "disk").err(), Some(nfsstat3::NFS3ERR_PERM), "it is all that the volume is");
    fixture.stop_gate("vm", &disk);
    fixture.must(&["nfs", "vm", "--stop"]);

    let gate = fixture.nfs("main-nfs", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "a.img", 0o644);
    let right = Prng::new(4).bytes(700_000);
    nfs.write(&file, 0, &right, stable_how::UNSTABLE).expect("a write");
    nfs.commit(&file).expect("a commit");
    let path = ["--file", "a.img"];
    let reader = fixture.gate("main", "reader", &[&path[..], &["--read-only"]].concat());
    let copy = fixture.path("copy");
    tool(&["nbdcopy", &reader.uri, text(&copy)]);
    assert!(fs::read(&copy).expect("a copy") == right);

    // Cut under its reader: what is there no more is an error, not zeros.
    let shorter = sattr3 { size: Nfs3Option::Some(4096), ..with_mode(0o644) };
    let script = "
import sys
assert h.pread(4096, 600_000)
print('read', flush=True); sys.stdin.readline()
try:
    h.pread(4096, 600_000); raise Exception('read')
except nbd.Error as e: assert e.errno == 'EIO', e.errno
assert len(h.pread(4096, 0)) == 4096
";
    let mut held = Command::new(NBDSH[0]);
    held.args(&NBDSH[1..])
        .args(["-u", &reader.uri, "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut held = held.spawn().expect("nbdsh runs");
    let mut said = [0; 4];
    held.stdout.as_mut().expect("piped").read_exact(&mut said).expect("it has read");
    nfs.setattr(&file, shorter, None).expect("it can be cut");
    held.stdin.take().expect("piped").write_all(b"\n").expect("it waits");
    assert!(held.wait().expect("it ends").success());
    fixture.stop_gate("main", &reader);
    fixture.stop_nfs(&gate);

    let writer = fixture.gate("main", "writer", &path);
    nbdsh(&writer.uri, "h.pwrite(b'by NBD', 4000)");
    fixture.stop_gate("main", &writer);
    let gate = fixture.nfs("again", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.lookup(&root, "a.img").expect("the file");
    assert!(nfs.read_all(&file) == [&right[..4000], b"by NBD", &right[4006..4096]].concat());
}

#[test]
fn files_are_exported_to_readers_or_to_one_gate_alone() {
    let fixture = Fixture::new("nbd-files");
    fixture.up(3, "2+1", "256M");
    let mount = fixture.mount("mnt");
    fs::create_dir(mount.join("images")).expect("a directory");
    let file = mount.join("images/a.img");
    let bytes = Prng::new(3).bytes(1_000_001);
    fs::write(&file, &bytes).expect("an image");
    let path = ["--file", "images/a.img"];

    // A read-only gate may export a file of a mounted volume. The next client of the gate sees what the mount has written.
    let reader = fixture.gate("main", "reader", &[&path[..], &["--read-only"]].concat());
    assert!(reader.uri.starts_with("nbd+unix:///main/images/a.img?socket="), "{}", reader.uri);
    let copy = fixture.path("copy");
    tool(&["nbdcopy", &reader.uri, text(&copy)]);
    assert!(fs::read(&copy).expect("a copy") == bytes);
    nbdsh(
        &reader.uri,
        "
assert h.is_read_only() and h.can_multi_conn() and not h.can_trim()
h.set_strict_mode(0)
for change in (lambda: h.pwrite(b'x', 0), lambda: h.trim(1, 0), lambda: h.zero(1, 0)):
    try:
        change(); raise Exception('changed')
    except nbd.Error as e: assert e.errno == 'EPERM', e.errno
",
    );
    fixture.try_gate("main", "writer", &path).1.refused(&["volume `main` is mounted", "shoal nbd --stop"]);
    fixture.stop_gate("main", &reader);
    fixture.umount(&mount);

    let writer = fixture.gate("main", "writer", &path);
    fixture.try_gate("main", "second", &path).1.refused(&["is mounted exclusively at", "nbd "]);
    fixture.try_mount("mnt", &[]).1.refused(&["is mounted exclusively at"]);
    nbdsh(
        &writer.uri,
        "
h.pwrite(b'exclusive', 999_000)
h.set_strict_mode(0)
try:
    h.pwrite(b'longer', 1_000_000); raise Exception('grown')
except nbd.Error as e: assert e.errno == 'ENOSPC', e.errno
",
    );
    fixture.stop_gate("main", &writer);
    let mount = fixture.mount("mnt");
    let seen = fs::read(mount.join("images/a.img")).expect("the image");
    assert!(
        seen.len() == bytes.len()
            && &seen[999_000..999_009] == b"exclusive"
            && seen[..999_000] == bytes[..999_000]
    );
    fixture.umount(&mount);

    fixture.disk("2+1", "1M");
    let refused = |volume: &str, options: &[&str], words: &[&str]| {
        fixture.try_gate(volume, "wrong", options).1.refused(words);
    };
    refused("main", &[], &["not a block volume", "--file"]);
    refused("vm", &["--file", "disk"], &["is a block volume"]);
    refused("main", &["--file", "nothing", "--read-only"], &["nothing in volume `main`"]);
    refused("main", &["--file", "images", "--read-only"], &["not a file"]);
    refused("none", &[], &["no volume `none`"]);
    fixture
        .shoal(&["nbd", "vm", "--listen", "0.0.0.0:10809"])
        .refused(&["will not listen", "--allow-remote"]);
    fixture.shoal(&["nbd", "vm", "--stop"]).refused(&["no gate of volume `vm`"]);
    let gate = fixture.gate("vm", "gate", &["--exclusive"]);
    refused("vm", &[], &["is mounted exclusively at"]);
    let taken = fixture.try_gate("main", "gate", &[&path[..], &["--read-only"]].concat()).1;
    taken.refused(&["is in use by another process"]);
    let mode = fs::metadata(&gate.socket).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fixture.stop_gate("vm", &gate);
}
