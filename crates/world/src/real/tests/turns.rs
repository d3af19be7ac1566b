//! A task that keeps its thread for long is known by its name, and one that waits is not: a task spins for some
//! milliseconds, and the list of longest turns is read.

use super::*;
use crate::turns;

/// Keeps the thread busy for so many milliseconds of its own time.
fn spin(ms: u64) {
    let own = || clock_gettime(ClockId::ThreadCPUTime);
    let start = own();
    let spent = |now: rustix::time::Timespec| {
        (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1_000_000
    };
    while spent(own()).unsigned_abs() < ms {}
}

/// CPU time of the longest turn of a kind, in milliseconds.
fn longest(name: &str) -> Option<u64> {
    let turns = turns::longest();
    assert!(turns.iter().all(|turn| turn.cpu_us <= turn.wall_us));
    turns.iter().find(|turn| turn.task == name).map(|turn| turn.cpu_us / 1000)
}

#[test]
fn long_turns_are_known_by_name() {
    on_each(|world| async move {
        world.spawn("spins", async { spin(60) });
        world.sleep(1_000).await;
        world.yield_now().await;
    });
    assert!(longest("spins").is_some_and(|ms| ms >= 59), "{:?}", longest("spins"));

    let world = World::new().unwrap();
    world.block_on("spins at once", async { spin(50) });
    assert!(longest("spins at once").is_some_and(|ms| ms >= 49), "{:?}", longest("spins at once"));

    let world = crate::World::real().unwrap();
    let part = world.named("a part", async { spin(60) });
    world.block_on_as("the whole", async {
        world.yield_now().await;
        part.await;
    });
    assert!(longest("a part").is_some_and(|ms| ms >= 59), "the turn is that of its greater part");
}

#[test]
fn who_only_waits_has_no_long_turn() {
    let world = World::new().unwrap();
    world.block_on("waits", async {
        for _ in 0..5 {
            world.sleep(50_000).await;
        }
    });
    assert!(longest("waits").is_none_or(|ms| ms < 50), "{:?}", longest("waits"));
}

#[test]
fn a_task_that_never_waits_holds_up_neither_disks_nor_connections_nor_timers() {
    on_each_disk("restless", |world, path| async move {
        let is_over = Rc::new(Cell::new(false));
        let (restless, over) = (world.clone(), Rc::clone(&is_over));
        world.spawn("restless", async move {
            while !over.get() {
                restless.yield_now().await;
            }
        });
        let disk = world.create_disk(&path, 1 << 20).await.unwrap();
        disk.write(5000, vec![Buf::copy_of(b"shoal")]).await.unwrap();
        disk.sync().await.unwrap();
        assert_eq!(*disk.read(5000, 5).await.unwrap(), *b"shoal");
        let (near, far) = pair(&world).await;
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        sender.send(frame(1, noise(100), Buf::empty())).await.unwrap();
        assert!(receiver.recv_within(ANY).await.unwrap().is_some());
        world.sleep(1_000).await;
        is_over.set(true);
    });
}
