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
use types::{Buf, BufMut, ObjectId};

use crate::paths::Io;
use crate::paths::write::OutgoingWrite;
use crate::state::open_file::OpenFile;

/// Timeout after which the stripe goes through its primary, in microseconds. It is longer than the lease of a silent
/// brick, because until that lease ends the primary would wait for the brick too.
const STAGE_US: u64 = 5_000_000;
const _: () = assert!(STAGE_US > LEASE_US + LEASE_MARGIN_US + HEARTBEAT_US);

impl Io {
    /// Stages a stripe's units on the bricks of its live slots. True if all of them have answered.
    pub(crate) async fn stage(&self, file: &OpenFile, outgoing: &OutgoingWrite, stripe: &Buf) -> bool {
        let now = self.link.world.now();
        let code = self.link.routes.geometry_of(outgoing.key.object).code();
        let live: Vec<(usize, _)> =
            (0..code.slots()).filter_map(|slot| Some((slot, outgoing.route.live(slot)?))).collect();
        if live.iter().any(|(_, (brick, _))| self.link.routes.is_suspect(*brick, now)) {
            return false;
        }
        let units = self.units(outgoing.key.object, stripe);
        let sends = live.into_iter().map(|(slot, (brick, address))| {
            let unit = units[slot].clone();
            let request = Stage {
                group: outgoing.route.group,
                key: outgoing.key,
                client: self.link.routes.lease.client(),
                seq: outgoing.seq,
                slot: slot as u8,
                crcs: crc_blocks(&unit),
            };
            self.layer_counts.write_brick(&file.layer_counts, unit.len());
            async move {
                let answer = self.link.peers.call(address, outgoing.route.epoch, &request, unit).await;
                if let Err(error) = &answer {
                    tracing::debug!(key = %outgoing.key, slot, %error, "not staged");
                    if *error == world::CallError::Unreachable {
                        self.link.routes.suspect(brick, self.link.world.now());
                    }
                }
                answer.is_ok()
            }
        });
        let all = std::pin::pin!(self.link.world.timeout(STAGE_US, join_all(sends)));
        let moved = std::pin::pin!(self.link.routes.epoch_changed(&outgoing.route));
        match select(all, moved).await {
            Either::Left((Some(staged), _)) => staged.into_iter().all(|staged| staged),
            // The bricks are too slow, or the group has another epoch.
            Either::Left((None, _)) | Either::Right(_) => false,
        }
    }

    /// The units of a whole stripe: slices of its bytes, then parity.
    fn units(&self, object: ObjectId, stripe: &Buf) -> Vec<Buf> {
        let geometry = self.link.routes.geometry_of(object);
        let (code, unit) = (geometry.code(), geometry.unit());
        let data: Vec<Buf> = (0..code.k()).map(|i| stripe.slice(i * unit..(i + 1) * unit)).collect();
        let mut parity: Vec<BufMut> = (0..code.m()).map(|_| BufMut::dirty(unit)).collect();
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &**unit).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        self.coders.of(code).encode(&inputs, &mut outputs);
        data.into_iter().chain(parity.into_iter().map(BufMut::freeze)).collect()
    }
}
