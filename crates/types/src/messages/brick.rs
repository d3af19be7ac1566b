//! Requests to a brick: from clients, primaries, other slots and the metadata service.
//!
//! The frame's `epoch` is the epoch of the group in question. `offset` and `len` count bytes of a stripe's data
//! unless a line says "of the unit".

use std::ops::Range;

use super::Done;
use super::cluster::{Fences, GroupConfig};
use super::notes::{NumberedNote, SizeNote};
use crate::limits::SPANS_MAX;
use crate::{BrickId, ClientId, ClientSeq, Epoch, GroupId, MapVersion, ObjectId, Seq, StripeKey};
use crate::{coded_enum, records};

pub use super::brick_report::{AskedCounts, BrickReport, BrickStatus, CacheReport, DeviceCounts, JoinReport};
pub use super::units::{
    Fill, OverlayBytes, ReadOverlays, StripeFault, SumTerm, SumUnits, UnitList, UnitPage, UnitState, UnitSum,
    Verified, Verify,
};

coded_enum! {
    /// What an operation does to a stripe.
    pub enum OpKind: u8 {
        /// Replaces every unit of the stripe. Units with 0 blocks in the record are absent (zeros).
        Full = 1,
        /// Lays bytes over ranges.
        Overlay = 2,
        /// Lays zeros over ranges; carries no payload.
        Zero = 3,
        /// Makes overlays part of the units that they touch, block by block, and of the parity. Changes no content.
        Patch = 4,
    }
}

