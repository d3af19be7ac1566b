//! A client asks where there are bytes: ranges that the answer leaves out take no space and read as zeros.

use std::ops::Range;

use types::limits::BLOCK;
use types::messages::brick::{BytesFound, FindBytes};
use types::{Epoch, Geometry, Refusal, StripeKey};

use super::overlays::coalesce_ranges;
use super::stripe::Stripe;
use crate::server::Server;
use crate::slot::Shape;

impl Server {
    /// Finds the bytes of some stripes of one extent.
    pub(crate) async fn find_bytes(&self, epoch: Epoch, find: FindBytes) -> Result<BytesFound, Refusal> {
        self.check_primary(find.group, epoch)?;
        let geometry = self.volume(find.group)?.geometry;
        check_range(&geometry, &find)?;
        let mut ranges = Vec::new();
        for index in 0..find.stripes {
            let key = StripeKey { stripe: find.key.stripe + u64::from(index), ..find.key };
            let extent = geometry.extent(key.stripe);
            assert_eq!(extent, geometry.extent(find.key.stripe), "another group may know of bytes there");
            // Operations that were accepted earlier come first, so that no written byte is missed.
            let ticket = self.lanes.enter_shared(key);
            ticket.wait().await;
            let stripe = Stripe::load(self, find.group, epoch, key).await?;
            let start = index as usize * geometry.stripe();
            // A data slot does not know what the other slots have.
            let knows = stripe.me >= geometry.code().k();
            if knows {
                let found = bytes_of(&geometry, &stripe.shape);
                ranges.extend(found.into_iter().map(|range| start + range.start..start + range.end));
            } else {
                ranges.push(start..start + geometry.stripe());
            }
        }
        self.check_primary(find.group, epoch)?;
        Ok(BytesFound { ranges: coalesce_ranges(ranges) })
    }
}

/// Refuses stripes of several extents, and more bytes than an answer can name.
fn check_range(geometry: &Geometry, find: &FindBytes) -> Result<(), Refusal> {
    let more = u64::from(find.stripes).checked_sub(1).ok_or(Refusal::Malformed)?;
    let last = find.key.stripe.checked_add(more).ok_or(Refusal::Malformed)?;
    let bytes = u64::from(find.stripes) * geometry.stripe() as u64;
    let one_extent = geometry.extent(find.key.stripe) == geometry.extent(last);
    if one_extent && u32::try_from(bytes).is_ok() { Ok(()) } else { Err(Refusal::Malformed) }
}

/// Where a stripe may have bytes other than zeros: units up to their last block, and overlays.
fn bytes_of(geometry: &Geometry, shape: &Shape) -> Vec<Range<usize>> {
    let unit = geometry.unit();
    let units = shape.unit_blocks.iter().enumerate().take(geometry.code().k());
    let bases = units.map(|(index, blocks)| index * unit..index * unit + *blocks as usize * BLOCK);
    bases.filter(|range| !range.is_empty()).chain(shape.overlays.iter().cloned()).collect()
}
