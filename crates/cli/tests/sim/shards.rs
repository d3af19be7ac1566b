//! Two volumes in two shards, on the same bricks. A program works on each while bricks and metadata servers die, bricks are cut off
//! from the servers of one shard only, and whole shards are away: then the other volume goes on. In the end every file that was
//! synced is whole, before and after a power cut of everything.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use client::{Encode, Mount, MountOptions, Session};
use meta::Engine;
use types::messages::Done;
use types::messages::cluster::{
    ClusterMap, ShardAdd, ShardAdded, ShardFind, ShardFound, ShardRemove, ShardStatus, VolumeCreate,
    VolumeDelete,
};
use types::messages::names::Owner;
use types::messages::session::Role;
use types::wire::Request;
use types::{Buf, Epoch, Geometry, InodeId, Refusal, ShardId};
use world::sim::SimOptions;
use world::{CallError, Peers, World};

use crate::check::liveness::RECOVERY_US;
use crate::cluster::{Client, Cluster, VOLUME, brick_node, identity, map, meta, meta_nodes, volume_create};
use crate::prng::Prng;
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 4;
/// The volume in the other shard, and the machines of that one's metadata servers.
const OTHER: &str = "isle";
const OTHER_NODES: [&str; 3] = ["isle-a", "isle-b", "isle-c"];
/// Files that a program keeps.
const FILES: usize = 100;
/// Longest time for a program to go on after a fault that does not concern it, in microseconds.
const GOES_ON_US: u64 = 10_000_000;

/// A shard besides the first.
struct OtherShard {
    engines: BTreeMap<&'static str, Engine>,
}

impl OtherShard {
    fn new(number: ShardId) -> OtherShard {
        let engines = OTHER_NODES.map(|node| (node, Engine::memory_with_journal("journal")));
        let engines = BTreeMap::from(engines);
        let cluster = identity(Role::Meta).cluster;
        meta::create_shard(&engines[OTHER_NODES[0]], cluster, number, meta()).expect("a fresh engine");
        OtherShard { engines }
    }

    fn nodes() -> &'static [&'static str] {
        &OTHER_NODES[..meta_nodes().len()]
    }

    fn start_server(&self, cluster: &Cluster, node: &'static str) {
        let first = OTHER_NODES[0];
        let join = (node != first).then(|| format!("{first}:1"));
        cluster.start_server(node, self.engines[node].clone(), join);
    }

    fn start(&self, cluster: &Cluster) {
        OtherShard::nodes().iter().for_each(|node| self.start_server(cluster, node));
    }
}

/// A program that makes files, and what it knows to be stable.
#[derive(Default)]
struct Work {
    /// The files that were synced, with their length and where their bytes begin.
    files: RefCell<BTreeMap<String, (usize, u64)>>,
    done: Cell<u64>,
}

impl Work {
    async fn run(self: Rc<Work>, session: Session, world: World, life: u64, prng: Prng) {
        for n in 0u64.. {
            let (name, len, bytes) =
                (format!("{life}-{n}"), 1 + prng.below(60_000) as usize, prng.next_u64() >> 20);
            if self.make(&session, &name, len, bytes).await {
                self.files.borrow_mut().insert(name.clone(), (len, bytes));
                self.done.set(self.done.get() + 1);
                let oldest = self.files.borrow().keys().next().cloned();
                if let Some(name) = oldest.filter(|_| self.files.borrow().len() > FILES) {
                    // Whether it is there afterwards is not known if the answer is lost.
                    self.files.borrow_mut().remove(&name);
                    drop(session.unlink(InodeId::ROOT, name.as_bytes()).await);
                }
            }
            world.sleep(prng.below(100_000)).await;
        }
    }

    /// Whether the file is stable.
    async fn make(&self, session: &Session, name: &str, len: usize, bytes: u64) -> bool {
        let Ok(opened) = session.create(InodeId::ROOT, name.as_bytes(), OWNER).await else { return false };
        let bytes = bytes_of(bytes, len);
        let is_stable = session.write(opened.handle, 0, &bytes).await.is_ok()
            && session.fsync(opened.handle).await.is_ok();
        session.release(opened.handle).await.is_ok() && is_stable
    }

    async fn check(&self, session: &Session, what: &str) {
        let files = self.files.borrow().clone();
        for (name, (len, bytes)) in files {
            let found = session.lookup(InodeId::ROOT, name.as_bytes()).await;
            let attr = found.unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
            assert_eq!(attr.size, len as u64, "{what}: {name}");
            let handle = session.open(attr.inode, true, false).await.expect("it is there").handle;
            let found = session.read(handle, 0, len).await.expect("readable");
            assert!(found[..] == bytes_of(bytes, len)[..], "{what}: the bytes of {name}");
            session.release(handle).await.expect("closed");
        }
    }
}

