//! What happens to the network of a storm: a cable that its topology has is cut, one of two rails is, and members that send on units
//! of others misbehave.

use std::collections::BTreeSet;

use layout::topology::{Shape, Topology, Vertex};
use types::NodeId;
use world::World;

use crate::cluster::{RAILS, brick_node, meta_nodes, rail};
use crate::relays::RelayFault;
use crate::storm::Storm;

/// How long relays misbehave at a time, in microseconds.
const RELAY_US: u64 = 3_000_000;
/// How long a cut cable is not noticed, at most, where there is another way, in microseconds: as measured with OSPF.
const REROUTE_US: u64 = 1_100_000;
/// How much longer frames take by the other way, at most, in microseconds.
const DETOUR_US: u64 = 2_000;
/// How long a cable stays cut that leaves two parts, at most, in microseconds: within the leases of clients.
const APART_US: u64 = 900_000;
/// How long a rail stays cut, at most, in microseconds: longer than it takes to notice.
const RAIL_US: u64 = 8_000_000;
/// Nodes besides the bricks.
const CLIENTS: [&str; 2] = ["clienta", "clientb"];

impl Storm<'_> {
    /// Members that send on units of others misbehave for a while.
    pub(crate) async fn relays_misbehave(&self, world: &World) {
        let (sim, fault) = (&self.cluster.sim, self.prng.pick(&RelayFault::ALL));
        let victim = self.relays.last().filter(|_| fault == RelayFault::Dies);
        let is_ours = |node: &String| !self.is_astray(node) && self.claim(node);
        if fault == RelayFault::Dies && !victim.as_ref().is_some_and(is_ours) {
            return;
        }
        let is_dead = || victim.as_ref().is_some_and(|node| !sim.is_alive(node));
        self.relays.begin(fault, victim.clone());
        let until = world.now() + RELAY_US;
        while world.now() < until && !is_dead() && !self.faults_are_over() {
            world.sleep(20_000).await;
        }
        self.relays.end();
        let Some(node) = &victim else { return };
        match is_dead() {
            true => self.tally.borrow_mut().relays_died += 1,
            // It may have been told to die already.
            false => sim.kill(node),
        }
        world.sleep(self.prng.below(500_000)).await;
        self.up_again(node);
    }

    /// A cable of the topology is cut. If there is another way, packets take it after a while; otherwise there are two parts.
    pub(crate) async fn cut_a_cable(&self, world: &World) {
        let Some((text, _)) = &self.config.topology else { return };
        let topology: Topology = text.parse().expect("the service took it");
        let (sim, cable) = (&self.cluster.sim, self.prng.pick(&topology.links()));
        let here = reached(&topology, cable.0, cable);
        let has_another_way = here.contains(&cable.1);
        let nodes = self.places(&topology);
        let pairs: Vec<(&String, &String)> = nodes
            .iter()
            .enumerate()
            .flat_map(|(n, (a, at))| nodes[n + 1..].iter().map(move |(b, to)| ((a, *at), (b, *to))))
            .filter(|((_, at), (_, to))| match has_another_way {
                true => crosses(&topology, *at, *to, cable),
                false => here.contains(at) != here.contains(to),
            })
            .map(|((a, _), (b, _))| (a, b))
            .collect();
        pairs.iter().for_each(|(a, b)| sim.partition(a, b, true));
        world.sleep(self.prng.below(if has_another_way { REROUTE_US } else { APART_US })).await;
        let is_over = |(a, b): &&(&String, &String)| !self.is_cut_off(a) && !self.is_cut_off(b);
        pairs.iter().filter(is_over).for_each(|(a, b)| sim.partition(a, b, false));
        if pairs.is_empty() {
            return;
        }
        if !has_another_way {
            self.tally.borrow_mut().cables_apart += 1;
            return;
        }
        self.tally.borrow_mut().cables_around += 1;
        pairs.iter().for_each(|(a, b)| sim.slow_link(a, b, DETOUR_US));
        world.sleep(self.prng.below(2_000_000)).await;
        pairs.iter().for_each(|(a, b)| sim.slow_link(a, b, 0));
    }

    /// Where bricks, clients and metadata servers are: a brick at its node; the others at the switch, or at nodes in front.
    fn places(&self, topology: &Topology) -> Vec<(String, Vertex)> {
        let front = topology.front();
        let others = CLIENTS.iter().chain(meta_nodes()).enumerate().map(|(n, name)| {
            let at = match topology.shape() {
                Shape::Flat | Shape::FatTree => Vertex::Core,
                _ => Vertex::Node(front[n % front.len()]),
            };
            ((*name).to_owned(), at)
        });
        // The spare brick of a storm with long files has a node of the topology, too.
        let bricks = (0..self.config.bricks).map(|n| (brick_node(n), Vertex::Node(NodeId(n))));
        bricks.chain(others).collect()
    }

    /// One of the two networks is cut: from one brick or from all, both ways or one. The other one is left alone.
    pub(crate) async fn cut_a_rail(&self, world: &World) {
        // Both at once are a partition.
        if self.rail_is_cut.replace(true) {
            return;
        }
        let (which, how) = (self.prng.pick(&RAILS), self.prng.below(3));
        let one = self.prng.below(u64::from(self.config.bricks)) as u32;
        let bricks: Vec<u32> = match self.prng.coin() {
            true => (0..self.config.bricks).collect(),
            false => vec![one],
        };
        let mut callers: Vec<String> = (0..self.config.bricks).map(brick_node).collect();
        callers.extend(CLIENTS.iter().chain(meta_nodes()).map(|name| (*name).to_owned()));
        self.set_rails(&callers, &bricks, which, how, true);
        world.sleep(self.prng.below(RAIL_US)).await;
        self.set_rails(&callers, &bricks, which, how, false);
        self.rail_is_cut.set(false);
    }

    fn set_rails(&self, callers: &[String], bricks: &[u32], which: char, how: u64, cut: bool) {
        let sim = &self.cluster.sim;
        for brick in bricks {
            let (node, rail) = (brick_node(*brick), rail(*brick, which));
            let others = callers.iter().filter(|caller| **caller != node);
            let others = others.filter(|caller| cut || !self.is_cut_off(caller) && !self.is_cut_off(&node));
            others.for_each(|caller| match how {
                0 => sim.partition(caller, &rail, cut),
                1 => sim.cut_one_way(caller, &rail, cut),
                _ => sim.cut_one_way(&rail, caller, cut),
            });
        }
    }
}

/// What is reached from a vertex without this cable.
fn reached(topology: &Topology, from: Vertex, without: (Vertex, Vertex)) -> BTreeSet<Vertex> {
    let (mut reached, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = next.pop() {
        let others = topology.neighbours(at).into_iter();
        let others = others.filter(|to| (at, *to) != without && (*to, at) != without);
        next.extend(others.filter(|to| reached.insert(*to)).collect::<Vec<Vertex>>());
    }
    reached
}

/// Whether packets from one place to another go over a cable.
fn crosses(topology: &Topology, from: Vertex, to: Vertex, cable: (Vertex, Vertex)) -> bool {
    // Only trees have switches, and a tree has no other way.
    let (Vertex::Node(from), Vertex::Node(to)) = (from, to) else { return false };
    let is_it = |pair: &[Vertex]| (pair[0], pair[1]) == cable || (pair[1], pair[0]) == cable;
    topology.route(from, to).windows(2).any(is_it)
}
