//! `shoal cluster`: the beginning of a cluster of several machines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use types::Refusal;
use types::limits::SHARDS_MAX;
use types::messages::cluster::ShardAdd;
use types::wire::Key;

use crate::home::{read_key, write_key};
use crate::new_cluster::{create_shard_store, create_store, new_identity};
use crate::output::Output;
use crate::problem::problem;
use crate::remote::{Remote, Target, real_world};

/// Makes the id, the key and the metadata store of a new cluster
#[derive(Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Init(InitArgs),
}

/// Makes a new cluster: its id, its key, and the store that `shoal meta` serves
#[derive(Args)]
#[command(after_help = "\
A cluster of three machines, step by step:
  A: shoal cluster init --dir /var/lib/shoal-meta
  A: shoal meta --dir /var/lib/shoal-meta --listen 10.0.0.1:7400 --key-file /var/lib/shoal-meta/key
  copy the key to the other machines, readable by root only: /etc/shoal/key
  A, B, C, for every disk, each with an id of its own:
     shoal brick --disk /dev/sdb --format --id 1 --node 1 --listen 10.0.0.1:7411 \\
        --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  anywhere: shoal volume create main --code 2+1 --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  anywhere: shoal mount main /mnt/shoal --meta 10.0.0.1:7400 --key-file /etc/shoal/key

With --shard-of it makes one more shard of a cluster that exists: metadata servers of their own, for a part of the volumes
that are made from then on. Serve it as the first one, with an address of its own:
  D: shoal cluster init --dir /var/lib/shoal-meta --shard-of 10.0.0.1:7400 --key-file /etc/shoal/key
  D: shoal meta --dir /var/lib/shoal-meta --listen 10.0.0.4:7400 --key-file /etc/shoal/key")]
struct InitArgs {
    /// Directory for the metadata store and the key
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Makes one more shard of this cluster: all metadata servers of its first shard, with commas between them
    #[arg(long, value_name = "ADDR[,ADDR...]")]
    shard_of: Option<String>,
    /// File with the cluster's key, for --shard-of
    #[arg(long, value_name = "FILE", env = "SHOAL_KEY_FILE")]
    key_file: Option<PathBuf>,
}

pub(crate) fn run(args: &ClusterArgs, output: &Output) -> anyhow::Result<()> {
    let Action::Init(args) = &args.action;
    if let Some(first) = &args.shard_of {
        return init_shard(args, first, output);
    }
    let world = real_world()?;
    let (cluster, key) = new_identity(&world);
    create_store(&args.dir, cluster)?;
    let key_file = args.dir.join("key");
    write_key(&key_file, &key)?;
    let document = json!({
        "cluster": cluster.to_string(),
        "dir": args.dir.to_string_lossy(),
        "key_file": key_file.to_string_lossy(),
    });
    output.answer(&document, || {
        format!(
            "cluster {cluster} is made; its key is in {key}\n\
             Next: shoal meta --dir {dir} --listen HOST:7400 --key-file {key}\n\
             The key must get to every machine of the cluster, and nowhere else.",
            dir = args.dir.display(),
            key = key_file.display(),
        )
    });
    Ok(())
}

/// One more shard of a cluster.
fn init_shard(args: &InitArgs, first: &str, output: &Output) -> anyhow::Result<()> {
    let key = args.key_file.as_deref().map(read_key).transpose()?.unwrap_or(Key::OPEN);
    let remote = Remote::new(&Target { meta: first.to_owned(), key, key_file: args.key_file.clone() })?;
    // The number is asked for when the directory is known to be new: it is given out once.
    let add = ShardAdd { token: real_world()?.random().max(1) };
    let number = || match remote.meta_or_refusal(&add)? {
        Ok(added) => Ok((remote.cluster(), added.shard)),
        Err(Refusal::TooMany) => Err(problem(
            format!("a cluster has at most {SHARDS_MAX} shards, those that were removed included"),
            "`shoal meta list` shows them: more servers for one of these",
        )),
        Err(Refusal::Unsupported) => Err(problem(
            format!(
                "the metadata servers at {first} are not those of the first shard, or are of an older version"
            ),
            "--shard-of with the servers of the first shard: `shoal meta list` shows them",
        )),
        Err(Refusal::Busy) => Err(problem(
            "the cluster was restored, and bricks that may know more shards than the backup have not joined it since",
            "`shoal status` shows which bricks are Out: start them. If some are gone for good, restore again, and name these in --without",
        )),
        Err(refusal) => anyhow::bail!("the metadata service at {first} refused: {refusal}"),
    };
    let (cluster, shard) = create_shard_store(&args.dir, first, number)?;
    let document = json!({
        "cluster": cluster.to_string(), "shard": shard.0, "dir": args.dir.to_string_lossy(),
    });
    output.answer(&document, || {
        format!(
            "shard {} of cluster {cluster} is made\n\
             Next: shoal meta --dir {} --listen HOST:PORT, at an address of its own, with the cluster's key",
            shard.0,
            args.dir.display(),
        )
    });
    Ok(())
}
