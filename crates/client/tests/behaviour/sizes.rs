//! The metadata service knows how far the stable bytes of a file reach, whatever happens meanwhile: writes, truncations
//! and closes are delayed into each other, and the size that the service has is compared.

use std::cell::Cell;

use futures_util::future::{join, join_all, join3};

use super::*;

/// Where the bytes lie that make the file longer.
const FAR: usize = 5 * STRIPE;
const LEN: usize = 100;

#[test]
fn an_fsync_tells_the_size_although_somebody_writes_before_the_end() {
    let cluster = Cluster::new(31, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let handle = session.create(ROOT, b"f", OWNER).await.unwrap().handle;
        session.write(handle, FAR as u64, &pattern(LEN, 1)).await.unwrap();
        let write = async {
            world.sleep(100).await;
            session.write(handle, 0, &pattern(10, 2)).await
        };
        let (synced, written) = join(session.fsync(handle), write).await;
        assert_eq!((synced, written), (Ok(()), Ok(10)));
        let kept = cluster.known().stable(b"f");
        assert_eq!(kept.len(), FAR + LEN, "a crash of the client would have cut off what was synced");
        assert_eq!(kept[FAR..], pattern(LEN, 1));
    });
}

#[test]
fn a_mode_is_given_up_with_the_size_although_writes_go_on() {
    let cluster = Cluster::new(32, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, FAR as u64, &pattern(LEN, 1)).await.unwrap();
        let (_other, reader) = cluster.mount("other").await;
        let done = Cell::new(false);
        let read = async {
            let attr = reader.open(opened.attr.inode, false, false).await.unwrap().attr;
            done.set(true);
            attr.size
        };
        // Of several writers one always has something that is not stable.
        let write = |at: u64| {
            let (session, world, done) = (&session, &world, &done);
            async move {
                while !done.get() {
                    session.write(opened.handle, at, &pattern(10, 2)).await.unwrap();
                    world.sleep(50 + at).await;
                }
            }
        };
        let (size, _) = join(read, join_all([0, 200, 400, 600].map(write))).await;
        assert_eq!(size, (FAR + LEN) as u64, "the reader sees the whole file");
    });
}

#[test]
fn a_size_from_before_a_truncation_is_not_told() {
    let cluster = Cluster::new(33, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, FAR as u64, &pattern(LEN, 1)).await.unwrap();
        let cut = async {
            world.sleep(100).await;
            let changes = SetAttrs { size: Some(50), ..SetAttrs::default() };
            session.setattr(opened.attr.inode, changes).await.unwrap();
            session.write(opened.handle, 60, &pattern(10, 2)).await.unwrap();
        };
        let (synced, ()) = join(session.fsync(opened.handle), cut).await;
        synced.unwrap();
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f").len(), 70);
    });
}

/// Another mount cuts a shared file while a write to it is under way that makes it longer: the write comes after the cut.
#[test]
fn a_write_that_was_overtaken_by_a_cut_is_done_again() {
    let cluster = Cluster::new(34, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(2 * STRIPE, 1)).await.unwrap();
        let (_other, second) = cluster.mount("other").await;
        let shared = second.open(opened.attr.inode, true, false).await.unwrap();
        assert_eq!(shared.mode, Mode::Shared);

        cluster.known().sync_us = SECOND / 10;
        let told = cluster.calls("UpdateSizes");
        let cut = async {
            world.sleep(SECOND / 100).await;
            let changes = SetAttrs { size: Some(50), ..SetAttrs::default() };
            second.setattr(opened.attr.inode, changes).await.unwrap();
        };
        let look = async {
            world.sleep(SECOND / 20).await;
            assert_eq!(
                (cluster.calls("SetAttr"), cluster.calls("UpdateSizes")),
                (1, told),
                "cut and not told of"
            );
        };
        let bytes = pattern(LEN, 2);
        let write = session.write(opened.handle, FAR as u64, &bytes);
        let (written, (), ()) = join3(write, cut, look).await;
        written.unwrap();
        let mut model = pattern(2 * STRIPE, 1);
        model.truncate(50);
        model.resize(FAR, 0);
        model.extend(pattern(LEN, 2));
        assert_eq!(cluster.known().stable(b"f"), model);
        assert_eq!(&*second.read(shared.handle, 0, 2 * FAR).await.unwrap(), &model[..]);
    });
}

/// The time of a closed file is set while its last bytes become stable: the service hears of them and of the close.
#[test]
fn what_became_stable_while_nothing_could_be_told_is_told_afterwards() {
    let cluster = Cluster::new(35, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(LEN, 1)).await.unwrap();
        session.release(opened.handle).await.unwrap();
        world.sleep(SECOND / 100).await;
        cluster.known().setattr_us = SECOND * 3 / 2;
        let changes = SetAttrs { mtime: Some(5), ..SetAttrs::default() };
        session.setattr(opened.attr.inode, changes).await.unwrap();
        world.sleep(SECOND).await;
        assert_eq!(cluster.known().stable(b"f"), pattern(LEN, 1));
        let opens = cluster.known().opens.get(&(opened.attr.inode, mount.client())).copied();
        assert_eq!(opens.unwrap_or_default(), (0, 0), "it is closed");
    });
}

