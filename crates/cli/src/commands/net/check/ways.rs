//! Whether all nodes answer, and over how many hops.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use types::NodeId;

use super::Finding;
use super::echo::{Echo, Question};
use crate::commands::net::planned::PlannedNetwork;

/// How long answers may take, and how often is asked.
const PATIENCE: Duration = Duration::from_millis(400);
const TRIES: usize = 3;
/// Bytes of a request.
const SIZE: usize = 64;
/// Hops beyond the planned ones that are tried one by one; then so many that any way will do.
const MORE_HOPS: u32 = 12;
const HOPS_MAX: u32 = 64;

/// Asks every other node.
pub(super) fn compare(echo: &Echo, planned: &PlannedNetwork, node: NodeId) -> io::Result<Vec<Finding>> {
    let others: Vec<NodeId> = planned.topology.nodes().keys().copied().filter(|&to| to != node).collect();
    let hops = hops(echo, planned, node, &others)?;
    let finding = |&to: &NodeId| {
        let what = format!("{to} {}", planned.addressing.node(to));
        finding(what, planned.hops(node, to), hops.get(&to).copied())
    };
    let mut findings: Vec<Finding> = others.iter().map(finding).collect();
    // If nobody answers, one line says so.
    if findings.len() > 1 && hops.is_empty() {
        let what = format!("{} other nodes", others.len());
        findings = vec![Finding::wrong(what, "none answers", NO_WAY)];
    }
    Ok(findings)
}

/// What to do if a node does not answer.
const NO_WAY: &str = "is it up, and does the routing daemon run there and here?";

fn finding(what: String, planned: u32, found: Option<u32>) -> Finding {
    let count = |hops: u32| format!("{hops} hop{}", if hops == 1 { "" } else { "s" });
    match found {
        Some(hops) if hops == planned => Finding::right(what, format!("answers over {}", count(hops))),
        Some(HOPS_MAX) => {
            let found = format!("answers over more than {}, planned {planned}", count(planned + MORE_HOPS));
            Finding::wrong(what, found, DETOUR)
        }
        Some(hops) => {
            Finding::wrong(what, format!("answers over {}, planned {planned}", count(hops)), DETOUR)
        }
        None => Finding::wrong(what, "does not answer", NO_WAY),
    }
}

/// What to do if the way is longer than planned.
const DETOUR: &str = "a cable of the short way is cut or misplaced: check the nodes on it";

/// The hops to each node that answers.
fn hops(
    echo: &Echo,
    planned: &PlannedNetwork,
    node: NodeId,
    others: &[NodeId],
) -> io::Result<BTreeMap<NodeId, u32>> {
    let ask = |to: NodeId, hops| Question { to: planned.addressing.node(to), hops, size: SIZE };
    let mut open: Vec<NodeId> = others.to_vec();
    let mut found = BTreeMap::new();
    for _ in 0..TRIES {
        let questions: Vec<Question> = open.iter().map(|&to| ask(to, planned.hops(node, to))).collect();
        let answered = echo.ask(&questions, PATIENCE)?;
        found.extend(keep(&mut open, &questions, &answered));
    }
    let mut far = Vec::new();
    for _ in 0..TRIES {
        let questions: Vec<Question> = open.iter().map(|&to| ask(to, HOPS_MAX)).collect();
        let answered = echo.ask(&questions, PATIENCE)?;
        far.extend(keep(&mut open, &questions, &answered).into_iter().map(|(to, _)| to));
    }
    for to in far {
        let least = planned.hops(node, to) + 1;
        let questions: Vec<Question> = (least..least + MORE_HOPS).map(|hops| ask(to, hops)).collect();
        let answered = echo.ask(&questions, PATIENCE)?;
        // The fewest hops that are answered count.
        found.insert(to, answered.iter().map(|question| question.hops).min().unwrap_or(HOPS_MAX));
    }
    Ok(found)
}

/// Takes the nodes that have answered out of `open`.
fn keep(open: &mut Vec<NodeId>, asked: &[Question], answered: &BTreeSet<Question>) -> Vec<(NodeId, u32)> {
    let pairs: Vec<(NodeId, Question)> = open.iter().copied().zip(asked.iter().copied()).collect();
    let (done, rest): (Vec<_>, Vec<_>) =
        pairs.into_iter().partition(|(_, question)| answered.contains(question));
    *open = rest.into_iter().map(|(node, _)| node).collect();
    done.into_iter().map(|(node, question)| (node, question.hops)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_way_is_not_as_planned() {
        let words = |planned, found| {
            let finding = finding("n2".to_owned(), planned, found);
            (finding.found, finding.remedy.is_none())
        };
        assert_eq!(words(2, Some(2)), ("answers over 2 hops".to_owned(), true));
        assert_eq!(words(1, Some(2)), ("answers over 2 hops, planned 1".to_owned(), false));
        assert_eq!(words(1, Some(HOPS_MAX)), ("answers over more than 13 hops, planned 1".to_owned(), false));
        assert_eq!(words(1, None), ("does not answer".to_owned(), false));
    }
}
