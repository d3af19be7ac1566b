//! The mount's view of the cluster map: finds the group of a stripe and the bricks of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use layout::WriteRoute;

use types::messages::cluster::{BrickState, ClusterMap, GroupConfig, MapFetch, SlotConfig, SlotState, Tier};
use types::{BrickId, Code, Epoch, GroupId, MapVersion, NodeId, ObjectId, StripeKey, Tuning, VolumeId};

use crate::routes::network::{Members, Network, nearest_groups};
use crate::state::options::Encode;

/// One version of the cluster map, as far as one volume needs it.
#[derive(Debug)]
pub(crate) struct MapView {
    pub(crate) version: MapVersion,
    tiers: Vec<Tier>,
    /// Size of a block volume's disk, in bytes.
    pub(crate) block: Option<u64>,
    /// The volume's settings of the translators; `None` if this build cannot read them.
    pub(crate) tuning: Option<Tuning>,
    volume: VolumeId,
    /// The source of this view: the bricks and the one volume.
    map: ClusterMap,
    groups: Vec<GroupView>,
    addresses: BTreeMap<BrickId, String>,
    /// The network between the nodes, if it is known.
    network: Option<Arc<Network>>,
    /// The groups near this mount, once they have been looked for.
    near_groups: OnceLock<Vec<u32>>,
}

/// Where the bricks are.
fn places(map: &ClusterMap) -> impl Iterator<Item = (BrickId, NodeId, &str)> {
    map.bricks.iter().map(|brick| (brick.id, brick.node, &*brick.address))
}

#[derive(Debug)]
struct GroupView {
    epoch: Epoch,
    slots: Vec<SlotConfig>,
    primary: Option<usize>,
    /// Its primary has parity.
    can_decode: bool,
    /// By which route whole stripes go to its members, once that has been computed.
    write_route: OnceLock<WriteRoute>,
}

impl MapView {
    /// The view of `volume` in `map`; `None` if the map does not have it.
    pub(crate) fn new(map: ClusterMap, volume: VolumeId) -> Option<MapView> {
        let network = Network::read(&map.topology).map(Arc::new);
        MapView::over(map, volume, network)
    }

    fn over(map: ClusterMap, volume: VolumeId, network: Option<Arc<Network>>) -> Option<MapView> {
        let info = map.volume(volume)?;
        let group = |(config, code): (&GroupConfig, Code)| {
            let primary = config.primary(code);
            GroupView {
                epoch: config.epoch,
                slots: config.slots.clone(),
                primary,
                can_decode: primary.is_some_and(|slot| slot >= code.k()),
                write_route: OnceLock::new(),
            }
        };
        let codes = info.all_tiers().flat_map(|tier| tier.groups.map(move |_| tier.geometry.code()));
        let tuning = info.tuning.parse();
        Some(MapView {
            version: map.version,
            tiers: info.all_tiers().collect(),
            block: info.block,
            tuning: tuning.ok(),
            volume,
            groups: info.groups.iter().zip(codes).map(group).collect(),
            addresses: map.bricks.iter().map(|b| (b.id, b.address.clone())).collect(),
            network,
            near_groups: OnceLock::new(),
            map,
        })
    }

    /// This map with fetched changes; `None` if it does not have the volume any more.
    pub(super) fn with(&self, fetch: MapFetch) -> Option<MapView> {
        let mut map = self.map.clone();
        fetch.apply(&mut map);
        // Distances are computed anew only for another network.
        let network = match map.topology == self.map.topology {
            true if places(&map).eq(places(&self.map)) => self.network.clone(),
            true => self.network.as_ref().map(|network| Arc::new(network.found_anew())),
            false => Network::read(&map.topology).map(Arc::new),
        };
        let view = MapView::over(map, self.volume, network)?;
        view.take_routes(self);
        if view.text_of_tuning() != self.text_of_tuning() {
            view.check_tuning();
        }
        Some(view)
    }

