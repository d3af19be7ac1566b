//! Who does what, and when; and what is observed meanwhile.

use std::collections::BTreeMap;

use types::Code;

use super::engine::{Engine, Grain, Told};
use super::network::Network;
use super::plan::Plan;
use super::reads::{ReadRoute, read};
use super::rebuilds::{RebuildRoute, rebuild};
use super::writes::{WriteRoute, primary_slot, write};
use crate::random::Random;
use crate::time::Time;

/// Which groups a client uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientPlace {
    /// All: files are placed by a hash.
    Anywhere,
    /// Those whose primary is on the client's node.
    AtPrimary,
}

impl ClientPlace {
    /// All of them.
    pub const ALL: [ClientPlace; 2] = [ClientPlace::Anywhere, ClientPlace::AtPrimary];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            ClientPlace::Anywhere => "anywhere",
            ClientPlace::AtPrimary => "at the primary",
        }
    }
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    Write(WriteRoute),
    Read(ReadRoute),
}

/// How often a client begins with a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// It always has so many in flight.
    Busy(u32),
    /// After times between 0 and twice this one.
    Every(Time),
}

/// Clients that all do the same.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) nodes: Vec<u32>,
    pub(crate) task: Task,
    pub(crate) place: ClientPlace,
    pub(crate) pace: Pace,
}

/// Bricks that are rebuilt.
#[derive(Clone, Debug)]
pub(crate) struct Rebuilds {
    pub(crate) route: RebuildRoute,
    /// For each brick: the groups with a unit on it, and its slots.
    pub(crate) lost: Vec<Vec<(usize, usize)>>,
    /// Units that are rebuilt together, for each brick.
    pub(crate) together: u32,
}

/// The network and the stripes on it.
#[derive(Clone, Copy)]
pub(crate) struct Stripes<'a> {
    pub(crate) network: &'a Network,
    pub(crate) code: Code,
    pub(crate) groups: &'a [Vec<u32>],
    pub(crate) grain: Grain,
}

/// What was observed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// How long each of the clients' stripes took that was done.
    pub(crate) latencies: Vec<Time>,
    /// Units that were rebuilt.
    pub(crate) rebuilt: u64,
    /// Stripes and units that were begun, units times links for them, and units that left clients.
    pub(crate) begun: u64,
    pub(crate) unit_hops: u64,
    pub(crate) sent: u64,
    pub(crate) rebuilds_begun: u64,
    pub(crate) rebuild_unit_hops: u64,
    /// Bytes on each link.
    pub(crate) links: Vec<u64>,
    /// The longest wait of a slice for a link.
    pub(crate) wait_most: Time,
}

/// Tags of rebuilds; those below are clients.
const REBUILD: u32 = 1 << 31;

struct Driver<'a> {
    stripes: Stripes<'a>,
    clients: &'a Clients,
    rebuilds: Option<&'a Rebuilds>,
    engine: Engine,
    random: Random,
    /// Groups that can be read.
    readable: Vec<usize>,
    /// The same, by node of the primary.
    led: Vec<Vec<usize>>,
    turns: Vec<usize>,
    /// Plans that are known, by client and group.
    plans: BTreeMap<(u32, usize), Plan>,
    observed: Observed,
}

