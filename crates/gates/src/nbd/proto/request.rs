//! Requests, checked against the properties of the export.

use std::ops::Range;

use world::nbd::Request;

use super::consts::*;

/// The properties of a connection's transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransmissionParams {
    /// Size of the export in bytes; fixed for the connection.
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) structured: bool,
    /// The client may ask for block status.
    pub(crate) context: bool,
}

/// The command of a valid request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Read,
    Write,
    Flush,
    /// Write zeros, or trim: here both are the same.
    Zero,
    /// Block status; only the first range if `one`.
    BlockStatus {
        one: bool,
    },
}

impl Command {
    /// Whether the command has effects that others can see.
    pub(crate) fn has_effects(self) -> bool {
        matches!(self, Command::Write | Command::Zero | Command::Flush)
    }
}

/// A valid request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    pub(crate) command: Command,
    pub(crate) cookie: u64,
    /// Its range, within the export.
    pub(crate) range: Range<u64>,
    /// Must be stable before it is answered.
    pub(crate) stable: bool,
}

impl Job {
    /// Bytes of its payload, or of its reply.
    pub(crate) fn bytes(&self) -> usize {
        match self.command {
            Command::Read | Command::Write => (self.range.end - self.range.start) as usize,
            _ => 0,
        }
    }
}

impl TransmissionParams {
    /// Checks a request: returns a job, or the error to answer.
    pub(crate) fn check(&self, request: &Request) -> Result<Job, u32> {
        let (command, flags) = self.command(request)?;
        if request.flags & !(flags | FLAG_FUA) != 0 {
            return Err(CODE_INVALID);
        }
        let writes = matches!(command, Command::Write | Command::Zero);
        if writes && self.read_only {
            return Err(CODE_NOT_PERMITTED);
        }
        let end = request.offset.checked_add(request.len.into()).filter(|end| *end <= self.size);
        // Past the end: no space for writes, invalid for other commands.
        let trim = request.kind == CMD_TRIM;
        let end = end.ok_or(if writes && !trim { CODE_NO_SPACE } else { CODE_INVALID })?;
        let sound = match command {
            Command::Read => request.len <= REQUEST_MAX,
            Command::Flush => request.offset == 0 && request.len == 0,
            Command::BlockStatus { .. } => request.len > 0,
            Command::Write | Command::Zero => true,
        };
        let stable = writes && request.flags & FLAG_FUA != 0;
        let job = Job { command, cookie: request.cookie, range: request.offset..end, stable };
        if sound { Ok(job) } else { Err(CODE_INVALID) }
    }

    /// The command, and the flags that it allows.
    fn command(&self, request: &Request) -> Result<(Command, u16), u32> {
        match request.kind {
            CMD_READ => Ok((Command::Read, if self.structured { FLAG_DF } else { 0 })),
            CMD_WRITE => Ok((Command::Write, 0)),
            CMD_FLUSH => Ok((Command::Flush, 0)),
            CMD_TRIM => Ok((Command::Zero, 0)),
            CMD_WRITE_ZEROES => Ok((Command::Zero, FLAG_NO_HOLE | FLAG_FAST_ZERO)),
            CMD_BLOCK_STATUS if self.context => {
                Ok((Command::BlockStatus { one: request.flags & FLAG_REQ_ONE != 0 }, FLAG_REQ_ONE))
            }
            _ => Err(CODE_INVALID),
        }
    }
}
