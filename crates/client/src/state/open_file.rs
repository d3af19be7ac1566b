//! An open file as the whole mount sees it: its attributes, its mode, its unstable bytes, what the service is owed.
//!
//! There is one [`OpenFile`] per inode, however often it is open. It stays in the mount's table until nobody has it
//! open, all its bytes are stable, and the metadata service knows its size and that it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::messages::cluster::{Mode, OpenInode};
use types::messages::names::Attr;
use types::{Epoch, InodeId, ObjectId, StripeKey};
use world::Notify;

use crate::state::gather::{Change, StripeWrites};
use crate::state::wb_errors::WritebackErrors;
use crate::state::zeroing_state::Zeroing;

/// A file that is open, or still owes something to the service.
pub(crate) struct OpenFile {
    pub(crate) inode: InodeId,
    state: Mutex<FileState>,
    /// Given whenever a piece is accepted, stable or lost, and when claims and growth end.
    pub(crate) changed: Notify,
    /// Held by whoever truncates, or zeroes what lies beyond the end.
    pub(crate) turn: async_lock::Mutex<()>,
}

/// How far a file had come when somebody began to wait for its stability.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mark {
    /// Its last piece.
    pub(crate) upto: u64,
    /// Its size.
    pub(super) end: u64,
    /// How often it had been cut.
    pub(super) truncate_seq: u64,
}

/// What the lock of an [`OpenFile`] protects.
pub(crate) struct FileState {
    pub(crate) object: ObjectId,
    /// Bytes of the file as this mount sees it.
    pub(crate) size: u64,
    /// The size that the service shows to others.
    pub(crate) reported_size: u64,
    /// The size that the service keeps for good.
    pub(crate) durable_size: u64,
    /// End of what was written alone and could not be told before others were let in: it is told once it is stable.
    pub(super) owed_end: u64,
    /// End of what the bricks may hold beyond `size` and must be zeroed before the file grows.
    pub(crate) stale_end: u64,
    /// End of everything that was ever sent.
    pub(crate) sent_end: u64,
    /// How often the service has cut it: a size from before says nothing.
    pub(crate) truncate_seq: u64,
    /// Last change of the contents.
    pub(crate) mtime: i64,
    /// Last access, and last change of anything, as far as is known: what they are for, see `atime.rs`.
    pub(crate) atime: i64,
    pub(crate) ctime: i64,
    /// The service has heard of `mtime`.
    pub(crate) mtime_reported: bool,
    /// The service keeps `mtime` for good.
    pub(crate) mtime_durable: bool,
    /// `mtime` was set by the mount's user and counts whatever the service knows.
    pub(crate) mtime_set: bool,
    pub(crate) mode: Mode,
    /// Number of the newest recall that has not been followed yet.
    pub(crate) recalled: Option<u64>,
    /// An open was answered with less than [`Mode::Alone`]; what was written under that is on its way.
    pub(crate) yielding: bool,
    /// How often the service counts it as open for reading only.
    pub(crate) readers: u32,
    /// How often the service counts it as open for writing.
    pub(crate) writers: u32,
    /// Handles, and opens in progress.
    pub(crate) users: u32,
    /// Closed handles that the service has not been told of: were they open for writing?
    pub(crate) releases: Vec<bool>,
    pub(crate) stripes: BTreeMap<u64, StripeWrites>,
    /// The last number given to a piece.
    pub(crate) order: u64,
    /// Pieces that no primary has accepted yet.
    pub(crate) unanswered: BTreeSet<u64>,
    /// Pieces that are not stable yet.
    pub(crate) unstable: BTreeSet<u64>,
    /// Somebody waits for the stability of every piece up to here, and few are unsent.
    pub(crate) wanted_stable: u64,
    /// Stripes that somebody is sending.
    pub(crate) claims: u32,
    /// Reports of growth on their way.
    pub(crate) growing: u32,
    /// Callers of `fsync`: they tell the service of the size themselves.
    pub(crate) fsyncs: u32,
    /// Nothing may be sent or reported.
    pub(crate) writeback_paused: bool,
    /// Reads and writes between their look at the attributes and their end.
    pub(crate) inflight_io: u32,
    /// Cuts for which no read or write may begin.
    pub(crate) quiesced: u32,
    /// How often they have been stopped.
    pub(crate) quiesce_seq: u64,
    /// The cut of somebody else for which they are stopped, or about to be.
    pub(crate) quiesce_asked: Option<u64>,
    pub(crate) zeroing: Zeroing,
    pub(crate) wb_errors: WritebackErrors,
    /// The service has let others in: nothing can be done with this any more.
    pub(crate) fenced: bool,
    /// Handles that may write.
    pub(crate) write_handles: u32,
}

