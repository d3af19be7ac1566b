//! Progress of slots that are not live: how many are Out, which are being brought level, and how long that will take.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use types::messages::brick::{BrickReport, JoinReport};
use types::messages::cluster::{ClusterMap, SlotState};
use types::{BrickId, GroupId};

use crate::size::Size;

/// The slots of all groups at one moment.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Slots of all groups.
    pub(crate) slots: usize,
    /// Slots that are not live, including those that are being brought level.
    pub(crate) out: usize,
    /// Reports of primaries about slots that they bring level.
    pub(crate) joining: Vec<JoinReport>,
}

impl Progress {
    /// Counts slots in the map, and takes the bricks' reports. Reports about slots that are live by now are ignored.
    pub(crate) fn of<'a>(map: &ClusterMap, reports: impl Iterator<Item = &'a BrickReport>) -> Progress {
        let states = || map.volumes.iter().flat_map(|v| &v.groups).flat_map(|g| &g.slots).map(|s| s.state);
        let mut joining: BTreeMap<(GroupId, u8), JoinReport> = BTreeMap::new();
        for report in reports.flat_map(|report| &report.joining) {
            let slot = map.group(report.group).and_then(|(_, g)| g.slots.get(usize::from(report.slot)));
            if slot.is_some_and(|slot| slot.state != SlotState::Live && slot.brick == report.brick) {
                joining.insert((report.group, report.slot), report.clone());
            }
        }
        Progress {
            slots: states().count(),
            out: states().filter(|state| *state != SlotState::Live).count(),
            joining: joining.into_values().collect(),
        }
    }

    /// The progress of the slots of one brick.
    pub(crate) fn of_brick(self, map: &ClusterMap, brick: BrickId) -> Progress {
        let slots = || map.volumes.iter().flat_map(|v| &v.groups).flat_map(|g| &g.slots);
        let of_brick = || slots().filter(|slot| slot.brick == brick);
        Progress {
            slots: of_brick().count(),
            out: of_brick().filter(|slot| slot.state != SlotState::Live).count(),
            joining: self.joining.into_iter().filter(|join| join.brick == brick).collect(),
        }
    }

    /// One line of text: how many slots are live, and the progress of the others.
    pub(crate) fn line(&self) -> String {
        match (self.out, self.joining.len()) {
            (0, _) => format!("all {} slots are live", self.slots),
            (out, joining) => {
                let bytes = Size(self.joining.iter().map(|join| join.bytes).sum());
                let left = self.joining.iter().filter_map(left_us).max();
                let left = left.map_or(String::new(), |us| format!(", {} left", duration(us)));
                let filled = if joining > 0 { format!(" ({bytes} filled{left})") } else { String::new() };
                format!("{out} of {} slots out, {joining} being brought level{filled}", self.slots)
            }
        }
    }

    /// A line for each slot that is being brought level.
    pub(crate) fn rows(&self, map: &ClusterMap) -> Vec<Vec<String>> {
        if self.joining.is_empty() {
            return Vec::new();
        }
        let head = ["joining", "slot", "brick", "level", "filled", "left"];
        let row = |join: &JoinReport| {
            vec![
                group_name(map, join.group),
                join.slot.to_string(),
                join.brick.to_string(),
                per_cent(join).map_or("-".into(), |per_cent| format!("{per_cent} %")),
                Size(join.bytes).to_string(),
                left_us(join).map_or("-".into(), duration),
            ]
        };
        std::iter::once(head.map(str::to_owned).to_vec()).chain(self.joining.iter().map(row)).collect()
    }

    /// The same as JSON.
    pub(crate) fn document(&self, map: &ClusterMap) -> Value {
        let joining = self.joining.iter().map(|join| {
            json!({
                "volume": map.volume(join.group.volume).map(|volume| volume.name.clone()),
                "group": join.group.index,
                "slot": join.slot,
                "brick": join.brick.to_string(),
                "per_cent": per_cent(join),
                "stripes": join.stripes,
                "compared": join.compared,
                "filled": join.filled,
                "bytes": join.bytes,
                "age_us": join.age,
                "left_us": left_us(join),
            })
        });
        json!({ "slots": self.slots, "out": self.out, "joining": joining.collect::<Vec<_>>() })
    }
}

