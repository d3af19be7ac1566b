//! A primary says where bytes are: nowhere too few, and none where nothing is. The test writes and zeroes, and compares
//! the ranges after each step.

use types::messages::brick::FindBytes;

use super::cluster::{TestCluster, UNIT};
use super::*;

const K: usize = 2;

fn key(stripe: u64) -> StripeKey {
    StripeKey { object: ObjectId(1), stripe }
}

/// The ranges of some stripes from the first on.
async fn found(client: &Client, stripes: u32) -> Vec<std::ops::Range<usize>> {
    let find = FindBytes { group: GROUP, key: key(0), stripes };
    let answer = client.call(&find, Buf::empty()).await.expect("an answer").0;
    answer.ranges.iter().map(Span::range).collect()
}

#[test]
fn bytes_are_found_from_the_moment_that_they_are_accepted() {
    let cluster = TestCluster::new(3, K, 1, 0, 1024);
    let mut client = cluster.client();
    let stripe = K * UNIT;
    cluster.sim.block_on("client", async {
        assert_eq!(found(&client, 4).await, []);
        // A few bytes in the second unit: its blocks up to them. Not stable, and found all the same.
        let few = client.patch(UNIT + 5000, 100, Some(1));
        client.write(key(1), &few).await.expect("accepted");
        let block = 2 * BLOCK;
        let first = stripe + UNIT..stripe + UNIT + block;
        assert_eq!(found(&client, 4).await, std::slice::from_ref(&first));
        let whole = client.patch(0, stripe, Some(2));
        client.write(key(2), &whole).await.expect("accepted");
        // An overlay behind the end of a short unit.
        let over = client.patch(UNIT + 3 * BLOCK, 10, Some(3));
        client.write(key(1), &over).await.expect("accepted");
        let overlay = stripe + UNIT + 3 * BLOCK;
        let all = [first, overlay..overlay + 10, 2 * stripe..3 * stripe];
        assert_eq!(found(&client, 4).await, all);
        assert_eq!(found(&client, 1).await, []);
        client.sync().await;
        let zeros = client.patch(0, stripe, None);
        client.write_stable(key(2), &zeros).await.expect("stable");
        assert_eq!(found(&client, 4).await, all[..2]);

        for (stripe, stripes) in [(0, 0), (0, 65), (63, 2), (u64::MAX, 2)] {
            let find = FindBytes { group: GROUP, key: key(stripe), stripes };
            assert_eq!(client.call(&find, Buf::empty()).await.err(), Some(Refusal::Malformed), "{stripe}");
        }
    });
    // Without parity nobody knows what the data slots have.
    cluster.crash_and_expire(K);
    cluster.sim.block_on("client", async {
        let whole: Vec<_> = std::iter::once(0..4 * stripe).collect();
        assert_eq!(found(&client, 4).await, whole);
    });
}
