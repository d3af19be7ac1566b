//! The cache on a disk: what it saves the bricks, that it is found again, that nothing old or damaged comes from it, and
//! that mounts go on without it.

use std::sync::Arc;

use client::{CacheError, DiskCacheReport, Mount, MountError, MountOptions, Session, SetAttrs};
use proptest::prelude::*;
use types::{BufMut, ClusterId, InodeId};
use world::sim::DiskFaults;

use crate::fakes::{Cluster, OWNER, UNIT};
use crate::properties::cases;
use crate::{ROOT, SECOND, STRIPE, pattern};

const FILE: &str = "cache";
const CACHE: u64 = 2 << 20;
/// Only the disk keeps bytes.
const ONLY: &str = "io-cache=off read-ahead=off";

fn options(cluster: &Cluster) -> MountOptions {
    MountOptions { disk_cache: Some(FILE.into()), memory_budget: 8 << 20, ..cluster.options() }
}

/// A mount with a cache on a disk of its node, made if it is not there.
async fn mount(cluster: &Cluster, node: &str) -> (Arc<Mount>, Session) {
    let world = cluster.sim.node(node);
    drop(world.create_disk(FILE, CACHE).await);
    let mount = Mount::join(&world, options(cluster)).await.unwrap();
    world.spawn("client", mount.clone().background(world.clone()));
    mount.tune(ONLY).unwrap();
    (mount.clone(), mount.session(world))
}

/// Unmounts; what waits for the cache is written.
async fn leave(cluster: &Cluster, node: &str, (mount, session): (Arc<Mount>, Session)) {
    let world = cluster.sim.node(node);
    mount.leave(&world).await.unwrap();
    drop((mount, session));
    world.sleep(SECOND).await;
}

/// A file that a mount without a cache has written and closed.
async fn file(cluster: &Cluster, bytes: &[u8]) -> InodeId {
    let (_, session) = cluster.mount("writer").await;
    let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
    session.write(opened.handle, 0, bytes).await.unwrap();
    session.fsync(opened.handle).await.unwrap();
    session.release(opened.handle).await.unwrap();
    cluster.sim.node("writer").sleep(2 * SECOND).await;
    opened.attr.inode
}

async fn read_all(session: &Session, inode: InodeId, len: usize) -> Vec<u8> {
    let handle = session.open(inode, false, false).await.unwrap().handle;
    let mut bytes = Vec::new();
    for at in (0..len).step_by(3 * UNIT) {
        bytes.extend_from_slice(&session.read(handle, at as u64, 3 * UNIT).await.unwrap());
    }
    session.release(handle).await.unwrap();
    // The queue is written meanwhile.
    bytes
}

fn report(mount: &Mount) -> DiskCacheReport {
    mount.disk_cache().unwrap()
}

#[test]
fn bytes_are_found_again_by_the_next_mount() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let bytes = pattern(20 * STRIPE + 1234, 1);
        let inode = file(&cluster, &bytes).await;
        let (first, session) = mount(&cluster, "m").await;
        assert!(read_all(&session, inode, bytes.len()).await == bytes);
        cluster.sim.node("m").sleep(SECOND).await;
        let filled = report(&first);
        assert_eq!((filled.filled_bytes, filled.hits, filled.state), (bytes.len() as u64, 0, "on"));
        let names: Vec<&str> = first.layer_counters().iter().map(|layer| layer.name).collect();
        assert_eq!(names, ["auto", "io-cache", "read-ahead", "disk-cache", "write-behind", "bricks"]);
        leave(&cluster, "m", (first, session)).await;

        let before = cluster.calls("ReadUnit");
        let (second, session) = mount(&cluster, "m").await;
        assert!(read_all(&session, inode, bytes.len()).await == bytes);
        assert_eq!(cluster.calls("ReadUnit"), before, "no brick is asked");
        assert_eq!((report(&second).hit_bytes, report(&second).misses), (bytes.len() as u64, 0));
        // Anywhere, also across chunks and at the end.
        let handle = session.open(inode, false, false).await.unwrap().handle;
        for (at, len) in [(1, 5), (65_000, 70_000), (bytes.len() - 10, 100), (4096, 4096), (131_071, 2)] {
            let end = bytes.len().min(at + len);
            assert!(*session.read(handle, at as u64, len).await.unwrap() == bytes[at..end], "{at} {len}");
        }
        assert_eq!(cluster.calls("ReadUnit"), before);
        // Off counts from the next request on.
        second.tune("disk-cache=off").unwrap();
        session.read(handle, 0, 100).await.unwrap();
        assert_eq!(cluster.calls("ReadUnit"), before + 1);
    });
}

