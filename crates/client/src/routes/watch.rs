//! What the calls of a thread to bricks wait for besides their answers: a change of the map or of what is reached, and silence.
//!
//! One task looks for all calls of the thread, so that no call needs a timer of its own. It runs while there are calls.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use world::{Peers, World};

use crate::routes::shared::Routes;

/// Time between two looks at the connections, in microseconds.
pub(super) const LOOK_US: u64 = 250_000;

/// The calls of a thread that wait.
pub(super) struct Watch {
    world: World,
    peers: Peers,
    routes: Arc<Routes>,
    /// One place for each call.
    places: RefCell<Vec<Place>>,
    /// Number of changes that the task has seen.
    changes: Cell<u64>,
    /// Whether the task runs.
    is_on: Cell<bool>,
}

#[derive(Default)]
struct Place {
    is_taken: bool,
    waker: Option<Waker>,
}

/// A call that waits, until this is dropped.
pub(super) struct Waiting<'a> {
    watch: &'a Watch,
    place: usize,
    /// The changes that the call has considered.
    seen: Cell<u64>,
}

impl Watch {
    pub(super) fn new(world: World, peers: Peers, routes: Arc<Routes>) -> Rc<Watch> {
        let (places, changes, is_on) = Default::default();
        Rc::new(Watch { world, peers, routes, places, changes, is_on })
    }

    /// A call begins to wait. Changes count from now on.
    pub(super) fn begin(self: &Rc<Watch>) -> Waiting<'_> {
        let mut places = self.places.borrow_mut();
        let place = places.iter().position(|place| !place.is_taken).unwrap_or_else(|| {
            places.push(Place::default());
            places.len() - 1
        });
        places[place].is_taken = true;
        drop(places);
        if !self.is_on.replace(true) {
            self.world.spawn("watch", look(self.world.clone(), self.routes.clone(), Rc::downgrade(self)));
        }
        Waiting { watch: self, place, seen: Cell::new(self.changes.get()) }
    }

    /// Something has changed: every call considers it.
    fn change(&self) {
        self.changes.set(self.changes.get() + 1);
        let wakers: Vec<Waker> =
            self.places.borrow_mut().iter_mut().filter_map(|place| place.waker.take()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Raises doubts of bricks whose connections bring nothing: each thread has connections of its own.
    pub(super) fn look(&self) {
        let map = self.routes.map();
        let doubted: Vec<_> =
            map.bricks_up().filter(|(_, address)| self.peers.is_doubtful(address)).collect();
        if !doubted.is_empty() {
            self.routes.reach(|reach| doubted.into_iter().for_each(|(brick, _)| reach.doubt(brick)));
        }
    }
}

/// Runs until a time of [`LOOK_US`] has passed without calls.
async fn look(world: World, routes: Arc<Routes>, watch: Weak<Watch>) {
    // What has changed before this began may concern a call.
    let mut has_changed = true;
    loop {
        let changed = routes.changed.wait();
        let Some(watching) = watch.upgrade() else { return };
        if has_changed {
            watching.change();
        } else if watching.places.borrow().iter().any(|place| place.is_taken) {
            watching.look();
        } else {
            watching.is_on.set(false);
            return;
        }
        drop(watching);
        has_changed = world.timeout(LOOK_US, changed).await.is_some();
    }
}

impl Waiting<'_> {
    /// Waits for the next change.
    pub(super) async fn change(&self) {
        poll_fn(|cx| {
            let changes = self.watch.changes.get();
            if self.seen.replace(changes) != changes {
                return Poll::Ready(());
            }
            let waker = &mut self.watch.places.borrow_mut()[self.place].waker;
            if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.watch.places.borrow_mut()[self.place] = Place::default();
    }
}
