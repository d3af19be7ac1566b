//! Requests about bricks, the map, volumes, and the cluster's status.

use types::messages::Done;
use types::messages::cluster::{
    BrickHeartbeat, BrickJoin, BrickJoined, BrickReplace, BrickReplaced, ClusterReport, GroupAdmit,
    GroupRenew, HeartbeatReply, MapGet, MapReply, TopologySet, VolumeAddTier, VolumeCreate, VolumeDelete,
    VolumeGrow, VolumeReply, VolumeTune,
};
use types::messages::names::{Space, StatFs};
use types::{Refusal, ShardId};

use super::{Ended, Shared};
use crate::kv::Writes;
use crate::ops;
use crate::state::{DurableAfter, State};

/// Bytes of a memory page, the unit in which Linux counts.
const PAGE: u64 = 4096;

impl Shared {
    pub(super) fn map_get(&self, request: &MapGet) -> Result<MapReply, Refusal> {
        Ok(MapReply { update: self.state.borrow().cluster.map_update(request) })
    }

    pub(super) fn brick_join(&self, request: &BrickJoin) -> Result<BrickJoined, Refusal> {
        self.check_meant(request.shard)?;
        let restored = self.state.borrow().cluster.restored;
        if request.restored > restored {
            tracing::error!(
                brick = %request.brick, at = request.restored, own = restored,
                "a brick knows a later restoration of the cluster, in seconds since 1970"
            );
            self.end(Ended::Overruled);
            return Err(Refusal::NotServing);
        }
        let now = self.world.now();
        let HeartbeatReply { map, .. } = self.decide(|state| {
            let mut writes = state.cluster.join(request, now)?;
            writes.extend(state.cluster.shards_known_to_bricks(&request.shards));
            Ok(writes)
        })?;
        let state = self.state.borrow();
        Ok(BrickJoined { map, fences: state.sessions.fences(), restored: state.cluster.restored })
    }

    /// Another shard may have listened here before.
    fn check_meant(&self, shard: ShardId) -> Result<(), Refusal> {
        if shard == self.shard() { Ok(()) } else { Err(Refusal::Unsupported) }
    }

    pub(super) fn group_renew(&self, request: &GroupRenew) -> Result<HeartbeatReply, Refusal> {
        self.decide(|state| state.cluster.renew(request))
    }

    pub(super) fn group_admit(&self, request: &GroupAdmit) -> Result<HeartbeatReply, Refusal> {
        let now = self.world.now();
        self.decide(|state| state.cluster.admit(request, now))
    }

    pub(super) fn brick_replace(&self, request: &BrickReplace) -> Result<BrickReplaced, Refusal> {
        // What bricks say of a group that is not known may have other bricks. The known ones need not wait for it.
        if self.recovery.borrow().as_ref().is_some_and(|recovery| recovery.concerns(request.old)) {
            return Err(Refusal::Busy);
        }
        let now = self.world.now();
        let decided = self.state.borrow().cluster.check_replace(request, now);
        if let Err(error) = decided {
            return Ok(BrickReplaced { groups: 0, error: Some(error) });
        }
        let mut groups = 0;
        self.decide(|state| {
            let (replaced, writes) = state.cluster.replace(request);
            groups = replaced;
            Ok(writes)
        })?;
        Ok(BrickReplaced { groups, error: None })
    }

    /// Makes a decision durable, then notifies everybody.
    pub(super) fn decide(
        &self,
        decide: impl FnOnce(&mut State) -> Result<Writes, Refusal>,
    ) -> Result<HeartbeatReply, Refusal> {
        let mut state = self.state.borrow_mut();
        let writes = decide(&mut state)?;
        let decided = !writes.is_empty();
        let committed = if decided { state.commit_or_fail(writes) } else { Ok(()) };
        let map = state.cluster.version();
        drop(state);
        if decided {
            self.news.notify();
            self.purges.notify();
        }
        if committed.is_err() {
            self.failed.notify();
        }
        committed.map(|()| HeartbeatReply { map, doubtful: Vec::new() })
    }

    pub(super) fn brick_beat(&self, request: &BrickHeartbeat) -> Result<HeartbeatReply, Refusal> {
        self.check_meant(request.shard)?;
        let mut state = self.state.borrow_mut();
        state.cluster.beat(request, self.world.now())?;
        let doubtful = state.cluster.doubtful_to(request.brick);
        Ok(HeartbeatReply { map: state.cluster.version(), doubtful })
    }

    pub(super) fn volume_create(&self, request: &VolumeCreate) -> Result<VolumeReply, Refusal> {
        let volume = self.state.borrow_mut().volume_create(request, self.world.wall());
        self.news.notify();
        self.notify_tasks();
        Ok(VolumeReply { volume: volume? })
    }

    pub(super) fn volume_grow(&self, request: &VolumeGrow) -> Result<VolumeReply, Refusal> {
        let volume = self.state.borrow_mut().volume_grow(request);
        self.news.notify();
        Ok(VolumeReply { volume: volume? })
    }

    pub(super) fn volume_tune(&self, request: &VolumeTune) -> Result<VolumeReply, Refusal> {
        let volume = self.state.borrow_mut().volume_tune(request);
        self.news.notify();
        Ok(VolumeReply { volume: volume? })
    }

    pub(super) fn topology_set(&self, request: &TopologySet) -> Result<Done, Refusal> {
        // The other shards get it from the first.
        if self.shard() != ShardId::FIRST {
            return Err(Refusal::Unsupported);
        }
        let set = self.state.borrow_mut().topology_set(request);
        self.news.notify();
        set.map(|()| Done {})
    }

    pub(super) fn volume_add_tier(&self, request: &VolumeAddTier) -> Result<VolumeReply, Refusal> {
        let volume = self.state.borrow_mut().volume_add_tier(request);
        self.news.notify();
        Ok(VolumeReply { volume: volume? })
    }

    pub(super) fn volume_delete(&self, request: &VolumeDelete) -> Result<Done, Refusal> {
        let deleted = self.state.borrow_mut().volume_delete(&request.name);
        self.news.notify();
        self.purges.notify();
        self.notify_tasks();
        deleted.map(|()| Done {})
    }

    pub(super) fn statfs(&self, request: &StatFs) -> DurableAfter<Space> {
        let state = self.state.borrow();
        state.read_with_record(|txn| ops::statfs(txn, state.cluster.map(), request))
    }

    pub(super) fn cluster_status(&self) -> Result<ClusterReport, Refusal> {
        let state = self.state.borrow();
        let (pid, memory) = if self.accountable { (std::process::id(), resident()) } else { (0, 0) };
        Ok(ClusterReport {
            shard: state.cluster.shard(),
            mounts: state.sessions.mounts(self.world.now(), self.world.wall()),
            purges: state.volatile.purges,
            pid,
            memory,
            memory_budget: self.memory_budget,
            turns: self.world.longest_turns(),
            recovery: self.recovery_report(),
            unreached: state.cluster.unreached(self.world.now()),
        })
    }
}

/// Resident memory of this process; 0 where the system does not tell.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE
}
