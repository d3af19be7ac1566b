//! The written form of a topology: what `shoal topology show` prints, `set --file` reads and the cluster keeps.
//!
//! ```text
//! torus 4x4                                    flat | fat-tree | torus AxB | torus AxBxC | mesh | links
//! node 1 at 0,0 front 10.0.0.1 10.0.1.1        coordinates, side, one address per port: all optional where the
//! node 2 at 1,0                                shape has no coordinates
//! link 1 2                                     only for `links`
//! ```
//!
//! `#` begins a comment.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use types::NodeId;

use super::error::TopologyError;
use super::network::{NodeEntry, NodeTier, Topology};
use super::shape::{Coordinates, Shape};

/// Most dimensions of a torus.
const DIMENSIONS_MAX: usize = 3;

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        // `torus:4x4` is one word of a command line, `torus 4x4` a line of a file.
        let words: Vec<&str> = text.split([' ', ':']).filter(|word| !word.is_empty()).collect();
        match *words {
            ["flat"] => Ok(Shape::Flat),
            ["fat-tree"] => Ok(Shape::FatTree),
            ["mesh"] => Ok(Shape::Mesh),
            ["links"] => Ok(Shape::Links),
            ["torus", sizes] => {
                let sizes: Option<Vec<u16>> = sizes.split('x').map(|size| size.parse().ok()).collect();
                let fits = |sizes: &Vec<u16>| {
                    sizes.len() <= DIMENSIONS_MAX && sizes.iter().all(|&size| (2..=1024).contains(&size))
                };
                let expected = format!(
                    "the sizes of a torus are one to {DIMENSIONS_MAX} numbers from 2 to 1024, as in `torus 4x4x4`"
                );
                sizes.filter(fits).map(Shape::Torus).ok_or(expected)
            }
            _ => Err(format!(
                "`{text}` is no shape: one of `flat`, `fat-tree`, `torus 4x4`, `torus 4x4x4`, `mesh`, `links`"
            )),
        }
    }
}

impl FromStr for Coordinates {
    type Err = String;

    fn from_str(text: &str) -> Result<Coordinates, String> {
        let numbers: Option<Vec<u16>> = text.split(',').map(|number| number.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() <= DIMENSIONS_MAX);
        numbers.map(Coordinates).ok_or_else(|| format!("`{text}` are no coordinates: as in `0,3`"))
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let mut lines = lines.zip(1..).filter(|(line, _)| !line.is_empty());
        let (first, line) = lines.next().ok_or(TopologyError::NoShape)?;
        let shape: Shape = first.parse().map_err(|why| TopologyError::Line { line, why })?;
        let (mut nodes, mut links) = (BTreeMap::new(), Vec::new());
        for (text, line) in lines {
            let words: Vec<&str> = text.split_whitespace().collect();
            let wrong = |why: String| TopologyError::Line { line, why };
            match words[..] {
                ["node", id, ref rest @ ..] => {
                    let id = node_id(id).map_err(wrong)?;
                    let entry = parse_node(rest).map_err(wrong)?;
                    if nodes.insert(id, entry).is_some() {
                        return Err(TopologyError::NodeTwice(id));
                    }
                }
                ["link", a, b] if shape == Shape::Links => {
                    links.push((node_id(a).map_err(wrong)?, node_id(b).map_err(wrong)?));
                }
                ["link", ..] if shape != Shape::Links => {
                    return Err(wrong(format!(
                        "the cables of a {shape} follow from its shape: links are listed for `links` only"
                    )));
                }
                _ => {
                    return Err(wrong(format!(
                        "`{text}` is neither `node ID [at X,Y] [front] [ADDRESS ...]` nor `link ID ID`"
                    )));
                }
            }
        }
        Topology::new(shape, nodes, &links)
    }
}

fn node_id(text: &str) -> Result<NodeId, String> {
    text.parse().map(NodeId).map_err(|_| format!("`{text}` is no id of a node, which is a number"))
}

fn parse_node(mut words: &[&str]) -> Result<NodeEntry, String> {
    let mut entry = NodeEntry::default();
    if let ["at", at, rest @ ..] = words {
        entry.at = at.parse()?;
        words = rest;
    }
    match words {
        ["front", rest @ ..] => (entry.tier, words) = (NodeTier::Front, rest),
        ["back", rest @ ..] => words = rest,
        _ => {}
    }
    let address = |word: &&str| word.parse().map_err(|_| format!("`{word}` is no IP address"));
    entry.addresses = words.iter().map(address).collect::<Result<_, _>>()?;
    Ok(entry)
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.shape())?;
        for (node, entry) in self.nodes() {
            write!(f, "node {}", node.0)?;
            if !entry.at.0.is_empty() {
                write!(f, " at {}", entry.at)?;
            }
            if entry.tier == NodeTier::Front {
                write!(f, " front")?;
            }
            entry.addresses.iter().try_for_each(|address| write!(f, " {address}"))?;
            writeln!(f)?;
        }
        self.listed().iter().try_for_each(|(a, b)| writeln!(f, "link {} {}", a.0, b.0))
    }
}
