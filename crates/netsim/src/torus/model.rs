//! The experiments, and what was measured.

use std::collections::{BTreeMap, BTreeSet};

use layout::PlacementError;
use layout::topology::Topology;
use types::NodeId;

use super::groups::{PlacementName, build};
use super::load::{ClientPlace, Clients, Observed, Pace, Rebuilds, Stripes, Task};
use super::network::{Damage, Failure, Network, Parts};
use super::reads::ReadRoute;
use super::rebuilds::RebuildRoute;
use super::setup::Setup;
use super::writes::{WriteRoute, primary_slot};
use crate::random::Random;
use crate::setup::Refused;
use crate::time::{SECOND, Time, US};

/// Stripes that are looked at alone.
const ALONE: usize = 64;
/// A rebuild runs longer than other experiments by these factors, alone and under load: a new brick gets few units in the time
/// in which hundreds of clients get thousands.
const LONE_REBUILD: u64 = 10;
const LOADED_REBUILD: u64 = 2;

/// The load of the links, while it counted.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Links {
    /// The mean over all links and both directions, as a part of what a link can carry.
    pub mean: f64,
    /// The most loaded one.
    pub worst: f64,
    /// Bytes that would have to wait for a link in a node's RAM, at most.
    pub waiting: u64,
}

/// How long stripes took, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
}

/// Writes of whole stripes by clients that always have some in flight.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Writes {
    /// Bytes of user data per second, of each client.
    pub rate: f64,
    /// The same, over what one cable can carry.
    pub share: f64,
    /// Units times links for a stripe.
    pub unit_hops: f64,
    /// Units that leave the client for a stripe.
    pub sent: f64,
    /// The links.
    pub links: Links,
    /// Stripes that are alone in the network: the mean.
    pub alone_us: f64,
    /// Stripes under this load.
    pub loaded: Latency,
}

/// Reads of whole stripes: the same numbers.
pub type Reads = Writes;

/// Reads with a failure.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DegradedReads {
    /// Clients that are left.
    pub clients: usize,
    /// Groups with more than M units lost, as a part of all.
    pub unreadable: f64,
    /// Groups without a data unit, but readable, as a part of all.
    pub decoded: f64,
    /// Bytes of user data per second of each client, if they always have some stripes in flight.
    pub rate: f64,
    /// At the load of the setup.
    pub loaded: Latency,
    /// The links at that load.
    pub links: Links,
}

/// The load under which bricks are rebuilt: reads.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Baseline {
    /// Bytes of user data per second of each client.
    pub rate: f64,
    /// Reads without a rebuild, with the brick still empty.
    pub reads: Latency,
}

/// Bricks that are rebuilt in their old places.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rebuild {
    /// Bricks.
    pub bricks: usize,
    /// The part of their units that can be rebuilt.
    pub possible: f64,
    /// Nodes that have units of the groups of one brick: the mean.
    pub peers: f64,
    /// Bytes per second that each brick gets.
    pub rate: f64,
    /// Seconds for a full brick at this rate, or for the part of it that can be rebuilt.
    pub seconds: f64,
    /// Units times links for a unit that is rebuilt.
    pub unit_hops: f64,
    /// The links.
    pub links: Links,
    /// Reads meanwhile, if there were any.
    pub reads: Option<Latency>,
}

/// A torus, and the tables of groups on it.
pub struct Model {
    setup: Setup,
    topology: Topology,
    tables: BTreeMap<PlacementName, Vec<Vec<u32>>>,
}

impl Model {
    /// Checks the setup and makes the tables.
    ///
    /// # Errors
    /// What cannot be modelled.
    pub fn new(setup: Setup) -> Result<Model, Refused> {
        setup.check()?;
        let count = setup.shape.places().count() as u32;
        let nodes: BTreeSet<NodeId> = (0..count).map(NodeId).collect();
        let refused = |what: String| Refused { what, remedy: "another shape or code".to_owned() };
        let topology =
            Topology::numbered(setup.shape.clone(), &nodes).map_err(|why| refused(why.to_string()))?;
        let mut tables = BTreeMap::new();
        for name in PlacementName::ALL {
            match build(name, &topology, setup.code) {
                Ok(table) => {
                    tables.insert(name, table);
                }
                // A small torus has too few rows for this one.
                Err(PlacementError::TooFewOfDomain { .. }) if name == PlacementName::NearRows => {}
                Err(why) => return Err(refused(why.to_string())),
            }
        }
        Ok(Model { setup, topology, tables })
    }

