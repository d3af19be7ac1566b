//! The journal of a brick: fixed segments, appended in order, freed oldest first.
//!
//! ```text
//! segment: | header block | record | record | ...
//! record:  | crc u32 | body u32 | payload u32 | kind u16 | behind u16 | segment serial u64 | lsn u64 | body | payload |
//! ```
//!
//! Every record carries its number (lsn) and the serial of its segment. A replay stops at the first record that does
//! not match, and goes on in the next segment only if the header there says that it follows. So bytes that a crash
//! has torn, and bytes beyond them, are never taken for a record. None of them had been acknowledged: a record is
//! acknowledged only after a sync that covers it and everything before it.
//!
//! `behind` is the distance from the record back to the last one that was known to be synced when it was appended (0:
//! not known). If bytes that were synced do not match later, they are damaged, not torn. Segment headers have the
//! same information in `durable`. If a sync covers bytes of units and no record follows, the current header is
//! rewritten to note the sync.
//!
//! A segment is reused only if the newest *durable* segment header says that the journal starts after it. When the
//! start moves, that header is rewritten in place: its few bytes lie in one sector, which a crash leaves old or new.
//!
//! The records of a segment that was never durable may survive although its header does not. So that a later start
//! never takes them for its own, each start begins its serials a random step above the ones found.
//!
//! # Invariants
//! - Numbers and serials grow, and `told <= synced <= durable <= lsn`.
//! - Every segment is in exactly one state: live, freed by a header that is not durable yet, or free.
//! - A record lies within one segment, behind its header, and carries its serial.
//! - Only the oldest segments are freed, once all their records are durable; never the current one.

mod segment;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pace::IoClass;
use types::checksum::{crc, crc_append};
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::wire::{Record, to_bytes};
use types::{Buf, BufMut};
use world::direct::in_class;
use world::{Disk, Notify, World};

use crate::error::BrickError;
use crate::superblock::Superblock;
pub(crate) use segment::format;
use segment::{SegmentHeader, headers, replay};

/// Bytes of a record before its body.
const RECORD_HEADER: usize = 32;
/// Unsynced bytes that start a sync by themselves.
const SYNC_BYTES: u64 = 4 << 20;
/// How long a record that nobody waits for may stay unsynced, in microseconds.
const SYNC_LAZY_US: u64 = 10_000;
/// How long a sync of units' bytes may stay unrecorded, in microseconds: as a rule the record of their decision notes
/// it.
const PROOF_US: u64 = 20_000;
/// Bytes of pending records from which they are written without waiting for a sync. This bounds their memory.
const PENDING_MAX: u64 = 1 << 20;

/// The place of a record's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Position {
    /// Serial of the segment.
    pub(crate) serial: u64,
    /// Byte of the brick.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u32,
}

/// A record that has been appended, not yet durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Its number.
    pub(crate) lsn: u64,
    /// Its payload.
    pub(crate) position: Position,
}

/// A record found by a replay.
#[derive(Debug)]
pub(crate) struct ReplayedRecord {
    pub(crate) lsn: u64,
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) position: Position,
}

/// Priority of an append. The lower it is, the more free segments the append must leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Priority {
    /// New overlays: they fill the journal.
    Overlay,
    /// Whole units: they empty it.
    Unit,
    /// Decisions, promises, and records copied forward.
    Housekeeping,
}

/// The disk failed: the brick counts as lost, nothing is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskFailed;

/// The journal.
pub(crate) struct Journal {
    disk: Disk,
    start: u64,
    segment: u64,
    /// Number of segments.
    segments: usize,
    state: RefCell<State>,
    /// One writer at a time puts pending records on the disk.
    writing: async_lock::Mutex<()>,
    /// Notified when records become durable, a segment becomes free, or the disk fails.
    changed: Notify,
    /// Notified when the syncer has work.
    demand: Notify,
    failed: Cell<bool>,
}

