//! Nothing is lost when two bricks die and everything loses power: the shortest story, whose trace also shows that one
//! seed is one run.

use client::Encode;
use types::InodeId;
use types::messages::names::Owner;
use world::World;

use crate::cluster::{Client, Cluster, brick_node, create_volume};

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };

/// Bytes that tell their file and place.
pub(crate) fn bytes_of(file: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ file.wrapping_mul(97)) as u8).collect()
}

async fn write_file(client: &Client, name: &str, bytes: &[u8], sync: bool) {
    let opened = client.session.create(InodeId::ROOT, name.as_bytes(), OWNER).await.expect("created");
    for (i, part) in bytes.chunks(100_000).enumerate() {
        client.session.write(opened.handle, i as u64 * 100_000, part).await.expect("written");
    }
    if sync {
        client.session.fsync(opened.handle).await.expect("synced");
    }
    client.session.flush(opened.handle).await.expect("flushed");
    client.session.release(opened.handle).await.expect("closed");
}

async fn read_file(client: &Client, name: &str) -> Vec<u8> {
    let attr = client.session.lookup(InodeId::ROOT, name.as_bytes()).await.expect("found");
    let opened = client.session.open(attr.inode, false, false).await.expect("opened");
    let mut bytes = Vec::new();
    while bytes.len() < opened.attr.size as usize {
        let part = client.session.read(opened.handle, bytes.len() as u64, 70_000).await.expect("read");
        assert!(!part.is_empty(), "the file is as long as its size says");
        bytes.extend_from_slice(&part);
    }
    client.session.release(opened.handle).await.expect("closed");
    bytes
}

/// Sizes at every boundary.
const SIZES: [usize; 9] = [0, 1, 4096, 5000, 16 << 10, (128 << 10) - 1, 128 << 10, (128 << 10) + 1, 700_000];

async fn compare(client: &Client) {
    for (file, size) in SIZES.iter().enumerate() {
        let found = read_file(client, &format!("file{file}")).await;
        assert!(found == bytes_of(file as u64, *size), "file{file} of {size} bytes is as it was written");
    }
}

pub(crate) fn run(cluster: &Cluster) {
    cluster.start();
    let node = |name: &str| -> World { cluster.sim.node(name) };
    let (a, b) = (node("clienta"), node("clientb"));
    cluster.sim.block_on("clienta", async {
        a.sleep(2_000_000).await;
        create_volume(&a, "8+2", 16 << 10, 4, 20).await;
        let first = Client::mount(a.clone(), 1 << 20, Encode::Client).await;
        for (file, size) in SIZES.iter().enumerate() {
            write_file(&first, &format!("file{file}"), &bytes_of(file as u64, *size), true).await;
        }
        compare(&first).await;
        let second = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        compare(&second).await;
        cluster.sim.kill(&brick_node(3));
        compare(&second).await;
        a.sleep(6_000_000).await;
        write_file(&first, "late", &bytes_of(99, 300_000), true).await;
        cluster.sim.kill(&brick_node(7));
        compare(&second).await;
        assert!(read_file(&second, "late").await == bytes_of(99, 300_000));
        let counters = second.mount.counters();
        assert!(counters.units_decoded > 0, "two bricks are gone: something was decoded");
    });
    cluster.power_cut_all();
    cluster.sim.kill("clienta");
    cluster.sim.kill("clientb");
    cluster.start();
    let c = node("clientc");
    cluster.sim.block_on("clientc", async {
        let third = Client::mount(c.clone(), 1 << 20, Encode::Auto).await;
        compare(&third).await;
        assert!(read_file(&third, "late").await == bytes_of(99, 300_000));
    });
}
