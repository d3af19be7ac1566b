//! Calls and answers over connections: the handshake, and any number of requests at once.
//!
//! Knows frames and the session's messages, not what else travels in them.

mod covered;
mod handshake;
mod latch;
mod peers;
mod send_queue;
mod server;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use types::messages::session::Role;
use types::wire::{self, Flags, Key, Record};
use types::{Buf, ClusterId, Epoch, Refusal};

pub use peers::Peers;
pub use server::serve;

/// A boxed future that stays on its thread.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Who a process is to the others of its cluster.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its cluster; zeros for a caller that is to learn it from the first server it reaches.
    pub cluster: ClusterId,
    /// The secret of the cluster.
    pub key: Key,
    /// What it is.
    pub role: Role,
}

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The server said no.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// No answer came: whether the request was carried out is unknown.
    #[error("no answer")]
    Unreachable,
    /// The two sides hold different keys.
    #[error("the other side has a different cluster key")]
    WrongKey,
    /// The server belongs to another cluster.
    #[error("the other side belongs to cluster {theirs}")]
    WrongCluster {
        /// The server's cluster.
        theirs: ClusterId,
    },
    /// The answer makes no sense.
    #[error("the answer makes no sense")]
    BadReply,
}

/// A request as it reaches a handler.
#[derive(Debug)]
pub struct Call {
    /// Kind of the record.
    pub kind: u16,
    /// Epoch in the frame's header.
    pub epoch: Epoch,
    /// The record's bytes.
    pub record: Vec<u8>,
    /// The payload.
    pub payload: Buf,
    /// The record must hold the payload's checksums.
    pub covered: bool,
    /// What the caller says it is (it has proved that it knows the key).
    pub role: Role,
    /// Where the caller is, for logs.
    pub peer: String,
}

impl Call {
    /// The record, which must be an `R`. Where it covers the payload, the two are compared here.
    pub fn parse<R: Record>(&self) -> Result<R, Refusal> {
        if self.kind != R::KIND {
            return Err(Refusal::Unsupported);
        }
        let record = wire::from_bytes(&self.record).map_err(|_| Refusal::Malformed)?;
        if covered::matches_header(&record, self.covered) && covered::is_whole(&record, &self.payload) {
            return Ok(record);
        }
        tracing::warn!(peer = self.peer, kind = R::NAME, "a payload does not match its record");
        Err(Refusal::Malformed)
    }
}

/// What a handler answers.
#[derive(Debug)]
pub struct Answer {
    kind: u16,
    flags: Flags,
    record: Vec<u8>,
    payload: Buf,
}

impl Answer {
    /// An answer of `reply` and `payload`.
    pub fn new<R: Record>(reply: &R, payload: Buf) -> Answer {
        let flags = covered::flags(reply, Flags::REPLY);
        Answer { kind: R::KIND, flags, record: wire::to_bytes(reply), payload }
    }
}

/// Answers calls. Work done before its first await is done in the order in which the requests arrived.
pub type Handler = Rc<dyn Fn(Call) -> LocalBoxFuture<'static, Result<Answer, Refusal>>>;
