//! Replies, simple and structured.

use std::ops::Range;

use types::Buf;
use world::nbd::SimpleReply;

use super::consts::*;

/// The bytes of a reply: a head, and the bytes of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Buf,
}

impl Reply {
    fn head(head: Vec<u8>) -> Reply {
        Reply { head, body: Buf::empty() }
    }
}

/// The kind of replies on this connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replies {
    pub(crate) structured: bool,
}

impl Replies {
    /// Success.
    pub(crate) fn done(self, cookie: u64) -> Reply {
        Reply::head(if self.structured { chunk(REPLY_NONE, cookie, 0, &[]) } else { simple(cookie, 0) })
    }

    /// An error.
    pub(crate) fn error(self, cookie: u64, code: u32) -> Reply {
        let no_text = 0u16.to_be_bytes();
        Reply::head(if self.structured {
            chunk(REPLY_ERROR, cookie, 0, &[&code.to_be_bytes()[..], &no_text].concat())
        } else {
            simple(cookie, code)
        })
    }

    /// The bytes of a read at `offset`: always one chunk; zeros become a hole.
    pub(crate) fn read(self, cookie: u64, offset: u64, bytes: Buf) -> Reply {
        if bytes.is_empty() {
            return self.done(cookie);
        }
        if !self.structured {
            return Reply { head: simple(cookie, 0), body: bytes };
        }
        if is_zeros(&bytes) {
            let hole = [&offset.to_be_bytes()[..], &(bytes.len() as u32).to_be_bytes()].concat();
            return Reply::head(chunk(REPLY_OFFSET_HOLE, cookie, 0, &hole));
        }
        let head = chunk(REPLY_OFFSET_DATA, cookie, bytes.len(), &offset.to_be_bytes());
        Reply { head, body: bytes }
    }

    /// The block status of a range: the ranges of `found`, ascending and apart from each other, may have bytes; the
    /// rest are holes. Only the first part if `one`.
    pub(crate) fn block_status(
        self,
        cookie: u64,
        range: &Range<u64>,
        found: &[Range<u64>],
        one: bool,
    ) -> Reply {
        let mut descriptors = CONTEXT_ID.to_be_bytes().to_vec();
        let most = if one { 1 } else { usize::MAX };
        for (len, state) in states(range, found).into_iter().take(most) {
            descriptors.extend(len.to_be_bytes());
            descriptors.extend(state.to_be_bytes());
        }
        Reply::head(chunk(REPLY_BLOCK_STATUS, cookie, 0, &descriptors))
    }
}

/// Lengths and states of the parts of a range of less than 4 GiB.
fn states(range: &Range<u64>, found: &[Range<u64>]) -> Vec<(u32, u32)> {
    let mut states = Vec::new();
    let mut at = range.start;
    let mut put = |upto: u64, state: u32| {
        if upto > at {
            states.push(((upto - at) as u32, state));
            at = upto;
        }
    };
    for bytes in found {
        put(bytes.start.min(range.end), STATE_HOLE_ZERO);
        put(bytes.end.min(range.end), 0);
    }
    put(range.end, STATE_HOLE_ZERO);
    states
}

fn is_zeros(bytes: &[u8]) -> bool {
    // Usually the first bytes decide.
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

fn simple(cookie: u64, code: u32) -> Vec<u8> {
    SimpleReply { cookie, code }.encode().to_vec()
}

/// The only chunk of a reply. Its payload is `data`, followed by `more` bytes.
fn chunk(kind: u16, cookie: u64, more: usize, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes.extend(REPLY_DONE.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(((data.len() + more) as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}
