//! Shards: some of the cluster's volumes each, with metadata servers of their own.
//!
//! Every shard is served by a service like this one, with its own store, journal, leader, clients and leases. The first one has the
//! list of all: a volume is made, found and deleted through it, and the others tell it where their servers are. It keeps no list of
//! their volumes, but asks. So nothing has to agree, whatever is lost or restored.

use std::rc::Rc;

use futures_util::future::join_all;
use types::checksum::crc;
use types::limits::{CALL_TIMEOUT_US, HEARTBEAT_US, LEASE_US};
use types::messages::Done;
use types::messages::cluster::{
    BrickReplace, BrickReplaced, BrickState, ReplaceError, ReplaceErrorKind, ShardAdd, ShardAdded,
    ShardAnnounce, ShardAnnounced, ShardFind, ShardFound, ShardInfo, ShardRemove, ShardReport, ShardServers,
    ShardStatus, TopologySet, VolumeCreate, VolumeDelete, VolumeReply,
};
use types::wire::Request;
use types::{Buf, Epoch, Refusal, ShardId};
use world::CallError;

use super::Shared;
use crate::cluster::{is_callable, is_loopback};

/// How long another shard may take to say whether it has a volume, in microseconds.
const FIND_US: u64 = LEASE_US / 2;
/// How long another shard may take for a request of somebody who waits for it, in microseconds.
const FORWARD_US: u64 = CALL_TIMEOUT_US / 2;

