//! Metadata servers that keep copies of the same store.
//!
//! One of them leads: it makes all changes, as numbered records. A record is chosen when a majority of the members has it.

use super::Done;
use crate::{InodeId, ObjectId, VolumeId, records};

records! {
    names REQUESTS;
    /// Where a server's records end.
    #[derive(Copy, PartialOrd, Ord, Hash, Default)]
    fixed part RecordPosition {
        /// The number of the last record.
        number: u64,
        /// The term in which it was taken.
        term: u64,
    }
    /// A member: a server that votes.
    #[derive(Hash)]
    part MetaMember {
        /// Its id, which it has drawn itself.
        id: u64,
        /// Where it listens.
        address: String,
    }
    /// Metadata server to metadata server: may the caller lead in this term?
    150 Vote {
        /// The member that is asked. Another one may listen at its address.
        to: u64,
        /// The term.
        term: u64,
        /// The caller.
        candidate: u64,
        /// Where its records end.
        last: RecordPosition,
        /// Only a question: nothing is promised.
        is_poll: bool,
    } => Voted;
    /// The answer to [`Vote`].
    151 Voted {
        /// The newest term that the answerer knows.
        term: u64,
        /// Whether the caller has the vote.
        is_granted: bool,
        /// Whether the caller is a member, or may be one by a record that is not chosen, as far as the answerer knows.
        is_member: bool,
    };
    /// A record on its way to a follower.
    part SentRecord {
        /// Its number and its term.
        position: RecordPosition,
        /// Bytes of its writes.
        len: u32,
    }
    /// Leader to follower: it leads, and perhaps a record. The payload has the record's writes.
    152 Append {
        /// The server that is meant.
        to: u64,
        /// The leader's term.
        term: u64,
        /// The leader.
        leader: MetaMember,
        /// Where the leader's records end before these, or at all if there are none.
        previous: RecordPosition,
        /// The records whose writes are the payload, one after the other. If they are several, all of them are chosen.
        records: Vec<SentRecord>,
        /// All records up to this one are chosen.
        chosen: u64,
        /// The server that is meant has told the leader in this term that it has all records up to this one.
        has: u64,
        /// CRC-32C of the payload.
        sum: u32,
    } => Appended;
    /// The answer to [`Append`] and [`Install`].
    153 Appended {
        /// The newest term that the answerer knows.
        term: u64,
        /// Up to which record it knows that what it has is chosen.
        chosen: u64,
        /// Where its records end.
        last: RecordPosition,
        /// It needs the whole store.
        is_incomplete: bool,
    };
    /// Leader to follower: a part of the whole store, as it is after a record. The payload has pairs of keys and values.
    154 Install {
        /// The server that is meant.
        to: u64,
        /// The leader's term.
        term: u64,
        /// The leader.
        leader: MetaMember,
        /// The record.
        number: u64,
        /// The number of this part. With part 0 the receiver forgets earlier parts.
        part: u64,
        /// No other part follows.
        is_last: bool,
        /// CRC-32C of the payload.
        sum: u32,
    } => Appended;
    /// New server to leader: makes the caller a member, when it has everything.
    155 MetaJoin {
        /// The caller.
        member: MetaMember,
    } => MetaJoined;
    /// The answer to [`MetaJoin`].
    156 MetaJoined {
        /// The caller is a member. If not, it asks again.
        is_member: bool,
    };
    /// Any process to leader: a member is to be one no more.
    157 MetaRemove {
        /// Its address.
        address: String,
    } => MetaRemoved;
    /// The answer to [`MetaRemove`].
    158 MetaRemoved {
        /// Why nothing was done.
        error: Option<String>,
    };
    /// To any metadata server: what does it know of itself and the others?
    159 MetaStatus {} => MetaReport;
    /// What a metadata server knows.
    160 MetaReport {
        /// Its id; 0 if it is the only server.
        id: u64,
        /// The newest term that it knows.
        term: u64,
        /// Where its records end.
        last: RecordPosition,
        /// Up to which record everything is chosen.
        chosen: u64,
        /// Who leads; 0 if it does not know.
        leader: u64,
        /// The members, and at the leader what it knows of each.
        members: Vec<MemberReport>,
        /// It does not have the whole store yet.
        is_incomplete: bool,
    };
    /// What the leader knows of a member.
    part MemberReport {
        /// The member.
        member: MetaMember,
        /// Where its records end; at other servers than the leader 0.
        last: u64,
        /// How long ago it was heard, in microseconds; at other servers than the leader, and if it was never heard, nothing.
        heard_us: Option<u64>,
        /// It has no vote yet.
        is_joining: bool,
    }
    /// Any process to leader: the next part of the whole store, as it was at one moment. The payload has pairs of keys and
    /// values.
    161 MetaScan {
        /// The moment, as the answer to the first part has named it; 0 in the first request.
        scan: u64,
        /// Where the part begins.
        from: Vec<u8>,
        /// About how many bytes it should have. It has one pair at least, if there is one.
        bytes: u32,
    } => MetaScanned;
    /// The answer to [`MetaScan`].
    162 MetaScanned {
        /// Names the moment.
        scan: u64,
        /// The last record that the store has.
        record: u64,
        /// Nothing follows.
        is_last: bool,
        /// CRC-32C of the payload.
        sum: u32,
    };
    /// Any process to leader: repairs something in the name space, all of it or nothing.
    163 MetaRepair {
        /// Values to replace.
        patches: Vec<MetaPatch>,
        /// Added to the number of a volume's inodes.
        inodes: Option<InodesChange>,
        /// No id up to this one is given to anything new.
        ids_up_to: u64,
        /// An inode that gets a name in `lost+found`. Its patch has the links that it has then.
        adopt: Option<Adopt>,
        /// An object that no inode has, and that is purged.
        purge: Option<PurgeObject>,
    } => MetaRepaired;
    /// The answer to [`MetaRepair`].
    164 MetaRepaired {
        /// If not, something of it has changed meanwhile, and nothing was done.
        is_done: bool,
    };
    /// Any process to leader: another member is to lead.
    165 MetaLead {
        /// Its address; empty for the one that has most.
        address: String,
    } => MetaLed;
    /// The answer to [`MetaLead`]. The term of the one that was asked is over, unless it names an error.
    166 MetaLed {
        /// Why nothing was done.
        error: Option<String>,
    };
    /// Leader to follower: its term is over, and it answers nobody any more.
    167 TermEnded {
        /// The server that is meant.
        to: u64,
        /// The term.
        term: u64,
        /// The server that should stand for election at once.
        successor: u64,
    } => Done;
    /// A value to replace.
    part MetaPatch {
        /// The key: of an inode, a name, an orphan or a purge.
        key: Vec<u8>,
        /// What is there now; nothing if there is none.
        expected: Option<Vec<u8>>,
        /// What is to be there; nothing removes it.
        value: Option<Vec<u8>>,
    }
    /// A change of a volume's number of inodes.
    part InodesChange {
        /// The volume.
        volume: VolumeId,
        /// How many more there are.
        by: i64,
    }
    /// An object to purge.
    part PurgeObject {
        /// Its volume.
        volume: VolumeId,
        /// The object.
        object: ObjectId,
    }
    /// An inode that has lost its names.
    part Adopt {
        /// Its volume.
        volume: VolumeId,
        /// The inode.
        inode: InodeId,
        /// When, in nanoseconds since 1970.
        now: i64,
    }
}
