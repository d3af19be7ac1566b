//! Remote procedure calls (RFC 5531): records, the head of a call, the head of a reply.

use super::xdr::{Garbage, Reader, Writer};

/// Longest record, in bytes: the largest write with its headers.
pub(crate) const RECORD_MAX: usize = (1 << 20) + 4096;
/// Most fragments of a record.
const FRAGMENTS_MAX: usize = 64;
/// Most bytes of a credential or verifier. Source: RFC 5531, 8.2.
const AUTH_MAX: usize = 400;
/// Longest name of a client's machine. Source: RFC 5531, 14.
const MACHINE_MAX: usize = 255;
/// Most groups of a credential. Source: RFC 5531, 14.
const GROUPS_MAX: u32 = 16;
/// Set in the mark of a record's last fragment.
const LAST: u32 = 1 << 31;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// States of a denied call.
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const AUTH_BADCRED: u32 = 1;
const AUTH_TOOWEAK: u32 = 5;

/// The size of a record so far.
#[derive(Default)]
pub(crate) struct Record {
    bytes: usize,
    fragments: usize,
}

impl Record {
    /// Takes the mark of the next fragment: its length, and whether it is the last. `None` if the record has too many
    /// bytes or fragments.
    pub(crate) fn fragment(&mut self, mark: [u8; 4]) -> Option<(usize, bool)> {
        let mark = u32::from_be_bytes(mark);
        let len = (mark & !LAST) as usize;
        self.fragments += 1;
        self.bytes = self.bytes.checked_add(len)?;
        let fits = self.bytes <= RECORD_MAX && self.fragments <= FRAGMENTS_MAX;
        fits.then_some((len, mark & LAST != 0))
    }
}

/// The mark of a record of one fragment.
pub(crate) fn mark(len: usize) -> [u8; 4] {
    (LAST | len as u32).to_be_bytes()
}

/// The caller, as the client claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Credential {
    /// No credential.
    None,
    /// User, group and further groups.
    Sys(u32, u32, Vec<u32>),
}

/// A call whose head has been read.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) xid: u32,
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) credential: Credential,
    pub(crate) arguments: Reader<'a>,
}

/// A parsed record.
#[derive(Debug)]
pub(crate) enum RpcMessage<'a> {
    Call(Call<'a>),
    /// A call that is refused, with the answer.
    Denied(Vec<u8>),
}

/// Reads the head of a call.
///
/// # Errors
/// If the record is not a call, so that no answer is possible.
pub(crate) fn parse_message(record: &[u8]) -> Result<RpcMessage<'_>, Garbage> {
    let mut reader = Reader::new(record);
    let xid = reader.u32()?;
    if reader.u32()? != CALL {
        return Err(Garbage);
    }
    if reader.u32()? != RPC_VERSION {
        let denied = [RPC_MISMATCH, RPC_VERSION, RPC_VERSION];
        return Ok(RpcMessage::Denied(denial(xid, &denied)));
    }
    let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (flavor, body) = (reader.u32()?, reader.opaque(AUTH_MAX)?);
    let (_, _) = (reader.u32()?, reader.opaque(AUTH_MAX)?);
    let credential = match flavor {
        AUTH_NONE => Credential::None,
        AUTH_SYS => match system(body) {
            Ok(credential) => credential,
            Err(Garbage) => return Ok(RpcMessage::Denied(denial(xid, &[AUTH_ERROR, AUTH_BADCRED]))),
        },
        _ => return Ok(RpcMessage::Denied(denial(xid, &[AUTH_ERROR, AUTH_TOOWEAK]))),
    };
    Ok(RpcMessage::Call(Call { xid, program, version, procedure, credential, arguments: reader }))
}

fn system(body: &[u8]) -> Result<Credential, Garbage> {
    let mut reader = Reader::new(body);
    let _stamp = reader.u32()?;
    let _machine = reader.opaque(MACHINE_MAX)?;
    let (user, group, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
    Ok(Credential::Sys(user, group, groups))
}

/// How an accepted call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcceptStat {
    /// The procedure's results follow.
    Success,
    /// No such program here.
    ProgUnavail,
    /// The program is here in this version only.
    ProgMismatch(u32),
    /// The program has no such procedure.
    ProcUnavail,
    /// The arguments are not valid.
    GarbageArgs,
}

