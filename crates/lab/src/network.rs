//! Carries out the commands of a topology, and counts the bytes on each link and what TCP had to repeat.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::{LabError, Result, doing};
use crate::node::{Node, Space};
use crate::topology::{self, Control, INTERFACE, Link, ROUTER, SWITCH, Step};

/// Nodes on a switch or a router. Must be made within a [sandbox](crate::sandbox), which removes them.
pub struct Network {
    nodes: Vec<Node>,
    /// The namespace in the middle.
    hub: Space,
}

/// Counters of the two ends of a link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// From the node, in bytes, headers counted.
    pub sent: u64,
    /// To the node, in bytes, headers counted.
    pub received: u64,
    /// Packets to the node; a bundle (GSO) counts as its packets.
    pub packets: u64,
    /// Packets that were dropped because a queue was full, at either end.
    pub dropped: u64,
}

impl Traffic {
    /// The difference since `before`.
    pub fn since(self, before: Traffic) -> Traffic {
        Traffic {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
            packets: self.packets.saturating_sub(before.packets),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }

    /// Bytes in both directions.
    pub fn and(self, other: Traffic) -> Traffic {
        Traffic {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            packets: self.packets + other.packets,
            dropped: self.dropped + other.dropped,
        }
    }
}

impl Network {
    /// Makes `nodes` nodes on a switch.
    ///
    /// # Errors
    /// What `ip` or `tc` said.
    pub fn build(nodes: u32, link: Link) -> Result<Network> {
        topology::build(nodes, link).iter().try_for_each(carry_out)?;
        let nodes: Vec<Node> = (1..=nodes).map(Node::find).collect::<Result<_>>()?;
        nodes.iter().try_for_each(Node::configure)?;
        Ok(Network { nodes, hub: Space::find(SWITCH)? })
    }

    /// Makes `nodes` nodes on a router. Their links have no limits until they are [shaped](Network::shape_node).
    ///
    /// # Errors
    /// What `ip` said.
    pub fn build_routed(nodes: u32, control: Control) -> Result<Network> {
        topology::build_routed(nodes, control).iter().try_for_each(carry_out)?;
        let nodes = (1..=nodes).map(Node::find).collect::<Result<_>>()?;
        Ok(Network { nodes, hub: Space::find(ROUTER)? })
    }

    /// Sets the congestion control of new connections between the nodes of a router.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn control_by(&self, control: Control) -> Result<()> {
        topology::control_by(self.size(), control).iter().try_for_each(carry_out)
    }

    /// Sets the link of a router's node: `down` is towards the node, `up` from it.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn shape_node(&self, node: u32, down: Link, up: Link) -> Result<()> {
        topology::shape_routed(node, down, up).iter().try_for_each(carry_out)
    }

    /// Sets the rate of all links of a switch.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn shape(&self, link: Link) -> Result<()> {
        topology::shape(self.size(), link).iter().try_for_each(carry_out)
    }

    /// How many nodes there are.
    pub fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// A node; they count from 1.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize - 1]
    }

    /// The traffic of each node's link, in the order of the nodes.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn traffic(&self) -> Result<Vec<Traffic>> {
        let hub = queues(&self.hub)?;
        let of_node = |node: &Node| {
            let (down, up) = (counts(&hub, node.name()), counts(&queues(node.space())?, INTERFACE));
            Ok(Traffic {
                sent: up.bytes,
                received: down.bytes,
                packets: down.packets,
                dropped: up.dropped + down.dropped,
            })
        };
        self.nodes.iter().map(of_node).collect()
    }

    /// What the hub has sent to each node, and dropped before, in the order of the nodes.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn towards(&self) -> Result<Vec<Traffic>> {
        let hub = queues(&self.hub)?;
        let of_node = |node: &Node| {
            let Counts { bytes: received, packets, dropped } = counts(&hub, node.name());
            Traffic { sent: 0, received, packets, dropped }
        };
        Ok(self.nodes.iter().map(of_node).collect())
    }

    /// Bytes that the hub has forwarded over all links; every byte between nodes counts once.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn forwarded(&self) -> Result<Traffic> {
        let counts = queues(&self.hub)?.into_iter().map(|queue| queue.counts);
        Ok(counts.fold(Traffic::default(), |sum, counts| Traffic {
            sent: sum.sent + counts.bytes,
            received: sum.received + counts.bytes,
            packets: sum.packets + counts.packets,
            dropped: sum.dropped + counts.dropped,
        }))
    }
}

/// Runs a command of iproute2.
fn carry_out(step: &Step) -> Result<()> {
    run(step.program, &step.words).map(drop)
}

fn run(program: &'static str, words: &[String]) -> Result<Vec<u8>> {
    let ran = Command::new(program).args(words).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            LabError::Missing { program: program.to_owned(), package: "iproute2" }
        }
        _ => doing(format!("start {program}"))(error),
    })?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(LabError::Command { command: format!("{program} {}", words.join(" ")), said })
}

/// The traffic that a queue has passed.
#[derive(Clone, Copy, Default)]
struct Counts {
    bytes: u64,
    packets: u64,
    dropped: u64,
}

struct Queue {
    port: String,
    counts: Counts,
}

/// The counts of a port's queue.
fn counts(queues: &[Queue], port: &str) -> Counts {
    queues.iter().find(|queue| queue.port == port).map(|queue| queue.counts).unwrap_or_default()
}

/// The token buckets of a namespace. `tc -n` would do the same, but makes a mount namespace first, which takes seconds where all
/// cores are busy.
fn queues(space: &Space) -> Result<Vec<Queue>> {
    let words = ["-s", "-j", "qdisc", "show"].map(str::to_owned);
    let said = space.enter(|| run("tc", &words))??;
    let list: Value = serde_json::from_slice(&said).map_err(doing("read the counters of `tc`"))?;
    Ok(parse(&list))
}

fn parse(list: &Value) -> Vec<Queue> {
    let shaped = list.as_array().into_iter().flatten().filter(|queue| queue["kind"] == "tbf");
    let read = |queue: &Value| {
        let count = |name: &str| queue[name].as_u64().unwrap_or_default();
        let counts = Counts { bytes: count("bytes"), packets: count("packets"), dropped: count("drops") };
        Queue { port: queue["dev"].as_str().unwrap_or_default().to_owned(), counts }
    };
    shaped.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_are_those_of_token_buckets() {
        let list = json!([
            { "kind": "noqueue", "dev": "hub", "bytes": 9 },
            { "kind": "tbf", "dev": "node1", "bytes": 364, "packets": 4, "drops": 1 },
        ]);
        let queues = parse(&list);
        assert_eq!(queues.len(), 1);
        let Counts { bytes, packets, dropped } = queues[0].counts;
        assert_eq!((&*queues[0].port, bytes, packets, dropped), ("node1", 364, 4, 1));
    }

    #[test]
    fn traffic_adds_and_subtracts() {
        let traffic = |n| Traffic { sent: n, received: 2 * n, packets: n, dropped: 0 };
        assert_eq!(traffic(5).since(traffic(2)), traffic(3));
        assert_eq!(traffic(5).and(traffic(2)), traffic(7));
    }
}
