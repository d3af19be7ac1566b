//! The simulated world is as hard as the real one, and one seed is one run: each test does something to a node, a wire
//! or a disk, and compares what the programs on it see.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use types::wire::Flags;
use types::{Buf, BufMut, ClusterId, Epoch};

use super::{SimOptions, Simulation};
use crate::{Conn, DISK_TIMEOUT_US, Frame, World};

mod faults;
mod tamper;
mod turns;

fn calm(seed: u64) -> Simulation {
    Simulation::new(seed, SimOptions::default())
}

fn frame(number: u64, payload: &[u8]) -> Frame {
    let record = number.to_le_bytes().to_vec();
    Frame::new(77, number, ClusterId([1; 16]), Epoch(3), Flags::REQUEST, record, Buf::copy_of(payload))
}

async fn pair(a: &World, b: &World) -> (Conn, Conn) {
    let listener = b.listen(":0").await.unwrap();
    let conn = a.connect(&listener.address()).await.unwrap();
    (conn, listener.accept().await.unwrap())
}

/// Some of everything: frames both ways, disk operations, timers, chance.
fn busy_run(seed: u64) -> u64 {
    let sim = Simulation::new(seed, SimOptions::drawn(seed));
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.block_on("a", async {
        let done = Rc::new(Cell::new(0));
        let listener = b.listen("b:9").await.unwrap();
        let (b2, done2) = (b.clone(), done.clone());
        b.spawn("test", async move {
            let disk = b2.create_disk("d", 1 << 20).await.unwrap();
            while let Ok(conn) = listener.accept().await {
                let (world, disk, done) = (b2.clone(), disk.clone(), done2.clone());
                b2.spawn("test", async move {
                    let (mut sender, mut receiver) = conn.split();
                    while let Ok(Some(frame)) = receiver.recv().await {
                        disk.write(world.random() % 1000 * 512, vec![frame.payload.clone()]).await.unwrap();
                        disk.sync().await.unwrap();
                        if sender.send(frame).await.is_err() {
                            break;
                        }
                    }
                    done.set(done.get() + 1);
                });
            }
        });
        for n in 0..8 {
            let (a2, done) = (a.clone(), done.clone());
            a.spawn("test", async move {
                if let Ok(conn) = a2.connect("b:9").await {
                    let (mut sender, mut receiver) = conn.split();
                    for i in 0..10 {
                        let _ = sender.send(frame(i, &[n; 600])).await;
                        let _ = receiver.recv().await;
                    }
                }
                done.set(done.get() + 1);
            });
        }
        while done.get() < 16 {
            a.sleep(10_000).await;
        }
    });
    sim.trace_hash()
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..30 {
        assert_eq!(busy_run(seed), busy_run(seed), "seed {seed}");
        assert_ne!(busy_run(seed), busy_run(seed + 1), "seed {seed}");
    }
}

#[test]
fn frames_arrive_whole_and_in_order() {
    let sim = calm(1);
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.block_on("a", async {
        let (ours, theirs) = pair(&a, &b).await;
        assert!(theirs.peer().starts_with("a:") && ours.peer().starts_with("b:"));
        let (mut sender, receiver) = ours.split();
        let payload: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let sent = payload.clone();
        a.spawn("test", async move {
            for n in 0..400 {
                sender.send(frame(n, &sent[..n as usize * 250])).await.unwrap();
            }
            drop((sender, receiver));
        });
        let (_sender, mut receiver) = theirs.split();
        for n in 0..400 {
            let got = receiver.recv().await.unwrap().unwrap();
            assert_eq!((got.header.request, got.header.kind, got.header.epoch), (n, 77, Epoch(3)));
            assert_eq!(got.record, n.to_le_bytes());
            assert_eq!(&got.payload[..], &payload[..n as usize * 250]);
        }
        assert!(receiver.recv().await.unwrap().is_none());
    });
}

