//! A map of a lab in text: nodes at their places, with their states, and the load of the cables between them.
//!
//! ```text
//!   [1 ] -- 12% -- [2 ] -- cut -- [3x] ------- >      a torus: the last cable of a row leads back to its first node,
//!     |              |              |                 and the last of a column to its highest
//!    90%             |             cut
//!     |              |              |
//! ```

use std::collections::BTreeMap;

use lab::fabric::Cable;
use lab::fabric::cable::name;
use lab::live::{BrickState, Look};
use layout::topology::{Coordinates, Shape, Topology, Vertex};
use types::NodeId;

use super::rates::Rates;

/// Columns between two nodes of a row.
const GAP: usize = 9;
/// Nodes in a line where they have no places.
const LINE: usize = 8;
/// Cables below the map.
const BUSIEST: usize = 8;
/// Least share of a rate that is shown, 0 to 1.
const SHARE_MIN: f64 = 0.005;

/// Everything that a map shows.
pub(super) struct Map<'a> {
    pub(super) topology: &'a Topology,
    pub(super) look: &'a Look,
    pub(super) rates: &'a Rates,
}

impl Map<'_> {
    /// The whole text.
    pub(super) fn text(&self) -> String {
        let map = match self.topology.shape() {
            Shape::Torus(sizes) => self.torus(sizes),
            Shape::FatTree => self.racks(),
            Shape::Flat => self.switched(Vertex::Core, ""),
            Shape::Mesh | Shape::Links => self.unplaced(),
        };
        format!("{map}\n{}\n{}", self.cables(), self.states())
    }

    /// A node in a box, with a mark for its state.
    fn node(&self, node: NodeId) -> String {
        let look = self.look.nodes.iter().find(|look| look.node == node);
        let mark = match look.map(|look| (look.brick, look.cluster.as_deref())) {
            Some((BrickState::Killed | BrickState::Ended, _)) => 'x',
            Some((BrickState::Slow(_), _)) => '~',
            Some((BrickState::Runs, Some("up"))) => ' ',
            _ => '?',
        };
        let width = self.topology.nodes().len().to_string().len();
        format!("[{:>width$}{mark}]", node.0)
    }

    /// What is said of a cable: its load, that it is cut, or nothing.
    fn load(&self, cable: Cable) -> String {
        match self.rates.of(cable) {
            Some(rate) if rate.is_cut => "cut".to_owned(),
            Some(rate) if rate.most() >= SHARE_MIN => format!("{:.0}%", rate.most() * 100.0),
            _ => String::new(),
        }
    }

    fn torus(&self, sizes: &[u16]) -> String {
        let at: BTreeMap<&Coordinates, NodeId> =
            self.topology.nodes().iter().map(|(node, entry)| (&entry.at, *node)).collect();
        let node = |x: u16, y: u16, z: u16| at[&Coordinates([x, y, z][..sizes.len()].to_vec())];
        let size = |along: usize| sizes.get(along).copied().unwrap_or(1);
        let (columns, rows, planes) = (size(0), size(1), size(2));
        let mut text = String::new();
        for z in 0..planes {
            if planes > 1 {
                text += &format!("plane {z}; cables to the next plane are in the table only\n");
            }
            for y in 0..rows {
                text += &self.row(columns, |x| node(x, y, z));
                // Two nodes of a ring of two have one cable.
                if rows > 2 || (rows == 2 && y == 0) {
                    text += &self.downward(columns, |x| (node(x, y, z), node(x, (y + 1) % rows, z)));
                }
            }
        }
        text
    }

    /// A line along the first dimension.
    fn row(&self, columns: u16, node: impl Fn(u16) -> NodeId) -> String {
        let mut line = " ".to_owned();
        for x in 0..columns {
            line += &self.node(node(x));
            let is_last = x + 1 == columns;
            if is_last && columns == 2 {
                continue;
            }
            let load = self.load(between(node(x), node((x + 1) % columns)));
            let load = if load.is_empty() { load } else { format!(" {load} ") };
            line += &format!(" {load:-^width$}{}", if is_last { '>' } else { ' ' }, width = GAP - 2);
        }
        line + "\n"
    }

    /// The cables from a line to the next one.
    fn downward(&self, columns: u16, ends: impl Fn(u16) -> (NodeId, NodeId)) -> String {
        let width = self.node(ends(0).0).len() + GAP;
        let mut line = String::new();
        for x in 0..columns {
            let (from, to) = ends(x);
            let load = self.load(between(from, to));
            let load = if load.is_empty() { "|".to_owned() } else { load };
            let node = width - GAP + 2;
            line += &format!("{load:^node$}{:1$}", "", width - node);
        }
        format!("{}\n", line.trim_end())
    }

    /// Nodes of a switch with the load of their cables.
    fn switched(&self, switch: Vertex, indent: &str) -> String {
        let nodes = self.topology.neighbours(switch).into_iter().filter_map(|vertex| match vertex {
            Vertex::Node(node) => Some(node),
            _ => None,
        });
        let cells: Vec<String> = nodes
            .map(|node| {
                format!("{} {:<5}", self.node(node), self.load(Cable::new(Vertex::Node(node), switch)))
            })
            .collect();
        let line = |cells: &[String]| format!("{indent} {}", cells.concat().trim_end()) + "\n";
        cells.chunks(LINE).map(line).collect()
    }

    fn racks(&self) -> String {
        let mut text = String::new();
        for rack in self.topology.neighbours(Vertex::Core) {
            let load = self.load(Cable::new(rack, Vertex::Core));
            let load = if load.is_empty() { load } else { format!(" {load} ") };
            text += &format!(" switch {load:-^width$} {}\n", name(rack), width = GAP);
            text += &self.switched(rack, "   ");
        }
        text
    }

    fn unplaced(&self) -> String {
        let cells: Vec<String> = self.topology.nodes().keys().map(|node| self.node(*node)).collect();
        cells.chunks(LINE).map(|cells| format!(" {}\n", cells.join("  "))).collect()
    }

    /// The busiest cables, and those that are cut.
    fn cables(&self) -> String {
        let cut: Vec<String> =
            self.rates.cables.iter().filter(|rate| rate.is_cut).map(|rate| rate.cable.to_string()).collect();
        let mut text = if cut.is_empty() { String::new() } else { format!("cut: {}\n", cut.join(", ")) };
        let busiest = self.rates.busiest(BUSIEST);
        if busiest.is_empty() {
            return text + "no cable carries much\n";
        }
        let mut rows = vec![
            ["busiest", "MB/s there", "back", "of its rate", "packets dropped"].map(str::to_owned).to_vec(),
        ];
        for rate in busiest {
            rows.push(vec![
                rate.cable.to_string(),
                format!("{:.1}", rate.mb_per_s[0]),
                format!("{:.1}", rate.mb_per_s[1]),
                format!("{:.0} %", rate.most() * 100.0),
                (rate.dropped[0] + rate.dropped[1]).to_string(),
            ]);
        }
        text += &crate::output::table(&rows);
        text
    }

    /// Nodes whose bricks are not as they should be, and what forwarding costs.
    fn states(&self) -> String {
        let mut text = String::new();
        for look in &self.look.nodes {
            let state = match look.brick {
                BrickState::Killed => "x: its brick was killed".to_owned(),
                BrickState::Ended => "x: its brick has ended by itself".to_owned(),
                BrickState::Slow(ms) => format!("~: its brick is stopped for {ms} ms again and again"),
                BrickState::Runs => String::new(),
            };
            let cluster = match look.cluster.as_deref() {
                Some("up") => String::new(),
                Some(other) => format!("the cluster says: {other}"),
                None => "?: the cluster does not answer".to_owned(),
            };
            let told: Vec<String> = [state, cluster].into_iter().filter(|said| !said.is_empty()).collect();
            if !told.is_empty() {
                text += &format!("node {} {}\n", look.node.0, told.join("; "));
            }
        }
        text + &format!("IP packets forwarded per second: {:.0}", self.rates.forwarded)
    }
}

