//! The only table of error numbers: errors of the client as numbers for the kernel and for NBD clients.

use client::ClientError;
use types::Refusal;

/// The error number of a failed file operation.
pub fn errno(error: ClientError) -> i32 {
    match error {
        ClientError::Refused(refusal) => of_refusal(refusal),
        ClientError::Unreachable => libc::ETIMEDOUT,
        ClientError::WrongKey | ClientError::WrongCluster => libc::EACCES,
        ClientError::BadReply | ClientError::OtherVersion { .. } => libc::EPROTO,
        ClientError::BadHandle => libc::EBADF,
        ClientError::Unmounted => libc::ENOTCONN,
    }
}

/// The NBD error number of a failed request; the protocol has only a few.
pub(crate) fn nbd_code(error: ClientError) -> u32 {
    let code = match errno(error) {
        code @ (libc::EPERM | libc::ENOSPC | libc::EINVAL) => code,
        libc::EACCES => libc::EPERM,
        libc::EFBIG => libc::ENOSPC,
        libc::ENOTCONN => libc::ESHUTDOWN,
        _ => libc::EIO,
    };
    code.unsigned_abs()
}

/// The error number of a refusal. Refusals that the client retries arrive here only after it gave up, and become I/O
/// errors.
fn of_refusal(refusal: Refusal) -> i32 {
    match refusal {
        Refusal::NoSpace => libc::ENOSPC,
        Refusal::NotFound => libc::ENOENT,
        Refusal::Exists => libc::EEXIST,
        Refusal::NotDirectory => libc::ENOTDIR,
        Refusal::IsDirectory => libc::EISDIR,
        Refusal::NotEmpty => libc::ENOTEMPTY,
        Refusal::NameTooLong => libc::ENAMETOOLONG,
        Refusal::Invalid => libc::EINVAL,
        Refusal::Stale => libc::ESTALE,
        Refusal::Busy | Refusal::MountedExclusively | Refusal::Mounted => libc::EBUSY,
        Refusal::NotPermitted => libc::EPERM,
        Refusal::AccessDenied => libc::EACCES,
        Refusal::TooManyLinks => libc::EMLINK,
        Refusal::FileTooLarge => libc::EFBIG,
        Refusal::CrossVolume => libc::EXDEV,
        Refusal::TooMany => libc::ENFILE,
        Refusal::Malformed | Refusal::Unsupported => libc::EPROTO,
        Refusal::StaleEpoch
        | Refusal::NotPrimary
        | Refusal::NotServing
        | Refusal::Pending
        | Refusal::Corrupt
        | Refusal::TooFewLive
        | Refusal::Fenced
        | Refusal::Unknown
        | Refusal::ObjectRemoved
        | Refusal::ServedTwice
        | Refusal::DiskFailed
        | Refusal::NotStaged
        | Refusal::NotUp
        | Refusal::NotLeader
        | Refusal::Unreached
        | Refusal::OtherServer
        | Refusal::TooFewDomains
        | Refusal::MetaFailed => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_can_react_to_has_its_own_number() {
        assert_eq!(errno(ClientError::Refused(Refusal::NoSpace)), libc::ENOSPC);
        assert_eq!(errno(ClientError::Refused(Refusal::Stale)), libc::ESTALE);
        assert_eq!(errno(ClientError::Refused(Refusal::Corrupt)), libc::EIO);
        assert_eq!(errno(ClientError::Unreachable), libc::ETIMEDOUT);
        let codes = [Refusal::NoSpace, Refusal::Corrupt, Refusal::FileTooLarge].map(ClientError::Refused);
        assert_eq!(codes.map(nbd_code), [28, 5, 28]);
        assert_eq!((nbd_code(ClientError::Unmounted), nbd_code(ClientError::WrongKey)), (108, 1));
    }
}
