//! A mount keeps its promises to programs: fake bricks and a fake metadata service die, fall silent, refuse and forget
//! in a simulated world, and what a program reads and hears is compared.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

#[path = "behaviour/allocate.rs"]
mod allocate;
#[path = "behaviour/disk_cache.rs"]
mod disk_cache;
#[allow(unreachable_pub, reason = "shared by test files")]
mod fakes;
#[path = "behaviour/holes.rs"]
mod holes;
#[path = "behaviour/losses.rs"]
mod losses;
#[path = "behaviour/properties.rs"]
mod properties;
#[path = "behaviour/sizes.rs"]
mod sizes;
#[path = "behaviour/slow.rs"]
mod slow;
#[path = "behaviour/staging.rs"]
mod staging;
#[path = "behaviour/translators.rs"]
mod translators;

use client::{ClientError, MountError, MountOptions, Recalled, SetAttrs};
use fakes::{BUDGET, Cluster, META, OWNER, UNIT, identity};
use types::messages::cluster::{Mode, SlotState};
use types::messages::session::Role;
use types::wire::Key;
use types::{BrickId, InodeId, Refusal};
use world::Identity;

const ROOT: InodeId = InodeId::ROOT;
/// Data of a stripe at 2+1.
const STRIPE: usize = 2 * UNIT;
const SECOND: u64 = 1_000_000;

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 256 + salt * 7) % 251) as u8 + 1).collect()
}

#[test]
fn a_join_says_what_is_wrong() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let world = cluster.sim.node("client");
        let join = |options: MountOptions| {
            let world = world.clone();
            async move { client::Mount::join(&world, options).await.err() }
        };
        let unknown = join(MountOptions { volume: "w".into(), ..cluster.options() }).await;
        assert_eq!(unknown, Some(MountError::UnknownVolume("w".into())));
        let key = Identity { key: Key([9; 32]), ..identity(Role::Client) };
        assert_eq!(
            join(MountOptions { identity: key, ..cluster.options() }).await,
            Some(MountError::WrongKey(META.into()))
        );
        let other = Identity { cluster: types::ClusterId([1; 16]), ..identity(Role::Client) };
        let wrong = join(MountOptions { identity: other, ..cluster.options() }).await;
        assert!(matches!(wrong, Some(MountError::WrongCluster { .. })), "{wrong:?}");
        cluster.kill_meta();
        assert_eq!(join(cluster.options()).await, Some(MountError::Unreachable(META.into())));
    });
}

#[test]
fn written_bytes_are_read_and_become_stable() {
    let cluster = Cluster::new(2, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        assert_eq!(opened.mode, Mode::Alone);
        let bytes = pattern(20 * STRIPE + 1234, 1);
        for (i, part) in bytes.chunks(3000).enumerate() {
            assert_eq!(session.write(opened.handle, (i * 3000) as u64, part).await, Ok(part.len()));
        }
        assert_eq!(&*session.read(opened.handle, 0, bytes.len() + 99).await.unwrap(), &bytes[..]);
        assert_eq!(session.getattr(opened.attr.inode).await.unwrap().size, bytes.len() as u64);
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), bytes);
        assert!(cluster.known().held.values().all(Vec::is_empty), "everything is stable after fsync");
        assert_eq!(mount.counters().unstable_bytes, 0);
        assert_eq!(&*session.read(opened.handle, 0, bytes.len()).await.unwrap(), &bytes[..]);
        assert_eq!(&*session.read(opened.handle, 5000, 10).await.unwrap(), &bytes[5000..5010]);
        assert!(session.read(opened.handle, 1 << 40, 10).await.unwrap().is_empty());
        assert!(mount.counters().bytes_direct > 0);
        assert_eq!(cluster.known().written, bytes.len() as u64, "every byte left once");
        session.flush(opened.handle).await.unwrap();
        session.release(opened.handle).await.unwrap();
        assert_eq!(session.read(opened.handle, 0, 1).await, Err(ClientError::BadHandle));
        assert_eq!(mount.leave(&cluster.sim.node("client")).await, Ok(()));
        assert!(cluster.known().opens.is_empty());
    });
}

