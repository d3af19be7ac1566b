//! The file of a cache.
//!
//! ```text
//!   header    4 KiB: whose cache it is, and its number of cells
//!   table     16 bytes for each cell: the print of the key, and which blocks are there; filled up to 4 KiB
//!   cells     17 * 4 KiB each: 16 blocks of 4 KiB, and after each block 256 bytes that say what it is
//! ```
//!
//! Nothing but what is said after a block makes the block valid: the whole key, the number of bytes, and a checksum of
//! all of this. The table is a hint where to look. So whatever a crash leaves of the table, or of a block that was being
//! written, is a miss and never the bytes of another key. Numbers are little-endian.

use std::ops::Range;

use types::checksum::{crc, crc_append};
use types::{Buf, BufMut, ClusterId};

use crate::key::{KEY_BYTES, Key};

/// Bytes of a block: what is there or is missing.
pub const BLOCK: usize = 4096;
/// Blocks of a chunk, which has a cell and an entry in the index.
pub const BLOCKS: usize = 16;
/// Bytes of a chunk.
pub const CHUNK: u64 = (BLOCK * BLOCKS) as u64;
/// Bytes of a record of the table, and records in 4 KiB.
pub(crate) const RECORD: usize = 16;
pub(crate) const RECORDS: usize = BLOCK / RECORD;

const TRAILER: usize = 256;
/// Bytes from the start of a block to the start of the next one.
pub const STRIDE: usize = BLOCK + TRAILER;
const CELL: u64 = (STRIDE * BLOCKS) as u64;
const MAGIC: [u8; 8] = *b"SHOALCCH";
const FORMAT: u32 = 1;
/// Bytes of a header before its checksum, and of a trailer.
const HEADER_SAID: usize = 32;
const TRAILER_SAID: usize = KEY_BYTES + 3;

const _: () = assert!(BLOCKS <= u16::BITS as usize, "a bit for each block");

/// What the first 4 KiB of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// Zeros: a new file.
    Empty,
    /// A cache of a cluster.
    Cache {
        /// The cluster.
        cluster: ClusterId,
        /// Number of cells.
        cells: u32,
    },
    /// A cache of another format, or one whose header is damaged.
    Unreadable,
    /// Something else.
    Foreign,
}

impl Header {
    /// Reads a header.
    pub(crate) fn parse(bytes: &[u8]) -> Header {
        if bytes.iter().all(|byte| *byte == 0) {
            return Header::Empty;
        }
        if bytes.len() < HEADER_SAID + 4 || bytes[..8] != MAGIC {
            return Header::Foreign;
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if number(8) != FORMAT || number(HEADER_SAID) != crc(&bytes[..HEADER_SAID]) {
            return Header::Unreadable;
        }
        let cluster = ClusterId(bytes[12..28].try_into().expect("sixteen bytes"));
        Header::Cache { cluster, cells: number(28) }
    }

    /// The header of a cache.
    pub(crate) fn of(cluster: ClusterId, cells: u32) -> Buf {
        let mut bytes = BufMut::zeroed(BLOCK);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..28].copy_from_slice(&cluster.0);
        bytes[28..32].copy_from_slice(&cells.to_le_bytes());
        let sum = crc(&bytes[..HEADER_SAID]);
        bytes[HEADER_SAID..HEADER_SAID + 4].copy_from_slice(&sum.to_le_bytes());
        bytes.freeze()
    }
}

/// Whose a file is, by its first 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheOwner {
    /// It is new, or its header cannot be read: it may become a cache of any cluster.
    Nobody,
    /// It is a cache of this cluster.
    Cluster(ClusterId),
    /// It is no cache.
    Foreign,
}

impl CacheOwner {
    /// By the start of a file; there may be less than 4 KiB.
    pub fn of(start: &[u8]) -> CacheOwner {
        match Header::parse(start) {
            Header::Empty | Header::Unreadable => CacheOwner::Nobody,
            Header::Cache { cluster, .. } => CacheOwner::Cluster(cluster),
            Header::Foreign => CacheOwner::Foreign,
        }
    }
}

