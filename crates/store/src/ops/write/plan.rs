//! The parts of the slots in an operation: how a write is cut, and what it lies over.

use std::ops::Range;

use types::limits::BLOCK;
use types::messages::brick::{OpKind, Span, Write};
use types::{Buf, BufMut, Geometry};

use super::super::stripe::Stripe;

/// A planned operation: its kind, and the part of each slot.
pub(crate) struct Plan {
    pub(super) kind: OpKind,
    /// Mask of the touched data slots.
    pub(super) touched: u64,
    pub(super) unit_blocks: Vec<u32>,
    /// The part of each slot.
    pub(super) parts: Vec<Part>,
    /// The payloads are on the slots already.
    pub(super) staged: bool,
}

/// One slot's part of an operation.
#[derive(Clone, Default)]
pub(super) struct Part {
    pub(super) spans: Vec<Span>,
    pub(super) payload: Buf,
}

impl Plan {
    /// Invariants of every plan that the slots rely on.
    pub(super) fn check(&self, stripe: &Stripe<'_>) {
        let (code, is_full) = (stripe.geometry.code(), self.kind == OpKind::Full);
        assert_ne!(self.kind, OpKind::Patch, "a patch that is sent in one round has no parity");
        assert!(!self.staged || is_full, "only whole units are staged: a slot would not find the bytes");
        assert_eq!(self.parts.len(), code.slots(), "a slot without a part would miss the operation");
        assert_eq!(self.touched >> code.k(), 0, "only data slots are touched: parity takes part anyway");
        assert_eq!(
            self.unit_blocks.len(),
            if is_full { code.k() } else { 0 },
            "a decode would take a unit for absent and give wrong bytes"
        );
        assert!(
            !is_full || !stripe.shape.exists || self.touched.count_ones() as usize == code.k(),
            "a data slot that is left out keeps a version that the new parity does not encode"
        );
        let longest = self.unit_blocks.iter().max().copied().unwrap_or(0);
        for (slot, part) in self.parts.iter().enumerate() {
            let spans: usize = part.spans.iter().map(|span| span.len as usize).sum();
            let unit = self.unit_blocks.get(slot).copied().unwrap_or(longest) as usize * BLOCK;
            assert!(unit <= stripe.geometry.unit(), "bytes beyond the end of a unit are never read");
            assert!(!is_full || spans == 0, "a slot refuses ranges of a unit that is replaced whole");
            let expected = match self.kind {
                OpKind::Full if !self.staged => unit,
                OpKind::Overlay => spans,
                _ => 0,
            };
            assert_eq!(part.payload.len(), expected, "a slot refuses a payload of the wrong length");
        }
    }
}

/// A Full whose units are staged on the slots.
pub(super) fn plan_staged(geometry: &Geometry) -> Plan {
    let code = geometry.code();
    Plan {
        kind: OpKind::Full,
        touched: (0..code.k()).fold(0, |mask, unit| mask | 1 << unit),
        unit_blocks: vec![(geometry.unit() / BLOCK) as u32; code.k()],
        parts: vec![Part::default(); code.slots()],
        staged: true,
    }
}

/// A small write over an existing stripe: each data slot gets the bytes in its unit. Parity slots and the primary get
/// all of them.
pub(super) fn plan_overlay(stripe: &Stripe<'_>, w: &Write, payload: &Buf) -> Plan {
    let geometry = &stripe.geometry;
    let code = geometry.code();
    let kind = if w.zero { OpKind::Zero } else { OpKind::Overlay };
    let mut cuts: Vec<Vec<(Span, Range<usize>)>> = vec![Vec::new(); code.k()];
    for (unit, from, bytes) in split_spans(geometry, &w.spans) {
        let offset = (unit * geometry.unit() + from) as u32;
        cuts[unit].push((Span { offset, len: bytes.len() as u32 }, bytes));
    }
    let mask = |mask, (unit, cut): (usize, &Vec<_>)| mask | u64::from(!cut.is_empty()) << unit;
    let touched = cuts.iter().enumerate().fold(0, mask);
    let (cut, all) = (cuts.iter().flatten().map(|(span, _)| span.len), w.spans.iter().map(|span| span.len));
    assert_eq!(
        cut.sum::<u32>(),
        all.sum::<u32>(),
        "bytes that no data slot gets would be lost at the next fold"
    );
    assert_ne!(touched, 0, "a write that no data slot gets would be stable but unreadable");
    let part = |slot: usize| match cuts.get(slot).filter(|_| slot != stripe.me) {
        Some(cut) => {
            let spans = cut.iter().map(|(span, _)| span.clone()).collect();
            let bytes: Vec<Range<usize>> = cut.iter().map(|(_, bytes)| bytes.clone()).collect();
            Part { spans, payload: if w.zero { Buf::empty() } else { gather(payload, &bytes) } }
        }
        None => Part { spans: w.spans.clone(), payload: payload.clone() },
    };
    Plan {
        kind,
        touched,
        unit_blocks: Vec::new(),
        parts: (0..code.slots()).map(part).collect(),
        staged: false,
    }
}

