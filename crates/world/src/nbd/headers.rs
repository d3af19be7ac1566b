//! Encodes and decodes the headers of both phases.

use super::consts::*;

/// Bytes of an option's header, without its data.
pub const OPTION_LEN: usize = 16;
/// Bytes of the header of an answer to an option, without its data.
pub const OPTION_REPLY_LEN: usize = 20;
/// Bytes of a request without its payload.
pub const REQUEST_LEN: usize = 28;
/// Bytes of a simple reply without its payload.
pub const REPLY_LEN: usize = 16;

/// Takes values from the front of a byte string.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// The header of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// Which option.
    pub option: u32,
    /// Bytes of its data, as the client claims.
    pub len: u32,
}

impl OptionHeader {
    /// `None` if it is not an option.
    pub fn parse(bytes: &[u8]) -> Option<OptionHeader> {
        let mut input = Input(bytes);
        let magic = input.u64()?;
        let header = OptionHeader { option: input.u32()?, len: input.u32()? };
        (magic == OPTION_MAGIC).then_some(header)
    }
}

/// An option with its data.
pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u32).to_be_bytes();
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &len, data].concat()
}

/// The header of an answer to an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub option: u32,
    /// The kind of answer.
    pub kind: u32,
    /// Bytes of its data, as the server claims.
    pub len: u32,
}

impl OptionReplyHeader {
    /// `None` if it is not an answer.
    pub fn parse(bytes: &[u8]) -> Option<OptionReplyHeader> {
        let mut input = Input(bytes);
        let magic = input.u64()?;
        let header = OptionReplyHeader { option: input.u32()?, kind: input.u32()?, len: input.u32()? };
        (magic == OPTION_REPLY_MAGIC).then_some(header)
    }
}

/// One answer to an option.
pub fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OPTION_REPLY_LEN + data.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// A request, without the payload of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// `FLAG_*`.
    pub flags: u16,
    /// `CMD_*`.
    pub kind: u16,
    /// Chosen by the client; the reply repeats it.
    pub cookie: u64,
    /// First byte of its range in the export.
    pub offset: u64,
    /// Bytes of its range.
    pub len: u32,
}

impl Request {
    /// `None` if it is not a request.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        let mut input = Input(bytes);
        let magic = input.u32()?;
        let (flags, kind) = (input.u16()?, input.u16()?);
        let (cookie, offset, len) = (input.u64()?, input.u64()?, input.u32()?);
        (magic == REQUEST_MAGIC).then_some(Request { flags, kind, cookie, offset, len })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Bytes of the payload that follows it. `None` if it is too long: then the connection cannot be used any more.
    pub fn payload(&self) -> Option<usize> {
        match self.kind {
            CMD_WRITE if self.len > REQUEST_MAX => None,
            CMD_WRITE => Some(self.len as usize),
            _ => Some(0),
        }
    }

    /// Whether the client ends the connection. There is no reply.
    pub fn is_disconnect(&self) -> bool {
        self.kind == CMD_DISC
    }
}

/// A simple reply, without the payload of a successful read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimpleReply {
    /// The request that is answered.
    pub cookie: u64,
    /// 0, or an error: `CODE_*`.
    pub code: u32,
}

impl SimpleReply {
    /// `None` if it is not a simple reply.
    pub fn parse(bytes: &[u8]) -> Option<SimpleReply> {
        let mut input = Input(bytes);
        let (magic, code, cookie) = (input.u32()?, input.u32()?, input.u64()?);
        (magic == SIMPLE_REPLY_MAGIC).then_some(SimpleReply { cookie, code })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; REPLY_LEN] {
        let mut bytes = [0; REPLY_LEN];
        bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.code.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}
