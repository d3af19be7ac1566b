//! What is in progress with a file, and ends when it is dropped.

use types::ClientId;

use super::super::Shared;
use crate::volume_inode::VolumeInode;

/// An open, or a create that opens, in progress; a copy of the request waits for its end.
pub(super) struct Running<'a> {
    pub(super) shared: &'a Shared,
    pub(super) client: ClientId,
    pub(super) op: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.shared.state.borrow_mut().sessions.get_mut(self.client) {
            session.end(self.op);
        }
        self.shared.settled.notify();
    }
}

/// An open that is counted. If it is refused, or its client goes before the answer, the drop cancels it.
pub(super) struct Counted<'a> {
    pub(super) shared: &'a Shared,
    pub(super) place: VolumeInode,
    pub(super) client: ClientId,
    pub(super) write: bool,
    pub(super) done: bool,
}

impl<'a> Counted<'a> {
    pub(super) fn new(shared: &'a Shared, place: VolumeInode, client: ClientId, write: bool) -> Counted<'a> {
        shared.state.borrow_mut().volatile.opens.open(place, client, write);
        Counted { shared, place, client, write, done: false }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.shared.state.borrow_mut();
            state.volatile.opens.give_up(self.place, self.client, self.write);
            state.end_noting(self.place, self.client);
            drop(state);
            self.shared.settled.notify();
        }
    }
}

/// A truncation in progress.
pub(super) struct Truncation<'a> {
    pub(super) shared: &'a Shared,
    pub(super) place: VolumeInode,
    pub(super) client: ClientId,
    /// The other clients were told to quiesce.
    pub(super) begun: bool,
}

impl<'a> Truncation<'a> {
    pub(super) fn new(shared: &'a Shared, place: VolumeInode, client: ClientId) -> Truncation<'a> {
        shared.state.borrow_mut().volatile.opens.begin_truncate(place, client);
        Truncation { shared, place, client, begun: false }
    }
}

impl Drop for Truncation<'_> {
    fn drop(&mut self) {
        let volatile = &mut self.shared.state.borrow_mut().volatile;
        volatile.opens.end_truncate(self.place, self.client);
        if self.begun {
            volatile.truncations.end(self.place);
        }
        self.shared.settled.notify();
    }
}
