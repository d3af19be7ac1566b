//! Those from whom a process has received large messages, as tables and documents show them.

use serde_json::{Value, json};
use types::messages::PeerReport;

const MIB: f64 = 1_048_576.0;

/// The time that packets wait in queues now, in microseconds.
fn queue_us(peer: &PeerReport) -> u64 {
    peer.round_trip_us.saturating_sub(peer.least_us)
}

/// How fast messages come that have to wait for credit, in MB/s; `None` if none had to.
fn credit_rate(peer: &PeerReport) -> Option<f64> {
    (peer.credit_bytes > 0 && peer.credit_us > 0).then(|| peer.credit_bytes as f64 / peer.credit_us as f64)
}

/// How equal the rates are of those whose messages had to wait for credit ([`types::fairness`]), and how many they are; `None`
/// with fewer than two.
pub(crate) fn fairness(peers: &[PeerReport]) -> Option<(f64, usize)> {
    let rates: Vec<f64> = peers.iter().filter_map(credit_rate).collect();
    let count = rates.len();
    (count > 1).then(|| (types::fairness(rates), count))
}

/// Rows of a table, with a head.
pub(crate) fn rows(peers: &[PeerReport]) -> Vec<Vec<String>> {
    let head = ["from", "MiB", "lost packets", "timeouts", "in queues", "least round trip", "by credit"];
    let millis = |us: u64| format!("{:.2} ms", us as f64 / 1e3);
    let row = |peer: &PeerReport| {
        vec![
            peer.address.clone(),
            format!("{:.1}", peer.bytes as f64 / MIB),
            peer.lost.to_string(),
            peer.timeouts.to_string(),
            millis(queue_us(peer)),
            millis(peer.least_us),
            credit_rate(peer).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1} MB/s")),
        ]
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(peers.iter().map(row)).collect()
}

/// All of them, for JSON.
pub(crate) fn document(peers: &[PeerReport]) -> Value {
    let one = |peer: &PeerReport| {
        json!({
            "address": peer.address, "bytes": peer.bytes, "lost_packets": peer.lost, "timeouts": peer.timeouts,
            "round_trip_us": peer.round_trip_us, "least_us": peer.least_us, "queue_us": queue_us(peer),
            "credit_bytes": peer.credit_bytes, "credit_us": peer.credit_us,
        })
    };
    peers.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_waited_for_credit_count_for_fairness() {
        let peer = |credit_bytes, credit_us| PeerReport { credit_bytes, credit_us, ..PeerReport::default() };
        assert_eq!(fairness(&[peer(3_000_000, 1_000_000), peer(0, 0)]), None);
        let (index, count) =
            fairness(&[peer(3_000_000, 1_000_000), peer(500_000, 500_000), peer(0, 0)]).expect("two");
        assert!((index - 0.8).abs() < 1e-9 && count == 2);
        let rows = rows(&[peer(3_000_000, 1_000_000), peer(0, 0)]);
        assert_eq!((&*rows[1][6], &*rows[2][6]), ("3.0 MB/s", "-"));
    }
}
