//! Threads that do something else than to run their world, and worlds that end before their process.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;

use crate::{World, WorldBody};

/// How long a world that ends waits for its tasks, in microseconds.
const END_US: u64 = 1_000_000;

impl World {
    /// As [`World::block_on_as`], but for about `us` microseconds at most. `None` if `f` has not ended: it can be polled
    /// further, as a task too. In a simulated world it runs to its end.
    pub fn block_on_for<F: Future>(&self, us: u64, name: &'static str, f: Pin<&mut F>) -> Option<F::Output> {
        match &self.0 {
            WorldBody::Real(world) => world.block_on_for(us, name, f),
            WorldBody::Sim(world) => Some(world.block_on(f)),
        }
    }

    /// Ends this world: runs its tasks until they have ended, as those of a connection do when its [`Peers`] are dropped.
    /// Each task may hold the world, so a world that is only dropped keeps its ring and its connections until the process
    /// ends. Everything else that uses the world must have been dropped. Waits for a second at most.
    pub fn end(self) {
        if let WorldBody::Real(world) = self.0
            && !world.end(END_US)
        {
            tracing::warn!("tasks of a thread that ends have not ended: its connections stay open");
        }
    }

    /// Waits until a descriptor can be read, or has failed.
    ///
    /// # Errors
    /// `Unsupported` in a simulated world.
    pub async fn readable(&self, fd: Rc<OwnedFd>) -> io::Result<()> {
        match &self.0 {
            WorldBody::Real(world) => world.readable(fd).await,
            WorldBody::Sim(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
