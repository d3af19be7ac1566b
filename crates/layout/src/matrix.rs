//! Generator matrices: the coefficients of a code's parity (`docs/decisions/0001-erasure-code-body.md`).
//!
//! | code | family | parity row `i`, data unit `j` |
//! |---|---|---|
//! | K = 1 or M <= 1 | ones | 1: copies, or the XOR of all |
//! | M = 2 | P+Q | 2^(i*j): XOR, then 1, 2, 4, 8... as in RAID-6 |
//! | M >= 3 | Cauchy | 1 / ((K+i) xor j), as `gf_gen_cauchy1_matrix` of ISA-L |
//!
//! With each of them, any K of the K+M units determine the rest. Bytes on disk depend on the coefficients: a new
//! family may be added, but no family may be changed.

use types::Code;

use crate::gf;

/// The family of a code's matrix. Its number is stored with the description of a volume's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Matrix {
    /// All ones.
    Ones = 1,
    /// RAID-6: the second parity has the powers of two.
    Pq = 2,
    /// Cauchy, in the order of ISA-L.
    Cauchy = 3,
}

impl Matrix {
    /// The family of `code`.
    pub fn of(code: Code) -> Matrix {
        match (code.k(), code.m()) {
            (1, _) | (_, 0 | 1) => Matrix::Ones,
            (_, 2) => Matrix::Pq,
            _ => Matrix::Cauchy,
        }
    }

    /// The number of this family on disk.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The family with this number, if this version knows it.
    pub fn from_id(id: u8) -> Option<Matrix> {
        [Matrix::Ones, Matrix::Pq, Matrix::Cauchy].into_iter().find(|matrix| matrix.id() == id)
    }
}

/// The M parity rows of `code`, each with K coefficients.
pub(crate) fn parity_rows(code: Code) -> Vec<u8> {
    let (k, m) = (code.k(), code.m());
    let number = |row: usize, unit: usize| match Matrix::of(code) {
        Matrix::Ones => 1,
        Matrix::Pq => (0..row * unit).fold(1, |power, _| gf::double(power)),
        Matrix::Cauchy => gf::inverse(((k + row) ^ unit) as u8),
    };
    (0..m).flat_map(|row| (0..k).map(move |unit| number(row, unit))).collect()
}

/// The coefficients that compute the units `wanted` from the K units `sources`: one row of K for each wanted unit.
pub(crate) fn decode_rows(code: Code, sources: &[usize], wanted: &[usize]) -> Vec<u8> {
    let k = code.k();
    let parity = parity_rows(code);
    // Row `unit` of the whole generator: the identity, then the parity rows.
    let generator = |unit: usize, column: usize| match unit.checked_sub(k) {
        None => u8::from(unit == column),
        Some(row) => parity[row * k + column],
    };
    let taken = sources.iter().flat_map(|&unit| (0..k).map(move |column| generator(unit, column))).collect();
    let inverse = gf::inverse_matrix(taken, k).expect("any K rows of the generator are independent");
    let number = |unit: usize, source: usize| {
        (0..k).fold(0, |sum, i| sum ^ gf::product(generator(unit, i), inverse[i * k + source]))
    };
    wanted.iter().flat_map(|&unit| (0..k).map(move |source| number(unit, source))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(code: &str) -> String {
        let rows = parity_rows(code.parse().expect("code"));
        rows.iter().map(|number| format!("{number:02x}")).collect()
    }

    /// Printed by a C program from `gf_gen_rs_matrix` (8+2) and `gf_gen_cauchy1_matrix` of ISA-L 2.30.
    #[test]
    fn rows_are_those_of_isal() {
        assert_eq!(hex("8+2"), "01010101010101010102040810204080");
        assert_eq!(hex("8+3"), "ad9ddd983daa5d969dad98ddaa3d965ddd98ad9d5d963daa");
        assert_eq!(
            hex("10+4"),
            "dd98ad9d5d963daa8ef498dd9dad965daa3df48e3daa5d96ad9ddd9847a7aa3d965d9dad98dda747"
        );
        assert_eq!(hex("4+6"), "47a77abaa747ba7a7aba47a7ba7aa747ad9ddd989dad98dd");
        assert_eq!(hex("1+2"), "0101");
        assert_eq!(hex("5+1"), "0101010101");
        assert_eq!(hex("5+0"), "");
    }

    #[test]
    fn ids_are_fixed() {
        for (code, id) in [("1+0", 1), ("4+0", 1), ("1+6", 1), ("32+1", 1), ("2+2", 2), ("2+3", 3)] {
            let matrix = Matrix::of(code.parse().expect("code"));
            assert_eq!((matrix.id(), Matrix::from_id(id)), (id, Some(matrix)));
        }
        assert_eq!(Matrix::from_id(0), None);
    }

    #[test]
    fn any_k_rows_are_independent() {
        for (k, m) in (1..=7u8).flat_map(|k| (1..=6u8).map(move |m| (k, m))) {
            let code = Code::new(k, m).expect("in range");
            for live in 0u32..1 << code.slots() {
                if live.count_ones() as usize == code.k() {
                    let live: Vec<usize> = (0..code.slots()).filter(|unit| live >> unit & 1 == 1).collect();
                    decode_rows(code, &live, &[]);
                }
            }
        }
    }
}
