//! The unstable bytes of one stripe, in the order in which they were written.
//!
//! ```text
//!  oldest                                                    newest
//!  | piece (accepted) | piece (in flight) | piece (waiting) | segments |
//!    kept until stable  one at a time       sealed            still changing
//! ```
//!
//! A write is copied once, into a segment: contiguous dirty bytes in a buffer with room to grow. Segments never touch
//! each other. When the stripe is to be sent, its segments are sealed: they become the spans of one piece, which is
//! one `Write`; or of a few pieces if they are many or large.

use std::collections::VecDeque;

use types::limits::BLOCK;
use types::{Buf, BufMut, Epoch};

use crate::state::piece::{Body, DirtyRange, Part, Piece};

/// A change of the buffers, in bytes of the budget, and of the number of pieces.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// Bytes of all buffers.
    pub(crate) used: i64,
    /// Bytes of buffers that may still change.
    pub(crate) gathering: i64,
    /// Number of pieces.
    pub(crate) pieces: i64,
}

impl std::ops::AddAssign for Change {
    fn add_assign(&mut self, other: Change) {
        self.used += other.used;
        self.gathering += other.gathering;
        self.pieces += other.pieces;
    }
}

/// Contiguous dirty bytes that may still change.
#[derive(Debug)]
struct Segment {
    /// Offset in the stripe.
    start: usize,
    /// Used bytes of the buffer.
    len: usize,
    buf: BufMut,
}

impl Segment {
    fn new(start: usize, room: usize) -> Segment {
        // The pool allocates powers of two, so the rest of the allocation is room to grow.
        Segment { start, len: 0, buf: BufMut::dirty(Segment::capacity_of(room)) }
    }

    fn capacity_of(room: usize) -> usize {
        room.max(BLOCK).next_power_of_two()
    }

    fn end(&self) -> usize {
        self.start + self.len
    }

    fn capacity(&self) -> u64 {
        self.buf.capacity() as u64
    }

    /// Whether `len` bytes at `at` fit into the buffer; `at` lies within the dirty bytes or directly behind them.
    fn has_room(&self, at: usize, len: usize) -> bool {
        self.start <= at && at - self.start + len <= self.buf.len()
    }

    /// Copies bytes that fit.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let within = at - self.start;
        self.buf[within..within + bytes.len()].copy_from_slice(bytes);
        self.len = self.len.max(within + bytes.len());
    }

    /// Makes the bytes immutable; copies them into a smaller buffer if most of this one is unused.
    fn seal(self) -> Part {
        let (offset, len, capacity) = (self.start, self.len, self.capacity());
        let (buf, charge) = if capacity > 4 * len.max(BLOCK) as u64 {
            let small = BufMut::copy_of(&self.buf[..len]);
            let charge = small.capacity() as u64;
            (small.freeze(), charge)
        } else {
            (self.buf.freeze().slice(0..len), capacity)
        };
        Part { dirty: DirtyRange { offset, len, body: Body::Bytes(buf) }, charge }
    }
}

/// The unstable bytes of one stripe, and the state of sending them.
#[derive(Debug, Default)]
pub(crate) struct StripeWrites {
    pieces: VecDeque<Piece>,
    segments: Vec<Segment>,
    /// When the oldest segment was begun.
    pub(crate) since: u64,
    /// A task is sending the stripe.
    pub(crate) claimed: bool,
    /// It is in the queue of stripes to be sent.
    pub(crate) queued: bool,
    /// Nothing is sent before a timer has expired.
    pub(crate) backing_off: bool,
}

/// How to merge a write with segments, if it does not fit into an existing one.
struct Merge {
    /// The segments that it touches.
    touched: std::ops::Range<usize>,
    /// Start of the merged segment.
    start: usize,
    /// Bytes of its buffer.
    room: usize,
}

impl StripeWrites {
    /// By how much the buffers grow if `len` bytes are written at `at`: see [`StripeWrites::lay`].
    pub(crate) fn growth(&self, at: usize, len: usize, stripe: usize) -> i64 {
        let Some(merge) = self.merge(at, len, stripe) else { return 0 };
        let old: i64 = self.segments[merge.touched].iter().map(|s| s.capacity() as i64).sum();
        Segment::capacity_of(merge.room) as i64 - old
    }

    /// `None` if the bytes fit into an existing segment.
    fn merge(&self, at: usize, len: usize, stripe: usize) -> Option<Merge> {
        let end = at + len;
        let first = self.segments.partition_point(|s| s.end() < at);
        let last = self.segments.partition_point(|s| s.start <= end);
        let touched = &self.segments[first..last];
        if let [one] = touched
            && one.has_room(at, len)
        {
            return None;
        }
        let start = touched.first().map_or(at, |s| s.start.min(at));
        let stop = touched.last().map_or(end, |s| s.end().max(end));
        let appended = touched.len() == 1 && start < at;
        Some(Merge { touched: first..last, start, room: room_for(stop - start, start, stripe, appended) })
    }