fn between(a: NodeId, b: NodeId) -> Cable {
    Cable::new(Vertex::Node(a), Vertex::Node(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::fabric::CableLoad;
    use lab::fabric::shape::topology;
    use lab::iproute::Counts;
    use lab::live::look::NodeLook;

    /// The map one second after the beginning: `bytes` there by the name of the cable, all other cables idle.
    fn map(nodes: u32, shape: &str, bytes: &[(&str, u64)], cut: &[&str], killed: u32) -> String {
        let topology = topology(nodes, shape).expect("a topology");
        let look = |at_us: u64| {
            let node = |node: &NodeId| NodeLook {
                node: *node,
                brick: if node.0 == killed { BrickState::Killed } else { BrickState::Runs },
                cluster: Some("up".to_owned()),
            };
            let load = |cable: Cable| {
                let carried =
                    bytes.iter().find(|(name, _)| *name == cable.to_string()).map_or(0, |found| found.1);
                let counts = Counts { bytes: if at_us == 0 { 0 } else { carried }, ..Counts::default() };
                let is_cut = cut.contains(&&*cable.to_string());
                CableLoad { cable, is_cut, counts: [counts, Counts::default()] }
            };
            Look {
                at_us,
                nodes: topology.nodes().keys().map(node).collect(),
                forwarded: Vec::new(),
                cables: Cable::all(&topology).into_iter().map(load).collect(),
            }
        };
        let (before, after) = (look(0), look(1_000_000));
        let rates = Rates::between(&before, &after, 1000);
        Map { topology: &topology, look: &after, rates: &rates }.text()
    }

    #[test]
    fn a_torus_has_rows_and_columns() {
        let text = map(9, "torus:3x3", &[("1-2", 62_500_000), ("2-5", 12_500_000)], &["4-7", "1-3"], 6);
        let expected = "\
\x20[1 ] - 50% - [2 ] ------- [3 ] - cut ->
  |           10%           |
 [4 ] ------- [5 ] ------- [6x] ------->
 cut           |            |
 [7 ] ------- [8 ] ------- [9 ] ------->
  |            |            |

cut: 1-3, 4-7
  busiest  MB/s there  back  of its rate  packets dropped
  1-2      62.5        0.0   50 %         0
  2-5      12.5        0.0   10 %         0

node 6 x: its brick was killed
IP packets forwarded per second: 0";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn rings_of_two_have_one_cable() {
        let text = map(4, "torus:2x2", &[], &[], 0);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], [" [1 ] ------- [2 ]", "  |            |", " [3 ] ------- [4 ]"]);
        assert!(text.contains("no cable carries much"));
        assert!(map(8, "torus:2x2x2", &[("1-5", 125_000_000)], &[], 0).contains("1-5      125.0"));
    }

    #[test]
    fn other_shapes_name_their_switches() {
        let text = map(4, "fat-tree:2", &[("rack0-switch", 25_000_000), ("3-rack1", 5_000_000)], &[], 4);
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            " switch -- 20% -- rack0",
            "    [1 ]      [2 ]",
            " switch --------- rack1",
            "    [3 ] 4%   [4x]",
        ];
        assert_eq!(lines[..4], expected);
        assert!(map(3, "flat", &[], &["2-switch"], 0).starts_with(" [1 ]      [2 ] cut  [3 ]\n"));
        assert!(map(3, "mesh", &[], &[], 1).starts_with(" [1x]  [2 ]  [3 ]\n"));
    }
}
