//! Direct disks in the simulated world, whose disks take their time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::join_all;
use pace::device::PolicyName;
use pace::{IoClass, Share};
use types::limits::BLOCK;
use types::{Buf, BufMut};

use super::*;
use crate::{Disk, DiskMode, SimOptions, Simulation, World};

/// Blocks of the disk.
const BLOCKS: u64 = 64;

/// A node with a direct disk behind a queue. Each request takes 100 to 1,000 us.
fn with_disk<T>(seed: u64, options: DirectOptions, test: impl AsyncFnOnce(World, Disk) -> T) -> T {
    let times = SimOptions { read_us: 100..1_000, write_us: 100..1_000, ..SimOptions::default() };
    let sim = Simulation::new(seed, times);
    let world = sim.node("brick");
    sim.block_on("brick", async {
        world.create_disk("disk", BLOCKS * BLOCK as u64).await.expect("a disk");
        let disk = world.open_disk_as("disk", DiskMode::Direct).await.expect("it is there");
        test(world.clone(), disk.behind_queue(options)).await
    })
}

fn options(blocks: u64, depth: u32) -> DirectOptions {
    DirectOptions {
        cache_bytes: blocks * (BLOCK as u64 + 256),
        depth,
        policy: PolicyName::Noop,
        priority: None,
    }
}

fn filled(byte: u8, blocks: usize) -> Buf {
    let mut buf = BufMut::zeroed(blocks * BLOCK);
    buf.fill(byte);
    buf.freeze()
}

/// Readers and writers of the same blocks at the same time, some of whom give up: a read has what was written last before it
/// began, or something written since.
#[test]
fn nobody_reads_what_has_been_overwritten() {
    for seed in 0..40 {
        let policy = PolicyName::ALL[seed as usize % PolicyName::ALL.len()];
        with_disk(seed, DirectOptions { policy, ..options(16, 4) }, async |world, disk| {
            // For each block what was written last, and by which writes that have not ended, or were given up.
            let settled = Rc::new(RefCell::new([0_u8; BLOCKS as usize]));
            let maybe = Rc::new(RefCell::new([(); BLOCKS as usize].map(|()| Vec::<u8>::new())));
            let writing = Rc::new(RefCell::new([false; BLOCKS as usize]));
            let count = Rc::new(Cell::new(0_u8));
            let work = (0..12).map(|_| {
                let (world, disk, count) = (world.clone(), disk.clone(), count.clone());
                let (settled, maybe, writing) = (settled.clone(), maybe.clone(), writing.clone());
                async move {
                    for _ in 0..30 {
                        let at = (world.random() % (BLOCKS - 4)) as usize;
                        let len = 1 + (world.random() % 4) as usize;
                        let (blocks, offset) = (at..at + len, (at * BLOCK) as u64);
                        let patience = if world.random().is_multiple_of(4) { 300 } else { 1_000_000 };
                        let writes = world.random().is_multiple_of(2);
                        if writes && !blocks.clone().any(|block| writing.borrow()[block]) {
                            count.set(count.get().wrapping_add(1).max(1));
                            let byte = count.get();
                            for block in blocks.clone() {
                                writing.borrow_mut()[block] = true;
                                maybe.borrow_mut()[block].push(byte);
                            }
                            let write = disk.write(offset, vec![filled(byte, len)]);
                            // One that was given up may still arrive, so nobody writes there any more.
                            if let Some(written) = world.timeout(patience, write).await {
                                written.expect("the disk is sound");
                                for block in blocks {
                                    settled.borrow_mut()[block] = byte;
                                    maybe.borrow_mut()[block].clear();
                                    writing.borrow_mut()[block] = false;
                                }
                            }
                        } else {
                            let before: Vec<u8> = settled.borrow()[blocks.clone()].to_vec();
                            let mut allowed: Vec<Vec<u8>> = maybe.borrow()[blocks.clone()].to_vec();
                            let read = disk.read(offset, len * BLOCK);
                            let Some(bytes) = world.timeout(patience, read).await else { continue };
                            let bytes = bytes.expect("the disk is sound");
                            for (index, block) in blocks.enumerate() {
                                allowed[index].push(before[index]);
                                allowed[index].push(settled.borrow()[block]);
                                allowed[index].extend(&maybe.borrow()[block]);
                                let found = &bytes[index * BLOCK..(index + 1) * BLOCK];
                                assert!(
                                    found.iter().all(|byte| *byte == found[0]),
                                    "blocks are written whole"
                                );
                                // A byte that was written and overwritten again while the read was under way is fine, too.
                                let newer = found[0] > before[index];
                                assert!(
                                    allowed[index].contains(&found[0]) || newer,
                                    "{} of {allowed:?}",
                                    found[0]
                                );
                            }
                        }
                    }
                }
            });
            join_all(work).await;
            // What was given up is still at the device.
            world.sleep(5_000).await;
            let counts = disk.queue_counts().expect("it has a queue");
            assert_eq!((counts.waiting, counts.at_device), (0, 0), "seed {seed}");
            assert!(counts.cached_bytes > 0 && counts.cache_used <= counts.cache_most);
        });
    }
}

