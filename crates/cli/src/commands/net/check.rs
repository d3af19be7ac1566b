//! `shoal net check`: a node compares its ports, addresses and ways with the plan.

mod arp;
mod echo;
mod node;
mod ways;

use clap::Args;
use serde_json::{Value, json};
use types::NodeId;

use self::node::NodeCheck;
use super::machine::Machine;
use super::network_args::{NetworkArgs, no_node, node_id};
use super::planned::PlannedNetwork;
use crate::output::{Output, table};
use crate::problem::problem;

/// Compares this machine's ports, cables, addresses and ways with the plan
#[derive(Args)]
#[command(after_help = "\
Run it at each node, as root, with the words of the plan. It asks the neighbours who they are, by
ARP, and all nodes for an echo, by ICMP. It changes nothing. The exit code is 1 if something is not
as planned.

Examples:
  shoal net check --topology plan/topology
  shoal net check --topology plan/topology --interfaces enp1s0f0,enp1s0f1 --node 2
  shoal net check --mesh 3 --json")]
pub(super) struct CheckArgs {
    #[command(flatten)]
    network: NetworkArgs,
    /// Which node this machine is [default: the one whose address it has]
    #[arg(long, value_name = "N", value_parser = node_id)]
    node: Option<NodeId>,
}

/// Something that was compared.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    /// What: a port, a node.
    what: String,
    /// What was found.
    found: String,
    /// What to do if it is not as planned.
    remedy: Option<String>,
}

impl Finding {
    fn right(what: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { what: what.into(), found: found.into(), remedy: None }
    }

    fn wrong(what: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what: what.into(), found: found.into(), remedy: Some(remedy.into()) }
    }
}

pub(super) fn run(args: &CheckArgs, output: &Output) -> anyhow::Result<()> {
    let planned = args.network.planned()?;
    let machine = Machine::read()?;
    let node = this_node(args.node, &planned, &machine)?;
    if !nix::unistd::geteuid().is_root() {
        let what = "only root may ask who is at the other end of a cable";
        return Err(problem(what, "the same command with sudo"));
    }
    let bar = output.spinner("asking the neighbours and all nodes");
    let findings = NodeCheck::new(&planned, &machine, node).run();
    bar.finish_and_clear();
    let findings = findings?;
    let wrong = findings.iter().filter(|finding| finding.remedy.is_some()).count();
    output.answer_by(|| document(node, &planned, &findings), || words(node, &planned, &findings));
    if wrong == 0 {
        return Ok(());
    }
    if output.is_json() {
        // Exit here, so that no second JSON document is printed for the error.
        std::process::exit(1);
    }
    let what = format!("{node} is not as planned: {wrong} of {} lines", findings.len());
    Err(problem(what, "what the table says, from the top"))
}

/// The node that this machine is.
fn this_node(given: Option<NodeId>, planned: &PlannedNetwork, machine: &Machine) -> anyhow::Result<NodeId> {
    let nodes = planned.topology.nodes();
    if let Some(node) = given {
        return if nodes.contains_key(&node) { Ok(node) } else { Err(no_node(node, &planned.topology)) };
    }
    let own = nodes.keys().find(|&&node| machine.holder(planned.addressing.node(node)).is_some());
    own.copied().ok_or_else(|| {
        let first = nodes.keys().next().copied().unwrap_or_default();
        let what = format!(
            "this machine has no node's address of the plan, such as {} of {first}",
            planned.addressing.node(first)
        );
        problem(what, format!("--node {}, or whichever it is", first.0))
    })
}

fn words(node: NodeId, planned: &PlannedNetwork, findings: &[Finding]) -> String {
    let mut rows = vec![["", "found", "to do"].map(str::to_owned).to_vec()];
    for Finding { what, found, remedy } in findings {
        rows.push(vec![what.clone(), found.clone(), remedy.clone().unwrap_or_default()]);
    }
    let wrong = findings.iter().any(|finding| finding.remedy.is_some());
    let verdict = if wrong { "" } else { "\nall is as planned" };
    format!("{node} of {}\n\n{}{verdict}", planned.title(), table(&rows))
}

fn document(node: NodeId, planned: &PlannedNetwork, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        let Finding { what, found, remedy } = finding;
        json!({ "what": what, "ok": remedy.is_none(), "found": found, "try": remedy })
    };
    json!({
        "node": node.0,
        "shape": planned.topology.shape().to_string(),
        "ok": findings.iter().all(|finding| finding.remedy.is_none()),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::network_args::tests::planned;
    use super::*;
    use crate::problem::remedy;

    #[test]
    fn a_machine_without_the_plans_addresses_has_to_be_named() {
        let (planned, machine) =
            (planned("--mesh 3 --range 198.18.0.0/16").expect("a mesh"), Machine::default());
        assert_eq!(this_node(Some(NodeId(2)), &planned, &machine).ok(), Some(NodeId(2)));
        let error = this_node(Some(NodeId(4)), &planned, &machine).expect_err("there is no n4");
        assert_eq!(error.to_string(), "the topology has no node n4");
        let error = this_node(None, &planned, &machine).expect_err("it has no address");
        assert!(error.to_string().contains("198.18.0.1 of n1"), "{error}");
        assert!(remedy(&error).is_some_and(|words| words.contains("--node 1")));
    }
}
