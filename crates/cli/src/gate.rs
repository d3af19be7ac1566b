//! Common parts of the NBD and NFS gates of this machine: daemons that serve a volume to other software until they
//! are stopped. (A mount ends when it is unmounted: `mountpoint.rs`.)

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use world::{Listener, World};

use crate::daemon::LISTENING;
use crate::output::Output;
use crate::problem::problem;
use crate::process::{Daemon, Started};
use crate::remote::{ConnectionArgs, Target};
use crate::run_files::{self, RunFile};

/// How long a gate may take to start, and how long to make everything stable when it ends.
const PATIENCE: Duration = Duration::from_secs(60);
const FLUSH_PATIENCE: Duration = Duration::from_secs(300);
/// How long a gate may take to answer a command.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// The commands that start gates. They are also the kinds of their run files.
const KINDS: [&str; 2] = ["nbd", "nfs"];

/// A gate of this machine.
pub(crate) struct Gate {
    /// Address of the metadata service of its cluster.
    pub(crate) meta: String,
    /// The file with the cluster's key, as the gate was started with it.
    pub(crate) key_file: Option<PathBuf>,
    /// The URI of its export, for clients.
    pub(crate) uri: String,
    volume: String,
    /// The address in its options, and its actual address.
    at: Vec<String>,
    kind: &'static str,
    /// The socket at which it answers commands. A gate of an earlier build has none.
    socket: Option<PathBuf>,
    daemon: Daemon,
}

/// Makes the run file of this process, by which other commands find the gate.
pub(crate) fn create_run_file(
    kind: &str,
    volume: &str,
    target: &Target,
    uri: &str,
    at: &[String],
) -> anyhow::Result<RunFile> {
    let socket = run_files::socket_path(kind)?;
    let (meta, key_file) = (&target.meta, target.key_file.as_deref().map(Path::to_string_lossy));
    let socket = socket.to_string_lossy();
    let note = json!({
        "volume": volume, "meta": meta, "key_file": key_file, "uri": uri, "at": at, "socket": socket,
    });
    RunFile::create(kind, &note)
}

/// Listens for commands of this machine. After [`create_run_file`], which makes the directory.
pub(crate) fn listen_for_commands(world: &World, kind: &str) -> anyhow::Result<Listener> {
    let path = run_files::socket_path(kind)?;
    let path = path.to_str().context("the directory for run files must be UTF-8")?;
    world.block_on(world.listen_at_path(path)).with_context(|| format!("cannot listen at {path}"))
}

/// The gate of this machine with this URI, or `KIND:VOLUME`; of the cluster that the options name, if they do.
pub(crate) fn find(name: &str, cluster: &ConnectionArgs) -> anyhow::Result<Gate> {
    let mut here: Vec<Gate> = KINDS.into_iter().flat_map(running).collect();
    if (cluster.meta.is_some() || cluster.dir.is_some())
        && let Some(meta) = cluster.named_meta()?
    {
        here.retain(|gate| is_same_cluster(&gate.meta, &meta));
    }
    let uris: Vec<String> = here.iter().map(|gate| gate.uri.clone()).collect();
    let is_meant = |gate: &Gate| gate.uri == name || format!("{}:{}", gate.kind, gate.volume) == name;
    let mut meant: Vec<Gate> = here.into_iter().filter(is_meant).collect();
    match (meant.len(), meant.pop()) {
        (1, Some(gate)) => Ok(gate),
        (0, _) if uris.is_empty() => Err(problem(
            format!("there is no gate {name}: none runs on this machine"),
            "`shoal nbd` and `shoal nfs` start gates; a mount is named by its directory",
        )),
        (0, _) => Err(problem(format!("there is no gate {name} on this machine"), uris.join(", "))),
        _ => Err(problem(format!("{name} means several gates of this machine"), uris.join(", "))),
    }
}

/// The gates of a cluster that run on this machine.
pub(crate) fn gates_of(meta: &str) -> Vec<Gate> {
    KINDS.into_iter().flat_map(running).filter(|gate| gate.meta == meta).collect()
}

