//! `shoal mount`: a volume as files.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use gates::fuse::{FuseError, FuseOptions, Stopper};
use serde_json::json;

use crate::cache_file::CacheArgs;
use crate::commands::volume::unknown;
use crate::daemon::{self, DaemonArgs};
use crate::mountpoint::{FS_TYPE, check_free, create_run_file, mounted_at};
use crate::output::Output;
use crate::private::LOG_DIR;
use crate::problem::problem;
use crate::process::{self, Started};
use crate::remote::{ConnectionArgs, Remote, Target, explain_join};
use crate::signals;
use crate::size::Size;

/// Mounts a volume at an empty directory
#[derive(Args)]
#[command(after_help = "\
Returns when the mount answers; its daemon logs to /var/log/shoal. `shoal umount DIR` ends it. The file
DIR/.shoal/status has the mount's counters. `shoal tune DIR` shows and changes its settings while it is in use.

With --exclusive the kernel caches writes, as it does for a local disk, and small writes are several times
faster. The guarantees are those of a local file system: fsync and close write the cached bytes out, and without them a
crash loses at most the writes of the kernel's write-back time (usually 30 s). The volume cannot be mounted elsewhere.
If the machine is cut off for longer than its lease, the mount is over: unmount it and mount again.

With --cache-dir, bytes that were read stay in a file on a local disk and are read from there, also by the next mount with
the same directory. They are checked, and used only while the file has not changed. Every mount needs a directory of its
own. A file that this mount has open for writing is not cached there.

Access times follow `relatime`: a read counts if the last access was before the last change, or a day ago.
A mount with --read-only changes nothing, not even access times; other mounts may write. To change this later:
`mount -o remount,ro DIR`, `mount -o remount,rw,noatime DIR`.

Examples:
  shoal mount main /mnt/shoal
  shoal mount main /mnt/shoal --exclusive
  shoal mount main /mnt/backup --read-only
  shoal mount main /mnt/shoal --cache-dir /var/cache/shoal --cache 20G
  shoal mount main /mnt/shoal --meta 10.0.0.1:7400 --key-file /etc/shoal/key")]
pub(crate) struct MountArgs {
    /// The volume
    volume: String,
    /// The mount point, an empty directory
    mount_point: PathBuf,
    #[command(flatten)]
    cluster: ConnectionArgs,
    /// Allows no other mount of the volume, and lets the kernel cache writes: faster, see below
    #[arg(long)]
    exclusive: bool,
    /// Allows no changes through this mount
    #[arg(long)]
    read_only: bool,
    /// Does not change access times
    #[arg(long)]
    noatime: bool,
    /// Memory budget of the mount
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    #[command(flatten)]
    cache: CacheArgs,
    /// Who encodes whole stripes
    #[arg(long, value_name = "WHO", value_enum, default_value_t = Encode::Auto)]
    encode: Encode,
    /// Threads that serve requests
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Stays in the foreground and logs to standard error
    #[arg(long)]
    foreground: bool,
    /// Log of the background daemon [default: /var/log/shoal/mount-DIR.log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Who encodes whole stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Encode {
    /// The mount if that is cheaper, otherwise the primary
    Auto,
    /// The mount, which sends every unit directly to its brick
    Client,
    /// The primary of the stripe's group
    Primary,
    /// The mount, and units go along a tree of bricks, where the network is known
    Relay,
}

impl Encode {
    fn word(self) -> &'static str {
        match self {
            Encode::Auto => "auto",
            Encode::Client => "client",
            Encode::Primary => "primary",
            Encode::Relay => "relay",
        }
    }
}

impl From<Encode> for client::Encode {
    fn from(encode: Encode) -> client::Encode {
        match encode {
            Encode::Auto => client::Encode::Auto,
            Encode::Client => client::Encode::Client,
            Encode::Primary => client::Encode::Primary,
            Encode::Relay => client::Encode::Relay,
        }
    }
}

/// How long a mount may take to answer.
const MOUNT_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &MountArgs, output: &Output) -> anyhow::Result<()> {
    if args.foreground {
        return serve(args);
    }
    let dir = check_free(&args.mount_point)?;
    let target = args.cluster.target()?;
    check_volume(&args.volume, &target)?;
    let log = args.log.clone().unwrap_or_else(|| log_path(&dir));
    let started = start(&args.volume, &dir, &target, args, &log)?;
    wait_until_it_answers(started, &dir, output)?;
    let document =
        json!({ "volume": args.volume, "dir": dir.to_string_lossy(), "log": log.to_string_lossy() });
    output.answer(&document, || format!("volume `{}` is mounted at {}", args.volume, dir.display()));
    Ok(())
}

