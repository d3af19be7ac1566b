//! The state of a primary around its core: lanes, plans, the deltas of a patch.

use std::collections::{BTreeMap, VecDeque};

use types::limits::BLOCK;
use types::messages::brick::{OpKind, Prepare, Span, WriteId};
use types::messages::notes::SizeNote;
use types::{ClientId, ClientSeq, Epoch, InodeId, Refusal, Seq, StripeKey};

use super::brick::{Brick, GROUP};
use super::bytes::{Cell, Code4};
use super::joins::{self, Joining};
use super::mutants::Mutant;
use crate::ops::empty_prepare;
use crate::primary::{Order, PrimaryCore};
use crate::slot::{Shape, touched_rows};

/// An operation that has the lane of its stripe.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) seq: Seq,
    pub(super) key: StripeKey,
    /// The write that it carries; `None` for a fold.
    pub(super) write: Option<usize>,
    /// A patch whose data slots have not all sent their deltas.
    pub(super) patch: Option<Patching>,
    /// Slots that hold it.
    pub(super) acked: u64,
    /// A slot has refused: it has promised a newer epoch, or cannot hold the operation.
    pub(super) refused: bool,
}

/// A patch between its two rounds.
#[derive(Clone, Debug)]
pub(super) struct Patching {
    rows: Vec<Vec<usize>>,
    deltas: BTreeMap<usize, Vec<Cell>>,
    pub(super) awaited: u64,
    base: Seq,
    identities: Vec<Seq>,
    parity: Vec<usize>,
    prepare: Prepare,
}

/// The primary of the group on one brick.
#[derive(Clone, Debug, Default)]
pub(super) struct Primary {
    pub(super) core: PrimaryCore,
    /// The epoch that it serves or takes over.
    pub(super) epoch: Epoch,
    /// Slots whose tails have arrived, and slots that know the fate of every earlier operation.
    pub(super) promised: u64,
    pub(super) told: u64,
    /// The slot that joins, if any.
    pub(super) joining: Option<Joining>,
    /// Accepted writes, by stripe, in the order of acceptance.
    pub(super) lanes: BTreeMap<StripeKey, VecDeque<usize>>,
    /// The operation that has each lane. A mutant lets several in.
    pub(super) busy: Vec<InFlight>,
}

impl Primary {
    pub(super) fn is_idle(&self, key: StripeKey) -> bool {
        let offered =
            self.joining.as_ref().is_some_and(|joining| joining.given.values().any(|given| *given == key));
        !offered && self.core.is_free(GROUP, key)
    }

    pub(super) fn is_serving(&self) -> bool {
        self.core.serving(GROUP, self.epoch).is_some()
    }
}

/// The stripe and the cluster as a primary sees them: `ops/stripe.rs`, `Stripe`.
pub(super) struct View<'a> {
    pub(super) bricks: &'a [&'a Brick],
    pub(super) code4: &'a Code4,
    pub(super) k: usize,
    /// Blocks of a unit.
    pub(super) unit: usize,
    pub(super) me: usize,
    pub(super) live: u64,
    pub(super) epoch: Epoch,
    pub(super) key: StripeKey,
    pub(super) shape: Shape,
    /// Decided operations, whether the slots know it or not.
    pub(super) decided: Vec<Seq>,
    pub(super) mutant: Option<Mutant>,
}

