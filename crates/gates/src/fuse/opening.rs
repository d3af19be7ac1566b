//! What an open does besides what the service does.

use std::time::Instant;

use client::{Opened, SetAttrs};
use fuser::Errno;
use types::InodeId;
use types::messages::names::Attr;

use super::file_names::Known;
use super::gate::{Gate, writes};
use super::retries::Asker;

/// Bits of a mode that let a program run with the rights of the file's owner or group.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
/// The group may execute it. Without this bit, the set-group-id bit means something else.
const GROUP_EXECUTES: u32 = 0o010;

impl Gate {
    /// Opens a file for a thread. Fails with `ESTALE` if the kernel may have found it by a name that it has no more: then the kernel
    /// looks the name up again.
    pub(super) async fn open_found(
        &self,
        asker: Asker,
        inode: InodeId,
        write: bool,
        truncate: bool,
    ) -> Result<Opened, Errno> {
        let has_looked_again = self.retries.has_looked_again(asker);
        let names = match self.file_names.known(inode, asker.begun) {
            _ if has_looked_again => Vec::new(),
            Known::Names(names) => names,
            Known::Unknown if self.retries.ask_to_open(asker, asker.begun) => return Err(Errno::ESTALE),
            Known::Unknown => Vec::new(),
        };
        let has_names = !names.is_empty();
        let opened = self.ask(async |session| session.open_as(inode, names, write, truncate).await).await;
        self.names_ahead.file_told(inode);
        match opened {
            // The file is gone, or another one has the name.
            Err(Errno::ESTALE | Errno::ENOENT)
                if has_looked_again || self.retries.ask_to_open(asker, Instant::now()) =>
            {
                Err(Errno::ESTALE)
            }
            Err(Errno::ESTALE) if has_names => {
                self.ask(async |session| session.open(inode, write, truncate).await).await
            }
            Err(Errno::ENOENT) => Err(Errno::ESTALE),
            opened => opened,
        }
    }

    /// Closes a handle again that was opened to append, if the kernel knows the file from names read ahead and it has changed since:
    /// the kernel would append where the file ended before. `ESTALE` makes it look up the name again. A thread that opens without a
    /// name gets fresh attributes.
    pub(super) async fn open_to_append(&self, asker: Asker, opened: Opened) -> Result<Opened, Errno> {
        if !self.kernel_cache.is_outdated_from_ahead(&opened.attr) {
            return Ok(opened);
        }
        if let Some(invalidator) = self.invalidator.get() {
            invalidator.attributes(opened.attr.inode);
        }
        self.ask(async |session| session.release(opened.handle).await).await?;
        self.retries.ask_to_open(asker, Instant::now());
        Err(Errno::ESTALE)
    }

    /// Notes how a file was opened, by the flags of open(2).
    pub(super) fn opened_with(&self, opened: &Opened, flags: i32) {
        if flags & libc::O_DIRECT == 0 {
            self.mount.set_in_kernel(opened.handle);
        }
        if flags & libc::O_NOATIME != 0 {
            self.mount.set_noatime(opened.handle);
        } else if self.mount.is_exclusive() && !writes(flags) {
            self.opened_to_read(&opened.attr);
        }
    }

    /// Clears the bits of a truncated file that give away its owner's rights. The kernel leaves this to an open that truncates.
    pub(super) async fn drop_privileges(&self, opened: Opened) -> Result<Opened, Errno> {
        let Some(mode) = without_privileges(&opened.attr) else { return Ok(opened) };
        let (inode, changes) = (opened.attr.inode, SetAttrs { mode: Some(mode), ..SetAttrs::default() });
        match self.ask(async |session| session.setattr(inode, changes).await).await {
            Ok(attr) => Ok(Opened { attr, ..opened }),
            Err(errno) => {
                self.ask(async |session| session.release(opened.handle).await).await?;
                Err(errno)
            }
        }
    }
}

/// The mode of a file whose bytes somebody without rights has changed, if it must change.
fn without_privileges(attr: &Attr) -> Option<u32> {
    let cleared = if attr.mode & GROUP_EXECUTES != 0 { SET_USER | SET_GROUP } else { SET_USER };
    (attr.mode & cleared != 0).then_some(attr.mode & !cleared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::attributes::plain_attr;
    use types::messages::names::FileKind;

    #[test]
    fn bits_that_give_rights_away_are_cleared() {
        let left = |mode| without_privileges(&Attr { mode, ..plain_attr(InodeId(5), FileKind::File) });
        assert_eq!([0o6777, 0o4644, 0o2755].map(left), [Some(0o777), Some(0o644), Some(0o755)]);
        assert_eq!([0o2644, 0o1777, 0o644].map(left), [None; 3], "no program runs as its group");
        assert_eq!(left(0o6744), Some(0o2744));
    }
}
