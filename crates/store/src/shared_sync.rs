//! Syncs of a disk that several tasks share.

use std::cell::Cell;
use std::io;

use world::Disk;

/// A sync covers what was written before it begins. So those who come while one is in progress share the next one, and a
/// sync that takes long serves more of them.
#[derive(Default)]
pub(crate) struct SharedSync {
    turn: async_lock::Mutex<()>,
    /// Number of the last sync that has begun.
    begun: Cell<u64>,
    /// Number of the last sync that has succeeded.
    done: Cell<u64>,
    failed: Cell<bool>,
}

impl SharedSync {
    /// Makes durable what was written before the call.
    ///
    /// # Errors
    /// If a sync has failed, now or earlier: what was written before it may be lost, and no later sync can tell.
    pub(crate) async fn sync(&self, disk: &Disk) -> io::Result<()> {
        let wanted = self.begun.get() + 1;
        let _turn = self.turn.lock().await;
        if self.failed.get() {
            return Err(io::Error::other("an earlier sync has failed"));
        }
        if self.done.get() >= wanted {
            return Ok(());
        }
        let number = self.begun.get() + 1;
        self.begun.set(number);
        disk.sync().await.inspect_err(|_| self.failed.set(true))?;
        self.done.set(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use world::sim::DiskFaults;
    use world::{SimOptions, Simulation};

    use super::*;

    /// Writes at many moments are all covered by a sync that began after them, and there are far fewer syncs than writes.
    #[test]
    fn those_who_come_meanwhile_share_the_next_sync() {
        let options = SimOptions { sync_us: 1_000..1_001, ..SimOptions::default() };
        let sim = Simulation::new(1, options);
        let world = sim.node("brick");
        sim.block_on("brick", async {
            let disk = world.create_disk("disk", 1 << 20).await.expect("a disk");
            let shared = Rc::new(SharedSync::default());
            let waits = (0..100_u64).map(|at| {
                let (world, disk, shared) = (world.clone(), disk.clone(), shared.clone());
                async move {
                    world.sleep(at * 100).await;
                    let before = shared.begun.get();
                    shared.sync(&disk).await.expect("a sync");
                    assert!(shared.done.get() > before, "a sync that had begun before does not count");
                }
            });
            futures_util::future::join_all(waits).await;
            let syncs = shared.done.get();
            assert!((2..=13).contains(&syncs), "{syncs} syncs in some ten milliseconds");
        });
    }

    /// One that is given up leaves nobody waiting.
    #[test]
    fn a_dropped_sync_is_no_obstacle() {
        let options = SimOptions { sync_us: 1_000..1_001, ..SimOptions::default() };
        let sim = Simulation::new(1, options);
        let world = sim.node("brick");
        sim.block_on("brick", async {
            let disk = world.create_disk("disk", 1 << 20).await.expect("a disk");
            let shared = SharedSync::default();
            assert!(world.timeout(500, shared.sync(&disk)).await.is_none());
            shared.sync(&disk).await.expect("a sync");
            assert_eq!(shared.done.get(), 2);
        });
    }

    #[test]
    fn after_a_failure_nothing_counts_as_durable() {
        let sim = Simulation::new(1, SimOptions::default());
        let world = sim.node("brick");
        sim.block_on("brick", async {
            let disk = world.create_disk("disk", 1 << 20).await.expect("a disk");
            let shared = SharedSync::default();
            sim.disk_faults("brick", "disk", DiskFaults { fail_sync: true, ..DiskFaults::default() });
            shared.sync(&disk).await.expect_err("it fails");
            shared.sync(&disk).await.expect_err("nobody knows what is there");
        });
    }
}
