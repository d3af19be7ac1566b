//! Several bricks, an arbiter that admits slots, and a client that knows every byte: what the tests of several bricks
//! share.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use types::messages::cluster::GroupAdmit;

use super::*;
use crate::slot::UnitQuery;

pub(super) const UNIT: usize = 16 << 10;
/// Objects, and stripes of each, that the workload is about.
const OBJECTS: u64 = 4;
const STRIPES: u64 = 6;
/// A slot must be live again within this time.
const LIVE_US: u64 = 60_000_000;

pub(super) fn node(brick: usize) -> String {
    format!("brick{brick}")
}

/// What the arbiter does with an admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AdmitBehavior {
    Answers,
    /// Does it; nobody hears of that.
    LosesReply,
    /// Does nothing and says nothing.
    DropsRequest,
    Refuses,
}

/// A machine for each brick, one with the arbiter, one with the client. Brick `n` has slot `n` at first.
pub(super) struct TestCluster {
    pub(super) sim: Simulation,
    pub(super) map: Rc<RefCell<ClusterMap>>,
    pub(super) geometry: Geometry,
    pub(super) servers: Rc<RefCell<BTreeMap<usize, Rc<Server>>>>,
    /// The arbiter gives no new epochs to those who ask.
    pub(super) refuses_renewal: Rc<Cell<bool>>,
    pub(super) on_admit: Rc<Cell<AdmitBehavior>>,
    /// Admissions asked for.
    pub(super) admissions: Rc<Cell<u32>>,
}

fn next_epoch(map: &mut ClusterMap) {
    let group = &mut map.volumes[0].groups[0];
    group.epoch = group.epoch.next();
    map.version = MapVersion(map.version.0 + 1);
}

impl TestCluster {
    /// `spare` bricks have no slot. `blocks` is the size of brick 0; the others have room for all.
    pub(super) fn new(seed: u64, k: usize, m: usize, spare: usize, blocks: u64) -> TestCluster {
        let code = Code::new(k as u8, m as u8).expect("a code");
        TestCluster::of(seed, Geometry::new(code, UNIT as u32, 64).expect("a geometry"), spare, blocks)
    }

    /// The same with other units.
    pub(super) fn of(seed: u64, geometry: Geometry, spare: usize, blocks: u64) -> TestCluster {
        let code = geometry.code();
        let bricks = 0..code.slots() + spare;
        let slot = |brick| SlotConfig { brick: BrickId(brick as u32), state: SlotState::Live };
        let groups = vec![GroupConfig { epoch: Epoch(0), slots: (0..code.slots()).map(slot).collect() }];
        let info = |brick: usize| BrickInfo {
            id: BrickId(brick as u32),
            node: NodeId(brick as u32),
            address: format!("{}:1", node(brick)),
            capacity: 1 << 20,
            free: 1 << 20,
            state: BrickState::Up,
            class: BrickClass::Ssd,
        };
        let bricks_up = bricks.clone().map(info).collect();
        let map = ClusterMap { bricks: bricks_up, ..cluster_map(geometry, groups) };
        let cluster = TestCluster {
            sim: Simulation::new(seed, SimOptions::default()),
            map: Rc::new(RefCell::new(map)),
            geometry,
            servers: Rc::default(),
            refuses_renewal: Rc::default(),
            on_admit: Rc::new(Cell::new(AdmitBehavior::Answers)),
            admissions: Rc::default(),
        };
        bricks.clone().for_each(|brick| cluster.format(brick, if brick == 0 { blocks } else { 1024 }));
        cluster.start_arbiter();
        bricks.for_each(|brick| cluster.start(brick));
        cluster
    }

    /// An empty brick.
    fn format(&self, brick: usize, blocks: u64) {
        let superblock = Superblock { brick: BrickId(brick as u32), ..small(blocks) };
        let world = self.sim.node(&node(brick));
        self.sim.block_on(&node(brick), async {
            let disk = world.create_disk("disk", superblock.size).await.expect("a new disk");
            superblock.write(&disk).await.expect("written");
            disk.sync().await.expect("synced");
        });
        self.sim.kill(&node(brick));
    }

