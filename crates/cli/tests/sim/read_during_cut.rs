//! When a truncation is done, no read is left that goes by the size from before: reads are delayed into truncations,
//! and what they return is compared.

use std::cell::Cell;

use client::{ClientError, Encode, SetAttrs};
use futures_util::future::join;
use types::messages::names::Owner;
use types::{Buf, InodeId, Refusal};
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, brick_node, create_volume};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 4;
const LEN: usize = 100_000;
const CUT: u64 = 10_000;
/// Well below a lease.
const SHORT_US: u64 = 1_000_000;
/// Well above a lease.
const LONG_US: u64 = 12_000_000;

/// What came of a read that began before another client cut the file.
struct Outcome {
    read: Result<Buf, ClientError>,
    /// When it was done, and when the cut was, in microseconds.
    read_at: u64,
    cut_at: u64,
    bytes: Vec<u8>,
}

/// A reader that opened the file for reading only is cut off from the bricks, and from the service too if `from_service`,
/// for `away_us`.
fn run(seed: u64, from_service: bool, away_us: u64) -> Outcome {
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let (a, b) = (cluster.sim.node("clienta"), cluster.sim.node("clientb"));
    let cut_off = |cut: bool| {
        (0..BRICKS).for_each(|brick| cluster.sim.partition("clienta", &brick_node(brick), cut));
        if from_service {
            cluster.sim.partition("clienta", "meta", cut);
        }
    };
    let (read_at, cut_at) = (Cell::new(0), Cell::new(0));
    let bytes = bytes_of(seed, LEN);
    let read = cluster.sim.block_on("clientb", async {
        b.sleep(2_000_000).await;
        create_volume(&b, "2+1", 16 << 10, 4, 6).await;
        let writer = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        let reader = Client::mount(a.clone(), 1 << 20, Encode::Primary).await;
        let made = writer.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        writer.session.write(made.handle, 0, &bytes).await.expect("written");
        writer.session.fsync(made.handle).await.expect("synced");
        let opened = reader.session.open(made.attr.inode, false, false).await.expect("opened");

        (0..BRICKS).for_each(|brick| cluster.sim.partition("clienta", &brick_node(brick), true));
        let reading = async {
            let read = reader.session.read(opened.handle, 0, 2 * LEN).await;
            read_at.set(b.now());
            read
        };
        let cutting = async {
            // By now the reader knows how long the file is.
            b.sleep(100_000).await;
            cut_off(true);
            let changes = SetAttrs { size: Some(CUT), ..SetAttrs::default() };
            writer.session.setattr(made.attr.inode, changes).await.expect("cut");
            cut_at.set(b.now());
        };
        let healing = async {
            b.sleep(away_us).await;
            cut_off(false);
        };
        let (read, ..) = join(reading, join(cutting, healing)).await;
        read
    });
    Outcome { read, read_at: read_at.get(), cut_at: cut_at.get(), bytes }
}

/// A client that has a file alone reaches no brick when it begins to read, cuts the file, and reaches them again. Returns
/// how much it has read.
fn read_beside_own_cut(seed: u64) -> usize {
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let a = cluster.sim.node("clienta");
    let cut_off =
        |cut| (0..BRICKS).for_each(|brick| cluster.sim.partition("clienta", &brick_node(brick), cut));
    cluster.sim.block_on("clienta", async {
        a.sleep(2_000_000).await;
        create_volume(&a, "2+1", 16 << 10, 4, 6).await;
        let client = Client::mount(a.clone(), 1 << 20, Encode::Primary).await;
        let made = client.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        client.session.write(made.handle, 0, &bytes_of(seed, LEN)).await.expect("written");
        client.session.fsync(made.handle).await.expect("synced");
        cut_off(true);
        let reading = client.session.read(made.handle, 0, 2 * LEN);
        let cutting = async {
            a.sleep(100_000).await;
            let changes = SetAttrs { size: Some(CUT), ..SetAttrs::default() };
            client.session.setattr(made.attr.inode, changes).await.expect("cut");
            cut_off(false);
        };
        join(reading, cutting).await.0.expect("read").len()
    })
}

#[test]
fn a_read_beside_the_own_cut_goes_by_the_new_size() {
    for seed in 1..=4 {
        assert_eq!(read_beside_own_cut(seed), CUT as usize, "seed {seed}");
    }
}

#[test]
fn a_cut_waits_for_the_reads_that_are_under_way() {
    for seed in 1..=4 {
        let outcome = run(seed, false, SHORT_US);
        assert!(
            outcome.read.expect("read").to_vec() == outcome.bytes,
            "seed {seed}: the file before the cut"
        );
        assert!(outcome.read_at <= outcome.cut_at, "seed {seed}: cut at {}", outcome.cut_at);
    }
}

#[test]
fn a_read_that_no_cut_waits_for_fails() {
    for seed in 1..=4 {
        let outcome = run(seed, true, LONG_US);
        assert!(outcome.cut_at < outcome.read_at, "seed {seed}: the reader is given up");
        let error = outcome.read.map(|bytes| bytes.len());
        assert_eq!(error, Err(ClientError::Refused(Refusal::Fenced)), "seed {seed}");
    }
}
