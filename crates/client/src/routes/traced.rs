//! Traces of requests: what each one waits for. Those that take long are kept.

use std::future::Future;

use world::trace::{self, Span, SpanKind, Trace};

use crate::routes::link::Link;
use crate::state::slow_requests::{Asked, SLOW_MIN_US, Server, SlowKind, SlowRequest, SlowSpan};

impl Link {
    /// Carries out a request and, if the sampler wants it, measures its waits. Keeps them if it took long. `failed` looks
    /// at what came of it.
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
        let Some(begun) = sampler.wants(|| self.world.now()) else { return request().await };
        let trace = Trace::new();
        let outcome = trace.run(Box::pin(request())).await;
        let now = self.world.now();
        let took_us = now.saturating_sub(begun) + gate_us;
        if took_us >= SLOW_MIN_US && self.routes.slow.wants(&asked, took_us, now) {
            let slow = (begun.saturating_sub(gate_us), trace.take());
            let failed = failed(&outcome);
            let spans = slow.1.into_iter().map(|span| self.shown(span, slow.0)).collect();
            self.routes.slow.keep(SlowRequest { asked, begun, gate_us, took_us, failed, spans }, now);
        }
        outcome
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
                SlowKind::Call { request, server, credit_us, served }
            }
        };
        SlowSpan { kind, from_us, took_us }
    }
}
