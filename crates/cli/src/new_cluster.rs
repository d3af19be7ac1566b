//! Makes the first parts of a new cluster: its id, its key, and the metadata service's store.

use std::path::{Path, PathBuf};

use anyhow::Context;
use types::wire::Key;
use types::{ClusterId, ShardId};
use world::World;

use crate::private;
use crate::problem::problem;

/// Name of the metadata store within its directory.
const STORE_NAME: &str = "meta.redb";

/// A new cluster's id and key.
pub(crate) fn new_identity(world: &World) -> (ClusterId, Key) {
    let mut cluster = ClusterId::default();
    let mut key = Key::OPEN;
    world.random_bytes(&mut cluster.0);
    world.random_bytes(&mut key.0);
    (cluster, key)
}

/// Makes the metadata store of a new cluster in `dir`.
pub(crate) fn create_store(dir: &Path, cluster: ClusterId) -> anyhow::Result<()> {
    let (engine, path) = new_store(dir)?;
    meta::create_cluster(&engine, cluster).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes the metadata store of one more shard in `dir`. `number` gives its cluster and number, `first` the metadata servers of the
/// first shard.
pub(crate) fn create_shard_store(
    dir: &Path,
    first: &str,
    number: impl FnOnce() -> anyhow::Result<(ClusterId, ShardId)>,
) -> anyhow::Result<(ClusterId, ShardId)> {
    let (engine, path) = new_store(dir)?;
    let (cluster, shard) = number()?;
    meta::create_shard(&engine, cluster, shard, first)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok((cluster, shard))
}

/// An engine without a cluster in `dir`, and its path.
fn new_store(dir: &Path) -> anyhow::Result<(meta::Engine, PathBuf)> {
    private::make_dir(dir)?;
    let path = store_path(dir);
    let engine = meta::Engine::open_redb(&path).with_context(|| format!("cannot make {}", path.display()))?;
    if let Some(cluster) =
        meta::cluster_of(&engine).with_context(|| format!("cannot read {}", path.display()))?
    {
        return Err(problem(
            format!("{} is the metadata store of cluster {cluster} already", path.display()),
            format!("another --dir, or `shoal meta --dir {}` to serve that cluster", dir.display()),
        ));
    }
    Ok((engine, path))
}

/// The metadata store in `dir`.
pub(crate) fn store_path(dir: &Path) -> PathBuf {
    dir.join(STORE_NAME)
}
