//! Each fault that can be injected hits exactly what it should: the test injects one, and compares what its victim and
//! the others see.

use std::ops::Range;

use super::*;
use crate::sim::{DiskFaults, Fault};

const DISK: u64 = 64 * 4096;

/// Rounds of a process that counts them, until it dies before its poll number `poll`.
fn rounds_before_death(poll: u64, power_cut: bool) -> u64 {
    let sim = calm(20);
    let world = sim.node("a");
    let (rounds, on) = (Rc::new(Cell::new(0)), world.clone());
    let count = rounds.clone();
    sim.node("driver");
    sim.block_on("driver", async {
        world.spawn("test", async move {
            loop {
                count.set(count.get() + 1);
                on.yield_now().await;
            }
        });
        sim.kill_at("a", poll, power_cut);
        sim.node("driver").sleep(10).await;
    });
    assert!(!sim.is_alive("a"));
    assert_eq!((sim.faults(Fault::KillAtPoll), sim.faults(Fault::PowerCut)), (1, u64::from(power_cut)));
    sim.node("a");
    assert!(sim.is_alive("a"));
    rounds.get()
}

#[test]
fn a_process_dies_before_the_very_poll() {
    for polls in [0, 1, 7, 100] {
        assert_eq!(rounds_before_death(polls, polls == 7), polls);
    }
}

/// What of ten numbered frames arrives at the other end, and whether the connection broke there.
async fn arrivals(conn: Conn) -> (Vec<u64>, Option<ErrorKind>) {
    let (_keep, mut receiver) = conn.split();
    let mut numbers = Vec::new();
    loop {
        match receiver.recv().await {
            Ok(Some(frame)) => numbers.push(frame.header.request),
            Ok(None) => return (numbers, None),
            Err(error) => return (numbers, Some(error.kind())),
        }
    }
}

#[test]
fn a_one_way_cut_loses_one_direction_and_breaks_the_connection() {
    for seed in 0..20 {
        let sim = calm(seed);
        let (a, b) = (sim.node("a"), sim.node("b"));
        sim.block_on("a", async {
            let (ours, theirs) = pair(&a, &b).await;
            sim.cut_one_way("a", "b", true);
            // What `b` sends still arrives, until `a` hears of the break; what `a` sends is lost.
            let (mut to_b, mut from_b) = ours.split();
            let (mut to_a, mut from_a) = theirs.split();
            to_b.send(frame(1, &[])).await.unwrap();
            to_a.send(frame(2, &[])).await.unwrap();
            assert_eq!(from_b.recv().await.unwrap().unwrap().header.request, 2);
            assert!(from_b.recv().await.is_err() && from_a.recv().await.is_err());
            for (from, to) in [(&a, "b:20000"), (&b, "a:20000")] {
                assert_eq!(from.connect(to).await.err().map(|e| e.kind()), Some(ErrorKind::TimedOut));
            }
            sim.cut_one_way("a", "b", false);
            let _ = pair(&a, &b).await;
        });
        assert_eq!((sim.faults(Fault::OneWay), sim.faults(Fault::LostFrame)), (1, 1));
        assert_eq!((sim.faults(Fault::Partition), sim.faults(Fault::Break)), (0, 1));
    }
}

#[test]
fn both_ends_hear_of_a_cut_both_ways() {
    for seed in 0..20 {
        let sim = calm(seed);
        let (a, b) = (sim.node("a"), sim.node("b"));
        sim.block_on("a", async {
            let (ours, theirs) = pair(&a, &b).await;
            sim.partition("a", "b", true);
            for end in [ours, theirs] {
                assert!(a.timeout(3_000_000, arrivals(end)).await.is_some(), "seed {seed}");
            }
        });
    }
}

