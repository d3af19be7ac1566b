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
fn is_sound(scope: &Scope) -> Found {
    let found = search(scope, false, usize::MAX, 600);
    assert!(found.wrong.is_none(), "{}", found.wrong.map(|(name, how)| format!("{name}: {how}")).unwrap_or_default());
    assert!(found.complete, "the scope was searched to its end");
    found
}

fn write(client: u8, blocks: &[usize]) -> Write {
    Write { client, stripe: 0, blocks: blocks.to_vec(), zero: false, small: true }
}


fn full(client: u8) -> Write {
    write(client, &[0, 1])
}

#[test]
fn one_full_write() {
    is_sound(&Scope { lazy: true, epochs: 2, crashes: 1, expels: 1, ..Scope::new(2, 1, vec![full(0)]) });
}

#[test]
fn two_writes() {
    is_sound(&Scope { epochs: 3, crashes: 2, ..Scope::new(2, 1, vec![full(0), write(0, &[0])]) });
}

#[test]
fn rejoined() {
    is_sound(&Scope { epochs: 2, expels: 1, rejoins: 1, ..Scope::new(2, 1, vec![full(0), write(0, &[0])]) });
}

#[test]
fn patched() {
    is_sound(&Scope { folds: 1, epochs: 2, crashes: 1, expels: 1, renews: 1, ..Scope::new(2, 1, vec![full(0), write(0, &[0])]) });
}

#[test]
fn two_clients() {
    is_sound(&Scope { epochs: 2, crashes: 1, expels: 1, renews: 1, orders: 3, ..Scope::new(2, 1, vec![write(0, &[0]), write(1, &[0])]) });
}
