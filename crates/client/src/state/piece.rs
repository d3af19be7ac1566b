//! One `Write` to be: bytes that no longer change.

use types::limits::SPANS_MAX;
use types::messages::brick::Span;
use types::{Buf, ClientSeq, Epoch};

/// Bytes that a piece of several spans has at most: what the bricks lay over a stripe without reading it, and what is
/// copied into one payload.
pub(super) const JOINED_MAX: usize = 256 << 10;

/// What a piece puts in its place.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// These bytes.
    Bytes(Buf),
    /// Zeros.
    Zeros,
}

impl Body {
    pub(super) fn slice(&self, from: usize, to: usize) -> Body {
        match self {
            Body::Bytes(buf) => Body::Bytes(buf.slice(from..to)),
            Body::Zeros => Body::Zeros,
        }
    }
}

/// What is put in one place of a stripe.
#[derive(Clone, Debug)]
pub(crate) struct DirtyRange {
    /// Place in the stripe.
    pub(crate) offset: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// What is there.
    pub(crate) body: Body,
}

impl DirtyRange {
    pub(super) fn end(&self) -> usize {
        self.offset + self.len
    }

    /// The part of it that lies in `from..to`.
    pub(super) fn within(&self, from: usize, to: usize) -> Option<DirtyRange> {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        (start < end).then(|| {
            let body = self.body.slice(start - self.offset, end - self.offset);
            DirtyRange { offset: start, len: end - start, body }
        })
    }
}

/// One span of a piece.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) dirty: DirtyRange,
    /// Bytes of the budget that its buffer holds.
    pub(super) charge: u64,
}

/// One `Write`: bytes that no longer change, kept until they are stable.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its place among the pieces of its file.
    pub(crate) order: u64,
    /// Its number on the wire, given when it is first sent and kept when it is sent again.
    pub(crate) seq: Option<ClientSeq>,
    /// What it puts where: ascending, apart from each other, at least one.
    pub(super) parts: Vec<Part>,
    /// The epoch whose primary has accepted it.
    pub(crate) accepted: Option<Epoch>,
    /// When it was first sent.
    pub(crate) first_sent: Option<u64>,
    /// How often it was sent in vain.
    pub(crate) tries: u32,
}

impl Piece {
    pub(super) fn new(order: u64, first: Part) -> Piece {
        Piece { order, seq: None, parts: vec![first], accepted: None, first_sent: None, tries: 0 }
    }

    /// Adds a part that lies behind the others, unless the piece would become too large.
    pub(super) fn join(&mut self, part: Part) -> Option<Part> {
        if self.parts.len() == SPANS_MAX || self.len() + part.dirty.len > JOINED_MAX {
            return Some(part);
        }
        self.parts.push(part);
        None
    }

    /// Bytes that it writes.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.dirty.len).sum()
    }

    /// Bytes of the budget that it holds.
    pub(crate) fn charge(&self) -> u64 {
        self.parts.iter().map(|part| part.charge).sum()
    }

    /// End of what it writes.
    pub(crate) fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.dirty.end())
    }

    pub(super) fn start(&self) -> usize {
        self.parts.first().map_or(0, |part| part.dirty.offset)
    }

    /// What it writes, and the bytes of each range, one after the other; none for zeros.
    pub(crate) fn spans(&self) -> (Vec<Span>, Vec<Buf>) {
        let dirty_ranges = || self.parts.iter().map(|part| &part.dirty);
        let bytes = |dirty: &DirtyRange| match &dirty.body {
            Body::Bytes(bytes) => Some(bytes.clone()),
            Body::Zeros => None,
        };
        let span = |dirty: &DirtyRange| Span { offset: dirty.offset as u32, len: dirty.len as u32 };
        (dirty_ranges().map(span).collect(), dirty_ranges().filter_map(bytes).collect())
    }

    /// Drops what lies from `at` on. Returns the bytes of the budget that it no longer holds.
    pub(super) fn cut(&mut self, at: usize) -> u64 {
        let before = self.charge();
        self.parts.retain(|part| part.dirty.offset < at);
        if let Some(last) = self.parts.last_mut()
            && let Some(kept) = last.dirty.within(0, at)
        {
            last.dirty = kept;
        }
        before - self.charge()
    }
}
