//! Patches over several bricks: what a loss at any stage of one leaves, and what a damaged block makes of it.

use std::cell::Cell;

use types::Seq;
use types::messages::brick::OpKind;

use super::*;

const UNIT: usize = 32 << 10;
const K: usize = 2;
const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };
/// Bricks idle for a second fold, and look every fifth of one.
const ALMOST_IDLE_US: u64 = 900_000;
const FOLDED_US: u64 = 4_000_000;

/// A machine for each slot of one group, one with the arbiter, one with the client. Brick `n` has slot `n`.
struct Sea {
    sim: Simulation,
    map: Rc<RefCell<ClusterMap>>,
    geometry: Geometry,
    servers: Rc<RefCell<Vec<Option<Rc<Server>>>>>,
    /// The arbiter gives no new epochs.
    stubborn: Rc<Cell<bool>>,
}

/// How far a patch has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    SomeHold,
    AllHold,
    SomeDecided,
}

/// What happens then.
#[derive(Clone, Copy, Debug)]
enum Blow {
    PowerCutOfAll,
    PowerCut(usize),
    Lost(usize),
}

fn node(brick: usize) -> String {
    format!("brick{brick}")
}

impl Sea {
    fn new(seed: u64, m: usize) -> Sea {
        let code = Code::new(K as u8, m as u8).expect("a code");
        let geometry = Geometry::new(code, UNIT as u32, 64).expect("a geometry");
        let bricks = 0..code.slots();
        let slot = |brick| SlotConfig { brick: BrickId(brick as u32), state: SlotState::Live };
        let groups = vec![GroupConfig { epoch: Epoch(0), slots: bricks.clone().map(slot).collect() }];
        let volume =
            VolumeInfo { id: GROUP.volume, name: "sea".to_owned(), geometry, groups, same_node: false };
        let info = |brick: usize| BrickInfo {
            id: BrickId(brick as u32),
            node: NodeId(brick as u32),
            address: format!("{}:1", node(brick)),
            capacity: 1 << 20,
            free: 1 << 20,
            state: BrickState::Up,
        };
        let bricks_up = bricks.clone().map(info).collect();
        let map = ClusterMap { volumes: vec![volume], bricks: bricks_up, ..ClusterMap::empty(CLUSTER) };
        let sea = Sea {
            sim: Simulation::new(seed, SimOptions::default()),
            map: Rc::new(RefCell::new(map)),
            geometry,
            servers: Rc::new(RefCell::new(vec![None; code.slots()])),
            stubborn: Rc::default(),
        };
        for brick in bricks {
            let superblock = Superblock { brick: BrickId(brick as u32), ..small(512) };
            let world = sea.sim.node(&node(brick));
            sea.sim.block_on(&node(brick), async {
                let disk = world.create_disk("disk", superblock.size).await.expect("a new disk");
                superblock.write(&disk).await.expect("written");
                disk.sync().await.expect("synced");
            });
            sea.sim.kill(&node(brick));
        }
        sea.start_arbiter();
        (0..code.slots()).for_each(|brick| sea.start(brick));
        sea
    }

    fn start_arbiter(&self) {
        let world = self.sim.node("meta");
        let (map, stubborn, on) = (self.map.clone(), self.stubborn.clone(), world.clone());
        world.spawn(async move {
            let listener = on.listen("meta:1").await.expect("the port is free");
            let handler: Handler = Rc::new(move |call| {
                let answer = answer(&mut map.borrow_mut(), &call, stubborn.get());
                Box::pin(async move { answer })
            });
            serve(on.clone(), listener, identity(Role::Meta), handler).await;
        });
    }

