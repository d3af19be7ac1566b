//! A thread runs a future for a limited time.

use super::*;

#[test]
fn a_future_that_takes_too_long_can_be_run_on_as_a_task() {
    for world in [World::new(), World::polling()] {
        let world = world.unwrap();
        let (ended, task) = (Rc::new(Cell::new(false)), world.clone());
        let done = ended.clone();
        let mut slow = Box::pin(async move {
            task.sleep(50_000).await;
            done.set(true);
        });
        assert_eq!(world.block_on_for(1_000, "test", slow.as_mut()), None);
        assert_eq!(world.block_on_for(1_000, "test", pin!(async { 7 })), Some(7));
        world.spawn("test", slow);
        assert!(!ended.get());
        world.block_on("test", async {
            while !ended.get() {
                world.sleep(1_000).await;
            }
        });
    }
}