/// Where things are in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    pub(crate) cells: u32,
}

impl Places {
    /// As many cells as fit into a file of `len` bytes; `None` if none does.
    pub(crate) fn for_len(len: u64) -> Option<Places> {
        let rest = len.checked_sub(BLOCK as u64)?;
        let most = u32::try_from(rest / (CELL + RECORD as u64)).unwrap_or(u32::MAX);
        let fits = |cells: u32| Places { cells }.len() <= len;
        let cells = if fits(most) { most } else { most.checked_sub(1)? };
        (cells > 0 && fits(cells)).then_some(Places { cells })
    }

    /// Bytes of the file.
    pub(crate) fn len(self) -> u64 {
        self.cell(self.cells)
    }

    /// Bytes of the table.
    pub(crate) fn table_len(self) -> usize {
        (self.cells as usize).div_ceil(RECORDS) * BLOCK
    }

    /// Start of a part of the table with [`RECORDS`] records.
    pub(crate) fn table_part(part: usize) -> u64 {
        (BLOCK + part * BLOCK) as u64
    }

    /// Start of a cell.
    pub(crate) fn cell(self, cell: u32) -> u64 {
        (BLOCK + self.table_len()) as u64 + u64::from(cell) * CELL
    }

    /// Start of a block of a cell.
    pub(crate) fn block(self, cell: u32, block: usize) -> u64 {
        self.cell(cell) + (block * STRIDE) as u64
    }
}

/// Blocks as they are written, from the block `first` of a chunk on. The last one may be short.
pub(crate) fn encode(key: Key, first: usize, bytes: &Buf) -> Vec<Buf> {
    let mut parts = Vec::with_capacity(3 * BLOCKS);
    for (block, at) in (first..BLOCKS).zip((0..bytes.len()).step_by(BLOCK)) {
        let data = bytes.slice(at..bytes.len().min(at + BLOCK));
        let said = said(key, block, data.len());
        let sum = crc_append(crc(&data), &said);
        let pad = BLOCK - data.len();
        let mut trailer = BufMut::zeroed(pad + TRAILER);
        trailer[pad..pad + TRAILER_SAID].copy_from_slice(&said);
        trailer[pad + TRAILER_SAID..pad + TRAILER_SAID + 4].copy_from_slice(&sum.to_le_bytes());
        parts.extend([data, trailer.freeze()]);
    }
    parts
}

/// The bytes of a block as it was read, if it is the one of this key and undamaged.
pub(crate) fn decode(key: Key, block: usize, read: &[u8]) -> Option<&[u8]> {
    let (data, trailer) = read.split_at_checked(BLOCK)?;
    let len = u16::from_le_bytes(trailer.get(KEY_BYTES + 1..TRAILER_SAID)?.try_into().ok()?);
    let data = data.get(..usize::from(len))?;
    let said = said(key, block, data.len());
    let sum = crc_append(crc(data), &said).to_le_bytes();
    (trailer[..TRAILER_SAID] == said && trailer.get(TRAILER_SAID..TRAILER_SAID + 4)? == sum).then_some(data)
}

/// A bit for each of these blocks of a chunk.
pub(crate) fn bits(blocks: &Range<usize>) -> u16 {
    blocks.clone().fold(0, |bits, block| bits | 1 << block)
}

