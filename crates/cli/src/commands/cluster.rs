//! `shoal cluster`: the beginning of a cluster of several machines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::home::write_key;
use crate::new_cluster::{create_store, new_identity};
use crate::output::Output;
use crate::remote::real_world;

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
  anywhere: shoal mount main /mnt/shoal --meta 10.0.0.1:7400 --key-file /etc/shoal/key")]
struct InitArgs {
    /// Directory for the metadata store and the key
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ClusterArgs, output: &Output) -> anyhow::Result<()> {
    let Action::Init(args) = &args.action;
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
