//! A cluster keeps its promises under random work and random faults: every seed draws its own cluster, code, work and
//! mix of faults (`swarm.rs`), and every checker (`check/`) watches it.
//!
//! Promised: an application sees pauses, never an error or a wrong byte; what an fsync confirmed survives a power cut
//! of everything and the loss of as many bricks as the code bears. Not promised here: more bricks lost at once than
//! that, a client cut off for longer than its lease. Such a run ends early and is counted as inconclusive.
//!
//! ```text
//! work under faults ──▶ faults stop: all comes clean, all is there, parity fits, still writable
//!   ──▶ all power goes, as many bricks as the code bears never come back ──▶ all is there ──▶ all removed: space is back
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use client::{Encode, Mount};
use futures_util::future::{join, join_all, join4};
use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::{ClusterMap, GroupConfig, SlotConfig, SlotState};
use types::{ClientId, Code};
use world::World;
use world::sim::Fault;

use crate::check::content::Content;
use crate::check::history::History;
use crate::check::liveness::{self, RECOVERY_US};
use crate::check::names;
use crate::check::parity::{Compared, ParityCheck};
use crate::check::space::{self, Held};
use crate::check::verify;
use crate::cluster::{Client, Cluster, create_volume_of, map};
use crate::long::LongFile;
use crate::prng::Prng;
use crate::relays::Relays;
use crate::swarm::{SwarmConfig, TransientFault};
use crate::tally::Tally;

/// Operations of each client under faults, and after them.
const STEPS: u32 = 60;
const STEPS_HEALED: u32 = 8;
const BRICK_BYTES: u64 = 32 << 20;
/// The faults stop at this time at the latest, in microseconds: an application is promised an answer within a minute.
const FAULTS_US: u64 = 40_000_000;
/// Time in which a client that was told that its lease has run out joins again, in microseconds.
const REJOIN_US: u64 = 5_000_000;

/// A run.
pub(crate) struct Storm<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) config: SwarmConfig,
    pub(crate) prng: Prng,
    pub(crate) seed: u64,
    /// Bytes of data in a stripe.
    pub(crate) stripe: usize,
    /// Files that one client writes at a time.
    pub(crate) files: RefCell<BTreeMap<String, Content>>,
    /// Those that one client has closed for good, for the other to read.
    pub(crate) handed: RefCell<Vec<String>>,
    /// The file that both write.
    pub(crate) history: RefCell<History>,
    done: Cell<bool>,
    pub(crate) inconclusive: Cell<bool>,
    /// The clients have ended in order: the metadata service knows how far their files reach.
    all_told: Cell<bool>,
    /// The mounts, and who they were at first.
    mounts: RefCell<Vec<(Arc<Mount>, ClientId)>>,
    /// Nodes that some fault has ended and will start again.
    pub(crate) down: RefCell<BTreeSet<String>>,
    /// Bricks whose data is damaged, or will be.
    pub(crate) rotten: RefCell<BTreeSet<u32>>,
    /// Bricks that never come back.
    pub(crate) dead: RefCell<BTreeSet<u32>>,
    /// The long files (`long.rs`).
    pub(crate) long: RefCell<BTreeMap<String, LongFile>>,
    /// The brick whose place the spare one has taken.
    pub(crate) replaced: Cell<Option<u32>>,
    /// What each brick held before anything was written.
    held: RefCell<BTreeMap<u32, Held>>,
    pub(crate) tally: RefCell<Tally>,
    /// Members that send on units.
    pub(crate) relays: Rc<Relays>,
    /// One of two rails of bricks is cut.
    pub(crate) rail_is_cut: Cell<bool>,
    /// A brick was apart from several others.
    pub(crate) held_once: Cell<bool>,
}

