//! A brick that has not heard of a volume yet does not count an operation on it as done: one is sent, and must be
//! refused in such a way that it comes again.

use types::Seq;
use types::checksum::crc;
use types::messages::brick::{OpKind, Prepare};

use super::*;

/// The primary must send it again. With the refusal for a removed object, the operation would count as held.
#[test]
fn an_operation_on_a_volume_that_is_not_known_yet_is_not_gone() {
    let bench = Bench::new(1, small(256), 4096);
    bench.start_brick();
    let client = bench.client();
    bench.sim.block_on("client", async {
        client.read(StripeKey::default()).await.expect("the brick serves");
        let epoch = client.epoch();
        let group = GroupId { volume: VolumeId(77), index: 0 };
        let prepare = Prepare {
            group,
            seq: Seq::new(epoch, 1),
            key: StripeKey { object: ObjectId(5), stripe: 0 },
            slot: 0,
            kind: OpKind::Full,
            participants: 1,
            spans: Vec::new(),
            unit_blocks: vec![1],
            identities: Vec::new(),
            base: Seq::NONE,
            origins: Vec::new(),
            acked: Vec::new(),
            decided: Seq::NONE,
            urgent: false,
            staged: false,
            crcs: vec![crc(&[1; BLOCK])],
        };
        let answer = client.peers.call(AT, epoch, &prepare, Buf::copy_of(&[1; BLOCK])).await;
        assert_eq!(answer.map(|_| ()), Err(CallError::Refused(Refusal::NotServing)));
    });
}