#[test]
fn a_full_connection_makes_its_sender_wait() {
    let sim = Simulation::new(2, SimOptions { window_bytes: 10_000, ..SimOptions::default() });
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.block_on("a", async {
        let (ours, theirs) = pair(&a, &b).await;
        let (mut sender, _receiver) = ours.split();
        let sent = Rc::new(Cell::new(0));
        let count = sent.clone();
        a.spawn("test", async move {
            for n in 0..50 {
                sender.send(frame(n, &[0; 2000])).await.unwrap();
                count.set(count.get() + 1);
            }
        });
        a.sleep(1_000_000).await;
        assert_eq!(sent.get(), 5);
        let (_sender, mut receiver) = theirs.split();
        for _ in 0..50 {
            receiver.recv().await.unwrap().unwrap();
        }
        a.sleep(1).await;
        assert_eq!(sent.get(), 50);
    });
}

#[test]
fn a_dead_node_refuses_and_its_connections_break() {
    for (seed, power) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let sim = calm(seed);
        let (a, b) = (sim.node("a"), sim.node("b"));
        sim.block_on("a", async {
            let (ours, theirs) = pair(&a, &b).await;
            let (mut sender, mut receiver) = ours.split();
            let alive = Rc::new(Cell::new(0));
            let witness = alive.clone();
            b.spawn("test", async move {
                let (_sender, mut receiver) = theirs.split();
                while let Ok(Some(_)) = receiver.recv().await {
                    witness.set(witness.get() + 1);
                }
                panic!("a task outlived its node");
            });
            sender.send(frame(1, &[])).await.unwrap();
            a.sleep(100_000).await;
            assert_eq!(alive.get(), 1);
            if power {
                sim.power_cut("b")
            } else {
                sim.kill("b")
            }
            let before = sim.now();
            assert!(!matches!(receiver.recv().await, Ok(Some(_))));
            assert!(sim.now() > before);
            let expected = if power { ErrorKind::TimedOut } else { ErrorKind::ConnectionRefused };
            assert_eq!(a.connect("b:20000").await.err().map(|e| e.kind()), Some(expected));
            // A sender learns it in the end.
            a.sleep(3_000_000).await;
            let _ = sender.send(frame(2, &[])).await;
            a.sleep(1_000_000).await;
            assert!(sender.send(frame(3, &[])).await.is_err());
            // Worlds of the old life do nothing more; the new life works.
            assert!(b.listen(":1").await.is_err());
            let b = sim.node("b");
            let _ = pair(&a, &b).await;
        });
    }
}

#[test]
fn who_waits_for_a_dead_node_is_woken() {
    for seed in 0..40 {
        let sim = Simulation::new(seed, SimOptions { window_bytes: 1, ..SimOptions::default() });
        let (a, b) = (sim.node("a"), sim.node("b"));
        sim.block_on("a", async {
            let listener = b.listen(":5").await.unwrap();
            let (mut sender, _receiver) = a.connect("b:5").await.unwrap().split();
            let _theirs = listener.accept().await.unwrap();
            let sent = Rc::new(Cell::new(false));
            let witness = sent.clone();
            a.spawn("test", async move {
                while sender.send(frame(1, &[])).await.is_ok() {}
                witness.set(true);
            });
            let (killing, sim) = (a.clone(), &sim);
            let kill = async {
                killing.sleep(seed * 20).await;
                if seed % 2 == 0 {
                    sim.kill("b")
                } else {
                    sim.power_cut("b")
                }
                std::future::pending::<()>().await;
            };
            let waiting = a.timeout(5_000_000, kill);
            let accepting = async {
                assert!(listener.accept().await.is_err());
            };
            let (mut waiting, mut accepting) = (Box::pin(waiting), Box::pin(accepting));
            std::future::poll_fn(|cx| {
                assert_ne!(waiting.as_mut().poll(cx), std::task::Poll::Ready(None), "the accept goes on");
                accepting.as_mut().poll(cx)
            })
            .await;
            a.sleep(5_000_000).await;
            assert!(sent.get());
        });
    }
}

