//! Verification: the primary reads the units, encodes them again and compares, page by page. It repairs nothing.
//! A stripe that other bricks are just forgetting, because its object is purged, looks as one at fault does. The caller asks the
//! metadata service which it is, so nothing here is a warning.
//!
//! ```text
//! stripes of the page: what any live slot lists
//! each, in its lane:   every live unit at the identity that the parity was made with ── unreadable: damaged
//!                      encode again, compare parity                                  ── differs: mismatched
//!   if overlays were listed: those of each data unit, at its slot and at each parity ── differs: mismatched
//! ```

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use types::messages::brick::{ReadOverlays, StripeFault, UnitList, UnitPage, Verified, Verify};
use types::{Buf, BufMut, Epoch, GroupId, Refusal, Seq, StripeKey};
use world::CallError;

use super::stripe::Stripe;
use crate::server::Server;

/// Most stripes in a page.
const PAGE_MAX: u32 = 4096;
/// Stripes compared at a time.
const TOGETHER: usize = 8;
/// How long a brick may take for an answer, in microseconds.
const TIMEOUT_US: u64 = 5_000_000;

/// What is wrong with a stripe: masks of slots.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    mismatched: u64,
    damaged: u64,
}

/// The stripes to compare, ascending.
struct Page {
    keys: Vec<StripeKey>,
    /// Those of them that some slot listed as having overlays or undecided operations.
    overlaid: BTreeSet<StripeKey>,
    /// The last of them, if more follow.
    next: Option<StripeKey>,
}

impl Server {
    /// Compares the stripes of a page.
    pub(crate) async fn verify(&self, epoch: Epoch, verify: Verify) -> Result<Verified, Refusal> {
        self.check_primary(verify.group, epoch)?;
        let page = self.verify_page(epoch, &verify).await?;
        let mut verified =
            Verified { stripes: 0, mismatched: Vec::new(), damaged: Vec::new(), next: page.next };
        let looks = page.keys.iter().map(|key| async {
            let faults = self.verify_key(verify.group, epoch, *key, page.overlaid.contains(key)).await;
            faults.map(|faults| faults.map(|faults| (*key, faults)))
        });
        let mut looks = pin!(stream::iter(looks).buffered(TOGETHER));
        while let Some(look) = looks.next().await {
            let Some((key, faults)) = look? else { continue };
            verified.stripes += 1;
            if faults.mismatched != 0 {
                verified.mismatched.push(StripeFault { key, slots: faults.mismatched });
            }
            if faults.damaged != 0 {
                verified.damaged.push(StripeFault { key, slots: faults.damaged });
            }
        }
        self.check_primary(verify.group, epoch)?;
        Ok(verified)
    }

    /// Compares a stripe; `None` if its object is being purged.
    async fn verify_key(
        &self,
        group: GroupId,
        epoch: Epoch,
        key: StripeKey,
        is_overlaid: bool,
    ) -> Result<Option<Faults>, Refusal> {
        let ticket = self.lanes.enter_shared(key);
        ticket.wait().await;
        if self.slot.borrow().is_dropped(key.object) {
            return Ok(None);
        }
        let stripe = Stripe::load(self, group, epoch, key).await?;
        self.verify_stripe(&stripe, is_overlaid).await.map(Some)
    }

    /// Lists the units of every live slot.
    async fn verify_page(&self, epoch: Epoch, verify: &Verify) -> Result<Page, Refusal> {
        let limit = verify.limit.clamp(1, PAGE_MAX);
        let slots: Vec<(usize, types::BrickId)> = {
            let primary = self.primary.borrow();
            let group = primary.serving(verify.group, epoch).ok_or(Refusal::StaleEpoch)?;
            let live = group.config.live();
            let slots = group.config.slots.iter().map(|slot| slot.brick).enumerate();
            slots.filter(|(slot, _)| live & 1 << slot != 0).collect()
        };
        let decided = self.primary.borrow().decided(verify.group);
        let lists = slots.iter().map(|(slot, brick)| {
            let slot = *slot as u8;
            let (group, after) = (verify.group, verify.after);
            let list = UnitList { group, slot, of: slot, after, limit, only: Vec::new(), decided };
            async move {
                if *brick == self.options.brick {
                    return self.unit_list(epoch, list).await;
                }
                Ok(self.ask(*brick, epoch, &list).await?.0)
            }
        });
        let pages = join_all(lists).await.into_iter().collect::<Result<Vec<UnitPage>, Refusal>>()?;
        let upto = pages.iter().filter_map(|page| page.upto).min();
        let listed = || pages.iter().flat_map(|page| &page.units);
        let all: BTreeSet<StripeKey> = listed().map(|unit| unit.key).collect();
        let overlaid = listed().filter(|unit| unit.dirty).map(|unit| unit.key).collect();
        let within: Vec<StripeKey> =
            all.into_iter().filter(|key| upto.is_none_or(|upto| *key <= upto)).collect();
        let keys: Vec<StripeKey> = within.iter().copied().take(limit as usize).collect();
        let cut = (keys.len() < within.len()).then(|| keys.last().copied()).flatten();
        Ok(Page { keys, overlaid, next: cut.or(upto) })
    }

