//! A lost unit comes to the primary as a sum: each member on a path adds its own unit, times a factor, to what comes from the
//! member behind it.
//!
//! ```text
//!   primary ── SumUnits: A, B, C ──▶ A ── SumUnits: B, C ──▶ B ── SumUnits: C ──▶ C
//!           ◀── fA*A + fB*B + fC*C ──  ◀── fB*B + fC*C ─────  ◀── fC*C ─────────
//! ```
//!
//! Only for rebuilds, and only where the network is known, is no switch, and the path is not clearly longer than the ways to the
//! primary ([`layout::repair_path`]). Nothing is kept on the way. If anything fails, the primary gathers.
//!
//! # Invariants
//! - Each term is the base with the identity that the parity was made with, compared with its checksums where it is read.
//! - A member serves the primary's epoch, and asks the next one only for the slots that are left: a path ends.

use futures_util::future::join;
use types::code_probe::{CodeProbe, hit};
use types::messages::brick::{GroupDecision, SumTerm, SumUnits, UnitSum};
use types::{Buf, BufMut, Epoch, Refusal};
use world::CallError;

use super::read::{UnitRead, checked_range};
use super::stripe::{READ_TIMEOUT_US, Stripe};
use crate::server::Server;

/// After a path has failed, units are gathered for so long, in microseconds.
const GATHER_US: u64 = 60_000_000;

impl Server {
    /// The sum of the terms: this brick's unit, and what the slots behind it add up.
    pub(crate) async fn sum_units(&self, epoch: Epoch, sum: SumUnits) -> Result<(UnitSum, Buf), Refusal> {
        let range = checked_range(sum.offset, sum.len)?;
        let geometry = self.tier(sum.group)?.geometry;
        let slots = sum
            .terms
            .iter()
            .fold(0u64, |slots, term| slots | 1u64.checked_shl(term.slot.into()).unwrap_or(0));
        let are_distinct = slots.count_ones() as usize == sum.terms.len();
        if !are_distinct || sum.terms.len() > geometry.code().k() || range.end > geometry.unit() {
            return Err(Refusal::Malformed);
        }
        let SumUnits { group, key, offset, len, upto, .. } = sum;
        let Some((own, behind)) = sum.terms.split_first() else { return Err(Refusal::Malformed) };
        self.apply_decisions(&[GroupDecision { group, epoch, upto }]).await?;
        let read = UnitRead {
            group,
            key,
            slot: own.slot,
            range: range.clone(),
            identity: Some(own.identity),
            decided: sum.decided.clone(),
            may_use_cache: false,
        };
        let behind = SumUnits { group, key, offset, len, terms: behind.to_vec(), upto, decided: sum.decided };
        let (unit, behind) = join(self.unit(epoch, &read), self.sum_of(epoch, behind)).await;
        let (unit, behind) = (unit?.1, behind?);
        let coder = self.coder(geometry.code());
        let mut bytes = BufMut::zeroed(unit.len().max(behind.len()));
        coder.add(1, &behind, &mut bytes);
        coder.add(own.factor, &unit, &mut bytes);
        Ok((UnitSum {}, bytes.freeze()))
    }

    /// Asks the first of the terms for the sum of all; no terms are nothing.
    async fn sum_of(&self, epoch: Epoch, sum: SumUnits) -> Result<Buf, Refusal> {
        let Some(first) = sum.terms.first() else { return Ok(Buf::empty()) };
        let bricks = self.bricks_of_slots(sum.group, epoch, std::iter::once(first.slot))?;
        let address = self.address_in(sum.group.volume, bricks[0]).ok_or(Refusal::Unknown)?;
        // The fewer are behind, the sooner: so the one before a member that hangs gives up first, and the others hear of it. The
        // primary gives up early enough to gather in time.
        let terms = sum.terms.len() as u64;
        let within = READ_TIMEOUT_US / 2 * terms / (terms + 1);
        match self.peers.call_within(within, &address, epoch, &sum, Buf::empty()).await {
            Ok((_, payload)) if payload.len() <= sum.len as usize => Ok(payload),
            Ok(_) => Err(Refusal::Corrupt),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::NotServing),
        }
    }
}

