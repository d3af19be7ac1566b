//! A brick as a member of the cluster: it joins, renews its lease, follows the map.

use std::rc::Rc;

use types::limits::{HEARTBEAT_US, LEASE_US};
use types::messages::cluster::{BrickHeartbeat, BrickJoin, BrickJoined, HeartbeatReply, MapFetch};
use types::{Buf, Epoch, MapVersion, Refusal};
use world::CallError;

use crate::error::BrickError;
use crate::journal::Priority;
use crate::record::Undrop;
use crate::server::Server;

/// Pause before the metadata service is asked again, in microseconds.
const RETRY_US: u64 = 200_000;
/// How long the first answer of the metadata service may take, in microseconds.
const JOIN_US: u64 = 60_000_000;

impl Server {
    /// Joins the cluster. Waits for a metadata service that is not there yet.
    pub(crate) async fn join(self: Rc<Server>) -> Result<(), BrickError> {
        let deadline = self.world.now() + JOIN_US;
        loop {
            match self.try_join().await {
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

    async fn try_join(self: &Rc<Server>) -> Result<(), CallError> {
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
        };
        let (reply, _): (BrickJoined, Buf) =
            self.peers.call(&self.options.meta, Epoch(0), &join, Buf::empty()).await?;
        self.learn_fences(&reply.fences);
        self.learn_restored(reply.restored).await;
        // The brick needs the map to know what it may serve. The lease begins with the join nevertheless.
        self.fetch_map(reply.map).await?;
        self.lease_until.set(sent + LEASE_US);
        Ok(())
    }

    /// The metadata service was restored from a backup: files may have objects again that were removed since. A write to one of
    /// them would be taken for one that nobody will miss. Clients from before are fenced.
    async fn learn_restored(&self, restored: u64) {
        if self.restored.replace(restored) == restored {
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

    /// Renews the lease until the disk fails.
    pub(crate) async fn beat_for_ever(self: Rc<Server>) -> Result<(), BrickError> {
        let mut pause = HEARTBEAT_US;
        loop {
            let wanted = self.map_wanted.wait();
            let early = self.world.timeout(pause, wanted).await.is_some();
            pause = HEARTBEAT_US;
            if self.journal.has_failed() {
                return Err(BrickError::Disk(std::io::Error::other(
                    "the disk failed: the brick counts as lost",
                )));
            }
            let sent = self.world.now();
            let beat = BrickHeartbeat {
                brick: self.options.brick,
                incarnation: self.incarnation,
                free: self.free_bytes(),
            };
            match self
                .peers
                .call_within(LEASE_US / 2, &self.options.meta, Epoch(0), &beat, Buf::empty())
                .await
            {
                Ok((HeartbeatReply { map }, _)) => {
                    // The lease counts from the sending of the heartbeat, never from the answer.
                    self.lease_until.set(sent + LEASE_US);
                    if let Err(error) = self.fetch_map(map).await {
                        tracing::debug!(%error, "no map");
                    }
                }
                Err(CallError::Refused(Refusal::Unknown)) => {
                    if let Err(CallError::Refused(refusal)) = self.try_join().await
                        && refusal != Refusal::NotServing
                    {
                        return Err(BrickError::Refused(refusal));
                    }
                }
                Err(CallError::Refused(refusal)) if refusal != Refusal::NotServing => {
                    return Err(BrickError::Refused(refusal));
                }
                Err(error) => {
                    tracing::warn!(%error, "the lease was not renewed");
                    // The lease is short: there is no time to wait for a whole heartbeat interval.
                    pause = RETRY_US;
                }
            }
            if early {
                // Requests for the map come in bursts; one fetch serves them all.
                self.world.sleep(RETRY_US / 10).await;
            }
        }
    }

    /// Fetches the changes of the map, if there are any.
    async fn fetch_map(self: &Rc<Server>, newest: MapVersion) -> Result<(), CallError> {
        let have = self.map.borrow().version;
        if newest <= have {
            return Ok(());
        }
        let mut fetch = MapFetch::new(have, None);
        loop {
            let call = self.peers.call(&self.options.meta, Epoch(0), fetch.request(), Buf::empty());
            if fetch.answered(call.await?.0) {
                break;
            }
        }
        if fetch.is_newer_than(self.map.borrow().version) {
            fetch.apply(Rc::make_mut(&mut self.map.borrow_mut()));
            let map = self.map.borrow().clone();
            self.follow_map(&map);
        }
        Ok(())
    }
}
