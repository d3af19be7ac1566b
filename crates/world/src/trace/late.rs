//! Traces that begin when a request begins to wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{CURRENT, Current, ENTERED, Restore, Trace};
use crate::World;

/// Runs a request that gets a trace when it begins to wait. Returns also the trace and this time, in microseconds of
/// [`World::now`]; nothing if it has not waited.
pub fn late<'a, F: Future>(
    world: &'a World,
    request: F,
) -> impl Future<Output = (F::Output, Option<(Trace, u64)>)> + use<'a, F> {
    LateTrace { world, waiting: None, request }
}

/// A request that gets a trace when it waits.
struct LateTrace<'a, F> {
    world: &'a World,
    /// Its trace, and since when it waits.
    waiting: Option<(Trace, u64)>,
    request: F,
}

impl<F: Future> Future for LateTrace<'_, F> {
    type Output = (F::Output, Option<(Trace, u64)>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `request` is pinned structurally: it is never moved out, and is dropped in place; the others are not pinned.
        let (world, waiting, request) = unsafe {
            let LateTrace { world, waiting, request } = self.get_unchecked_mut();
            (*world, waiting, Pin::new_unchecked(request))
        };
        let current = match waiting {
            Some((trace, _)) => Current::On(trace.clone()),
            None => {
                ENTERED.with_borrow_mut(Vec::clear);
                Current::Late
            }
        };
        let _restore = Restore(CURRENT.replace(current));
        match request.poll(cx) {
            Poll::Ready(output) => Poll::Ready((output, waiting.take())),
            Poll::Pending => {
                if waiting.is_none() {
                    *waiting = Trace::current().map(|trace| {
                        let now = trace.0.since.get().unwrap_or_else(|| world.turn_began());
                        ENTERED.with_borrow_mut(|entered| trace.enter_all(entered.drain(..), now));
                        (trace, now)
                    });
                }
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SpanKind, Stage, enter, span};
    use super::*;
    use crate::{SimOptions, Simulation};

    #[test]
    fn a_late_trace_begins_with_the_first_wait_and_has_it_whole() {
        let sim = Simulation::new(1, SimOptions::default());
        let world = sim.node("node");
        sim.block_on("node", async {
            let quick = async {
                enter(&world, || "top");
                span(&world, Stage::Lane, async { 7 }).await
            };
            assert!(matches!(late(&world, quick).await, (7, None)), "it has not waited");
            let begun = world.now();
            let slow = async {
                ["top", "below"].iter().for_each(|layer| enter(&world, || layer));
                span(&world, Stage::Queue, async {}).await;
                span(&world, Stage::Lane, world.sleep(2_000)).await;
                enter(&world, || "later");
                span(&world, Stage::Device, world.sleep(3_000)).await;
            };
            let ((), waited) = late(&world, slow).await;
            let (trace, since) = waited.expect("it has waited");
            assert!(since - begun < 100);
            let spans = trace.take();
            let layers = spans.iter().filter_map(|span| match span.kind {
                SpanKind::Layer(name) => Some(name),
                _ => None,
            });
            assert_eq!(layers.collect::<Vec<_>>(), ["top", "below", "later"]);
            let waits = spans.iter().filter_map(|span| match span.kind {
                SpanKind::Wait(stage) => Some((stage, span.us() / 1_000)),
                _ => None,
            });
            assert_eq!(waits.collect::<Vec<_>>(), [(Stage::Lane, 2), (Stage::Device, 3)]);
            // A wait without a span is one too.
            let ((), waited) = late(&world, world.sleep(1_000)).await;
            assert!(waited.is_some_and(|(trace, _)| trace.take().is_empty()));
        });
        assert!(Trace::current().is_none());
    }
}
