//! Measures checksums and tags of buffers in the cache of the processor: the code of this build, and for checksums a table of 256 entries
//! as a base.
//!
//! `cargo run --release -p types --example checksums`. The three take turns; the results are medians of nine.

use std::hint::black_box;
use std::time::Instant;

use types::ClusterId;
use types::checksum::crc;
use types::wire::{Key, Seal, Side, Transcript, seal};

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

/// Seconds of one run over `bytes`.
fn seconds<T>(mut run: impl FnMut(&[u8]) -> T, bytes: &[u8]) -> f64 {
    let count = BYTES / bytes.len();
    #[expect(clippy::disallowed_methods, reason = "it measures this machine")]
    let begun = Instant::now();
    for _ in 0..count {
        black_box(run(black_box(bytes)));
    }
    begun.elapsed().as_secs_f64() / count as f64
}

/// The seal of a connection.
fn a_seal() -> Seal {
    let transcript = Transcript::of(ClusterId::default(), &[], &[]);
    seal(&Key([7; 32]), Side::Caller, &transcript).expect("there is a key")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("{:>9} {:>12} {:>12} {:>12} {:>12}", "bytes", "crc GB/s", "table GB/s", "tag GB/s", "tag ns");
    let mut seal = a_seal();
    for len in LENGTHS {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31) as u8).collect();
        assert_eq!(crc(&bytes), by_table(&bytes), "both are CRC-32C");
        let turns: Vec<[f64; 3]> = (0..TURNS)
            .map(|_| {
                [seconds(crc, &bytes), seconds(by_table, &bytes), seconds(|bytes| seal.tag([bytes]), &bytes)]
            })
            .collect();
        let of = |which: usize| median(turns.iter().map(|turn| turn[which]).collect());
        let speed = |which: usize| len as f64 / of(which) / 1e9;
        println!("{len:>9} {:>12.1} {:>12.2} {:>12.1} {:>12.0}", speed(0), speed(1), speed(2), of(2) * 1e9);
    }
}
