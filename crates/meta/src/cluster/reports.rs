//! Failure reports: bricks that renew their leases and cannot be reached, and what is done about them.
//!
//! Bricks and clients say with their heartbeats whom they cannot reach. The arbiter asks all bricks that are Up about each brick of
//! which it hears so. Two bricks *miss* each other if one of them does not reach the other one, and they *meet* if they do not miss
//! each other and one of them has said that it reaches the other one.
//!
//! | event | what happens |
//! |---|---|
//! | a brick misses others, see below | it is *held*: its lease is renewed no more; it is Out when it has run out |
//! | a held brick asks for a lease or joins | refused with `Unreached` until its hold-down is over and others reach it |
//! | another run of a held brick joins | let in at once: somebody may have mended it; the next hold-down is longer |
//! | a reporter is silent for a while | its reports count no more |
//!
//! A brick is held if it misses at least two others, or one other and a client; if it meets no more than it misses; if it has renewed
//! its lease since that is known (a dead brick needs no reports); and if every other brick has been heard about it, or has had the
//! time to answer. Of several such bricks the one that misses most others comes first, and those that it misses are judged without
//! it: so one brick that does not reach the others is the only one that is held. Nothing is done where a group would stop.
//!
//! # Invariants
//! - A held brick is put Out only when its lease has run out, as a silent one.
//! - No group falls below K live slots because of reports.
//! - What reporters say takes bounded memory: [`REPORTED_MAX`] bricks each.

use std::collections::{BTreeMap, BTreeSet};

use types::limits::{HEARTBEAT_US, REPORTED_MAX};
use types::messages::cluster::{BrickState, SlotState};
use types::messages::reach::{ReachReport, UnreachedBrick};
use types::{BrickId, ClientId};

use super::bricks::codes_of;
use super::map::Cluster;

/// What a reporter said counts for so long, in microseconds. It repeats it each second.
const FRESH_US: u64 = 4 * HEARTBEAT_US;
/// How long bricks have for an answer whether they reach another one, in microseconds: their next heartbeat, two probes, and one more
/// heartbeat.
const ANSWER_US: u64 = 4 * HEARTBEAT_US;
/// First and longest hold-down, in microseconds. Each is twice as long as the one before.
const HOLD_MIN_US: u64 = 5_000_000;
const HOLD_MAX_US: u64 = 320_000_000;
/// A brick that was let in so long ago is as good as new, in microseconds.
const GOOD_US: u64 = 600_000_000;

/// What reporters have said, and the bricks that are held for it.
#[derive(Default)]
pub(super) struct Reports {
    bricks: BTreeMap<BrickId, Report>,
    clients: BTreeMap<ClientId, Report>,
    /// Since when a brick misses others.
    since: BTreeMap<BrickId, u64>,
    holds: BTreeMap<BrickId, Hold>,
    /// The bricks about which others are asked.
    doubtful: Vec<BrickId>,
    /// Those that should be held, and that a group cannot do without.
    needed: BTreeSet<BrickId>,
}

struct Report {
    heard: u64,
    unreached: BTreeSet<BrickId>,
    reached: BTreeSet<BrickId>,
}

struct Hold {
    /// How long it lasts or lasted, in microseconds.
    us: u64,
    until: u64,
    is_over: bool,
}

/// What the arbiter has decided by reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Bricks that get no lease any more, each with those that it misses.
    pub(crate) held: Vec<(BrickId, Vec<BrickId>)>,
    /// Bricks that stay as they are because a group would stop without them. They were not named before.
    pub(crate) needed: Vec<BrickId>,
}

/// Whom bricks miss and meet.
#[derive(Default)]
struct Ties {
    missed: BTreeMap<BrickId, BTreeSet<BrickId>>,
    met: BTreeMap<BrickId, BTreeSet<BrickId>>,
}

impl Ties {
    fn missed(&self, brick: BrickId, without: &BTreeSet<BrickId>) -> Vec<BrickId> {
        those(&self.missed, brick).filter(|other| !without.contains(other)).collect()
    }

    fn met(&self, brick: BrickId, without: &BTreeSet<BrickId>) -> Vec<BrickId> {
        let missed = self.missed.get(&brick);
        let is_missed = |other: &BrickId| missed.is_some_and(|missed| missed.contains(other));
        those(&self.met, brick).filter(|other| !without.contains(other) && !is_missed(other)).collect()
    }
}

fn those(of: &BTreeMap<BrickId, BTreeSet<BrickId>>, brick: BrickId) -> impl Iterator<Item = BrickId> {
    of.get(&brick).into_iter().flatten().copied()
}

impl Reports {
    /// What a brick says of others.
    pub(super) fn take(&mut self, reporter: BrickId, report: &ReachReport, now: u64) {
        let listed = |bricks: &[BrickId]| -> BTreeSet<BrickId> {
            bricks.iter().copied().filter(|brick| *brick != reporter).take(REPORTED_MAX).collect()
        };
        let (unreached, reached) = (listed(&report.unreached), listed(&report.reached));
        self.bricks.insert(reporter, Report { heard: now, unreached, reached });
    }

