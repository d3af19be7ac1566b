//! Makes a store out of what is left of another one: a backup, or the store of a server that has lost the others.
//!
//! What is left may be older than what bricks and clients know. So nothing that was given out since may be given out again,
//! and nothing that is told about the bricks may be believed:
//!
//! | what | becomes |
//! |---|---|
//! | ids of files, objects, clients, volumes; the version of the map | far larger |
//! | the count of changes of all files of a volume | far larger: what mounts have cached is not taken for the present bytes |
//! | clients and what was answered to them | forgotten: bricks refuse their writes, and they get new ids |
//! | bricks | Out, until they join again |
//! | slots | Out, until bricks have said which are live (`cluster/recovery.rs`) |
//! | metadata servers, the term, the journal's number | forgotten: the new server is alone |

use std::collections::BTreeMap;
use std::ops::Range;

use types::messages::cluster::{BrickState, GroupConfig, SlotState};
use types::messages::replica::MetaMember;
use types::{BrickId, ClientId, ClusterId, Epoch, MapVersion, ShardId, VolumeId};

use crate::cluster::{FLOOR_STEP, NO_LIFE};
use crate::kv::{Engine, KeyValue, Writes};
use crate::records::{BrickRecord, VolumeRecord, from_value, is_read, to_value};
use crate::{MetaError, keys};

/// Steps of counters: more than was given out since the backup, by any account. By the clock they are larger still, so that two
/// restorations of one backup give out different numbers: as long as fewer than these are given out in a second.
const STEP: u64 = 1 << 40;
const OF_A_SECOND: u64 = 1 << 20;
const VOLUMES_STEP: u32 = 1 << 16;
const VOLUMES_OF_A_SECOND: u64 = 4;
const SECONDS_OF_A_VOLUME: u64 = 8;
const VOLUMES_LEFT: u32 = 1 << 24;
/// The year 2020, in seconds since 1970: there are fewer ids of volumes.
const VOLUMES_SINCE: u64 = 1_577_836_800;

/// A store that is being restored into a new engine. Until [`finish`](Restoring::finish) the engine has nothing.
pub struct Restoring {
    engine: Engine,
    found: RestoredStore,
    writes: Writes,
    /// Its volumes, and how often all files of each have changed.
    changes: BTreeMap<VolumeId, u64>,
    /// The time, in seconds since 1970.
    now: u64,
}

/// What was restored.
#[derive(Clone, Debug, Default)]
pub struct RestoredStore {
    /// The cluster.
    pub cluster: ClusterId,
    /// Addresses of the metadata servers that it had, if there were several.
    pub members: Vec<String>,
    /// The bricks that it knew.
    pub bricks: Vec<BrickId>,
    /// Names of its volumes.
    pub volumes: Vec<String>,
    /// Its inodes.
    pub inodes: u64,
    /// All its keys.
    pub keys: u64,
}

impl Restoring {
    /// Begins. The engine must be new. `now`: seconds since 1970.
    ///
    /// # Errors
    /// [`MetaError::Exists`] if there is a cluster in it.
    pub fn begin(engine: &Engine, now: u64) -> Result<Restoring, MetaError> {
        if crate::cluster_of(engine)?.is_some() {
            return Err(MetaError::Exists);
        }
        engine.begin_staging()?;
        let (found, writes) = (RestoredStore::default(), Writes::new());
        Ok(Restoring { engine: engine.clone(), found, writes, changes: BTreeMap::new(), now })
    }

    /// Adds a part of what is left, in any order.
    ///
    /// # Errors
    /// [`MetaError::Version`] and [`MetaError::Damaged`] if this build cannot read it.
    pub fn add(&mut self, pairs: Vec<KeyValue>) -> Result<(), MetaError> {
        let mut part = Writes::new();
        for (key, value) in pairs {
            self.found.keys += 1;
            if let Some(value) = self.restored(&key, value)? {
                part.insert(key, Some(value));
            }
        }
        self.engine.stage(&part)?;
        Ok(())
    }

    /// What was found so far.
    pub fn found(&self) -> &RestoredStore {
        &self.found
    }

    /// Makes it a store, which does not wait for these bricks.
    ///
    /// # Errors
    /// [`MetaError::NoCluster`] if what was added has none.
    pub fn finish(mut self, lost: &[BrickId]) -> Result<RestoredStore, MetaError> {
        if self.found.cluster == ClusterId::default() {
            return Err(MetaError::NoCluster);
        }
        for (volume, changes) in std::mem::take(&mut self.changes) {
            // The bytes of every file may be others than those that had its numbers before.
            self.writes.insert(keys::all_changed(volume), Some(to_value(&self.raised(changes))));
        }
        self.writes.insert(keys::lost_bricks(), Some(to_value(&lost.to_vec())));
        self.writes.insert(keys::restored(), Some(to_value(&self.now.max(1))));
        self.engine.replace_by_staged(&self.writes)?;
        Ok(self.found)
    }

