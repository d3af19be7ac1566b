//! The journal in front of the engine: a file of fixed length. It is written from end to end before its first use, so
//! that a sync writes no metadata of the file.
//!
//! ```text
//! | block 0: header | half 0: record record record ... | half 1: record record ... |
//! ```
//!
//! Each record is synced before the next one is written. When a half is full, its records are committed to the engine,
//! and new records go to the other half. A half is overwritten only when the engine has all its records durably. Each
//! commit to the engine includes the number of its last record.
//!
//! Of several metadata servers, one may replace a record that was not chosen by one with the same number. It lies behind the
//! first one, and is of a later term.
//!
//! Opening scans every block of both halves and skips the records that the engine has. The others must have consecutive
//! numbers. A gap means damage, because each record was synced before the next one was begun. A torn last record counts
//! as missing: no answer has depended on it. Its number is not used again (but where several servers have the same numbers), so
//! its remains cannot pass for a later record.

use std::io;
use std::ops::Range;

use types::checksum::crc;
use types::limits::BLOCK;
use types::{Buf, BufMut, ClusterId};
use world::{Disk, DiskMode, World};

use super::disk_space::is_no_space;
use super::engine::Writes;
use super::record::{self, Salt};

const MAGIC: [u8; 8] = *b"SHOALmjr";
const VERSION: u32 = 1;
/// Bytes of the header that are used: magic, version, checksum, cluster, salt, length of a half.
const HEADER: usize = 56;
/// The shortest and the longest half. Its records are also in memory, where they take about 2.5 times their length.
const HALF_MIN: u64 = 256 << 10;
const HALF_MAX: u64 = 8 << 20;
/// Pause before a record is written again for which there was no room, in microseconds.
const FULL_US: u64 = 100_000;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It could not be read or written.
    #[error("it cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// It is not there, but the store had one.
    #[error("it is missing, and with it the last changes; it belongs beside the store")]
    Missing,
    /// It is no journal, or one of a newer version.
    #[error("it is not a journal that this build can read")]
    Unreadable,
    /// It is another cluster's.
    #[error("it belongs to cluster {0}")]
    WrongCluster(ClusterId),
    /// A record before the last one is damaged.
    #[error("record {missing} is damaged, but record {found} is there: changes that were answered are lost")]
    Damaged {
        /// The first record that is missing.
        missing: u64,
        /// The next one that is there.
        found: u64,
    },
}

/// An open journal.
pub(crate) struct Journal {
    disk: Disk,
    half_len: u64,
    half: u64,
    used: u64,
}

/// Which of two records with the same number is the later one: that of the higher rank.
pub(crate) type Rank = fn(&Writes) -> u64;

/// Where a record lies.
struct Found {
    number: u64,
    half: usize,
    /// Where its writes lie in the half.
    writes: Range<usize>,
}

/// The writes of a record. `None` if they cannot be decoded.
pub(crate) fn unpacked(bytes: &[u8]) -> Option<Writes> {
    let mut writes = Writes::new();
    record::unpack(bytes, &mut writes)?;
    Some(writes)
}

/// What a journal held.
pub(crate) struct RecoveredJournal {
    pub(crate) journal: Journal,
    pub(crate) salt: Salt,
    /// Writes that the engine does not have yet, but for those of the last record.
    pub(crate) writes: Writes,
    /// The last record, if the engine does not have it.
    pub(crate) tail: Option<Writes>,
    /// The number of the last record in the journal or in the engine.
    pub(crate) last: u64,
    /// The writes of all records that the engine does not have; the first has this number.
    pub(crate) records: (u64, Vec<Buf>),
}