    /// The service heard nobody for this many microseconds: what was said counts for as much longer.
    pub(super) fn extend(&mut self, us: u64) {
        self.since.values_mut().for_each(|since| *since += us);
        let reports = self.bricks.values_mut().chain(self.clients.values_mut());
        reports.for_each(|report| report.heard += us);
    }

    /// Another run of a brick has joined: what was said of the one before counts no more.
    pub(super) fn forget(&mut self, brick: BrickId) {
        self.since.remove(&brick);
        self.needed.remove(&brick);
        self.bricks.remove(&brick);
        for report in self.bricks.values_mut().chain(self.clients.values_mut()) {
            report.unreached.remove(&brick);
            report.reached.remove(&brick);
        }
        if let Some(hold) = self.holds.get_mut(&brick) {
            hold.is_over = true;
        }
    }

    /// Whether a brick gets no lease because it cannot be reached.
    pub(super) fn is_held(&self, brick: BrickId) -> bool {
        self.holds.get(&brick).is_some_and(|hold| !hold.is_over)
    }

    fn hold(&mut self, brick: BrickId, now: u64) {
        let before = self.holds.get(&brick).map(|hold| hold.us);
        let us = before.map_or(HOLD_MIN_US, |us| (2 * us).min(HOLD_MAX_US));
        self.holds.insert(brick, Hold { us, until: now + us, is_over: false });
    }

    /// Forgets what is old.
    fn age(&mut self, now: u64) {
        let is_fresh = |report: &Report| now <= report.heard + FRESH_US;
        self.bricks.retain(|_, report| is_fresh(report));
        self.clients.retain(|_, report| is_fresh(report));
        self.holds.retain(|_, hold| !hold.is_over || now <= hold.until + GOOD_US);
    }

    /// Whom bricks miss and meet: only those that `counts`.
    fn ties(&self, counts: impl Fn(BrickId) -> bool) -> Ties {
        let mut ties = Ties::default();
        let pair = |of: &mut BTreeMap<BrickId, BTreeSet<BrickId>>, a: BrickId, b: BrickId| {
            of.entry(a).or_default().insert(b);
            of.entry(b).or_default().insert(a);
        };
        for (reporter, report) in self.bricks.iter().filter(|(reporter, _)| counts(**reporter)) {
            let counted = |bricks: &BTreeSet<BrickId>| -> Vec<BrickId> {
                bricks.iter().copied().filter(|brick| counts(*brick)).collect()
            };
            counted(&report.unreached).iter().for_each(|brick| pair(&mut ties.missed, *reporter, *brick));
            counted(&report.reached).iter().for_each(|brick| pair(&mut ties.met, *reporter, *brick));
        }
        ties
    }

    /// Clients that do not reach a brick.
    fn clients_without(&self, brick: BrickId) -> Vec<ClientId> {
        let clients = self.clients.iter().filter(|(_, report)| report.unreached.contains(&brick));
        clients.map(|(client, _)| *client).collect()
    }

    /// Bricks that somebody does not reach, reporters that do not reach several others, and held bricks.
    fn find_doubtful(&self, is_known: impl Fn(BrickId) -> bool) -> Vec<BrickId> {
        let said = self.bricks.values().chain(self.clients.values());
        let mut doubtful: BTreeSet<BrickId> =
            said.flat_map(|report| &report.unreached).copied().filter(|brick| is_known(*brick)).collect();
        let several = self.bricks.iter().filter(|(_, report)| report.unreached.len() > 1);
        doubtful.extend(several.map(|(reporter, _)| *reporter));
        doubtful.extend(self.holds.iter().filter(|(_, hold)| !hold.is_over).map(|(brick, _)| *brick));
        doubtful.into_iter().take(REPORTED_MAX).collect()
    }
}

impl Cluster {
    /// What a client says that it does not reach.
    pub(crate) fn client_reaches(&mut self, client: ClientId, unreached: &[BrickId], now: u64) {
        if unreached.is_empty() {
            self.reports.clients.remove(&client);
            return;
        }
        let unreached = unreached.iter().copied().take(REPORTED_MAX).collect();
        self.reports.clients.insert(client, Report { heard: now, unreached, reached: BTreeSet::new() });
    }

    /// Bricks about which there are failure reports, for the answer to a heartbeat of `caller`.
    pub(crate) fn doubtful_to(&self, caller: BrickId) -> Vec<BrickId> {
        self.reports.doubtful.iter().copied().filter(|brick| *brick != caller).collect()
    }

