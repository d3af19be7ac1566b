//! Small overlays take no more than their share of the RAM: far more of them are written than fit, and they are counted
//! and compared.

use super::*;

/// Tiny overlays fill the RAM for them long before the journal: they are folded, and writers wait for that.
#[test]
fn overlays_stay_within_their_share_of_the_ram() {
    const UNIT: usize = 16 << 10;
    const STRIPES: u64 = 24;
    let bench = Bench::new(12, small(2048), UNIT as u32);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let object = ObjectId(1);
        let mut expected = Vec::new();
        for stripe in 0..STRIPES {
            let patch = client.patch(0, UNIT, Some(stripe as u8));
            client.write(StripeKey { object, stripe }, &patch).await.expect("room");
            expected.push(patch.bytes.expect("bytes"));
        }
        let (mut most, mut at) = (0, 0);
        for number in 0..4000_u64 {
            let stripe = number % STRIPES;
            at = (at + 4099) % (UNIT - 8);
            let patch = client.patch(at, 8, Some(number as u8));
            client.write(StripeKey { object, stripe }, &patch).await.expect("room");
            patch.apply(&mut expected[stripe as usize]);
            if number % 16 == 15 {
                client.sync().await;
                most = most.max(client.report().await.overlays);
            }
        }
        // A quarter of the budget of 1 MiB, at 768 bytes and a range each.
        assert!((80..=330).contains(&most), "{most} overlays at once");
        for (stripe, expected) in (0..).zip(&expected) {
            let found = client.read(StripeKey { object, stripe }).await.expect("readable");
            assert!(found == *expected, "stripe {stripe} is as it was written");
        }
    });
}
