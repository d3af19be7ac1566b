//! A connection, and the calls that wait over it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use types::ClusterId;
use types::messages::session::Meant;

use super::super::CallError;
use super::super::incoming::{Arriving, Incoming};
use super::super::latch::Latch;
use super::super::meter::Meter;
use super::super::outgoing::Requests;
use super::super::rails::Rail;
use super::super::send_queue::SendQueue;
use super::Begun;
use crate::Frame;

/// A connection, from the first request for it to its end.
pub(in crate::rpc) struct Link {
    pub(super) address: Rc<str>,
    /// When somebody wanted it first.
    pub(super) since_us: u64,
    /// The server that is meant there.
    pub(super) meant: Meant,
    /// Which of its server's addresses that is, if it has several.
    pub(super) rail: Option<Rail>,
    pub(super) stage: RefCell<Stage>,
    /// Set once the stage is no longer `Opening`.
    pub(super) settled: Latch,
    pub(super) requests: Cell<u64>,
    pub(super) pending: RefCell<BTreeMap<u64, Pending>>,
    /// Answers need no credit: no switch is on the way, or there is no window.
    pub(super) is_free: Cell<bool>,
    /// Its server, to the receive window.
    pub(super) sender: pace::Sender,
    /// When the server was heard last, or a call began while no other one waited.
    pub(super) heard_us: Cell<u64>,
    /// Bytes of calls that are not answered: of the request or of the answer, whichever has more.
    pub(super) under_way: Cell<usize>,
}

#[derive(Default)]
pub(super) enum Stage {
    #[default]
    Opening,
    Open(Rc<Open>),
    Closed(CallError),
}

/// What an open connection has for its calls.
pub(super) struct Open {
    pub(super) send_queue: Rc<SendQueue>,
    pub(super) requests: Requests,
    pub(super) meter: Meter,
    pub(super) cluster: ClusterId,
}

/// A call that waits for its answer.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) waker: Option<Waker>,
    pub(super) answer: Option<Result<Frame, CallError>>,
    /// Its credit, and pieces that have come.
    pub(super) arriving: Option<Rc<Arriving>>,
    /// Set when something comes.
    pub(super) begun: Option<Begun>,
}

impl Pending {
    pub(super) fn put(&mut self, answer: Result<Frame, CallError>) {
        self.answer = Some(answer);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Link {
    pub(super) fn new(
        meant: Meant,
        address: &str,
        sender: pace::Sender,
        rail: Option<Rail>,
        since_us: u64,
    ) -> Link {
        Link {
            address: address.into(),
            since_us,
            meant,
            rail,
            stage: RefCell::default(),
            settled: Latch::default(),
            requests: Cell::new(0),
            pending: RefCell::default(),
            is_free: Cell::new(false),
            sender,
            heard_us: Cell::new(0),
            under_way: Cell::new(0),
        }
    }

    /// The address of its server.
    pub(in crate::rpc) fn address(&self) -> &str {
        &self.address
    }

    /// The server that is meant there.
    pub(in crate::rpc) fn meant(&self) -> Meant {
        self.meant
    }

    /// Bytes of calls that are not answered.
    pub(in crate::rpc) fn under_way(&self) -> usize {
        self.under_way.get()
    }

    /// Whether calls wait, and nothing has come for so long.
    pub(in crate::rpc) fn is_silent(&self, now_us: u64, silence_us: u64) -> bool {
        now_us >= self.heard_us.get() + silence_us && !self.pending.borrow().is_empty()
    }

    /// Why it is closed, if that is not that nobody is there.
    pub(super) fn refused(&self) -> Option<CallError> {
        match &*self.stage.borrow() {
            Stage::Closed(error) if *error != CallError::Unreachable => Some(*error),
            _ => None,
        }
    }

    pub(super) fn open(&self) -> Result<Rc<Open>, CallError> {
        match &*self.stage.borrow() {
            Stage::Opening => Err(CallError::Unreachable),
            Stage::Open(open) => Ok(open.clone()),
            Stage::Closed(error) => Err(*error),
        }
    }

    /// Closes it for all calls. The first reason is kept.
    pub(super) fn close(&self, error: CallError) {
        let mut stage = self.stage.borrow_mut();
        if matches!(*stage, Stage::Closed(_)) {
            return;
        }
        let old = std::mem::replace(&mut *stage, Stage::Closed(error));
        drop(stage);
        if let Stage::Open(open) = old {
            open.send_queue.close();
        }
        self.settled.set();
        self.pending.borrow_mut().values_mut().for_each(|pending| pending.put(Err(error)));
    }
}

/// Counts the bytes of a call at its connection until it is dropped.
pub(super) struct UnderWay<'a>(&'a Link, usize);

impl<'a> UnderWay<'a> {
    pub(super) fn new(link: &'a Link, bytes: usize) -> UnderWay<'a> {
        link.under_way.set(link.under_way.get() + bytes);
        UnderWay(link, bytes)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - self.1);
    }
}

/// A waiting call's entry in `pending`, and what waits of a large request; removed when dropped.
pub(super) struct Ticket<'a> {
    pub(super) link: &'a Link,
    pub(super) open: &'a Open,
    pub(super) id: u64,
    pub(super) is_large: bool,
}

impl<'a> Ticket<'a> {
    /// Also returns how many bytes of the answer, which has up to `expected`, may be sent without an announcement: none if a
    /// large request expects it.
    pub(super) fn new(
        link: &'a Link,
        open: &'a Open,
        incoming: &Rc<Incoming>,
        expected: Option<usize>,
        begun: Option<&Begun>,
    ) -> (Ticket<'a>, u32) {
        let id = link.requests.get() + 1;
        link.requests.set(id);
        let mut pending = Pending { begun: begun.cloned(), ..Pending::default() };
        let is_large = expected.is_none();
        let credit = if link.is_free.get() && !is_large {
            u32::MAX
        } else {
            let (arriving, credit) = Arriving::new(incoming, link.sender, expected.unwrap_or(0));
            pending.arriving = Some(Rc::new(arriving));
            u32::try_from(credit).unwrap_or(u32::MAX)
        };
        if link.pending.borrow().is_empty() {
            link.heard_us.set(incoming.turn_began());
        }
        link.pending.borrow_mut().insert(id, pending);
        (Ticket { link, open, id, is_large }, credit)
    }

    /// How long the answer waited for credit, in microseconds.
    pub(super) fn credit_us(&self) -> u64 {
        let pending = self.link.pending.borrow();
        pending
            .get(&self.id)
            .and_then(|pending| pending.arriving.as_ref())
            .map_or(0, |arriving| arriving.credit_us())
    }

    pub(super) async fn answer(&self) -> Result<Frame, CallError> {
        poll_fn(|cx| {
            let mut pending = self.link.pending.borrow_mut();
            let Some(place) = pending.get_mut(&self.id) else {
                return Poll::Ready(Err(CallError::Unreachable));
            };
            if let Some(answer) = place.answer.take() {
                return Poll::Ready(answer);
            }
            place.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // Its credit goes back outside of the borrow.
        let gone = self.link.pending.borrow_mut().remove(&self.id);
        drop(gone);
        if self.is_large {
            self.open.requests.give_up(self.id, &self.open.send_queue);
        }
    }
}