    /// Copies `bytes` to `at`; `stripe` is the length of a stripe. Returns by how much the buffers have grown.
    pub(crate) fn lay(&mut self, at: usize, bytes: &[u8], stripe: usize) -> i64 {
        assert!(at + bytes.len() <= stripe, "a write to a stripe ends within it");
        let Some(Merge { touched, start, room }) = self.merge(at, bytes.len(), stripe) else {
            let within = self.segments.partition_point(|s| s.end() < at);
            self.segments[within].put(at, bytes);
            return 0;
        };
        let mut merged = Segment::new(start, room);
        let mut grown = merged.capacity() as i64;
        let first = touched.start;
        for old in self.segments.drain(touched) {
            // The new bytes cover the gaps between these segments.
            merged.put(old.start, &old.buf[..old.len]);
            grown -= old.capacity() as i64;
        }
        merged.put(at, bytes);
        self.segments.insert(first, merged);
        grown
    }

    /// Writes zeros after everything written so far.
    pub(crate) fn lay_zeros(&mut self, at: usize, len: usize, next_order: &mut u64) -> Change {
        *next_order += 1;
        let dirty = DirtyRange { offset: at, len, body: Body::Zeros };
        self.pieces.push_back(Piece::new(*next_order, Part { dirty, charge: 0 }));
        Change { pieces: 1, ..Change::default() }
    }

    /// Turns the segments into pieces: one, unless they are too many or too large.
    pub(crate) fn seal(&mut self, next_order: &mut u64) -> Change {
        let mut change = Change::default();
        for segment in self.segments.drain(..) {
            let before = segment.capacity() as i64;
            let part = segment.seal();
            change.gathering -= before;
            change.used += part.charge as i64 - before;
            // A piece from before this call may have been sent, so it must not change.
            let last = if change.pieces > 0 { self.pieces.back_mut() } else { None };
            let apart = match last {
                Some(piece) => piece.join(part),
                None => Some(part),
            };
            if let Some(part) = apart {
                *next_order += 1;
                change.pieces += 1;
                self.pieces.push_back(Piece::new(*next_order, part));
            }
        }
        self.since = 0;
        change
    }

    /// Bytes of buffers that may still change.
    pub(crate) fn gathering(&self) -> u64 {
        self.segments.iter().map(Segment::capacity).sum()
    }

    /// Whether there are segments.
    pub(crate) fn is_gathering(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Whether the segments are one whole stripe.
    pub(crate) fn is_whole(&self, stripe: usize) -> bool {
        matches!(self.segments.as_slice(), [one] if one.start == 0 && one.len == stripe)
    }

    /// Whether the segments have at least `bytes` bytes.
    pub(crate) fn has_gathered(&self, bytes: u64) -> bool {
        bytes != u64::MAX && self.segments.iter().map(|segment| segment.len as u64).sum::<u64>() >= bytes
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.segments.is_empty()
    }

    /// The oldest piece that the primary of `epoch` has not accepted.
    pub(crate) fn unsent(&mut self, epoch: Epoch) -> Option<&mut Piece> {
        self.pieces.iter_mut().find(|p| p.accepted != Some(epoch))
    }

    /// Whether there is something to send to the primary of `epoch`.
    pub(crate) fn is_due(&self, epoch: Epoch) -> bool {
        self.pieces.iter().any(|p| p.accepted != Some(epoch))
    }

    /// The number of the oldest piece.
    pub(crate) fn first_order(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.order)
    }

    /// The piece with this number, if it is still here.
    pub(crate) fn piece_at(&self, order: u64) -> Option<&Piece> {
        let at = self.pieces.binary_search_by_key(&order, |p| p.order).ok()?;
        self.pieces.get(at)
    }

    /// The piece with this number, to be changed, if it is still here.
    pub(crate) fn piece(&mut self, order: u64) -> Option<&mut Piece> {
        let at = self.pieces.binary_search_by_key(&order, |p| p.order).ok()?;
        self.pieces.get_mut(at)
    }

    /// Removes a piece that is stable or lost.
    pub(crate) fn remove(&mut self, order: u64) -> Option<Piece> {
        let at = self.pieces.binary_search_by_key(&order, |p| p.order).ok()?;
        self.pieces.remove(at)
    }

