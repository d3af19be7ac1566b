//! Cuts: files get a new size, and what that leaves on the bricks is zeroed before the file grows again.

pub(crate) mod truncate;
pub(crate) mod zeroing;

use std::rc::Rc;
use std::sync::Arc;

use crate::cuts::zeroing::Zeroings;
use crate::modes::Modes;
use crate::paths::Io;
use crate::routes::link::Link;
use crate::unstable::Unstable;

/// A thread's own way to cut files and to zero what cuts have left.
pub(crate) struct Cuts {
    pub(crate) link: Rc<Link>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) io: Rc<Io>,
    pub(crate) modes: Rc<Modes>,
    pub(crate) zeroings: Arc<Zeroings>,
}
