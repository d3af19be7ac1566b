//! The shared state of a simulation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::disk::Disks;
use super::executor::{Event, Executor, Overlong, Step, TaskId};
use super::faults::{Counts, Fault};
use super::net::Net;
use super::options::SimOptions;
use super::prng::Prng;
use super::tamper::Tamper;
use crate::rpc::ReceivePort;

pub(super) struct State {
    pub(super) seed: u64,
    pub(super) options: SimOptions,
    pub(super) executor: Executor,
    pub(super) nodes: RefCell<Nodes>,
    pub(super) net: RefCell<Net>,
    pub(super) disks: RefCell<Disks>,
    pub(super) disk_prng: Prng,
    pub(super) faults: Counts,
    /// What becomes of frames.
    pub(super) tamper: RefCell<Option<Tamper>>,
    /// Claims, and who made them ([`State::claim`]).
    claims: RefCell<BTreeMap<(&'static str, Vec<u64>), u64>>,
    /// Number of nodes with a `kill_at`.
    scheduled_kills: Cell<u32>,
    trace: Cell<u64>,
}

#[derive(Default)]
pub(super) struct Nodes {
    by_name: BTreeMap<String, u32>,
    list: Vec<Node>,
    /// Further addresses of nodes: by name, the node and the address's own number.
    rails: BTreeMap<String, (u32, u32)>,
}

/// Numbers of rails begin here, so that none is that of a node.
const RAILS: u32 = 1 << 24;

pub(super) struct Node {
    pub(super) name: String,
    pub(super) life: u32,
    pub(super) alive: bool,
    /// The node dies after this many more polls of its tasks; with a power cut if true.
    kill_at: Option<(u64, bool)>,
    /// A power cut ended its last life, and it has not been started since: it does not answer.
    pub(super) powered_off: bool,
    pub(super) prng: Prng,
    /// How much faster than true time its clock runs, in millionths.
    pub(super) drift_ppm: i64,
    /// Its clock at the start.
    pub(super) offset_us: u64,
    /// The receive window, and the life that has it.
    receive_port: Option<(u32, Arc<ReceivePort>)>,
}

/// A kind of event in the trace.
#[derive(Clone, Copy)]
pub(super) enum Traced {
    Frame = 1,
    Read = 2,
    Write = 3,
    Sync = 4,
    Death = 5,
}

impl Nodes {
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Gives a node another address.
    pub(super) fn add_rail(&mut self, node: u32, name: &str) {
        let number = RAILS + u32::try_from(self.rails.len()).expect("fewer than 2^24 rails");
        self.rails.insert(name.to_owned(), (node, number));
    }

    /// The node with this name or rail, and the number by which links to it are cut.
    pub(super) fn find_host(&self, host: &str) -> Option<(u32, u32)> {
        self.find(host).map(|node| (node, node)).or_else(|| self.rails.get(host).copied())
    }

    /// The numbers by which links to a rail are cut, or links to a node, by all of its addresses.
    pub(super) fn ends_of(&self, name: &str) -> Vec<u32> {
        let Some(node) = self.find(name) else {
            return self.rails.get(name).map(|(_, number)| *number).into_iter().collect();
        };
        let rails = self.rails.values().filter(|(of, _)| *of == node).map(|(_, number)| *number);
        [node].into_iter().chain(rails).collect()
    }

    pub(super) fn at(&self, node: u32) -> &Node {
        &self.list[node as usize]
    }

    /// The receive window of a life of a node.
    pub(super) fn receive_port(
        &mut self,
        node: u32,
        life: u32,
        new: impl FnOnce() -> Arc<ReceivePort>,
    ) -> Arc<ReceivePort> {
        let place = &mut self.list[node as usize].receive_port;
        match place {
            Some((of, port)) if *of == life => port.clone(),
            _ => place.insert((life, new())).1.clone(),
        }
    }
}

pub(super) fn dead<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::BrokenPipe, "this life of the node has ended"))
}