/// The close of the last handle overtakes the next open, and the file gets another object in between.
#[test]
fn a_file_that_is_opened_while_its_close_is_told_is_taken_as_it_is_then() {
    let cluster = Cluster::new(39, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(LEN, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        cluster.known().open_us = 2_000_000;
        let moved = async {
            session.release(opened.handle).await.unwrap();
            world.sleep(1_000_000).await;
            let mut known = cluster.known();
            assert!(known.opens.is_empty(), "the close has been told");
            let object = types::ObjectId(1_000_000);
            known.files.get_mut(&opened.attr.inode).expect("the file").object = object;
        };
        let (again, ()) = join(session.open(opened.attr.inode, true, false), moved).await;
        let handle = again.unwrap().handle;
        session.write(handle, 0, &pattern(LEN, 2)).await.unwrap();
        session.fsync(handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), pattern(LEN, 2));
    });
}

/// The answer to an open comes after the close of the last handle has been told, with more bytes than the answer knows of.
#[test]
fn an_answer_that_is_older_than_the_last_close_is_not_believed() {
    let cluster = Cluster::new(40, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(LEN, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        cluster.known().opened_us = 2_000_000;
        let closed = async {
            world.sleep(100_000).await;
            session.write(opened.handle, FAR as u64, &pattern(LEN, 2)).await.unwrap();
            session.release(opened.handle).await.unwrap();
            world.sleep(1_500_000).await;
            assert_eq!(cluster.known().stable(b"f").len(), FAR + LEN, "all of it has been told");
        };
        let (again, ()) = join(session.open(opened.attr.inode, true, false), closed).await;
        let again = again.unwrap();
        assert_eq!(again.attr.size, (FAR + LEN) as u64);
        let read = session.read(again.handle, FAR as u64, LEN).await.unwrap();
        assert_eq!(read.to_vec(), pattern(LEN, 2));
    });
}

/// Programs that say `sync` mean what they have closed, and the kernel does not say so here.
#[test]
fn what_is_closed_is_durable_within_half_a_second() {
    let cluster = Cluster::new(39, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let mut opened = Vec::new();
        for name in [&b"closed"[..], b"open"] {
            let file = session.create(ROOT, name, OWNER).await.unwrap();
            session.write(file.handle, 0, &pattern(LEN, 1)).await.unwrap();
            session.flush(file.handle).await.unwrap();
            opened.push(file);
        }
        session.release(opened[0].handle).await.unwrap();
        world.sleep(SECOND / 2).await;
        let size = |at: usize| cluster.known().files[&opened[at].attr.inode].size;
        assert_eq!(size(0), LEN as u64);
        assert_eq!(cluster.known().stable(b"closed"), pattern(LEN, 1));
        world.sleep(2 * SECOND).await;
        assert_eq!(size(1), LEN as u64, "what is open follows");
    });
}

/// Its bricks purge what a truncation leaves before this mount has the answer: a read meanwhile comes after the truncation.
#[test]
fn a_read_that_is_overtaken_by_a_truncation_and_a_purge_finds_nothing() {
    let cluster = Cluster::new(36, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(2 * STRIPE, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        (cluster.known().purges, cluster.known().setattr_answer_us) = (true, SECOND);
        let changes = SetAttrs { size: Some(0), ..SetAttrs::default() };
        let read = async {
            world.sleep(SECOND / 2).await;
            session.read(opened.handle, 0, 2 * STRIPE).await
        };
        let (cut, read) = join(session.setattr(opened.attr.inode, changes), read).await;
        assert_eq!(cut.map(|attr| attr.size), Ok(0));
        assert_eq!(read.map(|bytes| bytes.len()), Ok(0));
        // An object that is gone without a truncation is an error.
        session.write(opened.handle, 0, &pattern(STRIPE, 2)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        let object = cluster.known().files[&opened.attr.inode].object;
        cluster.known().purged.insert(object);
        let read = session.read(opened.handle, 0, STRIPE).await;
        assert_eq!(read.map(|bytes| bytes.len()), Err(ClientError::Refused(Refusal::ObjectRemoved)));
    });
}

/// The write has begun, and waits for room, while the same mount makes the file shorter. The old bytes beyond are stale then.
#[test]
fn a_write_that_waits_for_room_does_not_grow_over_stale_bytes() {
    let cluster = Cluster::new(37, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let len = 3 * BUDGET as usize;
        session.write(opened.handle, 0, &pattern(len, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        cluster.known().write_us = SECOND / 10;
        let bytes = pattern(len, 2);
        let cut = async {
            world.sleep(SECOND / 100).await;
            let changes = SetAttrs { size: Some(10), ..SetAttrs::default() };
            session.setattr(opened.attr.inode, changes).await
        };
        let (written, cut) = join(session.write(opened.handle, 0, &bytes), cut).await;
        assert_eq!((written, cut.map(|attr| attr.size)), (Ok(len), Ok(10)));
        session.fsync(opened.handle).await.unwrap();
        assert!(cluster.known().stable(b"f") == bytes, "the write comes after the truncation");
    });
}
