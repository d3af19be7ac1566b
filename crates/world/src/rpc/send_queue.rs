//! The sending direction of a connection, shared by several tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

use super::latch::{Latch, wake};
use crate::{Frame, Sender};

/// A shared sender. A task sends its frame itself if the sender is free; otherwise it queues the frame for the writer
/// task.
///
/// # Invariants
/// Frames are sent in the order in which they were given. So a task queues its frame if other frames are
/// queued or the sender is taken.
pub(super) struct SendQueue {
    /// [`None`] while a task writes.
    sender: Cell<Option<Sender>>,
    queue: RefCell<VecDeque<Frame>>,
    /// Frames queued for the writer task and not yet sent.
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

    /// Queues a frame for the writer task, which sends all queued frames together.
    pub(super) fn queue(&self, frame: Frame) {
        if self.broken.is_set() {
            return;
        }
        self.unsent.set(self.unsent.get() + 1);
        self.unsent_bytes.set(self.unsent_bytes.get() + frame.payload.len());
        self.queue.borrow_mut().push_back(frame);
        wake(&self.writer);
    }

    /// Sends a frame from this task if no other frame is before it. So a quiet connection needs no switch of tasks.
    ///
    /// # Cancel
    /// If it is dropped while it sends, the connection breaks.
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

    /// Frames queued for the writer task and not yet sent.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.get()
    }

    /// Bytes of their payloads.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.get()
    }

    /// The writer task: sends queued frames until the connection breaks; calls `sent` after each batch.
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

    /// Breaks the connection: both directions are dropped as soon as their users release them.
    pub(super) fn close(&self) {
        self.broken.set();
        self.queue.borrow_mut().clear();
        drop(self.sender.take());
    }
}

/// The sender while it is in use. Returns to the queue after success; otherwise the connection is closed.
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
        // The send failed, or was dropped with half a frame on the wire.
        if self.sender.is_some() {
            self.send_queue.close();
        }
    }
}
