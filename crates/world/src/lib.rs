//! Everything that a process asks of its machine: time, network, disks, random numbers and tasks.
//!
//! [`World`] has two bodies. The real one is one `io_uring` ring per thread. The simulated one ([`sim`]) runs a whole
//! cluster in one thread, with faults, and repeats a run from its seed. Code above this room is written once. It cannot
//! tell on which body it runs.
//!
//! [`trace`] measures what one request waits for. [`rpc`] makes calls and answers out of connections, on both bodies. `remote/` is a disk that an NBD server lends.

mod connection;
pub mod direct;
mod disk;
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

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use connection::{
    Conn, ListenSocket, Listener, Receiver, STREAM_HEAD_MAX, Sender, StreamReceiver, StreamSender,
};
pub(crate) use connection::{Losses, Resent};
pub use disk::{DISK_TIMEOUT_US, Disk, DiskMode, SharedDisk};
pub use frame::Frame;
pub use future_box::FutureBox;
pub use line_limit::LineLimit;
pub use notify::Notify;
pub use pace::WindowSetting;
pub use real::bind_port;
pub use rpc::{
    Answer, Begun, Call, CallError, Handler, Identity, LocalBoxFuture, Peers, ReceiveReport, serve,
    serve_on_threads, spoken,
};
pub use sim::{SimOptions, Simulation};
use types::messages::{LongTurn, WindowReport};

use crate::connection::{ConnBody, ListenerBody};

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
}
