//! A client lets a stripe go along a tree of its members: each keeps its unit and sends on those of the members behind it.
//!
//! ```text
//!   client ── Relay: units of A, B, C ──▶ A ── Stage: unit of B ──▶ B
//!                                         │
//!                                         └─── Stage: unit of C ──▶ C          Done goes back the same way
//! ```
//!
//! What arrives is staged as if the client had sent it ([`Stage`]): the tree is no part of the protocol. If a member dies in the
//! middle, the client sends the stripe through its primary. The checksums of what came are the client's, so a member that sends
//! on other bytes is noticed by the next one. A member that says done and has sent on nothing is noticed by the primary: slots
//! refuse to adopt what is not staged. Parity that a member computes has the member's checksums: as for a primary that encodes, it
//! is trusted to compute; so it is trusted not to exchange bytes together with their checksums.

use futures_util::future::{join, join_all};
use types::checksum::crc_blocks;
use types::code_probe::{CodeProbe, hit};
use types::messages::Done;
use types::messages::brick::{Relay, RelayMember, Stage};
use types::{BrickId, Buf, BufMut, Code, Epoch, Geometry, GroupId, Refusal};

use crate::server::Server;

/// How long the members behind this one may take, in microseconds. The client waits longer than that.
const BEHIND_US: u64 = 4_000_000;

impl Server {
    /// Stages this brick's unit, and sends on the others'.
    pub(crate) async fn relay(&self, epoch: Epoch, relay: Relay, payload: Buf) -> Result<Done, Refusal> {
        self.check_lease(relay.group.volume)?;
        self.check_writer(relay.client, relay.group)?;
        let geometry = self.tier(relay.group)?.geometry;
        let subtree = Subtree::new(&relay, geometry, &payload)?;
        self.check_served(relay.group, epoch)?;
        let slots = relay.members.iter().map(|member| member.slot);
        let bricks = self.bricks_of_slots(relay.group, epoch, slots)?;
        if bricks[0] != self.options.brick {
            return Err(Refusal::Malformed);
        }
        let units = self.units_of(&subtree);
        let own = self.stage(epoch, subtree.stage(&relay, 0, &units), units[0].clone());
        let behind = subtree.children().into_iter().map(|members| {
            let brick = bricks[members[0]];
            self.send_on(brick, epoch, &relay, &subtree, members, &units)
        });
        let (own, behind) = join(own, join_all(behind)).await;
        own?;
        behind.into_iter().collect::<Result<Vec<()>, Refusal>>()?;
        hit(CodeProbe::Relayed);
        Ok(Done {})
    }

    /// The bricks of slots of a group, in this epoch.
    pub(super) fn bricks_of_slots(
        &self,
        group: GroupId,
        epoch: Epoch,
        slots: impl Iterator<Item = u8>,
    ) -> Result<Vec<BrickId>, Refusal> {
        let map = self.map_of(group.volume);
        let (_, config) = map.group(group).ok_or(Refusal::NotServing)?;
        if config.epoch != epoch {
            return Err(Refusal::StaleEpoch);
        }
        let brick = |slot: u8| config.slots.get(usize::from(slot)).map(|slot| slot.brick);
        slots.map(brick).collect::<Option<_>>().ok_or(Refusal::Malformed)
    }

    /// The unit of each member: as they came, or computed from the data units.
    fn units_of(&self, subtree: &Subtree<'_>) -> Vec<Buf> {
        let Subtree { code, unit, members, payload, .. } = *subtree;
        let slice = |at: usize| payload.slice(at * unit..(at + 1) * unit);
        if !subtree.is_whole() {
            return (0..members.len()).map(slice).collect();
        }
        let data: Vec<Buf> = (0..code.k()).map(slice).collect();
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &**unit).collect();
        let mut parity: Vec<BufMut> = (0..code.m()).map(|_| BufMut::dirty(unit)).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        self.coder(code).encode(&inputs, &mut outputs);
        let parity: Vec<Buf> = parity.into_iter().map(BufMut::freeze).collect();
        let of_slot = |member: &RelayMember| match usize::from(member.slot).checked_sub(code.k()) {
            None => data[usize::from(member.slot)].clone(),
            Some(at) => parity[at].clone(),
        };
        members.iter().map(of_slot).collect()
    }

    /// Sends a part of the tree to its first member.
    async fn send_on(
        &self,
        brick: BrickId,
        epoch: Epoch,
        relay: &Relay,
        subtree: &Subtree<'_>,
        members: Vec<usize>,
        units: &[Buf],
    ) -> Result<(), Refusal> {
        let address = self.address_in(relay.group.volume, brick).ok_or(Refusal::Unknown)?;
        let sent = if let [only] = *members {
            let stage = subtree.stage(relay, only, units);
            self.peers.call_within(BEHIND_US, &address, epoch, &stage, units[only].clone()).await.map(drop)
        } else {
            let (part, bytes) = subtree.part(relay, &members, units);
            self.peers.call_within(BEHIND_US, &address, epoch, &part, bytes).await.map(drop)
        };
        sent.map_err(|error| {
            hit(CodeProbe::RelayFailed);
            tracing::debug!(key = %relay.key, %brick, %error, "units of a stripe were not sent on");
            Refusal::NotStaged
        })
    }
}

