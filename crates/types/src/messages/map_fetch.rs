//! Fetches changes of the cluster map.

use super::cluster::{ClusterMap, MapGet, MapReply, MapUpdate};
use crate::{MapVersion, VolumeId};

/// Brings a map up to date: send [`MapFetch::request`], pass the answer to [`MapFetch::answered`], and repeat until
/// that returns true. Then [`MapFetch::apply`] changes the map.
#[derive(Debug)]
pub struct MapFetch {
    asked: MapGet,
    parts: Vec<MapUpdate>,
}

impl MapFetch {
    /// For a caller that has version `have` and is interested in one volume or in all.
    pub fn new(have: MapVersion, volume: Option<VolumeId>) -> MapFetch {
        MapFetch { asked: MapGet { have, volume, rest: None }, parts: Vec::new() }
    }

    /// The next request.
    pub fn request(&self) -> &MapGet {
        &self.asked
    }

    /// Takes an answer; true if it was the last one.
    pub fn answered(&mut self, reply: MapReply) -> bool {
        let Some(news) = reply.update else { return true };
        // The parts of a whole map were made at different times. So the changes since the first part are fetched at
        // the end.
        let alone = news.rest.is_none() && self.asked.rest.is_none();
        (self.asked.have, self.asked.rest) = (news.version, news.rest);
        self.parts.push(news);
        alone
    }

    /// Whether the fetched map is newer than `version`.
    pub fn is_newer_than(&self, version: MapVersion) -> bool {
        !self.parts.is_empty() && self.asked.have > version
    }

    /// Applies the fetched parts to `map`, unless it is at least as new.
    pub fn apply(self, map: &mut ClusterMap) {
        if self.is_newer_than(map.version) {
            self.parts.into_iter().for_each(|news| map.take(news));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::cluster::{GroupChange, GroupConfig, VolumeInfo};
    use crate::{ClusterId, Code, Epoch, Geometry, GroupId};

    fn news(version: u64, whole: bool, volumes: &[u32], rest: Option<u32>) -> MapUpdate {
        let volume = |id: &u32| VolumeInfo {
            id: VolumeId(*id),
            name: format!("v{id} of {version}"),
            geometry: Geometry::new(Code::new(1, 0).expect("a code"), 4096, 1).expect("a geometry"),
            groups: vec![GroupConfig { epoch: Epoch(1), slots: Vec::new() }],
            same_node: true,
            block: None,
            tuning: String::new(),
            class: None,
            tiers: Vec::new(),
            placement: None,
            near_writer: false,
        };
        let map = ClusterMap {
            version: MapVersion(version),
            volumes: volumes.iter().map(volume).collect(),
            ..ClusterMap::empty(ClusterId::default())
        };
        MapUpdate { whole, rest: rest.map(VolumeId), ..MapUpdate::whole(map) }
    }

    fn names(map: &ClusterMap) -> Vec<&str> {
        map.volumes.iter().map(|volume| volume.name.as_str()).collect()
    }

    #[test]
    fn a_map_in_parts_shows_when_it_is_complete() {
        let mut map = ClusterMap::empty(ClusterId::default());
        map.take(news(1, true, &[9], None));
        let mut fetch = MapFetch::new(map.version, None);
        assert!(!fetch.answered(MapReply { update: Some(news(3, true, &[1, 2], Some(2))) }));
        assert_eq!(*fetch.request(), MapGet { have: MapVersion(3), volume: None, rest: Some(VolumeId(2)) });
        assert!(!fetch.answered(MapReply { update: Some(news(3, false, &[4], None)) }));
        assert_eq!(*fetch.request(), MapGet { have: MapVersion(3), volume: None, rest: None });
        let group = GroupId { volume: VolumeId(4), index: 0 };
        let config = GroupConfig { epoch: Epoch(7), slots: Vec::new() };
        let last = MapUpdate {
            groups: vec![GroupChange { group, config: config.clone() }],
            gone: vec![VolumeId(1)],
            ..news(5, false, &[3], None)
        };
        assert!(fetch.answered(MapReply { update: Some(last) }));
        fetch.apply(&mut map);
        assert_eq!((map.version, names(&map)), (MapVersion(5), vec!["v2 of 3", "v3 of 5", "v4 of 3"]));
        assert_eq!(map.group(group).map(|(_, found)| found), Some(&config));
    }

    #[test]
    fn what_was_fetched_for_an_older_map_changes_no_newer_one() {
        let mut map = ClusterMap::empty(ClusterId::default());
        map.take(news(6, true, &[1], None));
        for (version, newer) in [(5, false), (6, false), (7, true)] {
            let mut fetch = MapFetch::new(MapVersion(4), None);
            assert!(!fetch.is_newer_than(MapVersion(0)), "nothing has come yet");
            assert!(fetch.answered(MapReply { update: Some(news(version, false, &[2], None)) }));
            assert_eq!(fetch.is_newer_than(map.version), newer);
            fetch.apply(&mut map);
            assert_eq!(map.volumes.len(), 1 + usize::from(newer));
        }
        let mut fetch = MapFetch::new(map.version, None);
        assert!(fetch.answered(MapReply { update: None }));
        assert!(!fetch.is_newer_than(map.version));
    }
}
