//! The code at memory speed: `rusty_erasure`'s GFNI, AVX2, SSSE3 and NEON kernels, chosen by the CPU.
//!
//! The only file that uses the library (docs/decisions/0001). It computes the same bytes as [`crate::oracle`].

use rusty_erasure::kernel::Kernels;
use rusty_erasure::{best_kernels, raid};

use types::limits::{K_MAX, SLOTS_MAX};

use crate::gf;
use crate::oracle;

/// After the last whole step the kernels go byte by byte, at a hundredth of their speed. So a tail is padded to a
/// step.
const STEP: usize = 32;

/// Rows of coefficients, prepared for the best kernel for them.
pub(crate) struct Prepared {
    kernels: Kernels,
    tables: Vec<u8>,
    sources: usize,
    shape: Shape,
}

/// Rows that have a special kernel. On a CPU without GFNI these kernels are three times as fast as products.
enum Shape {
    /// One source, all coefficients 1: every output is a copy.
    Copy,
    /// One output, all coefficients 1.
    Xor,
    /// Two outputs, coefficients 1,1,1... and 1,2,4...
    Pq,
    /// Anything else.
    Products,
}

impl Prepared {
    /// Prepares `rows`, each of `sources` coefficients.
    pub(crate) fn new(rows: &[u8], sources: usize) -> Prepared {
        let kernels = best_kernels();
        let shape = if rows.iter().all(|&number| number == 1) && sources == 1 {
            Shape::Copy
        } else if rows.len() == sources && rows.iter().all(|&number| number == 1) {
            Shape::Xor
        } else if rows.len() == 2 * sources && is_pq(rows, sources) {
            Shape::Pq
        } else {
            Shape::Products
        };
        Prepared { kernels, tables: (kernels.init)(rows), sources, shape }
    }

    /// As [`crate::oracle::apply`].
    pub(crate) fn apply(&self, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert_eq!(sources.len(), self.sources, "the rows were made for this many sources");
        let len = outs.first().map_or(0, |out| out.len());
        assert!(sources.iter().all(|source| source.len() == len), "all slices of one call have one length");
        let whole = len - len % STEP;
        if whole == len {
            return self.apply_whole(sources, outs);
        }
        let heads: Vec<&[u8]> = sources.iter().map(|source| &source[..whole]).collect();
        let mut out_heads: Vec<&mut [u8]> = outs.iter_mut().map(|out| &mut out[..whole]).collect();
        self.apply_whole(&heads, &mut out_heads);
        let mut tails = [[0; STEP]; K_MAX as usize];
        let mut out_tails = [[0; STEP]; SLOTS_MAX];
        tails.iter_mut().zip(sources).for_each(|(tail, source)| pad(tail, &source[whole..]));
        let tails: Vec<&[u8]> = tails[..sources.len()].iter().map(|tail| &tail[..]).collect();
        let mut out_parts: Vec<&mut [u8]> =
            out_tails[..outs.len()].iter_mut().map(|tail| &mut tail[..]).collect();
        self.apply_whole(&tails, &mut out_parts);
        outs.iter_mut()
            .zip(&out_tails)
            .for_each(|(out, tail)| out[whole..].copy_from_slice(&tail[..len - whole]));
    }

    fn apply_whole(&self, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        const EQUAL: &str = "the caller has compared the lengths";
        match (&self.shape, outs) {
            (Shape::Copy, outs) => outs.iter_mut().for_each(|out| out.copy_from_slice(sources[0])),
            (Shape::Xor, [out]) => raid::xor_gen(sources, out).expect(EQUAL),
            (Shape::Pq, [p, q]) => raid::pq_gen(sources, p, q).expect(EQUAL),
            (_, outs) => (self.kernels.encode)(&self.tables, sources, outs),
        }
    }