    /// Asks another brick.
    pub(super) async fn ask<R: types::wire::Request>(
        &self,
        brick: types::BrickId,
        epoch: Epoch,
        request: &R,
    ) -> Result<(R::Reply, Buf), Refusal> {
        let address = self.address_of(brick).ok_or(Refusal::Unknown)?;
        match self.peers.call_within(TIMEOUT_US, &address, epoch, request, Buf::empty()).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::NotServing),
        }
    }

    async fn verify_stripe(&self, stripe: &Stripe<'_>, is_overlaid: bool) -> Result<Faults, Refusal> {
        let code = stripe.geometry.code();
        let is_parity = stripe.me >= code.k();
        let live: Vec<usize> = (0..code.slots()).filter(|slot| stripe.is_live(*slot)).collect();
        assert!(live.contains(&stripe.me), "the primary's own unit would never be compared");
        let reads = live.iter().map(|slot| self.verify_read(stripe, *slot, is_parity));
        let mut faults = Faults::default();
        let mut units: Vec<Option<Buf>> = vec![None; code.slots()];
        for (slot, read) in live.iter().zip(join_all(reads).await) {
            match read? {
                Found::Unit(bytes) => units[*slot] = Some(bytes),
                Found::Other => {
                    let found = self.base_of(stripe, *slot).await;
                    let shape = &stripe.shape;
                    tracing::info!(key = %stripe.key, slot, ?found, ?shape, "a unit has another identity than its parity remembers");
                    faults.mismatched |= 1 << slot;
                }
                Found::Damaged => faults.damaged |= 1 << slot,
            }
        }
        if is_parity {
            let parity = self.compare_parity(stripe, units)?;
            if parity != 0 {
                tracing::info!(key = %stripe.key, slots = %format_args!("{parity:b}"), "parity does not match the data units");
            }
            faults.mismatched |= parity;
            for unit in (0..code.k()).filter(|unit| is_overlaid && stripe.is_live(*unit)) {
                let over = self.compare_overlays(stripe, unit).await?;
                if over.mismatched != 0 {
                    let slots = over.mismatched;
                    tracing::info!(key = %stripe.key, unit, slots = %format_args!("{slots:b}"), "overlays of a unit differ between slots");
                }
                faults.mismatched |= over.mismatched;
                faults.damaged |= over.damaged;
            }
        }
        let all = faults.mismatched | faults.damaged;
        assert_eq!(all >> code.slots(), 0, "a brick would be replaced for a slot that does not exist");
        Ok(faults)
    }

    /// Reads a unit at the identity that the parity was made with, or the newest one if no live parity remembers an
    /// identity.
    async fn verify_read(&self, stripe: &Stripe<'_>, slot: usize, is_parity: bool) -> Result<Found, Refusal> {
        let k = stripe.geometry.code().k();
        // A stripe of zeros has no bytes on any slot, and a slot that was brought level since knows nothing of it.
        let absent =
            if slot < k { stripe.unit_len(slot) == 0 } else { (0..k).all(|unit| stripe.unit_len(unit) == 0) };
        let identity = stripe.shape.identity_of(slot);
        let none = identity == Seq::NONE || (is_parity && absent);
        if is_parity && none {
            let state = self.base_of(stripe, slot).await?;
            return Ok(if state.1 == 0 { Found::Unit(Buf::empty()) } else { Found::Other });
        }
        let read = stripe.read(slot, 0..stripe.geometry.unit(), is_parity.then_some(identity)).await;
        match read {
            Ok(bytes) => Ok(Found::Unit(bytes)),
            Err(Refusal::Corrupt) if is_parity => {
                let (base, _) = self.base_of(stripe, slot).await?;
                Ok(if base == identity { Found::Damaged } else { Found::Other })
            }
            Err(Refusal::Corrupt) => Ok(Found::Damaged),
            Err(refusal) => Err(refusal),
        }
    }

    /// Identity and blocks of the base of a slot's unit.
    async fn base_of(&self, stripe: &Stripe<'_>, slot: usize) -> Result<(Seq, u32), Refusal> {
        let of = slot as u8;
        let only = vec![stripe.key];
        let decided = self.primary.borrow().decided(stripe.id);
        let list = UnitList { group: stripe.id, slot: of, of, after: None, limit: 1, only, decided };
        let page = match stripe.brick(slot) {
            brick if brick == self.options.brick => self.unit_list(stripe.epoch, list).await?,
            brick => self.ask(brick, stripe.epoch, &list).await?.0,
        };
        Ok(page.units.first().map_or((Seq::NONE, 0), |unit| (unit.base, unit.blocks)))
    }

    /// Parity slots whose unit differs from the parity encoded again from the data units.
    fn compare_parity(&self, stripe: &Stripe<'_>, mut units: Vec<Option<Buf>>) -> Result<u64, Refusal> {
        let code = stripe.geometry.code();
        let k = code.k();
        let len = units.iter().flatten().map(|unit| unit.len()).max().unwrap_or(0);
        let missing: Vec<usize> = (0..k).filter(|unit| units[*unit].is_none()).collect();
        let sources: Vec<(usize, Buf)> =
            units.iter().enumerate().filter_map(|(slot, unit)| Some((slot, unit.clone()?))).take(k).collect();
        if sources.len() < k || len == 0 {
            return Ok(0);
        }
        let coder = self.coder(code);
        for unit in missing {
            let inputs: Vec<(usize, &[u8])> = sources.iter().map(|(slot, bytes)| (*slot, &**bytes)).collect();
            let mut out = BufMut::dirty(len);
            coder.decode(&inputs, &mut [(unit, &mut out[..])]).map_err(|_| Refusal::Corrupt)?;
            units[unit] = Some(out.freeze());
        }
        let data: Vec<&[u8]> = units[..k].iter().flatten().map(|unit| &**unit).collect();
        let mut parity: Vec<BufMut> = (k..code.slots()).map(|_| BufMut::dirty(len)).collect();
        let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut unit[..]).collect();
        coder.encode(&data, &mut outs);
        let differs = |slot: &usize| {
            let right = &parity[slot - k][..];
            units[*slot].as_ref().is_some_and(|found| {
                found[..] != right[..found.len()] || right[found.len()..].iter().any(|byte| *byte != 0)
            })
        };
        Ok((k..code.slots()).filter(differs).fold(0, |mask, slot| mask | 1 << slot))
    }

    /// Parity slots whose overlays of a data unit differ from those of the data slot.
    async fn compare_overlays(&self, stripe: &Stripe<'_>, unit: usize) -> Result<Faults, Refusal> {
        let code = stripe.geometry.code();
        assert!(
            unit < code.k() && stripe.is_live(unit),
            "parity would be compared with a unit that no slot has"
        );
        let parity = (code.k()..code.slots()).filter(|slot| stripe.is_live(*slot));
        let slots: Vec<usize> = std::iter::once(unit).chain(parity).collect();
        let reads = slots.iter().map(|slot| self.overlays_at(stripe, *slot, unit));
        let mut faults = Faults::default();
        let mut first = None;
        for (slot, read) in slots.iter().zip(join_all(reads).await) {
            match read {
                Ok(found) => {
                    let right = first.get_or_insert_with(|| found.clone());
                    faults.mismatched |= u64::from(*right != found) << slot;
                }
                Err(Refusal::Corrupt) => faults.damaged |= 1 << slot,
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(faults)
    }

    async fn overlays_at(
        &self,
        stripe: &Stripe<'_>,
        slot: usize,
        unit: usize,
    ) -> Result<(Vec<types::messages::brick::Span>, Buf), Refusal> {
        let read = ReadOverlays { group: stripe.id, key: stripe.key, slot: slot as u8, of: unit as u8 };
        let (found, bytes) = match stripe.brick(slot) {
            brick if brick == self.options.brick => self.read_overlays(stripe.epoch, read).await?,
            brick => self.ask(brick, stripe.epoch, &read).await?,
        };
        Ok((found.spans, bytes))
    }
}

/// The outcome of reading a slot's unit.
enum Found {
    /// Its bytes, without the zeros at the end.
    Unit(Buf),
    /// Another identity than the parity was made with.
    Other,
    /// The unit cannot be read.
    Damaged,
}
