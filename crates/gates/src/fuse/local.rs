//! The state of a thread: a ring, connections, a client session.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use client::{ClientError, Mount, Session};
use fuser::Errno;
use types::messages::names::Attr;
use world::World;

use crate::errno::errno;

struct Local {
    mount: Arc<Mount>,
    world: World,
    session: Session,
}

thread_local! {
    /// Not dropped at the thread's end, because other thread-local values that it needs may already be gone. A thread
    /// that ends before the process must call [`forget`].
    static LOCAL: RefCell<ManuallyDrop<Option<Local>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Carries out one request on this thread, to its end.
pub(super) fn ask<T>(
    mount: &Arc<Mount>,
    request: impl AsyncFnOnce(&Session) -> Result<T, ClientError>,
) -> Result<T, Errno> {
    let (world, session) = local(mount)?;
    world.block_on_as("fuse request", request(&session)).map_err(|error| Errno::from_i32(errno(error)))
}

/// The time of the mount's clock, in microseconds.
pub(super) fn now(mount: &Arc<Mount>) -> u64 {
    local(mount).map(|(world, _)| world.now()).unwrap_or_default()
}

/// Remaining time of the mount's lease.
pub(super) fn lease_left(mount: &Arc<Mount>) -> Duration {
    local(mount).map(|(_, session)| Duration::from_micros(session.lease_left_us())).unwrap_or_default()
}

/// Whether an access to an inode with these attributes would be recorded.
pub(super) fn is_access_due(mount: &Arc<Mount>, attr: &Attr) -> bool {
    local(mount).is_ok_and(|(_, session)| session.is_access_due(attr))
}

/// Records an access if it counts. Returns whether it does.
pub(super) fn note_access(mount: &Arc<Mount>, attr: &Attr) -> bool {
    local(mount).is_ok_and(|(_, session)| session.note_access(attr))
}

fn local(mount: &Arc<Mount>) -> Result<(World, Session), Errno> {
    LOCAL.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|local| !Arc::ptr_eq(&local.mount, mount)) {
            let world = World::real().map_err(|error| {
                tracing::error!("a thread of the mount cannot make an io_uring: {error}");
                Errno::EIO
            })?;
            let session = mount.session(world.clone());
            **slot = Some(Local { mount: Arc::clone(mount), world, session });
        }
        let local = slot.as_ref().ok_or(Errno::EIO)?;
        Ok((local.world.clone(), local.session.clone()))
    })
}

/// Drops the state of this thread.
pub(super) fn forget() {
    LOCAL.with_borrow_mut(|slot| **slot = None);
}
