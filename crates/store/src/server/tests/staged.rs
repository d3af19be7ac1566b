//! A whole stripe that was sent ahead of its operation is written once and right: what was staged does not fit, is too
//! old, too much, or lost in a restart.

use types::checksum::crc_blocks;
use types::messages::brick::Stage;

use super::*;

const UNIT: usize = 16 << 10;
const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 3 };

fn bench() -> Bench {
    let bench = Bench::new(21, small(512), UNIT as u32);
    bench.start_brick();
    bench
}

impl Client {
    /// A whole stripe with the next number.
    fn stripe(&mut self, fill: u8) -> Patch {
        let len = self.geometry.stripe();
        self.patch(0, len, Some(fill))
    }

    fn stage_of(&self, patch: &Patch) -> (Stage, Buf) {
        let bytes = patch.bytes.as_ref().expect("bytes");
        let (client, seq) = (CLIENT, ClientSeq(patch.seq));
        let stage = Stage { group: GROUP, key: KEY, client, seq, slot: 0, crcs: crc_blocks(bytes) };
        (stage, Buf::copy_of(bytes))
    }

    async fn stage(&self, patch: &Patch) -> Result<(), Refusal> {
        let (stage, payload) = self.stage_of(patch);
        self.call(&stage, payload).await.map(|_| ())
    }

    /// Orders what was staged.
    async fn write_staged(&self, patch: &Patch) -> Result<(), Refusal> {
        let write = Write {
            group: GROUP,
            key: KEY,
            client: CLIENT,
            seq: ClientSeq(patch.seq),
            acked: ClientSeq(self.acked),
            spans: vec![Span { offset: 0, len: patch.len as u32 }],
            zero: false,
            stable: false,
            staged: true,
            note: None,
        };
        self.call(&write, Buf::empty()).await.map(|_| ())
    }

    /// Waits for an epoch after this one, as long as the brick may take to ask for it.
    async fn epoch_after(&self, epoch: Epoch) {
        for _ in 0..1000 {
            if self.epoch() > epoch {
                return;
            }
            self.world.sleep(10_000).await;
        }
        panic!("no epoch after {epoch}");
    }

    /// The way through the primary, and what it comes to.
    async fn send_again(&mut self, patch: &Patch) {
        self.write(KEY, patch).await.expect("accepted");
        self.sync().await;
        assert_eq!(Some(self.read(KEY).await.expect("readable")), patch.bytes);
    }
}

#[test]
fn a_staged_stripe_is_written_without_its_bytes() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let free = client.report().await.free;
        for fill in 1..20 {
            let patch = client.stripe(fill);
            client.stage(&patch).await.expect("staged");
            client.write_staged(&patch).await.expect("accepted");
            // A repeated one is one.
            client.write_staged(&patch).await.expect("accepted");
            client.sync().await;
            assert_eq!(Some(client.read(KEY).await.expect("readable")), patch.bytes);
        }
        let report = client.report().await;
        assert_eq!((report.ordered, report.damaged), (19, 0));
        assert_eq!(free - report.free, UNIT as u64, "one stripe is left");
        bench.sim.power_cut("brick");
        bench.start_brick();
        let last = client.patch(0, UNIT, Some(19));
        assert_eq!(Some(client.read(KEY).await.expect("readable")), last.bytes, "it was stable");
    });
}

#[test]
fn amendment_11_what_does_not_fit_is_not_staged() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let patch = client.stripe(1);
        client.stage(&patch).await.expect("staged");
        let (stage, payload) = client.stage_of(&patch);
        let wrong_sum = Stage { crcs: vec![1; 4], ..stage.clone() };
        // A member sends on bytes that came from somebody else.
        let member = Peers::new(client.world.clone(), identity(Role::Brick));
        let sent_on = member.call(AT, client.epoch(), &wrong_sum, payload.clone()).await;
        assert_eq!(sent_on.map(|_| ()), Err(CallError::Refused(Refusal::Malformed)));
        let short = Stage { crcs: stage.crcs[..3].to_vec(), ..stage.clone() };
        let part = payload.slice(0..3 * BLOCK);
        assert_eq!(client.call(&short, part).await.map(|_| ()), Err(Refusal::Malformed));
        let no_slot = Stage { slot: 1, ..stage.clone() };
        assert_eq!(client.call(&no_slot, payload.clone()).await.map(|_| ()), Err(Refusal::Malformed));
        let old = client.peers.call(AT, Epoch(0), &stage, payload).await;
        assert_eq!(old.map(|_| ()), Err(CallError::Refused(Refusal::StaleEpoch)));
        assert_eq!(client.report().await.free, client.report().await.capacity);
    });
}

/// The operation is ordered and cannot be completed: a new epoch aborts it, and the bytes come the other way.
#[test]
fn amendment_6_what_was_staged_too_long_ago_comes_again_with_its_bytes() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let patch = client.stripe(1);
        client.stage(&patch).await.expect("staged");
        client.world.sleep(crate::slot::STAGED_US + 2_000_000).await;
        let epoch = client.epoch();
        client.write_staged(&patch).await.expect("accepted: nobody knows yet");
        client.epoch_after(epoch).await;
        client.send_again(&patch).await;
        assert_eq!(client.report().await.free, client.report().await.capacity - UNIT as u64);
    });
}

#[test]
fn a_restart_forgets_what_was_staged() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let patch = client.stripe(1);
        client.stage(&patch).await.expect("staged");
        let epoch = client.epoch();
        bench.sim.power_cut("brick");
        bench.start_brick();
        client.epoch_after(epoch).await;
        let epoch = client.epoch();
        client.write_staged(&patch).await.expect("accepted: nobody knows yet");
        client.epoch_after(epoch).await;
        client.send_again(&patch).await;
        // As if nothing had been staged.
        assert_eq!(client.report().await.free, client.report().await.capacity - UNIT as u64);
    });
}

/// More than a brick keeps: the rest is refused, and what was kept comes free again.
#[test]
fn a_brick_stages_no_more_than_its_free_space() {
    let bench = bench();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let mut staged = 0;
        let mut patch = client.stripe(1);
        while client.stage(&patch).await.is_ok() {
            patch = client.stripe(1);
            staged += 1;
        }
        assert!((100..=128).contains(&staged), "{staged}");
        assert_eq!(client.stage(&patch).await, Err(Refusal::NoSpace));
        client.world.sleep(crate::slot::STAGED_US + 2_000_000).await;
        client.stage(&patch).await.expect("there is room again");
        client.write_staged(&patch).await.expect("accepted");
        client.sync().await;
        assert_eq!(Some(client.read(KEY).await.expect("readable")), patch.bytes);
    });
}
