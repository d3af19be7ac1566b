//! The NBD protocol is spoken as its document says, and no bytes of a client cause a panic or an answer without bound:
//! known exchanges are compared, then random ones are tried.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use types::Buf;
use world::nbd::Request;

use super::consts::*;
use super::*;

fn info() -> ExportInfo {
    ExportInfo { name: "vm".to_owned(), read_only: false }
}

fn negotiation() -> Negotiation {
    Negotiation::new(info(), &3u32.to_be_bytes()).expect("known flags")
}

/// Answers to an option: kind and data of each.
fn answers(option: u32, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut rest = bytes;
    let mut answers = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(rest[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        assert_eq!(word(8), option);
        let len = word(16) as usize;
        answers.push((word(12), rest[20..20 + len].to_vec()));
        rest = &rest[20 + len..];
    }
    answers
}

fn kinds(option: u32, step: &Step) -> Vec<u32> {
    let (Step::Answer(bytes) | Step::End(bytes)) = step else { panic!("{step:?}") };
    answers(option, bytes).into_iter().map(|(kind, _)| kind).collect()
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn go(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
    data
}

fn queries(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut data = string(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(string(query)));
    data
}

#[test]
fn the_greeting_is_fixed_newstyle() {
    assert_eq!(&GREETING[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(GREETING[16..], [0, 3]);
    assert!(Negotiation::new(info(), &4u32.to_be_bytes()).is_none());
    assert!(Negotiation::new(info(), &[0, 0]).is_none());
}

#[test]
fn a_client_finds_the_export_and_goes() {
    let mut negotiation = negotiation();
    let listed = negotiation.option(OPT_LIST, b"");
    let Step::Answer(bytes) = &listed else { panic!("{listed:?}") };
    assert_eq!(answers(OPT_LIST, bytes), vec![(REP_SERVER, string(b"vm")), (REP_ACK, vec![])]);
    assert_eq!(kinds(OPT_STRUCTURED_REPLY, &negotiation.option(OPT_STRUCTURED_REPLY, b"")), [REP_ACK]);
    let set = negotiation.option(OPT_SET_META_CONTEXT, &queries(b"", &[b"x:y", b"base:allocation"]));
    assert_eq!(kinds(OPT_SET_META_CONTEXT, &set), [REP_META_CONTEXT, REP_ACK]);
    assert_eq!(negotiation.agreed(), Agreed { structured: true, context: true });

    let step = negotiation.option(OPT_GO, &go(b"vm", &[INFO_NAME, INFO_BLOCK_SIZE, 77]));
    let Step::ExportRequest(ask) = step else { panic!("{step:?}") };
    assert!(ask.enters_transmission());
    let granted = answers(OPT_GO, &negotiation.granted(&ask, 1 << 40));
    let export = [&[0, 0][..], &(1u64 << 40).to_be_bytes(), &0x09ed_u16.to_be_bytes()].concat();
    assert_eq!(granted[0], (REP_INFO, export));
    assert_eq!(granted[1], (REP_INFO, b"\0\x01vm".to_vec()));
    let sizes = [&[0, 3][..], &[1u32, 4096, 32 << 20].map(u32::to_be_bytes).concat()].concat();
    assert_eq!(granted[2], (REP_INFO, sizes));
    assert_eq!(granted[3], (REP_ACK, vec![]));
    let refused = negotiation.refused(&ask, "why").expect("GO has errors");
    assert_eq!(answers(OPT_GO, &refused), vec![(REP_ERR_POLICY, b"why".to_vec())]);
}

#[test]
fn the_oldest_way_to_an_export() {
    for (flags, zeros) in [(3u32, 0), (1, 124), (0, 124)] {
        let mut negotiation = Negotiation::new(info(), &flags.to_be_bytes()).expect("known flags");
        let Step::ExportRequest(ask) = negotiation.option(OPT_EXPORT_NAME, b"vm") else {
            panic!("it is the export")
        };
        let granted = negotiation.granted(&ask, 4096);
        assert_eq!(granted.len(), 10 + zeros);
        // Without structured replies nothing is said of their fragments.
        assert_eq!(granted[..10], [0, 0, 0, 0, 0, 0, 16, 0, 9, 0x6d]);
        assert_eq!(negotiation.refused(&ask, "why"), None);
        assert_eq!(negotiation.option(OPT_EXPORT_NAME, b"other"), Step::End(vec![]));
    }
}

#[test]
fn a_read_only_export_says_so() {
    let info = ExportInfo { read_only: true, ..info() };
    let mut negotiation = Negotiation::new(info, &3u32.to_be_bytes()).expect("known flags");
    let Step::ExportRequest(ask) = negotiation.option(OPT_EXPORT_NAME, b"") else {
        panic!("the empty name is the export's")
    };
    let granted = negotiation.granted(&ask, 1);
    assert_eq!(granted[8..], (HAS_FLAGS | READ_ONLY | SEND_FLUSH | CAN_MULTI_CONN).to_be_bytes());
}

#[test]
fn wrong_options_are_refused_and_nothing_else_happens() {
    let mut negotiation = negotiation();
    let long = vec![b'n'; NAME_MAX + 1];
    let cases: [(u32, Vec<u8>, u32); 12] = [
        (OPT_LIST, vec![1], REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, vec![1], REP_ERR_INVALID),
        (OPT_STARTTLS, vec![], REP_ERR_POLICY),
        (4, vec![], REP_ERR_UNSUP),
        (11, vec![], REP_ERR_UNSUP),
        (OPT_GO, go(b"other", &[]), REP_ERR_UNKNOWN),
        (OPT_INFO, go(&long, &[]), REP_ERR_TOO_BIG),
        (OPT_GO, go(b"vm", &[])[..5].to_vec(), REP_ERR_INVALID),
        (OPT_GO, [go(b"vm", &[]), vec![0]].concat(), REP_ERR_INVALID),
        (OPT_SET_META_CONTEXT, queries(b"vm", &[b"base:allocation"]), REP_ERR_INVALID),
        (OPT_LIST_META_CONTEXT, queries(b"vm", &[]), REP_ERR_INVALID),
        (OPT_LIST_META_CONTEXT, vec![255; 4], REP_ERR_INVALID),
    ];
    for (option, data, error) in cases {
        assert_eq!(kinds(option, &negotiation.option(option, &data)), [error], "{option}");
    }
    assert_eq!(negotiation.agreed(), Agreed { structured: false, context: false });
    negotiation.option(OPT_STRUCTURED_REPLY, b"");
    let unknown = negotiation.option(OPT_SET_META_CONTEXT, &queries(b"other", &[b"base:allocation"]));
    assert_eq!(kinds(OPT_SET_META_CONTEXT, &unknown), [REP_ERR_UNKNOWN]);
    assert!(!negotiation.agreed().context);
    // A name of 4 KiB is looked at.
    assert_eq!(kinds(OPT_GO, &negotiation.option(OPT_GO, &go(&long[1..], &[]))), [REP_ERR_UNKNOWN]);
    assert!(
        option_header(&[&OPTION_MAGIC.to_be_bytes()[..], &[0, 0, 0, 3], &[1, 0, 0, 0]].concat()).is_none()
    );
    for _ in 0..OPTIONS_MAX {
        negotiation.option(OPT_LIST, b"");
    }
    assert!(matches!(negotiation.option(OPT_LIST, b""), Step::End(_)), "a client cannot negotiate for ever");
}

#[test]
fn contexts_are_listed_by_namespace_and_chosen_by_name() {
    let mut negotiation = negotiation();
    negotiation.option(OPT_STRUCTURED_REPLY, b"");
    let found: [(u32, &[&[u8]], usize); 6] = [
        (OPT_LIST_META_CONTEXT, &[], 2),
        (OPT_LIST_META_CONTEXT, &[b"base:"], 2),
        (OPT_LIST_META_CONTEXT, &[b"qemu:"], 1),
        (OPT_SET_META_CONTEXT, &[b"base:allocation"], 2),
        (OPT_SET_META_CONTEXT, &[b"base:"], 1),
        (OPT_SET_META_CONTEXT, &[], 1),
    ];
    for (option, asked, answers) in found {
        let step = negotiation.option(option, &queries(b"vm", asked));
        assert_eq!(kinds(option, &step).len(), answers, "{option} {asked:?}");
    }
    assert!(!negotiation.agreed().context, "the last choice counts");
}

const PARAMS: TransmissionParams =
    TransmissionParams { size: 1 << 20, read_only: false, structured: true, context: true };

fn request(kind: u16, flags: u16, offset: u64, len: u32) -> Request {
    Request { flags, kind, cookie: 9, offset, len }
}

#[test]
fn what_an_export_does_not_allow_has_its_error() {
    let end = PARAMS.size;
    let cases = [
        (request(CMD_READ, 0, end, 1), Err(CODE_INVALID)),
        (request(CMD_READ, 0, u64::MAX, 1), Err(CODE_INVALID)),
        (request(CMD_WRITE, 0, end - 1, 2), Err(CODE_NO_SPACE)),
        (request(CMD_WRITE_ZEROES, 0, end - 1, 2), Err(CODE_NO_SPACE)),
        (request(CMD_TRIM, 0, end - 1, 2), Err(CODE_INVALID)),
        (request(CMD_BLOCK_STATUS, 0, 0, 0), Err(CODE_INVALID)),
        (request(CMD_FLUSH, 0, 1, 0), Err(CODE_INVALID)),
        (request(CMD_READ, FLAG_REQ_ONE, 0, 1), Err(CODE_INVALID)),
        (request(CMD_WRITE, FLAG_FAST_ZERO, 0, 1), Err(CODE_INVALID)),
        (request(5, 0, 0, 1), Err(CODE_INVALID)),
        (request(99, 0, 0, 1), Err(CODE_INVALID)),
        (request(CMD_READ, FLAG_DF | FLAG_FUA, end - 1, 1), Ok(Command::Read)),
        (request(CMD_READ, 0, end, 0), Ok(Command::Read)),
        (request(CMD_WRITE_ZEROES, FLAG_NO_HOLE | FLAG_FAST_ZERO, 0, 1 << 20), Ok(Command::Zero)),
        (request(CMD_BLOCK_STATUS, FLAG_REQ_ONE, 0, 1), Ok(Command::BlockStatus { one: true })),
        (request(CMD_FLUSH, FLAG_FUA, 0, 0), Ok(Command::Flush)),
    ];
    for (request, right) in cases {
        assert_eq!(PARAMS.check(&request).map(|job| job.command), right, "{request:?}");
    }
    assert!(PARAMS.check(&request(CMD_WRITE, FLAG_FUA, 0, 1)).expect("sound").stable);
    assert_eq!(request(CMD_WRITE, 0, 0, REQUEST_MAX + 1).payload(), None);
    assert_eq!(request(CMD_WRITE, 0, 0, REQUEST_MAX).payload(), Some(REQUEST_MAX as usize));
    assert_eq!(request(CMD_TRIM, 0, 0, u32::MAX).payload(), Some(0));
    let read_only = TransmissionParams { read_only: true, ..PARAMS };
    for kind in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
        assert_eq!(read_only.check(&request(kind, 0, 0, 1)), Err(CODE_NOT_PERMITTED));
    }
    let plain = TransmissionParams { structured: false, context: false, ..PARAMS };
    assert_eq!(plain.check(&request(CMD_READ, FLAG_DF, 0, 1)), Err(CODE_INVALID));
    assert_eq!(plain.check(&request(CMD_BLOCK_STATUS, 0, 0, 1)), Err(CODE_INVALID));
    let large = TransmissionParams { size: 1 << 40, ..PARAMS };
    assert_eq!(large.check(&request(CMD_READ, 0, 0, REQUEST_MAX + 1)), Err(CODE_INVALID));
}

#[test]
fn replies_are_as_the_client_expects_them() {
    let (simple, structured) = (Replies { structured: false }, Replies { structured: true });
    let hex = |reply: &Reply| reply.head.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&simple.done(9)), "67446698000000000000000000000009");
    assert_eq!(hex(&simple.error(9, 28)), "674466980000001c0000000000000009");
    assert_eq!(hex(&structured.done(9)), "668e33ef00010000000000000000000900000000");
    let error = "668e33ef00018001000000000000000900000006000000050000";
    assert_eq!(hex(&structured.error(9, 5)), error);
    let bytes = Buf::copy_of(b"abc");
    assert_eq!(simple.read(9, 7, bytes.clone()), Reply { head: simple.done(9).head, body: bytes.clone() });
    let read = structured.read(9, 7, bytes.clone());
    assert_eq!(hex(&read), "668e33ef0001000100000000000000090000000b0000000000000007");
    assert_eq!(read.body, bytes);
    let hole = structured.read(9, 7, Buf::copy_of(&[0; 100]));
    assert_eq!(hex(&hole), "668e33ef0001000200000000000000090000000c000000000000000700000064");
    assert_eq!(structured.read(9, 7, Buf::empty()), structured.done(9));
}

/// Lengths and states of a reply about blocks.
fn descriptors(reply: &Reply) -> Vec<(u64, u32)> {
    let words: Vec<u32> =
        reply.head[20..].as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    assert_eq!(words[0], CONTEXT_ID);
    words[1..].chunks(2).map(|pair| (pair[0].into(), pair[1])).collect()
}

#[test]
fn block_status_tells_holes_from_data() {
    let replies = Replies { structured: true };
    let status = |range: Range<u64>, found: &[Range<u64>], one| {
        descriptors(&replies.block_status(1, &range, found, one))
    };
    assert_eq!(status(10..100, &[], false), [(90, 3)]);
    let (all, some) = (10..100, 20..30);
    assert_eq!(status(10..100, std::slice::from_ref(&all), false), [(90, 0)]);
    assert_eq!(status(10..100, &[20..30, 90..100], false), [(10, 3), (10, 0), (60, 3), (10, 0)]);
    assert_eq!(status(10..100, std::slice::from_ref(&some), true), [(10, 3)]);
    let all = 0..u64::from(u32::MAX);
    assert_eq!(status(all, &[], false), [(u64::from(u32::MAX), 3)]);
}

proptest! {
    #[test]
    fn no_option_panics_or_answers_without_bound(
        flags in any::<[u8; 4]>(),
        options in vec((0u32..16, vec(any::<u8>(), 0..200)), 0..80),
    ) {
        if let Some(mut negotiation) = Negotiation::new(info(), &flags) {
            for (option, data) in options {
                match negotiation.option(option, &data) {
                    Step::Answer(bytes) | Step::End(bytes) => prop_assert!(bytes.len() <= 256),
                    Step::ExportRequest(ask) => prop_assert!(negotiation.granted(&ask, 1).len() <= 256),
                }
            }
        }
    }

    #[test]
    fn damaged_options_are_answered(
        name in vec(any::<u8>(), 0..20),
        texts in vec(vec(any::<u8>(), 0..20), 0..4),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut negotiation = negotiation();
        negotiation.option(OPT_STRUCTURED_REPLY, b"");
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        for mut data in [go(&name, &[1, 3]), queries(&name, &texts)] {
            let at = at.index(data.len());
            data[at] = byte;
            for option in [OPT_GO, OPT_INFO, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_EXPORT_NAME] {
                let _ = negotiation.option(option, &data);
            }
        }
    }

    #[test]
    fn headers_of_any_bytes_claim_no_more_than_may_be(bytes in vec(any::<u8>(), 0..40)) {
        if let Some((_, len)) = option_header(&bytes) {
            prop_assert!(len <= OPTION_MAX as usize);
        }
        let _ = Request::parse(&bytes);
    }

    #[test]
    fn requests_survive_the_wire_and_jobs_lie_within_the_export(
        flags in 0u16..32,
        kind in 0u16..9,
        cookie in any::<u64>(),
        offset in prop_oneof![0u64..2 << 20, any::<u64>()],
        len in prop_oneof![0u32..2 << 20, any::<u32>()],
        params in any::<[bool; 3]>(),
    ) {
        let request = Request { flags, kind, cookie, offset, len };
        prop_assert_eq!(Request::parse(&request.encode()), Some(request));
        let [read_only, structured, context] = params;
        let params = TransmissionParams { read_only, structured, context, ..PARAMS };
        if let Ok(job) = params.check(&request) {
            prop_assert!(job.range.start <= job.range.end && job.range.end <= params.size);
            prop_assert!(job.bytes() <= REQUEST_MAX as usize);
            prop_assert_eq!(job.cookie, cookie);
        }
    }

    #[test]
    fn states_cover_the_range(start in 0u64..100, len in 1u64..100, cuts in vec(0u64..220, 0..8)) {
        let range = start..start + len;
        let mut cuts = cuts;
        cuts.sort_unstable();
        cuts.dedup();
        let pairs = cuts.chunks_exact(2).map(|pair| pair[0].max(range.start)..pair[1].min(range.end));
        let found: Vec<Range<u64>> = pairs.filter(|found| !found.is_empty()).collect();
        let states = descriptors(&Replies { structured: true }.block_status(1, &range, &found, false));
        prop_assert_eq!(states.iter().map(|(len, _)| len).sum::<u64>(), len);
        let bytes: u64 = found.iter().map(|found| found.end - found.start).sum();
        let told: u64 = states.iter().filter(|(_, state)| *state == 0).map(|(len, _)| len).sum();
        prop_assert_eq!(told, bytes);
        prop_assert!(states.iter().all(|(len, _)| *len > 0));
    }
}
