//! Those from whom a process has received large messages, as tables and documents show them.

use serde_json::{Value, json};
use types::messages::PeerReport;

const MIB: f64 = 1_048_576.0;

/// The time that packets wait in queues now, in microseconds.
fn queue_us(peer: &PeerReport) -> u64 {
    peer.round_trip_us.saturating_sub(peer.least_us)
}

/// Rows of a table, with a head.
pub(crate) fn rows(peers: &[PeerReport]) -> Vec<Vec<String>> {
    let head = ["from", "MiB", "lost packets", "timeouts", "in queues", "least round trip"];
    let millis = |us: u64| format!("{:.2} ms", us as f64 / 1e3);
    let row = |peer: &PeerReport| {
        vec![
            peer.address.clone(),
            format!("{:.1}", peer.bytes as f64 / MIB),
            peer.lost.to_string(),
            peer.timeouts.to_string(),
            millis(queue_us(peer)),
            millis(peer.least_us),
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
        })
    };
    peers.iter().map(one).collect()
}
