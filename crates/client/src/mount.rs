//! One mounted volume: the state that all its threads share.
//!
//! # Memory Written bytes that are not stable take at most [`MountOptions::unstable_budget`] bytes; buffers count at
//! their full capacity. A writer that would exceed the budget waits. The budget is at most three quarters of
//! [`MountOptions::memory_budget`] and at least four stripes. Memory outside the budget: buffers of reads in progress
//! (each at most twice its length), a copy of each piece of several spans in flight (at most 256 KiB, 16 at a time
//! per thread), and free pages that `types::buf` keeps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layout::Coder;
use types::limits::{LEASE_US, OPEN_FILES_MAX, PLACE_MAX};
use types::messages::cluster::{ClientJoin, ClusterMap, ClusterStatus, MapFetch, Mode};
use types::{BrickId, Buf, ClientId, ClusterId, Epoch, Geometry, InodeId, MapVersion, Refusal, VolumeId};
use world::{CallError, Identity, Notify, Peers, World};

use crate::atime::PendingAtimes;
use crate::error::{ClientError, MountError};
use crate::flow::Flow;
use crate::lease::{InflightOpens, LeaseState};
use crate::open_file::OpenFile;
use crate::route::MapView;
use crate::seq_tracker::SeqTracker;
use crate::session::Session;
use crate::stage::Encode;
use crate::wb_errors::ErrorCursor;

/// How long the metadata service may take to answer a new mount, in microseconds.
const JOIN_US: u64 = 5_000_000;

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
    /// The user of an exclusive mount sets the files' times: only [`Session::setattr`] changes them, not a write.
    pub keeps_times: bool,
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
            updates_atime: true,
            place: String::new(),
        }
    }
}

/// Counters of a mount since its start, and its present memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes that writes accepted.
    pub bytes_written: u64,
    /// Bytes read from this mount's own unstable writes.
    pub bytes_own: u64,
    /// Bytes read from the bricks of their units.
    pub bytes_direct: u64,
    /// Bytes read through primaries.
    pub bytes_primary: u64,
    /// Units that the primaries decoded for these reads.
    pub units_decoded: u64,
    /// Whole stripes that this client encoded and staged.
    pub stripes_staged: u64,
    /// Whole stripes that their primaries encoded.
    pub stripes_sent: u64,
    /// Requests that were repeated.
    pub retries: u64,
    /// Writes sent to primaries.
    pub pieces_sent: u64,
    /// Spans of these writes; a write has several if it gathers small ones.
    pub spans_sent: u64,
    /// Bytes of buffers with unstable bytes, now.
    pub unstable_bytes: u64,
    /// Bytes of the read cache, now.
    pub cache_bytes: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Counter {
    ReadBytes,
    WrittenBytes,
    OwnBytes,
    DirectBytes,
    PrimaryBytes,
    DecodedUnits,
    StagedStripes,
    SentStripes,
    Retries,
    Pieces,
    Spans,
}

/// A handle: the result of one `open`.
pub(crate) struct Handle {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) write: bool,
    pub(crate) error_cursor: ErrorCursor,
    /// Reads through it do not update access times.
    pub(crate) noatime: AtomicBool,
}

/// Why cached bytes and attributes of a file are no longer valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recalled {
    /// The service has recalled the file's mode to this one. The client confirms it when the hook returns.
    To(Mode),
    /// The lease has run out and other clients were let in: open handles fail from now on.
    Lost,
}

/// Called when nothing cached of a file is valid any more: before another client may change the file, or before this
/// client gets a new lease.
pub type RecallHook = Box<dyn Fn(InodeId, Recalled) + Send + Sync>;

/// The shared state of one mounted volume. Locks are held briefly and never across an await. Their order: table of
/// files, file, flow, all others.
pub struct Mount {
    pub(crate) options: MountOptions,
    pub(crate) volume: VolumeId,
    root: InodeId,
    /// Notified at every new map.
    pub(crate) map_changed: Notify,
    /// Held while a task fetches the map.
    pub(crate) refreshing: async_lock::Mutex<()>,
    /// Held while a task joins again.
    pub(crate) joining: async_lock::Mutex<()>,
    pub(crate) flow: Flow,
    /// Encodes whole stripes.
    pub(crate) coder: Coder,
    pub(crate) lease: LeaseState,
    map: Mutex<Arc<MapView>>,
    refreshes: AtomicU64,
    suspects: Mutex<BTreeMap<BrickId, u64>>,
    files: Mutex<BTreeMap<InodeId, Arc<OpenFile>>>,
    handles: Mutex<BTreeMap<u64, Arc<Handle>>>,
    next_handle: AtomicU64,
    ops: Mutex<SeqTracker>,
    inflight_opens: Mutex<InflightOpens>,
    counters: [AtomicU64; 11],
    hook: Mutex<Option<Arc<RecallHook>>>,
    pub(crate) atimes: PendingAtimes,
    /// Files with stale bytes that the background must zero.
    zeroings: Mutex<Vec<Arc<OpenFile>>>,
    /// Notified for each of these files, and when the mount ends.
    pub(crate) zeroing_wanted: Notify,
    /// The first lost write that no handle had reported when its file was removed from the table.
    pub(crate) unreported: Mutex<Option<ClientError>>,
    /// Number of quiesces in progress (`quiesce.rs`).
    pub(crate) active_quiesces: AtomicUsize,
}

