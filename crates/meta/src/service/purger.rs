//! Purges objects that nobody can reach from the bricks, and removes deleted volumes.
//!
//! An object's entry stays in the store until every brick that must purge the object has done so. A brick works on a
//! purge for a limited time and answers what is left; then it is asked again. So a long object delays no others. The
//! answers are kept only in memory: after a restart, all bricks are asked again.
//!
//! The purger does not wait for a brick that is Out, because its slots are compared when it is back. Such a brick may
//! come back during a purge, and be compared with a brick that has not purged the object yet. So the list of bricks to
//! wait for is computed again at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{HEARTBEAT_US, PURGE_MAX};
use types::messages::Done;
use types::messages::brick::{Purge, Purged};
use types::{BrickId, Buf, Epoch, MapVersion, ObjectId, Refusal, VolumeId};

use super::Shared;
use crate::keys;
use crate::state::Change;
use crate::volatile::Effect;

/// Most objects in one purge.
const PART: usize = PURGE_MAX;
/// Time to wait for more objects before a purge, in microseconds.
const GATHER_US: u64 = 20_000;
/// Most objects whose answers are remembered.
const REMEMBERED_MAX: usize = 1 << 16;

/// An object to purge.
#[derive(Clone, Copy)]
struct Item {
    volume: VolumeId,
    object: ObjectId,
}

/// The remaining work after a pass over the queue.
#[derive(Default)]
struct Left {
    /// The service could not make the pass.
    failed: bool,
    /// Bricks that are Up and have not answered. They are asked no more in this pass: each question would wait as long.
    silent: BTreeSet<BrickId>,
    /// Volumes with objects that a brick that is Up has not purged completely.
    unfinished: BTreeSet<VolumeId>,
    /// The last object of each volume that waits only for bricks that are not Up.
    waiting: BTreeMap<VolumeId, ObjectId>,
}

/// Objects that wait for bricks that are not Up. They are checked again only when the map has changed.
#[derive(Default)]
struct Waiting {
    version: MapVersion,
    /// The last such object of each volume. All objects before it wait too.
    upto: BTreeMap<VolumeId, ObjectId>,
}

impl Waiting {
    fn note(&mut self, version: MapVersion, left: Left) {
        if version != self.version {
            *self = Waiting { version, upto: BTreeMap::new() };
        }
        let waiting = left.waiting.into_iter().filter(|(volume, _)| !left.unfinished.contains(volume));
        self.upto.extend(waiting);
    }

    /// The last waiting object of a volume.
    fn upto(&self, version: MapVersion, volume: VolumeId) -> Option<ObjectId> {
        self.upto.get(&volume).copied().filter(|_| version == self.version)
    }
}

/// The result of a request to a brick.
enum Purging {
    /// The brick has purged these completely.
    Done(Vec<ObjectId>),
    Failed,
    NotUp,
}

/// The bricks that have purged objects for which other bricks are still awaited.
#[derive(Default)]
struct Answered {
    by_object: BTreeMap<ObjectId, BTreeSet<BrickId>>,
}

pub(super) async fn run(shared: Rc<Shared>) {
    let (mut answered, mut waiting) = (Answered::default(), Waiting::default());
    loop {
        let more = shared.purges.wait();
        let version = shared.state.borrow().cluster.map().version;
        let left = match shared.pass(&mut answered, &waiting).await {
            Ok(left) => left,
            Err(refusal) => {
                tracing::warn!(%refusal, "the purger has failed, and pauses");
                Left { failed: true, ..Left::default() }
            }
        };
        let (failed, unfinished) = (left.failed || !left.silent.is_empty(), !left.unfinished.is_empty());
        if !failed {
            waiting.note(version, left);
        }
        if failed {
            shared.world.timeout(HEARTBEAT_US, more).await;
        } else if !unfinished {
            more.await;
        }
        shared.world.sleep(GATHER_US).await;
    }
}