#[test]
fn the_budget_is_kept_and_stripes_fly_together() {
    let cluster = Cluster::new(3, "2+1", 3);
    cluster.known().write_us = 3_000;
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let bytes = pattern(200 * STRIPE, 3);
        let mut most = 0;
        for (i, part) in bytes.chunks(STRIPE / 2).enumerate() {
            session.write(opened.handle, (i * STRIPE / 2) as u64, part).await.unwrap();
            most = most.max(mount.counters().unstable_bytes);
        }
        let way = BUDGET / 8 * 3;
        assert!(most <= way + STRIPE as u64, "{most}");
        assert!(most > way / 2, "the way is used: {most}");
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), bytes);
        assert!(cluster.known().writing_max > 4, "{}", cluster.known().writing_max);
        let syncs = cluster.calls("Sync");
        assert!(syncs < 60, "many writes share a Sync: {syncs}");
        assert_eq!(cluster.calls("Write"), 200, "whole stripes only");
    });
}

#[test]
fn random_small_writes_fit_the_budget() {
    let cluster = Cluster::new(4, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let mut model = vec![0; 64 * STRIPE];
        for i in 0..600usize {
            let at = (i * 7919 * 512) % (model.len() - 512);
            session.write(opened.handle, at as u64, &pattern(512, i)).await.unwrap();
            model[at..at + 512].copy_from_slice(&pattern(512, i));
            assert!(mount.counters().unstable_bytes <= BUDGET);
        }
        session.fsync(opened.handle).await.unwrap();
        let size = cluster.known().stable(b"f").len();
        assert_eq!(cluster.known().stable(b"f"), &model[..size]);
        assert!(cluster.known().written <= 600 * 512, "only written bytes are sent");
    });
}

#[test]
fn small_writes_of_a_stripe_leave_together() {
    let cluster = Cluster::new(24, "2+1", 3);
    // Bricks that take their time: what cannot leave goes on gathering.
    cluster.known().sync_us = 200_000;
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let mut model = vec![0; 8 * STRIPE];
        for i in 0..4000usize {
            // Apart from each other, so that each is a span of its own.
            let at = (i * 7919) % (model.len() / 128) * 128;
            session.write(opened.handle, at as u64, &pattern(64, i)).await.unwrap();
            model[at..at + 64].copy_from_slice(&pattern(64, i));
            assert!(mount.counters().unstable_bytes <= BUDGET);
        }
        session.fsync(opened.handle).await.unwrap();
        let stable = cluster.known().stable(b"f");
        assert!(stable == model[..stable.len()]);
        let (writes, spans) = (cluster.calls("Write") as usize, cluster.known().spans);
        assert!(spans >= 3 * writes, "{spans} spans in {writes} writes");
        let counters = mount.counters();
        assert_eq!((counters.pieces_sent, counters.spans_sent), (writes as u64, spans as u64));
    });
}

