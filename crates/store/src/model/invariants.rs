//! What must hold in every state, also if the power failed now, and for every loss of bricks that leaves K.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use types::messages::brick::Tail;
use types::{Epoch, Seq, StripeKey};

use super::brick::{Brick, GROUP, Record};
use super::bytes::Cell;
use super::cluster::{Scope, State};
use super::mutants::Mutant;
use super::oracle::{Fate, Op, Oracle};
use super::primary::Primary;
use super::steps::settle_record;
use crate::primary::PrimaryCore;
use crate::record::Promise;

impl Scope {
    /// Notes the first violation.
    pub(super) fn check_invariants(&self, state: &mut State) {
        if state.wrong.is_none() {
            self.note_shown(state);
            state.wrong = self.check(state).err();
        }
        if state.wrong.is_none() && self.with_liveness {
            state.wrong = self.check_liveness(state).err();
        }
    }

    /// An operation that a slot knows as decided is final as soon as a client may have read it there.
    fn note_shown(&self, state: &mut State) {
        let (_, live) = state.config();
        let leases = state.leases;
        for slot in self.slots().filter(|slot| live & leases & 1 << slot != 0) {
            let now = &state.bricks[slot].now;
            if now.core.served(GROUP).is_none() {
                continue;
            }
            let open = |seq: &&Seq| state.oracle.ops.get(seq).is_some_and(|op| op.fate == Fate::Open);
            let shown: Vec<Seq> = now.applied.iter().filter(open).copied().collect();
            if !shown.is_empty() {
                let ops = &mut std::sync::Arc::make_mut(&mut state.oracle).ops;
                shown.iter().filter_map(|seq| ops.get_mut(seq).map(|op| op.fate = Fate::Committed)).count();
            }
        }
    }

    fn check(&self, state: &State) -> Result<(), String> {
        for brick in &state.bricks {
            brick.check_space(self.data_blocks)?;
        }
        let (_, live) = state.config();
        self.check_fates(state.bricks.iter().map(|brick| &**brick), live, &state.oracle)?;
        self.check_reads(state)?;
        for primary in state.primaries.iter().filter(|p| p.epoch == state.config().0 && p.is_serving()) {
            self.check_notes(&primary.core, &state.oracle)?;
        }
        let fingerprint = Scope::fingerprint_of_checked(state);
        // Most steps change nothing that the remaining checks depend on.
        if self.known_safe.contains(fingerprint) {
            return Ok(());
        }
        self.check_overlays(state)?;
        for key in self.keys() {
            let (_, from) = state.oracle.content(key, self.len(), |_, op| op.fate == Fate::Committed);
            self.check_order(&state.oracle, key, &from)?;
            state.oracle.check_once(key)?;
        }
        for survivors in (1..1u64 << self.code.slots()).filter(|set| set & !live == 0) {
            if survivors.count_ones() as usize >= self.code.k() {
                self.check_survivors(state, survivors, false)?;
                if state.bricks.iter().any(|brick| survivors & 1 << brick.slot != 0 && brick.may_differ()) {
                    self.check_survivors(state, survivors, true)?;
                }
            }
        }
        self.known_safe.insert(fingerprint);
        Ok(())
    }

    /// Blocks of a stripe.
    fn len(&self) -> usize {
        self.code.k() * self.unit
    }

    fn fingerprint_of_checked(state: &State) -> u64 {
        let mut hasher = DefaultHasher::new();
        state.bricks.iter().for_each(|brick| brick.fingerprint(&mut hasher));
        state.config().1.hash(&mut hasher);
        state.oracle.fingerprint(&mut hasher);
        hasher.finish()
    }

    fn covers(&self, key: StripeKey) -> impl Fn(usize, usize) -> bool {
        move |write, at| {
            let write = &self.writes[write];
            Scope::key(write.stripe) == key && write.blocks.contains(&at)
        }
    }

    fn check_order(&self, oracle: &Oracle, key: StripeKey, from: &[Option<usize>]) -> Result<(), String> {
        oracle.check_order(from, self.covers(key))
    }

