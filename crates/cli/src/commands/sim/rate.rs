//! Rates of cables, as people write and read them.

use std::str::FromStr;

use netsim::Rate;

/// A rate as people write it: `500mbit`, `10gbit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RateText(pub(super) Rate);

impl FromStr for RateText {
    type Err = String;

    fn from_str(text: &str) -> Result<RateText, String> {
        let bad = || format!("`{text}` is not a rate: write a number with mbit or gbit, such as 10gbit");
        let lower = text.trim().to_ascii_lowercase();
        let (number, factor) = match (lower.strip_suffix("gbit"), lower.strip_suffix("mbit")) {
            (Some(number), _) => (number, 1_000_000_000),
            (_, Some(number)) => (number, 1_000_000),
            _ => return Err(bad()),
        };
        let number: u64 = number.trim().parse().map_err(|_| bad())?;
        number.checked_mul(factor).map(|bits| RateText(Rate(bits))).ok_or_else(bad)
    }
}

/// A rate for people.
pub(super) fn rate_words(rate: Rate) -> String {
    let mbit = rate.0 / 1_000_000;
    if mbit.is_multiple_of(1000) { format!("{} Gbit/s", mbit / 1000) } else { format!("{mbit} Mbit/s") }
}
