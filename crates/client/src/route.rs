//! From a stripe to its group and on to a brick: the mount's view of the cluster map.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::messages::cluster::{ClusterMap, MapGet, MapReply, SlotConfig, SlotState};
use types::wire::Request;
use types::{BrickId, Buf, Epoch, Geometry, GroupId, MapVersion, StripeKey, VolumeId};
use world::CallError;

use crate::mount::Mount;
use crate::session::Session;

/// How long a brick that did not answer is left alone, in microseconds.
const SUSPECT_US: u64 = 1_000_000;
/// How long the metadata service may take to give the map, in microseconds.
const MAP_GET_US: u64 = 3_000_000;

/// One version of the cluster map, as far as one volume needs it.
#[derive(Debug)]
pub(crate) struct MapView {
    pub(crate) version: MapVersion,
    pub(crate) geometry: Geometry,
    /// Bytes of a block volume's disk.
    pub(crate) block: Option<u64>,
    volume: VolumeId,
    groups: Vec<GroupView>,
    addresses: BTreeMap<BrickId, String>,
}

#[derive(Debug)]
struct GroupView {
    epoch: Epoch,
    slots: Vec<SlotConfig>,
    primary: Option<usize>,
}

impl MapView {
    /// What `map` says of `volume`; `None` if it does not know it.
    pub(crate) fn new(map: &ClusterMap, volume: VolumeId) -> Option<MapView> {
        let info = map.volume(volume)?;
        let group = |config: &types::messages::cluster::GroupConfig| GroupView {
            epoch: config.epoch,
            slots: config.slots.clone(),
            primary: config.primary(info.geometry.code()),
        };
        Some(MapView {
            version: map.version,
            geometry: info.geometry,
            block: info.block,
            volume,
            groups: info.groups.iter().map(group).collect(),
            addresses: map.bricks.iter().map(|b| (b.id, b.address.clone())).collect(),
        })
    }

    /// The epoch of a group.
    pub(crate) fn epoch(&self, group: GroupId) -> Option<Epoch> {
        self.groups.get(group.index as usize).map(|g| g.epoch)
    }

    /// The way to a group.
    pub(crate) fn route_to(self: &Arc<MapView>, group: GroupId) -> Route {
        Route { group, epoch: self.epoch(group).unwrap_or_default(), map: self.clone() }
    }

    /// The way to a stripe's group.
    pub(crate) fn route(self: &Arc<MapView>, key: StripeKey) -> Route {
        let extent = self.geometry.extent(key.stripe);
        self.route_to(layout::group_of(self.volume, key.object, extent, self.groups.len() as u32))
    }

    fn address(&self, brick: BrickId) -> Option<(BrickId, &str)> {
        Some((brick, self.addresses.get(&brick)?.as_str()))
    }
}

/// The way to a group, as of one version of the map.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) group: GroupId,
    pub(crate) epoch: Epoch,
    map: Arc<MapView>,
}

impl Route {
    fn view(&self) -> Option<&GroupView> {
        self.map.groups.get(self.group.index as usize)
    }

    /// The brick that orders the group's writes, and its address.
    pub(crate) fn primary(&self) -> Option<(BrickId, &str)> {
        let group = self.view()?;
        self.map.address(group.slots.get(group.primary?)?.brick)
    }

    /// The brick of a slot and its address, if the slot is live.
    pub(crate) fn live(&self, slot: usize) -> Option<(BrickId, &str)> {
        let slot = self.view()?.slots.get(slot)?;
        if slot.state == SlotState::Live { self.map.address(slot.brick) } else { None }
    }

    /// The version of the map that this is.
    pub(crate) fn map_version(&self) -> MapVersion {
        self.map.version
    }
}

impl Mount {
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
    pub(crate) async fn moved(&self, route: &Route) {
        loop {
            let changed = self.map_changed.wait();
            if self.map().epoch(route.group) != Some(route.epoch) {
                return;
            }
            changed.await;
        }
    }

    /// Takes a newer map over.
    fn adopt_map(&self, map: &ClusterMap) {
        let Some(view) = MapView::new(map, self.volume) else {
            tracing::debug!(version = %map.version, "the map no longer has the volume");
            return;
        };
        let disk = view.block;
        if !self.replace_map(view) {
            return;
        }
        if let Some(size) = disk {
            self.disk_has(size);
        }
        tracing::debug!(version = %map.version, "new map");
        // Who was away may have come back under the new map.
        self.suspects().clear();
        self.resend_moved();
        self.map_changed.notify();
    }
}

impl Session {
    /// Fetches the map if nobody has since `seen`; one fetch at a time for the whole mount.
    pub(crate) async fn refresh_map(&self, seen: MapVersion) {
        let before = self.mount.refreshes();
        let _turn = self.mount.refreshing.lock().await;
        if self.mount.map().version > seen || self.mount.refreshes() != before {
            return;
        }
        let request = MapGet { have: self.mount.map().version };
        let asked = self.ask_once(MAP_GET_US, &request).await;
        self.mount.count_refresh();
        match asked {
            Ok(MapReply { map: Some(map) }) => self.mount.adopt_map(&map),
            Ok(MapReply { map: None }) => {}
            Err(error) => tracing::debug!(%error, "the map cannot be had"),
        }
    }

    /// Asks a group's primary. Gives up as soon as the group has another epoch: the answer would be worth nothing.
    pub(crate) async fn ask_primary<R: Request>(
        &self,
        route: &Route,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        let Some((brick, address)) = route.primary() else { return Err(CallError::Unreachable) };
        if self.mount.is_suspect(brick, self.world.now()) {
            return Err(CallError::Unreachable);
        }
        let call = std::pin::pin!(self.peers.call(address, route.epoch, request, payload));
        let moved = std::pin::pin!(self.mount.moved(route));
        match futures_util::future::select(call, moved).await {
            futures_util::future::Either::Left((answer, _)) => {
                if matches!(answer, Err(CallError::Unreachable)) {
                    self.mount.suspect(brick, self.world.now());
                }
                answer
            }
            futures_util::future::Either::Right(_) => Err(CallError::Unreachable),
        }
    }
}
