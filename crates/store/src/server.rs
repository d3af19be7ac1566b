//! The server of one brick: its identity, its shared state, and the dispatch of requests.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use layout::Coder;
use pace::device::PolicyName;
use pace::{IoClass, Reach};
use types::code_probe::{CodeProbe, hit};
use types::messages::brick as messages;
use types::messages::cluster::{BrickClass, ClusterMap, Tier};
use types::messages::proxy::Proxy;
use types::messages::recovery::RecoverGroups;
use types::wire::Record;
use types::{
    BrickId, Buf, ClientId, ClientSeq, Code, Epoch, GroupId, Incarnation, NodeId, Refusal, StripeKey,
    VolumeId,
};
use world::direct::in_class;
use world::{Answer, Call, Disk, Handler, Identity, Listener, LocalBoxFuture, Notify, Peers, World};

use crate::error::BrickError;
use crate::join::Backoff;
use crate::journal::{Appended, Journal};
use crate::lane::Lanes;
use crate::network::Network;
use crate::ops::proxy::Proxies;
use crate::pressure::Pressure;
use crate::primary::PrimaryCore;
use crate::read_cache::ReadCache;
use crate::served::SlowCommits;
use crate::shard::Shards;
use crate::shared_sync::SharedSync;
use crate::slot::{SlotCore, Stamp};
use crate::superblock::Superblock;
use crate::table::Table;

/// Bytes of writes that a primary has accepted and not yet committed, per brick.
pub(crate) const ACCEPTED_MAX: usize = 48 << 20;

/// Places for descriptors that new writes may not count on.
const PLACES_KEPT: usize = 32;
/// Assumed bytes of a descriptor, to estimate the free places before the first descriptor is seen.
const DESCRIPTOR_CLASS: u16 = 256;

/// How to serve a brick.
#[derive(Clone, Debug)]
pub struct BrickOptions {
    /// The brick that the disk must hold.
    pub brick: BrickId,
    /// The machine that has the brick.
    pub node: NodeId,
    /// Cluster, key and role.
    pub identity: Identity,
    /// Where to listen, `host:port`.
    pub listen: String,
    /// Where others reach it, if that differs from `listen`; several addresses are joined by [`RAIL`](types::RAIL).
    pub advertise: Option<String>,
    /// Where the metadata servers of the first shard listen.
    pub meta: String,
    /// Bytes of memory to stay within, with those of the cache.
    pub memory_budget: u64,
    /// The class of its device.
    pub class: BrickClass,
    /// Threads: one has the state and the device; if there are more, the others have the connections.
    pub threads: usize,
    /// Requests that a direct device has at a time, besides those of the journal.
    pub depth: u32,
    /// In which order requests of a class go to a direct device.
    pub policy: PolicyName,
    /// The size around which the slq policies order, in bytes; [`None`] for their own.
    pub priority: Option<u64>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) decoded: Cell<u64>,
    pub(crate) damaged: Cell<u64>,
    pub(crate) ordered: Cell<u64>,
    pub(crate) folded: Cell<u64>,
    pub(crate) patched: Cell<u64>,
}

