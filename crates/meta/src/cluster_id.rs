//! The id of the cluster in an engine: written once, before everything else.

use types::{ClusterId, InodeId, MapVersion, ShardId};

use crate::kv::{Engine, Store, Writes};
use crate::records::{OwnShard, VERSION, from_value, is_read, to_value};
use crate::{MetaError, keys};

/// Makes an empty cluster in an engine.
///
/// # Errors
/// [`MetaError::Exists`] if there is one.
pub fn create_cluster(engine: &Engine, cluster: ClusterId) -> Result<(), MetaError> {
    if cluster_of(engine)?.is_some() {
        return Err(MetaError::Exists);
    }
    let pairs = [(keys::cluster(), to_value(&cluster)), (keys::map_version(), to_value(&MapVersion(1)))];
    Ok(engine.commit(pairs.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))?)
}

/// Makes an empty store of one more shard of a cluster in an engine. `first`: the metadata servers of the first shard.
///
/// # Errors
/// [`MetaError::Exists`] if there is a cluster.
pub fn create_shard(
    engine: &Engine,
    cluster: ClusterId,
    shard: ShardId,
    first: &str,
) -> Result<(), MetaError> {
    if cluster_of(engine)?.is_some() {
        return Err(MetaError::Exists);
    }
    let own = OwnShard { shard, first: first.to_owned() };
    // The root of every volume has the same number.
    let last_id = shard.numbers().start + InodeId::ROOT.0;
    let pairs = [
        (keys::cluster(), to_value(&cluster)),
        (keys::map_version(), to_value(&MapVersion(1))),
        (keys::own_shard(), to_value(&own)),
        (keys::id_counter(), to_value(&last_id)),
        (keys::volume_counter(), to_value(&shard.volumes().start)),
    ];
    Ok(engine.commit(pairs.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))?)
}

/// The shard that an engine holds.
///
/// # Errors
/// As [`cluster_of`].
pub fn shard_of(engine: &Engine) -> Result<ShardId, MetaError> {
    cluster_of(engine)?;
    let own = engine.reader()?.get(&keys::own_shard(), from_value::<OwnShard>)?;
    Ok(own.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or_default().shard)
}

/// What marks a store of an earlier version as one that has values of this version, so that the earlier build refuses it.
pub(crate) fn raised(store: &Store, cluster: ClusterId) -> Result<Writes, MetaError> {
    let version = store.get(&keys::cluster(), |value| value.first().copied())?.0.flatten();
    Ok(match version == Some(VERSION) {
        true => Writes::new(),
        false => Writes::from([(keys::cluster(), Some(to_value(&cluster)))]),
    })
}

/// The cluster that an engine holds, if any.
///
/// # Errors
/// [`MetaError::Version`] if it was written by a build whose values this one cannot read.
pub fn cluster_of(engine: &Engine) -> Result<Option<ClusterId>, MetaError> {
    let read = |value: &[u8]| match value.first() {
        Some(&found) if !is_read(found) => Err(MetaError::Version { found }),
        _ => from_value(value).map_err(|_| MetaError::Damaged),
    };
    engine.reader()?.get(&keys::cluster(), read)?.transpose()
}
