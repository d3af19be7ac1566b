//! Changes of attributes at the metadata service.

use types::InodeId;
use types::messages::names::{Attr, AttrReply, SetAttr};

use crate::error::ClientError;
use crate::paths::Io;

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SetAttrs {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of the file.
    pub size: Option<u64>,
    /// Last access, in nanoseconds since 1970, negative before.
    pub atime: Option<i64>,
    /// Last change of the contents, in nanoseconds since 1970.
    pub mtime: Option<i64>,
    /// When this change happens, in nanoseconds since 1970; now if `None`.
    pub ctime: Option<i64>,
}

impl SetAttrs {
    /// The new time of the last change, if nothing else changes.
    pub(crate) fn only_mtime(&self) -> Option<i64> {
        let others = SetAttrs { mtime: None, ctime: None, ..*self };
        self.mtime.filter(|_| others == SetAttrs::default())
    }
}

impl Io {
    pub(crate) async fn change_attr(
        &self,
        inode: InodeId,
        changes: &SetAttrs,
        sent_end: u64,
    ) -> Result<Attr, ClientError> {
        let volume = self.link.routes.volume;
        let now = changes.ctime.unwrap_or_else(|| self.link.world.wall());
        let SetAttrs { mode, uid, gid, size, atime, mtime, ctime: _ } = *changes;
        let request =
            |caller| SetAttr { caller, volume, inode, mode, uid, gid, size, sent_end, atime, mtime, now };
        if atime.is_some() {
            self.atimes.forget(inode);
        }
        let AttrReply { attr } = self.link.change(request).await?;
        if let Some(file) = self.files.file(inode) {
            let mut state = file.lock();
            (state.atime, state.ctime) = (attr.atime, attr.ctime);
        }
        Ok(attr)
    }
}
