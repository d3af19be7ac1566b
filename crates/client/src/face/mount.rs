//! One mounted volume: what all its threads share.
//!
//! # Memory
//! Writers hold at most [`MountOptions::unstable_budget`] bytes that are not stable yet, buffers counted at their full
//! capacity; a writer that would go beyond waits. The budget is cut to three quarters of
//! [`MountOptions::memory_budget`] if that is less, and is never below four stripes. Beside it there is what reads in
//! progress hold (each twice its own length at most), a copy of each piece of several spans that is on the wire (256
//! KiB at most, 16 at a time per thread), and what `types::buf` keeps of free pages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use layout::Coder;
use types::limits::{LEASE_US, PLACE_MAX};
use types::messages::cluster::{ClientJoin, ClusterMap, ClusterStatus, MapFetch, Mode};
use types::messages::names::Attr;
use types::{Buf, ClientId, ClusterId, Epoch, Geometry, InodeId, MapVersion, Refusal, VolumeId};
use world::{CallError, Peers, World};

use crate::cuts::zeroing::Zeroings;
use crate::error::{ClientError, MountError};
use crate::face::session::Session;
use crate::modes::{ModeState, RecallHook};
use crate::routes::Routes;
use crate::routes::lease_state::LeaseState;
use crate::routes::route::MapView;
use crate::state::atime::{AtimeFilter, PendingAtimes};
use crate::state::counters::Counters;
use crate::state::open_files::{Handle, OpenFiles};
use crate::state::options::MountOptions;
use crate::unstable::Unstable;

/// How long the metadata service may take to answer a mount that begins, in microseconds.
const JOIN_US: u64 = 5_000_000;

/// The shared state of one mounted volume. Its locks are short and never held across an await; their order is table
/// of files, file, flow, everything else.
pub struct Mount {
    root: InodeId,
    pub(crate) routes: Arc<Routes>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    pub(crate) modes: Arc<ModeState>,
    pub(crate) zeroings: Arc<Zeroings>,
    /// Makes the parity of whole stripes.
    pub(crate) coder: Arc<Coder>,
}

impl Mount {
    /// Begins to use a volume.
    ///
    /// # Errors
    /// Says what is wrong: the volume, the key, the cluster or the way there.
    pub async fn join(world: &World, mut options: MountOptions) -> Result<Arc<Mount>, MountError> {
        let peers = Peers::new(world.clone(), options.identity.clone());
        let (meta, volume) = (options.meta.clone(), options.volume.clone());
        let wrong = |error| MountError::of(error, &meta, &volume);
        let sent = world.now();
        options.place.truncate(options.place.floor_char_boundary(PLACE_MAX));
        let (exclusive, place) = (options.exclusive, options.place.clone());
        let join = ClientJoin { volume: volume.clone(), client: None, opens: Vec::new(), exclusive, place };
        let asked = peers.call_within(JOIN_US, &meta, Epoch::default(), &join, Buf::empty()).await;
        let joined = match asked {
            Ok((joined, _)) => joined,
            Err(CallError::Refused(Refusal::MountedExclusively | Refusal::Mounted)) => {
                // Who it is has to be asked for, and may have left meanwhile.
                let asked =
                    peers.call_within(JOIN_US, &meta, Epoch::default(), &ClusterStatus {}, Buf::empty());
                let report = asked.await.map_err(wrong)?.0;
                let map = map_of(&peers, &meta, None).await.map_err(wrong)?;
                return Err(MountError::already_mounted(&volume, &map, report));
            }
            Err(error) => return Err(wrong(error)),
        };
        let map = map_of(&peers, &meta, Some(joined.volume)).await.map_err(wrong)?;
        let view =
            MapView::new(map, joined.volume).ok_or_else(|| MountError::UnknownVolume(volume.clone()))?;
        options.identity.cluster = peers.cluster();
        let stripe = view.geometry.stripe().next_power_of_two() as u64;
        let budget = options.unstable_budget.min(options.memory_budget / 4 * 3).max(4 * stripe);
        tracing::info!(%volume, client = %joined.client, "mounted");
        let lease = LeaseState::new(joined.client, sent + LEASE_US);
        let coder = Arc::new(Coder::new(view.geometry.code()));
        let routes = Arc::new(Routes::new(options, joined.volume, lease, view));
        Ok(Arc::new(Mount {
            root: joined.root,
            files: Arc::default(),
            unstable: Arc::new(Unstable::new(routes.clone(), budget)),
            atimes: Arc::default(),
            modes: Arc::default(),
            zeroings: Arc::default(),
            coder,
            routes,
        }))
    }