/// A segment in use.
#[derive(Clone, Copy, Debug)]
struct Segment {
    serial: u64,
    /// Its place on the disk.
    index: u32,
    /// Number of its first record.
    lsn_first: u64,
}

struct State {
    /// Oldest first; the last one is being appended to.
    live: VecDeque<Segment>,
    free: VecDeque<u32>,
    /// Freed by the header of this number, which is not durable yet.
    freed: Vec<(u64, Segment)>,
    /// Headers queued so far.
    headers: u64,
    serial: u64,
    /// Serial of the next segment.
    serial_next: u64,
    /// Next byte within the current segment.
    at: u64,
    lsn: u64,
    durable: u64,
    /// Known to be synced up to here, with no torn unit before it left to note. New records carry this number.
    synced: u64,
    /// The last record with a unit whose bytes a restart would compare.
    units: u64,
    /// Queued records and headers note syncs up to here, durable ones up to `proven`.
    told: u64,
    proven: u64,
    pending: Vec<(u64, Vec<Buf>)>,
    /// Taken from `pending`, and not certainly on the disk yet.
    leaving: VecDeque<(u64, Vec<Buf>)>,
    pending_bytes: u64,
    unsynced: u64,
    urgent: bool,
}

impl Journal {
    /// Finds the records of the journal, in order, passes each to `found`, and opens a new segment after them. `step`
    /// is random: it separates the serials of this start from those of all others.
    pub(crate) async fn open(
        disk: Disk,
        superblock: &Superblock,
        step: u32,
        mut found: impl AsyncFnMut(ReplayedRecord) -> Result<(), BrickError>,
    ) -> Result<Journal, BrickError> {
        let journal_start = superblock.journal_start;
        let mut headers = headers(&disk, superblock).await?;
        let (tail, mut lsn) = headers.last().map_or((1, 0), |(header, _)| (header.tail, header.lsn_tail - 1));
        headers.retain(|(header, _)| header.serial >= tail);
        let mut live = VecDeque::new();
        let mut end = superblock.segment;
        let mut synced = 0;
        for (header, index) in &headers {
            if header.lsn_first != lsn + 1 {
                // A segment beyond a torn end of an earlier run: nothing in it was acknowledged.
                continue;
            }
            let segment_start = journal_start + u64::from(*index) * superblock.segment;
            let bytes = disk.read(segment_start, superblock.segment as usize).await?;
            assert_eq!(
                bytes.len() as u64,
                superblock.segment,
                "records at the end of the segment would look torn"
            );
            let replayed = replay(header.serial, lsn, segment_start, &bytes, &mut found).await?;
            if replayed.lsn > lsn {
                let SegmentHeader { serial, lsn_first, .. } = *header;
                live.push_back(Segment { serial, index: *index, lsn_first });
                (lsn, end) = (replayed.lsn, replayed.at);
                synced = replayed.synced.max(synced);
            }
            synced = header.durable.max(synced);
        }
        if headers.iter().any(|(header, _)| header.durable > lsn) {
            return Err(BrickError::JournalDamaged("records that were durable are missing"));
        }
        let serial_next = headers.last().map_or(0, |(header, _)| header.serial) + 1 + u64::from(step);
        let taken: Vec<u32> = live.iter().map(|segment| segment.index).collect();
        let free: VecDeque<u32> = (0..superblock.segments).filter(|index| !taken.contains(index)).collect();
        let state = State::found(live, free, serial_next, superblock.segment, lsn, synced);
        let journal = Journal {
            disk,
            start: journal_start,
            segment: superblock.segment,
            segments: superblock.segments as usize,
            state: RefCell::new(state),
            writing: async_lock::Mutex::new(()),
            changed: Notify::new(),
            demand: Notify::new(),
            failed: Cell::new(false),
        };
        journal.assert_no_segment_is_lost(&journal.state.borrow());
        if journal.state.borrow().free.is_empty() {
            journal.go_on_behind(end).await?;
        } else {
            journal.open_segment();
        }
        Ok(journal)
    }

