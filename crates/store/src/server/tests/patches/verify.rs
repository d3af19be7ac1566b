//! A comparison of the slots names every slot that differs: one unit, overlay or parity is made wrong on purpose.

use types::checksum::crc_blocks;
use types::messages::brick::{Prepare, Verified, Verify};

use super::*;

const M: usize = 2;

impl TestCluster {
    async fn verify(&self, client: &Client) -> Verified {
        let verify = Verify { group: GROUP, after: None, limit: 100 };
        client.call(&verify, Buf::empty()).await.expect("the primary compares").0
    }

    /// Slots with mismatches, and with damage, of the one stripe.
    async fn faults(&self, client: &Client) -> (u64, u64) {
        let found = self.verify(client).await;
        assert_eq!((found.stripes, found.next), (1, None));
        let slots = |faults: &[types::messages::brick::StripeFault]| {
            faults
                .iter()
                .inspect(|fault| assert_eq!(fault.key, KEY))
                .fold(0, |mask, fault| mask | fault.slots)
        };
        (slots(&found.mismatched), slots(&found.damaged))
    }

    /// Has slots hold, and know as decided, an operation that their primary knows nothing of.
    async fn slip_in(&self, client: &Client, kind: OpKind, bytes: &[(usize, Vec<u8>)]) {
        let epoch = client.epoch();
        let seq = Seq::new(epoch, 1000);
        for (slot, bytes) in bytes {
            let payload = Buf::copy_of(bytes);
            let whole = kind == OpKind::Full;
            let spans = if whole { Vec::new() } else { vec![Span { offset: 10, len: bytes.len() as u32 }] };
            let prepare = Prepare {
                slot: *slot as u8,
                participants: 0b1111,
                spans,
                unit_blocks: if whole { vec![(bytes.len() / BLOCK) as u32; K] } else { Vec::new() },
                crcs: if whole { crc_blocks(&payload) } else { Vec::new() },
                urgent: true,
                ..crate::ops::empty_prepare(GROUP, seq, KEY, kind)
            };
            let server = self.server(*slot);
            server.prepare(epoch, &prepare, payload).await.expect("held");
            let decision = types::messages::brick::GroupDecision { group: GROUP, epoch, upto: seq };
            server.apply_decisions(&[decision]).await.expect("the disk works");
        }
    }
}

/// A group whose stripe has been written, `folded` or with overlays, is as it should be; then it is spoilt.
fn spoilt(folded: bool, spoil: impl AsyncFn(&TestCluster, &Client)) -> (u64, u64) {
    let cluster = cluster(3, M);
    let mut client = cluster.client();
    cluster.sim.block_on("client", async {
        cluster.overlaid(&mut client).await;
        client.world.sleep(if folded { FOLDED_US } else { 50_000 }).await;
        assert_eq!(cluster.overlays() == 0, folded);
        assert_eq!(cluster.faults(&client).await, (0, 0), "all is well");
        spoil(&cluster, &client).await;
        cluster.faults(&client).await
    })
}

#[test]
fn a_damaged_unit_is_named() {
    for (slot, folded) in [(0, false), (1, true), (K, true), (K + 1, false)] {
        let found = spoilt(folded, async |cluster, _| {
            let server = cluster.server(slot);
            let plan = server.slot.borrow().plan_read(KEY, slot as u8, 0, 0..UNIT, None, &[]);
            let (block, _) = plan.expect("decided").blocks.1[2];
            cluster.sim.damage(&node(slot), "disk", server.superblock.data_start + block * BLOCK as u64, 1);
        });
        assert_eq!(found, (0, 1 << slot));
    }
}

#[test]
fn an_overlay_that_others_lack_is_named() {
    // Of the data slot, or of one parity slot: those differ that do not have what the data slot has.
    for (slot, expected) in [(0, 0b1100), (K + 1, 0b1000)] {
        let found = spoilt(false, async |cluster, client| {
            cluster.slip_in(client, OpKind::Overlay, &[(slot, vec![7; 100])]).await;
        });
        assert_eq!(found, (expected, 0));
    }
}

#[test]
fn a_unit_of_another_identity_is_named() {
    let found = spoilt(true, async |cluster, client| {
        cluster.slip_in(client, OpKind::Full, &[(1, vec![7; UNIT])]).await;
    });
    assert_eq!(found, (0b0010, 0));
}

#[test]
fn parity_that_fits_no_data_is_named() {
    let found = spoilt(true, async |cluster, client| {
        let data = [vec![7; UNIT], vec![9; UNIT]];
        let mut parity = vec![vec![0; UNIT]; M];
        let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut unit[..]).collect();
        let coder = Coder::new(cluster.geometry.code());
        coder.encode(&[&data[0], &data[1]], &mut outs);
        parity[1][UNIT / 2] ^= 1;
        let units: Vec<(usize, Vec<u8>)> = data.into_iter().chain(parity).enumerate().collect();
        cluster.slip_in(client, OpKind::Full, &units).await;
    });
    assert_eq!(found, (0b1000, 0));
}

/// Without parity there is nothing to compare, but what cannot be read is found.
#[test]
fn every_stripe_is_compared_also_without_a_brick() {
    let cluster = cluster(5, M);
    let mut client = cluster.client();
    cluster.sim.block_on("client", async {
        for stripe in 0..5 {
            let patch = client.patch(0, 2 * UNIT - 5, Some(stripe as u8));
            client.write(StripeKey { stripe, ..KEY }, &patch).await.expect("room");
        }
        client.sync().await;
        for lost in [None, Some(0), Some(K)] {
            lost.inspect(|brick| cluster.crash_and_expire(*brick));
            let (mut after, mut stripes, mut pages) = (None, 0, 0);
            loop {
                let verify = Verify { group: GROUP, after, limit: 2 };
                let (found, _) = client.call(&verify, Buf::empty()).await.expect("compared");
                assert!(found.mismatched.is_empty() && found.damaged.is_empty(), "{found:?}");
                (stripes, pages) = (stripes + found.stripes, pages + 1);
                match found.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!((stripes, pages), (5, 3), "without {lost:?}");
        }
    });
}
