//! The path of written bytes from the mount to the bricks.
//!
//! ```text
//!   Session::write           copied once, into the stripe's segment          (translators/write_behind.rs)
//!        |                   the call returns
//!     Gathered ............. waits for: a whole stripe, close, fsync, 1 s, a tight budget
//!        |                   then its segments become a piece of as many spans
//!     Claimed .............. one sender per stripe: a background worker, or the caller of fsync or close
//!        |
//!     Routed ............... stripe -> extent -> group -> primary; the piece gets its number
//!        |  Stage ---------> every slot's brick, if it is a whole stripe    (stage.rs)
//!        |       <--------- Done
//!        |  Write ---------> primary, without the bytes if they are staged  (send_stripe, below)
//!        |       <--------- Done
//!     Accepted ............. unstable: the primary holds it too, space is reserved; the bytes stay here
//!        |                   another epoch of the group? back to Routed, with the same number
//!        |  Sync ----------> primary, for many pieces at once               (stable.rs); or the Write of a piece
//!        |                   that a caller waits for asks for stability itself
//!        |       <--------- Done
//!     Stable ............... the buffer goes back to the pool, the budget to the next writer
//!        |  UpdateSizes ---> metadata service, for many files at once       (size_reports.rs)
//!     SizeReported
//! ```
//!
//! Pieces of one stripe are sent in the order of writing, one at a time. Stripes are independent.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use layout::WriteRoute;
use types::messages::brick::{Span, Write};
use types::messages::notes::SizeNote;
use types::{Buf, BufMut, ClientSeq, StripeKey};
use world::CallError;
use world::trace::{Stage, span};

use crate::error::ClientError;
use crate::paths::Io;
use crate::routes::retry::{RETRY_BUDGET_US, Verdict, backoff_us, verdict};
use crate::routes::route::Route;
use crate::state::counters::Counter;
use crate::state::gather::StripeWrites;
use crate::state::open_file::{FileState, OpenFile};
use crate::unstable::Unstable;
use crate::unstable::flow::Accepted;

/// Most stripes in flight per flushing loop.
pub(crate) const FLIGHT_MAX: usize = 16;

/// A stage of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteStage {
    /// Copied into the stripe's buffer; may still change.
    Gathered,
    /// A task is sending the stripe.
    Claimed,
    /// The group and its primary are known; the write has its number.
    Routed,
    /// The primary holds it: unstable.
    Accepted,
    /// Durable on every live slot that takes part.
    Stable,
    /// The metadata service has stored the size durably.
    SizeReported,
}

impl std::fmt::Display for WriteStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// One `Write`, ready to be sent.
pub(crate) struct OutgoingWrite {
    order: u64,
    pub(crate) key: StripeKey,
    pub(crate) seq: ClientSeq,
    acked: ClientSeq,
    spans: Vec<Span>,
    /// The bytes of each span; none for zeros.
    bytes: Vec<Buf>,
    /// The primary answers only when it is stable.
    stable: bool,
    pub(crate) route: Route,
    /// It was never sent before. A stripe is staged at most once; retries go through the primary.
    fresh: bool,
    /// What it says about the file's size.
    note: Option<SizeNote>,
}

impl OutgoingWrite {
    /// The bytes, if they are a whole stripe; `length` is that of a stripe.
    fn stripe(&self, length: usize) -> Option<&Buf> {
        match self.bytes.as_slice() {
            [one] if one.len() == length => Some(one),
            _ => None,
        }
    }

