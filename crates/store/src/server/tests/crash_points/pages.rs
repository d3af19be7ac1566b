//! What a torn descriptor page has left is never completed: a page is torn twice, in such a way that the two halves
//! would fit.
//!
//! ```text
//! version 1   place 1   0 1 2 3 4 5 .    six units, one entry each
//! version 2   place 0   . 1 2 3 4 5 6    the first one is purged, another one comes: its entry lies in the next sector
//! version 3   place 1   A 1 2 3 4 5 6    torn, only its first sector is there: no page; A is purged, the journal forgets
//! version 3   place 1   B 1 2 3 4 5 6    torn, all but its first sector is there: it would complete the A of before
//! ```

use types::ObjectId;
use types::messages::brick::{Purge, Span};

use super::brick::{check_space, decide, decided, found, next_segment, promise, send};
use super::*;

/// Objects whose units are in the page from the beginning, and those that come later.
const FIRST_ONES: std::ops::Range<u64> = 10..16;
const LATER_ONE: u64 = 16;
const A: u64 = 20;
const B: u64 = 21;

/// A brick with one process after the other on it.
struct Life {
    server: Rc<Server>,
    epoch: Epoch,
    counter: u64,
}

fn key(object: u64) -> StripeKey {
    StripeKey { object: ObjectId(object), stripe: 0 }
}

impl Life {
    /// Opens the brick; what it holds is decided in a new epoch.
    async fn begin(rig: &Rig, epoch: Epoch) -> Life {
        let server = rig.open().await;
        check_space(&server).await;
        let tail = promise(&server, rig.role, epoch).await;
        decide(&server, epoch, &tail, &[]).await;
        Life { server, epoch, counter: 0 }
    }

    /// Writes the one block of an object and decides that.
    async fn put(&mut self, object: u64) {
        self.counter += 1;
        let seq = Seq::new(self.epoch, self.counter);
        let op = Op {
            seq,
            key: key(object),
            kind: OpKind::Full,
            spans: Vec::<Span>::new(),
            bytes: vec![object as u8; BLOCK],
            rows: Vec::new(),
            origin: Some(ClientSeq(object)),
            issued: 0,
            acked: None,
            refused: false,
            gone: None,
            filled: false,
        };
        send(&self.server, Role::Data, &op, Seq::NONE, [Seq::NONE; 2], false).await.expect("held");
        self.server.apply_decisions(&[decided(self.epoch, seq)]).await.expect("the disk works");
        self.server.nudge().await.expect("synced");
    }

    async fn purge(&self, object: u64) {
        let purge = Purge { objects: vec![ObjectId(object)] };
        self.server.purge(purge).await.expect("purged");
    }

    async fn checkpoint(&self) {
        self.server.checkpoint().await.expect("a checkpoint");
    }

    /// Checkpoints until nothing that has happened is in the journal any more, and one segment is left of it.
    async fn forget_journal(&self) {
        let last = self.server.journal.serial();
        while self.server.journal.oldest_durable() <= last || self.server.journal.oldest().1 > 1 {
            if self.server.journal.oldest().1 == 1 {
                next_segment(&self.server);
            }
            self.server.nudge().await.expect("synced");
            self.checkpoint().await;
            self.server.world.sleep(100_000).await;
        }
    }

    /// Everything is as it must be.
    async fn check(&self, rig: &Rig) {
        check_space(&self.server).await;
        let there = FIRST_ONES.skip(1).chain([LATER_ONE, B]);
        for object in there {
            let content = found(&self.server, rig.role, self.epoch, key(object)).await;
            assert_eq!(content.base[0], object as u8, "the unit of object {object}");
        }
        for object in FIRST_ONES.chain([LATER_ONE, B]) {
            self.purge(object).await;
        }
        self.server.nudge().await.expect("synced");
        self.server.world.sleep(1).await;
        let free = self.server.slot.borrow().owned_in_ram().1;
        let all = self.server.superblock.data_blocks;
        assert_eq!(free, all, "the unit that was purged is back");
    }
}

/// The page's version 2 is there, and A is in the journal. What a checkpoint asks of the disk then.
async fn version_3(rig: &Rig) -> (world::sim::DiskImage, Vec<world::sim::DiskEvent>) {
    let mut life = Life::begin(rig, Epoch(1)).await;
    for object in FIRST_ONES {
        life.put(object).await;
    }
    life.checkpoint().await;
    life.purge(FIRST_ONES.start).await;
    life.put(LATER_ONE).await;
    life.forget_journal().await;
    life.put(A).await;
    let (start, recording) = rig.record();
    life.checkpoint().await;
    (start, recording.events())
}

/// After the first crash: A goes without ever having been in a whole page, and B comes.
async fn another_version_3(rig: &Rig) -> (world::sim::DiskImage, Vec<world::sim::DiskEvent>) {
    let mut life = Life::begin(rig, Epoch(2)).await;
    life.purge(A).await;
    life.forget_journal().await;
    life.put(B).await;
    let (start, recording) = rig.record();
    life.checkpoint().await;
    (start, recording.events())
}

#[test]
fn what_a_torn_page_has_left_is_never_completed() {
    let rig = Rig::roomy(1, Role::Data);
    let (start, events) = rig.sim.block_on("test", version_3(&rig));
    let (mut torn, mut states) = (0, 0);
    crash_images(&start, &events, |first| {
        torn += 1;
        rig.restore(&first.image);
        let (start, events) = rig.sim.block_on("test", another_version_3(&rig));
        crash_images(&start, &events, |second| {
            states += 1;
            let label = Label(RefCell::new(format!("{first}; then {second}")));
            rig.restore(&second.image);
            rig.sim.block_on("test", async {
                Life::begin(&rig, Epoch(3)).await.check(&rig).await;
            });
            drop(label);
        });
    });
    println!("{torn} crashes, {states} crash states");
    assert!(torn > 10 && states > 200, "the page is torn: {torn}, {states}");
}
