//! What a tier is made of, as people write it: `8+2`, or `8+2@hdd` for a code on bricks of one class.

use std::fmt;
use std::str::FromStr;

use types::Code;
use types::messages::cluster::{BrickClass, Tier};

/// A code and the class of the bricks that hold its units; any for [`None`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TierCode {
    pub(crate) code: Code,
    pub(crate) class: Option<BrickClass>,
}

impl TierCode {
    pub(crate) fn of(tier: &Tier) -> TierCode {
        TierCode { code: tier.geometry.code(), class: tier.class }
    }

    /// Whether a tier is meant: it has this code, and this class if one is given.
    pub(crate) fn means(self, tier: &Tier) -> bool {
        tier.geometry.code() == self.code && (self.class.is_none() || tier.class == self.class)
    }
}

impl fmt::Display for TierCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Some(class) => write!(f, "{}@{class}", self.code),
            None => write!(f, "{}", self.code),
        }
    }
}

impl FromStr for TierCode {
    type Err = String;

    fn from_str(text: &str) -> Result<TierCode, String> {
        let (code, class) = match text.split_once('@') {
            Some((code, class)) => (code, Some(class.parse::<BrickClass>()?)),
            None => (text, None),
        };
        Ok(TierCode { code: code.parse().map_err(|error: types::GeometryError| error.to_string())?, class })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_parse_and_print() {
        for text in ["8+2@hdd", "1+2@ssd", "4+0"] {
            assert_eq!(text.parse::<TierCode>().map(|tier| tier.to_string()), Ok(text.to_owned()));
        }
        for (text, problem) in [
            ("8+2@tape", "`tape` is not a class of bricks: write ssd or hdd"),
            ("8@hdd", "`8` is not a code: write K+M, for example 8+2 (8 data and 2 parity units)"),
        ] {
            assert_eq!(text.parse::<TierCode>(), Err(problem.to_owned()));
        }
    }
}
