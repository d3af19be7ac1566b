//! An open file of a mount: its attributes, its mode, its unstable bytes, and what must still be reported.
//!
//! There is one [`OpenFile`] per inode, however often the file is open. It stays in the mount's table until it has no
//! users, all its bytes are stable, and the metadata service knows its size and that it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::messages::cluster::{Mode, OpenInode};
use types::messages::names::Attr;
use types::{Epoch, InodeId, ObjectId, StripeKey, Tuning};
use world::Notify;

use crate::state::ahead::Ahead;
use crate::state::content_version::ContentVersion;
use crate::state::gather::{Change, StripeWrites};
use crate::state::layer_counts::FileCounts;
use crate::state::lock;
use crate::state::loss::Loss;
use crate::state::noted::Noting;
use crate::state::pattern::Pattern;
use crate::state::wb_errors::WritebackErrors;
use crate::state::write_log::WriteLog;
use crate::state::zeroing_state::Zeroing;

/// A file that is open or has reports left to send.
pub(crate) struct OpenFile {
    pub(crate) inode: InodeId,
    state: Mutex<FileState>,
    /// Notified when a piece is accepted, stable or lost, and when claims and reports of growth end.
    pub(crate) changed: Notify,
    /// Held while a task truncates the file, or zeroes bytes beyond its end.
    pub(crate) turn: async_lock::Mutex<()>,
    /// What its reads look like.
    pattern: Mutex<Pattern>,
    /// Whether the kernel caches what was last read, and reads ahead.
    pub(crate) in_kernel: AtomicBool,
    /// What was fetched ahead of its readers. Locked before the state, never after.
    ahead: Mutex<Ahead>,
    /// Its requests, by layer.
    pub(crate) layer_counts: FileCounts,
}

/// The state of a file when a task began to wait for its stability.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mark {
    /// Its last piece.
    pub(crate) upto: u64,
    /// Its size.
    pub(super) end: u64,
    /// Its `truncate_seq`.
    pub(super) truncate_seq: u64,
}

