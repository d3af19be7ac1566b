//! A gate as a process: the mount, its background work on one thread, and the server on this and further threads.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use client::{Mount, MountOptions};
use world::{ListenSocket, Listener, World};

use super::server::{NbdError, NbdOptions};
use super::shared::{Server, Shared};

/// A running gate.
pub struct NbdGate {
    world: World,
    mount: Arc<Mount>,
    server: Rc<Server>,
    listener: Listener,
    threads: Vec<JoinHandle<()>>,
    background: JoinHandle<()>,
}

impl NbdGate {
    /// Joins the cluster and listens.
    pub fn start(world: &World, client: MountOptions, options: &NbdOptions) -> Result<NbdGate, NbdError> {
        let volume = client.volume.clone();
        let mount = world.block_on(Mount::join(world, client))?;
        let background = start_background(&mount).map_err(NbdError::Machine)?;
        let (server, listener) = match world.block_on(Server::start(world, &mount, &volume, options)) {
            Ok(started) => started,
            Err(error) => {
                // Nothing has been written yet, so an error here loses nothing.
                let _ = world.block_on(mount.leave(world));
                let _ = background.join();
                return Err(error);
            }
        };
        let world = world.clone();
        let mut gate = NbdGate { world, mount, server, listener, threads: Vec::new(), background };
        match gate.start_threads(options.threads) {
            Ok(()) => Ok(gate),
            Err(error) => {
                let _ = gate.end();
                Err(NbdError::Machine(error))
            }
        }
    }

    /// Starts the other threads of the gate.
    fn start_threads(&mut self, threads: usize) -> io::Result<()> {
        let Some(listen_socket) = self.listener.listen_socket() else { return Ok(()) };
        for _ in 1..threads {
            let (shared, listen_socket) = (Arc::clone(&self.server.shared), listen_socket.clone());
            let thread = thread::Builder::new().name("nbd".into());
            self.threads.push(thread.spawn(move || serve_beside(shared, listen_socket))?);
        }
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Accepts clients, until dropped.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub async fn serve(&self) -> Result<(), NbdError> {
        self.server.serve(&self.listener).await
    }

    /// The gate's client.
    pub fn mount(&self) -> Arc<Mount> {
        Arc::clone(&self.mount)
    }

    /// Ends requests in progress, and makes everything stable.
    ///
    /// # Errors
    /// If something written did not become stable.
    pub fn end(self) -> Result<(), NbdError> {
        // A client that does not leave keeps the server alive; its address becomes free all the same.
        drop(self.listener);
        self.world.block_on(self.server.close());
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the gate has panicked");
            }
        }
        let left = self.world.block_on(self.mount.leave(&self.world));
        if self.background.join().is_err() {
            tracing::error!("the client's background has panicked");
        }
        left.map_err(NbdError::Unstable)
    }
}

/// One of the other threads: it serves the clients that it accepts.
fn serve_beside(shared: Arc<Shared>, listen_socket: ListenSocket) {
    let served = World::real().and_then(|world| {
        let listener = world.listen_shared(&listen_socket)?;
        drop(listen_socket);
        let server = Server::on(&world, shared);
        world.block_on_as("nbd connections", server.serve_until_closed(listener));
        Ok(())
    });
    if let Err(error) = served {
        tracing::error!("cannot make an io_uring for a thread of the gate: {error}");
    }
}

/// The client's own thread.
fn start_background(mount: &Arc<Mount>) -> io::Result<JoinHandle<()>> {
    let mount = Arc::clone(mount);
    thread::Builder::new().name("client".into()).spawn(move || match World::real() {
        Ok(world) => world.block_on_as("client", mount.background(world.clone())),
        Err(error) => tracing::error!("cannot make an io_uring for the client's background: {error}"),
    })
}