    /// No segment is free: new records follow the old ones in the last segment. What is left there after them is
    /// wiped first.
    async fn go_on_behind(&self, at: u64) -> std::io::Result<()> {
        assert!(
            (BLOCK as u64..=self.segment).contains(&at),
            "the header of this segment, or the next segment, would be wiped"
        );
        let place = self.place(&self.state.borrow());
        let wiped = BufMut::zeroed((self.segment - at) as usize).freeze();
        self.disk.write(place + at, vec![wiped]).await?;
        self.disk.sync().await?;
        let mut state = self.state.borrow_mut();
        state.serial = state.live.back().map_or(0, |segment| segment.serial);
        state.at = at;
        Ok(())
    }

    /// Asserts that every segment is live, freed or free.
    fn assert_no_segment_is_lost(&self, state: &State) {
        assert_eq!(
            state.live.len() + state.freed.len() + state.free.len(),
            self.segments,
            "a segment in no list would never be used again, and one in two lists would be written twice"
        );
    }

    /// How full the journal is, in per cent.
    pub(crate) fn fill(&self) -> u8 {
        let state = self.state.borrow();
        ((state.live.len() + state.freed.len()) * 100 / self.segments) as u8
    }

    /// The serial of the segment being appended to.
    pub(crate) fn serial(&self) -> u64 {
        self.state.borrow().serial
    }

    /// The serial of the oldest live segment, and how many are live.
    pub(crate) fn oldest(&self) -> (u64, usize) {
        let state = self.state.borrow();
        (state.live.front().map_or(0, |segment| segment.serial), state.live.len())
    }

    /// The serial of the oldest segment that a replay might read now.
    pub(crate) fn oldest_durable(&self) -> u64 {
        let state = self.state.borrow();
        state.freed.first().map_or_else(|| state.live.front().map_or(0, |s| s.serial), |freed| freed.1.serial)
    }

