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
/// Smallest brick, in bytes.
pub const BRICK_MIN: u64 = 24 << 20;

types::records! {
    /// The layout of a brick. Offsets and sizes in bytes unless a line says otherwise.
    part Superblock {
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
        let segment = (journal / 16).clamp(1 << 20, 16 << 20) / BLOCK as u64 * BLOCK as u64;
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
        match first {
            Err(BrickError::NotABrick | BrickError::SuperblockDamaged) => {
                // A disk is foreign only if neither copy has the magic.
                match Superblock::parse(&disk.read(BLOCK as u64, BLOCK).await?) {
                    Err(BrickError::NotABrick) => first,
                    second => second,
                }
            }
            other => other,
        }
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
        parsed
    }
}
