//! An answer that took long tells where the time went: the own device, the stripe's lane, or another brick's journal.

use types::wire::Served;
use world::trace::{SpanKind, Trace};

use super::cluster::{TestCluster, UNIT, node};
use super::*;

const K: usize = 2;
const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };

/// What the slowest answer to some calls told.
async fn told(calls: impl Future<Output = ()>) -> Option<Served> {
    let trace = Trace::new();
    trace.run(calls).await;
    let spans = trace.take();
    let told = |span: &world::trace::Span| match &span.kind {
        SpanKind::Call { served, .. } => served.as_deref().copied(),
        _ => None,
    };
    spans.iter().filter_map(told).max_by_key(|served| served.own.total_us)
}

#[test]
fn a_brick_tells_of_its_slow_device_and_a_primary_of_another_bricks() {
    let cluster = TestCluster::new(7, K, 1, 0, 1024);
    let mut client = cluster.client();
    cluster.sim.block_on("client", async {
        let whole = client.patch(0, K * UNIT, Some(1));
        client.write_stable(KEY, &whole).await.expect("stable");
    });
    // A stable write waits for every slot. Slot 1 is slow, slot 2 is the primary.
    cluster.sim.slow_disk(&node(1), "disk", 100);
    cluster.sim.block_on("client", async {
        let over = client.patch(UNIT + 10, 100, Some(2));
        let served = told(async { client.write_stable(KEY, &over).await.expect("stable") }).await;
        let Served { own, other } = served.expect("it took long");
        let other = other.expect("the primary has waited for another brick");
        assert_eq!(other.brick, BrickId(1), "{own:?} {other:?}");
        assert!(other.times.journal_us * 2 > own.total_us, "{own:?} {other:?}");
        assert!(other.took_us >= other.times.total_us, "{other:?}");
    });
    cluster.sim.slow_disk(&node(1), "disk", 1);
    cluster.sim.slow_disk(&node(0), "disk", 100);
    cluster.sim.block_on("client", async {
        let read = ReadUnit { group: GROUP, key: KEY, slot: 0, offset: 0, len: UNIT as u32 };
        let served = told(async {
            let call = client.peers.call("brick0:1", client.epoch(), &read, Buf::empty());
            call.await.expect("the slot is live");
        });
        let Served { own, other } = served.await.expect("it took long");
        assert!(own.device_us * 10 > own.total_us * 9 && other.is_none(), "{own:?}");
    });
}