    /// The bytes of all spans, concatenated. They are copied only if there are several spans; the copy lives only
    /// until the write is answered.
    fn payload(&self) -> Buf {
        match self.bytes.as_slice() {
            [] => return Buf::empty(),
            [one] => return one.clone(),
            _ => {}
        }
        let mut payload = BufMut::dirty(self.bytes.iter().map(|bytes| bytes.len()).sum());
        let mut at = 0;
        for bytes in &self.bytes {
            payload[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        payload.freeze()
    }
}

impl Io {
    /// Sends the pieces of a stripe, one after the other, until none is left or it must wait.
    pub(crate) async fn send_stripe(&self, file: &Arc<OpenFile>, stripe: u64) {
        let Some(claim) = Claim::take(&self.unstable, file, stripe) else { return };
        tracing::debug!(stage = %WriteStage::Claimed, inode = %file.inode, stripe, "sending");
        while let Some(outgoing) = self.next_outgoing(&claim) {
            match self.send(file, &outgoing).await {
                Ok(asked) => self.accepted(&claim, &outgoing, asked),
                Err(error) => self.failed(&claim, &outgoing, error).await,
            }
        }
    }

    /// The stripe's first piece that its primary has not accepted.
    fn next_outgoing(&self, claim: &Claim<'_>) -> Option<OutgoingWrite> {
        let now = self.link.world.now();
        let leased = self.link.routes.lease.is_leased(now);
        let mut state = claim.file.lock();
        let key = state.key(claim.stripe);
        let route = self.link.routes.route(key);
        if !state.is_sendable(claim.stripe, route.epoch) {
            return None;
        }
        if !leased {
            // Another client may have been let in: send nothing until this client has a lease again.
            self.unstable.back_off(
                claim.file,
                &mut state,
                claim.stripe,
                now + backoff_us(4, self.link.world.random()),
            );
            return None;
        }
        let wanted = state.wanted_stable;
        let writes = state.stripes.get_mut(&claim.stripe)?;
        let order = writes.unsent(route.epoch)?.order;
        let last = writes.is_last(order);
        let may_note = last && state.may_note(order);
        let piece = state.stripes.get_mut(&claim.stripe)?.piece(order)?;
        if piece.accepted.take().is_some() {
            // It was accepted in an earlier epoch. Give the new primary the full time.
            (piece.first_sent, piece.tries) = (None, 0);
        }
        piece.first_sent.get_or_insert(now);
        let fresh = piece.seq.is_none();
        let mut flow = self.unstable.flow.lock();
        let seq = *piece.seq.get_or_insert_with(|| ClientSeq(flow.seqs.begin()));
        let acked = ClientSeq(flow.seqs.finished());
        let told = if fresh && may_note { flow.notes.add(claim.file.inode, seq) } else { None };
        drop(flow);
        let noted = told.map(|told| state.make_note(claim.file.inode, order, seq, told));
        let piece = state.stripes.get_mut(&claim.stripe)?.piece(order)?;
        piece.noted = noted.or_else(|| piece.noted.take());
        let note = piece.noted.as_ref().map(|noted| noted.note.clone());
        let (spans, bytes) = piece.spans();
        // After a failed try, do not ask the primary to wait for stability again.
        let stable = last && order <= wanted && piece.tries == 0;
        let end =
            claim.stripe * self.link.routes.geometry_of(key.object).stripe() as u64 + piece.end() as u64;
        // Bytes beyond the size were truncated since they were sealed; the service covers them by `stale_end`.
        state.sent_end = state.sent_end.max(state.size.min(end));
        Some(OutgoingWrite { order, key, seq, acked, spans, bytes, stable, route, fresh, note })
    }

    /// Sends a piece to its primary, which accepts it. Returns the time of the request.
    async fn send(&self, file: &OpenFile, outgoing: &OutgoingWrite) -> Result<u64, CallError> {
        self.link.routes.counts.count(Counter::Pieces, 1);
        self.link.routes.counts.count(Counter::Spans, outgoing.spans.len() as u64);
        let staged = match outgoing.stripe(self.link.routes.geometry_of(outgoing.key.object).stripe()) {
            Some(stripe) => {
                let staged = self.stages(outgoing) && self.stage(file, outgoing, stripe).await;
                self.link
                    .routes
                    .counts
                    .count(if staged { Counter::StagedStripes } else { Counter::SentStripes }, 1);
                staged
            }
            None => false,
        };
        let request = Write {
            group: outgoing.route.group,
            key: outgoing.key,
            client: self.link.routes.lease.client(),
            seq: outgoing.seq,
            acked: outgoing.acked,
            spans: outgoing.spans.clone(),
            zero: outgoing.bytes.is_empty(),
            stable: outgoing.stable,
            staged,
            note: outgoing.note.clone(),
        };
        let payload = if staged { Buf::empty() } else { outgoing.payload() };
        if !payload.is_empty() {
            self.layer_counts.write_brick(&file.layer_counts, payload.len());
        }
        let asked = self.link.world.now();
        self.link.ask_primary(&outgoing.route, &request, payload).await.map(|_| asked)
    }

    /// Whether a whole stripe is staged.
    fn stages(&self, outgoing: &OutgoingWrite) -> bool {
        let geometry = self.link.routes.geometry_of(outgoing.key.object);
        let is_here = outgoing.fresh && self.link.routes.options.encode.is_here(&geometry);
        is_here && *self.write_route(outgoing) != WriteRoute::Primary
    }

    /// By which route a whole stripe goes to its bricks.
    pub(crate) fn write_route<'a>(&self, outgoing: &'a OutgoingWrite) -> &'a WriteRoute {
        outgoing.route.write_route(self.link.routes.options.encode, |host| self.link.world.is_here(host))
    }