#[test]
fn whoever_waits_asks_for_stability_at_once() {
    let cluster = Cluster::new(25, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        // A piece that was accepted before is stable with a later one of its group.
        session.write(opened.handle, 0, &pattern(100, 1)).await.unwrap();
        session.flush(opened.handle).await.unwrap();
        assert_eq!((cluster.calls("Write"), cluster.known().stable_writes), (1, 0));
        session.write(opened.handle, 200, &pattern(100, 2)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        let mut model = vec![0; 300];
        model[..100].copy_from_slice(&pattern(100, 1));
        model[200..].copy_from_slice(&pattern(100, 2));
        assert_eq!(cluster.known().stable(b"f"), model);
        assert_eq!((cluster.calls("Sync"), cluster.known().stable_writes), (0, 1));
        assert_eq!(mount.counters().unstable_bytes, 0);
        // Refused for its epoch: the same number goes the ordinary way.
        session.write(opened.handle, 0, &pattern(300, 3)).await.unwrap();
        cluster.known().bump();
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), pattern(300, 3));
        assert_eq!((cluster.calls("Sync"), cluster.known().stable_writes), (1, 1));
        // Many pieces share a question.
        let many = pattern(64 * STRIPE / 2, 4);
        for (i, part) in many.chunks(STRIPE / 2).take(20).enumerate() {
            session.write(opened.handle, (i * STRIPE) as u64, part).await.unwrap();
        }
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable_writes, 1);
        assert!(cluster.calls("Sync") <= 1 + 2 * 3, "{}", cluster.calls("Sync"));
    });
}

#[test]
fn a_large_write_is_not_overtaken_for_ever_by_small_ones() {
    let cluster = Cluster::new(26, "2+1", 3);
    cluster.known().write_us = 1_000;
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let large = session.create(ROOT, b"large", OWNER).await.unwrap();
        let done = std::rc::Rc::new(std::cell::Cell::new(0));
        for writer in 0..6usize {
            let (session, done) = (mount.session(world.clone()), done.clone());
            let small = session.create(ROOT, format!("small{writer}").as_bytes(), OWNER).await.unwrap();
            world.spawn("test", async move {
                for i in 0..400usize {
                    let at = i * 7919 % 300 * STRIPE / 2;
                    session.write(small.handle, at as u64, &pattern(64, i)).await.unwrap();
                }
                done.set(done.get() + 1);
            });
        }
        let bytes = pattern(60 * STRIPE, 1);
        session.write(large.handle, 0, &bytes).await.unwrap();
        assert!(done.get() < 6, "the small ones had more to write");
        session.fsync(large.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"large"), bytes);
    });
}

#[test]
fn a_small_file_costs_few_messages() {
    let cluster = Cluster::new(5, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        cluster.known().calls.clear();
        cluster.known().sync_us = 50_000;
        let started = world.now();
        for i in 0..50 {
            let name = format!("f{i}");
            let opened = session.create(ROOT, name.as_bytes(), OWNER).await.unwrap();
            session.write(opened.handle, 0, &pattern(1024, i)).await.unwrap();
            session.flush(opened.handle).await.unwrap();
            session.release(opened.handle).await.unwrap();
            let seen = session.lookup(ROOT, name.as_bytes()).await.unwrap();
            assert_eq!(seen.size, 1024);
        }
        assert!(world.now() - started < 50 * 5_000, "closes do not wait for stability");
        world.sleep(3 * SECOND).await;
        let mut known = cluster.known();
        assert!(known.opens.is_empty(), "all closed");
        assert!((0..50).all(|i| known.stable(format!("f{i}").as_bytes()) == pattern(1024, i)));
        assert!(known.files.values().all(|f| f.size == 1024));
        known.calls.remove("Lookup");
        let calls: u64 = known.calls.values().sum();
        assert!(calls <= 50 * 4 + 20, "{:?}", known.calls);
    });
}

#[test]
fn partial_stripes_and_stability_come_by_themselves() {
    let cluster = Cluster::new(6, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 100, b"abc").await.unwrap();
        session.write(opened.handle, 103, b"def").await.unwrap();
        world.sleep(SECOND / 2).await;
        assert_eq!(cluster.calls("Write"), 0);
        world.sleep(3 * SECOND).await;
        assert_eq!((cluster.calls("Write"), cluster.known().written), (1, 6));
        assert_eq!(mount.counters().unstable_bytes, 0);
        assert_eq!(cluster.known().stable(b"f").len(), 106, "the size is kept too");
        assert!(!cluster.known().opens.is_empty());
    });
}

