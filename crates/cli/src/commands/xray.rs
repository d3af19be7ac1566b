//! `shoal xray`: what each layer of a mount reads and writes, and which settings would save some of it.

mod clients;
mod devices;
mod disk_cache;
mod findings;
mod layers;
mod network;
mod report;
mod slow_bricks;

use std::fs;
use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::commands::tune::control_file::{Contents, Control, ControlFile};
use crate::commands::tune::place;
use crate::gate::{self, Gate};
use crate::mountpoint::mount_daemons;
use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

use self::clients::Clients;
use self::devices::{DeviceTotals, Devices};
use self::disk_cache::DiskCache;
use self::layers::Layers;
use self::network::Network;
use self::report::{Report, Subject};
use self::slow_bricks::SlowBrick;

/// Shows what each layer of a mount, or of an open file, reads and writes
#[derive(Args)]
#[command(after_help = "\
Reads and writes of programs pass the layers from the top down: auto, io-cache, read-ahead, disk-cache (of mounts that have
one), write-behind, the bricks. A row
has what enters its layer. The first row is what programs ask for, the last one what this client reads from bricks and sends
to them. The amplification of a layer is the bytes that leave it downward, divided by the bytes that programs ask for.

Below the table is what the numbers mean, with the command that changes it.

The last table is about the devices of all bricks: what they read and wrote, against what all clients of the cluster asked the
bricks for. The rest is what bricks do for each other and for themselves: copies, parity, journals, descriptors, folds.

Examples:
  shoal xray /mnt/shoal                    the whole mount: each second on a terminal, else one second
  shoal xray /mnt/shoal/vm/disk            a file that is open there
  shoal xray /mnt/shoal --once             all since the mount began
  shoal xray --gate nfs:main               a gate of this machine
  shoal xray --clients                     all mounts and gates of the cluster
  shoal xray /mnt/shoal --interval 10 --count 6 --json")]
pub(crate) struct XrayArgs {
    /// A directory of a mount, which means the whole mount, or an open file of a mount
    #[arg(required_unless_present_any = ["gate", "clients"], conflicts_with_all = ["gate", "clients"])]
    target: Option<String>,
    /// A gate of this machine: its URI as `shoal status` shows it, or KIND:VOLUME, such as nbd:vm
    #[arg(long, value_name = "GATE")]
    gate: Option<String>,
    /// What programs ask each mount and gate of the cluster for, on all machines
    #[arg(long, conflicts_with = "gate")]
    clients: bool,
    #[command(flatten)]
    cluster: ConnectionArgs,
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
    if args.clients {
        return show_clients(args, output);
    }
    let mut xray = match (&args.gate, &args.target) {
        (Some(name), _) => Xray::of_gate(gate::find(name, &args.cluster)?),
        (None, Some(target)) => Xray::open(target)?,
        (None, None) => unreachable!("clap asks for a target"),
    };
    let devices = Devices::of(xray.cluster());
    if args.once {
        let look = xray.look()?;
        show(&xray.report(look, devices.look(), None), "", output);
        return Ok(());
    }
    let (count, clear) = intervals(args);
    let (mut before, mut done, mut began) = (xray.look()?.layers, devices.look(), Instant::now());
    for _ in 0..count {
        thread::sleep(Duration::from_secs(args.interval));
        let look = xray.look()?;
        let (now, past) = (Instant::now(), std::mem::replace(&mut before, look.layers.clone()));
        let (passed, counted) = (Look { layers: before.since(&past), ..look }, devices.look());
        let of_devices = counted.since(&std::mem::replace(&mut done, counted.clone()));
        show(&xray.report(passed, of_devices, Some(now - began)), clear, output);
        began = now;
    }
    Ok(())
}

/// The number of intervals, and what clears the terminal before each.
fn intervals(args: &XrayArgs) -> (u64, &'static str) {
    let is_terminal = std::io::stdout().is_terminal();
    let count = args.count.unwrap_or(if is_terminal { u64::MAX } else { 1 });
    (count, if is_terminal { CLEAR } else { "" })
}

