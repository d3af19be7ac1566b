//! What is purged or zeroed gives all its space back: free blocks are counted before and after, also when the purge is
//! interrupted.

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
fn a_purge_takes_what_nobody_knows_of() {
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
        client.purge(OBJECT).await;
        client.world.sleep(1_000_000).await;
        let report = client.report().await;
        assert_eq!((report.overlays, report.free), (0, capacity));
        bench.sim.power_cut("brick");
        bench.start_brick();
        let report = client.report().await;
        assert_eq!((report.overlays, report.free), (0, capacity), "a replay comes to the same");
    });
}

/// A client that does not know that the file is gone finds all of it or nothing, never bytes beside zeros.
#[test]
fn what_is_being_purged_is_not_read() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let keys = [2, 3].map(|stripe| StripeKey { object: OBJECT, stripe });
        for key in keys {
            let patch = client.patch(0, BLOCK, Some(3));
            client.write(key, &patch).await.expect("room");
        }
        client.sync().await;
        let expected = client.patch(0, BLOCK, Some(3)).bytes.expect("bytes");
        assert!(client.read(keys[0]).await.expect("there")[..BLOCK] == expected[..], "all of it");
        client.purge(OBJECT).await;
        for key in keys {
            assert_eq!(client.read(key).await, Err(Refusal::ObjectRemoved));
            assert_eq!(client.read_stripe(key).await.err(), Some(Refusal::ObjectRemoved));
        }
        let other = StripeKey { object: ObjectId(OBJECT.0 + 1), stripe: 0 };
        assert!(client.read(other).await.expect("never written").iter().all(|byte| *byte == 0));
    });
}

/// More stripes than there may be units in RAM, and more than are erased at once.
const LONG: u64 = 6000;

/// A brick with a long object, of whose stripes every third exists, and a small one.
async fn fill(client: &mut Client) -> StripeKey {
    let other = StripeKey { object: ObjectId(OBJECT.0 + 1), stripe: 0 };
    let long = (0..LONG).map(|n| StripeKey { object: OBJECT, stripe: 3 * n });
    for (n, key) in [other].into_iter().chain(long).enumerate() {
        let patch = client.patch(0, BLOCK, Some(7));
        client.write(key, &patch).await.expect("room");
        if n % 100 == 99 {
            client.sync().await;
        }
    }
    client.sync().await;
    other
}

fn long_bench() -> Bench {
    let bench = Bench::new(32, with_pages(8000, 256), BLOCK as u32);
    bench.start_brick();
    bench
}

/// Most of its units have left RAM by then, and leave it again while others are loaded.
#[test]
fn a_long_object_gives_everything_back() {
    let bench = long_bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let capacity = client.report().await.free;
        let other = fill(&mut client).await;
        assert_eq!(client.report().await.units, LONG + 1);
        client.purge(OBJECT).await;
        let report = client.report().await;
        assert_eq!((report.units, report.free), (1, capacity - BLOCK as u64), "without a restart");
        bench.sim.power_cut("brick");
        bench.start_brick();
        let report = client.report().await;
        assert_eq!((report.units, report.free), (1, capacity - BLOCK as u64), "a replay comes to the same");
        let expected = client.patch(0, BLOCK, Some(7)).bytes.expect("bytes");
        assert!(client.read(other).await.expect("readable") == expected, "and takes nothing else");
    });
}

/// How far a purge has come is nowhere but in the units: whoever asks again goes on where it was.
#[test]
fn a_purge_that_is_interrupted_goes_on() {
    let bench = long_bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let capacity = client.report().await.free;
        fill(&mut client).await;
        bench.sim.slow_disk("brick", "disk", 20);
        let (purged, _) =
            client.call(&Purge { objects: vec![OBJECT] }, Buf::empty()).await.expect("answered in time");
        assert_eq!(purged.left, vec![OBJECT], "it takes longer than an answer may");
        let units = client.report().await.units;
        assert!((2..LONG).contains(&units), "{units} units are left");
        bench.sim.power_cut("brick");
        bench.sim.slow_disk("brick", "disk", 1);
        bench.start_brick();
        client.purge(OBJECT).await;
        let report = client.report().await;
        assert_eq!((report.units, report.free), (1, capacity - BLOCK as u64));
    });
}
