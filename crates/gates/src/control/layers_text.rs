//! What has entered each layer, from the top down: `layer NAME reads N read_bytes N writes N written_bytes N`.

use client::{DiskCacheReport, LayerCounters, Mount, Slow};
use types::BrickId;
use types::messages::PeerReport;
use world::ReceiveReport;

/// What concerns a whole mount.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) cache: Option<DiskCacheReport>,
    pub(crate) window: Option<ReceiveReport>,
    pub(crate) slow: Vec<Slow<BrickId>>,
}

impl Whole {
    pub(crate) fn of(mount: &Mount) -> Whole {
        let window = Some(world::receive_report());
        Whole { cache: mount.disk_cache(), window, slow: mount.slow_bricks() }
    }
}

/// A line for each layer, for the cache on a disk, for the receive window, for each peer and for each slow brick.
pub(crate) fn layers_text(layers: &[LayerCounters], whole: Whole) -> String {
    let Whole { cache, window, slow } = whole;
    let line = |layer: &LayerCounters| {
        let LayerCounters { name, reads, read_bytes, writes, written_bytes } = layer;
        format!(
            "layer {name} reads {reads} read_bytes {read_bytes} writes {writes} written_bytes {written_bytes}\n"
        )
    };
    let slow = slow.iter().map(slow_line);
    layers
        .iter()
        .map(line)
        .chain(cache.map(cache_line))
        .chain(window.as_ref().and_then(window_line))
        .chain(window.iter().flat_map(|window| window.peers.iter().map(peer_line)))
        .chain(slow)
        .collect()
}

/// `slow-brick ID answers_us N usual_us N`.
pub(crate) fn slow_line(slow: &Slow<BrickId>) -> String {
    let Slow { sender, answers_us, usual_us } = slow;
    format!("slow-brick {sender} answers_us {answers_us} usual_us {usual_us}\n")
}

/// `peer ADDRESS NAME N ...`.
pub(crate) fn peer_line(peer: &PeerReport) -> String {
    let numbers = [
        ("bytes", peer.bytes),
        ("lost_packets", peer.lost),
        ("timeouts", peer.timeouts),
        ("round_trip_us", peer.round_trip_us),
        ("least_us", peer.least_us),
        ("credit_bytes", peer.credit_bytes),
        ("credit_us", peer.credit_us),
    ];
    format!("peer {}{}\n", peer.address, named(&numbers))
}

fn window_line(window: &ReceiveReport) -> Option<String> {
    window_numbers(window).map(|numbers| format!("receive-window{}\n", named(&numbers)))
}

/// ` NAME N` of each.
fn named(numbers: &[(&str, u64)]) -> String {
    numbers.iter().map(|(name, number)| format!(" {name} {number}")).collect()
}

/// The receive window and what came through it, by name. `None` while nothing has come from another machine that needed
/// credit.
pub(crate) fn window_numbers(window: &ReceiveReport) -> Option<[(&'static str, u64); 7]> {
    let is_used = window.stats.granted + window.stats.carried > 0;
    is_used.then_some([
        ("bytes", window.window as u64),
        ("cuts", window.cuts),
        ("lost_packets", window.stats.lost),
        ("granted_bytes", window.stats.granted),
        ("carried_bytes", window.stats.carried),
        ("expired_bytes", window.stats.expired),
        ("delay_us", window.stats.delay_us),
    ])
}

fn cache_line(cache: DiskCacheReport) -> String {
    let numbers = [
        ("bytes", cache.bytes),
        ("bytes_most", cache.bytes_most),
        ("hits", cache.hits),
        ("hit_bytes", cache.hit_bytes),
        ("misses", cache.misses),
        ("missed_bytes", cache.missed_bytes),
        ("damaged", cache.damaged),
        ("filled_bytes", cache.filled_bytes),
        ("skipped_bytes", cache.skipped_bytes),
    ];
    let numbers = named(&numbers);
    let reason =
        cache.reason.map(|reason| format!(" reason {}", reason.replace('\n', " "))).unwrap_or_default();
    format!("disk-cache-state {}{numbers}{reason}\n", cache.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_line() {
        let auto = LayerCounters { name: "auto", reads: 1, read_bytes: 2, writes: 3, written_bytes: 4 };
        let bricks = LayerCounters { name: "bricks", ..LayerCounters::default() };
        let expected = "layer auto reads 1 read_bytes 2 writes 3 written_bytes 4\n\
                        layer bricks reads 0 read_bytes 0 writes 0 written_bytes 0\n";
        assert_eq!(layers_text(&[auto, bricks], Whole::default()), expected);
        let slow = vec![Slow { sender: BrickId(3), answers_us: 6000, usual_us: 300 }];
        let text = layers_text(&[], Whole { slow, ..Whole::default() });
        assert_eq!(text, "slow-brick b3 answers_us 6000 usual_us 300\n");
        let peer =
            PeerReport { address: "h:7401".to_owned(), bytes: 9, least_us: 80, ..PeerReport::default() };
        assert_eq!(
            peer_line(&peer),
            "peer h:7401 bytes 9 lost_packets 0 timeouts 0 round_trip_us 0 least_us 80 credit_bytes 0 credit_us 0\n"
        );
        let reason = Some("it is\ngone".to_owned());
        let cache = DiskCacheReport { state: "off", reason, hits: 5, ..DiskCacheReport::default() };
        assert_eq!(
            layers_text(&[], Whole { cache: Some(cache), ..Whole::default() }),
            "disk-cache-state off bytes 0 bytes_most 0 hits 5 hit_bytes 0 misses 0 missed_bytes 0 damaged 0 \
             filled_bytes 0 skipped_bytes 0 reason it is gone\n"
        );
    }
}
