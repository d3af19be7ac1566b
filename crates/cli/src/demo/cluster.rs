//! The demo's own directory, cluster and mounts, and their removal, whatever happens.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::Signal;
use types::{BrickId, Code};
use world::private_files::make_new_dir;

use crate::commands::mount::wait_until_it_answers;
use crate::embedded::{self, ClusterSpec, MAIN_VOLUME};
use crate::home::Home;
use crate::output::Output;
use crate::private;
use crate::problem::problem;
use crate::process::{self, Daemon};
use crate::remote::{ClusterSnapshot, Remote, Target};
use crate::size::Size;

/// How long a mount's daemon may take to make everything stable.
const FLUSH_PATIENCE: Duration = Duration::from_secs(120);

/// Bytes of each brick's journal. Formatting writes them, so this is no more than the demo needs.
const JOURNAL: Size = Size(32 << 20);

/// What must be removed; shared with the thread that handles Ctrl-C.
#[derive(Default)]
pub(super) struct Cleanup {
    made: Mutex<Made>,
    /// Held during the removal, so that the process does not end meanwhile.
    clearing: Mutex<()>,
}

#[derive(Default)]
struct Made {
    dir: Option<PathBuf>,
    /// The directory existed before (empty), so it is kept.
    dir_was_there: bool,
    home: Option<Home>,
    mounts: Vec<(PathBuf, Daemon)>,
    kept: bool,
}

impl Cleanup {
    fn change<T>(&self, f: impl FnOnce(&mut Made) -> T) -> T {
        f(&mut self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Unmounts, kills processes by pid, removes files. Does nothing the second time, or with `--keep`. Returns when
    /// everything is removed, by any thread.
    pub(super) fn clear(&self) {
        let _clearing = self.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.change(|made| if made.kept { Made::default() } else { std::mem::take(made) });
        for (dir, _) in &made.mounts {
            let _ = umount2(dir, MntFlags::MNT_DETACH);
        }
        let mut daemons: Vec<Daemon> = made.mounts.iter().map(|(_, daemon)| *daemon).collect();
        if let Some(home) = &made.home {
            let metas = home.metas().into_iter().map(|(name, _)| name);
            let names = metas.chain(home.bricks().map(|b| b.to_string()));
            daemons.extend(names.filter_map(|name| home.daemon(&name)));
        }
        for daemon in &daemons {
            let _ = daemon.signal(Signal::SIGKILL);
        }
        for daemon in &daemons {
            daemon.wait_gone(Duration::from_secs(10));
        }
        let Some(dir) = made.dir else { return };
        for name in ["cluster.json", "key"] {
            let _ = fs::remove_file(dir.join(name));
        }
        // Remove a mount point only if nothing is mounted there any more: never delete through a mount.
        for name in ["mount-1", "mount-2"] {
            let _ = fs::remove_dir(dir.join(name));
        }
        let metas = made.home.iter().flat_map(|home| home.metas()).map(|(name, _)| name);
        for name in ["bricks", "run", "log"].map(str::to_owned).into_iter().chain(metas) {
            let _ = fs::remove_dir_all(dir.join(name));
        }
        if !made.dir_was_there {
            let _ = fs::remove_dir(&dir);
        }
    }

    /// Moves the logs of a failed run out of the directory before its removal. Returns their place.
    pub(super) fn save_logs(&self) -> Option<PathBuf> {
        let log = self.change(|made| made.dir.as_ref().map(|dir| dir.join("log")))?;
        let saved = std::env::temp_dir().join(format!("shoal-demo-logs-{}", std::process::id()));
        fs::create_dir_all(&saved).ok()?;
        for entry in fs::read_dir(log).ok()?.flatten() {
            let _ = fs::copy(entry.path(), saved.join(entry.file_name()));
        }
        Some(saved)
    }
}

/// The running cluster of the demo.
pub(super) struct DemoCluster {
    pub(super) home: Home,
    pub(super) remote: Remote,
    cleanup: Arc<Cleanup>,
    tied: bool,
}

/// A mount of the demo.
pub(super) struct DemoMount {
    pub(super) dir: PathBuf,
    daemon: Daemon,
}

/// The options of the cluster.
pub(super) struct ClusterOptions {
    pub(super) bricks: u32,
    pub(super) code: Code,
    pub(super) memory: Size,
    /// Bytes of files that will be copied in.
    pub(super) bytes: u64,
    /// Three metadata servers.
    pub(super) ha: bool,
    pub(super) keep: bool,
}

impl DemoCluster {
    /// Makes the directory and starts the cluster.
    pub(super) fn start(
        dir: Option<&Path>,
        options: &ClusterOptions,
        cleanup: Arc<Cleanup>,
        output: &Output,
    ) -> anyhow::Result<(DemoCluster, ClusterSnapshot)> {
        let (dir, was_there) = make_dir(dir)?;
        cleanup.change(|made| {
            made.dir = Some(dir.clone());
            made.dir_was_there = was_there;
        });
        let size = brick_size(options);
        check_space(&dir, options)?;
        let journal = Some(JOURNAL);
        let spec = ClusterSpec {
            bricks: options.bricks,
            code: options.code,
            size,
            memory: options.memory,
            journal,
            port: None,
            metas: if options.ha { 3 } else { 1 },
        };
        let home = embedded::make(&dir, &spec, output)?;
        cleanup.change(|made| made.home = Some(home.clone()));
        let report = embedded::start(&home, !options.keep, output)?;
        let remote = Remote::new(&Target::embedded(&home)?)?;
        embedded::main_volume(&home, &remote)?;
        Ok((DemoCluster { home, remote, cleanup, tied: !options.keep }, report))
    }

    /// Mounts the volume in the demo's directory, by a new process.
    pub(super) fn mount(&self, name: &str, output: &Output) -> anyhow::Result<DemoMount> {
        let dir = self.home.dir().join(name);
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut words: Vec<OsString> = vec!["mount".into(), "--foreground".into(), "--detached".into()];
        if self.tied {
            words.push("--tied".into());
        }
        words.extend(["--dir".into(), self.home.dir().into()]);
        words.extend(["--memory".into(), self.home.plan().memory.0.to_string().into()]);
        words.extend([OsString::from("--"), MAIN_VOLUME.into(), (&dir).into()]);
        let mut started = process::start(name, &words, &self.home.log_path(name))?;
        let Some(daemon) = started.daemon() else {
            started.check()?;
            anyhow::bail!("{name} ended at once");
        };
        self.cleanup.change(|made| made.mounts.push((dir.clone(), daemon)));
        wait_until_it_answers(started, &dir, output)?;
        Ok(DemoMount { dir, daemon })
    }

    /// Ends a mount. Returns when everything written through it is stable and its process has ended.
    pub(super) fn unmount(&self, mount: &DemoMount, output: &Output) -> anyhow::Result<()> {
        let spinner = output.spinner("making everything stable");
        umount2(&mount.dir, MntFlags::empty())
            .with_context(|| format!("cannot unmount {}", mount.dir.display()))?;
        let gone = mount.daemon.wait_gone(FLUSH_PATIENCE);
        spinner.finish_and_clear();
        anyhow::ensure!(gone, "the daemon of {} does not end", mount.dir.display());
        self.cleanup.change(|made| made.mounts.retain(|(dir, _)| *dir != mount.dir));
        Ok(())
    }

    /// The process of a brick.
    pub(super) fn brick_daemon(&self, brick: BrickId) -> anyhow::Result<Daemon> {
        self.home.daemon(&brick.to_string()).with_context(|| format!("brick {brick} does not run"))
    }

    /// Keeps everything.
    pub(super) fn keep(&self) {
        self.cleanup.change(|made| made.kept = true);
    }
}

impl DemoMount {
    /// The counters in the mount's status file.
    pub(super) fn counters(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let path = self.dir.join(".shoal/status");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?))).collect())
    }
}

