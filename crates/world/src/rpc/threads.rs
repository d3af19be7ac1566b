//! Connections on threads of their own, requests on the caller's thread.
//!
//! ```text
//!  threads 2...n                                  the caller's thread
//!    receive, read the frame ──────────────────▶ handler: one after the other, as `serve` would call it
//!    send the answer ◀──────────────────────────── answer
//! ```
//!
//! What costs most of a small request is its socket. So a server whose state belongs to one thread can use more cores. On an
//! idle machine a request pays for two wake-ups between threads instead.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};

use async_channel::{Receiver, Sender};
use futures_util::future::select;
use types::Refusal;
use types::messages::task_name;

use super::latch::{Latch, wake};
use super::room::Bounds;
use super::server::serve_within;
use super::{Answer, Call, Handler, Identity, LocalBoxFuture, serve};
use crate::{ListenSocket, Listener, World, trace};

/// Requests that are begun before other tasks of the caller's thread have their turn.
const BEGUN_AT_ONCE: usize = 32;

type Answered = Result<Answer, Refusal>;

/// A request on its way to the caller's thread.
struct Request {
    /// Its number at the thread that has received it.
    id: u64,
    call: Call,
    /// When it was received, in microseconds of the world's clock, which all threads share. Only if the caller wants to know
    /// where the time goes.
    received: Option<u64>,
    answers: Sender<(u64, Answered)>,
}

/// As [`serve`], with `threads` threads in all: the one that runs the returned future calls `handler`, the others have the
/// connections. With one thread, and in a simulation, whose nodes have one, it is [`serve`].
///
/// # Errors
/// If the machine gives no thread, or a thread no ring.
pub fn serve_on_threads(
    world: &World,
    listener: Listener,
    identity: &Identity,
    threads: usize,
    handler: Handler,
) -> io::Result<LocalBoxFuture<'static, ()>> {
    let beside = threads.saturating_sub(1);
    let (world, Some(socket), 1..) = (world.clone(), listener.listen_socket(), beside) else {
        return Ok(Box::pin(serve(world.clone(), listener, identity.clone(), handler)));
    };
    // Not bounded by itself: each thread bounds the requests and bytes that its connections have in progress.
    let (requests, queue) = async_channel::unbounded();
    let (started, starts) = mpsc::channel();
    let stopped = Rc::new(Latch::default());
    let mut others = Threads { stopped, requests: queue, answers: Vec::new(), threads: Vec::new() };
    let bounds = Bounds::of_one_in(beside);
    for _ in 0..beside {
        let (answers, answered) = async_channel::unbounded();
        let forwarder = Forwarder { requests: requests.clone(), answers: answers.clone() };
        others.answers.push(answers);
        let (socket, identity, bounds) = (socket.clone(), identity.clone(), bounds.clone());
        let started = started.clone();
        let body = move || forwarder.run(&socket, identity, bounds, &answered, &started);
        others.threads.push(thread::Builder::new().name("connections".into()).spawn(body)?);
    }
    for _ in 0..beside {
        starts.recv().map_err(io::Error::other)??;
    }
    Ok(Box::pin(async move { others.begin_for_ever(&world, &handler).await }))
}

/// The threads that have the connections.
struct Threads {
    /// Ends the requests in progress on the caller's thread.
    stopped: Rc<Latch>,
    requests: Receiver<Request>,
    answers: Vec<Sender<(u64, Answered)>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    /// Ends them, and waits until they have ended.
    fn drop(&mut self) {
        self.stopped.set();
        self.requests.close();
        for answers in &self.answers {
            answers.close();
        }
        for thread in self.threads.drain(..) {
            // A thread that panics ends the process.
            let _ = thread.join();
        }
    }
}

impl Threads {
    /// Begins requests in the order in which they come.
    async fn begin_for_ever(&self, world: &World, handler: &Handler) {
        let mut begun = 0;
        while let Ok(Request { id, call, received, answers }) = self.requests.recv().await {
            let name = task_name(call.kind);
            trace::waited_before(received.map_or(0, |at| world.now().saturating_sub(at)));
            let mut answering = handler(call);
            let polled = poll_fn(|cx| Poll::Ready(world.part(name, || answering.as_mut().poll(cx)))).await;
            match polled {
                Poll::Ready(answer) => give(&answers, id, answer),
                Poll::Pending => world.spawn(name, finish(self.stopped.clone(), id, answers, answering)),
            }
            begun += 1;
            if begun == BEGUN_AT_ONCE {
                begun = 0;
                world.yield_now().await;
            }
        }
    }
}

