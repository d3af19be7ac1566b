//! Sizes as people write them: `128K`, `256M`, `16G`, powers of 1024.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) u64);

const STEPS: [(&str, u64); 5] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bad =
            || format!("`{text}` is not a size: write bytes, or a number with K, M, G or T, such as 256M");
        let upper = text.trim().to_ascii_uppercase();
        let upper = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
        let (letter, factor) =
            STEPS.iter().find(|(letter, _)| upper.ends_with(letter)).expect("every text ends with nothing");
        let number = upper.strip_suffix(letter).unwrap_or(upper).trim();
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(*factor).map(Size).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, factor) = STEPS.iter().find(|(_, factor)| self.0 >= *factor).unwrap_or(&("", 1));
        if letter.is_empty() {
            return write!(f, "{} B", self.0);
        }
        let tenths = u128::from(self.0) * 10 / u128::from(*factor);
        if tenths >= 1000 || tenths.is_multiple_of(10) {
            write!(f, "{} {letter}iB", tenths / 10)
        } else {
            write!(f, "{}.{} {letter}iB", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        let parsed = ["7", "128K", "256m", "3GiB", "2T", "9 KB"].map(|s| s.parse::<Size>().map(|s| s.0));
        assert_eq!(parsed, [Ok(7), Ok(128 << 10), Ok(256 << 20), Ok(3 << 30), Ok(2 << 40), Ok(9 << 10)]);
        assert!("x".parse::<Size>().is_err());
        assert!("99999999999999T".parse::<Size>().is_err());
        let shown = [0, 900, 1 << 10, 1536 << 10, 300 << 20, u64::MAX].map(|n| Size(n).to_string());
        assert_eq!(shown, ["0 B", "900 B", "1 KiB", "1.5 MiB", "300 MiB", "16777215 TiB"]);
    }
}
