//! Dispatches procedures.

use crate::nfs::access::Caller;
use crate::nfs::gate::Gate;
use crate::nfs::wire::{Arguments, Results, Status};

impl Gate {
    /// Carries a procedure out. Returns the results without the status.
    pub(in crate::nfs) async fn procedure(
        &self,
        caller: &Caller,
        arguments: &Arguments<'_>,
    ) -> Result<Results, Status> {
        match *arguments {
            Arguments::Null => Ok(Results::default()),
            Arguments::GetAttr { object } => self.get_attr(object).await,
            Arguments::SetAttr { object, new, guard } => self.set_attr(caller, object, new, guard).await,
            Arguments::Lookup { at } => self.lookup(caller, at).await,
            Arguments::Access { object, wanted } => self.access(caller, object, wanted).await,
            Arguments::ReadLink { object } => self.read_link(object).await,
            Arguments::Read { file, offset, count } => self.read(caller, file, offset, count).await,
            Arguments::Write { file, offset, count, stable, data } => {
                let data = data.get(..count as usize).ok_or(Status::Invalid)?;
                self.write(caller, file, offset, data, stable).await
            }
            Arguments::Create { at, how } => self.create(caller, at, how).await,
            Arguments::MakeDirectory { at, new } => self.make_directory(caller, at, new).await,
            Arguments::Symlink { at, new, target } => self.symlink(caller, at, new, target).await,
            Arguments::MakeNode { at, kind, new, device } => {
                self.make_node(caller, at, kind.ok_or(Status::BadType)?, new, device).await
            }
            Arguments::Remove { at } => self.remove(caller, at).await,
            Arguments::RemoveDirectory { at } => self.remove_directory(caller, at).await,
            Arguments::Rename { from, to } => self.rename(caller, from, to).await,
            Arguments::Link { file, at } => self.link(caller, file, at).await,
            Arguments::ReadDir { directory, cookie, count } => {
                self.read_directory(caller, directory, cookie, count, false).await
            }
            Arguments::ReadDirPlus { directory, cookie, count } => {
                self.read_directory(caller, directory, cookie, count, true).await
            }
            Arguments::FsStat { object } => self.fs_stat(object).await,
            Arguments::FsInfo { object } => self.fs_info(object).await,
            Arguments::PathConf { object } => self.path_conf(object).await,
            Arguments::Commit { file } => self.commit(caller, file).await,
        }
    }
}
