//! Why a server refused a request, and what the caller can do about it.

use crate::coded_enum;

/// What the caller can do after a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAction {
    /// Fetch the cluster map, then ask again; the right server may be another one.
    RefreshMap,
    /// Ask the same server again a little later.
    Wait,
    /// Ask the group's primary instead.
    AskPrimary,
    /// Nothing: the answer is final.
    GiveUp,
}

coded_enum! {
    /// A server's refusal, as it travels on the wire.
    pub enum Refusal: u16 {
        /// The bytes of the request make no sense.
        Malformed = 1,
        /// The server does not know this kind of request.
        Unsupported = 2,
        /// The message's epoch is older than the one promised.
        StaleEpoch = 3,
        /// This brick is not the primary of the group.
        NotPrimary = 4,
        /// The group is being taken over, or the brick's lease has run out.
        NotServing = 5,
        /// An undecided write overlaps: only the primary can answer.
        Pending = 6,
        /// No space is left on a brick that the write needs.
        NoSpace = 8,
        /// Stored bytes did not match their checksum, or a unit's identity is not the one asked for.
        Corrupt = 9,
        /// More failure domains are lost than the code bears.
        TooFewLive = 10,
        /// The client's lease has run out; its writes are no longer accepted.
        Fenced = 11,
        /// The brick, volume or client is not known here.
        Unknown = 12,
        /// The brick is already served by another process.
        ServedTwice = 13,
        /// The disk of the brick failed; it counts as lost.
        DiskFailed = 14,
        /// The unit that an operation refers to is not, or no longer, staged here.
        NotStaged = 15,
        /// The object has been removed, so the operation is not needed.
        ObjectRemoved = 16,
        /// The brick that the request names holds no lease.
        NotUp = 17,
        /// This metadata server does not lead.
        NotLeader = 18,
        /// The brick gets no lease for a while, because others cannot reach it.
        Unreached = 19,
        /// The caller means another server.
        OtherServer = 20,
        /// No such file or directory.
        NotFound = 32,
        /// The name exists already.
        Exists = 33,
        /// Not a directory.
        NotDirectory = 34,
        /// Is a directory.
        IsDirectory = 35,
        /// The directory is not empty.
        NotEmpty = 36,
        /// The name is longer than 255 bytes.
        NameTooLong = 37,
        /// The argument is invalid.
        Invalid = 38,
        /// The inode no longer exists.
        Stale = 39,
        /// Something is in use.
        Busy = 40,
        /// Permission denied by ownership or mode.
        NotPermitted = 41,
        /// Too many hard links.
        TooManyLinks = 42,
        /// The file would be too large.
        FileTooLarge = 43,
        /// The names lie on different volumes.
        CrossVolume = 44,
        /// More units than failure domains.
        TooFewDomains = 45,
        /// The metadata service could not make its transaction durable.
        MetaFailed = 46,
        /// Access denied by mode bits.
        AccessDenied = 47,
        /// The volume has an exclusive mount.
        MountedExclusively = 48,
        /// The volume has mounts, so a new one cannot be exclusive.
        Mounted = 49,
        /// A limit on the number of mounts, files or volumes has been reached.
        TooMany = 52,
    }
}

impl Refusal {
    /// What the caller can do.
    pub fn retry_action(self) -> RetryAction {
        match self {
            Refusal::StaleEpoch | Refusal::NotPrimary | Refusal::DiskFailed | Refusal::OtherServer => {
                RetryAction::RefreshMap
            }
            Refusal::NotServing
            | Refusal::TooFewLive
            | Refusal::NotUp
            | Refusal::NotLeader
            | Refusal::Unreached => RetryAction::Wait,
            Refusal::Pending | Refusal::Corrupt => RetryAction::AskPrimary,
            _ => RetryAction::GiveUp,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::Malformed => "the request is malformed",
            Refusal::Unsupported => "the request is not supported by this server",
            Refusal::StaleEpoch => "the group has a newer configuration",
            Refusal::NotPrimary => "the brick is not the primary of the group",
            Refusal::NotServing => "the group is not being served at the moment",
            Refusal::Pending => "an undecided write overlaps",
            Refusal::NoSpace => "no space left",
            Refusal::Corrupt => "stored bytes are damaged",
            Refusal::TooFewLive => "too few bricks are live",
            Refusal::Fenced => "the client's lease has run out",
            Refusal::Unknown => "not known here",
            Refusal::ServedTwice => "the brick is already served by another process",
            Refusal::DiskFailed => "the brick's disk failed",
            Refusal::NotStaged => "the unit is not staged here",
            Refusal::ObjectRemoved => "the object has been removed",
            Refusal::NotUp => "the brick holds no lease",
            Refusal::NotLeader => "this metadata server follows another one",
            Refusal::Unreached => "others cannot reach the brick",
            Refusal::OtherServer => "the address leads to another server than the one that was meant",
            Refusal::NotFound => "no such file or directory",
            Refusal::Exists => "exists already",
            Refusal::NotDirectory => "not a directory",
            Refusal::IsDirectory => "is a directory",
            Refusal::NotEmpty => "directory not empty",
            Refusal::NameTooLong => "name too long",
            Refusal::Invalid => "invalid argument",
            Refusal::Stale => "the file no longer exists",
            Refusal::Busy => "in use",
            Refusal::NotPermitted => "operation not permitted",
            Refusal::TooManyLinks => "too many links",
            Refusal::FileTooLarge => "file too large",
            Refusal::CrossVolume => "the names lie on different volumes",
            Refusal::TooFewDomains => "more units than failure domains",
            Refusal::MetaFailed => "the metadata service could not store the change",
            Refusal::AccessDenied => "access denied",
            Refusal::MountedExclusively => "the volume has an exclusive mount",
            Refusal::Mounted => "the volume is mounted elsewhere",
            Refusal::TooMany => "there are as many as there can be",
        })
    }
}

impl std::error::Error for Refusal {}
