//! What `shoal paper 002` measures on: its networks, the groups of its volumes, and what a mount has in flight.
//!
//! The document of the runs does not say these. They are the lab's own construction (crates/lab/src/paper002) and the product's
//! constants, once more: the lab is not for models.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use layout::topology::{NodeEntry, Shape, Topology, TopologyError};
use layout::{build_groups, group_of, groups_for};
use netsim::torus::{Lane, Piece};
use types::limits::EXTENT_STRIPES_DEFAULT;
use types::{BrickId, Code, NodeId, ObjectId, VolumeId};

/// The rows of the torus: nodes 1 to 10 have a brick, 12 is the client that is part of it.
const ROWS: [[u32; 4]; 3] = [[12, 1, 2, 3], [4, 5, 6, 7], [8, 9, 11, 10]];
/// The client in front of the torus, by one cable to node 12.
const FRONT: u32 = 13;
/// Nodes on the tree, the last of which is the client.
const ON_TREE: u32 = 11;

/// Stripes that each thread of a mount sends at once, and threads of a mount.
const SENDS: u64 = 16;
const THREADS: u64 = 4;

/// Objects that the lab makes first: the first id after the root is that of the mount, then come these.
const FIRST_OBJECT: u64 = 3;
/// Ids between the new files of two seeds.
const STEP: u64 = 100;

/// A place of the lab's client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientAt {
    /// Part of the torus.
    Torus,
    /// In front of it.
    Front,
    /// On the tree.
    Tree,
}

impl ClientAt {
    /// By the name of a system, or of a place, in the document.
    pub(super) fn named(name: &str) -> Option<ClientAt> {
        match name {
            "Shoal, torus" | "in the torus" => Some(ClientAt::Torus),
            "Shoal, in front" | "in front of the torus" => Some(ClientAt::Front),
            "Shoal, tree" | "on the tree" => Some(ClientAt::Tree),
            _ => None,
        }
    }

    /// For people.
    pub(super) fn word(self) -> &'static str {
        match self {
            ClientAt::Torus => "in the torus",
            ClientAt::Front => "in front",
            ClientAt::Tree => "tree",
        }
    }

    /// Its node.
    pub(super) fn node(self) -> u32 {
        match self {
            ClientAt::Torus => ROWS[0][0],
            ClientAt::Front => FRONT,
            ClientAt::Tree => ON_TREE,
        }
    }

    /// The network around it.
    pub(super) fn network(self) -> Result<Topology, TopologyError> {
        if self == ClientAt::Tree {
            return Topology::numbered(Shape::Flat, &(1..=ON_TREE).map(NodeId).collect::<BTreeSet<_>>());
        }
        let mut cables = vec![(ROWS[0][0], FRONT)];
        for (y, row) in ROWS.iter().enumerate() {
            for (x, &node) in row.iter().enumerate() {
                cables.push((node, row[(x + 1) % row.len()]));
                cables.push((node, ROWS[(y + 1) % ROWS.len()][x]));
            }
        }
        let cables: Vec<_> = cables.into_iter().map(|(a, b)| (NodeId(a), NodeId(b))).collect();
        let nodes: BTreeMap<_, _> = (1..=FRONT).map(|node| (NodeId(node), NodeEntry::default())).collect();
        Topology::new(Shape::Links, nodes, &cables)
    }
}

/// A volume of the lab.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    id: VolumeId,
    code: Code,
    unit: u64,
    /// The nodes of each group by slot; a brick has the number of its node.
    groups: Vec<Vec<u32>>,
}

impl Volume {
    /// A volume by its number, with so many groups, or as many as the product takes. [`None`]: there are too few bricks.
    pub(super) fn new(id: u32, code: Code, unit: u64, groups: Option<u32>) -> Option<Volume> {
        let bricks: Vec<(BrickId, NodeId)> =
            (1..=code.slots() as u32).map(|node| (BrickId(node), NodeId(node))).collect();
        let groups = groups.unwrap_or_else(|| groups_for(code, bricks.len()));
        let table = build_groups(code, &bricks, groups, false).ok()?;
        let nodes = |group: Vec<BrickId>| group.into_iter().map(|brick| brick.0).collect();
        Some(Volume { id: VolumeId(id), code, unit, groups: table.into_iter().map(nodes).collect() })
    }

    fn stripe(&self) -> u64 {
        self.unit * self.code.k() as u64
    }

