//! What one request waits for: spans of time, measured by the code that waits.
//!
//! Whoever begins a request makes a [`Trace`] and runs the request in it. Code below measures its waits with [`span`], and
//! need not know whether anybody wants them: outside a trace nothing is measured and no clock is read. Calls to other servers
//! and requests to disks are measured by [`Peers`](crate::Peers) and [`Disk`](crate::Disk) themselves. A task that the
//! request spawns is not in the trace.
//!
//! A trace has at most [`SPANS_MAX`] spans; the longest ones are kept.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use types::wire::Served;

use crate::World;

/// Most spans of a trace.
pub const SPANS_MAX: usize = 32;
/// Most of them that say which layer was entered: a read of many pages enters the lower layers many times.
const LAYERS_MAX: usize = 8;
/// Spans for which a trace has room from its first one on. Most requests need no more.
const SPANS_USUAL: usize = 8;

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Room in a budget or a queue.
    Queue,
    /// Earlier operations on the same stripe.
    Lane,
    /// A sync of the journal.
    Journal,
    /// A device.
    Device,
    /// A pause before a request is repeated.
    Pause,
    /// What another task of the same process is doing for the same file.
    Underway,
}

/// What a span is about.
#[derive(Clone, Debug)]
pub enum SpanKind {
    /// The request has entered a layer; the span has no length.
    Layer(&'static str),
    /// A wait.
    Wait(Stage),
    /// A call of another server.
    Call {
        /// Its address.
        address: Rc<str>,
        /// The name of the request.
        request: &'static str,
        /// How long its answer, which was ready, waited for credit of the receive window here, in microseconds.
        credit_us: u64,
        /// What the server tells about its time.
        served: Option<Served>,
    },
}

/// A part of a request's time.
#[derive(Clone, Debug)]
pub struct Span {
    /// What it is about.
    pub kind: SpanKind,
    /// Its start, in microseconds of [`World::now`].
    pub from: u64,
    /// Its end.
    pub until: u64,
}

impl Span {
    /// Its length in microseconds.
    pub fn us(&self) -> u64 {
        self.until.saturating_sub(self.from)
    }
}

#[derive(Default)]
struct Inner {
    spans: RefCell<Vec<Span>>,
    /// What a task of its own has waited for on behalf of this request.
    served: RefCell<Option<Served>>,
}

/// The spans of one request. Clones share them.
#[derive(Clone, Default)]
pub struct Trace(Rc<Inner>);

thread_local! {
    /// The trace of the task that is being polled.
    static CURRENT: RefCell<Option<Trace>> = const { RefCell::new(None) };
    /// How long the next request of this thread has waited before it got here, in microseconds.
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

/// The request that this thread begins next has waited for so many microseconds before.
pub fn waited_before(us: u64) {
    WAITED.set(us);
}

/// How long this request had waited when the thread got it, in microseconds. Zero when asked again.
pub fn take_waited() -> u64 {
    WAITED.take()
}

impl Trace {
    /// Without spans.
    pub fn new() -> Trace {
        Trace::default()
    }

    /// The trace of the task that is being polled, if it has one.
    pub fn current() -> Option<Trace> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs a request in this trace.
    pub fn run<F: Future>(&self, request: F) -> impl Future<Output = F::Output> + use<F> {
        InTrace { trace: self.clone(), request }
    }

    /// Adds a span.
    pub fn add(&self, span: Span) {
        let mut spans = self.0.spans.borrow_mut();
        let is_layer = |span: &Span| matches!(span.kind, SpanKind::Layer(_));
        if is_layer(&span) && spans.iter().filter(|span| is_layer(span)).count() >= LAYERS_MAX {
            return;
        }
        if spans.is_empty() {
            spans.reserve_exact(SPANS_USUAL);
        }
        if spans.len() < SPANS_MAX {
            spans.push(span);
            return;
        }
        let shortest = spans.iter_mut().filter(|span| !is_layer(span)).min_by_key(|span| span.us());
        if let Some(shortest) = shortest.filter(|shortest| shortest.us() < span.us()) {
            *shortest = span;
        }
    }

    /// The spans so far, in the order of their ends.
    pub fn take(&self) -> Vec<Span> {
        let mut spans = self.0.spans.take();
        spans.sort_by_key(|span| span.until);
        spans
    }

    /// A task of its own has done the work of this request, and has waited for this.
    pub fn set_served(&self, served: Served) {
        self.0.served.replace(Some(served));
    }

    /// What was set.
    pub fn take_served(&self) -> Option<Served> {
        self.0.served.take()
    }
}

/// How often a [`Sampler`] counts anew, in microseconds.
const WINDOW_US: u64 = 100_000;
/// Requests of a window up to which each is traced.
const TRACED_MAX: u64 = 50;
/// At least one in so many is traced, however many there are: so it is soon seen when there are few again.
const EVERY_MAX: u64 = 16;

/// Says which requests are traced. A trace costs some 5 % of a small read from RAM. So up to 500 requests a second all are
/// traced, and of more a part.
#[derive(Default)]
pub struct Sampler {
    /// The beginning of the window, in microseconds.
    since: Cell<u64>,
    /// Requests in it.
    count: Cell<u64>,
    /// One in so many is traced, by the rate of the window before. Zero is as one.
    every: Cell<u64>,
}

impl Sampler {
    /// The time, in microseconds, if the request that begins now is traced. Otherwise no clock is read.
    pub fn wants(&self, clock: impl FnOnce() -> u64) -> Option<u64> {
        let count = self.count.get() + 1;
        self.count.set(count);
        if !count.is_multiple_of(self.every.get().max(1)) {
            return None;
        }
        let now = clock();
        let passed = now.saturating_sub(self.since.get());
        if passed >= WINDOW_US {
            let per_window = u128::from(self.count.get()) * u128::from(WINDOW_US) / u128::from(passed);
            self.every.set((per_window / u128::from(TRACED_MAX)).min(u128::from(EVERY_MAX)) as u64);
            self.count.set(0);
            self.since.set(now);
        }
        Some(now)
    }
}

/// The request has entered a layer.
pub fn enter(world: &World, layer: impl FnOnce() -> &'static str) {
    CURRENT.with_borrow(|current| {
        if let Some(trace) = current {
            let now = world.now();
            trace.add(Span { kind: SpanKind::Layer(layer()), from: now, until: now });
        }
    });
}

/// Runs a wait, and notes how long it took.
pub async fn span<F: Future>(world: &World, stage: Stage, wait: F) -> F::Output {
    let Some(trace) = Trace::current() else { return wait.await };
    let from = world.now();
    let output = wait.await;
    trace.add(Span { kind: SpanKind::Wait(stage), from, until: world.now() });
    output
}

/// A request with its trace.
struct InTrace<F> {
    trace: Trace,
    request: F,
}

/// Makes the trace that was there before the current one again.
struct Restore(Option<Trace>);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with_borrow_mut(|current| *current = before);
    }
}