/// Adds one.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// A running server. Everything is on one thread; no borrow is held across an await.
pub(crate) struct Server {
    pub(crate) world: World,
    pub(crate) options: BrickOptions,
    pub(crate) address: String,
    /// Random: identifies this run of the server.
    pub(crate) incarnation: Incarnation,
    pub(crate) superblock: Superblock,
    pub(crate) disk: Disk,
    /// Makes units durable that come with a join.
    pub(crate) filled: SharedSync,
    /// The cache of the disk, if there should be one.
    pub(crate) cache: Option<ReadCache>,
    /// Bytes of memory for units and their descriptors: the budget without what the cache takes.
    pub(crate) units_memory: u64,
    pub(crate) journal: Journal,
    pub(crate) table: Table,
    pub(crate) slot: RefCell<SlotCore>,
    pub(crate) primary: RefCell<PrimaryCore>,
    pub(crate) peers: Peers,
    /// Which bricks it cannot reach.
    pub(crate) reach: RefCell<Reach<BrickId>>,
    /// Requests of clients that it passes on to others.
    pub(crate) proxies: Proxies,
    pub(crate) shards: Shards,
    pub(crate) coders: RefCell<BTreeMap<Code, Coder>>,
    /// One operation at a time on a stripe; reads through the primary share a place.
    pub(crate) lanes: Lanes,
    /// Bytes of writes accepted and not yet committed, in all shards.
    pub(crate) accepted: Cell<usize>,
    /// Writes of a client up to this number must become stable now.
    pub(crate) urgent: RefCell<BTreeMap<ClientId, ClientSeq>>,
    /// The last known pressure of other bricks.
    pub(crate) pressure: RefCell<BTreeMap<BrickId, Pressure>>,
    /// The network between the nodes, if it is known.
    pub(crate) network: Network,
    /// Lost units are gathered until then, whatever the network is: a path of members has failed.
    pub(crate) gather_until: Cell<u64>,
    /// Notified when an operation is committed, an epoch changes, or a coming operation or unit has arrived.
    pub(crate) progress: Notify,
    /// Notified when an attempt to bring a slot level has ended.
    pub(crate) join_ended: Notify,
    /// Notified when a decision waits to be sent.
    pub(crate) undelivered: Notify,
    /// Stripes that could not be patched, for example because a block is damaged. The next fold writes them whole.
    pub(crate) unpatched: RefCell<BTreeSet<StripeKey>>,
    /// Stripes with overlays that other bricks have reported.
    pub(crate) unfolded: RefCell<BTreeMap<StripeKey, GroupId>>,
    pub(crate) counters: Counters,
    /// What clients have asked for.
    pub(crate) asked: Cell<messages::AskedCounts>,
    /// The slowest commits of late.
    pub(crate) commits: RefCell<SlowCommits>,
    /// A client wrote or read at this time.
    pub(crate) busy_at: Cell<u64>,
    /// Checkpoints run one at a time; no unit is evicted meanwhile.
    pub(crate) checkpointing: async_lock::Mutex<()>,
    /// While descriptors are written: how many units would have one if none were erased.
    pub(crate) described: Cell<Option<usize>>,
    /// Purges run one at a time.
    pub(crate) purging: async_lock::Mutex<()>,
    /// Listings run one at a time.
    pub(crate) listing: async_lock::Mutex<()>,
    /// Slots that could not be brought level, and when to try them again.
    pub(crate) backoffs: RefCell<BTreeMap<(GroupId, usize), Backoff>>,
}

/// A brick, recovered and listening.
pub struct Brick {
    pub(crate) server: Rc<Server>,
    pub(crate) listener: Listener,
}

impl Brick {
    /// Where it listens.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Serves until the disk fails or the future is dropped.
    ///
    /// The future is boxed, so that this crate compiles it once, and not every program that awaits it.
    pub fn run(self) -> LocalBoxFuture<'static, Result<(), BrickError>> {
        Box::pin(self.run_unboxed())
    }

    async fn run_unboxed(self) -> Result<(), BrickError> {
        let server = self.server.clone();
        match select(pin!(self.serve()), pin!(server.disk.lost())).await {
            Either::Left((served, _)) => served,
            Either::Right((error, _)) => {
                server.journal.fail();
                Err(BrickError::Disk(error))
            }
        }
    }

    async fn serve(self) -> Result<(), BrickError> {
        let Brick { server, listener } = self;
        let world = server.world.clone();
        world.spawn("journal sync", in_class(IoClass::Journal, server.clone().sync_journal()));
        server.clone().join().await?;
        server.follow_shards();
        world.spawn("cache", server.clone().fill_cache());
        world.spawn("checkpoint", in_class(IoClass::Journal, server.clone().checkpoint_for_ever()));
        world.spawn("decisions", server.clone().tell_decisions());
        world.spawn("reminders", server.clone().ask_for_decisions());
        world.spawn("fold", in_class(IoClass::Fold, server.clone().fold_for_ever()));
        world.spawn("unfolded", server.clone().tell_unfolded());
        world.spawn("joins", server.clone().join_slots_for_ever());
        world.spawn("reach", server.clone().watch_reach());
        world.spawn("old stages", server.clone().drop_old_stages());
        let handler: Handler = {
            let server = server.clone();
            Rc::new(move |call| Box::pin(server.clone().answer_in_time(call)))
        };
        let identity = Identity { name: server.address.clone(), ..server.options.identity.clone() };
        let threads = server.options.threads;
        let connections = world::serve_on_threads(&world, listener, &identity, threads, handler);
        world.spawn("connections", connections.map_err(BrickError::Threads)?);
        world.named("beat", server.beat_for_ever()).await
    }
}

impl Server {
    async fn sync_journal(self: Rc<Server>) {
        let server = self.clone();
        self.journal.run(self.world.clone(), move |lsn| server.slot.borrow_mut().synced(lsn)).await;
    }