impl State {
    pub(super) fn new(seed: u64, options: SimOptions) -> State {
        State {
            seed,
            options,
            executor: Executor::new(seed),
            nodes: RefCell::default(),
            net: RefCell::new(Net::new(seed)),
            disks: RefCell::default(),
            disk_prng: Prng::new(seed, "disks"),
            faults: Counts::default(),
            tamper: RefCell::default(),
            claims: RefCell::default(),
            scheduled_kills: Cell::new(0),
            trace: Cell::new(seed),
        }
    }

    /// The node and its present life. Starts the node if it is not running.
    pub(super) fn start(&self, name: &str) -> (u32, u32) {
        assert!(!name.is_empty() && !name.contains(':'), "the name of a node is not empty and has no colon");
        let mut nodes = self.nodes.borrow_mut();
        if let Some(index) = nodes.find(name) {
            let node = &mut nodes.list[index as usize];
            node.alive = true;
            node.powered_off = false;
            return (index, node.life);
        }
        let prng = Prng::new(self.seed, name);
        let drift = u64::from(self.options.drift_ppm_max);
        let drift_ppm = prng.below(2 * drift + 1).cast_signed() - drift.cast_signed();
        let offset_us = prng.below(self.options.offset_us_max + 1);
        let index = u32::try_from(nodes.list.len()).expect("fewer than 2^32 nodes");
        let name = name.to_owned();
        nodes.by_name.insert(name.clone(), index);
        let (life, alive, kill_at, powered_off) = (0, true, None, false);
        let receive_port = None;
        nodes.list.push(Node {
            name,
            life,
            alive,
            kill_at,
            powered_off,
            prng,
            drift_ppm,
            offset_us,
            receive_port,
        });
        (index, 0)
    }

    pub(super) fn is_alive(&self, node: u32, life: u32) -> bool {
        let nodes = self.nodes.borrow();
        nodes.at(node).alive && nodes.at(node).life == life
    }

    /// Ends the present life of a node; with a power cut if `power_cut`.
    pub(super) fn end_life(&self, node: u32, power_cut: bool) {
        let mut nodes = self.nodes.borrow_mut();
        let entry = &mut nodes.list[node as usize];
        let was_alive = std::mem::replace(&mut entry.alive, false);
        entry.life += u32::from(was_alive);
        entry.powered_off |= power_cut;
        if entry.kill_at.take().is_some() {
            self.scheduled_kills.set(self.scheduled_kills.get() - 1);
        }
        drop(nodes);
        self.trace(node, Traced::Death, u64::from(power_cut));
        if was_alive {
            self.net.borrow_mut().node_died(self, node, power_cut);
        }
        self.disks.borrow().node_died(self, node, power_cut);
        // Destructors of tasks may call back into this state, so nothing may be borrowed here.
        drop(self.executor.take_tasks(Some(node)));
    }

    /// Ends the present life of a node before one of its next polls.
    pub(super) fn schedule_kill(&self, node: u32, polls: u64, power_cut: bool) {
        let mut nodes = self.nodes.borrow_mut();
        let entry = &mut nodes.list[node as usize];
        if entry.alive && entry.kill_at.replace((polls, power_cut)).is_none() {
            self.scheduled_kills.set(self.scheduled_kills.get() + 1);
        }
    }

    /// Kills the task's node if it must die before this poll; true if it did.
    fn dies_before(&self, id: TaskId) -> bool {
        let Some(node) = (self.scheduled_kills.get() > 0).then(|| self.executor.node_of(id)).flatten() else {
            return false;
        };
        let power_cut = {
            let mut nodes = self.nodes.borrow_mut();
            let Some((polls, power_cut)) = &mut nodes.list[node as usize].kill_at else { return false };
            if *polls > 0 {
                *polls -= 1;
                return false;
            }
            *power_cut
        };
        self.faults.add(Fault::KillAtPoll, 1);
        self.faults.add(Fault::PowerCut, u64::from(power_cut));
        self.end_life(node, power_cut);
        true
    }

