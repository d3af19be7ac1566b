//! A primary reads the current bytes of a stripe from its bricks, and decodes the units that are missing.
//!
//! The caller holds the stripe's lane, so every operation on the stripe is committed.
//!
//! # Invariants
//! - The brick that reads a stripe has a live slot of its group.
//! - A decode has K different sources. None is the decoded unit itself, and none is longer than the decoded range.
//! - An answer is never longer than the range; bytes missing at its end are zeros.

use std::cell::Cell;
use std::ops::Range;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{GroupDecision, ReadBase, UnitState};
use types::messages::cluster::{GroupConfig, SlotState};
use types::{BrickId, Buf, BufMut, Code, Epoch, Geometry, GroupId, Refusal, Seq, StripeKey};
use world::CallError;

use super::read::UnitRead;
use crate::server::{Server, count};
use crate::slot::Shape;

/// How long a brick may take to send a unit before it counts as missing, in microseconds.
pub(super) const READ_TIMEOUT_US: u64 = 3_000_000;

/// Before another source is asked instead, each has this time at least, in microseconds.
const SOURCE_LATE_US: u64 = 2_000;

/// Whether a unit that was refused so is not to be had from other units either: the group has another primary, or the object is
/// being purged.
fn is_final(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::StaleEpoch | Refusal::ObjectRemoved)
}

/// A stripe as its primary sees it.
pub(crate) struct Stripe<'a> {
    pub(super) server: &'a Server,
    pub(crate) id: GroupId,
    pub(crate) epoch: Epoch,
    pub(crate) key: StripeKey,
    pub(crate) geometry: Geometry,
    config: GroupConfig,
    /// The primary's own slot.
    pub(crate) me: usize,
    pub(crate) shape: Shape,
    /// Committed operations on the stripe whose decision the slots may not know.
    decided: Vec<Seq>,
    /// Number of decoded units.
    pub(crate) decoded: Cell<u32>,
    /// Slots that are asked only where there is no other way, one bit for each.
    avoid: u64,
}