    fn start_arbiter(&self) {
        let world = self.sim.node("meta");
        let (map, on_admit, on) = (self.map.clone(), self.on_admit.clone(), world.clone());
        let (admissions, refuses_renewal) = (self.admissions.clone(), self.refuses_renewal.clone());
        world.spawn("test", async move {
            let listener = on.listen("meta:1").await.expect("the port is free");
            let clock = on.clone();
            let handler: Handler = Rc::new(move |call| {
                let is_admission = call.kind == GroupAdmit::KIND;
                admissions.set(admissions.get() + u32::from(is_admission));
                let on_admit = if is_admission { on_admit.get() } else { AdmitBehavior::Answers };
                let answer = match on_admit {
                    AdmitBehavior::DropsRequest => Err(Refusal::Unknown),
                    AdmitBehavior::Refuses => Err(Refusal::NotUp),
                    AdmitBehavior::Answers | AdmitBehavior::LosesReply => {
                        arbitrate(&mut map.borrow_mut(), &call, refuses_renewal.get())
                    }
                };
                let clock = clock.clone();
                Box::pin(async move {
                    if matches!(on_admit, AdmitBehavior::LosesReply | AdmitBehavior::DropsRequest) {
                        clock.sleep(100_000_000).await;
                    }
                    answer
                })
            });
            serve(on.clone(), listener, identity(Role::Meta), handler).await;
        });
    }

    pub(super) fn start(&self, brick: usize) {
        let world = self.sim.node(&node(brick));
        let (servers, on) = (self.servers.clone(), world.clone());
        let options = BrickOptions {
            brick: BrickId(brick as u32),
            node: NodeId(brick as u32),
            identity: identity(Role::Brick),
            listen: format!("{}:1", node(brick)),
            advertise: None,
            meta: "meta:1".to_owned(),
            memory_budget: 1 << 20,
            threads: 1,
            depth: world::direct::DEPTH,
            policy: PolicyName::Noop,
            priority: None,
            class: BrickClass::Ssd,
        };
        world.spawn("test", async move {
            let disk = on.open_disk("disk").await.expect("the disk is there");
            let here = Brick::start(on, disk, None, options).await.expect("a brick recovers");
            servers.borrow_mut().insert(brick, here.server.clone());
            if let Err(error) = here.run().await {
                tracing::warn!(%error, "a brick has ended");
            }
        });
    }

    /// The process is gone, or the power; nobody has noticed yet.
    pub(super) fn crash(&self, brick: usize, power: bool) {
        match power {
            true => self.sim.power_cut(&node(brick)),
            false => self.sim.kill(&node(brick)),
        }
        self.servers.borrow_mut().remove(&brick);
    }

    /// A brick is gone, and its lease has run out.
    pub(super) fn crash_and_expire(&self, brick: usize) {
        self.crash(brick, true);
        self.expire(brick);
    }

    fn expire(&self, brick: usize) {
        let mut map = self.map.borrow_mut();
        map.bricks[brick].state = BrickState::Out;
        if let Some(slot) = map.volumes[0].groups[0].slot_of(BrickId(brick as u32)) {
            map.volumes[0].groups[0].slots[slot].state = SlotState::Out;
        }
        next_epoch(&mut map);
    }

    /// Another brick gets the slot.
    pub(super) fn replace(&self, slot: usize, brick: usize) {
        let mut map = self.map.borrow_mut();
        map.volumes[0].groups[0].slots[slot] =
            SlotConfig { brick: BrickId(brick as u32), state: SlotState::Out };
        next_epoch(&mut map);
    }

    pub(super) fn server(&self, brick: usize) -> Rc<Server> {
        self.servers.borrow().get(&brick).cloned().expect("the brick runs")
    }

    /// Overlays in the journals of those who run.
    pub(super) fn overlays(&self) -> usize {
        self.servers.borrow().values().map(|server| server.slot.borrow().resident().1).sum()
    }

    pub(super) fn runs(&self, brick: usize) -> bool {
        self.servers.borrow().contains_key(&brick)
    }

    pub(super) fn primary(&self) -> usize {
        let map = self.map.borrow();
        let group = &map.volumes[0].groups[0];
        let slot = group.primary(self.geometry.code()).expect("a live slot");
        group.slots[slot].brick.0 as usize
    }

    pub(super) fn is_live(&self, slot: usize) -> bool {
        self.map.borrow().volumes[0].groups[0].live() & 1 << slot != 0
    }

    /// Whether the primary has closed the group for an admission.
    pub(super) fn is_closed(&self) -> bool {
        self.servers.borrow().values().any(|server| !server.primary.borrow().accepts(GROUP))
    }

    pub(super) fn client(&self) -> Client {
        let world = self.sim.node("client");
        let peers = Peers::new(world.clone(), identity(Role::Client));
        Client { world, peers, map: self.map.clone(), geometry: self.geometry, seq: 0, acked: 0 }
    }

