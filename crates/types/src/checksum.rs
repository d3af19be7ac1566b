//! CRC-32C (Castagnoli), the one checksum of wire and disk. Source: RFC 3720 appendix B.4.

use crc_fast::{CrcAlgorithm, Digest};

use crate::cost;
use crate::limits::BLOCK;

/// Checksum of `bytes`.
pub fn crc(bytes: &[u8]) -> u32 {
    cost::bytes(bytes.len());
    crc_fast::crc32_iscsi(bytes)
}

/// Checksum of `bytes` continued from `start`, the checksum of what came before.
pub fn crc_append(start: u32, bytes: &[u8]) -> u32 {
    cost::bytes(bytes.len());
    // The state of the calculation is the inverse of the checksum.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!start));
    digest.update(bytes);
    digest.finalize() as u32
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_crc32c_and_those_of_parts_join() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|i| (i * 7 % 251) as u8).collect();
        assert!(blocks_match(&bytes[..5000], &crc_blocks(&bytes[..5000])));
        assert!(!blocks_match(&bytes[..5000], &crc_blocks(&bytes[..5001])));
        assert!(!blocks_match(&bytes, &crc_blocks(&bytes)[..2]), "every block has its checksum");
        assert_eq!(crc_append(crc(&bytes[..100]), &bytes[100..]), crc(&bytes));
    }

    /// The definition, bit by bit.
    fn slow(bytes: &[u8]) -> u32 {
        let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
        !bytes.iter().fold(!0, byte)
    }

    /// The length decides which instructions compute it, and the start decides how they begin.
    #[test]
    fn short_and_long_bytes_from_64_starts_have_the_right_checksum() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 64).map(|i| (i * 31 % 253) as u8).collect();
        let lengths = (0..1100).chain((1..=48).map(|i| 1100 + i * 229)).chain([BLOCK, 2 * BLOCK, 3 * BLOCK]);
        for len in lengths {
            let from = len % 64;
            let (part, cut) = (&bytes[from..from + len], len / 3);
            assert_eq!(crc(part), slow(part), "{len} bytes from {from}");
            assert_eq!(crc_append(crc(&part[..cut]), &part[cut..]), slow(part), "{len} bytes, cut at {cut}");
        }
    }
}
