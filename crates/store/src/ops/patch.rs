//! The cheap fold: only the blocks that overlays touch, and their parity, are written again.
//!
//! ```text
//! primary                          touched data slots                     parity slots
//!    ├── Prepare (Patch) ────────────────▶│ base + own overlays = new,          │
//!    │                                    │ to fresh blocks, journal            │
//!    │◀─ Prepared, old XOR new ───────────┤                                     │
//!    │ deltas of parity                   │                                     │
//!    ├── Prepare (Patch, delta) ─────────────────────────────────────────────▶│ base XOR delta, to fresh blocks,
//!    │◀─ Prepared ────────────────────────────────────────────────────────────┤ journal
//!    │ committed, decided as every operation
//! ```
//!
//! Only a parity slot can be the primary of a patch: it has every overlay, and knows the identity of each data unit
//! that parity encodes. If a block is damaged or a unit is missing, no patch is possible; the whole fold repairs
//! them.
//!
//! # Invariants
//! - Every touched unit is live and has the touched blocks, and parity gets the delta of each.
//! - A slot writes as many blocks as it has allocated, and every touched block is among them.

use futures_util::future::{OptionFuture, join, join_all};
use types::checksum::crc_blocks;
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{OpKind, Prepare};
use types::{Buf, BufMut, Refusal, Seq};

use super::prepare::blocks_of;
use super::stripe::Stripe;
use super::write::{check_order, empty_prepare};
use crate::primary::Order;
use crate::server::{Server, count};
use crate::slot::{PatchInput, touched_rows};
use crate::space::Run;

/// Most stripes remembered as not to be patched.
const UNPATCHED_MAX: usize = 4096;

/// What a slot writes for a patch.
pub(super) struct PatchOutput {
    /// Where the whole unit lies after the patch.
    pub(super) runs: Vec<Run>,
    /// The fresh blocks' bytes.
    pub(super) bytes: Buf,
    /// Checksum of every block of the unit.
    pub(super) crcs: Vec<u32>,
    /// Old XOR new of the touched blocks, if a data slot.
    pub(super) delta: Buf,
}

impl Server {
    /// Touched blocks of each data unit, if a patch can fold the overlays of the stripe and touches less than half of
    /// it.
    pub(super) fn rows_to_patch(&self, stripe: &Stripe<'_>) -> Option<Vec<Vec<u32>>> {
        let (shape, code) = (&stripe.shape, stripe.geometry.code());
        if stripe.me < code.k() || self.unpatched.borrow().contains(&stripe.key) {
            return None;
        }
        let unit = stripe.geometry.unit();
        let rows_of = |slot| touched_rows(shape.overlays.iter().cloned(), unit, Some(slot));
        let rows: Vec<Vec<u32>> = (0..code.k()).map(rows_of).collect();
        let fits = |slot: usize| match rows[slot].last() {
            Some(last) => stripe.is_live(slot) && shape.unit_blocks.get(slot).is_some_and(|len| last < len),
            None => true,
        };
        let touched: usize = rows.iter().map(Vec::len).sum();
        let blocks: usize = shape.unit_blocks.iter().map(|blocks| *blocks as usize).sum();
        ((0..code.k()).all(fits) && touched > 0 && touched * 2 < blocks).then_some(rows)
    }

