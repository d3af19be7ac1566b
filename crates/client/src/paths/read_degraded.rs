//! Reads units through their primaries, which decode, when the units' own bricks cannot serve them, or not in time.

use std::ops::Range;

use futures_util::future::join_all;
use types::messages::brick::ReadStripe;
use types::{Buf, StripeKey};

use crate::error::ClientError;
use crate::paths::Io;
use crate::paths::read::Part;
use crate::routes::route::Route;
use crate::state::counters::Counter;
use crate::state::open_file::OpenFile;

impl Io {
    /// Reads parts that could not be read from their own bricks: one request per stripe to its primary, which
    /// decodes, without the slots of `avoid` (one bit for each) and those whose bricks are slow or silent.
    pub(crate) async fn read_degraded(
        &self,
        file: &OpenFile,
        parts: Vec<Part>,
        avoid: u64,
    ) -> Result<Vec<(Part, Buf)>, ClientError> {
        let mut stripes: Vec<Vec<Part>> = Vec::new();
        for part in parts {
            match stripes.last_mut() {
                Some(same) if same[0].key == part.key => same.push(part),
                _ => stripes.push(vec![part]),
            }
        }
        let each = join_all(stripes.into_iter().map(|parts| self.read_span(file, parts, avoid))).await;
        each.into_iter().collect::<Result<Vec<_>, _>>().map(|stripes| stripes.into_iter().flatten().collect())
    }

    /// Reads the range that spans some parts of one stripe, and splits it into the parts.
    async fn read_span(
        &self,
        file: &OpenFile,
        parts: Vec<Part>,
        avoid: u64,
    ) -> Result<Vec<(Part, Buf)>, ClientError> {
        let key = parts[0].key;
        let start = parts.iter().map(|p| p.in_stripe).min().unwrap_or(0);
        let end = parts.iter().map(|p| p.in_stripe + p.len).max().unwrap_or(0);
        let span = self.read_at_primary(file, key, start..end, avoid).await?;
        let cut = |part: Part| {
            let from = (part.in_stripe - start).min(span.len());
            let to = (part.in_stripe - start + part.len).min(span.len());
            (part, span.slice(from..to))
        };
        Ok(parts.into_iter().map(cut).collect())
    }

    /// Reads a range of a stripe through the primary, with retries.
    async fn read_at_primary(
        &self,
        file: &OpenFile,
        key: StripeKey,
        range: Range<usize>,
        avoid: u64,
    ) -> Result<Buf, ClientError> {
        let (offset, len) = (range.start as u32, range.len() as u32);
        let request = |route: &Route| {
            self.layer_counts.read_brick(&file.layer_counts, len as usize);
            let avoid = avoid | self.link.routes.avoided(route, self.link.world.now());
            ReadStripe { group: route.group, key, offset, len, avoid }
        };
        let (reply, bytes) = self.link.ask_primary_again(key, request).await?;
        if bytes.len() > len as usize {
            return Err(ClientError::BadReply);
        }
        self.link.routes.counts.count(Counter::PrimaryBytes, u64::from(len));
        self.link.routes.counts.count(Counter::DecodedUnits, u64::from(reply.decoded));
        Ok(bytes)
    }
}
