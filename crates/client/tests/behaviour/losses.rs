//! Bytes that no brick has taken are no part of a file: a write that failed leaves the file as it was, with the first bytes that
//! were stored. Nobody sees zeros in the place of the others, at this mount, at others, or when the file grows again.

use client::ClientError;
use types::messages::cluster::Mode;
use types::{BrickId, Refusal};

use crate::fakes::{Cluster, OWNER};
use crate::{ROOT, SECOND, STRIPE, pattern};

const FULL: ClientError = ClientError::Refused(Refusal::NoSpace);

#[test]
fn an_append_that_failed_leaves_the_file_as_it_was() {
    let cluster = Cluster::new(61, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, inode) = (opened.handle, opened.attr.inode);
        session.write(handle, 0, &pattern(100, 1)).await.unwrap();
        session.fsync(handle).await.unwrap();
        cluster.known().full = true;
        session.write(handle, 100, &pattern(200, 2)).await.unwrap();
        assert_eq!(session.getattr(inode).await.unwrap().size, 300, "it may become so long");
        assert_eq!(session.flush(handle).await, Err(FULL));
        assert_eq!(session.getattr(inode).await.unwrap().size, 100);
        assert_eq!(session.read(handle, 0, 1000).await.unwrap().to_vec(), pattern(100, 1));
        assert_eq!(cluster.known().stable(b"f"), pattern(100, 1));
        // A brick may have bytes of what was sent. Zeros over them find no room either.
        let again = session.write(handle, 100, &pattern(200, 2)).await;
        assert_eq!(again.map(drop), Err(FULL));
        assert_eq!(session.getattr(inode).await.unwrap().size, 100);
        cluster.known().full = false;
        // Tells the error a last time.
        let _ = session.fsync(handle).await;
        session.write(handle, 100, &pattern(50, 3)).await.unwrap();
        session.fsync(handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), [pattern(100, 1), pattern(50, 3)].concat());
    });
}

#[test]
fn a_write_that_failed_beyond_the_end_leaves_no_hole() {
    let cluster = Cluster::new(62, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(100, 1)).await.unwrap();
        cluster.known().full_stripes.insert(7);
        session.write(opened.handle, 7 * STRIPE as u64, &pattern(100, 2)).await.unwrap();
        assert_eq!(session.fsync(opened.handle).await, Err(FULL));
        assert_eq!(session.getattr(opened.attr.inode).await.unwrap().size, 100);
        assert_eq!(cluster.known().stable(b"f"), pattern(100, 1));
    });
}

/// The kernel splits long writes. It shows the error of the second part as a short write, so its program writes the rest again.
#[test]
fn the_rest_of_a_write_whose_begin_was_lost_leaves_no_hole() {
    let cluster = Cluster::new(70, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, inode, begin) = (opened.handle, opened.attr.inode, pattern(4 * STRIPE, 1));
        cluster.known().full = true;
        session.write(handle, 0, &begin).await.unwrap();
        cluster.sim.node("client").sleep(5 * SECOND).await;
        let rest = async || session.write(handle, begin.len() as u64, &pattern(100, 2)).await.map(drop);
        assert_eq!([rest().await, rest().await], [Err(FULL); 2]);
        assert_eq!(session.getattr(inode).await.unwrap().size, 0);
        assert_eq!(session.flush(handle).await, Err(FULL));
        // From here on the program knows.
        cluster.known().full = false;
        assert_eq!(rest().await, Ok(()));
        session.fsync(handle).await.unwrap_err();
        assert_eq!(session.getattr(inode).await.unwrap().size, begin.len() as u64 + 100);
    });
}

#[test]
fn a_file_ends_where_the_first_bytes_were_lost() {
    let cluster = Cluster::new(63, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let (_other, second) = cluster.mount("other").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, inode) = (opened.handle, opened.attr.inode);
        cluster.known().full_stripes.insert(2);
        let bytes = pattern(6 * STRIPE, 1);
        session.write(handle, 0, &bytes).await.unwrap();
        assert_eq!(session.flush(handle).await, Err(FULL));
        let end = 2 * STRIPE;
        for seen in [&session, &second] {
            assert_eq!(seen.getattr(inode).await.unwrap().size, end as u64);
        }
        assert_eq!(session.read(handle, 0, 9 * STRIPE).await.unwrap().to_vec(), bytes[..end]);
        cluster.known().full_stripes.clear();
        // Bricks have the later stripes of the lost write. They must not come back with the next one.
        let _ = session.fsync(handle).await;
        session.write(handle, 8 * STRIPE as u64, &pattern(10, 2)).await.unwrap();
        session.fsync(handle).await.unwrap();
        let mut model = bytes[..end].to_vec();
        model.resize(8 * STRIPE, 0);
        model.extend(pattern(10, 2));
        assert!(cluster.known().stable(b"f") == model, "holes are zeros");
        let opened = second.open(inode, false, false).await.unwrap();
        assert!(*second.read(opened.handle, 0, 9 * STRIPE).await.unwrap() == model[..]);
    });
}

