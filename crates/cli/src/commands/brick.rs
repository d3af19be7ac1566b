//! `shoal brick`: the server of one brick, in the foreground, and commands about bricks.

mod bench;
mod load;
mod probe;
pub(crate) mod replace;
mod tune;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use pace::device::PolicyName;
use store::{Brick, BrickError, BrickOptions, FormatOptions, Superblock};
use types::limits::{ADDRESS_MAX, RAILS_MAX};
use types::messages::cluster::{BrickClass, ClusterStatus};
use types::messages::session::Role;
use types::{BrickId, ClusterId, NodeId, RAIL, Refusal};
use world::direct::{DEPTH, DEPTH_MAX};
use world::{Disk, DiskMode, Identity, World};

use crate::cache_file::{self, BrickCacheArgs};
use crate::daemon::{self, DaemonArgs, LISTENING};
use crate::damage::Recovering;
use crate::device_class;
use crate::device_profile::{DeviceIdentity, DeviceProfile};
use crate::lock_holder;
use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote, Target, real_world};
use crate::size::Size;

/// Largest brick, in bytes. Each block needs a bit in RAM: 32 MiB per TiB.
const SIZE_MAX: u64 = 256 << 40;

/// Serves one disk or file as a brick of a cluster (a daemon; stop it with SIGTERM), or replaces a lost brick
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Runs in the foreground and logs to standard error: let a service manager start it, once per disk.
--format prepares a disk once; omit it, --id and --size at later starts. Without a key it listens on loopback only.

--cache keeps what clients read on a faster disk, which may be lost at any moment. --format-cache prepares that
disk, once.

The disk may be on another machine that runs only an NBD server for it (nbdkit, qemu-nbd, `shoal nbd`):
nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH. Then --node is that machine's number. NBD has no locks: let
the server accept one client at a time.

Examples:
  shoal brick --disk /dev/sdb --format --id 3 --node 2 --listen 10.0.0.2:7411 \\
     --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  shoal brick --disk /srv/brick4 --format --id 4 --size 500G --node 2 --listen 10.0.0.2:7412 \\
     --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  nbdkit --filter=limit file /dev/sdb limit=1               on 10.0.0.9, for the next one:
  shoal brick --disk nbd://10.0.0.9/sdb --format --id 5 --node 9 --listen 10.0.0.2:7413 \\
     --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  shoal brick --disk /dev/sdb --cache /dev/nvme0n1p3 --format-cache --node 2 \\
     --listen 10.0.0.2:7411 --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  shoal brick replace b3 b4                                 b4 for b3, which is gone for good
  shoal brick tune b3 rebuild.weight=50 depth=16            the queue of a brick with --io direct
  shoal brick bench /dev/sdb                                random reads behind such a queue
  shoal brick probe /dev/sdb                                measures a device for such bricks"
)]
pub(crate) struct BrickArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Block device, file, or URL of an NBD server's export
    #[arg(long, value_name = "PATH|URL", required = true)]
    disk: Option<PathBuf>,
    /// Address of the metadata service, HOST:PORT, or of all its servers with commas between them
    #[arg(long, value_name = "ADDR", env = "SHOAL_META", required_unless_present = "dir")]
    meta: Option<String>,
    /// Without --meta: directory of the embedded cluster (see `shoal up`) whose brick it is
    #[arg(long, value_name = "DIR", env = "SHOAL_DIR")]
    dir: Option<PathBuf>,
    /// Where to listen, HOST:PORT; must stay the same, because a restarted brick is recognised by it
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Option<String>,
    /// Address at which others reach it, if that differs from --listen; with commas several, one for each port or network of
    /// this machine, and then --listen 0.0.0.0:PORT: others use all of them at once, and those that are left when one is cut
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', value_parser = one_address)]
    advertise: Vec<String>,
    /// Number of the machine: units of a stripe go to different machines
    #[arg(long, value_name = "N", required = true)]
    node: Option<u32>,
    /// File with the cluster's key
    #[arg(long, value_name = "FILE", env = "SHOAL_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Prepares the disk first; refuses a disk that holds a brick
    #[arg(long, requires = "id")]
    format: bool,
    /// Id of the new brick, different from all others of the cluster (with --format)
    #[arg(long, value_name = "N", requires = "format", value_parser = clap::value_parser!(u32).range(1..))]
    id: Option<u32>,
    /// Size of the new brick if it is a file, or the least size of an export (with --format)
    #[arg(long, value_name = "SIZE", requires = "format")]
    size: Option<Size>,
    /// Class of the device, ssd or hdd, for tiers; guessed from what the kernel says of the device if it is not given
    #[arg(long, value_name = "CLASS")]
    class: Option<BrickClass>,
    /// Memory budget
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    /// Threads: one has the disk; the others, if any, have the connections, so that a fast disk can use more cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// direct: past the kernel's page cache, with a cache of blocks and a queue of the brick's own, in which clients, folding,
    /// rebuilding and checking take turns
    #[arg(long, value_name = "HOW", default_value = "buffered")]
    io: Io,
    /// Requests that the disk has at a time, with --io direct [default: what `shoal brick probe` has found, or 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    depth: Option<u32>,
    /// In which order requests of a class go to the disk, with --io direct: noop (as they came), deadline, cfq, bfq, kyber,
    /// slq-nearest, slq-lisf-first or slq-auto [default: noop]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    scheduler: Option<PolicyName>,
    /// What `shoal brick probe` has found out about the disk, with --io direct [default: beside a file; /var/lib/shoal for a
    /// device]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    cache: BrickCacheArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

