//! Failure domains, as people write them.

use std::fmt;
use std::str::FromStr;

use super::cluster::{FailureDomain, PlacementSpec};

impl FailureDomain {
    /// Its word in commands.
    pub fn word(self) -> &'static str {
        match self {
            FailureDomain::Brick => "brick",
            FailureDomain::Node => "node",
            FailureDomain::Rack => "rack",
            FailureDomain::Row => "row",
        }
    }
}

impl fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for FailureDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<FailureDomain, String> {
        let known = FailureDomain::ALL.iter().copied().find(|domain| domain.word() == text);
        known.ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            format!("`{text}` is not a failure domain: write brick, node, rack or row")
        })
    }
}

/// It is a few choices.
impl Copy for PlacementSpec {}