    /// Records a claim and checks it against earlier ones.
    pub(super) fn claim(&self, what: &'static str, of: &[u64], by: u64) {
        let first = *self.claims.borrow_mut().entry((what, of.to_vec())).or_insert(by);
        assert!(first == by, "seed {}: {what} {of:?}: {by:#x} after {first:#x}", self.seed);
    }

    pub(super) fn forget_claims(&self) {
        self.claims.borrow_mut().clear();
    }

    pub(super) fn end_all(&self) {
        for node in &mut self.nodes.borrow_mut().list {
            node.life += u32::from(std::mem::replace(&mut node.alive, false));
        }
        drop(self.executor.take_tasks(None));
    }

    pub(super) fn trace(&self, node: u32, what: Traced, value: u64) {
        let mut hash = self.trace.get();
        for word in [self.executor.now(), u64::from(node) << 8 | what as u64, value] {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        self.trace.set(hash);
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.get()
    }

    pub(super) fn block_on<F: Future>(&self, f: F) -> F::Output {
        let _story = Story(self);
        let mut f = pin!(f);
        let main = self.executor.begin_main();
        let (mut polls, mut stalled) = (0, 0);
        let end = self.executor.now() + self.options.time_us_max;
        loop {
            match self.executor.step() {
                Step::Main => {
                    if let Poll::Ready(output) = main.poll(f.as_mut()) {
                        return output;
                    }
                }
                Step::Task(id) if self.dies_before(id) => {}
                Step::Task(id) => self.executor.poll(id).unwrap_or_else(|turn| self.complain(&turn)),
                Step::Idle => {
                    stalled = 0;
                    self.advance();
                    assert!(
                        self.executor.now() <= end,
                        "seed {}: livelock: {} us of simulated time used up",
                        self.seed,
                        self.options.time_us_max
                    );
                    continue;
                }
            }
            polls += 1;
            stalled += 1;
            assert!(
                polls <= self.options.polls_max && stalled <= self.options.polls_stalled_max,
                "seed {}: livelock: {polls} polls, the last {stalled} of them without time moving; {}",
                self.seed,
                self.who_lives()
            );
        }
    }

    fn advance(&self) {
        let Some(event) = self.executor.advance() else {
            panic!("seed {}: deadlock: nothing can run and no timer is set; {}", self.seed, self.who_lives())
        };
        self.happen(event);
        // All events of the same time become ready together. So the seed decides their order, not the agenda.
        while let Some(event) = self.executor.same_moment() {
            self.happen(event);
        }
    }

    fn happen(&self, event: Event) {
        match event {
            Event::Timer(_) => {}
            Event::Arrival(end) => self.net.borrow_mut().arrive(self, end),
            Event::Free(node) => self.executor.free(node),
        }
    }

    fn complain(&self, turn: &Overlong) -> ! {
        panic!(
            "seed {}: a turn of the task `{}` of node {} takes {} us: nothing else of the node goes on meanwhile",
            self.seed,
            turn.task,
            self.nodes.borrow().at(turn.node).name,
            turn.us
        )
    }

    fn who_lives(&self) -> String {
        let tasks = self.executor.tasks_by_node();
        let mut text = String::from("tasks:");
        for (index, node) in self.nodes.borrow().list.iter().enumerate() {
            let count = u32::try_from(index).ok().and_then(|index| tasks.get(&index)).unwrap_or(&0);
            text += &format!(" {}{}={count}", node.name, if node.alive { "" } else { " (dead)" });
        }
        text
    }
}

/// Prints the seed if a panic unwinds through it.
struct Story<'a>(&'a State);

impl Drop for Story<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation: seed {}, {} us after its start", self.0.seed, self.0.executor.now());
        }
    }
}
