//! The agreement is correct in small scopes: each test searches every order of some events, and fails if a state violates a property.

use stateright::{Checker, HasDiscoveries, Model};

use super::mutants::Mutant;
use super::scope::Scope;

/// Most states of a search that does not come to its end: they fit into 2 GiB.
const STATES_MAX: usize = 6_000_000;

/// The result of a search.
pub(super) struct Found {
    is_complete: bool,
    /// The violation, and the steps that lead to it.
    pub(super) wrong: Option<String>,
}

/// Searches breadth first, so that a violation comes with the fewest steps.
pub(super) fn search(scope: &Scope, name: &str) -> Found {
    let checker = scope.clone().checker().threads(1).finish_when(HasDiscoveries::Any);
    let checker = checker.target_state_count(STATES_MAX).spawn_bfs().join();
    let wrong = checker.discoveries().into_values().next().map(|path| {
        let last = path.last_state().clone();
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("  {action:?}")).collect();
        format!("{}\n{}\n{last:#?}", last.wrong.clone().unwrap_or_default(), steps.join("\n"))
    });
    let states = checker.unique_state_count();
    let is_complete = checker.state_count() < STATES_MAX;
    let how_far = if is_complete || wrong.is_some() { "" } else { ", not to its end" };
    println!("{name}: {states} states{how_far}");
    Found { is_complete, wrong }
}

/// Asserts that the whole scope has no violation.
pub(super) fn is_sound(name: &str, scope: &Scope) {
    let found = search(scope, name);
    assert!(found.wrong.is_none(), "{}", found.wrong.unwrap_or_default());
    assert!(found.is_complete, "the scope was searched to its end");
}

/// Asserts that the scope has no violation, as far as it was searched.
fn is_sound_so_far(name: &str, scope: &Scope) {
    let found = search(scope, name);
    assert!(found.wrong.is_none(), "{}", found.wrong.unwrap_or_default());
}

/// Two of three servers stand. All three are alike, so this leaves out only what needs three leaders.
const TWO: u8 = 0b011;

/// Three terms, and a record besides those with which terms begin.
pub(super) fn records() -> Scope {
    Scope { stands: TWO, ..Scope::new(3, 1) }
}

/// Four terms, and only the records with which they begin.
pub(super) fn four_terms() -> Scope {
    Scope { stands: TWO, ..Scope::new(4, 0) }
}

/// A process ends at any moment; a record that was replaced may be found again.
pub(super) fn restarted() -> Scope {
    Scope { stands: TWO, restarts: 1, keeps_other: true, ..Scope::new(3, 0) }
}

/// Every state leads to a leader that gets records chosen.
pub(super) fn lively() -> Scope {
    Scope { stands: TWO, restarts: 1, with_liveness: true, ..Scope::new(2, 1) }
}

/// Promises are on their way to the disk for long; a process ends, and power fails.
pub(super) fn promises() -> Scope {
    Scope { stands: TWO, restarts: 1, cuts: 1, slow_promises: true, ..Scope::new(2, 0) }
}

/// Records are on their way to the disk for long, also many at a time; power fails.
pub(super) fn batches() -> Scope {
    Scope { stands: 0b001, cuts: 1, slow_records: true, batches: true, ..Scope::new(1, 2) }
}

/// Leases, and a server that starts.
pub(super) fn leases() -> Scope {
    Scope { stands: TWO, leases: true, restarts: 1, ..Scope::new(2, 0) }
}

/// Leases, while promises are on their way to the disk.
pub(super) fn leases_and_promises() -> Scope {
    Scope { stands: TWO, leases: true, slow_promises: true, ..Scope::new(2, 0) }
}

/// Leases, with answers that come late.
pub(super) fn late_answers() -> Scope {
    Scope { stands: TWO, leases: true, late_answers: true, ..Scope::new(2, 0) }
}

/// A leader hands over.
pub(super) fn handed_over() -> Scope {
    Scope { stands: TWO, leases: true, hand_overs: 1, ..Scope::new(2, 0) }
}

/// Of two members, one is removed.
pub(super) fn two_members() -> Scope {
    Scope { first: 0b011, stands: TWO, leases: true, changes: 1, with_liveness: true, ..Scope::new(2, 0) }
}

/// Members go, one after the other.
pub(super) fn removals() -> Scope {
    Scope { stands: TWO, changes: 2, ..Scope::new(2, 0) }
}

