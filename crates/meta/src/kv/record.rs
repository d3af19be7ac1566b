//! A record of the journal: the writes of one group of changes, numbered and checksummed.
//!
//! ```text
//! | magic 8 | number 8 | length 4 | crc32c 4 | writes ... | zeros up to a multiple of 4096 |
//! a batch: | SHOALbat 8 | number of the first 8 | length 4 | crc32c 4 | records ... | zeros |, a record: | length 4 | writes |
//! a write: | key length 2 | value length 4, or ffffffff to remove | key | value |
//! ```
//!
//! Numbers are little-endian. The checksum covers the journal's salt, the number, the length and the writes. So a user
//! who does not know the salt cannot forge a record by the bytes of a file name.

use std::ops::Range;

use types::checksum::{crc, crc_append};
use types::limits::BLOCK;
use types::{Buf, BufMut};

use super::engine::Writes;

const MAGIC: [u8; 8] = *b"SHOALrec";
const BATCH_MAGIC: [u8; 8] = *b"SHOALbat";
pub(super) const HEADER: usize = 24;
/// Marks a removal in place of a value's length.
const REMOVED: u32 = u32::MAX;

/// Random bytes that make each journal's checksums different.
pub(crate) type Salt = [u8; 16];

/// A record as it lies in the journal.
#[derive(Clone)]
pub(crate) struct EncodedRecord {
    pub(crate) number: u64,
    /// A multiple of the block size.
    pub(crate) bytes: Buf,
    /// Bytes of the writes.
    len: usize,
}

impl EncodedRecord {
    /// The writes, without what belongs to one journal.
    pub(crate) fn writes(&self) -> Buf {
        self.bytes.slice(HEADER..HEADER + self.len)
    }
}

/// The approximate size of `writes` in a record.
pub(super) fn weight(writes: &Writes) -> usize {
    writes.iter().map(|(key, value)| 6 + key.len() + value.as_ref().map_or(0, Vec::len)).sum()
}

/// Writes without what belongs to one record.
pub(crate) fn packed(writes: &Writes) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(weight(writes));
    for (key, value) in writes {
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&value.as_ref().map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    bytes
}

/// Makes the record of `writes`. `None` if it would be too long.
pub(super) fn seal(salt: &Salt, number: u64, writes: &Writes) -> Option<EncodedRecord> {
    let len = weight(writes);
    let length = u32::try_from(len).ok()?;
    let mut bytes = BufMut::dirty((HEADER + len).next_multiple_of(BLOCK));
    let mut at = HEADER;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    for (key, value) in writes {
        put(&u16::try_from(key.len()).ok()?.to_le_bytes());
        put(&value.as_ref().map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        put(key);
        put(value.as_deref().unwrap_or_default());
    }
    bytes[HEADER + len..].fill(0);
    let sum = checksum(salt, number, length, &bytes[HEADER..HEADER + len]);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    Some(EncodedRecord { number, bytes: bytes.freeze(), len })
}

/// The number, the bytes inside and the length of what is at the start of `bytes`. `None` if the checksum is wrong.
fn checked<'a>(salt: &Salt, bytes: &'a [u8]) -> Option<(u64, &'a [u8], usize)> {
    let header: &[u8; HEADER] = bytes.first_chunk()?;
    let number = u64::from_le_bytes(*header[8..].first_chunk()?);
    let length = u32::from_le_bytes(*header[16..].first_chunk()?);
    let sum = u32::from_le_bytes(*header[20..].first_chunk()?);
    let end = HEADER.checked_add(length as usize)?;
    let writes = bytes.get(HEADER..end)?;
    (checksum(salt, number, length, writes) == sum).then_some((number, writes, end.next_multiple_of(BLOCK)))
}

/// Several records that are durable together: their writes in order, of which the first has this number.
pub(super) fn seal_batch(salt: &Salt, first: u64, records: &[&Buf]) -> Option<Buf> {
    let len: usize = records.iter().map(|writes| 4 + writes.len()).sum();
    let length = u32::try_from(len).ok()?;
    let mut bytes = BufMut::zeroed((HEADER + len).next_multiple_of(BLOCK));
    let mut at = HEADER;
    for writes in records {
        bytes[at..at + 4].copy_from_slice(&(writes.len() as u32).to_le_bytes());
        bytes[at + 4..at + 4 + writes.len()].copy_from_slice(writes);
        at += 4 + writes.len();
    }
    let sum = checksum(salt, first, length, &bytes[HEADER..HEADER + len]);
    bytes[..8].copy_from_slice(&BATCH_MAGIC);
    bytes[8..16].copy_from_slice(&first.to_le_bytes());
    bytes[16..20].copy_from_slice(&length.to_le_bytes());
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    Some(bytes.freeze())
}

