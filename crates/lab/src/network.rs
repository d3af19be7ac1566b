//! Nodes on a switch or a router, running: carries out the commands of [`star`], and counts the bytes on each link and what TCP
//! had to repeat.

use crate::error::Result;
use crate::iproute::{Counts, carry_out, counts, queues};
use crate::node::{Node, Space};
use crate::shared_buffer::SharedBuffer;
use crate::star::{self, Control, INTERFACE, Link, ROUTER, SWITCH};

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
        star::build(nodes, link).iter().try_for_each(carry_out)?;
        let nodes: Vec<Node> = (1..=nodes).map(Node::find).collect::<Result<_>>()?;
        nodes.iter().try_for_each(Node::configure)?;
        Ok(Network { nodes, hub: Space::find(SWITCH)? })
    }

    /// Makes `nodes` nodes on a router. Their links have no limits until they are [shaped](Network::shape_node).
    ///
    /// # Errors
    /// What `ip` said.
    pub fn build_routed(nodes: u32, control: Control) -> Result<Network> {
        star::build_routed(nodes, control).iter().try_for_each(carry_out)?;
        let nodes = (1..=nodes).map(Node::find).collect::<Result<_>>()?;
        Ok(Network { nodes, hub: Space::find(ROUTER)? })
    }

    /// Sets the congestion control of new connections between the nodes of a router.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn control_by(&self, control: Control) -> Result<()> {
        star::control_by(self.size(), control).iter().try_for_each(carry_out)
    }

    /// Sets the link of a router's node: `down` is towards the node, `up` from it.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn shape_node(&self, node: u32, down: Link, up: Link) -> Result<()> {
        star::shape_routed(node, down, up).iter().try_for_each(carry_out)
    }

    /// Calls `with` while the ports of a router to `nodes` share one memory. What goes to each of these nodes has the rate of
    /// `link`, whose queue is the memory of all of them; the links themselves must be faster and have deep queues.
    ///
    /// # Errors
    /// What `ip` said, the kernel has no tun devices, or the error of `with`.
    pub fn with_shared_buffer<T>(
        &self,
        nodes: &[u32],
        link: Link,
        with: impl FnOnce(&SharedBuffer) -> Result<T>,
    ) -> Result<T> {
        let shared = SharedBuffer::start(&self.hub, nodes, link)?;
        star::share(nodes).iter().try_for_each(carry_out)?;
        let done = with(&shared);
        let undone = star::unshare(nodes).iter().try_for_each(carry_out);
        done.and_then(|done| undone.map(|()| done))
    }

    /// Sets the rate of all links of a switch.
    ///
    /// # Errors
    /// What `tc` said.
    pub fn shape(&self, link: Link) -> Result<()> {
        star::shape(self.size(), link).iter().try_for_each(carry_out)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_adds_and_subtracts() {
        let traffic = |n| Traffic { sent: n, received: 2 * n, packets: n, dropped: 0 };
        assert_eq!(traffic(5).since(traffic(2)), traffic(3));
        assert_eq!(traffic(5).and(traffic(2)), traffic(7));
    }
}