impl View<'_> {
    fn is_live(&self, slot: usize) -> bool {
        self.live & 1 << slot != 0
    }

    /// `Stripe::unit`: the newest bytes of a data unit. `force_decode`: as if its brick did not answer.
    pub(super) fn data_unit(&self, unit: usize, force_decode: bool) -> Result<Vec<Cell>, Refusal> {
        if self.is_live(unit)
            && !force_decode
            && let Ok(cells) = self.read(unit, None)
        {
            return Ok(cells);
        }
        self.decode(unit)
    }

    /// `Stripe::read`.
    fn read(&self, slot: usize, identity: Option<Seq>) -> Result<Vec<Cell>, Refusal> {
        let brick = self.bricks[slot];
        if brick.now.core.served(GROUP) != Some(self.epoch) {
            return Err(Refusal::NotServing);
        }
        brick.read(self.key, 0..self.unit, self.unit, identity, &self.decided)
    }

    /// `Stripe::decode` and `decode_base`.
    fn decode(&self, unit: usize) -> Result<Vec<Cell>, Refusal> {
        if self.me < self.k {
            return Err(Refusal::TooFewLive);
        }
        let at = unit * self.unit * BLOCK;
        let range = at..at + self.unit * BLOCK;
        let me = self.bricks[self.me];
        let overlays = me.now.core.overlays_over(self.key, &range, self.shape.identity);
        let mut cells = vec![0; self.unit];
        if self.unit_len(unit) > 0 {
            let mut sources = Vec::new();
            for slot in (0..self.bricks.len()).filter(|slot| *slot != unit) {
                if sources.len() == self.k {
                    break;
                }
                if slot < self.k && self.unit_len(slot) == 0 {
                    sources.push((slot, Vec::new()));
                } else if self.is_live(slot) {
                    let identity = self.shape.identity_of(slot);
                    let unchecked = self.mutant == Some(Mutant::AnyVersion) && slot < self.k;
                    if let Ok(cells) = self.read(slot, (!unchecked).then_some(identity)) {
                        sources.push((slot, cells));
                    }
                }
            }
            if sources.len() < self.k {
                return Err(Refusal::TooFewLive);
            }
            cells = self.code4.decode(&sources, unit, self.unit).ok_or(Refusal::Corrupt)?;
            cells[self.unit_len(unit)..].fill(0);
        }
        me.lay_over(&mut cells, &overlays)?;
        Ok(cells)
    }

    /// `Stripe::unit_len`, in blocks.
    fn unit_len(&self, unit: usize) -> usize {
        self.shape.unit_blocks.get(unit).map_or(0, |blocks| *blocks as usize)
    }
}

/// The contents of a write: blocks of the stripe, and their bytes.
#[derive(Clone, Debug)]
pub(super) struct WriteRequest {
    /// Ascending.
    pub(super) cells: Vec<(usize, Cell)>,
    pub(super) zero: bool,
    /// As an overlay, if the stripe exists.
    pub(super) small: bool,
}

/// An operation, planned: `ops/write.rs`, `Plan`.
pub(super) struct Plan {
    pub(super) kind: OpKind,
    touched: u64,
    unit_blocks: Vec<u32>,
    parts: Vec<(Vec<Span>, Vec<Cell>)>,
}

/// `ops/write.rs`, `plan`. `None`: the units that it needs cannot be read now.
pub(super) fn plan(view: &View<'_>, request: &WriteRequest) -> Option<Plan> {
    let whole = request.cells.len() == view.k * view.unit;
    let nothing = || vec![Vec::new(); view.k];
    if request.zero && view.shape.exists && whole {
        return Some(plan_full(view, nothing()));
    }
    if !request.zero && (whole || !view.shape.exists) {
        return Some(plan_full(view, lay_write_over(view, nothing(), request)));
    }
    if !request.zero && !request.small {
        let units: Result<Vec<_>, _> = (0..view.k).map(|unit| view.data_unit(unit, false)).collect();
        if let Ok(units) = units {
            return Some(plan_full(view, lay_write_over(view, units, request)));
        }
    }
    Some(plan_overlay(view, request))
}

/// `ops/fold.rs`, `fold`, where the stripe is written whole.
pub(super) fn plan_fold(view: &View<'_>) -> Option<Plan> {
    let units: Result<Vec<_>, _> = (0..view.k).map(|unit| view.data_unit(unit, false)).collect();
    Some(plan_full(view, units.ok()?))
}

/// `ops/write.rs`, `plan_full`: each data unit ends where only zeros follow.
fn plan_full(view: &View<'_>, mut units: Vec<Vec<Cell>>) -> Plan {
    for unit in &mut units {
        let len = unit.iter().rposition(|cell| *cell != 0).map_or(0, |last| last + 1);
        unit.truncate(len);
    }
    let unit_blocks: Vec<u32> = units.iter().map(|unit| unit.len() as u32).collect();
    let parity = view.code4.encode(&units);
    let is_empty =
        unit_blocks.iter().all(|blocks| *blocks == 0) && view.mutant != Some(Mutant::ZerosOnParityAlone);
    let touched =
        |(unit, blocks): &(usize, &u32)| view.shape.exists || **blocks > 0 || *unit == 0 && is_empty;
    let touched = unit_blocks.iter().enumerate().filter(touched).fold(0, |mask, (unit, _)| mask | 1 << unit);
    let parts = units.into_iter().chain(parity).map(|payload| (Vec::new(), payload)).collect();
    Plan { kind: OpKind::Full, touched, unit_blocks, parts }
}