#[test]
fn errors_come_at_the_next_write_and_at_each_fsync_and_close() {
    let cluster = Cluster::new(7, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let full = Err(ClientError::Refused(Refusal::NoSpace));
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        cluster.known().full = true;
        session.write(opened.handle, 0, &pattern(STRIPE, 0)).await.unwrap();
        assert_eq!(session.fsync(opened.handle).await, full);
        assert_eq!(session.fsync(opened.handle).await, Ok(()));
        session.write(opened.handle, 0, &pattern(100, 0)).await.unwrap();
        assert_eq!(session.flush(opened.handle).await, full);
        session.write(opened.handle, 0, &pattern(STRIPE, 0)).await.unwrap();
        cluster.sim.node("client").sleep(SECOND).await;
        assert_eq!(session.write(opened.handle, 0, b"x").await.map(|_| ()), full);
        assert_eq!(mount.counters().unstable_bytes, 0);
        cluster.known().full = false;
        session.write(opened.handle, 0, &pattern(STRIPE, 5)).await.unwrap();
        let other = session.open(opened.attr.inode, true, false).await.unwrap();
        assert_eq!(
            session.fsync(opened.handle).await,
            full,
            "the kernel may have kept the write's error to itself"
        );
        assert_eq!(session.fsync(other.handle).await, full, "this one's user has not heard of it");
        session.fsync(opened.handle).await.unwrap();
        session.flush(other.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), pattern(STRIPE, 5));
    });
}

#[test]
fn a_loss_after_the_last_close_is_told_when_the_mount_ends() {
    let cluster = Cluster::new(8, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(100, 0)).await.unwrap();
        session.flush(opened.handle).await.unwrap();
        // Its primary had it, and the next one finds no room.
        cluster.known().full = true;
        cluster.known().bump();
        session.release(opened.handle).await.unwrap();
        world.sleep(5 * SECOND).await;
        assert_eq!(mount.counters().unstable_bytes, 0);
        assert_eq!(mount.leave(&world).await, Err(ClientError::Refused(Refusal::NoSpace)));
    });
}

#[test]
fn a_mount_that_ends_without_bricks_tells_no_size_of_what_is_not_stable() {
    let cluster = Cluster::new(8, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(100, 0)).await.unwrap();
        session.flush(opened.handle).await.unwrap();
        cluster.known().mute.extend((0..=3).map(BrickId));
        assert_eq!(mount.leave(&cluster.sim.node("client")).await, Err(ClientError::Unreachable));
        assert!(cluster.known().files.values().all(|file| file.size == 0));
    });
}

#[test]
fn unstable_writes_are_sent_again_after_an_epoch_change() {
    for seed in 0..20 {
        let cluster = Cluster::new(100 + seed, "2+1", 3);
        cluster.run(async {
            let (_mount, session) = cluster.mount("client").await;
            let world = cluster.sim.node("client");
            let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
            let mut model = vec![0; 6 * STRIPE];
            for i in 0..120usize {
                let at = (i * 3571 * (seed as usize + 1)) % (model.len() - 900);
                session.write(opened.handle, at as u64, &pattern(900, i)).await.unwrap();
                model[at..at + 900].copy_from_slice(&pattern(900, i));
                if i % 10 == 3 {
                    session.flush(opened.handle).await.unwrap();
                }
                if i % 25 == 20 {
                    cluster.known().bump();
                    world.sleep(world.random() % 2000).await;
                }
            }
            cluster.known().bump();
            session.fsync(opened.handle).await.unwrap();
            let stable = cluster.known().stable(b"f");
            assert!(stable == model[..stable.len()], "seed {seed}");
        });
    }
}

