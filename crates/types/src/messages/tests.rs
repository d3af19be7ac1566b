//! Messages keep their bytes on the wire, and no bytes panic a decoder: every message is compared with a golden file,
//! then random bytes and damaged messages are decoded.

use super::{
    Done, Refused, brick::*, cluster::*, names::*, notes::*, proxy::*, queue::*, recovery::*, replica::*,
    session::*,
};
use crate::wire::{Forms, Record, at_head_of, check_document, from_bytes, to_bytes};
use proptest::prelude::*;
use std::fmt::Write as _;

/// Calls a macro with every record.
macro_rules! for_each_record {
    ($call:ident) => {
        $call!(
            Done,
            Refused,
            Hello,
            Welcome,
            Prove,
            Proved,
            Vote,
            Voted,
            Append,
            Appended,
            Install,
            MetaJoin,
            MetaJoined,
            MetaRemove,
            MetaRemoved,
            MetaStatus,
            MetaReport,
            MetaScan,
            MetaScanned,
            MetaRepair,
            MetaRepaired,
            Grant,
            Piece,
            NetProbe,
            NetProbed,
            Write,
            Sync,
            ReadStripe,
            StripeBytes,
            FindBytes,
            BytesFound,
            FindStripes,
            StripesFound,
            ReadUnit,
            UnitBytes,
            Stage,
            Prepare,
            Prepared,
            Flush,
            Decided,
            QueryDecisions,
            Unfolded,
            NewEpoch,
            Tail,
            Decide,
            ReadBase,
            SumUnits,
            UnitSum,
            RecoverGroups,
            GroupsRecovered,
            UnitList,
            UnitPage,
            Fill,
            Verify,
            Verified,
            ReadOverlays,
            OverlayBytes,
            Purge,
            Purged,
            Fence,
            BrickStatus,
            BrickReport,
            BrickTune,
            QueueReport,
            MapGet,
            MapReply,
            BrickJoin,
            BrickJoined,
            BrickHeartbeat,
            HeartbeatReply,
            GroupRenew,
            GroupAdmit,
            BrickReplace,
            BrickReplaced,
            ClientJoin,
            ClientJoined,
            ClientPoll,
            ClientPollReply,
            RecallAck,
            Quiesced,
            ClientLeave,
            VolumeCreate,
            VolumeGrow,
            VolumeTune,
            VolumeReply,
            VolumeDelete,
            ClusterStatus,
            ClusterReport,
            Lookup,
            AttrReply,
            GetAttr,
            SetAttr,
            Create,
            Created,
            Mkdir,
            Linked,
            Symlink,
            ReadLink,
            LinkTarget,
            Link,
            Unlink,
            Unlinked,
            Rmdir,
            Rename,
            Renamed,
            ReadDir,
            ReadDirFrom,
            DirEntries,
            StatFs,
            Space,
            Open,
            Opened,
            Release,
            UpdateSizes,
            UpdateSizesReply,
            ZeroBegin,
            ZeroBeginReply,
            Zeroed,
            Retract,
            Accessed,
            CreateTemporary,
            SwapObjects,
            VolumeAddTier,
            TopologySet,
            Relay,
            NotesGet,
            Notes,
            ShardAdd,
            ShardAdded,
            ShardAnnounce,
            ShardAnnounced,
            ShardFind,
            ShardFound,
            ShardRemove,
            ShardServers,
            ShardStatus,
            ShardReport,
            MetaLead,
            MetaLed,
            TermEnded,
            Proxy,
            Proxied
        )
    };
}

fn golden_line<R: Record + PartialEq>() -> String {
    let mut n = 0;
    let record = R::sample(&mut n);
    let bytes = to_bytes(&record);
    assert_eq!(from_bytes::<R>(&bytes), Ok(record), "{} survives a round trip", R::NAME);
    for cut in 0..bytes.len() {
        assert!(from_bytes::<R>(&bytes[..cut]).is_err(), "{} cut at {cut} is refused", R::NAME);
    }
    let mut line = format!("{} {} ", R::KIND, R::NAME);
    bytes.iter().for_each(|byte| write!(line, "{byte:02x}").expect("writing to a string"));
    line
}

#[test]
fn golden_bytes_of_every_message() {
    let mut lines = Vec::new();
    macro_rules! collect { ($($record:ident),*) => { $(lines.push(golden_line::<$record>());)* }; }
    for_each_record!(collect);
    let kinds: std::collections::BTreeSet<_> = lines.iter().map(|l| l.split(' ').next()).collect();
    assert_eq!(kinds.len(), lines.len(), "no kind is used twice");
    let text = lines.join("\n") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/wire-v24.txt");
    if std::env::var_os("SHOAL_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file exists");
    for (expected, found) in golden.lines().zip(text.lines()) {
        assert_eq!(found, expected, "the wire form of a message changed: that needs a new wire version");
    }
    assert_eq!(golden.lines().count(), lines.len(), "every message has its golden bytes");
}

/// Golden files of all versions since records grow stay in the tree: a later build reads their messages.
#[test]
fn messages_of_every_version_are_read() {
    fn read(kind: u16, bytes: &[u8]) -> Result<(), crate::wire::DecodeError> {
        macro_rules! find { ($($record:ident),*) => { match kind {
            $($record::KIND => from_bytes::<$record>(bytes).map(drop),)*
            _ => panic!("there is no message {kind} any more"),
        } }; }
        for_each_record!(find)
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    let mut count = 0;
    for file in std::fs::read_dir(golden).expect("the directory exists") {
        let text = std::fs::read_to_string(file.expect("readable").path()).expect("text");
        for line in text.lines() {
            let [kind, name, hex] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("a line: {line}")
            };
            let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal");
            let bytes: Vec<u8> = (0..hex.len() / 2).map(byte).collect();
            assert_eq!(read(kind.parse().expect("a number"), &bytes), Ok(()), "{name}");
            count += 1;
        }
    }
    assert!(count > 100);
}

#[test]
fn the_document_of_formats_has_every_message() {
    let mut forms = Forms::default();
    let mut chapters = Vec::new();
    macro_rules! describe { ($($record:ident),*) => { $(chapters.push(forms.chapter::<$record>());)* }; }
    for_each_record!(describe);
    chapters.sort();
    let messages: String = chapters.into_iter().map(|(_, chapter)| chapter).collect();
    check_document(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md"),
        &[
            ("header", &at_head_of(include_str!("../wire/header.rs"))),
            ("messages", &messages),
            ("parts of messages", &forms.chapters()),
        ],
    );
}

proptest! {
    #[test]
    fn no_input_panics_a_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        macro_rules! decode { ($($record:ident),*) => { $(let _ = from_bytes::<$record>(&bytes);)* }; }
        for_each_record!(decode);
    }

    #[test]
    fn no_damaged_message_panics_a_decoder(at in 0usize..400, value in any::<u8>()) {
        macro_rules! damage { ($($record:ident),*) => { $({
            let mut bytes = to_bytes(&<$record as crate::wire::Codec>::sample(&mut 0));
            if let Some(byte) = bytes.get_mut(at) { *byte = value; }
            let _ = from_bytes::<$record>(&bytes);
        })* }; }
        for_each_record!(damage);
    }
}