    pub(super) async fn wait_live(&self, world: &World, slot: usize, what: &str) {
        let give_up = world.now() + LIVE_US;
        while !self.is_live(slot) {
            assert!(world.now() < give_up, "{what}: slot {slot} is live again");
            world.sleep(20_000).await;
        }
    }

    /// The slot is live again, and has everything.
    pub(super) async fn wait_rejoined(&self, workload: &Workload, slot: usize, what: &str) {
        self.wait_live(&workload.client.world, slot, what).await;
        self.compare_without_others(workload, slot, what).await;
    }

    /// As many others as the code bears are lost, one after the other: what is left has everything.
    pub(super) async fn compare_without_others(&self, workload: &Workload, keep: usize, what: &str) {
        workload.compare(&format!("{what}, all there")).await;
        let code = self.geometry.code();
        let seed = workload.client.world.random() as usize;
        let others: Vec<usize> =
            (0..code.slots()).filter(|slot| *slot != keep && self.is_live(*slot)).collect();
        for n in 0..code.m() {
            let slot = others[(seed + n) % others.len()];
            let brick = self.map.borrow().volumes[0].groups[0].slots[slot].brick.0 as usize;
            self.crash_and_expire(brick);
            workload.compare(&format!("{what}, without {} others, slot {slot} the last", n + 1)).await;
        }
    }
}

/// What the arbiter answers: a primary that starts gets a new epoch for its group, and so does one that asks for it.
fn arbitrate(map: &mut ClusterMap, call: &Call, refuses_renewal: bool) -> Result<Answer, Refusal> {
    match call.kind {
        BrickJoin::KIND => {
            let join: BrickJoin = call.parse()?;
            map.bricks[join.brick.0 as usize].state = BrickState::Up;
            map.version = MapVersion(map.version.0 + 1);
            let group = &map.volumes[0].groups[0];
            let primary = group.primary(map.volumes[0].geometry.code()).map(|slot| group.slots[slot].brick);
            if primary == Some(join.brick) {
                next_epoch(map);
            }
        }
        GroupRenew::KIND => {
            let wanted: GroupRenew = call.parse()?;
            if map.volumes[0].groups[0].epoch == wanted.epoch && !refuses_renewal {
                next_epoch(map);
            }
        }
        GroupAdmit::KIND => {
            let admit: GroupAdmit = call.parse()?;
            let group = &mut map.volumes[0].groups[0];
            let slot = &mut group.slots[admit.slot as usize];
            if group.epoch != admit.epoch {
                let done = slot.state == SlotState::Live && group.epoch > admit.epoch;
                return match done {
                    true => Ok(Answer::new(
                        &HeartbeatReply { map: map.version, doubtful: Vec::new() },
                        Buf::empty(),
                    )),
                    false => Err(Refusal::StaleEpoch),
                };
            }
            if map.bricks[slot.brick.0 as usize].state != BrickState::Up {
                return Err(Refusal::NotUp);
            }
            slot.state = SlotState::Live;
            next_epoch(map);
        }
        MapGet::KIND => {
            let MapGet { have, .. } = call.parse()?;
            let news = (have < map.version).then(|| MapUpdate::whole(map.clone()));
            return Ok(Answer::new(&MapReply { update: news }, Buf::empty()));
        }
        BrickHeartbeat::KIND => {
            let beat: BrickHeartbeat = call.parse()?;
            if map.bricks[beat.brick.0 as usize].state != BrickState::Up {
                return Err(Refusal::Unknown);
            }
        }
        _ => return Err(Refusal::Unsupported),
    }
    Ok(granted(map.version, call.kind == BrickJoin::KIND))
}

/// A client's workload on a few objects, and what they must hold.
pub(super) struct Workload {
    pub(super) client: Client,
    expected: RefCell<BTreeMap<StripeKey, Vec<u8>>>,
    purged: RefCell<BTreeSet<ObjectId>>,
    next_object: Cell<u64>,
}

impl Workload {
    pub(super) fn new(cluster: &TestCluster) -> Workload {
        Workload {
            client: cluster.client(),
            expected: RefCell::default(),
            purged: RefCell::default(),
            next_object: Cell::new(1),
        }
    }

    pub(super) fn below(&self, bound: usize) -> usize {
        (self.client.world.random() % bound.max(1) as u64) as usize
    }

