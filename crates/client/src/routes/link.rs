//! The connections of one thread to the servers, and its requests to the metadata service and to primaries.

use std::rc::Rc;
use std::sync::Arc;

use types::code_probe::{CodeProbe, hit};
use types::limits::CALL_TIMEOUT_US;
use types::messages::cluster::{ClientJoin, ClientJoined, MapFetch, ShardFound, ShardServers};
use types::messages::names::Caller;
use types::wire::Request;
use types::{BrickId, Buf, ClientId, Epoch, MapVersion, ObjectId, Refusal, RetryAction, StripeKey};
use world::trace::Sampler;
use world::{CallError, Peers, World};

use crate::error::ClientError;
use crate::routes::lease_state::POLL_US;
use crate::routes::retry::{RetryBudget, Verdict, verdict};
use crate::routes::route::Route;
use crate::routes::watch::Watch;
use crate::routes::{Above, Routes};
use crate::state::counters::Counter;

/// How long the metadata service may take to send the map, in microseconds.
const MAP_GET_US: u64 = 3_000_000;
/// How long the first shard may take to say where the servers of another one are, in microseconds.
const FIND_US: u64 = 500_000;

/// The connections of one thread to the servers.
pub(crate) struct Link {
    pub(crate) routes: Arc<Routes>,
    pub(crate) world: World,
    pub(crate) peers: Peers,
    /// The calls to bricks that wait.
    pub(super) watch: Rc<Watch>,
    /// Say which requests of programs are traced, and which of the background.
    pub(super) sampler: Sampler,
    pub(super) background_sampler: Sampler,
    pub(crate) above: Arc<dyn Above>,
}

/// The number of a change. Finished when dropped, also if the caller is cancelled.
struct Op<'a> {
    routes: &'a Routes,
    number: u64,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        self.routes.ops().finish(self.number);
    }
}

impl Link {
    pub(crate) fn new(world: World, routes: Arc<Routes>, above: Arc<dyn Above>) -> Rc<Link> {
        let peers = Peers::new(world.clone(), routes.options.identity.clone());
        let (sampler, background_sampler) = Default::default();
        let watch = Watch::new(world.clone(), peers.clone(), routes.clone());
        Rc::new(Link { routes, world, peers, watch, sampler, background_sampler, above })
    }

    /// Asks the metadata service once.
    pub(crate) async fn ask_once<R: Request>(&self, us: u64, request: &R) -> Result<R::Reply, CallError> {
        let meta = self.routes.servers();
        let answer = self.peers.call_within(us, &meta, Epoch::default(), request, Buf::empty()).await;
        match answer {
            // One that was alone may follow another one now.
            Err(CallError::Unreachable | CallError::Refused(Refusal::NotLeader))
                if *meta != *self.routes.options.meta =>
            {
                self.find_servers(&meta).await;
                Err(CallError::Unreachable)
            }
            answer => answer.map(|(reply, _)| reply),
        }
    }

    /// The metadata servers of another shard than the first may have become others: the first one knows.
    async fn find_servers(&self, asked: &str) {
        if !self.routes.may_find_servers(self.world.now()) {
            return;
        }
        let first = &self.routes.options.meta;
        let where_is = ShardServers { shard: self.routes.volume.shard() };
        let found = self.peers.call_within(FIND_US, first, Epoch::default(), &where_is, Buf::empty()).await;
        let servers = found.ok().and_then(|(ShardFound { servers }, _)| servers);
        if let Some(servers) = servers.filter(|servers| *servers != asked) {
            tracing::info!(servers, "the metadata servers of the volume's shard");
            self.routes.set_servers(servers);
        }
    }

