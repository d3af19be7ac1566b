//! Sizes that bricks keep with writes, until the metadata service knows them.

use crate::records;
use crate::{ClientId, ClientSeq, Epoch, GroupId, InodeId};

records! {
    names REQUESTS;
    /// A file's size and time, which bricks keep with the write that makes them true: `fsync` need not wait until the metadata
    /// service has stored them. If the writer is lost, the service asks for them ([`NotesGet`]).
    fixed part SizeNote {
        /// The file.
        inode: InodeId,
        /// How often it had been truncated: the note says nothing after the next truncation.
        truncate_seq: u64,
        /// All bytes up to here are stable, if this write is.
        size: u64,
        /// When its contents changed last, in nanoseconds since 1970.
        mtime: i64,
        /// Nobody needs the writer's notes with numbers up to this one any more: the service has stored what they say.
        told: ClientSeq,
    }
    /// A note, with the number of its write.
    fixed part NumberedNote {
        /// The writer's number.
        seq: ClientSeq,
        /// The note.
        note: SizeNote,
    }
    /// A note of a lost client.
    part LostNote {
        /// Who wrote it.
        client: ClientId,
        /// The note.
        note: SizeNote,
    }
    /// Metadata service to the primary of some groups: what have these clients noted there? They are fenced, and nothing of
    /// theirs is under way. Refused with `NotPrimary` or `StaleEpoch` if this brick does not serve one of the groups in the
    /// epoch that is named.
    142 NotesGet {
        /// The clients, ascending.
        clients: Vec<ClientId>,
        /// The groups, with their epochs; at most [`GROUPS_MAX`](crate::limits::GROUPS_MAX).
        groups: Vec<(GroupId, Epoch)>,
    } => Notes;
    /// The notes of the first of these groups.
    143 Notes {
        /// So many groups, at least one; ask again for the rest.
        groups: u32,
        /// The notes.
        notes: Vec<LostNote>,
    };
}
