//! `shoal lab cut`, `mend`, `kill`, `slow` and `heal`.

use clap::Args;
use lab::live::{Place, Request, ask};
use serde_json::Value;

use super::explain;
use super::units::Time;
use crate::output::Output;

/// Cuts a cable: what is on it is lost, and packets go another way, if there is one
#[derive(Args)]
pub(super) struct CutArgs {
    /// Its two ends: 1-2, 3-switch, rack0-switch
    #[arg(value_name = "A-B")]
    cable: String,
}

/// Mends a cable that was cut
#[derive(Args)]
pub(super) struct MendArgs {
    /// Its two ends: 1-2, 3-switch, rack0-switch
    #[arg(value_name = "A-B")]
    cable: String,
}

/// Kills the brick of a node with SIGKILL; what is on its disk stays
#[derive(Args)]
pub(super) struct KillArgs {
    /// The node
    node: String,
}

/// Makes the brick of a node answer late: it is stopped for a time, runs for a quarter of that, and so on
#[derive(Args)]
#[command(after_help = "\
Examples:
  shoal lab slow 5 20ms
  shoal lab slow 5 0                       as quick as before")]
pub(super) struct SlowArgs {
    /// The node
    node: String,
    /// Length of each pause, such as 20ms; 0 ends them
    #[arg(value_name = "TIME")]
    time: Time,
}

pub(super) fn cut(args: &CutArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    act(&Request::Cut(args.cable.clone()), place, output, |done| format!("{} is cut", text(&done["cable"])))
}

pub(super) fn mend(args: &MendArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    let words = |done: &Value| format!("{} is whole again", text(&done["cable"]));
    act(&Request::Mend(args.cable.clone()), place, output, words)
}

pub(super) fn kill(args: &KillArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    let words = |done: &Value| format!("the brick of node {} is killed", done["node"]);
    act(&Request::Kill(args.node.clone()), place, output, words)
}

pub(super) fn slow(args: &SlowArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    // Less than a millisecond is no time for a process to be stopped.
    let ms = args.time.0.as_micros().div_ceil(1000) as u64;
    act(&Request::Slow(args.node.clone(), ms), place, output, |done| match done["slow_ms"].as_u64() {
        Some(ms) => format!("the brick of node {} is stopped for {ms} ms again and again", done["node"]),
        None => format!("the brick of node {} is as quick as before", done["node"]),
    })
}

pub(super) fn heal(place: &Place, output: &Output) -> anyhow::Result<()> {
    let spinner = output.spinner("healing");
    let healed = ask(place, &Request::Heal);
    spinner.finish_and_clear();
    let healed = healed.map_err(explain)?;
    output.answer(&healed, || healed_words(&healed));
    Ok(())
}

fn healed_words(healed: &Value) -> String {
    let list = |name: &str| healed[name].as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let parts = [
        ("mended", list("mended")),
        ("bricks started again at nodes", list("started")),
        ("as quick as before: nodes", list("quick")),
    ];
    let told = parts.iter().filter(|(_, list)| !list.is_empty());
    let lines: Vec<String> = told.map(|(what, list)| format!("{what} {}", list.join(", "))).collect();
    if lines.is_empty() { "nothing was wrong".to_owned() } else { lines.join("\n") }
}

fn act(
    request: &Request,
    place: &Place,
    output: &Output,
    words: impl Fn(&Value) -> String,
) -> anyhow::Result<()> {
    let done = ask(place, request).map_err(explain)?;
    output.answer(&done, || words(&done));
    Ok(())
}

/// A name or number as it is printed.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_was_healed_is_told() {
        let words = |mended: Value, started: Value| {
            healed_words(&json!({ "mended": mended, "started": started, "quick": [] }))
        };
        assert_eq!(words(json!([]), json!([])), "nothing was wrong");
        assert_eq!(words(json!(["1-2"]), json!([3, 4])), "mended 1-2\nbricks started again at nodes 3, 4");
    }
}
