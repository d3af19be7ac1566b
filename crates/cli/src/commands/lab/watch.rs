//! `shoal lab watch`: the map of a lab, again and again.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use clap::Args;
use lab::live::{BrickState, Look, Place, Request, ask};
use serde_json::{Value, json};

use super::map::Map;
use super::rates::{CableRate, Rates};
use super::units::Rate;
use super::{About, explain};
use crate::output::Output;
use crate::size::Size;

/// Shows the map of the lab: states of the nodes, load of the cables, what is cut
#[derive(Args)]
#[command(after_help = "\
A node is [1 ], with a mark: x its brick was killed, ~ it is slow, ? the cluster does not say that it is up. A percentage is how
much of a cable's rate is used, in its fuller direction.

On a terminal the map is new each second, until you press Ctrl-C. Elsewhere it is shown once, for one second.

Examples:
  shoal lab watch
  shoal lab watch --count 10 --json")]
pub(super) struct WatchArgs {
    /// Shows it once
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// How often it is shown [default: until Ctrl-C on a terminal, else once]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Clears the terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn run(args: &WatchArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let count = match (args.once, args.count) {
        (true, _) => 1,
        (false, Some(count)) => count,
        (false, None) => {
            if is_terminal {
                u64::MAX
            } else {
                1
            }
        }
    };
    show(place, output, count, if is_terminal && !args.once { CLEAR } else { "" })
}

/// The map once.
pub(super) fn once(place: &Place, output: &Output) -> anyhow::Result<()> {
    show(place, output, 1, "")
}

fn show(place: &Place, output: &Output, count: u64, clear: &str) -> anyhow::Result<()> {
    let about = About::of(place)?;
    let topology = &about.plan.topology;
    let look = || {
        let seen = ask(place, &Request::Look).map_err(explain)?;
        Look::from_json(topology, &seen).map_err(explain)
    };
    let mut before = look()?;
    for _ in 0..count {
        thread::sleep(INTERVAL);
        let after = look()?;
        let rates = Rates::between(&before, &after, about.plan.cable.link.mbit);
        let map = Map { topology, look: &after, rates: &rates };
        output.answer_by(
            || document(&about, place, &after, &rates),
            || format!("{clear}{}\n\n{}", head(&about, place), map.text()),
        );
        before = after;
    }
    Ok(())
}

fn head(about: &About, place: &Place) -> String {
    let plan = &about.plan;
    let link = plan.cable.link;
    format!(
        "lab `{}`: {}, {} nodes, cables of {} with queues of {}, code {}, mounted at node {}",
        place.name(),
        plan.topology.shape(),
        plan.nodes(),
        Rate(link.mbit),
        Size(link.queue.into()),
        plan.code,
        plan.mount_at.0,
    )
}

fn document(about: &About, place: &Place, look: &Look, rates: &Rates) -> Value {
    let mut seen = look.to_json();
    for (node, entry) in
        seen["nodes"].as_array_mut().into_iter().flatten().zip(about.plan.topology.nodes().values())
    {
        node["at"] = entry.at.0.clone().into();
    }
    let up = |look: &lab::live::look::NodeLook| {
        look.brick == BrickState::Runs && look.cluster.as_deref() == Some("up")
    };
    json!({
        "name": place.name(),
        "plan": about.plan.to_json(),
        "seconds": rates.seconds,
        "nodes_up": look.nodes.iter().filter(|look| up(look)).count(),
        "nodes": seen["nodes"],
        "cables": rates.cables.iter().map(cable).collect::<Vec<_>>(),
        "forwarded_per_s": rates.forwarded,
        "since_it_is_up": { "forwarded": seen["forwarded"], "cables": seen["cables"] },
    })
}

fn cable(rate: &CableRate) -> Value {
    let direction = |at: usize| {
        json!({
            "mb_per_s": rate.mb_per_s[at], "percent": rate.share[at] * 100.0, "dropped": rate.dropped[at],
        })
    };
    json!({ "cable": rate.cable.to_string(), "cut": rate.is_cut, "there": direction(0), "back": direction(1) })
}
