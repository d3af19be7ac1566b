//! Shards: some of the cluster's volumes each, with metadata servers of their own.
//!
//! Every shard is served by a service like this one, with its own store, journal, leader, clients and leases. The first one has the
//! list of all: a volume is made, found and deleted through it, and the others tell it where their servers are. It keeps no list of
//! their volumes, but asks. So nothing has to agree, whatever is lost or restored.

use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{CALL_TIMEOUT_US, HEARTBEAT_US, LEASE_US};
use types::messages::Done;
use types::messages::cluster::{
    BrickReplace, BrickReplaced, ShardAdded, ShardAnnounce, ShardAnnounced, ShardFind, ShardFound, ShardInfo,
    ShardRemove, TopologySet, VolumeCreate, VolumeDelete, VolumeReply,
};
use types::wire::Request;
use types::{Buf, Epoch, Refusal, ShardId};
use world::CallError;

use super::Shared;

/// How long another shard may take to say whether it has a volume, in microseconds.
const FIND_US: u64 = LEASE_US / 2;

/// Tells the first shard where the servers of this one are, while this server leads.
pub(super) async fn run(shared: Rc<Shared>) {
    if shared.shard() == ShardId::FIRST {
        return;
    }
    let mut is_known = false;
    loop {
        if shared.may_act() {
            match shared.announce().await {
                Ok(()) => is_known = true,
                Err(error) => {
                    if std::mem::take(&mut is_known) {
                        tracing::warn!(%error, "the first shard does not answer");
                    }
                }
            }
        }
        shared.world.sleep(HEARTBEAT_US).await;
    }
}

impl Shared {
    /// The shard that this service serves.
    pub(super) fn shard(&self) -> ShardId {
        self.state.borrow().cluster.shard()
    }

    /// The metadata servers of this shard.
    fn servers(&self) -> String {
        match &self.leading {
            Some(leading) => leading.addresses().join(","),
            None => self.advertise.clone(),
        }
    }

    fn other_shards(&self) -> Vec<ShardInfo> {
        self.state.borrow().cluster.map().shards.clone()
    }

    fn has_volume(&self, name: &str) -> bool {
        self.state.borrow().cluster.map().volume_named(name).is_some()
    }

    /// The volumes here, and deleted ones of which bricks have bytes.
    fn count_volumes(&self) -> u32 {
        let state = self.state.borrow();
        (state.cluster.map().volumes.len() + state.cluster.deleted().count()) as u32
    }

    async fn announce(&self) -> Result<(), CallError> {
        let first = self.state.borrow().cluster.first_servers().to_owned();
        let announce = ShardAnnounce { shard: self.shard(), servers: self.servers() };
        let call = self.peers.call_within(FIND_US, &first, Epoch(0), &announce, Buf::default());
        let (ShardAnnounced { servers, topology }, _) = call.await?;
        let is_new = !servers.is_empty() && servers != first;
        let moved = self.state.borrow().cluster.map().topology != topology;
        if is_new {
            self.decide(|state| Ok(state.cluster.set_first_servers(&servers))).map_err(CallError::Refused)?;
        }
        if moved {
            let set = TopologySet { topology, may_move: true };
            self.state.borrow_mut().topology_set(&set).map_err(CallError::Refused)?;
            self.news.notify();
        }
        Ok(())
    }

    pub(super) fn shard_add(&self) -> Result<ShardAdded, Refusal> {
        let mut shard = ShardId::FIRST;
        self.decide(|state| {
            let (id, writes) = state.cluster.add_shard()?;
            shard = id;
            Ok(writes)
        })?;
        Ok(ShardAdded { shard })
    }

    pub(super) fn shard_announce(&self, request: &ShardAnnounce) -> Result<ShardAnnounced, Refusal> {
        self.decide(|state| state.cluster.shard_announced(request.shard, &request.servers))?;
        let topology = self.state.borrow().cluster.map().topology.clone();
        Ok(ShardAnnounced { servers: self.servers(), topology })
    }

    /// Says which shard has a volume.
    pub(super) async fn shard_find(&self, request: &ShardFind) -> Result<ShardFound, Refusal> {
        let volumes = self.count_volumes();
        if self.has_volume(&request.volume) {
            return Ok(ShardFound { servers: Some(String::new()), volumes });
        }
        let found = self.find(&request.volume).await?;
        Ok(ShardFound { servers: found.map(|info| info.servers), volumes })
    }

    /// Which other shard has a volume.
    ///
    /// # Errors
    /// `NotServing`: one of them does not answer, and no other one has it.
    async fn find(&self, volume: &str) -> Result<Option<ShardInfo>, Refusal> {
        let asked = self.ask_all(volume).await;
        let has_it = |(_, answer): &&(ShardInfo, Option<ShardFound>)| {
            answer.as_ref().is_some_and(|found| found.servers.is_some())
        };
        match asked.iter().find(has_it) {
            Some((shard, _)) => Ok(Some(shard.clone())),
            None if asked.iter().any(|(_, answer)| answer.is_none()) => Err(Refusal::NotServing),
            None => Ok(None),
        }
    }

