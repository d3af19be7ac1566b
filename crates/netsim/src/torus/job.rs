//! A client that writes or reads given stripes once, on any network: what a run of the lab does.

use std::collections::VecDeque;
use std::ops::Range;

use layout::topology::{Topology, Vertex};
use types::{Code, NodeId};

use super::engine::{Engine, Grain, Told};
use super::network::{Damage, Network, Parts};
use super::plan::{Part, Plan};
use super::reads::{ReadRoute, read};
use super::writes::{WriteRoute, write};
use crate::packet::PAYLOAD;
use crate::setup::{Refused, within};
use crate::time::{Rate, SECOND, Time, US};

/// Slices of a unit that may be on their way: as many as there are. Nothing is dropped, so TCP's windows grow.
const WINDOW: u32 = 1 << 20;
/// Bytes of a unit.
const UNIT_MAX: u64 = 16 << 20;
/// Stripes of all lanes.
const PIECES_MAX: u64 = 1 << 16;

/// What is done with stripes, and by which route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Writes.
    Write(WriteRoute),
    /// Reads.
    Read(ReadRoute),
}

/// A stripe, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The nodes of its group, by slot.
    pub group: Vec<u32>,
    /// Which bytes of its data.
    pub range: Range<u64>,
}

/// Stripes one after the other, of which some are in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The stripes.
    pub pieces: Vec<Piece>,
    /// How many are in flight.
    pub together: usize,
}

/// A client, and what it does.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The network: nodes with a brick, the client, and whatever else forwards.
    pub topology: &'a Topology,
    /// The client's node.
    pub client: u32,
    /// The code of the stripes.
    pub code: Code,
    /// Bytes of a unit.
    pub unit: u64,
    /// Rate of a cable in each direction.
    pub link: Rate,
    /// A cable and the node at its end that forwards, in microseconds.
    pub hop_us: u64,
    /// Bytes per second from which a node computes units.
    pub compute: u64,
    /// What is done.
    pub work: Work,
    /// Packets, acknowledgements and the product's small messages are counted one by one, and whoever forwards a stripe takes it in
    /// as a whole. Otherwise: units only, slice by slice, as in [`Model`](super::Model).
    pub is_exact: bool,
    /// The stripes.
    pub lanes: Vec<Lane>,
}

/// What was done.
#[derive(Clone, PartialEq, Debug)]
pub struct Done {
    /// From the begin until the last answer.
    pub seconds: f64,
    /// Bytes of user data.
    pub bytes: u64,
    /// Bytes on each link: those of the wire, if they were counted; otherwise payload.
    pub links: Vec<((Vertex, Vertex), u64)>,
}

impl Done {
    /// Bytes of user data per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Bytes on all links together.
    pub fn on_all(&self) -> u64 {
        self.links.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes on the link with most of them.
    pub fn on_worst(&self) -> u64 {
        self.links.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }

    /// Bytes that leave a node, without those that come to it, or the other way round: what it forwards does not count.
    pub fn of_node(&self, node: u32) -> u64 {
        let node = Vertex::Node(NodeId(node));
        let sum = |is_it: &dyn Fn((Vertex, Vertex)) -> bool| -> u64 {
            self.links.iter().filter(|(ends, _)| is_it(*ends)).map(|(_, bytes)| bytes).sum()
        };
        sum(&|(from, _)| from == node).abs_diff(sum(&|(_, to)| to == node))
    }
}

impl Job<'_> {
    /// Does it.
    ///
    /// # Errors
    /// What cannot be modelled: a node that is not there, or a number out of range.
    pub fn run(&self) -> Result<Done, Refused> {
        self.check()?;
        let parts = Parts {
            link: self.link,
            hop: self.hop_us * US,
            compute: self.compute as f64,
            client: None,
            brick: None,
            is_exact: self.is_exact,
        };
        let network = match Network::new(self.topology, Damage::default(), parts) {
            Ok(network) => network,
            Err(why) => return Err(refused(why.to_string(), "a network that hangs together")),
        };
        let grain = Grain { unit: self.unit, slice: PAYLOAD.into(), window: WINDOW };
        let mut engine = Engine::new(network.stations(), grain);
        let mut waiting: Vec<VecDeque<&Piece>> =
            self.lanes.iter().map(|lane| lane.pieces.iter().collect()).collect();
        for (tag, (lane, waiting)) in (0..).zip(self.lanes.iter().zip(&mut waiting)) {
            for piece in waiting.drain(..lane.together.min(lane.pieces.len())) {
                engine.begin(self.plan(&network, piece)?, tag);
            }
        }
        let mut last = 0;
        while let Some(Told::Done { tag, ended, .. }) = engine.next(Time::MAX) {
            last = ended;
            if let Some(piece) = waiting[tag as usize].pop_front() {
                engine.begin(self.plan(&network, piece)?, tag);
            }
        }
        let links = network.links().map(|(ends, link)| (ends, engine.stations[link as usize].served));
        Ok(Done {
            seconds: last as f64 / SECOND as f64,
            bytes: self.pieces().map(|piece| piece.range.end - piece.range.start).sum(),
            links: links.collect(),
        })
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.lanes.iter().flat_map(|lane| &lane.pieces)
    }