    /// What is modelled.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The placements that fit: a torus may have too few rows.
    pub fn placements(&self) -> Vec<PlacementName> {
        self.tables.keys().copied().collect()
    }

    /// The routes of writes that fit. Clients on cables of their own do not choose: a mount outside counts its own link, and may
    /// enter at several nodes.
    pub fn write_routes(&self) -> Vec<WriteRoute> {
        let fits = |&route: &WriteRoute| route != WriteRoute::Auto || self.setup.client.is_none();
        WriteRoute::ALL.into_iter().filter(fits).collect()
    }

    /// Nodes.
    pub fn nodes(&self) -> usize {
        self.topology.nodes().len()
    }

    /// Hops between two nodes: the mean over all pairs of different ones.
    pub fn mean_hops(&self) -> f64 {
        let nodes = self.topology.nodes();
        let pairs = nodes.keys().flat_map(|&from| nodes.keys().map(move |&to| (from, to)));
        let all: u64 = pairs.filter_map(|(from, to)| self.topology.hops(from, to)).map(u64::from).sum();
        all as f64 / (nodes.len() * (nodes.len() - 1)) as f64
    }

    /// The longest way from a primary to a member of its group, in hops.
    ///
    /// # Panics
    /// If the placement is not among [`Model::placements`].
    pub fn radius(&self, placement: PlacementName) -> u32 {
        let primary = primary_slot(self.setup.code);
        let ways = self.tables[&placement]
            .iter()
            .flat_map(|group| group.iter().map(move |&node| (NodeId(group[primary]), NodeId(node))));
        ways.filter_map(|(from, to)| self.topology.hops(from, to)).max().unwrap_or(0)
    }

    /// Other bricks with which a brick shares groups: the mean.
    ///
    /// # Panics
    /// As for [`Model::radius`].
    pub fn peers(&self, placement: PlacementName) -> f64 {
        let groups = &self.tables[&placement];
        let all: usize = (0..self.nodes() as u32).map(|node| peers(groups, node)).sum();
        all as f64 / self.nodes() as f64
    }

    /// Writes.
    ///
    /// # Panics
    /// As for [`Model::radius`].
    pub fn writes(&self, placement: PlacementName, place: ClientPlace, route: WriteRoute) -> Writes {
        self.busy(placement, place, Task::Write(route))
    }

    /// Reads.
    ///
    /// # Panics
    /// As for [`Model::radius`].
    pub fn reads(&self, placement: PlacementName, place: ClientPlace, route: ReadRoute) -> Reads {
        self.busy(placement, place, Task::Read(route))
    }

    /// The nodes of each group by slot.
    #[cfg(test)]
    pub(super) fn table(&self, placement: PlacementName) -> &[Vec<u32>] {
        &self.tables[&placement]
    }

    fn busy(&self, placement: PlacementName, place: ClientPlace, task: Task) -> Writes {
        let network = self.network(Damage::default());
        let stripes = self.stripes(&network, placement);
        let pace = Pace::Busy(self.setup.stripes);
        let clients = Clients { nodes: self.client_nodes(&network.damage), task, place, pace };
        let observed = stripes.observe(&clients, None, self.setup.times(), self.setup.seed);
        let alone = stripes.alone(&clients, ALONE, self.setup.seed);
        let rate = self.rate(&observed, clients.nodes.len());
        Writes {
            rate,
            share: rate / self.setup.link.payload(),
            unit_hops: over(observed.unit_hops, observed.begun),
            sent: over(observed.sent, observed.begun),
            links: links(&self.setup, &observed),
            alone_us: latency(alone).mean_us,
            loaded: latency(observed.latencies),
        }
    }