records! {
    names REQUESTS;
    /// A range of a stripe's data.
    fixed part Span {
        /// First byte.
        offset: u32,
        /// Bytes.
        len: u32,
    }
    /// Client to primary: writes ranges of one stripe. The payload is their bytes, one range after the other (none if
    /// `zero`).
    ///
    /// Answered as soon as the primary holds the bytes and space is reserved: *unstable*; or when it is `stable`.
    100 Write {
        /// The group of the stripe's extent.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The writer.
        client: ClientId,
        /// The writer's number for this write.
        seq: ClientSeq,
        /// The client knows that all its writes up to this number are stable.
        acked: ClientSeq,
        /// The ranges, at most [`SPANS_MAX`]: ascending, no two overlap or touch.
        spans: Vec<Span>,
        /// Writes zeros; there is no payload.
        zero: bool,
        /// Answer only when this write, and every earlier one of the client to this group, is stable.
        stable: bool,
        /// A whole stripe whose units are staged on every live slot ([`Stage`]); there is no payload.
        staged: bool,
        /// What is true of the file once this write is stable.
        note: Option<SizeNote>,
    } => Done;
    /// Client to primary: answered when every write of `client` up to `upto` to these groups is stable.
    101 Sync {
        /// The writer.
        client: ClientId,
        /// The last write that must be stable.
        upto: ClientSeq,
        /// The groups, each with the epoch in which the writes were accepted.
        groups: Vec<(GroupId, Epoch)>,
    } => Done;
    /// Client to primary: reads a range of a stripe and decodes missing units. The answer's payload has the bytes.
    102 ReadStripe {
        /// The group of the stripe's extent.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// Start of the range.
        offset: u32,
        /// Bytes of the range.
        len: u32,
        /// Slots whose bricks are slow, or do not answer, one bit for each: they are asked only where there is no other
        /// way.
        avoid: u64,
    } => StripeBytes of len;
    /// The bytes of a range of a stripe, as payload. If the payload is shorter than the range, the rest is zeros.
    103 StripeBytes {
        /// Units that had to be decoded.
        decoded: u32,
    };
    /// Client to primary: which bytes of some consecutive stripes may not be zeros?
    107 FindBytes {
        /// The group of the stripes' extent.
        group: GroupId,
        /// The first stripe.
        key: StripeKey,
        /// Number of stripes; all lie in the extent.
        stripes: u32,
    } => BytesFound;
    /// Ranges that may hold bytes. Everything else reads as zeros and takes no space.
    108 BytesFound {
        /// The ranges, counted from the start of the first stripe: ascending, no two overlap or touch.
        ranges: Vec<Span>,
    };
    /// Client to brick: which stripes of a range of an object exist? The cost depends on what the brick holds, not on
    /// the length of the range.
    131 FindStripes {
        /// The groups to search, of one volume, each with its epoch.
        groups: Vec<(GroupId, Epoch)>,
        /// If true, the brick must be the primary of all these groups. If false, any brick with a live slot answers
        /// from its own units.
        primary: bool,
        /// The object.
        object: ObjectId,
        /// The first stripe.
        from: u64,
        /// The end: the stripe after the last one.
        to: u64,
    } => StripesFound;
    /// Stripes of which the brick has a unit or an accepted write. The list may have more stripes than these; a
    /// stripe that is not in it reads as zeros and takes no space.
    132 StripesFound {
        /// The stripes, in the form of [`StripeSet::words`](crate::StripeSet::words).
        words: Vec<(u64, u64)>,
        /// The answer covers only stripes below this one.
        upto: u64,
    };
    /// Client to the brick of a data unit: reads a range of the unit. The answer's payload has the bytes.
    104 ReadUnit {
        /// The group of the stripe's extent.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The slot, below K.
        slot: u8,
        /// Start of the range of the unit.
        offset: u32,
        /// Bytes of the range of the unit.
        len: u32,
    } => UnitBytes of len;
    /// The bytes of a range of a unit, as payload. If the payload is shorter than the range, the rest is zeros.
    105 UnitBytes covered by crcs {
        /// Identity of the unit's base: the operation that wrote it, [`Seq::NONE`] if absent.
        identity: Seq,
        /// Checksum of each 4-KiB block of the payload. Empty if they are not known; then the frame has one of the
        /// whole payload.
        crcs: Vec<u32>,
    };
    /// Client to the brick of a slot: stage this unit (the payload). A [`Write`] of the whole stripe follows under
    /// the same number. The frame's epoch is the group's.
    ///
    /// Answered when the brick has the bytes. They are not durable, and the brick drops them after a while.
    106 Stage covered by crcs {
        /// The group of the stripe's extent.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The writer.
        client: ClientId,
        /// The number of its write.
        seq: ClientSeq,
        /// The slot.
        slot: u8,
        /// Checksum of each 4-KiB block of the unit.
        crcs: Vec<u32>,
    } => Done;
    /// A member of a tree of sends.
    part RelayMember {
        /// Its slot.
        slot: u8,
        /// Which member sends it its unit: a place in the list of members, before its own. The first member names itself.
        source: u8,
    }
    /// Client, or member of a group, to a brick: stage your unit and send on those of the members behind you. Answered like
    /// [`Stage`], when all of them have the bytes. The frame's epoch is the group's.
    ///
    /// The payload has the members' units, in the order of the list; if there are more than K members, the K data units, from
    /// which the others are computed.
    134 Relay covered by crcs {
        /// The group of the stripe's extent.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The writer.
        client: ClientId,
        /// The number of its write.
        seq: ClientSeq,
        /// The receiver, then the members behind it.
        members: Vec<RelayMember>,
        /// Checksum of each 4-KiB block of the payload.
        crcs: Vec<u32>,
    } => Done;

    /// A write that was merged into an operation.
    fixed part WriteId {
        /// The writer.
        client: ClientId,
        /// The writer's number.
        seq: ClientSeq,
        /// What it says about the size of its file.
        note: Option<SizeNote>,
    }
    /// The writes of one client that a group has seen, to recognise a repeated one.
    fixed part DedupWindow {
        /// The writer.
        client: ClientId,
        /// The client knows that its writes up to this number are stable, and never repeats them.
        acked: ClientSeq,
        /// Its writes above `acked` that are part of operations.
        seen: Vec<ClientSeq>,
        /// The newest note of each file, at most [`NOTES_MAX`](crate::limits::NOTES_MAX).
        notes: Vec<NumberedNote>,
    }

    /// Primary to slot: prepare this operation. Payload: the unit's new bytes ([`OpKind::Full`]), the ranges' bytes
    /// ([`OpKind::Overlay`]), or the XOR to apply to the touched blocks of a parity unit ([`OpKind::Patch`]; none for
    /// a data slot). Answered when the operation is durable.
    110 Prepare covered by crcs {
        /// The group.
        group: GroupId,
        /// The operation's place in the group's order.
        seq: Seq,
        /// The stripe.
        key: StripeKey,
        /// The slot.
        slot: u8,
        /// What it does.
        kind: OpKind,
        /// Mask of the slots that take part (live or not).
        participants: u64,
        /// For [`OpKind::Overlay`] and [`OpKind::Zero`]: the ranges of this slot, as in [`Write`].
        spans: Vec<Span>,
        /// For [`OpKind::Full`]: 4-KiB blocks of each data unit, 0 for an absent one. Parity is as long as the longest.
        unit_blocks: Vec<u32>,
        /// For [`OpKind::Patch`] to a parity slot: the new identity of every data unit.
        identities: Vec<Seq>,
        /// For [`OpKind::Patch`]: the identity of the slot's base that it changes.
        base: Seq,
        /// The writes that it carries.
        origins: Vec<WriteId>,
        /// The writers' acknowledged numbers.
        acked: Vec<(ClientId, ClientSeq)>,
        /// Every operation of the group up to here is decided.
        decided: Seq,
        /// A client waits for this operation: make it durable at once.
        urgent: bool,
        /// For [`OpKind::Full`]: the unit is staged under the number of the only write in `origins`; there is no
        /// payload.
        staged: bool,
        /// For [`OpKind::Full`]: checksum of each 4-KiB block of the payload.
        crcs: Vec<u32>,
    } => Prepared;
    /// The operation is durable on this slot. Payload of a data slot for [`OpKind::Patch`]: old XOR new of the touched
    /// blocks, in order.
    111 Prepared {
        /// Bytes that the brick can still take, without its reserve.
        free: u64,
        /// Fill of the brick's journal or of its RAM for overlays, whichever is fuller, in per cent.
        journal_fill: u8,
    };
    /// Primary to slot: make all prepared operations durable now.
    112 Flush {} => Prepared;
    /// A group's decisions.
    part GroupDecision {
        /// The group.
        group: GroupId,
        /// Its epoch.
        epoch: Epoch,
        /// Every operation up to here is decided.
        upto: Seq,
    }
    /// Primary to slot: these operations are decided.
    113 Decided {
        /// One entry for each group with new decisions.
        groups: Vec<GroupDecision>,
    } => Done;

    /// Slot to primary: this brick has waited for a while for decisions about operations of these groups. It may have
    /// received them and lost them in a restart.
    124 QueryDecisions {
        /// The brick that asks.
        brick: BrickId,
        /// The groups, with the epochs that it serves.
        groups: Vec<(GroupId, Epoch)>,
    } => Done;

    /// Slot to primary: these stripes have overlays from before the epoch. A primary that is a data slot may not know
    /// these overlays. It checks the stripes and folds them when it next folds.
    130 Unfolded {
        /// The stripes, each with its group, at most [`UNFOLDED_MAX`](crate::limits::UNFOLDED_MAX).
        stripes: Vec<(GroupId, StripeKey)>,
    } => Done;

    /// Take-over, first step. Primary to slot: durably promise to refuse older epochs, and list the undecided
    /// operations.
    114 NewEpoch {
        /// The group.
        group: GroupId,
        /// Its new configuration.
        config: GroupConfig,
        /// The map in which it stands.
        map: MapVersion,
    } => Tail;
    /// An operation that is durable on a slot, and whose decision the slot does not know.
    part PreparedOp {
        /// Its place in the group's order.
        seq: Seq,
        /// The stripe.
        key: StripeKey,
        /// What it does.
        kind: OpKind,
        /// Mask of the slots that take part.
        participants: u64,
        /// The writes that it carries.
        origins: Vec<WriteId>,
    }
    /// The undecided operations of a slot, and what it knows of earlier ones.
    115 Tail {
        /// Every operation up to here is decided.
        decided: Seq,
        /// Prepared operations whose decision the slot does not know.
        held: Vec<PreparedOp>,
        /// Operations aborted by the last take-over that the slot saw complete. Other slots may not know of these
        /// aborts.
        aborted: Vec<Seq>,
        /// Writes seen, to recognise repeated ones.
        windows: Vec<DedupWindow>,
        /// Bytes that the brick can still take.
        free: u64,
    };
    /// Take-over, second step. Primary to slot: the decisions about all operations before this epoch. Answered when
    /// they are durable; from then on the slot serves the epoch.
    116 Decide {
        /// The group.
        group: GroupId,
        /// Everything up to here is committed, except the aborted.
        upto: Seq,
        /// Aborted operations.
        aborted: Vec<Seq>,
        /// Writes seen by any slot.
        windows: Vec<DedupWindow>,
    } => Done;
    /// Primary to slot: reads a range of a unit for the primary's own use. The answer's payload has the bytes.
    117 ReadBase {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The slot.
        slot: u8,
        /// Start of the range of the unit.
        offset: u32,
        /// Bytes of the range of the unit.
        len: u32,
        /// Reads the base with this identity, without overlays; if [`None`], the newest decided bytes.
        identity: Option<Seq>,
        /// Every operation of the group up to here is decided.
        upto: Seq,
        /// Operations on this stripe above `upto` that are decided.
        decided: Vec<Seq>,
    } => UnitBytes of len;

    /// Metadata service to brick: delete these objects, at most [`PURGE_MAX`](crate::limits::PURGE_MAX). The brick
    /// answers after a bounded time, even if it is not finished.
    120 Purge {
        /// The objects.
        objects: Vec<ObjectId>,
    } => Purged;
    /// The deletions so far are durable.
    133 Purged {
        /// Objects of which the brick still has units: ask again.
        left: Vec<ObjectId>,
    };
    /// Metadata service to brick: refuse the writes of these clients from now on. `Done` when every write of theirs
    /// that this brick had accepted as a primary is committed or given up. `Busy` before that: ask again.
    123 Fence {
        /// The fenced clients.
        fences: Fences,
        /// Every brick that is Up has fenced them, so the brick may forget which of their writes it has seen.
        everywhere: bool,
    } => Done;
}

