//! Nothing of a lost client appears once another one has its file: a client is cut off in the middle of its writes, its
//! messages arrive late, and every byte is compared.

use client::{ClientError, Encode, SetAttrs};
use futures_util::future::join;
use types::messages::brick::{Span, Write};
use types::messages::cluster::ClusterMap;
use types::messages::names::{Attr, Owner};
use types::messages::session::Role;
use types::{BrickId, Buf, ClientId, ClientSeq, GroupId, InodeId, Refusal, StripeKey};
use world::sim::SimOptions;
use world::{CallError, Peers, World};

use crate::cluster::{Client, Cluster, brick_node, create_volume, identity, map};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 4;
const LEN: usize = 100_000;

/// A message of a client that the network delivers late: its last try, addressed by the newest map.
struct Late {
    world: World,
    peers: Peers,
    client: ClientId,
    file: Attr,
}

impl Late {
    /// The group of the file's first stripe, its epoch's number, and its primary.
    fn primary(&self, map: &ClusterMap) -> (GroupId, types::Epoch, BrickId) {
        let volume = &map.volumes[0];
        let group = layout::group_of(volume.id, self.file.object, 0, &(0..volume.groups.len() as u32));
        let config = &volume.groups[group.index as usize];
        let slot = config.primary(volume.geometry.code()).expect("enough live");
        (group, config.epoch, config.slots[slot].brick)
    }

    /// What its primary says to it, once it is served.
    async fn arrive(&self, seq: u64) -> Result<(), Refusal> {
        for _ in 0..2000 {
            let map = map(&self.world).await;
            let (group, epoch, brick) = self.primary(&map);
            let at = &map.brick(brick).expect("a brick of the map").address;
            let write = Write {
                group,
                key: StripeKey { object: self.file.object, stripe: 0 },
                client: self.client,
                seq: ClientSeq(seq),
                acked: ClientSeq(0),
                spans: vec![Span { offset: 0, len: 5_000 }],
                zero: false,
                stable: true,
                staged: false,
                note: None,
            };
            match self.peers.call(at, epoch, &write, Buf::copy_of(&[0xee; 5_000])).await {
                Ok(_) => return Ok(()),
                Err(CallError::Refused(
                    refusal @ (Refusal::StaleEpoch | Refusal::NotPrimary | Refusal::NotServing),
                )) => tracing::debug!(%refusal, "the late write has to be addressed anew"),
                Err(CallError::Refused(refusal)) => return Err(refusal),
                Err(error) => tracing::debug!(%error, "the late write does not arrive"),
            }
            self.world.sleep(20_000).await;
        }
        panic!("the group is not served");
    }
}

async fn read(client: &Client, inode: InodeId) -> Vec<u8> {
    let opened = client.session.open(inode, false, false).await.expect("opened");
    let bytes = client.session.read(opened.handle, 0, 2 * LEN).await.expect("read").to_vec();
    client.session.release(opened.handle).await.expect("closed");
    bytes
}

fn cut_off(cluster: &Cluster, node: &str, cut: bool) {
    cluster.sim.partition(node, "meta", cut);
    (0..BRICKS).for_each(|brick| cluster.sim.partition(node, &brick_node(brick), cut));
}