/// The groups of all volumes, each with its code.
fn groups_of(map: &ClusterMap) -> impl Iterator<Item = (Code, &GroupConfig)> {
    let groups = |volume: &'_ types::messages::cluster::VolumeInfo| {
        (0..volume.groups.len() as u32).map(|index| volume.code_of(index)).collect::<Vec<_>>()
    };
    map.volumes.iter().flat_map(move |volume| groups(volume).into_iter().zip(&volume.groups))
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Tally {
    let prng = Prng::new(seed ^ 0x5354_4f52_4d00);
    let config = SwarmConfig::draw(seed, &prng);
    tracing::info!(seed, ?config, "a storm begins");
    let mut cluster =
        Cluster::new(seed, config.options.clone(), config.bricks, BRICK_BYTES, config.brick_memory);
    (cluster.brick_io, cluster.policy) = (config.brick_io, config.policy);
    if config.three_metas {
        cluster.with_three_metas();
    }
    if config.rails {
        cluster.with_rails();
    }
    let storm = Storm {
        cluster: &cluster,
        seed,
        stripe: ((config.slots - config.parity) * config.unit) as usize,
        config,
        prng,
        files: RefCell::default(),
        handed: RefCell::default(),
        history: RefCell::default(),
        done: Cell::new(false),
        inconclusive: Cell::new(false),
        all_told: Cell::new(false),
        mounts: RefCell::default(),
        down: RefCell::default(),
        rotten: RefCell::default(),
        dead: RefCell::default(),
        long: RefCell::default(),
        replaced: Cell::new(None),
        held: RefCell::default(),
        tally: RefCell::default(),
        relays: Relays::new(seed),
        rail_is_cut: Cell::new(false),
        held_once: Cell::new(false),
    };
    if storm.config.transient.contains(&TransientFault::Relay) {
        let relays = storm.relays.clone();
        cluster.sim.tamper(move |passing| relays.look(passing));
    }
    cluster.start_meta();
    (0..cluster.bricks)
        .filter(|brick| Some(*brick) != storm.config.spare)
        .for_each(|brick| cluster.start_brick(brick));
    let driver = cluster.sim.node("driver");
    cluster.sim.block_on("driver", storm.work(&driver));
    cluster.power_cut_all();
    cluster.sim.kill("clienta");
    cluster.sim.kill("clientb");
    cluster.start_meta();
    let lost = storm.dead.borrow().clone();
    (0..storm.config.bricks)
        .filter(|brick| !lost.contains(brick))
        .for_each(|brick| cluster.start_brick(brick));
    let reader = cluster.sim.node("clientc");
    cluster.sim.block_on("clientc", storm.after_the_cut(reader));
    let mut tally = storm.tally.borrow().clone();
    tally.seeds = 1;
    tally.inconclusive = u64::from(storm.inconclusive.get());
    tally.reads_checked = storm.history.borrow().reads_checked;
    tally.virtual_us = cluster.sim.now();
    tally.trace = cluster.sim.trace_hash();
    tally.faults = Fault::ALL.map(|fault| cluster.sim.faults(fault));
    tally
}