    /// Asks the metadata service, with retries; joins again if it has restarted.
    pub(crate) async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, ClientError> {
        let mut budget = RetryBudget::new(&self.world);
        let client = self.routes.lease.client();
        loop {
            if self.routes.lease.has_left() {
                return Err(ClientError::Unmounted);
            }
            if self.routes.lease.is_lost() {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            let generation = self.routes.lease.generation();
            let error = match self.ask_once(CALL_TIMEOUT_US, request).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            tracing::debug!(request = R::NAME, %error, "a request to the metadata service failed");
            match error {
                CallError::Unreachable => {}
                CallError::Refused(Refusal::Unknown | Refusal::Fenced) => {
                    let is_another = || client != self.routes.lease.client();
                    let joined = if is_another() { Ok(()) } else { self.rejoin(generation).await };
                    if joined.is_err_and(|e| e != ClientError::Unreachable) {
                        return Err(error.into());
                    }
                    // The request names the old client id, which is fenced.
                    if is_another() {
                        return Err(ClientError::Refused(Refusal::Fenced));
                    }
                }
                CallError::Refused(refusal) if refusal.retry_action() == RetryAction::Wait => {}
                other => return Err(other.into()),
            }
            budget.backoff().await?;
        }
    }

    /// Asks the metadata service for a change. All retries use the same number.
    pub(crate) async fn change<R: Request>(
        &self,
        request: impl FnOnce(Caller) -> R,
    ) -> Result<R::Reply, ClientError> {
        let (op, acked) = {
            let mut ops = self.routes.ops();
            (ops.begin(), ops.finished())
        };
        let op = Op { routes: &self.routes, number: op };
        let caller = Caller { client: self.routes.lease.client(), op: op.number, acked };
        self.ask(&request(caller)).await
    }

    /// Fetches the map unless it is already newer than `seen`; one fetch at a time for the whole mount.
    pub(crate) async fn refresh_map(&self, seen: MapVersion) {
        let before = self.routes.refreshes();
        let _turn = self.routes.refreshing.lock().await;
        if self.routes.map().version > seen || self.routes.refreshes() != before {
            return;
        }
        let mut fetch = MapFetch::new(self.routes.map().version, Some(self.routes.volume));
        let fetched = loop {
            match self.ask_once(MAP_GET_US, fetch.request()).await {
                Ok(reply) => {
                    if fetch.answered(reply) {
                        break Ok(fetch);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.routes.count_refresh();
        match fetched {
            Ok(fetch) => self.routes.adopt_map(fetch, &*self.above),
            Err(error) => tracing::debug!(%error, "the cluster map could not be fetched"),
        }
    }

    /// The groups in which new files should begin: those near this machine, where the volume asks for it; empty for any.
    pub(crate) fn near_groups(&self) -> Vec<u32> {
        self.routes.map().near_groups(|host| self.world.is_here(host)).to_vec()
    }

    /// Fetches the map until it has the tier of an object. Call it before an open file gets this object: from then on
    /// its bytes are cut into stripes of that tier.
    pub(crate) async fn learn_tier_of(&self, object: ObjectId) -> Result<(), ClientError> {
        let mut budget = RetryBudget::new(&self.world);
        loop {
            let map = self.routes.map();
            if map.has_tier_of(object) {
                return Ok(());
            }
            self.refresh_map(map.version).await;
            if !self.routes.map().has_tier_of(object) {
                budget.backoff().await?;
            }
        }
    }

    /// Asks a group's primary. Gives up as soon as the group has another epoch, because then the answer is of no use.
    pub(crate) async fn ask_primary<R: Request>(
        &self,
        route: &Route,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        let Some((brick, address)) = route.primary() else { return Err(CallError::Unreachable) };
        let is_silent = self.routes.is_suspect(brick, self.world.now()) && !self.routes.is_unreached(brick);
        if is_silent {
            return Err(CallError::Unreachable);
        }
        self.ask_brick_within(CALL_TIMEOUT_US, route, (brick, address), request, payload).await
    }

    /// Asks a brick of a group: directly, or by way of another brick if this mount does not reach it. Gives up as soon as the group
    /// has another epoch, or the direct way turns out to lead nowhere.
    pub(crate) async fn ask_brick_within<R: Request>(
        &self,
        us: u64,
        route: &Route,
        (brick, address): (BrickId, &str),
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        if self.leave_if_unreached(brick, address) {
            // Seldom, and large: not in every request's future.
            return Box::pin(self.ask_by_proxy(us, route, brick, request, payload)).await;
        }
        let call = self.peers.call_within(us, address, route.epoch, request, payload);
        let answer = self.watched(route, (brick, address), call).await;
        if matches!(answer, Err(CallError::Unreachable)) && !self.routes.is_old(route) {
            self.routes.suspect(brick, self.world.now());
        }
        answer
    }

    /// Sends an idempotent request to the primary of a stripe, with retries.
    pub(crate) async fn ask_primary_again<R: Request>(
        &self,
        key: StripeKey,
        request: impl Fn(&Route) -> R,
    ) -> Result<(R::Reply, Buf), ClientError> {
        let mut budget = RetryBudget::new(&self.world);
        loop {
            let route = self.routes.route(key);
            let error = match self.ask_primary(&route, &request(&route), Buf::empty()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tracing::debug!(%key, %error, request = R::NAME, "no answer from the primary");
            self.routes.counts.count(Counter::Retries, 1);
            match verdict(error) {
                Verdict::Refresh => self.refresh_map(route.map_version()).await,
                Verdict::Again => {}
                Verdict::GiveUp(error) => return Err(error),
            }
            budget.backoff().await?;
        }
    }

    /// Waits until the client has a lease.
    pub(crate) async fn wait_for_lease(&self) -> Result<(), ClientError> {
        if self.routes.lease.is_leased(self.world.now()) {
            return Ok(());
        }
        // Seldom, and large: not in every request's future.
        Box::pin(self.wait_for_later_lease()).await
    }

    async fn wait_for_later_lease(&self) -> Result<(), ClientError> {
        hit(CodeProbe::LeaseWait);
        let mut budget = RetryBudget::new(&self.world);
        while !self.routes.lease.is_leased(self.world.now()) {
            if self.routes.lease.has_left() {
                return Err(ClientError::Unmounted);
            }
            if self.routes.lease.is_lost() {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            budget.backoff().await?;
        }
        Ok(())
    }

    /// Joins again, unless another task has since `generation`. The service has restarted, or has fenced this client.
    pub(crate) async fn rejoin(&self, generation: u64) -> Result<(), ClientError> {
        let _turn = self.routes.joining.lock().await;
        if self.routes.lease.generation() != generation || self.routes.lease.has_left() {
            return Ok(());
        }
        if self.routes.lease.is_lost() {
            return Err(ClientError::Refused(Refusal::Fenced));
        }
        hit(CodeProbe::Rejoined);
        let known = Some(self.routes.lease.client());
        match self.join(known).await {
            Ok(()) => Ok(()),
            Err(CallError::Refused(Refusal::Fenced | Refusal::Unknown)) => {
                // All handles fail with the lost lease. Files opened from now on belong to the new client id.
                self.above.lose_everything();
                if self.routes.options.exclusive {
                    self.routes.lease.lose();
                    tracing::error!(
                        "the lease has run out: this exclusive mount is over; unmount it and mount it again"
                    );
                    return Err(ClientError::Refused(Refusal::Fenced));
                }
                self.join(None).await.map_err(ClientError::from)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn join(&self, client: Option<ClientId>) -> Result<(), CallError> {
        self.routes.lease.begin_rejoin();
        let opens = self.above.open_inodes();
        let options = &self.routes.options;
        let (volume, exclusive, place) = (options.volume.clone(), options.exclusive, options.place.clone());
        let sent = self.world.now();
        let join = ClientJoin { volume, client, opens, exclusive, place };
        let ClientJoined { client: now, .. } = self.ask_once(POLL_US, &join).await?;
        if client.is_some_and(|before| before != now) {
            self.above.lose_everything();
        }
        tracing::info!(client = %now, "joined again");
        self.routes.lease.begin(now, sent);
        Ok(())
    }
}