#[test]
fn a_cut_wire_breaks_connections_until_mended() {
    let sim = calm(5);
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.block_on("a", async {
        let (ours, theirs) = pair(&a, &b).await;
        sim.partition("a", "b", true);
        let (mut sender, _keep) = ours.split();
        sender.send(frame(1, &[])).await.unwrap();
        let (_keep, mut receiver) = theirs.split();
        assert!(receiver.recv().await.is_err());
        assert_eq!(a.connect("b:20000").await.err().map(|e| e.kind()), Some(ErrorKind::TimedOut));
        sim.partition("a", "b", false);
        let _ = pair(&a, &b).await;
    });
}

#[test]
fn timers_end_in_order_and_timeouts_on_time() {
    let sim = calm(6);
    let world = sim.node("a");
    sim.block_on("a", async {
        let order = Rc::new(RefCell::new(Vec::new()));
        for us in [300, 100, 200] {
            let (world2, order) = (world.clone(), order.clone());
            world.spawn("test", async move {
                world2.sleep(us).await;
                order.borrow_mut().push(us);
            });
        }
        let start = world.now();
        assert_eq!(world.timeout(50, std::future::pending::<()>()).await, None);
        assert_eq!(world.now() - start, 50);
        assert_eq!(world.timeout(500, async { 7 }).await, Some(7));
        assert_eq!(world.now() - start, 50);
        world.sleep(1000).await;
        assert_eq!(*order.borrow(), [100, 200, 300]);
        // Timeouts that never run out do not pile up, and do not move time.
        for _ in 0..10_000 {
            world.timeout(10_000_000, world.yield_now()).await;
        }
        assert_eq!(world.now() - start, 1050);
        assert!(world.wall() > 1_767_225_600_000_000_000);
    });
}

#[test]
fn clocks_drift_and_stand_apart() {
    let options = SimOptions { drift_ppm_max: 10_000, offset_us_max: 1_000_000, ..SimOptions::default() };
    let sim = Simulation::new(7, options);
    let (a, b) = (sim.node("a"), sim.node("b"));
    assert_ne!(a.now(), b.now());
    let start = (sim.now(), a.now());
    sim.block_on("a", a.sleep(1_000_000));
    let passed = (sim.now() - start.0, a.now() - start.1);
    assert!(passed.0 != 1_000_000 && passed.0.abs_diff(1_000_000) < 11_000, "{passed:?}");
    assert!(passed.1.abs_diff(1_000_000) < 3, "{passed:?}");
}

