//! The handle of whoever runs a simulation.

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use super::disk::File;
use super::faults::{DiskFaults, Fault};
use super::options::SimOptions;
use super::recording::{DiskImage, Recording};
use super::state::State;

/// A cluster in one thread: every run of one seed, with the same options, is the same run.
///
/// Dropping it ends every node. A task that owns the simulation it runs in keeps both alive for ever: let the future
/// given to [`Simulation::block_on`] borrow it instead.
pub struct Simulation {
    pub(super) state: Rc<State>,
}

impl Simulation {
    /// A world without nodes.
    pub fn new(seed: u64, options: SimOptions) -> Simulation {
        assert!(options.drift_ppm_max < 1_000_000, "a clock goes forward");
        Simulation { state: Rc::new(State::new(seed, options)) }
    }

    /// The node `name`, made at first use, started again with its disks if it has died. Its addresses are `name:port`.
    pub fn node(&self, name: &str) -> crate::World {
        let (node, life) = self.state.start(name);
        crate::World::simulated(super::World::new(self.state.clone(), node, life))
    }

    /// Its process dies as by `kill -9`: tasks are dropped, connections break, the page cache survives.
    pub fn kill(&self, name: &str) {
        self.state.faults.add(Fault::Kill, 1);
        self.state.end_life(self.known(name), false);
    }

    /// As [`Simulation::kill`], and of what was not synced each sector is kept or lost by chance. The node answers
    /// nothing until it is started again.
    pub fn power_cut(&self, name: &str) {
        self.state.faults.add(Fault::PowerCut, 1);
        self.state.end_life(self.known(name), true);
    }

    /// Its process dies before the poll of its tasks with this number, counted from now, and with it the machine's
    /// power if `power_cut`. The tasks of a node are polled wherever one of them goes on after an await.
    pub fn kill_at(&self, name: &str, poll: u64, power_cut: bool) {
        self.state.schedule_kill(self.known(name), poll, power_cut);
    }

    /// Whether a process of the node runs.
    pub fn is_alive(&self, name: &str) -> bool {
        self.state.nodes.borrow().at(self.known(name)).alive
    }

    /// Forgets what was claimed: somebody begins anew, with nothing of what was there.
    pub fn forget_claims(&self) {
        self.state.forget_claims();
    }

    /// Faults of this kind so far.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.state.faults.of(fault)
    }

    /// Runs everything until `f`, thought of as a task of `node`, is done. `f` outlives the node's
    /// death, and a dead node stays dead.
    ///
    /// # Panics
    /// With the seed: on deadlock (nothing can run and no timer is set), on livelock (budget of polls or of time
    /// used up) and at a turn of a task that is longer than [`TURN_MAX_US`](crate::turns::TURN_MAX_US).
    pub fn block_on<F: Future>(&self, node: &str, f: F) -> F::Output {
        if self.state.nodes.borrow().find(node).is_none() {
            self.state.start(node);
        }
        self.state.block_on(f)
    }

    /// Of every frame delivered and every disk operation, with its time, node and bytes.
    pub fn trace_hash(&self) -> u64 {
        self.state.trace_hash()
    }

    /// True time since the start, in microseconds.
    pub fn now(&self) -> u64 {
        self.state.executor.now()
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.state.seed
    }

    /// Cuts (or mends) the wires between two nodes; their connections break when they are cut and stay broken.
    pub fn partition(&self, a: &str, b: &str, cut: bool) {
        let (a, b) = (self.known(a), self.known(b));
        self.state.faults.add(Fault::Partition, u64::from(cut));
        let mut net = self.state.net.borrow_mut();
        net.partition(&self.state, a, b, cut);
        net.partition(&self.state, b, a, cut);
    }

    /// Cuts (or mends) the wire from one node to another: what the other sends still arrives. Connections between them
    /// break when it is cut: each end notices at a time of its own, and nothing of the cut direction arrives any more.
    pub fn cut_one_way(&self, from: &str, to: &str, cut: bool) {
        self.state.faults.add(Fault::OneWay, u64::from(cut));
        self.state.net.borrow_mut().partition(&self.state, self.known(from), self.known(to), cut);
    }

    /// Every frame between two nodes takes up to so many microseconds more.
    pub fn slow_link(&self, a: &str, b: &str, us: u64) {
        self.state.faults.add(Fault::SlowLink, u64::from(us > 0));
        self.state.net.borrow_mut().slow_link(self.known(a), self.known(b), us);
    }

    /// Flips a bit in every 512-byte sector of a range at rest. Bytes not yet synced are not at rest.
    pub fn damage(&self, node: &str, path: &str, offset: u64, len: u64) {
        self.file(node, path).damage(&self.state.disk_prng, offset, len);
    }

    /// Makes every operation of a disk fail, or work again.
    pub fn fail_disk(&self, node: &str, path: &str, failing: bool) {
        self.file(node, path).set_failing(failing);
    }

    /// Makes every operation of a disk take so many times as long.
    pub fn slow_disk(&self, node: &str, path: &str, times: u64) {
        self.state.faults.add(Fault::SlowDisk, u64::from(times > 1));
        self.file(node, path).set_slowness(times);
    }

    /// Records from here on what is asked of a disk, on which nothing may be unsynced. Also its bytes now.
    pub fn record_disk(&self, node: &str, path: &str) -> (DiskImage, Recording) {
        self.file(node, path).record()
    }

    /// Puts other bytes in place of all that a disk has, which nobody may have open. Ends its recording.
    pub fn restore_disk(&self, node: &str, path: &str, image: &DiskImage) {
        self.file(node, path).restore(image);
    }

    /// What goes wrong with a disk from here on.
    pub fn disk_faults(&self, node: &str, path: &str, faults: DiskFaults) {
        self.file(node, path).set_faults(faults);
    }

    /// Flips a bit in each of some 4-KiB pages at rest, drawn from those between two bytes of the disk that hold more
    /// than zeros and were not written in the last `rested_us` microseconds. Returns how many it found.
    pub fn rot(&self, node: &str, path: &str, within: Range<u64>, pages: u64, rested_us: u64) -> u64 {
        let before = self.state.executor.now().saturating_sub(rested_us);
        let rotten = self.file(node, path).rot(&self.state.disk_prng, within, pages, before);
        self.state.faults.add(Fault::Rot, rotten);
        rotten
    }

    fn known(&self, name: &str) -> u32 {
        let found = self.state.nodes.borrow().find(name);
        found.unwrap_or_else(|| panic!("there is no node {name}"))
    }

    fn file(&self, node: &str, path: &str) -> Rc<File> {
        let found = self.state.disks.borrow().find(self.known(node), path);
        found.unwrap_or_else(|| panic!("node {node} has no disk {path}"))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.state.end_all();
    }
}
