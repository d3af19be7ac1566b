//! The last changes of the map, in memory. Whoever has a recent version of the map gets only the changes since then.
//!
//! # Invariants
//! - Versions grow, and each version has at least one change.
//! - Every change after `since` is here.

use std::collections::{BTreeSet, VecDeque};

use types::{BrickId, GroupId, MapVersion, VolumeId};

/// Number of changes that are remembered.
const KEPT: usize = 1 << 16;

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    Brick(BrickId),
    /// The volume is new, gone, or larger.
    Volume(VolumeId),
    Group(GroupId),
    Topology,
    Shards,
}

/// The last changes, by the version of the map in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Every change of a later version is here.
    since: MapVersion,
    changes: VecDeque<(MapVersion, Changed)>,
}

impl History {
    /// An empty history that begins at this version.
    pub(super) fn from(since: MapVersion) -> History {
        History { since, changes: VecDeque::new() }
    }

    pub(super) fn add(&mut self, version: MapVersion, changed: impl IntoIterator<Item = Changed>) {
        assert!(version > self.newest(), "holders of this version would never get this change");
        self.changes.extend(changed.into_iter().map(|changed| (version, changed)));
        assert_eq!(self.newest(), version, "a version without a change would wake everybody for nothing");
        while self.changes.len() > KEPT {
            self.since = self.changes.pop_front().map_or(self.since, |(version, _)| version);
        }
    }

    /// The version of the last change.
    pub(super) fn newest(&self) -> MapVersion {
        self.changes.back().map_or(self.since, |(version, _)| *version)
    }

    /// The changes since `have`, each once; `None` if some of them are forgotten.
    pub(super) fn after(&self, have: MapVersion) -> Option<BTreeSet<Changed>> {
        let newest_first = self.changes.iter().rev();
        let newer = newest_first.take_while(|(version, _)| *version > have);
        (have >= self.since).then(|| newer.map(|(_, changed)| *changed).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_changes_are_forgotten_first() {
        let mut history = History::from(MapVersion(3));
        history.add(MapVersion(4), [Changed::Brick(BrickId(1)), Changed::Brick(BrickId(1))]);
        assert_eq!(history.after(MapVersion(2)), None);
        assert_eq!(history.after(MapVersion(3)), Some(BTreeSet::from([Changed::Brick(BrickId(1))])));
        assert_eq!(history.after(MapVersion(4)), Some(BTreeSet::new()));
        history.add(MapVersion(5), (0..KEPT as u32 - 1).map(|brick| Changed::Brick(BrickId(brick))));
        assert_eq!(history.changes.len(), KEPT);
        assert_eq!(history.after(MapVersion(3)), None, "a part of version 4 is gone");
        assert!(history.after(MapVersion(4)).is_some());
    }
}