    /// I2, I5: no slot drops an operation that another has applied, and the outcome of a take-over is final.
    fn check_fates<'a>(
        &self,
        bricks: impl Iterator<Item = &'a Brick> + Clone,
        live: u64,
        oracle: &Oracle,
    ) -> Result<(), String> {
        let bricks = bricks.filter(|brick| live & 1 << brick.slot != 0);
        for (seq, op) in &oracle.ops {
            let applied = bricks.clone().find(|brick| brick.now.applied.contains(seq));
            let dropped = bricks.clone().find(|brick| brick.now.dropped.contains(seq));
            match (applied, dropped, op.fate) {
                (Some(one), Some(other), _) => {
                    return Err(format!(
                        "I2 {seq}: slot {} has it, slot {} dropped it",
                        one.slot, other.slot
                    ));
                }
                (Some(one), _, Fate::Aborted) => {
                    return Err(format!("I5 {seq} was aborted, slot {} made it part of a unit", one.slot));
                }
                (_, Some(one), Fate::Committed) => {
                    return Err(format!("I2 {seq} stands, slot {} dropped it", one.slot));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// I6: what clients could read now, directly from a slot and through a primary. `ops/read.rs`, `read_unit`.
    fn check_reads(&self, state: &State) -> Result<(), String> {
        for key in self.keys() {
            let (expected, _) = state.oracle.content(key, self.len(), |_, op| op.fate == Fate::Committed);
            for slot in 0..self.code.k() {
                let brick = &state.bricks[slot];
                let Some(served) = brick.now.core.served(GROUP).filter(|_| state.has_lease(slot)) else {
                    continue;
                };
                if !self.may_serve(state, slot, served) {
                    continue;
                }
                let all: Vec<Seq> = state.oracle.ops.keys().copied().collect();
                let decided: &[Seq] = if self.is(Mutant::ServeUndecided) { &all } else { &[] };
                let read = brick.read(key, 0..self.unit, self.unit, None, decided);
                let wanted = &expected[slot * self.unit..(slot + 1) * self.unit];
                if read.as_ref().is_ok_and(|read| read != wanted) {
                    return Err(format!("I6 slot {slot} answers {read:x?}, committed is {wanted:x?}"));
                }
            }
            for (at, primary) in state.primaries.iter().enumerate() {
                if primary.is_serving()
                    && state.has_lease(at)
                    && primary.busy.iter().all(|busy| busy.key != key)
                {
                    self.check_stripe(state, at, primary, key, &expected)?;
                }
            }
        }
        Ok(())
    }

    /// `ops/read.rs`, `check_reader`: whether a brick answers clients of an epoch, by its map.
    fn may_serve(&self, state: &State, slot: usize, served: Epoch) -> bool {
        // A client of an epoch asks only slots that are live in it.
        let asked = state.live_in(served) & 1 << slot != 0;
        asked && (state.maps[slot] <= served || self.is(Mutant::TrustLease))
    }

    /// `ops/read_stripe.rs`: each data unit, read and decoded.
    fn check_stripe(
        &self,
        state: &State,
        at: usize,
        primary: &Primary,
        key: StripeKey,
        expected: &[Cell],
    ) -> Result<(), String> {
        let bricks: Vec<&Brick> = state.bricks.iter().map(|brick| &**brick).collect();
        let view = self.view(&bricks, primary, &state.oracle, at, state.live_in(primary.epoch), key);
        for (unit, force_decode) in (0..self.code.k()).flat_map(|unit| [(unit, false), (unit, true)]) {
            let wanted = &expected[unit * self.unit..(unit + 1) * self.unit];
            let read = view.data_unit(unit, force_decode);
            if read.as_ref().is_ok_and(|read| read != wanted) {
                return Err(format!(
                    "I6 primary {at} answers {read:x?} for unit {unit} (decoded: {force_decode}), committed is {wanted:x?}"
                ));
            }
        }
        Ok(())
    }

    /// I11: a decided overlay is durable on every live participant until it is folded.
    fn check_overlays(&self, state: &State) -> Result<(), String> {
        let (_, live) = state.config();
        for (seq, op) in state.oracle.ops.iter().filter(|(_, op)| op.small && op.fate == Fate::Committed) {
            for slot in self.slots().filter(|slot| live & op.participants & 1 << slot != 0) {
                if !state.bricks[slot].has_durably(op.key, *seq) {
                    return Err(format!("I11 slot {slot} lacks the overlay {seq}"));
                }
            }
        }
        Ok(())
    }

    /// I1, I3: only these bricks are left, and a take-over has run. `crashed`: they lost everything that was not
    /// durable.
    fn check_survivors(&self, state: &State, survivors: u64, crashed: bool) -> Result<(), String> {
        let (epoch, _) = state.config();
        let epoch = epoch.next();
        let config = self.config(epoch, survivors);
        let me = config.primary(self.code).expect("a live slot");
        let keys = self.keys();
        let mut bricks: Vec<Brick> = state.bricks.iter().map(|brick| (**brick).clone()).collect();
        let mut core = PrimaryCore::default();
        core.begin(GROUP, config, self.code, me);
        let mut settlement = None;
        for slot in self.slots().filter(|slot| survivors & 1 << slot != 0) {
            bricks[slot] = bricks[slot].later(crashed, &keys, self.mutant);
            bricks[slot].append(Record::Promise(Promise { group: GROUP, epoch }));
            let tail: Tail = bricks[slot].now.core.tail(GROUP, 0);
            settlement = core.promised(GROUP, epoch, slot, tail).or(settlement);
        }
        let settlement = settlement.expect("all have promised");
        for slot in self.slots().filter(|slot| survivors & 1 << slot != 0) {
            bricks[slot].append(Record::Settle(settle_record(epoch, &settlement)));
            core.settled(GROUP, epoch, slot);
        }
        let left = |what: &str| format!("{what} (left: {survivors:b}, crashed: {crashed})");
        self.check_fates(bricks.iter(), survivors, &state.oracle).map_err(|wrong| left(&wrong))?;
        let mut counts = BTreeMap::new();
        for (seq, op) in &state.oracle.ops {
            counts.insert(*seq, self.counts(&bricks, survivors, *seq, op).map_err(|wrong| left(&wrong))?);
        }
        self.check_notes(&core, &state.oracle).map_err(|wrong| left(&wrong))?;
        let primary = Primary { core, epoch, ..Primary::default() };
        let bricks: Vec<&Brick> = bricks.iter().collect();
        for key in keys {
            let (expected, from) = state.oracle.content(key, self.len(), |seq, _| counts[&seq]);
            self.check_order(&state.oracle, key, &from).map_err(|wrong| left(&wrong))?;
            let view = self.view(&bricks, &primary, &state.oracle, me, survivors, key);
            for unit in 0..self.code.k() {
                let wanted = &expected[unit * self.unit..(unit + 1) * self.unit];
                let lives = survivors & 1 << unit != 0;
                let others = (survivors & !(1 << unit)).count_ones() as usize;
                for force_decode in [false, true] {
                    if if force_decode { others < self.code.k() } else { !lives } {
                        continue;
                    }
                    let read = view.data_unit(unit, force_decode);
                    if read.as_ref().map(|read| &**read) != Ok(wanted) {
                        return Err(left(&format!(
                            "I3 unit {unit} is {read:x?} (decoded: {force_decode}), should be {wanted:x?}"
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// A primary knows what every stable write has noted, or what a later one of its client has: nobody else is asked.
    fn check_notes(&self, core: &PrimaryCore, oracle: &Oracle) -> Result<(), String> {
        let windows = core.windows(GROUP);
        for write in (0..self.writes.len()).filter(|write| oracle.stable & 1 << write != 0) {
            let origin = self.origin(write);
            let window = windows.iter().find(|window| window.client == origin.client);
            if !window.is_some_and(|window| window.notes.iter().any(|kept| kept.seq >= origin.seq)) {
                return Err(format!("I1 write {write} was stable, what it has noted is lost"));
            }
        }
        Ok(())
    }

    /// Whether an operation has taken effect on the survivors: either on all that are participants, or on none.
    fn counts(&self, bricks: &[Brick], survivors: u64, seq: Seq, op: &Op) -> Result<bool, String> {
        let part = op.participants & survivors;
        let has = self
            .slots()
            .filter(|slot| part & 1 << slot != 0 && bricks[*slot].now.applied.contains(&seq))
            .fold(0u64, |mask, slot| mask | 1 << slot);
        match (has, op.fate) {
            (has, _) if has == part => Ok(part != 0),
            (0, Fate::Committed) => Err(format!("I1 {seq} stands, nobody has it")),
            (0, _) => Ok(false),
            (has, _) => Err(format!("I2 {seq} is on slots {has:b} of {part:b}")),
        }
    }
}
