//! The simulated cluster: whole stories, one seed each.

mod cluster;
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