/// `ops/write.rs`, `lay_write_over`.
fn lay_write_over(view: &View<'_>, mut units: Vec<Vec<Cell>>, request: &WriteRequest) -> Vec<Vec<Cell>> {
    for (at, cell) in &request.cells {
        let unit = &mut units[at / view.unit];
        unit.resize(unit.len().max(at % view.unit + 1), 0);
        unit[at % view.unit] = *cell;
    }
    units
}

/// `ops/write.rs`, `plan_overlay`: data slots get the blocks of their units, all other slots get the whole write.
fn plan_overlay(view: &View<'_>, request: &WriteRequest) -> Plan {
    let kind = if request.zero { OpKind::Zero } else { OpKind::Overlay };
    let unit_of = |at: usize| at / view.unit;
    let touched = request.cells.iter().fold(0, |mask, (at, _)| mask | 1 << unit_of(*at));
    let part = |slot: usize| {
        let mine = |at: usize| slot >= view.k || slot == view.me || unit_of(at) == slot;
        let cells: Vec<_> = request.cells.iter().copied().filter(|(at, _)| mine(*at)).collect();
        let payload = if request.zero { Vec::new() } else { cells.iter().map(|(_, cell)| *cell).collect() };
        (spans(&cells), payload)
    };
    let parts = (0..view.bricks.len()).map(part).collect();
    Plan { kind, touched, unit_blocks: Vec::new(), parts }
}

/// Blocks as ranges that do not touch.
fn spans(cells: &[(usize, Cell)]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, _) in cells {
        let offset = (at * BLOCK) as u32;
        match spans.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += BLOCK as u32,
            _ => spans.push(Span { offset, len: BLOCK as u32 }),
        }
    }
    spans
}

/// A `Prepare` on its way: slot, request, payload.
pub(super) type Delivery = (usize, Prepare, Vec<Cell>);

/// `ops/write.rs`, `replicate`: orders an operation and returns the part of each slot.
pub(super) fn replicate(
    primary: &mut Primary,
    key: StripeKey,
    plan: Plan,
    origins: Vec<WriteId>,
    beside: bool,
) -> Option<(Seq, Vec<Delivery>)> {
    let whole = plan.kind == OpKind::Full;
    // A mutant folds undecided overlays.
    let place = if beside { PrimaryCore::force_order } else { PrimaryCore::order };
    let order = place(&mut primary.core, GROUP, primary.epoch, key, plan.touched, whole, origins.clone())?;
    let Order { seq, participants, targets, acked, decided, .. } = order;
    let offer = joins::offer(primary, seq, key, plan.kind == OpKind::Full, participants);
    let unit_blocks = plan.unit_blocks;
    let prepare = Prepare {
        participants,
        unit_blocks,
        origins,
        acked,
        decided,
        ..empty_prepare(GROUP, seq, key, plan.kind)
    };
    let all = targets.into_iter().map(|(slot, _)| (slot, decided)).chain(offer);
    let deliveries = all.map(|(slot, decided)| {
        let (spans, payload) = plan.parts[slot].clone();
        let crcs = if plan.kind == OpKind::Full { payload.clone() } else { Vec::new() };
        (slot, Prepare { slot: slot as u8, spans, crcs, decided, ..prepare.clone() }, payload)
    });
    Some((seq, deliveries.collect()))
}

