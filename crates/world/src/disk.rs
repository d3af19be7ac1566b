//! Disks: block devices, files of fixed length, and disks that an NBD server lends. What they did is counted and timed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use types::limits::BLOCK;
use types::messages::brick::DeviceCounts;
use types::{Buf, BufMut};

use crate::direct::{Direct, DirectCounts, DirectOptions, QueueChange, QueueSettings, joined};
use crate::trace::{Span, SpanKind, Stage, Trace, span};
use crate::{LOCK_POLL_US, LOCK_WAIT_US, World, WorldBody, real, remote, sim};

impl World {
    /// Opens the disk at `path` and locks it for this process. An NBD URL opens a remote disk, which is not locked.
    ///
    /// # Errors `WouldBlock` if another process has it open.
    pub async fn open_disk(&self, path: &str) -> io::Result<Disk> {
        self.open_disk_as(path, DiskMode::Buffered).await
    }

    /// As [`World::open_disk`]. A remote disk is the same in both modes: nothing of it is in this machine's page cache.
    ///
    /// # Errors `WouldBlock` if another process has it open, `Unsupported` if it cannot be direct.
    pub async fn open_disk_as(&self, path: &str, mode: DiskMode) -> io::Result<Disk> {
        let body = match remote::is_url(path) {
            true => DiskBody::Remote(remote::Disk::open(self, path, 0).await?),
            false => match &self.0 {
                WorldBody::Real(world) => DiskBody::Real(world.open_disk(path, mode).await?),
                WorldBody::Sim(world) => DiskBody::Sim(world.open_disk(path).await?),
            },
        };
        Ok(Disk { mode, ..Disk::new(self.clone(), body) })
    }

    /// As [`World::open_disk_as`], but waits up to [`LOCK_WAIT_US`] for the lock: a process that was just killed may not
    /// have ended yet.
    ///
    /// # Errors `WouldBlock` if another process holds it for longer, `Unsupported` if it cannot be direct.
    pub async fn open_disk_when_free(&self, path: &str, mode: DiskMode) -> io::Result<Disk> {
        let until = self.now() + LOCK_WAIT_US;
        let mut waits = false;
        loop {
            match self.open_disk_as(path, mode).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.now() < until => {
                    if !waits {
                        tracing::warn!("{path} is in use by another process: waiting until it is free");
                        waits = true;
                    }
                    self.sleep(LOCK_POLL_US).await;
                }
                opened => return opened,
            }
        }
    }

    /// A disk that another thread of this process has opened, for this thread. Its writes do not block the thread.
    ///
    /// # Errors
    /// In a simulated world, if the node has died since it was opened.
    pub fn disk_of(&self, shared: &SharedDisk) -> io::Result<Disk> {
        let body = match (&self.0, &shared.0) {
            (WorldBody::Real(_), SharedDiskBody::Real(disk)) => DiskBody::Real(disk.disk()),
            (WorldBody::Sim(world), SharedDiskBody::Sim(disk)) => DiskBody::Sim(world.disk_of(disk)?),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Disk::new(self.clone(), body))
    }

    /// Makes a file of `len` zero bytes at `path`, durably, and opens it. A block device or a remote disk is opened
    /// as it is.
    ///
    /// # Errors `AlreadyExists` if the file exists.
    pub async fn create_disk(&self, path: &str, len: u64) -> io::Result<Disk> {
        let body = match remote::is_url(path) {
            true => DiskBody::Remote(remote::Disk::open(self, path, len).await?),
            false => match &self.0 {
                WorldBody::Real(world) => DiskBody::Real(world.create_disk(path, len).await?),
                WorldBody::Sim(world) => DiskBody::Sim(world.create_disk(path, len).await?),
            },
        };
        Ok(Disk::new(self.clone(), body))
    }
}

/// Whether a disk is read and written through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past it (`O_DIRECT`): a request takes as long as the device does, and offsets and lengths of writes are whole blocks of
    /// [`BLOCK`] bytes.
    Direct,
}

/// A block device or a file of fixed length, locked for this process, or a remote disk. Closed when the last clone is
/// dropped.
#[derive(Clone)]
pub struct Disk {
    body: DiskBody,
    mode: DiskMode,
    pub(crate) world: World,
    under_way: Rc<UnderWay>,
    /// What stands in front of a direct disk.
    direct: Option<Rc<Direct>>,
}

/// A disk that the threads of this process share, each through its own [`Disk`] ([`World::disk_of`]). It stays locked
/// while this or any of them lives.
#[derive(Clone)]
pub struct SharedDisk(SharedDiskBody);

#[derive(Clone)]
enum SharedDiskBody {
    Real(real::SharedDisk),
    Sim(sim::SharedDisk),
}

/// Longest time that a disk may take for a request, in microseconds. A disk that takes longer counts as lost. (Linux
/// gives a SCSI disk 30 s for a command before it resets the disk, see drivers/scsi/sd.h.)
pub const DISK_TIMEOUT_US: u64 = 60_000_000;

