//! What one request waits for: spans of time, measured by the code that waits.
//!
//! The code that begins a request makes a [`Trace`] and runs the request in it. Code below measures its waits with [`span`], and
//! need not know whether anybody wants them: outside a trace nothing is measured and no clock is read. Calls to other servers
//! and requests to disks are measured by [`Peers`](crate::Peers) and [`Disk`](crate::Disk) themselves. A task that the
//! request spawns is not in the trace.
//!
//! A request that is run by [`late()`] gets its trace when it begins to wait. Most requests never wait, and cost next to nothing. So
//! all requests can be watched, and it is decided at their end which ones are kept.
//!
//! A trace has at most [`SPANS_MAX`] spans; the longest ones are kept. Times are those at which the turn began ([`World::turn_began`]): a
//! wait ends with the turn that it wakes, and most requests that are traced are quick, so each reading of the clock counts.

mod late;
mod sampler;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use types::wire::Served;

pub use late::late;
pub use sampler::Sampler;

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
        /// What the server tells about its time: only of slow answers, so it has its own place in memory.
        served: Option<Box<Served>>,
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
    /// When it began, in microseconds, if anybody has noted it.
    since: Cell<Option<u64>>,
    spans: RefCell<Vec<Span>>,
    /// What a task of its own has waited for on behalf of this request. Few requests have that.
    served: RefCell<Option<Box<Served>>>,
}

impl Inner {
    /// Forgets everything, and keeps the room for spans.
    fn clear(&mut self) {
        self.since.set(None);
        self.spans.get_mut().clear();
        self.served.get_mut().take();
    }
}

/// The spans of one request. Clones share them.
#[derive(Clone)]
pub struct Trace(Rc<Inner>);

/// Most traces that a thread keeps for later requests.
const FREE_MAX: usize = 64;

impl Default for Trace {
    fn default() -> Trace {
        Trace::new()
    }
}

impl Drop for Trace {
    /// The last clone leaves its room to a later request of the thread: all requests that wait are traced, most of them for
    /// microseconds.
    fn drop(&mut self) {
        let Some(inner) = Rc::get_mut(&mut self.0) else { return };
        inner.clear();
        // Fails only when the thread ends.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < FREE_MAX {
                free.push(self.0.clone());
            }
        });
    }
}

/// Whether the request that is being polled is measured.
#[derive(Clone, Default)]
enum Current {
    /// It is not.
    #[default]
    Off,
    /// It will be when it waits.
    Late,
    /// It is.
    On(Trace),
}

impl Current {
    /// Whether it is measured already; `None` if it will not be.
    fn is_on(&self) -> Option<bool> {
        match self {
            Current::Off => None,
            Current::Late => Some(false),
            Current::On(_) => Some(true),
        }
    }
}

thread_local! {
    /// The trace of the task that is being polled.
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::Off) };
    /// The layers that a request has entered before it got its trace.
    static ENTERED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// Traces that nobody uses.
    static FREE: RefCell<Vec<Rc<Inner>>> = const { RefCell::new(Vec::new()) };
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
        Trace(FREE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }

    /// The trace of the task that is being polled, if it has one. If it gets one when it waits, it gets it now.
    pub fn current() -> Option<Trace> {
        CURRENT.with_borrow_mut(|current| match current {
            Current::Off => None,
            Current::On(trace) => Some(trace.clone()),
            Current::Late => {
                let trace = Trace::new();
                *current = Current::On(trace.clone());
                Some(trace)
            }
        })
    }

    /// As [`Trace::current`], with the time, in microseconds of [`World::turn_began`], for something that begins.
    pub fn current_since(world: &World) -> Option<(Trace, u64)> {
        let trace = Trace::current()?;
        let now = world.turn_began();
        if trace.0.since.get().is_none() {
            trace.0.since.set(Some(now));
        }
        Some((trace, now))
    }

    /// Runs a request in this trace.
    pub fn run<F: Future>(&self, request: F) -> impl Future<Output = F::Output> + use<F> {
        InTrace { trace: self.clone(), request }
    }

    /// The request has entered a layer at the time `now`.
    fn enter(&self, layer: &'static str, now: u64) {
        self.add(Span { kind: SpanKind::Layer(layer), from: now, until: now });
    }

    /// The request had entered these layers, at most [`LAYERS_MAX`], when it began to wait at the time `now`.
    fn enter_all(&self, layers: impl Iterator<Item = &'static str>, now: u64) {
        let span = |layer| Span { kind: SpanKind::Layer(layer), from: now, until: now };
        self.0.spans.borrow_mut().extend(layers.map(span));
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
        self.0.served.replace(Some(Box::new(served)));
    }

    /// What was set.
    pub fn take_served(&self) -> Option<Served> {
        self.0.served.take().map(|served| *served)
    }
}

