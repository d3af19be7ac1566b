//! The handle with which a test runs a simulation.

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use super::disk::File;
use super::faults::{DiskFaults, Fault};
use super::options::SimOptions;
use super::recording::{DiskImage, Recording};
use super::state::State;
use super::tamper::{Passing, Tampering};

/// A cluster in one thread. The same seed and options repeat the same run.
///
/// Dropping it ends every node. A task must not own the simulation that it runs in, or both live for ever: let the
/// future given to [`Simulation::block_on`] borrow it.
pub struct Simulation {
    pub(super) state: Rc<State>,
}

impl Simulation {
    /// A world without nodes.
    pub fn new(seed: u64, options: SimOptions) -> Simulation {
        assert!(
            options.drift_ppm_max < 1_000_000,
            "the drift of a clock is below 1000000 ppm, so it goes forward"
        );
        Simulation { state: Rc::new(State::new(seed, options)) }
    }

    /// The node `name`. It is made at first use, and started again with its disks if it is dead. Its addresses are
    /// `name:port`.
    pub fn node(&self, name: &str) -> crate::World {
        let (node, life) = self.state.start(name);
        crate::World::simulated(super::World::new(self.state.clone(), node, life))
    }

    /// Kills the node's process as `kill -9` does: tasks are dropped, connections break, the page cache survives.
    pub fn kill(&self, name: &str) {
        self.state.faults.add(Fault::Kill, 1);
        self.state.end_life(self.known(name), false);
    }

    /// As [`Simulation::kill`], and each unsynced sector is kept or lost at random. The node does not answer until it
    /// is started again.
    pub fn power_cut(&self, name: &str) {
        self.state.faults.add(Fault::PowerCut, 1);
        self.state.end_life(self.known(name), true);
    }

    /// Kills the node's process before poll number `poll` of its tasks, counted from now; with a power cut if
    /// `power_cut`. Every continuation of a task after an await is a poll.
    pub fn kill_at(&self, name: &str, poll: u64, power_cut: bool) {
        self.state.schedule_kill(self.known(name), poll, power_cut);
    }

    /// Whether a process of the node runs.
    pub fn is_alive(&self, name: &str) -> bool {
        self.state.nodes.borrow().at(self.known(name)).alive
    }

    /// Forgets all claims, for a test that starts again with an empty cluster.
    pub fn forget_claims(&self) {
        self.state.forget_claims();
    }

    /// Faults of this kind so far.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.state.faults.of(fault)
    }

    /// Runs all nodes until `f` ends. `f` belongs to `node` but survives its death. This does not restart a dead
    /// node.
    ///
    /// # Panics
    /// On deadlock (no task is ready and no timer is set), on livelock (limit of polls or of time exceeded),
    /// and at a turn longer than [`TURN_MAX_US`](crate::turns::TURN_MAX_US). The message names the seed.
    pub fn block_on<F: Future>(&self, node: &str, f: F) -> F::Output {
        if self.state.nodes.borrow().find(node).is_none() {
            self.state.start(node);
        }
        self.state.block_on(f)
    }

    /// A hash of every delivered frame and every disk operation, with time, node and bytes.
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

    /// Gives a node another address: `rail:port` leads to it as well. A link to it is cut under this name alone, or under that of
    /// the node with all others.
    pub fn add_rail(&self, node: &str, rail: &str) {
        let node = self.known(node);
        let mut nodes = self.state.nodes.borrow_mut();
        assert!(nodes.find_host(rail).is_none(), "there is a {rail} already");
        nodes.add_rail(node, rail);
    }

    /// From now on a test decides what becomes of each frame before it is sent.
    pub fn tamper(&self, tamper: impl FnMut(&Passing<'_>) -> Option<Tampering> + 'static) {
        *self.state.tamper.borrow_mut() = Some(Box::new(tamper));
    }

    /// Cuts (or restores) the link between two nodes, or from a node to a rail. A cut breaks their connections; these stay broken.
    pub fn partition(&self, a: &str, b: &str, cut: bool) {
        self.state.faults.add(Fault::Partition, u64::from(cut));
        self.cut_ends(a, b, cut);
        self.cut_ends(b, a, cut);
    }

    /// Cuts (or restores) one direction of the link between two nodes; the other direction still works. A cut breaks
    /// their connections: each end notices at a different time, and nothing more arrives in the cut direction.
    pub fn cut_one_way(&self, from: &str, to: &str, cut: bool) {
        self.state.faults.add(Fault::OneWay, u64::from(cut));
        self.cut_ends(from, to, cut);
    }

    /// Also over all rails of either.
    fn cut_ends(&self, from: &str, to: &str, cut: bool) {
        let (from, to) = {
            let nodes = self.state.nodes.borrow();
            (nodes.ends_of(from), nodes.ends_of(to))
        };
        assert!(!from.is_empty() && !to.is_empty(), "there is nothing to cut");
        let mut net = self.state.net.borrow_mut();
        for from in &from {
            to.iter().for_each(|to| net.partition(&self.state, *from, *to, cut));
        }
    }

    /// Every frame between two nodes takes up to `us` microseconds longer.
    pub fn slow_link(&self, a: &str, b: &str, us: u64) {
        self.state.faults.add(Fault::SlowLink, u64::from(us > 0));
        self.state.net.borrow_mut().slow_link(self.known(a), self.known(b), us);
    }

    /// Flips a bit in every 512-byte sector of a range at rest. Bytes not yet synced are not at rest.
    pub fn damage(&self, node: &str, path: &str, offset: u64, len: u64) {
        self.file(node, path).damage(&self.state.disk_prng, offset, len);
    }

    /// Makes every operation of a disk fail (or work again).
    pub fn fail_disk(&self, node: &str, path: &str, failing: bool) {
        self.file(node, path).set_failing(failing);
    }

    /// Makes every operation of a disk take `times` times as long.
    pub fn slow_disk(&self, node: &str, path: &str, times: u64) {
        self.state.faults.add(Fault::SlowDisk, u64::from(times > 1));
        self.file(node, path).set_slowness(times);
    }

    /// Starts a recording of the requests to a disk, which must have no unsynced writes. Also returns its present
    /// bytes.
    pub fn record_disk(&self, node: &str, path: &str) -> (DiskImage, Recording) {
        self.file(node, path).record()
    }

    /// Replaces all bytes of a disk, which must not be open. Ends its recording.
    pub fn restore_disk(&self, node: &str, path: &str, image: &DiskImage) {
        self.file(node, path).restore(image);
    }

    /// Sets the faults of a disk from now on.
    pub fn disk_faults(&self, node: &str, path: &str, faults: DiskFaults) {
        self.file(node, path).set_faults(faults);
    }

    /// Flips a bit in each of `pages` random 4-KiB pages at rest. Candidates lie in the range `within`, are not all
    /// zeros, and were not written in the last `rested_us` microseconds. Returns the number of pages changed.
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