impl Mount {
    /// Mounts a volume.
    ///
    /// # Errors Says what is wrong: the volume, the key, the cluster or the connection.
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
        let stripe = view.geometry.stripe().next_power_of_two() as u64;
        let budget = options.unstable_budget.min(options.memory_budget / 4 * 3).max(4 * stripe);
        tracing::info!(%volume, client = %joined.client, "mounted");
        Ok(Arc::new(Mount {
            volume: joined.volume,
            root: joined.root,
            map_changed: Notify::new(),
            refreshing: async_lock::Mutex::new(()),
            joining: async_lock::Mutex::new(()),
            flow: Flow::new(budget),
            coder: Coder::new(view.geometry.code()),
            lease: LeaseState::new(joined.client, sent + LEASE_US),
            map: Mutex::new(Arc::new(view)),
            refreshes: AtomicU64::new(0),
            suspects: Mutex::default(),
            files: Mutex::default(),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            ops: Mutex::default(),
            inflight_opens: Mutex::default(),
            counters: Default::default(),
            hook: Mutex::default(),
            atimes: PendingAtimes::default(),
            zeroings: Mutex::default(),
            unreported: Mutex::default(),
            zeroing_wanted: Notify::new(),
            active_quiesces: AtomicUsize::new(0),
            options,
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
        self.active_quiesces.load(Ordering::Acquire) > 0
    }

    /// The volume.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// The cluster that the volume is in.
    pub fn cluster(&self) -> ClusterId {
        self.options.identity.cluster
    }

    /// This mount's id. It changes after the service has fenced this client.
    pub fn client(&self) -> ClientId {
        self.lease.client()
    }

    /// Whether this is an exclusive mount.
    pub fn is_exclusive(&self) -> bool {
        self.options.exclusive
    }

    /// How the volume's bytes become stripes.
    pub fn geometry(&self) -> Geometry {
        self.map().geometry
    }

    /// Size of the disk of a block volume, in bytes.
    pub fn disk(&self) -> Option<u64> {
        self.map().block
    }

    /// Whether the lease of this exclusive mount has run out, so that nothing works any more.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Takes the size of a block volume's disk from the cluster map: it has at least `size` bytes.
    pub(crate) fn disk_has(&self, size: u64) {
        for file in self.files() {
            let mut state = file.lock();
            state.size = state.size.max(size);
            state.reported_size = state.reported_size.max(size);
            state.durable_size = state.durable_size.max(size);
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let of = |counter: Counter| self.counters[counter as usize].load(Ordering::Relaxed);
        Counters {
            bytes_read: of(Counter::ReadBytes),
            bytes_written: of(Counter::WrittenBytes),
            bytes_own: of(Counter::OwnBytes),
            bytes_direct: of(Counter::DirectBytes),
            bytes_primary: of(Counter::PrimaryBytes),
            units_decoded: of(Counter::DecodedUnits),
            stripes_staged: of(Counter::StagedStripes),
            stripes_sent: of(Counter::SentStripes),
            retries: of(Counter::Retries),
            pieces_sent: of(Counter::Pieces),
            spans_sent: of(Counter::Spans),
            unstable_bytes: self.flow.used(),
            cache_bytes: 0,
        }
    }

    /// Sets the hook that is called when nothing cached of a file is valid any more.
    pub fn on_recall(&self, hook: RecallHook) {
        *lock(&self.hook) = Some(Arc::new(hook));
    }

    pub(crate) fn call_hook(&self, inode: InodeId, recalled: Recalled) {
        let hook = lock(&self.hook).clone();
        if let Some(hook) = hook {
            hook(inode, recalled);
        }
    }

    /// The present mode of a file in this mount: `Shared` if it is not open. A later recall covers every handle that
    /// exists by then.
    pub fn mode(&self, inode: InodeId) -> Mode {
        self.file(inode).map_or(Mode::Shared, |file| file.lock().mode)
    }

    /// Whether this mount has a file open for writing.
    pub fn is_written(&self, inode: InodeId) -> bool {
        self.file(inode).is_some_and(|file| file.lock().write_handles > 0)
    }

    pub(crate) fn count(&self, counter: Counter, by: u64) {
        self.counters[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn map(&self) -> Arc<MapView> {
        lock(&self.map).clone()
    }

    /// Replaces the map if `view` is newer. Returns whether it was.
    pub(crate) fn replace_map(&self, view: MapView) -> bool {
        let mut map = lock(&self.map);
        let newer = view.version > map.version;
        if newer {
            *map = Arc::new(view);
        }
        newer
    }

    /// How often the map has been asked for.
    pub(crate) fn refreshes(&self) -> u64 {
        self.refreshes.load(Ordering::Acquire)
    }

    pub(crate) fn count_refresh(&self) {
        self.refreshes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn suspects(&self) -> MutexGuard<'_, BTreeMap<BrickId, u64>> {
        lock(&self.suspects)
    }

    pub(crate) fn ops(&self) -> MutexGuard<'_, SeqTracker> {
        lock(&self.ops)
    }

    pub(crate) fn inflight_opens(&self) -> MutexGuard<'_, InflightOpens> {
        lock(&self.inflight_opens)
    }

    /// Has the background zero what is stale of a file.
    pub(crate) fn begin_zeroing(&self, file: &Arc<OpenFile>) {
        lock(&self.zeroings).push(file.clone());
        self.zeroing_wanted.notify();
    }

    /// Files of which nobody zeroes what is stale yet.
    pub(crate) fn take_zeroings(&self) -> Vec<Arc<OpenFile>> {
        std::mem::take(&mut *lock(&self.zeroings))
    }

    /// What a handle stands for.
    pub(crate) fn handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        if self.lease.has_left() {
            return Err(ClientError::Unmounted);
        }
        let handle = lock(&self.handles).get(&handle).cloned().ok_or(ClientError::BadHandle)?;
        let fenced = handle.file.lock().fenced;
        if fenced { Err(ClientError::Refused(Refusal::Fenced)) } else { Ok(handle) }
    }

    /// Makes a handle of a file that its caller already counts as a user of.
    pub(crate) fn add_handle(&self, handle: Handle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.handles).insert(number, Arc::new(handle));
        number
    }

    pub(crate) fn take_handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        lock(&self.handles).remove(&handle).ok_or(ClientError::BadHandle)
    }

