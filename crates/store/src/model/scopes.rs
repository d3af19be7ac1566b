//! The protocol is correct in small scopes: each test searches every order of some events, and fails if a state
//! violates a property.

use std::sync::Arc;

use stateright::report::WriteReporter;
use stateright::{Checker, HasDiscoveries, Model};

use super::cluster::{Scope, Write};

/// The result of a search.
pub(super) struct SearchResult {
    complete: bool,
    /// The property that fails, and the steps that lead to it.
    pub(super) wrong: Option<(&'static str, String)>,
}

/// Searches breadth first, or depth first where the scope is large: that takes less memory.
pub(super) fn search(scope: &Scope, deep: bool, steps: usize) -> SearchResult {
    // States found good in another scope prove nothing here.
    let scope = Scope { known_safe: Arc::default(), known_live: Arc::default(), ..scope.clone() };
    let checker = scope.checker().threads(2).finish_when(HasDiscoveries::Any);
    let checker = checker.target_state_count(steps);
    match deep {
        true => {
            let mut told = Vec::new();
            let checker = checker.spawn_dfs().join_and_report(&mut WriteReporter::new(&mut told));
            // States, depth, seconds.
            let told = String::from_utf8_lossy(&told);
            told.lines().filter(|line| line.starts_with("Done")).for_each(|line| println!("  {line}"));
            found(&checker, steps)
        }
        false => found(&checker.spawn_bfs().join(), steps),
    }
}

fn found(checker: &impl Checker<Scope>, steps: usize) -> SearchResult {
    let wrong = checker.discoveries().into_iter().next().map(|(name, path)| {
        let last = path.last_state().clone();
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("  {action:?}")).collect();
        (name, format!("{:?}\n{}\n{last:?}", last.wrong, steps.join("\n")))
    });
    SearchResult { complete: checker.state_count() < steps, wrong }
}

/// Asserts that the whole scope has no violation.
pub(super) fn is_sound(scope: &Scope) -> SearchResult {
    let found = search(scope, false, usize::MAX);
    assert!(found.wrong.is_none(), "{}", found.describe());
    assert!(found.complete, "the scope was searched to its end");
    found
}

impl SearchResult {
    /// The violation, and the steps that lead to it.
    pub(super) fn describe(&self) -> String {
        self.wrong.as_ref().map(|(name, how)| format!("{name}: {how}")).unwrap_or_default()
    }
}

/// A small write of a client to blocks of stripe 0.
pub(super) fn small(client: u8, blocks: &[usize]) -> Write {
    Write { client, stripe: 0, blocks: blocks.to_vec(), zero: false, blank: false, small: true }
}

/// A write of all of stripe 0, of two units of one block.
pub(super) fn full(client: u8) -> Write {
    small(client, &[0, 1])
}

/// One stripe is written; a slot restarts at any moment, and may be lost.
pub(super) fn one_write() -> Scope {
    Scope { lazy: true, epochs: 2, crashes: 1, expels: 1, frail: 0b010, ..Scope::new(2, 1, vec![full(0)]) }
}

/// The same while the primary asks for a new epoch.
pub(super) fn renewed() -> Scope {
    Scope { lazy: true, epochs: 2, crashes: 1, renews: 1, frail: 0b001, ..Scope::new(2, 1, vec![full(0)]) }
}

/// One stripe is written three times, with room for two versions of it.
pub(super) fn cramped() -> Scope {
    Scope { lazy: true, data_blocks: 2, ..Scope::new(2, 1, vec![full(0), full(0), full(0)]) }
}

/// A small write over a large one; primaries restart twice.
pub(super) fn restarted() -> Scope {
    Scope { epochs: 3, crashes: 2, frail: 0b100, ..Scope::new(2, 1, vec![full(0), small(0, &[0])]) }
}

/// A slot is lost during an overwrite, and its brick comes back.
pub(super) fn returned() -> Scope {
    Scope {
        epochs: 2,
        expels: 1,
        rejoins: 1,
        frail: 0b011,
        ..Scope::new(2, 1, vec![full(0), small(0, &[0])])
    }
}

/// Two clients overwrite each other's bytes; the primary changes.
pub(super) fn contended() -> Scope {
    Scope { epochs: 2, renews: 1, orders: 3, ..Scope::new(2, 1, vec![small(0, &[0]), small(1, &[0])]) }
}

