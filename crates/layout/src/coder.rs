//! The code: computes parity from data, and the other units from any K units.
//!
//! One mechanism for every `K+M`: rows of coefficients in GF(2^8) from [`crate::Matrix`], and a backend that
//! multiplies and adds. Encoding applies the parity rows; decoding applies rows of an inverted matrix. Copies, XOR
//! and RAID-6 are rows for which faster kernels exist.
//!
//! A source that is shorter than the outputs is padded with zeros, so absent units of a short stripe cost nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use types::{Code, cost};

use crate::fast::{self, Prepared};
use crate::matrix;
use crate::oracle;

/// Most cached decode matrices per coder: enough for all losses of one or two units of the usual codes.
const CACHED_MAX: usize = 128;

/// Why units cannot be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer than K sources.
    #[error("{code} needs {} units to rebuild others, there are {sources}", code.k())]
    TooFewSources {
        /// The code.
        code: Code,
        /// Sources given.
        sources: usize,
    },
    /// Not an index of a unit of the code.
    #[error("{code} has no unit {unit}")]
    NoSuchUnit {
        /// The code.
        code: Code,
        /// The index.
        unit: usize,
    },
    /// A unit is named twice, as source or as missing.
    #[error("unit {unit} is named twice")]
    NamedTwice {
        /// The index.
        unit: usize,
    },
    /// A source longer than the outputs, or outputs of different lengths.
    #[error("unit {unit} has {len} bytes where {expected} were expected")]
    Length {
        /// The index.
        unit: usize,
        /// Its bytes.
        len: usize,
        /// The bytes of the first output.
        expected: usize,
    },
}

/// Which backend does the arithmetic. All backends produce the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// Simple scalar code.
    Scalar,
    /// The fastest kernels that this CPU has.
    Fast,
}

impl Backend {
    /// Every backend.
    pub const ALL: [Backend; 2] = [Backend::Scalar, Backend::Fast];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Scalar => "scalar",
            Backend::Fast => "fast",
        }
    }
}

/// Encodes and decodes the stripes of one code. A clone shares the cache of decode matrices.
#[derive(Clone)]
pub struct Coder {
    inner: Arc<Inner>,
}

struct Inner {
    code: Code,
    backend: Backend,
    parity: Product,
    /// Key: the set of sources, then the set of wanted units.
    decodes: Mutex<BTreeMap<(u64, u64), Arc<Product>>>,
}

impl Coder {
    /// A coder for `code` with the fast backend. First compares it with the scalar one (takes some microseconds).
    pub fn new(code: Code) -> Coder {
        Coder::with_backend(code, Backend::Fast)
    }

    /// A coder for `code` with this backend.
    ///
    /// # Panics
    /// If the fast backend does not produce the same bytes as the scalar one on this CPU: better no I/O than
    /// wrong I/O.
    pub fn with_backend(code: Code, backend: Backend) -> Coder {
        let rows = matrix::parity_rows(code);
        assert!(
            backend == Backend::Scalar || rows.is_empty() || fast::agrees(&rows, code.k()),
            "the fast backend computes wrong bytes on this CPU: this build must not run here"
        );
        let parity = Product::new(rows, code.k(), backend);
        Coder { inner: Arc::new(Inner { code, backend, parity, decodes: Mutex::new(BTreeMap::new()) }) }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.inner.code
    }

