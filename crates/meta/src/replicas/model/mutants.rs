//! Mutation tests: each removes one rule of the agreement, and fails if the search finds no violation.
//!
//! The core is the product's, so a mutant passes it something else, or does something else before or after it.

use super::scope::Scope;
use super::searches::*;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// A vote is given before it is durable.
    VoteNotDurable,
    /// One that has fewer records gets a vote.
    LastIgnored,
    /// Votes compare the terms of the last records before their numbers. It is the one that does no harm: `searches` shows that.
    TermFirst,
    /// A new leader sends its last record with its old term; and such a record counts, too.
    NoNewTerm,
    OldTermCounted,
    /// The last record is taken for chosen by any record that follows it.
    PreviousIgnored,
    /// Records are compared by their numbers alone.
    NumberOnly,
    /// A start takes the earlier one of two records with a number.
    RankIgnored,
    /// A batch may reach the disk in part.
    TornBatch,
    /// A server that starts votes at once.
    StartsFree,
    /// A server votes while it hears a leader.
    VotesWhileHearing,
    /// A lease counts from an answer, and not from the call.
    LeaseFromAnswer,
    /// A leader gets signs while a vote for another one is on its way to the disk.
    PromisingIgnored,
    /// A sign of a leader is heard after it has said that its term is over.
    LateSign,
    /// A leader says that its term is over, and still leads.
    EndsBeforeDeposed,
    /// A record is begun while a leader hands over.
    BeginWhileEnding,
    /// The members change while a change is not chosen.
    TwoChanges,
    /// The members change before something of the term is chosen.
    EarlyChange,
    /// A change counts with a majority of the members before it.
    OldMajority,
    /// A leader that removes itself counts itself.
    CountsItself,
    /// One is the only member as soon as a record says so.
    OnlyMemberByTail,
    /// A server that has lost its store keeps its id.
    SameId,
    /// A leader that is no member of the chosen ones still leads.
    RemovedLeads,
    /// A follower takes an older store than its own.
    OlderStore,
    /// A store that comes takes the place of the last record, too.
    TailLost,
    /// A server that starts does not sync the promises that it reads.
    BallotNotSynced,
}

/// The search finds the fault in a scope that is sound without it.
fn is_found(mutant: Mutant, scope: Scope) {
    let found = search(&Scope { mutant: Some(mutant), ..scope }, &format!("{mutant:?}"));
    let wrong = found.wrong.unwrap_or_else(|| panic!("{mutant:?} is found"));
    println!("  {}", wrong.lines().next().unwrap_or_default());
}

#[test]
fn vote_not_durable() {
    is_found(Mutant::VoteNotDurable, promises());
}

#[test]
fn last_ignored() {
    is_found(Mutant::LastIgnored, records());
}

#[test]
fn no_new_term() {
    is_found(Mutant::NoNewTerm, lively());
}

#[test]
fn old_term_counted() {
    is_found(Mutant::OldTermCounted, four_terms());
}

#[test]
fn previous_ignored() {
    is_found(Mutant::PreviousIgnored, records());
}

#[test]
fn number_only() {
    is_found(Mutant::NumberOnly, records());
}

#[test]
fn rank_ignored() {
    is_found(Mutant::RankIgnored, restarted());
}

#[test]
fn torn_batch() {
    is_found(Mutant::TornBatch, batches());
}

#[test]
fn starts_free() {
    is_found(Mutant::StartsFree, leases());
}

#[test]
fn votes_while_hearing() {
    is_found(Mutant::VotesWhileHearing, leases());
}

#[test]
fn lease_from_answer() {
    is_found(Mutant::LeaseFromAnswer, late_answers());
}

#[test]
fn promising_ignored() {
    is_found(Mutant::PromisingIgnored, leases_and_promises());
}

#[test]
fn late_sign() {
    is_found(Mutant::LateSign, handed_over());
}

#[test]
fn ends_before_deposed() {
    is_found(Mutant::EndsBeforeDeposed, handed_over());
}

#[test]
fn begin_while_ending() {
    is_found(Mutant::BeginWhileEnding, Scope { values: 1, ..handed_over() });
}

#[test]
fn two_changes() {
    is_found(Mutant::TwoChanges, removals());
}

#[test]
fn early_change() {
    is_found(Mutant::EarlyChange, removals_in_three_terms());
}

#[test]
fn old_majority() {
    is_found(Mutant::OldMajority, removals());
}

#[test]
fn counts_itself() {
    is_found(Mutant::CountsItself, removals());
}

#[test]
fn only_member_by_tail() {
    is_found(Mutant::OnlyMemberByTail, two_members());
}

#[test]
fn same_id() {
    is_found(Mutant::SameId, lost());
}

#[test]
fn removed_leads() {
    is_found(Mutant::RemovedLeads, removals());
}

#[test]
fn older_store() {
    is_found(Mutant::OlderStore, transferred());
}

#[test]
fn tail_lost() {
    is_found(Mutant::TailLost, transferred());
}

#[test]
fn ballot_not_synced() {
    is_found(Mutant::BallotNotSynced, promises());
}
