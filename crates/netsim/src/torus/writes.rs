//! Writes of whole stripes, by route.

use layout::{Relay, Sender};
use types::{Code, NodeId};

use super::messages::Message;
use super::network::{Network, Place};
use super::plan::{Part, Plan, Planner};

/// By which way the units of a stripe reach their bricks: the choices of `shoal mount --encode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteRoute {
    /// The client encodes and sends each unit to its brick.
    Client,
    /// The client sends the data units to the primary, which encodes and sends each unit to its brick.
    Primary,
    /// The units go along the tree of [`Relay`], and a member that has K units computes the others that are needed behind it.
    Relay,
    /// What a mount chooses by itself: the one with the fewest unit-hops, if it is clearly better than the first.
    Auto,
}

impl WriteRoute {
    /// All of them.
    pub const ALL: [WriteRoute; 4] =
        [WriteRoute::Client, WriteRoute::Primary, WriteRoute::Relay, WriteRoute::Auto];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            WriteRoute::Client => "client",
            WriteRoute::Primary => "primary",
            WriteRoute::Relay => "relay",
            WriteRoute::Auto => "auto",
        }
    }
}

/// The slot of the primary while all are live.
pub(crate) fn primary_slot(code: Code) -> usize {
    if code.m() > 0 { code.k() } else { 0 }
}

/// A write by the client at node `client` to the nodes of a group, by slot; of a whole stripe, if no part is told. What is not
/// a whole stripe goes through the primary by any route. [`None`] if a member is lost.
pub(crate) fn write(
    network: &Network,
    code: Code,
    route: WriteRoute,
    client: u32,
    group: &[u32],
    part: Option<&Part>,
) -> Option<Plan> {
    let members: Vec<NodeId> = group.iter().copied().map(NodeId).collect();
    let mut planner = Planner::new(network, code, part);
    let is_whole = part.is_none_or(Part::is_whole);
    match if is_whole { route } else { WriteRoute::Primary } {
        WriteRoute::Client => by_client(&mut planner, code, client, group),
        WriteRoute::Primary => by_primary(&mut planner, code, client, group),
        WriteRoute::Relay => {
            let relay = Relay::new(network.topology(), code, NodeId(client), &members)?;
            by_relay(&mut planner, code, &relay, client, group);
        }
        WriteRoute::Auto => {
            let (sender, primary) = (Sender::At(NodeId(client)), primary_slot(code));
            match layout::WriteRoute::cheapest(network.topology(), code, sender, &members, primary) {
                layout::WriteRoute::Direct => by_client(&mut planner, code, client, group),
                layout::WriteRoute::Primary => by_primary(&mut planner, code, client, group),
                layout::WriteRoute::Relay(relay) => by_relay(&mut planner, code, &relay, client, group),
            }
        }
    }
    Some(planner.plan)
}

fn by_client(planner: &mut Planner<'_>, code: Code, client: u32, group: &[u32]) {
    let at = Place::Client(client);
    let encoded = planner.compute(at, code.k(), &[]);
    let mut done = Vec::new();
    for (slot, &node) in group.iter().enumerate() {
        let after: &[usize] = if slot < code.k() { &[] } else { &[encoded] };
        let unit = planner.send((Message::Stage, slot), at, Place::Brick(node), after);
        done.extend(planner.answered(Message::Done, unit, Place::Node(node), at));
    }
    order(planner, code, client, group, &done);
}

/// When all units are staged, the primary orders the write: a message and an answer. Meanwhile it tells the members.
fn order(planner: &mut Planner<'_>, code: Code, client: u32, group: &[u32], staged: &[usize]) {
    let slot = primary_slot(code);
    let (client, primary) = (Place::Client(client), Place::Node(group[slot]));
    let Some(told) = planner.tell(Message::Write, client, primary, staged) else {
        planner.plan.tail = planner.network.delay(client, primary) + planner.network.delay(primary, client);
        return;
    };
    let mut prepared = Vec::new();
    for (_, &node) in group.iter().enumerate().filter(|&(other, _)| other != slot) {
        let node = Place::Node(node);
        let taken = planner.tell(Message::Take, primary, node, &[told]);
        prepared.extend(taken.and_then(|taken| planner.answered(Message::Prepared, taken, node, primary)));
    }
    planner.tell(Message::Done, primary, client, &prepared);
}

