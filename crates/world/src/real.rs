//! The real body of the world: this machine's clock, network, disks and random numbers, on one io_uring per thread.
//!
//! One [`World`] belongs to one thread. Its tasks progress only while that thread is inside [`World::block_on`];
//! wakers may be called from any thread. On kernels without io_uring the runtime falls back to `epoll`.

mod disk;
mod neighbours;
mod net;
mod receive;
mod run;
mod send;
#[cfg(test)]
mod tests;

pub use net::bind_port;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use compio::driver::op::{Interest, PollOnce};
use compio::driver::{DriverType, ProactorBuilder};
use compio::runtime::{Runtime, RuntimeBuilder, submit};
use pace::{BULK_MIN, WindowSetting};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use disk::{Disk, SharedDisk};
pub(crate) use net::{Conn, ListenSocket, Listener, Losses};
pub(crate) use receive::Receiver;
pub(crate) use send::Sender;

use self::neighbours::NeighbourFile;
use crate::DiskMode;
use crate::rpc::{Neighbours, ReceivePort};
use crate::turns::Timed;

/// Entries of the submission ring. Further requests wait in a queue; a larger ring would take more memory per thread.
const RING_ENTRIES: u32 = 256;
/// Size of the queue of wake-ups from other threads. If it is full, these threads wait.
const REMOTE_WAKES: usize = 1024;
/// Tasks that are polled before the ring is checked again.
const TASKS_PER_TURN: usize = 61;
/// Threads for blocking work that has no asynchronous form (resolving a name, connecting).
const BLOCKING_THREADS: usize = 16;
/// How long such a thread waits for more work before it ends.
const BLOCKING_IDLE: Duration = Duration::from_secs(5);
/// Words fetched from the kernel's generator at a time.
const CHANCE_WORDS: usize = 32;

/// The receive window of this process.
static RECEIVE_PORT: Mutex<Option<Arc<ReceivePort>>> = Mutex::new(None);

fn locked_port() -> MutexGuard<'static, Option<Arc<ReceivePort>>> {
    RECEIVE_PORT.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn receive_port() -> Arc<ReceivePort> {
    Arc::clone(
        locked_port().get_or_insert_with(|| Arc::new(ReceivePort::new(WindowSetting::Auto, BULK_MIN, None))),
    )
}

pub(crate) fn set_receive_window(setting: WindowSetting, shared: Option<&Path>) {
    let neighbours = shared.map(|file| Box::new(NeighbourFile::new(file)) as Box<dyn Neighbours>);
    *locked_port() = Some(Arc::new(ReceivePort::new(setting, BULK_MIN, neighbours)));
}

/// This machine, seen from one thread.
#[derive(Clone)]
pub(crate) struct World {
    inner: Rc<Inner>,
}

struct Inner {
    runtime: Runtime,
    chance: RefCell<Vec<u64>>,
}

impl World {
    /// A world for this thread, with its own ring.
    pub(crate) fn new() -> io::Result<World> {
        // `defer_taskrun` instead of `coop_taskrun` measured the same. Kernels before 6.0 do not know all these
        // options, and containers may forbid io_uring altogether.
        World::build(Self::driver().single_issuer(true).coop_taskrun(true).taskrun_flag(true))
            .or_else(|_| World::build(&Self::driver()))
            .or_else(|_| World::polling())
    }

    /// As [`World::new`], on `epoll` instead of io_uring.
    pub(crate) fn polling() -> io::Result<World> {
        World::build(Self::driver().driver_type(DriverType::Poll))
    }

    fn driver() -> ProactorBuilder {
        let mut driver = ProactorBuilder::new();
        driver
            .capacity(RING_ENTRIES)
            .thread_pool_limit(BLOCKING_THREADS)
            .thread_pool_recv_timeout(BLOCKING_IDLE);
        driver
    }

    fn build(driver: &ProactorBuilder) -> io::Result<World> {
        let runtime = RuntimeBuilder::new()
            .with_proactor(driver.clone())
            .sync_queue_size(REMOTE_WAKES)
            .event_interval(TASKS_PER_TURN)
            .build()?;
        Ok(World { inner: Rc::new(Inner { runtime, chance: RefCell::default() }) })
    }

    /// Runs `future` to its end, together with the tasks spawned on this world.
    ///
    /// # Panics
    /// If called from within a future that this thread runs already.
    pub(crate) fn block_on<F: Future>(&self, name: &'static str, future: F) -> F::Output {
        run::block_on(&self.inner.runtime, name, future)
    }

    /// As [`World::block_on`], for a limited time.
    pub(crate) fn block_on_for<F: Future>(
        &self,
        us: u64,
        name: &'static str,
        future: Pin<&mut F>,
    ) -> Option<F::Output> {
        run::block_on_for(&self.inner.runtime, name, us, future)
    }

