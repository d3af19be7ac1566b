//! A gate in a process of its own: the mount, its background on another thread, the server on this one.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use client::{Mount, MountOptions};
use world::{Listener, World};

use super::server::{NbdError, NbdOptions, Server};

/// A gate that has begun.
pub struct NbdGate {
    world: World,
    mount: Arc<Mount>,
    server: Rc<Server>,
    listener: Listener,
    background: JoinHandle<()>,
}

impl NbdGate {
    /// Joins the cluster and listens.
    pub fn start(world: &World, client: MountOptions, options: &NbdOptions) -> Result<NbdGate, NbdError> {
        let volume = client.volume.clone();
        let mount = world.block_on(Mount::join(world, client))?;
        let background = start_background(&mount).map_err(NbdError::Machine)?;
        match world.block_on(Server::start(world, &mount, &volume, options)) {
            Ok((server, listener)) => {
                Ok(NbdGate { world: world.clone(), mount, server, listener, background })
            }
            Err(error) => {
                // Nobody has written anything yet: there is nothing to lose in leaving.
                let _ = world.block_on(mount.leave(world));
                let _ = background.join();
                Err(error)
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Lets clients in, until dropped.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub async fn serve(&self) -> Result<(), NbdError> {
        self.server.serve(&self.listener).await
    }

    /// Ends what is under way and makes everything stable.
    ///
    /// # Errors
    /// If something written did not become stable.
    pub fn end(self) -> Result<(), NbdError> {
        // Clients that do not go keep the server, but not its address.
        drop(self.listener);
        let left = self.world.block_on(async {
            self.server.close().await;
            self.mount.leave(&self.world).await
        });
        if self.background.join().is_err() {
            tracing::error!("the client's background has panicked");
        }
        left.map_err(NbdError::Unstable)
    }
}

/// The client's own thread.
fn start_background(mount: &Arc<Mount>) -> io::Result<JoinHandle<()>> {
    let mount = Arc::clone(mount);
    thread::Builder::new().name("client".into()).spawn(move || match World::real() {
        Ok(world) => world.block_on(mount.background(world.clone())),
        Err(error) => tracing::error!("the gate's background gets no ring: {error}"),
    })
}