#[test]
fn what_was_read_comes_from_memory_and_a_write_replaces_it() {
    with_disk(1, options(BLOCKS, 4), async |_, disk| {
        disk.write(0, vec![filled(1, 8)]).await.expect("sound");
        let reads = || disk.counts().reads;
        assert_eq!(disk.read(0, 8 * BLOCK).await.expect("sound"), filled(1, 8));
        assert_eq!(reads(), 0, "a small write stays in memory");
        assert_eq!(&*disk.read(5 * BLOCK as u64 + 7, 100).await.expect("sound"), [1; 100]);
        disk.write(BLOCK as u64, vec![filled(2, 1)]).await.expect("sound");
        assert_eq!(&*disk.read(BLOCK as u64, BLOCK).await.expect("sound"), &*filled(2, 1));
        assert_eq!(&*disk.read(0, BLOCK).await.expect("sound"), &*filled(1, 1));
        assert_eq!(reads(), 0);
        disk.write(0, vec![filled(3, 32)]).await.expect("sound");
        assert_eq!(disk.read(0, 2 * BLOCK).await.expect("sound"), filled(3, 2));
        assert_eq!(reads(), 1, "a large one does not");
        assert_eq!(disk.read(0, 2 * BLOCK).await.expect("sound"), filled(3, 2));
        assert_eq!(reads(), 1, "what was read stays");
        let scrubbed = in_class(IoClass::Scrub, disk.read(0, BLOCK)).await.expect("sound");
        assert_eq!((scrubbed, reads()), (filled(3, 1), 2), "who checks sees the device");
        let counts = disk.queue_counts().expect("a queue");
        assert_eq!(counts.requests[IoClass::Scrub as usize], 1);
        assert_eq!(counts.requests[IoClass::ClientWrite as usize], 3);
    });
}

#[test]
fn the_device_gets_whole_blocks_whatever_is_written() {
    for blocks in [0, 1, 16] {
        with_disk(1, options(blocks, 4), async |world, disk| {
            let mut model = vec![0_u8; BLOCKS as usize * BLOCK];
            for round in 1..=200_u8 {
                let offset = (world.random() % (model.len() as u64 - 100_000)) as usize;
                let lens = [world.random() % 300, world.random() % 90_000, world.random() % 5_000]
                    .map(|len| len as usize);
                let parts: Vec<Buf> = lens.iter().map(|len| Buf::copy_of(&vec![round; *len])).collect();
                let len: usize = lens.iter().sum();
                model[offset..offset + len].fill(round);
                disk.write(offset as u64, parts).await.expect("sound");
                let (from, to) = (offset.saturating_sub(5_000), (offset + len + 5_000).min(model.len()));
                assert_eq!(&*disk.read(from as u64, to - from).await.expect("sound"), &model[from..to]);
            }
            assert_eq!(&*disk.read(0, model.len()).await.expect("sound"), &model[..]);
        });
    }
}