/// `when` in microseconds after its last write the writer is cut off.
fn run(seed: u64, when: u64) {
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let (a, b) = (cluster.sim.node("clienta"), cluster.sim.node("clientb"));
    cluster.sim.block_on("clientb", async {
        b.sleep(2_000_000).await;
        create_volume(&b, "2+1", 16 << 10, 4, 6).await;
        let writer = Client::mount(a.clone(), 1 << 20, Encode::Primary).await;
        let lost = writer.mount.client();
        let opened = writer.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        let stable = bytes_of(1, LEN);
        writer.session.write(opened.handle, 0, &stable).await.expect("written");
        writer.session.fsync(opened.handle).await.expect("synced");
        let under_way = bytes_of(2, LEN);
        for at in (0..LEN).step_by(10_000) {
            writer
                .session
                .write(opened.handle, at as u64, &under_way[at..at + 10_000])
                .await
                .expect("written");
        }
        let flushing = writer.session.clone();
        a.spawn("test", async move {
            let _ = flushing.fsync(opened.handle).await;
        });
        b.sleep(when).await;
        cut_off(&cluster, "clienta", true);

        let other = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        let file = other.session.lookup(InodeId::ROOT, b"file").await.expect("found");
        let handle = other.session.open(file.inode, true, false).await.expect("the writer gives way").handle;
        let found = other.session.read(handle, 0, 2 * LEN).await.expect("read");
        let old_or_new = |(at, byte): (usize, &u8)| *byte == stable[at] || *byte == under_way[at];
        assert!(found.len() == LEN && found.iter().enumerate().all(old_or_new), "what was synced, or later");
        b.sleep(1_000_000).await;
        let again = other.session.read(handle, 0, 2 * LEN).await.expect("read");
        assert!(again == found, "nothing changes under the reader");
        let newest = bytes_of(3, LEN / 2);
        other.session.write(handle, 0, &newest).await.expect("written");
        other.session.fsync(handle).await.expect("synced");

        cut_off(&cluster, "clienta", false);
        let peers = Peers::new(a.clone(), identity(Role::Client));
        let late = Late { world: a.clone(), peers, client: lost, file: file.clone() };
        assert_eq!(late.arrive(1_000_000).await, Err(Refusal::Fenced));
        // A primary that has forgotten everything is told before it serves.
        let (_, epoch, primary) = late.primary(&map(&b).await);
        cluster.sim.kill(&brick_node(primary.0));
        cluster.start_brick(primary.0);
        assert_eq!(late.arrive(1_000_001).await, Err(Refusal::Fenced));
        assert!(late.primary(&map(&b).await).1 > epoch, "it has begun a new life");
        // So does another primary, when that one is gone.
        cluster.sim.kill(&brick_node(primary.0));
        b.sleep(5_000_000).await;
        assert_eq!(late.arrive(1_000_002).await, Err(Refusal::Fenced));
        assert_ne!(late.primary(&map(&b).await).2, primary);

        let error = writer.session.fsync(opened.handle).await;
        assert!(error.is_err(), "the old handle of the lost client fails");
        other.session.release(handle).await.expect("closed");
        let mut expected = found.to_vec();
        expected[..newest.len()].copy_from_slice(&newest);
        assert!(read(&other, file.inode).await == expected, "seed {seed}, cut off after {when} us");
        assert!(read(&writer, file.inode).await == expected, "the lost client sees it too");
    });
}

/// One client zeroes and reaches no brick, the other waits for its turn and is given up. Returns when that one's write
/// failed, in microseconds after the network is whole again, and why.
fn wait_to_zero(seed: u64) -> (u64, Option<ClientError>) {
    crate::log_if_asked();
    let cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let (a, b) = (cluster.sim.node("clienta"), cluster.sim.node("clientb"));
    let bricks_of_b =
        |cut| (0..BRICKS).for_each(|brick| cluster.sim.partition("clientb", &brick_node(brick), cut));
    cluster.sim.block_on("clienta", async {
        a.sleep(2_000_000).await;
        create_volume(&a, "2+1", 16 << 10, 4, 6).await;
        let waiting = Client::mount(a.clone(), 1 << 20, Encode::Primary).await;
        let zeroing = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        let made = waiting.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        waiting.session.write(made.handle, 0, &bytes_of(1, LEN)).await.expect("written");
        waiting.session.fsync(made.handle).await.expect("synced");
        let other = zeroing.session.open(made.attr.inode, true, false).await.expect("opened").handle;
        let cut = SetAttrs { size: Some(LEN as u64 / 10), ..SetAttrs::default() };
        waiting.session.setattr(made.attr.inode, cut).await.expect("cut");

        bricks_of_b(true);
        let session = zeroing.session.clone();
        b.spawn("test", async move {
            let _ = session.write(other, LEN as u64, b"beyond").await;
        });
        b.sleep(100_000).await;
        let write = async {
            let error = waiting.session.write(made.handle, LEN as u64, b"beyond").await.err();
            (a.now(), error)
        };
        let network = async {
            a.sleep(100_000).await;
            cut_off(&cluster, "clienta", true);
            a.sleep(12_000_000).await;
            cut_off(&cluster, "clienta", false);
            a.now()
        };
        let ((failed_at, error), whole_at) = join(write, network).await;
        bricks_of_b(false);
        (failed_at.saturating_sub(whole_at), error)
    })
}

#[test]
fn a_lost_client_does_not_wait_for_its_turn_to_zero() {
    for seed in 1..=4 {
        let (us, error) = wait_to_zero(seed);
        assert_eq!(error, Some(ClientError::Refused(Refusal::Fenced)), "seed {seed}");
        assert!(us < 5_000_000, "seed {seed}: fails {us} us after the network is whole again");
    }
}

#[test]
fn nothing_of_a_lost_client_appears_after_others_are_let_in() {
    for (seed, when) in [(1, 0), (2, 300), (3, 1_000), (4, 2_000), (5, 5_000), (6, 20_000)] {
        run(seed, when);
    }
}
