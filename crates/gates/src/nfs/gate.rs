//! Common parts of the procedures: the volume, permissions, attributes, open files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use client::{ClientError, Mount, Session};
use types::InodeId;
use types::messages::names::Attr;
use world::{LineLimit, Notify, World};

use super::allow::AllowList;
use super::files::{Files, OpenFile, is_handle_invalid};
use super::handle::FileSystemId;
use super::reply_cache::ReplyCache;
use super::verifier::Verifier;
use super::wire::{AttrWriter, Status};
use crate::seats::Seats;

/// The state that all threads of a gate share.
pub(super) struct Shared {
    pub(super) mount: Arc<Mount>,
    /// The volume's name, which is the export's too.
    pub(super) volume: String,
    pub(super) file_system: FileSystemId,
    pub(super) read_only: bool,
    pub(super) root_squash: bool,
    pub(super) allow_list: AllowList,
    /// Where it listens.
    pub(super) port: u16,
    pub(super) files: Files,
    pub(super) reply_cache: ReplyCache,
    pub(super) verifier: Verifier,
    /// Clients may come from any port.
    pub(super) insecure: bool,
    pub(super) seats: Arc<Seats>,
    pub(super) turned_away: TurnedAway,
    pub(super) closing: AtomicBool,
    /// Notified when the gate begins to end.
    pub(super) ended: Notify,
}

/// Lines about clients that were turned away.
#[derive(Default)]
pub(super) struct TurnedAway {
    /// They are not allowed.
    pub(super) strangers: LineLimit,
    /// Their ports are for anybody.
    pub(super) unprivileged: LineLimit,
    /// There are too many.
    pub(super) full: LineLimit,
}

/// One thread's part of a gate.
pub(super) struct Gate {
    pub(super) shared: Arc<Shared>,
    pub(super) world: World,
    pub(super) session: Session,
}

impl Gate {
    /// Refuses changes if the gate is read-only.
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        if self.shared.read_only { Err(Status::ReadOnly) } else { Ok(()) }
    }

    /// The inode of a handle.
    pub(super) fn inode(&self, handle: &[u8]) -> Result<InodeId, Status> {
        self.shared.file_system.inode(handle)
    }

    /// Writes attributes.
    pub(super) fn attributes(&self) -> AttrWriter {
        AttrWriter { fsid: self.shared.file_system.fsid() }
    }

    /// The attributes of a handle's inode.
    pub(super) async fn attr_of(&self, handle: &[u8]) -> Result<Attr, Status> {
        self.attr(self.inode(handle)?).await
    }

    /// The attributes of an inode that has a name.
    pub(super) async fn attr(&self, inode: InodeId) -> Result<Attr, Status> {
        let attr = self.session.getattr(inode).await?;
        self.shared.files.cache_attr(&attr, self.world.now());
        named(attr)
    }

    /// The attributes of a file; they may be a second old.
    pub(super) async fn recent_attr(&self, inode: InodeId) -> Result<Attr, Status> {
        match self.shared.files.cached_attr(inode, self.world.now()) {
            Some(attr) => named(attr),
            None => self.attr(inode).await,
        }
    }

    /// Attributes after a change, if they are available.
    pub(super) async fn attr_after(&self, inode: InodeId) -> Option<Attr> {
        self.attr(inode).await.ok()
    }

    /// The present write verifier.
    pub(super) fn verifier(&self) -> u64 {
        self.shared.verifier.now(self.shared.mount.client())
    }

    /// Does something with an open file. Retries once with a new handle if the old one was lost with the client's
    /// lease.
    pub(super) async fn with_file<T>(
        &self,
        inode: InodeId,
        write: bool,
        act: impl AsyncFn(&OpenFile) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let Shared { files, verifier, .. } = &*self.shared;
        let mut tries = 0;
        loop {
            tries += 1;
            let opened = files.open(&self.session, inode, write, self.world.now(), verifier).await;
            let error = match opened {
                Ok(held) => match act(&held).await {
                    Err(error) if is_handle_invalid(error) => {
                        files.discard(&self.session, held, verifier).await;
                        error
                    }
                    outcome => return outcome,
                },
                Err(error) if is_handle_invalid(error) => error,
                Err(error) => return Err(error),
            };
            if tries > 1 {
                return Err(error);
            }
        }
    }
}

/// A removed file that is still open somewhere exists without a name, but NFS clients must not see it.
fn named(attr: Attr) -> Result<Attr, Status> {
    if attr.links == 0 { Err(Status::Stale) } else { Ok(attr) }
}