#[test]
fn a_dead_primary_is_followed_and_reads_go_degraded() {
    let cluster = Cluster::new(9, "2+1", 4);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let bytes = pattern(16 * STRIPE, 9);
        session.write(opened.handle, 0, &bytes).await.unwrap();
        session.flush(opened.handle).await.unwrap();
        cluster.kill_brick(BrickId(1));
        let (other, cluster2) = (world.clone(), cluster.clone());
        world.spawn("test", async move {
            other.sleep(3 * SECOND).await;
            cluster2.expel(BrickId(1));
        });
        session.write(opened.handle, 0, &pattern(STRIPE, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        let mut model = bytes.clone();
        model[..STRIPE].copy_from_slice(&pattern(STRIPE, 1));
        assert_eq!(cluster.known().stable(b"f"), model);
        assert_eq!(&*session.read(opened.handle, 0, model.len()).await.unwrap(), &model[..]);
        let counters = mount.counters();
        assert!(counters.bytes_primary > 0 && counters.bytes_direct > 0 && counters.retries > 0);
    });
}

#[test]
fn a_silent_brick_is_gone_round() {
    let cluster = Cluster::new(10, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let bytes = pattern(STRIPE, 10);
        session.write(opened.handle, 0, &bytes).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        mount.tune("io-cache=off read-ahead=off").unwrap();
        let data = cluster.known().map.volumes[0].groups.clone();
        let parity: Vec<BrickId> = data.iter().map(|g| g.slots[2].brick).collect();
        // Whoever is not the primary of the stripe's group falls silent.
        let calls = |name| cluster.calls(name);
        session.read(opened.handle, 0, UNIT).await.unwrap();
        assert_eq!((calls("ReadUnit"), calls("ReadStripe")), (1, 0));
        for group in 0..3 {
            cluster.known().mute = [data[group].slots[0].brick].into();
            let started = world.now();
            assert_eq!(&*session.read(opened.handle, 0, STRIPE).await.unwrap(), &bytes[..]);
            assert!(world.now() - started < 5 * SECOND || parity[group] == BrickId(0));
            world.sleep(2 * SECOND).await;
            cluster.known().mute.clear();
        }
        assert!(mount.counters().bytes_primary > 0);
    });
}

#[test]
fn truncated_bytes_read_as_zeros() {
    let cluster = Cluster::new(11, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (inode, handle) = (opened.attr.inode, opened.handle);
        let size = |size| SetAttrs { size: Some(size), ..SetAttrs::default() };
        let bytes = pattern(5 * STRIPE, 11);
        session.write(handle, 0, &bytes).await.unwrap();
        session.fsync(handle).await.unwrap();
        let attr = session.setattr(inode, size(1000)).await.unwrap();
        assert_eq!(attr.size, 1000);
        assert_eq!(&*session.read(handle, 0, 2000).await.unwrap(), &bytes[..1000]);
        session.write(handle, 30_000, b"end").await.unwrap();
        let mut model = vec![0; 30_003];
        model[..1000].copy_from_slice(&bytes[..1000]);
        model[30_000..].copy_from_slice(b"end");
        assert_eq!(&*session.read(handle, 0, 40_000).await.unwrap(), &model[..]);
        session.fsync(handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), model);
        // Unstable bytes beyond the end are gone too, and longer by truncation means zeros.
        session.write(handle, 10_000, &bytes[..9000]).await.unwrap();
        session.setattr(inode, size(12_000)).await.unwrap();
        session.setattr(inode, size(20_000)).await.unwrap();
        model.truncate(12_000);
        model[10_000..].copy_from_slice(&bytes[..2000]);
        model.resize(20_000, 0);
        assert_eq!(&*session.read(handle, 0, 40_000).await.unwrap(), &model[..]);
        session.fsync(handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), model);
        let object = cluster.known().files[&inode].object;
        session.setattr(inode, size(0)).await.unwrap();
        assert_ne!(cluster.known().files[&inode].object, object);
        session.write(handle, 5, b"x").await.unwrap();
        session.fsync(handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), b"\0\0\0\0\0x");
    });
}

