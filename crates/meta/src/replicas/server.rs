//! The life of a metadata server: alone, or one of several, of which one leads.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use futures_util::future::{Either, select};
use types::messages::replica::MetaStatus;
use types::messages::session::Role;
use types::{Buf, ClusterId, Epoch};
use world::{CallError, Identity, ListenSocket, Listener, LocalBoxFuture, Notify, Peers, World, serve};

use super::copy::{Copied, ballot, is_incomplete, members_of, open_store, renewed_ballot};
use super::election::Elected;
use super::follower::Follower;
use crate::MetaError;
use crate::cluster_id::cluster_of;
use crate::kv::Engine;
use crate::records::to_value;
use crate::service::{Ended, Service, Shared};
use crate::{MetaOptions, keys};

/// Pause before the servers of a cluster are asked again which one it is, in microseconds.
const ASK_US: u64 = 1_000_000;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// As of a service that is alone.
    pub service: MetaOptions,
    /// Where the other servers reach this one, `host:port`.
    pub advertise: String,
    /// Servers of a cluster, with commas between them, of which this one is to become a member, if it is not one yet.
    pub join: Option<String>,
}

/// A metadata server.
pub struct Server {
    world: World,
    engine: Engine,
    options: ServerOptions,
    /// Where it listens, through all its lives. `None` in a simulated world, which frees an address at once.
    socket: RefCell<Option<ListenSocket>>,
    /// The service, while this server leads or is alone.
    service: RefCell<Weak<Shared>>,
    /// It has just led: there was no other leader whom it could have heard.
    has_led: Cell<bool>,
}

impl Drop for Server {
    /// The thread of a commit that waits for room would keep the process.
    fn drop(&mut self) {
        self.engine.set_patient(false);
    }
}

impl Server {
    /// Nothing is read yet.
    pub fn new(world: World, engine: Engine, options: ServerOptions) -> Server {
        engine.set_patient(true);
        Server {
            world,
            engine,
            options,
            socket: RefCell::default(),
            service: RefCell::default(),
            has_led: Cell::new(false),
        }
    }

    /// Serves until dropped. Tells `listening` where it listens whenever it begins to. Returns only if it cannot go on.
    ///
    /// # Errors
    /// Why it cannot: then the process should be started again, but for [`MetaError::Removed`].
    ///
    /// The future is boxed, so that this crate compiles it once, and not every program that awaits it.
    pub fn run<'a>(&'a self, listening: &'a dyn Fn(&str)) -> LocalBoxFuture<'a, MetaError> {
        Box::pin(self.run_unboxed(listening))
    }

    async fn run_unboxed(&self, listening: &dyn Fn(&str)) -> MetaError {
        loop {
            match self.live(listening).await {
                Ok(()) => {}
                Err(error) => return error,
            }
        }
    }

    /// Lets another server lead, if this one leads: its process is to end. Takes a second at most.
    pub async fn step_down(&self) {
        let service = self.service.borrow().upgrade();
        if let Some(service) = service {
            service.step_down().await;
        }
    }

    /// One life: until this server leads, or leads no more, or is not alone any more.
    async fn live(&self, listening: &dyn Fn(&str)) -> Result<(), MetaError> {
        let cluster = self.cluster().await?;
        let (memory, work) = (self.options.service.memory_budget, Notify::new());
        let opened = match is_incomplete(&self.engine)? {
            true => None,
            false => Some(open_store(&self.world, self.engine.clone(), cluster, memory, &work).await?),
        };
        let is_alone = opened.as_ref().is_some_and(|opened| members_of(&opened.store).is_empty());
        if is_alone && self.options.join.is_some() {
            return Err(MetaError::Alone);
        }
        if is_alone && let Some(opened) = opened {
            let listener = self.listen().await?;
            let service =
                Service::alone(&self.world, opened, cluster, self.options.clone(), work, listener).await?;
            return self.serve(service, listening).await;
        }
        let copied = Copied::new(&self.world, &self.engine, opened, memory, work).await?;
        let elected = self.follow(cluster, copied, listening).await?;
        let listener = self.listen().await?;
        let service = Service::leading(
            &self.world,
            elected,
            cluster,
            self.options.clone(),
            self.engine.clone(),
            listener,
        )
        .await?;
        match service {
            Some(service) => self.serve(service, listening).await,
            None => Ok(()),
        }
    }

    async fn serve(&self, service: Service, listening: &dyn Fn(&str)) -> Result<(), MetaError> {
        listening(&service.address());
        *self.service.borrow_mut() = Rc::downgrade(service.shared());
        match service.run().await {
            Ended::Failed => Err(MetaError::Stopped),
            Ended::Deposed => {
                self.has_led.set(true);
                Ok(())
            }
            Ended::Removed => {
                ballot(&self.world, &self.engine, false).await?.removed().await?;
                Err(MetaError::Removed)
            }
            Ended::Overruled => Err(MetaError::Overruled),
        }
    }