impl Stripe<'_> {
    /// The first `len` bytes of a slot's base, whole blocks, as a sum that comes along a path of members; [`None`] if they should
    /// be gathered.
    pub(super) async fn sum_base(&self, wanted: usize, len: usize) -> Result<Option<Buf>, Refusal> {
        if len == 0 || self.server.world.now() < self.server.gather_until.get() {
            return Ok(None);
        }
        let Some((own, terms)) = self.terms(wanted) else { return Ok(None) };
        let (members, decided) = (terms.len(), self.server.primary.borrow().decided(self.id));
        let sum = SumUnits {
            group: self.id,
            key: self.key,
            offset: 0,
            len: len as u32,
            terms,
            upto: decided,
            decided: self.decided(),
        };
        let unit = async {
            match &own {
                Some(own) => self.read(self.me, 0..len, Some(own.identity)).await,
                None => Ok(Buf::empty()),
            }
        };
        let (unit, behind) = join(unit, self.server.sum_of(self.epoch, sum)).await;
        let (unit, behind) = match (unit, behind) {
            (Ok(unit), Ok(behind)) => (unit, behind),
            (Err(Refusal::StaleEpoch), _) | (_, Err(Refusal::StaleEpoch)) => return Err(Refusal::StaleEpoch),
            (unit, behind) => {
                hit(CodeProbe::SumFailed);
                let (unit, behind) = (unit.err(), behind.err());
                tracing::debug!(key = %self.key, wanted, ?unit, ?behind, "a sum along a path failed");
                self.server.gather_until.set(self.server.world.now() + GATHER_US);
                return Ok(None);
            }
        };
        let coder = self.server.coder(self.geometry.code());
        let mut bytes = BufMut::zeroed(len);
        coder.add(1, &behind, &mut bytes);
        if let Some(own) = own {
            coder.add(own.factor, &unit, &mut bytes);
        }
        hit(CodeProbe::UnitSummed);
        tracing::debug!(key = %self.key, wanted, members, "a unit has come along a path");
        Ok(Some(bytes.freeze()))
    }

    /// The terms of a slot's base: this brick's own, if it has one, and those of the path, the nearest first. Data units without
    /// bytes count as sources, and need not be asked.
    fn terms(&self, wanted: usize) -> Option<(Option<SumTerm>, Vec<SumTerm>)> {
        let code = self.geometry.code();
        let topology = self.server.network.of(&self.server.shards.first().map.borrow())?;
        let is_empty = |slot: usize| slot < code.k() && self.unit_len(slot) == 0;
        let others = (0..code.slots()).filter(|slot| *slot != wanted);
        let mut sources: Vec<usize> = others.clone().filter(|slot| is_empty(*slot)).take(code.k()).collect();
        let has_own = self.me != wanted && !is_empty(self.me) && sources.len() < code.k();
        sources.extend(has_own.then_some(self.me));
        let node = |slot: usize| {
            self.server.shards.first().map.borrow().brick(self.brick(slot)).map(|brick| brick.node)
        };
        let can_be_asked = |slot: &usize| *slot != self.me && !is_empty(*slot) && self.is_live(*slot);
        let members = others.filter(can_be_asked).map(|slot| Some((slot, node(slot)?)));
        let members: Vec<_> = members.collect::<Option<_>>()?;
        let (needed, turn) = (code.k() - sources.len(), self.key.stripe as usize);
        let path = layout::repair_path(&topology, node(self.me)?, &members, needed, turn)?;
        sources.extend(&path);
        let factors = self.server.coder(code).factors(&sources, wanted).ok()?;
        let term = |slot: usize| {
            let at = sources.iter().position(|source| *source == slot)?;
            Some(SumTerm { slot: slot as u8, identity: self.shape.identity_of(slot), factor: factors[at] })
        };
        let own = has_own.then(|| term(self.me)).flatten();
        Some((own, path.iter().map(|slot| term(*slot)).collect::<Option<_>>()?))
    }
}
