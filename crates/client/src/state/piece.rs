//! A piece: the bytes of one `Write`. They no longer change.

use types::limits::SPANS_MAX;
use types::messages::brick::Span;
use types::{Buf, ClientSeq, Epoch};

use crate::state::noted::Noted;

/// Most bytes of a piece of several spans. Bricks store so much as an Overlay without reading the stripe, and it is
/// copied into one payload.
pub(super) const JOINED_MAX: usize = 256 << 10;

/// The content of a range.
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

/// A written range of a stripe.
#[derive(Clone, Debug)]
pub(crate) struct DirtyRange {
    /// Offset in the stripe.
    pub(crate) offset: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// The content.
    pub(crate) body: Body,
}

impl DirtyRange {
    pub(super) fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Its part in `from..to`.
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
    /// Bytes of the budget that its buffer takes.
    pub(super) charge: u64,
}

/// The bytes of one `Write`. They no longer change, and are kept until they are stable.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its number among the pieces of its file.
    pub(crate) order: u64,
    /// The number of its `Write`: assigned when it is first sent, and the same for every retry.
    pub(crate) seq: Option<ClientSeq>,
    /// Its spans: ascending, apart from each other, at least one.
    pub(super) parts: Vec<Part>,
    /// The epoch whose primary has accepted it.
    pub(crate) accepted: Option<Epoch>,
    /// When it was first sent.
    pub(crate) first_sent: Option<u64>,
    /// Number of failed sends.
    pub(crate) tries: u32,
    /// What its `Write` says about the file, the same in every retry.
    pub(crate) noted: Option<Noted>,
}

impl Piece {
    pub(super) fn new(order: u64, first: Part) -> Piece {
        let (seq, accepted, first_sent, noted) = (None, None, None, None);
        Piece { order, seq, parts: vec![first], accepted, first_sent, tries: 0, noted }
    }

    /// Adds a part behind the others. Returns it if the piece would become too large.
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

    /// Bytes of the budget that it takes.
    pub(crate) fn charge(&self) -> u64 {
        self.parts.iter().map(|part| part.charge).sum()
    }

    /// End of its last span.
    pub(crate) fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.dirty.end())
    }

    /// The ranges of its stripe that it writes, without zeros: those are written over bytes that the file has.
    pub(super) fn written(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let parts = self.parts.iter().map(|part| &part.dirty);
        parts.filter(|dirty| matches!(dirty.body, Body::Bytes(_))).map(|dirty| dirty.offset..dirty.end())
    }

    pub(super) fn start(&self) -> usize {
        self.parts.first().map_or(0, |part| part.dirty.offset)
    }

    /// Its spans, and the bytes of each span; no bytes for zeros.
    pub(crate) fn spans(&self) -> (Vec<Span>, Vec<Buf>) {
        let dirty_ranges = || self.parts.iter().map(|part| &part.dirty);
        let bytes = |dirty: &DirtyRange| match &dirty.body {
            Body::Bytes(bytes) => Some(bytes.clone()),
            Body::Zeros => None,
        };
        let span = |dirty: &DirtyRange| Span { offset: dirty.offset as u32, len: dirty.len as u32 };
        (dirty_ranges().map(span).collect(), dirty_ranges().filter_map(bytes).collect())
    }

    /// Drops bytes from `at` on. Returns the freed bytes of the budget.
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