    /// Direct reads by clients anywhere, with a failure in a place that the seed decides. `intact` is the rate of
    /// [`Model::reads`] without one.
    ///
    /// # Panics
    /// As for [`Model::radius`].
    pub fn degraded(&self, placement: PlacementName, failure: Failure, intact: f64) -> DegradedReads {
        let damage = Damage::new(failure, &self.topology, self.setup.seed);
        let network = self.network(damage);
        let stripes = self.stripes(&network, placement);
        let mut clients = self.readers(&network.damage, Pace::Busy(self.setup.stripes));
        let busy = stripes.observe(&clients, None, self.setup.times(), self.setup.seed);
        clients.pace = self.pace(intact);
        let loaded = stripes.observe(&clients, None, self.setup.times(), self.setup.seed);
        let readable = stripes.readable();
        let lacks_data = |&&group: &&usize| {
            let data = &stripes.groups[group][..self.setup.code.k()];
            data.iter().any(|node| network.damage.empty.contains(node))
        };
        let groups = stripes.groups.len();
        DegradedReads {
            clients: clients.nodes.len(),
            unreadable: (groups - readable.len()) as f64 / groups as f64,
            decoded: readable.iter().filter(lacks_data).count() as f64 / groups as f64,
            rate: self.rate(&busy, clients.nodes.len()),
            links: links(&self.setup, &loaded),
            loaded: latency(loaded.latencies),
        }
    }

    /// Reads under the load of the setup while the bricks that `failure` took are back, and empty. `intact` is as for
    /// [`Model::degraded`].
    ///
    /// # Panics
    /// As for [`Model::radius`].
    pub fn baseline(&self, placement: PlacementName, failure: Failure, intact: f64) -> Baseline {
        let network = self.network(self.replaced(failure));
        let stripes = self.stripes(&network, placement);
        let clients = self.readers(&network.damage, self.pace(intact));
        let observed = stripes.observe(&clients, None, self.setup.times(), self.setup.seed);
        Baseline { rate: intact * self.setup.load, reads: latency(observed.latencies) }
    }

    /// The bricks that `failure` took are rebuilt in their old places, alone or under `load`.
    ///
    /// # Panics
    /// As for [`Model::radius`].
    pub fn rebuild(
        &self,
        placement: PlacementName,
        route: RebuildRoute,
        failure: Failure,
        load: Option<Baseline>,
    ) -> Rebuild {
        let network = self.network(self.replaced(failure));
        let stripes = self.stripes(&network, placement);
        let mut clients = self.readers(&network.damage, Pace::Busy(0));
        if let Some(load) = load {
            clients.pace = self.pace(load.rate / self.setup.load);
        }
        let bricks: Vec<u32> = network.damage.empty.iter().copied().collect();
        let lost: Vec<Vec<(usize, usize)>> = bricks.iter().map(|&brick| self.lost(&stripes, brick)).collect();
        let peers: usize = bricks.iter().map(|&brick| peers(stripes.groups, brick)).sum();
        let of = |brick: &u32| stripes.groups.iter().filter(|group| group.contains(brick)).count();
        let all: usize = bricks.iter().map(of).sum();
        let possible = over(lost.iter().map(Vec::len).sum::<usize>() as u64, all as u64);
        let rebuilds = Rebuilds { route, lost, together: self.setup.rebuilds };
        let longer = if load.is_some() { LOADED_REBUILD } else { LONE_REBUILD };
        let setup = Setup {
            ramp_us: self.setup.ramp_us * longer,
            time_us: self.setup.time_us * longer,
            ..self.setup.clone()
        };
        let observed = stripes.observe(&clients, Some(&rebuilds), setup.times(), setup.seed);
        let rate = observed.rebuilt as f64 * setup.unit as f64 / seconds(&setup) / bricks.len() as f64;
        Rebuild {
            bricks: bricks.len(),
            possible,
            peers: peers as f64 / bricks.len() as f64,
            rate,
            seconds: self.setup.brick_bytes as f64 * possible / rate,
            unit_hops: over(observed.rebuild_unit_hops, observed.rebuilds_begun),
            links: links(&setup, &observed),
            reads: load.map(|_| latency(observed.latencies)),
        }
    }

