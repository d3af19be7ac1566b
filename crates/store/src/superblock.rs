//! The first blocks of a brick: its identity and the places of its zones.
//!
//! ```text
//! | superblock | copy | journal segments ... | descriptor pages ... | data blocks ... |
//! 0            4 KiB  8 KiB
//! ```
//!
//! Written once, when the brick is formatted. Either copy is enough.

use types::checksum::crc;
use types::limits::BLOCK;
use types::wire::{Codec, Reader};
use types::{BrickId, Buf, ClusterId};
use world::Disk;

use crate::error::BrickError;

/// First bytes of a superblock.
const MAGIC: [u8; 8] = *b"SHOALBRK";
/// The newest format that this build reads and writes.
pub(crate) const FORMAT: u32 = 3;
/// The family of code matrices whose parity the brick holds.
pub(crate) const MATRIX: u32 = 1;
/// Longest segment of a journal, in bytes: a segment is read at once.
const SEGMENT_MAX: u64 = 16 << 20;
/// Smallest brick, in bytes.
pub const BRICK_MIN: u64 = 24 << 20;

types::records! {
    /// The layout of a brick. Offsets and sizes in bytes unless a line says otherwise.
    fixed part Superblock {
        /// The format.
        format: u32,
        /// The family of code matrices.
        matrix: u32,
        /// The cluster.
        cluster: ClusterId,
        /// The brick.
        brick: BrickId,
        /// Random: tells this device from another one formatted under the same id.
        device: [u8; 16],
        /// Bytes of the whole brick.
        size: u64,
        /// Start of the journal.
        journal_start: u64,
        /// Bytes of a journal segment.
        segment: u64,
        /// Number of journal segments.
        segments: u32,
        /// Start of the descriptor pages.
        pages_start: u64,
        /// Number of descriptor pages; each has room for two copies.
        pages: u32,
        /// Start of the data blocks.
        data_start: u64,
        /// Number of 4-KiB data blocks.
        data_blocks: u64,
    }
}

impl Superblock {
    /// Lays out a brick of `size` bytes with a journal of about `journal` bytes (a fitting one if `None`).
    pub fn lay_out(
        cluster: ClusterId,
        brick: BrickId,
        device: [u8; 16],
        size: u64,
        journal: Option<u64>,
    ) -> Result<Superblock, BrickError> {
        if size < BRICK_MIN {
            return Err(BrickError::TooSmall { size, min: BRICK_MIN });
        }
        let journal = journal.unwrap_or(size / 16).clamp(8 << 20, 512 << 20).min(size / 3);
        let segment = (journal / 16).clamp(1 << 20, SEGMENT_MAX) / BLOCK as u64 * BLOCK as u64;
        let segments = (journal / segment).max(8) as u32;
        let journal_start = 2 * BLOCK as u64;
        let pages_start = journal_start + segment * u64::from(segments);
        let page_pair = 2 * crate::table::PAGE as u64;
        let pages = ((size / 32) / page_pair).clamp(16, u64::from(crate::table::PAGES_MAX)) as u32;
        let data_start = pages_start + u64::from(pages) * page_pair;
        let data_blocks = size.saturating_sub(data_start) / BLOCK as u64;
        Ok(Superblock {
            format: FORMAT,
            matrix: MATRIX,
            cluster,
            brick,
            device,
            size,
            journal_start,
            segment,
            segments,
            pages_start,
            pages,
            data_start,
            data_blocks,
        })
    }