    fn key(&self) -> StripeKey {
        let object = ObjectId(self.next_object.get() + self.below(OBJECTS as usize) as u64);
        StripeKey { object, stripe: self.below(STRIPES as usize) as u64 }
    }

    /// A stable write of some range.
    pub(super) async fn write(&mut self, key: StripeKey, offset: usize, len: usize, fill: Option<u8>) {
        let patch = self.client.patch(offset, len, fill);
        self.client.write_stable(key, &patch).await.expect("room");
        let stripe = self.client.geometry.stripe();
        let mut expected = self.expected.borrow_mut();
        patch.apply(expected.entry(key).or_insert_with(|| vec![0; stripe]));
    }

    /// A write of the client that was made in another way.
    pub(super) fn expect(&self, key: StripeKey, patch: &Patch) {
        let stripe = self.client.geometry.stripe();
        patch.apply(self.expected.borrow_mut().entry(key).or_insert_with(|| vec![0; stripe]));
    }

    /// A stable write of a whole stripe.
    pub(super) async fn write_whole(&mut self, key: StripeKey, fill: u8) {
        self.write(key, 0, self.client.geometry.stripe(), Some(fill)).await;
    }

    /// One step of any kind.
    pub(super) async fn step(&mut self, cluster: &TestCluster) {
        let (key, stripe) = (self.key(), self.client.geometry.stripe());
        let fill = 1 + self.below(250) as u8;
        let at = self.below(stripe);
        let few = 1 + self.below((stripe - at).min(3000));
        match self.below(16) {
            0..3 => self.write(key, 0, stripe, Some(fill)).await,
            // A short one, if nothing is there yet.
            3 => self.write(key, 0, few.min(UNIT), Some(fill)).await,
            4..11 => self.write(key, at, few, Some(fill)).await,
            11 => self.write(key, at, stripe - at, Some(fill)).await,
            // Truncated.
            12 => self.write(key, at, stripe - at, None).await,
            13 => self.write(key, 0, stripe, None).await,
            14 => self.write(key, at, few, None).await,
            _ => {
                if self.below(3) == 0 {
                    self.purge(cluster).await;
                }
                // Long enough for folds, sometimes.
                let pause = self.below(2) as u64 * 1_300_000 + 1000;
                self.client.world.sleep(pause).await;
            }
        }
    }

    pub(super) async fn steps(&mut self, cluster: &TestCluster, steps: usize) {
        for _ in 0..steps {
            self.step(cluster).await;
        }
    }

    /// The oldest object is forgotten, by every brick that is there.
    pub(super) async fn purge(&self, cluster: &TestCluster) {
        let object = ObjectId(self.next_object.get());
        self.next_object.set(object.0 + 1);
        self.purged.borrow_mut().insert(object);
        self.expected.borrow_mut().retain(|key, _| key.object != object);
        let purge = Purge { objects: vec![object] };
        let up: Vec<String> = {
            let map = cluster.map.borrow();
            map.bricks.iter().filter(|b| b.state == BrickState::Up).map(|b| b.address.clone()).collect()
        };
        for address in up {
            for _ in 0..500 {
                let asked = self.client.peers.call(&address, Epoch(0), &purge, Buf::empty()).await;
                let out = |b: &BrickInfo| b.address == address && b.state == BrickState::Out;
                if asked.is_ok_and(|(purged, _)| purged.left.is_empty())
                    || cluster.map.borrow().bricks.iter().any(out)
                {
                    break;
                }
                self.client.world.sleep(20_000).await;
            }
        }
    }

    pub(super) async fn compare(&self, what: &str) {
        let expected = self.expected.borrow().clone();
        for (key, expected) in expected {
            let mut found = self.client.read_stripe(key).await.expect("readable").to_vec();
            found.resize(expected.len(), 0);
            let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: {key} differs from here on");
        }
    }

    /// A brick has nothing of the objects that are gone.
    pub(super) fn assert_forgotten(&self, server: &Server, slot: usize, what: &str) {
        let slot = slot as u8;
        let asked = UnitQuery { group: GROUP, slot, of: slot, range: 0..self.client.geometry.stripe() };
        for object in self.purged.borrow().iter() {
            let core = server.slot.borrow();
            let states = core.units_of(*object, STRIPES).filter_map(|(key, _)| core.unit_state(&asked, key));
            let left: Vec<_> = states.collect();
            assert!(left.is_empty(), "{what}: {left:?} of an object that is gone");
        }
    }
}