    /// Patches a stripe.
    pub(super) async fn patch(&self, stripe: &Stripe<'_>, rows: &[Vec<u32>]) -> Result<(), Refusal> {
        let (id, epoch, key, k) = (stripe.id, stripe.epoch, stripe.key, stripe.geometry.code().k());
        let mask = |mask, (unit, rows): (usize, &Vec<u32>)| mask | u64::from(!rows.is_empty()) << unit;
        let touched = rows.iter().enumerate().fold(0, mask);
        check_rows(stripe, rows, touched);
        let order = self.primary.borrow_mut().order(id, epoch, key, touched, false, Vec::new());
        let order = order.ok_or(Refusal::StaleEpoch)?;
        check_order(&order, stripe, touched);
        let Order { seq, participants, targets, offer, acked, decided } = order;
        // A data slot that joins is not touched: its unit counts as missing, and missing units are not patched.
        let joins = offer.as_ref().is_none_or(|offer| offer.slot >= k);
        assert!(joins, "a data slot would get the delta of parity and take it for its own bytes");
        count(&self.counters.ordered);
        let prepare = Prepare { participants, acked, decided, ..empty_prepare(id, seq, key, OpKind::Patch) };
        let (data, parity): (Vec<_>, Vec<_>) = targets.into_iter().partition(|(slot, _)| *slot < k);
        let deliveries = data.iter().map(|(slot, brick)| {
            let base = stripe.shape.identity_of(*slot);
            let prepare = Prepare { slot: *slot as u8, base, ..prepare.clone() };
            async move {
                let delta = self.replicate_to(*slot, *brick, epoch, prepare, Buf::empty()).await?;
                Ok((*slot, delta.unwrap_or_default()))
            }
        });
        let deltas = join_all(deliveries).await.into_iter().collect::<Result<Vec<_>, Refusal>>()?;
        if deltas.iter().any(|(slot, delta)| delta.len() != rows[*slot].len() * BLOCK) {
            tracing::warn!(%key, "a slot does not have the same overlays as its primary");
            self.patch_failed(id, epoch, key).await;
            return Err(Refusal::StaleEpoch);
        }
        let told = deltas.iter().fold(0, |mask, (slot, _)| mask | 1u64 << slot);
        assert_eq!(told, touched, "parity would name an identity of a unit that it does not encode");
        let identity =
            |slot: usize| if touched & 1u64 << slot != 0 { seq } else { stripe.shape.identity_of(slot) };
        let identities: Vec<Seq> = (0..k).map(identity).collect();
        let part_of = |slot: usize| {
            let (base, identities) = (stripe.shape.identity, identities.clone());
            let prepare = Prepare { slot: slot as u8, base, identities, ..prepare.clone() };
            (prepare, self.parity_delta(stripe, slot, rows, &deltas))
        };
        let deliveries = parity.iter().map(|(slot, brick)| {
            let (prepare, payload) = part_of(*slot);
            self.replicate_to(*slot, *brick, epoch, prepare, payload)
        });
        let offered = OptionFuture::from(offer.map(|offer| {
            let (prepare, payload) = part_of(offer.slot);
            self.offer(offer, epoch, prepare, payload, false)
        }));
        let (delivered, _) = join(join_all(deliveries), offered).await;
        delivered.into_iter().collect::<Result<Vec<_>, Refusal>>()?;
        self.claim_committer(id, epoch);
        count(&self.counters.patched);
        Ok(())
    }

    /// The delta of the touched blocks of a parity unit.
    fn parity_delta(
        &self,
        stripe: &Stripe<'_>,
        slot: usize,
        rows: &[Vec<u32>],
        deltas: &[(usize, Buf)],
    ) -> Buf {
        let coder = self.coder(stripe.geometry.code());
        let mut all: Vec<u32> = rows.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let mut bytes = BufMut::zeroed(all.len() * BLOCK);
        for (unit, delta) in deltas {
            assert_eq!(delta.len(), rows[*unit].len() * BLOCK, "parity would miss the delta of a block");
            for (row, delta) in rows[*unit].iter().zip(delta.chunks(BLOCK)) {
                let at = all.partition_point(|other| other < row) * BLOCK;
                coder.update_one(slot, *unit, delta, &mut bytes[at..at + BLOCK]);
            }
        }
        bytes.freeze()
    }

    /// From now on the stripe is folded whole. The operation that was ordered ends with the epoch.
    pub(super) async fn patch_failed(&self, id: types::GroupId, epoch: types::Epoch, key: types::StripeKey) {
        hit(CodeProbe::PatchAborted);
        {
            let mut unpatched = self.unpatched.borrow_mut();
            if unpatched.len() >= UNPATCHED_MAX {
                unpatched.clear();
            }
            unpatched.insert(key);
            assert!(unpatched.len() <= UNPATCHED_MAX, "stripes that are never folded would fill the RAM");
        }
        self.end_epoch(id, epoch).await;
    }

