//! Runs iproute2: single commands, many at once, and the counters of its token buckets.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::error::{LabError, Result, doing};
use crate::node::Space;

/// A command of iproute2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// `ip` or `tc`.
    pub program: &'static str,
    /// Its arguments.
    pub words: Vec<String>,
}

impl Step {
    pub(crate) fn new(program: &'static str, line: &str) -> Step {
        Step { program, words: line.split(' ').map(str::to_owned).collect() }
    }
}

/// Runs a command.
pub(crate) fn carry_out(step: &Step) -> Result<()> {
    run(step.program, &step.words).map(drop)
}

/// Runs a command. Returns its standard output.
pub(crate) fn run(program: &'static str, words: &[String]) -> Result<Vec<u8>> {
    let ran = Command::new(program).args(words).stdin(Stdio::null()).output();
    ended(&format!("{program} {}", words.join(" ")), ran.map_err(cannot_start(program))?)
}

/// Runs many commands of one program in the namespace of the calling thread, one per line: one process for all of them.
pub(crate) fn batch(program: &'static str, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot_start(program))?;
    if let Some(mut to) = child.stdin.take() {
        // One that fails stops reading; what it says then is the better error.
        let _ = to.write_all((lines.join("\n") + "\n").as_bytes());
    }
    let ran = child.wait_with_output().map_err(doing(format!("wait for {program}")))?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let failed = said.lines().find_map(|line| failed_line(line).and_then(|at| lines.get(at - 1)));
    let words = failed.map_or_else(|| format!("-batch of {} commands", lines.len()), String::clone);
    ended(&format!("{program} {words}"), ran).map(drop)
}

/// The line that `Command failed -:7` tells, from 1.
fn failed_line(said: &str) -> Option<usize> {
    said.strip_prefix("Command failed -:")?.trim().parse().ok().filter(|at| *at > 0)
}

fn cannot_start(program: &'static str) -> impl FnOnce(std::io::Error) -> LabError {
    move |error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            LabError::Missing { program: program.to_owned(), package: "iproute2" }
        }
        _ => doing(format!("start {program}"))(error),
    }
}

fn ended(command: &str, ran: Output) -> Result<Vec<u8>> {
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(LabError::Command { command: command.to_owned(), said })
}

/// The traffic that a queue has passed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Headers counted.
    pub bytes: u64,
    /// A bundle (GSO) counts as its packets.
    pub packets: u64,
    /// Packets that came when the queue was full.
    pub dropped: u64,
}

impl Counts {
    /// The difference since `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            bytes: self.bytes.saturating_sub(before.bytes),
            packets: self.packets.saturating_sub(before.packets),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

/// The queue of a port.
pub(crate) struct Queue {
    pub(crate) port: String,
    pub(crate) counts: Counts,
}

/// The counts of a port's queue.
pub(crate) fn counts(queues: &[Queue], port: &str) -> Counts {
    queues.iter().find(|queue| queue.port == port).map(|queue| queue.counts).unwrap_or_default()
}

/// The token buckets of a namespace. `tc -n` would do the same, but makes a mount namespace first, which takes seconds where all
/// cores are busy.
pub(crate) fn queues(space: &Space) -> Result<Vec<Queue>> {
    let words = ["-s", "-j", "qdisc", "show"].map(str::to_owned);
    let said = space.enter(|| run("tc", &words))??;
    let list: Value = serde_json::from_slice(&said).map_err(doing("read the counters of `tc`"))?;
    Ok(parse(&list))
}

fn parse(list: &Value) -> Vec<Queue> {
    let shaped = list.as_array().into_iter().flatten().filter(|queue| queue["kind"] == "tbf");
    let read = |queue: &Value| {
        let count = |name: &str| queue[name].as_u64().unwrap_or_default();
        let counts = Counts { bytes: count("bytes"), packets: count("packets"), dropped: count("drops") };
        Queue { port: queue["dev"].as_str().unwrap_or_default().to_owned(), counts }
    };
    shaped.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_are_those_of_token_buckets() {
        let list = json!([
            { "kind": "noqueue", "dev": "hub", "bytes": 9 },
            { "kind": "tbf", "dev": "node1", "bytes": 364, "packets": 4, "drops": 1 },
        ]);
        let queues = parse(&list);
        assert_eq!(queues.len(), 1);
        let expected = Counts { bytes: 364, packets: 4, dropped: 1 };
        assert_eq!((&*queues[0].port, queues[0].counts), ("node1", expected));
        assert_eq!(counts(&queues, "node2"), Counts::default());
    }

    #[test]
    fn the_command_of_a_batch_that_fails_is_named() {
        assert_eq!(failed_line("Command failed -:7"), Some(7));
        assert_eq!(failed_line("Command failed -:0"), None);
        assert_eq!(failed_line("Cannot find device \"x\""), None);
        let lines = ["link show lo", "link show nothing-here"].map(str::to_owned);
        let error = batch("ip", &lines).expect_err("there is no such device").to_string();
        assert!(error.contains("ip link show nothing-here"), "{error}");
        assert!(batch("ip", &lines[..1]).is_ok());
    }
}
