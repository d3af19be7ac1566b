//! What is exported: one file, opened when the first client comes and closed when the last one goes.
//!
//! All clients of a gate share one handle, and with it the client's buffers: what one of them was told is done, a flush
//! of any other makes stable, on whichever thread either is served. A gate without clients holds nothing, so another one
//! may have the file alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use client::{ClientError, Mount, Session};
use types::{ClientId, InodeId, Refusal};
use world::{Notify, World};

use super::proto::ExportInfo;

/// See the module. The threads of a gate share it.
pub(super) struct Export {
    mount: Arc<Mount>,
    inode: InodeId,
    pub(super) info: ExportInfo,
    /// Every write is stable before it is answered.
    pub(super) write_through: bool,
    opened: Mutex<Weak<Opened>>,
    /// Held by whoever opens.
    opening: async_lock::Mutex<()>,
    losses: Arc<Mutex<Losses>>,
    let_go: Arc<LetGo>,
    /// Given when the mount is over for good.
    pub(super) lost: Notify,
}

/// Handles that nobody needs any more and that are still open.
#[derive(Default)]
struct LetGo {
    handles: Mutex<Vec<u64>>,
    /// Given for whoever closes them.
    more: Notify,
    /// Given for whoever opens the file anew.
    gone: Notify,
}

/// The open file.
pub(super) struct Opened {
    pub(super) handle: u64,
    /// Who opened it: the handle is worth nothing once the mount has another id.
    client: ClientId,
    losses: Arc<Mutex<Losses>>,
    /// Losses from before that somebody has been told of.
    losses_told: u64,
    /// It is of no further use: those who have it are to go.
    over: AtomicBool,
    /// Given when that is so.
    pub(super) ended: Notify,
    let_go: Arc<LetGo>,
}

/// What was written, or was to be, and has been lost.
#[derive(Default)]
struct Losses {
    /// How often.
    count: u64,
    /// How the last time.
    last: Option<ClientError>,
    /// How many of them some client has been told of.
    told: u64,
}

/// How long those who have a file that is of no further use may take to go, in microseconds.
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
    /// Something was lost: each client's next flush says so, once.
    pub(super) fn failed(&self, error: ClientError) {
        let mut losses = lock(&self.losses);
        losses.count += 1;
        losses.last = Some(error);
    }

    /// Losses of which somebody who comes now need not be told. Of those since the file was opened everybody is: it may be
    /// one more connection of a client that has others, or had one, and its flush covers what they wrote.
    pub(super) fn losses_told(&self) -> u64 {
        self.losses_told
    }

    /// Tells of the losses after the first `known`, of which there are then so many.
    pub(super) fn tell_losses(&self, known: u64) -> (u64, Option<ClientError>) {
        let mut losses = lock(&self.losses);
        losses.told = losses.count;
        (losses.count, losses.last.filter(|_| known < losses.count))
    }

    /// Nobody can do anything with it any more.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.ended.notify();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// The handle is gone with the lease: what was not stable is lost, as in a power cut, and only a new open helps.
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
            // What those who have it wrote last may be lost, and no flush of anybody's may tell them otherwise.
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

    /// Waits until nobody has the file that was opened before.
    async fn until_all_have_gone(&self) {
        loop {
            let gone = self.let_go.gone.wait();
            if lock(&self.opened).strong_count() == 0 {
                return;
            }
            gone.await;
        }
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
