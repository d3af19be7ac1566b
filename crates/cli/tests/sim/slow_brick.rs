//! A brick whose disk has become slow costs readers little: what it does not send in time is decoded from the others.

use client::Encode;
use types::InodeId;
use types::code_probe::{self, CodeProbe};
use types::messages::names::Owner;
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, brick_node, create_volume};
use crate::prng::Prng;
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 8;
const UNIT: usize = 64 << 10;
const FILE: usize = 16 << 20;
/// The brick that becomes slow, and how slow.
const SLOW: u32 = 2;
const TIMES: u64 = 20;
const READS: usize = 2000;

/// No frame is delayed by chance: what is late here is the disk.
fn options() -> SimOptions {
    SimOptions { stall_per_million: 0, ..SimOptions::default() }
}

/// The 99th percentile of the times of [`READS`] reads at random places, in microseconds.
async fn p99(client: &Client, prng: &mut Prng, handle: u64, len: usize) -> u64 {
    let mut times = reads(client, prng, handle, len, READS).await;
    times.sort_unstable();
    times[READS * 99 / 100]
}

/// The times of reads at random places, in microseconds.
async fn reads(client: &Client, prng: &mut Prng, handle: u64, len: usize, count: usize) -> Vec<u64> {
    let mut times = Vec::new();
    let expected = bytes_of(1, FILE);
    for _ in 0..count {
        let at = prng.below((FILE / len) as u64) as usize * len;
        let begin = client.world.now();
        let bytes = client.session.read(handle, at as u64, len).await.expect("read");
        times.push(client.world.now() - begin);
        assert!(*bytes == expected[at..at + len], "{len} bytes at {at}");
    }
    times
}

pub(crate) fn run(seed: u64) {
    let cluster = Cluster::new(seed, options(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let world = cluster.sim.node("client");
    let mut prng = Prng::new(seed);
    cluster.sim.block_on("client", async {
        world.sleep(2_000_000).await;
        create_volume(&world, "4+2", UNIT as u32, 4, 20).await;
        let client = Client::mount(world.clone(), 1 << 20, Encode::Client).await;
        client.mount.tune("io-cache=off read-ahead=off hedge=on").expect("settings");
        let opened = client.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        for (n, part) in bytes_of(1, FILE).chunks(1 << 20).enumerate() {
            client.session.write(opened.handle, (n as u64) << 20, part).await.expect("written");
        }
        client.session.fsync(opened.handle).await.expect("synced");
        let mut all = [0; 2];
        for len in [4 << 10, UNIT, 4 * UNIT] {
            let usual = p99(&client, &mut prng, opened.handle, len).await;
            cluster.sim.slow_disk(&brick_node(SLOW), "disk", TIMES);
            let (before, read_before) = (client.mount.counters(), code_probe::count(CodeProbe::ReadHedged));
            let hedged = p99(&client, &mut prng, opened.handle, len).await;
            let after = client.mount.counters();
            client.mount.tune("hedge=off").expect("settings");
            let waited = p99(&client, &mut prng, opened.handle, len).await;
            client.mount.tune("hedge=on").expect("settings");
            println!("{len}: {usual} us, one brick slow: {hedged} us, without hedges {waited} us");
            assert!(code_probe::count(CodeProbe::ReadHedged) > read_before);
            let by_others =
                [after.hedges_won - before.hedges_won, after.reads_diverted - before.reads_diverted];
            assert!(by_others.iter().sum::<u64>() > 0, "{by_others:?}");
            // A brick that is known to be slow leaves nothing to hedge: each way is certain only for all sizes together.
            all.iter_mut().zip(by_others).for_each(|(sum, count)| *sum += count);
            assert!(waited > 3 * usual, "the disk is slow: {waited} of {usual}");
            assert!(hedged * 2 < waited && hedged < 3 * usual, "{hedged} of {waited}, {usual}");
            // Some of its reads are quick by chance, so it may count as sound now and then.
            let mut is_seen = false;
            for _ in 0..20 {
                let slow: Vec<u32> = client.mount.slow_bricks().iter().map(|slow| slow.sender.0).collect();
                is_seen |= slow == [SLOW];
                assert!(slow.iter().all(|brick| *brick == SLOW), "nobody else is slow: {slow:?}");
                reads(&client, &mut prng, opened.handle, len, 20).await;
            }
            assert!(is_seen, "nobody knows that it is slow");
            cluster.sim.slow_disk(&brick_node(SLOW), "disk", 1);
            p99(&client, &mut prng, opened.handle, len).await;
            p99(&client, &mut prng, opened.handle, len).await;
            assert!(client.mount.slow_bricks().is_empty(), "it has recovered");
        }
        assert!(all.iter().all(|count| *count > 0), "hedges won and reads diverted: {all:?}");
    });
}