#[test]
fn only_blocks_that_are_missing_are_fetched() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let bytes = pattern(40 * STRIPE, 1);
        let inode = file(&cluster, &bytes).await;
        let (mount, session) = mount(&cluster, "m").await;
        let handle = session.open(inode, false, false).await.unwrap().handle;
        let read = async |at: usize, len: usize| {
            assert!(*session.read(handle, at as u64, len).await.unwrap() == bytes[at..at + len]);
            cluster.sim.node("m").sleep(SECOND).await;
            mount.layer_counters().last().unwrap().read_bytes
        };
        assert_eq!(read(5 * 4096 + 100, 200).await, 4096, "the block around them");
        assert_eq!(read(5 * 4096, 4096).await, 4096);
        assert_eq!(read(65_536, 65_536).await, 4096 + 65_536);
        let after = read(0, 3 * 65_536).await;
        assert_eq!(after, 4096 + 3 * 65_536, "the first chunk is not whole, the second one is there");
        assert_eq!(read(0, 3 * 65_536).await, after);
    });
}

#[test]
fn nothing_of_a_file_that_is_written_is_kept_or_used() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let mut bytes = pattern(20 * STRIPE, 1);
        let inode = file(&cluster, &bytes).await;
        let one = mount(&cluster, "m").await;
        assert!(read_all(&one.1, inode, bytes.len()).await == bytes);
        // Over present bytes, by this mount, at a time that is set back to the one before.
        let mtime = one.1.getattr(inode).await.unwrap().mtime;
        let handle = one.1.open(inode, true, false).await.unwrap().handle;
        one.1.write(handle, 5000, &[7; 3000]).await.unwrap();
        bytes[5000..8000].fill(7);
        let filled = report(&one.0).filled_bytes;
        assert!(*one.1.read(handle, 0, 9000).await.unwrap() == bytes[..9000]);
        one.1.setattr(inode, SetAttrs { mtime: Some(mtime), ..SetAttrs::default() }).await.unwrap();
        one.1.release(handle).await.unwrap();
        cluster.sim.node("m").sleep(3 * SECOND).await;
        assert_eq!((report(&one.0).filled_bytes, report(&one.0).hits), (filled, 0));
        assert_eq!(one.1.getattr(inode).await.unwrap().mtime, mtime);
        assert!(read_all(&one.1, inode, bytes.len()).await == bytes);
        leave(&cluster, "m", one).await;
        // By another mount, while this one is away.
        let other = cluster.mount("other").await.1;
        let handle = other.open(inode, true, false).await.unwrap().handle;
        other.write(handle, 0, &[9; 100]).await.unwrap();
        bytes[..100].fill(9);
        other.release(handle).await.unwrap();
        cluster.sim.node("m").sleep(3 * SECOND).await;
        let one = mount(&cluster, "m").await;
        assert!(read_all(&one.1, inode, bytes.len()).await == bytes);
        assert_eq!(report(&one.0).hits, 0);
        // By another mount, while this one has it open.
        let handle = one.1.open(inode, false, false).await.unwrap().handle;
        assert!(*one.1.read(handle, 0, 9000).await.unwrap() == bytes[..9000]);
        let theirs = other.open(inode, true, false).await.unwrap().handle;
        other.write(theirs, 50, &[5; 100]).await.unwrap();
        bytes[50..150].fill(5);
        let hits = report(&one.0).hits;
        assert!(*one.1.read(handle, 0, 9000).await.unwrap() == bytes[..9000]);
        assert_eq!(report(&one.0).hits, hits, "a shared file is not read from the cache");
    });
}

