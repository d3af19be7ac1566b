//! The state of requests to the servers that all threads of a mount share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pace::{Latencies, Reach};
use types::limits::REPORTED_MAX;
use types::messages::cluster::{MapFetch, OpenInode};
use types::{BrickId, Geometry, InodeId, ObjectId, StripeKey, VolumeId};
use world::Notify;

use crate::routes::lease_state::LeaseState;
use crate::routes::route::{MapView, Route};
use crate::state::counters::Counts;
use crate::state::lock;
use crate::state::options::MountOptions;
use crate::state::seq_tracker::SeqTracker;
use crate::state::slow_requests::SlowRequests;

/// How long a brick that did not answer is avoided, in microseconds.
const SUSPECT_US: u64 = 1_000_000;
/// How long stripes go directly after one that did not arrive along a tree of members, in microseconds. Which member failed is
/// not known.
const NO_TREES_US: u64 = 10_000_000;

/// Calls to the layers above, in the middle of a request.
pub(crate) trait Above: Send + Sync {
    /// Called when there is a newer map.
    fn map_changed(&self, map: &MapView);
    /// The files to report as open when this client joins again.
    fn open_inodes(&self) -> Vec<OpenInode>;
    /// The service has fenced this client: unstable bytes are lost, and every handle fails from now on.
    fn lose_everything(&self);
    /// The end of a file was lost, so the file is shorter than it was.
    fn end_was_lost(&self, inode: InodeId);
}

/// Which bricks this mount cannot reach, with a copy of the answer that nearly every call gets: all of them are reached.
struct Reached {
    bricks: Mutex<Reach<BrickId>>,
    /// Whether some are not reached.
    has_unreached: AtomicBool,
}

/// Least time between two questions where the metadata servers of the volume's shard are, in microseconds.
const FIND_EVERY_US: u64 = 1_000_000;

/// The state of requests to the servers that all threads of a mount share.
pub(crate) struct Routes {
    pub(crate) options: MountOptions,
    pub(crate) volume: VolumeId,
    pub(crate) lease: LeaseState,
    pub(crate) counts: Counts,
    pub(crate) slow: SlowRequests,
    /// Notified at every new map, and when it turns out whether a brick is reached.
    pub(super) changed: Notify,
    /// Held while a task fetches the map.
    pub(super) refreshing: async_lock::Mutex<()>,
    /// Held while a task joins again.
    pub(super) joining: async_lock::Mutex<()>,
    /// The metadata servers of the volume's shard, with commas between them.
    servers: Mutex<Arc<str>>,
    /// Until then the first shard is not asked again where they are.
    find_again_us: AtomicU64,
    map: Mutex<Arc<MapView>>,
    refreshes: AtomicU64,
    /// Until when no stripe goes along a tree of members.
    no_trees_until: AtomicU64,
    suspects: Mutex<BTreeMap<BrickId, u64>>,
    latencies: Mutex<Latencies<BrickId>>,
    reach: Reached,
    /// Which of several bricks passes requests on.
    pub(super) proxy_turn: AtomicUsize,
    ops: Mutex<SeqTracker>,
}

impl Routes {
    /// The metadata servers of the volume's shard, with commas between them.
    pub(crate) fn servers(&self) -> Arc<str> {
        lock(&self.servers).clone()
    }

    /// Whether the first shard may be asked where they are: once in a while, by one of those who want to know.
    pub(crate) fn may_find_servers(&self, now: u64) -> bool {
        let next = self.find_again_us.load(Ordering::Relaxed);
        let asks = || {
            let (then, order) = (now + FIND_EVERY_US, Ordering::Relaxed);
            self.find_again_us.compare_exchange(next, then, order, order).is_ok()
        };
        now >= next && asks()
    }

    pub(crate) fn set_servers(&self, servers: String) {
        *lock(&self.servers) = servers.into();
    }

    pub(crate) fn new(
        options: MountOptions,
        servers: String,
        volume: VolumeId,
        lease: LeaseState,
        map: MapView,
    ) -> Routes {
        Routes {
            servers: Mutex::new(servers.into()),
            find_again_us: AtomicU64::new(0),
            options,
            volume,
            lease,
            counts: Counts::default(),
            slow: SlowRequests::default(),
            changed: Notify::new(),
            refreshing: async_lock::Mutex::new(()),
            joining: async_lock::Mutex::new(()),
            map: Mutex::new(Arc::new(map)),
            refreshes: AtomicU64::new(0),
            no_trees_until: AtomicU64::new(0),
            suspects: Mutex::default(),
            latencies: Mutex::default(),
            reach: Reached {
                bricks: Mutex::new(Reach::new(REPORTED_MAX)),
                has_unreached: AtomicBool::default(),
            },
            proxy_turn: AtomicUsize::new(0),
            ops: Mutex::default(),
        }
    }

    /// The newest map of this mount.
    pub(crate) fn map(&self) -> Arc<MapView> {
        lock(&self.map).clone()
    }

