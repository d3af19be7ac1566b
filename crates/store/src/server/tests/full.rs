//! A full brick says so, keeps what it has, and goes on when space comes back: it is filled, loses power, is compared
//! and emptied, three times.

use super::*;

/// Writes stripes of an object, synced every now and then, until there is no space. Returns how many were written.
async fn fill(client: &mut Client, object: ObjectId, len: usize, stripes: u64) -> u64 {
    for stripe in 0..stripes {
        let key = StripeKey { object, stripe };
        let patch = client.patch(0, len, Some(stripe as u8));
        match client.write(key, &patch).await {
            Ok(()) => {}
            Err(Refusal::NoSpace) => {
                client.sync().await;
                return stripe;
            }
            Err(other) => panic!("{other}"),
        }
        if stripe % 16 == 15 {
            client.sync().await;
        }
    }
    panic!("{stripes} stripes fit");
}

async fn compare(client: &mut Client, object: ObjectId, len: usize, stripes: u64) {
    for stripe in 0..stripes {
        let mut expected = client.patch(0, len, Some(stripe as u8)).bytes.expect("bytes");
        expected.resize(client.geometry.stripe(), 0);
        let found = client.read(StripeKey { object, stripe }).await.expect("readable");
        assert!(found == expected, "stripe {stripe} is as it was written");
    }
}

/// Fills a brick, restarts it, purges, and fills it again. This can be repeated without a limit.
fn full(superblock: Superblock, unit: u32, len: usize, stripes: u64) -> u64 {
    let bench = Bench::new(11, superblock, unit);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let capacity = client.report().await.free;
        let mut first = None;
        for round in 1..4 {
            let object = ObjectId(round);
            let written = fill(&mut client, object, len, stripes).await;
            assert!(
                written > 0 && first.is_none_or(|first| written >= first * 8 / 10),
                "{written} of {first:?}"
            );
            first.get_or_insert(written);
            // Full is full, also when there was time for checkpoints and folds, and after a restart.
            client.world.sleep(2_000_000).await;
            compare(&mut client, object, len, written).await;
            bench.sim.power_cut("brick");
            bench.start_brick();
            compare(&mut client, object, len, written).await;
            client.purge(object).await;
            client.world.sleep(1_000_000).await;
        }
        assert_eq!(client.report().await.free, capacity, "every block has come back");
        first.expect("three rounds")
    })
}

#[test]
fn without_free_blocks_nothing_is_lost_and_space_comes_back() {
    let written = full(small(512), 16 << 10, 16 << 10, 1000);
    assert!((100..128).contains(&written), "{written}");
}

/// Overlays at the limit fold, or stay where they are; nothing gets stuck.
#[test]
fn without_space_for_folds_nothing_is_lost_and_space_comes_back() {
    full(small(256), 16 << 10, 5000, 1000);
}

/// More units than their descriptors find room for.
#[test]
fn without_free_descriptors_nothing_is_lost_and_space_comes_back() {
    let written = full(with_pages(6000, 16), 4 << 10, 4096, 6000);
    assert!((400..1008).contains(&written), "{written}");
}