/// Cuts spans at the ends of units: `(data unit, offset in it, bytes of the payload)`.
pub(super) fn split_spans(geometry: &Geometry, spans: &[Span]) -> Vec<(usize, usize, Range<usize>)> {
    let mut at = 0;
    let pieces = spans.iter().flat_map(|span| geometry.split_units(span.range().start, span.len as usize));
    let place = |(unit, from, take)| {
        at += take;
        (unit, from, at - take..at)
    };
    pieces.map(place).collect()
}

/// Joins ascending parts of a payload. Contiguous parts are not copied.
pub(super) fn gather(payload: &Buf, parts: &[Range<usize>]) -> Buf {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Buf::empty() };
    let len = parts.iter().map(Range::len).sum();
    assert!(
        parts.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "parts out of order would be taken for one piece, with their bytes exchanged"
    );
    if last.end - first.start == len {
        return payload.slice(first.start..last.end);
    }
    let mut bytes = BufMut::dirty(len);
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(&payload[part.clone()]);
        at += part.len();
    }
    bytes.freeze()
}

/// A unit up to the end of its last block that is not all zeros, so that zeros at the end take no space.
pub(super) fn without_end_of_zeros(unit: Buf) -> Buf {
    let end = unit.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    unit.slice(0..end.next_multiple_of(BLOCK).min(unit.len()))
}

/// A unit, padded to whole blocks.
pub(super) fn pad_to_block(unit: Buf) -> Buf {
    if unit.len().is_multiple_of(BLOCK) {
        return unit;
    }
    let mut padded = BufMut::zeroed(unit.len().next_multiple_of(BLOCK));
    padded[..unit.len()].copy_from_slice(&unit);
    padded.freeze()
}

/// Units with a write laid over them.
pub(super) fn lay_write_over(
    geometry: &Geometry,
    units: Vec<Buf>,
    spans: &[Span],
    payload: &Buf,
) -> Vec<Buf> {
    assert_eq!(units.len(), geometry.code().k(), "bytes of a missing unit would be lost");
    let mut cuts: Vec<Vec<(usize, Range<usize>)>> = vec![Vec::new(); units.len()];
    let pieces = split_spans(geometry, spans);
    assert_eq!(
        pieces.last().map_or(0, |(_, _, bytes)| bytes.end),
        payload.len(),
        "bytes outside all spans would be lost"
    );
    for (unit, from, bytes) in pieces {
        cuts[unit].push((from, bytes));
    }
    let lay = |(old, cut): (Buf, Vec<(usize, Range<usize>)>)| {
        let Some((from, bytes)) = cut.last() else { return old };
        let len = old.len().max(from + bytes.len());
        assert!(len <= geometry.unit(), "bytes beyond the end of a unit are never read");
        if cut.len() == 1 && bytes.len() == len {
            return payload.slice(bytes.clone());
        }
        let mut new = BufMut::dirty(len);
        new[..old.len()].copy_from_slice(&old);
        new[old.len()..].fill(0);
        for (from, bytes) in cut {
            new[from..from + bytes.len()].copy_from_slice(&payload[bytes]);
        }
        new.freeze()
    };
    units.into_iter().zip(cuts).map(lay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Code;

    #[test]
    fn a_write_lies_over_what_was_there() {
        let geometry = Geometry::new(Code::new(2, 1).expect("2+1"), 4096, 64).expect("geometry");
        let units = vec![Buf::copy_of(&[1; 4096]), Buf::empty()];
        let spans = [Span { offset: 10, len: 5 }, Span { offset: 4000, len: 200 }];
        let payload: Vec<u8> = (0..205).map(|at| if at < 5 { 3 } else { 2 }).collect();
        let units = lay_write_over(&geometry, units, &spans, &Buf::copy_of(&payload));
        assert_eq!((units[0].len(), units[1].len()), (4096, 104));
        assert_eq!((units[0][3999], units[0][4000], units[1][0]), (1, 2, 2));
        assert_eq!(units[0][9..16], [1, 3, 3, 3, 3, 3, 1]);
    }

    #[test]
    fn parts_of_a_payload_are_copied_only_if_they_lie_apart() {
        let payload = Buf::copy_of(&[1, 2, 3, 4, 5]);
        assert_eq!(*gather(&payload, &[1..2, 2..4]), [2, 3, 4]);
        assert_eq!(*gather(&payload, &[0..1, 3..5]), [1, 4, 5]);
    }
}