    /// How the bytes of new files become stripes.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry_of(ObjectId(0))
    }

    /// How the bytes of an object become stripes.
    pub(crate) fn geometry_of(&self, object: ObjectId) -> Geometry {
        lock(&self.map).tier_of(object).geometry
    }

    /// Size of the disk of a block volume, in bytes.
    pub(crate) fn disk(&self) -> Option<u64> {
        self.map().block
    }

    /// Replaces the map if `view` is newer. Returns whether it was.
    fn replace_map(&self, view: Arc<MapView>) -> bool {
        let mut map = lock(&self.map);
        let newer = view.version > map.version;
        if newer {
            *map = view;
        }
        newer
    }

    /// How often the map has been asked for.
    pub(super) fn refreshes(&self) -> u64 {
        self.refreshes.load(Ordering::Acquire)
    }

    pub(super) fn count_refresh(&self) {
        self.refreshes.fetch_add(1, Ordering::AcqRel);
    }

    fn suspects(&self) -> MutexGuard<'_, BTreeMap<BrickId, u64>> {
        lock(&self.suspects)
    }

    pub(super) fn ops(&self) -> MutexGuard<'_, SeqTracker> {
        lock(&self.ops)
    }

    /// The route to a stripe, by the newest known map.
    pub(crate) fn route(&self, key: StripeKey) -> Route {
        self.map().route(key)
    }

    /// Calls `change` with what this mount knows of the bricks that it doubts.
    pub(super) fn reach<T>(&self, change: impl FnOnce(&mut Reach<BrickId>) -> T) -> T {
        let mut bricks = lock(&self.reach.bricks);
        let outcome = change(&mut bricks);
        self.reach.has_unreached.store(bricks.has_unreached(), Ordering::Release);
        outcome
    }

    /// The bricks that this mount cannot reach.
    pub(crate) fn unreached(&self) -> Vec<BrickId> {
        self.reach(|reach| reach.unreached())
    }

    /// Records that a brick did not answer.
    pub(crate) fn suspect(&self, brick: BrickId, now: u64) {
        tracing::debug!(%brick, "does not answer");
        self.suspects().insert(brick, now + SUSPECT_US);
        self.reach(|reach| reach.doubt(brick));
    }

    /// Whether the brick recently did not answer, or this mount does not reach it.
    pub(crate) fn is_suspect(&self, brick: BrickId, now: u64) -> bool {
        self.suspects().get(&brick).is_some_and(|until| now < *until) || self.is_unreached(brick)
    }

    /// Whether this mount does not reach the brick.
    pub(crate) fn is_unreached(&self, brick: BrickId) -> bool {
        // Every call asks this.
        self.reach.has_unreached.load(Ordering::Acquire) && self.reach(|reach| reach.is_unreached(brick))
    }

    /// Records that a stripe did not arrive along a tree of members.
    pub(crate) fn tree_failed(&self, now: u64) {
        self.no_trees_until.store(now + NO_TREES_US, Ordering::Relaxed);
    }

    /// Whether stripes may go along trees of members.
    pub(crate) fn may_use_trees(&self, now: u64) -> bool {
        now >= self.no_trees_until.load(Ordering::Relaxed)
    }

    /// How long bricks take to answer reads.
    pub(crate) fn latencies(&self) -> MutexGuard<'_, Latencies<BrickId>> {
        lock(&self.latencies)
    }

    /// The slots of a route whose bricks recently did not answer, or are slow; one bit for each.
    pub(crate) fn avoided(&self, route: &Route, now: u64) -> u64 {
        let (suspects, latencies) = (self.suspects(), self.latencies());
        let is_silent = |brick| suspects.get(&brick).is_some_and(|until| now < *until);
        route.slots_where(|brick| is_silent(brick) || latencies.is_slow(brick))
    }

    /// Waits until the group has another epoch than the route.
    pub(crate) async fn epoch_changed(&self, route: &Route) {
        loop {
            let changed = self.changed.wait();
            if self.is_old(route) {
                return;
            }
            changed.await;
        }
    }

    /// Whether the group has another epoch than the route.
    pub(crate) fn is_old(&self, route: &Route) -> bool {
        self.map().epoch(route.group) != Some(route.epoch)
    }

    /// Adopts a newer map.
    pub(super) fn adopt_map(&self, fetch: MapFetch, above: &dyn Above) {
        let before = self.map();
        if !fetch.is_newer_than(before.version) {
            return;
        }
        let Some(view) = before.with(fetch) else {
            tracing::debug!(have = %before.version, "the map no longer has the volume");
            return;
        };
        let view = Arc::new(view);
        if !self.replace_map(view.clone()) {
            return;
        }
        tracing::debug!(version = %view.version, "new map");
        // A silent brick may be back in the new map.
        self.suspects().clear();
        above.map_changed(&view);
        self.changed.notify();
    }
}