    /// The file of an inode, if it is open or owes something.
    pub(crate) fn file(&self, inode: InodeId) -> Option<Arc<OpenFile>> {
        lock(&self.files).get(&inode).cloned()
    }

    pub(crate) fn files(&self) -> Vec<Arc<OpenFile>> {
        lock(&self.files).values().cloned().collect()
    }

    /// Takes every file out of the table.
    pub(crate) fn forget_files(&self) -> Vec<Arc<OpenFile>> {
        std::mem::take(&mut *lock(&self.files)).into_values().collect()
    }

    /// Refuses another open file if the service could not be told of all of them after a restart.
    pub(crate) fn check_open_files(&self, inode: Option<InodeId>) -> Result<(), ClientError> {
        let files = lock(&self.files);
        let known = inode.is_some_and(|inode| files.contains_key(&inode));
        if known || files.len() < OPEN_FILES_MAX {
            Ok(())
        } else {
            Err(ClientError::Refused(Refusal::TooMany))
        }
    }

    /// Becomes a user of an inode's file. Also returns whether its entry is new.
    pub(crate) fn get_file(&self, inode: InodeId) -> (Arc<OpenFile>, bool) {
        let mut files = lock(&self.files);
        let mut fresh = false;
        let file = files.entry(inode).or_insert_with(|| {
            fresh = true;
            Arc::new(OpenFile::new(inode))
        });
        file.lock().users += 1;
        (file.clone(), fresh)
    }

    /// Stops being a user.
    pub(crate) fn put_file(&self, file: &Arc<OpenFile>) {
        let mut state = file.lock();
        state.users = state.users.checked_sub(1).expect("put_file follows get_file");
        drop(state);
        self.forget_if_clean(file);
    }

    /// Removes a file from the table if it has no users and nothing left to report.
    pub(crate) fn forget_if_clean(&self, file: &Arc<OpenFile>) {
        let mut files = lock(&self.files);
        let state = file.lock();
        let known = files.get(&file.inode).is_some_and(|known| Arc::ptr_eq(known, file));
        if known && state.users == 0 && state.is_clean() && state.readers + state.writers == 0 {
            if let Err(error) = state.wb_errors.unreported() {
                lock(&self.unreported).get_or_insert(error);
            }
            drop(state);
            files.remove(&file.inode);
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
