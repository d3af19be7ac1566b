//! The records of the journal: every change of a brick's state, in order. `older.rs` has the forms of earlier builds.

pub(crate) mod older;

use types::messages::brick::{DedupWindow, OpKind, Span, WriteId};
use types::messages::cluster::GroupConfig;
use types::wire::Last;
use types::{ClientId, ClientSeq, Epoch, GroupId, ObjectId, Seq, StripeKey, records};

use crate::space::Run;

records! {
    /// An operation is held. The bytes of an overlay's spans follow as payload, one after the other; those of a unit
    /// lie at `runs`.
    12 PrepareRecord {
        /// The group.
        group: GroupId,
        /// The operation.
        seq: Seq,
        /// The stripe.
        key: StripeKey,
        /// The slot of this brick.
        slot: u8,
        /// Its kind.
        kind: OpKind,
        /// Mask of the slots that take part.
        participants: u64,
        /// Ranges of the stripe, for an overlay or zeros.
        spans: Vec<Span>,
        /// Identity of the base that a patch changes.
        base: Seq,
        /// Blocks of this unit.
        blocks: u32,
        /// Blocks of every data unit.
        unit_blocks: Vec<u32>,
        /// Identity of every data unit, for a parity unit; empty if all are that of this operation.
        identities: Vec<Seq>,
        /// Where this unit's bytes lie.
        runs: Vec<Run>,
        /// The part of `runs` that was freshly allocated: all of it, unless this is a Patch.
        fresh: Vec<Run>,
        /// Checksum of every block of this unit, or of every range of an overlay.
        crcs: Vec<u32>,
        /// The writes that it carries.
        origins: Vec<WriteId>,
        /// The writers' acknowledged numbers.
        acked: Vec<(ClientId, ClientSeq)>,
    };
    /// Every operation of a group up to `upto` is committed.
    2 Decided {
        /// The group.
        group: GroupId,
        /// The last of them.
        upto: Seq,
    };
    /// From now on nothing older than `epoch` is accepted for a group. Written by builds that did not keep configurations
    /// ([`Configured`]).
    3 Promise {
        /// The group.
        group: GroupId,
        /// The epoch.
        epoch: Epoch,
    };
    /// The end of a take-over: the fate of every operation before the epoch. From now on the epoch is served.
    13 Settle {
        /// The group.
        group: GroupId,
        /// The epoch.
        epoch: Epoch,
        /// Everything up to here is committed, except the aborted.
        upto: Seq,
        /// The aborted operations.
        aborted: Vec<Seq>,
        /// Writes seen.
        windows: Vec<DedupWindow>,
    };
    /// The state of a group as a whole, in place of older records.
    14 Snapshot {
        /// The group.
        group: GroupId,
        /// The promised epoch.
        promised: Epoch,
        /// The served epoch, 0 if none.
        served: Epoch,
        /// Everything up to here is decided, except the aborted.
        decided: Seq,
        /// What the last take-over aborted.
        aborted: Vec<Seq>,
        /// Writes seen.
        windows: Vec<DedupWindow>,
    };
    /// An object is forgotten.
    6 Drop {
        /// The object.
        object: ObjectId,
        /// Number of its first stripes that are forgotten.
        stripes: u64,
    };
    /// An undecided Full was found torn by a crash: it is not held. Without this record a later replay would assume
    /// that it was decided meanwhile.
    7 Torn {
        /// The group.
        group: GroupId,
        /// The operation.
        seq: Seq,
    };
    /// A unit is forgotten with its overlays: the slot joins, and no other slot has the stripe.
    8 Forget {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
    };
    /// From now on nothing older than this configuration is accepted for a group. It is kept for a metadata service that was
    /// restored from a backup and does not know it.
    9 Configured {
        /// The group.
        group: GroupId,
        /// The configuration, with the promised epoch.
        config: Last<GroupConfig>,
    };
    /// From now on no take-over of an epoch below `floor` is accepted for a group: those are configurations that a restored
    /// metadata service does not know.
    10 Floor {
        /// The group.
        group: GroupId,
        /// The least epoch that may still be promised.
        floor: Epoch,
    };
    /// No object counts as dropped any more: a restored metadata service may have files again that were removed.
    11 Undrop {};
}