impl OpenFile {
    pub(crate) fn new(inode: InodeId) -> OpenFile {
        let state = FileState {
            object: ObjectId::default(),
            size: 0,
            reported_size: 0,
            durable_size: 0,
            owed_end: 0,
            stale_end: 0,
            sent_end: 0,
            truncate_seq: 0,
            mtime: 0,
            atime: 0,
            ctime: 0,
            mtime_reported: true,
            mtime_durable: true,
            mtime_set: false,
            mode: Mode::Shared,
            recalled: None,
            yielding: false,
            readers: 0,
            writers: 0,
            users: 0,
            releases: Vec::new(),
            stripes: BTreeMap::new(),
            order: 0,
            unanswered: BTreeSet::new(),
            unstable: BTreeSet::new(),
            wanted_stable: 0,
            claims: 0,
            growing: 0,
            fsyncs: 0,
            writeback_paused: false,
            inflight_io: 0,
            quiesced: 0,
            quiesce_seq: 0,
            quiesce_asked: None,
            zeroing: Zeroing::default(),
            wb_errors: WritebackErrors::default(),
            fenced: false,
            write_handles: 0,
        };
        OpenFile { inode, state: Mutex::new(state), changed: Notify::new(), turn: async_lock::Mutex::new(()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileState {
    /// Every byte is stable.
    pub(crate) fn is_stable(&self) -> bool {
        self.unstable.is_empty() && self.stripes.values().all(|s| !s.is_gathering())
    }

    /// Writes may stay here for a while.
    pub(crate) fn may_buffer(&self) -> bool {
        self.mode == Mode::Alone && self.recalled.is_none() && !self.yielding
    }

    /// The attributes as this mount sees them.
    pub(crate) fn view(&self, mut attr: Attr) -> Attr {
        if attr.object != self.object {
            return attr;
        }
        if self.mode == Mode::Alone {
            attr.size = self.size;
        } else if self.size > self.durable_size {
            attr.size = attr.size.max(self.size);
        }
        if !self.mtime_durable {
            attr.mtime = self.mtime;
        }
        attr
    }

    /// The stripe has something that may be sent now to the primary of `epoch`.
    pub(crate) fn is_sendable(&self, stripe: u64, epoch: Epoch) -> bool {
        !self.writeback_paused && self.stripes.get(&stripe).is_some_and(|s| !s.backing_off && s.is_due(epoch))
    }

    /// The place of a stripe.
    pub(crate) fn key(&self, stripe: u64) -> StripeKey {
        StripeKey { object: self.object, stripe }
    }

    /// Makes pieces of what a stripe has gathered.
    pub(crate) fn seal(&mut self, stripe: u64) -> Change {
        let Some(writes) = self.stripes.get_mut(&stripe) else { return Change::default() };
        let before = self.order;
        let change = writes.seal(&mut self.order);
        self.number(before);
        change
    }

    /// Puts zeros behind everything that a stripe has.
    pub(crate) fn lay_zeros(&mut self, stripe: u64, offset: usize, len: usize) -> Change {
        let before = self.order;
        let writes = self.stripes.entry(stripe).or_default();
        let mut change = writes.seal(&mut self.order);
        change += writes.lay_zeros(offset, len, &mut self.order);
        self.number(before);
        change
    }

    /// The pieces made since `before` are neither accepted nor stable.
    fn number(&mut self, before: u64) {
        self.unanswered.extend(before + 1..=self.order);
        self.unstable.extend(before + 1..=self.order);
    }

    /// Everything written so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { upto: self.order, end: self.size, truncate_seq: self.truncate_seq }
    }

    /// What the service must hear of when this client comes back to it.
    pub(crate) fn open_inode(&mut self, inode: InodeId) -> OpenInode {
        self.zeroing.reclaimed = true;
        let zeroing = self.zeroing.number;
        OpenInode { inode, readers: self.readers, writers: self.writers, zeroing }
    }

    /// The service counts one more open.
    pub(crate) fn count_open(&mut self, write: bool) {
        if write { self.writers += 1 } else { self.readers += 1 }
    }

    /// The service counts one open less.
    pub(crate) fn count_release(&mut self, write: bool) {
        let count = if write { &mut self.writers } else { &mut self.readers };
        *count = count.saturating_sub(1);
    }
}
