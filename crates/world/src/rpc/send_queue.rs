//! The sending half of a connection that several tasks share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

use super::latch::{Latch, wake};
use crate::{Frame, Sender};

/// A sender whose users write themselves when nobody else does, and leave their frames to the writer task otherwise.
///
/// # Invariants
/// Frames leave in the order in which they were given: who finds frames queued, or the sender taken, queues its own.
pub(super) struct SendQueue {
    /// Taken out by whoever writes.
    sender: Cell<Option<Sender>>,
    queue: RefCell<VecDeque<Frame>>,
    /// Frames left to the writer task and not yet sent.
    unsent: Cell<usize>,
    /// Bytes of their payloads.
    unsent_bytes: Cell<usize>,
    writer: Cell<Option<Waker>>,
    broken: Latch,
}

impl SendQueue {
    pub(super) fn new(sender: Sender) -> SendQueue {
        SendQueue {
            sender: Cell::new(Some(sender)),
            queue: RefCell::default(),
            unsent: Cell::new(0),
            unsent_bytes: Cell::new(0),
            writer: Cell::default(),
            broken: Latch::default(),
        }
    }

    pub(super) fn broken(&self) -> &Latch {
        &self.broken
    }

    /// Leaves a frame to the writer task, which sends all that it finds at once.
    pub(super) fn queue(&self, frame: Frame) {
        if self.broken.is_set() {
            return;
        }
        self.unsent.set(self.unsent.get() + 1);
        self.unsent_bytes.set(self.unsent_bytes.get() + frame.payload.len());
        self.queue.borrow_mut().push_back(frame);
        wake(&self.writer);
    }

    /// Sends a frame from this very task if nothing stands before it: no hand-over on a quiet connection.
    ///
    /// # Cancel
    /// Dropped halfway, it breaks the connection.
    pub(super) async fn send(&self, frame: Frame) {
        if !self.queue.borrow().is_empty() {
            self.queue(frame);
            return;
        }
        let Some(sender) = self.sender.take() else {
            self.queue(frame);
            return;
        };
        let mut writing = Writing { send_queue: self, sender: Some(sender) };
        writing.send_all(vec![frame]).await;
    }

    /// Frames left to the writer task and not yet sent.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.get()
    }

    /// Bytes of their payloads.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.get()
    }

    /// Sends what is queued until the connection breaks; calls `sent` after each batch.
    pub(super) async fn write(&self, sent: impl Fn()) {
        let writing = async {
            loop {
                let sender = poll_fn(|cx| {
                    if self.queue.borrow().is_empty() {
                        self.writer.set(Some(cx.waker().clone()));
                        return Poll::Pending;
                    }
                    let sender = self.sender.take();
                    if sender.is_none() {
                        self.writer.set(Some(cx.waker().clone()));
                    }
                    sender.map_or(Poll::Pending, Poll::Ready)
                })
                .await;
                let frames = Vec::from(std::mem::take(&mut *self.queue.borrow_mut()));
                let count = frames.len();
                let bytes: usize = frames.iter().map(|frame| frame.payload.len()).sum();
                let mut writing = Writing { send_queue: self, sender: Some(sender) };
                writing.send_all(frames).await;
                self.unsent.set(self.unsent.get() - count);
                self.unsent_bytes.set(self.unsent_bytes.get() - bytes);
                sent();
            }
        };
        self.broken.or(writing).await;
    }

    /// Breaks the connection: both halves are dropped as soon as their users let go of them.
    pub(super) fn close(&self) {
        self.broken.set();
        self.queue.borrow_mut().clear();
        drop(self.sender.take());
    }
}

/// The sender in use. Comes back to the send_queue at the end, unless the writing was given up.
struct Writing<'a> {
    send_queue: &'a SendQueue,
    sender: Option<Sender>,
}

impl Writing<'_> {
    async fn send_all(&mut self, mut frames: Vec<Frame>) {
        let Some(sender) = &mut self.sender else { return };
        let sent: io::Result<()> = match frames.len() {
            1 => match frames.pop() {
                Some(frame) => sender.send(frame).await,
                None => Ok(()),
            },
            _ => sender.send_all(frames).await,
        };
        match sent {
            Ok(()) if !self.send_queue.broken.is_set() => {
                self.send_queue.sender.set(self.sender.take());
                if !self.send_queue.queue.borrow().is_empty() {
                    wake(&self.send_queue.writer);
                }
            }
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "cannot send"),
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Still here: an error, or half a frame on the wire.
        if self.sender.is_some() {
            self.send_queue.close();
        }
    }
}