    fn start(&self, brick: usize) {
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
        };
        world.spawn(async move {
            let disk = on.open_disk("disk").await.expect("the disk is there");
            let brick_here = Brick::start(on, disk, options).await.expect("a brick recovers");
            servers.borrow_mut()[brick] = Some(brick_here.server.clone());
            if let Err(error) = brick_here.run().await {
                tracing::warn!(%error, "a brick has ended");
            }
        });
    }

    fn power_cut(&self, brick: usize) {
        self.sim.power_cut(&node(brick));
        self.servers.borrow_mut()[brick] = None;
    }

    /// A brick dies for good: its slot is Out, in a new epoch.
    fn lose(&self, brick: usize) {
        self.sim.kill(&node(brick));
        self.servers.borrow_mut()[brick] = None;
        let mut map = self.map.borrow_mut();
        map.volumes[0].groups[0].slots[brick].state = SlotState::Out;
        next_epoch(&mut map);
    }

    fn strike(&self, blow: Blow) {
        let slots = self.geometry.code().slots();
        match blow {
            Blow::PowerCutOfAll => {
                (0..slots).for_each(|brick| self.power_cut(brick));
                (0..slots).for_each(|brick| self.start(brick));
            }
            Blow::PowerCut(brick) => {
                self.power_cut(brick);
                self.start(brick);
            }
            Blow::Lost(brick) => self.lose(brick),
        }
    }

    fn server(&self, brick: usize) -> Rc<Server> {
        self.servers.borrow()[brick].clone().expect("the brick runs")
    }

    fn client(&self) -> Client {
        let world = self.sim.node("client");
        let peers = Peers::new(world.clone(), identity(Role::Client));
        Client { world, peers, map: self.map.clone(), geometry: self.geometry, seq: 0, acked: 0 }
    }

    /// Overlays in the journals of those who run.
    fn overlays(&self) -> usize {
        self.servers.borrow().iter().flatten().map(|server| server.slot.borrow().resident().1).sum()
    }

    /// How far the patch has come, `patch` its number once that was seen.
    fn stage(&self, patch: &mut Option<Seq>) -> Option<Stage> {
        let servers = self.servers.borrow();
        let held = |server: &Rc<Server>| {
            let tail = server.slot.borrow().tail(GROUP, 0);
            tail.held.iter().find(|op| op.kind == OpKind::Patch).map(|op| op.seq)
        };
        *patch = patch.or_else(|| servers.iter().flatten().find_map(held));
        let seq = (*patch)?;
        let decided = |server: &&Rc<Server>| server.slot.borrow().decided(GROUP) >= seq;
        let decisions = servers.iter().flatten().filter(decided).count();
        let holders = servers.iter().flatten().filter(|s| decided(s) || held(s) == Some(seq)).count();
        match (holders, decisions) {
            (_, decisions) if decisions == servers.len() => None,
            (_, 1..) => Some(Stage::SomeDecided),
            (holders, _) if holders == servers.len() => Some(Stage::AllHold),
            _ => Some(Stage::SomeHold),
        }
    }

    /// A stripe with stable overlays in both data units, three blocks of sixteen. Returns its bytes.
    async fn overlaid(&self, client: &mut Client) -> Vec<u8> {
        let mut expected = vec![0; K * UNIT];
        let places = [(0, K * UNIT, 1), (BLOCK + 100, 200, 2), (UNIT + 3 * BLOCK + 50, 5000, 3)];
        for (offset, len, fill) in places {
            let patch = client.patch(offset, len, Some(fill));
            client.write(KEY, &patch).await.expect("room");
            client.sync().await;
            patch.apply(&mut expected);
        }
        expected
    }

    async fn compare(&self, client: &Client, expected: &[u8], when: &str) {
        let mut found = client.read_stripe(KEY).await.expect("readable").to_vec();
        found.resize(expected.len(), 0);
        let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{when}: the stripe differs from here on");
    }
}

fn next_epoch(map: &mut ClusterMap) {
    let group = &mut map.volumes[0].groups[0];
    group.epoch = group.epoch.next();
    map.version = MapVersion(map.version.0 + 1);
}

/// What the arbiter answers: a primary that starts gets a new epoch for its group, and so does one that asks for it.
fn answer(map: &mut ClusterMap, call: &Call, stubborn: bool) -> Result<Answer, Refusal> {
    match call.kind {
        BrickJoin::KIND => {
            let join: BrickJoin = call.parse()?;
            let group = &map.volumes[0].groups[0];
            let primary = group.primary(map.volumes[0].geometry.code()).map(|slot| group.slots[slot].brick);
            if primary == Some(join.brick) {
                next_epoch(map);
            }
        }
        GroupRenew::KIND => {
            let wanted: GroupRenew = call.parse()?;
            if map.volumes[0].groups[0].epoch == wanted.epoch && !stubborn {
                next_epoch(map);
            }
        }
        MapGet::KIND => {
            let MapGet { have } = call.parse()?;
            let map = (have < map.version).then(|| map.clone());
            return Ok(Answer::new(&MapReply { map }, Buf::empty()));
        }
        BrickBeat::KIND => {}
        _ => return Err(Refusal::Unsupported),
    }
    Ok(Answer::new(&BeatReply { map: map.version }, Buf::empty()))
}

/// Strikes when a patch has come so far; then everything must be there, also without a data brick.
fn struck(seed: u64, m: usize, stage: Stage, blow: Blow) {
    let sea = Sea::new(seed, m);
    let mut client = sea.client();
    let what = format!("seed {seed}, 2+{m}, {blow:?} when {stage:?}");
    sea.sim.block_on("client", async {
        let expected = sea.overlaid(&mut client).await;
        client.world.sleep(ALMOST_IDLE_US).await;
        let mut patch = None;
        for _ in 0..50_000 {
            if sea.stage(&mut patch) == Some(stage) {
                break;
            }
            client.world.sleep(10).await;
        }
        assert_eq!(sea.stage(&mut patch), Some(stage), "{what}: the stage is reached");
        sea.strike(blow);
        sea.compare(&client, &expected, &what).await;
        // Another fold might mend what the patch has left: every second time there is none before more is lost.
        let folds = seed.is_multiple_of(2);
        if folds {
            client.world.sleep(FOLDED_US).await;
            sea.compare(&client, &expected, &what).await;
        }
        let lost = match blow {
            Blow::Lost(brick) => Some(brick),
            _ => None,
        };
        if folds && lost.is_none() {
            assert_eq!(sea.overlays(), 0, "{what}: what was begun is finished, or done again");
        }
        for brick in (0..K).filter(|brick| Some(*brick) != lost).take(m - usize::from(lost.is_some())) {
            sea.lose(brick);
            sea.compare(&client, &expected, &what).await;
        }
    });
}