    /// Answers one request.
    pub(crate) async fn answer(self: Rc<Server>, call: Call) -> Result<Answer, Refusal> {
        if self.journal.has_failed() {
            return Err(Refusal::DiskFailed);
        }
        let class = call.class.or(match call.kind {
            messages::Verify::KIND => Some(IoClass::Scrub),
            messages::Fill::KIND | messages::UnitList::KIND | messages::Purge::KIND => Some(IoClass::Rebuild),
            _ => None,
        });
        match class {
            Some(class) => in_class(class, self.dispatch(call)).await,
            None => self.dispatch(call).await,
        }
    }

    async fn dispatch(self: Rc<Server>, call: Call) -> Result<Answer, Refusal> {
        let epoch = call.epoch;
        match call.kind {
            messages::Write::KIND => reply(self.write(epoch, call.parse()?, call.payload).await?),
            messages::Sync::KIND => reply(self.sync_writes(call.parse()?).await?),
            messages::ReadStripe::KIND => {
                let (answer, payload) = self.read_stripe(epoch, call.parse()?).await?;
                Ok(Answer::new(&answer, payload))
            }
            messages::FindBytes::KIND => reply(self.find_bytes(epoch, call.parse()?).await?),
            messages::FindStripes::KIND => reply(self.find_stripes(call.parse()?).await?),
            messages::ReadUnit::KIND => {
                let (answer, payload) = self.read_unit(epoch, call.parse()?).await?;
                Ok(Answer::new(&answer, payload))
            }
            messages::ReadBase::KIND => {
                let (answer, payload) = self.read_base(epoch, call.parse()?).await?;
                Ok(Answer::new(&answer, payload))
            }
            messages::SumUnits::KIND => {
                let (answer, payload) = self.sum_units(epoch, call.parse()?).await?;
                Ok(Answer::new(&answer, payload))
            }
            messages::Verify::KIND => reply(self.verify(epoch, call.parse()?).await?),
            messages::ReadOverlays::KIND => {
                let (answer, payload) = self.read_overlays(epoch, call.parse()?).await?;
                Ok(Answer::new(&answer, payload))
            }
            messages::Prepare::KIND => {
                let prepare: messages::Prepare = call.parse()?;
                let (answer, payload) = self.prepare(epoch, &prepare, call.payload).await?;
                Ok(Answer::new(&answer, payload))
            }
            messages::Stage::KIND => {
                let stage = call.parse_from_maker()?;
                reply(self.stage(epoch, stage, call.payload).await?)
            }
            messages::Relay::KIND => reply(self.relay(epoch, call.parse()?, call.payload).await?),
            Proxy::KIND => self.proxy(epoch, call.parse()?, call.payload).await,
            messages::Flush::KIND => reply(self.nudge().await?),
            messages::Decided::KIND => reply(self.decided(call.parse()?).await?),
            messages::QueryDecisions::KIND => reply(self.remind(&call.parse()?)),
            messages::Unfolded::KIND => reply(self.unfolded(call.parse()?)?),
            messages::NewEpoch::KIND => reply(self.new_epoch(call.parse()?).await?),
            messages::Decide::KIND => reply(self.decide(epoch, call.parse()?).await?),
            messages::Fill::KIND => {
                let fill = call.parse()?;
                reply(self.take_fill(epoch, fill, call.payload).await?)
            }
            messages::UnitList::KIND => reply(self.unit_list(epoch, call.parse()?).await?),
            messages::Purge::KIND => reply(self.purge(call.parse()?).await?),
            RecoverGroups::KIND => reply(self.recover_groups(call.parse()?).await?),
            messages::Fence::KIND => reply(self.fence(call.parse()?).await?),
            types::messages::notes::NotesGet::KIND => reply(self.notes(&call.parse()?)?),
            messages::BrickStatus::KIND => reply(self.report()),
            types::messages::queue::BrickTune::KIND => reply(self.tune(&call.parse()?)?),
            _ => Err(Refusal::Unsupported),
        }
    }

    /// The place of a record in the journal, for the slot.
    pub(crate) fn stamp(&self, appended: Appended) -> Stamp {
        Stamp { lsn: appended.lsn, serial: appended.position.serial }
    }

    /// Refuses unless the brick holds a lease of the shard that has the volume.
    pub(crate) fn check_lease(&self, volume: VolumeId) -> Result<(), Refusal> {
        let until = self.shards.of_volume(volume).map_or(0, |shard| shard.lease_until.get());
        if self.world.now() < until {
            return Ok(());
        }
        hit(CodeProbe::NoLease);
        Err(Refusal::NotServing)
    }