    /// Computes `parity` (M units of equal length, any length, any alignment) from `data` (K units, none longer than
    /// that).
    ///
    /// # Panics
    /// If the number of units or their lengths are wrong.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.check_parity(parity);
        assert_eq!(data.len(), self.code().k(), "a stripe has K data units");
        let len = parity.first().map_or(0, |unit| unit.len());
        assert!(parity.is_empty() || data.iter().all(|unit| unit.len() <= len), "no data unit is longer");
        cost::bytes(data.iter().map(|unit| unit.len()).sum());
        self.inner.parity.apply(data, parity);
    }

    /// Rebuilds the units at `missing` (indices `0..K+M`, buffers of equal length) from `sources` (at least K other
    /// units, none longer than that). If there are more than K sources, the K with the lowest indices are read: data
    /// before parity, P before Q.
    ///
    /// # Errors
    /// If there are too few sources or the arguments contradict each other. Then nothing is written.
    pub fn decode(
        &self,
        sources: &[(usize, &[u8])],
        missing: &mut [(usize, &mut [u8])],
    ) -> Result<(), DecodeError> {
        let k = self.code().k();
        self.check_decode(sources, missing)?;
        if missing.is_empty() {
            return Ok(());
        }
        if sources.len() < k {
            return Err(DecodeError::TooFewSources { code: self.code(), sources: sources.len() });
        }
        let mut sources = sources.to_vec();
        sources.sort_unstable_by_key(|&(unit, _)| unit);
        sources.truncate(k);
        cost::bytes(sources.iter().map(|(_, source)| source.len()).sum());
        let mut outs: Vec<(usize, &mut [u8])> =
            missing.iter_mut().map(|(unit, out)| (*unit, &mut **out)).collect();
        outs.sort_unstable_by_key(|&(unit, _)| unit);
        let (units, sources): (Vec<usize>, Vec<&[u8]>) = sources.into_iter().unzip();
        let (wanted, mut outs): (Vec<usize>, Vec<&mut [u8]>) = outs.into_iter().unzip();
        self.decode_product(&units, &wanted).apply(&sources, &mut outs);
        Ok(())
    }

    /// Updates `parity` (all M units) after a change of data unit `unit`. `delta` is old XOR new bytes, as long as
    /// each parity unit.
    ///
    /// # Panics
    /// If the number of units or their lengths are not these.
    pub fn update(&self, unit: usize, delta: &[u8], parity: &mut [&mut [u8]]) {
        self.check_parity(parity);
        let slots = self.code().k()..;
        slots.zip(parity).for_each(|(slot, parity)| self.update_one(slot, unit, delta, parity));
    }

    /// As [`Coder::update`], for the one parity unit `slot` (`K..K+M`).
    ///
    /// # Panics
    /// If `slot` is not a parity unit, `unit` is not a data unit, or the lengths differ.
    pub fn update_one(&self, slot: usize, unit: usize, delta: &[u8], parity: &mut [u8]) {
        let code = self.code();
        assert!((code.k()..code.slots()).contains(&slot), "the slot is a parity slot");
        assert!(unit < code.k(), "only data units change by a delta");
        assert_eq!(parity.len(), delta.len(), "delta and parity are equally long");
        cost::bytes(delta.len());
        let row = slot - code.k();
        match &self.inner.parity.prepared {
            Some(prepared) => prepared.add(row, unit, delta, parity),
            None => oracle::add(self.inner.parity.rows[row * code.k() + unit], delta, parity),
        }
    }

    /// The factors in GF(2^8) by which the K units `sources` are multiplied so that their sum is unit `wanted`: what
    /// [`Coder::decode`] does in one place, [`Coder::add`] does term by term, in any order and on several machines.
    ///
    /// # Errors
    /// If there are not K sources, or a unit is named twice or not part of the code.
    pub fn factors(&self, sources: &[usize], wanted: usize) -> Result<Vec<u8>, DecodeError> {
        let named: Vec<(usize, &[u8])> = sources.iter().map(|&unit| (unit, &[][..])).collect();
        self.check_decode(&named, &[(wanted, &mut [])])?;
        if sources.len() != self.code().k() {
            return Err(DecodeError::TooFewSources { code: self.code(), sources: sources.len() });
        }
        let mut sorted = sources.to_vec();
        sorted.sort_unstable();
        let product = self.decode_product(&sorted, &[wanted]);
        let factor = |unit: &usize| sorted.iter().position(|other| other == unit).map(|at| product.rows[at]);
        Ok(sources.iter().filter_map(factor).collect())
    }

    /// Adds `factor` times `source` to the beginning of `sum`.
    ///
    /// # Panics
    /// If `source` is longer than `sum`.
    pub fn add(&self, factor: u8, source: &[u8], sum: &mut [u8]) {
        cost::bytes(source.len());
        let sum = &mut sum[..source.len()];
        match self.inner.backend {
            Backend::Fast => Prepared::new(&[factor], 1).add(0, 0, source, sum),
            Backend::Scalar => oracle::add(factor, source, sum),
        }
    }

    fn check_parity(&self, parity: &[&mut [u8]]) {
        assert_eq!(parity.len(), self.code().m(), "a stripe has M parity units");
        assert!(
            parity.windows(2).all(|pair| pair[0].len() == pair[1].len()),
            "parity units are equally long"
        );
    }

    fn check_decode(
        &self,
        sources: &[(usize, &[u8])],
        missing: &[(usize, &mut [u8])],
    ) -> Result<(), DecodeError> {
        let code = self.code();
        let expected = missing.first().map_or(0, |(_, out)| out.len());
        let mut seen = 0u64;
        let given = sources.iter().map(|(unit, source)| (*unit, source.len(), source.len() <= expected));
        let wanted = missing.iter().map(|(unit, out)| (*unit, out.len(), out.len() == expected));
        for (unit, len, fits) in given.chain(wanted) {
            if unit >= code.slots() {
                return Err(DecodeError::NoSuchUnit { code, unit });
            }
            if seen >> unit & 1 == 1 {
                return Err(DecodeError::NamedTwice { unit });
            }
            if !fits && !missing.is_empty() {
                return Err(DecodeError::Length { unit, len, expected });
            }
            seen |= 1 << unit;
        }
        Ok(())
    }

    fn decode_product(&self, sources: &[usize], wanted: &[usize]) -> Arc<Product> {
        let set = |units: &[usize]| units.iter().fold(0u64, |set, unit| set | 1 << unit);
        let key = (set(sources), set(wanted));
        // A panic elsewhere leaves the cache intact: an entry is inserted completely or not at all.
        let lock = || self.inner.decodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(product) = lock().get(&key) {
            return product.clone();
        }
        let rows = matrix::decode_rows(self.code(), sources, wanted);
        let product = Arc::new(Product::new(rows, self.code().k(), self.inner.backend));
        let mut decodes = lock();
        if decodes.len() >= CACHED_MAX {
            decodes.clear();
        }
        decodes.insert(key, product.clone());
        product
    }
}

