//! The options of a mount.

use types::Geometry;
use world::Identity;

/// Smallest unit, in bytes, for which a message to each brick is worth its cost.
const UNIT_WORTH: usize = 16 << 10;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where the metadata service listens, `host:port`.
    pub meta: String,
    /// Name of the volume.
    pub volume: String,
    /// The identity of this process in the cluster.
    pub identity: Identity,
    /// Most bytes that are written and not yet stable.
    pub unstable_budget: u64,
    /// Most bytes of memory of the mount in all.
    pub memory_budget: u64,
    /// Who encodes whole stripes.
    pub encode: Encode,
    /// This must be the volume's only mount. If its lease runs out, the mount is over for good, because its user may
    /// have cached anything.
    pub exclusive: bool,
    /// The user of an exclusive mount sets the files' times: only [`Session::setattr`](crate::Session::setattr) changes
    /// them, not a write.
    pub keeps_times: bool,
    /// The file of its cache on a local disk, which exists and has the size of the cache; `None` for no such cache.
    pub disk_cache: Option<String>,
    /// Reads update access times.
    pub updates_atime: bool,
    /// Where the volume is mounted, for people to read; cut to [`PLACE_MAX`](types::limits::PLACE_MAX) bytes.
    pub place: String,
}

impl MountOptions {
    /// The usual options: 128 MiB unstable, 256 MiB in all.
    pub fn new(meta: &str, volume: &str, identity: Identity) -> MountOptions {
        MountOptions {
            meta: meta.to_owned(),
            volume: volume.to_owned(),
            identity,
            unstable_budget: 128 << 20,
            memory_budget: 256 << 20,
            encode: Encode::default(),
            exclusive: false,
            keeps_times: false,
            disk_cache: None,
            updates_atime: true,
            place: String::new(),
        }
    }
}

/// Who encodes whole stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encode {
    /// The client if that is cheaper, otherwise the primary.
    #[default]
    Auto,
    /// The client.
    Client,
    /// The primary.
    Primary,
    /// The client, and the units go along a tree of the group's members where the cluster's topology is known; otherwise as for
    /// [`Encode::Client`].
    Relay,
}

impl Encode {
    /// Whether the client encodes whole stripes of this geometry.
    pub(crate) fn is_here(self, geometry: &Geometry) -> bool {
        match self {
            Encode::Auto => geometry.code().slots() > 1 && geometry.unit() >= UNIT_WORTH,
            Encode::Client | Encode::Relay => true,
            Encode::Primary => false,
        }
    }
}
