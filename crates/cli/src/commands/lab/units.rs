//! Rates and times as people write them: `1gbit`, `50us`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Most megabits per second of a cable.
const MBIT_MAX: u64 = 100_000;
/// Longest time, in microseconds.
const TIME_MAX: u64 = 60_000_000;

/// A rate in megabits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate(pub(super) u32);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let lower = text.trim().to_ascii_lowercase();
        let factors = [("gbit", 1000), ("mbit", 1)];
        let found = factors.iter().find_map(|(unit, factor)| Some((lower.strip_suffix(unit)?, factor)));
        let number = found.and_then(|(number, factor)| number.parse::<u64>().ok()?.checked_mul(*factor));
        let fits = number.filter(|mbit| (1..=MBIT_MAX).contains(mbit));
        fits.map(|mbit| Rate(mbit as u32)).ok_or_else(|| {
            format!("`{text}` is no rate of a cable: write 1mbit to {}gbit, such as 100mbit", MBIT_MAX / 1000)
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate(mbit) = self;
        if mbit.is_multiple_of(1000) { write!(f, "{}gbit", mbit / 1000) } else { write!(f, "{mbit}mbit") }
    }
}

/// A length of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Time(pub(super) Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let lower = text.trim().to_ascii_lowercase();
        if lower == "0" {
            return Ok(Time(Duration::ZERO));
        }
        // `s` is the end of the others.
        let factors = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
        let found = factors.iter().find_map(|(unit, factor)| Some((lower.strip_suffix(unit)?, factor)));
        let number = found.and_then(|(number, factor)| number.parse::<u64>().ok()?.checked_mul(*factor));
        let fits = number.filter(|us| *us <= TIME_MAX);
        fits.map(|us| Time(Duration::from_micros(us))).ok_or_else(|| {
            format!("`{text}` is no time: write 0, or a number with us, ms or s up to a minute, such as 20ms")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_and_print() {
        let parsed = ["1gbit", "100Mbit", "2500mbit", "100gbit"].map(|text| text.parse::<Rate>());
        assert_eq!(parsed, [1000, 100, 2500, 100_000].map(|mbit| Ok(Rate(mbit))));
        assert_eq!([Rate(1000), Rate(2500)].map(|rate| rate.to_string()), ["1gbit", "2500mbit"]);
        for text in ["", "1", "0mbit", "-1mbit", "101gbit", "1.5gbit", "9999999999999999999gbit", "gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_parse() {
        let parsed = ["0", "50us", "20ms", "3s", "0ms"].map(|text| text.parse::<Time>());
        assert_eq!(parsed, [0, 50, 20_000, 3_000_000, 0].map(|us| Ok(Time(Duration::from_micros(us)))));
        for text in ["", "20", "ms", "-1ms", "61s", "1h"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