#[test]
fn a_time_that_was_set_stays() {
    let cluster = Cluster::new(12, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, b"abc").await.unwrap();
        let old = SetAttrs { mtime: Some(opened.attr.mtime + 5), ..SetAttrs::default() };
        assert_eq!(session.setattr(opened.attr.inode, old).await.unwrap().mtime, opened.attr.mtime + 5);
        session.flush(opened.handle).await.unwrap();
        session.release(opened.handle).await.unwrap();
        cluster.sim.node("client").sleep(3 * SECOND).await;
        let attr = session.getattr(opened.attr.inode).await.unwrap();
        assert_eq!((attr.mtime, attr.size), (opened.attr.mtime + 5, 3));
    });
}

#[test]
fn two_sessions_share_one_mount() {
    let cluster = Cluster::new(13, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let other = mount.session(world.clone());
        world.spawn("test", mount.clone().flush_more(world.clone()));
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(100_000, 1)).await.unwrap();
        let again = other.open(opened.attr.inode, true, false).await.unwrap();
        assert_eq!((again.attr.size, again.mode), (100_000, Mode::Alone));
        assert_eq!(&*other.read(again.handle, 0, 100_000).await.unwrap(), &pattern(100_000, 1)[..]);
        other.write(again.handle, 50, b"fifty").await.unwrap();
        assert_eq!(&*session.read(opened.handle, 50, 5).await.unwrap(), b"fifty");
        session.release(opened.handle).await.unwrap();
        other.fsync(again.handle).await.unwrap();
        other.release(again.handle).await.unwrap();
        world.sleep(3 * SECOND).await;
        assert!(cluster.known().opens.is_empty());
        let opened = other.open(opened.attr.inode, true, true).await.unwrap();
        assert_eq!(opened.attr.size, 0);
    });
}

#[test]
fn a_conflicting_open_recalls_the_mode() {
    let cluster = Cluster::new(14, "2+1", 3);
    cluster.run(async {
        let (mount, writer) = cluster.mount("client").await;
        let (_other, reader) = cluster.mount("second").await;
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = told.clone();
        mount.on_recall(Box::new(move |inode, mode| heard.lock().unwrap().push((inode, mode))));
        let opened = writer.create(ROOT, b"f", OWNER).await.unwrap();
        writer.write(opened.handle, 0, &pattern(3 * STRIPE, 1)).await.unwrap();
        writer.write(opened.handle, 10, b"more").await.unwrap();
        let inode = reader.lookup(ROOT, b"f").await.unwrap().inode;
        let seen = reader.open(inode, false, false).await.unwrap();
        assert_eq!(seen.mode, Mode::Shared);
        assert_eq!(*told.lock().unwrap(), vec![(inode, Recalled::To(Mode::Shared))]);
        assert_eq!(seen.attr.size, 3 * STRIPE as u64);
        let mut model = pattern(3 * STRIPE, 1);
        model[10..14].copy_from_slice(b"more");
        assert_eq!(&*reader.read(seen.handle, 0, model.len()).await.unwrap(), &model[..]);
        // Written through from now on.
        writer.write(opened.handle, model.len() as u64, b"tail").await.unwrap();
        model.extend_from_slice(b"tail");
        assert_eq!(cluster.known().stable(b"f"), model);
        assert_eq!(&*reader.read(seen.handle, 0, 1 << 20).await.unwrap(), &model[..]);
        assert_eq!(mount.counters().unstable_bytes, 0);
        // Another truncates; the writer goes on in the new object.
        let second = reader.open(inode, true, true).await.unwrap();
        writer.write(opened.handle, 2, b"z").await.unwrap();
        assert_eq!(&*reader.read(second.handle, 0, 10).await.unwrap(), b"\0\0z");
        // A close has nothing to wait for, even where nobody could answer.
        cluster.kill_meta();
        let begun = cluster.sim.node("client").now();
        writer.flush(opened.handle).await.unwrap();
        assert_eq!(cluster.sim.node("client").now(), begun);
    });
}

