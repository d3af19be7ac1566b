//! A brick passes a client's requests on to the primary, which answers as if the client had asked: a write that comes by both ways takes
//! effect once, and what the primary refuses is refused.

use types::messages::brick::{Fence, Flush};
use types::messages::proxy::{Proxied, Proxy};
use types::wire::{self, Request};

use super::cluster::{TestCluster, UNIT, Workload, node};
use super::fence::sync_of;
use super::*;

const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };
const PATIENCE_US: u64 = 8_000_000;

impl Client {
    async fn ask_by<R: Request>(
        &self,
        by: usize,
        brick: usize,
        epoch: Epoch,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        let proxy = Proxy {
            brick: BrickId(brick as u32),
            kind: R::KIND,
            record: wire::to_bytes(request),
            reply_bytes: request.reply_bytes() as u32,
            patience_us: PATIENCE_US,
        };
        let address = format!("{}:1", node(by));
        let (Proxied { record }, payload) = self.peers.call(&address, epoch, &proxy, payload).await?;
        Ok((wire::from_bytes(&record).expect("the answer of this request"), payload))
    }

    fn write_of(&self, patch: &Patch, stable: bool) -> (Write, Buf) {
        let write = Write {
            group: GROUP,
            key: KEY,
            client: CLIENT,
            seq: ClientSeq(patch.seq),
            acked: ClientSeq(self.acked),
            spans: vec![Span { offset: patch.offset as u32, len: patch.len as u32 }],
            zero: false,
            stable,
            staged: false,
            note: None,
        };
        (write, Buf::copy_of(patch.bytes.as_ref().expect("bytes")))
    }
}

#[test]
fn a_write_that_comes_by_both_ways_takes_effect_once() {
    for seed in 1..=8 {
        let cluster = TestCluster::new(seed, 2, 1, 0, 1024);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.write_whole(KEY, 1).await;
            let (primary, by) = (cluster.primary(), (cluster.primary() + 1) % 3);
            // It reaches the primary, and comes once more by way of another brick: at once, or after a later write over it.
            let first = workload.client.patch(10, UNIT, Some(3));
            let later = workload.client.patch(10, 100, Some(9));
            let client = &workload.client;
            let (request, payload) = client.write_of(&first, seed % 2 == 0);
            let copy = client.ask_by(by, primary, client.epoch(), &request, payload.clone());
            if seed % 4 < 2 {
                let direct = client.call(&request, payload.clone());
                let (copied, direct) = futures_util::future::join(copy, direct).await;
                assert!(copied.is_ok() && direct.is_ok());
                client.write_stable(KEY, &later).await.expect("room");
            } else {
                client.write_stable(KEY, &first).await.expect("room");
                client.write_stable(KEY, &later).await.expect("room");
                assert!(copy.await.is_ok());
            }
            let sync = sync_of(client);
            client.ask_by(by, primary, client.epoch(), &sync, Buf::empty()).await.expect("stable");
            workload.expect(KEY, &first);
            workload.expect(KEY, &later);
            cluster.compare_without_others(&workload, by, "after both ways").await;
        });
    }
}

#[test]
fn what_the_primary_refuses_is_refused_and_little_is_passed_on() {
    let cluster = TestCluster::new(9, 2, 1, 0, 1024);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        workload.write_whole(KEY, 1).await;
        let (primary, by) = (cluster.primary(), (cluster.primary() + 1) % 3);
        let patch = workload.client.patch(0, 100, Some(3));
        let client = &workload.client;
        let (request, payload) = client.write_of(&patch, true);
        let epoch = client.epoch();
        let ask = async |by, brick, epoch| {
            client.ask_by(by, brick, epoch, &request, payload.clone()).await.map(drop)
        };
        let refused = |refusal| Err(CallError::Refused(refusal));
        assert_eq!(ask(by, primary, Epoch(epoch.0 - 1)).await, refused(Refusal::StaleEpoch));
        assert_eq!(ask(primary, by, epoch).await, refused(Refusal::NotPrimary));
        assert_eq!(ask(by, by, epoch).await, refused(Refusal::Malformed));
        assert_eq!(ask(by, 77, epoch).await, refused(Refusal::Unreached));
        let flush = client.ask_by(by, primary, epoch, &Flush {}, Buf::empty()).await.map(drop);
        assert_eq!(flush, refused(Refusal::Unsupported), "what members ask each other");
        let fences = Fences { upto: CLIENT, mounted: Vec::new() };
        client.call(&Fence { fences, everywhere: false }, Buf::empty()).await.expect("fenced");
        assert_eq!(ask(by, primary, epoch).await, refused(Refusal::Fenced));
    });
}

#[test]
fn a_brick_that_does_not_reach_the_primary_either_says_so_soon() {
    let cluster = TestCluster::new(10, 2, 1, 0, 1024);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        workload.write_whole(KEY, 1).await;
        let (primary, by) = (cluster.primary(), (cluster.primary() + 1) % 3);
        let client = &workload.client;
        cluster.sim.partition(&node(by), &node(primary), true);
        let began = client.world.now();
        let read = ReadStripe { group: GROUP, key: KEY, offset: 0, len: 100, avoid: 0 };
        let asked = client.ask_by(by, primary, client.epoch(), &read, Buf::empty()).await;
        assert_eq!(asked.map(drop), Err(CallError::Refused(Refusal::Unreached)));
        assert!(client.world.now() - began < PATIENCE_US, "before its caller gives up");
        cluster.sim.partition(&node(by), &node(primary), false);
        while client.ask_by(by, primary, client.epoch(), &read, Buf::empty()).await.is_err() {
            assert!(client.world.now() - began < 4 * PATIENCE_US, "the way is free again");
            client.world.sleep(100_000).await;
        }
    });
}
