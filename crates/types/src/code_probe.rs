//! Branches that are taken seldom and matter much. Each counts how often this process took it, so that a run of
//! simulations can say which of them it reached, and fail if one was never reached.
//!
//! One relaxed addition per visit of such a branch, in every build.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! branches {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A branch.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum CodeProbe { $($(#[$doc])* $name,)* }

        impl CodeProbe {
            /// Every branch.
            pub const ALL: &'static [CodeProbe] = &[$(CodeProbe::$name,)*];

            /// What happens in it.
            pub const fn text(self) -> &'static str {
                match self { $(CodeProbe::$name => $text,)* }
            }
        }
    };
}

branches! {
    /// A take-over.
    Forwarded = "an undecided operation was forwarded",
    /// A take-over.
    AbortedPrepared = "an operation that some slots held was aborted",
    /// A take-over.
    AbortedFollower = "an operation that all held was aborted with an earlier one of its stripe",
    /// A take-over.
    AbortedAgain = "an abort that one slot knew of was told to the others",
    /// A take-over.
    TakeOverDied = "a take-over ended halfway",
    /// A slot.
    StaleEpochRefused = "an older epoch was refused",
    /// A slot.
    PreparedTooLate = "an operation came to be held after its epoch",
    /// A slot.
    PrepareRepeated = "an operation that is held came again",
    /// A slot.
    PrepareRepeatedInFlight = "an operation that is being written came again",
    /// A slot.
    RemovedObject = "an operation came for an object that is gone",
    /// A slot.
    NotStaged = "a unit that should be staged was not",
    /// A slot.
    ReadPending = "a read met something undecided",
    /// A slot.
    ReadAgain = "a unit changed while it was read",
    /// A primary.
    DedupeHit = "a repeated write was recognised",
    /// A primary.
    FoldPutOff = "a fold was put off",
    /// A primary.
    FoldedForOthers = "a stripe was folded whose overlays only other slots had",
    /// A primary.
    PatchAborted = "a patch was aborted",
    /// A primary.
    EpochRenewed = "a primary asked for a new epoch to abort what it could not complete",
    /// A primary.
    JournalPressed = "a write waited for a full journal",
    /// A primary.
    Decoded = "a unit was decoded",
    /// A primary.
    SourceMissing = "a decode asked for another source",
    /// A primary.
    OtherIdentity = "a source of a decode had another identity",
    /// A primary.
    SlotFilled = "a slot that joins was given a unit",
    /// A primary.
    DrainClosed = "a group was closed and drained to admit a slot",
    /// A primary.
    Admitted = "a slot was admitted",
    /// A primary.
    AdmissionUnsure = "an admission was not answered",
    /// A primary.
    DecisionsQueried = "a slot asked again what was decided",
    /// A brick.
    NoLease = "a request met a brick without a lease",
    /// A brick.
    TornUnit = "a restart found a torn unit",
    /// A brick.
    SyncProven = "a segment header was written again to tell of a sync",
    /// A brick.
    DamagedBlock = "a block did not match its checksum",
    /// A brick.
    UnreadableBlock = "a block could not be read",
    /// A brick.
    DiskLost = "a disk failed and its brick ended",
    /// A brick.
    CheckpointShort = "a checkpoint ran because RAM, segments or places were short",
    /// A brick.
    CopiedForward = "a record was copied to the end of the journal",
    /// A client.
    LeaseWait = "an application waited for its client's lease",
    /// A client.
    Rejoined = "a client joined the metadata service again",
}

static COUNTS: [AtomicU64; CodeProbe::ALL.len()] = [const { AtomicU64::new(0) }; CodeProbe::ALL.len()];

/// The branch is taken.
pub fn hit(branch: CodeProbe) {
    COUNTS[branch as usize].fetch_add(1, Ordering::Relaxed);
}

/// How often this process has taken a branch.
pub fn count(branch: CodeProbe) -> u64 {
    COUNTS[branch as usize].load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_counts_for_its_branch() {
        let (before, other) = (count(CodeProbe::Rejoined), count(CodeProbe::LeaseWait));
        hit(CodeProbe::Rejoined);
        assert_eq!((count(CodeProbe::Rejoined), count(CodeProbe::LeaseWait)), (before + 1, other));
        assert!(CodeProbe::ALL.iter().enumerate().all(|(at, branch)| *branch as usize == at));
    }
}
