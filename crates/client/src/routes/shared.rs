//! What all threads of a mount know of the way to the servers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use types::messages::cluster::{MapFetch, OpenInode};
use types::{BrickId, Geometry, StripeKey, VolumeId};
use world::Notify;

use crate::routes::lease_state::LeaseState;
use crate::routes::route::{MapView, Route};
use crate::state::counters::Counts;
use crate::state::lock;
use crate::state::options::MountOptions;
use crate::state::seq_tracker::SeqTracker;

/// How long a brick that did not answer is left alone, in microseconds.
const SUSPECT_US: u64 = 1_000_000;

/// What the layers above the routes are told of and asked for, in the middle of a request.
pub(crate) trait Above: Send + Sync {
    /// There is a newer map.
    fn map_changed(&self, map: &MapView);
    /// The files that the service is to count as open by this client, which joins again.
    fn open_inodes(&self) -> Vec<OpenInode>;
    /// The service has let others in: what was not stable is lost, and every handle says so from now on.
    fn lose_everything(&self);
}

/// What all threads of a mount know of the way to the servers.
pub(crate) struct Routes {
    pub(crate) options: MountOptions,
    pub(crate) volume: VolumeId,
    pub(crate) lease: LeaseState,
    pub(crate) counts: Counts,
    /// Given with every new map.
    map_changed: Notify,
    /// Held by whoever fetches the map.
    pub(super) refreshing: async_lock::Mutex<()>,
    /// Held by whoever joins again.
    pub(super) joining: async_lock::Mutex<()>,
    map: Mutex<Arc<MapView>>,
    refreshes: AtomicU64,
    suspects: Mutex<BTreeMap<BrickId, u64>>,
    ops: Mutex<SeqTracker>,
}

impl Routes {
    pub(crate) fn new(options: MountOptions, volume: VolumeId, lease: LeaseState, map: MapView) -> Routes {
        Routes {
            options,
            volume,
            lease,
            counts: Counts::default(),
            map_changed: Notify::new(),
            refreshing: async_lock::Mutex::new(()),
            joining: async_lock::Mutex::new(()),
            map: Mutex::new(Arc::new(map)),
            refreshes: AtomicU64::new(0),
            suspects: Mutex::default(),
            ops: Mutex::default(),
        }
    }

    /// The newest map that is here.
    pub(crate) fn map(&self) -> Arc<MapView> {
        lock(&self.map).clone()
    }

    /// How the volume's bytes become stripes.
    pub(crate) fn geometry(&self) -> Geometry {
        self.map().geometry
    }

    /// Bytes of data in a stripe.
    pub(crate) fn stripe_bytes(&self) -> usize {
        self.geometry().stripe()
    }

    /// Bytes of the volume's disk, if it is a block volume.
    pub(crate) fn disk(&self) -> Option<u64> {
        self.map().block
    }

    /// Takes a map that is newer than the one here; says whether it was.
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

    /// The way to a stripe, by the newest map that is here.
    pub(crate) fn route(&self, key: StripeKey) -> Route {
        self.map().route(key)
    }

    /// Notes that a brick did not answer.
    pub(crate) fn suspect(&self, brick: BrickId, now: u64) {
        tracing::debug!(%brick, "does not answer");
        self.suspects().insert(brick, now + SUSPECT_US);
    }

    /// The brick did not answer a short time ago.
    pub(crate) fn is_suspect(&self, brick: BrickId, now: u64) -> bool {
        self.suspects().get(&brick).is_some_and(|until| now < *until)
    }

    /// Ends when the group has another epoch than the route says.
    pub(crate) async fn epoch_changed(&self, route: &Route) {
        loop {
            let changed = self.map_changed.wait();
            if self.map().epoch(route.group) != Some(route.epoch) {
                return;
            }
            changed.await;
        }
    }

    /// Takes a newer map over.
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
        // Who was away may have come back under the new map.
        self.suspects().clear();
        above.map_changed(&view);
        self.map_changed.notify();
    }
}
