//! Calls and answers over connections: the handshake, and any number of concurrent requests.
//!
//! This module knows frames and the session's messages. It does not interpret other messages. Large answers from other
//! machines come as the caller's receive window allows, and large requests as the server's does ([`pace`], `incoming.rs`,
//! `outgoing.rs`).

mod announced;
mod connect;
mod covered;
mod handshake;
mod incoming;
mod latch;
mod meter;
mod outgoing;
mod peers;
mod rails;
mod room;
mod send_queue;
mod server;
mod threads;
mod unproved;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use pace::IoClass;
use types::code_probe::{CodeProbe, hit};
use types::messages::session::Role;
use types::wire::{self, Codec, Flags, Key, Record, Served, VERSION, VERSION_MIN};
use types::{Buf, ClusterId, Epoch, Refusal};

pub use incoming::ReceiveReport;
pub(crate) use incoming::{Neighbours, ReceivePort};
pub use peers::{Begun, Peers};
pub use server::serve;
pub use threads::serve_on_threads;

/// A boxed future that stays on its thread.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How a process identifies itself to others of its cluster.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its cluster; zeros for a caller that learns it from the first server that it reaches.
    pub cluster: ClusterId,
    /// The secret of the cluster.
    pub key: Key,
    /// What it is.
    pub role: Role,
    /// Where others reach it, if it is a server: all its addresses, joined by [`RAIL`](types::RAIL). A brick is called at one of
    /// these only, and so is a metadata server by others of its kind. Empty: the address at which it listens.
    pub name: String,
}

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// No answer came. The request may or may not have been carried out.
    #[error("no answer")]
    Unreachable,
    /// The two sides have different keys.
    #[error("the other side has a different cluster key")]
    WrongKey,
    /// The server belongs to another cluster.
    #[error("the other side belongs to cluster {theirs}")]
    WrongCluster {
        /// The server's cluster.
        theirs: ClusterId,
    },
    /// The server speaks none of the wire versions that this program speaks.
    #[error(
        "the other side speaks wire version {theirs}, this program {}: upgrade by one version at a time",
        spoken()
    )]
    OtherVersion {
        /// The version of the server that is nearest to ours.
        theirs: u16,
    },
    /// The answer is not valid for this request.
    #[error("the answer is not valid for this request: check that both sides run compatible versions")]
    BadReply,
}

/// The wire versions that this program speaks, for people to read.
pub fn spoken() -> String {
    match (VERSION_MIN, VERSION) {
        (oldest, newest) if oldest == newest => format!("{newest}"),
        (oldest, newest) => format!("{oldest} to {newest}"),
    }
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
    /// The record holds the payload's checksums.
    pub covered: bool,
    /// The frame had a tag, which was right: the caller sent these bytes.
    pub sealed: bool,
    /// The caller wants to know where the time of a slow answer goes.
    pub traced: bool,
    /// What the caller does it for; [`None`]: for a client.
    pub class: Option<IoClass>,
    /// The role that the caller has given (it has proved that it knows the key).
    pub role: Role,
    /// The caller's address, for logs.
    pub peer: String,
}

impl Call {
    /// Decodes the record, which must be an `R`. If it holds the payload's checksums, this compares them with the payload.
    pub fn parse<R: Record>(&self) -> Result<R, Refusal> {
        self.parse_if(covered::is_whole)
    }

    /// The same for a payload that no other payload is computed from before somebody compares it. Of a client that sealed it, this
    /// does not compare it: the client computed the checksums from these bytes. A server may send on the bytes of others.
    pub fn parse_from_maker<R: Record>(&self) -> Result<R, Refusal> {
        let is_maker = self.sealed && self.role == Role::Client;
        self.parse_if(if is_maker { covered::fits } else { covered::is_whole })
    }

    fn parse_if<R: Record>(&self, is_whole: fn(&R, &[u8]) -> bool) -> Result<R, Refusal> {
        if self.kind != R::KIND {
            return Err(Refusal::Unsupported);
        }
        let record = wire::from_bytes(&self.record).map_err(|_| Refusal::Malformed)?;
        if covered::matches_header(&record, self.covered) && is_whole(&record, &self.payload) {
            return Ok(record);
        }
        hit(CodeProbe::OtherBytes);
        tracing::warn!(
            peer = self.peer,
            kind = R::NAME,
            "the payload of a request does not match the checksums in its record: refused"
        );
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
    served: Option<Served>,
}

impl Answer {
    /// An answer of `reply` and `payload`.
    pub fn new<R: Record>(reply: &R, payload: Buf) -> Answer {
        let flags = covered::flags(reply, Flags::REPLY);
        Answer { kind: R::KIND, flags, record: wire::to_bytes(reply), payload, served: None }
    }

    /// The same answer, which tells where its time went.
    pub fn with_served(self, served: Served) -> Answer {
        Answer { served: Some(served), ..self }
    }

    /// The record as bytes of a frame, and the frame's flags.
    fn encoded(self) -> (u16, Flags, Vec<u8>, Buf) {
        let Answer { kind, flags, record, payload, served } = self;
        match served {
            None => (kind, flags, record, payload),
            Some(served) => {
                let mut timed = Vec::with_capacity(64 + record.len());
                served.encode(&mut timed);
                timed.extend(record);
                (kind, flags.with(Flags::TIMED), timed, payload)
            }
        }
    }
}

/// Answers calls. The code before its first await runs in the order in which the requests of a connection arrived, except that
/// a large one arrives with its last byte ([`serve`]).
pub type Handler = Rc<dyn Fn(Call) -> LocalBoxFuture<'static, Result<Answer, Refusal>>>;
