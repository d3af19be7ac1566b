//! The topology: the network between the nodes, as people have described it.
//!
//! # Invariants
//! - What is kept can be read, and is as the topology itself writes it.

use layout::topology::Topology;
use types::Refusal;
use types::limits::{MAP_MAX, TOPOLOGY_MAX};
use types::messages::cluster::TopologySet;
use types::wire::to_bytes;

use super::history::Changed;
use super::map::Cluster;
use crate::keys;
use crate::kv::Writes;
use crate::records::to_value;

impl Cluster {
    /// Another topology; no volume that exists moves. Nothing is written if it is the present one.
    pub(crate) fn set_topology(&mut self, request: &TopologySet) -> Result<Writes, Refusal> {
        let text = &request.topology;
        if text.len() > TOPOLOGY_MAX {
            return Err(Refusal::TooMany);
        }
        let new = read(text)?;
        // What an older or newer service wrote may be unreadable here; it is replaced.
        let moved = self.topology.as_ref().map(|old| old.moved(&new)).unwrap_or_default();
        if !moved.is_empty() && !request.may_move {
            tracing::info!(?moved, "the topology is not changed: nodes would have other places");
            return Err(Refusal::Busy);
        }
        let text = if new.is_default() { String::new() } else { new.to_string() };
        let mut writes = Writes::new();
        if text == self.map.topology {
            return Ok(writes);
        }
        // The whole map must fit into one record.
        if to_bytes(&self.map).len() - self.map.topology.len() + text.len() > MAP_MAX {
            return Err(Refusal::TooMany);
        }
        writes.insert(keys::topology(), if text.is_empty() { None } else { Some(to_value(&text)) });
        self.map.topology = text;
        self.topology = Some(new);
        self.publish([Changed::Topology], &mut writes);
        Ok(writes)
    }
}

/// Reads the text of a topology; that of a network of which nothing is known is empty.
pub(super) fn read(text: &str) -> Result<Topology, Refusal> {
    if text.is_empty() {
        return Ok(Topology::default());
    }
    text.parse().map_err(|error| {
        tracing::info!(%error, "a topology cannot be read");
        Refusal::Invalid
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, on_all};

    const PAIR: &str = "torus 2\nnode 1 at 0\nnode 2 at 1 front 10.0.0.2\n";

    fn set(fixture: &mut Fixture, topology: &str, may_move: bool) -> Result<(), Refusal> {
        fixture.state.topology_set(&TopologySet { topology: topology.into(), may_move })
    }

    #[test]
    fn a_topology_is_kept_as_it_writes_itself() {
        on_all(|mut fixture| {
            let version = fixture.state.cluster.version();
            assert_eq!(
                set(&mut fixture, "# a pair\ntorus:2\nnode 2 at 1 front 10.0.0.2\nnode 1 at 0 back", false),
                Ok(())
            );
            assert_eq!(fixture.state.cluster.map().topology, PAIR);
            let changed = fixture.state.cluster.version();
            assert!(changed > version);
            assert_eq!(set(&mut fixture, PAIR, false), Ok(()), "it is there already");
            assert_eq!(fixture.state.cluster.version(), changed, "nothing has changed");
            let mut fixture = fixture.restart_without_clients();
            assert_eq!(fixture.state.cluster.map().topology, PAIR);
            assert_eq!(set(&mut fixture, "", true), Ok(()));
            assert_eq!(fixture.restart_without_clients().state.cluster.map().topology, "");
        });
    }

    #[test]
    fn what_cannot_be_read_or_moves_nodes_is_refused() {
        on_all(|mut fixture| {
            set(&mut fixture, PAIR, false).expect("sound");
            assert_eq!(set(&mut fixture, "torus 2\nnode 1 at 0", true), Err(Refusal::Invalid));
            let swapped = "torus 2\nnode 1 at 1\nnode 2 at 0\n";
            assert_eq!(set(&mut fixture, swapped, false), Err(Refusal::Busy));
            assert_eq!(set(&mut fixture, "", false), Err(Refusal::Busy));
            assert_eq!(fixture.state.cluster.map().topology, PAIR);
            assert_eq!(set(&mut fixture, swapped, true), Ok(()));
            assert_eq!(fixture.state.cluster.map().topology, swapped);
            let long = format!("flat\n{}", "#".repeat(TOPOLOGY_MAX));
            assert_eq!(set(&mut fixture, &long, true), Err(Refusal::TooMany));
        });
    }
}
