//! One client and one brick do not reach each other; all others reach both. The client's requests go by way of other bricks after some
//! seconds, and directly again when the way is free.

use client::Encode;
use types::InodeId;
use types::messages::names::Owner;
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, brick_node, create_volume, map};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 6;
const FILES: u64 = 12;
const LEN: usize = 96 << 10;
/// How long an operation may take while the client does not know yet, and how long later ones, in microseconds.
const PAUSE_US: u64 = 6_000_000;
const USUAL_US: u64 = 2_000_000;
/// How long the two are apart, in microseconds.
const APART_US: u64 = 25_000_000;
/// How soon nothing goes round any more when they are not, in microseconds.
const DIRECT_US: u64 = 3_000_000;

/// Of a volume of 4+2, or of one without parity. The cut is for both ways, or for one. Another client overwrites and reads.
pub(crate) fn run(seed: u64) {
    let options = SimOptions { break_us: 60_000_000..120_000_000, ..SimOptions::default() };
    let cluster = Cluster::new(seed, options, BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let [a, b, driver] = ["clienta", "clientb", "driver"].map(|name| cluster.sim.node(name));
    let brick = brick_node(2);
    let cut = |cut| match seed % 3 {
        0 => cluster.sim.partition("clienta", &brick, cut),
        1 => cluster.sim.cut_one_way("clienta", &brick, cut),
        _ => cluster.sim.cut_one_way(&brick, "clienta", cut),
    };
    let code = if seed.is_multiple_of(2) { "4+2" } else { "4+0" };
    cluster.sim.block_on("driver", async {
        driver.sleep(2_000_000).await;
        create_volume(&driver, code, 16 << 10, 4, 12).await;
        let a = Client::mount(a.clone(), 1 << 20, Encode::Auto).await;
        let b = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        let mut handles = Vec::new();
        for n in 0..FILES {
            let name = format!("f{n}");
            let made = a.session.create(InodeId::ROOT, name.as_bytes(), OWNER).await.expect("created");
            let seen = b.session.open(made.attr.inode, true, false).await.expect("opened");
            handles.push((made.handle, seen.handle));
        }
        let epochs = async || {
            let volume = map(&driver).await.volumes.remove(0);
            volume.groups.iter().map(|group| group.epoch).collect::<Vec<_>>()
        };
        let before = epochs().await;
        let work = async |version: u64, most: u64| {
            let (ours, theirs) = handles[(version % FILES) as usize];
            let began = driver.now();
            let check = |what: &str, began: u64| {
                let us = driver.now() - began;
                assert!(us <= most, "seed {seed}: {what} {version} took {us} us");
                driver.now()
            };
            a.session.write(ours, 0, &bytes_of(version, LEN)).await.expect("written");
            a.session.fsync(ours).await.unwrap_or_else(|error| panic!("seed {seed}: {version}: {error}"));
            let began = check("a write", began);
            let seen = b.session.read(theirs, 0, LEN).await.expect("read");
            assert!(
                *seen == *bytes_of(version, LEN),
                "seed {seed}: {version} is not what the other one reads"
            );
            // The other one lays something over it: no copy of the write may come after that.
            b.session.write(theirs, 5_000, &bytes_of(version + 1_000, 9_000)).await.expect("written");
            b.session.fsync(theirs).await.expect("synced");
            let began = check("a read and a write of the other one", began);
            let seen = a.session.read(ours, 0, LEN).await.expect("read");
            let mut expected = bytes_of(version, LEN);
            expected[5_000..14_000].copy_from_slice(&bytes_of(version + 1_000, 9_000));
            assert!(*seen == *expected, "seed {seed}: {version} is not what was written");
            check("a read", began);
        };
        for version in 0..FILES {
            work(version, USUAL_US).await;
        }
        assert_eq!(a.mount.counters().requests_proxied, 0, "seed {seed}: all was reached");
        cut(true);
        let (began, mut version) = (driver.now(), FILES);
        while driver.now() < began + APART_US {
            let late = driver.now() > began + 2 * PAUSE_US;
            work(version, if late { USUAL_US } else { PAUSE_US }).await;
            version += 1;
            driver.sleep(100_000).await;
        }
        let proxied = a.mount.counters().requests_proxied;
        assert!(proxied > 0, "seed {seed}: nothing went round");
        assert_eq!(epochs().await, before, "seed {seed}: one client alone costs no epoch");
        cut(false);
        driver.sleep(DIRECT_US).await;
        let proxied = a.mount.counters().requests_proxied;
        for version in version..version + FILES {
            work(version, USUAL_US).await;
        }
        assert_eq!(
            a.mount.counters().requests_proxied,
            proxied,
            "seed {seed}: the direct way is tried again"
        );
    });
}