/// `ops/patch.rs`, `rows_to_patch` (without its limit of half a stripe) and the first round of `patch`.
pub(super) fn patch(primary: &mut Primary, view: &View<'_>) -> Option<(InFlight, Vec<Delivery>)> {
    let (shape, k, key) = (&view.shape, view.k, view.key);
    let rows_of = |slot| touched_rows(shape.overlays.iter().cloned(), view.unit * BLOCK, Some(slot));
    let rows: Vec<Vec<u32>> = (0..k).map(rows_of).collect();
    let fits = |slot: usize| match rows[slot].last() {
        Some(last) => view.is_live(slot) && shape.unit_blocks.get(slot).is_some_and(|len| last < len),
        None => true,
    };
    if view.me < k || rows.iter().all(Vec::is_empty) || !(0..k).all(fits) {
        return None;
    }
    let touched =
        rows.iter().enumerate().fold(0, |mask, (unit, rows)| mask | u64::from(!rows.is_empty()) << unit);
    let place = if view.mutant == Some(Mutant::FoldUndecided) {
        PrimaryCore::force_order
    } else {
        PrimaryCore::order
    };
    let Order { seq, participants, targets, acked, decided, .. } =
        place(&mut primary.core, GROUP, primary.epoch, key, touched, false, Vec::new())?;
    // The stripe falls behind on a slot that joins. The slot later takes part in a fold that writes the stripe whole.
    if let Some(joining) = primary.joining.as_mut().filter(|joining| participants & 1 << joining.slot != 0) {
        joining.behind.insert(key);
    }
    let prepare = Prepare { participants, acked, decided, ..empty_prepare(GROUP, seq, key, OpKind::Patch) };
    let (data, parity): (Vec<usize>, Vec<usize>) =
        targets.iter().map(|(slot, _)| *slot).partition(|slot| *slot < k);
    let delivery = |slot: &usize| {
        let base = shape.identity_of(*slot);
        (*slot, Prepare { slot: *slot as u8, base, ..prepare.clone() }, Vec::new())
    };
    let deliveries = data.iter().map(delivery).collect();
    let identity = |slot: usize| if touched & 1 << slot != 0 { seq } else { shape.identity_of(slot) };
    let patching = Patching {
        rows: rows.iter().map(|rows| rows.iter().map(|row| *row as usize).collect()).collect(),
        deltas: BTreeMap::new(),
        awaited: touched,
        base: shape.identity,
        identities: (0..k).map(identity).collect(),
        parity,
        prepare,
    };
    Some((InFlight { seq, key, write: None, patch: Some(patching), acked: 0, refused: false }, deliveries))
}

impl Patching {
    /// `ops/patch.rs`, `patch`: a data slot has sent its delta. When all have, the second round begins. An error: the
    /// overlays of a slot differ from those of its primary.
    pub(super) fn add_delta(
        &mut self,
        slot: usize,
        delta: &[Cell],
        code4: &Code4,
    ) -> Result<Option<Vec<Delivery>>, ()> {
        if self.awaited & 1 << slot == 0 {
            return Ok(None);
        }
        if delta.len() != self.rows[slot].len() {
            return Err(());
        }
        self.awaited &= !(1 << slot);
        self.deltas.insert(slot, delta.to_vec());
        if self.awaited != 0 {
            return Ok(None);
        }
        let deliveries = self.parity.iter().map(|slot| {
            let prepare = Prepare {
                slot: *slot as u8,
                base: self.base,
                identities: self.identities.clone(),
                ..self.prepare.clone()
            };
            (*slot, prepare, self.parity_delta(*slot, code4))
        });
        Ok(Some(deliveries.collect()))
    }

    /// `ops/patch.rs`, `parity_delta`.
    fn parity_delta(&self, slot: usize, code4: &Code4) -> Vec<Cell> {
        let mut all: Vec<usize> = self.rows.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let mut cells = vec![0; all.len()];
        for (unit, delta) in &self.deltas {
            for (row, delta) in self.rows[*unit].iter().zip(delta) {
                let at = all.partition_point(|other| other < row);
                code4.update(slot, *unit, *delta, &mut cells[at]);
            }
        }
        cells
    }
}

/// A client's write with this number. It says that the client's file has so many bytes.
pub(super) fn origin(client: u8, number: u64) -> WriteId {
    let (client, seq) = (ClientId(u64::from(client) + 1), ClientSeq(number));
    let note =
        SizeNote { inode: InodeId(client.0), truncate_seq: 0, size: number, mtime: 0, told: ClientSeq(0) };
    WriteId { client, seq, note: Some(note) }
}
