//! Addresses for the nodes and cables of a network, out of one range.
//!
//! ```text
//!   without switches     range + id            a node: a /32 that is its identity, whichever cable leads to it
//!                        range + half + 2 c    cable c, from 0: a /31 (RFC 3021), the lower address at its first end
//!   with switches        range + id            a node: its one port, in the subnet of the range
//! ```
//!
//! *half* is 128, or the next power of two above the highest id. So the addresses depend on where the range begins, not on how
//! large it is.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use types::NodeId;

use super::cabling::Cabling;
use super::network::{NodeEntry, Topology};

/// Least distance between the first address of a range and that of its first cable.
const HALF_MIN: u64 = 128;
/// Longest prefix of a range: four addresses.
const PREFIX_MAX: u8 = 30;

/// A range of IPv4 addresses: `10.99.0.0/16`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRange {
    first: u32,
    prefix: u8,
}

impl AddressRange {
    /// The range of `prefix` that `address` is in. A prefix beyond 32 counts as 32.
    pub fn around(address: Ipv4Addr, prefix: u8) -> AddressRange {
        let prefix = prefix.min(32);
        AddressRange { first: address.to_bits() & mask(prefix), prefix }
    }

    /// Bits that all its addresses share.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// How many addresses it has.
    pub fn size(self) -> u64 {
        1 << (32 - self.prefix)
    }

    /// Whether an address is in both.
    pub fn overlaps(self, other: AddressRange) -> bool {
        let both = mask(self.prefix.min(other.prefix));
        self.first & both == other.first & both
    }

    /// Whether all addresses of `other` are in it.
    pub fn covers(self, other: AddressRange) -> bool {
        self.prefix <= other.prefix && self.overlaps(other)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.prefix)
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressRange, String> {
        let no_range = || format!("`{text}` is no range of IPv4 addresses, as in 10.99.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(no_range)?;
        let address: Ipv4Addr = address.parse().map_err(|_| no_range())?;
        let prefix: u8 = prefix.parse().map_err(|_| no_range())?;
        if !(1..=PREFIX_MAX).contains(&prefix) {
            return Err(format!("the prefix of {text} is not from 1 to {PREFIX_MAX}"));
        }
        let range = AddressRange::around(address, prefix);
        if range.first != address.to_bits() {
            return Err(format!("{text} does not begin at its first address, as {range} does"));
        }
        // This network (RFC 791), loopback, link-local, multicast and reserved addresses (RFC 6890).
        let unfit = [([0, 0, 0, 0], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 3)];
        match unfit.map(|(first, prefix)| AddressRange::around(first.into(), prefix)) {
            unfit if unfit.iter().any(|unfit| unfit.overlaps(range)) => {
                Err(format!("{text} has addresses that no machine may have: a private range is 10.99.0.0/16"))
            }
            _ => Ok(range),
        }
    }
}

/// Why a network cannot have addresses of a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressingError {
    /// The range has too few addresses.
    #[error("range {range} has {} addresses, {needed} are needed: {nodes} nodes with ids up to {highest}, {cables} cables", .range.size())]
    TooSmall {
        /// The range.
        range: AddressRange,
        /// Addresses from the first one to the last one that is given.
        needed: u64,
        /// Nodes of the network.
        nodes: usize,
        /// The highest id of a node.
        highest: NodeId,
        /// Cables that need addresses.
        cables: usize,
    },
    /// The node would have the first address of the range, which is the range's name.
    #[error("node n0 cannot have an address: the ids of nodes with addresses begin at 1")]
    NodeZero,
    /// The topology gives a node another address.
    #[error("node {node} has {found} in the topology; range {range} gives it {planned}")]
    Other {
        /// The node.
        node: NodeId,
        /// Its addresses, joined by blanks.
        found: String,
        /// The range.
        range: AddressRange,
        /// What it would have.
        planned: Ipv4Addr,
    },
}

/// The addresses of a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addressing {
    range: AddressRange,
    /// The first address of the first cable; none if there are switches.
    first_cable: Option<u32>,
}