impl Shared {
    /// Makes one pass over the whole queue.
    async fn pass(&self, answered: &mut Answered, waiting: &Waiting) -> Result<Left, Refusal> {
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
            let Some(Item { volume, object }) = items.first().copied() else { break };
            // A slot that is Out only because nobody knows better would be passed over. The purger is notified when all is known.
            let unknown = self.recovering_volumes();
            if unknown.contains(&volume) {
                from = keys::purge(volume, ObjectId(u64::MAX));
                from.push(0);
                continue;
            }
            let version = self.state.borrow().cluster.map().version;
            if let Some(upto) = waiting.upto(version, volume).filter(|upto| object <= *upto) {
                from = keys::purge(volume, upto);
                from.push(0);
                continue;
            }
            let is_full = items.len() == PART;
            let items = items.into_iter().filter(|item| !unknown.contains(&item.volume)).collect();
            self.purge_part(items, answered, &mut left).await?;
            // What was removed meanwhile gathers for the next pass. Otherwise a program that removes one file after the other
            // would keep this one going, with requests to all bricks for each file or two.
            if !is_full {
                break;
            }
        }
        for volume in deleted {
            self.state.borrow_mut().forget_if_empty(volume)?;
        }
        Ok(left)
    }

    /// The next objects of the queue; `from` advances past them.
    async fn next_part(&self, from: &mut Vec<u8>) -> Result<Vec<Item>, Refusal> {
        let to = keys::after_all(&keys::all::purges());
        let seen = self.state.borrow().read_with_record(|txn| txn.range(from, &to, PART));
        // Bytes may be purged only when the removal of their object from all inodes is durable.
        let pairs = self.when_durable(seen).await?;
        if let Some((last, _)) = pairs.last() {
            from.clone_from(last);
            from.push(0);
        }
        let item = |(key, _): (Vec<u8>, Vec<u8>)| {
            let (volume, object) = keys::volume_and_number(&key).ok_or(Refusal::MetaFailed)?;
            Ok(Item { volume, object: ObjectId(object) })
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
        let asked =
            bricks.into_iter().map(|brick| {
                let due = items.iter().filter(|item| {
                    holders.get(&item.volume).is_some_and(|bricks| bricks.contains(&brick))
                        && !answered.by_object.get(&item.object).unwrap_or(&none).contains(&brick)
                });
                let objects = due.map(|item| item.object).collect();
                let is_silent = left.silent.contains(&brick);
                async move {
                    if is_silent { (brick, Purging::Failed) } else { self.purge_from(brick, objects).await }
                }
            });
        let results = join_all(asked.collect::<Vec<_>>()).await;
        let mut absent = BTreeSet::new();
        for (brick, purged) in results {
            match purged {
                Purging::Done(objects) => objects.into_iter().for_each(|object| {
                    answered.by_object.entry(object).or_default().insert(brick);
                }),
                Purging::Failed => drop(left.silent.insert(brick)),
                Purging::NotUp => drop(absent.insert(brick)),
            }
        }
        let holders = self.holders(&items);
        let mut done = Vec::new();
        for Item { volume, object } in items {
            let have = answered.by_object.get(&object).unwrap_or(&none);
            let mut missing = holders.get(&volume).unwrap_or(&none).difference(have).peekable();
            if missing.peek().is_none() {
                done.push((volume, object));
            } else if missing.all(|brick| absent.contains(brick)) {
                left.waiting.insert(volume, object);
            } else {
                left.unfinished.insert(volume);
            }
        }
        for (_, object) in &done {
            answered.by_object.remove(object);
        }
        if answered.by_object.len() > REMEMBERED_MAX {
            answered.by_object.clear();
        }
        self.forget_purged(done).await
    }

    /// The bricks that must purge objects of these volumes.
    fn holders(&self, items: &[Item]) -> BTreeMap<VolumeId, BTreeSet<BrickId>> {
        let state = self.state.borrow();
        let volumes: BTreeSet<VolumeId> = items.iter().map(|item| item.volume).collect();
        volumes.into_iter().map(|volume| (volume, state.cluster.holders_of(volume))).collect()
    }

    /// Asks a brick to purge objects.
    async fn purge_from(&self, brick: BrickId, objects: Vec<ObjectId>) -> (BrickId, Purging) {
        let address = self.state.borrow().cluster.address_of(brick).map(str::to_owned);
        let Some(address) = address else { return (brick, Purging::NotUp) };
        if objects.is_empty() {
            return (brick, Purging::Done(objects));
        }
        let purge = Purge { objects };
        let purged = match self.peers.call(&address, Epoch(0), &purge, Buf::default()).await {
            Ok((Purged { left }, _)) => {
                let left: BTreeSet<ObjectId> = left.into_iter().collect();
                Purging::Done(purge.objects.into_iter().filter(|object| !left.contains(object)).collect())
            }
            Err(_) => Purging::Failed,
        };
        (brick, purged)
    }

    async fn forget_purged(&self, done: Vec<(VolumeId, ObjectId)>) -> Result<(), Refusal> {
        if done.is_empty() {
            return Ok(());
        }
        let change = Change::idempotent(move |txn| {
            let mut count = 0;
            for key in done.iter().map(|(volume, object)| keys::purge(*volume, *object)) {
                count += u64::from(txn.has(&key)?);
                txn.remove(key);
            }
            txn.effect(Effect::PurgesDone(count));
            Ok(Done {})
        });
        self.submit::<Done>(change).await.map(|_| ())
    }
}
