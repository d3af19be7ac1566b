//! Read-ahead: fetches what a reader with a pattern will ask for (state/ahead.rs says what that is).
//!
//! The bytes are fetched by the background of the mount, so a reader that does one thing at a time has several reads in
//! flight. Bytes fetched ahead go to the first reader who asks for them, and leave: to keep them is the work of caches.
//! As in io-cache, they are used only while the file has the contents that it had when they were fetched.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use futures_util::future::{LocalBoxFuture, join_all};
use types::{Buf, BufMut};
use world::trace::{Stage, span};

use crate::error::ClientError;
use crate::routes::link::Link;
use crate::state::ahead::{AheadRoom, Cover};
use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::state::settings::Settings;
use crate::state::slow_requests::Asked;
use crate::translators::{Answer, Below, Read, Translator, Write};

/// Most fetches in flight, and most that wait for their turn.
const FLIGHT_MAX: usize = 16;
const QUEUE_MAX: usize = 256;
/// How long a reader waits for bytes that are being fetched before it asks itself, in microseconds.
const WAIT_US: u64 = 3_000_000;
/// How long bytes of a file that nobody reads may be kept when room is short, in microseconds.
const IDLE_US: u64 = 1_000_000;

/// A piece to fetch.
struct Job {
    file: Arc<OpenFile>,
    range: Range<u64>,
    generation: u64,
    /// Number of finished writes before.
    count: u64,
    settings: Settings,
}

/// What all threads of a mount share.
pub(crate) struct AheadQueue {
    pub(crate) room: Arc<AheadRoom>,
    jobs: async_channel::Sender<Job>,
    queue: async_channel::Receiver<Job>,
    /// Files for which something was fetched, the one that began earliest first.
    files: Mutex<VecDeque<Weak<OpenFile>>>,
}

impl AheadQueue {
    /// For at most `bytes` bytes that nobody has asked for yet.
    pub(crate) fn new(bytes: u64) -> AheadQueue {
        let (jobs, queue) = async_channel::bounded(QUEUE_MAX);
        AheadQueue { room: AheadRoom::new(bytes), jobs, queue, files: Mutex::default() }
    }

    /// Ends all fetches.
    pub(crate) fn close(&self) {
        self.jobs.close();
    }

    /// Lists a file for which something is fetched. Looks at two others meanwhile, so that files which are gone do not
    /// add up.
    fn list(&self, file: &Arc<OpenFile>) {
        let mut files = lock(&self.files);
        for _ in 0..2 {
            if let Some(other) = files.pop_front().filter(|other| other.strong_count() > 0) {
                files.push_back(other);
            }
        }
        files.push_back(Arc::downgrade(file));
    }

    /// Frees what was fetched for a file that nobody has read for a while. The files take turns.
    fn make_room(&self, now: u64) {
        // Unlocked again at once: a reader that lists its file has locked what was fetched for it.
        let first = lock(&self.files).pop_front();
        let Some(file) = first.and_then(|file| file.upgrade()) else { return };
        let mut ahead = file.ahead();
        if now.saturating_sub(ahead.read_at) > IDLE_US {
            ahead.clear();
            ahead.is_listed = false;
        } else {
            lock(&self.files).push_back(Arc::downgrade(&file));
        }
    }
}

/// Read-ahead of one thread.
pub(crate) struct ReadAhead {
    pub(crate) link: Rc<Link>,
    pub(crate) shared: Arc<AheadQueue>,
}

impl ReadAhead {
    async fn read_ahead(&self, read: Read<'_>, window: u64, below: Below<'_>) -> Result<Buf, ClientError> {
        let file = read.file;
        let (generation, count, range) = {
            let state = file.lock();
            (state.cacheable(), state.writes.count(), read.offset..read.range().end.min(state.size))
        };
        let Some(generation) = generation.filter(|_| !range.is_empty()) else {
            return below.read(read).await;
        };
        self.ask_ahead(read, &range, window.min(self.shared.room.most() / 2), generation, count);
        let found = self.find(file, &range, generation).await;
        let answer = match found {
            Some(parts) => Ok(join(parts, (range.end - range.start) as usize)),
            None => below.read(read).await,
        };
        file.ahead().read_at = self.link.world.now();
        answer
    }

