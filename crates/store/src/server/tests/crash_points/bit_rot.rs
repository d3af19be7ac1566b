//! A unit that was synced and rots later counts as damaged, not as never written: units are damaged before and after
//! restarts, and what the brick tells of them is compared.

use types::Seq;

use super::brick::{decide, promise, send};
use super::*;
use crate::ops::UnitRead;

const EPOCH: Epoch = Epoch(1);

/// A unit written whole.
pub(super) fn full(counter: u64, key: StripeKey) -> Op {
    Op {
        seq: Seq::new(EPOCH, counter),
        key,
        kind: OpKind::Full,
        spans: Vec::new(),
        bytes: vec![counter as u8; UNIT],
        rows: Vec::new(),
        origin: Some(ClientSeq(counter)),
        issued: 0,
        acked: None,
        refused: false,
        gone: None,
        filled: false,
    }
}

/// Two units are held durably, one after the other, and rot before their decisions are known. What the journal knows of
/// that it was synced stays held, and is damaged: the first one at once, for a record follows; the second one as soon as
/// the brick has rested a little.
#[test]
fn a_unit_that_rots_before_its_decision_is_known_stays_held() {
    let held = held_after_rot(0);
    assert_eq!(held, [Seq::new(EPOCH, 1)], "the journal has gone on behind the first one only");
}

#[test]
fn a_brick_that_rests_tells_of_its_last_sync() {
    let held = held_after_rot(100_000);
    assert_eq!(held, [Seq::new(EPOCH, 1), Seq::new(EPOCH, 2)]);
}

/// Who restarts finds units whole, and notes that: they may rot soon after.
#[test]
fn a_brick_that_restarts_tells_what_it_found_whole() {
    let rig = Rig::new(1, Role::Data);
    let data_start = hold_two(&rig, 0);
    rig.sim.kill("brick");
    rig.sim.block_on("test", async {
        drop(rig.open().await);
        rig.sim.node("test").sleep(100_000).await;
    });
    rig.sim.kill("brick");
    assert_eq!(held_damaged(&rig, data_start).len(), 2);
}

/// Holds two units, then rests for so many microseconds. Returns where the data begins.
fn hold_two(rig: &Rig, rest: u64) -> u64 {
    rig.sim.block_on("test", async {
        let server = rig.open().await;
        let tail = promise(&server, rig.role, EPOCH).await;
        decide(&server, EPOCH, &tail, &[]).await;
        for op in [&full(1, FIRST), &full(2, OTHER)] {
            send(&server, rig.role, op, Seq::NONE, [Seq::NONE; 2], false).await.expect("held");
        }
        rig.sim.node("test").sleep(rest).await;
        server.superblock.data_start
    })
}

fn held_after_rot(rest: u64) -> Vec<Seq> {
    let rig = Rig::new(1, Role::Data);
    let data_start = hold_two(&rig, rest);
    rig.sim.power_cut("brick");
    held_damaged(&rig, data_start)
}

/// Damages both units of a brick that is down. Returns what it holds when it is back, the first of them damaged.
fn held_damaged(rig: &Rig, data_start: u64) -> Vec<Seq> {
    rig.sim.damage("brick", "disk", data_start, 2 * UNIT as u64);
    rig.sim.block_on("test", async {
        let server = rig.open().await;
        let tail = promise(&server, rig.role, Epoch(2)).await;
        decide(&server, Epoch(2), &tail, &[]).await;
        let (slot, range) = (rig.role.slot(), 0..UNIT);
        let read = UnitRead {
            group: GROUP,
            key: FIRST,
            slot,
            range,
            identity: None,
            decided: Vec::new(),
            may_use_cache: false,
        };
        let found = server.unit(Epoch(2), &read).await.map(drop);
        assert_eq!(found, Err(Refusal::Corrupt), "damaged, not absent");
        tail.held.iter().map(|op| op.seq).collect()
    })
}
