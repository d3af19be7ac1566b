//! Units of a stripe that go along a tree of the group's members come to all of them; what makes no sense is refused, and a member
//! that is gone costs the tree and nothing else.

use types::checksum::crc_blocks;
use types::messages::brick::{Relay, RelayMember, Stage};
use types::wire::{self, Record};
use world::sim::Tampering;

use super::cluster::{TestCluster, UNIT, Workload, node};
use super::*;

const K: usize = 2;
const M: usize = 2;

fn cluster(seed: u64) -> TestCluster {
    TestCluster::new(seed, K, M, 0, 1024)
}

/// The members of a tree: slots, and the places of those that send to them.
fn members(tree: &[(u8, u8)]) -> Vec<RelayMember> {
    tree.iter().map(|&(slot, source)| RelayMember { slot, source }).collect()
}

impl Client {
    fn units(&self, patch: &Patch) -> Vec<Buf> {
        let data: Vec<&[u8]> = patch.bytes.as_ref().expect("bytes").chunks(UNIT).collect();
        let mut parity = [vec![0; UNIT], vec![0; UNIT]];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        Coder::new(self.geometry.code()).encode(&data, &mut outputs);
        data.into_iter().chain(parity.iter().map(|unit| &**unit)).map(Buf::copy_of).collect()
    }

    /// The request for a part of a tree, and its payload.
    fn relay_of(&self, key: StripeKey, patch: &Patch, tree: &[(u8, u8)]) -> (Relay, Buf) {
        let units = self.units(patch);
        let sent: Vec<u8> = if tree.len() > K {
            patch.bytes.clone().expect("bytes")
        } else {
            tree.iter().flat_map(|&(slot, _)| units[usize::from(slot)].to_vec()).collect()
        };
        let (client, seq, crcs) = (CLIENT, ClientSeq(patch.seq), crc_blocks(&sent));
        (Relay { group: GROUP, key, client, seq, members: members(tree), crcs }, Buf::copy_of(&sent))
    }

    async fn send(&self, brick: usize, relay: &Relay, payload: Buf) -> Result<(), CallError> {
        let address = format!("{}:1", node(brick));
        self.peers.call(&address, self.epoch(), relay, payload).await.map(|_| ())
    }

    async fn order(&self, key: StripeKey, patch: &Patch) -> Result<(), Refusal> {
        let write = Write {
            group: GROUP,
            key,
            client: CLIENT,
            seq: ClientSeq(patch.seq),
            acked: ClientSeq(self.acked),
            spans: vec![Span { offset: 0, len: patch.len as u32 }],
            zero: false,
            stable: true,
            staged: true,
            note: None,
        };
        self.call(&write, Buf::empty()).await.map(|_| ())
    }
}

/// Trees of four slots: a chain, a fork, two trees, all behind the last.
const TREES: [&[&[(u8, u8)]]; 5] = [
    &[&[(0, 0), (1, 0), (2, 1), (3, 2)]],
    &[&[(1, 0), (3, 0), (0, 0), (2, 1)]],
    &[&[(0, 0), (3, 0)], &[(2, 0), (1, 0)]],
    &[&[(2, 0), (3, 0), (1, 1)], &[(0, 0)]],
    &[&[(3, 0), (0, 0), (1, 0), (2, 0)]],
];

#[test]
fn units_come_to_all_members_of_a_tree() {
    for (seed, trees) in (1..).zip(TREES) {
        let cluster = cluster(seed);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            let key = StripeKey { object: ObjectId(1), stripe: 3 };
            // Until the primary serves, nothing can be ordered.
            workload.write_whole(key, 1).await;
            let patch = workload.client.patch(0, K * UNIT, Some(7));
            for tree in trees {
                let (relay, payload) = workload.client.relay_of(key, &patch, tree);
                let sent = workload.client.send(usize::from(tree[0].0), &relay, payload).await;
                assert_eq!(sent, Ok(()), "{tree:?}");
            }
            workload.client.order(key, &patch).await.expect("all units are staged");
            workload.expect(key, &patch);
            // Every unit is what the code says: any two slots give the bytes.
            cluster.compare_without_others(&workload, (seed % 4) as usize, "after a tree").await;
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cluster = cluster(9);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        let key = StripeKey { object: ObjectId(1), stripe: 0 };
        workload.write_whole(key, 1).await;
        let client = &mut workload.client;
        let patch = client.patch(0, K * UNIT, Some(7));
        let malformed = Err(CallError::Refused(Refusal::Malformed));
        // Not this brick's slot; a member twice; a slot that the code does not have; a source that comes later.
        for tree in [
            &[(1, 0), (0, 0)][..],
            &[(0, 0), (0, 0)],
            &[(0, 0), (4, 0)],
            &[(0, 0), (1, 1)],
            &[(0, 1), (1, 0)],
        ] {
            let (mut relay, payload) = client.relay_of(key, &patch, &[(0, 0), (1, 0)]);
            relay.members = members(tree);
            assert_eq!(client.send(0, &relay, payload).await, malformed, "{tree:?}");
        }
        let (relay, payload) = client.relay_of(key, &patch, &[(0, 0), (1, 0)]);
        let nobody = Relay { members: Vec::new(), ..relay.clone() };
        assert_eq!(client.send(0, &nobody, payload.clone()).await, malformed);
        let short = Relay { members: members(&[(0, 0)]), ..relay.clone() };
        assert_eq!(client.send(0, &short, payload.clone()).await, malformed, "two units for one member");
        let wrong = Relay { crcs: vec![1; relay.crcs.len()], ..relay.clone() };
        assert_eq!(client.send(0, &wrong, payload.clone()).await, malformed, "other checksums");
        let old = client.peers.call(&format!("{}:1", node(0)), Epoch(0), &relay, payload).await;
        assert_eq!(old.map(|_| ()), Err(CallError::Refused(Refusal::StaleEpoch)));
    });
}