/// A volume with a program that works on it.
struct Sea {
    volume: &'static str,
    machine: &'static str,
    work: Rc<Work>,
    lives: Cell<u64>,
}

impl Sea {
    fn new(volume: &'static str, machine: &'static str) -> Sea {
        Sea { volume, machine, work: Rc::default(), lives: Cell::new(0) }
    }

    /// Begins the program on its machine.
    async fn begin(&self, cluster: &Cluster, prng: &Prng) {
        let world = cluster.sim.node(self.machine);
        let client = mounted(&world, self.volume).await;
        self.lives.set(self.lives.get() + 1);
        let work = self.work.clone().run(
            client.session,
            world.clone(),
            self.lives.get(),
            Prng::new(prng.next_u64()),
        );
        world.spawn("test", work);
    }

    /// Waits until the program has made a file that it had not begun before.
    async fn goes_on(&self, world: &World, seed: u64, why: &str) {
        let before = self.work.done.get();
        let until = world.now() + GOES_ON_US;
        while self.work.done.get() < before + 2 {
            assert!(world.now() < until, "seed {seed}: {} stands still although {why}", self.volume);
            world.sleep(50_000).await;
        }
    }

    async fn check(&self, world: &World, what: &str) {
        let client = mounted(world, self.volume).await;
        self.work.check(&client.session, what).await;
        client.mount.leave(world).await.expect("the service is there");
    }
}

async fn mounted(world: &World, volume: &str) -> Client {
    for _ in 0..600 {
        let options = MountOptions::new(meta(), volume, identity(Role::Client));
        let options = MountOptions { unstable_budget: 1 << 20, encode: Encode::Primary, ..options };
        match Mount::join(world, options).await {
            Ok(mount) => {
                world.spawn("client", mount.clone().background(world.clone()));
                let session = mount.session(world.clone());
                return Client { world: world.clone(), mount, session };
            }
            Err(error) => tracing::debug!(%error, volume, "not mounted yet"),
        }
        world.sleep(100_000).await;
    }
    panic!("{volume} cannot be mounted");
}

/// Asks the first shard until it answers; a refusal is an answer, unless somebody is away.
async fn ask<R: Request>(world: &World, request: &R) -> Result<R::Reply, Refusal> {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    for _ in 0..1000 {
        match peers.call(meta(), Epoch(0), request, Buf::empty()).await {
            Ok((reply, _)) => return Ok(reply),
            Err(CallError::Refused(refusal)) if refusal != Refusal::NotServing => return Err(refusal),
            Err(error) => tracing::debug!(%error, "no answer yet"),
        }
        world.sleep(50_000).await;
    }
    panic!("the first shard does not answer");
}

fn create(name: &str, code: &str, shard: Option<ShardId>) -> VolumeCreate {
    let geometry = Geometry::new(code.parse().expect("a code"), 16 << 10, 4).expect("a geometry");
    VolumeCreate { shard, ..volume_create(name, geometry, 6) }
}

/// The map of the first shard once it is such.
async fn map_where(world: &World, is_wanted: impl Fn(&ClusterMap) -> bool) -> ClusterMap {
    for _ in 0..600 {
        let map = map(world).await;
        if is_wanted(&map) {
            return map;
        }
        world.sleep(100_000).await;
    }
    panic!("the map does not become what it should");
}

