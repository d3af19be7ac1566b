//! A brick as a member of the cluster: it joins each shard, renews its leases, follows the maps.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::rc::Rc;

use types::limits::{CALL_TIMEOUT_US, HEARTBEAT_US, LEASE_US};
use types::messages::cluster::{
    BrickHeartbeat, BrickJoin, BrickJoined, ClusterMap, HeartbeatReply, MapFetch,
};
use types::{Buf, Epoch, MapVersion, Refusal, ShardId};
use world::CallError;

use crate::error::BrickError;
use crate::journal::{DiskFailed, Priority};
use crate::record::Undrop;
use crate::server::Server;
use crate::shard::Shard;

/// Pause before the metadata service is asked again, in microseconds.
const RETRY_US: u64 = 200_000;
/// How long after its first join a brick allows for joins that an earlier process has sent, in microseconds.
const LATE_JOIN_US: u64 = 2 * CALL_TIMEOUT_US;
/// How long the first answer of the metadata service may take, in microseconds.
const JOIN_US: u64 = 60_000_000;

impl Server {
    /// Joins the first shard. Waits for a metadata service that is not there yet.
    pub(crate) async fn join(self: Rc<Server>) -> Result<(), BrickError> {
        let first = self.shards.first().clone();
        let deadline = self.world.now() + JOIN_US;
        loop {
            match self.try_join(&first).await {
                Ok(()) => return Ok(()),
                Err(CallError::Refused(refusal)) if refusal != Refusal::NotServing => {
                    return Err(BrickError::Refused(refusal));
                }
                Err(CallError::Unreachable | CallError::Refused(_)) if self.world.now() < deadline => {
                    self.world.sleep(RETRY_US).await;
                }
                Err(error) => {
                    return Err(BrickError::Meta {
                        address: self.options.meta.clone(),
                        reason: error.to_string(),
                    });
                }
            }
        }
    }

    async fn try_join(self: &Rc<Server>, shard: &Shard) -> Result<(), CallError> {
        let sent = self.world.now();
        let join = BrickJoin {
            brick: self.options.brick,
            device: self.superblock.device,
            node: self.options.node,
            address: self.address.clone(),
            capacity: self.capacity_bytes(),
            free: self.free_bytes(),
            incarnation: self.incarnation,
            class: self.options.class,
            shard: shard.id,
            shards: if shard.id == ShardId::FIRST { self.known_shards() } else { Vec::new() },
            restored: shard.restored.get(),
            reach: self.reach_report(),
        };
        let meta = shard.meta.borrow().clone();
        let (reply, _): (BrickJoined, Buf) = self.peers.call(&meta, Epoch(0), &join, Buf::empty()).await?;
        // A majority of before the restoration is back. What it gives out is not valid.
        if reply.restored < shard.restored.get() {
            tracing::warn!(shard = %shard.id, "metadata servers from before a restoration are not heeded");
            return Err(CallError::Refused(Refusal::NotServing));
        }
        self.learn_fences(&reply.fences);
        self.learn_restored(shard, reply.restored).await;
        // The brick needs the map to know what it may serve. The lease begins with the join nevertheless.
        self.fetch_map(shard, reply.map).await?;
        shard.lease_until.set(sent + LEASE_US);
        if shard.joined_at.get() == 0 {
            shard.joined_at.set(sent);
        }
        Ok(())
    }

    /// The other shards of which this brick knows, or holds groups: a first shard that was restored may have forgotten them.
    fn known_shards(&self) -> Vec<ShardId> {
        let known = self.shards.all().into_iter().map(|shard| shard.id);
        let mut shards: BTreeSet<ShardId> = known.chain(self.slot.borrow().shards()).collect();
        shards.remove(&ShardId::FIRST);
        shards.into_iter().collect()
    }

    /// The metadata service was restored from a backup: files may have objects again that were removed since. A write to one of
    /// them would be taken for one that nobody will miss. Clients from before are fenced.
    async fn learn_restored(&self, shard: &Shard, restored: u64) {
        if shard.restored.replace(restored) == restored {
            return;
        }
        // A purge that the service of before has begun may drop more.
        let _one = self.purging.lock().await;
        let room = self.journal.wait_for_space(Priority::Housekeeping, 4096).await;
        if room.is_ok() && self.slot.borrow().has_dropped() {
            self.journal.append(&Undrop {}, &Buf::empty());
            self.slot.borrow_mut().apply_undrop();
        }
    }

    /// Renews the lease of the first shard until the disk fails.
    pub(crate) async fn beat_for_ever(self: Rc<Server>) -> Result<(), BrickError> {
        let first = self.shards.first().clone();
        let mut pause = HEARTBEAT_US;
        loop {
            let early = self.pause_before_beat(&first, pause).await;
            if self.journal.has_failed() {
                return Err(match self.disk.failure() {
                    Some(error) if error.kind() == ErrorKind::StorageFull => BrickError::NoSpace(error),
                    Some(error) => BrickError::Disk(error),
                    None => DiskFailed.into(),
                });
            }
            pause = match self.beat(&first).await {
                Ok(pause) => pause,
                Err(refusal) => return Err(BrickError::Refused(refusal)),
            };
            self.follow_shards();
            if early {
                // Requests for the map come in bursts; one fetch serves them all.
                self.world.sleep(RETRY_US / 10).await;
            }
        }
    }

    /// Joins the shards that are new in the first one's map.
    pub(crate) fn follow_shards(self: &Rc<Server>) {
        let listed = self.shards.first().map.borrow().clone();
        for shard in self.shards.follow(&listed.shards) {
            self.world.spawn("beat", self.clone().beat_shard(shard));
        }
    }

