//! The messages of the product around units, by their bytes.

use types::messages::Done;
use types::messages::brick::{OpKind, Prepare, Prepared, ReadUnit, Span, Stage, UnitBytes, Write, WriteId};
use types::wire::{Codec, HEADER_LEN, to_bytes};
use types::{ClientId, ClientSeq, Code, GroupId, ObjectId, Seq, StripeKey, VolumeId};

/// Bytes of a block, each of which has a checksum in the message with its unit.
const BLOCK: u64 = types::limits::BLOCK as u64;

/// A message, without the bytes of its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A unit from the client.
    Stage,
    /// A stripe for its primary, or that its units are staged. Its units share one message, which is counted with the first.
    Write,
    /// A data unit of such a stripe, which has no message of its own.
    Further,
    /// A unit from the primary.
    Prepare,
    /// That a staged unit is taken: from the primary, too.
    Take,
    /// The answer to these two.
    Prepared,
    /// The client wants a unit.
    ReadUnit,
    /// It comes.
    UnitBytes,
    /// Any other answer.
    Done,
}

impl Message {
    /// Its bytes, with the header of its frame, for units of a length.
    pub(crate) fn bytes(self, code: Code, unit: u64) -> u64 {
        let (group, key) =
            (GroupId { volume: VolumeId(1), index: 0 }, StripeKey { object: ObjectId(1), stripe: 0 });
        let (client, seq, slot) = (ClientId(1), ClientSeq(1), 0);
        let crcs = vec![0; unit.div_ceil(BLOCK) as usize];
        let prepare = |staged: bool, crcs| Prepare {
            group,
            seq: Seq(1),
            key,
            slot,
            kind: OpKind::Full,
            participants: 0,
            spans: Vec::new(),
            unit_blocks: vec![0; code.k()],
            identities: Vec::new(),
            base: Seq(0),
            origins: vec![WriteId { client, seq, note: None }],
            acked: vec![(client, seq)],
            decided: Seq(0),
            urgent: false,
            staged,
            crcs,
        };
        match self {
            Message::Stage => framed(&Stage { group, key, client, seq, slot, crcs }),
            Message::Write => framed(&Write {
                group,
                key,
                client,
                seq,
                acked: seq,
                spans: vec![Span { offset: 0, len: 0 }],
                zero: false,
                stable: false,
                staged: true,
                note: None,
            }),
            Message::Further => 0,
            Message::Prepare => framed(&prepare(false, crcs)),
            Message::Take => framed(&prepare(true, Vec::new())),
            Message::Prepared => framed(&Prepared { free: 0, journal_fill: 0 }),
            Message::ReadUnit => framed(&ReadUnit { group, key, slot, offset: 0, len: 0 }),
            Message::UnitBytes => framed(&UnitBytes { identity: Seq(1), crcs }),
            Message::Done => framed(&Done {}),
        }
    }
}

fn framed(record: &impl Codec) -> u64 {
    (HEADER_LEN + to_bytes(record).len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_have_a_checksum_for_each_block() {
        let code: Code = "8+2".parse().expect("a code");
        let bytes = |message: Message, unit| message.bytes(code, unit);
        assert_eq!(bytes(Message::Done, 4096), HEADER_LEN as u64);
        for message in [Message::Stage, Message::Prepare, Message::UnitBytes] {
            assert_eq!(bytes(message, 64 << 10) - bytes(message, 4096), 15 * 4, "{message:?}");
        }
        for message in [Message::Write, Message::Take, Message::Prepared, Message::ReadUnit] {
            assert_eq!(bytes(message, 64 << 10), bytes(message, 4096));
            assert!((HEADER_LEN as u64 + 8..300).contains(&bytes(message, 4096)), "{message:?}");
        }
    }
}
