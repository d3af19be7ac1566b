//! Write-behind: a write returns when its bytes are in a buffer of this mount. They are sent later.
//!
//! Whole stripes are sent at once. Partial ones are sent when their file is closed or synced, one second after they
//! began, or when they take half of the budget; the last two wait while many pieces are in flight (flow.rs). Each
//! worker takes the next stripe when its last one is accepted. Errors are kept with the file; its next write, fsync
//! and close report them (wb_errors.rs).

use std::sync::Arc;

use futures_util::future::join_all;
use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::Mode;
use types::{Epoch, Refusal};

use crate::error::ClientError;
use crate::gather::{Change, Piece, StripeWrites};
use crate::mount::{Counter, Handle, Mount};
use crate::open_file::{FileState, Mark, OpenFile};
use crate::session::Session;
use crate::size_reports::ReportOutcome;
use crate::write::WriteStage;

/// Most stripes in flight per flushing loop.
const FLIGHT_MAX: usize = 16;
/// How long a partial stripe may wait for more bytes, and accepted bytes for a Sync, in microseconds.
pub(crate) const AGE_MAX_US: u64 = 1_000_000;
/// Longest time between two checks of the timers, in microseconds. The start of a timer does not wake the loop.
const LOOK_US: u64 = 200_000;

/// While it lives, the background does not report the file's size, because the caller of `fsync` will.
struct FsyncGuard<'a> {
    mount: &'a Arc<Mount>,
    file: &'a Arc<OpenFile>,
}

impl<'a> FsyncGuard<'a> {
    fn begin(mount: &'a Arc<Mount>, file: &'a Arc<OpenFile>) -> FsyncGuard<'a> {
        file.lock().fsyncs += 1;
        FsyncGuard { mount, file }
    }
}

impl Drop for FsyncGuard<'_> {
    fn drop(&mut self) {
        self.file.lock().fsyncs -= 1;
        self.mount.flow.queue_report(self.file);
    }
}

impl Session {
    /// Writes `bytes` at `offset`. Returns when they are buffered, or, if the file is shared, when they are stable.
    ///
    /// # Errors Also reports errors of earlier writes to this file.
    pub async fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Result<usize, ClientError> {
        let handle = self.mount.handle(handle)?;
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        let file = &handle.file;
        let lost = handle.error_cursor.before_write(&file.lock().wb_errors)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        // As usual for files, the bytes that still fit are written.
        let room = FILE_SIZE_MAX.saturating_sub(offset);
        if room == 0 {
            return Err(ClientError::Refused(Refusal::FileTooLarge));
        }
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let end = offset + bytes.len() as u64;
        if self.mount.disk().is_some_and(|size| end > size) {
            return Err(ClientError::Refused(Refusal::NoSpace));
        }
        // If another client truncates the shared file meanwhile, the write is repeated after the truncation.
        while self.write_once(&handle, offset, bytes, lost).await? == ReportOutcome::Truncated {}
        self.mount.count(Counter::WrittenBytes, bytes.len() as u64);
        Ok(bytes.len())
    }

    /// One attempt to write bytes within the limits of the file.
    async fn write_once(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
        lost: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        let end = offset + bytes.len() as u64;
        let io = loop {
            match self.begin_write(file, end).await? {
                Some(io) => break io,
                None => self.zero_stale(file).await?,
            }
        };
        let mut rest = bytes;
        for (stripe, within, take) in self.mount.geometry().split(offset, bytes.len()) {
            let (part, others) = rest.split_at(take);
            self.lay(file, stripe, within, part).await?;
            rest = others;
        }
        tracing::debug!(stage = %WriteStage::Gathered, inode = %file.inode, offset, len = bytes.len(), "written");
        if file.lock().may_buffer() {
            Ok(ReportOutcome::Accepted)
        } else {
            self.write_through(handle, end, io.truncate_seq, lost).await
        }
    }

    /// Copies bytes into a stripe's buffer, once the budget has room.
    async fn lay(
        &self,
        file: &Arc<OpenFile>,
        stripe: u64,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let length = self.stripe_bytes();
        let mut room = None;
        loop {
            let grown = {
                let mut state = file.lock();
                let grown = state.stripes.get(&stripe).map(|s| s.growth(at, bytes.len(), length));
                let grown = grown.unwrap_or_else(|| StripeWrites::default().growth(at, bytes.len(), length));
                if self.mount.flow.gather(room.as_ref(), grown) {
                    self.lay_in(file, &mut state, stripe, at, bytes);
                    break;
                }
                grown
            };
            drop(room.take());
            room = Some(self.mount.flow.reserve(grown).await?);
        }
        if self.mount.flow.is_overfull() {
            self.mount.shed(self.world.now());
        }
        Ok(())
    }

    /// Copies bytes into a stripe's buffer. The caller has reserved room.
    fn lay_in(&self, file: &Arc<OpenFile>, state: &mut FileState, stripe: u64, at: usize, bytes: &[u8]) {
        let (length, now) = (self.stripe_bytes(), self.world.now());
        let writes = state.stripes.entry(stripe).or_default();
        let began = !writes.is_gathering();
        writes.lay(at, bytes, length);
        let whole = writes.is_whole(length);
        if began {
            writes.since = now;
        }
        state.size = state.size.max(stripe * length as u64 + (at + bytes.len()) as u64);
        self.touch(state);
        if whole {
            self.mount.flow.change(state.seal(stripe));
            self.mount.enqueue_due(file, state, stripe);
        } else if began {
            self.mount.flow.age(now, file, stripe);
        }
    }

