//! The text of `.shoal/status`: the mount's ids and counters, as lines of `name value`.

use client::Mount;
use types::messages::LongTurn;

use crate::control::{peer_line, slow_line, window_numbers};

pub(super) fn text(mount: &Mount) -> String {
    let counters = mount.counters();
    let lines = [
        ("pid", u64::from(std::process::id())),
        ("client", mount.client().0),
        ("volume", u64::from(mount.volume().0)),
        ("bytes_read", counters.bytes_read),
        ("bytes_written", counters.bytes_written),
        ("bytes_own", counters.bytes_own),
        ("bytes_direct", counters.bytes_direct),
        ("bytes_primary", counters.bytes_primary),
        ("stripes_staged", counters.stripes_staged),
        ("stripes_relayed", counters.stripes_relayed),
        ("stripes_sent", counters.stripes_sent),
        ("units_decoded", counters.units_decoded),
        ("reads_hedged", counters.reads_hedged),
        ("hedges_won", counters.hedges_won),
        ("reads_diverted", counters.reads_diverted),
        ("requests_proxied", counters.requests_proxied),
        ("retries", counters.retries),
        ("pieces_sent", counters.pieces_sent),
        ("spans_sent", counters.spans_sent),
        ("syncs_noted", counters.syncs_noted),
        ("lookups_ahead", counters.lookups_ahead),
        ("unstable_bytes", counters.unstable_bytes),
        ("cache_bytes", counters.cache_bytes),
    ];
    let cache = mount.disk_cache().map(|cache| {
        let reason = cache.reason.map(|reason| format!("disk_cache_reason {reason}\n")).unwrap_or_default();
        format!("disk_cache {}\n{reason}disk_cache_bytes {}\n", cache.state, cache.bytes)
    });
    let report = world::receive_report();
    let window = window_numbers(&report);
    let window =
        window.into_iter().flatten().map(|(name, number)| format!("receive_window_{name} {number}\n"));
    // Times in microseconds: on the clock, and of the thread itself.
    let turn = |turn: LongTurn| format!("longest_turn {} {} {}\n", turn.wall_us, turn.cpu_us, turn.task);
    let turns = world::turns::longest().into_iter().map(turn);
    lines
        .into_iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .chain(cache)
        .chain(window)
        .chain(report.peers.iter().map(peer_line))
        .chain(mount.slow_bricks().iter().map(slow_line))
        .chain(turns)
        .collect()
}