/// A primary had the bytes, the service has shown their end, and the next primary finds no room.
#[test]
fn a_size_that_was_shown_is_taken_back() {
    let cluster = Cluster::new(64, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let (_other, second) = cluster.mount("other").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let inode = opened.attr.inode;
        cluster.known().sync_us = SECOND;
        session.write(opened.handle, 0, &pattern(100, 0)).await.unwrap();
        session.flush(opened.handle).await.unwrap();
        assert_eq!(second.getattr(inode).await.unwrap().size, 100);
        cluster.known().full = true;
        cluster.known().bump();
        session.release(opened.handle).await.unwrap();
        world.sleep(5 * SECOND).await;
        for seen in [&session, &second] {
            assert_eq!(seen.getattr(inode).await.unwrap().size, 0);
        }
        assert!(cluster.known().opens.is_empty(), "it is closed");
    });
}

#[test]
fn bricks_that_stay_away_leave_the_file_as_it_was() {
    let cluster = Cluster::new(65, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, inode) = (opened.handle, opened.attr.inode);
        session.write(handle, 0, &pattern(100, 1)).await.unwrap();
        session.fsync(handle).await.unwrap();
        cluster.known().mute.extend((0..=3).map(BrickId));
        session.write(handle, 100, &pattern(3 * STRIPE, 2)).await.unwrap();
        assert_eq!(session.flush(handle).await, Err(ClientError::Unreachable));
        assert_eq!(session.getattr(inode).await.unwrap().size, 100);
        cluster.known().mute.clear();
        session.release(handle).await.unwrap();
        cluster.sim.node("client").sleep(5 * SECOND).await;
        assert_eq!(cluster.known().stable(b"f"), pattern(100, 1));
        let again = session.open(inode, true, false).await.unwrap().handle;
        session.write(again, 100, &pattern(10, 3)).await.unwrap();
        session.fsync(again).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), [pattern(100, 1), pattern(10, 3)].concat());
    });
}

#[test]
fn a_failed_write_to_a_shared_file_is_seen_by_nobody() {
    let cluster = Cluster::new(66, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let (_other, second) = cluster.mount("other").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let inode = opened.attr.inode;
        session.write(opened.handle, 0, &pattern(100, 1)).await.unwrap();
        let shared = second.open(inode, true, false).await.unwrap();
        assert_eq!(shared.mode, Mode::Shared);
        cluster.known().full = true;
        let failed = session.write(opened.handle, 100, &pattern(200, 2)).await;
        assert_eq!(failed, Err(FULL));
        for seen in [&session, &second] {
            assert_eq!(seen.getattr(inode).await.unwrap().size, 100);
        }
        cluster.known().full = false;
        second.write(shared.handle, 100, &pattern(10, 3)).await.unwrap();
        assert_eq!(session.getattr(inode).await.unwrap().size, 110, "the other one has made it longer");
    });
}

/// Whatever fails, and when: a program that appends finds no zeros, since it wrote none.
#[test]
fn who_only_appends_never_finds_zeros() {
    for seed in 0..40 {
        let cluster = Cluster::new(700 + seed, "2+1", 3);
        cluster.run(async {
            let world = cluster.sim.node("client");
            let (_mount, session) = cluster.mount("client").await;
            let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
            let (handle, inode) = (opened.handle, opened.attr.inode);
            for step in 0..30 {
                let end = session.getattr(inode).await.unwrap().size;
                match world.random() % 8 {
                    0 => drop(cluster.known().full_stripes.insert(end / STRIPE as u64 + world.random() % 4)),
                    1 => cluster.known().full_stripes.clear(),
                    2 => cluster.known().bump(),
                    3 => drop(session.fsync(handle).await),
                    4 => world.sleep(world.random() % (2 * SECOND)).await,
                    _ => {
                        let len = world.random() as usize % (3 * STRIPE) + 1;
                        let _ = session.write(handle, end, &pattern(len, step)).await;
                    }
                }
                if world.random().is_multiple_of(3) {
                    let _ = session.flush(handle).await;
                    let size = session.getattr(inode).await.unwrap().size;
                    let read = session.read(handle, 0, 1 << 20).await.unwrap();
                    assert_eq!(read.len() as u64, size, "seed {seed}, step {step}");
                    assert!(!read.contains(&0), "seed {seed}, step {step}: zeros that nobody wrote");
                }
            }
            cluster.known().full_stripes.clear();
            let _ = session.fsync(handle).await;
            session.fsync(handle).await.unwrap();
            let size = session.getattr(inode).await.unwrap().size;
            let stable = cluster.known().stable(b"f");
            assert_eq!(stable.len() as u64, size, "seed {seed}");
            assert!(!stable.contains(&0), "seed {seed}");
        });
    }
}

/// `fallocate` while the service does not know yet that the end of the file was lost.
#[test]
fn a_file_does_not_grow_over_bytes_that_were_lost() {
    let cluster = Cluster::new(67, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(STRIPE, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        cluster.known().full_stripes.insert(1);
        cluster.known().retract_us = 3 * SECOND;
        session.write(opened.handle, STRIPE as u64, &pattern(4 * STRIPE, 2)).await.unwrap();
        world.sleep(SECOND).await;
        let end = 6 * STRIPE as u64;
        assert_eq!(session.allocate(opened.handle, 0..end, false).await, Err(FULL));
        cluster.known().full_stripes.clear();
        session.allocate(opened.handle, 0..end, false).await.unwrap();
        let mut model = pattern(STRIPE, 1);
        model.resize(end as usize, 0);
        assert!(cluster.known().stable(b"f") == model, "what was lost is zeros");
        assert!(*session.read(opened.handle, 0, end as usize).await.unwrap() == model[..]);
    });
}
