//! Faults put into the protocol on purpose: the checker must find every one of them.

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
    /// (l) A record found at a restart is believed without its blocks being looked at.
    TrustRecords,
}