/// Requests that a disk has not completed.
#[derive(Default)]
struct UnderWay {
    next: Cell<u64>,
    /// Start time of each request, by its number: the first one is the oldest.
    begun: RefCell<BTreeMap<u64, u64>>,
    /// What was completed.
    done: RefCell<DeviceCounts>,
    /// The first error of a write or a sync.
    failure: RefCell<Option<(io::ErrorKind, String)>>,
}

impl UnderWay {
    fn note(&self, error: &io::Error) {
        self.failure.borrow_mut().get_or_insert_with(|| (error.kind(), error.to_string()));
    }
}

/// A request under way, until this is dropped.
struct Request<'a> {
    disk: &'a Disk,
    number: u64,
    from: u64,
    /// Records what the access did, for a caller that has asked for a trace.
    trace: Option<Trace>,
}

impl Request<'_> {
    /// It is complete. Returns how long it took, in microseconds.
    fn complete(self) -> u64 {
        let until = self.disk.world.turn_began();
        if let Some(trace) = &self.trace {
            trace.add(Span { kind: SpanKind::Wait(Stage::Device), from: self.from, until });
        }
        until.saturating_sub(self.from)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.disk.under_way.begun.borrow_mut().remove(&self.number);
    }
}

/// What becomes of the bytes behind a write in its last block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Stays,
    MayBecomeZero,
}

#[derive(Clone)]
enum DiskBody {
    Real(real::Disk),
    Sim(sim::Disk),
    Remote(remote::Disk),
}

/// Runs the same call on any kind of disk.
macro_rules! each_disk {
    ($body:expr, $disk:ident => $call:expr) => {
        match $body {
            DiskBody::Real($disk) => $call,
            DiskBody::Sim($disk) => $call,
            DiskBody::Remote($disk) => $call,
        }
    };
}

#[expect(clippy::len_without_is_empty, reason = "nobody needs to know whether a disk has no bytes")]
impl Disk {
    fn new(world: World, body: DiskBody) -> Disk {
        Disk { body, mode: DiskMode::Buffered, world, under_way: Rc::default(), direct: None }
    }

    /// How it was opened.
    pub fn mode(&self) -> DiskMode {
        self.mode
    }

    /// The same disk behind a cache of blocks and a queue; see [`crate::direct`]. For a direct disk, of which there is no other
    /// handle.
    pub fn behind_queue(self, options: DirectOptions) -> Disk {
        let direct = Some(Rc::new(Direct::new(&self.world, options)));
        Disk { direct, ..self }
    }

    /// Counts of the cache and the queue, if it has them.
    pub fn queue_counts(&self) -> Option<DirectCounts> {
        self.direct.as_ref().map(|direct| direct.counts())
    }

    /// How the queue is set, if it has one.
    pub fn queue_settings(&self) -> Option<QueueSettings> {
        Some(self.direct.as_ref()?.settings())
    }

    /// Changes the settings of the queue: all of them, or none if one is out of range. The queue orders the waiting requests by the new
    /// settings.
    ///
    /// # Errors
    /// What is out of range, or that there is no queue.
    pub fn tune_queue(&self, change: &QueueChange<'_>) -> Result<(), String> {
        let direct = self.direct.as_ref().ok_or("its disk is not direct: it has no queue")?;
        direct.tune(change)
    }

