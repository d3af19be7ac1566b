//! Servers with several addresses: a connection over each, and what is called spread over all of them.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::{join, join_all};
use types::RAIL;
use types::code_probe::{CodeProbe, hit};

use super::connect::{Silence, connect_to};
use super::handshake::Target;
use super::peers::Link;
use super::{CallError, Identity};
use crate::World;

/// A rail that has failed is left alone for so long at first, and for so long at most, in microseconds.
const PAUSE_MIN_US: u64 = 500_000;
const PAUSE_MAX_US: u64 = 15_000_000;
/// A rail that has worked for so long is as good as new, in microseconds.
const GOOD_US: u64 = 60_000_000;
/// A rail that owes an answer and was silent for so long is used only if all are, in microseconds.
const LATE_US: u64 = 100_000;
/// One that was silent for so long may be cut, in microseconds.
const SILENCE_US: u64 = 1_000_000;
/// How long a new connection to a server may take that is asked whether it is cut off, in microseconds: TCP repeats the first packet
/// after 1 s.
const ANSWER_US: u64 = 2_500_000;

/// The rails of one server.
pub(super) struct Rails {
    /// The addresses as one.
    name: String,
    all: Vec<State>,
    /// Which of several equal ones comes next.
    turn: Cell<usize>,
}

struct State {
    address: String,
    /// Until when nobody tries it, since it has failed.
    retry_us: Cell<u64>,
    pause_us: Cell<u64>,
    /// When its connection was made.
    opened_us: Cell<u64>,
}

/// One of them.
#[derive(Clone)]
pub(super) struct Rail {
    rails: Rc<Rails>,
    at: usize,
}

impl Rails {
    /// Of a server at these addresses.
    pub(super) fn new(addresses: &str) -> Rails {
        let state = |address: &str| State {
            address: address.to_owned(),
            retry_us: Cell::new(0),
            pause_us: Cell::new(PAUSE_MIN_US),
            opened_us: Cell::new(0),
        };
        Rails {
            name: addresses.to_owned(),
            all: addresses.split(RAIL).map(state).collect(),
            turn: Cell::new(0),
        }
    }

    /// All of them.
    pub(super) fn each(self: &Rc<Rails>) -> impl Iterator<Item = Rail> + '_ {
        (0..self.all.len()).map(|at| Rail { rails: Rc::clone(self), at })
    }

    /// Of open connections, the one for a call: for a small one the first; for a large one that with the fewest bytes under way, by
    /// turns if that is equal. One from which nothing comes is the last choice.
    pub(super) fn choose<'a>(
        &self,
        open: &'a [Rc<Link>],
        now_us: u64,
        is_large: bool,
    ) -> Option<&'a Rc<Link>> {
        let is_late = |link: &Rc<Link>| link.is_silent(now_us, LATE_US);
        if !is_large {
            return open.iter().min_by_key(|link| is_late(link));
        }
        let count = open.len().max(1);
        let first = self.turn.get() % count;
        let ranked = open.iter().enumerate().map(|(at, link)| ((at + count - first) % count, link));
        let (rank, chosen) = ranked.min_by_key(|(rank, link)| (is_late(link), link.under_way(), *rank))?;
        self.turn.set((first + rank + 1) % count);
        Some(chosen)
    }
}

impl Rail {
    fn state(&self) -> &State {
        &self.rails.all[self.at]
    }

    /// Its address.
    pub(super) fn address(&self) -> &str {
        &self.state().address
    }

    /// Whether a server that calls itself so is the one that it is a rail of. Another one would take what is not meant for it: the
    /// address may be of several machines, in networks that do not know each other.
    pub(super) fn leads_to(&self, name: &str) -> bool {
        let is_it = name == self.rails.name;
        if !is_it {
            let (rail, server) = (self.address(), &*self.rails.name);
            tracing::warn!(rail, server, found = name, "an address leads to another server, and is not used");
        }
        is_it
    }

    /// Whether it may be tried.
    pub(super) fn is_usable(&self, now_us: u64) -> bool {
        now_us >= self.state().retry_us.get()
    }

    /// Its connection is made.
    pub(super) fn opened(&self, now_us: u64) {
        self.state().opened_us.set(now_us);
        self.state().retry_us.set(0);
    }

    /// Its connection has ended, or could not be made.
    pub(super) fn failed(&self, now_us: u64) {
        let state = self.state();
        let opened_us = state.opened_us.take();
        let was_good = opened_us > 0 && now_us >= opened_us + GOOD_US;
        let pause_us = if was_good { PAUSE_MIN_US } else { state.pause_us.get() };
        state.retry_us.set(now_us + pause_us);
        state.pause_us.set((2 * pause_us).min(PAUSE_MAX_US));
    }

    fn others(&self) -> impl Iterator<Item = &str> {
        let others = self.rails.all.iter().enumerate().filter(|(at, _)| *at != self.at);
        others.map(|(_, state)| &*state.address)
    }
}

/// Returns when the server of a connection answers over another rail and not over this one, for which calls wait. TCP and calls give
/// up only after ten seconds.
pub(super) async fn is_cut(world: &World, identity: &Identity, link: &Link, rail: &Rail) {
    let mut silence = Silence::of(SILENCE_US);
    loop {
        silence.wait(world, link).await;
        let answers = |address| async move {
            let asked = world
                .timeout(ANSWER_US, connect_to(world, identity, Target { meant: link.meant(), address }))
                .await;
            match asked {
                Some(Ok(opened)) => opened.name == rail.rails.name,
                None | Some(Err(CallError::Unreachable)) => false,
                // A server that refuses is there as well.
                Some(Err(_)) => true,
            }
        };
        let (here, elsewhere) = join(answers(rail.address()), join_all(rail.others().map(answers))).await;
        if elsewhere.contains(&true) && !here {
            hit(CodeProbe::RailCut);
            return tracing::warn!(
                rail = rail.address(),
                "does not answer any more; other addresses of the server do"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_fails_again_and_again_is_left_alone_for_longer() {
        let rails = Rc::new(Rails::new("a:1+b:1"));
        let rail = rails.each().nth(1).expect("two");
        assert_eq!((rail.address(), rail.others().collect::<Vec<_>>()), ("b:1", vec!["a:1"]));
        assert!(rail.is_usable(0));
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                rail.failed(1_000_000);
                rail.state().retry_us.get() - 1_000_000
            })
            .collect();
        assert_eq!(pauses, [500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 15_000_000, 15_000_000]);
        assert!(!rail.is_usable(15_999_999) && rail.is_usable(16_000_000));
        rail.opened(20_000_000);
        rail.failed(20_000_000 + GOOD_US);
        assert!(rail.is_usable(20_000_000 + GOOD_US + PAUSE_MIN_US), "it had been good for a minute");
    }
}
