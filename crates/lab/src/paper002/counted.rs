//! Bytes on the cables, counted honestly (the paper's Figures 5 and 6): a unit-hop is one unit over one cable.
//!
//! The paper counts messages: five data servers, each two hops from the client, make ten hops, and one primary makes two. But the
//! primary's message is as long as all data units, and what it sends on is on cables too.

use layout::topology::{LinkLoad, Topology, Vertex};
use serde_json::{Value, json};
use types::NodeId;

use super::networks::{Place, SERVERS};
use crate::document::Fields;
use crate::fabric::CableLoad;

/// What is done with whole stripes, and who encodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The client encodes, and sends each unit to its brick.
    ByClient,
    /// The client sends all data units to the primary, which encodes and sends each other unit to its brick.
    ByPrimary,
    /// The client reads the data units from their bricks.
    Read,
}

impl Route {
    /// All of them.
    pub const ALL: [Route; 3] = [Route::ByClient, Route::ByPrimary, Route::Read];

    /// In a few words.
    pub fn title(self) -> &'static str {
        match self {
            Route::ByClient => "write, client encodes",
            Route::ByPrimary => "write, primary encodes",
            Route::Read => "read",
        }
    }

    /// The word for it in `shoal mount --encode`.
    pub fn encode(self) -> &'static str {
        match self {
            Route::ByClient => "client",
            Route::ByPrimary => "primary",
            Route::Read => "auto",
        }
    }
}

/// What a stripe costs, as the mean over stripes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Unit-hops.
    pub unit_hops: f64,
    /// Units that leave the client, or come to it.
    pub client: f64,
    /// Units over the cable that has most of them, in one direction.
    pub worst: f64,
}

impl Cost {
    fn to_json(self) -> Value {
        json!({ "unit_hops": self.unit_hops, "client_units": self.client, "worst_cable_units": self.worst })
    }

    fn from_json(value: &Value) -> Option<Cost> {
        Some(Cost {
            unit_hops: value["unit_hops"].as_f64()?,
            client: value["client_units"].as_f64()?,
            worst: value["worst_cable_units"].as_f64()?,
        })
    }
}

/// What the paper counts: the messages of the client for a stripe, each times its hops.
pub fn message_hops(topology: &Topology, place: Place, route: Route) -> f64 {
    let far = |server| f64::from(topology.hops(NodeId(place.client()), NodeId(server)).unwrap_or_default());
    let all: f64 = (1..=SERVERS).map(far).sum();
    if route == Route::ByPrimary { all / f64::from(SERVERS) } else { all }
}

/// What a stripe of `data` units and parities on all servers costs by routes of the topology. Each server is the primary of as many
/// stripes as any other, and has as many data units.
pub fn predicted(topology: &Topology, place: Place, route: Route, data: u32) -> Cost {
    let (client, data) = (NodeId(place.client()), u64::from(data));
    let servers = || (1..=SERVERS).map(NodeId);
    let (mut load, mut by_client) = (LinkLoad::new(topology), 0);
    // One stripe for each primary.
    for primary in servers() {
        match route {
            Route::ByClient => servers().for_each(|server| load.add(topology, client, server, 1)),
            Route::ByPrimary => {
                load.add(topology, client, primary, data);
                let others = servers().filter(|server| *server != primary);
                others.for_each(|server| load.add(topology, primary, server, 1));
            }
            Route::Read => load.add(topology, primary, client, data),
        }
        by_client += if route == Route::ByClient { u64::from(SERVERS) } else { data };
    }
    let mean = |units: u64| units as f64 / f64::from(SERVERS);
    Cost { unit_hops: mean(load.hop_bytes()), client: mean(by_client), worst: mean(load.worst()) }
}

/// What a number of stripes cost: the bytes of all packets, in units.
pub fn measured(before: &[CableLoad], after: &[CableLoad], place: Place, unit: u32, stripes: u32) -> Cost {
    let client = Vertex::Node(NodeId(place.client()));
    let units = |bytes: u64| bytes as f64 / f64::from(unit) / f64::from(stripes);
    let (mut all, mut worst, mut to_client, mut from_client) = (0, 0, 0, 0);
    for (before, after) in before.iter().zip(after) {
        let bytes: [u64; 2] = std::array::from_fn(|way| after.counts[way].since(before.counts[way]).bytes);
        for ((from, to), bytes) in after.cable.directions().into_iter().zip(bytes) {
            all += bytes;
            worst = worst.max(bytes);
            to_client += if to == client { bytes } else { 0 };
            from_client += if from == client { bytes } else { 0 };
        }
    }
    // What it forwards for others comes and leaves.
    Cost { unit_hops: units(all), client: units(to_client.abs_diff(from_client)), worst: units(worst) }
}

