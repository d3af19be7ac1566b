//! What a thread owns: a ring, connections, a client session.

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
    /// Never dropped by the thread's end, when other thread-local things that it needs may be gone already: a thread
    /// that ends before the process calls [`forget`].
    static LOCAL: RefCell<ManuallyDrop<Option<Local>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Carries one request out on this thread, to its end.
pub(super) fn ask<T>(
    mount: &Arc<Mount>,
    request: impl AsyncFnOnce(&Session) -> Result<T, ClientError>,
) -> Result<T, Errno> {
    let (world, session) = local(mount)?;
    world.block_on_as("fuse request", request(&session)).map_err(|error| Errno::from_i32(errno(error)))
}

/// For how long the mount's lease still runs.
pub(super) fn lease_left(mount: &Arc<Mount>) -> Duration {
    local(mount).map(|(_, session)| Duration::from_micros(session.lease_left_us())).unwrap_or_default()
}

/// Whether an access to what has these attributes would be noted.
pub(super) fn is_access_due(mount: &Arc<Mount>, attr: &Attr) -> bool {
    local(mount).is_ok_and(|(_, session)| session.is_access_due(attr))
}

/// Notes an access; says whether it counts.
pub(super) fn note_access(mount: &Arc<Mount>, attr: &Attr) -> bool {
    local(mount).is_ok_and(|(_, session)| session.note_access(attr))
}

fn local(mount: &Arc<Mount>) -> Result<(World, Session), Errno> {
    LOCAL.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|local| !Arc::ptr_eq(&local.mount, mount)) {
            let world = World::real().map_err(|error| {
                tracing::error!("a thread of the mount gets no ring: {error}");
                Errno::EIO
            })?;
            let session = mount.session(world.clone());
            **slot = Some(Local { mount: Arc::clone(mount), world, session });
        }
        let local = slot.as_ref().ok_or(Errno::EIO)?;
        Ok((local.world.clone(), local.session.clone()))
    })
}

/// Gives back what this thread owns.
pub(super) fn forget() {
    LOCAL.with_borrow_mut(|slot| **slot = None);
}