fn policy(text: &str) -> Result<PolicyName, String> {
    text.parse().map_err(|refusal| format!("{refusal}"))
}

/// How the disk is read and written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Io {
    /// Through the kernel's page cache
    Buffered,
    /// Past it
    Direct,
}

#[derive(Subcommand)]
enum Action {
    Bench(bench::BenchArgs),
    Probe(probe::ProbeArgs),
    Replace(replace::ReplaceArgs),
    Tune(tune::TuneArgs),
}

/// Options that a server needs. The command line parser has checked that they are given.
impl BrickArgs {
    fn disk(&self) -> &Path {
        self.disk.as_deref().expect("--disk is required")
    }

    fn target(&self) -> anyhow::Result<Target> {
        let (meta, key_file, dir) = (self.meta.clone(), self.key_file.clone(), self.dir.clone());
        ConnectionArgs { meta, key_file, dir }.target()
    }

    fn listen(&self) -> &str {
        self.listen.as_deref().expect("--listen is required")
    }

    fn node(&self) -> u32 {
        self.node.expect("--node is required")
    }
}

pub(crate) fn run(args: &BrickArgs, output: &Output) -> anyhow::Result<()> {
    match &args.action {
        Some(Action::Bench(bench)) => bench::run(bench, output),
        Some(Action::Probe(probe)) => probe::run(probe, output),
        Some(Action::Replace(replace)) => replace::run(replace, output),
        Some(Action::Tune(tune)) => tune::run(tune, output),
        None => serve(args),
    }
}

fn serve(args: &BrickArgs) -> anyhow::Result<()> {
    let is_tuned = args.depth.is_some() || args.scheduler.is_some() || args.profile.is_some();
    if args.io == Io::Buffered && is_tuned {
        let what =
            "--depth, --scheduler and --profile are for the queue of a direct disk, and this one is buffered";
        return Err(problem(what, "--io direct"));
    }
    let advertise = advertised(&args.advertise)?;
    if advertise.is_none() {
        daemon::check_callable(args.listen(), "mounts and other bricks")?;
    }
    let stop = daemon::stop_signal()?;
    daemon::begin(&args.daemon, args.memory.0)?;
    let target = args.target()?;
    daemon::check_listen(args.listen(), &target.key)?;
    let world = real_world()?;
    if args.format {
        daemon::check_bind(args.listen())?;
        format(args, &world, &target)?;
    }
    let Target { meta, key, .. } = target;
    let profile = if args.io == Io::Direct { profile(args)? } else { None };
    let path = args.disk().to_str().context("--disk must be UTF-8")?;
    let work = async {
        let disk = open_as(&world, path, args.io).await?;
        let superblock = Superblock::read(&disk).await.map_err(|e| explain(e, path))?;
        let options = BrickOptions {
            brick: superblock.brick,
            node: NodeId(args.node()),
            identity: Identity { cluster: superblock.cluster, key, role: Role::Brick, name: String::new() },
            listen: args.listen().to_owned(),
            meta,
            memory_budget: args.memory.0,
            class: args.class.unwrap_or_else(|| device_class::guess(args.disk())),
            advertise,
            threads: args.threads.into(),
            depth: args.depth.or(profile.as_ref().map(DeviceProfile::depth)).unwrap_or(DEPTH),
            policy: args.scheduler.unwrap_or(PolicyName::Noop),
            priority: profile.and_then(|profile| profile.buffer).map(|step| step.bytes),
        };
        let (cache, is_made) = args.cache.open(&world, superblock.cluster).await?;
        let recovering = Recovering::begin(path);
        let brick = Brick::start(world.clone(), disk, cache, options).await.map_err(|error| {
            if is_made && matches!(error, BrickError::Cache(_)) {
                args.cache.remove_made();
            }
            explain_start(error, path)
        })?;
        drop(recovering);
        let (id, cluster) = (superblock.brick, superblock.cluster);
        tracing::info!("brick {id} of cluster {cluster}: {path} {LISTENING}{}", brick.address());
        brick.run().await.map_err(|e| explain(e, path))
    };
    daemon::run_until_stopped(&world, stop, work).unwrap_or(Ok(()))
}