async fn finish(
    stopped: Rc<Latch>,
    id: u64,
    answers: Sender<(u64, Answered)>,
    answering: LocalBoxFuture<'static, Answered>,
) {
    if let Some(answer) = stopped.or(answering).await {
        give(&answers, id, answer);
    }
}

/// Gives an answer to the thread that has the connection.
fn give(answers: &Sender<(u64, Answered)>, id: u64, answer: Answered) {
    // It is not bounded, so it fails only if the thread has ended.
    let _ = answers.try_send((id, answer));
}

/// One of the threads that have the connections.
struct Forwarder {
    requests: Sender<Request>,
    answers: Sender<(u64, Answered)>,
}

impl Forwarder {
    /// Serves connections until `answered` is closed. First tells `started` whether it can.
    fn run(
        self,
        socket: &ListenSocket,
        identity: Identity,
        bounds: Bounds,
        answered: &Receiver<(u64, Answered)>,
        started: &mpsc::Sender<io::Result<()>>,
    ) {
        let _abort = AbortOnPanic;
        let opened = World::real().and_then(|world| world.listen_shared(socket).map(|on| (world, on)));
        let (opened, told) = match opened {
            Ok(opened) => (Some(opened), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Nobody listens any more if another thread could not start.
        let _ = started.send(told);
        let Some((world, listener)) = opened else { return };
        let waiting = Rc::new(Waiting::default());
        let handler: Handler = {
            let (waiting, world) = (waiting.clone(), world.clone());
            Rc::new(move |call| {
                let (id, answer) = waiting.expect();
                let received = call.traced.then(|| world.now());
                let request = Request { id, call, received, answers: self.answers.clone() };
                // It is not bounded, so it fails only at the end of the server, when nobody waits for an answer.
                let _ = self.requests.try_send(request);
                Box::pin(answer)
            })
        };
        let serving = serve_within(world.clone(), listener, identity, handler, bounds);
        world.block_on_as("connections", async {
            select(pin!(serving), pin!(waiting.take_answers(&world, answered))).await;
        });
    }
}

/// A server that has lost one of its threads is deaf to some of its callers: a new start is better for all of them.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Requests of one thread that wait for their answers.
#[derive(Default)]
struct Waiting {
    next: Cell<u64>,
    places: RefCell<BTreeMap<u64, Rc<Place>>>,
}

#[derive(Default)]
struct Place {
    answer: Cell<Option<Answered>>,
    waker: Cell<Option<Waker>>,
}

impl Waiting {
    /// The number of a new request, and its answer.
    fn expect(self: &Rc<Waiting>) -> (u64, impl Future<Output = Answered> + use<>) {
        let id = self.next.get();
        self.next.set(id + 1);
        let place = Rc::new(Place::default());
        self.places.borrow_mut().insert(id, place.clone());
        let forgotten = Forget { waiting: self.clone(), id };
        let answer = poll_fn(move |cx| {
            let _whole = &forgotten;
            match place.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    place.waker.set(Some(cx.waker().clone()));
                    Poll::Pending
                }
            }
        });
        (id, answer)
    }

    /// Gives answers to those who wait for them, until the channel is closed.
    async fn take_answers(&self, world: &World, answered: &Receiver<(u64, Answered)>) {
        let mut taken = 0;
        while let Ok((id, answer)) = answered.recv().await {
            let place = self.places.borrow().get(&id).cloned();
            if let Some(place) = place {
                place.answer.set(Some(answer));
                wake(&place.waker);
            }
            taken += 1;
            if taken == BEGUN_AT_ONCE {
                taken = 0;
                world.yield_now().await;
            }
        }
    }
}

/// Removes the place of a request when nobody waits for its answer any more.
struct Forget {
    waiting: Rc<Waiting>,
    id: u64,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.waiting.places.borrow_mut().remove(&self.id);
    }
}
