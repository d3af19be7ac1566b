//! Arithmetic of GF(2^8) over x^8 + x^4 + x^3 + x^2 + 1 (0x11d), the field of RAID-6 and of ISA-L.
//!
//! Bytes on disk depend on this field, so it must never change. These functions are slow: they fill matrices, not
//! units.

/// Twice `a`.
pub(crate) fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 }
}

/// `a` times `b`.
pub(crate) fn product(a: u8, b: u8) -> u8 {
    let (mut sum, mut a) = (0, a);
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            sum ^= a;
        }
        a = double(a);
    }
    sum
}

/// The multiplicative inverse of `a`; zero for zero.
pub(crate) fn inverse(a: u8) -> u8 {
    // The multiplicative group has 255 elements, so a^254 = a^-1.
    (0..254).fold(u8::from(a != 0), |power, _| product(power, a))
}

/// The inverse of the square matrix `a` of `n` rows (Gauss-Jordan), or `None` if it has none.
pub(crate) fn inverse_matrix(mut a: Vec<u8>, n: usize) -> Option<Vec<u8>> {
    assert_eq!(a.len(), n * n, "the matrix is square");
    let mut out: Vec<u8> = (0..n * n).map(|i| u8::from(i / n == i % n)).collect();
    for pivot in 0..n {
        let row = (pivot..n).find(|&row| a[row * n + pivot] != 0)?;
        let scale = inverse(a[row * n + pivot]);
        for column in 0..n {
            a.swap(pivot * n + column, row * n + column);
            out.swap(pivot * n + column, row * n + column);
            a[pivot * n + column] = product(a[pivot * n + column], scale);
            out[pivot * n + column] = product(out[pivot * n + column], scale);
        }
        for row in (0..n).filter(|&row| row != pivot) {
            let factor = a[row * n + pivot];
            if factor == 0 {
                continue;
            }
            for column in 0..n {
                a[row * n + column] ^= product(factor, a[pivot * n + column]);
                out[row * n + column] ^= product(factor, out[pivot * n + column]);
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_the_one_of_the_standard_and_of_the_library() {
        assert_eq!(product(0x80, 2), 0x1d);
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(product(a, b), rusty_erasure::gf::mul(a, b), "{a} * {b}");
            }
            assert_eq!(product(a, inverse(a)), u8::from(a != 0));
        }
    }

    #[test]
    fn a_matrix_times_its_inverse_is_one() {
        let a = vec![0, 1, 2, 3, 0, 5, 7, 8, 9];
        let b = inverse_matrix(a.clone(), 3).expect("regular");
        for row in 0..3 {
            for column in 0..3 {
                let sum = (0..3).fold(0, |sum, i| sum ^ product(a[row * 3 + i], b[i * 3 + column]));
                assert_eq!(sum, u8::from(row == column));
            }
        }
        assert_eq!(inverse_matrix(vec![1, 2, 1, 2], 2), None);
    }
}
