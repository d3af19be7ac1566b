//! The format of a segment: its header, and the records after it.

use types::checksum::crc;
use types::limits::BLOCK;
use types::{Buf, BufMut};
use world::Disk;

use super::{Position, RECORD_HEADER, ReplayedRecord};
use crate::error::BrickError;
use crate::superblock::Superblock;

const MAGIC: [u8; 8] = *b"SHOALSEG";

/// The first block of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentHeader {
    pub(super) serial: u64,
    /// Number of its first record.
    pub(super) lsn_first: u64,
    /// Serial of the oldest segment that a replay needs.
    pub(super) tail: u64,
    /// Number of that segment's first record.
    pub(super) lsn_tail: u64,
    /// Number of the last record that was synced when this header was written: a replay must reach it, and units up
    /// to it were written whole.
    pub(super) durable: u64,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Buf {
        assert!(
            self.lsn_tail > 0 && self.lsn_tail <= self.lsn_first && self.tail <= self.serial,
            "an inconsistent header is ignored, and the records after it would be lost"
        );
        let mut block = BufMut::zeroed(BLOCK);
        block[..8].copy_from_slice(&MAGIC);
        block[8..16].copy_from_slice(&self.serial.to_le_bytes());
        block[16..24].copy_from_slice(&self.lsn_first.to_le_bytes());
        block[24..32].copy_from_slice(&self.tail.to_le_bytes());
        block[32..40].copy_from_slice(&self.lsn_tail.to_le_bytes());
        block[40..48].copy_from_slice(&self.durable.to_le_bytes());
        let sum = crc(&block[..48]);
        block[48..52].copy_from_slice(&sum.to_le_bytes());
        block.freeze()
    }

    pub(super) fn parse(block: &[u8]) -> Option<SegmentHeader> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
        if block.get(..8)? != MAGIC || crc(&block[..48]).to_le_bytes() != block[48..52] {
            return None;
        }
        let header = SegmentHeader {
            serial: u64_at(8)?,
            lsn_first: u64_at(16)?,
            tail: u64_at(24)?,
            lsn_tail: u64_at(32)?,
            durable: u64_at(40)?,
        };
        (header.lsn_tail > 0 && header.lsn_tail <= header.lsn_first && header.tail <= header.serial)
            .then_some(header)
    }
}

/// The headers that can be read, each with the index of its segment, in the order of their serials.
pub(super) async fn headers(
    disk: &Disk,
    superblock: &Superblock,
) -> std::io::Result<Vec<(SegmentHeader, u32)>> {
    let mut headers = Vec::new();
    for index in 0..superblock.segments {
        let at = superblock.journal_start + u64::from(index) * superblock.segment;
        let block = disk.read(at, BLOCK).await?;
        assert_eq!(block.len(), BLOCK, "a truncated header would be ignored");
        headers.extend(SegmentHeader::parse(&block).map(|header| (header, index)));
    }
    headers.sort_by_key(|(header, _)| header.serial);
    Ok(headers)
}

/// The end of a replay of a segment: the last number, the first byte after that record, and the last number that the
/// records prove to be synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replayed {
    pub(super) lsn: u64,
    pub(super) at: u64,
    pub(super) synced: u64,
}

/// Passes the records of one segment to `found`.
pub(super) async fn replay(
    serial: u64,
    mut lsn: u64,
    segment_start: u64,
    bytes: &Buf,
    found: &mut impl AsyncFnMut(ReplayedRecord) -> Result<(), BrickError>,
) -> Result<Replayed, BrickError> {
    let (mut at, mut synced) = (BLOCK, 0);
    while let Some(head) = bytes.get(at..at + RECORD_HEADER) {
        let u32_at = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let (body_len, payload_len) = (u32_at(4) as usize, u32_at(8) as usize);
        let end = at.saturating_add(RECORD_HEADER).saturating_add(body_len).saturating_add(payload_len);
        if u64_at(16) != serial || u64_at(24) != lsn + 1 || end > bytes.len() {
            break;
        }
        if crc(&bytes[at + 4..end]) != u32_at(0) {
            break;
        }
        lsn += 1;
        let behind = u64::from(u16::from_le_bytes([head[14], head[15]]));
        if behind > 0 {
            synced = lsn.saturating_sub(behind).max(synced);
        }
        let body_start = at + RECORD_HEADER;
        let payload_start = body_start + body_len;
        found(ReplayedRecord {
            lsn,
            kind: u16::from_le_bytes([head[12], head[13]]),
            body: bytes[body_start..payload_start].to_vec(),
            position: Position {
                serial,
                offset: segment_start + payload_start as u64,
                len: payload_len as u32,
            },
        })
        .await?;
        at = end;
    }
    assert!(synced <= lsn, "units of missing records would count as written whole");
    Ok(Replayed { lsn, at: at as u64, synced })
}

/// Fills the journal with zeros, so that appending never changes the metadata of a brick's file.
pub(crate) async fn format(disk: &Disk, superblock: &Superblock) -> std::io::Result<()> {
    let zeros = BufMut::zeroed(1 << 20).freeze();
    let end = superblock.journal_start + superblock.segment * u64::from(superblock.segments);
    let mut at = superblock.journal_start;
    assert!(at >= 2 * BLOCK as u64, "the zeros would overwrite the superblock");
    assert!(end <= superblock.pages_start, "the zeros would overwrite the zones after the journal");
    while at < end {
        let len = (zeros.len() as u64).min(end - at);
        disk.write(at, vec![zeros.slice(0..len as usize)]).await?;
        at += len;
    }
    Ok(())
}
