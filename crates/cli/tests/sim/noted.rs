//! Sizes that only the bricks know: a client appends records to a log and syncs each one, while bricks and metadata servers die.
//! Then the client dies as well. Whoever looks at the file next finds everything that was synced, and nothing that was never
//! written; so does whoever asks for its attributes at any time.

use std::cell::Cell;
use std::rc::Rc;

use client::{Encode, SetAttrs};
use types::InodeId;
use types::messages::names::Owner;
use world::sim::SimOptions;

use crate::check::liveness::RECOVERY_US;
use crate::cluster::{Client, Cluster, META_NODES, brick_node, create_volume, meta_nodes};
use crate::prng::Prng;
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 5;
/// Bytes of the longest log.
const LOG: usize = 1 << 20;

/// What a writer was told. Bytes of the file: up to `synced` they are there for good, none are beyond `begun`.
#[derive(Default)]
struct Told {
    synced: Cell<usize>,
    begun: Cell<usize>,
}

/// Appends and syncs until its machine dies. Now and then it cuts the log, or writes over its end.
async fn append(client: Client, inode: InodeId, handle: u64, prng: Prng, told: Rc<Told>) {
    let bytes = bytes_of(inode.0, LOG);
    loop {
        let at = told.synced.get();
        match prng.below(40) {
            0 if at > 0 => {
                let size = at - prng.below(at.min(5000) as u64) as usize;
                told.synced.set(size);
                let changes = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
                if client.session.setattr(inode, changes).await.is_err() {
                    return;
                }
                told.begun.set(size);
                continue;
            }
            1 => client.world.sleep(prng.below(3_000_000)).await,
            _ => {}
        }
        let from = at.saturating_sub(if prng.below(4) == 0 { 700 } else { 0 });
        let end = (at + 1 + prng.below(6000) as usize).min(LOG);
        told.begun.set(end.max(told.begun.get()));
        let written = client.session.write(handle, from as u64, &bytes[from..end]).await;
        if written.is_err() || client.session.fsync(handle).await.is_err() {
            return;
        }
        told.synced.set(end);
        if end == LOG {
            return std::future::pending().await;
        }
    }
}

/// Kills and starts bricks and metadata servers, one at a time, and then the writer; `rounds` times. Returns how many records would
/// have been lost if nobody had asked the bricks.
pub(crate) fn run(seed: u64, rounds: u64) {
    let prng = Prng::new(seed);
    let mut cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    if prng.coin() {
        cluster.with_three_metas();
    }
    cluster.start();
    let driver = cluster.sim.node("driver");
    let code = prng.pick(&["2+1", "2+2", "1+2"]);
    cluster.sim.block_on("driver", async {
        driver.sleep(4_000_000).await;
        create_volume(&driver, code, 16 << 10, 4, 6).await;
        let looker = Client::mount(driver.clone(), 1 << 20, Encode::Primary).await;
        for round in 0..rounds {
            let world = cluster.sim.node("writer");
            let writer = Client::mount(world.clone(), 1 << 20, Encode::Primary).await;
            let name = format!("log{round}").into_bytes();
            let opened = writer.session.create(InodeId::ROOT, &name, OWNER).await.expect("created");
            let (inode, told) = (opened.attr.inode, Rc::new(Told::default()));
            let of_writer = Prng::new(prng.next_u64());
            world.spawn("test", append(writer, inode, opened.handle, of_writer, Rc::clone(&told)));
            for _ in 0..prng.below(4) {
                driver.sleep(prng.below(2_000_000)).await;
                fault(&cluster, &prng).await;
            }
            driver.sleep(prng.below(3_000_000)).await;
            look(&looker, inode, &told).await;
            // All at once: what only the memory of one of them knows is gone.
            let with_meta = prng.below(3) == 0;
            let with_brick = prng.below(3) == 0;
            cluster.sim.kill("writer");
            if with_meta {
                meta_nodes().iter().for_each(|node| cluster.sim.kill(node));
                driver.sleep(prng.below(1_000_000)).await;
                meta_nodes().iter().for_each(|node| cluster.start_meta_server(node));
            }
            let brick = prng.below(u64::from(BRICKS)) as u32;
            if with_brick {
                cluster.sim.power_cut(&brick_node(brick));
            }
            if prng.coin() {
                look(&looker, inode, &told).await;
            }
            if with_brick && prng.coin() {
                driver.sleep(prng.below(6_000_000)).await;
                cluster.start_brick(brick);
            }
            let found = looker.session.open(inode, true, false).await.expect("the writer is gone").handle;
            let size = looker.session.getattr(inode).await.expect("known").size as usize;
            let (synced, begun) = (told.synced.get(), told.begun.get());
            assert!(
                (synced..=begun).contains(&size),
                "seed {seed}, round {round}: {size} bytes, {synced} were synced, {begun} begun"
            );
            let bytes = looker.session.read(found, 0, LOG).await.expect("readable");
            assert!(*bytes == bytes_of(inode.0, LOG)[..size], "seed {seed}, round {round}: other bytes");
            looker.session.release(found).await.expect("closed");
            if with_brick {
                cluster.sim.kill(&brick_node(brick));
                cluster.start_brick(brick);
                driver.sleep(RECOVERY_US / 2).await;
            }
        }
    });
}

/// Nobody is shown fewer bytes than were synced when he asked.
async fn look(looker: &Client, inode: InodeId, told: &Told) {
    let synced = told.synced.get();
    let attr = looker.session.getattr(inode).await.expect("the service is there");
    // A cut may have come between.
    assert!(
        attr.size as usize >= synced.min(told.synced.get()),
        "{} bytes are shown, {synced} were synced",
        attr.size
    );
}

async fn fault(cluster: &Cluster, prng: &Prng) {
    let driver = cluster.sim.node("driver");
    if prng.coin() {
        let node = prng.pick(&META_NODES[..meta_nodes().len()]);
        cluster.sim.power_cut(node);
        driver.sleep(prng.below(2_000_000)).await;
        cluster.start_meta_server(node);
    } else {
        let brick = prng.below(u64::from(BRICKS)) as u32;
        cluster.sim.power_cut(&brick_node(brick));
        driver.sleep(prng.below(8_000_000)).await;
        cluster.start_brick(brick);
    }
    driver.sleep(RECOVERY_US / 4).await;
}