    /// Queues what the reader will ask for next.
    fn ask_ahead(&self, read: Read<'_>, range: &Range<u64>, window: u64, generation: u64, count: u64) {
        let (file, now) = (read.file, self.link.world.now());
        let size = file.lock().size;
        let mut ahead = file.ahead();
        for wanted in ahead.note(range, size, window, now) {
            if !ahead.begin(&wanted, generation, &self.shared.room, now) {
                continue;
            }
            if !std::mem::replace(&mut ahead.is_listed, true) {
                self.shared.list(file);
            }
            let (file, settings) = (file.clone(), read.settings);
            let job = Job { file, range: wanted.clone(), generation, count, settings };
            if self.shared.jobs.try_send(job).is_err() {
                ahead.end(&wanted, generation, None, now);
            }
        }
        drop(ahead);
        if self.shared.room.is_short() {
            self.shared.make_room(now);
        }
    }

    /// What was fetched of a range, all of it; waits for what is being fetched.
    async fn find(&self, file: &Arc<OpenFile>, range: &Range<u64>, generation: u64) -> Option<Vec<Buf>> {
        loop {
            let fetched = match file.ahead().take(range, generation) {
                Cover::Here(parts) => return Some(parts),
                Cover::Missing => return None,
                // While `ahead` is locked, so that no end is missed.
                Cover::Coming(ended) => ended.wait(),
            };
            let fetched = self.link.world.timeout(WAIT_US, fetched);
            span(&self.link.world, Stage::Underway, fetched).await?;
        }
    }

    async fn fetch(&self, job: Job, below: Below<'_>) {
        let Job { file, range, generation, count, settings } = job;
        // A write may have removed it while it waited.
        if !file.ahead().is_wanted(&range, generation) {
            return;
        }
        let len = (range.end - range.start) as usize;
        let read = Read { file: &file, offset: range.start, len, in_kernel: false, settings };
        let asked = Asked { op: "fetch", inode: file.inode, offset: range.start, len: len as u64 };
        let bytes = self.link.traced(asked, || below.read(read), Result::is_err).await.ok();
        let now = self.link.world.now();
        let mut ahead = file.ahead();
        let is_good = file.lock().may_keep(generation, count, &range);
        ahead.end(&range, generation, bytes.filter(|_| is_good), now);
    }
}

impl Translator for ReadAhead {
    fn name(&self) -> &'static str {
        "read-ahead"
    }

    fn read<'a>(&'a self, read: Read<'a>, below: Below<'a>) -> Answer<'a, Buf> {
        match read.settings.read_ahead {
            Some(window) => Box::pin(self.read_ahead(read, window, below)),
            None => below.read(read),
        }
    }

    fn write<'a>(&'a self, write: Write<'a>, below: Below<'a>) -> Answer<'a, ()> {
        write.file.ahead().remove(&write.range());
        below.write(write)
    }

    fn background<'a>(&'a self, below: Below<'a>) -> LocalBoxFuture<'a, ()> {
        let worker = move || async move {
            while let Ok(job) = self.shared.queue.recv().await {
                self.fetch(job, below).await;
            }
        };
        Box::pin(async move {
            join_all((0..FLIGHT_MAX).map(|_| worker())).await;
        })
    }
}

fn join(mut parts: Vec<Buf>, len: usize) -> Buf {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let (mut out, mut at) = (BufMut::dirty(len), 0);
    for part in parts {
        out[at..at + part.len()].copy_from_slice(&part);
        at += part.len();
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use types::InodeId;

    use super::*;

    #[test]
    fn files_that_are_gone_do_not_add_up() {
        let queue = AheadQueue::new(1 << 20);
        let kept: Vec<_> = (0..10).map(|n| Arc::new(OpenFile::new(InodeId(n), n))).collect();
        kept.iter().for_each(|file| queue.list(file));
        for n in 0..1000 {
            queue.list(&Arc::new(OpenFile::new(InodeId(n), n)));
        }
        let listed = lock(&queue.files).len();
        assert!(listed <= 2 * kept.len(), "{listed} are listed");
        let alive = lock(&queue.files).iter().filter(|file| file.strong_count() > 0).count();
        assert_eq!(alive, kept.len());
    }
}
