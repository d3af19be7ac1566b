//! Renames of names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use fuser::{Errno, RenameFlags};
use types::InodeId;
use types::messages::names::{RenameHow, Renamed};

use super::answers::rename_how;
use super::gate::{Gate, name};
use super::retries::Asker;

impl Gate {
    /// Renames an entry of a directory, and tells all that is kept about names.
    pub(super) async fn rename_in(
        &self,
        asker: Asker,
        (from, entry): (InodeId, &OsStr),
        (to, new_entry): (InodeId, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let question = self.dir_attrs.question(Instant::now());
        let rename = async || {
            let how = rename_how(flags)?;
            let (name, new_name) = (name(entry)?, name(new_entry)?);
            // An exchange makes nothing dead.
            let meant = match how {
                RenameHow::Replace => self.meant(asker, to, new_name)?,
                _ => None,
            };
            let moved = self
                .ask(async |session| session.rename((from, name), (to, new_name), how, meant).await)
                .await?;
            self.dir_names.moved((from, name), (to, new_name), how == RenameHow::Exchange);
            self.file_names.moved((from, name), (to, new_name), moved.moved);
            if let Some(exchanged) = moved.exchanged {
                self.file_names.moved((to, new_name), (from, name), exchanged);
            }
            Ok(moved)
        };
        let moved = rename().await.inspect_err(|errno| self.looks_again(asker, to, *errno));
        self.names_ahead.name_told(from, entry.as_bytes());
        self.names_ahead.name_told(to, new_entry.as_bytes());
        match &moved {
            Ok(Renamed { from, to, directories: false, .. }) => {
                [from, to].into_iter().for_each(|attr| self.dir_attrs.changed_to(question, attr));
            }
            // The inode numbers of the directories that were moved or replaced are not known.
            _ => self.dir_attrs.some_changed(),
        }
        moved.map(|_| ())
    }
}
