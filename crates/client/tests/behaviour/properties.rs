//! A file is a vector of bytes, whatever steps one mount takes, mounts take in turns, or writers take in a storm:
//! random steps run on a mount and on a vector. `CASES=n` runs more of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use client::{Encode, SetAttrs};
use proptest::prelude::*;
use types::BrickId;
use world::SimOptions;

use crate::fakes::{Cluster, OWNER};
use crate::{ROOT, SECOND, STRIPE, pattern};

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Read(usize, usize),
    Truncate(usize),
    Fsync,
    Flush,
    Reopen,
    Pause(u64),
    Bump,
    SilentBrick(u32),
    /// Reads the file from its start in pieces of this length.
    Scan(usize),
    Tune(&'static str),
}

/// Settings between which steps change.
const TUNINGS: [&str; 7] = [
    "io-cache=on io-cache.page=4K",
    "io-cache=on io-cache.page=16K read-ahead=on",
    "io-cache=off",
    "read-ahead=off",
    "write-behind=off",
    "write-behind=on write-behind.size=4K write-behind.age=20ms",
    "io-cache=auto read-ahead=auto write-behind=auto write-behind.size=auto",
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = 12 * STRIPE;
    let step = prop_oneof![
        6 => (0..end, 1..2 * STRIPE).prop_map(|(at, len)| Step::Write(at, len)),
        2 => (0..12usize, 1..4usize).prop_map(|(at, n)| Step::Write(at * STRIPE, n * STRIPE)),
        5 => (0..end, 1..4 * STRIPE).prop_map(|(at, len)| Step::Read(at, len)),
        2 => (0..end).prop_map(Step::Truncate),
        1 => Just(Step::Truncate(0)),
        1 => Just(Step::Fsync),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        2 => (0..2_000_000u64).prop_map(Step::Pause),
        1 => Just(Step::Bump),
        1 => (1..4u32).prop_map(Step::SilentBrick),
        2 => (2000..2 * STRIPE).prop_map(Step::Scan),
        2 => (0..TUNINGS.len()).prop_map(|n| Step::Tune(TUNINGS[n])),
    ];
    proptest::collection::vec(step, 1..50)
}

async fn follow(cluster: &Cluster, steps: Vec<Step>) {
    let (mount, session) = cluster.mount("client").await;
    let world = cluster.sim.node("client");
    let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
    let inode = opened.attr.inode;
    let mut handle = opened.handle;
    let mut model: Vec<u8> = Vec::new();
    for (i, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write(at, len) => {
                let bytes = pattern(len, i);
                session.write(handle, at as u64, &bytes).await.unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
            }
            Step::Read(at, len) => {
                let end = (at + len).min(model.len());
                let read = session.read(handle, at as u64, len).await.unwrap();
                assert!(*read == model[at.min(end)..end], "step {i}");
            }
            Step::Truncate(size) => {
                let changes = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
                let attr = session.setattr(inode, changes).await.unwrap();
                assert_eq!(attr.size, size as u64);
                model.resize(size, 0);
            }
            Step::Fsync => {
                session.fsync(handle).await.unwrap();
                assert!(cluster.known().stable(b"f") == model, "step {i}");
            }
            Step::Flush => {
                session.flush(handle).await.unwrap();
                let shown = cluster.known().files[&inode].clone();
                assert_eq!(shown.volatile.max(shown.size), model.len() as u64, "step {i}");
            }
            Step::Reopen => {
                session.flush(handle).await.unwrap();
                session.release(handle).await.unwrap();
                handle = session.open(inode, true, false).await.unwrap().handle;
            }
            Step::Scan(piece) => {
                for (at, bytes) in model.chunks(piece).enumerate() {
                    let read = session.read(handle, (at * piece) as u64, piece).await.unwrap();
                    assert!(*read == *bytes, "step {i}, piece {at}");
                }
            }
            Step::Tune(changes) => mount.tune(changes).unwrap(),
            Step::Pause(us) => world.sleep(us).await,
            Step::Bump => cluster.known().bump(),
            Step::SilentBrick(brick) => {
                cluster.kill_brick(BrickId(brick));
                cluster.known().bump();
                cluster.start_brick(BrickId(brick));
            }
        }
        assert_eq!(session.getattr(inode).await.unwrap().size, model.len() as u64, "step {i}");
    }
    let read = session.read(handle, 0, model.len() + 10).await.unwrap();
    assert!(*read == model[..]);
    mount.leave(&world).await.unwrap();
    assert!(cluster.known().stable(b"f") == model);
    assert_eq!(mount.counters().unstable_bytes, 0);
}

