//! The receive window of a mount or gate, as `.shoal/xray` tells of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::disk_cache::numbers;
use super::findings::{Finding, short};

/// A window of more bytes holds nothing back that is worth a sentence.
const NARROW: u64 = 1 << 20;

/// What the mount says of answers from other machines, since it began.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Network(BTreeMap<String, u64>);

impl Network {
    /// Reads the line `receive-window NAME N ...`, if there is one.
    pub(super) fn parse(text: &str) -> Option<Network> {
        let line = text.lines().find_map(|line| line.strip_prefix("receive-window "))?;
        numbers(line.split_ascii_whitespace()).map(Network)
    }

    fn number(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// What it means for reads.
    pub(super) fn finding(&self) -> Option<Finding> {
        let (window, cuts, lost) = (self.number("bytes"), self.number("cuts"), self.number("lost_packets"));
        if cuts == 0 || window >= NARROW {
            return None;
        }
        let sentence = format!(
            "reads are held to {} in flight, because {lost} packets were lost on the way here: a switch port or a link towards \
             this machine has few bytes of buffer",
            short(window as f64)
        );
        Some(Finding { sentence, setting: None, is_wrong: false })
    }

    pub(super) fn document(&self) -> Value {
        json!(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_window_is_found() {
        assert_eq!(Network::parse("layer auto reads 1\n"), None);
        let line = "layer auto reads 1\nreceive-window bytes 43008 cuts 3 lost_packets 40 granted_bytes 7\n";
        let narrow = Network::parse(line).expect("a line");
        let said = narrow.finding().expect("it is narrow").sentence;
        assert!(said.starts_with("reads are held to 42K in flight, because 40 packets were lost"), "{said}");
        assert_eq!(narrow.document()["granted_bytes"], 7);
        for good in ["bytes 43008 cuts 0", "bytes 2000000 cuts 3"] {
            let network = Network::parse(&format!("receive-window {good}\n")).expect("a line");
            assert_eq!(network.finding(), None);
        }
    }
}
