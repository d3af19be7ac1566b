//! `shoal meta remove-shard`: one shard less.

use clap::Args;
use serde_json::json;
use types::messages::cluster::ShardRemove;
use types::{Refusal, ShardId};

use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

/// Removes a shard that has no volumes any more
#[derive(Args)]
#[command(after_help = "\
Stop its metadata servers afterwards. Its number is never used again. A shard of which nothing is left, no store and no
backup, is removed with --lost: its volumes are lost, and what bricks hold of them stays there.

Example:
  shoal meta remove-shard 1 --meta 10.0.0.1:7400 --key-file /etc/shoal/key")]
pub(crate) struct RemoveShardArgs {
    /// Its number, as `shoal meta list` shows it
    #[arg(value_name = "N")]
    shard: u8,
    /// It does not answer and never will
    #[arg(long)]
    lost: bool,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

pub(super) fn run(args: &RemoveShardArgs, output: &Output) -> anyhow::Result<()> {
    let remote = Remote::new(&args.cluster.target()?)?;
    let RemoveShardArgs { shard, lost, .. } = *args;
    let remove = ShardRemove { shard: ShardId(shard), lost };
    match remote.meta_or_refusal(&remove)? {
        Ok(_) => {
            output.answer(&json!({ "removed": shard }), || {
                format!("shard {shard} is removed: stop its servers")
            });
            Ok(())
        }
        Err(Refusal::Unknown) => Err(problem(
            format!("the cluster has no shard {shard} beside the first"),
            "`shoal meta list` shows the shards",
        )),
        Err(Refusal::Busy) if lost => Err(problem(
            format!("shard {shard} is not lost: it answers"),
            "delete its volumes, and remove it without --lost",
        )),
        Err(Refusal::Busy) => Err(problem(
            format!("shard {shard} has volumes, or deleted ones of which bricks have bytes"),
            "`shoal volume list` shows them; delete them, and wait until `shoal status` has nothing to purge",
        )),
        Err(Refusal::NotServing) => Err(problem(
            format!("shard {shard} does not answer"),
            "start its metadata servers; --lost if all its stores and backups are lost",
        )),
        Err(refusal) => anyhow::bail!("the metadata service refused: {refusal}"),
    }
}
