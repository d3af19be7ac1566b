//! Kinds of faults, their counts in a simulated world, and the faults of its disks.

use std::cell::Cell;
use std::ops::Range;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A process was killed between two steps of the test.
    Kill,
    /// A process was killed before a given poll of its tasks, so at any await.
    KillAtPoll,
    /// A machine lost its power.
    PowerCut,
    /// The link between two nodes was cut.
    Partition,
    /// The link between two nodes was cut in one direction.
    OneWay,
    /// A connection broke.
    Break,
    /// Only the start of a frame arrived before the connection broke.
    HalfFrame,
    /// A frame (request or answer) never arrived. Its sender cannot know.
    LostFrame,
    /// A frame was delayed, with all later ones of its connection.
    Stall,
    /// The link between two nodes became slow.
    SlowLink,
    /// A power cut lost a sector that was written and not synced.
    LostSector,
    /// Only some sectors of an unsynced write reached the medium.
    TornWrite,
    /// A bit of a page at rest flipped.
    Rot,
    /// A write went to a wrong place of its disk.
    Misdirected,
    /// A read failed.
    ReadError,
    /// A sync failed, and the writes that it should have made durable may be lost.
    SyncError,
    /// A write failed: no space left.
    WriteError,
    /// A disk became slow.
    SlowDisk,
    /// A server sent another payload than it should.
    OtherPayload,
    /// A server sent another record than it should.
    OtherRecord,
    /// A request was answered by who had not carried it out.
    FalseAnswer,
    /// A frame left late, and later ones of its connection before it.
    Overtaken,
    /// Somebody without the key changed what was on its way.
    Forged,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 23] = [
        Fault::Kill,
        Fault::KillAtPoll,
        Fault::PowerCut,
        Fault::Partition,
        Fault::OneWay,
        Fault::Break,
        Fault::HalfFrame,
        Fault::LostFrame,
        Fault::Stall,
        Fault::SlowLink,
        Fault::LostSector,
        Fault::TornWrite,
        Fault::Rot,
        Fault::Misdirected,
        Fault::ReadError,
        Fault::SyncError,
        Fault::WriteError,
        Fault::SlowDisk,
        Fault::OtherPayload,
        Fault::OtherRecord,
        Fault::FalseAnswer,
        Fault::Overtaken,
        Fault::Forged,
    ];
}

/// Faults so far, by kind.
#[derive(Default)]
pub(super) struct Counts([Cell<u64>; Fault::ALL.len()]);

impl Counts {
    pub(super) fn add(&self, fault: Fault, times: u64) {
        let count = &self.0[fault as usize];
        count.set(count.get() + times);
    }

    pub(super) fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize].get()
    }
}

/// Faults of a disk. Probabilities in millionths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskFaults {
    /// Range of the disk in which reads fail and writes are misdirected. Misdirected writes stay in it.
    pub within: Range<u64>,
    /// Probability that a read fails. The next read may succeed.
    pub read_error_per_million: u32,
    /// Probability that a write goes to another place, a multiple of 4 KiB away.
    pub misdirect_per_million: u32,
    /// All writes to the disk fail: no space left.
    pub full: bool,
    /// The next sync fails. Some of the writes that it should have made durable never reach the medium, and no later
    /// sync retries them.
    pub fail_sync: bool,
}
