//! How full bricks are, as far as this brick knows. Writers wait and primaries fold accordingly.

use types::messages::brick::Flush;
use types::{BrickId, Buf, Epoch};

use crate::server::Server;

/// How long a brick may take to answer, in microseconds.
const TELL_US: u64 = 1_000_000;
/// Age of the known values of a brick from which the brick is asked again, in microseconds.
const OLD_US: u64 = 50_000;

/// How full another brick is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// Bytes that it has room for.
    pub(crate) free: u64,
    /// How much of the room for overlays is taken, in per cent.
    pub(crate) journal_fill: u8,
    /// When the values arrived, or were last asked for, in microseconds of the world's clock.
    pub(crate) at: u64,
}

impl Server {
    /// How much of a brick's room for overlays is taken, in per cent: the current value of this brick, the last known
    /// one of another.
    pub(crate) fn fill_of(&self, brick: BrickId) -> u8 {
        if brick == self.options.brick {
            return self.fill();
        }
        self.pressure.borrow().get(&brick).map_or(0, |known| known.journal_fill)
    }

    /// Bytes that a brick has room for: the current value of this brick, the last known one of another; `u64::MAX` if
    /// none is known.
    pub(crate) fn free_of(&self, brick: BrickId) -> u64 {
        if brick == self.options.brick {
            return self.free_bytes();
        }
        self.pressure.borrow().get(&brick).map_or(u64::MAX, |known| known.free)
    }

    /// Notes the values of another brick. A noted value of this brick would soon be wrong and never be refreshed.
    pub(crate) fn note_pressure(&self, brick: BrickId, free: u64, journal_fill: u8) {
        if brick != self.options.brick {
            let pressure = Pressure { free, journal_fill, at: self.world.now() };
            self.pressure.borrow_mut().insert(brick, pressure);
        }
    }

    /// Asks another brick how full it is, if the known values are old and no question is under way.
    pub(crate) async fn refresh_pressure(&self, brick: BrickId) {
        let now = self.world.now();
        {
            let mut pressure = self.pressure.borrow_mut();
            match pressure.get_mut(&brick) {
                Some(known) if known.at + OLD_US <= now => known.at = now,
                _ => return,
            }
        }
        self.ask_pressure(brick).await;
    }

    /// Asks a brick how full it is. The question also makes its held operations durable, which may free space.
    pub(crate) async fn ask_pressure(&self, brick: BrickId) {
        if brick == self.options.brick {
            if self.slot.borrow().waits_for_sync() {
                let _ = self.nudge().await;
            }
            return;
        }
        let Some(address) = self.address_of(brick) else { return };
        if let Ok((told, _)) =
            self.peers.call_within(TELL_US, &address, Epoch(0), &Flush {}, Buf::empty()).await
        {
            self.note_pressure(brick, told.free, told.journal_fill);
        }
    }
}