/// A part of a tree as it has come, checked.
struct Subtree<'a> {
    code: Code,
    /// Bytes of a unit.
    unit: usize,
    /// Blocks of a unit.
    blocks: usize,
    members: &'a [RelayMember],
    crcs: &'a [u32],
    payload: &'a Buf,
}

impl<'a> Subtree<'a> {
    fn new(relay: &'a Relay, geometry: Geometry, payload: &'a Buf) -> Result<Subtree<'a>, Refusal> {
        let (code, members) = (geometry.code(), &*relay.members);
        let sources = (0..).zip(members).all(|(at, member)| match at {
            0 => member.source == 0,
            at => usize::from(member.source) < at,
        });
        let mut slots: Vec<u8> = members.iter().map(|member| member.slot).collect();
        slots.sort_unstable();
        let distinct = slots.windows(2).all(|pair| pair[0] != pair[1]);
        let within = slots.last().is_some_and(|slot| usize::from(*slot) < code.slots());
        let units = members.len().min(code.k());
        let is_whole =
            payload.len() == units * geometry.unit() && relay.crcs.len() == units * geometry.unit_blocks();
        if !(sources && distinct && within && is_whole) {
            return Err(Refusal::Malformed);
        }
        let (unit, blocks) = (geometry.unit(), geometry.unit_blocks());
        Ok(Subtree { code, unit, blocks, members, crcs: &relay.crcs, payload })
    }

    /// Whether the payload is the data units of the stripe.
    fn is_whole(&self) -> bool {
        self.members.len() > self.code.k()
    }

    /// The members behind the first one, by who is asked next: the places in the list of each part of the tree.
    fn children(&self) -> Vec<Vec<usize>> {
        // The part of the tree that each member is in, by its first member.
        let mut first: Vec<usize> = (0..self.members.len()).collect();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for at in 1..self.members.len() {
            let source = usize::from(self.members[at].source);
            if source == 0 {
                parts.push(vec![at]);
            } else {
                first[at] = first[source];
                let part = parts.iter_mut().find(|part| part[0] == first[at]);
                part.expect("a source is before those that it sends to").push(at);
            }
        }
        parts
    }

    /// The request that stages the unit of a member.
    fn stage(&self, relay: &Relay, at: usize, units: &[Buf]) -> Stage {
        let Relay { group, key, client, seq, .. } = *relay;
        Stage { group, key, client, seq, slot: self.members[at].slot, crcs: self.crcs_of(at, &units[at]) }
    }

    /// The checksums of a member's unit: those that came with it, if it came.
    fn crcs_of(&self, at: usize, unit: &Buf) -> Vec<u32> {
        let came = match self.is_whole() {
            true => Some(usize::from(self.members[at].slot)).filter(|slot| *slot < self.code.k()),
            false => Some(at),
        };
        match came {
            Some(at) => self.crcs[at * self.blocks..(at + 1) * self.blocks].to_vec(),
            None => crc_blocks(unit),
        }
    }

    /// The request for the members at these places, and its payload.
    fn part(&self, relay: &Relay, places: &[usize], units: &[Buf]) -> (Relay, Buf) {
        let place = |of: u8| places.iter().position(|place| *place == usize::from(of));
        let member = |&at: &usize| RelayMember {
            slot: self.members[at].slot,
            // The first one names itself.
            source: place(self.members[at].source).unwrap_or(0) as u8,
        };
        let members: Vec<RelayMember> = places.iter().map(member).collect();
        let Relay { group, key, client, seq, .. } = *relay;
        let (crcs, bytes) = if places.len() > self.code.k() {
            // The stripe's data units, as they came: only a part with more than K members has such a part.
            (self.crcs.to_vec(), self.payload.clone())
        } else {
            let mut bytes = BufMut::dirty(places.len() * self.unit);
            for (&at, to) in places.iter().zip(bytes.chunks_exact_mut(self.unit)) {
                to.copy_from_slice(&units[at]);
            }
            (places.iter().flat_map(|&at| self.crcs_of(at, &units[at])).collect(), bytes.freeze())
        };
        (Relay { group, key, client, seq, members, crcs }, bytes)
    }
}
