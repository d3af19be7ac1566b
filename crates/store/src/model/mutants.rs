//! Mutation tests: each test removes one rule of the protocol, and fails if the model checker finds no violation.

use super::cluster::Scope;
use super::scopes::{self, search};

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// (a) A slot sends its tail before its promise is durable.
    SkipFence,
    /// (b) A Full overwrites the blocks of the one that it replaces.
    WriteInPlace,
    /// (c) A fold does not wait for an open overlay.
    FoldUndecided,
    /// (d) The blocks of a version are reused as soon as the next version is held, decided or not.
    ReuseEarly,
    /// (e) A write is committed although one parity slot lacks it.
    CommitEarly,
    /// (f) A take-over forgets the seen writes.
    ForgetWindows,
    /// A take-over forgets what writes have noted about sizes.
    ForgetNotes,
    /// (g) A slot serves undecided operations.
    ServeUndecided,
    /// (h) A slot is expelled while its lease runs: because it was silent, or because others do not reach it.
    SkipLeaseWait,
    /// (i) A decode takes whatever version a data slot has.
    AnyVersion,
    /// (j) A slot is admitted while an operation is open, and without every slot knowing the decisions.
    AdmitUndrained,
    /// (k) One change of the configuration expels a slot and admits another, and the answer is lost.
    SwapSlots,
    /// A slot joins without dropping the operations that it held before.
    JoinUnclean,
    /// A brick that has returned answers clients as soon as it has a lease, whatever its map says.
    TrustLease,
    /// (l) A restart trusts a record without checking its blocks.
    TrustRecords,
    /// A message is sent only once.
    AskOnce,
    /// A checkpoint does not copy records forward that are still needed.
    SkipCopyForward,
    /// A data slot that is the primary does not ask the other data slots for their overlays.
    AskNobody,
    /// A primary does not end its epoch when a slot has no space.
    WaitForSpace,
    /// A proxy passes a write on as one of its own.
    ProxyNumbersWrites,
    /// Of a write of zeros to a stripe that does not exist, parity slots alone know.
    ZerosOnParityAlone,
}

/// The checker finds the fault in a scope that is sound without it: another test shows that, for the larger scopes in
/// `./dev model`.
fn is_caught(mutant: Mutant, scope: Scope) {
    // The fault must be found by a wrong state, not only because something then waits forever.
    let found = search(&Scope { mutant: Some(mutant), with_liveness: false, ..scope }, false, usize::MAX);
    assert!(found.wrong.is_some(), "{mutant:?} is found");
    println!("{mutant:?}: {}", found.describe());
}

/// The checker finds that work never ends, and no other violation.
fn hangs(mutant: Mutant, scope: Scope) {
    scopes::is_sound(&Scope { mutant: Some(mutant), with_liveness: false, ..scope.clone() });
    let found = search(&Scope { mutant: Some(mutant), ..scope }, false, usize::MAX);
    let (property, how) = found.wrong.unwrap_or_else(|| panic!("{mutant:?} is found"));
    assert!(property.starts_with("L "), "{property}: {how}");
    println!("{mutant:?}: {how}");
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
fn a_take_over_learns_what_was_noted() {
    is_caught(Mutant::ForgetNotes, scopes::renewed());
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
fn mutant_j_admits_without_the_drain() {
    is_caught(Mutant::AdmitUndrained, scopes::admitted());
}

#[test]
fn mutant_k_expels_and_admits_at_once() {
    is_caught(Mutant::SwapSlots, scopes::admitted());
}

#[test]
fn mutant_l_believes_a_torn_record() {
    is_caught(Mutant::TrustRecords, scopes::one_write());
}

#[test]
fn a_lease_alone_does_not_let_a_brick_answer() {
    is_caught(Mutant::TrustLease, scopes::returned());
}

#[test]
fn a_message_is_sent_until_it_is_answered() {
    hangs(Mutant::AskOnce, scopes::one_write());
}

#[test]
fn an_operation_without_space_ends_its_epoch() {
    hangs(Mutant::WaitForSpace, scopes::cramped());
}

#[test]
fn a_checkpoint_copies_what_is_still_needed() {
    is_caught(Mutant::SkipCopyForward, scopes::checkpointed());
}

#[test]
fn a_data_slot_that_leads_asks_the_others() {
    is_caught(Mutant::AskNobody, scopes::admitted_by_data());
}

#[test]
fn a_slot_that_joins_drops_what_it_held() {
    is_caught(Mutant::JoinUnclean, scopes::admitted());
}

#[test]
fn a_write_of_zeros_is_known_to_a_data_slot() {
    is_caught(Mutant::ZerosOnParityAlone, scopes::blank());
}

#[test]
fn a_proxy_does_not_number_what_it_passes_on() {
    is_caught(Mutant::ProxyNumbersWrites, scopes::by_two_ways());
}
