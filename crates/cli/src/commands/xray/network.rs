//! The receive window of a mount or gate, and what comes from each brick, as `.shoal/xray` tells of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use types::messages::PeerReport;

use crate::output::table;
use crate::peers;

use super::disk_cache::numbers;
use super::findings::{Finding, short};

/// A window of more bytes holds nothing back that is worth a sentence.
const NARROW: u64 = 1 << 20;

/// What the mount says of answers from other machines, since it began.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Network {
    /// The receive window; empty if nothing needed it.
    window: BTreeMap<String, u64>,
    peers: Vec<PeerReport>,
}

impl Network {
    /// Reads the lines `receive-window NAME N ...` and `peer ADDRESS NAME N ...`, if there are any.
    pub(super) fn parse(text: &str) -> Option<Network> {
        let window = text.lines().find_map(|line| line.strip_prefix("receive-window "));
        let window = window.and_then(|line| numbers(line.split_ascii_whitespace())).unwrap_or_default();
        let peers: Vec<PeerReport> = text.lines().filter_map(peer).collect();
        (!window.is_empty() || !peers.is_empty()).then_some(Network { window, peers })
    }

    fn number(&self, name: &str) -> u64 {
        self.window.get(name).copied().unwrap_or(0)
    }

    /// A table of those from whom something came.
    pub(super) fn text(&self) -> String {
        if self.peers.is_empty() {
            return String::new();
        }
        let fairness = peers::fairness(&self.peers).map(|(index, count)| {
            format!("fairness {index:.3} among the {count} whose answers wait for credit (1: all are equally fast)\n")
        });
        format!("\n{}{}", table(&peers::rows(&self.peers)), fairness.unwrap_or_default())
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

    /// The window, if anything needed it.
    pub(super) fn window_document(&self) -> Option<Value> {
        (!self.window.is_empty()).then(|| json!(self.window))
    }

    pub(super) fn peers_document(&self) -> Value {
        peers::document(&self.peers)
    }

    /// How equally fast their answers come, if some have waited for credit.
    pub(super) fn fairness(&self) -> Option<f64> {
        peers::fairness(&self.peers).map(|(index, _)| index)
    }
}

/// Reads a line `peer ADDRESS NAME N ...`.
fn peer(line: &str) -> Option<PeerReport> {
    let mut words = line.strip_prefix("peer ")?.split_ascii_whitespace();
    let address = words.next()?.to_owned();
    let numbers = numbers(words)?;
    let number = |name: &str| numbers.get(name).copied();
    Some(PeerReport {
        address,
        bytes: number("bytes")?,
        lost: number("lost_packets")?,
        timeouts: number("timeouts")?,
        round_trip_us: number("round_trip_us")?,
        least_us: number("least_us")?,
        credit_bytes: number("credit_bytes")?,
        credit_us: number("credit_us")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_a_row() {
        let line = "peer h:7401 bytes 2097152 lost_packets 40 timeouts 3 round_trip_us 900 least_us 80 \
                    credit_bytes 500000 credit_us 250000\n";
        let network = Network::parse(line).expect("a peer");
        let text = network.text();
        let row: Vec<&str> = text.lines().last().expect("a row").split_whitespace().collect();
        assert_eq!(row, ["h:7401", "2.0", "40", "3", "0.82", "ms", "0.08", "ms", "2.0", "MB/s"]);
        assert_eq!((network.window_document(), network.finding()), (None, None));
        let peers = network.peers_document();
        assert_eq!((&peers[0]["address"], &peers[0]["queue_us"]), (&json!("h:7401"), &json!(820)));
        assert_eq!(network.fairness(), None);
        let two = Network::parse(&format!("{line}{}", line.replace("h:7401", "i:7401"))).expect("peers");
        assert!(two.text().ends_with(
            "fairness 1.000 among the 2 whose answers wait for credit (1: all are equally fast)\n"
        ));
        assert_eq!(two.fairness(), Some(1.0));
        assert_eq!(Network::parse("peer h:7401 bytes x\n"), None);
    }

    #[test]
    fn a_narrow_window_is_found() {
        assert_eq!(Network::parse("layer auto reads 1\n"), None);
        let line = "layer auto reads 1\nreceive-window bytes 43008 cuts 3 lost_packets 40 granted_bytes 7\n";
        let narrow = Network::parse(line).expect("a line");
        let said = narrow.finding().expect("it is narrow").sentence;
        assert!(said.starts_with("reads are held to 42K in flight, because 40 packets were lost"), "{said}");
        assert_eq!(narrow.window_document().expect("a window")["granted_bytes"], 7);
        assert_eq!(narrow.text(), "");
        for good in ["bytes 43008 cuts 0", "bytes 2000000 cuts 3"] {
            let network = Network::parse(&format!("receive-window {good}\n")).expect("a line");
            assert_eq!(network.finding(), None);
        }
    }
}
