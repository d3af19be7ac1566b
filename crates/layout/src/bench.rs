//! Measures the speed of the code on this machine, for `shoal code bench` (paper 002, figure 2).
//!
//! Speeds are GB/s (10^9 bytes/s) of the stripe's data, so a decode that reads K units and writes one counts K units.
//! *Hot* repeats one stripe, *memory* goes through 64 MiB of stripes. The result of each run is checked after the
//! timing.

use std::ops::Range;

use types::{BufMut, Code};

use crate::{Backend, Coder, DecodeError};

/// Data of all stripes of an [`Access::Memory`] run, in bytes.
const WALK: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };
/// Most stripes of such a run. With very small stripes it has less than [`WALK`] bytes.
const STRIPES_MAX: usize = 1 << 14;
/// Data processed between two readings of the clock, in bytes, and the most stripes.
const BATCH: usize = 1 << 20;
const BATCH_STRIPES: usize = 1 << 10;
/// Units are rounded down to a multiple of this, in bytes. Units of volumes are multiples of 4 KiB.
const ALIGN: usize = 64;

/// Where the stripes of a run lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// One stripe again and again: in the cache, if it fits.
    Hot,
    /// Many consecutive stripes: in memory.
    Memory,
}

impl Access {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Access::Hot => "hot",
            Access::Memory => "memory",
        }
    }
}

/// What a run does with each stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Makes the parity.
    Encode,
    /// Rebuilds data unit 0.
    DecodeOne,
    /// Rebuilds data units 0 and 1 (with K = 1, unit 0 and the first parity).
    DecodeTwo,
}

impl Operation {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Encode => "encode",
            Operation::DecodeOne => "decode 1 lost",
            Operation::DecodeTwo => "decode 2 lost",
        }
    }

    fn lost(self) -> usize {
        match self {
            Operation::Encode => 0,
            Operation::DecodeOne => 1,
            Operation::DecodeTwo => 2,
        }
    }
}

/// Why a run has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    /// The code computed wrong bytes.
    #[error("the code computed wrong bytes in unit {unit} of stripe {stripe}")]
    WrongBytes {
        /// The stripe, counted from 0.
        stripe: usize,
        /// The unit.
        unit: usize,
    },
    /// The code refused to decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The clock did not move.
    #[error("the clock stood still")]
    NoTime,
}

/// One line of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The code.
    pub code: Code,
    /// Bytes of data in a stripe: K whole units, at most the requested size.
    pub stripe: usize,
    /// Which backend.
    pub backend: Backend,
    /// Where the stripes lay.
    pub access: Access,
    /// What was done.
    pub operation: Operation,
    /// GB/s of data, or what went wrong.
    pub speed: Result<f64, BenchError>,
}

/// Measures every code at every stripe size (bytes of data), each backend, hot and in memory, for `seconds` per row.
/// `now` is a clock in microseconds. Stripes with less than one byte per unit are left out, and so are losses that
/// the code does not survive.
pub fn code_bench(codes: &[Code], stripes: &[usize], seconds: f64, now: &dyn Fn() -> u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for &code in codes {
        for &stripe in stripes {
            let unit = match stripe / code.k() {
                small @ ..ALIGN => small,
                unit => unit - unit % ALIGN,
            };
            if unit == 0 || code.m() == 0 {
                continue;
            }
            for access in [Access::Hot, Access::Memory] {
                measure(code, unit, access, seconds, now, &mut rows);
            }
        }
    }
    rows
}

fn measure(
    code: Code,
    unit: usize,
    access: Access,
    seconds: f64,
    now: &dyn Fn() -> u64,
    rows: &mut Vec<Row>,
) {
    let stripe = unit * code.k();
    let mut walk =
        Walk::new(code, unit, if access == Access::Hot { 1 } else { (WALK / stripe).clamp(1, STRIPES_MAX) });
    for backend in Backend::ALL {
        let coder = Coder::with_backend(code, backend);
        for operation in [Operation::Encode, Operation::DecodeOne, Operation::DecodeTwo] {
            if operation.lost() <= code.m() {
                let speed = walk.run(&coder, operation, seconds, now);
                rows.push(Row { code, stripe, backend, access, operation, speed });
            }
        }
    }
}

/// Consecutive stripes, each with room for two rebuilt units.
struct Walk {
    code: Code,
    unit: usize,
    stripes: usize,
    data: BufMut,
    parity: BufMut,
    out: BufMut,
    /// The correct parity, computed by the scalar backend.
    right: Vec<u8>,
}

impl Walk {
    fn new(code: Code, unit: usize, stripes: usize) -> Walk {
        let mut data = BufMut::zeroed(stripes * unit * code.k());
        for (i, word) in data.chunks_mut(8).enumerate() {
            word.copy_from_slice(&crate::mix(i as u64).to_le_bytes()[..word.len()]);
        }
        let parity = BufMut::zeroed(stripes * unit * code.m());
        let out = BufMut::zeroed(stripes * unit * 2);
        let mut walk = Walk { code, unit, stripes, data, parity, out, right: Vec::new() };
        let oracle = Coder::with_backend(code, Backend::Scalar);
        (0..stripes).for_each(|stripe| walk.encode(&oracle, stripe));
        walk.right = walk.parity.to_vec();
        walk
    }

