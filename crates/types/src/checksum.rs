//! CRC-32C (Castagnoli), the one checksum of wire and disk. Source: RFC 3720 appendix B.4.

use crate::cost;
use crate::limits::BLOCK;

/// Checksum of `bytes`.
pub fn crc(bytes: &[u8]) -> u32 {
    cost::bytes(bytes.len());
    crc32c::crc32c(bytes)
}

/// Checksum of `bytes` continued from `start`, the checksum of what came before.
pub fn crc_append(start: u32, bytes: &[u8]) -> u32 {
    cost::bytes(bytes.len());
    crc32c::crc32c_append(start, bytes)
}

/// Checksum of each 4-KiB block of `bytes`; the last one may be short.
pub fn crc_blocks(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK).map(crc).collect()
}

/// Whether `sums` are the checksums of the 4-KiB blocks of `bytes`, one each.
pub fn blocks_match(bytes: &[u8], sums: &[u32]) -> bool {
    bytes.len().div_ceil(BLOCK) == sums.len()
        && bytes.chunks(BLOCK).zip(sums).all(|(block, sum)| crc(block) == *sum)
}

/// Checksum of a whole from the checksums of its full blocks, without reading the bytes again.
pub fn crc_of_blocks(blocks: &[u32]) -> u32 {
    blocks.iter().fold(0, |sum, &block| crc32c::crc32c_combine(sum, block, BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_crc32c_and_those_of_parts_join() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|i| (i * 7 % 251) as u8).collect();
        assert_eq!(crc_of_blocks(&crc_blocks(&bytes)), crc(&bytes));
        assert!(blocks_match(&bytes[..5000], &crc_blocks(&bytes[..5000])));
        assert!(!blocks_match(&bytes[..5000], &crc_blocks(&bytes[..5001])));
        assert!(!blocks_match(&bytes, &crc_blocks(&bytes)[..2]), "every block has its checksum");
        assert_eq!(crc_append(crc(&bytes[..100]), &bytes[100..]), crc(&bytes));
    }
}
