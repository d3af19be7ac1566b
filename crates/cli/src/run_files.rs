//! Run files of the daemons of mounts and gates, by which other commands find them.
//!
//! A run file is called `KIND-NAMESPACE-PID.json`, and beside it is a pid file. Containers may share the directory and
//! still have PID namespaces of their own. The same pid is then another process in each of them, and nobody sees the
//! processes of the others. So a command looks only at the files of its own PID namespace, and leaves the others alone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Once;

use anyhow::Context;
use serde_json::Value;
use world::private_files;

use crate::private;
use crate::problem::problem;
use crate::process::Daemon;

/// The directory for this user's daemons. Nobody else can have put anything there.
fn run_dir() -> anyhow::Result<PathBuf> {
    private_files::run_dir().map_err(|error| {
        problem(
            format!("the directory for files of running daemons cannot be used: {error}"),
            "remove it if nothing of yours is in it; or XDG_RUNTIME_DIR=DIR with a directory of your own",
        )
    })
}

/// The id of this process's PID namespace.
fn pid_namespace() -> anyhow::Result<u64> {
    let file = "/proc/self/ns/pid";
    Ok(fs::metadata(file).with_context(|| format!("cannot look at {file}"))?.ino())
}

/// The file of all daemons that receive through the same network: those of this network namespace.
pub(crate) fn receive_window_file() -> anyhow::Result<PathBuf> {
    let file = "/proc/self/ns/net";
    let namespace = fs::metadata(file).with_context(|| format!("cannot look at {file}"))?.ino();
    Ok(run_dir()?.join(format!("receive-window-{namespace}")))
}

/// The path of the files of this process, without their ending.
fn path(kind: &str) -> anyhow::Result<PathBuf> {
    Ok(run_dir()?.join(format!("{kind}-{}-{}", pid_namespace()?, std::process::id())))
}

/// Where this daemon answers commands, if it listens.
pub(crate) fn socket_path(kind: &str) -> anyhow::Result<PathBuf> {
    Ok(path(kind)?.with_extension("sock"))
}

/// A socket of this user's daemons that other programs know by its name. Makes the directory, for this user only.
pub(crate) fn shared_socket(name: &str) -> anyhow::Result<PathBuf> {
    Ok(run_dir()?.join(name))
}

/// The run file of this daemon; removed when dropped.
pub(crate) struct RunFile {
    path: PathBuf,
}

impl RunFile {
    /// Makes the run file of this process, a daemon of this `kind`.
    pub(crate) fn create(kind: &str, what: &Value) -> anyhow::Result<RunFile> {
        let path = path(kind)?.with_extension("json");
        let me = Daemon::running(std::process::id()).context("cannot find this process in /proc")?;
        me.write(&path.with_extension("pid"))?;
        private::write(&path, &what.to_string())?;
        Ok(RunFile { path })
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_extension("pid"));
        let _ = fs::remove_file(self.path.with_extension("sock"));
    }
}

/// The contents of the run files of running daemons of a kind, in this PID namespace. Removes those of dead ones.
pub(crate) fn of_kind(kind: &str) -> Vec<(Value, Daemon)> {
    let Ok(namespace) = pid_namespace() else { return Vec::new() };
    let dir = match run_dir() {
        Ok(dir) => dir,
        Err(error) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| eprintln!("warning: no mount and no gate is found: {error}"));
            return Vec::new();
        }
    };
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let prefix = format!("{kind}-{namespace}-");
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix) && name.ends_with(".json")
    };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()).filter(is_one) {
        let Some(daemon) = Daemon::read(&path.with_extension("pid")) else {
            drop(RunFile { path });
            continue;
        };
        let text = fs::read_to_string(&path).unwrap_or_default();
        found.push((serde_json::from_str(&text).unwrap_or_default(), daemon));
    }
    found
}