/// The name of a group for people.
pub(crate) fn group_name(map: &ClusterMap, id: GroupId) -> String {
    map.volume(id.volume).map_or_else(|| id.to_string(), |volume| format!("{}/g{}", volume.name, id.index))
}

/// The share of a slot's group that has been compared. `None` while the total is not known.
fn per_cent(join: &JoinReport) -> Option<u64> {
    (join.stripes > 0).then(|| (join.compared.min(join.stripes) * 100) / join.stripes)
}

/// Remaining time at the present speed. `None` while it cannot be estimated.
fn left_us(join: &JoinReport) -> Option<u64> {
    if join.compared == 0 || join.stripes < join.compared {
        return None;
    }
    let left = u128::from(join.age) * u128::from(join.stripes - join.compared) / u128::from(join.compared);
    u64::try_from(left).ok()
}

/// A time as text: `9 s`, `12 min`, `3 h 20 min`.
fn duration(us: u64) -> String {
    match us.div_ceil(1_000_000) {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s.div_ceil(60)),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::messages::cluster::{GroupConfig, SlotConfig, VolumeInfo};
    use types::{ClusterId, Epoch, Geometry, VolumeId};

    fn map() -> ClusterMap {
        let slot = |id, state| SlotConfig { brick: BrickId(id), state };
        let (live, out) = (SlotState::Live, SlotState::Out);
        let volume = VolumeInfo {
            id: VolumeId(1),
            name: "main".into(),
            geometry: Geometry::new("1+2".parse().expect("a code"), 4096, 64).expect("a geometry"),
            groups: vec![
                GroupConfig { epoch: Epoch(2), slots: vec![slot(1, live), slot(2, out), slot(3, live)] },
                GroupConfig { epoch: Epoch(2), slots: vec![slot(2, out), slot(3, live), slot(4, out)] },
            ],
            same_node: false,
            block: None,
            tuning: String::new(),
            class: None,
            tiers: Vec::new(),
            placement: None,
            near_writer: false,
        };
        ClusterMap { volumes: vec![volume], ..ClusterMap::empty(ClusterId::default()) }
    }

    fn join(index: u32, slot: u8, brick: u32, compared: u64) -> JoinReport {
        let group = GroupId { volume: VolumeId(1), index };
        let (stripes, filled, bytes, age) = (200, 10, 3 << 20, 5_000_000);
        JoinReport { group, slot, brick: BrickId(brick), stripes, compared, filled, bytes, age }
    }

    fn report(joining: Vec<JoinReport>) -> BrickReport {
        let mut n = 0;
        BrickReport { joining, ..types::wire::Codec::sample(&mut n) }
    }

    #[test]
    fn what_is_lost_and_what_comes_back_is_counted() {
        let map = map();
        // Slot 0 of the first group is live by now, and slot 2 of the second is another brick's.
        let said = [report(vec![join(0, 1, 2, 50), join(0, 0, 1, 199)]), report(vec![join(1, 2, 9, 3)])];
        let progress = Progress::of(&map, said.iter());
        assert_eq!(progress.line(), "3 of 6 slots out, 1 being brought level (3 MiB filled, 15 s left)");
        assert_eq!(progress.rows(&map)[1], ["main/g0", "1", "b2", "25 %", "3 MiB", "15 s"]);
        let document = progress.document(&map);
        assert_eq!((&document["out"], &document["joining"][0]["left_us"]), (&json!(3), &json!(15_000_000)));
        let of_4 = progress.of_brick(&map, BrickId(4));
        assert_eq!(of_4.line(), "1 of 1 slots out, 0 being brought level");
        assert!(of_4.rows(&map).is_empty());
        let of_1 = of_4.of_brick(&map, BrickId(1));
        assert_eq!(of_1.line(), "all 1 slots are live");
    }

    #[test]
    fn nothing_is_said_of_what_cannot_be_known() {
        assert_eq!(left_us(&join(0, 1, 2, 0)), None);
        assert_eq!(left_us(&join(0, 1, 2, 201)), None, "stripes were not all counted");
        assert_eq!(per_cent(&join(0, 1, 2, 201)), Some(100));
        assert_eq!(per_cent(&JoinReport { stripes: 0, ..join(0, 1, 2, 0) }), None);
        assert_eq!((duration(400), duration(121_000_000)), ("1 s".into(), "3 min".into()));
        assert_eq!(duration(12_000_000_000), "3 h 20 min");
    }
}
