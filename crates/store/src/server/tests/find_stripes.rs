//! A brick finds every stripe that exists in a range of any length: stripes lie far apart, do not fit into RAM and move
//! meanwhile, and the list is compared.

use types::StripeSet;
use types::messages::brick::FindStripes;

use super::cluster::{TestCluster, UNIT};
use super::*;

/// The last stripe that there may be.
const LAST: u64 = u64::MAX;

impl Client {
    async fn stripes(&self, object: u64, from: u64, to: u64) -> Vec<u64> {
        let (mut found, mut at) = (Vec::new(), from);
        while at < to {
            let groups = vec![(GROUP, self.epoch())];
            let find = FindStripes { groups, primary: true, object: ObjectId(object), from: at, to };
            let mut set = StripeSet::new(at..to);
            let answer = self.call(&find, Buf::empty()).await.expect("an answer").0;
            set.merge(&answer.words, answer.upto);
            found.extend(set.runs().into_iter().flatten());
            at = set.upto();
        }
        found
    }
}

/// Far more units than may be in RAM, as far apart as stripes can be.
#[test]
fn stripes_are_found_wherever_they_are() {
    let bench = Bench::new(5, small(4096), 4096);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let mut expected: Vec<u64> = Vec::new();
        for n in 0..1500_u64 {
            let stripe = if n.is_multiple_of(2) { n } else { n << 52 };
            let key = StripeKey { object: ObjectId(1 + n % 3), stripe };
            let patch = client.patch(0, 4096, Some(n as u8));
            client.write(key, &patch).await.expect("room");
            if n % 3 == 1 {
                expected.push(stripe);
            }
            if n % 100 == 99 {
                client.sync().await;
            }
        }
        client.sync().await;
        client.world.sleep(3_000_000).await;
        expected.sort_unstable();
        assert_eq!(client.stripes(2, 0, LAST).await, expected);
        let (from, to) = (expected[100], expected[400]);
        assert_eq!(client.stripes(2, from, to).await, expected[100..400]);
        let short: Vec<u64> = expected.iter().copied().filter(|stripe| *stripe < 1000).collect();
        assert_eq!(client.stripes(2, 0, 1000).await, short, "a short range");
        assert!(client.stripes(9, 0, LAST).await.is_empty());

        let groups = vec![(GROUP, client.epoch())];
        let find = FindStripes { groups, primary: true, object: ObjectId(2), from: 5, to: 5 };
        assert_eq!(client.call(&find, Buf::empty()).await.err(), Some(Refusal::Malformed));
        let find = FindStripes { groups: Vec::new(), from: 0, ..find };
        assert_eq!(client.call(&find, Buf::empty()).await.err(), Some(Refusal::Malformed));
    });
}

/// Writes, checkpoints and evictions go on meanwhile.
#[test]
fn stripes_that_move_meanwhile_are_found() {
    for seed in 0..6 {
        let bench = Bench::new(seed, small(4096), 4 * 4096);
        bench.start_brick();
        let (mut client, mut other) = (bench.client(), bench.client());
        bench.sim.block_on("client", async {
            let key = |n: u64| StripeKey { object: ObjectId(1), stripe: n << 40 };
            for n in 0..500 {
                let patch = client.patch(0, 4096, Some(n as u8));
                client.write(key(n), &patch).await.expect("room");
            }
            client.sync().await;
            client.world.sleep(1_000_000).await;
            other.seq = client.seq;
            let grow = async {
                for n in (0..500).rev() {
                    let patch = other.patch(0, 4 * 4096, Some(n as u8));
                    other.write(key(n), &patch).await.expect("room");
                    if n % 40 == 0 {
                        other.sync().await;
                    }
                }
            };
            let find = async {
                let expected: Vec<u64> = (0..500).map(|n| key(n).stripe).collect();
                for _ in 0..20 {
                    assert_eq!(client.stripes(1, 0, LAST).await, expected, "seed {seed}");
                }
            };
            futures_util::future::join(grow, find).await;
        });
    }
}

#[test]
fn what_was_accepted_is_found_and_without_parity_every_slot_is_asked() {
    let cluster = TestCluster::new(3, 2, 1, 0, 1024);
    let mut client = cluster.client();
    cluster.sim.block_on("client", async {
        let patch = client.patch(UNIT + 5, 100, Some(1));
        let key = StripeKey { object: ObjectId(1), stripe: 1 << 50 };
        client.write(key, &patch).await.expect("accepted");
        assert_eq!(client.stripes(1, 0, LAST).await, [1 << 50], "not stable, and found all the same");
        client.sync().await;
    });
    cluster.crash_and_expire(2);
    cluster.sim.block_on("client", async {
        assert!(client.stripes(1, 0, LAST).await.is_empty(), "the first data slot has nothing of it");
        let groups = vec![(GROUP, client.epoch())];
        let find = FindStripes { groups, primary: false, object: ObjectId(1), from: 0, to: LAST };
        let second = client.map.borrow().bricks[1].address.clone();
        let answer = client.peers.call(&second, client.epoch(), &find, Buf::empty()).await;
        assert_eq!(answer.expect("an answer").0.words, [(1 << 44, 1)]);
        let led = FindStripes { primary: true, ..find };
        let refused = client.peers.call(&second, client.epoch(), &led, Buf::empty()).await;
        assert_eq!(refused.err(), Some(CallError::Refused(Refusal::NotPrimary)));
    });
}
