//! Makes pieces of gathered bytes, queues them, sends them again, gives them up, or frees them when they are stable.

use std::sync::Arc;

use types::Epoch;
use types::messages::names::Attr;

use crate::error::ClientError;
use crate::routes::Routes;
use crate::state::gather::{Change, StripeWrites};
use crate::state::open_file::{FileState, Mark, OpenFile};
use crate::state::piece::Piece;
use crate::unstable::flow::Flow;

/// The unstable bytes of all files of a mount.
pub(crate) struct Unstable {
    routes: Arc<Routes>,
    pub(crate) flow: Flow,
}

impl Unstable {
    /// For at most `budget` unstable bytes.
    pub(crate) fn new(routes: Arc<Routes>, budget: u64) -> Unstable {
        Unstable { routes, flow: Flow::new(budget) }
    }

    /// Queues a stripe if it has something to send and no task is sending it.
    pub(crate) fn enqueue_due(&self, file: &Arc<OpenFile>, state: &mut FileState, stripe: u64) {
        let epoch = self.routes.route(state.key(stripe)).epoch;
        if !state.is_sendable(stripe, epoch) {
            return;
        }
        if let Some(writes) = state.stripes.get_mut(&stripe)
            && !writes.claimed
            && !writes.queued
        {
            writes.queued = true;
            self.flow.push((file.clone(), stripe));
        }
    }

    /// Keeps a stripe from being sent until `due`.
    pub(crate) fn back_off(&self, file: &Arc<OpenFile>, state: &mut FileState, stripe: u64, due: u64) {
        if let Some(writes) = state.stripes.get_mut(&stripe) {
            writes.backing_off = true;
            self.flow.back_off(due, (file.clone(), stripe));
        }
    }

    /// Queues all stripes of a file that can be sent.
    pub(crate) fn enqueue_all(&self, file: &Arc<OpenFile>) {
        let mut state = file.lock();
        let stripes: Vec<u64> = state.stripes.keys().copied().collect();
        stripes.into_iter().for_each(|stripe| self.enqueue_due(file, &mut state, stripe));
    }

    /// Seals everything that a file has gathered into pieces.
    pub(crate) fn seal_all(&self, file: &Arc<OpenFile>) -> Mark {
        let mut state = file.lock();
        let gathering = |(stripe, s): (&u64, &StripeWrites)| s.is_gathering().then_some(*stripe);
        let stripes: Vec<u64> = state.stripes.iter().filter_map(gathering).collect();
        for stripe in stripes {
            self.flow.change(state.seal(stripe));
        }
        state.mark()
    }

    /// Queues stripes whose timer has expired. Returns the time of the next check.
    pub(crate) fn wake_stripes(&self, now: u64) -> u64 {
        while let Some((file, stripe)) = self.flow.take_backed_off(now) {
            let mut state = file.lock();
            if let Some(writes) = state.stripes.get_mut(&stripe) {
                writes.backing_off = false;
            }
            self.enqueue_due(&file, &mut state, stripe);
        }
        self.shed(now);
        self.flow.next_timer()
    }

    /// Queues partial stripes that are too old or take too much memory.
    pub(crate) fn shed(&self, now: u64) {
        while let Some((since, file, stripe)) = self.flow.take_aged(now) {
            let mut state = file.lock();
            if state.stripes.get(&stripe).is_some_and(|s| s.is_gathering() && s.since == since) {
                self.flow.change(state.seal(stripe));
            }
            self.enqueue_due(&file, &mut state, stripe);
        }
    }

    /// Queues every stripe whose bytes were accepted in an epoch that has passed.
    pub(crate) fn resend_old_epochs(&self) {
        let map = self.routes.map();
        let mut moved = Vec::new();
        {
            let mut flow = self.flow.lock();
            let mut freed = 0;
            flow.syncs.values_mut().for_each(|syncing| syncing.backoff_until = 0);
            for (index, entries) in &mut flow.ledger {
                let group = types::GroupId { volume: self.routes.volume, index: *index };
                let epoch: Option<Epoch> = map.epoch(group);
                for entry in entries.extract_if(.., |e| Some(e.epoch) != epoch) {
                    freed += entry.bytes;
                    moved.push((entry.file, entry.stripe));
                }
            }
            flow.accepted -= freed;
        }
        for (file, stripe) in moved {
            let mut state = file.lock();
            self.enqueue_due(&file, &mut state, stripe);
        }
    }

