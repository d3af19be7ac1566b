//! One mounted volume: the state that all its threads share.
//!
//! # Memory
//! Written bytes that are not stable take at most [`MountOptions::unstable_budget`] bytes; buffers count at
//! their full capacity. A writer that would exceed the budget waits. The budget is at most three quarters of
//! [`MountOptions::memory_budget`] and at least four stripes. Memory outside the budget: buffers of reads in progress
//! (each at most twice its length), a copy of each piece of several spans in flight (at most 256 KiB, 16 at a time
//! per thread), and free pages that `types::buf` keeps. The index of a cache on a disk, and what waits to be written there,
//! take at most half of what is left beside the budget of writes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use cache::{CacheFile, DiskCache, DiskCacheReport};
use pace::Slow;
use types::limits::{LEASE_US, PLACE_MAX};
use types::messages::cluster::{
    ClientJoin, ClientLeave, ClusterMap, ClusterStatus, MapFetch, Mode, ShardFind, ShardFound,
};
use types::messages::names::Attr;
use types::tuning::{Key, TuningError, Value, check_file_changes};
use types::{
    BrickId, Buf, ClientId, ClusterId, Epoch, Geometry, InodeId, MapVersion, Refusal, Tuning, VolumeId,
};
use world::{CallError, Peers, World};

use crate::cuts::zeroing::Zeroings;
use crate::error::{ClientError, MountError};
use crate::face::session::Session;
use crate::modes::{ModeState, RecallHook};
use crate::routes::Routes;
use crate::routes::lease_state::LeaseState;
use crate::routes::route::MapView;
use crate::state::atime::{AtimeFilter, PendingAtimes};
use crate::state::coders::Coders;
use crate::state::counters::{Counter, Counters};
use crate::state::layer_counts::{LayerCounters, LayerCounts};
use crate::state::open_files::{Handle, OpenFiles};
use crate::state::options::MountOptions;
use crate::state::page_cache::PageCache;
use crate::state::pattern::RecentBlocks;
use crate::state::slow_requests::SlowRequest;
use crate::state::tunings::{TuningReport, Tunings};
use crate::translators::MakeTranslator;
use crate::translators::read_ahead::AheadQueue;
use crate::unstable::Unstable;

/// How long the metadata service may take to answer a new mount, in microseconds.
const JOIN_US: u64 = 5_000_000;
/// Pause before it is asked again which shard has the volume, in microseconds.
const FIND_AGAIN_US: u64 = 200_000;

/// The shared state of one mounted volume. Locks are held briefly and never across an await. Their order: table of
/// files, file, flow, all others.
pub struct Mount {
    root: InodeId,
    pub(crate) routes: Arc<Routes>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    pub(crate) modes: Arc<ModeState>,
    pub(crate) zeroings: Arc<Zeroings>,
    pub(crate) tunings: Arc<Tunings>,
    /// Translators that the mount's user has added.
    pub(crate) translators: Vec<MakeTranslator>,
    pub(crate) layer_counts: Arc<LayerCounts>,
    pub(crate) pages: Arc<PageCache>,
    /// Bytes of io-cache if nobody sets them, and the most that may be set.
    pub(crate) cache_usual: u64,
    pub(crate) cache_most: u64,
    pub(crate) recent: Arc<Mutex<RecentBlocks>>,
    pub(crate) ahead: Arc<AheadQueue>,
    pub(crate) disk_cache: Option<Arc<DiskCache>>,
    /// Encodes whole stripes.
    pub(crate) coders: Arc<Coders>,
}

impl Mount {
    /// Mounts a volume.
    ///
    /// # Errors
    /// Says what is wrong: the volume, the key, the cluster or the connection.
    pub async fn join(world: &World, options: MountOptions) -> Result<Arc<Mount>, MountError> {
        Mount::join_with(world, options, Vec::new()).await
    }