/// What the lock of an [`OpenFile`] protects.
pub(crate) struct FileState {
    pub(crate) object: ObjectId,
    /// Size of the file as this mount sees it, in bytes.
    pub(crate) size: u64,
    /// The size that the service shows to other clients.
    pub(crate) reported_size: u64,
    /// The size that the service has stored durably.
    pub(crate) durable_size: u64,
    /// End of bytes that were written in mode Alone and could not be reported before other clients were let in. It is
    /// reported once they are stable.
    pub(super) owed_end: u64,
    /// End of old bytes beyond `size` that the bricks may hold. They must be zeroed before the file grows.
    pub(crate) stale_end: u64,
    /// End of all bytes that were ever sent.
    pub(crate) sent_end: u64,
    /// End of all bytes of this mount that are stable.
    pub(crate) stable_end: u64,
    /// The end of the file was lost, and the service does not know it yet: see `loss.rs`.
    pub(crate) loss: Option<Loss>,
    /// How often the service has truncated it. A size from before the last truncation is not valid.
    pub(crate) truncate_seq: u64,
    /// Number of changes of the contents that are not writes of this mount: truncations, zeros, lost writes, and
    /// whatever other clients may have done. What was cached before the last one is not valid.
    generation: u64,
    /// The name of its pages in the cache: another one each time the file is opened after it was closed. A writer that
    /// has died since may have changed bytes of which the service does not know.
    pub(crate) cache_id: u64,
    /// The writes of this mount, for caches.
    pub(crate) writes: WriteLog,
    /// Number of changes of the contents by this mount, and up to which of them the service has counted a change, durably.
    pub(crate) changed: u64,
    pub(super) told_changed: u64,
    /// The contents, as the service has told them, while nobody may change them. See `content_version.rs`.
    pub(super) version: Option<ContentVersion>,
    /// Bytes of the pages that the cache has of this file; 0 if there are none.
    pub(crate) page: u64,
    /// Last change of the contents.
    pub(crate) mtime: i64,
    /// Last known access, and last known change of anything; used in `atime.rs`.
    pub(crate) atime: i64,
    pub(crate) ctime: i64,
    /// `mtime` was reported to the service.
    pub(crate) mtime_reported: bool,
    /// The service has stored `mtime` durably.
    pub(crate) mtime_durable: bool,
    /// The mount's user has set `mtime`, so it replaces even a later time at the service.
    pub(crate) mtime_set: bool,
    pub(super) mode: Mode,
    /// Number of the newest recall that is not yet confirmed.
    pub(crate) recalled: Option<u64>,
    /// The answer to an open took [`Mode::Alone`] away, and bytes written in that mode are being made stable.
    pub(crate) yielding: bool,
    /// How often the service counts it as open for reading only.
    pub(crate) readers: u32,
    /// How often the service counts it as open for writing.
    pub(crate) writers: u32,
    /// Number of handles, and of opens in progress.
    pub(crate) users: u32,
    /// Closed handles whose close was not yet reported; true if open for writing.
    pub(crate) releases: Vec<bool>,
    /// Number of closes that are being reported.
    pub(crate) releasing: u32,
    pub(crate) stripes: BTreeMap<u64, StripeWrites>,
    /// The number of the newest piece.
    pub(crate) order: u64,
    /// Numbers of pieces that no primary has accepted yet.
    pub(crate) unanswered: BTreeSet<u64>,
    /// Numbers of pieces that are not stable yet.
    pub(crate) unstable: BTreeSet<u64>,
    /// A task waits for the stability of every piece up to here, and only a few of them were unsent.
    pub(crate) wanted_stable: u64,
    /// Number of stripes that are being sent.
    pub(crate) claims: u32,
    /// Number of reports of growth in flight.
    pub(crate) growing: u32,
    /// Number of callers of `fsync`. They report the size themselves.
    pub(crate) fsyncs: u32,
    /// What this mount may note with the bricks, and has noted.
    pub(crate) noting: Noting,
    /// Nothing may be sent or reported.
    pub(crate) writeback_paused: bool,
    /// Number of reads and writes in progress, from their check of the attributes on.
    pub(crate) inflight_io: u32,
    /// Number of truncations for which reads and writes are quiesced: none may begin.
    pub(crate) quiesced: u32,
    /// How often they have been quiesced.
    pub(crate) quiesce_seq: u64,
    /// Number of the truncation by another client for which they are quiesced, or about to be.
    pub(crate) quiesce_asked: Option<u64>,
    pub(crate) zeroing: Zeroing,
    pub(crate) wb_errors: WritebackErrors,
    /// The service has let other clients in after this one lost its lease: all handles fail.
    pub(crate) fenced: bool,
    /// Number of handles that may write.
    pub(crate) write_handles: u32,
    /// Settings of the translators for this file alone.
    pub(crate) tuning: Tuning,
}

impl OpenFile {
    pub(crate) fn new(inode: InodeId, cache_id: u64) -> OpenFile {
        let state = FileState {
            object: ObjectId::default(),
            size: 0,
            reported_size: 0,
            durable_size: 0,
            owed_end: 0,
            stale_end: 0,
            sent_end: 0,
            stable_end: 0,
            loss: None,
            truncate_seq: 0,
            generation: 0,
            cache_id,
            writes: WriteLog::default(),
            changed: 0,
            told_changed: 0,
            version: None,
            page: 0,
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
            releasing: 0,
            stripes: BTreeMap::new(),
            order: 0,
            unanswered: BTreeSet::new(),
            unstable: BTreeSet::new(),
            wanted_stable: 0,
            claims: 0,
            growing: 0,
            fsyncs: 0,
            noting: Noting::default(),
            writeback_paused: false,
            inflight_io: 0,
            quiesced: 0,
            quiesce_seq: 0,
            quiesce_asked: None,
            zeroing: Zeroing::default(),
            wb_errors: WritebackErrors::default(),
            fenced: false,
            write_handles: 0,
            tuning: Tuning::default(),
        };
        OpenFile {
            inode,
            state: Mutex::new(state),
            changed: Notify::new(),
            turn: async_lock::Mutex::new(()),
            pattern: Mutex::default(),
            in_kernel: AtomicBool::new(false),
            ahead: Mutex::default(),
            layer_counts: FileCounts::default(),
        }
    }