#[test]
fn what_is_damaged_is_fetched_again() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let bytes = pattern(20 * STRIPE, 1);
        let inode = file(&cluster, &bytes).await;
        let one = mount(&cluster, "m").await;
        read_all(&one.1, inode, bytes.len()).await;
        cluster.sim.damage("m", FILE, 8192, CACHE - 8192);
        assert!(read_all(&one.1, inode, bytes.len()).await == bytes);
        let seen = report(&one.0);
        assert!(seen.damaged > 0 && seen.hits == 0 && seen.state == "on", "{seen:?}");
        assert!(read_all(&one.1, inode, bytes.len()).await == bytes);
        assert!(report(&one.0).hits > 0, "it is there again");
        leave(&cluster, "m", one).await;
        // The header: the cache begins empty.
        cluster.sim.damage("m", FILE, 16, 16);
        let one = mount(&cluster, "m").await;
        assert!(read_all(&one.1, inode, bytes.len()).await == bytes);
        assert_eq!((report(&one.0).hits, report(&one.0).state), (0, "on"));
    });
}

#[test]
fn a_mount_goes_on_without_its_cache() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let bytes = pattern(20 * STRIPE, 1);
        let inode = file(&cluster, &bytes).await;
        for (node, state) in [("full", "full"), ("failing", "off"), ("slow", "off")] {
            let one = mount(&cluster, node).await;
            let world = cluster.sim.node(node);
            let handle = one.1.open(inode, false, false).await.unwrap().handle;
            let first = async || {
                assert!(*one.1.read(handle, 0, STRIPE).await.unwrap() == bytes[..STRIPE], "{node}");
            };
            first().await;
            world.sleep(SECOND).await;
            match node {
                "full" => {
                    cluster.sim.disk_faults(node, FILE, DiskFaults { full: true, ..DiskFaults::default() })
                }
                "failing" => cluster.sim.fail_disk(node, FILE, true),
                _ => cluster.sim.slow_disk(node, FILE, 1_000_000),
            }
            let began = world.now();
            assert!(read_all(&one.1, inode, bytes.len()).await == bytes, "{node}");
            assert!(world.now() - began < 5 * SECOND, "{node}: a reader does not wait for long");
            world.sleep(20 * SECOND).await;
            assert!(read_all(&one.1, inode, bytes.len()).await == bytes, "{node}");
            first().await;
            let seen = report(&one.0);
            assert_eq!(seen.state, state, "{seen:?}");
            assert!(seen.reason.is_some() && seen.filled_bytes == STRIPE as u64);
            assert_eq!(seen.hit_bytes > 0, state == "full", "what is there stays in use: {seen:?}");
            one.0.leave(&world).await.unwrap();
        }
    });
}

