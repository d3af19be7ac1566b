//! Blocks of four bytes, and the code over them.

use layout::{Backend, Coder};
use types::Code;
use types::limits::BLOCK;

/// The bytes of a block, and its checksum.
pub(super) type Cell = u32;

/// The contents that write `write` puts into block `at` of a stripe: all different, and never zero.
pub(super) fn written(write: usize, at: usize) -> Cell {
    (write as u32 + 1).wrapping_mul(0x9e37_79b1) ^ (at as u32 + 1).wrapping_mul(0x85eb_ca6b)
}

/// A number of real bytes in blocks.
pub(super) fn blocks(bytes: usize) -> usize {
    assert!(bytes.is_multiple_of(BLOCK), "the model deals in whole blocks");
    bytes / BLOCK
}

/// The code's arithmetic.
#[derive(Clone)]
pub(super) struct Code4(Coder);

fn raw(cells: &[Cell]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_le_bytes()).collect()
}

fn cooked(bytes: &[u8]) -> Vec<Cell> {
    bytes.chunks(4).map(|four| u32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
}

impl Code4 {
    pub(super) fn new(code: Code) -> Code4 {
        Code4(Coder::with_backend(code, Backend::Scalar))
    }

    /// Parity units, as long as the longest data unit.
    pub(super) fn encode(&self, data: &[Vec<Cell>]) -> Vec<Vec<Cell>> {
        let longest = data.iter().map(Vec::len).max().unwrap_or(0);
        let data: Vec<Vec<u8>> = data.iter().map(|unit| raw(unit)).collect();
        let mut parity = vec![vec![0; longest * 4]; self.0.code().m()];
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &**unit).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        self.0.encode(&inputs, &mut outputs);
        parity.iter().map(|unit| cooked(unit)).collect()
    }

    /// A unit of `len` blocks from K others. `None` if they do not suffice.
    pub(super) fn decode(
        &self,
        sources: &[(usize, Vec<Cell>)],
        missing: usize,
        len: usize,
    ) -> Option<Vec<Cell>> {
        let sources: Vec<(usize, Vec<u8>)> = sources.iter().map(|(slot, unit)| (*slot, raw(unit))).collect();
        let sources: Vec<(usize, &[u8])> = sources.iter().map(|(slot, unit)| (*slot, &**unit)).collect();
        let mut out = vec![0; len * 4];
        self.0.decode(&sources, &mut [(missing, &mut out)]).ok()?;
        Some(cooked(&out))
    }

    /// Adds the change of a block of data unit `unit` by `delta` to the matching block of parity unit `slot`.
    pub(super) fn update(&self, slot: usize, unit: usize, delta: Cell, parity: &mut Cell) {
        let mut bytes = parity.to_le_bytes();
        self.0.update_one(slot, unit, &delta.to_le_bytes(), &mut bytes);
        *parity = u32::from_le_bytes(bytes);
    }
}