impl<F: Future> Future for InTrace<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `request` is pinned structurally: it is never moved out, and is dropped in place; the trace is only read.
        let (trace, request) = unsafe {
            let InTrace { trace, request } = self.get_unchecked_mut();
            (trace.clone(), Pin::new_unchecked(request))
        };
        let _restore = Restore(CURRENT.with_borrow_mut(|current| current.replace(trace)));
        request.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimOptions, Simulation};

    #[test]
    fn waits_are_measured_in_a_trace_and_only_there() {
        let sim = Simulation::new(1, SimOptions::default());
        let world = sim.node("node");
        let wait = |us| {
            let world = world.clone();
            async move { span(&world, Stage::Lane, world.sleep(us)).await }
        };
        let trace = Trace::new();
        let other = world.clone();
        sim.block_on("node", async {
            wait(100).await;
            let mut traced = std::pin::pin!(trace.run(async {
                enter(&other, || "top");
                wait(2_000).await;
                wait(3_000).await;
            }));
            let mut beside = std::pin::pin!(wait(4_000));
            futures_util::future::join(&mut traced, &mut beside).await;
        });
        let spans: Vec<(bool, bool)> = trace
            .take()
            .iter()
            .map(|span| {
                (matches!(span.kind, SpanKind::Layer("top")), span.us() >= 2_000 && span.us() < 3_900)
            })
            .collect();
        assert_eq!(spans, [(true, false), (false, true), (false, true)]);
        assert!(Trace::current().is_none());
    }

    #[test]
    fn of_many_requests_some_are_traced_and_of_few_all() {
        let sampler = Sampler::default();
        let mut now = 1_000_000;
        let mut traced = |count: u64, pause: u64| {
            let wanted = (0..count).filter(|_| {
                now += pause;
                sampler.wants(|| now).is_some()
            });
            wanted.count() as u64
        };
        assert_eq!(traced(1000, 2_000), 1000, "500 a second");
        traced(2_000, 250);
        let many = traced(20_000, 250);
        assert!((2_000..=3_000).contains(&many), "{many} of 20,000 in five seconds");
        assert_eq!(traced(160_000, 5) / 1000, 10, "one in 16");
        traced(32, 10_000);
        assert_eq!(traced(100, 10_000), 100, "few again");
    }

    #[test]
    #[ignore = "prints a figure"]
    fn speed_of_a_traced_request() {
        const ROUNDS: u64 = 1_000_000;
        let world = World::real().expect("a ring");
        let address: Rc<str> = "127.0.0.1:7401".into();
        let us = world.block_on(async {
            let began = world.now();
            for _ in 0..ROUNDS {
                let (trace, from) = (Trace::new(), world.now());
                let request = async {
                    ["auto", "io-cache", "read-ahead", "write-behind"]
                        .iter()
                        .for_each(|layer| enter(&world, || layer));
                    let (inner, from) = (Trace::current().expect("it is in a trace"), world.now());
                    let kind = SpanKind::Call {
                        address: address.clone(),
                        request: "ReadUnit",
                        credit_us: 0,
                        served: None,
                    };
                    inner.add(Span { kind, from, until: world.now() });
                };
                trace.run(request).await;
                std::hint::black_box(world.now() - from);
            }
            world.now() - began
        });
        println!("a traced read of one unit costs {} ns", us * 1_000 / ROUNDS);
    }

    #[test]
    fn the_longest_spans_are_kept() {
        let trace = Trace::new();
        let add = |us| trace.add(Span { kind: SpanKind::Wait(Stage::Device), from: 0, until: us });
        trace.add(Span { kind: SpanKind::Layer("top"), from: 0, until: 0 });
        (1..=100).for_each(add);
        let spans = trace.take();
        assert_eq!(spans.len(), SPANS_MAX);
        assert!(matches!(spans[0].kind, SpanKind::Layer(_)), "where it entered is kept");
        assert_eq!(spans[1..].iter().map(Span::us).min(), Some(100 - (SPANS_MAX as u64 - 1) + 1));
    }
}
