//! Faults put into the protocol on purpose: the checker must find every one of them.

use super::cluster::Scope;
use super::scopes::{self, search};

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// (a) A slot tells its tail before its promise is durable.
    SkipFence,
    /// (b) A full write goes to the blocks of the one that it replaces.
    WriteInPlace,
    /// (c) A fold does not wait for the overlay that is on its way.
    FoldUndecided,
    /// (d) Blocks are free before the record that freed them is durable.
    ReuseEarly,
    /// (e) A write is committed although one parity slot lacks it.
    CommitEarly,
    /// (f) A take-over forgets whose writes were seen.
    ForgetWindows,
    /// (g) A slot serves what is not decided.
    ServeUndecided,
    /// (h) A slot is expelled while its lease runs.
    SkipLeaseWait,
    /// (i) A decode takes whatever version a data slot has.
    AnyVersion,
    /// A brick that came back answers clients because it has a lease, whatever its map says.
    TrustLease,
    /// (l) A record found at a restart is believed without its blocks being looked at.
    TrustRecords,
}

/// The checker finds the fault in a scope where it finds nothing without it (the scope's own test says so).
fn is_caught(mutant: Mutant, scope: Scope) {
    let found = search(&Scope { mutant: Some(mutant), ..scope }, false, usize::MAX, 600);
    assert!(found.wrong.is_some(), "{mutant:?} is found");
    println!("{mutant:?}: {}", found.told());
}

#[test]
fn mutant_a_skips_the_sync_of_the_fence() {
    is_caught(Mutant::SkipFence, scopes::renewed());
}

#[test]
fn mutant_b_writes_in_place() {
    is_caught(Mutant::WriteInPlace, scopes::cramped());
}

#[test]
fn mutant_c_folds_what_is_undecided() {
    is_caught(Mutant::FoldUndecided, scopes::folded());
}

#[test]
fn mutant_d_reuses_blocks_early() {
    is_caught(Mutant::ReuseEarly, scopes::cramped());
}

#[test]
fn mutant_e_commits_without_a_parity_slot() {
    is_caught(Mutant::CommitEarly, scopes::one_write());
}

#[test]
fn mutant_f_forgets_whose_writes_were_seen() {
    is_caught(Mutant::ForgetWindows, scopes::contended());
}

#[test]
fn mutant_g_serves_what_is_undecided() {
    is_caught(Mutant::ServeUndecided, scopes::one_write());
}

#[test]
fn mutant_h_does_not_wait_for_a_lease() {
    is_caught(Mutant::SkipLeaseWait, scopes::returned());
}

#[test]
fn mutant_i_decodes_from_any_version() {
    is_caught(Mutant::AnyVersion, scopes::folded());
}

#[test]
fn mutant_l_believes_a_torn_record() {
    is_caught(Mutant::TrustRecords, scopes::one_write());
}

#[test]
fn a_lease_alone_does_not_let_a_brick_answer() {
    is_caught(Mutant::TrustLease, scopes::returned());
}