#[test]
fn a_journal_that_goes_on_where_it_ended_reads_nothing() {
    with_disk(1, options(16, 4), async |_, disk| {
        let mut at = 0;
        for len in [100, 5_000, 70_001, 64, 80_000] {
            disk.append(at, vec![Buf::copy_of(&vec![1; len])]).await.expect("sound");
            at += len as u64;
        }
        assert_eq!(disk.counts().reads, 0);
        assert!(disk.read(0, at as usize).await.expect("sound").iter().all(|byte| *byte == 1));
        // Whoever may not lose what is behind must look at it.
        disk.write(at - 1, vec![Buf::copy_of(&[2])]).await.expect("sound");
        disk.write(60 * BLOCK as u64, vec![Buf::copy_of(&[2])]).await.expect("sound");
        assert_eq!(disk.counts().reads, 2, "all from above, and a block that is not in memory");
    });
}

#[test]
fn the_device_has_so_many_requests_at_a_time_and_the_journal_goes_past_them() {
    with_disk(1, options(0, 3), async |world, disk| {
        let most = Rc::new(Cell::new(0));
        let read = |at: u64| {
            let (disk, most) = (disk.clone(), most.clone());
            async move {
                let one = disk.read(at % BLOCKS * BLOCK as u64, BLOCK);
                let watch = async {
                    loop {
                        let counts = disk.queue_counts().expect("a queue");
                        most.set(most.get().max(counts.at_device));
                        world_tick(&disk).await;
                    }
                };
                futures_util::pin_mut!(one, watch);
                futures_util::future::select(one, watch).await;
            }
        };
        let others = join_all((0..40).map(read));
        let journal = async {
            world.sleep(50).await;
            let begun = world.now();
            in_class(IoClass::Journal, disk.write(0, vec![filled(1, 1)])).await.expect("sound");
            world.now() - begun
        };
        let (_, waited) = futures_util::future::join(others, journal).await;
        assert!(waited <= 1_100, "{waited} us: no longer than one write");
        assert!((3..=4).contains(&most.get()), "{} at a time", most.get());
    });
}

/// Lets a little time pass.
async fn world_tick(disk: &Disk) {
    disk.world.sleep(20).await;
}

#[test]
fn shares_decide_who_waits_and_can_be_changed_while_requests_wait() {
    // How many of 400 requests each class got, while both always have some waiting.
    let served = |weight: u32| {
        with_disk(7, options(0, 2), async |world, disk| {
            let share = Share { reservation: 0, weight, limit: 1_000 };
            let other = Share { reservation: 0, weight: 100, limit: 1_000 };
            let shares = [(IoClass::Rebuild, share), (IoClass::ClientRead, other)];
            let change = QueueChange { depth: Some(2), shares: &shares, ..QueueChange::default() };
            disk.tune_queue(&change).expect("sound");
            assert_eq!(disk.queue_settings().expect("a queue").depth, 2);
            let readers = (0..16).map(|at| {
                let (disk, world) = (disk.clone(), world.clone());
                async move {
                    let class = if at % 2 == 0 { IoClass::Rebuild } else { IoClass::ClientRead };
                    while world.now() < 100_000 {
                        in_class(class, disk.read(at * BLOCK as u64, BLOCK)).await.expect("sound");
                    }
                }
            });
            join_all(readers).await;
            let counts = disk.queue_counts().expect("a queue").requests;
            counts[IoClass::Rebuild as usize] as f64 / counts[IoClass::ClientRead as usize] as f64
        })
    };
    let (third, triple) = (served(33), served(300));
    assert!((0.25..0.45).contains(&third), "{third}");
    assert!((2.3..3.7).contains(&triple), "{triple}");
    with_disk(1, options(0, 2), async |_, disk| {
        let refused = |change: QueueChange<'_>| {
            let before = disk.queue_settings();
            let why = disk.tune_queue(&change).expect_err("it makes no sense");
            assert_eq!(disk.queue_settings(), before, "nothing changes");
            why
        };
        let usual = QueueChange::default();
        assert!(refused(QueueChange { depth: Some(0), ..usual }).contains("1 to 1024"));
        assert!(refused(QueueChange { depth: Some(2000), ..usual }).contains("2000"));
        let policy = Some(PolicyName::Deadline);
        let parameters = [("fifo-batch", 0)];
        assert!(refused(QueueChange { policy, parameters: &parameters, ..usual }).contains("fifo-batch 0"));
        assert!(refused(QueueChange { parameters: &[("depth", 4)], ..usual }).contains("the whole queue"));
        let none = (IoClass::Fold, Share { reservation: 0, weight: 0, limit: 1 });
        assert!(refused(QueueChange { policy, shares: &[none], ..usual }).contains("a weight"));
    });
}

