//! `shoal demo`.

use std::path::PathBuf;

use clap::Args;
use types::Code;

use crate::demo::{DemoOptions, run_demo};
use crate::output::Output;
use crate::size::Size;

/// Shows a cluster at work: starts bricks, copies files in, kills two bricks, and compares every byte
#[derive(Args)]
#[command(after_help = "\
The demo uses its own cluster, in its own directory, with its own processes and mounts. All of it is removed
afterwards, also after Ctrl-C. One brick is killed with SIGKILL while files are copied in, another one while they
are read back through a second mount, whose caches are empty. Exits with an error if one byte differs.

Examples:
  shoal demo
  shoal demo --ha                           one of three metadata servers is killed, too
  shoal demo --input ~/Pictures
  shoal demo --code 4+2 --bricks 6 --json")]
pub(crate) struct DemoArgs {
    /// Files to copy in [default: a few hundred MiB of /usr/lib, /usr/share and /usr/bin]
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,
    /// Directory of the cluster during the demo [default: a new directory in /tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Code of the volume
    #[arg(long, value_name = "K+M", default_value = "8+2")]
    code: Code,
    /// Number of bricks
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=64))]
    bricks: u32,
    /// Memory budget of each daemon
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    /// Three metadata servers, of which the one that leads is killed while files are copied in
    #[arg(long)]
    ha: bool,
    /// Leaves the cluster running and mounted
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &DemoArgs, output: &Output) -> anyhow::Result<()> {
    let input = args.input.clone();
    let dir = args.dir.clone();
    let play_args = DemoOptions {
        input,
        dir,
        code: args.code,
        bricks: args.bricks,
        memory: args.memory,
        ha: args.ha,
        keep: args.keep,
    };
    run_demo(&play_args, output)
}
