//! A network falls into two parts for longer than leases last: the part that can goes on, the other one stops, and afterwards all
//! that was confirmed is there, once.

use std::collections::BTreeSet;

use client::Encode;
use types::InodeId;
use types::messages::names::Owner;
use world::World;
use world::sim::SimOptions;

use crate::check::liveness;
use crate::check::parity::{Compared, ParityCheck};
use crate::cluster::{Client, Cluster, brick_node, create_volume, map};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const LEN: usize = 64 << 10;
/// How long the parts take to know that they are two, and how long they are given to work then, in microseconds.
const APART_US: u64 = 7_000_000;
const WORK_US: u64 = 6_000_000;

async fn write(client: &Client, handle: u64, version: u64) -> Result<(), client::ClientError> {
    client.session.write(handle, 0, &bytes_of(version, LEN)).await?;
    client.session.fsync(handle).await
}

/// Each 4-KiB block is one of these versions.
fn is_one_of(bytes: &[u8], versions: &[u64]) -> bool {
    let all: Vec<Vec<u8>> = versions.iter().map(|version| bytes_of(*version, LEN)).collect();
    let blocks = bytes.chunks(4096).enumerate();
    bytes.len() == LEN
        && blocks.fold(true, |sound, (n, block)| {
            let at = n * 4096..(n + 1) * 4096;
            sound && all.iter().any(|version| version[at.clone()] == *block)
        })
}

/// Three copies. With the metadata service and client `a` are two bricks, with client `b` the third one; or, with an even seed, the
/// other way round, and neither side can write.
pub(crate) fn run(seed: u64) {
    let cluster = Cluster::new(seed, SimOptions::default(), 3, 32 << 20, 8 << 20);
    cluster.start();
    let (here, goes_on) = if seed % 2 == 1 { (0..2, true) } else { (0..1, false) };
    let [a, b, driver] = ["clienta", "clientb", "driver"].map(|name| cluster.sim.node(name));
    let cut = |cut| {
        let (mut ours, mut theirs) =
            (vec!["clienta".to_owned(), "meta".to_owned()], vec!["clientb".to_owned()]);
        (0..3).for_each(|n| if here.contains(&n) { &mut ours } else { &mut theirs }.push(brick_node(n)));
        let pairs = ours.iter().flat_map(|a| theirs.iter().map(move |b| (a, b)));
        pairs.for_each(|(a, b)| cluster.sim.partition(a, b, cut));
    };
    cluster.sim.block_on("driver", async {
        driver.sleep(2_000_000).await;
        create_volume(&driver, "1+2", 16 << 10, 4, 6).await;
        let a = Client::mount(a.clone(), 1 << 20, Encode::Client).await;
        let b = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        let open = async |client: &Client, name: &str| {
            client.session.create(InodeId::ROOT, name.as_bytes(), OWNER).await.expect("created").handle
        };
        let (of_a, of_b) = (open(&a, "a").await, open(&b, "b").await);
        write(&a, of_a, 1).await.expect("written");
        write(&b, of_b, 2).await.expect("written");
        let attr = b.session.lookup(InodeId::ROOT, b"a").await.expect("found");
        let seen = b.session.open(attr.inode, false, false).await.expect("opened").handle;
        cut(true);
        let stopped = b.world.timeout(APART_US + WORK_US, write(&b, of_b, 4));
        let stopped = async {
            let done = stopped.await;
            assert!(!matches!(done, Some(Ok(()))), "seed {seed}: the part without the service has confirmed");
        };
        let goes = async {
            driver.sleep(APART_US).await;
            let done = a.world.timeout(WORK_US / 2, write(&a, of_a, 3)).await;
            match (goes_on, done) {
                (true, Some(Ok(()))) => {}
                (true, other) => panic!("seed {seed}: the part with the service does not go on: {other:?}"),
                (false, Some(Ok(()))) => panic!("seed {seed}: one copy of three was enough"),
                (false, _) => {}
            }
            // Client `b` has it open, and cannot know what `a` wrote: it gets nothing rather than something old.
            let read = b.world.timeout(WORK_US / 4, b.session.read(seen, 0, LEN)).await;
            assert!(!matches!(read, Some(Ok(_))), "seed {seed}: the part that has stopped is read");
        };
        futures_util::future::join(stopped, goes).await;
        cut(false);
        settled(&driver, seed).await;
        let c = Client::mount(cluster.sim.node("clientc"), 1 << 20, Encode::Auto).await;
        let check = ParityCheck::new(&driver, map(&driver).await.volumes.remove(0), BTreeSet::new());
        // What nobody confirmed may have happened.
        for (name, versions) in [("a", if goes_on { &[3][..] } else { &[1, 3] }), ("b", &[2, 4])] {
            let attr = c.session.lookup(InodeId::ROOT, name.as_bytes()).await.expect("found");
            let handle = c.session.open(attr.inode, false, false).await.expect("opened").handle;
            let bytes = c.session.read(handle, 0, LEN).await.expect("read");
            assert!(is_one_of(&bytes, versions), "seed {seed}: {name} is not one of {versions:?}");
            let mut compared = Compared::default();
            let checked = check.object(attr.object, attr.size, &mut compared).await;
            checked.unwrap_or_else(|why| panic!("seed {seed}: {name}: {why}"));
            assert!(compared.units > 0);
        }
    });
}

/// All is served and live again.
async fn settled(driver: &World, seed: u64) {
    let nobody = BTreeSet::new();
    liveness::all_served(driver, 3, &nobody).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    liveness::all_live(driver, &nobody).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    liveness::all_folded(driver, 3, &nobody).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
}
