//! Rare but important branches. Each counts how often this process took it. So a run of simulations can list the
//! branches that it reached, and fail if it missed one.
//!
//! Each visit costs one relaxed atomic addition, in every build.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! branches {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A branch.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum CodeProbe { $($(#[$doc])* $name,)* }

        impl CodeProbe {
            /// Every branch.
            pub const ALL: &'static [CodeProbe] = &[$(CodeProbe::$name,)*];

            /// What happens in this branch.
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
    AbortedPrepared = "an operation that only some slots had prepared was aborted",
    /// A take-over.
    AbortedFollower = "an operation that all slots had prepared was aborted because an earlier one of its stripe was",
    /// A take-over.
    AbortedAgain = "an abort that one slot knew was sent to the others",
    /// A take-over.
    TakeOverDied = "a take-over ended halfway",
    /// A slot.
    StaleEpochRefused = "an older epoch was refused",
    /// A slot.
    PreparedTooLate = "an operation was prepared after its epoch had ended",
    /// A slot.
    PrepareRepeated = "an operation that is already prepared came again",
    /// A slot.
    PrepareRepeatedInFlight = "an operation that is being prepared came again",
    /// A slot.
    RemovedObject = "an operation came for a removed object",
    /// A slot.
    NotStaged = "an operation needed a unit that was not staged",
    /// A direct disk.
    QueuedForDevice = "a request waited for its turn at a direct disk",
    /// A direct disk.
    BlockInMemory = "blocks of a direct disk came from memory",
    /// A slot.
    Relayed = "a brick sent on units of a stripe to members behind it",
    /// A slot.
    RelayFailed = "a member behind a brick did not take its units",
    /// A brick.
    Proxied = "a brick passed a client's request on to one that the client does not reach",
    /// A brick.
    ProxyFailed = "a brick did not reach the one to which it was to pass a request on",
    /// A primary.
    UnitSummed = "a unit was computed by a sum that came along a path of members",
    /// A primary.
    SumFailed = "a sum along a path of members was given up",
    /// A server.
    OtherBytes = "a request was refused because its payload did not match its checksums",
    /// A slot.
    StageDropped = "a staged unit was dropped because its operation had not come",
    /// A caller.
    RailCut = "a connection was closed because a server answered at its other addresses only",
    /// A slot.
    ReadPending = "a read met an undecided operation",
    /// A slot.
    ReadAgain = "a unit was read again because it had changed meanwhile",
    /// A primary.
    DedupeHit = "a repeated write was recognised",
    /// A primary.
    FoldPutOff = "a fold was postponed",
    /// A primary.
    FoldedForOthers = "a primary folded a stripe although only other slots had its overlays",
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
    SlotFilled = "a joining slot was given a unit",
    /// A primary.
    DrainClosed = "a group was closed and drained to admit a slot",
    /// A primary.
    Admitted = "a slot was admitted",
    /// A primary.
    AdmissionUnsure = "a request to admit a slot got no answer",
    /// A primary.
    DecisionsQueried = "a slot asked its primary again for decisions",
    /// A brick.
    NoLease = "a request met a brick without a lease",
    /// A brick.
    TornUnit = "a restart found a torn unit",
    /// A brick.
    SyncProven = "a segment header was rewritten to record a sync",
    /// A brick.
    DamagedBlock = "a block did not match its checksum",
    /// A brick.
    UnreadableBlock = "a block could not be read",
    /// A brick.
    CachedBlock = "a block came from the cache of a brick",
    /// A brick.
    DiskLost = "a disk failed and its brick ended",
    /// A brick.
    CheckpointShort = "a checkpoint ran because RAM, segments or places were short",
    /// A brick.
    CopiedForward = "a record was copied to the end of the journal",
    /// A caller.
    AnswerInPieces = "a large answer came in pieces, as its caller granted it",
    /// A caller.
    AnswerUnwanted = "an answer was given up while pieces of it were missing",
    /// A server.
    RequestWhole = "a large request came as a whole: as far as its caller knew, its server's window was not needed",
    /// A server.
    RequestInPieces = "a large request came in pieces, as its server granted it",
    /// A server.
    RequestUnwanted = "a large request was given up, or its connection broke, while pieces of it were missing",
    /// A caller.
    RequestHeldBack = "a large request was not announced before an earlier one of its connection had left",
    /// A server.
    RequestWaited = "a large request waited until payloads of others had gone",
    /// A server.
    ReaderStopped = "a server stopped reading a connection while pieces of requests were to come",
    /// A primary.
    SourceLate = "a decode asked for another source because one was late",
    /// A client.
    ReadHedged = "a read was asked for at the primary too because its brick was late",
    /// A client.
    HedgeWon = "the primary answered a read before the late brick did",
    /// A client.
    BrickAvoided = "a read went to the primary because its brick was slow",
    /// A client.
    LeaseWait = "an application waited for its client's lease",
    /// A client.
    Rejoined = "a client joined the metadata service again",
    /// A client.
    SyncNoted = "an fsync ended before the metadata service had stored the size",
    /// The metadata service.
    NoteStored = "a file was longer than the service knew: the bricks of a lost client's volume told it",
}

static COUNTS: [AtomicU64; CodeProbe::ALL.len()] = [const { AtomicU64::new(0) }; CodeProbe::ALL.len()];

/// Counts a visit of a branch.
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