fn panic_text(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn deadlock_and_livelock_name_the_seed() {
    let text = panic_text(|| calm(4711).block_on("a", std::future::pending()));
    assert!(text.contains("seed 4711: deadlock"), "{text}");
    let text = panic_text(|| {
        let sim = Simulation::new(4712, SimOptions { polls_stalled_max: 1000, ..SimOptions::default() });
        let world = sim.node("a");
        sim.block_on("a", async {
            loop {
                world.yield_now().await;
            }
        });
    });
    assert!(text.contains("seed 4712: livelock"), "{text}");
    let text = panic_text(|| {
        let sim = Simulation::new(4713, SimOptions { time_us_max: 1_000_000, ..SimOptions::default() });
        let world = sim.node("a");
        sim.block_on("a", async {
            loop {
                world.sleep(1000).await;
            }
        });
    });
    assert!(text.contains("seed 4713: livelock"), "{text}");
}

const LEN: usize = 64 << 10;

fn filled(byte: u8, len: usize) -> Vec<Buf> {
    vec![Buf::from(vec![byte; len])]
}

#[test]
fn a_disk_that_is_in_use_is_waited_for_and_not_for_ever() {
    let sim = calm(9);
    let world = sim.node("a");
    sim.block_on("driver", async {
        let disk = world.create_disk("d", LEN as u64).await.unwrap();
        let began = world.now();
        let refused = world.open_disk_when_free("d", crate::DiskMode::Buffered).await.err().map(|e| e.kind());
        assert_eq!(
            (refused, world.now() - began >= crate::LOCK_WAIT_US),
            (Some(ErrorKind::WouldBlock), true)
        );
        let later = async {
            world.sleep(crate::LOCK_WAIT_US / 2).await;
            drop(disk);
        };
        let (opened, ()) =
            futures_util::future::join(world.open_disk_when_free("d", crate::DiskMode::Buffered), later)
                .await;
        assert_eq!(opened.expect("it is free now").len(), LEN as u64);
    });
}

#[test]
fn a_shared_disk_is_locked_until_nobody_has_it() {
    let sim = calm(10);
    let world = sim.node("a");
    sim.block_on("driver", async {
        let refused = async || world.open_disk("d").await.err().map(|e| e.kind());
        let disk = world.create_disk("d", LEN as u64).await.unwrap();
        let shared = disk.shared().unwrap();
        drop(disk);
        assert_eq!(refused().await, Some(ErrorKind::WouldBlock), "somebody may still open it");
        let disk = world.disk_of(&shared).unwrap();
        drop(shared);
        assert_eq!(refused().await, Some(ErrorKind::WouldBlock));
        disk.write(100, filled(9, 50)).await.unwrap();
        drop(disk);
        let shared = world.open_disk("d").await.expect("it is free").shared().unwrap();
        assert_eq!(world.disk_of(&shared).unwrap().read(100, 50).await.unwrap()[..], [9; 50]);
        sim.kill("a");
        assert!(world.disk_of(&shared).is_err(), "a dead process has no disks");
        assert!(sim.node("a").open_disk("d").await.is_ok());
        assert!(sim.node("a").disk_of(&shared).is_err(), "nor has the next one its");
    });
}

#[test]
fn a_killed_process_leaves_the_page_cache() {
    let sim = calm(8);
    let world = sim.node("a");
    sim.block_on("driver", async {
        let disk = world.create_disk("d", LEN as u64).await.unwrap();
        assert_eq!(world.create_disk("d", 1).await.err().map(|e| e.kind()), Some(ErrorKind::AlreadyExists));
        assert_eq!(world.open_disk("d").await.err().map(|e| e.kind()), Some(ErrorKind::WouldBlock));
        assert_eq!(world.open_disk("x").await.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
        disk.write(100, filled(9, 5000)).await.unwrap();
        assert_eq!(disk.read(1, LEN).await.err().map(|e| e.kind()), Some(ErrorKind::UnexpectedEof));
        assert!(disk.write(1, filled(9, LEN)).await.is_err());
        sim.kill("a");
        assert!(disk.read(0, 1).await.is_err());
        let world = sim.node("a");
        let disk2 = world.open_disk("d").await.unwrap();
        assert_eq!(disk2.read(100, 5000).await.unwrap()[..], [9; 5000]);
        drop(disk2);
        // The handle of the old life holds nothing.
        let _ = world.open_disk("d").await.unwrap();
        drop(disk);
    });
}

#[test]
fn a_power_cut_loses_only_what_was_not_synced() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let sim = calm(seed);
        let world = sim.node("a");
        sim.block_on("driver", async {
            let disk = world.create_disk("d", LEN as u64).await.unwrap();
            disk.write(0, filled(1, LEN)).await.unwrap();
            disk.sync().await.unwrap();
            disk.write(4096, filled(2, 8192)).await.unwrap();
            disk.write(8192, filled(3, 4096)).await.unwrap();
            sim.power_cut("a");
            let disk = sim.node("a").open_disk("d").await.unwrap();
            let bytes = disk.read(0, LEN).await.unwrap();
            assert!(bytes[..4096].iter().all(|&b| b == 1));
            assert!(bytes[12_288..].iter().all(|&b| b == 1));
            for sector in bytes[4096..12_288].chunks(512) {
                assert!(sector.iter().all(|b| *b == sector[0]), "a sector is whole");
            }
            assert!(bytes[4096..8192].iter().all(|b| [1, 2].contains(b)));
            assert!(bytes[8192..12_288].iter().all(|b| [1, 2, 3].contains(b)));
            let changed = bytes[4096..12_288].iter().filter(|b| **b != 1).count();
            *(match changed {
                0 => &mut lost,
                8192 => &mut kept,
                _ => &mut torn,
            }) += 1;
            // What was found stays found.
            sim.power_cut("a");
            let disk = sim.node("a").open_disk("d").await.unwrap();
            assert_eq!(disk.read(0, LEN).await.unwrap(), bytes);
        });
    }
    assert!(lost > 20 && kept > 20 && torn > 20, "{lost} {kept} {torn}");
}