fn by_primary(planner: &mut Planner<'_>, code: Code, client: u32, group: &[u32]) {
    let (client, primary) = (Place::Client(client), Place::Node(group[primary_slot(code)]));
    let mut data = vec![None; code.k()];
    let mut message = Message::Write;
    for slot in (0..code.k()).filter(|&slot| planner.has(slot)).collect::<Vec<usize>>() {
        data[slot] = Some(planner.send((message, slot), client, primary, &[]));
        message = Message::Further;
    }
    let all: Vec<usize> = data.iter().copied().flatten().collect();
    let encoded = planner.compute(primary, code.k(), &all);
    planner.after_all(encoded, &all);
    let mut prepared = Vec::new();
    for (slot, &node) in group.iter().enumerate() {
        let Some(after) = data.get(slot).copied().unwrap_or(Some(encoded)) else { continue };
        let unit = planner.send((Message::Prepare, slot), primary, Place::Brick(node), &[after]);
        if slot < code.k() {
            planner.after_all(unit, &all);
        }
        prepared.extend(planner.answered(Message::Prepared, unit, Place::Node(node), primary));
    }
    if planner.tell(Message::Done, primary, client, &prepared).is_none() {
        planner.plan.tail = planner.network.delay(primary, client);
    }
}

fn by_relay(planner: &mut Planner<'_>, code: Code, relay: &Relay, client: u32, group: &[u32]) {
    let sources: Vec<Option<usize>> = relay.steps.iter().map(|step| step.source).collect();
    let mut tree = Tree { planner, code, group, sources, client, at_client: None, held: Vec::new() };
    tree.held = vec![None; group.len()];
    let mut done = Vec::new();
    for (slot, &node) in group.iter().enumerate() {
        let brick = tree.unit_at(Some(slot), slot);
        // Its own unit goes from the RAM of the member to its brick.
        let stored =
            tree.planner.send((Message::Further, slot), Place::Node(node), Place::Brick(node), &[brick]);
        let (member, client) = (Place::Node(node), Place::Client(client));
        done.extend(tree.planner.answered(Message::Done, stored, member, client));
    }
    order(planner, code, client, group, &done);
}

/// What a member of the tree has got.
#[derive(Clone, Debug)]
struct Held {
    /// The units that came, and the transfers that brought them.
    units: Vec<(usize, usize)>,
    /// What stands for the units that are computed from these, once it is needed.
    computed: Option<usize>,
}

/// The transfers along a tree, made as they are needed: those to a member before those from it.
struct Tree<'p, 'a> {
    planner: &'p mut Planner<'a>,
    code: Code,
    group: &'p [u32],
    sources: Vec<Option<usize>>,
    client: u32,
    /// The client's parity.
    at_client: Option<usize>,
    held: Vec<Option<Held>>,
}

impl Tree<'_, '_> {
    /// The slots that are served through a slot, itself included; the data slots if they are more than K.
    fn needed(&self, slot: usize) -> Vec<usize> {
        let is_behind =
            |&at: &usize| std::iter::successors(Some(at), |&at| self.sources[at]).any(|at| at == slot);
        let behind: Vec<usize> = (0..self.sources.len()).filter(is_behind).collect();
        if behind.len() > self.code.k() { (0..self.code.k()).collect() } else { behind }
    }

    /// The transfer after which a unit is at a member; [`None`] is the client.
    fn unit_at(&mut self, member: Option<usize>, unit: usize) -> usize {
        let Some(slot) = member else { return self.parity_at_client() };
        if self.held[slot].is_none() {
            self.serve(slot);
        }
        let held = self.held[slot].clone().expect("it has just been served");
        if let Some(&(_, transfer)) = held.units.iter().find(|(held, _)| *held == unit) {
            return transfer;
        }
        if let Some(computed) = held.computed {
            return computed;
        }
        let all: Vec<usize> = held.units.iter().map(|&(_, transfer)| transfer).collect();
        let computed = self.planner.compute(Place::Node(self.group[slot]), self.code.k(), &all);
        self.held[slot] = Some(Held { computed: Some(computed), ..held });
        computed
    }

    fn parity_at_client(&mut self) -> usize {
        let computed = match self.at_client {
            Some(computed) => computed,
            None => self.planner.compute(Place::Client(self.client), self.code.k(), &[]),
        };
        self.at_client = Some(computed);
        computed
    }

    /// Brings a member what it needs.
    fn serve(&mut self, slot: usize) {
        let source = self.sources[slot];
        let from = source.map_or(Place::Client(self.client), |source| Place::Node(self.group[source]));
        let mut units = Vec::new();
        for unit in self.needed(slot) {
            let is_clients_data = source.is_none() && unit < self.code.k();
            let after = if is_clients_data { Vec::new() } else { vec![self.unit_at(source, unit)] };
            let to = Place::Node(self.group[slot]);
            units.push((unit, self.planner.send((Message::Stage, unit), from, to, &after)));
        }
        self.held[slot] = Some(Held { units, computed: None });
    }
}