    /// Joins another shard, and renews its lease until the disk fails or the shard is gone. Whatever that shard says, the brick
    /// goes on with the others.
    async fn beat_shard(self: Rc<Server>, shard: Rc<Shard>) {
        let mut refused = None;
        while !self.journal.has_failed() && !shard.is_gone.get() {
            let pause = match self.beat(&shard).await {
                Ok(pause) => {
                    refused = None;
                    pause
                }
                Err(refusal) => {
                    if refused.replace(refusal) != Some(refusal) {
                        tracing::error!(shard = %shard.id, %refusal, "a shard does not take this brick");
                    }
                    // It may take another attempt to join.
                    shard.lease_until.set(0);
                    HEARTBEAT_US
                }
            };
            if self.pause_before_beat(&shard, pause).await {
                self.world.sleep(RETRY_US / 10).await;
            }
        }
        if shard.is_gone.get() {
            // Nobody may ask for its volumes any more.
            let nothing = ClusterMap::empty(self.superblock.cluster);
            shard.lease_until.set(0);
            self.follow_map(shard.id, &nothing);
        }
    }

    /// Waits for the next heartbeat, or until somebody wants the map: then it returns true.
    async fn pause_before_beat(&self, shard: &Shard, pause: u64) -> bool {
        self.world.timeout(pause, shard.map_wanted.wait()).await.is_some()
    }

    /// Renews a lease once, or joins if the shard does not know this run of the brick. Returns the pause before the next time, in
    /// microseconds.
    async fn beat(self: &Rc<Server>, shard: &Shard) -> Result<u64, Refusal> {
        // Before its first lease, the brick must have the fences.
        if shard.lease_until.get() == 0 {
            return self.join_again(shard).await;
        }
        let sent = self.world.now();
        let beat = BrickHeartbeat {
            brick: self.options.brick,
            incarnation: self.incarnation,
            free: self.free_bytes(),
            shard: shard.id,
            reach: self.reach_report(),
        };
        let meta = shard.meta.borrow().clone();
        match self.peers.call_within(LEASE_US / 2, &meta, Epoch(0), &beat, Buf::empty()).await {
            // It may have been restored since; or it is back from before a restoration, of which it hears now.
            Ok((HeartbeatReply { map, .. }, _)) if map.is_of_before(shard.map.borrow().version) => {
                self.join_again(shard).await
            }
            Ok((HeartbeatReply { map, doubtful }, _)) => {
                self.ask_reach(&doubtful);
                // The lease counts from the sending of the heartbeat, never from the answer.
                shard.lease_until.set(sent + LEASE_US);
                if let Err(error) = self.fetch_map(shard, map).await {
                    tracing::debug!(%error, "no map");
                }
                Ok(HEARTBEAT_US)
            }
            Err(CallError::Refused(Refusal::Unknown)) => self.join_again(shard).await,
            // The service may have heard an earlier process of this brick after this one. Later, or if this join is refused too, another
            // process serves the brick.
            Err(CallError::Refused(Refusal::ServedTwice)) if sent < shard.joined_at.get() + LATE_JOIN_US => {
                self.join_again(shard).await
            }
            Err(CallError::Refused(Refusal::Unreached)) => {
                // The rest of the lease is of no use: nobody asks this brick for anything. It has been told before the others are.
                shard.lease_until.set(0);
                shard.is_held.set(true);
                let address = &self.address;
                tracing::error!(
                    shard = %shard.id, address,
                    "other bricks and this one do not reach each other: it is Out until they do; check --listen, --advertise, \
                     routes and firewalls"
                );
                Ok(HEARTBEAT_US)
            }
            Err(CallError::Refused(refusal)) if refusal != Refusal::NotServing => Err(refusal),
            Err(error) => {
                tracing::warn!(shard = %shard.id, %error, "the lease was not renewed");
                // The lease is short: there is no time to wait for a whole heartbeat interval.
                Ok(RETRY_US)
            }
        }
    }

    /// Joins a shard. Returns the pause before the next heartbeat, or the next attempt, in microseconds.
    async fn join_again(self: &Rc<Server>, shard: &Shard) -> Result<u64, Refusal> {
        match self.try_join(shard).await {
            Ok(()) => {
                if shard.is_held.replace(false) {
                    tracing::info!(shard = %shard.id, "other bricks and this one reach each other again");
                }
                Ok(HEARTBEAT_US)
            }
            Err(CallError::Refused(Refusal::Unreached)) => {
                tracing::debug!(shard = %shard.id, "other bricks do not reach this one yet");
                Ok(HEARTBEAT_US)
            }
            Err(CallError::Refused(refusal)) if refusal != Refusal::NotServing => Err(refusal),
            Err(error) => {
                tracing::debug!(shard = %shard.id, %error, "not joined");
                Ok(RETRY_US)
            }
        }
    }

    /// Fetches the changes of the map, if there are any.
    async fn fetch_map(self: &Rc<Server>, shard: &Shard, newest: MapVersion) -> Result<(), CallError> {
        let have = shard.map.borrow().version;
        if newest <= have {
            return Ok(());
        }
        let mut fetch = MapFetch::new(have, None);
        let meta = shard.meta.borrow().clone();
        loop {
            let call = self.peers.call(&meta, Epoch(0), fetch.request(), Buf::empty());
            if fetch.answered(call.await?.0) {
                break;
            }
        }
        if fetch.is_newer_than(shard.map.borrow().version) {
            fetch.apply(Rc::make_mut(&mut shard.map.borrow_mut()));
            let map = shard.map.borrow().clone();
            self.follow_map(shard.id, &map);
        }
        Ok(())
    }
}