impl Stripes<'_> {
    /// The groups of which at most M units are lost.
    pub(crate) fn readable(&self) -> Vec<usize> {
        let lost =
            |group: &Vec<u32>| group.iter().filter(|node| self.network.damage.empty.contains(node)).count();
        (0..self.groups.len()).filter(|&group| lost(&self.groups[group]) <= self.code.m()).collect()
    }

    fn plan(&self, task: Task, client: u32, group: usize) -> Plan {
        let group = &self.groups[group];
        let plan = match task {
            Task::Write(route) => write(self.network, self.code, route, client, group, None),
            Task::Read(route) => read(self.network, self.code, route, client, group, None),
        };
        plan.expect("only readable groups are read, and writes are modelled without failures")
    }

    /// Runs clients and rebuilds up to `until`, and observes from `ramp` on.
    pub(crate) fn observe(
        self,
        clients: &Clients,
        rebuilds: Option<&Rebuilds>,
        (until, ramp): (Time, Time),
        seed: u64,
    ) -> Observed {
        let mut driver = self.driver(clients, rebuilds, seed);
        driver.begin_all();
        driver.run(ramp);
        driver.observed = Observed::default();
        driver.engine.observe();
        driver.run(until);
        let links = &driver.engine.stations[..self.network.link_count()];
        let mut observed = driver.observed;
        observed.links = links.iter().map(|link| link.served).collect();
        observed.wait_most = links.iter().map(|link| link.wait_most).max().unwrap_or(0);
        observed
    }

    /// How long `count` stripes take, each alone in the network.
    pub(crate) fn alone(self, clients: &Clients, count: usize, seed: u64) -> Vec<Time> {
        let mut driver = self.driver(clients, None, seed);
        for at in 0..count {
            let client = at * clients.nodes.len() / count;
            driver.begin(client as u32);
            let told = driver.engine.next(Time::MAX);
            driver.note(told.expect("an operation ends"), Pace::Busy(0));
        }
        driver.observed.latencies
    }

    fn driver<'b>(self, clients: &'b Clients, rebuilds: Option<&'b Rebuilds>, seed: u64) -> Driver<'b>
    where
        Self: 'b,
    {
        let readable = self.readable();
        let mut led = vec![Vec::new(); self.network.nodes as usize];
        for &group in &readable {
            led[self.groups[group][primary_slot(self.code)] as usize].push(group);
        }
        Driver {
            stripes: self,
            clients,
            rebuilds,
            engine: Engine::new(self.network.stations(), self.grain),
            random: Random::new(seed),
            readable,
            led,
            turns: vec![0; rebuilds.map_or(0, |rebuilds| rebuilds.lost.len())],
            plans: BTreeMap::new(),
            observed: Observed::default(),
        }
    }
}

impl Driver<'_> {
    fn begin_all(&mut self) {
        for client in 0..self.clients.nodes.len() as u32 {
            match self.clients.pace {
                Pace::Busy(stripes) => (0..stripes).for_each(|_| self.begin(client)),
                Pace::Every(gap) => {
                    let at = self.random.below(2 * gap);
                    self.engine.call(at, client);
                }
            }
        }
        let Some(rebuilds) = self.rebuilds else { return };
        for brick in 0..rebuilds.lost.len() {
            (0..rebuilds.together).for_each(|_| self.rebuild(brick));
        }
    }

    fn run(&mut self, until: Time) {
        while let Some(told) = self.engine.next(until) {
            self.note(told, self.clients.pace);
        }
    }

    fn note(&mut self, told: Told, pace: Pace) {
        match (told, pace) {
            (Told::Done { tag, .. }, _) if tag >= REBUILD => {
                self.observed.rebuilt += 1;
                self.rebuild((tag - REBUILD) as usize);
            }
            (Told::Done { tag, begun, ended }, pace) => {
                self.observed.latencies.push(ended - begun);
                if matches!(pace, Pace::Busy(1..)) {
                    self.begin(tag);
                }
            }
            (Told::Called(client), Pace::Every(gap)) => {
                self.begin(client);
                let at = self.engine.now() + self.random.below(2 * gap);
                self.engine.call(at, client);
            }
            (Told::Called(_), Pace::Busy(_)) => unreachable!("nobody has asked for a call"),
        }
    }

    /// A client begins with its next stripe.
    fn begin(&mut self, client: u32) {
        let node = self.clients.nodes[client as usize];
        let own = &self.led[node as usize];
        let choice = match self.clients.place {
            ClientPlace::AtPrimary if !own.is_empty() => own,
            _ => &self.readable,
        };
        if choice.is_empty() {
            return;
        }
        let group = choice[self.random.below(choice.len() as u64) as usize];
        let (stripes, task) = (self.stripes, self.clients.task);
        let plan = self.plans.entry((node, group)).or_insert_with(|| stripes.plan(task, node, group)).clone();
        self.observed.begun += 1;
        self.observed.unit_hops += u64::from(plan.unit_hops);
        self.observed.sent += u64::from(plan.sent);
        self.engine.begin(plan, client);
    }

    /// The next unit of a brick is rebuilt.
    fn rebuild(&mut self, brick: usize) {
        let Some(rebuilds) = self.rebuilds else { return };
        let lost = &rebuilds.lost[brick];
        if lost.is_empty() {
            return;
        }
        let (round, at) = (self.turns[brick] / lost.len(), self.turns[brick] % lost.len());
        self.turns[brick] += 1;
        let (group, slot) = lost[at];
        let Stripes { network, code, groups, .. } = self.stripes;
        let plan = rebuild(network, code, rebuilds.route, &groups[group], slot, round + at);
        let plan = plan.expect("only readable groups are rebuilt");
        self.observed.rebuilds_begun += 1;
        self.observed.rebuild_unit_hops += u64::from(plan.unit_hops);
        self.engine.begin(plan, REBUILD | brick as u32);
    }
}