    /// Waits until a descriptor can be read, or has failed.
    pub(crate) async fn readable(&self, fd: Rc<OwnedFd>) -> io::Result<()> {
        submit(PollOnce::new(fd, Interest::Readable)).await.0.map(|_| ())
    }

    /// Microseconds of a clock that never goes back (since the machine's start).
    pub(crate) fn now(&self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
    }

    /// Whether an address is this machine's own.
    pub(crate) fn is_here(&self, host: &str) -> bool {
        let Ok(there) = host.parse::<IpAddr>() else { return false };
        let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        // Nothing is sent: the kernel only looks for the way, and goes to its own addresses from themselves.
        let from = UdpSocket::bind(any)
            .and_then(|socket| socket.connect((there, 1)).and_then(|()| socket.local_addr()));
        from.is_ok_and(|from| from.ip() == there)
    }

    /// Nanoseconds since 1970.
    pub(crate) fn wall(&self) -> i64 {
        let time = clock_gettime(ClockId::Realtime);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    }

    pub(crate) fn receive_port(&self) -> Arc<ReceivePort> {
        receive_port()
    }

    /// Waits for `us` microseconds.
    pub(crate) async fn sleep(&self, us: u64) {
        compio::time::sleep(Duration::from_micros(us)).await;
    }

    /// The output of `future`, or `None` (and `future` is dropped) after `us` microseconds.
    pub(crate) async fn timeout<F: Future>(&self, us: u64, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        // The timer is made at its first poll, so a future that is ready at once costs no timer.
        let mut timer = pin!(self.sleep(us));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// A random number, from the kernel's generator.
    pub(crate) fn random(&self) -> u64 {
        let mut words = self.inner.chance.borrow_mut();
        if words.is_empty() {
            let mut bytes = [0; CHANCE_WORDS * 8];
            self.random_bytes(&mut bytes);
            words.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        }
        words.pop().expect("the words were just fetched")
    }

    /// Fills `out` from the kernel's random generator: good enough for keys.
    pub(crate) fn random_bytes(&self, out: &mut [u8]) {
        let mut filled = 0;
        while filled < out.len() {
            // It fails only if a signal comes before the generator is ready, early after boot.
            if let Ok(len) =
                rustix::rand::getrandom(&mut out[filled..], rustix::rand::GetRandomFlags::empty())
            {
                filled += len;
            }
        }
    }

    /// Runs `f` on a thread that may block.
    pub(crate) async fn off_thread<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        // Panics are caught, because the runtime would wait for ever for a thread that has panicked.
        let caught = move || std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        match self.inner.runtime.spawn_blocking(caught).await {
            Ok(Ok(made)) => made,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("nobody cancels it, and its panics are caught"),
        }
    }

    /// Runs `future` as a task, until it or the world ends.
    pub(crate) fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + 'static) {
        self.inner.runtime.spawn(Timed::new(name, future)).detach();
    }

    /// Lets other tasks of this world run first.
    pub(crate) async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Listens on `address` ("host:port", port 0 for any free one).
    pub(crate) async fn listen(&self, address: &str) -> io::Result<Listener> {
        Listener::bind(address, self.polls())
    }

    /// Accepts from a socket that is already bound.
    pub(crate) fn listen_on(&self, socket: std::net::TcpListener) -> io::Result<Listener> {
        Listener::on(socket, self.polls())
    }

    /// Accepts from an address where another thread accepts too.
    pub(crate) fn listen_shared(&self, listen_socket: Arc<ListenSocket>) -> Listener {
        Listener::shared(listen_socket, self.polls())
    }

    /// Listens at a socket in the file system.
    pub(crate) async fn listen_at_path(&self, path: &str) -> io::Result<Listener> {
        Listener::bind_path(path, self.polls())
    }

    /// Connects to a socket in the file system.
    pub(crate) async fn connect_to_path(&self, path: &str) -> io::Result<Conn> {
        Conn::connect_path(path, self.polls())
    }

    /// Connects to `address` ("host:port").
    pub(crate) async fn connect(&self, address: &str) -> io::Result<Conn> {
        Conn::connect(address, &self.inner.runtime, self.polls()).await
    }

    /// Opens the file or block device at `path`; `WouldBlock` if another process, or this one, has it open.
    pub(crate) async fn open_disk(&self, path: &str, mode: DiskMode) -> io::Result<Disk> {
        Disk::open(path, mode)
    }

    /// Makes a file of `len` bytes at `path`; a block device is opened as it is.
    pub(crate) async fn create_disk(&self, path: &str, len: u64) -> io::Result<Disk> {
        Disk::create(path, len)
    }

    /// Whether this world uses `epoll` instead of io_uring. Then its sockets must be non-blocking.
    fn polls(&self) -> bool {
        self.inner.runtime.driver_type().is_polling()
    }
}
