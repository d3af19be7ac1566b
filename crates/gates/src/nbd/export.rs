//! What is exported: one file, opened when the first client comes and closed when the last one goes.
//!
//! All clients of a gate share one handle, and with it the client's buffers: what one of them was told is done, a flush
//! of any other makes stable. A gate without clients holds nothing, so another one may have the file alone.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use client::{ClientError, Session};
use types::{ClientId, InodeId, Refusal};
use world::{Signal, World};

use super::proto::Offer;

/// See the module.
pub(super) struct Export {
    pub(super) world: World,
    pub(super) session: Session,
    pub(super) inode: InodeId,
    pub(super) offer: Offer,
    /// Every write is stable before it is answered.
    pub(super) write_through: bool,
    opened: RefCell<Weak<Opened>>,
    /// Held by whoever opens.
    opening: async_lock::Mutex<()>,
    /// Given when the mount is over for good.
    pub(super) lost: Signal,
}

/// The open file.
pub(super) struct Opened {
    world: World,
    session: Session,
    pub(super) handle: u64,
    /// Who opened it: the handle is worth nothing once the mount has another id.
    client: ClientId,
    /// How often something that was written, or was to be, has been lost.
    failures: Cell<u64>,
    last: Cell<Option<ClientError>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let (session, handle) = (self.session.clone(), self.handle);
        self.world.spawn(async move {
            if let Err(error) = session.release(handle).await {
                tracing::debug!(%error, "the export could not be closed");
            }
        });
    }
}

impl Opened {
    /// Something was lost: each client's next flush says so, once.
    pub(super) fn failed(&self, error: ClientError) {
        self.failures.set(self.failures.get() + 1);
        self.last.set(Some(error));
    }

    /// How often something was lost, and how the last time.
    pub(super) fn failures(&self) -> (u64, Option<ClientError>) {
        (self.failures.get(), self.last.get())
    }
}

/// The handle is gone with the lease: what was not stable is lost, as in a power cut, and only a new open helps.
pub(super) fn is_fenced(error: ClientError) -> bool {
    matches!(error, ClientError::Refused(Refusal::Fenced | Refusal::Stale) | ClientError::BadHandle)
}

impl Export {
    pub(super) fn new(
        world: World,
        session: Session,
        inode: InodeId,
        offer: Offer,
        write_through: bool,
    ) -> Export {
        Export {
            world,
            session,
            inode,
            offer,
            write_through,
            opened: RefCell::default(),
            opening: async_lock::Mutex::new(()),
            lost: Signal::new(),
        }
    }

    /// Bytes of the export now.
    pub(super) async fn size(&self) -> Result<u64, ClientError> {
        match self.session.getattr(self.inode).await {
            Ok(attr) => Ok(attr.size),
            Err(error) => Err(self.note(error)),
        }
    }

    /// The open file, and its bytes now. Waits until whoever has it alone has given way, or is lost.
    pub(super) async fn open(&self) -> Result<(Rc<Opened>, u64), ClientError> {
        let _turn = self.opening.lock().await;
        let known = self.opened.borrow().upgrade();
        let mount = self.session.mount();
        if let Some(opened) = known.filter(|opened| opened.client == mount.client()) {
            return Ok((opened, self.size().await?));
        }
        let client = mount.client();
        let opened = self.session.open(self.inode, !self.offer.read_only, false).await;
        let opened = opened.map_err(|error| self.note(error))?;
        let size = opened.attr.size;
        let opened = Rc::new(Opened {
            world: self.world.clone(),
            session: self.session.clone(),
            handle: opened.handle,
            client,
            failures: Cell::new(0),
            last: Cell::new(None),
        });
        *self.opened.borrow_mut() = Rc::downgrade(&opened);
        Ok((opened, size))
    }

    /// Looks at an error: an exclusive mount that has lost its lease is over.
    pub(super) fn note(&self, error: ClientError) -> ClientError {
        if self.session.mount().is_lost() {
            self.lost.notify();
        }
        error
    }
}
