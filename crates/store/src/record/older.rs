//! Records as builds wrote them whose writes had no notes. They are read, and never written.

use types::messages::brick::{self, OpKind, Span};
use types::{ClientId, ClientSeq, Epoch, GroupId, Seq, StripeKey, records};

use crate::record;
use crate::space::Run;

records! {
    /// A write that was merged into an operation.
    part WriteId {
        /// The writer.
        client: ClientId,
        /// The writer's number.
        seq: ClientSeq,
    }
    /// The writes of one client that a group has seen.
    part DedupWindow {
        /// The writer.
        client: ClientId,
        /// The client never repeats its writes up to this number.
        acked: ClientSeq,
        /// Its writes above that.
        seen: Vec<ClientSeq>,
    }
    /// See [`record::PrepareRecord`].
    1 Prepare {
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
        /// Ranges of the stripe.
        spans: Vec<Span>,
        /// Identity of the base that a patch changes.
        base: Seq,
        /// Blocks of this unit.
        blocks: u32,
        /// Blocks of every data unit.
        unit_blocks: Vec<u32>,
        /// Identity of every data unit.
        identities: Vec<Seq>,
        /// Where this unit's bytes lie.
        runs: Vec<Run>,
        /// The part of `runs` that was freshly allocated.
        fresh: Vec<Run>,
        /// Checksum of every block or range.
        crcs: Vec<u32>,
        /// The writes that it carries.
        origins: Vec<WriteId>,
        /// The writers' acknowledged numbers.
        acked: Vec<(ClientId, ClientSeq)>,
    };
    /// See [`record::Settle`].
    4 Settle {
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
    /// See [`record::Snapshot`].
    5 Snapshot {
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
}

fn windows_of(old: Vec<DedupWindow>) -> Vec<brick::DedupWindow> {
    let window =
        |DedupWindow { client, acked, seen }| brick::DedupWindow { client, acked, seen, notes: Vec::new() };
    old.into_iter().map(window).collect()
}

impl From<Prepare> for record::PrepareRecord {
    fn from(old: Prepare) -> record::PrepareRecord {
        let write = |WriteId { client, seq }| brick::WriteId { client, seq, note: None };
        record::PrepareRecord {
            group: old.group,
            seq: old.seq,
            key: old.key,
            slot: old.slot,
            kind: old.kind,
            participants: old.participants,
            spans: old.spans,
            base: old.base,
            blocks: old.blocks,
            unit_blocks: old.unit_blocks,
            identities: old.identities,
            runs: old.runs,
            fresh: old.fresh,
            crcs: old.crcs,
            origins: old.origins.into_iter().map(write).collect(),
            acked: old.acked,
        }
    }
}

impl From<Settle> for record::Settle {
    fn from(old: Settle) -> record::Settle {
        let Settle { group, epoch, upto, aborted, windows } = old;
        record::Settle { group, epoch, upto, aborted, windows: windows_of(windows) }
    }
}

impl From<Snapshot> for record::Snapshot {
    fn from(old: Snapshot) -> record::Snapshot {
        let Snapshot { group, promised, served, decided, aborted, windows } = old;
        record::Snapshot { group, promised, served, decided, aborted, windows: windows_of(windows) }
    }
}