/// What was measured of the disk. Where nobody names a profile, one that cannot be used counts as none: a brick that serves is worth
/// more than its depth.
fn profile(args: &BrickArgs) -> anyhow::Result<Option<DeviceProfile>> {
    let Some(place) = &args.profile else {
        let place = DeviceProfile::place_of(args.disk());
        return Ok(profile_of(args.disk(), &place).unwrap_or_else(|error| {
            tracing::warn!("{error:#}: it is not used. `shoal brick probe` measures the disk");
            None
        }));
    };
    let missing = || problem(format!("{} is not there", place.display()), "`shoal brick probe` makes it");
    profile_of(args.disk(), place)?.ok_or_else(missing).map(Some)
}

fn profile_of(disk: &Path, place: &Path) -> anyhow::Result<Option<DeviceProfile>> {
    let Some(profile) = DeviceProfile::read(place)? else { return Ok(None) };
    let device = DeviceIdentity::of(disk)?;
    let (place, depth) = (place.display(), profile.depth());
    if profile.device != device {
        let other = &profile.device;
        return Err(problem(
            format!("{place} is the profile of another device: {other}, and the disk is on {device}"),
            "`shoal brick probe` for this one",
        ));
    }
    tracing::info!("{place}: the disk has {depth} requests at a time, unless --depth says otherwise");
    Ok(Some(profile))
}

/// Opens the disk as `io` says, or buffered where it cannot be direct: a brick that serves is worth more than its queue.
async fn open_as(world: &World, path: &str, io: Io) -> anyhow::Result<Disk> {
    if io == Io::Direct {
        match world.open_disk_when_free(path, DiskMode::Direct).await {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                tracing::warn!("{error}: the brick goes on with buffered I/O, without a queue of its own");
            }
            opened => return opened.map_err(|error| explain_open(path, &error)),
        }
    }
    open(world, path).await
}

async fn open(world: &World, path: &str) -> anyhow::Result<Disk> {
    let opened = world.open_disk_when_free(path, DiskMode::Buffered).await;
    opened.map_err(|error| explain_open(path, &error))
}

fn explain_open(path: &str, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => problem(
            format!("{path} is served by another process already: {}", lock_holder::of(Path::new(path))),
            "leave that one alone, or stop it first: a disk has one server",
        ),
        std::io::ErrorKind::NotFound => {
            problem(format!("{path} is not there"), "check --disk, or --format --id N --size SIZE to make it")
        }
        _ => anyhow::anyhow!("the disk cannot be used: {error}"),
    }
}

/// Refuses a brick whose map of blocks would need too much memory.
pub(crate) fn check_size(size: Size) -> anyhow::Result<()> {
    if size.0 <= SIZE_MAX {
        return Ok(());
    }
    let most = Size(SIZE_MAX);
    let what = format!("a brick has at most {most}, not {size}: a map of its blocks is kept in memory");
    Err(problem(what, format!("--size {most} or less, and more bricks")))
}

