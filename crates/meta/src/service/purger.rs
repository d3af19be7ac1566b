//! Objects whose bytes nobody can reach are purged from the bricks, and deleted volumes removed.
//!
//! An object's entry stays in the store until every brick that has to forget it has answered. Which bricks have, is only
//! remembered in memory: after a restart all are asked again. A brick that is Out is not waited for: its slots are
//! compared when it is back. It may come back while others are asked, and be compared with one of them that has not
//! forgotten yet, so who is waited for is looked up again at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use types::limits::BEAT_US;
use types::messages::Done;
use types::messages::brick::Purge;
use types::{BrickId, Buf, Epoch, ObjectId, Refusal, VolumeId};

use super::Shared;
use crate::keys;
use crate::live::Effect;
use crate::records::from_value;
use crate::state::Change;

/// Objects purged together.
const PART: usize = 256;
/// Requests under way at each brick.
const DEPTH: usize = 8;
/// Time in which further objects gather, in microseconds.
const GATHER_US: u64 = 20_000;
/// Most objects of which is remembered who has answered.
const REMEMBERED_MAX: usize = 1 << 16;

/// An object to purge.
struct Item {
    volume: VolumeId,
    object: ObjectId,
    stripes: u64,
}

/// What a pass over the queue has left.
#[derive(Default)]
struct Left {
    /// A brick that is Up did not answer.
    failed: bool,
}

/// Who has answered, of objects that wait for others.
#[derive(Default)]
struct Answered {
    by_object: BTreeMap<ObjectId, BTreeSet<BrickId>>,
}

pub(super) async fn run(shared: Rc<Shared>) {
    let mut answered = Answered::default();
    loop {
        let more = shared.purges.wait();
        let left = match shared.pass(&mut answered).await {
            Ok(left) => left,
            Err(refusal) => {
                tracing::warn!(%refusal, "the purger stops for a while");
                Left { failed: true }
            }
        };
        if left.failed {
            shared.world.timeout(BEAT_US, more).await;
        } else {
            more.await;
        }
        shared.world.sleep(GATHER_US).await;
    }
}

impl Shared {
    /// Goes over the whole queue once.
    async fn pass(&self, answered: &mut Answered) -> Result<Left, Refusal> {
        let deleted: Vec<VolumeId> = self.state.borrow().cluster.deleted().collect();
        for volume in &deleted {
            while self.state.borrow_mut().sweep_volume(*volume)? {
                self.world.yield_now().await;
            }
        }
        let mut left = Left::default();
        let mut from = keys::all::purges();
        loop {
            let items = self.next_part(&mut from).await?;
            if items.is_empty() {
                break;
            }
            self.purge_part(items, answered, &mut left).await?;
        }
        for volume in deleted {
            self.state.borrow_mut().forget_if_empty(volume)?;
        }
        Ok(left)
    }

    /// The next objects of the queue; `from` moves behind them.
    async fn next_part(&self, from: &mut Vec<u8>) -> Result<Vec<Item>, Refusal> {
        let to = keys::after_all(&keys::all::purges());
        let seen = self.state.borrow().look(|txn| txn.range(from, &to, PART));
        // Bytes may go only when it is for good that nothing names them.
        let pairs = self.shown(seen).await?;
        if let Some((last, _)) = pairs.last() {
            from.clone_from(last);
            from.push(0);
        }
        let item = |(key, value): (Vec<u8>, Vec<u8>)| {
            let (volume, object) = keys::volume_and_number(&key).ok_or(Refusal::MetaFailed)?;
            Ok(Item { volume, object: ObjectId(object), stripes: from_value(&value)? })
        };
        pairs.into_iter().map(item).collect()
    }

    async fn purge_part(
        &self,
        items: Vec<Item>,
        answered: &mut Answered,
        left: &mut Left,
    ) -> Result<(), Refusal> {
        let holders = self.holders(&items);
        let none = BTreeSet::new();
        let bricks: BTreeSet<BrickId> = holders.values().flatten().copied().collect();
        let asked = bricks.into_iter().map(|brick| {
            let due = items.iter().filter(|item| {
                holders.get(&item.volume).is_some_and(|bricks| bricks.contains(&brick))
                    && !answered.by_object.get(&item.object).unwrap_or(&none).contains(&brick)
            });
            self.purge_from(brick, due.map(|item| (item.object, item.stripes)).collect())
        });
        let results = join_all(asked.collect::<Vec<_>>()).await;
        for (brick, objects, failed) in results {
            left.failed |= failed;
            for object in objects {
                answered.by_object.entry(object).or_default().insert(brick);
            }
        }
        let holders = self.holders(&items);
        let done = |item: &&Item| {
            holders
                .get(&item.volume)
                .unwrap_or(&none)
                .is_subset(answered.by_object.get(&item.object).unwrap_or(&none))
        };
        let done: Vec<(VolumeId, ObjectId)> =
            items.iter().filter(done).map(|item| (item.volume, item.object)).collect();
        for (_, object) in &done {
            answered.by_object.remove(object);
        }
        if answered.by_object.len() > REMEMBERED_MAX {
            answered.by_object.clear();
        }
        self.forget_purged(done).await
    }

    /// Who has to forget objects of the volumes concerned.
    fn holders(&self, items: &[Item]) -> BTreeMap<VolumeId, BTreeSet<BrickId>> {
        let state = self.state.borrow();
        items.iter().map(|item| (item.volume, state.cluster.holders_of(item.volume))).collect()
    }

    /// Asks a brick to purge objects. Returns those that it has, and whether it failed to answer for another.
    async fn purge_from(
        &self,
        brick: BrickId,
        objects: Vec<(ObjectId, u64)>,
    ) -> (BrickId, Vec<ObjectId>, bool) {
        let address = self.state.borrow().cluster.address_of(brick).map(str::to_owned);
        let Some(address) = address else { return (brick, Vec::new(), false) };
        let count = objects.len();
        let calls = stream::iter(objects).map(|(object, stripes)| {
            let (peers, address) = (&self.peers, &address);
            async move {
                let purge = Purge { object, stripes };
                let reply = peers.call(address, Epoch(0), &purge, Buf::default()).await;
                reply.is_ok().then_some(object)
            }
        });
        // After the first failure the rest can wait.
        let purged: Vec<ObjectId> = calls
            .buffered(DEPTH)
            .take_while(|purged| std::future::ready(purged.is_some()))
            .filter_map(std::future::ready)
            .collect()
            .await;
        let failed = purged.len() < count;
        (brick, purged, failed)
    }

    async fn forget_purged(&self, done: Vec<(VolumeId, ObjectId)>) -> Result<(), Refusal> {
        if done.is_empty() {
            return Ok(());
        }
        let change = Change::again(move |txn| {
            for (volume, object) in &done {
                txn.remove(keys::purge(*volume, *object));
            }
            txn.effect(Effect::PurgesDone(done.len() as u64));
            Ok(Done {})
        });
        self.submit::<Done>(change).await.map(|_| ())
    }
}
