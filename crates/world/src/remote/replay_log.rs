//! Requests without an answer, and writes that may not be durable yet. No I/O.
//!
//! ```text
//! ask ──▶ open, unsent ──next──▶ open, sent ──answered──▶ a read: done; a write: kept
//!              ▲                     │                                        │ a flush that was sent after its
//!              └───────broken────────┘                                        ▼ answer is answered: forgotten
//! ```
//!
//! By the protocol, a flush covers exactly the writes that were answered before it was sent. A restarted server may
//! have lost writes that no flush covers, so these are sent again ([`ReplayLog::to_repeat`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use types::Buf;

use super::completion::Completion;
use super::error::{RemoteError, protocol_error};
use crate::nbd::consts::*;
use crate::nbd::{Request, SimpleReply};

/// One write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) parts: Vec<Buf>,
}

/// A request of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Task {
    Read { offset: u64, len: u32 },
    Write(Piece),
    Flush,
}

impl Task {
    fn request(&self, cookie: u64) -> Request {
        let (kind, offset, len) = match self {
            Task::Read { offset, len } => (CMD_READ, *offset, *len),
            Task::Write(Piece { offset, len, .. }) => (CMD_WRITE, *offset, *len),
            Task::Flush => (CMD_FLUSH, 0, 0),
        };
        Request { flags: 0, kind, cookie, offset, len }
    }

    fn verb(&self) -> &'static str {
        match self {
            Task::Read { .. } => "read",
            Task::Write(_) => "write",
            Task::Flush => "flush",
        }
    }
}

/// A request without an answer.
struct Open {
    task: Task,
    /// When the caller asked.
    since: u64,
    /// Whether it was sent on this connection.
    sent: bool,
    /// For a flush that was sent: the number of the last write answered before it.
    covers: u64,
    completion: Rc<Completion>,
}

/// A write that was answered and that no flush covers yet.
struct Kept {
    piece: Piece,
    /// The number of its answer.
    answer: u64,
}

/// Requests without an answer, and writes that no flush covers.
#[derive(Default)]
pub(super) struct ReplayLog {
    /// The last cookie given. Cookies give the order of requests.
    cookies: u64,
    open: BTreeMap<u64, Open>,
    unsent: BTreeSet<u64>,
    kept: BTreeMap<u64, Kept>,
    /// Writes answered so far.
    answers: u64,
    unflushed: usize,
    /// Flushes under way.
    flushes: usize,
    lost: Option<String>,
}

impl ReplayLog {
    /// Adds a request. `since` may be in any unit of time.
    pub(super) fn ask(&mut self, task: Task, since: u64) -> io::Result<Rc<Completion>> {
        if let Some(error) = self.error() {
            return Err(error);
        }
        self.cookies += 1;
        match &task {
            Task::Read { .. } => {}
            Task::Write(piece) => self.unflushed += piece.len as usize,
            Task::Flush => self.flushes += 1,
        }
        let completion = Rc::new(Completion::default());
        let open = Open { task, since, sent: false, covers: 0, completion: completion.clone() };
        self.open.insert(self.cookies, open);
        self.unsent.insert(self.cookies);
        Ok(completion)
    }

    /// The next request to send on this connection, with its payload.
    pub(super) fn next_request(&mut self) -> Option<(Request, Vec<Buf>)> {
        let cookie = self.unsent.pop_first()?;
        self.send(cookie)
    }

    fn send(&mut self, cookie: u64) -> Option<(Request, Vec<Buf>)> {
        let open = self.open.get_mut(&cookie)?;
        open.sent = true;
        open.covers = self.answers;
        let parts = if let Task::Write(piece) = &open.task { piece.parts.clone() } else { Vec::new() };
        Some((open.task.request(cookie), parts))
    }

    /// Bytes of the payload that follows a reply.
    pub(super) fn payload(&self, reply: SimpleReply) -> Result<usize, RemoteError> {
        if reply.code == CODE_SHUTDOWN {
            return Err(RemoteError::Transient("the server is shutting down".to_owned()));
        }
        match self.open.get(&reply.cookie).filter(|open| open.sent).map(|open| &open.task) {
            Some(Task::Read { len, .. }) if reply.code == 0 => Ok(*len as usize),
            Some(_) => Ok(0),
            None => protocol_error("it answers what it was not asked"),
        }
    }

