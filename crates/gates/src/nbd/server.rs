//! Starts and ends a gate: finds the export, listens, and accepts clients.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use client::{ClientError, Mount, MountError, Session};
use futures_util::future::{Either, select};
use types::InodeId;
use types::messages::cluster::DISK;
use types::messages::names::FileKind;
use world::{Conn, Listener, World};

use super::connection;
use super::export::Export;
use super::proto::ExportInfo;
use super::shared::{Server, Shared};
use crate::seats::Seat;

/// Pause after a connection could not be accepted, in microseconds.
const ACCEPT_PAUSE_US: u64 = 100_000;
/// How long requests that are under way may take when the gate ends, in microseconds.
const END_US: u64 = 5_000_000;

/// Where a gate listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// At `host:port`.
    Port(String),
    /// At a socket in the file system, for processes of the same user on this machine only.
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
    /// Threads that serve clients, each client by one thread; a simulated gate has one.
    pub threads: usize,
}

/// Why a gate cannot start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
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
    /// The volume has files, and none was named.
    #[error("volume `{0}` is not a block volume")]
    NoBlockVolume(String),
    /// A file was named, but the volume is a block volume.
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
    #[error("the lease has run out: another client may have mounted the volume")]
    Lost,
    /// Not everything written became stable.
    #[error("bytes that were written did not become stable: {0}")]
    Unstable(#[source] ClientError),
}

impl Server {
    /// Finds the export, and listens for [`Server::serve`].
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
        let export = Export::new(Arc::clone(mount), inode, info, options.write_through);
        let shared = Shared::new(export, options.connections);
        Ok((Server::on(world, Arc::new(shared)), listener))
    }

    /// Accepts clients, until dropped.
    ///
    /// # Errors
    /// [`NbdError::Lost`] if the mount is exclusive and has lost its lease.
    pub async fn serve(self: &Rc<Server>, listener: &Listener) -> Result<(), NbdError> {
        let export = &self.shared.export;
        let mut lost = pin!(export.lost.wait());
        let letting_in = async {
            loop {
                match select(pin!(listener.accept()), lost.as_mut()).await {
                    Either::Left((Ok(conn), _)) => self.let_in(conn),
                    Either::Left((Err(error), _)) => {
                        tracing::warn!(%error, "a connection could not be accepted");
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

    /// Accepts clients until the gate ends, then waits for their requests in progress.
    pub(super) async fn serve_until_closed(self: &Rc<Server>, listener: Listener) {
        let ended = self.shared.ended.wait();
        if !self.is_closing() {
            // The gate's first thread also notices a lost lease, and ends the gate.
            select(pin!(self.serve(&listener)), pin!(ended)).await;
        }
        drop(listener);
        self.until_gone(|| self.here.get() == 0).await;
    }

    fn let_in(self: &Rc<Server>, conn: Conn) {
        let shared = &self.shared;
        // A socket in the file system is for one user, who has no address.
        let address = conn.peer().parse::<SocketAddr>().ok().map(|peer| peer.ip().to_canonical());
        let Some(seat) = shared.seats.take(address, &self.world) else {
            if let Some(left_out) = shared.turned_away.admits(self.world.now()) {
                tracing::warn!(peer = conn.peer(), left_out, "one client too many: it is turned away");
            }
            return;
        };
        self.here.set(self.here.get() + 1);
        let guest = Guest { server: Rc::clone(self), seat: Rc::new(seat) };
        self.world.spawn("nbd connection", async move {
            connection::serve(Rc::clone(&guest.server), conn, Rc::clone(&guest.seat)).await;
            drop(guest);
        });
    }

    /// Refuses new requests, and waits for those in progress, on all threads.
    pub async fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.ended.notify();
        self.until_gone(|| self.shared.seats.connections() == 0).await;
    }

    /// Waits for a limited time until all clients are gone.
    async fn until_gone(&self, are_gone: impl Fn() -> bool) {
        let all_gone = async {
            loop {
                let gone = self.shared.seats.gone().wait();
                if are_gone() {
                    return;
                }
                gone.await;
            }
        };
        self.world.timeout(END_US, all_gone).await;
    }
}

/// A client of a thread. Its seat goes last: who waits for that also looks at the others.
struct Guest {
    server: Rc<Server>,
    seat: Rc<Seat>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.server.here.set(self.server.here.get() - 1);
    }
}

/// Finds the file to export.
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