fn show_clients(args: &XrayArgs, output: &Output) -> anyhow::Result<()> {
    let remote = Remote::new(&args.cluster.target()?)?;
    let look = || remote.status().map(|cluster| Clients::of(&cluster));
    if args.once {
        let clients = look()?;
        output.answer_by(|| clients.document(None), || clients.text(None));
        return Ok(());
    }
    let (count, clear) = intervals(args);
    let (mut before, mut began) = (look()?, Instant::now());
    for _ in 0..count {
        thread::sleep(Duration::from_secs(args.interval));
        let (clients, now) = (look()?, Instant::now());
        let (passed, time) = (clients.since(&before), Some(now - began));
        output.answer_by(|| passed.document(time), || format!("{clear}{}", passed.text(time)));
        (before, began) = (clients, now);
    }
    Ok(())
}

fn show(report: &Report, clear: &str, output: &Output) {
    output.answer_by(|| report.document(), || format!("{clear}{}", report.text()));
}

/// A mount, an open file or a gate that is looked at.
struct Xray {
    path: PathBuf,
    /// The mount point, or the URI of the gate.
    mount: PathBuf,
    is_file: bool,
    source: Source,
}

/// What is seen at one moment.
struct Look {
    layers: Layers,
    disk_cache: Option<DiskCache>,
    network: Option<Network>,
    slow_bricks: Vec<SlowBrick>,
    settings: Contents,
}

/// Where the numbers come from.
enum Source {
    Mount { counters: ControlFile, settings: ControlFile },
    Gate(Gate),
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
        let source = Source::Mount { counters: open(Control::Xray)?, settings: open(Control::Tune)? };
        let path = if inode.is_some() { path } else { mount.dir.clone() };
        Ok(Xray { path, mount: mount.dir, is_file: inode.is_some(), source })
    }

    fn of_gate(gate: Gate) -> Xray {
        let uri = PathBuf::from(&gate.uri);
        Xray { path: uri.clone(), mount: uri, is_file: false, source: Source::Gate(gate) }
    }

    /// The metadata service of the cluster and its key file, as the daemon was started with them.
    fn cluster(&self) -> Option<(String, Option<PathBuf>)> {
        match &self.source {
            Source::Gate(gate) => Some((gate.meta.clone(), gate.key_file.clone())),
            Source::Mount { .. } => {
                let daemon = mount_daemons().into_iter().find(|daemon| daemon.dir == self.mount)?;
                Some((daemon.meta, daemon.key_file))
            }
        }
    }

    /// What has entered the layers so far, the cache on a disk, and the settings in effect.
    fn look(&mut self) -> anyhow::Result<Look> {
        let (counters, settings) = match &mut self.source {
            Source::Mount { counters, settings } => (counters.text()?, settings.read()?),
            Source::Gate(gate) => (gate.ask("xray")?, Contents::parse(&gate.ask("tune")?)),
        };
        let layers = Layers::parse(&counters).map_err(|reason| {
            let remedy = format!("`shoal xray {}` for the whole mount", self.mount.display());
            problem(format!("cannot look at {}: {reason}", self.path.display()), remedy)
        })?;
        let (disk_cache, network) = (DiskCache::parse(&counters), Network::parse(&counters));
        let slow_bricks = SlowBrick::parse_all(&counters);
        Ok(Look { layers, disk_cache, network, slow_bricks, settings })
    }

    /// A report about what was seen; `time` is that of the interval.
    fn report(&self, look: Look, devices: DeviceTotals, time: Option<Duration>) -> Report {
        let Look { layers, disk_cache, network, slow_bricks, settings } = look;
        let subject = match (&self.source, self.is_file) {
            (Source::Gate(_), _) => Subject::Gate,
            (_, true) => Subject::File,
            (_, false) => Subject::Mount,
        };
        let (path, mount) = (self.path.clone(), self.mount.clone());
        Report { path, mount, subject, layers, settings, disk_cache, network, slow_bricks, devices, time }
    }
}