/// Adds a shard with the volume [`OTHER`] to a cluster with the volume [`VOLUME`].
async fn divide(cluster: &Cluster, world: &World, code: &str, prng: &Prng) -> OtherShard {
    let made = ask(world, &create(VOLUME, code, None)).await;
    assert!(matches!(made, Ok(_) | Err(Refusal::Exists)), "{made:?}");
    let ShardAdded { shard } = ask(world, &ShardAdd { token: 1 }).await.expect("there is room");
    if prng.coin() {
        // Nobody waits for a shard that was never served.
        let again = ask(world, &create(VOLUME, code, None)).await;
        assert_eq!(again.err(), Some(Refusal::Exists));
    }
    let other = OtherShard::new(shard);
    other.start(cluster);
    let is_whole = |servers: &str| {
        servers.split(',').filter(|server| !server.is_empty()).count() == OtherShard::nodes().len()
    };
    let is_served = |map: &ClusterMap| map.shards.iter().any(|info| is_whole(&info.servers));
    map_where(world, is_served).await;
    let made = async |name: &str, shard: Option<ShardId>| loop {
        match ask(world, &create(name, code, shard)).await {
            Ok(reply) => break reply.volume.id.shard(),
            // The bricks have not joined it yet.
            Err(Refusal::TooFewDomains) => world.sleep(100_000).await,
            Err(refusal) => panic!("{name}: {refusal}"),
        }
    };
    assert_eq!(made(OTHER, Some(shard)).await, shard);
    world.sleep(3_000_000).await;
    // Those with the fewest volumes, of these the first.
    let chosen = [made("third", None).await, made("fourth", None).await];
    assert_eq!(chosen, [ShardId::FIRST, shard]);
    for name in ["third", "fourth"] {
        assert_eq!(ask(world, &VolumeDelete { name: name.to_owned(), shard: None }).await, Ok(Done {}));
    }
    two_volumes_of_one_name(world, code, shard).await;
    for name in [VOLUME, OTHER] {
        for shard in [None, Some(ShardId::FIRST), Some(shard)] {
            assert_eq!(ask(world, &create(name, code, shard)).await.err(), Some(Refusal::Exists));
        }
    }
    let found = ask(world, &ShardFind { volume: OTHER.to_owned() }).await.expect("it is there");
    assert!(found.servers.is_some_and(|servers| servers.contains(OTHER_NODES[0])));
    // Whichever servers follow, those that lead are found at once.
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let find = ShardFind { volume: OTHER.to_owned() };
    for _ in 0..5 {
        let found = peers.call(meta(), Epoch(0), &find, Buf::empty()).await;
        assert!(matches!(&found, Ok((ShardFound { servers: Some(_) }, _))), "{found:?}");
    }
    let nowhere = ask(world, &ShardFind { volume: "dry".to_owned() }).await;
    assert_eq!(nowhere, Ok(ShardFound { servers: None }));
    other
}

/// A server of the first shard that leads no more has asked the other shard to make a volume, and its request arrives late. If it
/// arrives in time to make a second volume of one name, that one can be deleted.
async fn two_volumes_of_one_name(world: &World, code: &str, shard: ShardId) {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let servers = OtherShard::nodes().iter().map(|node| format!("{node}:1")).collect::<Vec<_>>().join(",");
    let late = |token| VolumeCreate { token, ..create("fourth", code, Some(shard)) };
    let status = |token| ShardStatus { volume: "fourth".to_owned(), token };
    let delete = |shard| VolumeDelete { name: "fourth".to_owned(), shard };
    // The first leader asks, and stands still. The next one asks, and makes the volume in the first shard.
    peers.call(&servers, Epoch(0), &status(5), Buf::empty()).await.expect("it answers");
    let made = ask(world, &create("fourth", code, Some(ShardId::FIRST))).await;
    assert!(made.is_ok(), "{made:?}");
    let refused = peers.call(&servers, Epoch(0), &late(5), Buf::empty()).await;
    assert!(matches!(refused, Err(CallError::Refused(Refusal::NotServing))), "{refused:?}");
    peers.call(&servers, Epoch(0), &status(6), Buf::empty()).await.expect("it answers");
    peers.call(&servers, Epoch(0), &late(6), Buf::empty()).await.expect("nobody has asked since");
    assert_eq!(ask(world, &delete(Some(shard))).await, Ok(Done {}));
    assert_eq!(ask(world, &delete(Some(shard))).await, Err(Refusal::Unknown));
    assert_eq!(ask(world, &delete(Some(ShardId(9)))).await, Err(Refusal::NotFound));
    assert_eq!(ask(world, &delete(None)).await, Ok(Done {}));
}

