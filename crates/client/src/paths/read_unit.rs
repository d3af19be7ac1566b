//! Reads a range of a unit from its brick. While the brick is late or slow, the primary decodes the range from the others.

use std::future::Future;
use std::pin::{Pin, pin};

use futures_util::future::{Either, select};
use pace::Ask;
use types::code_probe::{CodeProbe, hit};
use types::messages::brick::ReadUnit;
use types::{BrickId, Buf};
use world::{Begun, CallError};

use crate::paths::Io;
use crate::paths::read::{Part, ReadStage};
use crate::routes::link::Link;
use crate::routes::route::Route;
use crate::state::counters::Counter;
use crate::state::open_file::OpenFile;

/// How long the brick of a unit may take before the primary is asked instead, in microseconds.
const READ_UNIT_US: u64 = 3_000_000;

/// A part of a read whose brick can be asked.
#[derive(Clone)]
pub(super) struct Direct {
    pub(super) part: Part,
    route: Route,
    brick: BrickId,
    /// When its answer is late, if it can be replaced.
    patience_us: Option<u64>,
}

impl Io {
    /// How to ask the brick of a part. `None` if the primary must be asked: the slot is not live, its brick silent or, if
    /// `hedge`, slow.
    pub(super) fn direct(&self, part: Part, hedge: bool) -> Option<Direct> {
        let (routes, now) = (&self.link.routes, self.link.world.turn_began());
        let route = routes.route(part.key);
        let (brick, _) = route.live(part.slot)?;
        if routes.is_suspect(brick, now) {
            return None;
        }
        let can_decode = hedge && route.can_decode();
        let direct = Direct { part, route, brick, patience_us: None };
        if !can_decode {
            return Some(direct);
        }
        let ask = routes.latencies().ask(now, brick, part.len as u64);
        match ask {
            Ask::Sender { patience_us } => Some(Direct { patience_us, ..direct }),
            Ask::Elsewhere { probe } => {
                hit(CodeProbe::BrickAvoided);
                routes.counts.count(Counter::DivertedReads, 1);
                if probe {
                    let link = self.link.clone();
                    self.link.world.spawn("probe of a slow brick", async move {
                        drop(ask_brick(&link, &direct, None).await);
                    });
                }
                None
            }
        }
    }

    /// Reads a part from the brick of its unit. `None` if the primary must be asked.
    pub(super) async fn read_unit(&self, file: &OpenFile, direct: &Direct) -> Option<Buf> {
        self.layer_counts.read_brick(&file.layer_counts, direct.part.len);
        let Some(patience_us) = direct.patience_us else { return ask_brick(&self.link, direct, None).await };
        let (begun, world) = (Begun::default(), &self.link.world);
        let since = world.turn_began();
        let mut asking = pin!(ask_brick(&self.link, direct, Some(&begun)));
        match world.timeout(patience_us, asking.as_mut()).await {
            Some(answer) => answer,
            // It has the bytes: they wait for this side's receive window.
            None if begun.is_set() || !self.may_hedge(direct.part) => asking.await,
            // Seldom, and large: not in every read's future.
            None => Box::pin(self.hedge(file, direct, since, asking)).await,
        }
    }

    fn may_hedge(&self, part: Part) -> bool {
        let routes = &self.link.routes;
        let decoded_from = routes.geometry_of(part.key.object).code().k();
        routes.latencies().may_ask_again((part.len * decoded_from) as u64)
    }

    /// Asks the primary as well; the first answer counts.
    async fn hedge(
        &self,
        file: &OpenFile,
        direct: &Direct,
        since: u64,
        asking: Pin<&mut impl Future<Output = Option<Buf>>>,
    ) -> Option<Buf> {
        let Direct { part, brick, .. } = *direct;
        let routes = &self.link.routes;
        hit(CodeProbe::ReadHedged);
        routes.counts.count(Counter::HedgedReads, 1);
        tracing::debug!(key = %part.key, %brick, "the brick is late: the primary is asked too");
        let decoding = pin!(self.read_degraded(file, vec![part], 1 << part.slot));
        let decoded = match select(asking, decoding).await {
            Either::Left((Some(bytes), _)) => return Some(bytes),
            Either::Left((None, decoding)) => decoding.await,
            Either::Right((Err(_), asking)) => return asking.await,
            Either::Right((decoded, _)) => {
                hit(CodeProbe::HedgeWon);
                routes.counts.count(Counter::WonHedges, 1);
                let now = self.link.world.now();
                routes.latencies().note(now, brick, part.len as u64, now - since, false);
                decoded
            }
        };
        decoded.ok()?.pop().map(|(_, bytes)| bytes)
    }
}

async fn ask_brick(link: &Link, direct: &Direct, begun: Option<&Begun>) -> Option<Buf> {
    let Direct { part, route, brick, .. } = direct;
    let (_, address) = route.live(part.slot)?;
    let (slot, offset, len) = (part.slot as u8, part.in_unit as u32, part.len as u32);
    let request = ReadUnit { group: route.group, key: part.key, slot, offset, len };
    let since = link.world.now();
    let asked = link.peers.call_seen(READ_UNIT_US, begun, address, route.epoch, &request, Buf::empty()).await;
    match asked {
        Ok((_, bytes)) if bytes.len() <= part.len => {
            // The answer has woken this turn.
            let now = link.world.turn_began();
            link.routes.latencies().note(now, *brick, u64::from(len), now.saturating_sub(since), true);
            link.routes.counts.count(Counter::DirectBytes, u64::from(len));
            return Some(bytes);
        }
        Ok(_) => tracing::debug!(key = %part.key, %brick, "the brick sent more bytes than requested"),
        Err(error) => {
            tracing::debug!(stage = %ReadStage::Direct, key = %part.key, %brick, %error, "read failed");
            if error == CallError::Unreachable {
                link.routes.suspect(*brick, link.world.now());
            }
        }
    }
    None
}