impl<'a> Stripe<'a> {
    /// Loads a stripe, under the lease.
    pub(crate) async fn load(
        server: &'a Server,
        id: GroupId,
        epoch: Epoch,
        key: StripeKey,
    ) -> Result<Stripe<'a>, Refusal> {
        server.check_primary(id, epoch)?;
        Stripe::load_unleased(server, id, epoch, key).await
    }

    /// Loads a stripe for an operation. It needs no lease, because slots refuse the operations of an old primary.
    pub(crate) async fn load_unleased(
        server: &'a Server,
        id: GroupId,
        epoch: Epoch,
        key: StripeKey,
    ) -> Result<Stripe<'a>, Refusal> {
        server.load(key).await?;
        let geometry = server.tier(id)?.geometry;
        let primary = server.primary.borrow();
        let group = primary.serving(id, epoch).ok_or(Refusal::StaleEpoch)?;
        // The take-over used the code of an older map. If the newer map has another code, nothing here fits it.
        if group.code != geometry.code() {
            return Err(Refusal::NotServing);
        }
        assert!(group.me < geometry.code().slots(), "this slot's unit would be taken for another one");
        assert_ne!(group.config.live() & 1 << group.me, 0, "a slot that is Out has missed operations");
        let mut shape = server.slot.borrow().shape(key);
        // A data slot does not know what the other slots hold, so it must assume that every stripe exists.
        shape.exists |= group.me < group.code.k();
        Ok(Stripe {
            server,
            id,
            epoch,
            key,
            geometry,
            config: group.config.clone(),
            me: group.me,
            shape,
            decided: primary.committed_on(id, key),
            decoded: Cell::new(0),
            avoid: 0,
        })
    }

    /// The same, with slots that are asked only where there is no other way.
    pub(crate) fn avoiding(self, avoid: u64) -> Stripe<'a> {
        Stripe { avoid, ..self }
    }

    /// Committed operations on the stripe whose decision the slots may not know.
    pub(super) fn decided(&self) -> Vec<Seq> {
        self.decided.clone()
    }

    fn is_avoided(&self, slot: usize) -> bool {
        self.avoid >> slot & 1 != 0
    }

    fn code(&self) -> Code {
        self.geometry.code()
    }

    /// The bricks of the live slots.
    pub(crate) fn bricks(&self) -> impl Iterator<Item = BrickId> + '_ {
        self.config.slots.iter().filter(|s| s.state == SlotState::Live).map(|s| s.brick)
    }

    pub(crate) fn is_live(&self, slot: usize) -> bool {
        self.config.slots.get(slot).is_some_and(|s| s.state == SlotState::Live)
    }

    /// The brick of a slot.
    pub(super) fn brick(&self, slot: usize) -> BrickId {
        self.config.slots[slot].brick
    }

    /// The newest bytes of a range of a data unit, without the zeros at the end.
    pub(crate) async fn unit(&self, unit: usize, range: Range<usize>) -> Result<Buf, Refusal> {
        assert!(unit < self.code().k(), "parity would be returned as data");
        assert!(range.end <= self.geometry.unit(), "overlays of the next unit would be laid over this one");
        if self.is_live(unit) && self.is_avoided(unit) {
            let undecoded = match self.decode(unit, range.clone()).await {
                Err(refusal) if !is_final(refusal) => refusal,
                done => return done,
            };
            // There is no other way. If it fails too, the caller hears why the unit cannot be decoded: that may pass, while
            // "damaged" would end its read for good.
            let read = self.read(unit, range, None).await;
            return read.map_err(|refusal| if is_final(refusal) { refusal } else { undecoded });
        }
        if self.is_live(unit) {
            match self.read(unit, range.clone(), None).await {
                Ok(bytes) => return Ok(bytes),
                Err(refusal) if is_final(refusal) => return Err(refusal),
                Err(refusal) => {
                    tracing::debug!(key = %self.key, unit, %refusal, "a unit must be decoded");
                }
            }
        }
        self.decode(unit, range).await
    }

    /// Reads a range of a slot's unit from its brick.
    pub(super) async fn read(
        &self,
        slot: usize,
        range: Range<usize>,
        identity: Option<Seq>,
    ) -> Result<Buf, Refusal> {
        assert!(slot < self.code().slots(), "a slot that the code does not have holds nothing of the stripe");
        let server = self.server;
        let brick = self.config.slots[slot].brick;
        if slot == self.me {
            let upto = server.primary.borrow().decided(self.id);
            server.apply_decisions(&[GroupDecision { group: self.id, epoch: self.epoch, upto }]).await?;
            let read = UnitRead {
                may_use_cache: false,
                group: self.id,
                key: self.key,
                slot: slot as u8,
                range,
                identity,
                decided: self.decided.clone(),
            };
            return Ok(server.unit(self.epoch, &read).await?.1);
        }
        let address = server.address_in(self.id.volume, brick).ok_or(Refusal::Unknown)?;
        let read = ReadBase {
            group: self.id,
            key: self.key,
            slot: slot as u8,
            offset: range.start as u32,
            len: range.len() as u32,
            identity,
            upto: server.primary.borrow().decided(self.id),
            decided: self.decided.clone(),
        };
        match server.peers.call_within(READ_TIMEOUT_US, &address, self.epoch, &read, Buf::empty()).await {
            Ok((told, payload))
                if payload.len() <= range.len() && identity.is_none_or(|asked| asked == told.identity) =>
            {
                Ok(payload)
            }
            // The answer of another server is input: with a wrong length or identity the unit counts as missing.
            Ok(_) => Err(Refusal::Corrupt),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::NotServing),
        }
    }

    /// Computes a range of a data unit from other units.
    async fn decode(&self, unit: usize, range: Range<usize>) -> Result<Buf, Refusal> {
        if self.me < self.code().k() {
            // No parity slot is live: the unit cannot be decoded.
            return Err(Refusal::TooFewLive);
        }
        let at = unit * self.geometry.unit();
        let stripe_range = at + range.start..at + range.end;
        let overlays = self.server.slot.borrow().overlays_over(self.key, &stripe_range, self.shape.identity);
        let unit_end = self.unit_len(unit);
        let base_end = unit_end.clamp(range.start, range.end);
        let present = overlays.iter().map(|o| range.start + o.to + o.len).fold(base_end, usize::max);
        assert!(present <= range.end, "surplus bytes would overwrite those that follow the range");
        let mut bytes = BufMut::zeroed(present - range.start);
        if base_end > range.start {
            let base = self.decode_base(unit, range.start..base_end).await?;
            bytes[..base.len()].copy_from_slice(&base);
            self.decoded.set(self.decoded.get() + 1);
            count(&self.server.counters.decoded);
            hit(CodeProbe::Decoded);
        }
        self.server.lay_over(&mut bytes, &overlays).await?;
        Ok(bytes.freeze())
    }

    /// Bytes of a data unit's base.
    pub(super) fn unit_len(&self, unit: usize) -> usize {
        self.shape.unit_blocks.get(unit).map_or(0, |blocks| *blocks as usize * BLOCK)
    }

    /// Decodes a range of a unit's base from K others, each at the identity that the parity was made with.
    async fn decode_base(&self, unit: usize, range: Range<usize>) -> Result<Buf, Refusal> {
        let code = self.code();
        // Decoding works on whole blocks, because checksums cover whole blocks.
        let columns = range.start / BLOCK * BLOCK..range.end.div_ceil(BLOCK) * BLOCK;
        let mut sources: Vec<(usize, Buf)> = Vec::new();
        let mut candidates: Vec<usize> = Vec::new();
        for slot in (0..code.slots()).filter(|slot| *slot != unit) {
            if slot < code.k() && self.unit_len(slot) <= columns.start {
                sources.push((slot, Buf::empty()));
            } else if self.is_live(slot) {
                candidates.push(slot);
            }
        }
        sources.truncate(code.k());
        candidates.sort_by_key(|slot| self.is_avoided(*slot));
        self.gather(&mut sources, candidates, &columns).await?;
        let mask = sources.iter().fold(0u64, |mask, (slot, _)| mask | 1 << slot);
        assert_eq!(
            sources.len(),
            code.k(),
            "with fewer or more than K sources the decoded bytes would be wrong"
        );
        assert_eq!(
            mask.count_ones() as usize,
            code.k(),
            "a source that counts twice would hide a missing one"
        );
        assert_eq!(mask & 1 << unit, 0, "a unit computed from itself would stay damaged");
        assert!(
            sources.iter().all(|(_, bytes)| bytes.len() <= columns.len()),
            "a longer source would be decoded with the wrong columns"
        );
        // Beyond their end, shorter sources count as zeros.
        let inputs: Vec<(usize, &[u8])> = sources.iter().map(|(slot, bytes)| (*slot, &**bytes)).collect();
        let mut out = BufMut::dirty(columns.len());
        self.server.coder(code).decode(&inputs, &mut [(unit, &mut out[..])]).map_err(|_| Refusal::Corrupt)?;
        let from = range.start - columns.start;
        Ok(out.freeze().slice(from..from + range.len()))
    }

    /// Reads columns of the first K slots, as sources; of one more for each that fails. When half of the sources are here,
    /// the others have three times as long again; then one more slot is asked, and whichever comes first counts.
    async fn gather(
        &self,
        sources: &mut Vec<(usize, Buf)>,
        candidates: Vec<usize>,
        columns: &Range<usize>,
    ) -> Result<(), Refusal> {
        let (k, world) = (self.code().k(), &self.server.world);
        let identity = |slot: usize| Some(self.shape.identity_of(slot));
        let ask = |slot: usize| async move { (slot, self.read(slot, columns.clone(), identity(slot)).await) };
        let (begin, mut patience) = (world.now(), None);
        let mut candidates = candidates.into_iter();
        let mut reads = FuturesUnordered::new();
        while sources.len() < k {
            while reads.len() < k - sources.len() {
                reads.push(ask(candidates.next().ok_or(Refusal::TooFewLive)?));
            }
            let next = match patience {
                Some(until) if candidates.len() > 0 => {
                    let left = u64::saturating_sub(until, world.now());
                    world.timeout(left, reads.next()).await
                }
                _ => Some(reads.next().await),
            };
            match next.flatten() {
                Some((slot, Ok(bytes))) => sources.push((slot, bytes)),
                Some((_, Err(refusal))) if is_final(refusal) => return Err(refusal),
                Some((slot, Err(refusal))) => {
                    hit(CodeProbe::SourceMissing);
                    tracing::debug!(key = %self.key, slot, %refusal, "a source is missing");
                }
                None => {
                    hit(CodeProbe::SourceLate);
                    reads.extend(candidates.next().map(ask));
                    // One more each time.
                    patience = Some(world.now() + SOURCE_LATE_US);
                }
            }
            if patience.is_none() && sources.len() * 2 >= k {
                let now = world.now();
                patience = Some(now + (now - begin).max(SOURCE_LATE_US) * 3);
            }
        }
        Ok(())
    }

    /// The base of a slot that is not live, computed from the other slots.
    pub(crate) async fn base_of_missing(&self, slot: usize) -> Result<Buf, Refusal> {
        let len = match slot < self.code().k() {
            true => self.unit_len(slot),
            false => self.shape.unit_blocks.iter().max().map_or(0, |blocks| *blocks as usize * BLOCK),
        };
        match self.sum_base(slot, len).await? {
            Some(bytes) => Ok(bytes),
            None => self.decode_base(slot, 0..len).await,
        }
    }

    /// The stripe as its data slots know it, each its own unit, if no live parity slot knows all of them. A parity
    /// unit takes the newest identity among them: the operation with that identity wrote parity too.
    pub(crate) fn of_bases(mut self, units: &[Option<UnitState>]) -> Stripe<'a> {
        if self.me < self.code().k() {
            let of = |index: usize| units.get(index).and_then(Option::as_ref);
            let identities: Vec<Seq> =
                (0..self.code().k()).map(|index| of(index).map_or(Seq::NONE, |unit| unit.base)).collect();
            let unit_blocks = (0..self.code().k()).map(|index| of(index).map_or(0, |unit| unit.blocks));
            self.shape = Shape {
                exists: true,
                identity: identities.iter().copied().max().unwrap_or(Seq::NONE),
                unit_blocks: unit_blocks.collect(),
                identities,
                overlays: Vec::new(),
            };
        }
        self
    }

    /// The newest bytes of every data unit, each without the zeros at its end.
    pub(crate) async fn units(&self) -> Result<Vec<Buf>, Refusal> {
        let unit = self.geometry.unit();
        let reads = (0..self.code().k()).map(|index| self.unit(index, 0..unit));
        let units = join_all(reads).await.into_iter().collect::<Result<Vec<Buf>, Refusal>>()?;
        assert!(
            units.iter().all(|bytes| bytes.len() <= unit),
            "surplus bytes would be written to the next unit"
        );
        Ok(units)
    }
}