    fn check(&self) -> Result<(), Refused> {
        within("bytes of a unit,", self.unit, 1, UNIT_MAX)?;
        within("bit/s of a cable,", self.link.0, 1_000_000, 800_000_000_000)?;
        within("us of a hop,", self.hop_us, 0, 1_000_000)?;
        within("bytes per second of a node that computes,", self.compute, 1_000_000, 1_000_000_000_000)?;
        within("stripes,", self.pieces().count() as u64, 1, PIECES_MAX)?;
        let is_there = |node: u32| self.topology.nodes().contains_key(&NodeId(node));
        let stripe = self.unit * self.code.k() as u64;
        let is_sound = |piece: &Piece| {
            piece.group.len() == self.code.slots()
                && piece.group.iter().all(|&node| is_there(node))
                && piece.range.start < piece.range.end
                && piece.range.end <= stripe
        };
        if !is_there(self.client) || !self.pieces().all(is_sound) {
            return Err(refused("a node or a stripe is not there".to_owned(), "nodes of the network"));
        }
        if self.lanes.iter().any(|lane| lane.together == 0) {
            return Err(refused("no stripe is in flight".to_owned(), "one or more"));
        }
        Ok(())
    }

    fn plan(&self, network: &Network, piece: &Piece) -> Result<Plan, Refused> {
        let (unit, units) = (self.unit, self.code.k() as u64);
        let part = Part { unit, units, range: piece.range.clone() };
        let (client, group) = (self.client, &piece.group);
        let plan = match self.work {
            Work::Write(route) => write(network, self.code, route, client, group, Some(&part)),
            Work::Read(route) => read(network, self.code, route, client, group, Some(&part)),
        };
        plan.ok_or_else(|| refused("no tree of sends is there".to_owned(), "another route"))
    }
}

fn refused(what: String, remedy: &str) -> Refused {
    Refused { what, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::topology::Shape;

    /// Ten nodes with a brick and a client on one switch.
    fn tree() -> Topology {
        Topology::numbered(Shape::Flat, &(1..=11).map(NodeId).collect()).expect("a tree")
    }

    fn job(topology: &Topology, work: Work, pieces: Vec<Piece>) -> Job<'_> {
        Job {
            topology,
            client: 11,
            code: "8+2".parse().expect("a code"),
            unit: 64 << 10,
            link: Rate::mbit(200),
            hop_us: 1,
            compute: 5_000_000_000,
            work,
            is_exact: true,
            lanes: vec![Lane { pieces, together: 8 }],
        }
    }

    fn stripes(count: u32) -> Vec<Piece> {
        let group = |first: u32| (0..10).map(|slot| (first + slot) % 10 + 1).collect();
        (0..count).map(|stripe| Piece { group: group(stripe), range: 0..512 << 10 }).collect()
    }

    const WRITE: Work = Work::Write(WriteRoute::Client);

    #[test]
    fn the_clients_cable_is_the_limit_on_a_switch() {
        let tree = tree();
        let payload = Rate::mbit(200).payload();
        for (work, units) in
            [(WRITE, 10.0), (Work::Write(WriteRoute::Primary), 8.0), (Work::Read(ReadRoute::Direct), 8.0)]
        {
            let plain = Job { is_exact: false, ..job(&tree, work, stripes(40)) }.run().expect("it runs");
            let exact = job(&tree, work, stripes(40)).run().expect("it runs");
            let most = payload * 8.0 / units;
            assert!((0.95..=1.0).contains(&(plain.rate() / most)), "{work:?}: {}", plain.rate());
            assert!((0.92..=1.0).contains(&(exact.rate() / most)), "{work:?}: {}", exact.rate());
            let unit = 40.0 * (64 << 10) as f64;
            assert!((plain.of_node(11) as f64 / unit - units).abs() < 1e-9);
            // Headers are 4.6 % of the payload, acknowledgements 2.3 % the other way.
            assert!((1.0..1.05).contains(&(exact.of_node(11) as f64 / unit / units)));
            assert!((1.04..1.07).contains(&(exact.on_worst() as f64 / unit / units)), "{work:?}");
        }
    }

    #[test]
    fn a_part_of_a_stripe_is_written_through_the_primary_and_read_from_few_bricks() {
        let tree = tree();
        let piece = || vec![Piece { range: 0..100 << 10, ..stripes(1).remove(0) }];
        let kib = |work| {
            let done = Job { is_exact: false, ..job(&tree, work, piece()) }.run().expect("it runs");
            (done.on_all() >> 10, done.bytes >> 10)
        };
        // To the primary, then two data units and the other parity, each over two cables.
        assert_eq!(kib(WRITE), (2 * (100 + 100 + 64), 100));
        assert_eq!(kib(Work::Read(ReadRoute::Direct)), (2 * 100, 100));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let tree = tree();
        let good = || job(&tree, WRITE, stripes(1));
        let beyond = vec![Piece { range: 0..513 << 10, ..stripes(1).remove(0) }];
        let nobody = vec![Piece { group: (2..=12).take(10).map(|node| node + 3).collect(), range: 0..1 }];
        for bad in [
            job(&tree, WRITE, beyond),
            job(&tree, WRITE, nobody),
            job(&tree, WRITE, Vec::new()),
            Job { client: 12, ..good() },
            Job { unit: 0, ..good() },
            Job { lanes: vec![Lane { pieces: stripes(1), together: 0 }], ..good() },
        ] {
            assert!(bad.run().is_err(), "{bad:?}");
        }
    }
}
