//! The state that all threads of a gate share, and the state of one thread.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Session;
use world::{LineLimit, Notify, World};

use super::export::Export;
use crate::seats::Seats;

/// State that the threads of a gate share.
pub(super) struct Shared {
    pub(super) export: Export,
    pub(super) seats: Arc<Seats>,
    /// Lines about clients that were turned away.
    pub(super) turned_away: LineLimit,
    /// Lines about clients that cannot open the export.
    pub(super) not_opened: LineLimit,
    stripe: u64,
    pub(super) closing: AtomicBool,
    /// Notified when the gate begins to end.
    pub(super) ended: Notify,
}

impl Shared {
    pub(super) fn new(export: Export, connections_max: u32) -> Shared {
        Shared {
            stripe: export.mount().geometry().stripe() as u64,
            export,
            seats: Seats::new(connections_max as usize),
            turned_away: LineLimit::new(),
            not_opened: LineLimit::new(),
            closing: AtomicBool::new(false),
            ended: Notify::new(),
        }
    }
}

/// One thread's part of a gate. The mount's background work must run on another thread.
pub struct Server {
    pub(super) shared: Arc<Shared>,
    pub(super) world: World,
    pub(super) session: Session,
    /// Clients of this thread.
    pub(super) here: Cell<u32>,
}

impl Server {
    /// The part of a gate that is served on this thread.
    pub(super) fn on(world: &World, shared: Arc<Shared>) -> Rc<Server> {
        let session = shared.export.mount().session(world.clone());
        Rc::new(Server { shared, world: world.clone(), session, here: Cell::new(0) })
    }

    pub(super) fn is_closing(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// Bytes of data in a stripe.
    pub(super) fn stripe(&self) -> u64 {
        self.shared.stripe
    }
}
