//! The fields that all paths to the servers use.

use std::rc::Rc;
use std::sync::Arc;

use crate::routes::link::Link;
use crate::state::atime::PendingAtimes;
use crate::state::coders::Coders;
use crate::state::layer_counts::LayerCounts;
use crate::state::open_files::OpenFiles;
use crate::unstable::Unstable;

/// The paths of one thread to the bricks and the metadata service.
pub(crate) struct Io {
    pub(crate) link: Rc<Link>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    /// Encode whole stripes.
    pub(crate) coders: Arc<Coders>,
    /// Counts what goes to bricks.
    pub(crate) layer_counts: Arc<LayerCounts>,
}