    /// A counter that is above all that was given out before.
    fn raised(&self, old: u64) -> u64 {
        let by_clock = self.now.saturating_mul(OF_A_SECOND);
        // A clock that is centuries ahead would leave no ids.
        let by_clock = if by_clock < ShardId::FIRST.numbers().end / 2 { by_clock } else { 0 };
        old.saturating_add(STEP).max(by_clock)
    }

    /// The value that a key gets; `None` if it has none any more.
    fn restored(&mut self, key: &[u8], value: Vec<u8>) -> Result<Option<Vec<u8>>, MetaError> {
        let kind = keys::Restore::of(key).ok_or(MetaError::Damaged)?;
        Ok(match kind {
            keys::Restore::Cluster => {
                if let Some(&found) = value.first()
                    && !is_read(found)
                {
                    return Err(MetaError::Version { found });
                }
                self.found.cluster = read(&value)?;
                Some(value)
            }
            keys::Restore::MapVersion => {
                let MapVersion(version) = read(&value)?;
                Some(to_value(&MapVersion(self.raised(version))))
            }
            keys::Restore::Ids => {
                let old: u64 = read(&value)?;
                let Range { start, end } = ClientId(old).shard().numbers();
                let ids = start + self.raised(old - start);
                (ids < end).then(|| to_value(&ids)).ok_or(MetaError::Damaged).map(Some)?
            }
            keys::Restore::Volumes => {
                let old: u32 = read(&value)?;
                let shard = VolumeId(old).shard();
                let Range { start, end } = shard.volumes();
                let since = self.now.saturating_sub(VOLUMES_SINCE);
                let by_clock = match shard {
                    ShardId::FIRST => since.saturating_mul(VOLUMES_OF_A_SECOND),
                    // There are fewer ids.
                    _ => since / SECONDS_OF_A_VOLUME,
                };
                let raised = (old - start).saturating_add(VOLUMES_STEP);
                // A clock that is decades ahead would leave no ids.
                let by_clock =
                    u32::try_from(by_clock).ok().filter(|count| *count < end - start - VOLUMES_LEFT);
                let raised = start.saturating_add(raised.max(by_clock.unwrap_or(0)));
                (raised < end).then(|| to_value(&raised)).ok_or(MetaError::Damaged).map(Some)?
            }
            keys::Restore::Brick => {
                let record = BrickRecord { state: BrickState::Out, incarnation: NO_LIFE, ..read(&value)? };
                self.found.bricks.extend(keys::last_u32(key).map(BrickId));
                Some(to_value(&record))
            }
            keys::Restore::Volume => {
                let mut record: VolumeRecord = read(&value)?;
                // Nobody serves the groups of a deleted volume.
                if !record.deleted {
                    self.found.volumes.push(record.name.clone());
                    record.groups = record.groups.into_iter().map(unserved).collect();
                }
                if !record.deleted
                    && let Some(volume) = keys::last_u32(key)
                {
                    self.changes.entry(VolumeId(volume)).or_default();
                }
                Some(to_value(&record))
            }
            // Those of a deleted volume are gone.
            keys::Restore::Group => Some(to_value(&unserved(read(&value)?))),
            keys::Restore::AllChanged => {
                let volume = keys::last_u32(key).ok_or(MetaError::Damaged)?;
                *self.changes.entry(VolumeId(volume)).or_default() = read(&value)?;
                None
            }
            keys::Restore::Members => {
                let members: Vec<MetaMember> = read(&value)?;
                self.found.members.extend(members.into_iter().map(|member| member.address));
                None
            }
            keys::Restore::Inode => {
                self.found.inodes += 1;
                Some(value)
            }
            keys::Restore::Keep => Some(value),
            keys::Restore::Forget => None,
        })
    }
}

/// A group that nobody serves yet, in an epoch after all that the backup may not know.
fn unserved(mut group: GroupConfig) -> GroupConfig {
    group.slots.iter_mut().for_each(|slot| slot.state = SlotState::Out);
    let epoch = group.epoch.0.saturating_add(FLOOR_STEP);
    group.epoch = Epoch(epoch.min(Epoch::END.0 - 3 * FLOOR_STEP).max(group.epoch.0));
    group
}

fn read<R: types::wire::Codec>(value: &[u8]) -> Result<R, MetaError> {
    from_value(value).map_err(|_| MetaError::Damaged)
}

