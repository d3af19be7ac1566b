//! Write-behind: a write returns when its bytes are in a buffer of this mount. They are sent later. It is the end of the
//! stack, because reads must find the bytes that are not sent yet.
//!
//! Whole stripes are sent at once. Partial ones are sent when their file is closed or synced, one second after they
//! began, or when they take half of the budget; the last two wait while many pieces are in flight (flow.rs). The
//! settings may say less than a stripe and another time, or that each write waits until the bricks have its bytes. Each
//! worker takes the next stripe when its last one is accepted. Errors are kept with the file; its next write, fsync
//! and close report them (wb_errors.rs).

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use types::{Buf, ObjectId};
use world::trace::{Stage, span};

use crate::error::ClientError;
use crate::paths::Io;
use crate::paths::write::FLIGHT_MAX;
use crate::routes::link::Link;
use crate::state::gather::StripeWrites;
use crate::state::open_file::{FileState, OpenFile};
use crate::state::settings::Gathering;
use crate::state::slow_requests::Asked;
use crate::translators::{Answer, Flush, Flushed, Read, Until, Write};
use crate::unstable::Unstable;

/// Longest time between two checks of the timers, in microseconds. The start of a timer does not wake the loop.
const LOOK_US: u64 = 200_000;

/// Gathers and sends the writes of one thread.
pub(crate) struct WriteBehind {
    pub(crate) link: Rc<Link>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) io: Rc<Io>,
}

impl WriteBehind {
    pub(crate) const NAME: &str = "write-behind";

    /// Reads what is here of a range, and the rest from the bricks.
    pub(crate) fn read<'a>(&'a self, read: Read<'a>) -> Answer<'a, Buf> {
        Box::pin(self.io.read_once(read.file, read.offset, read.len, read.settings.hedge))
    }

