//! Formatting a brick, and opening one: scan the descriptors, replay the journal, check units that a crash may have
//! torn.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use cache::CacheFile;
use types::checksum::crc;
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::wire::{Record, from_bytes};
use types::{BrickId, Buf, ClusterId, Epoch, GroupId, Incarnation, StripeKey};
use world::direct::DirectOptions;
use world::{Disk, DiskMode, LocalBoxFuture, Notify, Peers, World};

use crate::error::BrickError;
use crate::journal::{self, Journal, ReplayedRecord};
use crate::lane::Lanes;
use crate::network::Network;
use crate::ops::proxy::Proxies;
use crate::primary::PrimaryCore;
use crate::reach::no_doubts;
use crate::read_cache::ReadCache;
use crate::record::{
    Configured, Decided, Drop, Floor, Forget, PrepareRecord, Promise, Settle, Snapshot, Torn, Undrop, older,
};
use crate::server::{Brick, BrickOptions, Counters, Server};
use crate::shard::Shards;
use crate::shared_sync::SharedSync;
use crate::slot::{SlotCore, Stamp, expand};
use crate::space::Run;
use crate::superblock::Superblock;
use crate::table::{PAGE, Table};

/// Which part of a brick's memory keeps blocks of a direct device.
const DIRECT_CACHE_PART: u64 = 4;

/// How to format a brick.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// The brick's id.
    pub brick: BrickId,
    /// Bytes of the journal; `None`: chosen by the size of the brick.
    pub journal_bytes: Option<u64>,
}

/// Formats a disk that is not a brick yet.
pub async fn format(world: &World, disk: &Disk, options: &FormatOptions) -> Result<Superblock, BrickError> {
    match Superblock::read(disk).await {
        Ok(found) => return Err(BrickError::AlreadyABrick { brick: found.brick, cluster: found.cluster }),
        Err(BrickError::NotABrick) => {}
        Err(other) => return Err(other),
    }
    let mut device = [0; 16];
    world.random_bytes(&mut device);
    let superblock =
        Superblock::lay_out(options.cluster, options.brick, device, disk.len(), options.journal_bytes)?;
    journal::format(disk, &superblock).await?;
    disk.sync().await?;
    // Last, so that an interrupted format leaves no brick.
    superblock.write(disk).await?;
    disk.sync().await?;
    Ok(superblock)
}

impl Brick {
    /// Opens a brick and listens. [`Brick::run`] begins to serve. With a cache, clients' reads go through it.
    ///
    /// The future is boxed, so that this crate compiles it once, and not every program that awaits it.
    pub fn start(
        world: World,
        disk: Disk,
        cache: Option<CacheFile>,
        options: BrickOptions,
    ) -> LocalBoxFuture<'static, Result<Brick, BrickError>> {
        Box::pin(Brick::start_unboxed(world, disk, cache, options))
    }

    async fn start_unboxed(
        world: World,
        disk: Disk,
        cache: Option<CacheFile>,
        options: BrickOptions,
    ) -> Result<Brick, BrickError> {
        let superblock = Superblock::read(&disk).await?;
        if superblock.cluster != options.identity.cluster {
            return Err(BrickError::OtherCluster {
                found: superblock.cluster,
                wanted: options.identity.cluster,
            });
        }
        if superblock.brick != options.brick {
            return Err(BrickError::OtherBrick { found: superblock.brick, wanted: options.brick });
        }
        let cache = match cache {
            Some(file) => {
                Some(ReadCache::load(&world, file, superblock.cluster, options.memory_budget).await?)
            }
            None => None,
        };
        let mut units_memory = options.memory_budget - cache.as_ref().map_or(0, ReadCache::memory);
        let disk = match disk.mode() {
            DiskMode::Buffered => disk,
            DiskMode::Direct => {
                let cache_bytes = units_memory / DIRECT_CACHE_PART;
                units_memory -= cache_bytes;
                disk.behind_queue(DirectOptions {
                    cache_bytes,
                    depth: options.depth,
                    policy: options.policy,
                    priority: options.priority,
                })
            }
        };
        let (table, journal, slot) = recover(&world, &disk, &superblock, units_memory).await?;
        let listener = world
            .listen(&options.listen)
            .await
            .map_err(|error| BrickError::Listen { address: options.listen.clone(), error })?;
        let address = options.advertise.clone().unwrap_or_else(|| listener.address());
        let server = Rc::new(Server {
            peers: Peers::new(world.clone(), options.identity.clone()),
            reach: RefCell::new(no_doubts()),
            proxies: Proxies::default(),
            shards: Shards::new(superblock.cluster, &options.meta),
            address,
            incarnation: Incarnation(world.random()),
            superblock,
            disk,
            filled: SharedSync::default(),
            cache,
            units_memory,
            journal,
            table,
            slot: RefCell::new(slot),
            primary: RefCell::new(PrimaryCore::default()),
            coders: RefCell::new(BTreeMap::new()),
            lanes: Lanes::default(),
            accepted: Cell::new(0),
            urgent: RefCell::new(BTreeMap::new()),
            pressure: RefCell::new(BTreeMap::new()),
            progress: Notify::new(),
            join_ended: Notify::new(),
            undelivered: Notify::new(),
            network: Network::default(),
            gather_until: Cell::new(0),
            unpatched: RefCell::new(BTreeSet::new()),
            unfolded: RefCell::default(),
            counters: Counters::default(),
            asked: Cell::default(),
            commits: RefCell::default(),
            busy_at: Cell::new(0),
            checkpointing: async_lock::Mutex::new(()),
            described: Cell::default(),
            purging: async_lock::Mutex::new(()),
            listing: async_lock::Mutex::new(()),
            backoffs: Default::default(),
            world,
            options,
        });
        Ok(Brick { server, listener })
    }
}

