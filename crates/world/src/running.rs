//! When a thread runs its world: turns, and threads that do something else too.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;

use crate::{World, WorldBody};

impl World {
    /// When the current turn of this thread began ([`turns`](crate::turns)), by the clock of [`World::now`]. Reads no clock.
    pub fn turn_began(&self) -> u64 {
        match &self.0 {
            WorldBody::Real(_) => crate::turns::since(),
            WorldBody::Sim(world) => world.now(),
        }
    }

    /// As [`World::block_on_as`], but for about `us` microseconds at most. `None` if `f` has not ended: it can be polled
    /// further, as a task too. In a simulated world it runs to its end.
    pub fn block_on_for<F: Future>(&self, us: u64, name: &'static str, f: Pin<&mut F>) -> Option<F::Output> {
        match &self.0 {
            WorldBody::Real(world) => world.block_on_for(us, name, f),
            WorldBody::Sim(world) => Some(world.block_on(f)),
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
