//! The state of a brick, as it says it.

use super::queue::QueueReport;
use super::{LongTurn, WindowReport};
use crate::{BrickId, ClusterId, GroupId, records};

records! {
    names REQUESTS;
    /// Progress of a slot that its group's primary brings level.
    part JoinReport {
        /// The group.
        group: GroupId,
        /// The slot.
        slot: u8,
        /// Its brick.
        brick: BrickId,
        /// Stripes of the group counted so far.
        stripes: u64,
        /// Stripes compared.
        compared: u64,
        /// Units written to the slot.
        filled: u64,
        /// Bytes of these units.
        bytes: u64,
        /// Time since it began, in microseconds.
        age: u64,
    }
    /// Any process to brick: asks for a status report.
    121 BrickStatus {} => BrickReport;
    /// The brick's status report.
    122 BrickReport {
        /// The brick.
        brick: BrickId,
        /// Its cluster.
        cluster: ClusterId,
        /// The process.
        pid: u32,
        /// Path or URL of its disk.
        disk: String,
        /// Bytes that units can take.
        capacity: u64,
        /// Bytes free.
        free: u64,
        /// Units held.
        units: u64,
        /// Overlays not yet folded.
        overlays: u64,
        /// Units decoded for reads since the start.
        decoded: u64,
        /// Blocks that did not match their checksum since the start.
        damaged: u64,
        /// Operations ordered as primary since the start.
        ordered: u64,
        /// Stripes folded as primary since the start by writing them whole.
        folded: u64,
        /// Stripes folded as primary since the start by a Patch, which writes only the touched blocks.
        patched: u64,
        /// Groups served as primary.
        primary_of: Vec<GroupId>,
        /// Slots that this brick brings level as their groups' primary.
        joining: Vec<JoinReport>,
        /// Resident memory of the process, in bytes.
        memory: u64,
        /// The process's memory budget, in bytes.
        memory_budget: u64,
        /// The longest turns of its tasks, the longest first; one of each kind.
        turns: Vec<LongTurn>,
        /// The receive window of its process.
        window: WindowReport,
        /// What clients have asked this brick for since the start.
        asked: AskedCounts,
        /// What its device has done since the start.
        device: DeviceCounts,
        /// The cache of its device, if it has one.
        cache: Option<CacheReport>,
        /// The queue and the memory in front of its device, if it is direct.
        queue: Option<QueueReport>,
    };
    /// The cache of a brick's device on a faster one, and what it has done since the start.
    #[derive(Default)]
    part CacheReport {
        /// `on`, `full` if nothing can be added any more, or `off` if its disk has failed.
        state: String,
        /// Why it is not on.
        reason: Option<String>,
        /// Bytes of units that fit.
        bytes_most: u64,
        /// Bytes of its cells in use. A cell may have a part of its bytes only.
        bytes: u64,
        /// Parts of clients' reads, of at most 64 KiB each, that came from it.
        hits: u64,
        /// Their bytes.
        hit_bytes: u64,
        /// Parts of clients' reads that came from the device.
        misses: u64,
        /// Their bytes.
        missed_bytes: u64,
        /// Chunks of 64 KiB that were not what they should be, and were dropped.
        damaged: u64,
        /// Bytes that were added.
        filled_bytes: u64,
        /// Bytes that were not added, because the cache was busy.
        skipped_bytes: u64,
    }
    /// What clients have asked a brick for. Repeated requests count again, requests of other bricks do not.
    #[derive(Copy, Default)]
    part AskedCounts {
        /// Reads of units and stripes.
        reads: u64,
        /// Bytes that they asked for.
        read_bytes: u64,
        /// Writes and staged units.
        writes: u64,
        /// Bytes that came with them.
        written_bytes: u64,
    }
    /// What a brick's device has done.
    #[derive(Copy, Default)]
    part DeviceCounts {
        /// Reads.
        reads: u64,
        /// Bytes read.
        read_bytes: u64,
        /// Time of all reads together, in microseconds.
        read_us: u64,
        /// Writes.
        writes: u64,
        /// Bytes written.
        written_bytes: u64,
        /// Time of all writes together, in microseconds.
        write_us: u64,
        /// Syncs.
        syncs: u64,
        /// Time of all syncs together, in microseconds.
        sync_us: u64,
    }
}
