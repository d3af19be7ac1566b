//! What a file system on a block volume had made stable is there after a power cut: the guest's power fails under ext4
//! and XFS, then the file systems are checked and the files compared.

use super::{Guest, Image};
use crate::fixture::{Fixture, kill_now};

/// Files in each file system that are stable when the power fails.
const STABLE: u64 = 15;

/// Two file systems of a guest, each on a volume of its own, are written when the guest's power fails. One of the gates
/// dies with it, as if both were on one machine, the other one lives on.
#[test]
#[ignore = "boots a guest: ./dev test --full"]
fn file_systems_recover_from_a_power_cut() {
    let fixture = Fixture::new("guest-disk");
    fixture.up(10, "8+2", "512M");
    let image = Image::build(&fixture);
    for volume in ["ext4", "xfs"] {
        fixture.block_volume(volume, "8+2", "320M");
    }
    let (mortal, lasting) = (fixture.nbd_port("ext4", "ext4-1"), fixture.nbd_port("xfs", "xfs-1"));
    let mut guest = Guest::boot(&fixture, &image, "first");
    guest.must(&format!("attach 0 {} ext4 -C 4", mortal.port));
    guest.must(&format!("attach 1 {} xfs -C 4", lasting.port));
    guest.must("parallel /dev/nbd0");
    guest.must("make_ext4 /dev/nbd0 /mnt/ext4");
    guest.must("make_xfs /dev/nbd1 /mnt/xfs");
    for dir in ["/mnt/ext4", "/mnt/xfs"] {
        guest.must(&format!("timed verified before --directory={dir}"));
    }
    for dir in ["/mnt/ext4", "/mnt/xfs"] {
        guest.must(&format!("busy {dir}"));
    }
    for dir in ["/mnt/ext4", "/mnt/xfs"] {
        guest.wait_stable(dir, STABLE);
    }
    let stable = guest.cut_power();
    kill_now(mortal.pid);
    println!("the power failed when these were stable: {stable:?}");

    let heir = fixture.nbd_port("ext4", "ext4-2");
    let mut guest = Guest::boot(&fixture, &image, "second");
    guest.must(&format!("attach 0 {} ext4 -C 4", heir.port));
    guest.must(&format!("attach 1 {} xfs -C 4", lasting.port));
    guest.must("recover_ext4 /dev/nbd0 /mnt/ext4");
    guest.must("recover_xfs /dev/nbd1 /mnt/xfs");
    for (dir, last) in &stable {
        guest.must(&format!("verified before --directory={dir} --verify_only"));
        guest.must(&format!("compare {dir} {last}"));
        guest.must(&format!("verified after --directory={dir}"));
        guest.must(&format!("umount {dir}"));
    }
    guest.must("e2fsck -fn /dev/nbd0");
    guest.must("xfs_repair -n /dev/nbd1");
    guest.must("detach 0");
    guest.must("detach 1");
    for volume in ["ext4", "xfs"] {
        fixture.must(&["nbd", volume, "--stop"]);
        fixture.verified_volume(volume);
    }
    fixture.check_logs(&[]);
}
