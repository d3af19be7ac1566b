//! What is exported: one file, opened when the first client comes and closed when the last one goes.
//!
//! All clients of a gate share one handle, and with it the client's buffers: what one of them was told is done, a flush
//! of any other makes stable, on whichever thread either is served. A gate without clients holds nothing, so another one
//! may have the file alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use client::{ClientError, Mount, Session};
use types::{ClientId, InodeId, Refusal};
use world::Signal;

use super::proto::Offer;

/// See the module. The threads of a gate share it.
pub(super) struct Export {
    mount: Arc<Mount>,
    inode: InodeId,
    pub(super) offer: Offer,
    /// Every write is stable before it is answered.
    pub(super) write_through: bool,
    opened: Mutex<Weak<Opened>>,
    /// Held by whoever opens.
    opening: async_lock::Mutex<()>,
    let_go: Arc<LetGo>,
    /// Given when the mount is over for good.
    pub(super) lost: Signal,
}

/// Handles that nobody needs any more and that are still open.
#[derive(Default)]
struct LetGo {
    handles: Mutex<Vec<u64>>,
    more: Signal,
}

/// The open file.
pub(super) struct Opened {
    pub(super) handle: u64,
    /// Who opened it: the handle is worth nothing once the mount has another id.
    client: ClientId,
    /// How often something that was written, or was to be, has been lost, and how the last time.
    failures: Mutex<(u64, Option<ClientError>)>,
    let_go: Arc<LetGo>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Opened {
    fn drop(&mut self) {
        lock(&self.let_go.handles).push(self.handle);
        self.let_go.more.notify();
    }
}

impl Opened {
    /// Something was lost: each client's next flush says so, once.
    pub(super) fn failed(&self, error: ClientError) {
        let mut failures = lock(&self.failures);
        *failures = (failures.0 + 1, Some(error));
    }

    /// How often something was lost, and how the last time.
    pub(super) fn failures(&self) -> (u64, Option<ClientError>) {
        *lock(&self.failures)
    }
}

/// The handle is gone with the lease: what was not stable is lost, as in a power cut, and only a new open helps.
pub(super) fn is_fenced(error: ClientError) -> bool {
    matches!(error, ClientError::Refused(Refusal::Fenced | Refusal::Stale) | ClientError::BadHandle)
}

impl Export {
    pub(super) fn new(mount: Arc<Mount>, inode: InodeId, offer: Offer, write_through: bool) -> Export {
        Export {
            mount,
            inode,
            offer,
            write_through,
            opened: Mutex::default(),
            opening: async_lock::Mutex::new(()),
            let_go: Arc::default(),
            lost: Signal::new(),
        }
    }

    /// The mount that it is a part of.
    pub(super) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Bytes of the export now.
    pub(super) async fn size(&self, session: &Session) -> Result<u64, ClientError> {
        match session.getattr(self.inode).await {
            Ok(attr) => Ok(attr.size),
            Err(error) => Err(self.note(error)),
        }
    }

    /// The open file, and its bytes now. Waits until whoever has it alone has given way, or is lost.
    pub(super) async fn open(&self, session: &Session) -> Result<(Arc<Opened>, u64), ClientError> {
        let _turn = self.opening.lock().await;
        let known = lock(&self.opened).upgrade();
        if let Some(opened) = known.filter(|opened| opened.client == self.mount.client()) {
            return Ok((opened, self.size(session).await?));
        }
        let client = self.mount.client();
        let opened = session.open(self.inode, !self.offer.read_only, false).await;
        let opened = opened.map_err(|error| self.note(error))?;
        let size = opened.attr.size;
        let (failures, let_go) = (Mutex::default(), Arc::clone(&self.let_go));
        let opened = Arc::new(Opened { handle: opened.handle, client, failures, let_go });
        *lock(&self.opened) = Arc::downgrade(&opened);
        Ok((opened, size))
    }

    /// Closes what is let go, for as long as it is waited for.
    pub(super) async fn close_what_is_let_go(&self, session: &Session) {
        loop {
            let more = self.let_go.more.wait();
            let handles = std::mem::take(&mut *lock(&self.let_go.handles));
            for handle in handles {
                if let Err(error) = session.release(handle).await {
                    tracing::debug!(%error, "the export could not be closed");
                }
            }
            more.await;
        }
    }

    /// Looks at an error: an exclusive mount that has lost its lease is over.
    pub(super) fn note(&self, error: ClientError) -> ClientError {
        if self.mount.is_lost() {
            self.lost.notify();
        }
        error
    }
}
