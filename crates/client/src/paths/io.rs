//! What the ways to the servers need of a thread.

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
