//! Draws a network with characters: a torus as planes of rows and columns, a tree by its racks, others by their neighbours.
//!
//! ```text
//!   n1 ──── n2 ──── n3 ──>        `──>` leads to the row's first node, `v` to the column's
//!   │       │       │
//!   n4 ──── n5 ──── n6 ──>
//!   v       v       v
//! ```

use types::NodeId;

use super::network::Topology;
use super::shape::{Coordinates, Shape, Vertex};

/// Draws `topology`. `node` says what is written for a node, `link` what is written at a link, in few characters; nothing for
/// an empty text.
pub fn draw(
    topology: &Topology,
    node: impl Fn(NodeId) -> String,
    link: impl Fn(Vertex, Vertex) -> String,
) -> String {
    match topology.shape() {
        Shape::Torus(sizes) => draw_torus(topology, sizes, &node, &link),
        Shape::FatTree => draw_racks(topology, &node, &link),
        Shape::Flat => {
            let ends =
                topology.nodes().keys().map(|&id| end(&node(id), &link(Vertex::Node(id), Vertex::Core)));
            format!("  switch ── {}\n", ends.collect::<Vec<_>>().join(", "))
        }
        Shape::Mesh | Shape::Links => {
            let line = |&id: &NodeId| {
                let own = Vertex::Node(id);
                let others = topology.neighbours(own).into_iter().map(|other| match other {
                    Vertex::Node(there) => end(&node(there), &link(own, other)),
                    _ => end(&other.to_string(), &link(own, other)),
                });
                format!("  {} ── {}\n", node(id), others.collect::<Vec<_>>().join(", "))
            };
            topology.nodes().keys().map(line).collect()
        }
    }
}

/// What is at the other end of a link, and the link's text.
fn end(there: &str, text: &str) -> String {
    if text.is_empty() { there.to_owned() } else { format!("{there} ({text})") }
}

fn draw_racks(
    topology: &Topology,
    node: &impl Fn(NodeId) -> String,
    link: &impl Fn(Vertex, Vertex) -> String,
) -> String {
    let racks = topology.vertices().iter().filter(|vertex| matches!(vertex, Vertex::Rack(_)));
    let line = |&rack: &Vertex| {
        let nodes = topology.neighbours(rack).into_iter().filter_map(|vertex| match vertex {
            Vertex::Node(id) => Some(end(&node(id), &link(vertex, rack))),
            _ => None,
        });
        let up = end("switch", &link(rack, Vertex::Core));
        format!("  {up} ── {rack} ── {}\n", nodes.collect::<Vec<_>>().join(", "))
    };
    racks.map(line).collect()
}

fn draw_torus(
    topology: &Topology,
    sizes: &[u16],
    node: &impl Fn(NodeId) -> String,
    link: &impl Fn(Vertex, Vertex) -> String,
) -> String {
    let at = |x: u16, y: u16, z: u16| {
        let place = Coordinates([x, y, z][..sizes.len()].to_vec());
        let found = topology.nodes().iter().find(|(_, entry)| entry.at == place);
        *found.expect("a torus has no hole").0
    };
    let size = |along: usize| sizes.get(along).copied().unwrap_or(1);
    let (columns, rows, planes) = (size(0), size(1), size(2));
    let text = |a: NodeId, b: NodeId| link(Vertex::Node(a), Vertex::Node(b));
    let widest_node = topology.nodes().keys().map(|&id| node(id).chars().count()).max().unwrap_or(0);
    let texts = topology.links().into_iter().map(|(a, b)| link(a, b).chars().count());
    let widest_text = texts.max().unwrap_or(0);
    // Below a node is the text of a link too.
    let (cell, between) = (widest_node.max(widest_text + 2), widest_text + 4);
    let mut drawing = String::new();
    for z in 0..planes {
        if planes > 1 {
            drawing += &format!("  plane {z}\n");
        }
        for y in 0..rows {
            let (mut line, mut below) = (String::from(" "), String::from(" "));
            for x in 0..columns {
                let here = at(x, y, z);
                let (right, down) = (at((x + 1) % columns, y, z), at(x, (y + 1) % rows, z));
                let name = node(here);
                line += &format!(" {name} {}", "─".repeat(cell - name.chars().count()));
                line += &if x + 1 < columns {
                    format!("{:─^between$}", text(here, right))
                } else if columns > 2 {
                    format!("{:─<1$}>", text(here, right), between - 2)
                } else {
                    String::new()
                };
                let mark = if y + 1 < rows { "│" } else { "v" };
                let text = if rows > 2 || y + 1 < rows {
                    format!("{mark} {}", text(here, down))
                } else {
                    String::new()
                };
                below += &format!(" {text:<0$}", cell + between + 1);
            }
            // Where no link leads on, no line does.
            drawing +=
                &format!("{}\n", line.trim_end_matches(if columns > 2 { ' ' } else { '─' }).trim_end());
            if rows > 1 && !below.trim().is_empty() {
                drawing += &format!("{}\n", below.trim_end());
            }
        }
    }
    drawing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str) -> String {
        let topology: Topology = text.parse().expect("sound");
        draw(&topology, |node| node.to_string(), |_, _| String::new())
    }

    fn numbered(shape: &str, nodes: u32) -> Topology {
        Topology::numbered(shape.parse().expect("a shape"), &(1..=nodes).map(NodeId).collect()).expect("fits")
    }

    #[test]
    fn a_torus_is_drawn_in_rows_and_columns() {
        let torus = numbered("torus 3x2", 6);
        let text = draw(&torus, |node| node.to_string(), |_, _| String::new());
        let expected = ["  n1 ──── n2 ──── n3 ──>", "  │       │       │", "  n4 ──── n5 ──── n6 ──>"];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_have_texts_and_three_dimensions_are_planes() {
        let torus = numbered("torus 2x2x2", 8);
        let text = draw(&torus, |node| format!("{node}*"), |a, b| format!("{a}{b}"));
        assert!(text.starts_with("  plane 0\n  n1* "), "{text}");
        assert!(
            text.contains("n1n2") && text.contains("│ n1n3") && text.contains("  plane 1\n  n5* "),
            "{text}"
        );
        let ring = draw(&numbered("torus 3", 3), |node| node.to_string(), |_, _| String::new());
        assert_eq!(ring, "  n1 ──── n2 ──── n3 ──>\n");
    }

    #[test]
    fn others_are_drawn_by_what_they_are_cabled_to() {
        assert_eq!(drawn("mesh\nnode 1\nnode 2\nnode 3"), "  n1 ── n2, n3\n  n2 ── n1, n3\n  n3 ── n1, n2\n");
        assert_eq!(drawn("flat\nnode 1\nnode 2"), "  switch ── n1, n2\n");
        let racks = "fat-tree\nnode 1 at 0\nnode 2 at 7\nnode 3 at 0";
        assert_eq!(drawn(racks), "  switch ── rack 0 ── n1, n3\n  switch ── rack 7 ── n2\n");
    }
}
