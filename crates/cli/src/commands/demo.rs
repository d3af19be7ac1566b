//! `shoal demo`: the story.

use std::path::PathBuf;

use clap::Args;
use types::Code;

use crate::demo::{DemoOptions, run_demo};
use crate::output::Output;
use crate::size::Size;

/// Plays the story: bricks come up, files go in, two bricks are killed, every byte comes back
#[derive(Args)]
#[command(after_help = "\
A cluster of its own, in a directory of its own, with processes and mounts of its own; all of it is cleaned up
afterwards, also after Ctrl-C. One brick is killed with SIGKILL while files are copied in, another while they are
read back; the reading goes through a second mount, whose caches are empty. Exits with an error if one byte differs.

Examples:
  shoal demo
  shoal demo --input ~/Pictures
  shoal demo --code 4+2 --bricks 6 --json")]
pub(crate) struct DemoArgs {
    /// Files to copy in [default: a few hundred MiB of /usr/lib, /usr/share and /usr/bin]
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,
    /// Where the cluster lives for the time of the demo [default: a new directory in /tmp]
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
    /// Leaves the cluster running and mounted for a look around
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
        keep: args.keep,
    };
    run_demo(&play_args, output)
}
