//! The overlays of a data unit as one slot has them, for a primary that compares slots.

use std::ops::Range;

use types::messages::brick::{OverlayBytes, ReadOverlays, Span};
use types::{Buf, BufMut, Epoch, Refusal};

use crate::server::Server;

/// How often a read starts over because a checkpoint has moved an overlay.
const ATTEMPTS: usize = 4;

impl Server {
    /// Answers the primary. It holds the stripe's lane, so every operation on the stripe counts as decided.
    pub(crate) async fn read_overlays(
        &self,
        epoch: Epoch,
        read: ReadOverlays,
    ) -> Result<(OverlayBytes, Buf), Refusal> {
        let geometry = self.tier(read.group)?.geometry;
        let of = usize::from(read.of);
        if of >= geometry.code().k() {
            return Err(Refusal::Malformed);
        }
        let unit = of * geometry.unit()..(of + 1) * geometry.unit();
        for _ in 0..ATTEMPTS {
            self.check_served(read.group, epoch)?;
            self.load(read.key).await?;
            let pieces = || {
                let slot = self.slot.borrow();
                slot.overlays_over(read.key, &unit, slot.shape(read.key).identity)
            };
            let found = pieces();
            let spans = coalesce_ranges(found.iter().map(|piece| piece.to..piece.to + piece.len).collect());
            let mut bytes = BufMut::zeroed(spans.last().map_or(0, |span| span.range().end));
            assert!(
                bytes.len() <= geometry.unit(),
                "overlays of the next unit would be compared with those of this one"
            );
            let laid = self.lay_over(&mut bytes, &found).await;
            self.check_served(read.group, epoch)?;
            if pieces() == found {
                laid?;
                let payload: Vec<u8> =
                    spans.iter().flat_map(|span| bytes[span.range()].iter().copied()).collect();
                let told: usize = spans.iter().map(|span| span.len as usize).sum();
                assert_eq!(payload.len(), told, "equal slots would be reported as different");
                return Ok((OverlayBytes { spans }, Buf::from(payload)));
            }
        }
        Err(Refusal::NotServing)
    }
}

/// The union of the ranges, as ascending spans that do not touch.
pub(super) fn coalesce_ranges(mut ranges: Vec<Range<usize>>) -> Vec<Span> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined.iter().map(|range| Span { offset: range.start as u32, len: range.len() as u32 }).collect()
}
