//! The ways of bytes, sizes and attributes between the mount and the servers.

pub(crate) mod attrs;
pub(crate) mod find;
pub(crate) mod find_bytes;
pub(crate) mod pause;
pub(crate) mod read;
mod read_degraded;
pub(crate) mod size_reports;
pub(crate) mod stable;
mod stage;
pub(crate) mod write;

use std::rc::Rc;
use std::sync::Arc;

use layout::Coder;

use crate::routes::link::Link;
use crate::state::atime::PendingAtimes;
use crate::state::open_files::OpenFiles;
use crate::unstable::Unstable;

/// A thread's own ways to the bricks and to the metadata service.
pub(crate) struct Io {
    pub(crate) link: Rc<Link>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    /// Makes the parity of whole stripes.
    pub(crate) coder: Arc<Coder>,
}