    /// Asks all other shards about a volume; `None` for those that do not answer.
    async fn ask_all(&self, volume: &str) -> Vec<(ShardInfo, Option<ShardFound>)> {
        let find = ShardFind { volume: volume.to_owned() };
        // One that was never served has no volume.
        let others = self.other_shards().into_iter().filter(|shard| !shard.servers.is_empty());
        let ask = async |shard: ShardInfo| {
            let answer = self.ask(&shard, FIND_US, &find).await;
            (shard, answer.ok())
        };
        join_all(others.map(ask)).await
    }

    /// Asks another shard. One that does not answer is not serving.
    async fn ask<R: Request>(&self, shard: &ShardInfo, us: u64, request: &R) -> Result<R::Reply, Refusal> {
        let call = self.peers.call_within(us, &shard.servers, Epoch(0), request, Buf::default());
        match call.await {
            Ok((reply, _)) => Ok(reply),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => {
                tracing::debug!(shard = %shard.id, %error, "a shard does not answer");
                Err(Refusal::NotServing)
            }
        }
    }

    /// Makes a volume, in the shard that is asked for, or in the one with the fewest. Its name is in no other shard.
    pub(super) async fn create_in_some_shard(&self, request: VolumeCreate) -> Result<VolumeReply, Refusal> {
        let own = self.shard();
        if own != ShardId::FIRST {
            // Only the first shard can know that no other one has the name.
            return if request.shard == Some(own) {
                self.volume_create(&request)
            } else {
                Err(Refusal::Unsupported)
            };
        }
        let _one = self.volumes_change.lock().await;
        if self.has_volume(&request.name) {
            return Err(Refusal::Exists);
        }
        let asked = self.ask_all(&request.name).await;
        let mut counts = vec![(self.count_volumes(), own)];
        for (shard, answer) in &asked {
            let ShardFound { servers, volumes } = answer.as_ref().ok_or(Refusal::NotServing)?;
            if servers.is_some() {
                return Err(Refusal::Exists);
            }
            counts.push((*volumes, shard.id));
        }
        let fewest = counts.iter().min().map_or(own, |(_, shard)| *shard);
        let chosen = request.shard.unwrap_or(fewest);
        if chosen == own {
            return self.volume_create(&request);
        }
        let (shard, _) = asked.iter().find(|(shard, _)| shard.id == chosen).ok_or(Refusal::Unknown)?;
        let request = VolumeCreate { shard: Some(chosen), ..request };
        self.ask(shard, CALL_TIMEOUT_US, &request).await
    }

    /// Does something with a volume, here or in the shard that has it.
    pub(super) async fn in_its_shard<R: Request>(
        &self,
        name: &str,
        request: &R,
        here: fn(&Shared, &R) -> Result<R::Reply, Refusal>,
    ) -> Result<R::Reply, Refusal> {
        if self.has_volume(name) {
            return here(self, request);
        }
        let shard = self.find(name).await?.ok_or(Refusal::Unknown)?;
        self.ask(&shard, CALL_TIMEOUT_US, request).await
    }

    pub(super) async fn delete_in_its_shard(&self, request: &VolumeDelete) -> Result<Done, Refusal> {
        let _one = self.volumes_change.lock().await;
        self.in_its_shard(&request.name, request, Shared::volume_delete).await
    }

    /// Gives the slots of a brick to another one, in all shards. A shard that refuses ends it; those before it have done it, and do
    /// nothing when they are asked again.
    pub(super) async fn replace_in_all_shards(
        &self,
        request: &BrickReplace,
    ) -> Result<BrickReplaced, Refusal> {
        let now = self.world.now();
        if let Err(error) = self.state.borrow().cluster.check_replace(request, now) {
            return Ok(BrickReplaced { groups: 0, error: Some(error) });
        }
        let mut groups = 0;
        for shard in self.other_shards().iter().filter(|shard| !shard.servers.is_empty()) {
            let replaced = self.ask(shard, CALL_TIMEOUT_US, request).await?;
            groups += replaced.groups;
            if replaced.error.is_some() {
                return Ok(BrickReplaced { groups, ..replaced });
            }
        }
        let replaced = self.brick_replace(request)?;
        Ok(BrickReplaced { groups: groups + replaced.groups, ..replaced })
    }

    /// Forgets a shard that has nothing.
    pub(super) async fn shard_remove(&self, request: &ShardRemove) -> Result<Done, Refusal> {
        let _one = self.volumes_change.lock().await;
        let shards = self.other_shards();
        let shard = shards.iter().find(|shard| shard.id == request.shard).ok_or(Refusal::Unknown)?;
        if !request.lost && !shard.servers.is_empty() {
            let find = ShardFind { volume: String::new() };
            if self.ask(shard, FIND_US, &find).await?.volumes > 0 {
                return Err(Refusal::Busy);
            }
        }
        self.decide(|state| state.cluster.remove_shard(request.shard)).map(|_| Done {})
    }
}
