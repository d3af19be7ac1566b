//! The unstable bytes of one stripe, in the order in which they were written.
//!
//! ```text
//!  oldest                                                    newest
//!  | piece (accepted) | piece (in flight) | piece (waiting) | segments |
//!    kept until stable  one at a time       sealed            still changing
//! ```
//!
//! A write is copied once, into a segment: contiguous dirty bytes in a buffer with room to grow. Segments never
//! touch each other. When the stripe's turn comes they are sealed: each becomes a piece, which is one `Write`.

use std::collections::VecDeque;

use types::limits::BLOCK;
use types::{Buf, BufMut, ClientSeq, Epoch};

/// Contiguous dirty bytes that may still change.
#[derive(Debug)]
struct Segment {
    /// Place in the stripe.
    start: usize,
    /// Bytes used of the buffer.
    len: usize,
    buf: BufMut,
}

impl Segment {
    fn new(start: usize, room: usize) -> Segment {
        // The pool gives powers of two: what is there anyway is room to grow.
        Segment { start, len: 0, buf: BufMut::dirty(room.max(BLOCK).next_power_of_two()) }
    }

    fn end(&self) -> usize {
        self.start + self.len
    }

    fn capacity(&self) -> u64 {
        self.buf.capacity() as u64
    }

    /// Lays bytes that begin within or right behind the dirty ones, if there is room.
    fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        let within = at - self.start;
        let Some(place) = self.buf.get_mut(within..within + bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.len = self.len.max(within + bytes.len());
        true
    }

    /// The bytes, no longer changeable; in a smaller buffer if most of this one is unused.
    fn seal(self) -> Buf {
        if self.buf.capacity() > 4 * self.len.max(BLOCK) {
            return Buf::copy_of(&self.buf[..self.len]);
        }
        self.buf.freeze().slice(0..self.len)
    }
}

/// What a piece puts in its place.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// These bytes.
    Bytes(Buf),
    /// Zeros.
    Zeros,
}

impl Body {
    fn slice(&self, from: usize, to: usize) -> Body {
        match self {
            Body::Bytes(buf) => Body::Bytes(buf.slice(from..to)),
            Body::Zeros => Body::Zeros,
        }
    }
}

/// One `Write`: bytes that no longer change, kept until they are stable.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its place among the pieces of its file.
    pub(crate) order: u64,
    /// Its number on the wire, given when it is first sent and kept when it is sent again.
    pub(crate) seq: Option<ClientSeq>,
    /// Place in the stripe.
    pub(crate) offset: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// What it puts there.
    pub(crate) body: Body,
    /// Bytes of the budget that it holds.
    pub(crate) charge: u64,
    /// The epoch whose primary has accepted it.
    pub(crate) accepted: Option<Epoch>,
    /// When it was first sent.
    pub(crate) first_sent: Option<u64>,
    /// How often it was sent in vain.
    pub(crate) tries: u32,
}

impl Piece {
    fn new(order: u64, offset: usize, len: usize, body: Body, charge: u64) -> Piece {
        Piece { order, seq: None, offset, len, body, charge, accepted: None, first_sent: None, tries: 0 }
    }

    fn end(&self) -> usize {
        self.offset + self.len
    }
}

/// Bytes that a read finds here instead of on the bricks.
#[derive(Debug)]
pub(crate) struct Patch {
    /// Place in the stripe.
    pub(crate) offset: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// What is there.
    pub(crate) body: Body,
}

/// The unstable bytes of one stripe, and whose turn it is to send them.
#[derive(Debug, Default)]
pub(crate) struct StripeWrites {
    pieces: VecDeque<Piece>,
    segments: Vec<Segment>,
    /// When the oldest segment began.
    pub(crate) since: u64,
    /// Segments are to leave although they are not a whole stripe.
    pub(crate) hurry: bool,
    /// Somebody is sending.
    pub(crate) claimed: bool,
    /// Stands in the queue of stripes to be sent.
    pub(crate) queued: bool,
    /// Nothing is sent before a timer has run out.
    pub(crate) resting: bool,
}

impl StripeWrites {
    /// Copies `bytes` to `at`; `stripe` is the length of a whole one. Returns by how much the buffers have grown.
    pub(crate) fn lay(&mut self, at: usize, bytes: &[u8], stripe: usize) -> i64 {
        let end = at + bytes.len();
        assert!(end <= stripe, "a write is cut at the end of the stripe");
        let first = self.segments.partition_point(|s| s.end() < at);
        let last = self.segments.partition_point(|s| s.start <= end);
        if last == first + 1 && self.segments[first].start <= at && self.segments[first].put(at, bytes) {
            return 0;
        }
        let touched: Vec<Segment> = self.segments.drain(first..last).collect();
        let start = touched.first().map_or(at, |s| s.start.min(at));
        let stop = touched.last().map_or(end, |s| s.end().max(end));
        let appended = touched.len() == 1 && start < at;
        let room = room_for(stop - start, start, stripe, appended);
        let mut merged = Segment::new(start, room);
        let mut grown = merged.capacity() as i64;
        for old in &touched {
            // What lies between the touched segments is covered by the new bytes.
            merged.len = old.start - start;
            let fits = merged.put(old.start, &old.buf[..old.len]);
            assert!(fits, "the merged segment has room for all that it merges");
            grown -= old.capacity() as i64;
        }
        let fits = merged.put(at, bytes);
        assert!(fits, "the merged segment has room for the new bytes");
        self.segments.insert(first, merged);
        grown
    }

