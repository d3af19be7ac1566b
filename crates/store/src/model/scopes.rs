//! What is explored, and that nothing is found.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};

use super::cluster::{Scope, Write};

/// What came of a search.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) depth: usize,
    pub(super) complete: bool,
    /// The property that fails, and how it comes to that.
    pub(super) wrong: Option<(&'static str, String)>,
}

/// Searches breadth first, or depth first where the scope is large: that takes less memory.
pub(super) fn search(scope: &Scope, deep: bool, states: usize, seconds: u64) -> Found {
    let checker = scope
        .clone()
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::Any)
        .target_state_count(states)
        .timeout(Duration::from_secs(seconds));
    match deep {
        true => report(checker.spawn_dfs().join()),
        false => report(checker.spawn_bfs().join()),
    }
}

fn report(checker: impl Checker<Scope>) -> Found {
    let wrong = checker.discoveries().into_iter().next().map(|(name, path)| {
        let last = path.last_state().clone();
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("  {action:?}")).collect();
        (name, format!("{:?}\n{}\n{last:?}", last.wrong, steps.join("\n")))
    });
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    let found = Found { states, depth, complete: checker.is_done(), wrong };
    println!("{states} states, depth {depth}, complete: {}", found.complete);
    found
}

/// Nothing may be wrong in all of a scope.
pub(super) fn is_sound(scope: &Scope) -> Found {
    let found = search(scope, false, usize::MAX, 600);
    assert!(found.wrong.is_none(), "{}", found.told());
    assert!(found.complete, "the scope was searched to its end");
    found
}

impl Found {
    /// What is wrong, and how it comes to that.
    pub(super) fn told(&self) -> String {
        self.wrong.as_ref().map(|(name, how)| format!("{name}: {how}")).unwrap_or_default()
    }
}

/// A small write of a client to blocks of stripe 0.
pub(super) fn small(client: u8, blocks: &[usize]) -> Write {
    Write { client, stripe: 0, blocks: blocks.to_vec(), zero: false, small: true }
}

/// A write of all of stripe 0, of two units of one block.
pub(super) fn full(client: u8) -> Write {
    small(client, &[0, 1])
}

/// One stripe is written; a slot restarts at any moment, and one may be lost.
pub(super) fn one_write() -> Scope {
    Scope { lazy: true, epochs: 2, crashes: 1, expels: 1, ..Scope::new(2, 1, vec![full(0)]) }
}

/// The same while the primary asks for a new epoch.
pub(super) fn renewed() -> Scope {
    Scope { lazy: true, epochs: 2, crashes: 1, renews: 1, frail: 0b001, ..Scope::new(2, 1, vec![full(0)]) }
}

/// One stripe is written three times, where there is room for two versions of it.
pub(super) fn cramped() -> Scope {
    Scope { lazy: true, data_blocks: 2, ..Scope::new(2, 1, vec![full(0), full(0), full(0)]) }
}

/// A small write over a large one; primaries restart twice.
pub(super) fn restarted() -> Scope {
    Scope { epochs: 3, crashes: 2, frail: 0b100, ..Scope::new(2, 1, vec![full(0), small(0, &[0])]) }
}

/// A slot is lost while something is written over, and its brick comes back.
pub(super) fn returned() -> Scope {
    Scope {
        epochs: 2,
        expels: 1,
        rejoins: 1,
        frail: 0b011,
        ..Scope::new(2, 1, vec![full(0), small(0, &[0])])
    }
}

/// Two clients write over one another; the primary changes.
pub(super) fn contended() -> Scope {
    Scope { epochs: 2, renews: 1, orders: 3, ..Scope::new(2, 1, vec![small(0, &[0]), small(1, &[0])]) }
}

/// Overlays that overlap, folded while they come.
pub(super) fn folded() -> Scope {
    Scope { folds: 1, ..Scope::new(2, 1, vec![full(0), small(0, &[0]), small(0, &[0, 1])]) }
}

#[test]
fn one_write_is_sound() {
    is_sound(&one_write());
}

#[test]
fn renewed_is_sound() {
    is_sound(&renewed());
}

#[test]
fn cramped_is_sound() {
    is_sound(&cramped());
}

#[test]
fn restarted_is_sound() {
    is_sound(&restarted());
}

#[test]
fn returned_is_sound() {
    is_sound(&returned());
}

#[test]
fn contended_is_sound() {
    is_sound(&contended());
}

#[test]
fn folded_is_sound() {
    is_sound(&folded());
}