/// The head of the answer to an accepted call.
pub(crate) fn accept(xid: u32, how: AcceptStat) -> Writer {
    let mut writer = Writer::default();
    // Accepted, with a verifier of no kind and no bytes.
    writer.u32(xid).u32(REPLY).u32(0).u32(AUTH_NONE).u32(0);
    match how {
        AcceptStat::Success => writer.u32(0),
        AcceptStat::ProgUnavail => writer.u32(1),
        AcceptStat::ProgMismatch(version) => writer.u32(2).u32(version).u32(version),
        AcceptStat::ProcUnavail => writer.u32(3),
        AcceptStat::GarbageArgs => writer.u32(4),
    };
    writer
}

fn denial(xid: u32, why: &[u32]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u32(xid).u32(REPLY).u32(1);
    why.iter().for_each(|word| {
        writer.u32(*word);
    });
    writer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(version: u32, flavor: u32, body: &[u8]) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u32(9).u32(CALL).u32(version).u32(100_003).u32(3).u32(1);
        writer.u32(flavor).opaque(body).u32(AUTH_NONE).u32(0).u32(77);
        writer.into_bytes()
    }

    fn body(groups: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u32(0).opaque(b"host").u32(1000).u32(100).u32(groups);
        (0..groups).for_each(|group| {
            writer.u32(group);
        });
        writer.into_bytes()
    }

    #[test]
    fn a_call_is_heard() {
        let record = call(2, AUTH_SYS, &body(2));
        let Ok(RpcMessage::Call(mut call)) = parse_message(&record) else { panic!("a call") };
        assert_eq!((call.xid, call.program, call.version, call.procedure), (9, 100_003, 3, 1));
        assert_eq!(call.credential, Credential::Sys(1000, 100, vec![0, 1]));
        assert_eq!(call.arguments.u32(), Ok(77));
    }

    #[test]
    fn strange_calls_are_refused_and_strange_records_are_not_answered() {
        let words = |record: &[u8]| match parse_message(record) {
            Ok(RpcMessage::Denied(bytes)) => bytes.chunks(4).skip(3).map(|word| word[3]).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(words(&call(3, AUTH_NONE, b"")), [0, 2, 2]);
        assert_eq!(words(&call(2, 6, b"kerberos")), [1, 5]);
        assert_eq!(words(&call(2, AUTH_SYS, &body(17))), [1, 1]);
        assert_eq!(words(&call(2, AUTH_SYS, b"x")), [1, 1]);
        assert!(matches!(parse_message(b"not a call"), Err(Garbage)));
        assert!(matches!(parse_message(&call(2, AUTH_NONE, &[0; 404])), Err(Garbage)));
    }

    #[test]
    fn records_are_bounded() {
        let mut record = Record::default();
        assert_eq!(record.fragment(100u32.to_be_bytes()), Some((100, false)));
        assert_eq!(record.fragment(mark(50)), Some((50, true)));
        assert_eq!(Record::default().fragment(mark(RECORD_MAX + 1)), None);
        let mut record = Record::default();
        assert_eq!(record.fragment((RECORD_MAX as u32).to_be_bytes()), Some((RECORD_MAX, false)));
        assert_eq!(record.fragment(mark(1)), None);
        let mut record = Record::default();
        let empty = (0..1000).take_while(|_| record.fragment([0; 4]).is_some()).count();
        assert_eq!(empty, FRAGMENTS_MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_heard_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_message(&bytes);
        }

        #[test]
        fn nearly_calls_are_heard_without_harm(at in 0usize..80, value: u8, cut in 0usize..80) {
            let mut record = call(2, AUTH_SYS, &body(16));
            let len = record.len();
            record[at % len] = value;
            record.truncate(len - cut % len);
            let _ = parse_message(&record);
        }
    }
}
