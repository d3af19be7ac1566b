//! What was synced and is damaged later is no torn write: it was answered for.

use types::Seq;

use super::brick::{decide, promise, send};
use super::*;
use crate::ops::UnitRead;

const EPOCH: Epoch = Epoch(1);

fn full(counter: u64, key: StripeKey) -> Op {
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
    }
}

/// Two units are held durably, one after the other, and rot before their decisions are known. The journal knows of the
/// first that it was synced: it stays held, and is damaged. After the second nothing was written.
#[test]
fn a_unit_that_rots_before_its_decision_is_known_stays_held() {
    let rig = Rig::new(1, Role::Data);
    let (first, second) = (full(1, FIRST), full(2, OTHER));
    let data_start = rig.sim.block_on("test", async {
        let server = rig.open().await;
        let tail = promise(&server, rig.role, EPOCH).await;
        decide(&server, EPOCH, &tail, &[]).await;
        for op in [&first, &second] {
            send(&server, rig.role, op, Seq::NONE, [Seq::NONE; 2], false).await.expect("held");
        }
        server.superblock.data_start
    });
    rig.sim.kill("brick");
    rig.sim.damage("brick", "disk", data_start, 2 * UNIT as u64);
    rig.sim.block_on("test", async {
        let server = rig.open().await;
        let tail = promise(&server, rig.role, Epoch(2)).await;
        let held: Vec<Seq> = tail.held.iter().map(|op| op.seq).collect();
        assert_eq!(held, [first.seq], "the journal has gone on behind the first one only");
        decide(&server, Epoch(2), &tail, &[]).await;
        let (slot, range) = (rig.role.slot(), 0..UNIT);
        let read = UnitRead { group: GROUP, key: FIRST, slot, range, identity: None, decided: Vec::new() };
        let found = server.unit(Epoch(2), &read).await.map(drop);
        assert_eq!(found, Err(Refusal::Corrupt), "damaged, not absent");
    });
}
