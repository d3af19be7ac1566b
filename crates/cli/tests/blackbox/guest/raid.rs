//! A RAID of the guest's own over several exports survives the loss of one: an export goes away, comes back and is
//! rebuilt, another one goes, and the files are compared. Paper 001 does this with plain disks.

use super::{Guest, Image};
use crate::fixture::{Fixture, kill_now};

const VOLUMES: [&str; 3] = ["one", "two", "three"];

/// Level 5 over three exports without parity of their own. One is taken away, written without, brought back and rebuilt;
/// then another one is taken away, so that what was rebuilt is read.
#[test]
#[ignore = "boots a guest: ./dev test --full"]
fn a_raid_over_exports_survives_the_loss_of_one() {
    let fixture = Fixture::new("guest-raid");
    fixture.up(3, "2+1", "512M");
    let image = Image::build(&fixture);
    for volume in VOLUMES {
        fixture.block_volume(volume, "1+0", "64M");
    }
    let gates = VOLUMES.map(|volume| fixture.nbd_port(volume, &format!("{volume}-1")));
    let mut guest = Guest::boot(&fixture, &image, "raid");
    for (number, (gate, volume)) in gates.iter().zip(VOLUMES).enumerate() {
        guest.must(&format!("attach {number} {} {volume} -t 5", gate.port));
    }
    guest.must("timed make_raid /dev/nbd0 /dev/nbd1 /dev/nbd2");
    guest.must("make_ext4 /dev/md0 /mnt/raid");
    guest.must("timed verified before --directory=/mnt/raid");
    guest.must("stable_range /mnt/raid 1 20");

    kill_now(gates[2].pid);
    println!("export `three` is gone");
    guest.must("stable_range /mnt/raid 21 40");
    guest.must("raid_has 2");
    guest.must("compare /mnt/raid 40");
    guest.must("verified before --directory=/mnt/raid --verify_only");

    let again = fixture.nbd_port("three", "three-2");
    guest.must("drop_failed");
    guest.must("detach 2");
    guest.must(&format!("attach 2 {} three -t 5", again.port));
    guest.must("timed rebuild /dev/nbd2");
    guest.must("raid_has 3");
    kill_now(gates[0].pid);
    println!("export `one` is gone");
    guest.must("stable_range /mnt/raid 41 60");
    guest.must("raid_has 2");
    guest.must("compare /mnt/raid 60");
    guest.must("verified before --directory=/mnt/raid --verify_only");
    guest.must("verified after --directory=/mnt/raid");
    guest.must("umount /mnt/raid");
    guest.must("e2fsck -fn /dev/md0");
    drop(guest);
    fixture.check_logs(&[]);
}
