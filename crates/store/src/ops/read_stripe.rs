//! A client reads through the primary because a brick is missing, a block is damaged, or an operation is undecided.

use futures_util::future::join_all;
use types::messages::brick::{ReadStripe, StripeBytes};
use types::{Buf, BufMut, Epoch, Refusal};
use world::trace::{Stage, span};

use super::stripe::Stripe;
use crate::server::Server;

impl Server {
    /// Reads a range of a stripe; decodes missing units.
    pub(crate) async fn read_stripe(
        &self,
        epoch: Epoch,
        read: ReadStripe,
    ) -> Result<(StripeBytes, Buf), Refusal> {
        self.check_primary(read.group, epoch)?;
        self.busy_at.set(self.world.turn_began());
        self.count_asked_read(read.len);
        // The place in the lane is shared with other reads. Operations that entered the lane earlier come first.
        let ticket = self.lanes.enter_shared(read.key);
        span(&self.world, Stage::Lane, ticket.wait()).await;
        self.check_not_dropped(read.key)?;
        let stripe = Stripe::load(self, read.group, epoch, read.key).await?.avoiding(read.avoid);
        let (offset, len) = (read.offset as usize, read.len as usize);
        if offset.checked_add(len).is_none_or(|end| end > stripe.geometry.stripe()) {
            return Err(Refusal::Malformed);
        }
        let pieces: Vec<(usize, usize, usize)> = stripe.geometry.split_units(offset, len).collect();
        let reads = pieces.iter().map(|(unit, from, take)| stripe.unit(*unit, *from..from + take));
        let parts = join_all(reads).await.into_iter().collect::<Result<Vec<Buf>, Refusal>>()?;
        self.check_primary(read.group, epoch)?;
        self.check_not_dropped(read.key)?;
        let all: usize = pieces.iter().map(|(_, _, take)| take).sum();
        assert_eq!(all, len, "bytes that are read from no unit would be returned as zeros");
        assert!(
            pieces.iter().zip(&parts).all(|((_, _, take), part)| part.len() <= *take),
            "bytes of one unit would be returned for those of the next one"
        );
        let answer = StripeBytes { decoded: stripe.decoded.get() };
        if let [only] = parts.as_slice() {
            return Ok((answer, only.clone()));
        }
        let mut bytes = BufMut::zeroed(len);
        let mut at = 0;
        for ((_, _, take), part) in pieces.iter().zip(&parts) {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += take;
        }
        Ok((answer, bytes.freeze()))
    }
}
