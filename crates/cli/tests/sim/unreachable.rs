//! A brick renews its lease at the metadata service, and the others do not reach it: after some seconds writes go on without it, and
//! it is level again when it can be reached.

use std::collections::BTreeSet;

use client::Encode;
use types::messages::names::Owner;
use types::{BrickId, InodeId};
use world::sim::SimOptions;

use crate::check::liveness;
use crate::cluster::{Client, Cluster, brick_node, create_volume, map};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 6;
const LEN: usize = 64 << 10;
/// How long a write may take while nobody knows yet, and how long one of those after it, in microseconds.
const PAUSE_US: u64 = 12_000_000;
const USUAL_US: u64 = 2_000_000;
/// How long the brick is cut off, in microseconds.
const APART_US: u64 = 25_000_000;

/// Of a volume of 4+2, brick 2 and the others do not reach each other, or it and three of five; both ways, or one. Whether clients
/// reach it depends on the seed too.
pub(crate) fn run(seed: u64) {
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let [a, driver] = ["clienta", "driver"].map(|name| cluster.sim.node(name));
    let (lost, how, with_clients) = (BrickId(2), seed % 3, seed.is_multiple_of(2));
    let cut = |cut| {
        let alone = brick_node(lost.0);
        let mut others: Vec<String> = (0..BRICKS).filter(|n| *n != lost.0).map(brick_node).collect();
        others.truncate(if seed % 8 > 6 { 3 } else { others.len() });
        if with_clients {
            others.push("clienta".to_owned());
        }
        others.iter().for_each(|other| match how {
            0 => cluster.sim.partition(&alone, other, cut),
            1 => cluster.sim.cut_one_way(&alone, other, cut),
            _ => cluster.sim.cut_one_way(other, &alone, cut),
        });
    };
    cluster.sim.block_on("driver", async {
        driver.sleep(2_000_000).await;
        create_volume(&driver, "4+2", 16 << 10, 4, 12).await;
        let a = Client::mount(a.clone(), 1 << 20, Encode::Auto).await;
        let mut handles = Vec::new();
        for n in 0..12 {
            let name = format!("f{n}");
            let made = a.session.create(InodeId::ROOT, name.as_bytes(), OWNER).await.expect("created");
            handles.push(made.handle);
        }
        let write = async |version: u64| {
            let (handle, began) = (handles[version as usize % handles.len()], driver.now());
            a.session.write(handle, 0, &bytes_of(version, LEN)).await.expect("written");
            a.session.fsync(handle).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            driver.now() - began
        };
        for version in 0..24 {
            write(version).await;
        }
        cut(true);
        let (began, mut version) = (driver.now(), 24);
        while driver.now() < began + APART_US {
            let late = driver.now() > began + PAUSE_US;
            let us = write(version).await;
            let most = if late { USUAL_US } else { PAUSE_US };
            assert!(
                us <= most,
                "seed {seed}: a write took {us} us, {} us after the cut",
                driver.now() - began
            );
            version += 1;
            driver.sleep(100_000).await;
        }
        let out = |map: &types::messages::cluster::ClusterMap| {
            let out = map.bricks.iter().filter(|brick| !map.is_up(brick.id));
            out.map(|brick| brick.id).collect::<Vec<_>>()
        };
        assert_eq!(out(&map(&driver).await), [lost], "seed {seed}: the brick is put Out, and no other one");
        cut(false);
        let nobody = BTreeSet::new();
        // Its hold-down may last for a while.
        liveness::all_live(&driver, &nobody).await.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        liveness::all_served(&driver, BRICKS, &nobody)
            .await
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        for last in version - handles.len() as u64..version {
            let handle = handles[last as usize % handles.len()];
            let bytes = a.session.read(handle, 0, LEN).await.expect("read");
            assert!(*bytes == *bytes_of(last, LEN), "seed {seed}: version {last} is not there");
        }
    });
}
