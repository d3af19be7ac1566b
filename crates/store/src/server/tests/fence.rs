//! What was accepted of a lost client is carried out, and what comes later is refused: a client is fenced between its
//! writes.

use types::messages::brick::{Fence, NewEpoch, Stage};
use types::messages::notes::{Notes, NotesGet, SizeNote};

use super::*;

const UNIT: usize = 16 << 10;
const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };
const LATER: ClientId = ClientId(CLIENT.0 + 1);

fn fence(everywhere: bool) -> Fence {
    Fence { fences: Fences { upto: CLIENT, mounted: Vec::new() }, everywhere }
}

#[test]
fn what_was_accepted_of_a_lost_client_is_carried_and_nothing_more_is_taken() {
    let bench = Bench::new(31, small(512), UNIT as u32);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let first = client.patch(0, UNIT, Some(3));
        client.write(KEY, &first).await.expect("there is room");
        client.sync().await;
        // Accepted, and for some seconds not durable.
        bench.sim.slow_disk("brick", "disk", 10_000);
        let accepted = client.patch(100, 50, Some(7));
        client.write(KEY, &accepted).await.expect("there is room");
        let waiting = async {
            let mut waiting = bench.client();
            waiting.seq = accepted.seq;
            waiting.call(&sync_of(&waiting), Buf::empty()).await
        };
        let fencing = async {
            client.world.sleep(10_000).await;
            assert_eq!(client.call(&fence(false), Buf::empty()).await, Err(Refusal::Busy));
            bench.sim.slow_disk("brick", "disk", 1);
            while client.call(&fence(false), Buf::empty()).await == Err(Refusal::Busy) {}
        };
        let (told, ()) = futures_util::future::join(waiting, fencing).await;
        assert_eq!(told.map(|_| ()), Err(Refusal::Fenced), "nobody is told that it is stable");
        let mut expected = vec![0; UNIT];
        [&first, &accepted].iter().for_each(|patch| patch.apply(&mut expected));
        assert!(
            client.read(KEY).await == Ok(expected.clone()),
            "it was carried before the fence was answered"
        );

        let late = client.patch(0, 10, Some(9));
        assert_eq!(client.write(KEY, &late).await, Err(Refusal::Fenced));
        assert_eq!(client.write_stable(KEY, &late).await, Err(Refusal::Fenced));
        assert_eq!(client.write(KEY, &accepted).await, Err(Refusal::Fenced), "also what was seen");
        assert_eq!(client.call(&sync_of(&client), Buf::empty()).await.map(|_| ()), Err(Refusal::Fenced));
        let crcs = types::checksum::crc_blocks(&vec![1; UNIT]);
        let stage = Stage { group: GROUP, key: KEY, client: CLIENT, seq: ClientSeq(9), slot: 0, crcs };
        let staged = client.call(&stage, Buf::copy_of(&vec![1; UNIT])).await;
        assert_eq!(staged.map(|_| ()), Err(Refusal::Fenced));
        assert!(client.read(KEY).await == Ok(expected), "nothing of this has changed anything");
    });
}

pub(super) fn sync_of(client: &Client) -> Sync {
    Sync { client: CLIENT, upto: ClientSeq(client.seq), groups: vec![(GROUP, client.epoch())] }
}

#[test]
fn writes_of_a_client_that_is_fenced_everywhere_are_forgotten() {
    let bench = Bench::new(32, small(512), UNIT as u32);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        for fill in 1..20 {
            let patch = client.patch(0, 10, Some(fill));
            client.write(KEY, &patch).await.expect("there is room");
        }
        let later = Write {
            group: GROUP,
            key: KEY,
            client: LATER,
            seq: ClientSeq(1),
            acked: ClientSeq(0),
            spans: vec![Span { offset: 0, len: 1 }],
            zero: false,
            stable: true,
            staged: false,
            note: None,
        };
        client.call(&later, Buf::copy_of(&[1])).await.expect("it is not fenced");
        while client.call(&fence(false), Buf::empty()).await == Err(Refusal::Busy) {}
        let mut config = bench.map.borrow().volumes[0].groups[0].clone();
        let mut seen = async || {
            config.epoch = config.epoch.next();
            let promise = NewEpoch { group: GROUP, config: config.clone(), map: MapVersion(0) };
            let tail = client.call(&promise, Buf::empty()).await.expect("a slot promises").0;
            tail.windows.iter().map(|window| window.client).collect::<Vec<_>>()
        };
        assert_eq!(seen().await, [CLIENT, LATER], "another primary may not know of the fence yet");
        client.call(&fence(true), Buf::empty()).await.expect("nothing is under way");
        assert_eq!(seen().await, [LATER]);
        // It mounted after the fences were drawn up.
        let stranger = Write { client: ClientId(LATER.0 + 5), ..later };
        let answer = client.peers.call(&client.address(), Epoch(0), &stranger, Buf::copy_of(&[1])).await;
        assert_ne!(answer.err(), Some(CallError::Refused(Refusal::Fenced)));
    });
}

/// What a write has noted is there for the metadata service after any number of restarts and checkpoints, and is forgotten
/// with its client.
#[test]
fn what_a_lost_client_has_noted_is_told() {
    let bench = Bench::new(33, small(512), UNIT as u32);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let note = |inode, size, told| SizeNote {
            inode: types::InodeId(inode),
            truncate_seq: 2,
            size,
            mtime: 5,
            told: ClientSeq(told),
        };
        let mut noted = async |inode, size, told| {
            let patch = client.patch(0, 100, Some(3));
            let write = Write {
                group: GROUP,
                key: KEY,
                client: CLIENT,
                seq: ClientSeq(patch.seq),
                acked: ClientSeq(client.acked),
                spans: vec![Span { offset: 0, len: 100 }],
                zero: false,
                stable: true,
                staged: false,
                note: Some(note(inode, size, told)),
            };
            let bytes = Buf::copy_of(patch.bytes.as_deref().expect("bytes"));
            client.call(&write, bytes).await.expect("there is room");
            client.acked = patch.seq;
        };
        noted(7, 10, 0).await;
        noted(8, 20, 0).await;
        noted(7, 30, 0).await;
        let ask = NotesGet { clients: vec![CLIENT], groups: vec![(GROUP, client.epoch())] };
        assert_eq!(client.call(&ask, Buf::empty()).await, Err(Refusal::Invalid), "it is not fenced");
        bench.sim.kill("brick");
        bench.start_brick();
        // So many writes that checkpoints empty all segments from before them.
        for fill in 0..200u8 {
            let patch = client.patch(0, UNIT, Some(fill));
            client
                .write_stable(StripeKey { stripe: u64::from(fill % 4), ..KEY }, &patch)
                .await
                .expect("room");
            client.acked = patch.seq;
        }
        bench.sim.kill("brick");
        bench.start_brick();
        while client.call(&fence(false), Buf::empty()).await == Err(Refusal::Busy) {}
        let told = async |client: &Client| {
            // The epoch changes with a restart.
            let groups = vec![(GROUP, client.epoch())];
            let ask = NotesGet { clients: vec![CLIENT], groups };
            let (Notes { groups, notes }, _) = client.call(&ask, Buf::empty()).await.expect("it is fenced");
            assert_eq!(groups, 1);
            notes.into_iter().map(|lost| (lost.note.inode.0, lost.note.size)).collect::<Vec<_>>()
        };
        assert_eq!(told(&client).await, [(7, 30), (8, 20)]);
        client.call(&fence(true), Buf::empty()).await.expect("nothing is under way");
        assert_eq!(told(&client).await, []);
    });
}
