//! Starts and ends a gate: the mount, the threads, and accepting clients.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use client::{ClientError, Mount, MountError, MountOptions};
use futures_util::future::{Either, select};
use world::{Conn, Listener, Notify, World};

use super::allow::{AllowList, Network, addresses};
use super::connection;
use super::credits::Credits;
use super::files::Files;
use super::gate::{Gate, Shared, TurnedAway};
use super::handle::FileSystemId;
use super::reply_cache::ReplyCache;
use super::verifier::Verifier;
use crate::seats::{Seat, Seats};

/// Pause after a failed accept, in microseconds.
const ACCEPT_PAUSE_US: u64 = 100_000;
/// Time between two searches for idle open files, in microseconds.
const CLOSE_IDLE_US: u64 = 1_000_000;
/// How long requests in progress may take when the gate ends, in microseconds.
const END_US: u64 = 10_000_000;
/// Most requests in progress of all clients of a thread.
const REQUESTS_MAX: usize = 4096;
/// Requests and answers of all threads together may take one part in this many of the memory budget.
const REQUESTS_SHARE: u64 = 4;
/// Least bytes for the requests of a thread: enough for a few of the largest.
const BYTES_MIN: u64 = 8 << 20;
/// Below this number a port of a machine is for its root only.
const PORTS_PRIVILEGED: u16 = 1024;

/// Options of an NFS gate.
#[derive(Clone, Debug)]
pub struct NfsOptions {
    /// Where it listens, `host:port`.
    pub listen: String,
    /// Clients that are allowed; if empty, those of this machine.
    pub allow: Vec<Network>,
    /// Admits clients from any port. Ports below 1024 are those that only root of a machine can use.
    pub insecure: bool,
    /// Refuses all changes.
    pub read_only: bool,
    /// Treats the clients' root as nobody.
    pub root_squash: bool,
    /// Most connections at the same time.
    pub connections: usize,
    /// Threads that serve requests.
    pub threads: usize,
}

