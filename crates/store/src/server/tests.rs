//! One real brick on a simulated disk, with an arbiter that knows only this brick, and one client: what the tests below
//! share.

mod cached;
mod cluster;
mod crash;
mod crash_points;
mod damage;
mod fence;
mod find_bytes;
mod find_stripes;
mod full;
mod join;
mod list;
mod memory;
mod patches;
mod proxy;
mod purged;
mod recovered;
mod relay;
mod returned;
mod served;
mod staged;
mod sum;
mod unfolded;
mod unknown;

use std::cell::RefCell;
use std::rc::Rc;

use cache::CacheFile;
use types::limits::BLOCK;
use types::messages::brick::{BrickReport, BrickStatus, Purge, ReadStripe, ReadUnit, Span, Sync, Write};
use types::messages::cluster::{
    BrickHeartbeat, BrickInfo, BrickJoin, BrickJoined, BrickState, Fences, GroupConfig, GroupRenew,
    HeartbeatReply, MapGet, MapReply, MapUpdate, SlotConfig, SlotState, VolumeInfo,
};
use types::messages::session::Role;
use types::wire::Key;
use types::{ClusterId, Geometry, MapVersion, ObjectId, StripeKey, VolumeId};
use world::sim::{SimOptions, Simulation};
use world::{CallError, serve};

use super::*;

const CLUSTER: ClusterId = ClusterId([0xc1; 16]);
const GROUP: GroupId = GroupId { volume: VolumeId(1), index: 0 };
const BRICK: BrickId = BrickId(3);
const CLIENT: ClientId = ClientId(9);
const AT: &str = "brick:1";

/// A map of one volume.
fn cluster_map(geometry: Geometry, groups: Vec<GroupConfig>) -> ClusterMap {
    let volume = VolumeInfo {
        id: GROUP.volume,
        name: "sea".to_owned(),
        geometry,
        groups,
        same_node: false,
        block: None,
        tuning: String::new(),
        class: None,
        tiers: Vec::new(),
        placement: None,
        near_writer: false,
    };
    ClusterMap { volumes: vec![volume], ..ClusterMap::empty(CLUSTER) }
}

fn identity(role: Role) -> Identity {
    Identity { cluster: CLUSTER, key: Key([7; 32]), role, name: String::new() }
}

/// A brick so small that checkpoints and a full disk come soon.
fn small(data_blocks: u64) -> Superblock {
    with_pages(data_blocks, 64)
}

/// The same, with `pages` pages of descriptors.
fn with_pages(data_blocks: u64, pages: u32) -> Superblock {
    let laid_out = Superblock::lay_out(CLUSTER, BRICK, [5; 16], 64 << 20, None).expect("large enough");
    let (segment, segments) = (128 << 10, 8);
    let pages_start = laid_out.journal_start + segment * u64::from(segments);
    let data_start = pages_start + u64::from(pages) * 2 * crate::table::PAGE as u64;
    Superblock { segment, segments, pages_start, pages, data_start, data_blocks, ..laid_out }
}

/// A machine with the brick, one with the arbiter, one with the client.
struct Bench {
    sim: Simulation,
    superblock: Superblock,
    map: Rc<RefCell<ClusterMap>>,
    geometry: Geometry,
}

impl Bench {
    fn new(seed: u64, superblock: Superblock, unit: u32) -> Bench {
        let code = Code::new(1, 0).expect("one unit alone");
        let geometry = Geometry::new(code, unit, 64).expect("a geometry");
        let slots = vec![SlotConfig { brick: BRICK, state: SlotState::Live }];
        let groups = vec![GroupConfig { epoch: Epoch(0), slots }];
        let map = cluster_map(geometry, groups);
        let bench = Bench {
            sim: Simulation::new(seed, SimOptions::default()),
            superblock,
            map: Rc::new(RefCell::new(map)),
            geometry,
        };
        let world = bench.sim.node("brick");
        bench.sim.block_on("brick", async {
            let disk = world.create_disk("disk", bench.superblock.size).await.expect("a new disk");
            bench.superblock.write(&disk).await.expect("written");
            disk.sync().await.expect("synced");
        });
        bench.sim.kill("brick");
        bench.start_arbiter();
        bench
    }