    /// Writes both copies.
    pub(crate) async fn write(&self, disk: &Disk) -> std::io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        self.encode(&mut bytes);
        let sum = crc(&bytes);
        sum.encode(&mut bytes);
        bytes.resize(BLOCK, 0);
        let block = Buf::from(bytes);
        disk.write(0, vec![block.clone(), block]).await
    }

    /// Reads the superblock, from its second copy if the first is damaged.
    pub async fn read(disk: &Disk) -> Result<Superblock, BrickError> {
        if disk.len() < BRICK_MIN {
            return Err(BrickError::NotABrick);
        }
        let first = Superblock::parse(&disk.read(0, BLOCK).await?);
        let found = match first {
            Err(BrickError::NotABrick | BrickError::SuperblockDamaged | BrickError::Layout(_)) => {
                // A disk is foreign only if neither copy has the magic.
                match Superblock::parse(&disk.read(BLOCK as u64, BLOCK).await?) {
                    Err(BrickError::NotABrick) => first,
                    second => second,
                }
            }
            other => other,
        }?;
        if found.size > disk.len() {
            return Err(BrickError::CutShort { size: found.size, len: disk.len() });
        }
        Ok(found)
    }

    /// Checks the layout against itself. Everything that is computed from it afterwards lies within the brick.
    fn check(&self) -> Result<(), BrickError> {
        let is_right = |is_right: bool, what| if is_right { Ok(()) } else { Err(BrickError::Layout(what)) };
        let block = BLOCK as u64;
        is_right(self.size >= BRICK_MIN, "its size")?;
        is_right(self.journal_start == 2 * block, "the start of its journal")?;
        let segment = self.segment.is_multiple_of(block) && (2 * block..=SEGMENT_MAX).contains(&self.segment);
        is_right(segment && self.segments >= 2, "the segments of its journal")?;
        // Neither overflows: a segment has at most 2^24 bytes, and there are less than 2^32 of them and of pages.
        let pages_start = self.journal_start + self.segment * u64::from(self.segments);
        is_right(self.pages_start == pages_start, "the end of its journal")?;
        is_right((1..=crate::table::PAGES_MAX).contains(&self.pages), "the number of its descriptor pages")?;
        let data_start = pages_start + u64::from(self.pages) * 2 * crate::table::PAGE as u64;
        is_right(self.data_start == data_start && data_start < self.size, "the start of its data")?;
        let room = (self.size - data_start) / block;
        is_right((1..=room).contains(&self.data_blocks), "the number of its data blocks")
    }

    fn parse(block: &[u8]) -> Result<Superblock, BrickError> {
        let Some(body) = block.strip_prefix(&MAGIC) else { return Err(BrickError::NotABrick) };
        let mut reader = Reader::new(body);
        let format = u32::decode(&mut Reader::new(body)).map_err(|_| BrickError::SuperblockDamaged)?;
        let parsed = Superblock::decode(&mut reader).map_err(|_| BrickError::SuperblockDamaged);
        let length = MAGIC.len() + body.len() - reader.remaining();
        let sum = u32::decode(&mut reader).map_err(|_| BrickError::SuperblockDamaged)?;
        let whole = crc(&block[..length]) == sum;
        if format > FORMAT && (whole || parsed.is_err()) {
            return Err(BrickError::NewerFormat { found: format, known: FORMAT });
        }
        if !whole {
            return Err(BrickError::SuperblockDamaged);
        }
        if format < FORMAT {
            return Err(BrickError::OlderFormat { found: format, known: FORMAT });
        }
        let found = parsed?;
        found.check()?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first block of a brick with this superblock, with a right checksum.
    fn block(superblock: &Superblock) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        superblock.encode(&mut bytes);
        crc(&bytes).encode(&mut bytes);
        bytes.resize(BLOCK, 0);
        bytes
    }

    fn laid_out(size: u64, journal: Option<u64>) -> Superblock {
        Superblock::lay_out(ClusterId([1; 16]), BrickId(1), [2; 16], size, journal).expect("large enough")
    }

    fn wild() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<u16>().prop_map(u64::from),
            Just(0),
            Just(1),
            Just(4096),
            Just(u64::from(u32::MAX)),
            Just(1 << 31),
            Just(1 << 63),
            Just(u64::MAX),
        ]
    }

    proptest! {
        #[test]
        fn every_layout_of_ours_is_right(size in BRICK_MIN..(256 << 40), journal in proptest::option::of(wild())) {
            let superblock = laid_out(size, journal);
            prop_assert_eq!(Superblock::parse(&block(&superblock)).expect("right"), superblock);
        }

        /// What is accepted lies within the brick, in order, whatever the numbers are.
        #[test]
        fn wild_numbers_with_a_right_checksum_are_refused_or_harmless(
            numbers in proptest::collection::vec((0..8_usize, wild()), 1..4),
        ) {
            let mut it = laid_out(128 << 20, None);
            for (field, number) in numbers {
                match field {
                    0 => it.size = number,
                    1 => it.journal_start = number,
                    2 => it.segment = number,
                    3 => it.segments = number as u32,
                    4 => it.pages_start = number,
                    5 => it.pages = number as u32,
                    6 => it.data_start = number,
                    _ => it.data_blocks = number,
                }
            }
            match Superblock::parse(&block(&it)) {
                Err(BrickError::Layout(_)) => {}
                Err(error) => prop_assert!(false, "{}", error),
                Ok(it) => {
                    let journal = u128::from(it.segment) * u128::from(it.segments);
                    prop_assert!(u128::from(it.journal_start) + journal <= u128::from(it.pages_start));
                    let pages = u128::from(it.pages) * 2 * crate::table::PAGE as u128;
                    prop_assert!(u128::from(it.pages_start) + pages <= u128::from(it.data_start));
                    let end = u128::from(it.data_start) + u128::from(it.data_blocks) * BLOCK as u128;
                    prop_assert!(end <= u128::from(it.size) && it.segment > 0 && it.segment <= SEGMENT_MAX);
                }
            }
        }
    }
}