/// Rebuilds the state of a brick from its zones.
async fn recover(
    world: &World,
    disk: &Disk,
    superblock: &Superblock,
    units_memory: u64,
) -> Result<(Table, Journal, SlotCore), BrickError> {
    // A sixteenth of the memory for descriptor pages; a quarter is for units (see checkpoint.rs).
    let pages_cached = (units_memory / 16) as usize / PAGE;
    let table = Table::open(
        disk.clone(),
        superblock.pages_start,
        superblock.pages,
        crc(&superblock.device),
        pages_cached,
    )
    .await?;
    let slot = RefCell::new(SlotCore::new(superblock.data_blocks));
    let apply = async |found: ReplayedRecord| apply(&slot, &table, superblock.data_blocks, found).await;
    let journal = Journal::open(disk.clone(), superblock, world.random() as u32, apply).await?;
    let undecided = slot.borrow().undecided_units();
    // Units that the journal knows to be synced were written whole, and may have been acknowledged: if their bytes do
    // not match, they are damaged, and still count as held. `synced` is read only once, because the Torn records
    // appended below prove nothing about earlier units.
    let synced = journal.synced_upto();
    for (hold, lsn) in undecided {
        if lsn > synced && !is_whole(disk, superblock, &hold).await? {
            hit(CodeProbe::TornUnit);
            let brick = superblock.brick;
            tracing::info!(%brick, key = %hold.key, seq = %hold.seq, "a unit was torn by a crash: not held");
            if !journal.has_room() {
                return Err(BrickError::JournalDamaged("no room to note a torn unit"));
            }
            let torn = Torn { group: hold.group, seq: hold.seq };
            let appended = journal.append(&torn, &Buf::empty());
            let stamp = Stamp { lsn: appended.lsn, serial: appended.position.serial };
            slot.borrow_mut().apply_torn(torn.group, torn.seq, stamp);
        }
    }
    table
        .for_each(|descriptor| {
            if slot.borrow().is_resident(descriptor.key) {
                return;
            }
            slot.borrow_mut().mark_at_rest(&descriptor.base.runs);
            if descriptor.base.blocks == 0 {
                // Resident until it can be evicted.
                slot.borrow_mut().loaded(descriptor.clone());
            }
        })
        .await?;
    slot.borrow_mut().replayed(journal.serial());
    // The replayed records may still be in the page cache only. From now on they count as held, so sync first.
    disk.sync().await?;
    Ok((table, journal, slot.into_inner()))
}