    fn start_arbiter(&self) {
        let world = self.sim.node("meta");
        let (map, on) = (self.map.clone(), world.clone());
        world.spawn("test", async move {
            let listener = on.listen("meta:1").await.expect("the port is free");
            let handler: Handler = Rc::new(move |call| {
                let answer = arbitrate(&mut map.borrow_mut(), &call);
                Box::pin(async move { answer })
            });
            serve(on.clone(), listener, identity(Role::Meta), handler).await;
        });
    }

    fn options(&self) -> BrickOptions {
        BrickOptions {
            brick: BRICK,
            node: NodeId(1),
            identity: identity(Role::Brick),
            listen: AT.to_owned(),
            advertise: None,
            meta: "meta:1".to_owned(),
            memory_budget: 1 << 20,
            threads: 1,
            depth: world::direct::DEPTH,
            policy: PolicyName::Noop,
            priority: None,
            class: BrickClass::Ssd,
        }
    }

    /// Starts the brick, which must recover.
    fn start_brick(&self) {
        self.start_brick_with(None);
    }

    /// The same, with a cache, and with memory for four chunks that wait to be added.
    fn start_brick_with(&self, cache: Option<&'static str>) {
        let world = self.sim.node("brick");
        let (mut options, on) = (self.options(), world.clone());
        options.memory_budget = if cache.is_some() { 8 << 20 } else { options.memory_budget };
        world.spawn("test", async move {
            let disk = on.open_disk("disk").await.expect("the disk is there");
            let cache = match cache {
                Some(path) => Some(CacheFile::open(&on, path).await.expect("a cache")),
                None => None,
            };
            let brick = Brick::start(on, disk, cache, options).await.expect("a brick recovers");
            if let Err(error) = brick.run().await {
                tracing::warn!(%error, "the brick has ended");
            }
        });
    }

    fn client(&self) -> Client {
        let world = self.sim.node("client");
        let peers = Peers::new(world.clone(), identity(Role::Client));
        Client { world, peers, map: self.map.clone(), geometry: self.geometry, seq: 0, acked: 0 }
    }
}

/// What the arbiter answers: a brick that starts gets a new epoch for its group.
fn arbitrate(map: &mut ClusterMap, call: &Call) -> Result<Answer, Refusal> {
    let mut renew = false;
    let joins = call.kind == BrickJoin::KIND;
    match call.kind {
        BrickJoin::KIND => {
            let join: BrickJoin = call.parse()?;
            map.bricks = vec![BrickInfo {
                id: join.brick,
                node: join.node,
                address: join.address,
                capacity: join.capacity,
                free: join.free,
                state: BrickState::Up,
                class: join.class,
            }];
            renew = true;
        }
        GroupRenew::KIND => {
            let wanted: GroupRenew = call.parse()?;
            renew = map.volumes[0].groups[0].epoch == wanted.epoch;
        }
        MapGet::KIND => {
            let MapGet { have, .. } = call.parse()?;
            let news = (have < map.version).then(|| MapUpdate::whole(map.clone()));
            return Ok(Answer::new(&MapReply { update: news }, Buf::empty()));
        }
        BrickHeartbeat::KIND => {}
        _ => return Err(Refusal::Unsupported),
    }
    if renew {
        let group = &mut map.volumes[0].groups[0];
        group.epoch = group.epoch.next();
        map.version = MapVersion(map.version.0 + 1);
    }
    Ok(granted(map.version, joins))
}

/// The answer to a beat or a join.
fn granted(map: MapVersion, joins: bool) -> Answer {
    if joins {
        return Answer::new(&BrickJoined { map, fences: Fences::none(), restored: 0 }, Buf::empty());
    }
    Answer::new(&HeartbeatReply { map, doubtful: Vec::new() }, Buf::empty())
}

/// Asks the brick, again and again where an answer may yet come.
struct Client {
    world: World,
    peers: Peers,
    map: Rc<RefCell<ClusterMap>>,
    geometry: Geometry,
    /// The last number given to a write.
    seq: u64,
    /// All writes up to here are known to be stable.
    acked: u64,
}

/// Bytes at a place of a stripe; `None` for zeros.
#[derive(Clone, Debug)]
struct Patch {
    seq: u64,
    offset: usize,
    len: usize,
    bytes: Option<Vec<u8>>,
}

impl Patch {
    fn apply(&self, stripe: &mut [u8]) {
        let range = &mut stripe[self.offset..self.offset + self.len];
        match &self.bytes {
            Some(bytes) => range.copy_from_slice(bytes),
            None => range.fill(0),
        }
    }
}