#[test]
fn a_member_that_is_gone_costs_the_tree_and_nothing_else() {
    let cluster = cluster(10);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        let key = StripeKey { object: ObjectId(1), stripe: 0 };
        workload.write_whole(key, 1).await;
        let patch = workload.client.patch(0, K * UNIT, Some(7));
        cluster.crash(1, false);
        let (relay, payload) = workload.client.relay_of(key, &patch, &[(0, 0), (1, 0), (2, 1), (3, 2)]);
        let sent = workload.client.send(0, &relay, payload).await;
        assert_eq!(sent, Err(CallError::Refused(Refusal::NotStaged)));
        workload.compare("nothing has been ordered").await;
        cluster.start(1);
        workload.write_whole(key, 8).await;
        workload.compare("the other way").await;
    });
}

/// A client's memory may damage a unit after its checksums and the parity were computed. Its brick believes a client that sealed it.
#[test]
fn a_unit_that_its_client_damaged_is_decoded_from_the_others() {
    for damaged in 0..K + M {
        let cluster = cluster(20 + damaged as u64);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            let key = StripeKey { object: ObjectId(1), stripe: 3 };
            workload.write_whole(key, 1).await;
            let patch = workload.client.patch(0, K * UNIT, Some(7));
            for (slot, unit) in workload.client.units(&patch).into_iter().enumerate() {
                let (client, seq, crcs) = (CLIENT, ClientSeq(patch.seq), crc_blocks(&unit));
                let stage = Stage { group: GROUP, key, client, seq, slot: slot as u8, crcs };
                let mut sent = unit.to_vec();
                sent[100] ^= u8::from(slot == damaged);
                let (address, epoch) = (format!("{}:1", node(slot)), workload.client.epoch());
                let answer = workload.client.peers.call(&address, epoch, &stage, Buf::from(sent)).await;
                assert!(answer.is_ok(), "slot {slot}: {answer:?}");
            }
            workload.client.order(key, &patch).await.expect("all units are staged");
            workload.expect(key, &patch);
            workload.compare(&format!("slot {damaged} is damaged")).await;
        });
    }
}

/// Every unit that a member sends on is exchanged by `how`.
fn with_a_liar(cluster: &TestCluster, how: impl Fn(&world::Frame) -> Tampering + 'static) {
    cluster.sim.tamper(move |passing| {
        let header = &passing.frame.header;
        let is_unit = matches!(header.kind, Relay::KIND | Stage::KIND) && !header.flags.is_reply();
        (is_unit && passing.from != "client").then(|| how(passing.frame))
    });
}

#[test]
fn a_member_that_sends_on_other_bytes_or_checksums_is_noticed() {
    let other_bytes = |frame: &world::Frame| {
        let mut bytes = frame.payload.to_vec();
        bytes[100] ^= 1;
        Tampering::Payload(Buf::copy_of(&bytes))
    };
    let other_sums = |frame: &world::Frame| {
        let mut stage: Stage =
            wire::from_bytes(&frame.record).expect("the last one of a chain is sent its unit");
        stage.crcs[0] ^= 1;
        Tampering::Record(wire::to_bytes(&stage))
    };
    let liars: [fn(&world::Frame) -> Tampering; 2] = [other_bytes, other_sums];
    for liar in liars {
        let cluster = cluster(11);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            let key = StripeKey { object: ObjectId(1), stripe: 0 };
            workload.write_whole(key, 1).await;
            let patch = workload.client.patch(0, K * UNIT, Some(7));
            with_a_liar(&cluster, liar);
            let (relay, payload) = workload.client.relay_of(key, &patch, &[(0, 0), (1, 0)]);
            let sent = workload.client.send(0, &relay, payload).await;
            assert_eq!(sent, Err(CallError::Refused(Refusal::NotStaged)));
        });
    }
}