#[test]
fn a_cache_that_cannot_be_used_is_refused() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let refused = async |node: &str, options: MountOptions| {
            let error = Mount::join(&cluster.sim.node(node), options).await.err().expect("it is refused");
            let MountError::Cache(error) = error else { panic!("{error}") };
            error
        };
        let _one = mount(&cluster, "m").await;
        assert_eq!(refused("m", options(&cluster)).await, CacheError::InUse(FILE.into()));
        assert!(matches!(refused("none", options(&cluster)).await, CacheError::Open(_)));
        drop(cluster.sim.node("small").create_disk(FILE, 4096).await.unwrap());
        assert_eq!(refused("small", options(&cluster)).await, CacheError::TooSmall(FILE.into()));
        drop(cluster.sim.node("large").create_disk(FILE, 16 << 30).await.unwrap());
        let error = refused("large", options(&cluster)).await;
        assert!(error.to_string().contains("MiB of the process's memory"), "{error}");
        // Files of somebody else, and of another cluster.
        let write = async |node: &str, bytes: &[u8]| {
            let disk = cluster.sim.node(node).create_disk(FILE, CACHE).await.unwrap();
            let mut block = BufMut::zeroed(4096);
            block[..bytes.len()].copy_from_slice(bytes);
            disk.write(0, vec![block.freeze()]).await.unwrap();
        };
        write("foreign", b"precious").await;
        assert_eq!(refused("foreign", options(&cluster)).await, CacheError::Foreign(FILE.into()));
        let mut header = b"SHOALCCH\x01\0\0\0".to_vec();
        header.extend([9; 16]);
        header.extend(29_u32.to_le_bytes());
        header.extend(types::checksum::crc(&header).to_le_bytes());
        write("theirs", &header).await;
        let theirs = CacheError::OtherCluster { path: FILE.into(), theirs: ClusterId([9; 16]) };
        assert_eq!(refused("theirs", options(&cluster)).await, theirs);
        assert_eq!(cluster.known().clients.len(), 1, "who was refused after it had joined has left");
        let (plain, _) = cluster.mount("plain").await;
        let error = plain.tune("disk-cache=on").unwrap_err().to_string();
        assert!(error.contains("mount with --cache-dir"), "{error}");
        assert!(plain.tune("disk-cache=off").is_ok() && plain.disk_cache().is_none());
    });
}

#[test]
fn a_scan_of_a_large_file_is_not_kept_unless_somebody_says_so() {
    let cluster = Cluster::new(1, "2+1", 3);
    cluster.run(async {
        let bytes = pattern(200 * STRIPE, 1);
        let inode = file(&cluster, &bytes).await;
        let (mount, session) = mount(&cluster, "m").await;
        assert!(read_all(&session, inode, bytes.len()).await == bytes);
        let filled = report(&mount).filled_bytes;
        assert!(
            filled < 20 * 3 * UNIT as u64,
            "the first reads, until it is known that it is a scan: {filled}"
        );
        mount.tune("disk-cache=on").unwrap();
        assert!(read_all(&session, inode, bytes.len()).await == bytes);
        cluster.sim.node("m").sleep(SECOND).await;
        assert!(report(&mount).filled_bytes > filled + 500_000);
    });
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize, bool),
    Read(usize, usize),
    Truncate(usize),
    Zero(usize, usize),
    Remount,
    Kill(bool, Option<(usize, usize)>),
    Damage(u64, u64),
    Pause(u64),
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let end = 30 * STRIPE;
    let step = prop_oneof![
        3 => (0..end, 1..3 * STRIPE, any::<bool>()).prop_map(|(at, len, sync)| Step::Write(at, len, sync)),
        6 => (0..end, 1..end).prop_map(|(at, len)| Step::Read(at, len)),
        1 => (0..end).prop_map(Step::Truncate),
        1 => (0..end, 1..4 * STRIPE).prop_map(|(at, len)| Step::Zero(at, len)),
        2 => Just(Step::Remount),
        2 => (any::<bool>(), proptest::option::of((0..end, 1..STRIPE))).prop_map(|(cut, at)| Step::Kill(cut, at)),
        1 => (8..CACHE, 1..100_000_u64).prop_map(|(at, len)| Step::Damage(at, len)),
        2 => (0..3_000_000_u64).prop_map(Step::Pause),
    ];
    proptest::collection::vec((0..2_usize, step), 1..40)
}

const NODES: [&str; 2] = ["m0", "m1"];