#[test]
fn a_restarted_metadata_service_is_joined_again() {
    let cluster = Cluster::new(15, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(STRIPE, 1)).await.unwrap();
        let client = mount.client();
        cluster.kill_meta();
        let (later, cluster2) = (world.clone(), cluster.clone());
        world.spawn("test", async move {
            later.sleep(5 * SECOND).await;
            cluster2.start_meta();
        });
        // Both wait for the service, and are done once.
        let made = session.create(ROOT, b"g", OWNER).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(mount.client(), client);
        assert_eq!(cluster.known().stable(b"f"), pattern(STRIPE, 1));
        assert_eq!(cluster.known().opens[&(opened.attr.inode, client)], (0, 1));
        session.release(made.handle).await.unwrap();
        session.release(opened.handle).await.unwrap();
        world.sleep(3 * SECOND).await;
        assert!(cluster.known().opens.is_empty());
    });
}

#[test]
fn a_fenced_client_says_so_and_begins_anew() {
    let cluster = Cluster::new(16, "2+1", 3);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(100, 1)).await.unwrap();
        let client = mount.client();
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (heard, known) = (told.clone(), mount.clone());
        // Nothing cached counts any more, and that is said before there is a new life with a lease.
        mount.on_recall(Box::new(move |inode, recalled| {
            heard.lock().unwrap().push((inode, recalled, known.client()));
        }));
        cluster.known().fence(client);
        world.sleep(3 * SECOND).await;
        assert_eq!(*told.lock().unwrap(), vec![(opened.attr.inode, Recalled::Lost, client)]);
        let fenced = Err(ClientError::Refused(Refusal::Fenced));
        assert_eq!(session.fsync(opened.handle).await, fenced);
        assert_eq!(session.write(opened.handle, 0, b"x").await.map(|_| ()), fenced);
        assert_eq!(mount.counters().unstable_bytes, 0);
        session.release(opened.handle).await.unwrap();
        assert_ne!(mount.client(), client);
        let again = session.open(opened.attr.inode, true, false).await.unwrap();
        session.write(again.handle, 0, b"again").await.unwrap();
        session.fsync(again.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), b"again");
    });
}

#[test]
fn nothing_leaves_without_a_lease() {
    let cluster = Cluster::new(17, "2+1", 3);
    cluster.run(async {
        let (_mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        cluster.sim.partition("client", "meta", true);
        world.sleep(4 * SECOND).await;
        let (later, cluster2) = (world.clone(), cluster.clone());
        let writes = cluster.calls("Write");
        world.spawn("test", async move {
            later.sleep(5 * SECOND).await;
            assert_eq!(cluster2.calls("Write"), writes);
            cluster2.sim.partition("client", "meta", false);
        });
        session.write(opened.handle, 0, &pattern(STRIPE, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        assert_eq!(cluster.known().stable(b"f"), pattern(STRIPE, 1));
    });
}

#[test]
fn nobody_answers_for_ever() {
    let cluster = Cluster::new(18, "2+0", 2);
    cluster.run(async {
        let (mount, session) = cluster.mount("client").await;
        let world = cluster.sim.node("client");
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        session.write(opened.handle, 0, &pattern(STRIPE, 1)).await.unwrap();
        session.fsync(opened.handle).await.unwrap();
        cluster.kill_brick(BrickId(1));
        cluster.kill_brick(BrickId(2));
        assert!(cluster.known().map.volumes[0].groups[0].slots.iter().all(|s| s.state == SlotState::Live));
        let started = world.now();
        assert_eq!(session.read(opened.handle, 0, 10).await, Err(ClientError::Unreachable));
        session.write(opened.handle, 0, &pattern(STRIPE, 2)).await.unwrap();
        assert_eq!(session.fsync(opened.handle).await, Err(ClientError::Unreachable));
        assert!(world.now() - started < 140 * SECOND);
        assert_eq!(mount.counters().unstable_bytes, 0);
    });
}