    /// Makes the new blocks of a slot: base and overlays, or base and the delta of parity.
    pub(super) async fn patch_output(
        &self,
        p: &Prepare,
        found: &PatchInput,
        fresh: &[Run],
        told: &Buf,
    ) -> Result<PatchOutput, Refusal> {
        let runs = found.runs(fresh);
        let is_whole = runs == fresh;
        let written: Vec<u32> =
            if is_whole { (0..found.blocks.len() as u32).collect() } else { found.rows.clone() };
        assert!(
            fresh.is_empty() || blocks_of(fresh) == written.len() as u64,
            "a fresh block without bytes would be read as part of the unit"
        );
        assert!(
            p.identities.is_empty() || told.len() == found.rows.len() * BLOCK,
            "a touched block of parity would keep encoding the old data"
        );
        let blocks: Vec<(u64, u32)> = written.iter().map(|row| found.blocks[*row as usize]).collect();
        let old = self.fetch_blocks(&blocks).await?;
        let mut new = BufMut::copy_of(&old);
        // Offset of a block of the unit in the written bytes.
        let place = |row: usize| written.binary_search(&(row as u32)).map(|at| at * BLOCK).ok();
        for (row, delta) in found.rows.iter().zip(told.chunks(BLOCK)) {
            let at = place(*row as usize).ok_or(Refusal::Corrupt)?;
            new[at..at + BLOCK].iter_mut().zip(delta).for_each(|(byte, delta)| *byte ^= delta);
        }
        for piece in &found.overlays {
            let source = self.overlay_bytes(piece).await?;
            let mut done = 0;
            while done < piece.len {
                let (row, within) = ((piece.to + done) / BLOCK, (piece.to + done) % BLOCK);
                let take = (BLOCK - within).min(piece.len - done);
                let at = place(row).ok_or(Refusal::Corrupt)? + within;
                match &source {
                    None => new[at..at + take].fill(0),
                    Some(source) => new[at..at + take].copy_from_slice(&source[done..done + take]),
                }
                done += take;
            }
        }
        let mut crcs: Vec<u32> = found.blocks.iter().map(|(_, sum)| *sum).collect();
        for (row, sum) in written.iter().zip(crc_blocks(&new)) {
            crcs[*row as usize] = sum;
        }
        let delta =
            if p.identities.is_empty() { difference(found, &written, &old, &new) } else { Buf::empty() };
        Ok(PatchOutput { runs, bytes: new.freeze(), crcs, delta })
    }
}

/// The preconditions of a patch on the blocks that it touches.
fn check_rows(stripe: &Stripe<'_>, rows: &[Vec<u32>], touched: u64) {
    let k = stripe.geometry.code().k();
    assert!(stripe.me >= k, "a data slot does not know the overlays of others: the patch would hide them");
    assert_eq!(rows.len(), k, "the patch would hide the overlays of a unit that it leaves out");
    assert_ne!(touched, 0, "an empty patch would hide overlays that it does not contain");
    let blocks = |slot: usize| stripe.shape.unit_blocks.get(slot).copied().unwrap_or(0);
    for (slot, rows) in rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        assert!(stripe.is_live(slot), "nobody would send the delta of this unit");
        assert!(rows.last() < Some(&blocks(slot)), "a block beyond the end of the base cannot be patched");
    }
}

/// Old XOR new of the touched blocks among those written.
fn difference(found: &PatchInput, written: &[u32], old: &[u8], new: &[u8]) -> Buf {
    let mut delta = BufMut::dirty(found.rows.len() * BLOCK);
    let mut targets = delta.chunks_mut(BLOCK);
    let mut rows = found.rows.iter().peekable();
    for ((row, old), new) in written.iter().zip(old.chunks(BLOCK)).zip(new.chunks(BLOCK)) {
        if rows.next_if_eq(&row).is_some()
            && let Some(target) = targets.next()
        {
            target.iter_mut().zip(old.iter().zip(new)).for_each(|(byte, (old, new))| *byte = old ^ new);
        }
    }
    assert!(rows.next().is_none(), "parity would be changed by stale bytes of the buffer");
    delta.freeze()
}