#[test]
fn a_sector_holds_all_writes_up_to_its_version() {
    for seed in 0..100 {
        let sim = calm(seed);
        let world = sim.node("a");
        sim.block_on("driver", async {
            let disk = world.create_disk("d", LEN as u64).await.unwrap();
            for n in 0..5 {
                disk.write(n * 100, filled(n as u8 + 1, 100)).await.unwrap();
            }
            sim.power_cut("a");
            let disk = sim.node("a").open_disk("d").await.unwrap();
            let bytes = disk.read(0, 512).await.unwrap();
            let versions = bytes.chunks(100).take(5).take_while(|part| part[0] != 0).count();
            assert!(bytes[versions * 100..].iter().all(|&b| b == 0), "seed {seed}");
        });
    }
}

#[test]
fn a_sync_covers_what_ended_before_it_began() {
    for seed in 0..50 {
        let sim = calm(seed);
        let world = sim.node("a");
        sim.block_on("driver", async {
            let disk = world.create_disk("d", LEN as u64).await.unwrap();
            disk.write(0, filled(1, 512)).await.unwrap();
            let synced = Rc::new(Cell::new(false));
            let (disk2, synced2) = (disk.clone(), synced.clone());
            world.spawn("test", async move {
                disk2.sync().await.unwrap();
                synced2.set(true);
            });
            world.sleep(1 + seed * 40).await;
            disk.write(512, filled(2, 512)).await.unwrap();
            while !synced.get() {
                world.sleep(10).await;
            }
            sim.power_cut("a");
            let disk = sim.node("a").open_disk("d").await.unwrap();
            assert_eq!(disk.read(0, 512).await.unwrap()[..], [1; 512]);
        });
    }
}

#[test]
fn damaged_failing_and_slow_disks() {
    let sim = calm(10);
    let world = sim.node("a");
    sim.block_on("driver", async {
        let disk = world.create_disk("d", LEN as u64).await.unwrap();
        disk.write(0, filled(1, LEN)).await.unwrap();
        disk.sync().await.unwrap();
        sim.damage("a", "d", 1000, 600);
        let bytes = disk.read(0, LEN).await.unwrap();
        let flipped: Vec<usize> = (0..LEN).filter(|&i| bytes[i] != 1).collect();
        assert_eq!(flipped.len(), 3, "one in each sector touched: {flipped:?}");
        assert!(flipped.iter().all(|i| (1000..1600).contains(i)));
        sim.fail_disk("a", "d", true);
        assert!(disk.read(0, 1).await.is_err() && disk.sync().await.is_err());
        sim.fail_disk("a", "d", false);
        sim.slow_disk("a", "d", 10_000);
        let before = sim.now();
        disk.read(0, 1).await.unwrap();
        assert!(sim.now() - before >= 200_000);
    });
}