impl Addressing {
    /// Addresses for `topology` out of `range`.
    ///
    /// # Errors
    /// The range is too small, or the topology has addresses that are not of it.
    pub fn new(
        topology: &Topology,
        cabling: &Cabling,
        range: AddressRange,
    ) -> Result<Addressing, AddressingError> {
        let highest = topology.nodes().keys().next_back().copied().unwrap_or_default();
        let highest_id = u64::from(highest.0);
        let half = (highest_id + 1).next_power_of_two().max(HALF_MIN);
        let is_switchless = topology.shape().is_switchless();
        let cables = if is_switchless { cabling.cables().len() } else { 0 };
        // The last address of a subnet is for broadcasts.
        let needed = if is_switchless { half + 2 * cables as u64 } else { highest_id + 2 };
        if needed > range.size() {
            let nodes = topology.nodes().len();
            return Err(AddressingError::TooSmall { range, needed, nodes, highest, cables });
        }
        if topology.nodes().contains_key(&NodeId(0)) {
            return Err(AddressingError::NodeZero);
        }
        // It fits, as `needed` does.
        let first_cable = is_switchless.then(|| range.first + half as u32);
        let addressing = Addressing { range, first_cable };
        topology.nodes().iter().try_for_each(|(node, entry)| addressing.agrees(*node, entry))?;
        Ok(addressing)
    }

    fn agrees(&self, node: NodeId, entry: &NodeEntry) -> Result<(), AddressingError> {
        let planned = self.node(node);
        if entry.addresses.iter().all(|address| *address == IpAddr::V4(planned)) {
            return Ok(());
        }
        let found: Vec<String> = entry.addresses.iter().map(IpAddr::to_string).collect();
        Err(AddressingError::Other { node, found: found.join(" "), range: self.range, planned })
    }

    /// Where all of them are from.
    pub fn range(&self) -> AddressRange {
        self.range
    }

