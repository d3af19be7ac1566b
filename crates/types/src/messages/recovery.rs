//! How a metadata service that was restored from a backup learns what bricks know.

use super::cluster::GroupConfig;
use crate::{BrickId, Epoch, GroupId, records};

records! {
    names REQUESTS;
    /// A group, and the least epoch that may still be promised for it.
    part GroupFloor {
        /// The group.
        group: GroupId,
        /// The epoch.
        floor: Epoch,
    }
    /// What a slot knows of a group's configuration.
    part HeldGroup {
        /// The group.
        group: GroupId,
        /// The epoch that it has promised last.
        promised: Epoch,
        /// The configuration of this epoch. [`None`] if a build made the promise that did not keep it.
        config: Option<GroupConfig>,
        /// The least epoch that it may still promise.
        floor: Epoch,
    }
    /// A metadata service that was restored from a backup, to a brick: which configurations has it promised last? It promises
    /// nothing below the floors from now on, durably. At most [`RECOVER_MAX`](crate::limits::RECOVER_MAX) groups.
    139 RecoverGroups {
        /// The groups.
        groups: Vec<GroupFloor>,
    } => GroupsRecovered;
    /// Those of the groups of which the brick has ever promised anything.
    140 GroupsRecovered {
        /// The groups.
        groups: Vec<HeldGroup>,
    };
    /// What a restored metadata service still has to learn from bricks.
    part RecoveryReport {
        /// Groups whose configuration is not known yet.
        groups: u32,
        /// Those of them of which every brick has told what it knows, and none knows the last configuration.
        unclear: u32,
        /// Bricks that have not told everything yet.
        waits_for: Vec<BrickId>,
        /// Groups that have gone on although as many bricks were given up as one configuration needs: their last writes may be
        /// lost.
        doubtful: u32,
    }
}