/// One fault, and its end.
async fn fault(cluster: &Cluster, other: &OtherShard, seas: &[Sea; 2], seed: u64, prng: &Prng) {
    let world = cluster.sim.node("driver");
    let of = prng.below(2) as usize;
    let nodes = [meta_nodes(), OtherShard::nodes()][of];
    let start = |node: &'static str| match of {
        0 => cluster.start_meta_server(node),
        _ => other.start_server(cluster, node),
    };
    match prng.below(5) {
        // A server dies.
        0 => {
            let node = prng.pick(nodes);
            cluster.sim.power_cut(node);
            world.sleep(prng.below(5_000_000)).await;
            start(node);
        }
        // All servers of a shard are away for longer than leases last.
        1 => {
            nodes.iter().for_each(|node| cluster.sim.power_cut(node));
            world.sleep(4_000_000).await;
            seas[1 - of].goes_on(&world, seed, "another shard is away").await;
            world.sleep(prng.below(8_000_000)).await;
            seas[1 - of].goes_on(&world, seed, "another shard is away").await;
            nodes.iter().for_each(|node| start(node));
        }
        // A brick is cut off from the servers of one shard: it is Out there, and nowhere else.
        2 => {
            let brick = brick_node(prng.below(u64::from(BRICKS)) as u32);
            nodes.iter().for_each(|node| cluster.sim.partition(&brick, node, true));
            world.sleep(1_000_000 + prng.below(9_000_000)).await;
            for sea in seas {
                sea.goes_on(&world, seed, "one brick of four is cut off").await;
            }
            nodes.iter().for_each(|node| cluster.sim.partition(&brick, node, false));
        }
        3 => {
            let brick = prng.below(u64::from(BRICKS)) as u32;
            cluster.sim.power_cut(&brick_node(brick));
            world.sleep(prng.below(8_000_000)).await;
            cluster.start_brick(brick);
        }
        // The machine of a program dies, and another one begins: it sees all that was stable.
        _ => {
            let sea = &seas[of];
            cluster.sim.kill(sea.machine);
            world.sleep(prng.below(5_000_000)).await;
            sea.check(&world, "after the death of its writer").await;
            sea.begin(cluster, prng).await;
        }
    }
    world.sleep(RECOVERY_US / 4).await;
    for sea in seas {
        sea.goes_on(&world, seed, "everything is there again").await;
    }
}

pub(crate) fn run(seed: u64, faults: u64) {
    let prng = Prng::new(seed);
    let mut cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 64 << 20, 8 << 20);
    if prng.coin() {
        cluster.with_three_metas();
    }
    let code = prng.pick(&["2+1", "1+2", "1+1"]);
    cluster.start();
    let world = cluster.sim.node("driver");
    cluster.sim.block_on("driver", async {
        world.sleep(6_000_000).await;
        let other = divide(&cluster, &world, code, &prng).await;
        let seas = [Sea::new(VOLUME, "writer-a"), Sea::new(OTHER, "writer-b")];
        for sea in &seas {
            sea.begin(&cluster, &prng).await;
        }
        for _ in 0..faults {
            fault(&cluster, &other, &seas, seed, &prng).await;
        }
        seas.iter().for_each(|sea| cluster.sim.kill(sea.machine));
        for sea in &seas {
            sea.check(&world, "in the end").await;
        }
        cluster.power_cut_all();
        OtherShard::nodes().iter().for_each(|node| cluster.sim.power_cut(node));
        cluster.start();
        other.start(&cluster);
        world.sleep(RECOVERY_US / 4).await;
        for sea in &seas {
            sea.check(&world, "after a power cut of everything").await;
        }
        remove(&cluster, &world).await;
        seas[0].check(&world, "without the other shard").await;
        assert!(cluster.ended.borrow().is_empty(), "seed {seed}: {:?}", cluster.ended.borrow());
    });
}

/// Deletes the volume of the other shard, and then that shard.
async fn remove(cluster: &Cluster, world: &World) {
    let shard = map(world).await.shards[0].id;
    let remove = ShardRemove { shard, lost: false };
    assert_eq!(ask(world, &remove).await.err(), Some(Refusal::Busy), "it has a volume");
    let delete = VolumeDelete { name: OTHER.to_owned(), shard: None };
    let until = world.now() + RECOVERY_US;
    // The writer that was killed is still mounted for a while.
    while ask(world, &delete).await == Err(Refusal::Busy) {
        assert!(world.now() < until, "its clients do not go");
        world.sleep(500_000).await;
    }
    while ask(world, &remove).await == Err(Refusal::Busy) {
        assert!(world.now() < until, "its bytes do not go");
        world.sleep(500_000).await;
    }
    map_where(world, |map| map.shards.is_empty()).await;
    OtherShard::nodes().iter().for_each(|node| cluster.sim.kill(node));
    assert_eq!(
        ask(world, &ShardAdd { token: 2 }).await,
        Ok(ShardAdded { shard: ShardId(shard.0 + 1) }),
        "a new number"
    );
    assert_eq!(ask(world, &ShardRemove { shard: ShardId(shard.0 + 1), lost: false }).await.err(), None);
    let found = ask(world, &ShardFind { volume: OTHER.to_owned() }).await.expect("nobody is away");
    assert_eq!(found.servers, None);
}
