//! The use of a mount by one thread.

use std::rc::Rc;
use std::sync::Arc;

use types::messages::names::Attr;
use world::World;

use crate::cuts::Cuts;
use crate::error::ClientError;
use crate::face::mount::Mount;
use crate::modes::{Holdings, Modes};
use crate::paths::Io;
use crate::routes::link::Link;
use crate::state::open_files::Handle;
use crate::translators::atimes::Atimes;
use crate::translators::auto::Auto;
use crate::translators::disk_cache::DiskCacheUse;
use crate::translators::io_cache::IoCache;
use crate::translators::read_ahead::ReadAhead;
use crate::translators::write_behind::WriteBehind;
use crate::translators::{Stack, Translator};

/// The use of a mount by one thread, with its own connections. Cheap to clone; stays on its thread.
#[derive(Clone)]
pub struct Session {
    pub(crate) mount: Arc<Mount>,
    pub(crate) link: Rc<Link>,
    pub(crate) io: Rc<Io>,
    pub(crate) modes: Rc<Modes>,
    pub(crate) cuts: Rc<Cuts>,
    pub(crate) write_behind: Rc<WriteBehind>,
    pub(crate) stack: Rc<Stack>,
    pub(crate) atimes: Rc<Atimes>,
}

impl Session {
    /// Builds the layers, from the lowest up.
    pub(crate) fn new(mount: Arc<Mount>, world: World) -> Session {
        let (files, unstable) = (mount.files.clone(), mount.unstable.clone());
        let (pending, state) = (mount.atimes.clone(), mount.modes.clone());
        let above = Holdings {
            files: files.clone(),
            unstable: unstable.clone(),
            modes: state.clone(),
            tunings: mount.tunings.clone(),
        };
        let link = Link::new(world, mount.routes.clone(), Arc::new(above));
        let io = Rc::new(Io {
            link: link.clone(),
            files: files.clone(),
            unstable: unstable.clone(),
            atimes: pending.clone(),
            coders: mount.coders.clone(),
            layer_counts: mount.layer_counts.clone(),
        });
        let modes = Rc::new(Modes {
            link: link.clone(),
            files,
            unstable: unstable.clone(),
            atimes: pending.clone(),
            io: io.clone(),
            state,
        });
        let cuts = Rc::new(Cuts {
            link: link.clone(),
            unstable: unstable.clone(),
            io: io.clone(),
            modes: modes.clone(),
            zeroings: mount.zeroings.clone(),
        });
        let write_behind = Rc::new(WriteBehind { link: link.clone(), unstable, io: io.clone() });
        let mut layers: Vec<Rc<dyn Translator>> = mount.translators.iter().map(|make| make()).collect();
        layers.push(Rc::new(Auto {
            tunings: mount.tunings.clone(),
            recent: mount.recent.clone(),
            pages: mount.pages.clone(),
            has_disk_cache: mount.disk_cache.is_some(),
        }));
        layers.push(Rc::new(IoCache {
            pages: mount.pages.clone(),
            usual: mount.cache_usual,
            most: mount.cache_most,
        }));
        layers.push(Rc::new(ReadAhead { link: link.clone(), shared: mount.ahead.clone() }));
        if let Some(cache) = mount.disk_cache.clone() {
            layers.push(Rc::new(DiskCacheUse::new(link.clone(), mount.routes.volume, cache)));
        }
        let stack = Rc::new(Stack::new(
            layers,
            write_behind.clone(),
            mount.layer_counts.clone(),
            mount.tunings.clone(),
            link.world.clone(),
        ));
        let atimes = Rc::new(Atimes { link: link.clone(), pending });
        Session { mount, link, io, modes, cuts, write_behind, stack, atimes }
    }

    /// The mount.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// What a handle stands for.
    pub(crate) fn handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        self.mount.handle(handle)
    }

    /// Whether an access to an inode with these attributes would be recorded.
    pub fn is_access_due(&self, attr: &Attr) -> bool {
        self.atimes.is_due(attr)
    }

    /// Records an access to an inode with these attributes, if it counts. Returns whether it was recorded.
    pub fn note_access(&self, attr: &Attr) -> bool {
        self.atimes.note(attr)
    }
}