/// Reads the store of a server that is stopped, with what only its journal has, and gives it to `part` piece by piece. A last
/// record that was perhaps never chosen counts.
///
/// # Errors
/// As at the start of a server; [`MetaError::Incomplete`] if the server has only a part of another one's store.
pub async fn read_store(
    world: &world::World,
    engine: Engine,
    part: &mut dyn FnMut(Vec<KeyValue>) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let cluster = crate::cluster_of(&engine)?.ok_or(MetaError::NoCluster)?;
    if crate::replicas::is_incomplete(&engine)? {
        return Err(MetaError::Incomplete);
    }
    let work = world::Notify::new();
    let budget = crate::MEMORY_BUDGET_DEFAULT;
    let opened = crate::replicas::open_store(world, engine, cluster, budget, &work).await?;
    let mut from = Vec::new();
    loop {
        let (mut pairs, mut bytes) = (Vec::new(), 0);
        opened.store.range(&from, &[0xff], &Writes::new(), &mut |key, value| {
            bytes += key.len() + value.len();
            pairs.push((key.to_vec(), value.to_vec()));
            bytes < PART
        })?;
        let Some((last, _)) = pairs.last() else { return Ok(()) };
        from = [last.as_slice(), &[0]].concat();
        part(pairs)?;
        world.yield_now().await;
    }
}

/// Bytes of a part of a store that is read, about.
const PART: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::fixture::on_all;
    use crate::kv::Store;

    #[test]
    fn what_was_given_out_is_not_given_out_again() {
        on_all(|fixture| {
            let before = fixture.state.cluster.map().clone();
            let engine = fixture.state.store.engine();
            let restored = Engine::memory();
            let mut restoring = Restoring::begin(&restored, 1_800_000_000).expect("new");
            restoring.add(engine.pairs().expect("readable")).expect("of this build");
            let found = restoring.finish(&[BrickId(2)]).expect("a cluster");
            assert_eq!(found.cluster, before.cluster);
            assert_eq!(found.bricks.len(), before.bricks.len());
            let store = Store::open(restored).expect("there");
            let ids = |store: &Store| store.get(&keys::id_counter(), from_value::<u64>).expect("there").0;
            let (old, new) = (ids(&fixture.state.store), ids(&store));
            let (old, new) = (old.expect("a number").expect("whole"), new.expect("a number").expect("whole"));
            assert!(new >= old + STEP && ShardId::FIRST.numbers().contains(&new));
            // The same backup once more, a second later.
            let again = Engine::memory();
            let mut restoring = Restoring::begin(&again, 1_800_000_001).expect("new");
            restoring.add(engine.pairs().expect("readable")).expect("of this build");
            restoring.finish(&[]).expect("a cluster");
            let later_store = Store::open(again).expect("there");
            let later = ids(&later_store).expect("a number").expect("whole");
            assert!(later >= new + OF_A_SECOND);
            let cluster = Cluster::load(&store, 5).expect("whole");
            assert!(cluster.map().version > before.version);
            for volume in &cluster.map().volumes {
                let old = before.volume(volume.id).expect("it was there");
                for (group, old) in volume.groups.iter().zip(&old.groups) {
                    assert_eq!((group.live(), group.epoch), (0, Epoch(old.epoch.0 + FLOOR_STEP)));
                }
            }
            // Nothing that a mount has cached is taken for what bricks have now, nor by the later restoration.
            let changes = |store: &Store| {
                let found =
                    store.get(&keys::all_changed(fixture.volume), from_value::<u64>).expect("there").0;
                found.expect("a number").expect("whole")
            };
            assert!(changes(&store) >= STEP && changes(&later_store) > changes(&store));
            assert!(cluster.map().bricks.iter().all(|brick| brick.state == BrickState::Out));
            assert_eq!(Cluster::lost_bricks(&store).expect("readable"), [BrickId(2)]);
        });
    }

    #[test]
    fn a_store_with_a_cluster_and_nothing_at_all_are_refused() {
        let engine = Engine::memory();
        let nothing = Restoring::begin(&engine, 7).expect("new").finish(&[]);
        assert!(matches!(nothing, Err(MetaError::NoCluster)));
        crate::create_cluster(&engine, ClusterId([1; 16])).expect("empty");
        assert!(matches!(Restoring::begin(&engine, 7), Err(MetaError::Exists)));
        let mut restoring = Restoring::begin(&Engine::memory(), 7).expect("new");
        assert!(restoring.add(vec![(vec![0x7f, 1], vec![2])]).is_err(), "a newer build's key");
        assert!(
            restoring.add(vec![(keys::cluster(), vec![crate::records::VERSION + 1])]).is_err(),
            "a newer build's value"
        );
    }
}