    /// Takes over the routes of whole stripes for groups whose members, primary and network are those of an older view.
    fn take_routes(&self, old: &MapView) {
        let same_network = match (&self.network, &old.network) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        };
        if !same_network {
            return;
        }
        let bricks = |group: &GroupView| group.slots.iter().map(|slot| slot.brick).collect::<Vec<_>>();
        for (ours, theirs) in self.groups.iter().zip(&old.groups) {
            if let Some(route) = theirs.write_route.get()
                && ours.primary == theirs.primary
                && bricks(ours) == bricks(theirs)
            {
                // It is new, so nothing is in it.
                let _ = ours.write_route.set(route.clone());
            }
        }
    }

    /// The brick that listens at an address.
    pub(super) fn brick_at(&self, address: &str) -> Option<BrickId> {
        self.addresses.iter().find(|(_, at)| *at == address).map(|(brick, _)| *brick)
    }

    /// Warns if the settings cannot be read. A newer metadata service may know more of them than this build.
    pub(crate) fn check_tuning(&self) {
        if self.tuning.is_none() {
            let tuning = self.text_of_tuning();
            tracing::warn!(tuning, "the volume's new settings are ignored: this build cannot read them");
        }
    }

    fn text_of_tuning(&self) -> &str {
        self.map.volume(self.volume).map_or("", |info| &info.tuning)
    }

    /// The epoch of a group.
    pub(crate) fn epoch(&self, group: GroupId) -> Option<Epoch> {
        self.groups.get(group.index as usize).map(|g| g.epoch)
    }

    /// The tiers, from the first to the last.
    pub(crate) fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Whether the map has the tier of an object. A tier is never removed.
    pub(crate) fn has_tier_of(&self, object: ObjectId) -> bool {
        usize::from(object.tier()) < self.tiers.len()
    }

    /// The tier of an object.
    ///
    /// # Panics
    /// If the map does not have it: no open file gets such an object (`Link::learn_tier_of`).
    pub(crate) fn tier_of(&self, object: ObjectId) -> &Tier {
        self.tiers.get(usize::from(object.tier())).expect("bytes would be cut into stripes of another size")
    }

    /// The route to a group.
    pub(crate) fn route_to(self: &Arc<MapView>, group: GroupId) -> Route {
        Route { group, epoch: self.epoch(group).unwrap_or_default(), map: self.clone() }
    }

    /// The route to a stripe's group.
    pub(crate) fn route(self: &Arc<MapView>, key: StripeKey) -> Route {
        let tier = self.tier_of(key.object);
        let extent = tier.geometry.extent(key.stripe);
        self.route_to(layout::group_of(self.volume, key.object, extent, &tier.groups))
    }

    /// The groups in which new files should begin, in ascending order; empty for any. `is_here` says whether a host is this
    /// machine.
    pub(super) fn near_groups(&self, is_here: impl Fn(&str) -> bool) -> &[u32] {
        self.near_groups.get_or_init(|| {
            if !self.map.volume(self.volume).is_some_and(|info| info.near_writer) {
                return Vec::new();
            }
            let node = |slot: &SlotConfig| self.map.brick(slot.brick).map(|brick| brick.node);
            let members = |group: &GroupView| -> Option<Members> {
                let nodes = group.slots.iter().map(node).collect::<Option<_>>()?;
                Some(Members { nodes, primary: group.primary? })
            };
            let first_tier = self.tiers.first().map_or(0..0, |tier| tier.groups.clone());
            let groups = first_tier.zip(&self.groups).filter_map(|(at, group)| Some((at, members(group)?)));
            let network = self.network.as_deref();
            nearest_groups(network, groups, &self.map.bricks, &is_here)
        })
    }

    /// The bricks to ask which stripes of an object exist in a range: primaries, then others. `None` if a group has
    /// no primary.
    ///
    /// A parity slot has a unit of every stripe. If the primary is a data slot, no parity is live and all data slots
    /// are; then each of them must be asked, because a stripe may have a unit on any of them.
    pub(crate) fn query_targets(
        self: &Arc<MapView>,
        object: ObjectId,
        stripes: &Range<u64>,
    ) -> Option<(Vec<QueryTarget>, Vec<QueryTarget>)> {
        let (mut primaries, mut others) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        let code = self.tier_of(object).geometry.code();
        for index in self.groups_of(object, stripes) {
            let group = self.groups.get(index as usize)?;
            let primary = group.primary?;
            let asked = (GroupId { volume: self.volume, index }, group.epoch);
            primaries.entry(group.slots.get(primary)?.brick).or_default().push(asked);
            if primary < code.k() {
                let live = group.slots.iter().enumerate();
                let live = live.filter(|(at, slot)| *at != primary && slot.state == SlotState::Live);
                live.for_each(|(_, slot)| others.entry(slot.brick).or_default().push(asked));
            }
        }
        let target = |(brick, groups): (BrickId, Vec<(GroupId, Epoch)>)| {
            let route = self.route_to(groups.first()?.0);
            Some(QueryTarget { brick, address: self.address(brick)?.1.to_owned(), route, groups })
        };
        let query_targets =
            |by_brick: BTreeMap<_, _>| by_brick.into_iter().map(target).collect::<Option<Vec<_>>>();
        Some((query_targets(primaries)?, query_targets(others)?))
    }

    /// Whether some group of a range of an object's stripes has no live parity slot.
    pub(crate) fn lacks_parity(&self, object: ObjectId, stripes: &Range<u64>) -> bool {
        let code = self.tier_of(object).geometry.code();
        let primary = |index: u32| self.groups.get(index as usize).and_then(|group| group.primary);
        self.groups_of(object, stripes)
            .into_iter()
            .any(|index| primary(index).is_some_and(|at| at < code.k()))
    }

    /// The groups of a range of an object's stripes.
    fn groups_of(&self, object: ObjectId, stripes: &Range<u64>) -> BTreeSet<u32> {
        let Tier { geometry, groups, .. } = self.tier_of(object);
        let extents = geometry.extent(stripes.start)..=geometry.extent(stripes.end.saturating_sub(1));
        // This many consecutive extents use each group at least once.
        if extents.end() - extents.start() >= 2 * groups.len() as u64 {
            return groups.clone().collect();
        }
        extents.map(|extent| layout::group_of(self.volume, object, extent, groups).index).collect()
    }

    pub(super) fn address(&self, brick: BrickId) -> Option<(BrickId, &str)> {
        Some((brick, self.addresses.get(&brick)?.as_str()))
    }

    /// Whether a brick holds a lease.
    pub(super) fn is_up(&self, brick: BrickId) -> bool {
        self.map.is_up(brick)
    }

    /// The bricks that hold leases, and their addresses.
    pub(super) fn bricks_up(&self) -> impl Iterator<Item = (BrickId, &str)> {
        let up = self.map.bricks.iter().filter(|brick| brick.state == BrickState::Up);
        up.map(|brick| (brick.id, &*brick.address))
    }
}