fn said(key: Key, block: usize, len: usize) -> [u8; TRAILER_SAID] {
    let mut said = [0; TRAILER_SAID];
    said[..KEY_BYTES].copy_from_slice(&key.0);
    said[KEY_BYTES] = block as u8;
    said[KEY_BYTES + 1..].copy_from_slice(&(len as u16).to_le_bytes());
    said
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::tests::key;

    fn joined(parts: Vec<Buf>) -> Vec<u8> {
        parts.iter().flat_map(|part| part.to_vec()).collect()
    }

    #[test]
    fn the_document_of_formats_has_the_cache() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md");
        types::wire::check_document(path, &[("cache", &types::wire::at_head_of(include_str!("format.rs")))]);
    }

    #[test]
    fn a_file_is_filled_with_cells() {
        assert_eq!(Places::for_len(0), None);
        assert_eq!(Places::for_len(8192 + CELL - 1), None);
        assert_eq!(Places::for_len(8192 + CELL), Some(Places { cells: 1 }));
        for len in [1 << 20, 1 << 26, (1 << 30) + 12_345, 20 << 30, 1 << 40] {
            let places = Places::for_len(len).expect("large enough");
            assert!(places.len() <= len && len < places.len() + 2 * CELL, "{len}: {places:?}");
            assert!(u64::from(places.cells) * CHUNK > len * 9 / 10 || len < 1 << 21, "little is lost");
        }
    }

    #[test]
    fn a_header_says_whose_cache_it_is() {
        let header = Header::of(ClusterId([7; 16]), 99);
        assert_eq!(Header::parse(&header), Header::Cache { cluster: ClusterId([7; 16]), cells: 99 });
        assert_eq!(Header::parse(&[0; BLOCK]), Header::Empty);
        assert_eq!(Header::parse(b"#!/bin/sh"), Header::Foreign);
        for at in 8..36 {
            let mut bytes = header.to_vec();
            bytes[at] ^= 1;
            assert_eq!(Header::parse(&bytes), Header::Unreadable, "byte {at}");
        }
    }

    #[test]
    fn the_format_is_as_it_was() {
        let bytes = Buf::copy_of(&[5; 5000]);
        let written = joined(encode(key(6, 7), 1, &bytes));
        assert_eq!(written.len(), 2 * STRIDE);
        // Everything of it in one number: if this changes, FORMAT must too.
        assert_eq!(crc(&written), GOLDEN, "{:#x}", crc(&written));
        assert_eq!(crc(&Header::of(ClusterId([7; 16]), 99)), GOLDEN_HEADER);
    }

    const GOLDEN: u32 = 0x56d3_489b;
    const GOLDEN_HEADER: u32 = 694_091_910;

    proptest! {
        #[test]
        fn only_the_undamaged_bytes_of_a_key_are_read(
            len in 1..=3 * BLOCK, first in 0..BLOCKS - 3, at in 0..3 * STRIDE, bit in 0..8
        ) {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 31 % 251) as u8).collect();
            let mut written = joined(encode(key(1, 2), first, &Buf::copy_of(&bytes)));
            let blocks = len.div_ceil(BLOCK);
            prop_assert_eq!(written.len(), blocks * STRIDE);
            let read = |written: &[u8], n: usize| {
                decode(key(1, 2), first + n, &written[n * STRIDE..(n + 1) * STRIDE]).map(<[u8]>::to_vec)
            };
            for n in 0..blocks {
                let expected = bytes[n * BLOCK..len.min((n + 1) * BLOCK)].to_vec();
                prop_assert_eq!(read(&written, n), Some(expected));
                let block = &written[n * STRIDE..(n + 1) * STRIDE];
                prop_assert_eq!(decode(key(2, 2), first + n, block), None, "another version");
                prop_assert_eq!(decode(key(1, 3), first + n, block), None, "another chunk");
                prop_assert_eq!(decode(key(1, 2), first + n + 1, block), None, "another block");
                prop_assert_eq!(decode(key(1, 2), first + n, &block[..STRIDE - 200]), None);
            }
            // One bit is another: the bytes are the right ones, or there are none.
            let at = at % written.len();
            written[at] ^= 1_u8 << bit;
            let n = at / STRIDE;
            let expected = &bytes[n * BLOCK..len.min((n + 1) * BLOCK)];
            let found = read(&written, n);
            prop_assert!(found.is_none() || found.as_deref() == Some(expected));
            prop_assert!(at % STRIDE >= expected.len() || found.is_none(), "a byte that was damaged");
        }
    }
}