/// The request has entered a layer.
pub fn enter(world: &World, layer: impl FnOnce() -> &'static str) {
    CURRENT.with_borrow(|current| match current {
        Current::Off => {}
        Current::Late => ENTERED.with_borrow_mut(|entered| {
            if entered.len() < LAYERS_MAX {
                entered.push(layer());
            }
        }),
        Current::On(trace) => trace.enter(layer(), world.turn_began()),
    });
}

/// Runs a wait, and notes how long it took.
pub async fn span<F: Future>(world: &World, stage: Stage, wait: F) -> F::Output {
    let mut begun = match CURRENT.with_borrow(|current| current.is_on()) {
        None => return wait.await,
        Some(true) => Trace::current_since(world),
        Some(false) => None,
    };
    let mut wait = pin!(wait);
    let output = poll_fn(|cx| {
        let polled = wait.as_mut().poll(cx);
        if polled.is_pending() && begun.is_none() {
            begun = Trace::current_since(world);
        }
        polled
    })
    .await;
    if let Some((trace, from)) = begun {
        trace.add(Span { kind: SpanKind::Wait(stage), from, until: world.turn_began() });
    }
    output
}

/// A request with its trace.
struct InTrace<F> {
    trace: Trace,
    request: F,
}

/// Makes the trace that was there before the current one again.
struct Restore(Current);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
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
        let _restore = Restore(CURRENT.replace(Current::On(trace)));
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
    fn a_trace_leaves_its_room_and_nothing_else() {
        let trace = Trace::new();
        let clone = trace.clone();
        trace.0.since.set(Some(7));
        trace.add(Span { kind: SpanKind::Layer("top"), from: 1, until: 2 });
        trace.set_served(Served::default());
        drop(trace);
        assert_ne!(Rc::as_ptr(&Trace::new().0), Rc::as_ptr(&clone.0), "it is in use");
        let place = Rc::as_ptr(&clone.0);
        drop(clone);
        let next = Trace::new();
        assert_eq!(Rc::as_ptr(&next.0), place);
        assert!(next.0.since.get().is_none() && next.take_served().is_none() && next.take().is_empty());
        let many: Vec<Trace> = (0..2 * FREE_MAX).map(|_| Trace::new()).collect();
        drop(many);
        assert_eq!(FREE.with_borrow(Vec::len), FREE_MAX);
    }

    #[test]
    #[ignore = "prints figures"]
    fn speed_of_a_traced_request() {
        const ROUNDS: u64 = 1_000_000;
        let world = World::real().expect("a ring");
        let address: Rc<str> = "127.0.0.1:7401".into();
        let call = || {
            let (inner, from) = Trace::current_since(&world)?;
            let kind =
                SpanKind::Call { address: address.clone(), request: "ReadUnit", credit_us: 0, served: None };
            inner.add(Span { kind, from, until: world.now() });
            Some(())
        };
        let layers = || {
            ["auto", "io-cache", "read-ahead", "write-behind"]
                .iter()
                .for_each(|layer| enter(&world, || layer))
        };
        let figure = |what: &str, began: u64| {
            println!("{what}: {} ns", (world.now() - began) * 1_000 / ROUNDS);
        };
        world.block_on(async {
            let began = world.now();
            for _ in 0..ROUNDS {
                std::hint::black_box(async { layers() }).await;
            }
            figure("a read from RAM without a trace", began);
            let began = world.now();
            for _ in 0..ROUNDS {
                std::hint::black_box(late(&world, async { layers() }).await.1.is_some());
            }
            figure("a read from RAM that may get a trace", began);
            let began = world.now();
            for _ in 0..ROUNDS {
                let waits = Cell::new(true);
                let request = poll_fn(|cx| {
                    if waits.replace(false) {
                        layers();
                        call();
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Poll::Ready(())
                });
                let mut request = pin!(late(&world, request));
                // Polled twice here: what the executor costs does not count.
                let polled = poll_fn(|cx| {
                    let _ = request.as_mut().poll(cx);
                    request.as_mut().poll(cx)
                });
                std::hint::black_box(polled.await.1.is_some_and(|(_, begun)| world.now() > begun));
            }
            figure("a read of one unit that gets a trace when it waits", began);
            let began = world.now();
            for _ in 0..ROUNDS {
                let (trace, from) = (Trace::new(), world.now());
                let request = async {
                    layers();
                    call();
                };
                trace.run(request).await;
                std::hint::black_box(world.now() - from);
            }
            figure("a read of one unit that is traced from its beginning", began);
        });
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