    /// A thread's own way into the mount.
    pub fn session(self: &Arc<Mount>, world: World) -> Session {
        Session::new(self.clone(), world)
    }

    /// The volume's root directory.
    pub fn root(&self) -> InodeId {
        self.root
    }

    /// Reads and writes of some file wait until it has been cut.
    pub fn has_quiesced_files(&self) -> bool {
        self.modes.has_quiesced_files()
    }

    /// The volume.
    pub fn volume(&self) -> VolumeId {
        self.routes.volume
    }

    /// The cluster that the volume is in.
    pub fn cluster(&self) -> ClusterId {
        self.routes.options.identity.cluster
    }

    /// This mount's id; another one after the service has fenced it.
    pub fn client(&self) -> ClientId {
        self.routes.lease.client()
    }

    /// No other mount of the volume lives beside this one.
    pub fn is_exclusive(&self) -> bool {
        self.routes.options.exclusive
    }

    /// How the volume's bytes become stripes.
    pub fn geometry(&self) -> Geometry {
        self.routes.geometry()
    }

    /// Bytes of the volume's disk, if it is a block volume.
    pub fn disk(&self) -> Option<u64> {
        self.routes.disk()
    }

    /// The lease of this exclusive mount has run out: nothing works any more.
    pub fn is_lost(&self) -> bool {
        self.routes.lease.is_lost()
    }

    /// What has been done so far.
    pub fn counters(&self) -> Counters {
        self.routes.counts.all(self.unstable.flow.used())
    }

    /// Sets who says whether accesses are to be noted; until then they are, unless the mount's options say otherwise.
    pub fn set_atime_filter(&self, hook: AtimeFilter) {
        self.atimes.set_filter(hook);
    }

    /// Attributes that were heard a moment ago, with the time of what was read since.
    pub fn with_access(&self, attr: Attr) -> Attr {
        self.atimes.with_access(attr)
    }

    /// Reads through this handle are no accesses.
    pub fn set_noatime(&self, handle: u64) {
        if let Ok(handle) = self.handle(handle) {
            handle.noatime.store(true, Ordering::Relaxed);
        }
    }

    /// What a handle stands for.
    pub(crate) fn handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        if self.routes.lease.has_left() {
            return Err(ClientError::Unmounted);
        }
        self.files.handle(handle)
    }

    /// Sets who is told that nothing cached of a file counts any more.
    pub fn on_recall(&self, hook: RecallHook) {
        self.modes.set_hook(hook);
    }

    /// The mode in which this mount has a file now: `Shared` if it is not open. A recall that comes later finds every
    /// handle that exists by then.
    pub fn mode(&self, inode: InodeId) -> Mode {
        self.files.file(inode).map_or(Mode::Shared, |file| file.lock().mode)
    }

    /// Somebody here has a file open for writing.
    pub fn is_written(&self, inode: InodeId) -> bool {
        self.files.file(inode).is_some_and(|file| file.lock().write_handles > 0)
    }
}

/// The map as it is, of one volume or of all.
async fn map_of(peers: &Peers, meta: &str, volume: Option<VolumeId>) -> Result<ClusterMap, CallError> {
    let mut fetch = MapFetch::new(MapVersion(0), volume);
    loop {
        let call = peers.call_within(JOIN_US, meta, Epoch::default(), fetch.request(), Buf::empty());
        if fetch.answered(call.await?.0) {
            break;
        }
    }
    let mut map = ClusterMap::empty(peers.cluster());
    fetch.apply(&mut map);
    Ok(map)
}
