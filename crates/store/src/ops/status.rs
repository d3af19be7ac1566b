//! The status report of a brick.

use types::messages::brick::BrickReport;

use crate::read_cache::ReadCache;
use crate::server::Server;

impl Server {
    /// The state of this brick.
    pub(crate) fn report(&self) -> BrickReport {
        let slot = self.slot.borrow();
        let (_, overlays) = slot.resident();
        let (capacity, free) = (self.capacity_bytes(), self.free_bytes());
        assert!(free <= capacity, "blocks counted twice as free would be promised to two writers");
        let described = self.described.get().unwrap_or(self.table.len());
        let units = (described + slot.new_units()).saturating_sub(slot.erased());
        BrickReport {
            brick: self.options.brick,
            cluster: self.superblock.cluster,
            pid: std::process::id(),
            disk: self.disk.name().to_owned(),
            capacity,
            free,
            units: units as u64,
            overlays: overlays as u64,
            decoded: self.counters.decoded.get(),
            damaged: self.counters.damaged.get(),
            ordered: self.counters.ordered.get(),
            folded: self.counters.folded.get(),
            patched: self.counters.patched.get(),
            joining: self.primary.borrow().join_reports(self.world.now()),
            primary_of: self.primary.borrow().served().map(|(id, _)| id).collect(),
            memory: self.world.memory(),
            memory_budget: self.options.memory_budget,
            turns: self.world.longest_turns(),
            window: self.world.window_report(),
            asked: self.asked.get(),
            device: self.disk.counts(),
            cache: self.cache.as_ref().map(ReadCache::report),
        }
    }
}
