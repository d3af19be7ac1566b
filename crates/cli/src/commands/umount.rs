//! `shoal umount`: ends a mount after making everything stable.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use serde_json::json;

use crate::mountpoint::{FS_TYPE, absolute, mount_daemons, mounted_at};
use crate::output::Output;
use crate::problem::problem;
use crate::process::Daemon;

/// Unmounts DIR; returns when everything written is stable
#[derive(Args)]
#[command(after_help = "\
Works even if the mount's daemon has died. (Plain `umount DIR` works too, but does not wait until everything is stable.)

Examples:
  shoal umount /mnt/shoal
  shoal umount --lazy /mnt/shoal      detaches it although files in it are open")]
pub(crate) struct UmountArgs {
    /// The mount point
    dir: PathBuf,
    /// Detaches it now; the mount ends when the last open file is closed
    #[arg(long)]
    lazy: bool,
}

/// How long a mount's daemon may take to make everything stable.
const FLUSH_PATIENCE: Duration = Duration::from_secs(300);
/// How long the daemon may do nothing at all. A daemon that runs renews its lease every second.
const STILL_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at the daemon.
const LOOK: Duration = Duration::from_millis(10);
/// How long a mount may be busy before that is an error. Whoever looks at all mounts, as `df` does, has each of them busy
/// for a moment.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &UmountArgs, output: &Output) -> anyhow::Result<()> {
    let dir = absolute(&args.dir)?;
    umount(&dir, args.lazy, output)?;
    output.answer(&json!({ "unmounted": dir.to_string_lossy() }), || format!("unmounted {}", dir.display()));
    Ok(())
}

/// Unmounts `dir`, an absolute path, and waits until its daemon has ended.
pub(crate) fn umount(dir: &Path, lazy: bool, output: &Output) -> anyhow::Result<()> {
    let daemon = mount_daemons().into_iter().find(|m| m.dir == dir).map(|m| m.daemon);
    if let Some(daemon) = daemon.as_ref().filter(|_| !lazy) {
        // The kernel may have to ask it before it can unmount.
        let began = Instant::now();
        while daemon.is_stopped() {
            if began.elapsed() > STILL_PATIENCE {
                return Err(still(dir, daemon));
            }
            std::thread::sleep(LOOK);
        }
    }
    match mounted_at(dir)? {
        Some(mount) if mount.fs_type == FS_TYPE => detach(dir, lazy)?,
        Some(mount) => anyhow::bail!("{} is not a Shoal mount but {}", dir.display(), mount.fs_type),
        // It was just unmounted by other means: its daemon may still have bytes to make stable.
        None if daemon.is_some() => {}
        None => anyhow::bail!("{} is not mounted", dir.display()),
    }
    if let Some(daemon) = daemon
        && !lazy
    {
        let spinner = output.spinner("making everything stable");
        let outcome = wait_gone(&daemon);
        spinner.finish_and_clear();
        if outcome == Outcome::Still {
            return Err(still(dir, &daemon));
        }
        if outcome == Outcome::Busy {
            let what = format!(
                "the daemon of {} (pid {}) still has bytes to make stable",
                dir.display(),
                daemon.pid()
            );
            return Err(problem(what, "`shoal status`: are the metadata service and enough bricks up?"));
        }
    }
    Ok(())
}

/// What has become of a daemon that should end.
#[derive(PartialEq, Eq)]
enum Outcome {
    Gone,
    /// It still has bytes to make stable.
    Busy,
    /// It does nothing.
    Still,
}

fn wait_gone(daemon: &Daemon) -> Outcome {
    let began = Instant::now();
    let mut last = (daemon.ran_ns(), Instant::now());
    while daemon.is_running() {
        let ran = daemon.ran_ns();
        // A kernel that does not say how long it ran says whether it is stopped.
        if ran != last.0 || (ran.is_none() && !daemon.is_stopped()) {
            last = (ran, Instant::now());
        }
        if last.1.elapsed() > STILL_PATIENCE {
            return Outcome::Still;
        }
        if began.elapsed() > FLUSH_PATIENCE {
            return Outcome::Busy;
        }
        std::thread::sleep(LOOK);
    }
    Outcome::Gone
}

fn still(dir: &Path, daemon: &Daemon) -> anyhow::Error {
    let (dir, pid) = (dir.display(), daemon.pid());
    problem(
        format!(
            "the daemon of {dir} (pid {pid}) has done nothing for {} s: it is stopped, or it hangs",
            STILL_PATIENCE.as_secs()
        ),
        format!(
            "`kill -CONT {pid}` if it was stopped; or `shoal umount --lazy {dir}`, which does not wait for it, and then `kill -9 {pid}`: bytes that are not stable are lost"
        ),
    )
}

fn detach(dir: &Path, lazy: bool) -> anyhow::Result<()> {
    let flags = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    let began = Instant::now();
    let mut done = umount2(dir, flags);
    while done == Err(Errno::EBUSY) && began.elapsed() < BUSY_PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        done = umount2(dir, flags);
    }
    done.map_err(|errno| match errno {
        Errno::EBUSY => problem(
            format!("{} is busy: a program has a file or its working directory in it", dir.display()),
            format!("`fuser -vm {}` to see which, or --lazy", dir.display()),
        ),
        Errno::EPERM => problem("unmounting needs root", "the same command with sudo"),
        errno => anyhow::anyhow!("cannot unmount {}: {errno}", dir.display()),
    })
}