    /// `out ^= rows[row][source] * delta`.
    pub(crate) fn add(&self, row: usize, source: usize, delta: &[u8], out: &mut [u8]) {
        assert_eq!(delta.len(), out.len(), "all slices of one call have one length");
        let at = (row * self.sources + source) * self.kernels.table_bytes;
        let table = &self.tables[at..at + self.kernels.table_bytes];
        let whole = delta.len() - delta.len() % STEP;
        (self.kernels.mad)(table, &delta[..whole], &mut out[..whole]);
        if whole < delta.len() {
            let (mut tail, mut out_tail) = ([0; STEP], [0; STEP]);
            pad(&mut tail, &delta[whole..]);
            pad(&mut out_tail, &out[whole..]);
            (self.kernels.mad)(table, &tail, &mut out_tail);
            out[whole..].copy_from_slice(&out_tail[..delta.len() - whole]);
        }
    }
}

/// Whether every kernel that this CPU would use for the rows computes the same bytes as the oracle. Checked once per
/// coder, because the tests of a release run on few kinds of CPU; the check is cheap.
pub(crate) fn agrees(rows: &[u8], sources: usize) -> bool {
    /// Long enough for the widest loop of any kernel, its narrower loops and a tail.
    const LEN: usize = 128 + 64 + 32 + 5;
    let bytes =
        |seed: usize| -> Vec<u8> { (0..LEN).map(|i| crate::mix((seed * LEN + i) as u64) as u8).collect() };
    let data: Vec<Vec<u8>> = (0..sources).map(bytes).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut right = vec![vec![0; LEN]; rows.len() / sources];
    oracle::apply(rows, &data, &mut right.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    let fitting = Prepared::new(rows, sources);
    let general = Prepared { shape: Shape::Products, ..Prepared::new(rows, sources) };
    let mut sums = vec![vec![0; LEN]; right.len()];
    for (row, sum) in sums.iter_mut().enumerate() {
        data.iter().enumerate().for_each(|(source, bytes)| general.add(row, source, bytes, sum));
    }
    sums == right
        && [fitting, general].iter().all(|prepared| {
            let mut made = vec![vec![0xa5; LEN]; right.len()];
            prepared.apply(&data, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            made == right
        })
}

fn pad(to: &mut [u8; STEP], bytes: &[u8]) {
    to[..bytes.len()].copy_from_slice(bytes);
}

fn is_pq(rows: &[u8], sources: usize) -> bool {
    let (p, q) = rows.split_at(sources);
    let powers = std::iter::successors(Some(1), |&power| Some(gf::double(power)));
    p.iter().all(|&number| number == 1) && q.iter().copied().eq(powers.take(sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels that the CPU has but does not choose are those that it chooses elsewhere.
    #[test]
    fn kernels_of_older_cpus_make_the_same_bytes() {
        let rows: Vec<u8> = (0..3 * 5).map(|i| i * 17 + 1).collect();
        for len in [1, 31, 32, 33, 64, 127, 128, 1000, 4096] {
            let data: Vec<Vec<u8>> =
                (0..5).map(|i| (0..len).map(|x| (x * 7 + i * 31) as u8).collect()).collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut right = vec![vec![0; len]; 3];
            oracle::apply(&rows, &data, &mut right.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            for kernels in
                ["scalar", "ssse3", "avx2", "gfni"].into_iter().filter_map(rusty_erasure::kernels_named)
            {
                let tables = (kernels.init)(&rows);
                let prepared = Prepared { kernels, tables, sources: 5, shape: Shape::Products };
                let mut made = vec![vec![0xa5; len]; 3];
                prepared.apply(&data, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
                assert_eq!(made, right, "{} {len}", kernels.name);
                let mut sums = vec![vec![0; len]; 3];
                for (row, sum) in sums.iter_mut().enumerate() {
                    data.iter().enumerate().for_each(|(source, bytes)| prepared.add(row, source, bytes, sum));
                }
                assert_eq!(sums, right, "{} {len}", kernels.name);
            }
        }
    }
}