    /// Whether a held brick that joins stays without a lease.
    pub(super) fn stays_held(&self, brick: BrickId, now: u64) -> bool {
        let is_too_early = self.reports.holds.get(&brick).is_some_and(|hold| now < hold.until);
        // Its lease must have been seen to end.
        if is_too_early || self.map.is_up(brick) {
            return true;
        }
        let ties = self.reports.ties(|other| other == brick || self.map.is_up(other));
        let nobody = BTreeSet::new();
        let (missed, met) = (ties.missed(brick, &nobody).len(), ties.met(brick, &nobody).len());
        missed > 0 && missed >= met
    }

    /// Decides by the reports which bricks get no lease any more.
    pub(crate) fn judge(&mut self, now: u64) -> Judged {
        self.reports.age(now);
        self.reports.doubtful = self.reports.find_doubtful(|brick| self.map.is_up(brick));
        if self.reports.doubtful.is_empty() {
            self.reports.since.clear();
            self.reports.needed.clear();
            return Judged::default();
        }
        let counts = |brick| self.map.is_up(brick) && !self.reports.is_held(brick);
        let up = self.map.bricks.iter().filter(|brick| counts(brick.id)).count();
        let ties = self.reports.ties(counts);
        let since: BTreeMap<BrickId, u64> = ties
            .missed
            .keys()
            .map(|brick| (*brick, self.reports.since.get(brick).copied().unwrap_or(now)))
            .collect();
        self.reports.since = since;
        let mut out = BTreeSet::new();
        while let Some(brick) = self.worst(&ties, up, &out, now) {
            out.insert(brick);
        }
        if out.is_empty() {
            self.reports.needed.clear();
            return Judged::default();
        }
        if !self.can_do_without(&out) {
            let new: Vec<BrickId> = out.difference(&self.reports.needed).copied().collect();
            self.reports.needed = out;
            return Judged { held: Vec::new(), needed: new };
        }
        let nobody = BTreeSet::new();
        let held = out.iter().map(|brick| (*brick, ties.missed(*brick, &nobody))).collect();
        out.iter().for_each(|brick| self.reports.hold(*brick, now));
        Judged { held, needed: Vec::new() }
    }

    /// The brick that misses most others, if it is to be held; `without` are already.
    fn worst(&self, ties: &Ties, up: usize, without: &BTreeSet<BrickId>, now: u64) -> Option<BrickId> {
        let reports = &self.reports;
        let candidates = ties.missed.keys().filter(|brick| !without.contains(brick)).filter_map(|brick| {
            let missed = ties.missed(*brick, without).len();
            let met = ties.met(*brick, without).len();
            let clients = reports.clients_without(*brick).len();
            let since = *reports.since.get(brick)?;
            let has_renewed = self.instances.get(brick)?.heard > since + HEARTBEAT_US;
            let all_heard = missed + met + 1 + without.len() >= up || now >= since + ANSWER_US;
            let is_enough = missed >= 2 || (missed == 1 && clients > 0);
            let is_held = is_enough && missed >= met && has_renewed && all_heard;
            // The last of equal ones has the lowest id.
            is_held.then_some((missed, clients, std::cmp::Reverse(*brick)))
        });
        candidates.max().map(|(_, _, std::cmp::Reverse(brick))| brick)
    }

    /// Whether every group keeps K live slots without these bricks, and one of those that lose a slot enough for writes.
    fn can_do_without(&self, bricks: &BTreeSet<BrickId>) -> bool {
        let mut helps = false;
        for volume in &self.map.volumes {
            for (group, code) in volume.groups.iter().zip(codes_of(volume)) {
                let live = || group.slots.iter().filter(|slot| slot.state == SlotState::Live);
                let lost = live().filter(|slot| bricks.contains(&slot.brick)).count();
                let left = live().count() - lost;
                if lost > 0 && left < code.k() {
                    return false;
                }
                helps |= lost > 0 && left >= code.live_min();
            }
        }
        helps
    }

    /// The bricks that somebody does not reach, or that are held.
    pub(crate) fn unreached(&self, now: u64) -> Vec<UnreachedBrick> {
        let reports = &self.reports;
        let ties = reports.ties(|brick| self.map.brick(brick).is_some());
        let nobody = BTreeSet::new();
        let report = |brick: &BrickId| {
            let hold = reports.holds.get(brick).filter(|hold| !hold.is_over);
            let (bricks, reached_by) = (ties.missed(*brick, &nobody), ties.met(*brick, &nobody));
            let clients = reports.clients_without(*brick);
            let held_us = hold.map(|hold| hold.until.saturating_sub(now));
            let is_said = held_us.is_some() || !bricks.is_empty() || !clients.is_empty();
            let dead = held_us.is_none()
                && self.map.brick(*brick).is_none_or(|brick| brick.state == BrickState::Out);
            (is_said && !dead).then_some(UnreachedBrick {
                brick: *brick,
                bricks,
                clients,
                reached_by,
                held_us,
            })
        };
        reports.doubtful.iter().filter_map(report).collect()
    }
}

#[cfg(test)]
mod tests;
