//! A program at a node of a lab, started from outside of its sandbox.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};

use nix::sched::{CloneFlags, setns};
use types::NodeId;

use super::place::Place;
use crate::error::{Result, doing};
use crate::star;

/// Starts `command` at a node. This process, which must have no other threads, sees the lab's files from now on, and is at the
/// node itself; only its process ids are still those of outside.
///
/// # Errors
/// The lab has just ended, or `command` cannot be started.
pub fn start(place: &Place, node: NodeId, command: &mut Command) -> Result<Child> {
    let enter = |file: &File, kind, what: &str| setns(file, kind).map_err(doing(format!("enter {what}")));
    let first = first_process(place)?;
    let (own, processes, mounts) = (
        open(Path::new("/proc/self/ns/pid"))?,
        open(Path::new(&format!("/proc/{first}/ns/pid")))?,
        open(Path::new(&format!("/proc/{first}/ns/mnt")))?,
    );
    enter(&processes, CloneFlags::CLONE_NEWPID, "the lab's processes")?;
    enter(&mounts, CloneFlags::CLONE_NEWNS, "the lab's files")?;
    let network = open(&Path::new("/run/netns").join(star::name(node.0)))?;
    enter(&network, CloneFlags::CLONE_NEWNET, &format!("node {}", node.0))?;
    let child = command.spawn();
    // Else this process could start no thread.
    enter(&own, CloneFlags::CLONE_NEWPID, "the own processes")?;
    child.map_err(doing(format!("start {}", command.get_program().to_string_lossy())))
}

/// The pid of the first process of a lab's sandbox.
fn first_process(place: &Place) -> Result<u32> {
    let text = fs::read_to_string(place.first());
    match text.ok().and_then(|text| text.trim().parse().ok()) {
        Some(pid) if place.is_up() => Ok(pid),
        _ => Err(place.not_up()),
    }
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(doing(format!("open {}", path.display())))
}
