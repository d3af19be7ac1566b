//! Beginning and end of a gate: what it exports, where it listens, and the clients that it lets in.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use client::{ClientError, Mount, MountError, Session};
use futures_util::future::{Either, select};
use types::InodeId;
use types::messages::cluster::DISK;
use types::messages::names::FileKind;
use world::{Conn, Listener, Notify, World};

use super::connection;
use super::export::Export;
use super::proto::ExportInfo;

/// Pause after a connection could not be accepted, in microseconds.
const ACCEPT_PAUSE_US: u64 = 100_000;
/// How long requests that are under way may take when the gate ends, in microseconds.
const END_US: u64 = 5_000_000;

/// Where a gate listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// At `host:port`.
    Port(String),
    /// At a socket in the file system, for processes of this machine's user only.
    Path(String),
}

/// What a gate exports, and to whom.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// Where it listens.
    pub listen: Listen,
    /// The file, from the volume's root; [`None`] for the disk of a block volume.
    pub file: Option<String>,
    /// Nothing can be written.
    pub read_only: bool,
    /// Every write is stable before it is answered.
    pub write_through: bool,
    /// Clients at a time.
    pub connections: u32,
    /// Threads that serve them, each client one of them; a simulated gate has one.
    pub threads: usize,
}

/// Why a gate cannot begin, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// The cluster does not let this client in.
    #[error(transparent)]
    Join(#[from] MountError),
    /// The machine gives no ring or thread.
    #[error("this machine gives no ring or thread: {0}")]
    Machine(#[source] io::Error),
    /// Nobody can be heard there.
    #[error("cannot listen at {at}: {error}")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// A volume of files, and none of them named.
    #[error("volume `{0}` is not a block volume")]
    NoBlockVolume(String),
    /// A file of a block volume.
    #[error("volume `{0}` is a block volume: it has no files to name")]
    BlockVolume(String),
    /// The file cannot be exported.
    #[error("{file} in volume `{volume}`: {why}")]
    File {
        /// The file.
        file: String,
        /// The volume.
        volume: String,
        /// Why.
        why: String,
    },
    /// The lease of an exclusive gate has run out.
    #[error("the lease has run out: others may have the volume")]
    Lost,
    /// Not everything written became stable.
    #[error("bytes that were written did not become stable: {0}")]
    Unstable(#[source] ClientError),
}

/// What the threads of a gate share.
pub(super) struct Shared {
    pub(super) export: Export,
    /// Clients, now and at most.
    connections: AtomicU32,
    connections_max: u32,
    stripe: u64,
    closing: AtomicBool,
    /// Given when it begins to end.
    pub(super) ended: Notify,
    /// Given when a client has gone.
    gone: Notify,
}

/// One thread's part of a gate. The gate needs the mount's background to run beside it.
pub struct Server {
    pub(super) shared: Arc<Shared>,
    world: World,
    pub(super) session: Session,
    /// Clients of this thread.
    here: Cell<u32>,
}

impl Server {
    /// Finds what is to be exported, and listens: for [`Server::serve`].
    pub async fn start(
        world: &World,
        mount: &Arc<Mount>,
        volume: &str,
        options: &NbdOptions,
    ) -> Result<(Rc<Server>, Listener), NbdError> {
        let session = mount.session(world.clone());
        let inode = find(&session, volume, options).await?;
        let name = match &options.file {
            None => volume.to_owned(),
            Some(file) => format!("{volume}/{}", file.trim_start_matches('/')),
        };
        let listener = match &options.listen {
            Listen::Port(at) => (world.listen(at).await, at),
            Listen::Path(at) => (world.listen_at_path(at).await, at),
        };
        let (listener, at) = (listener.0, listener.1.clone());
        let listener = listener.map_err(|error| NbdError::Listen { at, error })?;
        let info = ExportInfo { name, read_only: options.read_only };
        let shared = Shared {
            export: Export::new(Arc::clone(mount), inode, info, options.write_through),
            connections: AtomicU32::new(0),
            connections_max: options.connections,
            stripe: mount.geometry().stripe() as u64,
            closing: AtomicBool::new(false),
            ended: Notify::new(),
            gone: Notify::new(),
        };
        Ok((Server::on(world, Arc::new(shared)), listener))
    }

    /// The part of a gate that is served on this thread.
    pub(super) fn on(world: &World, shared: Arc<Shared>) -> Rc<Server> {
        let session = shared.export.mount().session(world.clone());
        Rc::new(Server { shared, world: world.clone(), session, here: Cell::new(0) })
    }

    /// Lets clients in, until dropped.
    ///
    /// # Errors
    /// [`NbdError::Lost`] if the mount is exclusive and over.
    pub async fn serve(self: &Rc<Server>, listener: &Listener) -> Result<(), NbdError> {
        let export = &self.shared.export;
        let mut lost = pin!(export.lost.wait());
        let letting_in = async {
            loop {
                match select(pin!(listener.accept()), lost.as_mut()).await {
                    Either::Left((Ok(conn), _)) => self.let_in(conn),
                    Either::Left((Err(error), _)) => {
                        tracing::warn!(%error, "a client could not be let in");
                        self.world.sleep(ACCEPT_PAUSE_US).await;
                    }
                    Either::Right(_) => return NbdError::Lost,
                }
            }
        };
        match select(pin!(letting_in), pin!(export.close_what_is_let_go(&self.session))).await {
            Either::Left((lost, _)) => Err(lost),
            Either::Right(((), _)) => Ok(()),
        }
    }

    /// Lets clients in until the gate ends, and lets what they have under way end.
    pub(super) async fn serve_until_closed(self: &Rc<Server>, listener: Listener) {
        let ended = self.shared.ended.wait();
        if !self.is_closing() {
            // Whoever began the gate learns of a loss as well, and ends it.
            select(pin!(self.serve(&listener)), pin!(ended)).await;
        }
        drop(listener);
        self.until_gone(|| self.here.get() == 0).await;
    }

    fn let_in(self: &Rc<Server>, conn: Conn) {
        let shared = &self.shared;
        let others = shared.connections.fetch_add(1, Ordering::AcqRel);
        self.here.set(self.here.get() + 1);
        let seat = Seat(Rc::clone(self));
        if others >= shared.connections_max {
            tracing::warn!(peer = conn.peer(), "one client too many: it is turned away");
            return;
        }
        let server = Rc::clone(self);
        self.world.spawn("nbd connection", async move {
            connection::serve(server, conn).await;
            drop(seat);
        });
    }

    /// Refuses what comes from now on, and lets what is under way end, on all threads.
    pub async fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.ended.notify();
        self.until_gone(|| self.shared.connections.load(Ordering::Acquire) == 0).await;
    }

    /// Waits until there are no more clients, but not for ever.
    async fn until_gone(&self, are_gone: impl Fn() -> bool) {
        let all_gone = async {
            loop {
                let gone = self.shared.gone.wait();
                if are_gone() {
                    return;
                }
                gone.await;
            }
        };
        self.world.timeout(END_US, all_gone).await;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// Bytes of data in a stripe.
    pub(super) fn stripe(&self) -> u64 {
        self.shared.stripe
    }
}

/// One of the connections that a gate may have, given back when dropped.
struct Seat(Rc<Server>);

impl Drop for Seat {
    fn drop(&mut self) {
        let server = &self.0;
        server.here.set(server.here.get() - 1);
        server.shared.connections.fetch_sub(1, Ordering::AcqRel);
        server.shared.gone.notify();
    }
}

/// The file that is to be exported.
async fn find(session: &Session, volume: &str, options: &NbdOptions) -> Result<InodeId, NbdError> {
    let mount = session.mount();
    let path = match (&options.file, mount.disk()) {
        (None, Some(_)) => DISK.to_vec(),
        (None, None) => return Err(NbdError::NoBlockVolume(volume.to_owned())),
        (Some(_), Some(_)) => return Err(NbdError::BlockVolume(volume.to_owned())),
        (Some(file), None) => file.clone().into_bytes(),
    };
    let wrong = |why: String| {
        let file = String::from_utf8_lossy(&path).into_owned();
        NbdError::File { file, volume: volume.to_owned(), why }
    };
    let mut inode = mount.root();
    let mut kind = FileKind::Directory;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let found = session.lookup(inode, name).await.map_err(|error| wrong(error.to_string()))?;
        (inode, kind) = (found.inode, found.kind);
    }
    if kind != FileKind::File {
        return Err(wrong("not a file".to_owned()));
    }
    Ok(inode)
}