/// Predicted and measured costs of a route.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountRun {
    /// Where the client was.
    pub place: Place,
    /// What it did.
    pub route: Route,
    /// Stripes.
    pub stripes: u32,
    /// Of them, as the mount says, those that the client has encoded.
    pub staged: u64,
    /// Messages of the client times their hops, as the paper counts.
    pub messages: f64,
    /// By the topology.
    pub predicted: Cost,
    /// On the cables: with headers, acknowledgements and small messages.
    pub measured: Cost,
}

impl CountRun {
    /// Measured over predicted unit-hops.
    pub fn ratio(&self) -> f64 {
        self.measured.unit_hops / self.predicted.unit_hops
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "place": self.place.title(), "route": self.route.title(), "stripes": self.stripes, "staged": self.staged,
            "message_hops": self.messages, "predicted": self.predicted.to_json(), "measured": self.measured.to_json(),
        })
    }

    pub(super) fn from_json(value: &Value) -> Option<CountRun> {
        let fields = Fields(value);
        Some(CountRun {
            place: fields.named("place", &Place::ALL, Place::title)?,
            route: fields.named("route", &Route::ALL, Route::title)?,
            stripes: fields.small("stripes")?,
            staged: fields.number("staged")?,
            messages: value["message_hops"].as_f64()?,
            predicted: Cost::from_json(&value["predicted"])?,
            measured: Cost::from_json(&value["measured"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Cable;
    use crate::iproute::Counts;

    fn cost(place: Place, route: Route) -> Cost {
        predicted(&place.network().expect("a network"), place, route, 8)
    }

    #[test]
    fn costs_of_a_tree_are_two_cables_for_each_unit() {
        let costs = Route::ALL.map(|route| cost(Place::Tree, route));
        // Ten units; eight to the primary and nine from it; eight.
        assert_eq!(costs.map(|cost| cost.unit_hops), [20.0, 34.0, 16.0]);
        assert_eq!(costs.map(|cost| cost.client), [10.0, 8.0, 8.0]);
        assert_eq!(costs.map(|cost| cost.worst), [10.0, 8.0, 8.0]);
    }

    #[test]
    fn costs_of_a_torus_are_those_of_its_distances() {
        // Distances of 17 in all from node 12, each one more from node 13.
        assert_eq!(cost(Place::Torus, Route::ByClient).unit_hops, 17.0);
        assert_eq!(cost(Place::Front, Route::ByClient).unit_hops, 27.0);
        assert!((cost(Place::Torus, Route::Read).unit_hops - 0.8 * 17.0).abs() < 1e-9);
        assert_eq!(cost(Place::Front, Route::ByPrimary).client, 8.0);
        let by_primary = cost(Place::Torus, Route::ByPrimary).unit_hops;
        assert!(by_primary > 0.8 * 17.0 + 9.0, "{by_primary}");
        // Four ports share what one cable has in front.
        assert!(cost(Place::Torus, Route::ByClient).worst < 5.0);
        assert_eq!(cost(Place::Front, Route::ByClient).worst, 10.0);
    }

    #[test]
    fn messages_count_as_in_the_paper() {
        let torus = Place::Front.network().expect("a torus");
        assert_eq!(message_hops(&torus, Place::Front, Route::ByClient), 27.0);
        assert!((message_hops(&torus, Place::Front, Route::ByPrimary) - 2.7).abs() < 1e-9);
    }

    #[test]
    fn bytes_on_cables_are_units() {
        let load = |(a, b), bytes: [u64; 2]| CableLoad {
            cable: Cable::new(Vertex::Node(NodeId(a)), Vertex::Node(NodeId(b))),
            is_cut: false,
            counts: bytes.map(|bytes| Counts { bytes, packets: 0, dropped: 0 }),
        };
        let before = [load((1, 12), [100, 100]), load((1, 2), [0, 0])];
        let after = [load((1, 12), [4196, 8292]), load((1, 2), [4096, 0])];
        let cost = measured(&before, &after, Place::Torus, 4096, 1);
        assert_eq!(cost, Cost { unit_hops: 4.0, client: 1.0, worst: 2.0 });
    }
}
