//! The way round: this mount does not reach a brick, so another brick, the proxy, passes its requests on.
//!
//! Probes of the direct way go on ([`reach`](crate::routes::reach)). As soon as one is answered, requests go directly again.

use std::sync::atomic::Ordering;

use types::limits::CALL_TIMEOUT_US;
use types::messages::proxy::{Proxied, Proxy};
use types::wire::{self, Request};
use types::{BrickId, Buf, Refusal};
use world::CallError;

use crate::routes::Routes;
use crate::routes::link::Link;
use crate::routes::route::Route;
use crate::state::counters::Counter;

/// A proxy has that much less time for an answer than its caller, in microseconds: it answers first.
const MARGIN_US: u64 = CALL_TIMEOUT_US / 5;

impl Link {
    /// Asks a brick by way of another one, within `us` microseconds.
    pub(super) async fn ask_by_proxy<R: Request>(
        &self,
        us: u64,
        route: &Route,
        brick: BrickId,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        let (turn, now) = (self.routes.proxy_turn.load(Ordering::Relaxed), self.world.now());
        let proxies = route.others(brick, |other| self.routes.is_suspect(other, now));
        let Some((other, address)) = proxies.get(turn % proxies.len().max(1)) else {
            return Err(CallError::Unreachable);
        };
        let (kind, record, reply_bytes) = (R::KIND, wire::to_bytes(request), request.reply_bytes() as u32);
        let proxy = Proxy { brick, kind, record, reply_bytes, patience_us: us.saturating_sub(MARGIN_US) };
        let call = self.peers.call_within(us, address, route.epoch, &proxy, payload);
        let error = match self.watched(route, (*other, address), call).await {
            Ok((Proxied { record }, payload)) => {
                self.routes.counts.count(Counter::Proxied, 1);
                let reply = wire::from_bytes(&record).map_err(|_| CallError::BadReply)?;
                return Ok((reply, payload));
            }
            Err(error) => error,
        };
        tracing::debug!(%brick, by = %other, %error, request = R::NAME, "no answer by way of another brick");
        match error {
            CallError::Unreachable if self.routes.is_old(route) => {}
            CallError::Unreachable => self.routes.suspect(*other, self.world.now()),
            // The next try is by way of another one.
            CallError::Refused(Refusal::Unreached) => self.routes.next_proxy(turn),
            error => return Err(error),
        }
        Err(CallError::Unreachable)
    }
}

impl Routes {
    /// Chooses another proxy than that of this turn.
    fn next_proxy(&self, turn: usize) {
        let order = Ordering::Relaxed;
        // Another task may have done so.
        let _ = self.proxy_turn.compare_exchange(turn, turn.wrapping_add(1), order, order);
    }
}