pub(crate) fn check_volume(volume: &str, target: &Target) -> anyhow::Result<()> {
    let status = Remote::new(target)?.status()?;
    // A shard that does not answer may have it: the mount waits for that one.
    if status.map.volume_named(volume).is_none() && status.missing.is_empty() {
        return Err(unknown(volume, &status.map));
    }
    Ok(())
}

fn log_path(dir: &Path) -> PathBuf {
    let name = dir.to_string_lossy().trim_start_matches('/').replace('/', "-");
    Path::new(LOG_DIR).join(format!("mount-{name}.log"))
}

fn start(volume: &str, dir: &Path, target: &Target, args: &MountArgs, log: &Path) -> anyhow::Result<Started> {
    let mut words: Vec<OsString> = vec!["mount".into(), "--foreground".into(), "--detached".into()];
    words.extend(target.words());
    let plain =
        [(args.exclusive, "--exclusive"), (args.read_only, "--read-only"), (args.noatime, "--noatime")];
    words.extend(plain.iter().filter(|(given, _)| *given).map(|(_, word)| OsString::from(word)));
    words.extend(["--memory".into(), args.memory.0.to_string().into()]);
    words.extend(["--encode".into(), args.encode.word().into()]);
    words.extend(args.cache.words()?);
    words.extend(["--threads".into(), args.threads.to_string().into()]);
    words.extend(args.daemon.words());
    words.extend([OsString::from("--"), volume.into(), dir.into()]);
    process::start("mount", &words, log)
}

/// Waits until the kernel lists the mount and its root answers.
pub(crate) fn wait_until_it_answers(mut started: Started, dir: &Path, output: &Output) -> anyhow::Result<()> {
    let spinner = output.spinner("mounting");
    let end = Instant::now() + MOUNT_PATIENCE;
    loop {
        started.check()?;
        if mounted_at(dir)?.is_some_and(|m| m.fs_type == FS_TYPE) && fs::metadata(dir).is_ok() {
            spinner.finish_and_clear();
            return Ok(());
        }
        if Instant::now() > end {
            let what = format!("{} does not answer within {} s", dir.display(), MOUNT_PATIENCE.as_secs());
            return Err(problem(what, "`shoal status`, and the mount's log"));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// This machine's name.
pub(crate) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Serves the mount in this process until it is unmounted or told to stop.
fn serve(args: &MountArgs) -> anyhow::Result<()> {
    let stopper: Arc<Mutex<Option<Stopper>>> = Arc::default();
    let stop = Arc::clone(&stopper);
    signals::on_stop(move |signal| {
        tracing::info!("stopping: {signal}");
        match stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => std::process::exit(1),
            // Unmounted: `serve` ends by itself.
            Some(stopper) => {
                if !stopper.stop() {
                    std::process::exit(0);
                }
            }
        }
    })?;
    daemon::begin(&args.daemon, args.memory.0)?;
    let dir = check_free(&args.mount_point)?;
    let target = args.cluster.target()?;
    let place = format!("{}:{}", host(), dir.display());
    let mut options = target.client(&args.volume, args.memory, place);
    options.encode = args.encode.into();
    options.exclusive = args.exclusive;
    options.disk_cache = args.cache.prepare(&target)?;
    let (read_only, noatime) = (args.read_only, args.noatime);
    let fuse = FuseOptions { dir: dir.clone(), threads: args.threads.into(), read_only, noatime };
    let mount = gates::fuse::mount(options, &fuse).map_err(|error| match &error {
        FuseError::Join(error) => explain_join(error),
        _ => anyhow::Error::new(error),
    })?;
    *stopper.lock().unwrap_or_else(PoisonError::into_inner) = Some(mount.stopper());
    let _note = create_run_file(&dir, &args.volume, &target.meta, target.key_file.as_deref())?;
    tracing::info!("volume {} is mounted at {}", args.volume, dir.display());
    let ended = mount.wait();
    tracing::info!("{} is unmounted", dir.display());
    ended.context("the mount ended with bytes that could not be made stable")
}