    /// Puts zeros behind everything written so far.
    pub(crate) fn lay_zeros(&mut self, at: usize, len: usize, next_order: &mut u64) {
        *next_order += 1;
        self.pieces.push_back(Piece::new(*next_order, at, len, Body::Zeros, 0));
    }

    /// Turns the segments into pieces. Returns by how much the buffers have grown (never above 0).
    pub(crate) fn seal(&mut self, next_order: &mut u64) -> i64 {
        let mut grown = 0;
        for segment in self.segments.drain(..) {
            *next_order += 1;
            let (start, len, before) = (segment.start, segment.len, segment.capacity());
            let shrunk = segment.buf.capacity() > 4 * len.max(BLOCK);
            let buf = segment.seal();
            let charge = if shrunk { len.max(BLOCK).next_power_of_two() as u64 } else { before };
            grown += charge as i64 - before as i64;
            self.pieces.push_back(Piece::new(*next_order, start, len, Body::Bytes(buf), charge));
        }
        self.hurry = false;
        self.since = 0;
        grown
    }

    /// Bytes of the buffers that may still change.
    pub(crate) fn gathering(&self) -> u64 {
        self.segments.iter().map(Segment::capacity).sum()
    }

    /// Something may still change here.
    pub(crate) fn is_gathering(&self) -> bool {
        !self.segments.is_empty()
    }

    /// The segments are one whole stripe.
    pub(crate) fn is_whole(&self, stripe: usize) -> bool {
        matches!(self.segments.as_slice(), [one] if one.start == 0 && one.len == stripe)
    }

    /// Nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.segments.is_empty()
    }

    /// The first piece that the primary of `epoch` has not accepted: everything older goes before it.
    pub(crate) fn unsent(&mut self, epoch: Epoch) -> Option<&mut Piece> {
        self.pieces.iter_mut().find(|p| p.accepted != Some(epoch))
    }

    /// There is something to send to the primary of `epoch`.
    pub(crate) fn is_due(&self, epoch: Epoch, stripe: usize) -> bool {
        self.pieces.iter().any(|p| p.accepted != Some(epoch))
            || (self.is_gathering() && (self.hurry || self.is_whole(stripe)))
    }

    /// The piece with this place in the file's order, if it is still here.
    pub(crate) fn piece(&mut self, order: u64) -> Option<&mut Piece> {
        let at = self.pieces.binary_search_by_key(&order, |p| p.order).ok()?;
        self.pieces.get_mut(at)
    }

    /// Takes a piece out: it is stable, or lost.
    pub(crate) fn remove(&mut self, order: u64) -> Option<Piece> {
        let at = self.pieces.binary_search_by_key(&order, |p| p.order).ok()?;
        self.pieces.remove(at)
    }

    /// Takes every piece and segment out. Returns the pieces.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Piece> + use<> {
        self.segments.clear();
        self.since = 0;
        self.hurry = false;
        std::mem::take(&mut self.pieces).into_iter()
    }

    /// Pieces that have been accepted, in whichever epoch.
    pub(crate) fn has_accepted(&self) -> bool {
        self.pieces.iter().any(|p| p.accepted.is_some())
    }

    /// Where the first unstable byte lies.
    pub(crate) fn first_byte(&self) -> Option<usize> {
        let pieces = self.pieces.iter().map(|p| p.offset);
        pieces.chain(self.segments.first().map(|s| s.start)).min()
    }

    /// Drops what has not been sent yet from `at` on. Returns the pieces dropped, and the growth of the buffers.
    pub(crate) fn cut(&mut self, at: usize) -> (Vec<Piece>, i64) {
        let mut grown = 0;
        self.segments.retain(|s| {
            let keep = s.start < at;
            grown -= if keep { 0 } else { s.capacity() as i64 };
            keep
        });
        if let Some(last) = self.segments.last_mut() {
            last.len = last.len.min(at - last.start);
        }
        let (mut kept, mut dropped) = (VecDeque::new(), Vec::new());
        for mut piece in self.pieces.drain(..) {
            if piece.seq.is_none() && piece.end() > at {
                if piece.offset >= at {
                    dropped.push(piece);
                    continue;
                }
                piece.len = at - piece.offset;
                piece.body = piece.body.slice(0, piece.len);
            }
            kept.push_back(piece);
        }
        self.pieces = kept;
        (dropped, grown)
    }

    /// What is known here of `from..to`, oldest first.
    pub(crate) fn patches(&self, from: usize, to: usize) -> Vec<Patch> {
        let mut patches = Vec::new();
        let cut = |start: usize, end: usize| (start.max(from), end.min(to));
        for piece in &self.pieces {
            let (start, end) = cut(piece.offset, piece.end());
            if start < end {
                let body = piece.body.slice(start - piece.offset, end - piece.offset);
                patches.push(Patch { offset: start, len: end - start, body });
            }
        }
        for segment in &self.segments {
            let (start, end) = cut(segment.start, segment.end());
            if start < end {
                let bytes = &segment.buf[start - segment.start..end - segment.start];
                patches.push(Patch {
                    offset: start,
                    len: end - start,
                    body: Body::Bytes(Buf::copy_of(bytes)),
                });
            }
        }
        patches
    }
}