    /// Removes all pieces and segments. Returns the pieces, and the change without them.
    pub(crate) fn clear(&mut self) -> (VecDeque<Piece>, Change) {
        let gathering = -(self.gathering() as i64);
        self.segments.clear();
        self.since = 0;
        (std::mem::take(&mut self.pieces), Change { used: gathering, gathering, pieces: 0 })
    }

    /// Whether the piece is the newest, and there are no segments.
    pub(crate) fn is_last(&self, order: u64) -> bool {
        self.segments.is_empty() && self.pieces.back().is_some_and(|piece| piece.order == order)
    }

    /// Whether some piece has been accepted, in any epoch.
    pub(crate) fn has_accepted(&self) -> bool {
        self.pieces.iter().any(|p| p.accepted.is_some())
    }

    /// The offset of the first unstable byte.
    pub(crate) fn first_byte(&self) -> Option<usize> {
        let pieces = self.pieces.iter().map(Piece::start);
        pieces.chain(self.segments.first().map(|s| s.start)).min()
    }

    /// The end of the last unstable byte before `at`.
    pub(crate) fn end_before(&self, at: usize) -> Option<usize> {
        let pieces = self.pieces.iter().flat_map(|piece| piece.parts.iter());
        let pieces = pieces.map(|part| (part.dirty.offset, part.dirty.end()));
        let segments = self.segments.iter().map(|s| (s.start, s.end()));
        pieces.chain(segments).filter(|(start, _)| *start < at).map(|(_, end)| end.min(at)).max()
    }

    /// Drops unsent bytes from `at` on. Returns the dropped pieces, and the change without them.
    pub(crate) fn cut(&mut self, at: usize) -> (Vec<Piece>, Change) {
        let mut change = Change::default();
        self.segments.retain(|s| {
            let keep = s.start < at;
            change.gathering -= if keep { 0 } else { s.capacity() as i64 };
            keep
        });
        change.used = change.gathering;
        if let Some(last) = self.segments.last_mut() {
            last.len = last.len.min(at - last.start);
        }
        let (mut kept, mut dropped) = (VecDeque::new(), Vec::new());
        for mut piece in self.pieces.drain(..) {
            if piece.seq.is_none() && piece.start() >= at {
                dropped.push(piece);
                continue;
            }
            if piece.seq.is_none() {
                change.used -= piece.cut(at) as i64;
            }
            kept.push_back(piece);
        }
        self.pieces = kept;
        (dropped, change)
    }

    /// The unstable bytes in `from..to`, oldest first.
    pub(crate) fn dirty_ranges(&self, from: usize, to: usize) -> Vec<DirtyRange> {
        let mut dirty_ranges = Vec::new();
        for piece in &self.pieces {
            let first = piece.parts.partition_point(|part| part.dirty.end() <= from);
            dirty_ranges.extend(piece.parts[first..].iter().map_while(|part| part.dirty.within(from, to)));
        }
        for segment in &self.segments {
            let (start, end) = (segment.start.max(from), segment.end().min(to));
            if start < end {
                let bytes = &segment.buf[start - segment.start..end - segment.start];
                let body = Body::Bytes(Buf::copy_of(bytes));
                dirty_ranges.push(DirtyRange { offset: start, len: end - start, body });
            }
        }
        dirty_ranges
    }
}

