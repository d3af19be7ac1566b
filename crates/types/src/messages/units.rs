//! Units as slots compare, sum and fill them.

use super::brick::{Prepared, Span};
use crate::{GroupId, Incarnation, Seq, StripeKey, records};

records! {
    names REQUESTS;
    /// A term of a sum: a slot's unit, each byte times a factor in GF(2^8).
    part SumTerm {
        /// The slot.
        slot: u8,
        /// Identity of the unit's base.
        identity: Seq,
        /// The factor.
        factor: u8,
    }
    /// Primary to slot, and from there on: add up a range of the bases of several slots, of which the first one is the
    /// receiver's. It asks the second one for the sum of all others, and adds its own.
    137 SumUnits {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// Start of the range of the units.
        offset: u32,
        /// Bytes of the range of the units.
        len: u32,
        /// The terms, at most K, in the order in which they are asked.
        terms: Vec<SumTerm>,
        /// Every operation of the group up to here is decided.
        upto: Seq,
        /// Operations on this stripe above `upto` that are decided.
        decided: Vec<Seq>,
    } => UnitSum of len;
    /// The payload is the sum, without the zeros of units that end before the range does.
    138 UnitSum {};

    /// What a slot knows about a unit of a stripe: its own, or that of another slot.
    part UnitState {
        /// The stripe.
        key: StripeKey,
        /// Identity of the unit's base, [`Seq::NONE`] if there is none.
        base: Seq,
        /// Its 4-KiB blocks, 0 if it is zeros.
        blocks: u32,
        /// The unit has overlays or an undecided operation.
        dirty: bool,
    }
    /// Primary to slot: list the units of a group, as the slot knows them, in the order of their keys.
    118 UnitList {
        /// The group.
        group: GroupId,
        /// The slot that is asked.
        slot: u8,
        /// The slot whose units are listed: the asked slot itself, or (if that is a parity slot) a data slot.
        of: u8,
        /// Lists only keys above this one; all for [`None`].
        after: Option<StripeKey>,
        /// Most units in the answer.
        limit: u32,
        /// If not empty: lists just these stripes.
        only: Vec<StripeKey>,
        /// Every operation of the group up to here is decided.
        decided: Seq,
    } => UnitPage;
    /// Units of a group, each in its state at some moment after the request.
    119 UnitPage {
        /// The units, ascending, without stripes that the slot does not know.
        units: Vec<UnitState>,
        /// The page ends with this key, and more may follow; [`None`] on the last page.
        upto: Option<StripeKey>,
        /// On the first page, about how many units follow it; 0 on other pages, which do not count them.
        above: u64,
        /// This run of the brick's server.
        incarnation: Incarnation,
    };
    /// Primary to a slot that it brings level: replace your unit of the stripe by this one. The payload is the unit's
    /// base; there is none for an absent unit. Answered when durable.
    125 Fill covered by crcs {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The slot.
        slot: u8,
        /// Identity of the base, [`Seq::NONE`] to delete the unit.
        base: Seq,
        /// 4-KiB blocks of each data unit, as in [`Prepare`](super::brick::Prepare).
        unit_blocks: Vec<u32>,
        /// For a parity slot: the identity of every data unit that it encodes.
        identities: Vec<Seq>,
        /// Every operation of the group up to here is decided, including the one that wrote the base.
        decided: Seq,
        /// Checksum of each 4-KiB block of the payload.
        crcs: Vec<u32>,
    } => Prepared;
    /// Any process to primary: read the units of some stripes, encode them again and compare. A caller verifies a
    /// group page by page.
    126 Verify {
        /// The group.
        group: GroupId,
        /// Verifies only stripes above this one; all for [`None`].
        after: Option<StripeKey>,
        /// Most stripes to verify.
        limit: u32,
    } => Verified;
    /// A faulty stripe.
    part StripeFault {
        /// The stripe.
        key: StripeKey,
        /// Mask of the slots at fault.
        slots: u64,
    }
    /// The result for a page of stripes.
    127 Verified {
        /// Number of stripes verified.
        stripes: u64,
        /// Stripes whose parity or overlays do not match their data units, or whose identities do not match. If units
        /// contradict each other, the mask has the slots that do not match the first units.
        mismatched: Vec<StripeFault>,
        /// Stripes with a unit that cannot be read.
        damaged: Vec<StripeFault>,
        /// The last stripe of the page, if there are more above it.
        next: Option<StripeKey>,
    };
    /// Primary to slot: reads the overlays of a data unit that the slot has. The frame's epoch is the group's.
    128 ReadOverlays {
        /// The group.
        group: GroupId,
        /// The stripe.
        key: StripeKey,
        /// The asked slot: that of the data unit, or a parity slot.
        slot: u8,
        /// The data unit.
        of: u8,
    } => OverlayBytes;
    /// The bytes of a data unit's overlays, as payload.
    129 OverlayBytes {
        /// The ranges of the unit that the overlays cover, ascending.
        spans: Vec<Span>,
    };
}
