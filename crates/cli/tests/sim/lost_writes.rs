//! Bytes that no brick took are no part of a size: a client does not reach the bricks for longer than it tries, or ends meanwhile. Then
//! its file is what was synced and some of what was written after it, up to the first byte that was lost.

use client::Encode;
use types::InodeId;
use types::messages::names::Owner;
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, brick_node, create_volume};
use crate::prng::Prng;
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 4;
const BUDGET: u64 = 4 << 20;
/// How long the client does not reach them, in microseconds: longer than it tries to write.
const APART_US: u64 = 75_000_000;
/// How long until the lease of a client that has ended is over, and its files are settled, in microseconds.
const SETTLED_US: u64 = 15_000_000;

/// Returns whether bytes were lost.
pub(crate) fn run(seed: u64) -> bool {
    let prng = Prng::new(seed ^ 0x4c4f_5354_0000);
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let [a, b, driver] = ["clienta", "clientb", "driver"].map(|name| cluster.sim.node(name));
    let (how, ends) = (seed % 3, seed.is_multiple_of(4));
    let cut = |cut| {
        (0..BRICKS).map(brick_node).for_each(|brick| match how {
            0 => cluster.sim.partition("clienta", &brick, cut),
            1 => cluster.sim.cut_one_way("clienta", &brick, cut),
            // Bricks take the bytes, and the client does not hear of it.
            _ => cluster.sim.cut_one_way(&brick, "clienta", cut),
        });
    };
    let (synced, more) = (prng.below(300_000) as usize, 1 + prng.below(600_000) as usize);
    let all = bytes_of(seed, synced + more);
    cluster.sim.block_on("driver", async {
        driver.sleep(2_000_000).await;
        create_volume(&driver, prng.pick(&["2+1", "1+2", "4+0"]), 16 << 10, 2, 6).await;
        let a = Client::mount(a.clone(), BUDGET, prng.pick(&[Encode::Client, Encode::Primary])).await;
        let made = a.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        a.session.write(made.handle, 0, &all[..synced]).await.expect("written");
        a.session.fsync(made.handle).await.expect("synced");
        let (mut at, cut_at) = (synced, synced + prng.below(more as u64) as usize);
        while at < all.len() {
            if at >= cut_at {
                cut(true);
            }
            let end = (at + 1 + prng.below(40_000) as usize).min(all.len());
            // A mount without write-behind hears of the loss here.
            if a.session.write(made.handle, at as u64, &all[at..end]).await.is_err() {
                break;
            }
            at = end;
            driver.sleep(prng.below(20_000)).await;
        }
        cut(true);
        let fsync = driver.timeout(APART_US, a.session.fsync(made.handle)).await;
        assert!(fsync.is_some(), "seed {seed}: an fsync ends within a minute");
        if ends {
            cluster.sim.kill("clienta");
        }
        cut(false);
        driver.sleep(SETTLED_US).await;
        let b = Client::mount(b.clone(), BUDGET, Encode::Primary).await;
        let attr = b.session.lookup(InodeId::ROOT, b"file").await.expect("found");
        let opened = b.session.open(attr.inode, true, false).await.expect("opened");
        let size = opened.attr.size as usize;
        let mut found = Vec::new();
        while found.len() < size {
            let part = b.session.read(opened.handle, found.len() as u64, 70_000).await.expect("read");
            assert!(!part.is_empty(), "seed {seed}: the file is as long as its size says");
            found.extend_from_slice(&part);
        }
        assert!(found.len() == size && size >= synced, "seed {seed}: {size} bytes, {synced} were synced");
        let wrong = found.iter().zip(&all).position(|(found, written)| found != written);
        assert!(
            all.starts_with(&found),
            "seed {seed}: {size} of {} bytes, the first that was not written at {wrong:?}",
            all.len()
        );
        // The file grows over the place of what was lost.
        b.session.write(opened.handle, all.len() as u64 + 5_000, &[7]).await.expect("written");
        b.session.fsync(opened.handle).await.expect("synced");
        let gap = b.session.read(opened.handle, size as u64, all.len() + 5_000 - size).await.expect("read");
        assert!(gap.iter().all(|byte| *byte == 0), "seed {seed}: lost bytes show in a file that has grown");
        size < all.len()
    })
}
