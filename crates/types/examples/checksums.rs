//! Measures checksums of buffers in the cache of the processor: the code of this build, and a table of 256 entries as a base.
//!
//! `cargo run --release -p types --example checksums`. The two take turns; the results are medians of nine.

use std::hint::black_box;
use std::time::Instant;

use types::checksum::crc;

/// Lengths of the buffers, in bytes.
const LENGTHS: [usize; 5] = [16, 100, 1 << 10, 4 << 10, 128 << 10];
/// Bytes of one measurement.
const BYTES: usize = 64 << 20;
const TURNS: usize = 9;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut sum, mut bit) = (at as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
};

fn by_table(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}

/// Gigabytes for each second.
fn speed(sum: fn(&[u8]) -> u32, bytes: &[u8]) -> f64 {
    let count = BYTES / bytes.len();
    #[expect(clippy::disallowed_methods, reason = "it measures this machine")]
    let begun = Instant::now();
    for _ in 0..count {
        black_box(sum(black_box(bytes)));
    }
    (count * bytes.len()) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("{:>9} {:>12} {:>12}", "bytes", "crc GB/s", "table GB/s");
    for len in LENGTHS {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31) as u8).collect();
        assert_eq!(crc(&bytes), by_table(&bytes), "both are CRC-32C");
        let turns = (0..TURNS).map(|_| (speed(crc, &bytes), speed(by_table, &bytes)));
        let (ours, table): (Vec<f64>, Vec<f64>) = turns.unzip();
        println!("{len:>9} {:>12.1} {:>12.2}", median(ours), median(table));
    }
}