impl Storm<'_> {
    async fn work(&self, driver: &World) {
        let config = &self.config;
        driver.sleep(1_500_000).await;
        let topology = config.topology.as_ref();
        create_volume_of(driver, config.geometry(), config.groups, config.tier, topology).await;
        self.start_spare(driver).await;
        self.must(liveness::all_served(driver, config.bricks, &BTreeSet::new()).await);
        *self.held.borrow_mut() = space::held(driver, config.bricks).await;
        let a = Client::mount(self.cluster.sim.node("clienta"), config.budget, config.encode[0]).await;
        let b = Client::mount(self.cluster.sim.node("clientb"), config.budget, config.encode[1]).await;
        for client in [&a, &b] {
            self.mounts.borrow_mut().push((client.mount.clone(), client.mount.client()));
        }
        let clients = async {
            let (ours, theirs) = (self.open_shared(&a).await, self.open_shared(&b).await);
            join(self.client(&a, "a", STEPS, ours), self.client(&b, "b", STEPS, theirs)).await;
            self.done.set(true);
            [ours, theirs]
        };
        let persistent = join_all(
            config.persistent.iter().map(|(brick, what)| self.persistent_fault(driver, *brick, *what)),
        );
        let transient = join_all((0..config.together).map(|_| self.transient_faults(driver)));
        let faults = join4(clients, persistent, transient, self.reap(driver));
        let ((shared, _, _, ()), ()) = join(faults, self.move_files(driver)).await;
        self.heal();
        if !self.exceeds_tolerance(driver).await {
            self.recovers(driver, [&a, &b], shared).await;
        }
        self.compare_all(&a, !self.inconclusive.get()).await;
        self.compare_all(&b, !self.inconclusive.get()).await;
        if !self.exceeds_tolerance(driver).await {
            self.move_all(driver).await;
            self.compare_all(&b, !self.inconclusive.get()).await;
        }
        self.count([&a, &b]);
        if !self.exceeds_tolerance(driver).await {
            self.rests(driver, &a).await;
        }
        if config.long && !self.exceeds_tolerance(driver).await {
            self.long_files_at_rest(driver, [&a, &b]).await;
        }
        // Idle bricks fold: sometimes they are done before the power cut, sometimes it hits them at it.
        driver.sleep(self.prng.below(3_000_000)).await;
        for report in liveness::reports(driver, config.bricks).await {
            let mut tally = self.tally.borrow_mut();
            tally.patched += report.patched;
            tally.folded += report.folded;
        }
        // Clients that leave have told everything; of the others only what they made stable is known.
        if (self.prng.coin() || config.long) && !self.inconclusive.get() {
            for client in [&a, &b] {
                let left = client.mount.leave(&client.world).await;
                self.must(left.map_err(|error| format!("a client cannot leave: {error}")));
            }
            self.all_told.set(true);
        }
        self.lose_bricks(driver).await;
    }

    /// The faults have stopped: groups are served, slots are live again, and clients get on with their work, soon.
    async fn recovers(&self, driver: &World, clients: [&Client; 2], shared: [Option<u64>; 2]) {
        // One that has ended with the last faults is dead as well.
        self.reap_ended();
        let dead = self.dead.borrow().clone();
        let served = liveness::all_served(driver, self.config.bricks, &dead);
        let Some(served) = driver.timeout(RECOVERY_US + 10_000_000, served).await else {
            panic!("seed {}: nothing answers after the faults", self.seed)
        };
        self.must(served);
        self.must(liveness::all_live(driver, &dead).await);
        self.reap_ended();
        let [a, b] = clients;
        let ours = self.client(a, "a", STEPS_HEALED, shared[0]);
        let steps = join(ours, self.client(b, "b", STEPS_HEALED, shared[1]));
        let done = driver.timeout(RECOVERY_US, steps).await;
        // A lease that ran out with the last fault is noticed after it.
        let hopeless = self.exceeds_tolerance(driver).await;
        assert!(
            done.is_some() || hopeless,
            "seed {}: clients are not done {RECOVERY_US} us after the faults",
            self.seed
        );
    }

    /// Everything is at rest: folded, and parity is what the data gives.
    async fn rests(&self, driver: &World, client: &Client) {
        let mut unwell = self.out(driver).await;
        unwell.extend(self.harmed());
        let folded = liveness::all_folded(driver, self.config.bricks, &unwell).await;
        // A brick may be put Out only now for what the last fault did to it.
        if self.exceeds_tolerance(driver).await {
            return;
        }
        self.must(folded);
        let check = ParityCheck::new(driver, map(driver).await.volumes.remove(0), self.harmed());
        let mut compared = Compared::default();
        let mut names: Vec<String> = self.handed.borrow().clone();
        names.push(crate::shared::NAME.to_owned());
        for name in names {
            let Ok(attr) = client.session.lookup(types::InodeId::ROOT, name.as_bytes()).await else {
                continue;
            };
            // Nobody knows how far a lost client has written: then the file has stale bytes up to the largest size.
            let end = Some(attr.stale_end)
                .filter(|end| *end < FILE_SIZE_MAX)
                .map_or(attr.size, |end| end.max(attr.size));
            let checked = check.object(attr.object, end, &mut compared).await;
            self.must(checked.map_err(|why| format!("{name}: {why}")));
        }
        let long: Vec<(String, LongFile)> = self.long.borrow().clone().into_iter().collect();
        for (name, file) in long {
            let Ok(attr) = client.session.lookup(types::InodeId::ROOT, name.as_bytes()).await else {
                continue;
            };
            let checked = check.stripes(attr.object, file.stripes(self.stripe), &mut compared).await;
            self.must(checked.map_err(|why| format!("{name}: {why}")));
        }
        let mut tally = self.tally.borrow_mut();
        tally.stripes_compared += compared.stripes;
        tally.units_compared += compared.units;
        tally.units_damaged += compared.damaged;
    }

    /// A long file comes and goes, a brick is replaced, and all that is there is verified and compared.
    async fn long_files_at_rest(&self, driver: &World, clients: [&Client; 2]) {
        let is_well = self.harmed().is_empty() && self.out(driver).await.is_empty();
        if is_well && let Err(error) = self.long_file_comes_and_goes(driver, clients[0]).await {
            let hopeless = self.exceeds_tolerance(driver).await || self.soon_lost_a_lease(driver).await;
            assert!(hopeless, "seed {}: a long file at rest: {error}", self.seed);
            return;
        }
        self.replace_a_brick(driver).await;
        let verified = self.must(verify::all_groups(driver).await);
        self.tally.borrow_mut().stripes_verified += verified.stripes;
        assert!(
            verified.damaged == 0 || !self.rotten.borrow().is_empty(),
            "seed {}: {} stripes are damaged, and no fault did it",
            self.seed,
            verified.damaged
        );
        for client in clients {
            self.compare_all(client, !self.inconclusive.get()).await;
        }
    }

    pub(crate) fn must<T>(&self, checked: Result<T, String>) -> T {
        checked.unwrap_or_else(|why| panic!("seed {}: {why}", self.seed))
    }

    /// The clients have done their work under faults, or these have lasted long enough.
    pub(crate) fn faults_are_over(&self) -> bool {
        self.done.get() || self.cluster.sim.now() >= FAULTS_US
    }

    fn count(&self, clients: [&Client; 2]) {
        for client in clients {
            let counters = client.mount.counters();
            let mut tally = self.tally.borrow_mut();
            tally.decoded += counters.units_decoded;
            tally.retries += counters.retries;
            tally.proxied += counters.requests_proxied;
            tally.staged += counters.stripes_staged;
            tally.relayed += counters.stripes_relayed;
            tally.sent += counters.stripes_sent;
        }
    }

    /// A mount was cut off for longer than its lease and is a new client since: what it had not synced may be lost,
    /// also of files that are closed.
    pub(crate) fn lost_a_lease(&self) -> bool {
        self.mounts.borrow().iter().any(|(mount, first)| mount.client() != *first)
    }

    /// A mount whose lease has run out is told so by whomever it asks first; it shows only when it has joined again.
    pub(crate) async fn soon_lost_a_lease(&self, world: &World) -> bool {
        let give_up = world.now() + REJOIN_US;
        while !self.lost_a_lease() && world.now() < give_up {
            world.sleep(REJOIN_US / 50).await;
        }
        if self.lost_a_lease() {
            self.inconclusive.set(true);
        }
        self.lost_a_lease()
    }

    /// Bricks that are Out in some group.
    async fn out(&self, world: &World) -> BTreeSet<u32> {
        let map = map(world).await;
        let slots = map.volumes.iter().flat_map(|v| &v.groups).flat_map(|group| &group.slots);
        slots.filter(|slot| slot.state != SlotState::Live).map(|slot| slot.brick.0).collect()
    }

    /// More slots of a group are Out or damaged than reads bear, or more Out than writes bear: errors are as promised.
    pub(crate) async fn exceeds_tolerance(&self, world: &World) -> bool {
        let (map, harmed) = (map(world).await, self.harmed());
        let hopeless = groups_of(&map).any(|(code, group)| {
            let (data, writable) = (code.k() as u32, code.live_min() as u32);
            let live = |slot: &&SlotConfig| slot.state == SlotState::Live;
            let sound = |slot: &&SlotConfig| live(slot) && !harmed.contains(&slot.brick.0);
            let count = |such: &dyn Fn(&&SlotConfig) -> bool| group.slots.iter().filter(such).count() as u32;
            count(&live) < writable || count(&sound) < data
        });
        if hopeless || self.lost_a_lease() {
            self.inconclusive.set(true);
        }
        self.inconclusive.get()
    }

    async fn client(&self, client: &Client, who: &str, steps: u32, shared: Option<u64>) {
        for step in 0..steps {
            if self.inconclusive.get() {
                return;
            }
            let done = match shared.filter(|_| self.prng.below(3) == 0) {
                Some(handle) => self.shared_step(client, handle).await,
                None if self.config.long && self.prng.coin() => self.long_step(client, who).await,
                None => self.step(client, who, step).await,
            };
            if let Err(error) = done {
                if !self.exceeds_tolerance(&client.world).await
                    && !self.soon_lost_a_lease(&client.world).await
                {
                    panic!("seed {}: step {step} of {who} failed: {error}", self.seed);
                }
                return;
            }
            self.tally.borrow_mut().operations += 1;
            client.world.sleep(self.prng.below(60_000)).await;
        }
    }

    /// Bricks that never come back after the power cut: with those that are Out or damaged already, as many as the code
    /// bears. Of the damaged ones some go as well.
    async fn lose_bricks(&self, world: &World) {
        let mut unwell = self.out(world).await;
        unwell.extend(self.harmed());
        for brick in self.rotten.borrow().iter().filter(|_| self.prng.coin()) {
            self.dead.borrow_mut().insert(*brick);
        }
        // The place of a replaced brick has another one.
        let replaced = self.replaced.get();
        unwell.retain(|brick| Some(*brick) != replaced);
        while unwell.len() < self.config.parity as usize {
            let brick = self.prng.below(u64::from(self.config.bricks)) as u32;
            if Some(brick) != replaced && unwell.insert(brick) {
                self.dead.borrow_mut().insert(brick);
            }
        }
    }

    async fn after_the_cut(&self, world: World) {
        let client = Client::mount(world.clone(), 1 << 20, Encode::Auto).await;
        self.compare_all(&client, false).await;
        self.compare_shared(&client).await;
        let checked = self.must(names::all_well(&world).await);
        self.tally.borrow_mut().names_checked += checked.names;
        if self.all_told.get() && !self.exceeds_tolerance_after_loss(&world).await {
            self.remove_all(&client).await;
            let held = self.held.borrow().clone();
            self.must(space::all_back(&world, self.config.bricks, &held).await);
            self.tally.borrow_mut().spaces_compared += 1;
        }
    }

    /// Bricks that came back too late after the power cut are Out as well: more may be gone than the code bears.
    pub(crate) async fn exceeds_tolerance_after_loss(&self, world: &World) -> bool {
        let (map, harmed) = (map(world).await, self.harmed());
        let hopeless = groups_of(&map).any(|(code, group)| {
            let sound = |slot: &&SlotConfig| slot.state == SlotState::Live && !harmed.contains(&slot.brick.0);
            group.slots.iter().filter(sound).count() < code.k()
        });
        if hopeless {
            self.inconclusive.set(true);
        }
        self.inconclusive.get()
    }
}
