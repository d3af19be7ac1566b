//! How equal shares are.

/// The index of Jain, Chiu and Hawe (DEC-TR-301, 1984): 1 if all shares are equal, 1/n if one of n has all of it; 1 if there
/// are none.
pub fn fairness(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair() {
        assert_eq!((fairness([5.0; 4]), fairness([8.0, 0.0, 0.0, 0.0])), (1.0, 0.25));
        assert!((fairness([3.0, 1.0]) - 0.8).abs() < 1e-9);
        assert_eq!((fairness([0.0, 0.0]), fairness([])), (1.0, 1.0));
    }
}
