//! What is seen of a lab at one moment.

use layout::topology::{Topology, Vertex};
use serde_json::{Value, json};
use types::NodeId;

use crate::error::{LabError, Result, doing};
use crate::fabric::cable::name;
use crate::fabric::{Cable, CableLoad};
use crate::iproute::Counts;

/// What a node's brick does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrickState {
    /// It runs.
    Runs,
    /// It is stopped for this long again and again, in milliseconds.
    Slow(u64),
    /// It was killed.
    Killed,
    /// It has ended by itself.
    Ended,
}

/// A node at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeLook {
    /// Which.
    pub node: NodeId,
    /// Its brick's process.
    pub brick: BrickState,
    /// What the cluster says of its brick; [`None`] if the cluster does not answer.
    pub cluster: Option<String>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// Microseconds since the lab is up.
    pub at_us: u64,
    /// In the order of their numbers.
    pub nodes: Vec<NodeLook>,
    /// IP packets that each node and switch has forwarded for others.
    pub forwarded: Vec<(Vertex, u64)>,
    /// In the order of [`Cable::all`].
    pub cables: Vec<CableLoad>,
}

impl BrickState {
    fn word(self) -> &'static str {
        match self {
            BrickState::Runs => "runs",
            BrickState::Slow(_) => "slow",
            BrickState::Killed => "killed",
            BrickState::Ended => "ended",
        }
    }
}

impl Look {
    /// As a JSON value.
    pub fn to_json(&self) -> Value {
        let node = |look: &NodeLook| {
            let slow = match look.brick {
                BrickState::Slow(ms) => Some(ms),
                _ => None,
            };
            json!({
                "node": look.node.0, "brick": look.brick.word(), "slow_ms": slow, "cluster": look.cluster,
            })
        };
        let forwarded =
            |(vertex, packets): &(Vertex, u64)| json!({ "at": name(*vertex), "packets": packets });
        let counts = |counts: Counts| json!({ "bytes": counts.bytes, "packets": counts.packets, "dropped": counts.dropped });
        let cable = |load: &CableLoad| {
            let [there, back] = load.counts.map(counts);
            json!({ "cable": load.cable.to_string(), "cut": load.is_cut, "there": there, "back": back })
        };
        json!({
            "at_us": self.at_us,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "forwarded": self.forwarded.iter().map(forwarded).collect::<Vec<_>>(),
            "cables": self.cables.iter().map(cable).collect::<Vec<_>>(),
        })
    }

    /// Reads the output of [`Look::to_json`] about a lab of this topology.
    ///
    /// # Errors
    /// Something is missing or wrong.
    pub fn from_json(topology: &Topology, value: &Value) -> Result<Look> {
        let list = |name: &str| value[name].as_array().ok_or_else(|| wrong(name));
        let node = |value: &Value| {
            let slow = || number(value, "slow_ms").map(BrickState::Slow);
            let plain = [BrickState::Runs, BrickState::Killed, BrickState::Ended];
            let word = value["brick"].as_str().ok_or_else(|| wrong("brick"))?;
            let brick = plain.into_iter().find(|state| state.word() == word).map_or_else(slow, Ok)?;
            let cluster = value["cluster"].as_str().map(str::to_owned);
            Ok(NodeLook { node: NodeId(number(value, "node")? as u32), brick, cluster })
        };
        let forwarded = |value: &Value| {
            let vertex = topology.vertices().iter().find(|vertex| value["at"] == *name(**vertex));
            Ok((*vertex.ok_or_else(|| wrong("at"))?, number(value, "packets")?))
        };
        let cable = |value: &Value| {
            let found = value["cable"].as_str().ok_or_else(|| wrong("cable"))?;
            Ok(CableLoad {
                cable: Cable::find(topology, found)?,
                is_cut: value["cut"].as_bool().ok_or_else(|| wrong("cut"))?,
                counts: [counts(&value["there"])?, counts(&value["back"])?],
            })
        };
        Ok(Look {
            at_us: number(value, "at_us")?,
            nodes: list("nodes")?.iter().map(node).collect::<Result<_>>()?,
            forwarded: list("forwarded")?.iter().map(forwarded).collect::<Result<_>>()?,
            cables: list("cables")?.iter().map(cable).collect::<Result<_>>()?,
        })
    }
}

fn counts(value: &Value) -> Result<Counts> {
    let count = |name| number(value, name);
    Ok(Counts { bytes: count("bytes")?, packets: count("packets")?, dropped: count("dropped")? })
}

fn number(value: &Value, name: &str) -> Result<u64> {
    value[name].as_u64().ok_or_else(|| wrong(name))
}

fn wrong(name: &str) -> LabError {
    doing("understand the lab")(format!("`{name}` is missing or wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shape::topology;

    #[test]
    fn a_look_survives_json() {
        let tree = topology(4, "fat-tree:2").expect("a tree");
        let states = [BrickState::Runs, BrickState::Slow(20), BrickState::Killed, BrickState::Ended];
        let node = |(brick, number)| NodeLook {
            node: NodeId(number),
            brick,
            cluster: (number > 2).then(|| "up".to_owned()),
        };
        let counts = |bytes| Counts { bytes, packets: 2, dropped: 3 };
        let load = |cable| CableLoad { cable, is_cut: true, counts: [counts(1), counts(9)] };
        let look = Look {
            at_us: 7,
            nodes: states.into_iter().zip(1..).map(node).collect(),
            forwarded: tree.vertices().iter().map(|vertex| (*vertex, 5)).collect(),
            cables: Cable::all(&tree).into_iter().map(load).collect(),
        };
        assert_eq!(Look::from_json(&tree, &look.to_json()).expect("a look"), look);
        assert!(Look::from_json(&tree, &json!({})).is_err());
    }
}
