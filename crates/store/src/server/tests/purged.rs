//! What is gone takes no space.

use super::*;

const OBJECT: ObjectId = ObjectId(5);

fn bench() -> Bench {
    let bench = Bench::new(31, small(600), 8 * BLOCK as u32);
    bench.start_brick();
    bench
}

#[test]
fn zeros_over_everything_leave_no_blocks() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let capacity = client.report().await.free;
        let key = StripeKey { object: OBJECT, stripe: 2 };
        for (len, fill) in [(3 * BLOCK - 100, Some(7)), (3 * BLOCK, None)] {
            let patch = client.patch(0, len, fill);
            client.write(key, &patch).await.expect("written");
            client.sync().await;
        }
        client.world.sleep(5_000_000).await;
        let report = client.report().await;
        assert_eq!((report.overlays, report.free), (0, capacity), "folded, and nothing is left");
        assert!(client.read(key).await.expect("readable").iter().all(|byte| *byte == 0));
    });
}

/// Bytes that were written beyond the size, and cut off or never told of, are known to the brick alone.
#[test]
fn a_purge_takes_what_lies_beyond_the_size_that_it_names() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let capacity = client.report().await.free;
        let key = StripeKey { object: OBJECT, stripe: 5 };
        for (offset, len) in [(0, 8 * BLOCK), (100, 200)] {
            let patch = client.patch(offset, len, Some(3));
            client.write(key, &patch).await.expect("written");
        }
        client.sync().await;
        client.purge(OBJECT, 1).await;
        client.world.sleep(1_000_000).await;
        let report = client.report().await;
        assert_eq!((report.overlays, report.free), (0, capacity));
        bench.sim.power_cut("brick");
        bench.start_brick();
        let report = client.report().await;
        assert_eq!((report.overlays, report.free), (0, capacity), "a replay comes to the same");
    });
}