    /// The stripes of some bytes of an object, in order.
    fn pieces(&self, object: u64, bytes: Range<u64>) -> Vec<Piece> {
        let (stripe, groups) = (self.stripe(), 0..self.groups.len() as u32);
        let piece = |number: u64| {
            let (extent, start) = (number / u64::from(EXTENT_STRIPES_DEFAULT), number * stripe);
            let group = group_of(self.id, ObjectId(object), extent, &groups).index;
            let range = bytes.start.max(start) - start..bytes.end.min(start + stripe) - start;
            Piece { group: self.groups[group as usize].clone(), range }
        };
        (bytes.start / stripe..bytes.end.div_ceil(stripe)).map(piece).collect()
    }

    /// New files of so many bytes, which some tasks write at the same pace; a mount sends what is whole, whosever it is.
    pub(super) fn written(&self, tasks: u64, bytes: u64, memory: u64, seed: u64) -> Vec<Lane> {
        let first = FIRST_OBJECT + seed * STEP;
        let files: Vec<Vec<Piece>> =
            (first..first + tasks).map(|object| self.pieces(object, 0..bytes)).collect();
        let most = files.iter().map(Vec::len).max().unwrap_or(0);
        let pieces = (0..most).flat_map(|at| files.iter().filter_map(move |file| file.get(at).cloned()));
        // Three quarters of the memory are for what is not stable, and three eighths of that for what is in flight.
        let room = memory / 4 * 3 / 8 * 3;
        let together = (room / self.stripe()).clamp(1, SENDS * THREADS) as usize;
        vec![Lane { pieces: pieces.collect(), together }]
    }

    /// The last bytes of files that were made first, each read by a task of its own. Which of ten a single task has, chance decided
    /// when ten threads made them.
    pub(super) fn read(&self, tasks: u64, span: u64, file: u64, memory: u64, seed: u64) -> Vec<Lane> {
        let first = FIRST_OBJECT + if tasks == 1 { seed } else { 0 };
        // A sixteenth of the memory is for what was read ahead, half of it for one file.
        let room = memory / 16;
        let together = ((room / 2).min(room / tasks) / self.stripe()).max(1) as usize;
        let files = (first..first + tasks).map(|object| self.pieces(object, file - span..file));
        files.map(|pieces| Lane { pieces, together }).collect()
    }

    /// One file with an extent in each group.
    pub(super) fn in_each_group(&self) -> Vec<Lane> {
        let stripes = u64::from(EXTENT_STRIPES_DEFAULT) * self.groups.len() as u64;
        vec![Lane { pieces: self.pieces(FIRST_OBJECT, 0..stripes * self.stripe()), together: 1 }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(unit: u64) -> Volume {
        Volume::new(1, "8+2".parse().expect("a code"), unit, None).expect("ten bricks")
    }

    #[test]
    fn all_bricks_are_as_far_as_in_the_lab() {
        for (at, all) in [(ClientAt::Torus, 17), (ClientAt::Front, 27), (ClientAt::Tree, 20)] {
            let network = at.network().expect("a network");
            let far = |node| network.hops(NodeId(at.node()), NodeId(node)).expect("a node");
            assert_eq!((1..=10).map(far).sum::<u32>(), all);
        }
    }

    #[test]
    fn files_are_whole_stripes_and_a_rest_and_lie_in_a_group() {
        let lanes = volume(64 << 10).written(10, 1_679_360, 64 << 20, 0);
        assert_eq!((lanes.len(), lanes[0].pieces.len(), lanes[0].together), (1, 40, 36));
        let bytes: u64 = lanes[0].pieces.iter().map(|piece| piece.range.end - piece.range.start).sum();
        assert_eq!(bytes, 16_793_600);
        let groups: BTreeSet<&Vec<u32>> = lanes[0].pieces.iter().map(|piece| &piece.group).collect();
        assert!(groups.len() <= 10);
        let read = volume(64 << 10).read(10, 1_679_360, 16 << 20, 64 << 20, 0);
        assert_eq!((read.len(), read[0].pieces.len(), read[0].together), (10, 4, 1));
        assert_eq!(read[0].pieces[0].range.end, 512 << 10, "the end of a file is read");
        assert_eq!(volume(64 << 10).read(1, 16 << 20, 16 << 20, 64 << 20, 0)[0].together, 4);
        assert_eq!(volume(4 << 10).written(1, 16 << 20, 64 << 20, 0)[0].together, 64);
    }
}
