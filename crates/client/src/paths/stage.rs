//! Stages a whole stripe: the client encodes it, computes the checksums, and sends each unit to its brick: directly, or along a
//! tree of the group's members.
//!
//! ```text
//!   stripe ──▶ K units (slices of the gathered bytes) + M of parity ──▶ Stage to the brick of each live slot, at once
//!                            where the network makes it worth its while: Relay to some of them, which send on the rest
//!                                                                          all have answered: Write without payload
//!                                                                          any has not: Write with payload, as ever
//! ```
//!
//! Only that `Write` is ordered. So if staging fails, the stripe goes through its primary.

use futures_util::future::{Either, join_all, select};
use layout::{Relay, WriteRoute};
use types::checksum::crc_blocks;
use types::limits::{HEARTBEAT_US, LEASE_MARGIN_US, LEASE_US};
use types::messages::brick::{self, RelayMember, Stage};
use types::{BrickId, Buf, BufMut};
use world::CallError;

use crate::paths::Io;
use crate::paths::write::OutgoingWrite;
use crate::state::counters::Counter;
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
        let live: Vec<(usize, BrickId)> =
            (0..code.slots()).filter_map(|slot| Some((slot, outgoing.route.live(slot)?.0))).collect();
        let is_silent = |&(slot, brick): &(usize, BrickId)| {
            let address = outgoing.route.live(slot).map(|(_, address)| address);
            address.is_some_and(|address| self.link.leave_if_unreached(brick, address))
                || self.link.routes.is_suspect(brick, now)
        };
        if live.iter().any(is_silent) {
            return false;
        }
        let subtrees: Vec<Vec<(usize, u8)>> = match self.write_route(outgoing) {
            WriteRoute::Relay(tree) if live.len() == code.slots() && self.link.routes.may_use_trees(now) => {
                subtrees(tree)
            }
            _ => live.into_iter().map(|(slot, _)| vec![(slot, 0)]).collect(),
        };
        let is_relayed = subtrees.iter().any(|subtree| subtree.len() > 1);
        let units = self.units(outgoing, stripe, &subtrees);
        let sends = subtrees.iter().map(|subtree| self.send_subtree(file, outgoing, subtree, stripe, &units));
        let all = std::pin::pin!(self.link.world.timeout(STAGE_US, join_all(sends)));
        let moved = std::pin::pin!(self.link.routes.epoch_changed(&outgoing.route));
        let staged = match select(all, moved).await {
            Either::Left((Some(staged), _)) => staged.into_iter().all(|staged| staged),
            // The bricks are too slow, or the group has another epoch.
            Either::Left((None, _)) | Either::Right(_) => false,
        };
        if is_relayed {
            match staged {
                true => self.link.routes.counts.count(Counter::RelayedStripes, 1),
                false => self.link.routes.tree_failed(self.link.world.now()),
            }
        }
        staged
    }

    /// Sends the units of a part of the tree to its first member: slots, each with the place in the part of who sends to it.
    async fn send_subtree(
        &self,
        file: &OpenFile,
        outgoing: &OutgoingWrite,
        subtree: &[(usize, u8)],
        stripe: &Buf,
        units: &[Buf],
    ) -> bool {
        let (first, epoch) = (subtree[0].0, outgoing.route.epoch);
        let Some((brick, address)) = outgoing.route.live(first) else { return false };
        let (group, key, seq) = (outgoing.route.group, outgoing.key, outgoing.seq);
        let client = self.link.routes.lease.client();
        let answer = if subtree.len() == 1 {
            let unit = units[first].clone();
            let stage = Stage { group, key, client, seq, slot: first as u8, crcs: crc_blocks(&unit) };
            self.layer_counts.write_brick(&file.layer_counts, unit.len());
            let call = self.link.peers.call(address, epoch, &stage, unit);
            self.link.watched(&outgoing.route, (brick, address), call).await.map(drop)
        } else {
            let k = self.link.routes.geometry_of(key.object).code().k();
            let bytes = if subtree.len() > k { stripe.clone() } else { joined(subtree, units) };
            let members = subtree.iter().map(|&(slot, source)| RelayMember { slot: slot as u8, source });
            let members = members.collect();
            let relay = brick::Relay { group, key, client, seq, members, crcs: crc_blocks(&bytes) };
            self.layer_counts.write_brick(&file.layer_counts, bytes.len());
            let call = self.link.peers.call(address, epoch, &relay, bytes);
            self.link.watched(&outgoing.route, (brick, address), call).await.map(drop)
        };
        if let Err(error) = &answer {
            tracing::debug!(%key, slot = first, %error, "not staged");
            if *error == CallError::Unreachable && !self.link.routes.is_old(&outgoing.route) {
                self.link.routes.suspect(brick, self.link.world.now());
            }
        }
        answer.is_ok()
    }

    /// The units of a whole stripe: slices of its bytes, then parity; no parity if members compute all of it.
    fn units(&self, outgoing: &OutgoingWrite, stripe: &Buf, subtrees: &[Vec<(usize, u8)>]) -> Vec<Buf> {
        let geometry = self.link.routes.geometry_of(outgoing.key.object);
        let (code, unit) = (geometry.code(), geometry.unit());
        let data = (0..code.k()).map(|i| stripe.slice(i * unit..(i + 1) * unit));
        if subtrees.iter().all(|subtree| subtree.len() > code.k()) {
            return data.collect();
        }
        let data: Vec<Buf> = data.collect();
        let mut parity: Vec<BufMut> = (0..code.m()).map(|_| BufMut::dirty(unit)).collect();
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &**unit).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        self.coders.of(code).encode(&inputs, &mut outputs);
        data.into_iter().chain(parity.into_iter().map(BufMut::freeze)).collect()
    }
}

/// The parts of a tree to whose first members the client sends: slots, each after the one that sends to it, with the place of that
/// one in the part.
fn subtrees(tree: &Relay) -> Vec<Vec<(usize, u8)>> {
    let behind = |source: Option<usize>| {
        let steps = tree.steps.iter().enumerate();
        steps.filter(move |(_, step)| step.source == source).map(|(slot, _)| slot)
    };
    let subtree = |first: usize| {
        let mut part = vec![(first, 0)];
        let mut at = 0;
        while let Some(&(slot, _)) = part.get(at) {
            part.extend(behind(Some(slot)).map(|slot| (slot, at as u8)));
            at += 1;
        }
        part
    };
    behind(None).map(subtree).collect()
}

/// The units of some slots as one payload.
fn joined(subtree: &[(usize, u8)], units: &[Buf]) -> Buf {
    let unit = units[0].len();
    let mut bytes = BufMut::dirty(subtree.len() * unit);
    for ((slot, _), to) in subtree.iter().zip(bytes.chunks_exact_mut(unit)) {
        to.copy_from_slice(&units[*slot]);
    }
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::RelayStep;

    #[test]
    fn a_tree_is_sent_part_by_part() {
        let step = |source| RelayStep { source, units: 1 };
        // 3 and 1 come from the client; 0 from 3, 4 from 0, 2 from 3.
        let tree = Relay { steps: vec![step(Some(3)), step(None), step(Some(3)), step(None), step(Some(0))] };
        assert_eq!(subtrees(&tree), [vec![(1, 0)], vec![(3, 0), (0, 0), (2, 0), (4, 1)]]);
    }
}