/// Rows of coefficients, prepared for the backend that applies them.
struct Product {
    rows: Vec<u8>,
    sources: usize,
    /// If [`None`], the oracle applies the rows directly.
    prepared: Option<Prepared>,
}

impl Product {
    fn new(rows: Vec<u8>, sources: usize, backend: Backend) -> Product {
        let prepared = match backend {
            Backend::Fast if !rows.is_empty() => Some(Prepared::new(&rows, sources)),
            _ => None,
        };
        Product { rows, sources, prepared }
    }

    fn apply(&self, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        let len = outs.first().map_or(0, |out| out.len());
        if len == 0 {
        } else if sources.iter().any(|source| source.len() < len) {
            self.apply_short(len, sources, outs);
        } else if let Some(prepared) = &self.prepared {
            prepared.apply(sources, outs);
        } else {
            oracle::apply(&self.rows, sources, outs);
        }
    }

    /// Splits the outputs where a source ends. For each piece, only the sources that reach it take part.
    fn apply_short(&self, len: usize, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
        let mut ends: Vec<usize> = sources.iter().map(|source| source.len()).chain([len]).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut start = 0;
        for end in ends.into_iter().filter(|&end| end > 0) {
            let present: Vec<usize> = (0..self.sources).filter(|&i| sources[i].len() >= end).collect();
            let mut pieces: Vec<&mut [u8]> = outs.iter_mut().map(|out| &mut out[start..end]).collect();
            if present.is_empty() {
                pieces.iter_mut().for_each(|piece| piece.fill(0));
            } else {
                let rows = self.rows.chunks(self.sources);
                let rows = rows.flat_map(|row| present.iter().map(|&i| row[i])).collect();
                let backend = if self.prepared.is_some() { Backend::Fast } else { Backend::Scalar };
                let sources: Vec<&[u8]> = present.iter().map(|&i| &sources[i][start..end]).collect();
                Product::new(rows, present.len(), backend).apply(&sources, &mut pieces);
            }
            start = end;
        }
    }
}

#[cfg(test)]
mod tests;