fn format(args: &BrickArgs, world: &World, target: &Target) -> anyhow::Result<()> {
    args.size.map(check_size).transpose()?;
    let path = args.disk().to_str().context("--disk must be UTF-8")?;
    let remote = Remote::new(target)?;
    remote.meta_or_explain(&ClusterStatus {})?;
    let cluster: ClusterId = remote.cluster();
    let brick = BrickId(args.id.expect("--format requires --id"));
    let options = FormatOptions { cluster, brick, journal_bytes: None };
    world.block_on(async {
        let made = match args.size {
            Some(size) => Some(world.create_disk(path, size.0).await),
            None => None,
        };
        let disk = match made {
            Some(Ok(disk)) => disk,
            Some(Err(error)) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                anyhow::bail!("the disk cannot be made: {error}")
            }
            _ => open(world, path).await?,
        };
        store::format(world, &disk, &options).await.map_err(|e| explain(e, path))?;
        tracing::info!("{path} is now brick {brick} of cluster {cluster}");
        Ok(())
    })
}

/// `HOST:PORT`.
fn one_address(text: &str) -> Result<String, String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) if !text.contains(|c: char| c == RAIL || c.is_whitespace()) => Ok(text.to_owned()),
        _ => Err("an address is HOST:PORT, as in 10.0.0.2:7411".to_owned()),
    }
}

/// The addresses as the cluster keeps them.
fn advertised(addresses: &[String]) -> anyhow::Result<Option<String>> {
    let all = addresses.join(&RAIL.to_string());
    addresses.iter().try_for_each(|address| daemon::check_callable(address, "mounts and other bricks"))?;
    if let Some(twice) = addresses.iter().enumerate().find(|(at, address)| addresses[..*at].contains(address))
    {
        return Err(problem(format!("--advertise has {} twice", twice.1), "each address once"));
    }
    if addresses.len() > RAILS_MAX {
        let what = format!("--advertise has {} addresses, and {RAILS_MAX} are possible", addresses.len());
        return Err(problem(what, "those of different ports or networks"));
    }
    if all.len() > ADDRESS_MAX {
        let what = format!(
            "the addresses of --advertise have {} bytes together, and {ADDRESS_MAX} are possible",
            all.len()
        );
        return Err(problem(what, "fewer addresses, or numbers instead of names"));
    }
    Ok((!all.is_empty()).then_some(all))
}

fn explain_start(error: BrickError, path: &str) -> anyhow::Error {
    match error {
        BrickError::Listen { address, error } => daemon::explain_listen(&error, &address),
        BrickError::Cache(error) => cache_file::explain_brick_cache(error),
        other => explain(other, path),
    }
}

fn explain(error: BrickError, path: &str) -> anyhow::Error {
    let remedy = match &error {
        BrickError::NotABrick => {
            "--format --id N for a new brick (what is on the disk is lost), or check --disk"
        }
        BrickError::AlreadyABrick { .. } => "without --format to serve it; to give it up, wipe its first MiB",
        BrickError::OtherCluster { .. } => "--meta of the brick's own cluster, or another disk",
        BrickError::Refused(Refusal::ServedTwice) => {
            "stop the other process that serves this brick, or give a new disk an --id of its own"
        }
        BrickError::Refused(Refusal::Unsupported) => {
            "--meta with the metadata servers of the first shard: these are another one's, or of an older version"
        }
        BrickError::Meta { .. } => {
            "check --meta and --key-file, and that `shoal meta` of the brick's cluster runs there"
        }
        BrickError::TooSmall { .. } => "a larger --size or disk",
        BrickError::NoSpace(_) => {
            "room on its file system, then the brick again: the others bring it level; or `shoal brick replace`"
        }
        BrickError::CutShort { .. } => {
            "--disk with the brick's own disk; or `shoal brick replace` with a new brick"
        }
        BrickError::Layout(_) | BrickError::SuperblockDamaged | BrickError::JournalDamaged(_) => {
            "`shoal brick replace` with a new brick: the others have its bytes"
        }
        // The text has its cause.
        _ => return anyhow::anyhow!("{path}: {error}"),
    };
    problem(format!("{path}: {error}"), remedy)
}
