//! Mounts of this machine that do not answer any more.
//!
//! A mount whose daemon has ended stays in the kernel's table, and every call fails there. One whose daemon stands still blocks its
//! callers, and not all of these can be ended. So a process of its own asks each mount, and is left behind if it does not come back.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::statfs::statfs;
use serde_json::{Value, json};

use crate::mountpoint::{FS_TYPE, MountDaemon, Mounted, mount_daemons, mounted};

/// How long mounts may take to answer, all together.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before `status` looks again which mounts have answered.
const LOOK: Duration = Duration::from_millis(2);
/// What the kernel's table has before the name of a volume.
const SOURCE: &str = "shoal:";
/// Most mounts that are asked. Others count as sound.
const ASKED_MAX: usize = 64;

/// What is wrong with a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Its daemon has ended.
    Dead,
    /// A signal or a debugger has stopped its daemon, which has this pid.
    Stopped(i32),
    /// It has not answered in time.
    Silent,
}

/// A mount that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BrokenMount {
    pub(crate) dir: PathBuf,
    pub(crate) volume: String,
    pub(crate) fault: Fault,
}

impl BrokenMount {
    /// What is wrong, and what to do.
    pub(crate) fn words(&self) -> String {
        let dir = self.dir.display();
        let detach = format!("`shoal umount --lazy {dir}` detaches it");
        match self.fault {
            Fault::Dead => format!("{dir} ({}) is dead, because its daemon has ended: {detach}", self.volume),
            Fault::Stopped(pid) => format!(
                "{dir} ({}) does not answer, because its daemon (pid {pid}) is stopped: `kill -CONT {pid}` lets it continue, {detach}",
                self.volume
            ),
            Fault::Silent => {
                format!("{dir} ({}) has not answered within {} s: {detach}", self.volume, PATIENCE.as_secs())
            }
        }
    }

    pub(crate) fn document(&self) -> Value {
        let (state, pid) = match self.fault {
            Fault::Dead => ("dead", None),
            Fault::Stopped(pid) => ("stopped", Some(pid)),
            Fault::Silent => ("silent", None),
        };
        let remedy = format!("shoal umount --lazy {}", self.dir.display());
        json!({ "dir": self.dir.to_string_lossy(), "volume": self.volume, "state": state, "pid": pid, "remedy": remedy })
    }
}

/// Mounts of Shoal on this machine that do not answer. Those of daemons that serve another cluster than that at `meta` are left out.
/// Takes two seconds at most.
pub(crate) fn broken_mounts(meta: &str) -> Vec<BrokenMount> {
    let (daemons, table) = (mount_daemons(), mounted().unwrap_or_default());
    let (mut broken, mut asked) = (Vec::new(), Vec::new());
    for Mounted { dir, source, .. } in topmost(&table) {
        let daemon = daemons.iter().find(|daemon| daemon.dir == *dir);
        let volume = source.strip_prefix(SOURCE).unwrap_or(source).to_owned();
        let of = |fault| BrokenMount { dir: dir.clone(), volume: volume.clone(), fault };
        match daemon {
            Some(MountDaemon { meta: its, .. }) if its != meta => {}
            Some(MountDaemon { daemon, .. }) if daemon.is_stopped() => {
                broken.push(of(Fault::Stopped(daemon.pid())));
            }
            _ if asked.len() == ASKED_MAX => {}
            _ => asked.extend(ask(dir).map(|child| (child, of(Fault::Silent)))),
        }
    }
    broken.extend(hear(asked));
    broken
}

/// The mounts of Shoal that are not below another one at the same place.
fn topmost(table: &[Mounted]) -> impl Iterator<Item = &Mounted> {
    let is_topmost =
        |(at, mount): &(usize, &Mounted)| !table[at + 1..].iter().any(|other| other.dir == mount.dir);
    let mounts = table.iter().enumerate().filter(is_topmost).map(|(_, mount)| mount);
    mounts.filter(|mount| mount.fs_type == FS_TYPE)
}

/// Starts a process that asks a mount. [`None`] if it cannot be started: then nothing is known.
fn ask(dir: &Path) -> Option<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["status", "--ask-mount"]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()
}

/// What such a process does: prints the number of the error, 0 if there is none.
pub(crate) fn answer(dir: &Path) {
    println!("{}", statfs(dir).map_or_else(|error| error as i32, |_| 0));
}

/// Waits for the answers.
fn hear(mut asked: Vec<(Child, BrokenMount)>) -> Vec<BrokenMount> {
    let (end, mut broken) = (Instant::now() + PATIENCE, Vec::new());
    while !asked.is_empty() && Instant::now() < end {
        asked.retain_mut(|(child, mount)| {
            let is_asking = matches!(child.try_wait(), Ok(None));
            if !is_asking && is_dead(child) {
                broken.push(BrokenMount { fault: Fault::Dead, ..mount.clone() });
            }
            is_asking
        });
        thread::sleep(LOOK);
    }
    for (mut child, mount) in asked {
        // It may wait in the kernel, where no signal reaches it: nobody waits for it.
        let _ = child.kill();
        broken.push(mount);
    }
    broken
}

/// Whether a process that has ended has found a mount without a daemon.
fn is_dead(child: &mut Child) -> bool {
    let mut said = String::new();
    let read = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut said));
    let errno = said.trim().parse::<i32>().map(Errno::from_raw);
    read.is_some_and(|read| read.is_ok()) && matches!(errno, Ok(Errno::ENOTCONN | Errno::ECONNABORTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_mounts_at_one_place_the_topmost_counts() {
        let mount = |dir: &str, fs_type: &str, source: &str| Mounted {
            dir: PathBuf::from(dir),
            fs_type: fs_type.to_owned(),
            source: source.to_owned(),
            options: Vec::new(),
        };
        let table = [
            mount("/a", FS_TYPE, "below"),
            mount("/b", FS_TYPE, "hidden"),
            mount("/a", FS_TYPE, "above"),
            mount("/b", "tmpfs", "over"),
            mount("/c", "ext4", "disk"),
        ];
        assert_eq!(topmost(&table).map(|mount| &*mount.source).collect::<Vec<_>>(), ["above"]);
    }

    #[test]
    fn each_fault_says_what_to_do() {
        for fault in [Fault::Dead, Fault::Stopped(7), Fault::Silent] {
            let mount = BrokenMount { dir: PathBuf::from("/mnt/a"), volume: "main".into(), fault };
            assert!(mount.words().contains("`shoal umount --lazy /mnt/a`"), "{}", mount.words());
            assert_eq!(mount.document()["remedy"], "shoal umount --lazy /mnt/a");
        }
    }
}
