//! Requests: read, and compared with what the export allows.

use std::ops::Range;

use super::haggle::Input;
use super::words::*;

/// Bytes of a request without its payload.
pub(crate) const REQUEST_LEN: usize = 28;

/// A request as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) kind: u16,
    /// The client's name for it; the reply carries the same.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// What the transmission was agreed to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// Bytes of the export, for as long as the connection lasts.
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) structured: bool,
    /// The state of blocks may be asked for.
    pub(crate) context: bool,
}

/// What a sound request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Read,
    Write,
    Flush,
    /// Zeros, or whatever comes cheapest: here that is the same.
    Zero,
    /// Where there are bytes; only the first range if `one`.
    BlockStatus {
        one: bool,
    },
}

/// A sound request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    pub(crate) command: Command,
    pub(crate) cookie: u64,
    /// Bytes of the export that it is about; within it.
    pub(crate) range: Range<u64>,
    /// Answered when it is stable.
    pub(crate) stable: bool,
}

impl Job {
    /// Bytes that it brings, or that its reply has.
    pub(crate) fn bytes(&self) -> usize {
        match self.command {
            Command::Read | Command::Write => (self.range.end - self.range.start) as usize,
            _ => 0,
        }
    }
}

impl Request {
    /// `None` if it is no request.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Request> {
        let mut input = Input(bytes);
        let magic = input.u32()?;
        let (flags, kind) = (input.u16()?, input.u16()?);
        let (cookie, offset, len) = (input.u64()?, input.u64()?, input.u32()?);
        (magic == REQUEST_MAGIC).then_some(Request { flags, kind, cookie, offset, len })
    }

    /// Bytes that follow it. `None` if nobody would take so many: the connection is of no further use.
    pub(crate) fn payload(&self) -> Option<usize> {
        match self.kind {
            CMD_WRITE if self.len > REQUEST_MAX => None,
            CMD_WRITE => Some(self.len as usize),
            _ => Some(0),
        }
    }

    /// The client goes. No reply.
    pub(crate) fn is_disconnect(&self) -> bool {
        self.kind == CMD_DISC
    }

    /// The request as a job, or the error that answers it.
    pub(crate) fn check(&self, terms: &Terms) -> Result<Job, u32> {
        let (command, flags) = self.command(terms)?;
        if self.flags & !(flags | FLAG_FUA) != 0 {
            return Err(CODE_INVALID);
        }
        let writes = matches!(command, Command::Write | Command::Zero);
        if writes && terms.read_only {
            return Err(CODE_NOT_PERMITTED);
        }
        let end = self.offset.checked_add(self.len.into()).filter(|end| *end <= terms.size);
        // Past the end a writer finds no space, and nobody else anything that makes sense.
        let trim = self.kind == CMD_TRIM;
        let end = end.ok_or(if writes && !trim { CODE_NO_SPACE } else { CODE_INVALID })?;
        let sound = match command {
            Command::Read => self.len <= REQUEST_MAX,
            Command::Flush => self.offset == 0 && self.len == 0,
            Command::BlockStatus { .. } => self.len > 0,
            Command::Write | Command::Zero => true,
        };
        let stable = writes && self.flags & FLAG_FUA != 0;
        let job = Job { command, cookie: self.cookie, range: self.offset..end, stable };
        if sound { Ok(job) } else { Err(CODE_INVALID) }
    }

    /// What is asked for, and the flags that may come with it.
    fn command(&self, terms: &Terms) -> Result<(Command, u16), u32> {
        match self.kind {
            CMD_READ => Ok((Command::Read, if terms.structured { FLAG_DF } else { 0 })),
            CMD_WRITE => Ok((Command::Write, 0)),
            CMD_FLUSH => Ok((Command::Flush, 0)),
            CMD_TRIM => Ok((Command::Zero, 0)),
            CMD_WRITE_ZEROES => Ok((Command::Zero, FLAG_NO_HOLE | FLAG_FAST_ZERO)),
            CMD_BLOCK_STATUS if terms.context => {
                Ok((Command::BlockStatus { one: self.flags & FLAG_REQ_ONE != 0 }, FLAG_REQ_ONE))
            }
            _ => Err(CODE_INVALID),
        }
    }
}
