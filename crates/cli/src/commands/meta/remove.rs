//! `shoal meta remove`: one metadata server less.

use clap::Args;
use serde_json::json;
use types::messages::replica::MetaRemove;

use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

/// Removes a metadata server for good, whether it is there or not
#[derive(Args)]
#[command(after_help = "\
The others go on without it: with an even number of servers no more of them may be lost than with one less. The process
of a server that was removed ends, and does not start again with its directory.

Example:
  shoal meta remove 10.0.0.2:7400 --meta 10.0.0.1:7400,10.0.0.3:7400 --key-file /etc/shoal/key")]
pub(crate) struct RemoveArgs {
    /// Its address, as `shoal meta list` shows it
    #[arg(value_name = "ADDR")]
    server: String,
    /// Of this shard; without it, of the one whose servers --meta names
    #[arg(long, value_name = "N")]
    shard: Option<u8>,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

pub(super) fn run(args: &RemoveArgs, output: &Output) -> anyhow::Result<()> {
    let remote = Remote::new(&args.cluster.target()?.of_shard(args.shard)?)?;
    let removed = remote.meta_or_explain(&MetaRemove { address: args.server.clone() })?;
    if let Some(error) = removed.error {
        return Err(problem(error, "`shoal meta list` shows the servers"));
    }
    let document = json!({ "removed": args.server });
    output.answer(&document, || format!("{} is a metadata server of the cluster no more", args.server));
    Ok(())
}