    /// Takes a reply with its payload, whose length is [`ReplayLog::payload`].
    pub(super) fn answered(&mut self, reply: SimpleReply, body: Buf) -> Result<(), RemoteError> {
        self.payload(reply)?;
        let Some(open) = self.open.get(&reply.cookie) else { return Ok(()) };
        if reply.code != 0 {
            let text = failed(open.task.verb(), reply.code);
            let Task::Read { offset, .. } = open.task else { return Err(RemoteError::Fatal(text)) };
            open.completion.complete(Err(io::Error::other(format!("{text}, at {offset}"))));
            self.open.remove(&reply.cookie);
            return Ok(());
        }
        let Some(Open { task, covers, completion, .. }) = self.open.remove(&reply.cookie) else {
            return Ok(());
        };
        match task {
            Task::Read { .. } => {}
            Task::Write(piece) => {
                self.answers += 1;
                self.kept.insert(reply.cookie, Kept { piece, answer: self.answers });
            }
            Task::Flush => {
                self.flushes -= 1;
                self.forget_upto(covers);
            }
        }
        completion.complete(Ok(body));
        Ok(())
    }

    /// Drops writes that were answered up to this number: they are durable.
    fn forget_upto(&mut self, answer: u64) {
        let durable = self.kept.extract_if(.., |_, kept| kept.answer <= answer);
        self.unflushed -= durable.map(|(_, kept)| kept.piece.len as usize).sum::<usize>();
    }

    /// The connection is gone, so all open requests count as unsent.
    pub(super) fn broken(&mut self) {
        self.open.values_mut().for_each(|open| open.sent = false);
        self.unsent = self.open.keys().copied().collect();
    }

    /// Every write that the server may have lost, in the order of the requests. On a new connection these are
    /// repeated first, one by one, because a later write may overlap an earlier one.
    pub(super) fn to_repeat(&self) -> Vec<u64> {
        let open = self.open.iter().filter(|(_, open)| matches!(open.task, Task::Write(_)));
        let cookies: BTreeSet<u64> =
            open.map(|(cookie, _)| cookie).chain(self.kept.keys()).copied().collect();
        cookies.into_iter().collect()
    }

    /// The request that repeats a write.
    pub(super) fn repeat(&mut self, cookie: u64) -> Option<(Request, Vec<Buf>)> {
        if let Some(Kept { piece, .. }) = self.kept.get(&cookie) {
            let parts = piece.parts.clone();
            return Some((Task::Write(piece.clone()).request(cookie), parts));
        }
        self.unsent.remove(&cookie);
        self.send(cookie)
    }

    /// Takes the reply to a repeated write.
    pub(super) fn repeated(&mut self, reply: SimpleReply) -> Result<(), RemoteError> {
        match reply.code {
            0 if self.kept.contains_key(&reply.cookie) => Ok(()),
            CODE_SHUTDOWN | 0 => self.answered(reply, Buf::empty()),
            code => Err(RemoteError::Fatal(failed("write", code))),
        }
    }

    /// The time of the oldest request without an answer.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.open.values().next().map(|open| open.since)
    }

    /// Whether a flush is under way.
    pub(super) fn is_flushing(&self) -> bool {
        self.flushes > 0
    }

    /// Bytes of all writes that no flush covers, answered or not.
    pub(super) fn unflushed(&self) -> usize {
        self.unflushed
    }

    /// Marks the disk as lost: all waiting and all later requests fail with `text`.
    pub(super) fn lose(&mut self, text: String) {
        self.lost.get_or_insert(text);
        self.unsent.clear();
        self.kept.clear();
        (self.unflushed, self.flushes) = (0, 0);
        for open in std::mem::take(&mut self.open).into_values() {
            open.completion.complete(self.error().map_or(Ok(Buf::empty()), Err));
        }
    }

    /// Why the disk is lost, if it is.
    pub(super) fn error(&self) -> Option<io::Error> {
        self.lost.as_ref().map(|text| io::Error::other(text.clone()))
    }
}

fn failed(verb: &str, code: u32) -> String {
    let name = match code {
        CODE_NOT_PERMITTED => "not permitted",
        CODE_IO => "I/O error",
        CODE_INVALID => "invalid request",
        CODE_NO_SPACE => "no space left",
        _ => "see errno(3)",
    };
    format!("the server failed to {verb}: error {code} ({name})")
}
