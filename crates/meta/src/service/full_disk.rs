//! The disk of the store is full. What was committed can be read; the journal has its room, and takes what the service cannot do
//! without; changes of clients are refused with [`Refusal::NoSpace`](types::Refusal::NoSpace), so that they get their error at
//! once. When there is room again, all goes on.
//!
//! ```text
//! journal   half 0: frozen, on its way to the engine, which waits for room
//!           half 1: | removals, cuts, sizes, leases, epochs, ... | sizes, leases, epochs, ... |
//!                   0                                           3/4                           1: they wait
//! ```

use std::cell::Cell;

use super::Shared;
use crate::kv::Journal;
use crate::state::Space;

/// See the module.
#[derive(Default)]
pub(super) struct FullDisk {
    /// The engine waits for room.
    is_engine_full: Cell<bool>,
    /// The journal waits for room.
    is_journal_full: Cell<bool>,
    /// The rest of the journal's half is kept.
    is_rest_kept: Cell<bool>,
}

impl FullDisk {
    /// A record is in the journal, or the journal has gone to its other half.
    pub(super) fn appended(&self, shared: &Shared, journal: &Journal) {
        if self.is_journal_full.replace(false) {
            tracing::info!("there is room for the metadata journal again");
        }
        self.is_rest_kept.set(journal.left() < journal.half_len() / 4);
        self.update(shared);
    }

    /// The journal waits for room: its file system needs more to write over what is there.
    pub(super) fn journal_is_full(&self, shared: &Shared) {
        if !self.is_journal_full.replace(true) {
            tracing::error!("no space left for the metadata journal: changes wait until there is room");
        }
        self.update(shared);
    }

    /// The engine waits for room. A leader leads on: it still answers reads and renews leases, and the next one may be full too.
    pub(super) fn engine_is_full(&self, shared: &Shared) {
        if !self.is_engine_full.replace(true) {
            tracing::error!(
                "no space left on the disk of the metadata store: changes are refused until there is room"
            );
            self.update(shared);
        }
    }

    /// The engine has what it waited to take.
    pub(super) fn engine_has_room(&self, shared: &Shared) {
        if self.is_engine_full.replace(false) {
            tracing::info!("there is room on the disk of the metadata store again");
            self.update(shared);
        }
    }

    fn update(&self, shared: &Shared) {
        let is_full = self.is_engine_full.get();
        let space = match (self.is_journal_full.get(), is_full, self.is_rest_kept.get()) {
            (true, ..) | (_, true, true) => Space::Full,
            (_, true, false) => Space::Scarce,
            _ => Space::Free,
        };
        shared.state.borrow_mut().space = space;
    }
}