/// Why a gate cannot start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum NfsError {
    /// The cluster refuses this client.
    #[error(transparent)]
    Join(#[from] MountError),
    /// An io_uring or a thread cannot be made.
    #[error("this machine gives no ring or thread: {0}")]
    Machine(#[source] io::Error),
    /// It cannot listen at the address.
    #[error("cannot listen at {at}: {error}")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// Other machines could connect, and no allowed clients were named.
    #[error("whoever reaches {0} could name any user: say which clients may come")]
    Anybody(String),
    /// Not everything written became stable.
    #[error("bytes that were written did not become stable: {0}")]
    Unstable(#[source] ClientError),
}

/// A running gate.
pub struct NfsGate {
    world: World,
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
    background: JoinHandle<()>,
}

impl NfsGate {
    /// Checks the options before any server is asked.
    ///
    /// # Errors
    /// [`NfsError::Listen`] and [`NfsError::Anybody`].
    pub fn check(options: &NfsOptions) -> Result<(), NfsError> {
        allow_list(options).map(|_| ())
    }

    /// Joins the cluster, listens, and serves. Returns when clients can connect.
    pub fn start(client: MountOptions, options: &NfsOptions) -> Result<NfsGate, NfsError> {
        let allow_list = allow_list(options)?;
        let wrong = |error| NfsError::Listen { at: options.listen.clone(), error };
        let listener = world::bind_port(&options.listen).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        let world = World::real().map_err(NfsError::Machine)?;
        let (volume, memory) = (client.volume.clone(), client.memory_budget);
        // A quarter is for requests on their way (`start_threads`).
        let client = MountOptions { memory_budget: memory - memory / 4, ..client };
        let mount = world.block_on(Mount::join(&world, client))?;
        let background = start_background(&mount).map_err(NfsError::Machine)?;
        let shared = Arc::new(Shared {
            file_system: FileSystemId { cluster: mount.cluster(), volume: mount.volume() },
            mount,
            volume,
            read_only: options.read_only,
            root_squash: options.root_squash,
            allow_list,
            port: address.port(),
            files: Files::default(),
            reply_cache: ReplyCache::default(),
            verifier: Verifier::new(world.random()),
            insecure: options.insecure,
            seats: Seats::new(options.connections),
            turned_away: TurnedAway::default(),
            closing: AtomicBool::new(false),
            ended: Notify::new(),
        });
        let mut gate = NfsGate { world, shared, address, threads: Vec::new(), background };
        match gate.start_threads(&listener, options.threads.max(1), memory) {
            Ok(()) => Ok(gate),
            Err(error) => {
                // Nothing has been written yet, so an error here loses nothing.
                let _ = gate.end();
                Err(NfsError::Machine(error))
            }
        }
    }

    fn start_threads(&mut self, listener: &TcpListener, threads: usize, memory: u64) -> io::Result<()> {
        let bytes = (memory / REQUESTS_SHARE / threads as u64).max(BYTES_MIN) as usize;
        for number in 0..threads {
            let (shared, listener) = (Arc::clone(&self.shared), listener.try_clone()?);
            let serve = move || match World::real() {
                Ok(world) => world.block_on_as(
                    "nfs connections",
                    serve(world.clone(), shared, listener, bytes, number == 0),
                ),
                Err(error) => tracing::error!("cannot make an io_uring for a thread of the gate: {error}"),
            };
            self.threads.push(thread::Builder::new().name("nfs".into()).spawn(serve)?);
        }
        Ok(())
    }

    /// The gate's client.
    pub fn mount(&self) -> Arc<Mount> {
        Arc::clone(&self.shared.mount)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends requests in progress, and makes everything stable.
    ///
    /// # Errors
    /// If something written did not become stable.
    pub fn end(self) -> Result<(), NfsError> {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.ended.notify();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the gate has panicked");
            }
        }
        let left = self.world.block_on(self.shared.mount.leave(&self.world));
        if self.background.join().is_err() {
            tracing::error!("the client's background has panicked");
        }
        left.map_err(NfsError::Unstable)
    }
}

fn allow_list(options: &NfsOptions) -> Result<AllowList, NfsError> {
    let at = options.listen.clone();
    let listen = addresses(&at).map_err(|error| NfsError::Listen { at: at.clone(), error })?;
    AllowList::of(&listen, &options.allow).ok_or(NfsError::Anybody(at))
}

/// The client's own thread.
fn start_background(mount: &Arc<Mount>) -> io::Result<JoinHandle<()>> {
    let mount = Arc::clone(mount);
    thread::Builder::new().name("client".into()).spawn(move || match World::real() {
        Ok(world) => world.block_on_as("client", mount.background(world.clone())),
        Err(error) => tracing::error!("cannot make an io_uring for the client's background: {error}"),
    })
}

/// Serves the clients that this thread accepts, until the gate ends. One of the threads also closes idle files.
async fn serve(world: World, shared: Arc<Shared>, listener: TcpListener, bytes: usize, closes_idle: bool) {
    let listener = match world.listen_on(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("a thread of the gate cannot listen: {error}"),
    };
    let session = shared.mount.session(world.clone());
    let gate = Rc::new(Gate { shared: Arc::clone(&shared), world: world.clone(), session });
    if closes_idle {
        world.spawn("nfs upkeep", close_idle(Rc::clone(&gate)));
    }
    let here = Credits::new(usize::MAX, usize::MAX);
    let all = Credits::new(REQUESTS_MAX, bytes);
    while let Some(accepted) = accept(&listener, &shared).await {
        match accepted {
            Ok(conn) => {
                let Some((client, seat)) = admit(&shared, &world, &conn) else { continue };
                let (gate, all, turn) = (Rc::clone(&gate), Rc::clone(&all), here.take(1, 0).await);
                world.spawn("nfs connection", async move {
                    connection::serve(gate, conn, client, seat, all).await;
                    drop(turn);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                world.sleep(ACCEPT_PAUSE_US).await;
            }
        }
    }
    if world.timeout(END_US, here.all_back()).await.is_none() {
        tracing::warn!("the gate ends while requests are in progress: they get no answer");
    }
}

/// The next connection; `None` when the gate ends.
async fn accept(listener: &Listener, shared: &Shared) -> Option<io::Result<Conn>> {
    let ended = shared.ended.wait();
    if shared.closing.load(Ordering::Acquire) {
        return None;
    }
    match select(pin!(listener.accept()), pin!(ended)).await {
        Either::Left((accepted, _)) => Some(accepted),
        Either::Right(_) => None,
    }
}

/// Accepts or refuses a client.
fn admit(shared: &Shared, world: &World, conn: &Conn) -> Option<(SocketAddr, Seat)> {
    let peer = conn.peer();
    let client = peer.parse::<SocketAddr>().ok()?;
    let Shared { allow_list, turned_away, insecure, seats, .. } = shared;
    let now = world.now();
    if !allow_list.admits(client.ip()) {
        if let Some(left_out) = turned_away.strangers.admits(now) {
            tracing::warn!(%peer, left_out, "a client that is not allowed is turned away");
        }
        return None;
    }
    if !insecure && client.port() >= PORTS_PRIVILEGED {
        if let Some(left_out) = turned_away.unprivileged.admits(now) {
            tracing::warn!(
                %peer,
                left_out,
                "a client whose port anybody may use is turned away: only --insecure admits ports from 1024 on"
            );
        }
        return None;
    }
    let seat = seats.take(Some(client.ip().to_canonical()), world);
    if seat.is_none()
        && let Some(left_out) = turned_away.full.admits(now)
    {
        tracing::warn!(%peer, left_out, "one client too many: it is turned away");
    }
    Some((client, seat?))
}

/// Closes idle files until the gate ends. The end of the gate makes everything stable.
async fn close_idle(gate: Rc<Gate>) {
    let Shared { files, verifier, closing, ended, .. } = &*gate.shared;
    loop {
        let over = ended.wait();
        if closing.load(Ordering::Acquire) {
            return;
        }
        gate.world.timeout(CLOSE_IDLE_US, over).await;
        files.close_idle(&gate.session, gate.world.now(), verifier).await;
    }
}