#[test]
fn a_break_may_leave_half_a_frame() {
    let (mut half, mut whole) = (0, 0);
    for seed in 0..100 {
        let sim = calm(seed);
        let (a, b) = (sim.node("a"), sim.node("b"));
        sim.block_on("a", async {
            let (ours, theirs) = pair(&a, &b).await;
            let (mut sender, _keep) = ours.split();
            for number in 0..10 {
                sender.send(frame(number, &[7; 100])).await.unwrap();
            }
            sim.partition("a", "b", true);
            let (numbers, error) = arrivals(theirs).await;
            assert_eq!(
                numbers,
                (0..numbers.len() as u64).collect::<Vec<_>>(),
                "a beginning of what was sent"
            );
            match error {
                Some(ErrorKind::UnexpectedEof) => half += 1,
                Some(ErrorKind::ConnectionReset) => whole += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
            assert_eq!(sim.faults(Fault::LostFrame), 10 - numbers.len() as u64);
        });
    }
    assert!(half > 20 && whole > 20, "{half} {whole}");
}

#[test]
fn a_slow_link_slows_its_two_nodes_only() {
    let sim = calm(23);
    let (a, b, c) = (sim.node("a"), sim.node("b"), sim.node("c"));
    let took = |to: &World| {
        let (a, to, sim) = (a.clone(), to.clone(), &sim);
        async move {
            let before = sim.now();
            let _ = pair(&a, &to).await;
            sim.now() - before
        }
    };
    sim.block_on("a", async {
        sim.slow_link("b", "a", 10_000_000);
        assert!(took(&c).await < 100_000 && took(&b).await > 100_000);
        sim.slow_link("a", "b", 0);
        assert!(took(&b).await < 100_000);
    });
    assert_eq!(sim.faults(Fault::SlowLink), 1);
}

/// A disk of ones, all durable.
async fn ones(world: &World) -> crate::Disk {
    let disk = world.create_disk("d", DISK).await.unwrap();
    disk.write(0, filled(1, DISK as usize)).await.unwrap();
    disk.sync().await.unwrap();
    disk
}

fn within(range: Range<u64>) -> DiskFaults {
    DiskFaults { within: range, ..DiskFaults::default() }
}

#[test]
fn a_misdirected_write_lands_elsewhere_within_its_range() {
    let sim = calm(24);
    let world = sim.node("a");
    sim.block_on("a", async {
        let disk = ones(&world).await;
        let (from, to) = (16 * 4096, 48 * 4096);
        sim.disk_faults("a", "d", DiskFaults { misdirect_per_million: 1_000_000, ..within(from..to) });
        for _ in 0..20 {
            disk.write(20 * 4096, filled(2, 4096)).await.unwrap();
        }
        let bytes = disk.read(0, DISK as usize).await.unwrap();
        let hit: Vec<usize> = (0..64).filter(|block| bytes[block * 4096] == 2).collect();
        assert!(hit.len() > 5 && hit.iter().all(|block| (16..48).contains(block)), "{hit:?}");
        assert!(bytes.chunks(4096).all(|block| block.iter().all(|byte| *byte == block[0])));
        // Outside its range the disk is sound.
        disk.write(0, filled(3, 4096)).await.unwrap();
        assert_eq!(disk.read(0, 4096).await.unwrap()[..], [3; 4096]);
    });
    assert!(sim.faults(Fault::Misdirected) >= 15);
}

#[test]
fn rot_flips_a_bit_of_pages_that_hold_something() {
    let sim = calm(25);
    let world = sim.node("a");
    sim.block_on("a", async {
        let disk = world.create_disk("d", DISK).await.unwrap();
        disk.write(8 * 4096, filled(1, 8 * 4096)).await.unwrap();
        disk.sync().await.unwrap();
        assert_eq!(sim.rot("a", "d", 0..DISK, 3, 0), 3);
        let bytes = disk.read(0, DISK as usize).await.unwrap();
        let rotten: Vec<usize> = (0..64)
            .filter(|block| {
                let sound = u8::from((8..16).contains(block));
                bytes[block * 4096..][..4096].iter().any(|byte| *byte != sound)
            })
            .collect();
        assert!(rotten.len() == 3 && rotten.iter().all(|block| (8..16).contains(block)), "{rotten:?}");
        assert_eq!(sim.rot("a", "d", 0..8 * 4096, 3, 0), 0, "zeros do not rot");
        assert_eq!(sim.rot("a", "d", 0..DISK, 100, 0), 8, "all there are");
        // What is rotten on the medium is so after a restart as well.
        sim.power_cut("a");
        let disk = sim.node("a").open_disk("d").await.unwrap();
        assert_ne!(disk.read(0, DISK as usize).await.unwrap(), bytes);
    });
    assert_eq!(sim.faults(Fault::Rot), 11);
}

#[test]
fn reads_fail_by_chance_in_their_range() {
    let sim = calm(26);
    let world = sim.node("a");
    sim.block_on("a", async {
        let disk = ones(&world).await;
        sim.disk_faults("a", "d", DiskFaults { read_error_per_million: 500_000, ..within(4096..8192) });
        let mut failed = 0;
        for _ in 0..100 {
            assert!(disk.read(0, 4096).await.is_ok());
            failed += u64::from(disk.read(4096, 4096).await.is_err());
        }
        assert!((20..80).contains(&failed), "{failed}");
        assert_eq!(sim.faults(Fault::ReadError), failed);
    });
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let mut lost = 0;
    for seed in 0..40 {
        let sim = calm(seed);
        let world = sim.node("a");
        sim.block_on("driver", async {
            let disk = ones(&world).await;
            disk.write(0, filled(2, 4096)).await.unwrap();
            sim.disk_faults("a", "d", DiskFaults { fail_sync: true, ..DiskFaults::default() });
            assert!(disk.sync().await.is_err());
            assert!(disk.sync().await.is_ok(), "the pages count as clean");
            assert_eq!(disk.read(0, 1).await.unwrap()[..], [2], "and show what was written");
            sim.power_cut("a");
            let disk = sim.node("a").open_disk("d").await.unwrap();
            lost += u32::from(disk.read(0, 1).await.unwrap()[..] == [1]);
        });
        assert_eq!(sim.faults(Fault::SyncError), 1);
    }
    assert!((5..35).contains(&lost), "{lost}");
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_it_has() {
    let sim = calm(27);
    let world = sim.node("a");
    sim.block_on("a", async {
        let disk = ones(&world).await;
        sim.disk_faults("a", "d", DiskFaults { full: true, ..DiskFaults::default() });
        assert_eq!(disk.write(0, filled(2, 1)).await.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(disk.read(0, 1).await.unwrap()[..], [1]);
        sim.disk_faults("a", "d", DiskFaults::default());
        disk.write(0, filled(2, 1)).await.unwrap();
    });
    assert_eq!(sim.faults(Fault::WriteError), 1);
}

#[test]
fn large_sectors_are_torn_as_a_whole() {
    let mut torn = 0;
    for seed in 0..50 {
        let sim = Simulation::new(seed, SimOptions { sector_bytes: 4096, ..SimOptions::default() });
        let world = sim.node("a");
        sim.block_on("driver", async {
            let disk = ones(&world).await;
            disk.write(0, filled(2, DISK as usize)).await.unwrap();
            sim.power_cut("a");
            let disk = sim.node("a").open_disk("d").await.unwrap();
            let bytes = disk.read(0, DISK as usize).await.unwrap();
            assert!(bytes.chunks(4096).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        });
        let lost = sim.faults(Fault::LostSector);
        assert_eq!(sim.faults(Fault::TornWrite), u64::from(0 < lost && lost < 64));
        torn += sim.faults(Fault::TornWrite);
    }
    assert!(torn > 10, "{torn}");
}

#[test]
fn the_fault_model_keeps_clocks_within_the_leases_margin() {
    use types::limits::{LEASE_MARGIN_US, LEASE_US};
    let most = (0..200).map(|seed| SimOptions::drawn(seed).drift_ppm_max).max().unwrap();
    assert!(most > 50_000, "clocks drift as far as they may");
    let (slow, fast) = (1_000_000 - u64::from(most), 1_000_000 + u64::from(most));
    // True time until a slow clock's lease is over, and until a fast one says so.
    assert!(LEASE_US * 1_000_000 / slow <= (LEASE_US + LEASE_MARGIN_US) * 1_000_000 / fast);
}

#[test]
fn a_second_claimant_is_found() {
    let sim = calm(28);
    let (a, b) = (sim.node("a"), sim.node("b"));
    a.claim("primary", &[1, 2], 7);
    b.claim("primary", &[1, 2], 7);
    b.claim("primary", &[1, 3], 8);
    assert!(panic_text(|| b.claim("primary", &[1, 2], 8)).contains("seed 28: primary [1, 2]"));
}
