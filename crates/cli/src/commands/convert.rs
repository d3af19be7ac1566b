//! `shoal convert`: moves files to the tier with another code.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ::mover::{MoveOutcome, Walk};
use anyhow::Context;
use clap::Args;
use client::Session;
use types::messages::cluster::{ClusterMap, Tier, VolumeInfo};
use types::messages::names::FileKind;
use types::{ClientId, InodeId, VolumeId};

use crate::commands::tier::mover::{Run, with_mover};
use crate::mountpoint::{FS_TYPE, mount_of, mounted};
use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};
use crate::size::Size;
use crate::tier_code::TierCode;

/// The kernel's number of a mount's root.
const KERNEL_ROOT: u64 = 1;

/// Moves files, and directories with all files in them, to the tier with another code
#[derive(Args)]
#[command(after_help = "\
The volume must have a tier of this code: `shoal tier list`, `shoal tier add`. Works on paths of a mount, and copies as a
client of the cluster, not through the mount. Names, times and owners stay. A file that somebody has open for writing is
left where it is.

Examples:
  shoal convert /mnt/media/2019 --code 8+2@hdd
  shoal convert /mnt/media/new.mov --code 1+2 --rate 200M")]
pub(crate) struct ConvertArgs {
    /// Files or directories of one mount
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The code of the tier, with @ssd or @hdd if several tiers have it
    #[arg(long, value_name = "K+M[@CLASS]")]
    code: TierCode,
    /// Copies at most so many bytes per second
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

/// Paths of one mount.
struct Found {
    dir: PathBuf,
    client: ClientId,
    volume: VolumeId,
    inodes: Vec<(PathBuf, InodeId)>,
}

pub(crate) fn run(args: &ConvertArgs, output: &Output) -> anyhow::Result<()> {
    let found = find(&args.paths)?;
    let target = args.cluster.target()?;
    let remote = Remote::new(&target)?;
    let status = remote.status()?;
    // Numbers of inodes mean other files in other clusters.
    let is_here =
        status.mounts.iter().any(|mount| mount.client == found.client && mount.volume == found.volume);
    let volume = status.map.volume(found.volume).filter(|_| is_here).ok_or_else(|| {
        let what =
            format!("the mount at {} is not one of cluster {}", found.dir.display(), status.map.cluster);
        problem(what, "--meta and --key-file, or --dir, of the cluster that it belongs to")
    })?;
    let tier = tier_of(volume, args.code, &status.map)?.number;
    let done = with_mover(&target, &volume.name, args.rate, async |_, session, mover| {
        let mut run = Run::new(mover, output);
        for (path, inode) in &found.inodes {
            let moved = convert(session, &mut run, *inode, tier).await;
            moved.with_context(|| format!("cannot move {}", path.display()))?;
        }
        Ok(run.tally)
    })?;
    let Some(tally) = done else {
        anyhow::bail!("stopped; files that were not moved are where they were");
    };
    output.answer(&tally.document(), || tally.words());
    // A script must notice that a file that it named is not where it should be.
    if tally.busy > 0 && tally.moved + tally.in_place == 0 {
        if output.is_json() {
            std::process::exit(1);
        }
        return Err(problem(
            "nothing was moved: the files are open for writing",
            "again, when they are closed",
        ));
    }
    Ok(())
}

async fn convert(session: &Session, run: &mut Run<'_>, inode: InodeId, tier: u8) -> anyhow::Result<()> {
    let attr = session.getattr(inode).await?;
    match attr.kind {
        FileKind::File => {
            run.tally.seen += 1;
            run.move_file(&attr, tier).await?;
        }
        FileKind::Directory => {
            let mut walk = Walk::new(session.clone(), inode);
            while let Some(attr) = walk.next().await? {
                if attr.kind == FileKind::File && !run.is_known(&attr) {
                    run.tally.seen += 1;
                    run.move_file(&attr, tier).await?;
                }
            }
        }
        _ => run.tally.count(MoveOutcome::NotAFile),
    }
    Ok(())
}

/// The tier that a code means.
fn tier_of(volume: &VolumeInfo, code: TierCode, map: &ClusterMap) -> anyhow::Result<Tier> {
    let mut fitting = volume.all_tiers().filter(|tier| code.means(tier));
    let all =
        || volume.all_tiers().map(|tier| TierCode::of(&tier).to_string()).collect::<Vec<_>>().join(", ");
    let first = fitting.next().ok_or_else(|| {
        let what = format!("volume `{}` of cluster {} has no tier of code {code}", volume.name, map.cluster);
        problem(what, format!("one of: {}; or `shoal tier add {} {code}` first", all(), volume.name))
    })?;
    if fitting.next().is_some() {
        return Err(problem(format!("several tiers have code {code}"), format!("one of: {}", all())));
    }
    Ok(first)
}

/// Finds the mount and the inodes of some paths.
fn find(paths: &[PathBuf]) -> anyhow::Result<Found> {
    let mounts = mounted()?;
    let mut found: Option<Found> = None;
    for path in paths {
        let what = || format!("cannot find {}", path.display());
        let full = fs::canonicalize(path).with_context(what)?;
        let mount = mount_of(&full, &mounts).filter(|mount| mount.fs_type == FS_TYPE).ok_or_else(|| {
            let what = format!("{} is not on a mount of Shoal", path.display());
            problem(what, "a file or directory below a `shoal mount`")
        })?;
        let number = fs::symlink_metadata(&full).with_context(what)?.ino();
        let inode = if number == KERNEL_ROOT { InodeId::ROOT } else { InodeId(number) };
        let known = match &mut found {
            Some(known) => known,
            None => found.insert(ids_of(&mount.dir)?),
        };
        if known.dir != mount.dir {
            let (one, other) = (known.dir.display(), mount.dir.display());
            return Err(problem(format!("the paths are on two mounts, {one} and {other}"), "one at a time"));
        }
        known.inodes.push((path.clone(), inode));
    }
    found.context("no path is given")
}

/// The volume and the client of a mount, from its `.shoal/status`.
fn ids_of(dir: &Path) -> anyhow::Result<Found> {
    let path = dir.join(".shoal/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let number = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let value = lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse::<u64>().ok());
        value.with_context(|| format!("{} does not name the {name}", path.display()))
    };
    let volume = VolumeId(u32::try_from(number("volume")?).context("a volume's number")?);
    Ok(Found { dir: dir.to_owned(), client: ClientId(number("client")?), volume, inodes: Vec::new() })
}