    /// Copies bytes into buffers. If write-behind is off, waits until the primaries have accepted them.
    pub(crate) fn write<'a>(&'a self, write: Write<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            let gathering = write.settings.write_behind;
            let lost = write.file.lock().wb_errors.count();
            let (mut at, mut rest) = (write.offset, write.bytes);
            while !rest.is_empty() {
                let taken = self.lay(write.file, at, rest, gathering.unwrap_or(Gathering::NONE)).await?;
                at += taken as u64;
                rest = &rest[taken..];
            }
            if gathering.is_none() {
                let upto = write.file.lock().order;
                self.io.make_answered(write.file, upto).await;
                write.file.lock().wb_errors.since(lost)?;
            }
            Ok(())
        })
    }

    /// Returns when everything written so far has come far enough.
    pub(crate) fn flush<'a>(&'a self, flush: Flush<'a>) -> Answer<'a, Flushed> {
        Box::pin(async move {
            let mark = self.unstable.seal_all(flush.file);
            match flush.until {
                Until::Accepted => self.io.make_answered(flush.file, mark.upto).await,
                Until::Stable => self.io.make_stable(flush.file, mark.upto).await?,
            }
            Ok(Flushed(mark))
        })
    }

    /// Copies the first of some bytes into their stripe's buffer, once the budget has room. Returns how many.
    async fn lay(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        bytes: &[u8],
        gathering: Gathering,
    ) -> Result<usize, ClientError> {
        let mut room = None;
        let taken = loop {
            let grown = {
                let mut state = file.lock();
                // A truncation of this mount may have given the file an object in another tier meanwhile.
                let geometry = self.link.routes.geometry_of(state.object);
                let ((stripe, at), length) = (geometry.locate(offset), geometry.stripe());
                let bytes = &bytes[..bytes.len().min(length - at)];
                state.check_end(offset..offset + bytes.len() as u64)?;
                let grown = state.stripes.get(&stripe).map(|s| s.growth(at, bytes.len(), length));
                let grown = grown.unwrap_or_else(|| StripeWrites::default().growth(at, bytes.len(), length));
                if self.unstable.flow.gather(room.as_ref(), grown) {
                    self.lay_in(file, &mut state, (stripe, at, length), bytes, gathering);
                    break bytes.len();
                }
                grown
            };
            drop(room.take());
            let reserve = self.unstable.flow.reserve(grown);
            room = Some(span(&self.link.world, Stage::Queue, reserve).await?);
        };
        if self.unstable.flow.is_overfull() {
            self.unstable.shed(self.link.world.now());
        }
        Ok(taken)
    }

    /// Copies bytes into the buffer of a stripe of `length` bytes, from its byte `at` on. The caller has reserved room.
    fn lay_in(
        &self,
        file: &Arc<OpenFile>,
        state: &mut FileState,
        (stripe, at, length): (u64, usize, usize),
        bytes: &[u8],
        gathering: Gathering,
    ) {
        let now = self.link.world.now();
        let writes = state.stripes.entry(stripe).or_default();
        let began = !writes.is_gathering();
        writes.lay(at, bytes, length);
        let whole = writes.is_whole(length) || writes.has_gathered(gathering.size);
        if began {
            writes.since = now;
        }
        state.size = state.size.max(stripe * length as u64 + (at + bytes.len()) as u64);
        self.touch(state);
        if whole {
            self.unstable.flow.change(state.seal(stripe));
            self.unstable.enqueue_due(file, state, stripe);
        } else if began {
            self.unstable.flow.age(now, now.saturating_add(gathering.age_us), file, stripe);
        }
    }

    /// Writes zeros over parts of an object's stripes, up to the end of the file. Returns the number of the file's last
    /// piece; [`None`] if the file has another object.
    pub(crate) fn lay_zeros(
        &self,
        file: &OpenFile,
        object: ObjectId,
        row: Vec<(u64, usize, usize)>,
    ) -> Option<u64> {
        let stripe_bytes = self.link.routes.geometry_of(object).stripe() as u64;
        let mut state = file.lock();
        if state.object != object {
            return None;
        }
        for (stripe, within, take) in row {
            let left = state.size.saturating_sub(stripe * stripe_bytes + within as u64);
            let take = left.min(take as u64) as usize;
            if take > 0 {
                self.touch(&mut state);
                self.unstable.flow.change(state.lay_zeros(stripe, within, take));
            }
        }
        Some(state.order)
    }

    /// Counts a change of the contents, and sets the time of the last one to now.
    fn touch(&self, state: &mut FileState) {
        state.changed += 1;
        if !self.link.routes.options.keeps_times {
            state.mtime = self.link.world.wall();
            state.mtime_reported = false;
            state.mtime_durable = false;
        }
    }

    /// Sends queued stripes until the mount ends.
    pub(crate) async fn flush_queue(&self) {
        let worker = || async {
            while let Some((file, stripe)) = self.unstable.flow.next().await {
                let object = file.lock().object;
                let len = self.link.routes.geometry_of(object).stripe() as u64;
                let asked = Asked { op: "send", inode: file.inode, offset: stripe * len, len };
                self.link.traced(asked, || self.io.send_stripe(&file, stripe), |()| false).await;
            }
        };
        join_all((0..FLIGHT_MAX).map(|_| worker())).await;
    }

    /// Serves timers and limits until the mount ends: queues old partial stripes, and makes accepted bytes stable.
    pub(crate) async fn run_timers(&self) {
        while !self.link.routes.lease.has_left() {
            let woken = self.unstable.flow.timers.wait();
            self.unstable.flow.looks_at(u64::MAX);
            let now = self.link.world.now();
            self.unstable.flow.report_noted(now);
            let next = self.unstable.wake_stripes(now).min(self.io.sync_what_is_due(now));
            let pause = next.saturating_sub(now).clamp(1, LOOK_US);
            self.unstable.flow.looks_at(now + pause);
            self.link.world.timeout(pause, woken).await;
        }
    }
}
