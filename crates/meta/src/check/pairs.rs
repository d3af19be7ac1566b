//! Where the keys and values come from.

use types::{ObjectId, VolumeId};

use crate::keys;
use crate::kv::{EngineError, Reader, unpacked};

/// A store as it was at one moment.
pub trait Pairs {
    /// Why it cannot be read.
    type Error;

    /// Calls `f` with the pairs of `from..to`, in the order of their keys, until it returns false.
    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Self::Error>;
}

impl Pairs for Reader {
    type Error = EngineError;

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        Reader::range(self, from, to, f)
    }
}

/// Why a store could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError<E> {
    /// It cannot be read.
    #[error("the store cannot be read")]
    Pairs(E),
    /// The check would take more memory than it may.
    #[error("the check of volume {volume} needs more than {given} bytes of memory")]
    Memory {
        /// The volume.
        volume: String,
        /// What it may take, in bytes.
        given: usize,
    },
}

impl<E> From<E> for CheckError<E> {
    fn from(error: E) -> CheckError<E> {
        CheckError::Pairs(error)
    }
}

/// The pairs in a part of a store, in the order of their keys. `None` if it makes no sense.
pub fn unpacked_pairs(payload: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let pairs = unpacked(payload)?.into_iter();
    pairs.map(|(key, value)| value.map(|value| (key, value))).collect()
}

/// The value of one key.
pub(super) fn value_of<P: Pairs>(pairs: &mut P, key: &[u8]) -> Result<Option<Vec<u8>>, P::Error> {
    let (mut found, after) = (None, [key, &[0]].concat());
    pairs.range(key, &after, &mut |_, value| {
        found = Some(value.to_vec());
        false
    })?;
    Ok(found)
}

/// Whether an object waits to be purged: nobody can reach it any more, and bricks forget it at different moments.
///
/// # Errors
/// The store cannot be read.
pub fn is_to_purge<P: Pairs>(pairs: &mut P, volume: VolumeId, object: ObjectId) -> Result<bool, P::Error> {
    value_of(pairs, &keys::purge(volume, object)).map(|found| found.is_some())
}
