//! Dispatches a record to its program and procedure, and makes the answer.

use std::sync::Arc;

use types::Buf;

use super::access::Caller;
use super::gate::Gate;
use super::reply_cache::{CacheLookup, NOTICE_US, Origin, RequestKey};
use super::wire::{
    AcceptStat, Arguments, Call, Garbage, IO_MAX, MOUNT, NFS, NFS_VERSION, NotParsed, PORTMAP,
    PORTMAP_VERSION, Results, RpcMessage, accept, failure_words, is_idempotent, padding, parse,
    parse_message,
};
use super::{mountd, portmap};

/// One record for a client: bytes, then bytes of a file, then zeros.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) head: Vec<u8>,
    pub(super) data: Buf,
    pub(super) zeros: usize,
}

impl From<Vec<u8>> for Answer {
    fn from(head: Vec<u8>) -> Answer {
        Answer { head, data: Buf::empty(), zeros: 0 }
    }
}

impl Answer {
    /// Bytes of the record.
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.data.len() + self.zeros
    }
}

/// The approximate size of the answer to a record.
pub(super) fn answer_bytes(record: &[u8]) -> usize {
    let Ok(RpcMessage::Call(call)) = parse_message(record) else { return 0 };
    if call.program != NFS {
        return 0;
    }
    match parse(call.procedure, call.arguments) {
        Ok(Arguments::Read { count, .. }) => count.min(IO_MAX) as usize,
        Ok(Arguments::ReadDir { count, .. } | Arguments::ReadDirPlus { count, .. }) => {
            count.min(IO_MAX) as usize
        }
        _ => 0,
    }
}

impl Gate {
    /// Carries a request out. `None` if nobody waits for the answer any more.
    ///
    /// # Errors
    /// If the record is not a call.
    pub(super) async fn answer(
        &self,
        origin: &Arc<Origin>,
        record: &[u8],
    ) -> Result<Option<Answer>, Garbage> {
        let call = match parse_message(record)? {
            RpcMessage::Call(call) => call,
            RpcMessage::Denied(answer) => return Ok(Some(answer.into())),
        };
        let (xid, only) = (call.xid, |version| AcceptStat::ProgMismatch(version));
        let how = match (call.program, call.version) {
            (NFS, NFS_VERSION) => return Ok(self.nfs(origin, call, record).await),
            (MOUNT, NFS_VERSION) => match mountd::answer(self, &call).await {
                Ok(results) => return Ok(Some(success(xid, results))),
                Err(how) => how,
            },
            (PORTMAP, PORTMAP_VERSION) => match portmap::answer(self.shared.port, &call) {
                Ok(results) => return Ok(Some(success(xid, results.into()))),
                Err(how) => how,
            },
            (NFS | MOUNT, _) => only(NFS_VERSION),
            (PORTMAP, _) => only(PORTMAP_VERSION),
            _ => AcceptStat::ProgUnavail,
        };
        Ok(Some(accept(xid, how).into_bytes().into()))
    }

    async fn nfs(&self, origin: &Arc<Origin>, call: Call<'_>, record: &[u8]) -> Option<Answer> {
        let (xid, procedure) = (call.xid, call.procedure);
        let arguments = match parse(procedure, call.arguments) {
            Ok(arguments) => arguments,
            Err(NotParsed::ProcUnavail) => {
                return Some(accept(xid, AcceptStat::ProcUnavail).into_bytes().into());
            }
            Err(NotParsed::Garbage) => return Some(accept(xid, AcceptStat::GarbageArgs).into_bytes().into()),
        };
        let caller = Caller::new(&call.credential, self.shared.root_squash);
        if is_idempotent(procedure) {
            return Some(self.carry_out(xid, procedure, &caller, &arguments).await);
        }
        let (cache, key) = (&self.shared.reply_cache, RequestKey::new(origin, xid, record));
        if let Some(other) = cache.same_of_another(key, origin) {
            self.world.timeout(NOTICE_US, other.ended()).await;
        }
        match cache.begin(key, origin, self.world.now()) {
            CacheLookup::NewRequest(first) => {
                let answer = self.carry_out(xid, procedure, &caller, &arguments).await;
                first.answer(&answer.head);
                Some(answer)
            }
            CacheLookup::Duplicate(again) => {
                let client = origin.client();
                tracing::debug!(%client, xid, procedure, "a repeated request");
                again.answer().await.map(|answer| answer.to_vec().into())
            }
        }
    }

    async fn carry_out(
        &self,
        xid: u32,
        procedure: u32,
        caller: &Caller,
        arguments: &Arguments<'_>,
    ) -> Answer {
        match self.procedure(caller, arguments).await {
            Ok(results) if procedure == 0 => success(xid, results),
            Ok(Results { head, data }) => {
                let mut whole = accept(xid, AcceptStat::Success);
                whole.u32(0).append(&head);
                let zeros = padding(data.len());
                Answer { head: whole.into_bytes(), data, zeros }
            }
            Err(status) => {
                tracing::debug!(xid, procedure, ?status, "refused");
                let mut whole = accept(xid, AcceptStat::Success);
                whole.u32(status.code());
                for _ in 0..failure_words(procedure) {
                    whole.u32(0);
                }
                whole.into_bytes().into()
            }
        }
    }
}

fn success(xid: u32, results: Results) -> Answer {
    let mut whole = accept(xid, AcceptStat::Success);
    whole.append(&results.head);
    let zeros = padding(results.data.len());
    Answer { head: whole.into_bytes(), data: results.data, zeros }
}
