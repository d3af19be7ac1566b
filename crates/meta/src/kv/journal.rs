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
//! Opening scans every block of both halves and skips the records that the engine has. The others must have consecutive
//! numbers. A gap means damage, because each record was synced before the next one was begun. A torn last record counts
//! as missing: no answer has depended on it. Its number is never used again, so its remains cannot pass for a later
//! record.

use std::io;

use types::checksum::crc;
use types::limits::BLOCK;
use types::{Buf, BufMut, ClusterId};
use world::{Disk, DiskMode, World};

use super::engine::Writes;
use super::record::{self, EncodedRecord, Salt};

const MAGIC: [u8; 8] = *b"SHOALmjr";
const VERSION: u32 = 1;
/// Bytes of the header that are used: magic, version, checksum, cluster, salt, length of a half.
const HEADER: usize = 56;
/// The shortest and the longest half. Its records are also in memory, where they take about 2.5 times their length.
const HALF_MIN: u64 = 256 << 10;
const HALF_MAX: u64 = 8 << 20;

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

/// What a journal held.
pub(crate) struct RecoveredJournal {
    pub(crate) journal: Journal,
    pub(crate) salt: Salt,
    /// Writes that the engine does not have yet.
    pub(crate) writes: Writes,
    /// The number of the last record in the journal or in the engine.
    pub(crate) last: u64,
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
    ) -> Result<RecoveredJournal, JournalError> {
        let disk = match world.open_disk_when_free(path, DiskMode::Buffered).await {
            Ok(disk) => disk,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Err(_) if applied.is_some() => return Err(JournalError::Missing),
            Err(_) => {
                let half = (memory_budget / 32).clamp(HALF_MIN, HALF_MAX).next_multiple_of(BLOCK as u64);
                world.create_disk(path, BLOCK as u64 + 2 * half).await?
            }
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
        let journal = Journal { disk, half_len, half: 0, used: 0 };
        let (writes, last) = journal.recover(&salt, applied.unwrap_or(0)).await?;
        Ok(RecoveredJournal { journal, salt, writes, last })
    }

    async fn recover(&self, salt: &Salt, applied: u64) -> Result<(Writes, u64), JournalError> {
        let halves = [self.read_half(0).await?, self.read_half(1).await?];
        let mut records: Vec<(u64, &[u8])> = Vec::new();
        for half in &halves {
            let mut at = 0;
            while let Some(rest) = half.get(at..).filter(|rest| !rest.is_empty()) {
                match record::open(salt, rest) {
                    Some((number, writes, len)) => {
                        records.push((number, writes));
                        at += len;
                    }
                    None => at += BLOCK,
                }
            }
        }
        records.retain(|(number, _)| *number > applied);
        records.sort_unstable_by_key(|(number, _)| *number);
        let (mut all, mut last) = (Writes::new(), applied);
        for (number, writes) in records {
            if number != last + 1 {
                return Err(JournalError::Damaged { missing: last + 1, found: number });
            }
            record::unpack(writes, &mut all).ok_or(JournalError::Unreadable)?;
            last = number;
        }
        Ok((all, last))
    }

    async fn read_half(&self, half: u64) -> io::Result<Buf> {
        let len = usize::try_from(self.half_len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.disk.read(BLOCK as u64 + half * self.half_len, len).await
    }

    /// Bytes of a half, and the most bytes of a record.
    pub(crate) fn half_len(&self) -> u64 {
        self.half_len
    }

    /// Whether a record fits into the current half.
    pub(crate) fn fits(&self, record: &EncodedRecord) -> bool {
        self.used + record.bytes.len() as u64 <= self.half_len
    }

    /// Goes to the other half. The engine must have its records.
    pub(crate) fn switch_half(&mut self) {
        self.half = 1 - self.half;
        self.used = 0;
    }

    /// Makes a record durable.
    ///
    /// # Errors
    /// After any error the journal is of no further use.
    pub(crate) async fn append(&mut self, record: &EncodedRecord) -> io::Result<()> {
        if !self.fits(record) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a change is larger than the journal"));
        }
        let at = BLOCK as u64 + self.half * self.half_len + self.used;
        self.used += record.bytes.len() as u64;
        self.disk.write(at, vec![record.bytes.clone()]).await?;
        self.disk.sync().await
    }
}

/// Writes zeros from end to end, then the header.
async fn make(world: &World, disk: &Disk, cluster: ClusterId) -> Result<(Salt, u64), JournalError> {
    let half_len = (disk.len().saturating_sub(BLOCK as u64) / 2) / BLOCK as u64 * BLOCK as u64;
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
