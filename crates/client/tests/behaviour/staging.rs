//! Whole stripes go straight to their bricks, and through the primary where that fails: bricks refuse, are silent or
//! forget, and the fakes count which way the bytes came.

use client::Encode;
use types::BrickId;

use crate::fakes::{Cluster, OWNER};
use crate::{ROOT, STRIPE, pattern};

/// Writes so many stripes and half a one; `(staged, sent)` whole stripes.
async fn write_stripes(cluster: &Cluster, encode: Encode, count: usize) -> (u64, u64) {
    cluster.known().encode = encode;
    let (mount, session) = cluster.mount("client").await;
    let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
    let bytes = pattern(count * STRIPE + STRIPE / 2, count);
    for (i, part) in bytes.chunks(3000).enumerate() {
        assert_eq!(session.write(opened.handle, (i * 3000) as u64, part).await, Ok(part.len()));
    }
    session.fsync(opened.handle).await.unwrap();
    assert!(cluster.known().stable(b"f") == bytes);
    assert_eq!(mount.counters().unstable_bytes, 0);
    (mount.counters().stripes_staged, mount.counters().stripes_sent)
}

#[test]
fn whole_stripes_go_straight_to_their_bricks() {
    let cluster = Cluster::new(21, "2+1", 4);
    cluster.run(async {
        assert_eq!(write_stripes(&cluster, Encode::Client, 10).await, (10, 0));
        assert_eq!(cluster.calls("Stage"), 30);
        assert_eq!(cluster.known().written, (STRIPE / 2) as u64, "only the last half through a primary");
    });
}

#[test]
fn who_encodes_can_be_chosen() {
    // Units of 4 KiB are not worth a message each.
    for (encode, expected) in [(Encode::Primary, (0, 5)), (Encode::Auto, (0, 5)), (Encode::Client, (5, 0))] {
        let cluster = Cluster::new(22, "2+1", 4);
        cluster.run(async { assert_eq!(write_stripes(&cluster, encode, 5).await, expected) });
    }
}

#[test]
fn slots_that_are_out_are_left_out() {
    let cluster = Cluster::new(23, "2+1", 3);
    cluster.expel(BrickId(2));
    cluster.run(async {
        assert_eq!(write_stripes(&cluster, Encode::Client, 10).await, (10, 0));
        assert_eq!(cluster.calls("Stage"), 20);
    });
}

#[test]
fn a_brick_that_refuses_sends_the_stripe_through_the_primary() {
    let cluster = Cluster::new(24, "2+1", 3);
    cluster.known().unwilling.insert(BrickId(2));
    cluster.run(async { assert_eq!(write_stripes(&cluster, Encode::Client, 10).await, (0, 10)) });
}

#[test]
fn a_silent_brick_sends_the_stripe_through_the_primary() {
    let cluster = Cluster::new(25, "2+1", 4);
    cluster.known().mute.insert(BrickId(4));
    let world = cluster.sim.node("client");
    let known = cluster.known.clone();
    world.clone().spawn("test", async move {
        world.sleep(5_000_000).await;
        known.borrow_mut().mute.clear();
    });
    cluster.run(async {
        let (_, sent) = write_stripes(&cluster, Encode::Client, 20).await;
        assert!(sent > 0);
    });
}

/// What was staged is lost after the write was accepted: a new epoch, and the bytes come with the same number.
#[test]
fn a_lost_stage_comes_again_with_its_bytes() {
    let cluster = Cluster::new(26, "2+1", 3);
    cluster.known().forgetful = true;
    cluster.run(async {
        let (staged, sent) = write_stripes(&cluster, Encode::Client, 8).await;
        assert!(sent > 0 && staged > 0, "{staged} {sent}");
        assert!(cluster.known().written >= (STRIPE / 2 + STRIPE) as u64);
    });
}

/// A stripe is still on its way to its bricks when a later write is stable, and comes to the primary before the answer
/// to that one comes back: the answer says nothing about it.
#[test]
fn what_is_accepted_after_a_stable_write_is_not_stable_with_it() {
    let cluster = Cluster::new(27, "2+1", 3);
    {
        let mut known = cluster.known();
        (known.encode, known.stage_us, known.answer_us) = (Encode::Client, 10_000, 50_000);
    }
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let bytes = pattern(STRIPE + 300, 1);
        session.write(opened.handle, 0, &bytes[..STRIPE]).await.unwrap();
        // The whole stripe has left with the lower number.
        cluster.sim.node("client").sleep(1_000).await;
        session.write(opened.handle, STRIPE as u64, &bytes[STRIPE..]).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable_writes, 1, "the later write alone waited for stability");
        assert!(cluster.known().stable(b"f") == bytes, "stable is what the primary says of what it has");
    });
}