/// A client overwrites its own bytes, and a copy of one of its writes comes late, by another way; the primary changes.
pub(super) fn by_two_ways() -> Scope {
    let writes = vec![small(0, &[0]), small(0, &[0])];
    Scope { late: 1, epochs: 2, renews: 1, orders: 3, ..Scope::new(2, 1, writes) }
}

/// A client writes zeros where nothing is, another one writes over them, and the parity slot is lost.
pub(super) fn blank() -> Scope {
    let writes = vec![Write { blank: true, ..small(0, &[0]) }, small(1, &[0])];
    Scope { epochs: 2, expels: 1, orders: 3, frail: 0b100, ..Scope::new(2, 1, writes) }
}

/// Overlapping overlays, folded while more arrive.
pub(super) fn folded() -> Scope {
    Scope { folds: 1, ..Scope::new(2, 1, vec![full(0), small(0, &[0]), small(0, &[0, 1])]) }
}

/// The only parity slot is lost: a data slot becomes the primary, and folds overlays that it does not have.
pub(super) fn without_parity() -> Scope {
    let writes = vec![full(0), small(0, &[1])];
    Scope { folds: 1, epochs: 2, expels: 1, frail: 0b100, ..Scope::new(2, 1, writes) }
}

/// A slot is lost, something is written without it, and it is brought level and admitted.
pub(super) fn admitted() -> Scope {
    let writes = vec![full(0), small(1, &[0])];
    Scope { folds: 1, epochs: 3, expels: 1, rejoins: 1, joins: 1, frail: 0b001, ..Scope::new(2, 1, writes) }
}

/// The only parity slot is lost, something may be written, and a data slot as the primary brings it level.
pub(super) fn admitted_by_data() -> Scope {
    let writes = vec![full(0), small(1, &[1])];
    Scope { frail: 0b100, writes, ..admitted() }
}

/// A small write over a large one, and a checkpoint at any moment. (Each state is judged as if power failed.)
pub(super) fn checkpointed() -> Scope {
    Scope { checkpoints: 1, segments: 1, ..Scope::new(2, 1, vec![full(0), small(0, &[0])]) }
}

/// With one write.
#[test]
fn admitted_is_sound() {
    is_sound(&Scope { writes: vec![full(0)], orders: 1, ..admitted() });
}

#[test]
fn admitted_by_data_is_sound() {
    is_sound(&Scope { writes: vec![full(0)], orders: 1, ..admitted_by_data() });
}

