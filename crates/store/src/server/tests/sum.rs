//! Where the network is known, the units that a slot has missed come as sums along a path of members; whatever fails there, they are
//! gathered.

use types::Seq;
use types::code_probe::{CodeProbe, count};
use types::messages::brick::{SumTerm, SumUnits};

use super::cluster::{TestCluster, UNIT, Workload, node};
use super::*;

/// A cluster whose bricks lie on a ring.
fn ring(seed: u64, k: usize, m: usize) -> TestCluster {
    let cluster = TestCluster::new(seed, k, m, 0, 1024);
    let nodes: String = (0..k + m).map(|brick| format!("node {brick} at {brick}\n")).collect();
    cluster.map.borrow_mut().topology = format!("torus {}\n{nodes}", k + m);
    cluster
}

#[test]
fn what_a_slot_has_missed_comes_along_a_path() {
    for (k, m) in [(4, 2), (5, 1), (3, 3)] {
        let before = count(CodeProbe::UnitSummed);
        for seed in 0..3 {
            for slot in 0..k + m {
                let what = format!("seed {seed}, {k}+{m}, slot {slot}");
                let cluster = ring(seed, k, m);
                let mut workload = Workload::new(&cluster);
                cluster.sim.block_on("client", async {
                    workload.steps(&cluster, 30).await;
                    cluster.crash_and_expire(slot);
                    // Short stripes and stripes with overlays among them.
                    workload.steps(&cluster, 15).await;
                    for stripe in 0..4 {
                        workload.write_whole(StripeKey { object: ObjectId(1000), stripe }, 3).await;
                    }
                    cluster.start(slot);
                    cluster.wait_rejoined(&workload, slot, &what).await;
                });
            }
        }
        assert!(count(CodeProbe::UnitSummed) >= before + 10, "{k}+{m}: hardly a path was used");
    }
}

/// All units of a member are damaged: its path fails, and K others are left.
#[test]
fn a_path_that_fails_is_gone_around() {
    for seed in 0..6 {
        let (slot, damaged) = (seed as usize % 4, 4 + seed as usize % 2);
        let cluster = ring(seed, 4, 2);
        let mut workload = Workload::new(&cluster);
        let before = count(CodeProbe::SumFailed);
        cluster.sim.block_on("client", async {
            cluster.crash_and_expire(slot);
            for stripe in 0..4 {
                workload.write_whole(StripeKey { object: ObjectId(1000), stripe }, 3).await;
            }
            // The primary is one of the parity slots; the other one is damaged, or a data slot.
            let damaged = if damaged == cluster.primary() { (slot + 1) % 4 } else { damaged };
            let server = cluster.server(damaged);
            let (start, blocks) = (server.superblock.data_start, server.superblock.data_blocks);
            drop(server);
            cluster.sim.damage(&node(damaged), "disk", start, blocks * BLOCK as u64);
            cluster.start(slot);
            cluster.wait_live(&workload.client.world, slot, "all can be gathered").await;
            workload.compare("damaged units are decoded").await;
        });
        assert!(count(CodeProbe::SumFailed) > before, "seed {seed}: no path failed");
    }
}

#[test]
fn sums_that_make_no_sense_are_refused() {
    let cluster = ring(1, 3, 2);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        let key = StripeKey { object: ObjectId(1), stripe: 0 };
        workload.write_whole(key, 1).await;
        let patch = workload.client.patch(0, 3 * UNIT, Some(7));
        workload.client.write_stable(key, &patch).await.expect("written");
        workload.expect(key, &patch);
        let client = &workload.client;
        let primary = cluster.server(cluster.primary());
        let upto = primary.primary.borrow().decided(GROUP);
        let identity = primary.slot.borrow().shape(key).identity;
        let (epoch, address) = (client.epoch(), format!("{}:1", node(0)));
        let terms = |slots: &[u8]| -> Vec<SumTerm> {
            slots.iter().map(|&slot| SumTerm { slot, identity, factor: 1 }).collect()
        };
        let sum =
            |terms, len| SumUnits { group: GROUP, key, offset: 0, len, terms, upto, decided: Vec::new() };
        let ask = async |epoch, sum: SumUnits| {
            client.peers.call(&address, epoch, &sum, Buf::empty()).await.map(|(_, payload)| payload.to_vec())
        };
        let unit = UNIT as u32;
        let units: Vec<Vec<u8>> =
            patch.bytes.as_ref().expect("bytes").chunks(UNIT).map(<[u8]>::to_vec).collect();
        let xor = |slots: &[usize]| -> Vec<u8> {
            (0..UNIT).map(|at| slots.iter().fold(0, |sum, &slot| sum ^ units[slot][at])).collect()
        };
        for slots in [&[0][..], &[0, 1], &[0, 2, 1]] {
            let named: Vec<u8> = slots.iter().map(|&slot| slot as u8).collect();
            assert!(ask(epoch, sum(terms(&named), unit)).await == Ok(xor(slots)), "{slots:?}");
        }
        let refused = |refusal| Err(CallError::Refused(refusal));
        // Nobody; a slot twice; more than K; a slot that no code has; more than a unit.
        for (slots, len) in
            [(&[][..], unit), (&[0, 0], unit), (&[0, 1, 2, 3], unit), (&[0, 200], unit), (&[0], unit + 1)]
        {
            assert_eq!(
                ask(epoch, sum(terms(slots), len)).await,
                refused(Refusal::Malformed),
                "{slots:?} {len}"
            );
        }
        assert_eq!(ask(epoch, sum(terms(&[0, 9]), unit)).await, refused(Refusal::Malformed));
        assert_eq!(ask(Epoch(0), sum(terms(&[0]), unit)).await, refused(Refusal::StaleEpoch));
        let other = vec![SumTerm { slot: 1, identity, factor: 1 }];
        assert!(ask(epoch, sum(other, unit)).await.is_err(), "another slot's unit");
        let newer = vec![SumTerm { slot: 0, identity: Seq(identity.0 + 1), factor: 1 }];
        assert!(ask(epoch, sum(newer, unit)).await.is_err(), "another identity");
    });
}