    /// The primary has accepted the piece, and made it stable if asked.
    fn accepted(&self, claim: &Claim<'_>, outgoing: &OutgoingWrite, asked: u64) {
        let mut state = claim.file.lock();
        let epoch = outgoing.route.epoch;
        let Some(piece) = state.stripes.get_mut(&claim.stripe).and_then(|s| s.piece(outgoing.order)) else {
            return;
        };
        piece.accepted = Some(epoch);
        piece.tries = 0;
        let bytes = piece.charge();
        state.unanswered.remove(&outgoing.order);
        let (file, stripe, since) = (claim.file.clone(), claim.stripe, self.link.world.now());
        let entry = Accepted { file, stripe, order: outgoing.order, seq: outgoing.seq, epoch, bytes, since };
        let group = outgoing.route.group.index;
        if outgoing.stable {
            drop(state);
            // Pieces that the primary had accepted before this request are stable too. A piece accepted later may
            // have reached the primary after it sent this answer, even if its number is lower.
            let mut earlier = self.unstable.flow.take_stable(group, epoch, outgoing.seq, asked);
            self.are_stable(earlier.entries.drain(..).chain([entry]));
            return;
        }
        self.unstable.flow.accept(group, entry);
        drop(state);
        tracing::debug!(stage = %WriteStage::Accepted, key = %outgoing.key, seq = %outgoing.seq, "unstable");
        claim.file.changed.notify();
    }

    /// Removes stable pieces and reports their files.
    pub(crate) fn are_stable(&self, entries: impl Iterator<Item = Accepted>) {
        let mut files: BTreeMap<_, Arc<OpenFile>> = BTreeMap::new();
        for entry in entries {
            tracing::debug!(stage = %WriteStage::Stable, seq = %entry.seq, "stable");
            self.unstable.drop_stable(&mut entry.file.lock(), entry.stripe, entry.order);
            files.insert(entry.file.inode, entry.file);
        }
        for file in files.into_values() {
            file.changed.notify();
            if file.lock().stable_note().is_some() {
                self.unstable.flow.report_later(self.link.world.now(), &file);
            }
            self.unstable.flow.queue_report(&file);
        }
    }

