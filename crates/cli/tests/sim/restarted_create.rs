//! The metadata service restarts at every step of a create, while another client removes the file as soon as it sees it. The create
//! succeeds all the same.

use std::cell::Cell;
use std::rc::Rc;

use client::{ClientError, Encode};
use types::messages::names::Owner;
use types::{InodeId, Refusal};
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, create_volume};

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 3;
/// Steps of a create at which the service dies, and their length in microseconds. A create takes some 700.
const STEPS: u64 = 24;
const STEP_US: u64 = 50;

/// Removes the file whenever it is there. Returns how often it was.
async fn remove_for_ever(other: Client, stop: Rc<Cell<bool>>, removed: Rc<Cell<u32>>) {
    while !stop.get() {
        match other.session.unlink(InodeId::ROOT, b"file").await {
            Ok(_) => removed.set(removed.get() + 1),
            Err(ClientError::Refused(Refusal::NotFound)) => {}
            Err(error) => panic!("it cannot be removed: {error}"),
        }
    }
}

/// Whether the file of a create that did not get its answer was removed before it was asked for again.
fn was_removed_before(seed: u64, step: u64) -> bool {
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let (a, b) = (cluster.sim.node("clienta"), cluster.sim.node("clientb"));
    cluster.sim.block_on("clienta", async {
        a.sleep(2_000_000).await;
        create_volume(&a, "2+1", 16 << 10, 4, 6).await;
        let client = Client::mount(a.clone(), 1 << 20, Encode::Primary).await;
        let other = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        let (stop, removed) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        b.spawn("test", remove_for_ever(other, stop.clone(), removed.clone()));
        let dying = async {
            a.sleep(step * STEP_US).await;
            cluster.sim.kill("meta");
            cluster.start_meta();
        };
        let creating = client.session.open_new(InodeId::ROOT, b"file", OWNER);
        let (made, ()) = futures_util::future::join(creating, dying).await;
        let made = made.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
        // It is a file like any other.
        client.session.write(made.handle, 0, b"bytes").await.expect("written");
        let read = client.session.read(made.handle, 0, 9).await.expect("read");
        assert_eq!(read.to_vec(), b"bytes", "seed {seed}, step {step}");
        client.session.release(made.handle).await.expect("closed");
        let is_gone = || removed.get() >= 1;
        for _ in 0..100 {
            if is_gone() {
                break;
            }
            a.sleep(100_000).await;
        }
        stop.set(true);
        assert!(is_gone(), "seed {seed}, step {step}");
        // One name was there at a time.
        removed.get() > 1
    })
}

#[test]
fn a_create_succeeds_whenever_the_service_restarts() {
    let mut twice = 0;
    for seed in 1..=3 {
        for step in 0..STEPS {
            twice += u32::from(was_removed_before(seed, step));
        }
    }
    assert!(twice > 0, "the file was never removed before its creator had the answer");
}
