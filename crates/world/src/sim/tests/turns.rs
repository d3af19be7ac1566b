//! Work costs simulated time, and a task that keeps its thread for too long fails the run: tasks count work that they
//! do not do, and the clocks of the nodes are compared.

use super::*;

/// Walks so many entries, `at_once` of them in each turn.
async fn walk(world: World, entries: usize, at_once: usize) {
    for _ in 0..entries / at_once {
        types::cost::entries(at_once);
        world.yield_now().await;
    }
}

#[test]
#[should_panic(expected = "a turn of the task `census` of node busy takes 600000 us")]
fn a_turn_that_walks_a_million_entries_fails_the_run() {
    let sim = calm(1);
    let busy = sim.node("busy");
    busy.spawn("census", walk(busy.clone(), 1_000_000, 1_000_000));
    sim.block_on("test", sim.node("test").sleep(1_000_000));
}

#[test]
#[should_panic(expected = "a turn of the task `a part` of node busy")]
fn an_overlong_turn_is_that_of_its_greater_part() {
    let sim = calm(1);
    let busy = sim.node("busy");
    let part = busy.named("a part", async { types::cost::entries(900_000) });
    busy.spawn("the whole", async move {
        types::cost::entries(100_000);
        part.await;
    });
    sim.block_on("test", sim.node("test").sleep(1_000_000));
}

#[test]
fn work_delays_the_tasks_of_its_node_and_of_no_other() {
    let sim = calm(1);
    let (busy, idle) = (sim.node("busy"), sim.node("idle"));
    let ticks = Rc::new(RefCell::new(Vec::new()));
    for world in [&busy, &idle] {
        let (on, ticks) = (world.clone(), ticks.clone());
        world.spawn("ticks", async move {
            let mut late = 0;
            for _ in 0..100 {
                let due = on.now() + 10_000;
                on.sleep(10_000).await;
                late = on.now().saturating_sub(due).max(late);
            }
            ticks.borrow_mut().push((on.now() / 1_000, late / 1_000));
        });
    }
    busy.spawn("census", walk(busy.clone(), 1_000_000, 100_000));
    sim.block_on("test", sim.node("test").sleep(3_000_000));
    let ticks = ticks.borrow();
    assert_eq!(ticks[0], (1_000, 0), "the idle node");
    let (end, late) = ticks[1];
    assert!(
        (1_400..=1_700).contains(&end) && (50..=600).contains(&late),
        "ten turns of 60 ms: {end}, {late}"
    );
}

#[test]
fn work_ends_with_its_node() {
    let sim = calm(1);
    let busy = sim.node("busy");
    busy.spawn("census", walk(busy.clone(), 800_000, 400_000));
    let test = sim.node("test");
    sim.block_on("test", test.sleep(1_000));
    sim.kill("busy");
    let busy = sim.node("busy");
    let done = Rc::new(Cell::new(None));
    let (on, then) = (busy.clone(), done.clone());
    busy.spawn("first", async move {
        on.sleep(1_000).await;
        then.set(Some(on.now()));
    });
    sim.block_on("test", test.sleep(1_000_000));
    assert_eq!(done.get(), Some(2_000), "a new life is not kept by the work of the one before");
}
