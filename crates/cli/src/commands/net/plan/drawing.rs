//! Drawings of small networks: tori of one and two dimensions, meshes of up to four nodes.

use layout::topology::{Coordinates, Shape, Topology};
use types::NodeId;

/// Most nodes along the two dimensions of a drawing, so that it fits a terminal.
const COLUMNS_MAX: u16 = 12;
const ROWS_MAX: u16 = 12;

/// The network as lines of text, if it is small enough.
pub(super) fn drawing(topology: &Topology) -> Option<String> {
    let ids: Vec<String> = topology.nodes().keys().map(NodeId::to_string).collect();
    match (topology.shape(), &ids[..]) {
        (Shape::Torus(sizes), _) => torus(topology, sizes),
        (Shape::Mesh, [a, b]) => Some(format!("  {a} --- {b}\n")),
        (Shape::Mesh, [a, b, c]) => Some(triangle(a, b, c)),
        (Shape::Mesh, [a, b, c, d]) => Some(square([a, b, c, d])),
        _ => None,
    }
}

fn torus(topology: &Topology, sizes: &[u16]) -> Option<String> {
    let (columns, rows) = match *sizes {
        [columns] => (columns, 1),
        [columns, rows] => (columns, rows),
        _ => return None,
    };
    if columns > COLUMNS_MAX || rows > ROWS_MAX {
        return None;
    }
    let at = |column: u16, row: u16| {
        let place = Coordinates(if sizes.len() == 1 { vec![column] } else { vec![column, row] });
        let found = topology.nodes().iter().find(|(_, entry)| entry.at == place);
        found.map(|(node, _)| node.to_string()).unwrap_or_default()
    };
    let width = topology.nodes().keys().map(|node| node.to_string().len()).max().unwrap_or(0);
    // A ring of two has one cable, which leaves the drawing nowhere.
    let (wraps_across, wraps_down) = (columns > 2, rows > 2);
    let left = if wraps_across { "  -- " } else { "  " };
    let bars = {
        let line: Vec<String> = (0..columns).map(|_| format!("{:<width$}", " |")).collect();
        format!("{}{}\n", " ".repeat(left.len()), line.join("    ").trim_end())
    };
    let mut text = String::new();
    for row in 0..rows {
        if row > 0 || wraps_down {
            text += &bars;
        }
        text += left;
        for column in 0..columns {
            let name = at(column, row);
            let line = "-".repeat(2 + width - name.len());
            match column + 1 < columns {
                true => text += &format!("{name} {line} "),
                false if wraps_across => text += &format!("{name} {line}"),
                false => text += &name,
            }
        }
        text += "\n";
    }
    if wraps_down {
        text += &bars;
    }
    let ends =
        if wraps_across || wraps_down { "; a line that ends begins again at the other side" } else { "" };
    let directions = match (columns, rows) {
        (2, 1) => "port 1 leads to the other node",
        (_, 1) => "port 1 leads to the right, 2 to the left",
        (2, 2) => "port 1 leads across, 2 up or down",
        (2, _) => "port 1 leads across, 2 down, 3 up",
        (_, 2) => "port 1 leads to the right, 2 to the left, 3 up or down",
        _ => "port 1 leads to the right, 2 to the left, 3 down, 4 up",
    };
    Some(format!("{text}  {directions}{ends}\n"))
}

fn triangle(a: &str, b: &str, c: &str) -> String {
    let width = b.len() + 6;
    let indent = " ".repeat(2 + width / 2);
    let inner = " ".repeat(width.saturating_sub(b.len() + 4));
    format!("{indent}{a}\n {} / {inner}\\\n  {b} ---- {c}\n", " ".repeat(b.len()))
}

fn square([a, b, c, d]: [&str; 4]) -> String {
    let width = a.len().max(c.len());
    let space = " ".repeat(width.saturating_sub(1));
    format!(
        "  {a:-<width$}------ {b}\n  |{space} \\  / |\n  |{space}  \\/  |\n  |{space}  /\\  |\n  |{space} /  \\ |\n  {c:-<width$}------ {d}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::net::network_args::tests::planned;

    fn drawn(line: &str) -> Option<String> {
        drawing(&planned(line).expect(line).topology)
    }

    #[test]
    fn a_torus_is_a_grid_whose_edges_go_on() {
        let expected = "      |      |      |      |
  -- n1 --- n2 --- n3 --- n4 ---
      |      |      |      |
  -- n5 --- n6 --- n7 --- n8 ---
      |      |      |      |
  -- n9 --- n10 -- n11 -- n12 --
      |      |      |      |
  port 1 leads to the right, 2 to the left, 3 down, 4 up; a line that ends begins again at the other side
";
        assert_eq!(drawn("--torus 4x3").as_deref(), Some(expected));
        let square = "  n1 -- n2\n   |     |\n  n3 -- n4\n  port 1 leads across, 2 up or down\n";
        assert_eq!(drawn("--torus 2x2").as_deref(), Some(square));
        let ring = "  -- n1 -- n2 -- n3 --\n  port 1 leads to the right, 2 to the left; \
                    a line that ends begins again at the other side\n";
        assert_eq!(drawn("--torus 3").as_deref(), Some(ring));
        assert_eq!((drawn("--torus 13x2"), drawn("--torus 3x3x3"), drawn("--flat 3")), (None, None, None));
    }

    #[test]
    fn small_meshes_are_drawn() {
        let triangle = "      n1\n    /   \\\n  n2 ---- n3\n";
        assert_eq!(drawn("--mesh 3").as_deref(), Some(triangle));
        assert_eq!(drawn("--mesh 2").as_deref(), Some("  n1 --- n2\n"));
        let square = drawn("--mesh 4").expect("four nodes are few");
        assert_eq!(square.lines().count(), 6);
        assert!(["n1", "n2", "n3", "n4"].iter().all(|node| square.contains(node)), "{square}");
        assert_eq!(drawn("--mesh 5"), None);
    }
}