    /// Gives a piece up and records the error with the file.
    pub(crate) fn lose(&self, state: &mut FileState, stripe: u64, order: u64, error: ClientError) {
        if state.write_handles == 0 {
            tracing::warn!(key = %state.key(stripe), %error, "a write is lost after its file was closed: no program sees this error");
        } else {
            tracing::debug!(key = %state.key(stripe), %error, "a write is lost");
        }
        state.wb_errors.add(error);
        state.invalidate();
        let length = self.routes.geometry_of(state.object).stripe() as u64;
        let lost = state.stripes.get(&stripe).and_then(|writes| writes.piece_at(order));
        let lost = lost.and_then(|piece| state.first_lost(piece, stripe * length));
        self.drop_piece(state, stripe, order);
        if let Some(end) = lost.and_then(|at| state.ends_before(at, length, error)) {
            tracing::debug!(key = %state.key(stripe), end, "the file ends before what is lost");
            self.drop_beyond(state, end);
        }
    }

    /// Removes a piece that is stable or lost.
    pub(crate) fn drop_piece(&self, state: &mut FileState, stripe: u64, order: u64) {
        if let Some(piece) = state.stripes.get_mut(&stripe).and_then(|s| s.remove(order)) {
            self.finish_piece(state, &piece);
        }
        if state.stripes.get(&stripe).is_some_and(|s| s.is_empty() && !s.claimed) {
            state.stripes.remove(&stripe);
        }
    }

    /// Removes a stable piece, and the earlier ones of its stripe, which are stable too. An earlier piece that
    /// stayed, because another Sync waits for it, would hide later bytes from readers.
    pub(crate) fn drop_stable(&self, state: &mut FileState, stripe: u64, order: u64) {
        let older = |writes: &StripeWrites| writes.first_order().filter(|first| *first <= order);
        while let Some(first) = state.stripes.get(&stripe).and_then(older) {
            let length = self.routes.geometry_of(state.object).stripe() as u64;
            let end = state.stripes.get(&stripe).and_then(|s| s.piece_at(first)).map_or(0, Piece::end);
            state.stable_end = state.stable_end.max(state.size.min(stripe * length + end as u64));
            let piece = state.stripes.get_mut(&stripe).and_then(|s| s.piece(first));
            if let Some(noted) = piece.and_then(|piece| piece.noted.take()) {
                self.flow.lock().notes.is_stable(noted.note.inode, noted.seq);
                state.keep_stable_note(noted);
            }
            self.drop_piece(state, stripe, first);
        }
    }

    /// Adopts a new end of the file, or a new object: drops bytes beyond the end.
    pub(crate) fn apply_truncation(&self, state: &mut FileState, attr: &Attr) {
        if attr.object != state.object {
            self.drop_unstable(state);
            state.object = attr.object;
            state.stable_end = 0;
        } else {
            self.drop_beyond(state, attr.size);
        }
        // From now on the service's `stale_end` covers bytes sent beyond the end.
        state.sent_end = state.sent_end.min(attr.size);
        state.stable_end = state.stable_end.min(attr.size);
        state.loss = None;
        state.set_truncate_seq(attr.truncate_seq);
        state.size = attr.size;
        state.reported_size = attr.size;
        state.durable_size = attr.size;
        state.stale_end = attr.stale_end;
        state.set_durable_mtime(attr.mtime);
    }

    /// Updates the accounts for a removed piece.
    pub(crate) fn finish_piece(&self, state: &mut FileState, piece: &Piece) {
        state.unanswered.remove(&piece.order);
        state.unstable.remove(&piece.order);
        if let Some(seq) = piece.seq {
            let mut flow = self.flow.lock();
            flow.seqs.finish(seq.0);
            if let Some(noted) = &piece.noted {
                flow.notes.remove(noted.note.inode, seq);
            }
        }
        self.flow.change(Change { used: -(piece.charge() as i64), gathering: 0, pieces: -1 });
    }

    /// Drops unsent bytes beyond `size`.
    pub(crate) fn drop_beyond(&self, state: &mut FileState, size: u64) {
        state.invalidate();
        let geometry = self.routes.geometry_of(state.object);
        let (first, within) = geometry.locate(size);
        let stripes: Vec<u64> = state.stripes.range(first..).map(|(stripe, _)| *stripe).collect();
        for stripe in stripes {
            let Some(writes) = state.stripes.get_mut(&stripe) else { continue };
            let (dropped, change) = writes.cut(if stripe == first { within } else { 0 });
            self.forget(state, &dropped, change);
        }
        state.stripes.retain(|_, s| !s.is_empty() || s.claimed);
    }

    /// Drops every unstable byte of a file.
    pub(crate) fn drop_unstable(&self, state: &mut FileState) {
        state.invalidate();
        let mut dropped = Vec::new();
        let mut change = Change::default();
        for writes in state.stripes.values_mut() {
            let (pieces, cleared) = writes.clear();
            dropped.extend(pieces);
            change += cleared;
        }
        self.forget(state, &dropped, change);
        state.stripes.retain(|_, s| s.claimed);
    }

    fn forget(&self, state: &mut FileState, dropped: &[Piece], change: Change) {
        dropped.iter().for_each(|piece| self.finish_piece(state, piece));
        self.flow.change(change);
    }
}
