//! The simulated cluster: whole stories, one seed each.
//!
//! `SHOAL_SEEDS=N` runs so many seeds of the storm, from `SHOAL_SEED=S` on. A seed and a commit are one run.

mod cluster;
mod fence;
mod storm;
mod story;

use cluster::Cluster;
use world::sim::SimOptions;

/// Writes, reads, reads degraded, loses power, recovers. One seed gives one trace, two seeds two.
#[test]
fn one_seed_gives_one_trace() {
    let hash = |seed| {
        let cluster = Cluster::new(seed, SimOptions::default(), 10, 32 << 20);
        story::first(&cluster);
        cluster.sim.trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Random work under random faults.
#[test]
fn storms() {
    if std::env::var_os("SHOAL_LOG").is_some() {
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().init();
    }
    let (first, seeds) = (number("SHOAL_SEED", 1), number("SHOAL_SEEDS", 50));
    let mut sum = storm::Tally::default();
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| storm::run(seed));
        let Ok(tally) = run else {
            panic!("seed {seed} failed: repeat it with SHOAL_SEED={seed} SHOAL_SEEDS=1")
        };
        sum.operations += tally.operations;
        sum.faults += tally.faults;
        sum.bytes += tally.bytes;
        sum.decoded += tally.decoded;
        sum.retries += tally.retries;
        sum.staged += tally.staged;
        sum.sent += tally.sent;
        sum.patched += tally.patched;
        sum.folded += tally.folded;
        sum.compared += tally.compared;
        sum.starved += tally.starved;
        sum.trace = sum.trace.rotate_left(1) ^ tally.trace;
        if (seed - first + 1).is_multiple_of(50) {
            println!("{} seeds: {sum:?}", seed - first + 1);
        }
    }
    println!("{seeds} seeds from {first}: {sum:?}");
    assert!(sum.staged.min(sum.sent) > 0 || seeds < 20, "stripes take both ways");
    assert!(sum.patched.min(sum.folded) > 0 || seeds < 100, "stripes are folded both ways");
    assert!(sum.starved * 5 <= seeds || seeds < 20, "most seeds run to their end");
}