#[test]
fn checkpointed_is_sound() {
    is_sound(&checkpointed());
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
fn blank_is_sound() {
    is_sound(&blank());
}

#[test]
fn by_two_ways_is_sound() {
    is_sound(&by_two_ways());
}

#[test]
fn folded_is_sound() {
    is_sound(&folded());
}

#[test]
fn without_parity_is_sound() {
    is_sound(&without_parity());
}

/// Patches of units with many blocks: untouched blocks stay in place.
#[test]
fn shared_blocks_are_sound() {
    let all: Vec<usize> = (0..8).collect();
    let writes = vec![small(0, &all), small(0, &[1]), small(0, &[1, 6])];
    let scope = Scope { unit: 4, data_blocks: 24, folds: 1, ..Scope::new(2, 1, writes) };
    is_sound(&scope);
}

/// Asserts that a large scope has no violation, as far as it is searched.
fn is_sound_so_far(name: &str, scope: &Scope, steps: usize) {
    println!("{name}:");
    super::cluster::PROPERTIES.iter().for_each(|(_, property)| println!("  always: {property}"));
    let found = search(scope, true, steps);
    assert!(found.wrong.is_none(), "{}", found.describe());
    println!("  {}", if found.complete { "searched to its end" } else { "cut short" });
}

fn zeros(client: u8, blocks: &[usize]) -> Write {
    Write { zero: true, ..small(client, blocks) }
}

/// 2+1: a Full, an Overlay and a Zero that overlap, a fold of either kind, two restarts.
#[test]
#[ignore = "minutes: ./dev model"]
fn four_operations_and_two_restarts() {
    let writes = vec![full(0), small(0, &[0]), zeros(1, &[0])];
    let scope = Scope { folds: 1, epochs: 3, crashes: 2, ..Scope::new(2, 1, writes) };
    is_sound_so_far("2+1, four operations, two restarts", &scope, usize::MAX);
}

/// 2+1: an Overlay and a fold of either kind, a restart, a lost brick, a new epoch.
#[test]
#[ignore = "minutes: ./dev model"]
fn a_fold_among_faults() {
    let writes = vec![full(0), small(0, &[0])];
    let scope = Scope { folds: 1, epochs: 3, crashes: 1, expels: 1, renews: 1, ..Scope::new(2, 1, writes) };
    is_sound_so_far("2+1, a fold, a restart, a loss, a new epoch", &scope, usize::MAX);
}

/// 2+1: the only parity slot is lost, and one of those that fold without it restarts.
#[test]
#[ignore = "minutes: ./dev model"]
fn a_fold_without_parity() {
    let scope = Scope { epochs: 3, crashes: 1, frail: 0b110, ..without_parity() };
    is_sound_so_far("2+1, a fold without parity, a restart", &scope, usize::MAX);
}

/// 2+2: a fold among faults, as far as sixty-five million steps go.
#[test]
#[ignore = "minutes: ./dev model"]
fn two_parity_slots() {
    let writes = vec![full(0), small(0, &[0]), small(1, &[0, 1])];
    let scope = Scope { folds: 1, epochs: 3, crashes: 1, expels: 2, renews: 1, ..Scope::new(2, 2, writes) };
    is_sound_so_far("2+2, four operations, losses and restarts", &scope, 65_000_000);
}

/// Two stripes of one group: their operations overtake one another, but decisions keep the common order.
#[test]
#[ignore = "minutes: ./dev model"]
fn two_stripes() {
    let other = Write { stripe: 1, ..full(0) };
    let scope = Scope { epochs: 2, crashes: 1, frail: 0b100, ..Scope::new(2, 1, vec![full(0), other]) };
    is_sound_so_far("2+1, two stripes, a restart", &scope, usize::MAX);
}

/// A slot is lost, something is written without it, and it is brought level and admitted.
#[test]
#[ignore = "minutes: ./dev model"]
fn a_slot_is_admitted() {
    is_sound_so_far("2+1, a slot is lost and admitted", &admitted(), usize::MAX);
}

#[test]
#[ignore = "minutes: ./dev model"]
fn a_parity_slot_is_admitted_by_data() {
    is_sound_so_far("2+1, the parity slot is lost and admitted", &admitted_by_data(), usize::MAX);
}

/// Checkpoints of any brick at any moment, among folds or with a restart; the latter for three million steps.
#[test]
#[ignore = "minutes: ./dev model"]
fn checkpoints() {
    let scope = Scope { folds: 1, ..checkpointed() };
    is_sound_so_far("2+1, three operations, a segment, a checkpoint", &scope, usize::MAX);
    let scope = Scope { epochs: 2, crashes: 1, frail: 0b100, ..checkpointed() };
    is_sound_so_far("2+1, two operations, a segment, a checkpoint, a restart", &scope, 3_000_000);
}

/// A stripe that becomes empty and is written again, among checkpoints, as far as three million steps go.
#[test]
#[ignore = "minutes: ./dev model"]
fn an_empty_stripe_among_checkpoints() {
    let writes = vec![full(0), zeros(0, &[0, 1]), full(0)];
    let scope = Scope { checkpoints: 2, segments: 1, data_blocks: 3, ..Scope::new(2, 1, writes) };
    is_sound_so_far("2+1, a stripe emptied, a segment, two checkpoints", &scope, 3_000_000);
}

/// A fold is refused by a slot that knows of the next epoch, and a write comes after it.
pub(super) fn after_a_refused_fold() -> Scope {
    let writes = vec![full(0), small(0, &[0]), small(1, &[0])];
    Scope { folds: 1, epochs: 2, expels: 1, ..Scope::new(2, 1, writes) }
}

#[test]
#[ignore = "minutes: ./dev model"]
fn a_write_after_a_refused_fold() {
    is_sound_so_far("2+1, a write after a refused fold", &after_a_refused_fold(), usize::MAX);
}
