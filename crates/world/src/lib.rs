//! Everything that a process asks of its machine: time, network, disks, random numbers and tasks.
//!
//! [`World`] has two bodies. The real one is one `io_uring` ring per thread. The simulated one ([`sim`]) runs a whole
//! cluster in one thread, with faults, and repeats a run from its seed. Code above this room is written once. It cannot
//! tell on which body it runs.
//!
//! [`trace`] measures what one request waits for. [`rpc`] makes calls and answers out of connections, on both bodies. `remote/` is a disk that an NBD server lends.

mod connection;
pub mod direct;
pub mod file_lock;
mod frame;
mod future_box;
mod line_limit;
pub mod nbd;
mod notify;
pub mod private_files;
mod real;
mod remote;
pub mod rpc;
mod running;
pub mod sim;
pub mod trace;
pub mod turns;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

pub use connection::{
    Conn, ListenSocket, Listener, Receiver, STREAM_HEAD_MAX, Sender, StreamReceiver, StreamSender,
};
pub(crate) use connection::{Losses, Resent};
pub use frame::Frame;
pub use future_box::FutureBox;
pub use line_limit::LineLimit;
pub use notify::Notify;
pub use pace::WindowSetting;
pub use real::bind_port;
pub use rpc::{
    Answer, Begun, Call, CallError, Handler, Identity, LocalBoxFuture, Peers, ReceiveReport, serve,
    serve_on_threads,
};
pub use sim::{SimOptions, Simulation};
use types::limits::BLOCK;
use types::messages::brick::DeviceCounts;
use types::messages::{LongTurn, WindowReport};
use types::{Buf, BufMut};

use crate::connection::{ConnBody, ListenerBody};
use crate::direct::{Direct, DirectCounts, DirectOptions, QueueChange, QueueSettings, joined};
use crate::trace::{Span, SpanKind, Stage, Trace, span};

/// How long an opener waits for a lock that another process holds, in microseconds.
pub const LOCK_WAIT_US: u64 = 5_000_000;
/// Time between two attempts to take such a lock, in microseconds.
pub const LOCK_POLL_US: u64 = 100_000;

/// One thread's view of the machine, or a simulated node's. Cheap to clone; stays on its thread.
#[derive(Clone)]
pub struct World(WorldBody);

#[derive(Clone)]
enum WorldBody {
    Real(real::World),
    Sim(sim::World),
}

/// Runs the same call on either body; the optional last argument wraps the result.
macro_rules! either {
    ($of:ident, $body:expr, $it:ident => $call:expr) => {
        match $body {
            $of::Real($it) => $call,
            $of::Sim($it) => $call,
        }
    };
    ($of:ident, $body:expr, $it:ident => $call:expr, $outer:ident($inner:ident)) => {
        match $body {
            $of::Real($it) => $call.map(|made| $outer($inner::Real(made))),
            $of::Sim($it) => $call.map(|made| $outer($inner::Sim(made))),
        }
    };
}

pub(crate) use either;

/// Sets how many bytes may be on their way to this process at once ([`pace`]), for callers and servers of real worlds that are
/// made from now on. `shared`: a file that all processes have that receive through the same port. It is made when the window
/// is too small for the first time; it must be theirs alone.
pub fn set_receive_window(setting: WindowSetting, shared: Option<&Path>) {
    real::set_receive_window(setting, shared);
}

/// The receive window of this process.
pub fn receive_report() -> ReceiveReport {
    real::receive_port().report()
}

impl World {
    /// The real world of this thread, with its own ring. Its tasks run only during [`World::block_on`].
    pub fn real() -> io::Result<World> {
        real::World::new().map(|world| World(WorldBody::Real(world)))
    }

    fn simulated(world: sim::World) -> World {
        World(WorldBody::Sim(world))
    }

    /// Runs `f` to its end; meanwhile the tasks spawned on this world run too.
    ///
    /// # Panics
    /// In a simulated world: within another `block_on`, on deadlock, on livelock.
    pub fn block_on<F: Future>(&self, f: F) -> F::Output {
        self.block_on_as("main", f)
    }

    /// As [`World::block_on`]. The turns of `f` count as those of a task of the kind `name`.
    ///
    /// # Panics
    /// As [`World::block_on`].
    pub fn block_on_as<F: Future>(&self, name: &'static str, f: F) -> F::Output {
        match &self.0 {
            WorldBody::Real(world) => world.block_on(name, f),
            WorldBody::Sim(world) => world.block_on(f),
        }
    }

    /// Microseconds of a clock that never goes back. Not comparable between nodes.
    pub fn now(&self) -> u64 {
        either!(WorldBody, &self.0, world => world.now())
    }

    /// Nanoseconds since 1970, negative before. May jump.
    pub fn wall(&self) -> i64 {
        either!(WorldBody, &self.0, world => world.wall())
    }

    /// Waits for `us` microseconds.
    pub async fn sleep(&self, us: u64) {
        either!(WorldBody, &self.0, world => world.sleep(us).await);
    }

    /// The output of `f` if it ends within `us` microseconds; otherwise `f` is dropped.
    pub async fn timeout<F: Future>(&self, us: u64, f: F) -> Option<F::Output> {
        either!(WorldBody, &self.0, world => world.timeout(us, f).await)
    }

    /// Whether a host, as an address (`10.0.0.1`, `::1`), is this machine. Names are not looked up; in a simulation hosts are nodes,
    /// by name.
    pub fn is_here(&self, host: &str) -> bool {
        either!(WorldBody, &self.0, world => world.is_here(host))
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        either!(WorldBody, &self.0, world => world.random())
    }

    /// Fills `out` with random bytes, good enough for nonces and ids.
    pub fn random_bytes(&self, out: &mut [u8]) {
        either!(WorldBody, &self.0, world => world.random_bytes(out));
    }