#[test]
fn who_gives_up_leaves_the_queue() {
    with_disk(3, options(0, 1), async |world, disk| {
        for _ in 0..50 {
            let reads =
                (0..8).map(|at| world.timeout(world.random() % 2_000, disk.read(at * BLOCK as u64, BLOCK)));
            join_all(reads).await;
        }
        let counts = disk.queue_counts().expect("a queue");
        assert_eq!((counts.waiting, counts.at_device), (0, 0));
        disk.read(0, BLOCK).await.expect("there is a place");
    });
}

#[test]
fn a_class_at_its_limit_goes_on_by_itself() {
    with_disk(3, options(0, 1), async |world, disk| {
        let begun = world.now();
        // Each counts 58 us of the device, and may have a quarter of it.
        for at in 0..40 {
            in_class(IoClass::Scrub, disk.read(at * BLOCK as u64, BLOCK)).await.expect("sound");
        }
        assert!(world.now() - begun >= 39 * 4 * 58, "{} us", world.now() - begun);
    });
}

/// With every policy all is served, also what waits while the policy changes, and neighbours go together.
#[test]
fn a_policy_can_be_changed_while_requests_wait() {
    with_disk(5, options(0, 2), async |world, disk| {
        let reads = join_all((0..BLOCKS).rev().map(|at| disk.read(at * BLOCK as u64, BLOCK)));
        let changes = async {
            for policy in PolicyName::ALL {
                world.sleep(400).await;
                let parameters = [("read-priority", 4096), ("largest", 16 << 10)];
                let change =
                    QueueChange { policy: Some(policy), parameters: &parameters, ..QueueChange::default() };
                disk.tune_queue(&change).expect("sound");
                assert_eq!(disk.queue_settings().expect("a queue").policy, policy);
            }
        };
        let (read, ()) = futures_util::future::join(reads, changes).await;
        assert!(read.into_iter().all(|bytes| bytes.is_ok()));
        let counts = disk.queue_counts().expect("a queue");
        assert_eq!(counts.requests[IoClass::ClientRead as usize], BLOCKS);
        assert_eq!((counts.waiting, counts.at_device), (0, 0));
        assert!(counts.merges > 0, "neighbours wait together");
    });
}

/// A read of what a write of the same class that waits will change comes after it.
#[test]
fn overlapping_requests_keep_their_order() {
    for policy in PolicyName::ALL {
        with_disk(9, DirectOptions { policy, ..options(0, 4) }, async |_, disk| {
            for round in 1..=20 {
                let write = disk.write(0, vec![filled(round, 4)]);
                let read = disk.read(BLOCK as u64, BLOCK);
                let both = futures_util::future::join(write, read);
                let (written, read) = in_class(IoClass::Fold, both).await;
                written.expect("sound");
                assert_eq!(read.expect("sound")[..8], filled(round, 1)[..8], "{policy}");
            }
        });
    }
}

