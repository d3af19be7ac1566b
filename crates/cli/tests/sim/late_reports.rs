//! A truncated file stays as it is, whatever is told late: the network delivers reports of older sizes late or twice,
//! and size and bytes are compared.

use client::{Encode, SetAttrs};
use types::messages::names::{Attr, Owner, SizeUpdate, UpdateSizes, UpdateSizesReply, Zeroed};
use types::messages::session::Role;
use types::{Buf, Epoch, InodeId, VolumeId};
use world::Peers;
use world::sim::SimOptions;

use crate::cluster::{Client, Cluster, create_volume, identity, map, meta};
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const LEN: usize = 100_000;
const CUT: usize = 10_000;
const END: usize = 30_000;

/// Copies of a client's messages, on a connection of their own.
struct Late<'a> {
    client: &'a Client,
    peers: Peers,
    volume: VolumeId,
}

impl Late<'_> {
    /// "This file, as it was then, has so many bytes."
    async fn grow(&self, attr: &Attr, size: usize, stable: bool) -> UpdateSizesReply {
        let Attr { inode, truncate_seq, mtime, .. } = *attr;
        let update = SizeUpdate { inode, truncate_seq, size: size as u64, mtime, set_time: false };
        let client = self.client.mount.client();
        let grow = UpdateSizes { client, volume: self.volume, sizes: vec![update], stable, noting: false };
        let called = self.peers.call(meta(), Epoch::default(), &grow, Buf::empty()).await;
        called.expect("the service answers").0
    }

    /// "What was stale of it then has been zeroed."
    async fn zeroed(&self, attr: &Attr) {
        let Attr { inode, truncate_seq, stale_end, .. } = *attr;
        let zeroed = Zeroed {
            client: self.client.mount.client(),
            volume: self.volume,
            inode,
            number: None,
            truncate_seq,
            stale_end,
        };
        let called = self.peers.call(meta(), Epoch::default(), &zeroed, Buf::empty()).await;
        called.expect("the service answers");
    }
}

async fn read(client: &Client, inode: InodeId) -> Vec<u8> {
    let opened = client.session.open(inode, false, false).await.expect("opened");
    let bytes = client.session.read(opened.handle, 0, 2 * LEN).await.expect("read").to_vec();
    client.session.release(opened.handle).await.expect("closed");
    bytes
}

fn run(seed: u64) {
    let cluster = Cluster::new(seed, SimOptions::default(), 4, 32 << 20, 8 << 20);
    cluster.start();
    let (a, b) = (cluster.sim.node("clienta"), cluster.sim.node("clientb"));
    cluster.sim.block_on("clienta", async {
        a.sleep(2_000_000).await;
        create_volume(&a, "2+1", 16 << 10, 4, 6).await;
        let writer = Client::mount(a.clone(), 1 << 20, Encode::Primary).await;
        let peers = Peers::new(a.clone(), identity(Role::Client));
        let late = Late { client: &writer, peers, volume: map(&a).await.volumes[0].id };
        let cut = |inode, size| {
            let changes = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
            writer.session.setattr(inode, changes)
        };

        let opened = writer.session.create(InodeId::ROOT, b"file", OWNER).await.expect("created");
        let (handle, inode) = (opened.handle, opened.attr.inode);
        writer.session.write(handle, 0, &bytes_of(1, LEN)).await.expect("written");
        writer.session.fsync(handle).await.expect("synced");
        let long = writer.session.getattr(inode).await.expect("there");
        let short = cut(inode, CUT).await.expect("cut");
        assert_eq!((short.size, short.stale_end), (CUT as u64, LEN as u64));
        // What the cut has left is zeroed now.
        writer.session.write(handle, END as u64 - 100, &bytes_of(2, 100)).await.expect("written");
        writer.session.fsync(handle).await.expect("synced");
        for stable in [true, false] {
            let told = late.grow(&long, LEN, stable).await;
            assert_eq!(told.cut.iter().map(|attr| attr.size).collect::<Vec<_>>(), [END as u64]);
        }
        let mut right = bytes_of(1, CUT);
        right.resize(END - 100, 0);
        right.extend(bytes_of(2, 100));
        let other = Client::mount(b.clone(), 1 << 20, Encode::Primary).await;
        assert!(read(&other, inode).await == right, "seed {seed}: a late size");

        // Long again, and cut at the same place: the first zeros say nothing of what lies there now.
        let handle = writer.session.open(inode, true, false).await.expect("opened").handle;
        writer.session.write(handle, 0, &bytes_of(3, LEN)).await.expect("written");
        writer.session.fsync(handle).await.expect("synced");
        cut(inode, CUT).await.expect("cut");
        late.zeroed(&short).await;
        cut(inode, LEN).await.expect("longer");
        writer.session.fsync(handle).await.expect("synced");
        let mut right = bytes_of(3, CUT);
        right.resize(LEN, 0);
        assert!(read(&other, inode).await == right, "seed {seed}: late zeros");
        writer.session.release(handle).await.expect("closed");
        writer.session.release(opened.handle).await.expect("closed");
    });
}

#[test]
fn a_cut_file_stays_as_it_is_whatever_is_told_late() {
    (1..=4).for_each(run);
}