    /// The groups with a unit on a brick that can be rebuilt, and its slots, in any order.
    fn lost(&self, stripes: &Stripes<'_>, brick: u32) -> Vec<(usize, usize)> {
        let slot = |group: usize| stripes.groups[group].iter().position(|&node| node == brick);
        let lost: Vec<(usize, usize)> =
            stripes.readable().into_iter().filter_map(|group| Some((group, slot(group)?))).collect();
        let mut random = Random::new(self.setup.seed ^ u64::from(brick));
        random.choose(lost.len(), lost.len()).into_iter().map(|at| lost[at as usize]).collect()
    }

    /// What a failure leaves when new nodes, cables and bricks are in the old places.
    fn replaced(&self, failure: Failure) -> Damage {
        let damage = Damage::new(failure, &self.topology, self.setup.seed);
        Damage { empty: damage.empty, ..Damage::default() }
    }

    fn network(&self, damage: Damage) -> Network {
        let network = Network::new(&self.topology, damage, Parts::from(&self.setup));
        network.expect("a torus without a node, a cable or a row hangs together")
    }

    fn stripes<'a>(&'a self, network: &'a Network, placement: PlacementName) -> Stripes<'a> {
        let groups = &self.tables[&placement];
        Stripes { network, code: self.setup.code, groups, grain: self.setup.grain() }
    }

    /// The nodes of the clients: evenly distant by number, without those that are away.
    fn client_nodes(&self, damage: &Damage) -> Vec<u32> {
        let nodes = self.nodes() as u64;
        let clients = u64::from(self.setup.clients.unwrap_or(nodes as u32));
        let all = (0..clients).map(|client| (client * nodes / clients) as u32);
        all.filter(|node| !damage.away.contains(node)).collect()
    }

    fn readers(&self, damage: &Damage, pace: Pace) -> Clients {
        let task = Task::Read(ReadRoute::Direct);
        Clients { nodes: self.client_nodes(damage), task, place: ClientPlace::Anywhere, pace }
    }

    /// The pace of the setup's load. `intact` is what a client gets at most, in bytes per second.
    fn pace(&self, intact: f64) -> Pace {
        let gap = self.setup.stripe() as f64 / (intact * self.setup.load) * SECOND as f64;
        Pace::Every((gap as Time).max(1))
    }

    /// Bytes of user data per second of a client.
    fn rate(&self, observed: &Observed, clients: usize) -> f64 {
        observed.latencies.len() as f64 * self.setup.stripe() as f64 / seconds(&self.setup) / clients as f64
    }
}

fn seconds(setup: &Setup) -> f64 {
    setup.time_us as f64 / 1e6
}

fn links(setup: &Setup, observed: &Observed) -> Links {
    let most = setup.link.payload() * seconds(setup);
    let all: u64 = observed.links.iter().sum();
    Links {
        mean: all as f64 / observed.links.len() as f64 / most,
        worst: observed.links.iter().copied().max().unwrap_or(0) as f64 / most,
        waiting: (observed.wait_most as f64 / SECOND as f64 * setup.link.payload()) as u64,
    }
}

/// Other nodes that are in a group with this one.
fn peers(groups: &[Vec<u32>], node: u32) -> usize {
    let of = groups.iter().filter(|group| group.contains(&node)).flatten().copied();
    of.filter(|&other| other != node).collect::<BTreeSet<u32>>().len()
}

fn over(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn latency(mut times: Vec<Time>) -> Latency {
    times.sort_unstable();
    let Some(&longest) = times.last() else { return Latency::default() };
    let us = |time: Time| time as f64 / US as f64;
    let sum: u128 = times.iter().map(|&time| u128::from(time)).sum();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(longest);
    Latency { mean_us: sum as f64 / times.len() as f64 / US as f64, p99_us: us(p99) }
}
