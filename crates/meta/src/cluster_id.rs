//! The id of the cluster in an engine: written once, before everything else.

use types::{ClusterId, MapVersion};

use crate::kv::Engine;
use crate::records::{VERSION, from_value, to_value};
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

/// The cluster that an engine holds, if any.
///
/// # Errors
/// [`MetaError::Version`] if it was written by a build whose values this one cannot read.
pub fn cluster_of(engine: &Engine) -> Result<Option<ClusterId>, MetaError> {
    let read = |value: &[u8]| match value.first() {
        Some(&found) if found != VERSION => Err(MetaError::Version { found }),
        _ => from_value(value).map_err(|_| MetaError::Damaged),
    };
    engine.reader()?.get(&keys::cluster(), read)?.transpose()
}