fn make_dir(dir: Option<&Path>) -> anyhow::Result<(PathBuf, bool)> {
    let Some(dir) = dir else {
        let dir = std::env::temp_dir().join(format!("shoal-demo-{}", std::process::id()));
        make_new_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        return Ok((dir, false));
    };
    if !dir.exists() {
        private::make_dir(dir)?;
        return Ok((fs::canonicalize(dir)?, false));
    }
    let mut entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    if entries.next().is_some() {
        return Err(problem(format!("{} is not empty", dir.display()), "a new or empty directory for --dir"));
    }
    Ok((fs::canonicalize(dir)?, true))
}

/// Room for twice the data and parity, and for journals; the files are sparse.
fn brick_size(options: &ClusterOptions) -> Size {
    const LEAST: u64 = 2 << 30;
    Size((raw_bytes(options) * 2 / u64::from(options.bricks)).next_multiple_of(1 << 20) + LEAST)
}

fn raw_bytes(options: &ClusterOptions) -> u64 {
    options.bytes * options.code.slots() as u64 / options.code.k() as u64
}

fn check_space(dir: &Path, options: &ClusterOptions) -> anyhow::Result<()> {
    let space =
        nix::sys::statvfs::statvfs(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    let free = space.blocks_available() * space.fragment_size();
    let needed = raw_bytes(options) * 5 / 4 + 2 * JOURNAL.0 * u64::from(options.bricks);
    if free < needed {
        let what = format!("{} has {} free and the demo needs {}", dir.display(), Size(free), Size(needed));
        return Err(problem(what, "--dir on a larger file system, or --input with fewer files"));
    }
    Ok(())
}