/// Writers of one file at once, each in its own blocks, while primaries, the service and connections come and go.
async fn storm(cluster: &Cluster, seed: u64) {
    const WRITERS: usize = 4;
    const BLOCKS: usize = 40;
    let (mount, session) = cluster.mount("client").await;
    let world = cluster.sim.node("client");
    let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
    let model = Rc::new(RefCell::new(vec![0u8; WRITERS * BLOCKS * 700]));
    let done = Rc::new(Cell::new(0));
    for writer in 0..WRITERS {
        let (model, done) = (model.clone(), done.clone());
        let session = mount.session(world.clone());
        let world = world.clone();
        let handle = session.open(opened.attr.inode, true, false).await.unwrap().handle;
        cluster.sim.node("client").spawn("test", async move {
            for i in 0..BLOCKS {
                let block = (i * 17 + writer) % BLOCKS * WRITERS + writer;
                let bytes = pattern(700, seed as usize + i);
                session.write(handle, (block * 700) as u64, &bytes).await.unwrap();
                model.borrow_mut()[block * 700..][..700].copy_from_slice(&bytes);
                match world.random() % 12 {
                    0 => session.fsync(handle).await.unwrap(),
                    1 => session.flush(handle).await.unwrap(),
                    2 => world.sleep(world.random() % 1_500_000).await,
                    _ => {}
                }
                let read = session.read(handle, (block * 700) as u64, 700).await.unwrap();
                assert!(*read == bytes[..], "writer {writer} reads what it wrote");
            }
            session.flush(handle).await.unwrap();
            session.release(handle).await.unwrap();
            done.set(done.get() + 1);
        });
    }
    let bricks = cluster.known().map.bricks.len() as u32;
    while done.get() < WRITERS {
        world.sleep(world.random() % 900_000).await;
        match world.random() % 4 {
            0 => cluster.known().bump(),
            1 => {
                let brick = BrickId((world.random() % u64::from(bricks)) as u32 + 1);
                cluster.kill_brick(brick);
                world.sleep(world.random() % 2_000_000).await;
                cluster.known().bump();
                cluster.start_brick(brick);
            }
            2 => {
                cluster.kill_meta();
                world.sleep(world.random() % 5_000_000).await;
                cluster.start_meta();
            }
            _ => {}
        }
    }
    session.fsync(opened.handle).await.unwrap();
    let model = model.take();
    assert!(cluster.known().stable(b"f") == model[..], "stable");
    assert!(*session.read(opened.handle, 0, 1 << 20).await.unwrap() == model[..]);
    mount.leave(&world).await.unwrap();
    assert_eq!(mount.counters().unstable_bytes, 0);
}

/// Cases of a property; more by hand.
/// Either way for whole stripes.
fn either(seed: u64) -> Encode {
    if seed.is_multiple_of(2) { Encode::Client } else { Encode::Primary }
}

pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn writers_survive_a_storm(seed in any::<u64>()) {
        let rough = SimOptions { time_us_max: 900 * SECOND, ..SimOptions::drawn(seed) };
        let cluster = Cluster::rough(seed, "2+1", 4, rough);
        cluster.known().encode = either(seed);
        cluster.run(storm(&cluster, seed % 1000));
    }

    #[test]
    fn mounts_take_turns(seed in any::<u64>(), turns in proptest::collection::vec((0usize..3, 0usize..9 * STRIPE, 1usize..2 * STRIPE, any::<bool>(), any::<bool>()), 1..20)) {
        let cluster = Cluster::rough(seed, "2+1", 3, SimOptions { break_per_million: 0, ..SimOptions::drawn(seed) });
        cluster.run(async {
            let mut mounts = Vec::new();
            for node in ["client", "second", "third"] {
                mounts.push(cluster.mount(node).await);
            }
            let first = &mounts[0].1;
            let opened = first.create(ROOT, b"f", OWNER).await.unwrap();
            first.release(opened.handle).await.unwrap();
            let mut model: Vec<u8> = Vec::new();
            let mut kept = Vec::new();
            for (i, (who, at, len, cut, keep)) in turns.into_iter().enumerate() {
                let session = &mounts[who].1;
                let opened = session.open(opened.attr.inode, true, false).await.unwrap();
                assert_eq!(opened.attr.size, model.len() as u64, "turn {i}");
                if cut {
                    let size = SetAttrs { size: Some(at as u64), ..SetAttrs::default() };
                    session.setattr(opened.attr.inode, size).await.unwrap();
                    model.resize(at, 0);
                } else {
                    session.write(opened.handle, at as u64, &pattern(len, i)).await.unwrap();
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&pattern(len, i));
                }
                let read = session.read(opened.handle, 0, 1 << 20).await.unwrap();
                let wrong = read.iter().zip(&model).position(|(a, b)| a != b);
                assert!(*read == model[..], "turn {i}: {} of {}, from {wrong:?}", read.len(), model.len());
                if keep {
                    kept.push((who, opened.handle));
                } else {
                    session.flush(opened.handle).await.unwrap();
                    session.release(opened.handle).await.unwrap();
                }
            }
            for (who, handle) in kept {
                let read = mounts[who].1.read(handle, 0, 1 << 20).await.unwrap();
                assert!(*read == model[..], "a handle that stayed open");
            }
            cluster.sim.node("client").sleep(4 * SECOND).await;
            assert!(cluster.known().stable(b"f") == model);
        });
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn a_file_is_a_vector_of_bytes(seed in any::<u64>(), steps in steps()) {
        let cluster = Cluster::new(seed, "2+1", 3);
        cluster.known().encode = either(seed);
        cluster.run(follow(&cluster, steps));
    }
}

#[test]
#[ignore = "one seed, by hand"]
fn one_storm() {
    let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap();
    let rough = SimOptions { time_us_max: 900 * SECOND, ..SimOptions::drawn(seed) };
    println!("{rough:?}");
    let cluster = Cluster::rough(seed, "2+1", 4, rough);
    cluster.run(storm(&cluster, seed % 1000));
}
