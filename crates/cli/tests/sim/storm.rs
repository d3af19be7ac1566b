//! Random work under random faults. Every seed draws its own cluster, code, clients' work and mix of faults.
//!
//! Injected: processes killed, machines without power, cut wires, slow and breaking connections, drifting clocks,
//! restarts of the metadata service. Promised: an application sees pauses, never an error or a wrong byte; what an
//! fsync confirmed survives a power cut of everything. Not promised here: more bricks lost at once than the code bears,
//! a client cut off for longer than its lease.
//!
//! Two phases: faults come while clients work; then they stop, and everything must be there. At last all power goes,
//! as many bricks as the code bears never come back, and the files are compared again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::{ClientError, Encode, Mount, SetAttrs};
use futures_util::future::join3;
use types::messages::brick::BrickStatus;
use types::messages::cluster::{SlotConfig, SlotState};
use types::messages::names::Owner;
use types::messages::session::Role;
use types::{Buf, ClientId, Epoch, InodeId, Refusal};
use world::sim::SimOptions;
use world::{Peers, World};

use crate::cluster::{Client, Cluster, brick_node, create_volume, identity, map};

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
/// Operations of each client.
const STEPS: u32 = 60;
const BRICK_BYTES: u64 = 32 << 20;
/// Within so long after the faults every slot is live again, in microseconds.
const LIVE_US: u64 = 60_000_000;

/// What one seed did.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) faults: u64,
    pub(crate) bytes: u64,
    pub(crate) decoded: u64,
    pub(crate) retries: u64,
    /// Whole stripes that clients encoded.
    pub(crate) staged: u64,
    /// Whole stripes that primaries encoded.
    pub(crate) sent: u64,
    /// Stripes folded by a patch, and written whole; by bricks since their last start.
    pub(crate) patched: u64,
    pub(crate) folded: u64,
    pub(crate) compared: u64,
    /// The run ended early: more bricks were put Out than writes bear, or a client lost its lease.
    pub(crate) starved: u64,
    pub(crate) trace: u64,
}

/// Pseudo-random choices of the story (SplitMix64), apart from those of the world.
struct Dice(Cell<u64>);

