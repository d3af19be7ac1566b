//! How full bricks are, as far as is known here: writers wait and primaries fold because of it.

use types::messages::brick::Flush;
use types::{BrickId, Buf, Epoch};

use crate::server::Server;

/// How long a brick may take to tell, in microseconds.
const TELL_US: u64 = 1_000_000;
/// How old what is known of a brick may be before it is asked again, in microseconds.
const OLD_US: u64 = 50_000;

/// How full another brick is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    /// Bytes that it has room for.
    pub(crate) free: u64,
    /// How much of the room for overlays is taken, in per cent.
    pub(crate) journal_fill: u8,
    /// When it was told, or last asked for, in the world's microseconds.
    pub(crate) at: u64,
}

impl Server {
    /// How much of a brick's room for overlays is taken, in per cent: of this one now, of another as it told last.
    pub(crate) fn fill_of(&self, brick: BrickId) -> u8 {
        if brick == self.options.brick {
            return self.fill();
        }
        self.pressure.borrow().get(&brick).map_or(0, |known| known.journal_fill)
    }

    /// Bytes that a brick has room for: this one now, another as it told last; without bound if it has not.
    pub(crate) fn free_of(&self, brick: BrickId) -> u64 {
        if brick == self.options.brick {
            return self.free_bytes();
        }
        self.pressure.borrow().get(&brick).map_or(u64::MAX, |known| known.free)
    }

    /// Notes what a brick has told. Of this one that would soon be wrong, and nobody would tell it anew.
    pub(crate) fn note_pressure(&self, brick: BrickId, free: u64, journal_fill: u8) {
        if brick != self.options.brick {
            let pressure = Pressure { free, journal_fill, at: self.world.now() };
            self.pressure.borrow_mut().insert(brick, pressure);
        }
    }

    /// Asks another brick how full it is, if what is known is old and nobody is asking.
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

    /// Asks a brick how full it is; what it holds is durable then, and may make room.
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