/// The same in three terms.
pub(super) fn removals_in_three_terms() -> Scope {
    Scope { stands: TWO, changes: 2, ..Scope::new(3, 0) }
}

/// A spare server gets the store, and joins.
pub(super) fn joined() -> Scope {
    Scope { servers: 4, stands: TWO, changes: 1, transfers: 1, with_liveness: true, ..Scope::new(1, 0) }
}

/// A server that has just become a member starts again.
pub(super) fn joined_and_restarted() -> Scope {
    Scope { first: 0b011, stands: 0b001, changes: 1, transfers: 1, restarts: 1, ..Scope::new(2, 0) }
}

/// A store is sent to a server that has one.
pub(super) fn transferred() -> Scope {
    Scope { stands: TWO, transfers: 1, ..Scope::new(1, 1) }
}

/// A server loses its store, is removed, gets another, and joins.
pub(super) fn lost() -> Scope {
    Scope { stands: 0b001, losses: 1, changes: 2, transfers: 1, ..Scope::new(1, 0) }
}

/// Records are compared by their numbers first, and by their terms then. The other order, which is that of Raft, would be right, too:
/// a server has at most one record that is not chosen.
#[test]
fn the_order_of_numbers_and_terms_makes_no_difference() {
    let scope = Scope { mutant: Some(Mutant::TermFirst), ..records() };
    is_sound("terms before numbers", &scope);
}

#[test]
fn records_are_agreed_on() {
    is_sound("records", &records());
    is_sound("four terms", &four_terms());
}

#[test]
fn processes_end() {
    is_sound("restarted", &restarted());
    is_sound("lively", &lively());
}

#[test]
fn disks_are_slow_and_power_fails() {
    is_sound("promises", &promises());
    is_sound("batches", &batches());
}

#[test]
fn one_server_at_most_may_answer() {
    is_sound("leases", &leases());
    is_sound("leases and promises", &leases_and_promises());
}

#[test]
fn leaders_hand_over() {
    is_sound("handed over", &handed_over());
}

#[test]
fn members_go() {
    is_sound("two members", &two_members());
    is_sound("removals", &removals());
}

#[test]
fn members_start_again() {
    is_sound("joined and restarted", &joined_and_restarted());
}

#[test]
fn stores_are_sent_and_lost() {
    is_sound("joined", &joined());
    is_sound("transferred", &transferred());
    is_sound("lost", &lost());
}

#[test]
#[ignore = "minutes: ./dev model"]
fn larger_scopes_of_records() {
    is_sound_so_far("records, two restarts", &Scope { restarts: 2, ..records() });
    is_sound_so_far("records, three candidates", &Scope { stands: 0b111, ..records() });
    is_sound_so_far("restarted, with a record", &Scope { values: 1, ..restarted() });
    is_sound_so_far("four terms, a restart", &Scope { restarts: 1, ..four_terms() });
    let slow = Scope { slow_records: true, slow_promises: true, ..promises() };
    is_sound_so_far("everything is slow", &slow);
}

#[test]
#[ignore = "minutes: ./dev model"]
fn larger_scopes_of_leases() {
    is_sound_so_far("late answers", &late_answers());
    is_sound_so_far("leases, a record", &Scope { values: 1, ..leases() });
    is_sound_so_far("leases, three terms", &Scope { terms: 3, restarts: 0, ..leases() });
    is_sound_so_far("leases and promises, a restart", &Scope { restarts: 1, ..leases_and_promises() });
    is_sound_so_far("handed over, a record", &Scope { values: 1, ..handed_over() });
    is_sound_so_far("handed over, lively", &Scope { with_liveness: true, ..handed_over() });
}

#[test]
#[ignore = "minutes: ./dev model"]
fn larger_scopes_of_members() {
    is_sound_so_far("removals in three terms", &removals_in_three_terms());
    is_sound_so_far("removals, with leases", &Scope { leases: true, ..removals() });
    is_sound_so_far("removals, a record, a restart", &Scope { values: 1, restarts: 1, ..removals() });
    is_sound_so_far("joined, two terms", &Scope { terms: 2, ..joined() });
    is_sound_so_far("transferred, two terms", &Scope { terms: 2, ..transferred() });
    is_sound_so_far("lost, two terms", &Scope { terms: 2, stands: TWO, ..lost() });
}
