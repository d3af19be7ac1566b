//! The error numbers of NFS.

use client::ClientError;
use types::Refusal;

use crate::errno::errno;

/// Why a procedure failed. Source: RFC 1813, 2.6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    NotOwner = 1,
    NoEntry = 2,
    Io = 5,
    Access = 13,
    Exists = 17,
    CrossDevice = 18,
    NotDirectory = 20,
    IsDirectory = 21,
    Invalid = 22,
    TooLarge = 27,
    NoSpace = 28,
    ReadOnly = 30,
    TooManyLinks = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    TooSmall = 10005,
    ServerFault = 10006,
    BadType = 10007,
    /// The client must ask again later.
    Jukebox = 10008,
}

impl Status {
    /// Its number on the wire.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }
}

impl From<ClientError> for Status {
    fn from(error: ClientError) -> Status {
        match error {
            // NFS clients wait for their server: they ask again until it answers.
            ClientError::Unreachable | ClientError::Unmounted => return Status::Jukebox,
            ClientError::Refused(Refusal::Fenced | Refusal::Unknown | Refusal::Busy) => {
                return Status::Jukebox;
            }
            _ => {}
        }
        match errno(error) {
            libc::EPERM => Status::NotOwner,
            libc::ENOENT => Status::NoEntry,
            libc::EACCES => Status::Access,
            libc::EEXIST => Status::Exists,
            libc::EXDEV => Status::CrossDevice,
            libc::ENOTDIR => Status::NotDirectory,
            libc::EISDIR => Status::IsDirectory,
            libc::EINVAL => Status::Invalid,
            libc::EFBIG => Status::TooLarge,
            libc::ENOSPC => Status::NoSpace,
            libc::EMLINK => Status::TooManyLinks,
            libc::ENAMETOOLONG => Status::NameTooLong,
            libc::ENOTEMPTY => Status::NotEmpty,
            libc::ESTALE => Status::Stale,
            libc::EPROTO => Status::ServerFault,
            _ => Status::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_can_react_to_has_its_own_status() {
        let of = |refusal| Status::from(ClientError::Refused(refusal));
        assert_eq!(of(Refusal::NoSpace), Status::NoSpace);
        assert_eq!(of(Refusal::Stale), Status::Stale);
        assert_eq!(of(Refusal::NotPermitted), Status::NotOwner);
        assert_eq!(of(Refusal::AccessDenied), Status::Access);
        assert_eq!(of(Refusal::Corrupt), Status::Io);
        assert_eq!(of(Refusal::Fenced), Status::Jukebox);
        assert_eq!(Status::from(ClientError::Unreachable), Status::Jukebox);
        assert_eq!((Status::Jukebox.code(), Status::NameTooLong.code()), (10008, 63));
    }
}
