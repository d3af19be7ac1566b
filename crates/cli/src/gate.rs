//! Common parts of the NBD and NFS gates of this machine: daemons that serve a volume to other software until they
//! are stopped. (A mount ends when it is unmounted: `mountpoint.rs`.)

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::LISTENING;
use crate::output::Output;
use crate::problem::problem;
use crate::process::{Daemon, Started};
use crate::run_files::{self, RunFile};

/// How long a gate may take to start, and how long to make everything stable when it ends.
const PATIENCE: Duration = Duration::from_secs(60);
const FLUSH_PATIENCE: Duration = Duration::from_secs(300);

/// The commands that start gates. They are also the kinds of their run files.
const KINDS: [&str; 2] = ["nbd", "nfs"];

/// A gate of this machine.
pub(crate) struct Gate {
    /// Address of the metadata service of its cluster.
    pub(crate) meta: String,
    /// The URI of its export, for clients.
    pub(crate) uri: String,
    volume: String,
    /// The address in its options, and its actual address.
    at: Vec<String>,
    daemon: Daemon,
}

/// Makes the run file of this process, by which other commands find the gate.
pub(crate) fn create_run_file(
    kind: &str,
    volume: &str,
    meta: &str,
    uri: &str,
    at: &[String],
) -> anyhow::Result<RunFile> {
    RunFile::create(kind, &json!({ "volume": volume, "meta": meta, "uri": uri, "at": at }))
}

/// The gates of a cluster that run on this machine.
pub(crate) fn gates_of(meta: &str) -> Vec<Gate> {
    KINDS.into_iter().flat_map(running).filter(|gate| gate.meta == meta).collect()
}

fn running(kind: &str) -> Vec<Gate> {
    let known = |(note, daemon): (Value, Daemon)| {
        let word = |name: &str| note[name].as_str().map(str::to_owned);
        let at = note["at"].as_array()?.iter().filter_map(|at| at.as_str().map(str::to_owned)).collect();
        Some(Gate { meta: word("meta")?, uri: word("uri")?, volume: word("volume")?, at, daemon })
    };
    run_files::of_kind(kind).into_iter().filter_map(known).collect()
}

/// Waits until a gate listens. Returns its address, from its log.
pub(crate) fn wait_until_it_answers(started: &mut Started, output: &Output) -> anyhow::Result<String> {
    let spinner = output.spinner("opening the gate");
    let end = Instant::now() + PATIENCE;
    loop {
        started.check()?;
        let said = started.said();
        if let Some((_, at)) = said.lines().find_map(|line| line.split_once(LISTENING)) {
            spinner.finish_and_clear();
            return Ok(at.trim().to_owned());
        }
        if Instant::now() > end {
            let what = format!("the gate did not start to listen within {} s", PATIENCE.as_secs());
            return Err(problem(what, "`shoal status`, and the gate's log"));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends the gates of a volume, or the one that listens at `at`.
pub(crate) fn stop_all(kind: &str, volume: &str, at: Option<&str>, output: &Output) -> anyhow::Result<()> {
    let meant = |gate: &Gate| gate.volume == volume && at.is_none_or(|at| gate.at.iter().any(|a| a == at));
    let gates: Vec<Gate> = running(kind).into_iter().filter(meant).collect();
    if gates.is_empty() {
        let what = format!("no gate of volume `{volume}` runs here that `shoal {kind} --stop` could end");
        return Err(problem(what, "`shoal status` shows the gates of this machine"));
    }
    for gate in &gates {
        gate.stop(output)?;
    }
    let uris: Vec<&str> = gates.iter().map(|gate| gate.uri.as_str()).collect();
    output.answer(&json!({ "closed": uris }), || format!("closed {}", uris.join(", ")));
    Ok(())
}

impl Gate {
    /// Ends it; makes everything stable.
    pub(crate) fn stop(&self, output: &Output) -> anyhow::Result<()> {
        self.daemon.signal(nix::sys::signal::Signal::SIGTERM);
        let spinner = output.spinner("making everything stable");
        let gone = self.daemon.wait_gone(FLUSH_PATIENCE);
        spinner.finish_and_clear();
        if gone {
            return Ok(());
        }
        let (uri, pid) = (&self.uri, self.daemon.pid());
        let what = format!("the gate at {uri} (pid {pid}) still has bytes to make stable");
        Err(problem(what, "`shoal status`: are the metadata service and enough bricks up?"))
    }
}