    fn run(
        &mut self,
        coder: &Coder,
        operation: Operation,
        seconds: f64,
        now: &dyn Fn() -> u64,
    ) -> Result<f64, BenchError> {
        // Outputs that a run does not write must not look correct. This also touches the pages before the timing
        // begins.
        self.out.fill(0xa5);
        if operation == Operation::Encode {
            self.parity.fill(0xa5);
        }
        let stripe = self.unit * self.code.k();
        let wanted = (seconds * 1e6) as u64;
        let (start, mut at, mut bytes) = (now(), 0, 0);
        let elapsed = loop {
            for _ in 0..BATCH.div_ceil(stripe).min(BATCH_STRIPES) {
                self.code_one(coder, operation, at)?;
                at = (at + 1) % self.stripes;
                bytes += stripe;
            }
            let elapsed = now().saturating_sub(start);
            if elapsed >= wanted {
                break elapsed;
            }
        };
        // A short run may not have reached every stripe. Process the rest now, so that every stripe can be checked.
        for stripe in at..self.stripes {
            self.code_one(coder, operation, stripe)?;
        }
        let wrong = self.wrong(operation.lost());
        self.parity.copy_from_slice(&self.right);
        match wrong {
            Some((stripe, unit)) => Err(BenchError::WrongBytes { stripe, unit }),
            None if elapsed == 0 => Err(BenchError::NoTime),
            None => Ok(bytes as f64 / 1e3 / elapsed as f64),
        }
    }

    fn code_one(&mut self, coder: &Coder, operation: Operation, stripe: usize) -> Result<(), DecodeError> {
        match operation {
            Operation::Encode => {
                self.encode(coder, stripe);
                Ok(())
            }
            _ => self.decode(coder, stripe, operation.lost()),
        }
    }

    /// The byte range of a stripe in a buffer that holds `units` units of each stripe.
    fn range(&self, stripe: usize, units: usize) -> Range<usize> {
        stripe * units * self.unit..(stripe + 1) * units * self.unit
    }

    fn encode(&mut self, coder: &Coder, stripe: usize) {
        let (data, parity) = (self.range(stripe, self.code.k()), self.range(stripe, self.code.m()));
        let data: Vec<&[u8]> = self.data[data].chunks(self.unit).collect();
        let mut parity: Vec<&mut [u8]> = self.parity[parity].chunks_mut(self.unit).collect();
        coder.encode(&data, &mut parity);
    }

    fn decode(&mut self, coder: &Coder, stripe: usize, lost: usize) -> Result<(), DecodeError> {
        let (data, parity) = (self.range(stripe, self.code.k()), self.range(stripe, self.code.m()));
        let out = self.range(stripe, 2);
        let units = self.data[data].chunks(self.unit).chain(self.parity[parity].chunks(self.unit));
        let sources: Vec<(usize, &[u8])> = units.enumerate().skip(lost).take(self.code.k()).collect();
        let mut missing: Vec<(usize, &mut [u8])> =
            self.out[out].chunks_mut(self.unit).enumerate().take(lost).collect();
        coder.decode(&sources, &mut missing)
    }

    /// The first stripe and unit with wrong bytes, among the parity and the `lost` rebuilt units.
    fn wrong(&self, lost: usize) -> Option<(usize, usize)> {
        let (k, m) = (self.code.k(), self.code.m());
        (0..self.stripes).find_map(|stripe| {
            let right = &self.right[self.range(stripe, m)];
            let units = || self.data[self.range(stripe, k)].chunks(self.unit).chain(right.chunks(self.unit));
            let rebuilt =
                units().zip(self.out[self.range(stripe, 2)].chunks(self.unit)).enumerate().take(lost);
            let encoded = self.parity[self.range(stripe, m)].chunks(self.unit);
            let encoded =
                units().enumerate().skip(k).zip(encoded).map(|((unit, right), made)| (unit, (right, made)));
            rebuilt.chain(encoded).find(|(_, (right, made))| right != made).map(|(unit, _)| (stripe, unit))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_row_is_there_and_right() {
        let time = Cell::new(0);
        let now = || {
            time.set(time.get() + 500);
            time.get()
        };
        let codes = ["8+2", "1+2", "3+1", "2+0"].map(|code| code.parse().expect("code"));
        let rows = code_bench(&codes, &[4, 65_536], 0.001, &now);
        // Two places, two backends; three operations with two parity units, two with one. 8+2 has no units in a
        // stripe of four bytes.
        assert_eq!(rows.len(), 4 * (3 + 2 * 3 + 2 * 2));
        for row in &rows {
            let speed = row.speed.clone().expect("right bytes");
            assert!(speed > 0.0, "{row:?}");
        }
        assert_eq!(rows[0].stripe, 65_536);
    }

    #[test]
    fn a_clock_that_stands_still_is_noticed() {
        let rows = code_bench(&["2+1".parse().expect("code")], &[4096], 0.0, &|| 7);
        assert!(rows.iter().all(|row| row.speed == Err(BenchError::NoTime)));
    }

    #[test]
    fn wrong_bytes_are_noticed() {
        let code = "2+1".parse().expect("code");
        let coder = Coder::new(code);
        let mut walk = Walk::new(code, 100, 3);
        walk.decode(&coder, 2, 1).expect("two sources");
        assert_eq!(walk.wrong(0), None);
        assert_eq!(walk.wrong(1), Some((0, 0)), "stripe 0 was not decoded");
        walk.decode(&coder, 0, 1).and_then(|()| walk.decode(&coder, 1, 1)).expect("two sources");
        assert_eq!(walk.wrong(1), None);
        walk.out[407] ^= 1;
        assert_eq!(walk.wrong(1), Some((2, 0)));
        walk.out[407] ^= 1;
        walk.parity[199] ^= 1;
        assert_eq!(walk.wrong(1), Some((1, 2)));
    }
}