    /// The piece was not accepted: it is sent again after a pause, or it is lost.
    async fn failed(&self, claim: &Claim<'_>, outgoing: &OutgoingWrite, error: CallError) {
        tracing::debug!(stage = %WriteStage::Routed, key = %outgoing.key, seq = %outgoing.seq, %error, "write failed");
        let again = match verdict(error) {
            Verdict::GiveUp(error) => Err(error),
            Verdict::Again => Ok(()),
            Verdict::Refresh => {
                self.link.refresh_map(outgoing.route.map_version()).await;
                Ok(())
            }
        };
        let now = self.link.world.now();
        let mut state = claim.file.lock();
        let Some(piece) = state.stripes.get_mut(&claim.stripe).and_then(|s| s.piece(outgoing.order)) else {
            return;
        };
        let spent = piece.first_sent.is_some_and(|first| now > first + RETRY_BUDGET_US);
        piece.tries += 1;
        let tries = piece.tries;
        // Never give up on zeros while zeroing: zeros that arrive late would overwrite newer bytes of other clients.
        let spent = spent && !(state.zeroing.runs && outgoing.bytes.is_empty());
        match again {
            Ok(()) if !spent => {
                self.link.routes.counts.count(Counter::Retries, 1);
                let moved = self.link.routes.route(outgoing.key).epoch != outgoing.route.epoch;
                // Retry at once, one time, if the group has a new epoch.
                let pause = if moved && tries == 1 { 1 } else { backoff_us(tries, self.link.world.random()) };
                self.unstable.back_off(claim.file, &mut state, claim.stripe, now + pause);
            }
            Ok(()) => self.unstable.lose(&mut state, claim.stripe, outgoing.order, ClientError::Unreachable),
            Err(error) => self.unstable.lose(&mut state, claim.stripe, outgoing.order, error),
        }
        drop(state);
        self.unstable.flow.queue_report(claim.file);
        claim.file.changed.notify();
    }

    /// Waits until the primaries have accepted every piece of a file up to number `upto` (or it is lost). Sends
    /// pieces that no other task is sending.
    pub(crate) async fn make_answered(&self, file: &Arc<OpenFile>, upto: u64) {
        let _unfinished = Unfinished { unstable: &self.unstable, file };
        loop {
            let changed = file.changed.wait();
            let stripes = {
                let state = file.lock();
                if state.unanswered.first().is_none_or(|first| *first > upto) {
                    return;
                }
                self.unclaimed(&state)
            };
            if stripes.is_empty() {
                span(&self.link.world, Stage::Underway, changed).await;
                continue;
            }
            join_all(stripes.into_iter().map(|stripe| self.send_stripe(file, stripe))).await;
        }
    }

    /// Stripes that can be sent now and that no task is sending; at most as many as may be in flight.
    fn unclaimed(&self, state: &FileState) -> Vec<u64> {
        let free = |(stripe, writes): &(&u64, &StripeWrites)| {
            let epoch = self.link.routes.route(state.key(**stripe)).epoch;
            !writes.claimed && state.is_sendable(**stripe, epoch)
        };
        state.stripes.iter().filter(free).map(|(stripe, _)| *stripe).take(FLIGHT_MAX).collect()
    }
}

/// Passes the remaining stripes to the background when its caller ends or is cancelled.
struct Unfinished<'a> {
    unstable: &'a Unstable,
    file: &'a Arc<OpenFile>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.unstable.enqueue_all(self.file);
    }
}

/// The right to send a stripe. Released when dropped, also if the caller is cancelled.
struct Claim<'a> {
    unstable: &'a Unstable,
    file: &'a Arc<OpenFile>,
    stripe: u64,
}

impl<'a> Claim<'a> {
    fn take(unstable: &'a Unstable, file: &'a Arc<OpenFile>, stripe: u64) -> Option<Claim<'a>> {
        let mut state = file.lock();
        let writes = state.stripes.get_mut(&stripe)?;
        writes.queued = false;
        if writes.claimed {
            return None;
        }
        writes.claimed = true;
        state.claims += 1;
        drop(state);
        Some(Claim { unstable, file, stripe })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.file.lock();
        state.claims -= 1;
        if let Some(writes) = state.stripes.get_mut(&self.stripe) {
            writes.claimed = false;
            if writes.is_empty() {
                state.stripes.remove(&self.stripe);
            } else {
                self.unstable.enqueue_due(self.file, &mut state, self.stripe);
            }
        }
        drop(state);
        self.file.changed.notify();
    }
}