impl Journal {
    /// Opens or makes the journal at `path`. The engine has the records up to `applied`; `None` if it never had a
    /// journal.
    pub(crate) async fn open(
        world: &World,
        path: &str,
        cluster: ClusterId,
        applied: Option<u64>,
        memory_budget: u64,
        rank: Rank,
    ) -> Result<RecoveredJournal, JournalError> {
        let disk = match world.open_disk_when_free(path, DiskMode::Buffered).await {
            Ok(disk) => disk,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Err(_) if applied.is_some() => return Err(JournalError::Missing),
            Err(_) => create(world, path, memory_budget).await?,
        };
        let header = disk.read(0, BLOCK).await?;
        let (salt, half_len) = if header.iter().all(|byte| *byte == 0) {
            // The journal is new, or the process ended while making it: it has never held a record.
            if applied.is_some() {
                return Err(JournalError::Missing);
            }
            make(world, &disk, cluster).await?
        } else {
            read_header(&header, cluster, disk.len())?
        };
        let mut journal = Journal { disk, half_len, half: 0, used: 0 };
        let (mut found, halves) = journal.find(&salt, rank).await?;
        let bytes_of = |record: &Found| halves[record.half].slice(record.writes.clone());
        let (mut writes, mut tail, mut last) = (Writes::new(), None, applied.unwrap_or(0));
        for record in found.iter().filter(|record| record.number > applied.unwrap_or(0)) {
            if record.number != last + 1 {
                return Err(JournalError::Damaged { missing: last + 1, found: record.number });
            }
            if let Some(before) = tail.replace(bytes_of(record)) {
                record::unpack(&before, &mut writes).ok_or(JournalError::Unreadable)?;
            }
            last = record.number;
            // What comes next goes to the other half, so that this record stays until it is there, too.
            journal.half = 1 - record.half as u64;
        }
        let tail = tail.map(|bytes| unpacked(&bytes).ok_or(JournalError::Unreadable)).transpose()?;
        // Of those that the engine has, the half with a later one of the same number may have been overwritten.
        found.retain(|record| record.number > applied.unwrap_or(0));
        let first = found.first().map_or(last + 1, |record| record.number);
        let records = (first, found.iter().map(bytes_of).collect());
        Ok(RecoveredJournal { journal, salt, writes, tail, last, records })
    }

    /// Opens or makes the journal at `path`, whatever it holds. It must be [renewed](Journal::renew) before its first record.
    pub(crate) async fn open_anew(
        world: &World,
        path: &str,
        memory_budget: u64,
    ) -> Result<Journal, JournalError> {
        let disk = match world.open_disk_when_free(path, DiskMode::Buffered).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(world, path, memory_budget).await?
            }
            opened => opened?,
        };
        let half_len = half_of(disk.len());
        Ok(Journal { disk, half_len, half: 0, used: 0 })
    }

    /// All records in the order of their numbers, and both halves. Of several with the same number, of which each has replaced
    /// another one, the last one counts.
    async fn find(&self, salt: &Salt, rank: Rank) -> Result<(Vec<Found>, [Buf; 2]), JournalError> {
        let halves = [self.read_half(0).await?, self.read_half(1).await?];
        let mut found: Vec<Found> = Vec::new();
        for (half, bytes) in halves.iter().enumerate() {
            let mut at = 0;
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                match record::open_any(salt, rest) {
                    Some((first, records, len)) => {
                        let records = (first..).zip(records);
                        found.extend(records.map(|(number, writes)| {
                            let writes = at + writes.start..at + writes.end;
                            Found { number, half, writes }
                        }));
                        at += len;
                    }
                    None => at += BLOCK,
                }
            }
        }
        found.sort_by_key(|record| record.number);
        let mut all: Vec<Found> = Vec::with_capacity(found.len());
        for record in found {
            let ranked = |record: &Found| {
                unpacked(&halves[record.half][record.writes.clone()]).map_or(0, |writes| rank(&writes))
            };
            match all.last_mut().filter(|last| last.number == record.number) {
                Some(last) if ranked(last) > ranked(&record) => {}
                Some(last) => *last = record,
                None => all.push(record),
            }
        }
        Ok((all, halves))
    }

    /// Forgets all records. The store has to know that before, and no later than this the number of the next one.
    pub(crate) async fn renew(&mut self, world: &World, cluster: ClusterId) -> Result<Salt, JournalError> {
        let (salt, half_len) = make(world, &self.disk, cluster).await?;
        (self.half_len, self.half, self.used) = (half_len, 0, 0);
        Ok(salt)
    }

    async fn read_half(&self, half: u64) -> io::Result<Buf> {
        let len = usize::try_from(self.half_len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.disk.read(BLOCK as u64 + half * self.half_len, len).await
    }

    /// Bytes of a half, and the most bytes of a record.
    pub(crate) fn half_len(&self) -> u64 {
        self.half_len
    }

    /// Whether a record, or a batch, of this length fits into the current half.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.used + len as u64 <= self.half_len
    }

    /// Goes to the other half. The engine must have its records.
    pub(crate) fn switch_half(&mut self) {
        self.half = 1 - self.half;
        self.used = 0;
    }

    /// Bytes that are left in the current half.
    pub(crate) fn left(&self) -> u64 {
        self.half_len - self.used
    }

    /// Makes a record durable, or a batch: all its records or none.
    ///
    /// # Errors
    /// If there is no room, the same bytes or others can be appended, in this place. After any other error the journal is of no
    /// further use.
    pub(crate) async fn append(&mut self, bytes: &Buf) -> io::Result<()> {
        if !self.fits(bytes.len()) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a change is larger than the journal"));
        }
        let at = BLOCK as u64 + self.half * self.half_len + self.used;
        self.disk.write(at, vec![bytes.clone()]).await?;
        self.disk.sync().await?;
        self.used += bytes.len() as u64;
        Ok(())
    }

    /// As [`Journal::append`]. While the disk is full it waits, and calls `full` again and again. Its bytes are written once
    /// more before each sync, and nothing comes before them.
    pub(crate) async fn append_patiently(
        &mut self,
        world: &World,
        bytes: &Buf,
        full: impl Fn(),
    ) -> io::Result<()> {
        loop {
            match self.append(bytes).await {
                Err(error) if is_no_space(&error) => full(),
                appended => return appended,
            }
            world.sleep(FULL_US).await;
        }
    }
}

