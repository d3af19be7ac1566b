//! A list of the units of a slot has each of them once and in order: more units than fit into RAM are listed, also
//! while they move.

use types::Seq;
use types::messages::brick::{UnitList, UnitState};

use super::*;

const UNIT: u32 = 4096;

impl Client {
    async fn list(&self, after: Option<StripeKey>, limit: u32, only: Vec<StripeKey>) -> Vec<UnitState> {
        let (mut found, mut after) = (Vec::new(), after);
        loop {
            let list = UnitList {
                group: GROUP,
                slot: 0,
                of: 0,
                after,
                limit,
                only: only.clone(),
                decided: Seq::NONE,
            };
            let (page, _) = self.call(&list, Buf::empty()).await.expect("listed");
            assert!(page.units.len() <= limit as usize, "a page is no longer than asked");
            found.extend(page.units);
            match page.upto {
                Some(upto) => after = Some(upto),
                None => break,
            }
        }
        assert!(found.is_sorted_by(|a, b| a.key < b.key), "ascending, each once");
        found
    }
}

fn keys(listed: &[UnitState]) -> Vec<StripeKey> {
    listed.iter().map(|unit| unit.key).collect()
}

/// Far more units than may be in RAM, some with overlays, some purged: the list has those that there are.
#[test]
fn a_list_has_every_unit_once() {
    let bench = Bench::new(5, small(4096), UNIT);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let mut expected = Vec::new();
        for n in 0..1500_u64 {
            let key = StripeKey { object: ObjectId(1 + n % 5), stripe: n / 5 };
            let patch = client.patch(0, UNIT as usize, Some(n as u8));
            client.write(key, &patch).await.expect("room");
            expected.push(key);
            if n % 100 == 99 {
                client.sync().await;
            }
        }
        client.world.sleep(3_000_000).await;
        client.purge(ObjectId(3)).await;
        expected.retain(|key| key.object != ObjectId(3));
        let overlaid = StripeKey { object: ObjectId(2), stripe: 7 };
        let patch = client.patch(10, 10, Some(1));
        client.write(overlaid, &patch).await.expect("room");
        client.sync().await;
        expected.sort_unstable();
        for limit in [64, 100_000] {
            let listed = client.list(None, limit, Vec::new()).await;
            assert_eq!(keys(&listed), expected);
            assert!(listed.iter().all(|unit| unit.blocks == 1 && unit.base > Seq::NONE));
            let news: Vec<_> = listed.iter().filter(|unit| unit.dirty).map(|unit| unit.key).collect();
            assert_eq!(news, [overlaid]);
        }
        let from = client.list(Some(expected[600]), 50, Vec::new()).await;
        assert_eq!(keys(&from), expected[601..]);
        let absent = StripeKey { object: ObjectId(3), stripe: 1 };
        let only = client.list(None, 1, vec![absent, expected[3]]).await;
        assert_eq!(keys(&only), [expected[3]]);
    });
}

/// Writes, checkpoints and evictions go on while a list is made: what was there before is in it.
#[test]
fn a_list_misses_nothing_that_moves_meanwhile() {
    for seed in 0..12 {
        let bench = Bench::new(seed, small(4096), 4 * UNIT);
        bench.start_brick();
        let (mut client, mut other) = (bench.client(), bench.client());
        bench.sim.block_on("client", async {
            // Short units have smaller descriptors: when they grow, those move to other pages.
            let key = |n: u64| StripeKey { object: ObjectId(1), stripe: n };
            for n in 0..500 {
                let patch = client.patch(0, UNIT as usize, Some(n as u8));
                client.write(key(n), &patch).await.expect("room");
            }
            client.sync().await;
            client.world.sleep(1_000_000).await;
            other.seq = client.seq;
            let grow = async {
                for n in (0..500).rev() {
                    let patch = other.patch(0, 4 * UNIT as usize, Some(n as u8));
                    other.write(key(n), &patch).await.expect("room");
                    if n % 40 == 0 {
                        other.sync().await;
                    }
                }
            };
            let list = async {
                for _ in 0..20 {
                    let before = client.list(None, 100_000, Vec::new()).await;
                    assert_eq!(keys(&before), (0..500).map(key).collect::<Vec<_>>(), "seed {seed}");
                }
            };
            futures_util::future::join(grow, list).await;
        });
    }
}
