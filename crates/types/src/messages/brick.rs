//! What a brick is asked: by clients, by primaries, and by the metadata service.
//!
//! The frame's `epoch` is the epoch of the group in question. `offset` and `len` count bytes of a stripe's data
//! unless a line says "of the unit".

use std::ops::Range;

use super::cluster::{Fences, GroupConfig};
use super::{Done, LongTurn};
use crate::limits::SPANS_MAX;
use crate::{
    BrickId, ClientId, ClientSeq, ClusterId, Epoch, GroupId, Incarnation, MapVersion, ObjectId, Seq,
    StripeKey,
};
use crate::{coded_enum, records};

coded_enum! {
    /// What an operation does to a stripe.
    pub enum OpKind: u8 {
        /// Replaces every unit of the stripe; units that the record gives no block are absent (zeros).
        Full = 1,
        /// Lays bytes over ranges.
        Overlay = 2,
        /// Lays zeros over ranges; carries no payload.
        Zero = 3,
        /// Makes overlays part of the units that they touch, block by block; parity follows. Changes no content.
        Patch = 4,
    }
}

records! {
    names REQUESTS;
    /// A range of a stripe's data.
    part Span {
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
        /// Every write of this client up to here is known to it as stable.
        acked: ClientSeq,
        /// The ranges, at most [`SPANS_MAX`]: ascending, no two overlap or touch.
        spans: Vec<Span>,
        /// Zeros instead of a payload.
        zero: bool,
        /// Answer only when this write, and every earlier one of the client to this group, is stable.
        stable: bool,
        /// The whole stripe, its units staged on every live slot ([`Stage`]): no payload.
        staged: bool,
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
    /// Client to primary: reads a range of a stripe, decoding what is missing. The payload answers.
    102 ReadStripe {
        /// The group of the stripe's extent.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// Start of the range.
        offset: u32,
        /// Bytes of the range.
        len: u32,
    } => StripeBytes;
    /// The bytes of a range of a stripe, as payload. What the payload lacks of the range is zeros.
    103 StripeBytes {
        /// Units that had to be decoded.
        decoded: u32,
    };
    /// Client to primary: which bytes of some stripes in a row may be other than zeros?
    107 FindBytes {
        /// The group of the stripes' extent.
        group: GroupId,
        /// The first stripe.
        key: StripeKey,
        /// How many, none behind the end of the extent.
        stripes: u32,
    } => BytesFound;
    /// Where there may be bytes. Everything else reads as zeros, and takes no space.
    108 BytesFound {
        /// The ranges, counted from the start of the first stripe: ascending, no two overlap or touch.
        ranges: Vec<Span>,
    };
    /// Client to brick: which stripes of a part of an object, however long, exist? The cost is that of what the brick
    /// holds, not that of the range.
    131 FindStripes {
        /// The groups whose stripes are asked for, of one volume, each with its epoch.
        groups: Vec<(GroupId, Epoch)>,
        /// The brick must be the primary of all of them. Else any brick with a live slot tells of its own units.
        primary: bool,
        /// The object.
        object: ObjectId,
        /// The first stripe.
        from: u64,
        /// The stripe behind the last one.
        to: u64,
    } => StripesFound;
    /// Stripes of which the brick has a unit, or a write that it has accepted. Some more may be named; what is not named
    /// reads as zeros and takes no space.
    132 StripesFound {
        /// As [`StripeSet::words`](crate::StripeSet::words).
        words: Vec<(u64, u64)>,
        /// The answer tells of the stripes below this one.
        upto: u64,
    };
    /// Client to the brick of a data unit: reads a range of the unit. The payload answers.
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
    } => UnitBytes;
    /// The bytes of a range of a unit, as payload. What the payload lacks of the range is zeros.
    105 UnitBytes covered by crcs {
        /// Identity of the unit's base: the operation that wrote it, [`Seq::NONE`] if absent.
        identity: Seq,
        /// Checksum of each 4-KiB block of the payload, if they are known; else the frame has one of the whole.
        crcs: Vec<u32>,
    };
    /// Client to the brick of a slot: keep this unit (the payload) for an operation that is about to be ordered: a
    /// [`Write`] of the whole stripe under the same number. The frame's epoch is the group's.
    ///
    /// Answered when the bytes lie on the brick; nothing of it is durable, and after a while it is forgotten.
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

    /// A write that was merged into an operation.
    part WriteId {
        /// The writer.
        client: ClientId,
        /// The writer's number.
        seq: ClientSeq,
    }
    /// What is remembered of one client's writes in one group, to recognise a repeated one.
    part DedupWindow {
        /// The writer.
        client: ClientId,
        /// Up to here the client knows its writes as stable and never repeats them.
        acked: ClientSeq,
        /// Its writes above that are part of operations.
        seen: Vec<ClientSeq>,
    }

    /// Primary to slot: hold this operation durably. Payload: the unit's new bytes ([`OpKind::Full`]), the ranges'
    /// bytes ([`OpKind::Overlay`]), or what the touched blocks of a parity unit change by ([`OpKind::Patch`]; a data
    /// slot needs none). Answered when durable.
    110 Prepare covered by crcs {
        /// The group.
        group: GroupId,
        /// The operation's place in the group's order.
        seq: Seq,
        /// The stripe.
        key: StripeKey,
        /// The slot that is meant.
        slot: u8,
        /// What it does.
        kind: OpKind,
        /// Mask of the slots that take part (live or not).
        participants: u64,
        /// For [`OpKind::Overlay`] and [`OpKind::Zero`]: the ranges that concern this slot, as in [`Write`].
        spans: Vec<Span>,
        /// For [`OpKind::Full`]: 4-KiB blocks of each data unit, 0 for an absent one. Parity is as long as the longest.
        unit_blocks: Vec<u32>,
        /// For [`OpKind::Patch`] to a parity slot: the identity of every data unit from here on.
        identities: Vec<Seq>,
        /// For [`OpKind::Patch`]: the identity of this slot's base, which it changes.
        base: Seq,
        /// The writes that it carries.
        origins: Vec<WriteId>,
        /// The writers' acknowledged numbers.
        acked: Vec<(ClientId, ClientSeq)>,
        /// Every operation of the group up to here is decided.
        decided: Seq,
        /// Somebody waits: make it durable at once.
        urgent: bool,
        /// For [`OpKind::Full`]: the unit is the one that was staged under the number of the one write that this carries;
        /// no payload.
        staged: bool,
        /// For [`OpKind::Full`]: checksum of each 4-KiB block of the payload.
        crcs: Vec<u32>,
    } => Prepared;
    /// The operation is durable on this slot. Payload of a data slot for [`OpKind::Patch`]: old XOR new of the touched
    /// blocks, in order.
    111 Prepared {
        /// Bytes that the brick can still take, its reserve left out.
        free: u64,
        /// How full the brick's journal is, or its RAM for overlays, in per cent.
        journal_fill: u8,
    };
    /// Primary to slot: make everything held so far durable now.
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
    /// Primary to slot: these decisions have been taken.
    113 Decided {
        /// One for each group with news.
        groups: Vec<GroupDecision>,
    } => Done;

    /// Slot to primary: this brick has held operations of these groups for a while and not heard what became of them. It
    /// may have been told, and have forgotten that in a restart.
    124 QueryDecisions {
        /// The brick that asks.
        brick: BrickId,
        /// The groups, with the epochs that it serves.
        groups: Vec<(GroupId, Epoch)>,
    } => Done;

    /// Slot to primary: these stripes have overlays from before the epoch. A primary that is a data slot may not know of
    /// them: it looks, and folds them when it folds.
    130 Unfolded {
        /// The stripes, each with its group, at most [`UNFOLDED_MAX`](crate::limits::UNFOLDED_MAX).
        stripes: Vec<(GroupId, StripeKey)>,
    } => Done;

    /// Take-over, first step. Primary to slot: promise this epoch durably, refuse older ones, and tell what you hold.
    114 NewEpoch {
        /// The group.
        group: GroupId,
        /// Its new configuration.
        config: GroupConfig,
        /// The map in which it stands.
        map: MapVersion,
    } => Tail;
    /// An operation that a slot holds durably without knowing its decision.
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
    /// What a slot holds.
    115 Tail {
        /// Every operation up to here is decided.
        decided: Seq,
        /// Operations whose decision is not known.
        held: Vec<PreparedOp>,
        /// Operations that the last take-over whose end is known aborted: others may not have been told.
        aborted: Vec<Seq>,
        /// Writes seen, to recognise repeated ones.
        windows: Vec<DedupWindow>,
        /// Bytes that the brick can still take.
        free: u64,
    };
    /// Take-over, second step. Primary to slot: the fate of everything before this epoch. Answered when durable;
    /// from then on the slot serves the epoch.
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
    /// Primary to slot: reads a range of a unit for the primary's own use. The payload answers.
    117 ReadBase {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The slot that is meant.
        slot: u8,
        /// Start of the range of the unit.
        offset: u32,
        /// Bytes of the range of the unit.
        len: u32,
        /// The base with this identity, without overlays; or the newest decided bytes if [`None`].
        identity: Option<Seq>,
        /// Every operation of the group up to here is decided.
        upto: Seq,
        /// Operations on this stripe above that are decided.
        decided: Vec<Seq>,
    } => UnitBytes;

    /// What a slot knows of a stripe's unit: of its own, or of another slot's.
    part UnitState {
        /// The stripe.
        key: StripeKey,
        /// Identity of the unit's base, [`Seq::NONE`] if there is none.
        base: Seq,
        /// Its 4-KiB blocks, 0 if it is zeros.
        blocks: u32,
        /// Overlays lie over the unit, or something undecided does.
        dirty: bool,
    }
    /// Primary to slot: the units of a group, as the slot knows them, in the order of their keys.
    118 UnitList {
        /// The group.
        group: GroupId,
        /// The slot that is asked.
        slot: u8,
        /// The slot whose units are told: its own; or, of a parity slot, that of a data unit that it encodes.
        of: u8,
        /// Only keys above this one; all for [`None`].
        after: Option<StripeKey>,
        /// At most so many.
        limit: u32,
        /// Instead of all that: these stripes.
        only: Vec<StripeKey>,
        /// Every operation of the group up to here is decided.
        decided: Seq,
    } => UnitPage;
    /// Units of a group, each as it was at some moment since the page was asked for.
    119 UnitPage {
        /// The units, ascending. Stripes of which the slot knows nothing are left out.
        units: Vec<UnitState>,
        /// The page ends with this key, and there may be more above it; [`None`]: nothing is.
        upto: Option<StripeKey>,
        /// About so many units are above the page, if it is the first one; 0 of others, which do not count them.
        above: u64,
        /// This life of the brick's server.
        incarnation: Incarnation,
    };
    /// Primary to a slot that is brought level: this is your unit of the stripe, whatever you have. The payload is the
    /// unit's base; there is none for an absent unit. Answered when durable.
    125 Fill covered by crcs {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The slot that is meant.
        slot: u8,
        /// Identity of the base, [`Seq::NONE`] to forget the unit.
        base: Seq,
        /// 4-KiB blocks of each data unit, as in [`Prepare`].
        unit_blocks: Vec<u32>,
        /// For a parity slot: the identity of every data unit that it encodes.
        identities: Vec<Seq>,
        /// Every operation of the group up to here is decided; that which wrote the base is one of them.
        decided: Seq,
        /// Checksum of each 4-KiB block of the payload.
        crcs: Vec<u32>,
    } => Prepared;
    /// Anybody to primary: read units again, encode them again, compare. Works through a group page by page.
    126 Verify {
        /// The group.
        group: GroupId,
        /// Only stripes above this one; all for [`None`].
        after: Option<StripeKey>,
        /// At most so many stripes.
        limit: u32,
    } => Verified;
    /// A stripe that is not as it should be.
    part StripeFault {
        /// The stripe.
        key: StripeKey,
        /// Mask of the slots at fault.
        slots: u64,
    }
    /// A page of stripes was compared.
    127 Verified {
        /// Stripes looked at.
        stripes: u64,
        /// Stripes whose parity or overlays are not what their data units give, or with identities that do not fit. Where
        /// units contradict each other, the slots are those that differ from what the first ones give.
        mismatched: Vec<StripeFault>,
        /// Stripes with a unit that cannot be read.
        damaged: Vec<StripeFault>,
        /// The last stripe of the page, if there are more above it.
        next: Option<StripeKey>,
    };
    /// Primary to slot: what lies over a data unit, as the slot has it. The frame's epoch is the group's.
    128 ReadOverlays {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The slot that is asked: of the data unit, or of parity.
        slot: u8,
        /// The data unit.
        of: u8,
    } => OverlayBytes;
    /// The bytes over a data unit, as payload.
    129 OverlayBytes {
        /// The ranges of the unit that they cover, ascending.
        spans: Vec<Span>,
    };

    /// Metadata service to brick: forget these objects, at most [`PURGE_MAX`](crate::limits::PURGE_MAX). The answer comes
    /// after a while, whether all is done or not.
    120 Purge {
        /// The objects.
        objects: Vec<ObjectId>,
    } => Purged;
    /// What is done of a purge is durable.
    133 Purged {
        /// Objects that the brick still has units of: ask again.
        left: Vec<ObjectId>,
    };
    /// Metadata service to brick: refuse these clients' writes from now on. Answered when nothing of theirs is left that
    /// this brick, as a primary, had accepted: it is committed or given up. `Busy` before that: ask again.
    123 Fence {
        /// The clients.
        fences: Fences,
        /// Every brick that is Up has fenced them: what is remembered of their writes is of no use any more.
        everywhere: bool,
    } => Done;
    /// A slot that its group's primary brings level.
    part JoinReport {
        /// The group.
        group: GroupId,
        /// The slot.
        slot: u8,
        /// Its brick.
        brick: BrickId,
        /// Stripes of the group, as far as they were counted.
        stripes: u64,
        /// Stripes compared.
        compared: u64,
        /// Units written to the slot.
        filled: u64,
        /// Bytes of these.
        bytes: u64,
        /// For how long it has been going on, in microseconds.
        age: u64,
    }
    /// Anybody to brick: how are you?
    121 BrickStatus {} => BrickReport;
    /// The brick's account of itself.
    122 BrickReport {
        /// The brick.
        brick: BrickId,
        /// Its cluster.
        cluster: ClusterId,
        /// The process.
        pid: u32,
        /// Path or URL of its disk.
        disk: String,
        /// Bytes that units can take.
        capacity: u64,
        /// Bytes free.
        free: u64,
        /// Units held.
        units: u64,
        /// Overlays not yet folded.
        overlays: u64,
        /// Units decoded for reads since the start.
        decoded: u64,
        /// Blocks that did not match their checksum since the start.
        damaged: u64,
        /// Operations ordered as primary since the start.
        ordered: u64,
        /// Stripes folded as primary since the start, written whole.
        folded: u64,
        /// Stripes folded as primary since the start, only the touched blocks of them.
        patched: u64,
        /// Groups served as primary.
        primary_of: Vec<GroupId>,
        /// Slots that this brick brings level as their groups' primary.
        joining: Vec<JoinReport>,
        /// Resident memory of the process, in bytes.
        memory: u64,
        /// The process's memory budget, in bytes.
        memory_budget: u64,
        /// The longest turns of its tasks, the longest first; one of each kind.
        turns: Vec<LongTurn>,
    };
}

impl Span {
    /// The range.
    pub fn range(&self) -> Range<usize> {
        self.offset as usize..self.offset as usize + self.len as usize
    }
}

/// Bytes of spans that came over the wire. `None` unless they are at least one and at most
/// [`SPANS_MAX`], none is empty, they ascend without overlapping or touching, and they end
/// within `end`.
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