async fn create(world: &World, path: &str, memory_budget: u64) -> io::Result<Disk> {
    let half = (memory_budget / 32).clamp(HALF_MIN, HALF_MAX).next_multiple_of(BLOCK as u64);
    world.create_disk(path, BLOCK as u64 + 2 * half).await
}

/// Bytes of a half of a journal of this length.
fn half_of(len: u64) -> u64 {
    (len.saturating_sub(BLOCK as u64) / 2) / BLOCK as u64 * BLOCK as u64
}

/// Writes zeros from end to end, then the header.
async fn make(world: &World, disk: &Disk, cluster: ClusterId) -> Result<(Salt, u64), JournalError> {
    let half_len = half_of(disk.len());
    if half_len < HALF_MIN {
        return Err(JournalError::Unreadable);
    }
    let zeros = BufMut::zeroed(256 << 10).freeze();
    let mut at = 0;
    while at < disk.len() {
        let len = zeros.len().min(usize::try_from(disk.len() - at).unwrap_or(usize::MAX));
        disk.write(at, vec![zeros.slice(0..len)]).await?;
        at += len as u64;
    }
    disk.sync().await?;
    let mut salt = Salt::default();
    world.random_bytes(&mut salt);
    let mut header = BufMut::zeroed(BLOCK);
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(&cluster.0);
    header[32..48].copy_from_slice(&salt);
    header[48..56].copy_from_slice(&half_len.to_le_bytes());
    let sum = crc(&header[16..HEADER]);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    disk.write(0, vec![header.freeze()]).await?;
    disk.sync().await?;
    Ok((salt, half_len))
}

fn read_header(header: &[u8], cluster: ClusterId, len: u64) -> Result<(Salt, u64), JournalError> {
    let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let known = header[..8] == MAGIC && word(8) == VERSION && word(12) == crc(&header[16..HEADER]);
    let field = |at: usize| header[at..].first_chunk::<16>().copied().unwrap_or_default();
    let half_len = header[48..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let whole = half_len.checked_mul(2).and_then(|both| both.checked_add(BLOCK as u64));
    if !known || half_len < HALF_MIN || whole.is_none_or(|whole| whole > len) {
        return Err(JournalError::Unreadable);
    }
    let owner = ClusterId(field(16));
    if owner != cluster {
        return Err(JournalError::WrongCluster(owner));
    }
    Ok((field(32), half_len))
}
