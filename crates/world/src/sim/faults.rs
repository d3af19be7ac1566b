//! What has been done to a simulated world, by kind, and what is being done to its disks.

use std::cell::Cell;
use std::ops::Range;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A process ended between two steps of whoever ran the simulation.
    Kill,
    /// A process ended before one certain poll of its tasks: at any await.
    KillAtPoll,
    /// A machine lost its power.
    PowerCut,
    /// The wires between two nodes were cut.
    Partition,
    /// The wires between two nodes were cut in one direction.
    OneWay,
    /// A connection broke.
    Break,
    /// Of a broken connection, the beginning of a frame arrived.
    HalfFrame,
    /// A frame that was sent never arrived: request or answer, its sender cannot know.
    LostFrame,
    /// A frame was held up, with all behind it.
    Stall,
    /// The wires between two nodes became slow.
    SlowLink,
    /// A sector that was written and not synced was lost with the power.
    LostSector,
    /// Of a write that was not synced some sectors reached the medium, others not.
    TornWrite,
    /// A bit of a page at rest flipped.
    Rot,
    /// A write went to another place of its disk.
    Misdirected,
    /// A read failed.
    ReadError,
    /// A sync failed, and what it should have made durable may be lost.
    SyncError,
    /// A write failed: no space left.
    WriteError,
    /// A disk became slow.
    SlowDisk,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 18] = [
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

/// What goes wrong with a disk, in a part of it. Chances in millionths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskFaults {
    /// Bytes of the disk where reads fail and writes go astray, and where those end up.
    pub within: Range<u64>,
    /// Chance of a read to fail. It may succeed the next time.
    pub read_error_per_million: u32,
    /// Chance of a write to go to another place, a multiple of 4 KiB away.
    pub misdirect_per_million: u32,
    /// Writes anywhere fail: no space left.
    pub full: bool,
    /// The next sync fails; a part of what it should have made durable never reaches the medium, and no later sync
    /// tries it again.
    pub fail_sync: bool,
}