/// Tells the first shard where the servers of this one are, while this server leads, and lets another one lead if it says so.
pub(super) async fn run(shared: Rc<Shared>) {
    let mut is_known = false;
    loop {
        shared.load.measure(shared.world.now());
        if shared.may_act() && shared.shard() != ShardId::FIRST {
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

    async fn announce(&self) -> Result<(), CallError> {
        let known = self.state.borrow().cluster.first_servers().to_owned();
        let announce = ShardAnnounce {
            shard: self.shard(),
            servers: self.servers(),
            leader: self.advertise.clone(),
            load: self.load.get(),
            followers: self.leading.as_ref().map(|leading| leading.successors()).unwrap_or_default(),
        };
        let mut answer = Err(CallError::Unreachable);
        // What the operator says counts until the first shard has answered there, and told where all its servers are.
        for first in [Some(&known), self.first_shard.as_ref()].into_iter().flatten() {
            let call = self.to_shards.call_within(FIND_US, first, Epoch(0), &announce, Buf::default());
            answer = call.await.map(|(answer, _)| (answer, first.clone()));
            if answer.is_ok() {
                break;
            }
        }
        let (ShardAnnounced { servers, topology, lead }, asked) = answer?;
        // An address of the first shard's own machine means another one here.
        let is_elsewhere = is_callable(&servers) && (is_loopback(&asked) || !is_loopback(&servers));
        let servers = if is_elsewhere { servers } else { asked };
        if servers != known {
            self.decide(|state| Ok(state.cluster.set_first_servers(&servers))).map_err(CallError::Refused)?;
        }
        if self.state.borrow().cluster.map().topology != topology {
            let set = TopologySet { topology, may_move: true };
            self.state.borrow_mut().topology_set(&set).map_err(CallError::Refused)?;
            self.news.notify();
        }
        if let (Some(leading), Some(lead)) = (&self.leading, lead) {
            tracing::info!(lead, "is to lead: less is served there");
            if let Some(error) = self.lead(leading, &lead).error {
                tracing::warn!(error, "goes on leading");
            }
        }
        Ok(())
    }

    pub(super) fn shard_add(&self, request: &ShardAdd) -> Result<ShardAdded, Refusal> {
        let mut shard = ShardId::FIRST;
        self.decide(|state| {
            let (id, writes) = state.cluster.add_shard(request.token)?;
            shard = id;
            Ok(writes)
        })?;
        Ok(ShardAdded { shard })
    }

    pub(super) fn shard_announce(&self, request: &ShardAnnounce) -> Result<ShardAnnounced, Refusal> {
        self.decide(|state| state.cluster.shard_announced(request.shard, &request.servers))?;
        let topology = self.state.borrow().cluster.map().topology.clone();
        let servers = Some(self.servers()).filter(|servers| is_callable(servers));
        let own = (self.advertise.as_str(), self.load.get());
        let lead = match self.keeps_leaders {
            true => None,
            false => self.leaders.borrow_mut().heard(self.world.now(), own, request),
        };
        Ok(ShardAnnounced { servers: servers.unwrap_or_default(), topology, lead })
    }

    /// Says which shard has a volume.
    pub(super) async fn shard_find(&self, request: &ShardFind) -> Result<ShardFound, Refusal> {
        let servers = match self.has_volume(&request.volume) {
            true => Some(String::new()),
            false => self.find(&request.volume).await?.map(|info| info.servers),
        };
        Ok(ShardFound { servers })
    }

    /// Says where another shard is.
    pub(super) fn shard_servers(&self, request: &ShardServers) -> Result<ShardFound, Refusal> {
        let known = self.served_shards().into_iter().find(|shard| shard.id == request.shard);
        Ok(ShardFound { servers: known.map(|shard| shard.servers) })
    }

    /// Says what the first shard asks about this one.
    pub(super) fn shard_status(&self, request: &ShardStatus) -> ShardReport {
        if request.token != 0 {
            self.asked_token.set(request.token);
        }
        let state = self.state.borrow();
        let map = state.cluster.map();
        let up = map.bricks.iter().filter(|brick| brick.state == BrickState::Up);
        ShardReport {
            shard: state.cluster.shard(),
            has_volume: map.volume_named(&request.volume).is_some(),
            volumes: (map.volumes.len() + state.cluster.deleted().count()) as u32,
            bricks: up.count() as u32,
            topology: crc(map.topology.as_bytes()),
        }
    }

    /// Which other shard has a volume.
    ///
    /// # Errors
    /// `NotServing`: one of them does not answer, and no other one has it. `Exists`: two have one of this name.
    async fn find(&self, volume: &str) -> Result<Option<ShardInfo>, Refusal> {
        let (mut owner, mut silent) = (None, None);
        for (shard, report) in self.ask_all(volume, 0).await {
            match report {
                Ok(report) if report.has_volume && owner.is_some() => return Err(Refusal::Exists),
                Ok(report) if report.has_volume => owner = Some(shard),
                Ok(_) => {}
                Err(refusal) => silent = Some(refusal),
            }
        }
        match (owner, silent) {
            (None, Some(refusal)) => Err(refusal),
            (owner, _) => Ok(owner),
        }
    }

    /// Asks all other shards about themselves, and about a volume.
    async fn ask_all(&self, volume: &str, token: u64) -> Vec<(ShardInfo, Result<ShardReport, Refusal>)> {
        let ask = async |shard: ShardInfo| {
            let report = self.report_of(&shard, volume, token).await;
            (shard, report)
        };
        join_all(self.served_shards().into_iter().map(ask)).await
    }

    /// Asks another shard about itself, and about a volume. Another one that listens at its address by now is not it.
    async fn report_of(&self, shard: &ShardInfo, volume: &str, token: u64) -> Result<ShardReport, Refusal> {
        let report = self.ask(shard, FIND_US, &ShardStatus { volume: volume.to_owned(), token }).await?;
        if report.shard == shard.id { Ok(report) } else { Err(Refusal::NotServing) }
    }

    /// The other shards. One that was never served has nothing.
    fn served_shards(&self) -> Vec<ShardInfo> {
        self.other_shards().into_iter().filter(|shard| !shard.servers.is_empty()).collect()
    }

    /// Asks another shard. One that does not answer is not serving.
    async fn ask<R: Request>(&self, shard: &ShardInfo, us: u64, request: &R) -> Result<R::Reply, Refusal> {
        let call = self.to_shards.call_within(us, &shard.servers, Epoch(0), request, Buf::default());
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
            return match request.shard == Some(own) {
                false => Err(Refusal::Unsupported),
                true if request.token == 0 || request.token != self.asked_token.get() => {
                    Err(Refusal::NotServing)
                }
                true => self.volume_create(&request),
            };
        }
        let _one = self.volumes_change.lock().await;
        if self.has_volume(&request.name) {
            return Err(Refusal::Exists);
        }
        let token = self.world.random().max(1);
        let asked = self.ask_all(&request.name, token).await;
        let here = self.shard_status(&ShardStatus { volume: String::new(), token: 0 });
        let mut candidates = vec![(here.volumes, own)];
        for (shard, report) in &asked {
            let report = report.as_ref().map_err(|refusal| *refusal)?;
            if report.has_volume {
                return Err(Refusal::Exists);
            }
            // One that has just begun does not have all bricks yet.
            if report.bricks >= here.bricks {
                candidates.push((report.volumes, shard.id));
            }
        }
        let fewest = candidates.iter().min().map_or(own, |(_, shard)| *shard);
        let chosen = request.shard.unwrap_or(fewest);
        if chosen == own {
            return self.volume_create(&request);
        }
        let (shard, report) = asked.iter().find(|(shard, _)| shard.id == chosen).ok_or(Refusal::Unknown)?;
        // Its groups would lie as the network was before, or on the few bricks that have joined it so far.
        let is_level =
            |report: &ShardReport| report.topology == here.topology && report.bricks >= here.bricks;
        if !report.as_ref().is_ok_and(is_level) {
            return Err(Refusal::NotServing);
        }
        self.may_answer().await?;
        let request = VolumeCreate { shard: Some(chosen), token, ..request };
        self.ask(shard, FORWARD_US, &request).await
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
        self.may_answer().await?;
        self.ask(&shard, FORWARD_US, request).await
    }

    pub(super) async fn delete_in_its_shard(&self, request: &VolumeDelete) -> Result<Done, Refusal> {
        let _one = self.volumes_change.lock().await;
        match request.shard {
            None => self.in_its_shard(&request.name, request, Shared::volume_delete).await,
            Some(shard) if shard == self.shard() => self.volume_delete(request),
            Some(shard) => {
                let shards = self.served_shards();
                let shard = shards.iter().find(|info| info.id == shard).ok_or(Refusal::NotFound)?;
                self.may_answer().await?;
                self.ask(shard, FORWARD_US, request).await
            }
        }
    }

    /// Gives the slots of a brick to another one, in all shards. Asked again, those that have done it do nothing. The answer has the
    /// first error.
    pub(super) async fn replace_in_all_shards(
        &self,
        request: &BrickReplace,
    ) -> Result<BrickReplaced, Refusal> {
        let own = self.brick_replace(request)?;
        if self.shard() != ShardId::FIRST || own.error.is_some() {
            return Ok(own);
        }
        let (mut groups, mut error) = (own.groups, None);
        let ask = async |shard: ShardInfo| {
            let answer = match self.report_of(&shard, "", 0).await {
                Ok(_) => self.ask(&shard, FORWARD_US, request).await,
                Err(refusal) => Err(refusal),
            };
            (shard, answer)
        };
        for (shard, answer) in join_all(self.served_shards().into_iter().map(ask)).await {
            match answer {
                // It was gone before that shard was there.
                Ok(BrickReplaced {
                    error: Some(ReplaceError { what: ReplaceErrorKind::OldUnknown, .. }),
                    ..
                }) => {}
                Ok(replaced) => {
                    groups += replaced.groups;
                    error = error.or(replaced.error);
                }
                Err(refusal) => {
                    tracing::warn!(shard = %shard.id, %refusal, "a shard does not replace a brick");
                    let silent =
                        ReplaceError { what: ReplaceErrorKind::ShardSilent, group: None, brick: None };
                    error = error.or(Some(silent));
                }
            }
        }
        Ok(BrickReplaced { groups, error })
    }

    /// Forgets a shard that has nothing.
    pub(super) async fn shard_remove(&self, request: &ShardRemove) -> Result<Done, Refusal> {
        let _one = self.volumes_change.lock().await;
        let shards = self.other_shards();
        let shard = shards.iter().find(|shard| shard.id == request.shard).ok_or(Refusal::Unknown)?;
        if !shard.servers.is_empty() {
            match self.report_of(shard, "", 0).await {
                // One that answers is not lost.
                Ok(report) if request.lost || report.volumes > 0 => return Err(Refusal::Busy),
                Ok(_) => {}
                Err(_) if request.lost => {}
                Err(refusal) => return Err(refusal),
            }
        }
        self.decide(|state| state.cluster.remove_shard(request.shard)).map(|_| Done {})
    }
}
