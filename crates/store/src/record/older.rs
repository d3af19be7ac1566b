//! Records as builds wrote them whose writes had no notes. They are read, and never written.

use types::messages::brick::{self, OpKind, Span};
use types::{ClientId, ClientSeq, Epoch, GroupId, Seq, StripeKey, records};

use crate::record;
use crate::space::Run;

records! {
    /// A write that was merged into an operation.
    fixed part WriteId {
        /// The writer.
        client: ClientId,
        /// The writer's number.
        seq: ClientSeq,
    }
    /// The writes of one client that a group has seen.
    fixed part DedupWindow {
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

#[cfg(test)]
mod tests {
    use types::wire::{Codec, Record, from_bytes, to_bytes};

    use super::*;

    /// What an earlier build has written, as this one reads it. Both forms have the same fields in the same order, but for notes.
    #[test]
    fn records_of_earlier_builds_are_read_as_they_were() {
        let mut n = 0;
        let old = Prepare::sample(&mut n);
        let read: Prepare = from_bytes(&to_bytes(&old)).expect("its own bytes");
        let now = record::PrepareRecord::from(read);
        assert!(!now.origins.is_empty() && now.origins.iter().all(|origin| origin.note.is_none()));
        let origins: Vec<_> = now.origins.iter().map(|origin| (origin.client, origin.seq)).collect();
        assert_eq!(origins, old.origins.iter().map(|origin| (origin.client, origin.seq)).collect::<Vec<_>>());
        assert_eq!((now.group, now.seq, now.key, now.slot), (old.group, old.seq, old.key, old.slot));
        assert_eq!((now.kind, now.participants, &now.spans), (old.kind, old.participants, &old.spans));
        assert_eq!((now.base, now.blocks, &now.unit_blocks), (old.base, old.blocks, &old.unit_blocks));
        assert_eq!((&now.identities, &now.runs, &now.fresh), (&old.identities, &old.runs, &old.fresh));
        assert_eq!((&now.crcs, &now.acked), (&old.crcs, &old.acked));

        let old = Snapshot::sample(&mut n);
        let now = record::Snapshot::from(from_bytes::<Snapshot>(&to_bytes(&old)).expect("its own bytes"));
        assert_eq!((now.group, now.promised, now.served), (old.group, old.promised, old.served));
        assert_eq!((now.decided, &now.aborted), (old.decided, &old.aborted));
        let windows = |windows: &[brick::DedupWindow]| -> Vec<_> {
            windows.iter().map(|window| (window.client, window.acked, window.seen.clone())).collect()
        };
        let before: Vec<_> = old.windows.iter().map(|w| (w.client, w.acked, w.seen.clone())).collect();
        assert!(!before.is_empty() && windows(&now.windows) == before);

        let old = Settle::sample(&mut n);
        let now = record::Settle::from(from_bytes::<Settle>(&to_bytes(&old)).expect("its own bytes"));
        assert_eq!(
            (now.group, now.epoch, now.upto, &now.aborted),
            (old.group, old.epoch, old.upto, &old.aborted)
        );
        let before: Vec<_> = old.windows.iter().map(|w| (w.client, w.acked, w.seen.clone())).collect();
        assert_eq!(windows(&now.windows), before);
        assert_eq!([Prepare::KIND, Settle::KIND, Snapshot::KIND], [1, 4, 5]);
    }
}
