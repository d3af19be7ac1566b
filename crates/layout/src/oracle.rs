//! The simplest form of the code. Every faster backend must compute the same bytes.

use crate::gf;

/// All 256 products of `number`.
fn products(number: u8) -> [u8; 256] {
    std::array::from_fn(|byte| gf::product(number, byte as u8))
}

/// `out ^= number * source`, byte by byte.
pub(crate) fn add(number: u8, source: &[u8], out: &mut [u8]) {
    let products = products(number);
    for (out, &byte) in out.iter_mut().zip(source) {
        *out ^= products[usize::from(byte)];
    }
}

/// Each output becomes the sum of all sources, each multiplied by its coefficient in the output's row.
pub(crate) fn apply(rows: &[u8], sources: &[&[u8]], outs: &mut [&mut [u8]]) {
    for (row, out) in rows.chunks(sources.len()).zip(outs) {
        out.fill(0);
        for (&number, source) in row.iter().zip(sources) {
            add(number, source, out);
        }
    }
}