/// A write that its task has given up reaches the device late. What was written next to it meanwhile stays.
#[test]
fn a_write_that_was_given_up_undoes_nothing() {
    for seed in 0..30 {
        with_disk(seed, options(16, 4), async |world, disk| {
            let record = |byte: u8| vec![Buf::copy_of(&[byte; 100])];
            let log = async {
                // It is at the device when it is given up, and is written again, as a journal does.
                assert!(world.timeout(50, disk.append(0, record(1))).await.is_none());
                disk.append(0, record(1)).await.expect("sound");
                disk.append(100, record(2)).await.expect("sound");
            };
            in_class(IoClass::Journal, log).await;
            world.sleep(5_000).await;
            for class in [IoClass::Journal, IoClass::Scrub] {
                let bytes = in_class(class, disk.read(0, 200)).await.expect("sound");
                assert_eq!(
                    (&bytes[..100], &bytes[100..]),
                    (&[1; 100][..], &[2; 100][..]),
                    "seed {seed}, {class}"
                );
            }
        });
    }
}

/// The same, when the policy changes between both writes.
#[test]
fn another_policy_knows_what_is_at_the_device() {
    for seed in 0..30 {
        with_disk(seed, options(16, 4), async |world, disk| {
            let work = async {
                assert!(world.timeout(50, disk.write(0, vec![filled(1, 1)])).await.is_none());
                let policy = Some(PolicyName::Deadline);
                disk.tune_queue(&QueueChange { policy, ..QueueChange::default() }).expect("sound");
                disk.write(0, vec![filled(2, 1)]).await.expect("sound");
            };
            in_class(IoClass::Fold, work).await;
            world.sleep(5_000).await;
            let found = in_class(IoClass::Scrub, disk.read(0, BLOCK)).await.expect("sound");
            assert_eq!(found[..9], filled(2, 1)[..9], "seed {seed}");
        });
    }
}

/// Requests that were given up cost the queue nothing, however many they are.
#[test]
fn many_that_give_up_are_passed_over() {
    with_disk(3, options(0, 1), async |world, disk| {
        let first = disk.read(0, BLOCK);
        let others = async {
            let reads = (0..20_000_u64).map(|at| disk.read(at % BLOCKS * BLOCK as u64, BLOCK));
            assert!(world.timeout(20, join_all(reads)).await.is_none(), "the first one takes longer");
            disk.read(0, BLOCK).await.expect("it is its turn after the first");
            world.now()
        };
        let (first, ended) = futures_util::future::join(first, others).await;
        first.expect("sound");
        assert!(ended < 10_000, "{ended} us");
    });
}

/// Limits and reservations are parts of the time of this device, which is ten times slower than what requests are reckoned at.
#[test]
fn shares_are_parts_of_the_time_of_a_slow_device() {
    with_disk(3, options(0, 1), async |world, disk| {
        let scrub = async |count: u64| {
            let begun = world.now();
            for at in 0..count {
                in_class(IoClass::Scrub, disk.read(at % BLOCKS * BLOCK as u64, BLOCK)).await.expect("sound");
            }
            world.now() - begun
        };
        scrub(1_000).await;
        let (took, busy) = (scrub(200).await, 200 * 550);
        assert!(
            (3 * busy..6 * busy).contains(&took),
            "{took} us for {busy} us of the device, a quarter of it"
        );
        // Whoever has nothing reserved gets on beside those who always wait.
        let until = world.now() + 2_000_000;
        let readers = (0..8).map(|at| {
            let (world, disk) = (world.clone(), disk.clone());
            async move {
                while world.now() < until {
                    let class = if at == 0 { IoClass::Scrub } else { IoClass::ClientRead };
                    in_class(class, disk.read(at * BLOCK as u64, BLOCK)).await.expect("sound");
                }
            }
        });
        let before = disk.queue_counts().expect("a queue").requests[IoClass::Scrub as usize];
        join_all(readers).await;
        let counts = disk.queue_counts().expect("a queue").requests;
        let (scrubs, reads) =
            (counts[IoClass::Scrub as usize] - before, counts[IoClass::ClientRead as usize]);
        assert!(scrubs * 50 > reads && scrubs * 5 < reads, "{scrubs} beside {reads}");
    });
}