    pub(crate) fn pattern(&self) -> MutexGuard<'_, Pattern> {
        lock(&self.pattern)
    }

    pub(crate) fn ahead(&self) -> MutexGuard<'_, Ahead> {
        lock(&self.ahead)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileState {
    /// What other clients let this one do.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        if mode != self.mode {
            self.invalidate();
            // The service keeps the right until the last close, but does not say so: it is asked for again.
            self.noting.granted = false;
        }
        self.mode = mode;
    }

    /// Makes everything that was cached invalid.
    pub(crate) fn invalidate(&mut self) {
        self.generation += 1;
        self.page = 0;
        self.version = None;
    }

    /// The present contents, if bytes of them may be cached: while no other client may write.
    pub(crate) fn cacheable(&self) -> Option<u64> {
        (self.mode != Mode::Shared && !self.fenced).then_some(self.generation)
    }

    /// Counts the changes of what may be cached, and so those of the mode.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether bytes of the contents `generation` may be kept that were fetched when [`WriteLog::count`] was `count`.
    pub(crate) fn may_keep(&self, generation: u64, count: u64, range: &Range<u64>) -> bool {
        self.cacheable() == Some(generation) && self.writes.is_untouched(count, range)
    }

    /// Whether every byte is stable.
    pub(crate) fn is_stable(&self) -> bool {
        self.unstable.is_empty() && self.stripes.values().all(|s| !s.is_gathering())
    }

    /// Whether writes may be buffered.
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

    /// Whether the stripe has something that may be sent now to the primary of `epoch`.
    pub(crate) fn is_sendable(&self, stripe: u64, epoch: Epoch) -> bool {
        !self.writeback_paused && self.stripes.get(&stripe).is_some_and(|s| !s.backing_off && s.is_due(epoch))
    }

    /// The key of a stripe of this file.
    pub(crate) fn key(&self, stripe: u64) -> StripeKey {
        StripeKey { object: self.object, stripe }
    }

    /// Seals what a stripe has gathered into pieces.
    pub(crate) fn seal(&mut self, stripe: u64) -> Change {
        let Some(writes) = self.stripes.get_mut(&stripe) else { return Change::default() };
        let before = self.order;
        let change = writes.seal(&mut self.order);
        self.number(before);
        change
    }

    /// Writes zeros after everything that a stripe has already.
    pub(crate) fn lay_zeros(&mut self, stripe: u64, offset: usize, len: usize) -> Change {
        self.invalidate();
        let before = self.order;
        let writes = self.stripes.entry(stripe).or_default();
        let mut change = writes.seal(&mut self.order);
        change += writes.lay_zeros(offset, len, &mut self.order);
        self.number(before);
        change
    }

    /// Marks the pieces made since `before` as neither accepted nor stable.
    fn number(&mut self, before: u64) {
        self.unanswered.extend(before + 1..=self.order);
        self.unstable.extend(before + 1..=self.order);
    }

    /// A mark for everything written so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { upto: self.order, end: self.size, truncate_seq: self.truncate_seq }
    }

    /// What a rejoining client reports about this file.
    pub(crate) fn open_inode(&mut self, inode: InodeId) -> OpenInode {
        self.zeroing.reclaimed = true;
        let zeroing = self.zeroing.number;
        // The service that is told this has forgotten what it was told before and has not stored.
        (self.reported_size, self.mtime_reported) = (self.durable_size, self.mtime_durable);
        let note = self.stable_note().map(|noted| noted.note.clone());
        OpenInode { inode, readers: self.readers, writers: self.writers, zeroing, note }
    }

    /// Counts an open that the service knows.
    pub(crate) fn count_open(&mut self, write: bool) {
        if write { self.writers += 1 } else { self.readers += 1 }
    }

    /// Counts a close that the service knows.
    pub(crate) fn count_release(&mut self, write: bool) {
        let count = if write { &mut self.writers } else { &mut self.readers };
        *count = count.saturating_sub(1);
    }
}