    /// Mounts a volume, with more translators on top of the stack.
    ///
    /// # Errors
    /// As [`Mount::join`].
    pub async fn join_with(
        world: &World,
        mut options: MountOptions,
        translators: Vec<MakeTranslator>,
    ) -> Result<Arc<Mount>, MountError> {
        let peers = Peers::new(world.clone(), options.identity.clone());
        let volume = options.volume.clone();
        let meta = shard_of(world, &peers, &options.meta, &volume).await?;
        let wrong = |error| MountError::of(error, &meta, &volume);
        // Its disk may be slow, so before the lease begins, which nobody renews yet.
        let for_volume = match options.disk_cache.clone() {
            Some(path) => {
                let file = CacheFile::open(world, &path).await?;
                let map = map_of(&peers, &meta, None).await.map_err(wrong)?;
                let id = map.volume_named(&volume).map(|known| known.id);
                let view = id.and_then(|id| MapView::new(map, id));
                let (id, view) = id.zip(view).ok_or_else(|| MountError::UnknownVolume(volume.clone()))?;
                let room = budgets(&options, &view).1 / 2;
                let cache = file.load(world, peers.cluster(), room).await?;
                Some((id, Arc::new(cache)))
            }
            None => None,
        };
        let sent = world.now();
        options.place.truncate(options.place.floor_char_boundary(PLACE_MAX));
        let (exclusive, place) = (options.exclusive, options.place.clone());
        let join = ClientJoin { volume: volume.clone(), client: None, opens: Vec::new(), exclusive, place };
        let asked = peers.call_within(JOIN_US, &meta, Epoch::default(), &join, Buf::empty()).await;
        let joined = match asked {
            Ok((joined, _)) => joined,
            Err(CallError::Refused(Refusal::MountedExclusively | Refusal::Mounted)) => {
                // Ask which mounts there are, for the error message. They may have left meanwhile.
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
        if for_volume.as_ref().is_some_and(|(id, _)| *id != joined.volume) {
            // It was deleted, and another one made with its name.
            let leave = ClientLeave { client: joined.client };
            // If the service does not hear of it, the lease runs out.
            let _ = peers.call_within(JOIN_US, &meta, Epoch::default(), &leave, Buf::empty()).await;
            return Err(MountError::UnknownVolume(volume));
        }
        let disk_cache = for_volume.map(|(_, cache)| cache);
        let (budget, rest) = budgets(&options, &view);
        let rest = rest.saturating_sub(disk_cache.as_ref().map_or(0, |cache| cache.memory()));
        let (cache_usual, ahead) =
            ((options.memory_budget / 4).min(rest / 2), (options.memory_budget / 8).min(rest / 4));
        tracing::info!(%volume, client = %joined.client, "mounted");
        let lease = LeaseState::new(joined.client, sent + LEASE_US);
        let tunings = Arc::new(Tunings::default());
        view.check_tuning();
        tunings.set_volume(view.tuning.unwrap_or_default());
        let routes = Arc::new(Routes::new(options, meta, joined.volume, lease, view));
        Ok(Arc::new(Mount {
            root: joined.root,
            files: Arc::default(),
            unstable: Arc::new(Unstable::new(routes.clone(), budget)),
            atimes: Arc::default(),
            modes: Arc::default(),
            zeroings: Arc::default(),
            tunings,
            translators,
            layer_counts: Arc::default(),
            pages: Arc::new(PageCache::new(cache_usual)),
            cache_usual,
            cache_most: rest - ahead,
            recent: Arc::default(),
            ahead: Arc::new(AheadQueue::new(ahead)),
            coders: Arc::default(),
            disk_cache,
            routes,
        }))
    }

    /// A session for one thread.
    pub fn session(self: &Arc<Mount>, world: World) -> Session {
        Session::new(self.clone(), world)
    }

    /// The volume's root directory.
    pub fn root(&self) -> InodeId {
        self.root
    }

    /// Whether reads and writes of some file wait for a truncation.
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

    /// This mount's id. It changes after the service has fenced this client.
    pub fn client(&self) -> ClientId {
        self.routes.lease.client()
    }

    /// Whether this is an exclusive mount.
    pub fn is_exclusive(&self) -> bool {
        self.routes.options.exclusive
    }

    /// How the volume's bytes become stripes.
    pub fn geometry(&self) -> Geometry {
        self.routes.geometry()
    }

    /// Size of the disk of a block volume, in bytes.
    pub fn disk(&self) -> Option<u64> {
        self.routes.disk()
    }

    /// Whether the lease of this exclusive mount has run out, so that nothing works any more.
    pub fn is_lost(&self) -> bool {
        self.routes.lease.is_lost()
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let cached = self.pages.bytes() + self.ahead.room.used();
        Counters { cache_bytes: cached, ..self.routes.counts.all(self.unstable.flow.used()) }
    }

    /// Changes the translators' settings of this mount: words `key=value`, see [`types::tuning`].
    ///
    /// # Errors
    /// Says which word is wrong. Then nothing has changed.
    pub fn tune(&self, changes: &str) -> Result<(), TuningError> {
        let mut changed = self.tunings.levels().1;
        changed.change(changes)?;
        self.check_disk_cache(&changed)?;
        match changed.get(Key::IoCacheSize) {
            Some(Value::Number(bytes)) if bytes > self.cache_most => {
                Err(TuningError::Budget { bytes, most: self.cache_most })
            }
            _ => self.tunings.change_mount(changes),
        }
    }

    fn check_disk_cache(&self, changed: &Tuning) -> Result<(), TuningError> {
        let wants = changed.get(Key::DiskCache) == Some(Value::On);
        if wants && self.disk_cache.is_none() { Err(TuningError::NoDiskCache) } else { Ok(()) }
    }

    /// The bricks that answer reads much later than the others.
    pub fn slow_bricks(&self) -> Vec<Slow<BrickId>> {
        self.routes.latencies().slow().collect()
    }

    /// What its cache on a disk has done; `None` if it has none.
    pub fn disk_cache(&self) -> Option<DiskCacheReport> {
        self.disk_cache.as_ref().map(|cache| cache.report())
    }

    /// Changes the translators' settings of an open file of this mount, until its last handle is closed. Returns whether
    /// the file is open here.
    ///
    /// # Errors
    /// Says which word is wrong. Then nothing has changed.
    pub fn tune_file(&self, inode: InodeId, changes: &str) -> Result<bool, TuningError> {
        check_file_changes(changes)?;
        let mut changed = Tuning::default();
        changed.change(changes)?;
        self.check_disk_cache(&changed)?;
        let Some(file) = self.files.file(inode) else { return Ok(false) };
        let mut state = file.lock();
        // A file that is closed stays in the table until everything is reported.
        if state.users == 0 {
            return Ok(false);
        }
        state.tuning.change(changes).map(|()| true)
    }

    /// The translators' settings that apply to the mount, or to one of its open files.
    pub fn tuning(&self, inode: Option<InodeId>) -> TuningReport {
        let (volume, mount) = self.tunings.levels();
        let open = inode.and_then(|inode| self.files.file(inode));
        let file = open.as_ref().map(|file| file.lock().tuning).unwrap_or_default();
        let stripe = self.geometry().stripe() as u64;
        let mut effective = match &open {
            Some(file) => {
                let settings = self.tunings.settings(file, file.in_kernel.load(Ordering::Relaxed));
                settings.as_tuning(stripe, self.disk_cache.is_some())
            }
            None => mount.or(&volume),
        };
        if effective.get(Key::IoCacheSize).is_none() {
            effective.set(Key::IoCacheSize, Some(Value::Number(self.pages.limit())));
        }
        let (class, rereads) = open.map(|file| file.pattern().class()).unwrap_or_default();
        TuningReport { volume, mount, file, effective, class, rereads }
    }

    /// What has entered each translator so far, from the top down, and last what went to bricks.
    pub fn layer_counters(&self) -> Vec<LayerCounters> {
        self.layer_counts.all()
    }

    /// The same of one file since it was opened. `None` if it is not open here.
    pub fn file_layer_counters(&self, inode: InodeId) -> Option<Vec<LayerCounters>> {
        self.files.file(inode).map(|file| self.layer_counts.of_file(&file.layer_counts))
    }

    /// The slowest requests of the last ten minutes, of programs and then of the background, at the time `now` of [`World::now`]: of the mount, or of
    /// one file, even if it is not open any more.
    pub fn slow_requests(&self, inode: Option<InodeId>, now: u64) -> Vec<Arc<SlowRequest>> {
        self.routes.slow.slowest(inode, now)
    }

    /// A lookup was answered from names read ahead.
    pub fn count_lookup_ahead(&self) {
        self.routes.counts.count(Counter::LookupsAhead, 1);
    }

    /// Whether a file is open here.
    pub fn is_open(&self, inode: InodeId) -> bool {
        self.files.file(inode).is_some_and(|file| file.lock().users > 0)
    }

    /// The kernel caches what is read through this handle, and reads ahead itself.
    pub fn set_in_kernel(&self, handle: u64) {
        if let Ok(handle) = self.handle(handle) {
            handle.in_kernel.store(true, Ordering::Relaxed);
        }
    }

    /// Sets the filter for accesses. Without it all are recorded, unless the mount's options forbid it.
    pub fn set_atime_filter(&self, hook: AtimeFilter) {
        self.atimes.set_filter(hook);
    }

    /// Attributes from the service, with the time of an access that is not yet reported.
    pub fn with_access(&self, attr: Attr) -> Attr {
        self.atimes.with_access(attr)
    }

    /// Reads through this handle do not update the access time.
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

    /// Sets the hook that is called when nothing cached of a file is valid any more.
    pub fn on_recall(&self, hook: RecallHook) {
        self.modes.set_hook(hook);
    }

    /// The present mode of a file in this mount: `Shared` if it is not open. A later recall covers every handle that
    /// exists by then.
    pub fn mode(&self, inode: InodeId) -> Mode {
        self.files.file(inode).map_or(Mode::Shared, |file| file.lock().mode())
    }

    /// Whether this mount has a file open for writing.
    pub fn is_written(&self, inode: InodeId) -> bool {
        self.files.file(inode).is_some_and(|file| file.lock().write_handles > 0)
    }
}

/// Bytes of memory for what is not stable, and for everything else that the budget counts.
fn budgets(options: &MountOptions, view: &MapView) -> (u64, u64) {
    let stripes = view.tiers().iter().map(|tier| tier.geometry.stripe().next_power_of_two());
    let stripe = stripes.max().unwrap_or(0) as u64;
    let unstable = options.unstable_budget.min(options.memory_budget / 4 * 3).max(4 * stripe);
    (unstable, options.memory_budget.saturating_sub(unstable))
}

/// The metadata servers of the shard that has the volume; `meta` are those that the mount was given. Waits for a shard that may have
/// it and does not answer yet.
async fn shard_of(world: &World, peers: &Peers, meta: &str, volume: &str) -> Result<String, MountError> {
    let find = ShardFind { volume: volume.to_owned() };
    let until = world.now() + JOIN_US;
    loop {
        let found = peers.call_within(JOIN_US, meta, Epoch::default(), &find, Buf::empty()).await;
        match found.map(|(ShardFound { servers }, _)| servers) {
            Ok(None) => return Err(MountError::UnknownVolume(volume.to_owned())),
            Ok(Some(here)) if here.is_empty() => return Ok(meta.to_owned()),
            Ok(Some(servers)) => return Ok(servers),
            Err(CallError::Refused(Refusal::NotServing)) if world.now() < until => {
                world.sleep(FIND_AGAIN_US).await;
            }
            Err(error) => return Err(MountError::of(error, meta, volume)),
        }
    }
}

/// Fetches the current map, of one volume or of all.
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
