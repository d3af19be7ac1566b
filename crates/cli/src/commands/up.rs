//! `shoal up`: the embedded cluster of this machine.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use types::Code;
use types::messages::cluster::VolumeInfo;

use crate::commands::brick::check_size;
use crate::embedded::{self, ClusterSpec, MAIN_VOLUME, fitting_code};
use crate::home::{Home, default_dir};
use crate::output::Output;
use crate::picture::picture;
use crate::problem::problem;
use crate::remote::{ClusterSnapshot, Remote, Target};
use crate::size::Size;

/// Starts a cluster on this machine: one metadata service and some bricks, with all data in one directory
#[derive(Args)]
#[command(after_help = "\
The first `up` makes the cluster, later ones start it again. Everything listens on 127.0.0.1 with a
new key. The volume `main` is made too; `shoal mount main DIR` mounts it.

To put bricks on separate disks, replace DIR/bricks/bN by symbolic links while the cluster is down.

Examples:
  shoal up                                  four bricks, code 2+2, in /var/lib/shoal (as root)
  shoal up --dir ~/shoal --bricks 10        ten bricks, code 8+2
  shoal up --bricks 3 --code 1+2            three copies of everything
  shoal up --metas 3                        three metadata servers: `shoal meta list` shows who leads")]
pub(crate) struct UpArgs {
    /// Directory of the cluster [default: /var/lib/shoal for root, ~/.local/share/shoal otherwise]
    #[arg(long, value_name = "DIR", env = "SHOAL_DIR")]
    dir: Option<PathBuf>,
    /// Number of bricks [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    bricks: Option<u32>,
    /// Code of the volume `main`: data and parity units [default: one that fits the bricks]
    #[arg(long, value_name = "K+M")]
    code: Option<Code>,
    /// Bytes of each brick, a sparse file [default: from the space that is free]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Port of the metadata service; brick bN gets the N-th after it [default: free ones, kept from then on]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    port: Option<u16>,
    /// Memory budget of each daemon [default: 256M]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// Metadata servers, to see one of them die [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7))]
    metas: Option<u32>,
}

const BRICKS_DEFAULT: u32 = 4;
const MEMORY_DEFAULT: Size = Size(256 << 20);
const SIZE_MIN: u64 = 1 << 30;
const SIZE_MAX: u64 = 1 << 40;

pub(crate) fn run(args: &UpArgs, output: &Output) -> anyhow::Result<()> {
    args.size.map(check_size).transpose()?;
    let dir = args.dir.clone().unwrap_or_else(default_dir);
    let home = match Home::open(&dir)? {
        Some(home) => {
            check_same(args, &home)?;
            home
        }
        None => embedded::make(&dir, &spec(args, &dir)?, output)?,
    };
    let report = embedded::start(&home, false, output)?;
    let remote = Remote::new(&Target::embedded(&home)?)?;
    let volume = embedded::main_volume(&home, &remote)?;
    let document = json!({
        "dir": home.dir().to_string_lossy(),
        "cluster": home.plan().cluster.to_string(),
        "meta": home.meta_address(),
        "bricks": home.plan().bricks,
        "volume": volume.name,
        "code": volume.geometry.code().to_string(),
    });
    output.answer(&document, || words(&home, &report, &volume));
    Ok(())
}

fn words(home: &Home, report: &ClusterSnapshot, volume: &VolumeInfo) -> String {
    let plan = home.plan();
    let code = volume.geometry.code();
    format!(
        "{} bricks of {} are up in {}, all on this machine\n\n{}\n\
         Volume `{MAIN_VOLUME}` with code {code} bears the loss of {} of its bricks, not of the machine.\n\
         Use it:  shoal mount {MAIN_VOLUME} /mnt{}",
        plan.bricks,
        plan.size,
        home.dir().display(),
        picture(&report.map, volume, false),
        code.m(),
        if home.dir() == default_dir() { String::new() } else { format!(" --dir {}", home.dir().display()) },
    )
}

fn spec(args: &UpArgs, dir: &std::path::Path) -> anyhow::Result<ClusterSpec> {
    let bricks = args.bricks.or(args.code.map(|c| c.slots() as u32)).unwrap_or(BRICKS_DEFAULT);
    Ok(ClusterSpec {
        bricks,
        code: args.code.unwrap_or_else(|| fitting_code(bricks)),
        size: args.size.map_or_else(|| size_for(dir, bricks), Ok)?,
        memory: args.memory.unwrap_or(MEMORY_DEFAULT),
        journal: None,
        port: args.port,
        metas: args.metas.unwrap_or(1),
    })
}

/// Four fifths of the free space, shared by the bricks, in whole GiB.
fn size_for(dir: &std::path::Path, bricks: u32) -> anyhow::Result<Size> {
    let there = dir.ancestors().find(|d| d.exists()).unwrap_or(std::path::Path::new("/"));
    let space = nix::sys::statvfs::statvfs(there)
        .map_err(|e| anyhow::anyhow!("cannot ask for the free space of {}: {e}", there.display()))?;
    let free = space.blocks_available() * space.fragment_size();
    let size = free / 5 * 4 / u64::from(bricks) / SIZE_MIN * SIZE_MIN;
    if size < SIZE_MIN {
        let what =
            format!("{} has only {} free, too little for {bricks} bricks", there.display(), Size(free));
        return Err(problem(what, "--dir on a larger file system, fewer --bricks, or --size"));
    }
    Ok(Size(size.min(SIZE_MAX)))
}

/// An existing cluster keeps its options. Different options are an error and are not ignored.
fn check_same(args: &UpArgs, home: &Home) -> anyhow::Result<()> {
    let plan = home.plan();
    let differs = [
        args.bricks.filter(|n| *n != plan.bricks).map(|_| format!("--bricks {}", plan.bricks)),
        args.code.filter(|c| *c != plan.code).map(|_| format!("--code {}", plan.code)),
        args.size.filter(|s| *s != plan.size).map(|_| format!("--size {}", plan.size.0)),
        args.port.filter(|p| *p != plan.port).map(|_| format!("--port {}", plan.port)),
        args.metas.filter(|n| *n != plan.metas).map(|_| format!("--metas {}", plan.metas)),
        args.memory.filter(|m| *m != plan.memory).map(|_| format!("--memory {}", plan.memory.0)),
    ];
    let made: Vec<String> = differs.into_iter().flatten().collect();
    if made.is_empty() {
        return Ok(());
    }
    Err(problem(
        format!("{} holds a cluster that was made with {}", home.dir().display(), made.join(" ")),
        "without these options to start that one, or another --dir for another cluster",
    ))
}
