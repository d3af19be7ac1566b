//! Holes: where they are, and zeros that make them.

use client::{ClientError, SetAttrs};
use types::Refusal;

use super::{Cluster, OWNER, ROOT, STRIPE, pattern};

#[test]
fn zeros_are_laid_only_where_there_may_be_bytes() {
    let cluster = Cluster::new(7, "2+1", 3);
    cluster.run(async {
        let (_, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, size, stripe) = (opened.handle, 100 * STRIPE as u64, STRIPE as u64);
        let grown = SetAttrs { size: Some(size), ..SetAttrs::default() };
        session.setattr(opened.attr.inode, grown).await.unwrap();
        assert_eq!(session.find_bytes(handle, 0..size).await, Ok(vec![]));
        session.zero(handle, 0..size).await.unwrap();
        assert_eq!(cluster.known().spans, 0, "nothing is there to be zeroed");

        // What has not left the mount is known to it only, and counts for the whole stripe.
        session.write(handle, 10 * stripe + 5, &pattern(10, 1)).await.unwrap();
        session.write(handle, 50 * stripe, &pattern(3 * STRIPE, 2)).await.unwrap();
        let found = session.find_bytes(handle, 0..size).await.unwrap();
        assert_eq!(found, [10 * stripe..11 * stripe, 50 * stripe..53 * stripe]);
        let part = session.find_bytes(handle, 51 * stripe + 1..51 * stripe + 9).await.unwrap();
        assert_eq!(part, std::iter::once(51 * stripe + 1..51 * stripe + 9).collect::<Vec<_>>());
        session.fsync(handle).await.unwrap();
        assert_eq!(session.find_bytes(handle, 0..size).await.unwrap(), found);

        // Zeros over all of it but the middle of a stripe; the file keeps its length, also past its end.
        session.zero(handle, 0..51 * stripe + 100).await.unwrap();
        session.zero(handle, 52 * stripe..2 * size).await.unwrap();
        let expected = pattern(3 * STRIPE, 2);
        let read = session.read(handle, 50 * stripe, 3 * STRIPE).await.unwrap();
        assert!(read[..STRIPE + 100].iter().chain(&read[2 * STRIPE..]).all(|byte| *byte == 0));
        assert_eq!(read[STRIPE + 100..2 * STRIPE], expected[STRIPE + 100..2 * STRIPE]);
        session.fsync(handle).await.unwrap();
        assert_eq!(session.getattr(opened.attr.inode).await.unwrap().size, size);
        let left = session.find_bytes(handle, 0..size).await.unwrap();
        assert_eq!(left, std::iter::once(51 * stripe..52 * stripe).collect::<Vec<_>>());
        assert_eq!(&*session.read(handle, 10 * stripe, 100).await.unwrap(), &[0; 100]);

        // Newer bytes lie over zeros that are on their way.
        session.zero(handle, 51 * stripe..52 * stripe).await.unwrap();
        session.write(handle, 51 * stripe + 7, b"new").await.unwrap();
        session.fsync(handle).await.unwrap();
        let read = session.read(handle, 51 * stripe, 12).await.unwrap();
        assert_eq!(&*read, b"\0\0\0\0\0\0\0new\0\0");
        session.release(handle).await.unwrap();
        let reader = session.open(opened.attr.inode, false, false).await.unwrap();
        assert_eq!(session.zero(reader.handle, 0..1).await, Err(ClientError::BadHandle));
    });
}

#[test]
fn a_disk_has_an_end_and_learns_when_it_moves() {
    let cluster = Cluster::new(8, "2+1", 3);
    cluster.run(async {
        let stripe = STRIPE as u64;
        cluster.known().map.volumes[0].block = Some(4 * stripe);
        let (mount, session) = cluster.mount("client").await;
        assert_eq!(mount.disk(), Some(4 * stripe));
        let opened = session.create(ROOT, b"disk", OWNER).await.unwrap();
        session.write(opened.handle, 4 * stripe - 3, b"end").await.unwrap();
        let beyond = session.write(opened.handle, 4 * stripe - 2, b"end").await;
        assert_eq!(beyond, Err(ClientError::Refused(Refusal::NoSpace)));
        {
            let map = &mut cluster.known().map;
            map.volumes[0].block = Some(8 * stripe);
            map.version = types::MapVersion(map.version.0 + 1);
        }
        while mount.disk() != Some(8 * stripe) {
            cluster.sim.node("client").sleep(100_000).await;
        }
        assert_eq!(session.getattr(opened.attr.inode).await.unwrap().size, 8 * stripe);
        session.write(opened.handle, 8 * stripe - 3, b"end").await.unwrap();
        assert_eq!(session.read(opened.handle, 0, 9 * STRIPE).await.unwrap().len(), 8 * STRIPE);
    });
}