impl Dice {
    fn roll(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut x = self.0.get();
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A file as it should be.
#[derive(Clone, Default)]
struct Model {
    now: Vec<u8>,
    /// Every content since the last fsync, oldest first; the fsynced one is the first.
    since: Vec<Vec<u8>>,
}

impl Model {
    fn changed(&mut self) {
        self.since.push(self.now.clone());
    }

    fn synced(&mut self) {
        self.since = vec![self.now.clone()];
    }

    /// What a file may hold after everything lost power: of each byte, any value since the last fsync.
    fn allows(&self, found: &[u8]) -> Result<(), String> {
        if let [only] = self.since.as_slice() {
            return if only == found { Ok(()) } else { Err(difference(only, found)) };
        }
        let sizes: BTreeSet<usize> = self.since.iter().map(Vec::len).collect();
        let (least, most) = (sizes.first().copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
        if found.len() < least || found.len() > most {
            return Err(format!("{} bytes, expected {least} to {most}", found.len()));
        }
        for (at, byte) in found.iter().enumerate() {
            if *byte != 0 && !self.since.iter().any(|content| content.get(at) == Some(byte)) {
                return Err(format!("byte {at} is {byte}, which was never written there"));
            }
        }
        Ok(())
    }
}

fn difference(expected: &[u8], found: &[u8]) -> String {
    if expected.len() != found.len() {
        return format!("{} bytes, expected {}", found.len(), expected.len());
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
    let wrong = expected.iter().zip(found).filter(|(a, b)| a != b).count();
    format!("byte {at} is {}, expected {}; {wrong} bytes differ", found[at], expected[at])
}

struct Storm<'a> {
    cluster: &'a Cluster,
    dice: Dice,
    seed: u64,
    slots: u32,
    parity: u32,
    stripe: usize,
    unit: usize,
    files: RefCell<BTreeMap<String, Model>>,
    /// Files that one client has closed for good, for the other to read.
    handed: RefCell<Vec<String>>,
    done: Cell<u32>,
    starved: Cell<bool>,
    /// The mounts, and who they were at first.
    mounts: RefCell<Vec<(Arc<Mount>, ClientId)>>,
    /// Bricks that are Out in some group.
    out: RefCell<BTreeSet<u32>>,
    /// Bricks that never come back.
    lost: RefCell<BTreeSet<u32>>,
    tally: RefCell<Tally>,
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Tally {
    let dice = Dice(Cell::new(seed ^ 0x5354_4f52_4d00));
    let (code, slots, parity) =
        dice.pick(&[("2+1", 3, 1), ("1+2", 3, 2), ("4+2", 6, 2), ("8+2", 10, 2), ("3+3", 6, 3)]);
    let unit = dice.pick(&[4096u32, 8192, 16384]);
    let bricks = slots + dice.below(3) as u32;
    let cluster = Cluster::new(seed, SimOptions::drawn(seed), bricks, BRICK_BYTES);
    let data = slots - parity;
    let storm = Storm {
        cluster: &cluster,
        seed,
        slots,
        parity,
        stripe: (data * unit) as usize,
        unit: unit as usize,
        files: RefCell::default(),
        handed: RefCell::default(),
        done: Cell::new(0),
        starved: Cell::new(false),
        out: RefCell::default(),
        lost: RefCell::default(),
        mounts: RefCell::default(),
        tally: RefCell::default(),
        dice,
    };
    cluster.start();
    let driver = cluster.sim.node("driver");
    cluster.sim.block_on("driver", storm.work(&driver, code, unit));
    cluster.power_cut_all();
    cluster.sim.kill("clienta");
    cluster.sim.kill("clientb");
    let lost = storm.lost_bricks();
    *storm.lost.borrow_mut() = lost.clone();
    cluster.start_meta();
    (0..bricks).filter(|brick| !lost.contains(brick)).for_each(|brick| cluster.start_brick(brick));
    let reader = cluster.sim.node("clientc");
    cluster.sim.block_on("clientc", storm.after_the_cut(reader));
    let mut tally = *storm.tally.borrow();
    tally.starved = u64::from(storm.starved.get());
    tally.trace = cluster.sim.trace_hash();
    tally
}

impl Storm<'_> {
    async fn work(&self, driver: &World, code: &str, unit: u32) {
        driver.sleep(1_500_000).await;
        create_volume(driver, code, unit, 1 + self.dice.below(8) as u32, 1 + self.dice.below(8) as u32).await;
        let budget = self.dice.pick(&[0u64, 256 << 10, 4 << 20]);
        let encode = || self.dice.pick(&[Encode::Client, Encode::Primary, Encode::Auto]);
        let a = Client::mount(self.cluster.sim.node("clienta"), budget, encode()).await;
        let b = Client::mount(self.cluster.sim.node("clientb"), budget, encode()).await;
        for client in [&a, &b] {
            self.mounts.borrow_mut().push((client.mount.clone(), client.mount.client()));
        }
        join3(self.client(&a, "a"), self.client(&b, "b"), self.nemesis(driver)).await;
        if self.is_starved(driver).await || self.lost_a_lease() {
            self.starved.set(true);
        }
        self.all_slots_live_again(driver).await;
        let map = map(driver).await;
        let slots = map.volumes.iter().flat_map(|v| &v.groups).flat_map(|group| &group.slots);
        *self.out.borrow_mut() = slots.filter(|s| s.state != SlotState::Live).map(|s| s.brick.0).collect();
        if self.is_starved(driver).await || self.lost_a_lease() {
            self.starved.set(true);
        }
        // Starved writes were given up after a minute; what was not synced may be lost.
        let exact = !self.starved.get();
        // The faults have stopped: everything must be there, for both.
        for client in [&a, &b] {
            self.compare_all(client, exact).await;
            let counters = client.mount.counters();
            let mut tally = self.tally.borrow_mut();
            tally.decoded += counters.units_decoded;
            tally.retries += counters.retries;
            tally.staged += counters.stripes_staged;
            tally.sent += counters.stripes_sent;
        }
        // Idle bricks fold: sometimes they are done before the power cut, sometimes it hits them at it.
        driver.sleep(self.dice.below(3_000_000)).await;
        self.count_folds(driver).await;
    }

    /// Adds up what the bricks have folded since their last start.
    async fn count_folds(&self, world: &World) {
        let peers = Peers::new(world.clone(), identity(Role::Client));
        for brick in 0..self.cluster.bricks {
            let address = format!("{}:1", brick_node(brick));
            let asked = peers.call(&address, Epoch(0), &BrickStatus {}, Buf::empty()).await;
            // A lost brick does not answer.
            let Ok((report, _)) = asked else { continue };
            let mut tally = self.tally.borrow_mut();
            tally.patched += report.patched;
            tally.folded += report.folded;
        }
    }

    async fn client(&self, client: &Client, who: &str) {
        for step in 0..STEPS {
            if self.starved.get() {
                break;
            }
            if let Err(error) = self.step(client, who, step).await {
                // A client that was cut off for longer than its lease is told so, and may lose what was not synced.
                let fenced = error == ClientError::Refused(Refusal::Fenced);
                if fenced || self.is_starved(&client.world).await {
                    self.starved.set(true);
                    break;
                }
                panic!("seed {}: step {step} of {who} failed: {error}", self.seed);
            }
            self.tally.borrow_mut().operations += 1;
            client.world.sleep(self.dice.below(60_000)).await;
        }
        self.done.set(self.done.get() + 1);
    }

    /// A mount was cut off for longer than its lease and is a new client since: what it had not synced may be lost,
    /// also of files that are closed.
    fn lost_a_lease(&self) -> bool {
        self.mounts.borrow().iter().any(|(mount, first)| mount.client() != *first)
    }

    /// More bricks are Out than writes bear: the errors are as promised.
    async fn is_starved(&self, world: &World) -> bool {
        let map = map(world).await;
        map.volumes.iter().flat_map(|volume| &volume.groups).any(|group| {
            let live = group.slots.iter().filter(|slot| slot.state == SlotState::Live).count() as u32;
            let data = self.slots - self.parity;
            live < if self.parity >= 2 { data + 1 } else { data }
        })
    }

    /// The faults are over and every brick is back: all slots are brought level and admitted.
    async fn all_slots_live_again(&self, world: &World) {
        let give_up = world.now() + LIVE_US;
        loop {
            let map = map(world).await;
            let groups = map.volumes.iter().flat_map(|volume| &volume.groups);
            let out = groups.flat_map(|group| &group.slots).filter(|slot| slot.state != SlotState::Live);
            let out: Vec<_> = out.map(|slot| slot.brick).collect();
            if out.is_empty() {
                return;
            }
            assert!(world.now() < give_up, "seed {}: slots of {out:?} are not live again", self.seed);
            world.sleep(100_000).await;
        }
    }

    /// More bricks are gone than reads bear: a brick that is late after the power cut may be put Out as well.
    async fn is_unreadable(&self, world: &World) -> bool {
        let lost = self.lost.borrow().clone();
        let map = map(world).await;
        map.volumes.iter().flat_map(|volume| &volume.groups).any(|group| {
            let there = |slot: &&SlotConfig| slot.state == SlotState::Live && !lost.contains(&slot.brick.0);
            (group.slots.iter().filter(there).count() as u32) < self.slots - self.parity
        })
    }

    /// One file: opened, changed a few times, synced or not, closed.
    async fn step(&self, client: &Client, who: &str, step: u32) -> Result<(), ClientError> {
        let name = format!("{who}{}", self.dice.below(6));
        let session = &client.session;
        match self.dice.below(12) {
            0 => return self.unlink(client, &name).await,
            1 => {
                let handed = self.handed.borrow().clone();
                if let Some(other) = handed.get(self.dice.below(handed.len() as u64 + 1) as usize) {
                    return self.compare(client, other, true).await;
                }
            }
            _ => {}
        }
        let known = self.files.borrow().get(&name).cloned();
        let opened = match known {
            Some(_) => {
                let attr = session.lookup(InodeId::ROOT, name.as_bytes()).await?;
                session.open(attr.inode, true, false).await?
            }
            None => session.create(InodeId::ROOT, name.as_bytes(), OWNER).await?,
        };
        let mut model = known.unwrap_or_else(|| Model { since: vec![Vec::new()], ..Model::default() });
        self.handed.borrow_mut().retain(|handed| *handed != name);
        for change in 0..1 + self.dice.below(5) {
            match self.dice.below(10) {
                0 => {
                    let size = self.dice.below(model.now.len() as u64 + self.stripe as u64);
                    session
                        .setattr(opened.attr.inode, SetAttrs { size: Some(size), ..SetAttrs::default() })
                        .await?;
                    model.now.resize(size as usize, 0);
                }
                1 => {
                    let at = self.dice.below(model.now.len() as u64 + 1);
                    let len = self.dice.below(2 * self.stripe as u64) as usize;
                    let found = session.read(opened.handle, at, len).await?;
                    let end = model.now.len().min(at as usize + len);
                    let expected = &model.now[at as usize..end];
                    if *found != *expected && self.lost_a_lease() {
                        return Err(ClientError::Refused(Refusal::Fenced));
                    }
                    assert!(
                        *found == *expected,
                        "seed {}: {name} read at {at}: {}",
                        self.seed,
                        difference(expected, &found)
                    );
                    continue;
                }
                _ => {
                    let (at, len) = self.range(model.now.len());
                    let bytes: Vec<u8> = (0..len)
                        .map(|i| {
                            (self.seed as usize + step as usize * 7 + change as usize * 13 + i) as u8 | 1
                        })
                        .collect();
                    session.write(opened.handle, at as u64, &bytes).await?;
                    if model.now.len() < at + len {
                        model.now.resize(at + len, 0);
                    }
                    model.now[at..at + len].copy_from_slice(&bytes);
                    self.tally.borrow_mut().bytes += len as u64;
                }
            }
            model.changed();
            // The file stands in the model even if the next step fails.
            self.files.borrow_mut().insert(name.clone(), model.clone());
        }
        if self.dice.below(2) == 0 {
            session.fsync(opened.handle).await?;
            if self.lost_a_lease() {
                // What was written before may be gone: the model does not know what was made stable now.
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            model.synced();
        }
        session.flush(opened.handle).await?;
        session.release(opened.handle).await?;
        self.files.borrow_mut().insert(name.clone(), model);
        self.handed.borrow_mut().push(name);
        Ok(())
    }

    /// A range to write, near a boundary of block, unit, stripe or file more often than not.
    fn range(&self, size: usize) -> (usize, usize) {
        let around = |edge: usize| (edge + self.dice.below(3) as usize).saturating_sub(1);
        let edges = [4096, self.unit, self.stripe, 2 * self.stripe, size, 0];
        let at = match self.dice.below(3) {
            0 => self.dice.below(size as u64 + self.stripe as u64) as usize,
            _ => around(self.dice.pick(&edges)),
        };
        let len = match self.dice.below(4) {
            0 => around(self.dice.pick(&edges[..4])),
            1 => self.dice.below(64) as usize,
            _ => self.dice.below(self.stripe as u64 * 2) as usize,
        };
        (at.min(6 * self.stripe), len.max(1))
    }

    async fn unlink(&self, client: &Client, name: &str) -> Result<(), ClientError> {
        let known = self.files.borrow_mut().remove(name).is_some();
        self.handed.borrow_mut().retain(|handed| handed != name);
        if known {
            client.session.unlink(InodeId::ROOT, name.as_bytes()).await?;
        }
        Ok(())
    }

    /// Reads a closed file whole. Nobody writes it meanwhile unless its model changes.
    async fn compare(&self, client: &Client, name: &str, exact: bool) -> Result<(), ClientError> {
        let before = self.files.borrow().get(name).cloned();
        let found = read_whole(client, name).await;
        let Some(model) = before else { return Ok(()) };
        let unchanged = self.files.borrow().get(name).is_some_and(|after| after.now == model.now)
            && self.handed.borrow().iter().any(|handed| handed == name);
        if !unchanged && exact && self.done.get() < 2 {
            return Ok(());
        }
        let found = found?;
        let exact = exact && !self.lost_a_lease();
        let verdict = if exact {
            if found == model.now { Ok(()) } else { Err(difference(&model.now, &found)) }
        } else {
            model.allows(&found)
        };
        if let Err(why) = verdict {
            // Its writer may have given up since: a reader can be the first to notice.
            if exact && self.is_starved(&client.world).await {
                self.starved.set(true);
                return Ok(());
            }
            panic!("seed {}: {name}: {why} (exact: {exact})", self.seed);
        }
        self.tally.borrow_mut().compared += found.len() as u64;
        Ok(())
    }

    async fn compare_all(&self, client: &Client, exact: bool) {
        let names: Vec<String> = self.files.borrow().keys().cloned().collect();
        for name in names {
            // A file whose last step failed may be open still; then only its names are sure.
            if exact && !self.handed.borrow().contains(&name) {
                continue;
            }
            if let Err(error) = self.compare(client, &name, exact).await {
                if self.starved.get() || self.is_unreadable(&client.world).await {
                    self.starved.set(true);
                    return;
                }
                panic!("seed {}: {name} cannot be read: {error}", self.seed);
            }
        }
    }

    /// Faults, until both clients are done. Short ones anywhere; one brick at most stays away for long.
    async fn nemesis(&self, world: &World) {
        let victim = self.dice.below(u64::from(self.cluster.bricks)) as u32;
        while self.done.get() < 2 {
            world.sleep(200_000 + self.dice.below(1_500_000)).await;
            let brick = self.dice.below(u64::from(self.cluster.bricks)) as u32;
            let node = brick_node(brick);
            self.tally.borrow_mut().faults += 1;
            match self.dice.below(6) {
                0 | 1 => {
                    self.cluster.sim.kill(&node);
                    self.back(world, brick, victim).await;
                }
                2 => {
                    self.cluster.sim.power_cut(&node);
                    self.back(world, brick, victim).await;
                }
                3 => {
                    self.cluster.sim.kill("meta");
                    world.sleep(self.dice.below(800_000)).await;
                    self.cluster.start_meta();
                }
                4 => {
                    let other = self.dice.pick(&["clienta", "clientb", "meta"]);
                    self.cut(world, &node, other).await;
                }
                _ => {
                    let other = brick_node(self.dice.below(u64::from(self.cluster.bricks)) as u32);
                    if other != node {
                        self.cut(world, &node, &other).await;
                    }
                }
            }
        }
    }

    async fn back(&self, world: &World, brick: u32, victim: u32) {
        let long = brick == victim && self.parity > 0 && self.dice.below(3) == 0;
        world.sleep(if long { 6_000_000 } else { self.dice.below(700_000) }).await;
        self.cluster.start_brick(brick);
    }

    async fn cut(&self, world: &World, one: &str, other: &str) {
        self.cluster.sim.partition(one, other, true);
        world.sleep(self.dice.below(900_000)).await;
        self.cluster.sim.partition(one, other, false);
    }

    /// Bricks that never come back after the power cut: with those that are Out already, as many as the code bears.
    fn lost_bricks(&self) -> BTreeSet<u32> {
        let out = self.out.borrow();
        let mut lost = BTreeSet::new();
        while out.len() + lost.len() < self.parity as usize && (lost.len() as u32) < self.cluster.bricks {
            let brick = self.dice.below(u64::from(self.cluster.bricks)) as u32;
            if !out.contains(&brick) {
                lost.insert(brick);
            }
        }
        lost
    }

    async fn after_the_cut(&self, world: World) {
        let client = Client::mount(world, 1 << 20, Encode::Auto).await;
        self.compare_all(&client, false).await;
    }
}

async fn read_whole(client: &Client, name: &str) -> Result<Vec<u8>, ClientError> {
    let attr = client.session.lookup(InodeId::ROOT, name.as_bytes()).await?;
    let opened = client.session.open(attr.inode, false, false).await?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < opened.attr.size {
        let part = client.session.read(opened.handle, bytes.len() as u64, 50_000).await?;
        if part.is_empty() {
            break;
        }
        bytes.extend_from_slice(&part);
    }
    client.session.release(opened.handle).await?;
    Ok(bytes)
}
