//! Space: once every file is gone, each brick has as much free as before the first was made.

use std::collections::BTreeMap;

use world::World;

use super::liveness::{RECOVERY_US, reports};

/// Pause between two looks, in microseconds.
const LOOK_US: u64 = 500_000;

/// Free bytes of every brick that answers.
pub(crate) async fn free(world: &World, bricks: u32) -> BTreeMap<u32, u64> {
    reports(world, bricks).await.into_iter().map(|report| (report.brick.0, report.free)).collect()
}

/// Waits until every brick that answers, and did at first, has as much free as it had then.
pub(crate) async fn all_back(world: &World, bricks: u32, first: &BTreeMap<u32, u64>) -> Result<(), String> {
    let deadline = world.now() + RECOVERY_US;
    loop {
        let now = free(world, bricks).await;
        let short: Vec<_> = now
            .iter()
            .filter(|(brick, free)| first.get(brick).is_some_and(|first| first != *free))
            .map(|(brick, free)| format!("b{brick}: {free} of {:?}", first.get(brick)))
            .collect();
        if short.is_empty() {
            return Ok(());
        }
        if world.now() > deadline {
            return Err(format!("space is lost, {RECOVERY_US} us after everything was removed: {short:?}"));
        }
        world.sleep(LOOK_US).await;
    }
}
