//! The simulated body: not whole yet.

use std::future::Future;
use std::io;
use std::ops::Range;

use types::Buf;

use crate::Frame;

/// What a simulation does to the nodes in it. All times in microseconds, chances in millionths.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Time that a frame takes.
    pub latency_us: Range<u64>,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions { latency_us: 50..500 }
    }
}

/// A cluster in one thread: every run of one seed is the same run.
pub struct Simulation {}

#[expect(unused_variables, reason = "not whole yet")]
impl Simulation {
    /// A world without nodes.
    pub fn new(seed: u64, options: SimOptions) -> Simulation {
        Simulation {}
    }

    /// The node `name`, made or started again if it is not running. Its addresses are `name:port`.
    pub fn node(&self, name: &str) -> crate::World {
        crate::World::simulated(World {})
    }

    /// Its process dies as by `kill -9`: tasks are dropped, connections break, the page cache survives.
    pub fn kill(&self, name: &str) {}

    /// As [`Simulation::kill`], and each sector of each write not yet synced is kept or lost by chance.
    pub fn power_cut(&self, name: &str) {}

    /// Runs everything until `f`, a task of node `node`, is done.
    ///
    /// # Panics
    /// With the seed: on deadlock (nothing can run and no timer is set) and on livelock (poll budget exhausted).
    pub fn block_on<F: Future>(&self, node: &str, f: F) -> F::Output {
        panic!("not there yet")
    }

    /// Of every frame delivered and every disk operation, with its time, node and bytes.
    pub fn trace_hash(&self) -> u64 {
        0
    }

    /// True time since the start, in microseconds.
    pub fn now(&self) -> u64 {
        0
    }

    /// Cuts (or mends) the wires between two nodes; connections between them break when they are cut.
    pub fn partition(&self, a: &str, b: &str, cut: bool) {}

    /// Flips bits at rest.
    pub fn damage(&self, node: &str, path: &str, offset: u64, len: u64) {}
}

#[derive(Clone)]
pub(crate) struct World {}

macro_rules! absent {
    ($($(#[$m:meta])* $vis:vis $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {$(
        $vis async fn $name(&self, $($arg: $ty),*) $(-> $ret)? { $(let _ = $arg;)* panic!("not there yet") }
    )*};
}

impl World {
    pub(crate) fn block_on<F: Future>(&self, _: F) -> F::Output {
        panic!("not there yet")
    }
    pub(crate) fn now(&self) -> u64 {
        0
    }
    pub(crate) fn wall(&self) -> u64 {
        0
    }
    pub(crate) async fn timeout<F: Future>(&self, _: u64, f: F) -> Option<F::Output> {
        Some(f.await)
    }
    pub(crate) fn random(&self) -> u64 {
        0
    }
    pub(crate) fn random_bytes(&self, _: &mut [u8]) {}
    pub(crate) fn spawn(&self, _: impl Future<Output = ()> + 'static) {}
    absent! {
        pub(crate) sleep(us: u64);
        pub(crate) yield_now();
        pub(crate) listen(address: &str) -> io::Result<Listener>;
        pub(crate) connect(address: &str) -> io::Result<Conn>;
        pub(crate) open_disk(path: &str) -> io::Result<Disk>;
        pub(crate) create_disk(path: &str, len: u64) -> io::Result<Disk>;
    }
}

pub(crate) struct Listener {}
impl Listener {
    pub(crate) fn address(&self) -> String {
        String::new()
    }
    absent! { pub(crate) accept() -> io::Result<Conn>; }
}
pub(crate) struct Conn {}
impl Conn {
    pub(crate) fn peer(&self) -> String {
        String::new()
    }
    pub(crate) fn split(self) -> (Sender, Receiver) {
        (Sender {}, Receiver {})
    }
}
pub(crate) struct Sender {}
impl Sender {
    absent! {
        pub(crate) send(frame: Frame) -> io::Result<()>;
        pub(crate) send_all(frames: Vec<Frame>) -> io::Result<()>;
    }
}
pub(crate) struct Receiver {}
impl Receiver {
    absent! { pub(crate) recv() -> io::Result<Option<Frame>>; }
}
#[derive(Clone)]
pub(crate) struct Disk {}
impl Disk {
    pub(crate) fn len(&self) -> u64 {
        0
    }
    absent! {
        pub(crate) read(offset: u64, len: usize) -> io::Result<Buf>;
        pub(crate) write(offset: u64, parts: Vec<Buf>) -> io::Result<()>;
        pub(crate) sync() -> io::Result<()>;
    }
}