    /// Whether a small record may be appended without waiting.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.borrow();
        state.free.len() > 1 || state.at + 4096 <= self.segment
    }

    /// Waits until a record of this priority may be appended.
    pub(crate) async fn wait_for_space(&self, priority: Priority, len: usize) -> Result<(), DiskFailed> {
        loop {
            let changed = self.changed.wait();
            if self.failed.get() {
                return Err(DiskFailed);
            }
            {
                let state = self.state.borrow();
                let keep = match priority {
                    Priority::Overlay => (self.segments / 4).max(3),
                    Priority::Unit => (self.segments / 8).max(2),
                    Priority::Housekeeping => 0,
                };
                let fits = state.at + (RECORD_HEADER + len) as u64 <= self.segment;
                if state.free.len() > keep || (fits && state.free.len() == keep) {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// Appends a record. It is durable once [`Journal::durable`] returns.
    ///
    /// # Panics
    /// If no segment is free: the caller must have waited for [`Journal::wait_for_space`].
    pub(crate) fn append<R: Record>(&self, record: &R, payload: &Buf) -> Appended {
        let body = to_bytes(record);
        let len = (RECORD_HEADER + body.len() + payload.len()) as u64;
        assert!(len <= self.segment - BLOCK as u64, "a record fits a segment");
        if self.state.borrow().at + len > self.segment {
            self.open_segment();
        }
        let mut state = self.state.borrow_mut();
        assert!(state.at + len <= self.segment, "the record would overwrite the header of the next segment");
        assert!(
            state.live.back().is_some_and(|current| current.serial == state.serial),
            "a replay would not accept a record with the serial of another segment"
        );
        state.lsn += 1;
        assert!(state.lsn > state.durable, "the record would count as durable before it is written");
        let mut head = Vec::with_capacity(RECORD_HEADER + body.len());
        head.extend_from_slice(&[0; 4]);
        head.extend_from_slice(&(body.len() as u32).to_le_bytes());
        head.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        head.extend_from_slice(&R::KIND.to_le_bytes());
        head.extend_from_slice(&u16::try_from(state.lsn - state.synced).unwrap_or(0).to_le_bytes());
        head.extend_from_slice(&state.serial.to_le_bytes());
        head.extend_from_slice(&state.lsn.to_le_bytes());
        head.extend_from_slice(&body);
        let sum = crc_append(crc(&head[4..]), payload);
        head[..4].copy_from_slice(&sum.to_le_bytes());
        let place = self.place(&state) + state.at;
        let position =
            Position { serial: state.serial, offset: place + head.len() as u64, len: payload.len() as u32 };
        state.queue(place, head, payload);
        if state.lsn - state.synced <= u64::from(u16::MAX) {
            state.told = state.synced;
        }
        state.at += len;
        let lsn = state.lsn;
        drop(state);
        self.demand.notify();
        Appended { lsn, position }
    }

    /// Start of the current segment.
    fn place(&self, state: &State) -> u64 {
        let index = state.live.back().map_or(0, |segment| segment.index);
        self.start + u64::from(index) * self.segment
    }

    fn open_segment(&self) {
        let mut state = self.state.borrow_mut();
        let index = state.free.pop_front().expect("the caller has waited for room");
        let serial = state.serial_next;
        (state.serial, state.serial_next) = (serial, serial + 1);
        let lsn_first = state.lsn + 1;
        assert!(
            state.live.back().is_none_or(|last| last.serial < serial && last.lsn_first < lsn_first),
            "a replay would read the segments in the wrong order"
        );
        state.live.push_back(Segment { serial, index, lsn_first });
        state.at = BLOCK as u64;
        self.queue_header(&mut state);
    }

    /// Queues the current segment's header, which says where the journal starts.
    fn queue_header(&self, state: &mut State) {
        let (Some(first), Some(last)) = (state.live.front(), state.live.back()) else { return };
        let header = SegmentHeader {
            serial: last.serial,
            lsn_first: last.lsn_first,
            tail: first.serial,
            lsn_tail: first.lsn_first,
            durable: state.synced,
        };
        assert!(header.durable <= state.lsn, "the next start would miss records that never existed");
        let place = self.place(state);
        state.pending.push((place, vec![header.encode()]));
        state.headers += 1;
        state.told = state.synced;
    }

    /// Notes that the last record is that of a unit. A restart compares its bytes unless they are known to be synced.
    pub(crate) fn holds_unit(&self) {
        let mut state = self.state.borrow_mut();
        assert!(state.lsn > state.durable, "the bytes of the unit would never be compared");
        state.units = state.lsn;
    }

    /// Frees every segment up to `serial`; the current one stays.
    pub(crate) fn free_upto(&self, serial: u64) {
        let mut state = self.state.borrow_mut();
        assert!(serial < state.serial, "records would be lost that were appended during the checkpoint");
        let number = state.headers + 1;
        while let Some(first) = state.live.front().copied()
            && first.serial <= serial
            && state.live.len() > 1
        {
            state.live.pop_front();
            assert!(
                state.live.front().is_some_and(|next| next.lsn_first <= state.durable + 1),
                "the replacement of its records might not be durable: a crash would lose both"
            );
            assert!(
                state.freed.last().is_none_or(|(_, last)| last.serial < first.serial),
                "a replay would begin after a segment that is still needed"
            );
            state.freed.push((number, first));
        }
        self.assert_no_segment_is_lost(&state);
        self.queue_header(&mut state);
        drop(state);
        self.request_sync();
    }

    /// Starts a sync now.
    pub(crate) fn request_sync(&self) {
        self.state.borrow_mut().urgent = true;
        self.demand.notify();
    }

    /// The number of the last record appended.
    pub(crate) fn last(&self) -> u64 {
        self.state.borrow().lsn
    }

    /// Everything up to this number is durable.
    pub(crate) fn durable_upto(&self) -> u64 {
        self.state.borrow().durable
    }

    /// Everything up to this number was synced, with the bytes of units. After a replay: as far as its records prove.
    pub(crate) fn synced_upto(&self) -> u64 {
        self.state.borrow().synced
    }

    /// Waits until record `lsn` and everything before it is durable.
    pub(crate) async fn durable(&self, lsn: u64) -> Result<(), DiskFailed> {
        loop {
            let changed = self.changed.wait();
            if self.failed.get() {
                return Err(DiskFailed);
            }
            if self.durable_upto() >= lsn {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Whether the disk has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Declares the disk failed and wakes everybody who waits.
    pub(crate) fn fail(&self) {
        hit(CodeProbe::DiskLost);
        self.failed.set(true);
        self.changed.notify();
        self.demand.notify();
    }

    /// Reads a payload back.
    pub(crate) async fn read(&self, position: Position) -> std::io::Result<Buf> {
        // Bytes that are pending or on their way to the disk must arrive first.
        if self.state.borrow().holds(position.offset) || self.writing.try_lock().is_none() {
            self.write_pending().await?;
        }
        let bytes = self.disk.read(position.offset, position.len as usize).await?;
        assert_eq!(bytes.len(), position.len as usize, "an overlay would be cut off unnoticed");
        Ok(bytes)
    }

    /// Writes the appended records, in order.
    ///
    /// # Cancel
    /// Safe: the next call writes everything that is not known to be on the disk again, to the same place.
    async fn write_pending(&self) -> std::io::Result<()> {
        let _one = self.writing.lock().await;
        {
            let state = &mut *self.state.borrow_mut();
            state.pending_bytes = 0;
            state.leaving.extend(state.pending.drain(..));
        }
        loop {
            let Some((place, parts)) = self.state.borrow().leaving.front().cloned() else { return Ok(()) };
            let zone = self.start..self.start + self.segments as u64 * self.segment;
            assert!(zone.contains(&place), "a record would overwrite the superblock, descriptors or data");
            // A failed write counts as lost even if its bytes reach the disk later: no sync may count it.
            // Whoever writes here does so for all who wait, and not in a class of its own.
            let append = in_class(IoClass::Journal, self.disk.append(place, parts));
            append.await.inspect_err(|_| self.fail())?;
            self.state.borrow_mut().leaving.pop_front();
        }
    }

    /// Group commit, as long as the brick runs: all records appended during a sync share the next one. Calls `synced`
    /// with the number up to which the journal is durable.
    pub(crate) async fn run(&self, world: World, synced: impl Fn(u64)) {
        while !self.failed.get() {
            match self.next_step(&world).await {
                Step::Look => continue,
                Step::Prove => self.prove(),
                Step::Write if self.write_pending().await.is_ok() => continue,
                Step::Sync if self.sync().await.is_ok() => {
                    synced(self.durable_upto());
                    self.changed.notify();
                }
                Step::Write | Step::Sync => {
                    tracing::error!("the disk failed to sync: the brick counts as lost");
                    self.fail();
                }
            }
        }
    }

    /// Waits until there is something to do.
    async fn next_step(&self, world: &World) -> Step {
        let demand = self.demand.wait();
        let (behind, pending, unproven) = {
            let state = self.state.borrow();
            if state.urgent || state.unsynced >= SYNC_BYTES {
                return Step::Sync;
            }
            let behind = state.lsn > state.durable || !state.pending.is_empty();
            (behind, state.pending_bytes, state.units > state.proven)
        };
        if !behind && unproven {
            return if world.timeout(PROOF_US, demand).await.is_some() { Step::Look } else { Step::Prove };
        }
        if !behind {
            demand.await;
            return Step::Look;
        }
        if pending >= PENDING_MAX {
            return Step::Write;
        }
        // Nobody waits for these records, but they must not stay unsynced for long.
        let pressed = async {
            loop {
                let demand = self.demand.wait();
                if self.state.borrow().is_pressed() {
                    return;
                }
                demand.await;
            }
        };
        if world.timeout(SYNC_LAZY_US, pressed).await.is_some() { Step::Look } else { Step::Sync }
    }

    /// Nothing was appended since the last sync: the header notes it.
    fn prove(&self) {
        hit(CodeProbe::SyncProven);
        self.queue_header(&mut self.state.borrow_mut());
        self.request_sync();
    }

    async fn sync(&self) -> std::io::Result<()> {
        let (upto, headers, told) = {
            let mut state = self.state.borrow_mut();
            state.urgent = false;
            state.unsynced = 0;
            (state.lsn, state.headers, state.told)
        };
        self.write_pending().await?;
        self.disk.sync().await?;
        let mut state = self.state.borrow_mut();
        assert!(
            state.synced <= state.durable && state.durable <= upto && upto <= state.lsn,
            "acknowledged records would not count as durable, or unwritten ones would"
        );
        assert!(
            state.proven <= told && told <= upto,
            "a restart would trust units that no sync has covered, or distrust known ones"
        );
        (state.durable, state.synced, state.proven) = (upto, upto, told);
        let (durable, waiting) = state.freed.iter().partition(|(header, _)| *header <= headers);
        let durable: Vec<(u64, Segment)> = durable;
        state.free.extend(durable.into_iter().map(|(_, segment)| segment.index));
        state.freed = waiting;
        self.assert_no_segment_is_lost(&state);
        Ok(())
    }

    /// Notes that `bytes` of unit data were written and wait for a sync.
    pub(crate) fn wrote(&self, bytes: u64) {
        self.state.borrow_mut().unsynced += bytes;
        self.demand.notify();
    }
}

impl State {
    /// The state after a replay: segments up to record `lsn`, known to be synced up to `synced`. The caller opens a
    /// new segment or continues the last one, which counts as full until then.
    fn found(
        live: VecDeque<Segment>,
        free: VecDeque<u32>,
        serial_next: u64,
        segment: u64,
        lsn: u64,
        synced: u64,
    ) -> State {
        assert!(synced <= lsn, "a restart would trust units without records");
        State {
            live,
            free,
            freed: Vec::new(),
            headers: 0,
            serial: 0,
            serial_next,
            at: segment,
            lsn,
            durable: lsn,
            synced,
            // The records found are synced before anything is served.
            units: lsn,
            told: synced,
            proven: synced,
            pending: Vec::new(),
            leaving: VecDeque::new(),
            pending_bytes: 0,
            unsynced: 0,
            urgent: false,
        }
    }

    /// Whether somebody waits for a sync, or enough bytes have gathered.
    fn is_pressed(&self) -> bool {
        self.urgent || self.unsynced >= SYNC_BYTES || self.pending_bytes >= PENDING_MAX
    }

    fn queue(&mut self, place: u64, head: Vec<u8>, payload: &Buf) {
        let len = (head.len() + payload.len()) as u64;
        self.pending_bytes += len;
        self.unsynced += len;
        let head = Buf::from(head);
        // Consecutive records become one write.
        let parts = match self.pending.last_mut() {
            Some((start, parts)) if *start + parts.iter().map(|p| p.len() as u64).sum::<u64>() == place => {
                parts
            }
            _ => {
                self.pending.push((place, Vec::new()));
                &mut self.pending.last_mut().expect("just pushed").1
            }
        };
        parts.push(head);
        if !payload.is_empty() {
            parts.push(payload.clone());
        }
    }

    fn holds(&self, offset: u64) -> bool {
        self.pending.iter().chain(&self.leaving).any(|(start, parts)| {
            let len: u64 = parts.iter().map(|p| p.len() as u64).sum();
            (*start..*start + len).contains(&offset)
        })
    }
}

/// What the syncer does next.
enum Step {
    Look,
    Write,
    Sync,
    Prove,
}
