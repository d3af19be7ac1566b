//! The kernel's NFS client sees what a mount sees, and loses nothing when its gate is killed: both sides write and
//! compare, then gates are killed under writers.

use std::fs;
use std::path::Path;

use super::{Guest, Image, content};
use crate::fixture::{Fixture, kill_now};

/// Numbered files that are written while gates are killed.
const FILES: u64 = 60;

/// The lines from 1 to `last`, as `seq` says them.
fn lines(last: u64) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

/// The guest's connections come from ports of the process that is its machine.
const GATE: [&str; 2] = ["--no-root-squash", "--insecure"];

#[test]
#[ignore = "boots a guest: ./dev test --full"]
fn the_kernels_nfs_client_beside_a_mount_and_killed_gates() {
    let fixture = Fixture::new("guest-files");
    fixture.up(6, "4+2", "512M");
    let image = Image::build(&fixture);
    let mount = fixture.mount("mnt");
    // A port that the kernel gives to nobody: each gate has it in its turn.
    let at = format!("127.0.0.1:{}", 28_000 + std::process::id() % 2_000);
    let gate = fixture.nfs_at("gate-0", &at, &GATE);
    let mut guest = Guest::boot(&fixture, &image, "client");
    guest.must(&format!("mount_nfs {}", gate.address.port()));
    beside_a_mount(&mut guest, &mount);
    guest.must("timed verified buffered --directory=/mnt/nfs");
    guest.must("timed verified direct --directory=/mnt/nfs --direct=1");

    guest.must("mkdir /mnt/nfs/numbered");
    guest.must("begin large seq_file 3000000 /mnt/nfs/large");
    guest.must("begin fio verified long --directory=/mnt/nfs --size=32m --fsync=32 --verify_backlog=64");
    guest.must(&format!("begin files stable_range /mnt/nfs/numbered 1 {FILES}"));
    let mut gate = gate;
    for (life, number) in [(1, 8), (2, 20), (3, 35)] {
        guest.wait_stable("/mnt/nfs/numbered", number);
        kill_now(gate.pid);
        gate = fixture.nfs_at(&format!("gate-{life}"), &at, &GATE);
        println!("the gate was killed after file {number}; another one has its address");
    }
    for work in ["files", "large", "fio"] {
        guest.must(&format!("ended {work}"));
    }
    guest.must(&format!("compare /mnt/nfs/numbered {FILES}"));
    guest.must("verified long --directory=/mnt/nfs --size=32m --verify_only");
    guest.must("umount /mnt/nfs");
    drop(guest);

    for number in 1..=FILES {
        let seen = fs::read(mount.join(format!("numbered/n-{number}"))).expect("the file");
        assert!(seen == content(number), "file {number} through the mount");
    }
    assert!(fs::read(mount.join("large")).expect("the file") == lines(3_000_000), "the large file");
    fixture.umount(&mount);
    fixture.stop_nfs(&gate);
    fixture.verified();
    fixture.check_logs(&[]);
}

/// What is written on one side is read on the other.
fn beside_a_mount(guest: &mut Guest, mount: &Path) {
    fs::write(mount.join("ours"), lines(200_000)).expect("a file");
    guest.must("same_lines 200000 /mnt/nfs/ours");
    // Over bytes that the guest has in its cache, and longer.
    fs::write(mount.join("ours"), lines(300_000)).expect("a file");
    guest.must("same_lines 300000 /mnt/nfs/ours");

    guest.must("tree /mnt/nfs/tree");
    let tree = mount.join("tree");
    let mut right: Vec<String> = (1..=40).filter(|n| n % 2 == 0).map(|n| format!("kept-{n}")).collect();
    right.extend(["cut", "done", "link", "second"].map(str::to_owned));
    right.sort();
    assert_eq!(names(&tree), right);
    assert!(fs::read(tree.join("done")).expect("the file") == lines(300_000), "what the guest has written");
    assert!(fs::read(tree.join("second")).expect("its other name") == lines(300_000));
    assert_eq!(fs::read_link(tree.join("link")).expect("a link"), Path::new("done"));
    assert!(fs::read(tree.join("cut")).expect("the file") == lines(1000)[..2000]);
    for kept in right.iter().filter_map(|name| name.strip_prefix("kept-")) {
        let seen = fs::read_to_string(tree.join(format!("kept-{kept}"))).expect("the file");
        assert_eq!(seen, format!("{kept}\n"));
    }
    fs::rename(tree.join("done"), mount.join("moved")).expect("a move");
    fs::remove_dir_all(&tree).expect("the rest of it");
    guest.must("gone /mnt/nfs/tree");
    guest.must("same_lines 300000 /mnt/nfs/moved");
}