/// Room for a segment of `len` bytes at `start`. A sequential stream gets the rest of the stripe at once, so that it
/// is copied only once. A single small write gets what it needs.
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
    use types::limits::SPANS_MAX;

    use crate::state::piece::JOINED_MAX;

    const STRIPE: usize = 1 << 16;

    fn seen(writes: &StripeWrites, model: &mut [u8], known: &mut [bool]) {
        for dirty in writes.dirty_ranges(0, STRIPE) {
            let place = dirty.offset..dirty.offset + dirty.len;
            match &dirty.body {
                Body::Bytes(bytes) => model[place.clone()].copy_from_slice(bytes),
                Body::Zeros => model[place.clone()].fill(0),
            }
            known[place].fill(true);
        }
    }

    /// What the stripe holds, counted anew.
    fn charged(writes: &StripeWrites) -> Change {
        let gathering = writes.gathering() as i64;
        let pieces: u64 = writes.pieces.iter().map(Piece::charge).sum();
        Change { used: gathering + pieces as i64, gathering, pieces: writes.pieces.len() as i64 }
    }

    #[test]
    fn many_spans_are_several_pieces() {
        let (mut writes, mut order) = (StripeWrites::default(), 0);
        let stripe = 4 * (SPANS_MAX + 10);
        for at in (0..stripe).step_by(4) {
            writes.lay(at, &[1], stripe);
        }
        let change = writes.seal(&mut order);
        assert_eq!(change.pieces, 2);
        assert_eq!(writes.pieces.iter().map(|p| p.parts.len()).collect::<Vec<_>>(), [SPANS_MAX, 10]);
    }

    proptest! {
        #[test]
        fn patches_are_what_was_written(ops in proptest::collection::vec((0u8..10, 0usize..STRIPE, 1usize..9000, any::<u8>()), 1..60)) {
            let (mut writes, mut order, mut held) = (StripeWrites::default(), 0, Change::default());
            let (mut model, mut known) = (vec![0u8; STRIPE], vec![false; STRIPE]);
            for (what, at, len, fill) in ops {
                let len = len.min(STRIPE - at);
                match what {
                    0 => held += writes.seal(&mut order),
                    1 => {
                        held += writes.seal(&mut order);
                        held += writes.lay_zeros(at, len, &mut order);
                        model[at..at + len].fill(0);
                        known[at..at + len].fill(true);
                    }
                    _ => {
                        let expected = writes.growth(at, len, STRIPE);
                        let grown = writes.lay(at, &vec![fill; len], STRIPE);
                        prop_assert_eq!(grown, expected, "room is taken before bytes are laid");
                        held += Change { used: grown, gathering: grown, pieces: 0 };
                        model[at..at + len].fill(fill);
                        known[at..at + len].fill(true);
                    }
                }
                for pair in writes.segments.windows(2) {
                    prop_assert!(pair[0].end() < pair[1].start, "segments do not touch");
                }
                prop_assert_eq!(held, charged(&writes), "every buffer is counted once");
            }
            let (mut bytes, mut found) = (vec![0u8; STRIPE], vec![false; STRIPE]);
            seen(&writes, &mut bytes, &mut found);
            prop_assert_eq!(&found, &known);
            prop_assert!(bytes == model);
            let (pieces, cleared) = writes.clear();
            held += cleared;
            for piece in pieces {
                held += Change { used: -(piece.charge() as i64), gathering: 0, pieces: -1 };
            }
            prop_assert_eq!(held, Change::default());
        }

        #[test]
        fn a_piece_is_a_sound_write(spans in proptest::collection::vec((0usize..4 * JOINED_MAX, 1usize..60_000), 1..40)) {
            const LARGE: usize = 4 * JOINED_MAX;
            let (mut writes, mut order) = (StripeWrites::default(), 0);
            for (start, len) in spans {
                writes.lay(start, &vec![1; len.min(LARGE - start)], LARGE);
            }
            let segments = writes.segments.len();
            writes.seal(&mut order);
            let mut behind = 0;
            let mut sealed = 0;
            for piece in &writes.pieces {
                let (spans, bytes) = piece.spans();
                for (span, bytes) in spans.iter().zip(&bytes) {
                    prop_assert!(span.len as usize == bytes.len() && !bytes.is_empty());
                    prop_assert!(span.offset as usize >= behind, "ascending, apart");
                    behind = span.offset as usize + bytes.len() + 1;
                }
                prop_assert!(spans.len() == bytes.len() && spans.len() <= SPANS_MAX);
                prop_assert!(spans.len() == 1 || piece.len() <= JOINED_MAX);
                sealed += spans.len();
            }
            prop_assert_eq!(segments, sealed);
            let joined = |a: &Piece, b: &Piece| a.len() + b.parts[0].dirty.len > JOINED_MAX;
            prop_assert!(writes.pieces.iter().zip(writes.pieces.iter().skip(1)).all(|(a, b)| joined(a, b)));
        }

        #[test]
        fn cut_drops_what_lies_beyond(spans in proptest::collection::vec((0usize..STRIPE, 1usize..9000), 1..12), at in 0usize..STRIPE) {
            let (mut writes, mut order) = (StripeWrites::default(), 0);
            let mut known = vec![false; STRIPE];
            let mut held = Change::default();
            for (i, (start, len)) in spans.into_iter().enumerate() {
                let len = len.min(STRIPE - start);
                let grown = writes.lay(start, &vec![1; len], STRIPE);
                held += Change { used: grown, gathering: grown, pieces: 0 };
                if i % 3 == 0 { held += writes.seal(&mut order); }
                known[start..start + len].fill(true);
            }
            let (dropped, change) = writes.cut(at);
            held += change;
            for piece in dropped {
                held += Change { used: -(piece.charge() as i64), gathering: 0, pieces: -1 };
            }
            prop_assert_eq!(held, charged(&writes));
            let (mut bytes, mut found) = (vec![0u8; STRIPE], vec![false; STRIPE]);
            seen(&writes, &mut bytes, &mut found);
            known[at..].fill(false);
            prop_assert_eq!(found, known);
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
        assert!(writes.is_due(Epoch(3)) && writes.is_last(2) && !writes.is_last(1));
    }
}
