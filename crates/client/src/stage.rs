//! Stages a whole stripe: the client encodes it, computes the checksums, and sends each unit directly to its brick.
//!
//! ```text
//!   stripe ──▶ K units (slices of the gathered bytes) + M of parity ──▶ Stage to the brick of each live slot, at once
//!                                                                          all have answered: Write without payload
//!                                                                          any has not: Write with payload, as ever
//! ```
//!
//! Only that `Write` is ordered. So if staging fails, the stripe goes through its primary.

use futures_util::future::{Either, join_all, select};
use types::checksum::crc_blocks;
use types::limits::{HEARTBEAT_US, LEASE_MARGIN_US, LEASE_US};
use types::messages::brick::Stage;
use types::{Buf, BufMut, Geometry};

use crate::session::Session;
use crate::write::OutgoingWrite;

/// Timeout after which the stripe goes through its primary, in microseconds. It is longer than the lease of a silent
/// brick, because until that lease ends the primary would wait for the brick too.
const STAGE_US: u64 = 5_000_000;
const _: () = assert!(STAGE_US > LEASE_US + LEASE_MARGIN_US + HEARTBEAT_US);
/// Smallest unit, in bytes, for which a message to each brick is worth its cost.
const UNIT_WORTH: usize = 16 << 10;

/// Who encodes whole stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encode {
    /// The client if that is cheaper, otherwise the primary.
    #[default]
    Auto,
    /// The client.
    Client,
    /// The primary.
    Primary,
}

impl Encode {
    /// Whether the client encodes whole stripes of this geometry.
    pub(crate) fn is_here(self, geometry: &Geometry) -> bool {
        match self {
            Encode::Auto => geometry.code().slots() > 1 && geometry.unit() >= UNIT_WORTH,
            Encode::Client => true,
            Encode::Primary => false,
        }
    }
}

impl Session {
    /// Stages a stripe's units on the bricks of its live slots. True if all of them have answered.
    pub(crate) async fn stage(&self, outgoing: &OutgoingWrite, stripe: &Buf) -> bool {
        let now = self.world.now();
        let code = self.mount.geometry().code();
        let live: Vec<(usize, _)> =
            (0..code.slots()).filter_map(|slot| Some((slot, outgoing.route.live(slot)?))).collect();
        if live.iter().any(|(_, (brick, _))| self.mount.is_suspect(*brick, now)) {
            return false;
        }
        let units = self.units(stripe);
        let sends = live.into_iter().map(|(slot, (brick, address))| {
            let unit = units[slot].clone();
            let request = Stage {
                group: outgoing.route.group,
                key: outgoing.key,
                client: self.mount.lease.client(),
                seq: outgoing.seq,
                slot: slot as u8,
                crcs: crc_blocks(&unit),
            };
            async move {
                let answer = self.peers.call(address, outgoing.route.epoch, &request, unit).await;
                if let Err(error) = &answer {
                    tracing::debug!(key = %outgoing.key, slot, %error, "not staged");
                    if *error == world::CallError::Unreachable {
                        self.mount.suspect(brick, self.world.now());
                    }
                }
                answer.is_ok()
            }
        });
        let all = std::pin::pin!(self.world.timeout(STAGE_US, join_all(sends)));
        let moved = std::pin::pin!(self.mount.epoch_changed(&outgoing.route));
        match select(all, moved).await {
            Either::Left((Some(staged), _)) => staged.into_iter().all(|staged| staged),
            // The bricks are too slow, or the group has another epoch.
            Either::Left((None, _)) | Either::Right(_) => false,
        }
    }

    /// The units of a whole stripe: slices of its bytes, then parity.
    fn units(&self, stripe: &Buf) -> Vec<Buf> {
        let geometry = self.mount.geometry();
        let (code, unit) = (geometry.code(), geometry.unit());
        let data: Vec<Buf> = (0..code.k()).map(|i| stripe.slice(i * unit..(i + 1) * unit)).collect();
        let mut parity: Vec<BufMut> = (0..code.m()).map(|_| BufMut::dirty(unit)).collect();
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &**unit).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        self.mount.coder.encode(&inputs, &mut outputs);
        data.into_iter().chain(parity.into_iter().map(BufMut::freeze)).collect()
    }
}