/// A brick to ask for the stripes of some groups.
pub(crate) struct QueryTarget {
    pub(crate) brick: BrickId,
    pub(crate) address: String,
    /// The route to the first of its groups.
    pub(crate) route: Route,
    pub(crate) groups: Vec<(GroupId, Epoch)>,
}

/// The route to a group, in one version of the map.
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

    /// The bricks that may pass a request on to `brick`, and their addresses: those of the group's other live slots; if there is
    /// none, all others that hold leases. None that `is_silent`.
    pub(crate) fn others(&self, brick: BrickId, is_silent: impl Fn(BrickId) -> bool) -> Vec<(BrickId, &str)> {
        let is_wanted = |other: &BrickId| *other != brick && self.map.is_up(*other) && !is_silent(*other);
        let slots = self.view().map_or(&[][..], |group| &group.slots).iter();
        let members = slots.filter(|slot| slot.state == SlotState::Live).map(|slot| slot.brick);
        let members: Vec<_> = members.filter(is_wanted).filter_map(|other| self.map.address(other)).collect();
        if !members.is_empty() {
            return members;
        }
        self.map.bricks_up().filter(|(other, _)| is_wanted(other)).collect()
    }

    /// The brick of a slot and its address, if the slot is live.
    pub(crate) fn live(&self, slot: usize) -> Option<(BrickId, &str)> {
        let slot = self.view()?.slots.get(slot)?;
        if slot.state == SlotState::Live { self.map.address(slot.brick) } else { None }
    }

    /// By which route a whole stripe goes to its bricks; directly where the network is unknown. `is_here` says whether a host is
    /// this machine.
    pub(crate) fn write_route(&self, encode: Encode, is_here: impl Fn(&str) -> bool) -> &WriteRoute {
        const DIRECT: &WriteRoute = &WriteRoute::Direct;
        let (Some(network), Some(group)) = (&self.map.network, self.view()) else { return DIRECT };
        group.write_route.get_or_init(|| {
            let code = self.map.map.volume(self.map.volume).map(|info| info.code_of(self.group.index));
            let node = |slot: &SlotConfig| self.map.map.brick(slot.brick).map(|brick| brick.node);
            let members: Option<Vec<NodeId>> = group.slots.iter().map(node).collect();
            let (Some(code), Some(members), Some(primary)) = (code, members, group.primary) else {
                return WriteRoute::Direct;
            };
            network.write_route(encode, code, &members, primary, &self.map.map.bricks, is_here)
        })
    }

    /// Whether the primary can decode what a brick does not send.
    pub(crate) fn can_decode(&self) -> bool {
        self.view().is_some_and(|group| group.can_decode)
    }

    /// The slots whose bricks are such as `is` says, one bit for each.
    pub(crate) fn slots_where(&self, is: impl Fn(BrickId) -> bool) -> u64 {
        let slots = self.view().map_or(&[][..], |group| &group.slots).iter().enumerate();
        slots.filter(|(_, slot)| is(slot.brick)).fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// The version of the map that this route uses.
    pub(crate) fn map_version(&self) -> MapVersion {
        self.map.version
    }
}

