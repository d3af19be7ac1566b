//! Records go at once to as many followers as a majority needs, and to the others a little later, many at a time: "thrifty", as
//! Moraru, Andersen and Kaminsky call it ("There Is More Consensus in Egalitarian Parliaments", 2013). A record then costs the
//! leader one message instead of two, and of three servers only two work on it by itself.
//!
//! Which followers are the fastest shows a race: every second all get records at once, and who has one of them when it is chosen,
//! after the time to catch up, goes on getting them at once. Whenever something is not as usual, all do: after [`LAG_US`] the others
//! get a record that is not chosen yet, too, and if they are what makes it chosen, there is a new race.

use std::collections::BTreeSet;

use types::limits::RECORDS_MAX;

use super::leader::Leading;

/// How much later the others get records, in microseconds. A follower that is waited for, and has just died, costs so much, once.
const LAG_US: u64 = 10_000;
/// Time between two races, in microseconds.
const RACE_US: u64 = 1_000_000;
/// Time for servers that are behind to get what they lack before a race, in microseconds.
const CATCH_UP_US: u64 = 2 * LAG_US;
/// A record with more bytes goes to all at once: few bytes gather for the others.
const LARGE: usize = 16 << 10;

/// Who gets records at once.
#[derive(Default)]
pub(super) struct Thrifty {
    /// Their ids; if there are none, all do.
    first: BTreeSet<u64>,
    /// When they won; or since when all get records at once.
    since_us: u64,
    /// The record of a race.
    race: Option<u64>,
}

impl Thrifty {
    /// From now on all get records at once, until the next race has ended.
    fn all_from(now: u64) -> Thrifty {
        Thrifty { first: BTreeSet::new(), since_us: now, race: None }
    }

    /// Whether others get records at once, and a server need not.
    fn is_enough_without(&self, id: u64) -> bool {
        !self.first.is_empty() && !self.first.contains(&id)
    }
}

impl Leading {
    /// A record is about to be sent.
    pub(super) fn line_up(&self, number: u64, bytes: usize) {
        let (now, mut thrifty) = (self.world.now(), self.thrifty.borrow_mut());
        let is_due = !thrifty.first.is_empty() && now >= thrifty.since_us + RACE_US;
        if is_due || bytes > LARGE {
            *thrifty = Thrifty::all_from(now);
        }
        if thrifty.first.is_empty() && thrifty.race.is_none() && now >= thrifty.since_us + CATCH_UP_US {
            thrifty.race = Some(number);
        }
    }

    /// The members change: the next record goes to all.
    pub(super) fn line_up_anew(&self) {
        *self.thrifty.borrow_mut() = Thrifty::all_from(self.world.now());
    }

    /// Records up to `chosen` have just been chosen.
    pub(super) fn end_race(&self, chosen: u64) {
        let has = |id: &u64, number| self.core.borrow().last_of(*id) >= number;
        let mut thrifty = self.thrifty.borrow_mut();
        if let Some(race) = thrifty.race.filter(|race| *race <= chosen) {
            let first = self.other_members().filter(|id| has(id, race)).collect();
            *thrifty = Thrifty { first, ..Thrifty::all_from(self.world.now()) };
        } else if !thrifty.first.iter().all(|id| has(id, chosen)) {
            *thrifty = Thrifty::all_from(self.world.now());
        }
    }

    /// Waits while a server need not get the record `next` yet.
    pub(super) async fn lag(&self, id: u64, next: u64) {
        let last = self.history.borrow().last().unwrap_or(0);
        // One that is to become a member, or is none any more, is not waited for, but should have all soon.
        if next + RECORDS_MAX as u64 <= last || !self.other_members().any(|member| member == id) {
            return;
        }
        let due = async {
            loop {
                let heard = self.heard.wait();
                if !self.thrifty.borrow().is_enough_without(id) || self.is_over() {
                    return;
                }
                heard.await;
            }
        };
        self.world.timeout(LAG_US, due).await;
    }
}
