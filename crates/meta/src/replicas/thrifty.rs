//! Records go at once to as many followers as a majority needs, and to the others a little later, many at a time: "thrifty", as
//! Moraru, Andersen and Kaminsky call it ("There Is More Consensus in Egalitarian Parliaments", 2013). A record then costs the
//! leader one message instead of two, and of three servers only two work on it by itself.
//!
//! Which followers are the fastest shows a race: from time to time a record is sent to all, once all have those before it, and who
//! has it when it is chosen gets the next ones at once. Whenever something is not as usual, all get everything at once: after
//! [`LAG_US`] the others get a record that is not chosen yet, too, and if they are what makes it chosen, there is a new race.

use std::collections::BTreeSet;

use types::limits::RECORDS_MAX;

use super::leader::Leading;

/// How much later the others get records, in microseconds. A follower that is waited for, and has just died, costs so much, once.
const LAG_US: u64 = 10_000;
/// Time between two races, in microseconds.
const RACE_US: u64 = 1_000_000;
/// A record with more bytes goes to all at once: those that gather for the others stay few.
const LARGE: usize = 16 << 10;

/// Who gets records at once.
#[derive(Default)]
pub(super) struct Thrifty {
    /// Those that do; if there are none, all do.
    first: BTreeSet<u64>,
    /// When they won.
    since_us: u64,
    /// The record of a race.
    race: Option<u64>,
}

impl Leading {
    /// A record is about to be sent.
    pub(super) fn line_up(&self, number: u64, bytes: usize) {
        let mut thrifty = self.thrifty.borrow_mut();
        if bytes > LARGE || self.world.now() >= thrifty.since_us + RACE_US {
            thrifty.first.clear();
        }
        if thrifty.first.is_empty() {
            let progress = self.progress.borrow();
            let has_all = |id: &u64| progress.get(id).is_some_and(|known| known.last + 1 >= number);
            let is_fair = self.other_members().filter(|id| self.was_heard_lately(*id)).all(|id| has_all(&id));
            thrifty.race = is_fair.then_some(number);
        }
    }

    /// The members change: the next record goes to all.
    pub(super) fn line_up_anew(&self) {
        *self.thrifty.borrow_mut() = Thrifty::default();
    }

    /// Records up to `chosen` have just been chosen.
    pub(super) fn end_race(&self, chosen: u64) {
        let progress = self.progress.borrow();
        let has = |id: &u64, number| progress.get(id).is_some_and(|known| known.last >= number);
        let mut thrifty = self.thrifty.borrow_mut();
        if let Some(race) = thrifty.race.filter(|race| *race <= chosen) {
            thrifty.first = self.other_members().filter(|id| has(id, race)).collect();
            thrifty.since_us = self.world.now();
            thrifty.race = None;
        } else if !thrifty.first.iter().all(|id| has(id, chosen)) {
            thrifty.first.clear();
        }
    }

    /// Waits while a server need not get the record `next` yet.
    pub(super) async fn lag(&self, id: u64, next: u64) {
        let last = self.history.borrow().last().unwrap_or(0);
        // One that is to become a member, or is none any more, is not waited for, but should have all soon.
        if next + RECORDS_MAX as u64 <= last || !self.other_members().any(|member| member == id) {
            return;
        }
        let ended = async {
            loop {
                let heard = self.heard.wait();
                let thrifty = self.thrifty.borrow();
                let others_do = !thrifty.first.is_empty() && !thrifty.first.contains(&id);
                drop(thrifty);
                if !others_do || self.is_over() {
                    return;
                }
                heard.await;
            }
        };
        self.world.timeout(LAG_US, ended).await;
    }
}