#[cfg(test)]
mod tests {
    use types::messages::cluster::{MapReply, MapUpdate, VolumeInfo};
    use types::{ClusterId, Geometry};

    use super::*;

    fn map(version: u64, tuning: &str) -> ClusterMap {
        let code = Code::new(1, 0).expect("a code");
        let volume = VolumeInfo {
            id: VolumeId(1),
            name: "v".into(),
            geometry: Geometry::new(code, 4096, 1).expect("a geometry"),
            groups: Vec::new(),
            same_node: true,
            block: None,
            tuning: tuning.into(),
            class: None,
            tiers: Vec::new(),
            placement: None,
            near_writer: false,
        };
        let version = MapVersion(version);
        ClusterMap { version, volumes: vec![volume], ..ClusterMap::empty(ClusterId::default()) }
    }

    fn after(view: &MapView, map: ClusterMap) -> MapView {
        let mut fetch = MapFetch::new(view.version, Some(VolumeId(1)));
        assert!(fetch.answered(MapReply { update: Some(MapUpdate::whole(map)) }));
        view.with(fetch).expect("it has the volume")
    }

    #[test]
    fn settings_that_cannot_be_read_are_none_and_the_map_is_used_all_the_same() {
        let view = MapView::new(map(1, "read-ahead=off"), VolumeId(1)).expect("it has the volume");
        assert_eq!(view.tuning.map(|tuning| tuning.to_string()), Some("read-ahead=off".into()));
        let view = after(&view, map(2, "prefetch=off"));
        assert_eq!((view.version, view.tuning), (MapVersion(2), None));
        let view = after(&view, map(3, ""));
        assert_eq!(view.tuning, Some(Tuning::default()));
    }
}
