//! The only place where the configuration of a group changes.
//!
//! # Invariants
//! - Every configuration has an epoch of its own, the one after the last.
//! - One epoch admits slots or expels slots, never both.
//! - A group that loses a live slot keeps enough of them to compute every unit.
//!
//! This covers volumes in use. Groups of deleted volumes have no primary and no readers: see `replace.rs`.

use types::Code;
use types::messages::cluster::{GroupConfig, SlotConfig};

/// Changes the slots of a group and increments its epoch.
pub(super) fn reconfigure(group: &mut GroupConfig, code: Code, change: impl FnOnce(&mut [SlotConfig])) {
    let before = group.live();
    change(&mut group.slots);
    group.epoch = group.epoch.next();
    let (admitted, expelled) = (group.live() & !before, before & !group.live());
    assert!(
        admitted == 0 || expelled == 0,
        "the take-over would find operations in progress that the admitted slot lacks"
    );
    assert!(
        expelled == 0 || group.live().count_ones() as usize >= code.k(),
        "the group would go on with too few live slots to compute its units"
    );
}

/// A group whose configuration was not known goes on with this one, in the epoch after it.
pub(super) fn resume(group: &mut GroupConfig, config: GroupConfig) {
    assert_eq!(group.live(), 0, "what is known of the group would be replaced by something older");
    assert!(config.epoch >= group.epoch, "the epoch would be one of before the restoration");
    group.slots = config.slots;
    group.epoch = config.epoch.next();
}