    fn request(&self) -> Request<'_> {
        let under_way = &*self.under_way;
        let number = under_way.next.replace(under_way.next.get() + 1);
        let from = self.world.now();
        under_way.begun.borrow_mut().insert(number, from);
        Request { disk: self, number, from, trace: Trace::current() }
    }

    /// What it has done since it was opened. Requests that failed count too.
    pub fn counts(&self) -> DeviceCounts {
        *self.under_way.done.borrow()
    }

    /// For the other threads of this process.
    ///
    /// # Errors
    /// `Unsupported` for a remote disk.
    pub fn shared(&self) -> io::Result<SharedDisk> {
        match &self.body {
            DiskBody::Real(disk) => Ok(SharedDisk(SharedDiskBody::Real(disk.shared()))),
            DiskBody::Sim(disk) => Ok(SharedDisk(SharedDiskBody::Sim(disk.shared()))),
            DiskBody::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Its path, or its URL.
    pub fn name(&self) -> &str {
        each_disk!(&self.body, disk => disk.name())
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        each_disk!(&self.body, disk => disk.len())
    }

    /// Exactly `len` bytes from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end.
    pub async fn read(&self, offset: u64, len: usize) -> io::Result<Buf> {
        match &self.direct {
            Some(direct) => direct.read(offset, len, self.read_device(offset, len)).await,
            None => self.read_device(offset, len).await,
        }
    }

    async fn read_device(&self, offset: u64, len: usize) -> io::Result<Buf> {
        let request = self.request();
        let read = each_disk!(&self.body, disk => disk.read(offset, len).await);
        let us = request.complete();
        let mut done = self.under_way.done.borrow_mut();
        done.reads += 1;
        done.read_bytes += len as u64;
        done.read_us += us;
        read
    }

    /// Writes `parts` one after the other from `offset`. Durable only after the next [`Disk::sync`]. Two writes to
    /// the same 4-KiB block must not be under way at the same time.
    ///
    /// # Errors
    /// Also `InvalidInput`, for a direct disk without a queue and anything but whole blocks.
    pub async fn write(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        self.write_over(offset, parts, Tail::Stays).await
    }

    /// As [`Disk::write`], for a log: what stands behind the bytes in their last block may become zeros.
    pub async fn append(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        self.write_over(offset, parts, Tail::MayBecomeZero).await
    }

    async fn write_over(&self, offset: u64, parts: Vec<Buf>, tail: Tail) -> io::Result<()> {
        match &self.direct {
            Some(direct) => {
                let (offset, parts) = self.whole_blocks(offset, parts, tail).await?;
                let turn = direct.write_turn(offset, &parts).await;
                // A caller may give up while the device still writes. The device writes whole blocks, so a late write could undo a
                // later one next to it. So each write keeps its place and its blocks until it is done.
                let (done, ended) = async_channel::bounded(1);
                let (disk, direct) = (self.clone(), direct.clone());
                self.world.spawn("disk write", async move {
                    // Clones share the bytes.
                    let kept = parts.clone();
                    let written = direct.write(offset, &kept, disk.write_device(offset, parts)).await;
                    drop(turn);
                    // Nobody may wait any more.
                    let _ = done.try_send(written);
                });
                let ended = span(&self.world, Stage::Device, ended.recv()).await;
                ended.unwrap_or_else(|_| Err(io::Error::other("the disk is closed")))
            }
            None => self.write_device(offset, parts).await,
        }
    }

    /// A write with what stands before and behind it in its first and last block. What stands before is in memory as a rule: a log
    /// writes behind its last record.
    async fn whole_blocks(
        &self,
        offset: u64,
        mut parts: Vec<Buf>,
        tail: Tail,
    ) -> io::Result<(u64, Vec<Buf>)> {
        let block = BLOCK as u64;
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let (before, behind) = ((offset % block) as usize, (end % block) as usize);
        if behind > 0 && end > offset {
            parts.push(match tail {
                Tail::Stays => self.read(end - behind as u64, BLOCK).await?.slice(behind..BLOCK),
                Tail::MayBecomeZero => BufMut::zeroed(BLOCK - behind).freeze(),
            });
        }
        if before > 0 && end > offset {
            let first = self.read(offset - before as u64, BLOCK).await?;
            parts.insert(0, first.slice(0..before));
        }
        if before > 0 || behind > 0 {
            // The device wants whole blocks in one piece, and so does the cache.
            parts = vec![joined(&parts)];
        }
        Ok((offset - before as u64, parts))
    }

    async fn write_device(&self, offset: u64, parts: Vec<Buf>) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let is_whole = offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK);
        if self.mode == DiskMode::Direct && !is_whole {
            let text = format!("{len} bytes at {offset} of a direct disk are not whole blocks of {BLOCK}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let request = self.request();
        let written = each_disk!(&self.body, disk => disk.write(offset, parts).await);
        let us = request.complete();
        let mut done = self.under_way.done.borrow_mut();
        done.writes += 1;
        done.written_bytes += len as u64;
        done.write_us += us;
        written.inspect_err(|error| self.under_way.note(error))
    }

    /// The first error of a write or a sync, if there was one: why a disk counts as lost.
    pub fn failure(&self) -> Option<io::Error> {
        let failure = self.under_way.failure.borrow();
        failure.as_ref().map(|(kind, text)| io::Error::new(*kind, text.clone()))
    }

    /// Makes durable every write that ended before this was called.
    ///
    /// # Errors
    /// After any error the disk counts as lost: a second sync that succeeds proves nothing.
    pub async fn sync(&self) -> io::Result<()> {
        let request = self.request();
        let synced = each_disk!(&self.body, disk => disk.sync().await);
        let us = request.complete();
        let mut done = self.under_way.done.borrow_mut();
        done.syncs += 1;
        done.sync_us += us;
        synced.inspect_err(|error| self.under_way.note(error))
    }

    /// Waits until the disk is lost, and returns why: the server of a remote disk is gone, or the disk has not
    /// completed a request for [`DISK_TIMEOUT_US`]. Other errors are returned by the requests themselves.
    pub async fn lost(&self) -> io::Error {
        match &self.body {
            DiskBody::Remote(disk) => disk.lost().await,
            DiskBody::Real(_) | DiskBody::Sim(_) => self.hung().await,
        }
    }

    async fn hung(&self) -> io::Error {
        loop {
            let now = self.world.now();
            let oldest = self.under_way.begun.borrow().values().next().copied();
            let until = oldest.unwrap_or(now) + DISK_TIMEOUT_US;
            if until <= now {
                let text = format!(
                    "the disk {} has not completed a request for {} s",
                    self.name(),
                    DISK_TIMEOUT_US / 1_000_000
                );
                return io::Error::new(io::ErrorKind::TimedOut, text);
            }
            self.world.sleep(until - now).await;
        }
    }
}