/// Applies one record of the journal.
async fn apply(
    slot: &RefCell<SlotCore>,
    table: &Table,
    data_blocks: u64,
    found: ReplayedRecord,
) -> Result<(), BrickError> {
    let stamp = Stamp { lsn: found.lsn, serial: found.position.serial };
    match found.kind {
        PrepareRecord::KIND | older::Prepare::KIND => {
            let hold: PrepareRecord = match found.kind {
                PrepareRecord::KIND => parse(&found)?,
                _ => parse::<older::Prepare>(&found)?.into(),
            };
            check_runs(hold.runs.iter().chain(&hold.fresh), data_blocks)?;
            load(slot, table, hold.key).await?;
            slot.borrow_mut().apply_prepare(hold, found.position, stamp);
        }
        Decided::KIND => {
            let decided: Decided = parse(&found)?;
            slot.borrow_mut().apply_decided(decided.group, decided.upto, stamp);
        }
        Promise::KIND => {
            let promise: Promise = parse(&found)?;
            check_promise(slot, promise.group, promise.epoch)?;
            slot.borrow_mut().apply_promise(promise.group, promise.epoch, stamp);
        }
        Settle::KIND => settle(slot, &parse(&found)?, stamp)?,
        Snapshot::KIND => slot.borrow_mut().apply_snapshot(&parse(&found)?, stamp),
        older::Settle::KIND => settle(slot, &parse::<older::Settle>(&found)?.into(), stamp)?,
        older::Snapshot::KIND => {
            slot.borrow_mut().apply_snapshot(&parse::<older::Snapshot>(&found)?.into(), stamp);
        }
        Drop::KIND => {
            let drop: Drop = parse(&found)?;
            let at_rest = table.stripes_of(drop.object, 0, usize::MAX, |key| key.stripe < drop.stripes);
            for key in at_rest {
                load(slot, table, key).await?;
            }
            slot.borrow_mut().apply_drop(drop.object, drop.stripes, stamp);
        }
        Torn::KIND => {
            let torn: Torn = parse(&found)?;
            slot.borrow_mut().apply_torn(torn.group, torn.seq, stamp);
        }
        Forget::KIND => {
            let forget: Forget = parse(&found)?;
            load(slot, table, forget.key).await?;
            slot.borrow_mut().apply_forget(&forget, stamp);
        }
        Configured::KIND => slot.borrow_mut().apply_configured(&parse(&found)?, stamp),
        Undrop::KIND => slot.borrow_mut().apply_undrop(),
        Floor::KIND => {
            let floor: Floor = parse(&found)?;
            slot.borrow_mut().apply_floor(floor.group, floor.floor, stamp);
        }
        _ => return Err(BrickError::JournalDamaged("a record of unknown kind")),
    }
    Ok(())
}

fn settle(slot: &RefCell<SlotCore>, settle: &Settle, stamp: Stamp) -> Result<(), BrickError> {
    check_promise(slot, settle.group, settle.epoch)?;
    slot.borrow_mut().apply_settle(settle, stamp);
    Ok(())
}

/// Refuses a record that takes a promise back.
fn check_promise(slot: &RefCell<SlotCore>, group: GroupId, epoch: Epoch) -> Result<(), BrickError> {
    if epoch < slot.borrow().promised(group) {
        return Err(BrickError::JournalDamaged("a promise that is older than the one before it"));
    }
    Ok(())
}

/// Refuses blocks that the brick does not have.
fn check_runs<'a>(mut runs: impl Iterator<Item = &'a Run>, data_blocks: u64) -> Result<(), BrickError> {
    let is_inside =
        |run: &Run| run.start.checked_add(run.blocks.into()).is_some_and(|end| end <= data_blocks);
    match runs.all(is_inside) {
        true => Ok(()),
        false => Err(BrickError::JournalDamaged("a record of blocks that the brick does not have")),
    }
}

fn parse<R: Record>(found: &ReplayedRecord) -> Result<R, BrickError> {
    from_bytes(&found.body).map_err(|_| BrickError::JournalDamaged("a record that cannot be read"))
}

/// Brings a unit's state into RAM if it is at rest only.
pub(crate) async fn load(slot: &RefCell<SlotCore>, table: &Table, key: StripeKey) -> Result<(), BrickError> {
    loop {
        let evictions = slot.borrow().evictions();
        if slot.borrow().is_resident(key) {
            return Ok(());
        }
        let found = table.find(key).await?;
        // If units were evicted during the search, the descriptor found may be older than the evicted state.
        if slot.borrow().evictions() == evictions {
            if let Some(descriptor) = found {
                slot.borrow_mut().loaded(descriptor);
            }
            return Ok(());
        }
    }
}

/// Whether the blocks of a record match its checksums.
async fn is_whole(disk: &Disk, superblock: &Superblock, hold: &PrepareRecord) -> Result<bool, BrickError> {
    let sums: BTreeMap<u64, u32> = expand(&hold.runs).into_iter().zip(hold.crcs.iter().copied()).collect();
    for run in &hold.fresh {
        let offset = superblock.data_start + run.start * BLOCK as u64;
        let bytes = disk.read(offset, run.blocks as usize * BLOCK).await?;
        for (block, bytes) in (run.start..).zip(bytes.chunks(BLOCK)) {
            if sums.get(&block) != Some(&crc(bytes)) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
