//! The export: one file, which is opened for the first client and closed after the last one.
//!
//! All clients of a gate share one handle, and with it the buffers of the mount. So a flush of any client, on any
//! thread, makes stable what any other client was told is done. A gate without clients has no open file, so another
//! gate may have the file Alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use client::{ClientError, Mount, Session};
use types::{ClientId, InodeId, Refusal};
use world::{Notify, World};

use super::proto::ExportInfo;

/// The export of a gate; its threads share it.
pub(super) struct Export {
    mount: Arc<Mount>,
    inode: InodeId,
    pub(super) info: ExportInfo,
    /// Every write is stable before it is answered.
    pub(super) write_through: bool,
    opened: Mutex<Weak<Opened>>,
    /// Held while the file is being opened.
    opening: async_lock::Mutex<()>,
    losses: Arc<Mutex<Losses>>,
    let_go: Arc<LetGo>,
    /// Notified when the mount is over for good.
    pub(super) lost: Notify,
}

/// Handles without users that are still open.
#[derive(Default)]
struct LetGo {
    handles: Mutex<Vec<u64>>,
    /// Notified when there are handles to close.
    more: Notify,
    /// Notified when an open file has lost its last user.
    gone: Notify,
}

/// The open file.
pub(super) struct Opened {
    pub(super) handle: u64,
    /// The mount's id at the open. The handle is invalid once the mount has another id.
    client: ClientId,
    losses: Arc<Mutex<Losses>>,
    /// Number of earlier losses that some client was told of.
    losses_told: u64,
    /// The handle is invalid, so its connections must end.
    over: AtomicBool,
    /// Notified when `over` is set.
    pub(super) ended: Notify,
    let_go: Arc<LetGo>,
}

/// Writes that were lost.
#[derive(Default)]
struct Losses {
    /// Number of losses.
    count: u64,
    /// The error of the last one.
    last: Option<ClientError>,
    /// Number of them that some client was told of.
    told: u64,
}

/// How long connections of an invalid handle may take to end, in microseconds.
const GOING_US: u64 = 10_000_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Opened {
    fn drop(&mut self) {
        lock(&self.let_go.handles).push(self.handle);
        self.let_go.more.notify();
        self.let_go.gone.notify();
    }
}

impl Opened {
    /// Records a loss. The next flush of each client reports it, once.
    pub(super) fn failed(&self, error: ClientError) {
        let mut losses = lock(&self.losses);
        losses.count += 1;
        losses.last = Some(error);
    }

    /// Number of losses that a new connection need not report. It must report all losses since the file was opened:
    /// it may belong to a client that has or had other connections, and its flush covers their writes.
    pub(super) fn losses_told(&self) -> u64 {
        self.losses_told
    }

    /// Reports losses after the first `known`: returns their number now, and the last error if there are new ones.
    pub(super) fn tell_losses(&self, known: u64) -> (u64, Option<ClientError>) {
        let mut losses = lock(&self.losses);
        losses.told = losses.count;
        (losses.count, losses.last.filter(|_| known < losses.count))
    }

    /// Marks the handle as invalid.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.ended.notify();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Whether the handle is invalid because the lease was lost. Unstable bytes are lost as in a power cut, and the file
/// must be opened again.
pub(super) fn is_fenced(error: ClientError) -> bool {
    matches!(error, ClientError::Refused(Refusal::Fenced | Refusal::Stale) | ClientError::BadHandle)
}

impl Export {
    pub(super) fn new(mount: Arc<Mount>, inode: InodeId, info: ExportInfo, write_through: bool) -> Export {
        Export {
            mount,
            inode,
            info,
            write_through,
            opened: Mutex::default(),
            opening: async_lock::Mutex::new(()),
            losses: Arc::default(),
            let_go: Arc::default(),
            lost: Notify::new(),
        }
    }

    /// The mount of the export.
    pub(super) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// The present size in bytes.
    pub(super) async fn size(&self, session: &Session) -> Result<u64, ClientError> {
        match session.getattr(self.inode).await {
            Ok(attr) => Ok(attr.size),
            Err(error) => Err(self.note(error)),
        }
    }

    /// The open file, and its size. Waits until a client that has the file Alone has given it up or is lost.
    pub(super) async fn open(
        &self,
        world: &World,
        session: &Session,
    ) -> Result<(Arc<Opened>, u64), ClientError> {
        let _turn = self.opening.lock().await;
        let known = lock(&self.opened).upgrade();
        if let Some(opened) = known {
            if opened.client == self.mount.client() && !opened.is_over() {
                return Ok((opened, self.size(session).await?));
            }
            // Recent writes of its connections may be lost, so no later flush may succeed for them: end them.
            opened.end();
        }
        let gone = world.timeout(GOING_US, self.until_all_have_gone()).await;
        gone.ok_or(ClientError::Unreachable)?;
        let client = self.mount.client();
        let opened = session.open(self.inode, !self.info.read_only, false).await;
        let opened = opened.map_err(|error| self.note(error))?;
        let size = opened.attr.size;
        let opened = Arc::new(Opened {
            handle: opened.handle,
            client,
            losses: Arc::clone(&self.losses),
            losses_told: lock(&self.losses).told,
            over: AtomicBool::new(false),
            ended: Notify::new(),
            let_go: Arc::clone(&self.let_go),
        });
        *lock(&self.opened) = Arc::downgrade(&opened);
        Ok((opened, size))
    }

    /// Waits until the earlier open file has no users.
    async fn until_all_have_gone(&self) {
        loop {
            let gone = self.let_go.gone.wait();
            if lock(&self.opened).strong_count() == 0 {
                return;
            }
            gone.await;
        }
    }

    /// Closes handles without users, until this future is dropped.
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

    /// Checks after an error whether an exclusive mount has lost its lease.
    pub(super) fn note(&self, error: ClientError) -> ClientError {
        if self.mount.is_lost() {
            self.lost.notify();
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(losses: &Arc<Mutex<Losses>>) -> Opened {
        Opened {
            handle: 1,
            client: ClientId(1),
            losses: Arc::clone(losses),
            losses_told: lock(losses).told,
            over: AtomicBool::new(false),
            ended: Notify::new(),
            let_go: Arc::default(),
        }
    }

    #[test]
    fn a_loss_is_told_to_each_client_once_and_to_those_who_come_later() {
        let losses = Arc::default();
        let first = opened(&losses);
        let early = first.losses_told();
        first.failed(ClientError::Unreachable);
        let (told, lost) = first.tell_losses(early);
        assert_eq!((told, lost), (1, Some(ClientError::Unreachable)));
        assert_eq!(first.tell_losses(told), (1, None));
        assert!(
            first.tell_losses(first.losses_told()).1.is_some(),
            "one more connection, of the same client perhaps"
        );

        let second = opened(&losses);
        assert_eq!(second.tell_losses(second.losses_told()), (1, None), "somebody was told");
        second.failed(ClientError::Unreachable);
        let third = opened(&losses);
        assert!(third.tell_losses(third.losses_told()).1.is_some(), "nobody has been");
    }
}