impl Client {
    fn epoch(&self) -> Epoch {
        self.map.borrow().volumes[0].groups[0].epoch
    }

    /// Where the group's primary listens.
    fn address(&self) -> String {
        let map = self.map.borrow();
        let volume = &map.volumes[0];
        let primary = volume.groups[0].primary(volume.geometry.code());
        let brick = primary.map(|slot| volume.groups[0].slots[slot].brick);
        brick.and_then(|brick| map.brick(brick)).map_or(AT.to_owned(), |info| info.address.clone())
    }

    async fn call<R: types::wire::Request>(
        &self,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), Refusal> {
        let mut last = None;
        for _ in 0..2000 {
            let answer = self.peers.call(&self.address(), self.epoch(), request, payload.clone()).await;
            last = match answer {
                Ok(answer) => return Ok(answer),
                Err(CallError::Refused(Refusal::StaleEpoch | Refusal::NotServing | Refusal::NotPrimary))
                | Err(CallError::Unreachable) => answer.err(),
                Err(CallError::Refused(refusal)) => return Err(refusal),
                Err(error) => panic!("{error}"),
            };
            self.world.sleep(2_000).await;
        }
        panic!("the brick does not serve {request:?} in {}: {last:?}", self.epoch());
    }

    /// A new patch with the next number.
    fn patch(&mut self, offset: usize, len: usize, fill: Option<u8>) -> Patch {
        self.seq += 1;
        let (seq, fill) =
            (self.seq, fill.map(|fill| (0..len).map(|i| fill ^ (i as u8).rotate_left(3)).collect()));
        Patch { seq, offset, len, bytes: fill }
    }

    async fn write(&self, key: StripeKey, patch: &Patch) -> Result<(), Refusal> {
        self.write_as(key, patch, false).await
    }

    /// Answered when the write is stable.
    async fn write_stable(&self, key: StripeKey, patch: &Patch) -> Result<(), Refusal> {
        self.write_as(key, patch, true).await
    }

    async fn write_as(&self, key: StripeKey, patch: &Patch, stable: bool) -> Result<(), Refusal> {
        let write = Write {
            group: GROUP,
            key,
            client: CLIENT,
            seq: ClientSeq(patch.seq),
            acked: ClientSeq(self.acked),
            spans: vec![Span { offset: patch.offset as u32, len: patch.len as u32 }],
            zero: patch.bytes.is_none(),
            stable,
            staged: false,
            note: None,
        };
        let payload = patch.bytes.as_ref().map_or(Buf::empty(), |bytes| Buf::copy_of(bytes));
        self.call(&write, payload).await.map(|_| ())
    }

    async fn sync(&mut self) {
        let upto = self.seq;
        let groups = vec![(GROUP, self.epoch())];
        let sync = Sync { client: CLIENT, upto: ClientSeq(upto), groups };
        self.call(&sync, Buf::empty()).await.expect("a sync is answered");
        self.acked = upto;
    }

    /// A whole stripe, straight from the slot or through the primary if a write is undecided.
    async fn read(&self, key: StripeKey) -> Result<Vec<u8>, Refusal> {
        let len = self.geometry.stripe();
        let read = ReadUnit { group: GROUP, key, slot: 0, offset: 0, len: len as u32 };
        let payload = match self.call(&read, Buf::empty()).await {
            Ok((_, payload)) => payload,
            Err(Refusal::Pending) => self.read_stripe(key).await?,
            Err(refusal) => return Err(refusal),
        };
        let mut bytes = payload.to_vec();
        assert!(bytes.len() <= len);
        bytes.resize(len, 0);
        Ok(bytes)
    }

    async fn read_stripe(&self, key: StripeKey) -> Result<Buf, Refusal> {
        let len = self.geometry.stripe() as u32;
        let read = ReadStripe { group: GROUP, key, offset: 0, len, avoid: 0 };
        Ok(self.call(&read, Buf::empty()).await?.1)
    }

    async fn purge(&self, object: ObjectId) {
        let mut objects = vec![object];
        while !objects.is_empty() {
            let (purged, _) = self.call(&Purge { objects }, Buf::empty()).await.expect("a purge is answered");
            objects = purged.left;
        }
    }

    async fn report(&self) -> BrickReport {
        self.call(&BrickStatus {}, Buf::empty()).await.expect("a brick reports").0
    }
}