/// Two mounts with caches write and read one file in turns, end in many ways and begin again.
async fn follow(cluster: &Cluster, steps: Vec<(usize, Step)>) -> u64 {
    let mut model = pattern(20 * STRIPE + 77, 0);
    let inode = file(cluster, &model).await;
    let mut mounts = [Some(mount(cluster, NODES[0]).await), Some(mount(cluster, NODES[1]).await)];
    let mut hits = 0;
    for (i, (who, step)) in steps.into_iter().enumerate() {
        let node = NODES[who];
        let (mounted, session) = mounts[who].clone().unwrap();
        match step {
            Step::Write(at, len, sync) => {
                let handle = session.open(inode, true, false).await.unwrap().handle;
                let bytes = pattern(len, i);
                session.write(handle, at as u64, &bytes).await.unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
                if sync {
                    session.fsync(handle).await.unwrap();
                }
                session.release(handle).await.unwrap();
            }
            Step::Read(at, len) => {
                let handle = session.open(inode, false, false).await.unwrap().handle;
                let end = (at + len).min(model.len());
                for _ in 0..2 {
                    let read = session.read(handle, at as u64, len).await.unwrap();
                    assert!(*read == model[at.min(end)..end], "step {i}: {node} reads {at} {len}");
                }
                session.release(handle).await.unwrap();
            }
            Step::Truncate(size) => {
                let changes = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
                session.setattr(inode, changes).await.unwrap();
                model.resize(size, 0);
            }
            Step::Zero(at, len) => {
                let handle = session.open(inode, true, false).await.unwrap().handle;
                session.zero(handle, at as u64..(at + len) as u64).await.unwrap();
                let end = (at + len).min(model.len());
                model[at.min(end)..end].fill(0);
                session.release(handle).await.unwrap();
            }
            Step::Remount => {
                hits += report(&mounted).hits;
                mounts[who] = None;
                leave(cluster, node, (mounted, session)).await;
                mounts[who] = Some(mount(cluster, node).await);
            }
            Step::Kill(power_cut, write) => {
                hits += report(&mounted).hits;
                if let Some((at, len)) = write {
                    // Bytes that bricks have, and of which nobody was told.
                    let handle = session.open(inode, true, false).await.unwrap().handle;
                    mounted.tune("write-behind=off").unwrap();
                    session.write(handle, at as u64, &pattern(len, i)).await.unwrap();
                }
                let client = mounted.client();
                mounts[who] = None;
                if power_cut {
                    cluster.sim.power_cut(node);
                } else {
                    cluster.sim.kill(node);
                }
                drop((mounted, session));
                cluster.known().fence(client);
                mounts[who] = Some(mount(cluster, node).await);
                // What is there now is what bricks say.
                let (plain, truth) = cluster.mount("truth").await;
                let handle = truth.open(inode, false, false).await.unwrap().handle;
                model = truth.read(handle, 0, 100 * STRIPE).await.unwrap().to_vec();
                truth.release(handle).await.unwrap();
                plain.leave(&cluster.sim.node("truth")).await.unwrap();
            }
            Step::Damage(at, len) => cluster.sim.damage(node, FILE, at, len),
            Step::Pause(us) => cluster.sim.node("client").sleep(us).await,
        }
    }
    for (mounted, _) in mounts.into_iter().flatten() {
        assert_eq!(report(&mounted).state, "on");
        hits += report(&mounted).hits;
    }
    hits
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn caches_of_two_mounts_never_have_anything_old(steps in steps(), seed in 0..1000_u64) {
        let cluster = Cluster::new(seed, "2+1", 3);
        cluster.run(follow(&cluster, steps));
    }
}

#[test]
fn the_storm_does_read_from_caches() {
    let cluster = Cluster::new(5, "2+1", 3);
    let read = |who| (who, Step::Read(0, 20 * STRIPE));
    let steps = vec![
        read(0),
        read(1),
        (0, Step::Pause(SECOND)),
        (1, Step::Remount),
        (0, Step::Kill(false, None)),
        read(0),
        read(1),
    ];
    assert!(cluster.run(follow(&cluster, steps)) > 0);
}
