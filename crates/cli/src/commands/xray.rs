//! `shoal xray`: what each layer of a mount reads and writes, and which settings would save some of it.

mod disk_cache;
mod findings;
mod layers;
mod report;

use std::fs;
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::commands::tune::control_file::{Contents, Control, ControlFile};
use crate::commands::tune::place;
use crate::output::Output;
use crate::problem::problem;

use self::disk_cache::DiskCache;
use self::layers::Layers;
use self::report::Report;

/// Shows what each layer of a mount, or of an open file, reads and writes
#[derive(Args)]
#[command(after_help = "\
Reads and writes of programs pass the layers from the top down: auto, io-cache, read-ahead, disk-cache (of mounts that have
one), write-behind, the bricks. A row
has what enters its layer. The first row is what programs ask for, the last one what this client reads from bricks and sends
to them. The amplification of a layer is the bytes that leave it downward, divided by the bytes that programs ask for.

Below the table is what the numbers mean, with the command that changes it.

Examples:
  shoal xray /mnt/shoal                    the whole mount: each second on a terminal, else one second
  shoal xray /mnt/shoal/vm/disk            a file that is open there
  shoal xray /mnt/shoal --once             all since the mount began
  shoal xray /mnt/shoal --interval 10 --count 6 --json")]
pub(crate) struct XrayArgs {
    /// A directory of a mount, which means the whole mount, or an open file of a mount
    target: String,
    /// Shows the totals since the mount began, or since the file was opened
    #[arg(long, conflicts_with_all = ["interval", "count"])]
    once: bool,
    /// Length of an interval in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: u64,
    /// Number of intervals [default: until Ctrl-C on a terminal, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Clears the terminal, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn run(args: &XrayArgs, output: &Output) -> anyhow::Result<()> {
    let mut xray = Xray::open(&args.target)?;
    if args.once {
        let (layers, cache, settings) = xray.look()?;
        show(&xray.report(layers, cache, settings, None), "", output);
        return Ok(());
    }
    let is_terminal = std::io::stdout().is_terminal();
    let count = args.count.unwrap_or(if is_terminal { u64::MAX } else { 1 });
    let clear = if is_terminal { CLEAR } else { "" };
    let (mut before, mut began) = (xray.look()?.0, Instant::now());
    for _ in 0..count {
        thread::sleep(Duration::from_secs(args.interval));
        let (layers, cache, settings) = xray.look()?;
        let (now, past) = (Instant::now(), std::mem::replace(&mut before, layers));
        let passed = before.since(&past);
        show(&xray.report(passed, cache, settings, Some(now - began)), clear, output);
        began = now;
    }
    Ok(())
}

fn show(report: &Report, clear: &str, output: &Output) {
    output.answer_by(|| report.document(), || format!("{clear}{}", report.text()));
}

/// A mount or an open file that is looked at.
struct Xray {
    path: PathBuf,
    mount: PathBuf,
    is_file: bool,
    counters: ControlFile,
    settings: ControlFile,
}

impl Xray {
    fn open(target: &str) -> anyhow::Result<Xray> {
        let path = fs::canonicalize(target).map_err(|error| match error.kind() {
            ErrorKind::NotFound => problem(
                format!("there is no {target}"),
                "a directory of a mount, or a file that is open there",
            ),
            _ => anyhow::Error::new(error).context(format!("cannot find {target}")),
        })?;
        let (mount, inode) = place("xray", target, &path)?;
        let open = |control| -> anyhow::Result<ControlFile> {
            let mut file = ControlFile::open(&mount.dir, control, inode.is_some())?;
            if let Some(inode) = inode {
                file.write(&format!("file {inode}\n"))?.map_err(|reason| {
                    let remedy = format!("`shoal xray {}` for the whole mount", mount.dir.display());
                    problem(format!("cannot look at {target}: {reason}"), remedy)
                })?;
            }
            Ok(file)
        };
        let (counters, settings) = (open(Control::Xray)?, open(Control::Tune)?);
        let path = if inode.is_some() { path } else { mount.dir.clone() };
        Ok(Xray { path, mount: mount.dir, is_file: inode.is_some(), counters, settings })
    }

    /// What has entered the layers so far, the cache on a disk, and the settings in effect.
    fn look(&mut self) -> anyhow::Result<(Layers, Option<DiskCache>, Contents)> {
        let text = self.counters.text()?;
        let layers = Layers::parse(&text).map_err(|reason| {
            let remedy = format!("`shoal xray {}` for the whole mount", self.mount.display());
            problem(format!("cannot look at {}: {reason}", self.path.display()), remedy)
        })?;
        Ok((layers, DiskCache::parse(&text), self.settings.read()?))
    }

    /// A report about layers; `time` is that of the interval.
    fn report(
        &self,
        layers: Layers,
        disk_cache: Option<DiskCache>,
        settings: Contents,
        time: Option<Duration>,
    ) -> Report {
        let (path, mount, is_file) = (self.path.clone(), self.mount.clone(), self.is_file);
        Report { path, mount, is_file, layers, settings, disk_cache, time }
    }
}
