//! The metadata server is lost, and a backup takes its place that is older than what the bricks know: since then slots have
//! missed writes, were brought level, and were given to another brick. What was written since is read all the same.

use std::collections::BTreeSet;

use client::Encode;
use types::messages::cluster::{BrickReplace, BrickState, ClusterMap, ReplaceErrorKind};
use types::messages::names::Owner;
use types::messages::session::Role;
use types::{BrickId, Buf, Epoch, InodeId};
use world::sim::SimOptions;
use world::{Peers, World};

use crate::check::liveness::{all_live, all_served};
use crate::cluster::{Client, Cluster, brick_node, create_volume, identity, map, meta};
use crate::prng::Prng;
use crate::scenario::bytes_of;

/// Runs of the test.
pub(crate) const SEEDS: u64 = 60;
const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const FILES: u64 = 6;
const LEN: usize = 100_000;
/// Bricks of the volume; the one after them is spare.
const BRICKS: u32 = 5;
/// Time in which a lease runs out and slots are put Out, in microseconds.
const OUT_US: u64 = 5_000_000;

/// What happens after the backup.
struct Restored<'a> {
    seed: u64,
    cluster: &'a Cluster,
    prng: Prng,
    /// What each file has, by its inode.
    files: Vec<(InodeId, Vec<u8>)>,
    version: u64,
}

impl Restored<'_> {
    /// Writes all of some files, and a part of others.
    async fn write(&mut self, client: &Client) {
        for at in 0..self.files.len() {
            if self.prng.below(3) == 0 {
                continue;
            }
            self.version += 1;
            let bytes = bytes_of(1000 * self.seed + self.version, LEN);
            let from = if self.prng.below(2) == 0 { 0 } else { self.prng.below(LEN as u64 - 5000) as usize };
            let to = if from == 0 { LEN } else { from + 5000 };
            let (inode, content) = &mut self.files[at];
            content[from..to].copy_from_slice(&bytes[from..to]);
            let handle = client.session.open(*inode, true, false).await.expect("opened").handle;
            client.session.write(handle, from as u64, &bytes[from..to]).await.expect("written");
            client.session.fsync(handle).await.expect("synced");
            client.session.release(handle).await.expect("closed");
        }
    }

    async fn compare(&self, client: &Client, when: &str) {
        for (inode, content) in &self.files {
            let handle = client.session.open(*inode, false, false).await.expect("opened").handle;
            let found = client.session.read(handle, 0, 2 * LEN).await.expect("read");
            assert!(*found == **content, "seed {}: {inode} {when}", self.seed);
            client.session.release(handle).await.expect("closed");
        }
    }

    /// A brick misses writes, and is brought level or not; or another brick takes its place.
    async fn live_on(&mut self, world: &World, client: &Client) {
        let mut spare = Some(BRICKS);
        for _ in 0..2 + self.prng.below(3) {
            let brick = self.prng.below(u64::from(BRICKS)) as u32;
            self.cluster.sim.kill(&brick_node(brick));
            world.sleep(OUT_US).await;
            self.write(client).await;
            if self.prng.below(3) == 0
                && let Some(new) = spare.take()
            {
                let peers = Peers::new(world.clone(), identity(Role::Client));
                let request = BrickReplace { old: BrickId(brick), new: BrickId(new) };
                let replaced = peers.call(meta(), Epoch(0), &request, Buf::empty()).await;
                let (replaced, _) = replaced.expect("the service answers");
                match replaced.error {
                    None => self.must(all_live(world, &BTreeSet::from([brick])).await),
                    // Others lag behind.
                    Some(error) => assert_eq!(error.what, ReplaceErrorKind::Needed, "seed {}", self.seed),
                }
                self.cluster.start_brick(brick);
            } else {
                self.cluster.start_brick(brick);
                match self.prng.below(2) {
                    0 => self.must(all_live(world, &BTreeSet::new()).await),
                    _ => world.sleep(300_000 * self.prng.below(4)).await,
                }
            }
            self.write(client).await;
        }
    }

    fn must(&self, result: Result<(), String>) {
        if let Err(error) = result {
            panic!("seed {}: {error}", self.seed);
        }
    }
}

pub(crate) fn run(seed: u64) {
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS + 1, 32 << 20, 8 << 20);
    cluster.start_meta();
    (0..BRICKS).for_each(|brick| cluster.start_brick(brick));
    let prng = Prng::new(seed);
    let mut test = Restored { seed, cluster: &cluster, prng, files: Vec::new(), version: 0 };
    let (first, second) = (cluster.sim.node("clienta"), cluster.sim.node("clientb"));
    let sim = &cluster.sim;

    let client = sim.block_on("clienta", async {
        first.sleep(2_000_000).await;
        create_volume(&first, "2+2", 16 << 10, 4, 6).await;
        let client = Client::mount(first.clone(), 1 << 20, Encode::Primary).await;
        for file in 0..FILES {
            let name = format!("file{file}");
            let opened = client.session.create(InodeId::ROOT, name.as_bytes(), OWNER).await.expect("created");
            let content = bytes_of(seed + file, LEN);
            client.session.write(opened.handle, 0, &content).await.expect("written");
            client.session.fsync(opened.handle).await.expect("synced");
            client.session.release(opened.handle).await.expect("closed");
            test.files.push((opened.attr.inode, content));
        }
        client
    });
    let gone = (test.prng.below(2) == 0).then(|| test.prng.below(u64::from(BRICKS + 1)) as u32);
    sim.kill("meta");
    let backup = test.cluster.backup();
    test.cluster.start_meta();
    test.cluster.start_brick(BRICKS);
    sim.block_on("clienta", async {
        first.sleep(OUT_US).await;
        let spare =
            |map: &ClusterMap| map.brick(BrickId(BRICKS)).is_some_and(|brick| brick.state == BrickState::Up);
        assert!(spare(&map(&first).await), "seed {seed}: the spare brick has joined");
        test.live_on(&first, &client).await;
        if gone.is_some() {
            // One brick more than those that lag behind would be too many.
            test.must(all_live(&first, &BTreeSet::new()).await);
        }
        drop(client);
    });

    // Everything is lost but the bricks, of which some go on, some restart, and one may be gone for good.
    sim.kill("meta");
    sim.kill("clienta");
    let restarted: Vec<u32> = (0..=BRICKS).filter(|_| test.prng.below(2) == 0).collect();
    for brick in restarted.iter().copied().chain(gone) {
        sim.power_cut(&brick_node(brick));
    }
    let lost: BTreeSet<u32> = gone.into_iter().collect();
    test.cluster.restore(backup, &lost.iter().map(|brick| BrickId(*brick)).collect::<Vec<_>>());
    test.cluster.start_meta();
    sim.block_on("clientb", async {
        second.sleep(test.prng.below(8) * 1_000_000).await;
        let restarted = restarted.iter().filter(|brick| !lost.contains(brick));
        restarted.for_each(|brick| test.cluster.start_brick(*brick));
        let client = Client::mount(second.clone(), 1 << 20, Encode::Primary).await;
        test.compare(&client, "after the restoration").await;
        test.must(all_served(&second, BRICKS + 1, &lost).await);
        test.write(&client).await;
        test.must(all_live(&second, &lost).await);
        // What was brought level has everything.
        let more = (0..=BRICKS).find(|brick| !lost.contains(brick)).expect("there are others");
        test.cluster.sim.kill(&brick_node(more));
        second.sleep(OUT_US).await;
        test.compare(&client, "with bricks away").await;
    });
}