    /// Refuses unless this brick is the primary of the group and serves the epoch.
    pub(crate) fn check_primary(&self, id: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        self.check_lease(id.volume)?;
        let primary = self.primary.borrow();
        if primary.serving(id, epoch).is_some() {
            return Ok(());
        }
        if let Some(known) = primary.epoch(id) {
            return if known > epoch {
                Err(Refusal::StaleEpoch)
            } else {
                self.refuse_and_fetch_map(id.volume)
            };
        }
        let known = self.map_of(id.volume).group(id).map(|(_, config)| config.epoch);
        match known.map(|known| known.cmp(&epoch)) {
            Some(Ordering::Greater) => Err(Refusal::StaleEpoch),
            Some(Ordering::Equal) => Err(Refusal::NotPrimary),
            Some(Ordering::Less) | None => self.refuse_and_fetch_map(id.volume),
        }
    }

    /// The map of the shard that has a volume; an empty one if the brick does not know that shard.
    pub(crate) fn map_of(&self, volume: VolumeId) -> Rc<ClusterMap> {
        match self.shards.of_volume(volume) {
            Some(shard) => shard.map.borrow().clone(),
            None => Rc::new(ClusterMap::empty(self.superblock.cluster)),
        }
    }

    /// Has the map of the shard that has a volume fetched at once.
    pub(crate) fn want_map(&self, volume: VolumeId) {
        // The first shard may know of others that this brick does not know yet.
        let shard = self.shards.of_volume(volume).unwrap_or_else(|| self.shards.first().clone());
        shard.map_wanted.notify();
    }

    /// The metadata servers of the shard that has a volume.
    pub(crate) fn meta_of(&self, volume: VolumeId) -> String {
        self.shards.of_volume(volume).map(|shard| shard.meta.borrow().clone()).unwrap_or_default()
    }

    /// The sender knows a newer map than this brick: fetch it.
    pub(crate) fn refuse_and_fetch_map(&self, volume: VolumeId) -> Result<(), Refusal> {
        self.want_map(volume);
        Err(Refusal::NotServing)
    }

    /// The tier of a group.
    pub(crate) fn tier(&self, id: GroupId) -> Result<Tier, Refusal> {
        let map = self.map_of(id.volume);
        // A newer map that is on its way may have it.
        map.volume(id.volume).and_then(|volume| volume.tier_of_group(id.index)).ok_or(Refusal::NotServing)
    }

    /// Where the server of a brick of one of a volume's groups listens.
    pub(crate) fn address_in(&self, volume: VolumeId, brick: BrickId) -> Option<String> {
        let address = self.map_of(volume).brick(brick).map(|info| info.address.clone());
        address.or_else(|| self.address_of(brick))
    }

    /// Where a brick's server listens, as some shard knows it.
    pub(crate) fn address_of(&self, brick: BrickId) -> Option<String> {
        let address = |map: &ClusterMap| map.brick(brick).map(|info| info.address.clone());
        self.shards.all().iter().find_map(|shard| address(&shard.map.borrow()))
    }

    /// The coder of a code.
    pub(crate) fn coder(&self, code: Code) -> Coder {
        self.coders.borrow_mut().entry(code).or_insert_with(|| Coder::new(code)).clone()
    }

    /// Bytes that are free for units, without the reserve for folds.
    pub(crate) fn free_bytes(&self) -> u64 {
        // The reserved places are for writes that are already accepted.
        if self.places() < PLACES_KEPT {
            return 0;
        }
        self.slot.borrow().free_blocks().saturating_sub(self.reserve_blocks()) * types::limits::BLOCK as u64
    }

    /// Number of further units whose descriptors find room, without the units that already wait for a place.
    pub(crate) fn places(&self) -> usize {
        let (unplaced, class) = self.slot.borrow().unplaced();
        let class = if class == 0 { DESCRIPTOR_CLASS } else { class };
        self.table.room(class).saturating_sub(unplaced)
    }

    /// Reserved blocks: folds need fresh space before they free any, and several primaries use the space of the same
    /// brick.
    pub(crate) fn reserve_blocks(&self) -> u64 {
        (self.superblock.data_blocks / 16).min((256 << 20) / types::limits::BLOCK as u64)
    }

    /// Total bytes that units can take.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        (self.superblock.data_blocks - self.reserve_blocks()) * types::limits::BLOCK as u64
    }
}

fn reply<R: Record>(record: R) -> Result<Answer, Refusal> {
    Ok(Answer::new(&record, Buf::empty()))
}

#[cfg(test)]
mod tests;