impl Span {
    /// The range.
    pub fn range(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.len as usize
    }
}

/// Bytes of spans that came over the wire. `None` unless there are 1 to [`SPANS_MAX`] spans, none is empty, they
/// ascend without overlapping or touching, and they end within `end`.
pub fn spans_len(spans: &[Span], end: usize) -> Option<usize> {
    let ascending = spans.windows(2).all(|pair| pair[0].range().end < pair[1].range().start);
    let within = spans.last().is_some_and(|last| last.range().end <= end);
    let sound = ascending && within && spans.len() <= SPANS_MAX && spans.iter().all(|span| span.len > 0);
    sound.then(|| spans.iter().map(|span| span.len as usize).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_ascend_apart() {
        let len = |spans: &[(u32, u32)]| {
            let spans: Vec<Span> = spans.iter().map(|&(offset, len)| Span { offset, len }).collect();
            spans_len(&spans, 100)
        };
        assert_eq!(len(&[(0, 10), (11, 89)]), Some(99));
        assert_eq!(len(&[]), None);
        assert_eq!(len(&[(0, 0)]), None, "empty");
        assert_eq!(len(&[(0, 10), (10, 5)]), None, "touching");
        assert_eq!(len(&[(20, 10), (0, 5)]), None, "descending");
        assert_eq!(len(&[(90, 11)]), None, "beyond the end");
        assert_eq!(len(&[(u32::MAX, u32::MAX)]), None);
    }
}