/// A slow disk is waited for; one that leaves a request unanswered is lost, and says so.
#[test]
fn a_disk_that_hangs_is_lost() {
    let sim = calm(12);
    let world = sim.node("a");
    sim.block_on("driver", async {
        let disk = world.create_disk("d", LEN as u64).await.unwrap();
        let lost = Rc::new(Cell::new(None));
        let (watched, told, clock) = (disk.clone(), lost.clone(), world.clone());
        world.spawn("watch", async move {
            let error = watched.lost().await;
            told.set(Some((error.kind(), clock.now())));
        });
        sim.slow_disk("a", "d", 1_000);
        disk.write(0, filled(1, 512)).await.unwrap();
        disk.sync().await.unwrap();
        world.sleep(3 * DISK_TIMEOUT_US).await;
        assert_eq!(lost.get(), None, "slow, or not asked for anything");

        sim.slow_disk("a", "d", 1_000_000_000);
        let (hung, begun) = (disk.clone(), world.now());
        world.spawn("hangs", async move {
            let _ = hung.sync().await;
        });
        world.sleep(3 * DISK_TIMEOUT_US).await;
        let (kind, at) = lost.get().expect("it is lost");
        assert_eq!(kind, ErrorKind::TimedOut);
        assert!(at - begun >= DISK_TIMEOUT_US, "{at} {begun}");
    });
}

#[test]
fn large_disks_are_cheap() {
    let sim = calm(11);
    let world = sim.node("a");
    sim.block_on("a", async {
        let disk = world.create_disk("d", 1 << 50).await.unwrap();
        disk.write((1 << 50) - 4096, vec![BufMut::zeroed(4096).freeze()]).await.unwrap();
        assert!(disk.read((1 << 50) - 8000, 8000).await.unwrap().iter().all(|&b| b == 0));
    });
}

#[test]
fn a_dropped_simulation_leaves_nothing_behind() {
    let sim = calm(12);
    let (a, b) = (sim.node("a"), sim.node("b"));
    let state = Rc::downgrade(&sim.state);
    let listener = sim.block_on("a", b.listen(":1")).unwrap();
    let disk = sim.block_on("a", a.create_disk("d", 10)).unwrap();
    let connecting = a.clone();
    a.spawn("test", async move {
        let (mut sender, mut receiver) = connecting.connect("b:1").await.unwrap().split();
        sender.send(frame(1, &[])).await.unwrap();
        disk.sync().await.unwrap();
        let _ = receiver.recv().await;
    });
    b.spawn("test", async move {
        let conn = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop((conn, listener));
    });
    sim.block_on("a", a.sleep(1_000_000));
    drop((a, b));
    drop(sim);
    assert!(state.upgrade().is_none());
}

#[test]
fn streams_carry_bytes_under_a_name() {
    let sim = calm(3);
    let (a, b) = (sim.node("a"), sim.node("b"));
    sim.block_on("a", async {
        let listener = a.listen_at_path("/run/a").await.unwrap();
        assert_eq!(a.listen_at_path("/run/a").await.err().unwrap().kind(), ErrorKind::AddrInUse);
        assert_eq!(b.connect_to_path("/run/a").await.err().unwrap().kind(), ErrorKind::NotFound);
        let near = a.connect_to_path("/run/a").await.unwrap();
        let (mut send, receive) = near.split_stream();
        let (_back, mut take) = listener.accept().await.unwrap().split_stream();
        send.send(b"abc", Buf::copy_of(b"defg")).await.unwrap();
        assert_eq!(take.head(2).await.unwrap(), Some(b"ab".to_vec()));
        assert_eq!(&*take.body(5).await.unwrap(), b"cdefg");
        drop((send, receive));
        assert_eq!(take.head(1).await.unwrap(), None);
        drop(listener);
        let gone = a.connect_to_path("/run/a").await.err().unwrap().kind();
        assert_eq!(gone, ErrorKind::ConnectionRefused);
        a.listen_at_path("/run/a").await.expect("what is left behind is replaced");
    });
}
