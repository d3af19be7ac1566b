//! A client asks where there are bytes: ranges that the answer leaves out take no space and read as zeros.

use std::ops::Range;

use types::limits::{BLOCK, EXTENT_STRIPES_MAX};
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
        let geometry = self.tier(find.group)?.geometry;
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

/// Refuses stripes of several extents, more than the largest extent has, and more bytes than an answer can name.
fn check_range(geometry: &Geometry, find: &FindBytes) -> Result<(), Refusal> {
    let more = u64::from(find.stripes).checked_sub(1).ok_or(Refusal::Malformed)?;
    let last = find.key.stripe.checked_add(more).ok_or(Refusal::Malformed)?;
    let bytes = u64::from(find.stripes) * geometry.stripe() as u64;
    let one_extent = geometry.extent(find.key.stripe) == geometry.extent(last);
    let few = find.stripes <= EXTENT_STRIPES_MAX && u32::try_from(bytes).is_ok();
    if one_extent && few { Ok(()) } else { Err(Refusal::Malformed) }
}

/// Where a stripe may have bytes other than zeros: units up to their last block, and overlays.
fn bytes_of(geometry: &Geometry, shape: &Shape) -> Vec<Range<usize>> {
    let unit = geometry.unit();
    let units = shape.unit_blocks.iter().enumerate().take(geometry.code().k());
    let bases = units.map(|(index, blocks)| index * unit..index * unit + *blocks as usize * BLOCK);
    bases.filter(|range| !range.is_empty()).chain(shape.overlays.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{GroupId, ObjectId, VolumeId};

    #[test]
    fn a_question_about_a_whole_file_is_bounded() {
        let geometry = Geometry::whole_files("1+0".parse().expect("a code"), 4096).expect("a geometry");
        let group = GroupId { volume: VolumeId(1), index: 0 };
        let ask = |stripe, stripes| {
            check_range(
                &geometry,
                &FindBytes { group, key: StripeKey { object: ObjectId(1), stripe }, stripes },
            )
        };
        assert_eq!(ask(1 << 40, EXTENT_STRIPES_MAX), Ok(()));
        assert_eq!(ask(0, EXTENT_STRIPES_MAX + 1), Err(Refusal::Malformed));
        assert_eq!(ask(u64::MAX, 2), Err(Refusal::Malformed));
    }
}