fn struck_at_every_stage(m: usize) {
    for stage in [Stage::SomeHold, Stage::AllHold, Stage::SomeDecided] {
        for seed in 0..4 {
            struck(seed, m, stage, Blow::PowerCutOfAll);
            for brick in 0..K + m {
                struck(seed, m, stage, Blow::PowerCut(brick));
                struck(seed, m, stage, Blow::Lost(brick));
            }
        }
    }
}

/// A take-over by a data slot: with one parity there is no other.
#[test]
fn losses_at_every_stage_with_one_parity() {
    struck_at_every_stage(1);
}

/// A take-over by the other parity slot.
#[test]
fn losses_at_every_stage_with_two_parities() {
    struck_at_every_stage(2);
}

/// A touched block is damaged, of data or of parity: no patch can be made, the stripe is written whole.
#[test]
fn a_damaged_block_is_folded_whole() {
    for (seed, slot) in [(1, 0), (2, 1), (3, K)] {
        let sea = Sea::new(seed, 1);
        let mut client = sea.client();
        sea.sim.block_on("client", async {
            let expected = sea.overlaid(&mut client).await;
            client.world.sleep(50_000).await;
            let server = sea.server(slot);
            let row = if slot == 1 { 3 } else { 1 };
            let plan = server.slot.borrow().plan_read(KEY, slot as u8, 0, 0..UNIT, None, &[]);
            let (block, _) = plan.expect("decided").blocks.1[row];
            let offset = server.superblock.data_start + block * BLOCK as u64;
            sea.sim.damage(&node(slot), "disk", offset, 1);
            client.world.sleep(FOLDED_US).await;
            let (folded, patched) =
                (sea.server(K).counters.folded.get(), sea.server(K).counters.patched.get());
            assert_eq!((folded, patched, sea.overlays()), (1, 0, 0), "slot {slot}");
            sea.compare(&client, &expected, "damaged").await;
            sea.lose(0);
            sea.compare(&client, &expected, "damaged, without a data brick").await;
        });
    }
}

/// A stable write is answered when every live slot holds it, not before: then it survives a power cut of everything.
#[test]
fn a_stable_write_waits_for_every_slot() {
    for seed in 0..5 {
        let sea = Sea::new(seed, 1);
        let mut client = sea.client();
        sea.sim.block_on("client", async {
            let mut expected = sea.overlaid(&mut client).await;
            sea.power_cut(1);
            let patch = client.patch(UNIT + 10, 100, Some(9));
            let epoch = client.epoch();
            let waiting = client.write_stable(KEY, &patch);
            let early = client.world.timeout(800_000, waiting).await;
            assert_eq!((early, client.epoch()), (None, epoch), "a slot that takes part is away");
            sea.start(1);
            client.write_stable(KEY, &patch).await.expect("answered");
            sea.strike(Blow::PowerCutOfAll);
            patch.apply(&mut expected);
            sea.compare(&client, &expected, "after the power cut").await;
        });
    }
}

/// A patch that failed keeps its stripe until the epoch is over: a write that overtook it would count as stable, and go
/// with what the take-over aborts.
#[test]
fn after_a_failed_patch_nothing_enters_in_its_epoch() {
    let sea = Sea::new(4, 1);
    let mut client = sea.client();
    sea.sim.block_on("client", async {
        let mut expected = sea.overlaid(&mut client).await;
        client.world.sleep(50_000).await;
        let server = sea.server(0);
        let plan = server.slot.borrow().plan_read(KEY, 0, 0, 0..UNIT, None, &[]);
        let (block, _) = plan.expect("decided").blocks.1[1];
        let offset = server.superblock.data_start + block * BLOCK as u64;
        sea.sim.damage(&node(0), "disk", offset, 1);
        sea.stubborn.set(true);
        for _ in 0..3000 {
            if sea.server(K).unpatched.borrow().contains(&KEY) {
                break;
            }
            client.world.sleep(1000).await;
        }
        assert!(sea.server(K).unpatched.borrow().contains(&KEY), "the patch fails");
        let epoch = client.epoch();
        let patch = client.patch(10, 100, Some(9));
        let early = client.world.timeout(500_000, client.write_stable(KEY, &patch)).await;
        assert_eq!((early, client.epoch()), (None, epoch), "nothing is stable in the failed epoch");
        sea.stubborn.set(false);
        client.write_stable(KEY, &patch).await.expect("answered");
        assert!(client.epoch() > epoch);
        patch.apply(&mut expected);
        sea.compare(&client, &expected, "in the next epoch").await;
        client.world.sleep(FOLDED_US).await;
        sea.compare(&client, &expected, "folded").await;
        assert_eq!(sea.overlays(), 0);
    });
}
