//! Traces of requests: what each one waits for. Those that take long are kept.

use std::future::Future;
use std::pin::pin;

use world::trace::{self, Span, SpanKind, Trace};

use crate::routes::link::Link;
use crate::state::slow_requests::{Asked, SLOW_MIN_US, Server, SlowKind, SlowRequest, SlowSpan};

impl Link {
    /// Carries out a request and measures its waits: from its beginning if the sampler wants it, otherwise from its first wait on.
    /// Keeps them if it took long. `failed` looks at what came of it.
    ///
    /// `request` makes the future where it is polled: it is large, and would be copied otherwise.
    pub(crate) async fn traced<F: Future>(
        &self,
        asked: Asked,
        request: impl FnOnce() -> F,
        failed: impl FnOnce(&F::Output) -> bool,
    ) -> F::Output {
        let gate_us = trace::take_waited();
        let sampler = if asked.is_background() { &self.background_sampler } else { &self.sampler };
        let (outcome, waited) = match sampler.wants(|| self.world.now()) {
            Some(begun) => {
                let trace = Trace::new();
                (trace.run(Box::pin(request())).await, Some((trace, begun)))
            }
            None => trace::late(&self.world, pin!(request())).await,
        };
        // A request that has waited neither here nor in the gate is not slow.
        if waited.is_some() || gate_us >= SLOW_MIN_US {
            self.keep_if_slow(asked, gate_us, waited, || failed(&outcome));
        }
        outcome
    }

    /// Keeps a request that has just ended, if it took long. It had waited in the gate for `gate_us`, and has `waited` since then.
    fn keep_if_slow(
        &self,
        asked: Asked,
        gate_us: u64,
        waited: Option<(Trace, u64)>,
        failed: impl FnOnce() -> bool,
    ) {
        let now = self.world.now();
        let (trace, begun) = waited.unwrap_or_else(|| (Trace::new(), now));
        let took_us = now.saturating_sub(begun) + gate_us;
        if took_us >= SLOW_MIN_US && self.routes.slow.wants(&asked, took_us, now) {
            let start = begun.saturating_sub(gate_us);
            let spans = trace.take().into_iter().map(|span| self.shown(span, start)).collect();
            self.routes
                .slow
                .keep(SlowRequest { asked, begun, gate_us, took_us, failed: failed(), spans }, now);
        }
    }

    /// A span as it is kept, counted from `start`, with the server instead of its address.
    fn shown(&self, span: Span, start: u64) -> SlowSpan {
        let (from_us, took_us) = (span.from.saturating_sub(start), span.us());
        let kind = match span.kind {
            SpanKind::Layer(name) => SlowKind::Layer(name),
            SpanKind::Wait(stage) => SlowKind::Wait(stage),
            SpanKind::Call { address, request, credit_us, served } => {
                let brick = self.routes.map().brick_at(&address);
                let server = match brick {
                    Some(brick) => Server::Brick(brick),
                    None if *address == *self.routes.servers() => Server::Meta,
                    None => Server::Unknown,
                };
                SlowKind::Call { request, server, credit_us, served: served.map(|served| *served) }
            }
        };
        SlowSpan { kind, from_us, took_us }
    }
}
