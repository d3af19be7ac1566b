//! Networks of every shape: texts are read back, distances are those of the books, routes are shortest and agree with
//! what each node alone decides.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::NodeId;
use types::messages::cluster::FailureDomain;

use super::*;

fn parse(text: &str) -> Result<Topology, TopologyError> {
    text.parse()
}

fn said(text: &str) -> String {
    parse(text).expect_err("is not sound").to_string()
}

fn numbered(shape: &str) -> Topology {
    let shape: Shape = shape.parse().expect("a shape");
    let count = if shape.dimensions() > 0 { shape.places().count() as u32 } else { 5 };
    Topology::numbered(shape, &(1..=count).map(NodeId).collect()).expect("fits")
}

/// Mean distance between nodes, a node and itself included.
fn mean_hops(topology: &Topology) -> f64 {
    let nodes: Vec<NodeId> = topology.nodes().keys().copied().collect();
    let pairs = nodes.iter().flat_map(|&a| nodes.iter().map(move |&b| (a, b)));
    let sum: u32 = pairs.map(|(a, b)| topology.hops(a, b).expect("both are there")).sum();
    f64::from(sum) / (nodes.len() * nodes.len()) as f64
}

#[test]
fn distances_are_those_of_the_books() {
    // k-ary n-cubes: the mean is n k / 4 for an even k, the diameter n k / 2 (Dally and Towles, table 5.1).
    for (shape, mean, diameter) in
        [("torus 4x4", 2.0, 4), ("torus 8x8", 4.0, 8), ("torus 4x4x4", 3.0, 6), ("torus 8x8x8", 6.0, 12)]
    {
        let topology = numbered(shape);
        assert_eq!((mean_hops(&topology), topology.diameter()), (mean, diameter), "{shape}");
    }
    let flat = numbered("flat");
    assert_eq!(flat.hops(NodeId(1), NodeId(5)), Some(2));
    assert_eq!(flat.hops(NodeId(1), NodeId(6)), None);
    assert_eq!(Topology::default().hops(NodeId(1), NodeId(6)), Some(2));
    assert_eq!(numbered("mesh").diameter(), 1);
}

#[test]
fn nodes_near_a_node_are_as_many_as_a_torus_has() {
    let torus = numbered("torus 5x5x5");
    let within =
        |hops| torus.nodes().keys().filter(|node| torus.hops(NodeId(1), **node) == Some(hops)).count();
    assert_eq!([within(1), within(2)], [6, 18]);
    assert_eq!(torus.neighbours(Vertex::Node(NodeId(1))).len(), 6);
    assert_eq!(torus.links().len(), 3 * 125);
}

#[test]
fn racks_are_four_hops_apart_and_fail_together() {
    let tree = parse("fat-tree\nnode 1 at 0\nnode 2 at 0\nnode 3 at 1\n").expect("sound");
    assert_eq!(tree.hops(NodeId(1), NodeId(2)), Some(2));
    assert_eq!(tree.hops(NodeId(1), NodeId(3)), Some(4));
    let way =
        [Vertex::Node(NodeId(1)), Vertex::Rack(0), Vertex::Core, Vertex::Rack(1), Vertex::Node(NodeId(3))];
    assert_eq!(tree.route(NodeId(1), NodeId(3)), way);
    let rack = |node| tree.domain(NodeId(node), FailureDomain::Rack).expect("racks exist");
    assert_eq!([rack(1), rack(2), rack(3), rack(4)], [Some(0), Some(0), Some(1), None]);
    let no_row = tree.domain(NodeId(1), FailureDomain::Row).expect_err("no rows");
    assert_eq!(no_row.to_string(), "a fat-tree has no rows: use `node` or `rack`");
}

#[test]
fn the_rows_of_a_torus_are_its_lines() {
    let torus = numbered("torus 4x4x2");
    let rows: BTreeSet<_> =
        (1..=32).map(|node| torus.domain(NodeId(node), FailureDomain::Row).expect("rows exist")).collect();
    assert_eq!(rows.len(), 8);
}