/// What lies at the start of a part of a journal: the number of its first record, where the writes of each record lie, and its
/// length. `None` if there is no valid record or batch.
pub(super) fn open_any(salt: &Salt, bytes: &[u8]) -> Option<(u64, Vec<Range<usize>>, usize)> {
    let magic = bytes.first_chunk::<8>().filter(|magic| [MAGIC, BATCH_MAGIC].contains(magic))?;
    let (first, inner, len) = checked(salt, bytes)?;
    match *magic {
        MAGIC => Some((first, std::iter::once(HEADER..HEADER + inner.len()).collect(), len)),
        BATCH_MAGIC => {
            let (mut ranges, mut at) = (Vec::new(), 0);
            while at < inner.len() {
                let from = at + 4;
                let upto = from + u32::from_le_bytes(*inner.get(at..)?.first_chunk()?) as usize;
                inner.get(from..upto)?;
                ranges.push(HEADER + from..HEADER + upto);
                at = upto;
            }
            Some((first, ranges, len))
        }
        _ => None,
    }
}

/// Adds the writes of a record to `to`. `None` if they cannot be decoded.
pub(super) fn unpack(mut bytes: &[u8], to: &mut Writes) -> Option<()> {
    while !bytes.is_empty() {
        let key_len = u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?) as usize;
        let value_len = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let key = bytes.split_off(..key_len)?.to_vec();
        let value = match value_len {
            REMOVED => None,
            len => Some(bytes.split_off(..len as usize)?.to_vec()),
        };
        to.insert(key, value);
    }
    Some(())
}

fn checksum(salt: &Salt, number: u64, length: u32, writes: &[u8]) -> u32 {
    let sum = crc_append(crc(salt), &number.to_le_bytes());
    crc_append(crc_append(sum, &length.to_le_bytes()), writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let writes: Writes =
            [(b"gone".to_vec(), None), (b"k".to_vec(), Some(b"val".to_vec()))].into_iter().collect();
        let sealed = seal(&[7; 16], 0x0102, &writes).expect("short");
        assert_eq!(sealed.bytes.len(), BLOCK);
        let hex: String = sealed.bytes[..24 + 20].iter().map(|byte| format!("{byte:02x}")).collect();
        let body = "0400ffffffff676f6e65".to_owned() + "0100030000006b76616c";
        assert_eq!(&hex[..40], "53484f414c72656302010000000000001400000000"[..40].to_owned());
        assert_eq!(&hex[48..], body);
        assert!(sealed.bytes[44..].iter().all(|byte| *byte == 0));
        let (number, inner, len) = open_any(&[7; 16], &sealed.bytes).expect("whole");
        assert_eq!((number, inner.len(), len), (0x0102, 1, BLOCK));
        let mut read = Writes::new();
        unpack(&sealed.bytes[inner[0].clone()], &mut read).expect("writes");
        assert_eq!(read, writes);
        assert!(open_any(&[8; 16], &sealed.bytes).is_none(), "another journal's");
        for at in 0..44 {
            let mut bad = sealed.bytes.to_vec();
            bad[at] ^= 1;
            assert!(open_any(&[7; 16], &bad).is_none(), "byte {at}");
        }
    }

    #[test]
    fn a_batch_is_there_as_a_whole_or_not_at_all() {
        let salt = [7; 16];
        let sealed = |value: u8, len: usize| {
            let writes = Writes::from([(vec![value], Some(vec![value; len]))]);
            seal(&salt, 1, &writes).expect("short").writes()
        };
        let records = [sealed(1, 10), sealed(2, 5000), sealed(3, 0)];
        let batch = seal_batch(&salt, 77, &records.iter().collect::<Vec<_>>()).expect("short");
        assert_eq!(batch.len(), 2 * BLOCK);
        let (first, ranges, len) = open_any(&salt, &batch).expect("whole");
        assert_eq!((first, len), (77, batch.len()));
        let found: Vec<&[u8]> = ranges.into_iter().map(|range| &batch[range]).collect();
        assert!(found.iter().zip(&records).all(|(found, record)| **found == **record) && found.len() == 3);
        let used = HEADER + records.iter().map(|record| 4 + record.len()).sum::<usize>();
        for at in 0..used {
            let mut bad = batch.to_vec();
            bad[at] ^= 1;
            assert!(open_any(&salt, &bad).is_none(), "byte {at}");
        }
        // A sector that was not written in a power cut.
        let mut torn = batch.to_vec();
        torn[BLOCK..].fill(0);
        assert!(open_any(&salt, &torn).is_none());
    }
}
