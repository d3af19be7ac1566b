//! What its user wants of a mount.

use types::Geometry;
use world::Identity;

/// Units from so many bytes on are worth a message to each brick of their own.
const UNIT_WORTH: usize = 16 << 10;

/// What to mount, and with how much memory.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where the metadata service listens, `host:port`.
    pub meta: String,
    /// Name of the volume.
    pub volume: String,
    /// Who this process is to the cluster.
    pub identity: Identity,
    /// Bytes that may be written and not yet stable.
    pub unstable_budget: u64,
    /// Bytes that the mount may hold in all.
    pub memory_budget: u64,
    /// Who makes the parity of whole stripes.
    pub encode: Encode,
    /// No other mount of the volume may live beside this one. If its lease runs out it is over for good, because its user
    /// may have cached anything.
    pub exclusive: bool,
    /// The user of an exclusive mount has the say over the files' times: a write does not change them,
    /// [`Session::setattr`](crate::Session::setattr) does.
    pub keeps_times: bool,
    /// What is read gets a new time of its last access.
    pub updates_atime: bool,
    /// Where the volume is shown, for people; longer ones than [`PLACE_MAX`](types::limits::PLACE_MAX) bytes are cut.
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
            updates_atime: true,
            place: String::new(),
        }
    }
}

/// Who makes the parity of whole stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encode {
    /// The client where that is the cheaper way, else the primary.
    #[default]
    Auto,
    /// The client.
    Client,
    /// The primary.
    Primary,
}

impl Encode {
    /// Whether the client encodes whole stripes of this geometry.
    pub(crate) fn is_here(self, geometry: &Geometry) -> bool {
        match self {
            Encode::Auto => geometry.code().slots() > 1 && geometry.unit() >= UNIT_WORTH,
            Encode::Client => true,
            Encode::Primary => false,
        }
    }
}