#[test]
fn a_route_goes_along_one_dimension_after_the_other() {
    let torus = numbered("torus 4x4");
    let id = |x: u32, y: u32| Vertex::Node(NodeId(1 + x + 4 * y));
    assert_eq!(torus.route(NodeId(1), NodeId(1 + 3 + 4)), [id(0, 0), id(3, 0), id(3, 1)]);
    // Two places away is as far both ways: even places go up, odd ones down.
    assert_eq!(torus.route(NodeId(1), NodeId(3)), [id(0, 0), id(1, 0), id(2, 0)]);
    assert_eq!(torus.route(NodeId(2), NodeId(4)), [id(1, 0), id(0, 0), id(3, 0)]);
    assert_eq!(torus.route(NodeId(2), NodeId(2)), [id(1, 0)]);
    assert_eq!(torus.route(NodeId(2), NodeId(99)), []);
}

#[test]
fn if_all_send_to_all_the_links_of_a_torus_have_the_same_load() {
    for shape in ["torus 4x4", "torus 8x8", "torus 5x5", "torus 4x4x4"] {
        let torus = numbered(shape);
        let mut load = LinkLoad::new(&torus);
        for &from in torus.nodes().keys() {
            torus.nodes().keys().for_each(|&to| load.add(&torus, from, to, 1));
        }
        assert_eq!(load.worst() as f64, load.mean(), "{shape}");
        let pairs = torus.nodes().len().pow(2) as f64;
        assert_eq!(load.hop_bytes() as f64, mean_hops(&torus) * pairs, "{shape}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (text, expected) in [
        ("", "no shape: the first line is one of"),
        ("ring 4", "line 1: `ring 4` is no shape"),
        ("torus 4y4", "line 1: the sizes of a torus are one to 3 numbers from 2 to 1024"),
        ("torus 1x4", "line 1: the sizes of a torus"),
        ("torus 1024x1024", "1048576 nodes, at most 1024"),
        (
            "torus 2x2\nnode 1 at 0,0\nnode 2 at 1,0\nnode 3 at 0,1",
            "no node is at 1,1: a torus 2x2 has 4 nodes, and 3 are described",
        ),
        ("torus 2x2\nnode 1 at 0,0\nnode 2 at 0,0", "nodes n1 and n2 are both at 0,0"),
        ("torus 2x2\nnode 1 at 0,2", "node n1 is at 0,2, which is not in a torus 2x2: coordinates go to 1,1"),
        ("torus 2x2\nnode 1", "node n1 is at no place, which is not in a torus 2x2"),
        ("flat\nnode 1 at 3", "nodes have no coordinates there"),
        ("fat-tree\nnode 1", "the one coordinate is the number of its rack"),
        ("flat\nnode 1\n\nnode 1", "node n1 is described twice"),
        ("flat\nnode one", "line 2: `one` is no id of a node"),
        ("flat\nnode 1 10.0.0", "line 2: `10.0.0` is no IP address"),
        ("flat\nnode 1 10.0.0.1\nnode 2 10.0.0.1", "address 10.0.0.1 is given twice, to nodes n1 and n2"),
        ("flat\nlink 1 2", "line 2: the cables of a flat follow from its shape"),
        ("flat\nrack 1 2", "line 2: `rack 1 2` is neither"),
        ("links\nnode 1\nnode 2", "no way leads from node n1 to node n2"),
        ("links\nnode 1\nlink 1 2", "link n1 n2: one of them is not described"),
        ("links\nnode 1\nlink 1 1", "link n1 n1: a node has no link to itself"),
        ("links\nnode 1\nnode 2\nlink 1 2\nlink 2 1", "link n2 n1: is listed twice"),
    ] {
        let said = said(text);
        assert!(said.contains(expected), "{text:?}: {said}");
    }
}

#[test]
fn comments_and_blank_lines_are_skipped() {
    let text = "# two nodes, one cable\nlinks\n\nnode 1 front 10.0.0.1 # the door\nnode 2\nlink 2 1\n";
    let topology = parse(text).expect("sound");
    assert_eq!(topology.to_string(), "links\nnode 1 front 10.0.0.1\nnode 2\nlink 1 2\n");
    assert_eq!(topology.front(), [NodeId(1)]);
}

#[test]
fn nodes_that_move_are_found() {
    let old = parse("torus 2\nnode 1 at 0\nnode 2 at 1\n").expect("sound");
    let moved = |text: &str| old.moved(&parse(text).expect("sound"));
    assert_eq!(moved("torus 2\nnode 2 at 1 front\nnode 1 at 0 10.0.0.1"), []);
    assert_eq!(moved("torus 2\nnode 1 at 1\nnode 2 at 0"), [NodeId(1), NodeId(2)]);
    assert_eq!(moved("torus 2\nnode 1 at 0\nnode 3 at 1"), [NodeId(2)]);
    assert_eq!(moved("mesh\nnode 1\nnode 2"), [NodeId(1), NodeId(2)]);
    assert_eq!(Topology::default().moved(&old), []);
    let chain = parse("links\nnode 1\nnode 2\nnode 3\nlink 1 2\nlink 2 3").expect("sound");
    let longer = parse("links\nnode 1\nnode 2\nnode 3\nnode 4\nlink 1 2\nlink 2 3\nlink 3 4").expect("sound");
    assert_eq!((chain.moved(&chain), chain.moved(&longer)), (vec![], vec![NodeId(3)]));
}

/// Connected networks of every shape.
fn any_topology() -> impl Strategy<Value = Topology> {
    let torus = proptest::collection::vec(2u16..6, 1..=3).prop_map(Shape::Torus);
    let numbered = prop_oneof![torus, Just(Shape::Mesh), Just(Shape::Flat)].prop_map(|shape| {
        let count = if shape.dimensions() > 0 { shape.places().count() as u32 } else { 7 };
        // Ids with gaps.
        Topology::numbered(shape, &(0..count).map(|i| NodeId(i * 3 + 2)).collect()).expect("fits")
    });
    let racks = proptest::collection::vec(0u16..5, 1..20).prop_map(|racks| {
        let entry = |rack| NodeEntry { at: Coordinates(vec![rack]), ..NodeEntry::default() };
        let nodes = racks.into_iter().map(entry).zip(1..).map(|(entry, id)| (NodeId(id), entry)).collect();
        Topology::new(Shape::FatTree, nodes, &[]).expect("racks fit")
    });
    // A random tree and some further cables.
    let links = proptest::collection::vec((any::<u32>(), any::<u32>()), 1..20).prop_map(|seeds| {
        let nodes: BTreeMap<_, _> =
            (0..=seeds.len() as u32).map(|id| (NodeId(id), NodeEntry::default())).collect();
        let mut links: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
        for (seeds, id) in seeds.iter().zip(1u32..) {
            links.insert((NodeId(seeds.0 % id), NodeId(id)));
            links.insert((NodeId(seeds.1 % id), NodeId(id)));
        }
        Topology::new(Shape::Links, nodes, &links.into_iter().collect::<Vec<_>>())
            .expect("a tree is connected")
    });
    prop_oneof![numbered, racks, links]
}

proptest! {
    #[test]
    fn a_written_topology_is_read_back(topology in any_topology()) {
        prop_assert_eq!(parse(&topology.to_string()), Ok(topology));
    }

    #[test]
    fn routes_are_shortest_and_each_vertex_knows_its_step(topology in any_topology()) {
        for &from in topology.nodes().keys() {
            for &to in topology.nodes().keys() {
                let way = topology.route(from, to);
                prop_assert_eq!(way.len() as u32 - 1, topology.hops(from, to).expect("both are there"));
                prop_assert_eq!(topology.hops(from, to), topology.hops(to, from));
                for step in way.windows(2) {
                    prop_assert!(topology.neighbours(step[0]).contains(&step[1]));
                    prop_assert_eq!(topology.next_hop(step[0], to), Some(step[1]));
                }
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(torus|links|flat|fat-tree)? ?[0-9x]{0,6}(\n(node|link) [0-9]{1,4}( at [0-9,]{0,5})?( [0-9.]{0,12})?){0,6}") {
        if let Ok(topology) = parse(&text) {
            prop_assert_eq!(parse(&topology.to_string()), Ok(topology));
        }
    }
}