fn running(kind: &'static str) -> Vec<Gate> {
    let known = |(note, daemon): (Value, Daemon)| {
        let word = |name: &str| note[name].as_str().map(str::to_owned);
        let at = note["at"].as_array()?.iter().filter_map(|at| at.as_str().map(str::to_owned)).collect();
        let (socket, key_file) = (word("socket").map(PathBuf::from), word("key_file").map(PathBuf::from));
        let (meta, uri, volume) = (word("meta")?, word("uri")?, word("volume")?);
        Some(Gate { meta, key_file, uri, volume, at, kind, socket, daemon })
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

/// Ends the gates of a volume, or the one that listens at `at`. Another cluster may have a volume of this name.
pub(crate) fn stop_all(
    kind: &'static str,
    volume: &str,
    at: Option<&str>,
    cluster: &ConnectionArgs,
    output: &Output,
) -> anyhow::Result<()> {
    let meant = |gate: &Gate| gate.volume == volume && at.is_none_or(|at| gate.at.iter().any(|a| a == at));
    let found: Vec<Gate> = running(kind).into_iter().filter(meant).collect();
    let named = cluster.named_meta()?;
    let (gates, others): (Vec<Gate>, Vec<Gate>) = match &named {
        Some(meta) => found.into_iter().partition(|gate| is_same_cluster(&gate.meta, meta)),
        None => (found, Vec::new()),
    };
    let metas: BTreeSet<&str> = gates.iter().chain(&others).map(|gate| gate.meta.as_str()).collect();
    let choices = || metas.iter().map(|meta| format!("--meta {meta}")).collect::<Vec<_>>().join(", or ");
    match gates.split_first() {
        None if others.is_empty() => {
            let what = format!("no gate of volume `{volume}` runs here that `shoal {kind} --stop` could end");
            return Err(problem(what, "`shoal status` shows the gates of this machine"));
        }
        None => {
            let what = format!("the gates of a volume `{volume}` that run here are those of another cluster");
            return Err(problem(what, format!("{} if that is meant", choices())));
        }
        Some((first, rest)) if rest.iter().any(|gate| !is_same_cluster(&gate.meta, &first.meta)) => {
            let what = format!("gates of several clusters with a volume `{volume}` run here");
            return Err(problem(what, choices()));
        }
        Some(_) => {}
    }
    for gate in &gates {
        gate.stop(output)?;
    }
    let uris: Vec<&str> = gates.iter().map(|gate| gate.uri.as_str()).collect();
    output.answer(&json!({ "closed": uris }), || format!("closed {}", uris.join(", ")));
    Ok(())
}

/// Whether two lists of metadata servers are of one cluster: they have one in common.
fn is_same_cluster(a: &str, b: &str) -> bool {
    a.split(',').any(|server| b.split(',').any(|other| other == server))
}

impl Gate {
    /// Asks it about itself (`gates/src/control/question.rs`).
    pub(crate) fn ask(&self, question: &str) -> anyhow::Result<String> {
        let again =
            || format!("stop the gate and start it again: `shoal {} {} --stop`", self.kind, self.volume);
        let Some(socket) = &self.socket else {
            return Err(problem(format!("the gate {} is older than this command", self.uri), again()));
        };
        let asked = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
            stream.write_all(format!("{question}\n").as_bytes())?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        match asked() {
            Ok(text) => match text.strip_suffix("end\n") {
                Some(answer) => Ok(answer.to_owned()),
                None => {
                    let what = format!("the gate {} is asked by many commands, or has just ended", self.uri);
                    Err(problem(what, "the same command again"))
                }
            },
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(problem(
                format!("only the user of the gate {} may ask it", self.uri),
                "the same command with sudo",
            )),
            Err(error) => Err(problem(
                format!("the gate {} does not answer at {}: {error}", self.uri, socket.display()),
                again(),
            )),
        }
    }

    /// Ends it; makes everything stable.
    pub(crate) fn stop(&self, output: &Output) -> anyhow::Result<()> {
        self.daemon.signal(nix::sys::signal::Signal::SIGTERM).map_err(|error| {
            let what = format!(
                "the gate at {} (pid {}) cannot be stopped: {}",
                self.uri,
                self.daemon.pid(),
                error.desc()
            );
            problem(what, "the same command by the user who has started it, or with sudo")
        })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_the_same_if_they_share_a_server() {
        assert!(is_same_cluster("a:1,b:1", "b:1,c:1") && is_same_cluster("a:1", "a:1"));
        assert!(!is_same_cluster("a:1,b:1", "c:1") && !is_same_cluster("a:1", "a:11"));
    }
}