    /// Starts a detached task on this thread or node. Its turns count as those of the kind `name` ([`turns`]).
    pub fn spawn(&self, name: &'static str, f: impl Future<Output = ()> + 'static) {
        either!(WorldBody, &self.0, world => world.spawn(name, f));
    }

    /// Gives a part of a task its own name: if it takes the greater part of a turn, the turn counts as one of `name`.
    pub fn named<F: Future>(&self, name: &'static str, f: F) -> impl Future<Output = F::Output> + use<F> {
        turns::Named::new(self.clone(), name, f)
    }

    /// Does `work` as a part of the current turn. If it takes the greater part, the turn counts as one of `name`.
    pub(crate) fn part<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            WorldBody::Real(_) => turns::part(name, work),
            WorldBody::Sim(world) => world.part(name, work),
        }
    }

    /// The longest turn of each kind of task of this process in the last hour, the longest first, none below a
    /// millisecond. Empty in a simulation, where one process is many nodes.
    pub fn longest_turns(&self) -> Vec<LongTurn> {
        match &self.0 {
            WorldBody::Real(_) => turns::longest(),
            WorldBody::Sim(_) => Vec::new(),
        }
    }

    /// The receive window of this process, or of this node in a simulation, and what has come through it.
    pub fn window_report(&self) -> WindowReport {
        self.receive_port().report().into()
    }

    /// Resident memory of this process in bytes; 0 in a simulation, where one process is many nodes.
    pub fn memory(&self) -> u64 {
        if matches!(self.0, WorldBody::Sim(_)) {
            return 0;
        }
        // Source: proc(5), /proc/self/statm, second field in pages of 4 KiB.
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
    }

    /// Runs `f` on another thread and returns its result: for blocking work that has no asynchronous form. If the
    /// returned future is dropped, `f` still runs to its end. In a simulation `f` runs on this thread after a while,
    /// or not at all if the node has died by then.
    pub async fn off_thread<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        either!(WorldBody, &self.0, world => world.off_thread(f).await)
    }

    /// Asserts that only `by` ever does `what` to `of`. A simulation checks this against every other claim of the
    /// run; the real world ignores it.
    ///
    /// # Panics
    /// In a simulated world, if two values of `by` claim the same.
    pub fn claim(&self, what: &'static str, of: &[u64], by: u64) {
        if let WorldBody::Sim(world) = &self.0 {
            world.claim(what, of, by);
        }
    }

    /// Lets other tasks run first.
    pub async fn yield_now(&self) {
        either!(WorldBody, &self.0, world => world.yield_now().await);
    }

    /// Payloads of up to so many bytes need no credit.
    pub(crate) fn bulk_min(&self) -> usize {
        match &self.0 {
            WorldBody::Real(_) => pace::BULK_MIN,
            WorldBody::Sim(world) => world.bulk_min(),
        }
    }

    /// The receive window of this process, for its callers and its servers; in a simulation that of this life of the node.
    pub(crate) fn receive_port(&self) -> Arc<rpc::ReceivePort> {
        either!(WorldBody, &self.0, world => world.receive_port())
    }

    /// Listens at `address`, `host:port`; port 0 means any free port.
    pub async fn listen(&self, address: &str) -> io::Result<Listener> {
        either!(WorldBody, &self.0, world => world.listen(address).await, Listener(ListenerBody))
    }

    /// Connects to `address`, `host:port`.
    pub async fn connect(&self, address: &str) -> io::Result<Conn> {
        either!(WorldBody, &self.0, world => world.connect(address).await, Conn(ConnBody))
    }

    /// Accepts from a socket that is already bound; several threads can share it.
    ///
    /// # Errors
    /// `Unsupported` in a simulated world.
    pub fn listen_on(&self, socket: std::net::TcpListener) -> io::Result<Listener> {
        match &self.0 {
            WorldBody::Real(world) => world.listen_on(socket).map(|made| Listener(ListenerBody::Real(made))),
            WorldBody::Sim(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Accepts from an address where another thread accepts too: each connection goes to one of them.
    ///
    /// # Errors
    /// `Unsupported` in a simulated world.
    pub fn listen_shared(&self, listen_socket: &ListenSocket) -> io::Result<Listener> {
        match &self.0 {
            WorldBody::Real(world) => {
                Ok(Listener(ListenerBody::Real(world.listen_shared(Arc::clone(&listen_socket.0)))))
            }
            WorldBody::Sim(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Listens at a socket in the file system to which only this user may connect. Replaces a socket that a dead
    /// process has left there. Removes its own socket at the end.
    ///
    /// # Errors `AddrInUse` if another process listens there, or the name belongs to something else.
    pub async fn listen_at_path(&self, path: &str) -> io::Result<Listener> {
        either!(WorldBody, &self.0, world => world.listen_at_path(path).await, Listener(ListenerBody))
    }

    /// Connects to a socket in the file system.
    pub async fn connect_to_path(&self, path: &str) -> io::Result<Conn> {
        either!(WorldBody, &self.0, world => world.connect_to_path(path).await, Conn(ConnBody))
    }

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
    world: World,
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
    /// Of whoever has asked for it.
    trace: Option<Trace>,
}

impl Request<'_> {
    /// It is complete. Returns how long it took, in microseconds.
    fn complete(self) -> u64 {
        let until = self.disk.world.now();
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

    /// The same disk behind a cache of blocks and a queue; see [`direct`]. For a direct disk, of which there is no other
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

    /// Changes the queue: all, or nothing. Requests that wait are ordered anew.
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
                // Whoever waits may give up, and the device goes on all the same. It writes whole blocks, so a write that comes late
                // could undo a later one next to it: until it is done, it keeps its place and its blocks.
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
    /// goes on where it has just written.
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