    /// The address by which a node of the network is known.
    pub fn node(&self, node: NodeId) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.range.first + node.0)
    }

    /// The prefix of a node's address: it stands alone, or is in the subnet of the range.
    pub fn node_prefix(&self) -> u8 {
        if self.first_cable.is_some() { 32 } else { self.range.prefix }
    }

    /// The addresses of a cable's ends, with a prefix of 31 bits. [`None`] if there are switches.
    pub fn cable(&self, number: usize) -> Option<[Ipv4Addr; 2]> {
        let lower = self.first_cable? + 2 * (number as u32 - 1);
        Some([lower, lower + 1].map(Ipv4Addr::from_bits))
    }

    /// The same network with the address of each node in its description.
    pub fn with_addresses(&self, topology: &Topology) -> Topology {
        let entry = |(node, entry): (&NodeId, &NodeEntry)| {
            (*node, NodeEntry { addresses: vec![IpAddr::V4(self.node(*node))], ..entry.clone() })
        };
        let nodes: BTreeMap<NodeId, NodeEntry> = topology.nodes().iter().map(entry).collect();
        let links: Vec<(NodeId, NodeId)> = topology.listed().iter().copied().collect();
        Topology::new(topology.shape().clone(), nodes, &links)
            .expect("distinct addresses change nothing else")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbered(shape: &str, nodes: &[u32]) -> Topology {
        let shape = shape.parse().expect("a shape");
        Topology::numbered(shape, &nodes.iter().copied().map(NodeId).collect()).expect("fits")
    }

    fn planned(topology: &Topology, range: &str) -> Result<Addressing, AddressingError> {
        Addressing::new(topology, &Cabling::new(topology), range.parse().expect("a range"))
    }

    fn said(topology: &Topology, range: &str) -> String {
        planned(topology, range).expect_err("is refused").to_string()
    }

    #[test]
    fn a_node_has_its_id_and_a_cable_two_addresses() {
        let mesh = numbered("mesh", &[1, 2, 3]);
        for range in ["10.15.15.0/24", "10.15.0.0/16"] {
            let addressing = planned(&mesh, range).expect("large enough");
            let first = if range.ends_with("/24") { "10.15.15" } else { "10.15.0" };
            assert_eq!(addressing.node(NodeId(3)).to_string(), format!("{first}.3"));
            let cable = addressing.cable(2).expect("no switches").map(|address| address.to_string());
            assert_eq!(cable, [130, 131].map(|last| format!("{first}.{last}")));
        }
        let flat = planned(&numbered("flat", &[7, 9]), "10.1.0.0/24").expect("large enough");
        assert_eq!((flat.node(NodeId(9)).to_string(), flat.node_prefix()), ("10.1.0.9".to_owned(), 24));
        assert_eq!(flat.cable(1), None);
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        for (text, expected) in [
            ("10.99.0.0", "is no range"),
            ("fd00::/64", "is no range"),
            ("10.99.0.0/33", "is not from 1 to 30"),
            ("10.99.0.0/0", "is not from 1 to 30"),
            ("10.99.1.0/16", "does not begin at its first address, as 10.99.0.0/16 does"),
            ("127.1.0.0/16", "no machine may have"),
            ("224.0.0.0/8", "no machine may have"),
            ("240.0.0.0/16", "no machine may have"),
            ("0.0.0.0/1", "no machine may have"),
        ] {
            let said = text.parse::<AddressRange>().expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let torus = numbered("torus 4x4", &(1..=16).collect::<Vec<_>>());
        let expected =
            "range 10.99.0.0/25 has 128 addresses, 192 are needed: 16 nodes with ids up to n16, 32 cables";
        assert_eq!(said(&torus, "10.99.0.0/25"), expected);
        assert!(planned(&torus, "10.99.0.0/24").is_ok());
        assert!(said(&numbered("mesh", &[1, u32::MAX]), "10.0.0.0/8").contains("4294967298 are needed"));
        assert!(said(&numbered("mesh", &[0, 1]), "10.0.0.0/8").contains("begin at 1"));
        assert!(planned(&numbered("flat", &[254]), "10.0.0.0/24").is_ok());
        assert!(said(&numbered("flat", &[255]), "10.0.0.0/24").contains("257 are needed"));
    }

    #[test]
    fn addresses_of_the_file_are_kept_or_refused() {
        let mesh = numbered("mesh", &[1, 2]);
        let with = planned(&mesh, "10.99.0.0/16").expect("fits").with_addresses(&mesh);
        assert_eq!(with.to_string(), "mesh\nnode 1 10.99.0.1\nnode 2 10.99.0.2\n");
        assert!(planned(&with, "10.99.0.0/24").is_ok());
        let expected = "node n1 has 10.99.0.1 in the topology; range 10.98.0.0/16 gives it 10.98.0.1";
        assert_eq!(said(&with, "10.98.0.0/16"), expected);
    }

    proptest! {
        #[test]
        fn all_addresses_are_distinct_and_in_the_range(ids in proptest::collection::btree_set(1u32..400, 2..12)) {
            let ids: Vec<u32> = ids.into_iter().collect();
            let mesh = numbered("mesh", &ids);
            let cabling = Cabling::new(&mesh);
            let range: AddressRange = "10.99.0.0/20".parse().expect("a range");
            let addressing = Addressing::new(&mesh, &cabling, range).expect("large enough");
            let nodes = ids.iter().map(|id| addressing.node(NodeId(*id)));
            let cables = cabling.cables().iter().flat_map(|cable| addressing.cable(cable.number).expect("no switches"));
            let all: Vec<Ipv4Addr> = nodes.chain(cables).collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            prop_assert_eq!(distinct.len(), all.len());
            prop_assert!(all.iter().all(|address| range.covers(AddressRange::around(*address, 32))));
            // A /31 begins at an even address.
            for cable in cabling.cables() {
                let [lower, upper] = addressing.cable(cable.number).expect("no switches");
                prop_assert_eq!(lower.to_bits() ^ upper.to_bits(), 1);
            }
        }

        #[test]
        fn ranges_overlap_if_an_address_is_in_both(a in any::<u32>(), b in any::<u32>(), p in 20u8..=32, q in 20u8..=32) {
            // Close to each other, so that some overlap.
            let (a, b) = (AddressRange::around(Ipv4Addr::from_bits(a & 0x3fff), p), AddressRange::around(Ipv4Addr::from_bits(b & 0x3fff), q));
            let last = |range: AddressRange| u64::from(range.first) + range.size() - 1;
            let both = u64::from(a.first) <= last(b) && u64::from(b.first) <= last(a);
            prop_assert_eq!(a.overlaps(b), both);
            prop_assert_eq!(a.covers(b), u64::from(a.first) <= u64::from(b.first) && last(b) <= last(a));
        }
    }
}
