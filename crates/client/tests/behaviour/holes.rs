//! Holes are found and made at the cost of what a file holds, whatever length somebody claims: the fakes count the
//! requests, and offsets and bytes are compared.

use client::{ClientError, Seek, SetAttrs};
use types::Refusal;
use types::limits::FILE_SIZE_MAX;

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
fn a_seek_finds_data_and_holes() {
    let cluster = Cluster::new(9, "2+1", 3);
    cluster.run(async {
        let (_, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, stripe) = (opened.handle, STRIPE as u64);
        let (far, size) = (3000 * stripe, 5000 * stripe);
        let grown = SetAttrs { size: Some(size), ..SetAttrs::default() };
        session.setattr(opened.attr.inode, grown).await.unwrap();
        session.write(handle, far, &pattern(2 * STRIPE, 1)).await.unwrap();
        for _ in ["unstable", "stable"] {
            let data = async |at| session.seek(handle, at, Seek::Data).await.unwrap();
            let hole = async |at| session.seek(handle, at, Seek::Hole).await.unwrap();
            assert_eq!((data(0).await, hole(0).await), (Some(far), Some(0)));
            assert_eq!((data(far + 9).await, hole(far + 9).await), (Some(far + 9), Some(far + 2 * stripe)));
            assert_eq!((data(far + 2 * stripe).await, hole(size - 1).await), (None, Some(size - 1)));
            assert_eq!((data(size).await, hole(size).await), (None, None));
            session.fsync(handle).await.unwrap();
        }
    });
}

/// However long a hole is, what it costs to look through it is what there is.
#[test]
fn a_seek_in_a_hole_without_end_ends() {
    let cluster = Cluster::new(10, "2+1", 3);
    cluster.run(async {
        let (_, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let grown = SetAttrs { size: Some(FILE_SIZE_MAX), ..SetAttrs::default() };
        session.setattr(opened.attr.inode, grown).await.unwrap();
        let begun = cluster.sim.node("client").now();
        assert_eq!(session.seek(opened.handle, 5, Seek::Data).await, Ok(None));
        assert_eq!(session.seek(opened.handle, 5, Seek::Hole).await, Ok(Some(5)));
        let last = session.seek(opened.handle, FILE_SIZE_MAX - 7, Seek::Hole).await;
        assert_eq!(last, Ok(Some(FILE_SIZE_MAX - 7)));
        assert!(cluster.sim.node("client").now() - begun < 10_000_000);
        // Its last bytes, and no more.
        let (handle, at) = (opened.handle, FILE_SIZE_MAX - 4);
        assert_eq!(session.write(handle, at, b"12345678").await, Ok(4), "as many as fit");
        let beyond = session.write(handle, FILE_SIZE_MAX, b"1").await;
        assert_eq!(beyond, Err(ClientError::Refused(Refusal::FileTooLarge)));
        session.fsync(handle).await.unwrap();
        assert_eq!(&*session.read(handle, at, 100).await.unwrap(), b"1234");
        let found = session.seek(handle, 5, Seek::Data).await.unwrap().expect("what was written");
        assert!(found <= at && at - found < STRIPE as u64, "{found} for {at}");
    });
}

/// A read counts once after each change; the service hears of it later, and not of each read.
#[test]
fn an_access_is_told_late_and_once() {
    let cluster = Cluster::new(11, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let node = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, inode) = (opened.handle, opened.attr.inode);
        session.write(handle, 0, b"bytes").await.unwrap();
        session.fsync(handle).await.unwrap();
        let kept = || cluster.known().files[&inode].atime;
        let before = kept();
        node.sleep(10_000).await;
        for _ in 0..100 {
            session.read(handle, 0, 5).await.unwrap();
        }
        let seen = session.getattr(inode).await.unwrap().atime;
        assert!(seen > before && kept() == before, "seen here at once");
        node.sleep(3_000_000).await;
        assert_eq!((kept(), cluster.calls("Accessed")), (seen, 1));
        session.read(handle, 0, 5).await.unwrap();
        node.sleep(3_000_000).await;
        assert_eq!((kept(), cluster.calls("Accessed")), (seen, 1));
        session.write(handle, 0, b"other").await.unwrap();
        node.sleep(10_000).await;
        let quiet = session.open(inode, false, false).await.unwrap().handle;
        mount.set_noatime(quiet);
        session.read(quiet, 0, 5).await.unwrap();
        node.sleep(3_000_000).await;
        assert_eq!(cluster.calls("Accessed"), 1);
        session.read(handle, 0, 5).await.unwrap();
        mount.leave(&node).await.unwrap();
        assert_eq!(cluster.calls("Accessed"), 2, "nothing is left untold");
        assert!(kept() > seen);
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

/// What somebody claims a file to be long costs nothing: only what it has does.
#[test]
fn no_claimed_size_decides_how_much_is_zeroed_or_asked() {
    let cluster = Cluster::new(9, "2+1", 3);
    cluster.run(async {
        let (_, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (inode, handle) = (opened.attr.inode, opened.handle);
        let size = |size| SetAttrs { size: Some(size), ..SetAttrs::default() };
        let (far, stripe) = (999_999_999_999_999, STRIPE as u64);
        session.write(handle, 0, &pattern(2 * STRIPE, 1)).await.unwrap();
        session.write(handle, far, b"far").await.unwrap();
        session.setattr(inode, size(far + 5)).await.unwrap();
        session.fsync(handle).await.unwrap();
        let calls = cluster.calls("Write") + cluster.calls("FindStripes");

        // What the cut leaves is zeroed before the file grows again.
        session.setattr(inode, size(1)).await.unwrap();
        session.write(handle, 10 << 20, b"near").await.unwrap();
        session.fsync(handle).await.unwrap();
        assert_eq!(session.read(handle, 0, STRIPE).await.unwrap()[..2], [pattern(1, 1)[0], 0]);
        session.setattr(inode, size(far + 5)).await.unwrap();
        assert_eq!(&*session.read(handle, far, 5).await.unwrap(), &[0; 5]);

        let end = 10 << 20;
        let near = end / stripe * stripe..(end + 4).div_ceil(stripe) * stripe;
        assert_eq!(session.find_bytes(handle, stripe..far + 5).await.unwrap(), [near]);
        session.zero(handle, 0..far + 5).await.unwrap();
        session.fsync(handle).await.unwrap();
        assert_eq!(session.find_bytes(handle, 0..far + 5).await.unwrap(), []);
        let calls = cluster.calls("Write") + cluster.calls("FindStripes") - calls;
        assert!(calls < 40, "{calls} calls");
    });
}
