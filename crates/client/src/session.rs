//! One thread's way into a mount.

use std::rc::Rc;
use std::sync::Arc;

use types::messages::names::Attr;
use world::World;

use crate::atimes::Atimes;
use crate::error::ClientError;
use crate::modes::{Holdings, ModeState};
use crate::mount::Mount;
use crate::paths::Io;
use crate::routes::link::Link;
use crate::state::atime::PendingAtimes;
use crate::state::open_files::{Handle, OpenFiles};
use crate::unstable::Unstable;
use crate::zeroing::Zeroings;

/// A thread's own way into the mount: carries its requests to the end on its own connections. Cheap to clone; stays
/// on its thread.
#[derive(Clone)]
pub struct Session {
    pub(crate) mount: Arc<Mount>,
    pub(crate) link: Rc<Link>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    pub(crate) modes: Arc<ModeState>,
    pub(crate) zeroings: Arc<Zeroings>,
    pub(crate) io: Rc<Io>,
    pub(crate) accesses: Rc<Atimes>,
}

impl Session {
    pub(crate) fn new(mount: Arc<Mount>, world: World) -> Session {
        let (files, unstable, modes) = (mount.files.clone(), mount.unstable.clone(), mount.modes.clone());
        let above = Holdings { files: files.clone(), unstable: unstable.clone(), modes: modes.clone() };
        let link = Link::new(world, mount.routes.clone(), Arc::new(above));
        let (atimes, zeroings, coder) = (mount.atimes.clone(), mount.zeroings.clone(), mount.coder.clone());
        let io = Io {
            link: link.clone(),
            files: files.clone(),
            unstable: unstable.clone(),
            atimes: atimes.clone(),
            coder,
        };
        let accesses = Rc::new(Atimes { link: link.clone(), pending: atimes.clone() });
        Session { mount, link, files, unstable, atimes, modes, zeroings, io: Rc::new(io), accesses }
    }

    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// What a handle stands for.
    pub(crate) fn handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        self.mount.handle(handle)
    }

    /// Whether an access to what has these attributes would be noted.
    pub fn is_access_due(&self, attr: &Attr) -> bool {
        self.accesses.is_due(attr)
    }

    /// Notes an access to what has these attributes, if it counts. Returns whether it does.
    pub fn note_access(&self, attr: &Attr) -> bool {
        self.accesses.note(attr)
    }
}