    /// Sets the time of the last change to now.
    pub(crate) fn touch(&self, state: &mut FileState) {
        if !self.mount.options.keeps_times {
            state.mtime = self.world.wall();
            state.mtime_reported = false;
            state.mtime_durable = false;
        }
    }

    /// Makes everything written so far stable, and then reports that the file has at least `end` bytes, unless the
    /// service knows. Other clients may change the size too, so this mount's own size is not used. `truncate_seq` and
    /// `lost` are the file's counts of truncations and lost writes when the write began.
    pub(crate) async fn write_through(
        &self,
        handle: &Handle,
        end: u64,
        truncate_seq: u64,
        lost: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        let mark = self.mount.seal_all(file);
        self.make_stable(file, mark.upto).await?;
        handle.error_cursor.after_write(&file.lock().wb_errors, lost)?;
        let told = self.report_end(file, end, truncate_seq).await?;
        self.mount.flow.queue_report(file);
        Ok(told)
    }

    /// Called at every `close`, and when a program with the file open starts another one. Returns when the primaries
    /// have accepted everything and the service shows the size. For a shared file this was already done before each
    /// write returned.
    pub async fn flush(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.mount.handle(handle)?;
        let file = &handle.file;
        if !handle.write {
            return Ok(());
        }
        if file.lock().mode != Mode::Alone {
            return handle.error_cursor.at_close(&mut file.lock().wb_errors);
        }
        let mark = self.mount.seal_all(file);
        self.make_answered(file, mark.upto).await;
        // Report the size even if some writes were lost.
        let told = self.report_size(file, None).await;
        handle.error_cursor.at_close(&mut file.lock().wb_errors).and(told)
    }

    /// Returns when everything written to the file so far is stable, with its size.
    pub async fn fsync(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.mount.handle(handle)?;
        let file = &handle.file;
        let lost = file.lock().wb_errors.count();
        let _fsync = FsyncGuard::begin(&self.mount, file);
        let mark = self.mount.seal_all(file);
        self.make_stable(file, mark.upto).await?;
        let told = self.report_size(file, Some(mark)).await;
        handle.error_cursor.at_fsync(&mut file.lock().wb_errors, lost).and(told)
    }

    /// Waits until the primaries have accepted every piece of a file up to number `upto` (or it is lost). Sends
    /// pieces that no other task is sending.
    pub(crate) async fn make_answered(&self, file: &Arc<OpenFile>, upto: u64) {
        let _unfinished = Unfinished { mount: &self.mount, file };
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
                changed.await;
                continue;
            }
            join_all(stripes.into_iter().map(|stripe| self.send_stripe(file, stripe))).await;
        }
    }

    /// Stripes that can be sent now and that no task is sending; at most as many as may be in flight.
    fn unclaimed(&self, state: &FileState) -> Vec<u64> {
        let free = |(stripe, writes): &(&u64, &StripeWrites)| {
            let epoch = self.mount.route(state.key(**stripe)).epoch;
            !writes.claimed && state.is_sendable(**stripe, epoch)
        };
        state.stripes.iter().filter(free).map(|(stripe, _)| *stripe).take(FLIGHT_MAX).collect()
    }

    /// Sends queued stripes until the mount ends.
    pub(crate) async fn flush_queue(&self) {
        let worker = || async {
            while let Some((file, stripe)) = self.mount.flow.next().await {
                self.send_stripe(&file, stripe).await;
            }
        };
        join_all((0..FLIGHT_MAX).map(|_| worker())).await;
    }

    /// Serves timers and limits until the mount ends: queues old partial stripes, and makes accepted bytes stable.
    pub(crate) async fn run_timers(&self) {
        while !self.mount.lease.has_left() {
            let woken = self.mount.flow.timers.wait();
            self.mount.flow.looks_at(u64::MAX);
            let now = self.world.now();
            let next = self.mount.wake_stripes(now).min(self.sync_what_is_due(now));
            let pause = next.saturating_sub(now).clamp(1, LOOK_US);
            self.mount.flow.looks_at(now + pause);
            self.world.timeout(pause, woken).await;
        }
    }
}

/// Passes the remaining stripes to the background when its caller ends or is cancelled.
struct Unfinished<'a> {
    mount: &'a Mount,
    file: &'a Arc<OpenFile>,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.mount.enqueue_all(self.file);
    }
}

impl Mount {
    /// Queues a stripe if it has something to send and no task is sending it.
    pub(crate) fn enqueue_due(&self, file: &Arc<OpenFile>, state: &mut FileState, stripe: u64) {
        let epoch = self.route(state.key(stripe)).epoch;
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
    fn wake_stripes(&self, now: u64) -> u64 {
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
    fn shed(&self, now: u64) {
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
        let map = self.map();
        let mut moved = Vec::new();
        {
            let mut flow = self.flow.lock();
            let mut freed = 0;
            flow.syncs.values_mut().for_each(|syncing| syncing.backoff_until = 0);
            for (index, entries) in &mut flow.ledger {
                let group = types::GroupId { volume: self.volume, index: *index };
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
        self.drop_piece(state, stripe, order);
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
            self.drop_piece(state, stripe, first);
        }
    }

    /// Updates the accounts for a removed piece.
    pub(crate) fn finish_piece(&self, state: &mut FileState, piece: &Piece) {
        state.unanswered.remove(&piece.order);
        state.unstable.remove(&piece.order);
        if let Some(seq) = piece.seq {
            self.flow.lock().seqs.finish(seq.0);
        }
        self.flow.change(Change { used: -(piece.charge() as i64), gathering: 0, pieces: -1 });
    }
}