    /// Follows until it is elected.
    async fn follow(
        &self,
        cluster: ClusterId,
        copied: Copied,
        listening: &dyn Fn(&str),
    ) -> Result<Elected, MetaError> {
        let members = members_of(&copied.store);
        let me = members.into_iter().find(|member| member.id == copied.files.ballot.promises.id);
        if let Some(me) = me.filter(|me| me.address != self.options.advertise) {
            return Err(MetaError::Moved { known: me.address, now: self.options.advertise.clone() });
        }
        // Others call it at the address by which they know it.
        let name = self.options.advertise.clone();
        let identity =
            Identity { cluster, role: Role::MetaFollower, name, ..self.options.service.identity.clone() };
        if copied.files.ballot.is_removed() {
            return Err(MetaError::Removed);
        }
        if copied.files.ballot.is_set_back() {
            return Err(MetaError::SetBack);
        }
        let peers = Peers::new(self.world.clone(), identity.clone());
        let (world, options) = (self.world.clone(), self.options.clone());
        let follower = Follower::new(world, peers, options, cluster, self.engine.clone(), copied);
        if self.has_led.replace(false) {
            follower.core.borrow_mut().has_led(self.world.now());
        }
        let listener = self.listen().await?;
        listening(&listener.address());
        let serving = serve(self.world.clone(), listener, identity, follower.handler());
        let background = async {
            let ends = select(Box::pin(follower.flush()), Box::pin(follower.failure())).await;
            ends.factor_first().0
        };
        let removed = follower.removed();
        let others = select(Box::pin(serving), Box::pin(follower.join()));
        let fails = select(Box::pin(background), Box::pin(removed));
        let ends = select(Box::pin(follower.elected()), fails);
        match select(ends, others).await {
            Either::Left((Either::Left((elected, _)), _)) => elected,
            Either::Left((Either::Right((error, _)), _)) => Err(error.factor_first().0),
            Either::Right(_) => Err(MetaError::Stopped),
        }
    }

    /// The cluster of the store. A new store gets that of the servers that it is to join.
    async fn cluster(&self) -> Result<ClusterId, MetaError> {
        let expected = self.options.service.identity.cluster;
        if let Some(found) = cluster_of(&self.engine)? {
            if expected != ClusterId::default() && expected != found {
                return Err(MetaError::WrongCluster { found, expected });
            }
            return Ok(found);
        }
        let Some(servers) = &self.options.join else { return Err(MetaError::NoCluster) };
        let identity = Identity { role: Role::MetaFollower, ..self.options.service.identity.clone() };
        let peers = Peers::new(self.world.clone(), identity);
        loop {
            for server in servers.split(',') {
                match peers.call_within(super::CALL_US, server, Epoch(0), &MetaStatus {}, Buf::empty()).await
                {
                    Ok(_) => {
                        let cluster = peers.cluster();
                        // A file with a vote may be left of a store that was lost.
                        drop(renewed_ballot(&self.world, &self.engine).await?);
                        self.engine.replace_all(&[
                            (keys::cluster(), to_value(&cluster)),
                            (keys::incomplete(), Vec::new()),
                        ])?;
                        return Ok(cluster);
                    }
                    Err(error @ CallError::Unreachable) => {
                        tracing::warn!(server, %error, "cannot reach a metadata server to join");
                    }
                    Err(error) => return Err(MetaError::Join { server: server.to_owned(), error }),
                }
            }
            self.world.sleep(ASK_US).await;
        }
    }

    async fn listen(&self) -> Result<Listener, MetaError> {
        let address = &self.options.service.listen;
        let socket = self.socket.borrow().clone();
        let listener = match &socket {
            Some(socket) => self.world.listen_shared(socket),
            None => self.world.listen(address).await,
        };
        let listener = listener.map_err(|error| MetaError::Listen { address: address.clone(), error })?;
        *self.socket.borrow_mut() = listener.listen_socket();
        Ok(listener)
    }
}

impl Follower {
    /// Returns when others have removed this server.
    async fn removed(self: &Rc<Follower>) -> MetaError {
        loop {
            let is_removed = self.core.borrow().is_removed();
            if is_removed {
                break;
            }
            let is_new = self.core.borrow().notes_member().is_some();
            if is_new && let Some(files) = self.files.lock().await.as_mut() {
                let promises = self.core.borrow().notes_member();
                if let Some(promises) = promises
                    && let Err(error) = self.make_durable(files, promises).await
                {
                    return error;
                }
            }
            self.world.sleep(super::BEAT_US / 2).await;
        }
        match self.files.lock().await.as_mut() {
            Some(files) => files.ballot.removed().await.err().unwrap_or(MetaError::Removed),
            None => MetaError::Removed,
        }
    }
}
