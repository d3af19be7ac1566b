//! A decision is kept once, also where the journal is full: the journal is filled to its last segment before the
//! decision comes.

use types::messages::brick;
use world::World;

use super::bit_rot::full;
use super::brick::{decide, decided, promise, send};
use super::*;
use crate::journal::Priority;
use crate::record::Drop;

const EPOCH: Epoch = Epoch(1);

/// Appends records of about 3 KiB for as long as `goes_on`.
fn append_while(server: &Server, goes_on: impl Fn() -> bool) {
    while goes_on() {
        let record = Drop { object: types::ObjectId(77), stripes: 0 };
        server.journal.append(&record, &types::Buf::from(vec![0; 3000]));
    }
}

/// A brick that holds one operation.
async fn with_one_held(rig: &Rig) -> (Rc<Server>, Seq) {
    let server = rig.open().await;
    let tail = promise(&server, rig.role, EPOCH).await;
    decide(&server, EPOCH, &tail, &[]).await;
    let op = full(1, FIRST);
    send(&server, rig.role, &op, Seq::NONE, [Seq::NONE; 2], false).await.expect("held");
    (server, op.seq)
}

#[test]
fn a_decision_takes_the_last_segment() {
    let rig = Rig::new(1, Role::Data);
    rig.sim.block_on("test", async {
        let (server, seq) = with_one_held(&rig).await;
        append_while(&server, || server.journal.has_room());
        let told = brick::Decided { groups: vec![decided(EPOCH, seq)] };
        server.decided(told).await.expect("the disk works");
        assert_eq!(server.slot.borrow().decided(GROUP), seq);
    });
}

/// Nothing fits any more, until the oldest segment is free.
#[test]
fn a_decision_waits_for_room() {
    let rig = Rig::new(1, Role::Data);
    let world: World = rig.sim.node("test");
    rig.sim.block_on("test", async {
        let (server, seq) = with_one_held(&rig).await;
        loop {
            let room =
                world.timeout(50_000, server.journal.wait_for_space(Priority::Housekeeping, 4096)).await;
            let Some(room) = room else { break };
            room.expect("the disk works");
            let rounds = std::cell::Cell::new(0);
            append_while(&server, || rounds.replace(1) == 0);
        }
        let told = brick::Decided { groups: vec![decided(EPOCH, seq)] };
        let teller = server.clone();
        world.spawn("test", async move { teller.decided(told).await.map(drop).expect("the disk works") });
        world.sleep(50_000).await;
        assert_ne!(server.slot.borrow().decided(GROUP), seq, "there is no room for it");
        let (oldest, _) = server.journal.oldest();
        server.journal.free_upto(oldest);
        world.sleep(50_000).await;
        assert_eq!(server.slot.borrow().decided(GROUP), seq);
    });
}