/// Room for a segment of `len` bytes at `start`: a stream gets the rest of the stripe at once, so that it is copied
/// once; a lone small write gets what it needs.
fn room_for(len: usize, start: usize, stripe: usize, appended: bool) -> usize {
    let rest = stripe - start;
    let large = len >= stripe / 16;
    match (appended, large) {
        (true, true) => rest,
        (true, false) => (4 * len).min(rest),
        (false, true) if start == 0 => rest,
        (false, _) => len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STRIPE: usize = 1 << 16;

    fn seen(writes: &StripeWrites, model: &mut [u8], known: &mut [bool]) {
        for patch in writes.patches(0, STRIPE) {
            let place = patch.offset..patch.offset + patch.len;
            match &patch.body {
                Body::Bytes(bytes) => model[place.clone()].copy_from_slice(bytes),
                Body::Zeros => model[place.clone()].fill(0),
            }
            known[place].fill(true);
        }
    }

    proptest! {
        #[test]
        fn patches_are_what_was_written(ops in proptest::collection::vec((0u8..10, 0usize..STRIPE, 1usize..9000, any::<u8>()), 1..60)) {
            let (mut writes, mut order, mut held) = (StripeWrites::default(), 0, 0i64);
            let (mut model, mut known) = (vec![0u8; STRIPE], vec![false; STRIPE]);
            for (what, at, len, fill) in ops {
                let len = len.min(STRIPE - at);
                match what {
                    0 => held += writes.seal(&mut order),
                    1 => {
                        held += writes.seal(&mut order);
                        writes.lay_zeros(at, len, &mut order);
                        model[at..at + len].fill(0);
                        known[at..at + len].fill(true);
                    }
                    _ => {
                        held += writes.lay(at, &vec![fill; len], STRIPE);
                        model[at..at + len].fill(fill);
                        known[at..at + len].fill(true);
                    }
                }
                for pair in writes.segments.windows(2) {
                    prop_assert!(pair[0].end() < pair[1].start, "segments do not touch");
                }
            }
            let (mut bytes, mut found) = (vec![0u8; STRIPE], vec![false; STRIPE]);
            seen(&writes, &mut bytes, &mut found);
            prop_assert_eq!(&found, &known);
            prop_assert!(bytes == model);
            held += writes.seal(&mut order);
            let charged: u64 = writes.clear().map(|p| p.charge).sum();
            prop_assert_eq!(held, charged as i64, "what grew is what the pieces hold");
        }

        #[test]
        fn cut_drops_what_lies_beyond(spans in proptest::collection::vec((0usize..STRIPE, 1usize..9000), 1..12), at in 0usize..STRIPE) {
            let (mut writes, mut order) = (StripeWrites::default(), 0);
            for (i, (start, len)) in spans.into_iter().enumerate() {
                writes.lay(start, &vec![1; len.min(STRIPE - start)], STRIPE);
                if i % 3 == 0 { writes.seal(&mut order); }
            }
            writes.cut(at);
            prop_assert!(writes.patches(0, STRIPE).iter().all(|p| p.offset + p.len <= at));
        }
    }

    #[test]
    fn a_stream_fills_one_buffer_and_is_whole() {
        let mut writes = StripeWrites::default();
        let mut held = 0;
        for at in (0..STRIPE).step_by(4096) {
            assert!(!writes.is_whole(STRIPE));
            held += writes.lay(at, &[7; 4096], STRIPE);
        }
        assert!(writes.is_whole(STRIPE));
        assert_eq!((held, writes.gathering()), (STRIPE as i64, STRIPE as u64));
    }

    #[test]
    fn pieces_of_an_older_epoch_go_first() {
        let (mut writes, mut order) = (StripeWrites::default(), 0);
        writes.lay(0, &[1; 10], STRIPE);
        writes.seal(&mut order);
        writes.lay(0, &[2; 10], STRIPE);
        writes.seal(&mut order);
        writes.piece(1).expect("sealed").accepted = Some(Epoch(3));
        assert_eq!(writes.unsent(Epoch(3)).map(|p| p.order), Some(2));
        assert_eq!(writes.unsent(Epoch(4)).map(|p| p.order), Some(1));
        assert!(!writes.is_due(Epoch(3), STRIPE) || writes.unsent(Epoch(3)).is_some());
    }
}
