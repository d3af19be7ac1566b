//! A whole cluster in one thread: metadata service, bricks and clients on simulated machines.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cache::CacheFile;
use client::{Encode, Mount, MountOptions, Session};
use meta::restore::{Restoring, read_store};
use meta::{Engine, MetaOptions, Server, ServerOptions};
use pace::device::PolicyName;
use store::{Brick, BrickOptions, FormatOptions};
use types::messages::cluster::{
    BrickClass, ClusterMap, MapFetch, PlacementSpec, TierSpec, TopologySet, VolumeCreate,
};
use types::messages::session::Role;
use types::wire::Key;
use types::{BrickId, Buf, BufMut, ClusterId, Epoch, Geometry, MapVersion, NodeId, Refusal};
use world::sim::{SimOptions, Simulation};
use world::{CallError, DiskMode, Identity, Peers, World};

/// The name of the one volume.
pub(crate) const VOLUME: &str = "sea";
/// The disk of a cache, and its bytes: of a mount, and of a brick.
const CACHE: &str = "cache";
const CACHE_BYTES: u64 = 4 << 20;
const BRICK_CACHE_BYTES: u64 = 1 << 20;
/// Least memory budget of a brick with a cache.
const CACHE_MEMORY_MIN: u64 = 1 << 20;
const CLUSTER: ClusterId = ClusterId([0xc1; 16]);
/// Nodes of metadata servers. The cluster begins with the first one.
pub(crate) const META_NODES: [&str; 3] = ["meta", "metab", "metac"];

thread_local! {
    /// Metadata servers of this thread's cluster.
    static METAS: Cell<usize> = const { Cell::new(1) };
    /// Bricks of this thread's cluster have two addresses each.
    static HAS_RAILS: Cell<bool> = const { Cell::new(false) };
}

/// The nodes of the metadata servers of this thread's cluster.
pub(crate) fn meta_nodes() -> &'static [&'static str] {
    &META_NODES[..METAS.get()]
}

/// Where the metadata service of this thread's cluster is.
pub(crate) fn meta() -> &'static str {
    if METAS.get() == 1 { "meta:1" } else { "meta:1,metab:1,metac:1" }
}

/// The machines, and what outlives their processes.
pub(crate) struct Cluster {
    pub(crate) sim: Simulation,
    /// The stores of the metadata servers, by node.
    engines: RefCell<BTreeMap<&'static str, Engine>>,
    pub(crate) bricks: u32,
    brick_memory: u64,
    /// How bricks open their disks.
    pub(crate) brick_io: DiskMode,
    /// In which order direct disks are asked.
    pub(crate) policy: PolicyName,
    /// Bytes of a brick that hold units.
    pub(crate) data: Range<u64>,
    /// Bricks whose process has ended by itself, and why.
    pub(crate) ended: Rc<RefCell<BTreeMap<u32, String>>>,
}

/// A mounted volume on a client's machine.
pub(crate) struct Client {
    pub(crate) world: World,
    pub(crate) mount: Arc<Mount>,
    pub(crate) session: Session,
}

pub(crate) fn identity(role: Role) -> Identity {
    Identity { cluster: CLUSTER, key: Key([7; 32]), role, name: String::new() }
}

impl Cluster {
    /// Machines with formatted bricks; nothing runs yet.
    pub(crate) fn new(
        seed: u64,
        options: SimOptions,
        bricks: u32,
        brick_bytes: u64,
        brick_memory: u64,
    ) -> Cluster {
        let sim = Simulation::new(seed, options);
        METAS.set(1);
        HAS_RAILS.set(false);
        let engines = META_NODES.map(|node| (node, Engine::memory_with_journal("journal")));
        let engines = RefCell::new(BTreeMap::from(engines));
        meta::create_cluster(&engines.borrow()["meta"], CLUSTER).expect("a fresh engine holds no cluster");
        let (data, ended) = (0..0, Rc::default());
        let (brick_io, policy) = (DiskMode::Buffered, PolicyName::Noop);
        let mut cluster = Cluster { sim, engines, bricks, brick_memory, brick_io, policy, data, ended };
        for brick in 0..bricks {
            let world = cluster.sim.node(&brick_node(brick));
            cluster.data = cluster.sim.block_on(&brick_node(brick), async move {
                let disk = world.create_disk("disk", brick_bytes).await.expect("a new disk");
                let options = FormatOptions { cluster: CLUSTER, brick: BrickId(brick), journal_bytes: None };
                let made =
                    store::format(&world, &disk, &options).await.expect("a fresh disk can be formatted");
                made.data_start..made.data_start + made.data_blocks * 4096
            });
            cluster.sim.kill(&brick_node(brick));
        }
        cluster
    }

    /// The cluster has three metadata servers.
    pub(crate) fn with_three_metas(&mut self) {
        METAS.set(META_NODES.len());
    }

    /// Each brick has two addresses, in two networks, and none besides.
    pub(crate) fn with_rails(&mut self) {
        HAS_RAILS.set(true);
        for brick in 0..self.bricks {
            RAILS.iter().for_each(|which| self.sim.add_rail(&brick_node(brick), &rail(brick, *which)));
        }
    }

    /// Starts everything.
    pub(crate) fn start(&self) {
        self.start_meta();
        (0..self.bricks).for_each(|brick| self.start_brick(brick));
    }

    /// Starts all metadata servers.
    pub(crate) fn start_meta(&self) {
        meta_nodes().iter().for_each(|node| self.start_meta_server(node));
    }

    pub(crate) fn start_meta_server(&self, node: &str) {
        let join = (node != META_NODES[0]).then(|| meta().to_owned());
        self.start_server(node, self.engines.borrow()[node].clone(), join);
    }

    /// Starts a metadata server with this store.
    pub(crate) fn start_server(&self, node: &str, engine: Engine, join: Option<String>) {
        let world = self.sim.node(node);
        let (on, listen) = (world.clone(), format!("{node}:1"));
        world.spawn("test", async move {
            let service = MetaOptions {
                listen: listen.clone(),
                identity: identity(Role::Meta),
                memory_budget: 1 << 26,
                first_shard: None,
                keeps_leaders: false,
            };
            let options = ServerOptions { service, advertise: listen, join };
            let error = Server::new(on, engine, options).run(&|_| {}).await;
            panic!("a metadata server has ended: {error}");
        });
    }

    /// What a backup of the metadata has, of a server that does not run.
    pub(crate) fn backup(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (world, engine) = (self.sim.node(META_NODES[0]), self.engines.borrow()[META_NODES[0]].clone());
        let mut pairs = Vec::new();
        self.sim.block_on(META_NODES[0], async {
            let mut part = |mut more: Vec<_>| {
                pairs.append(&mut more);
                Ok(())
            };
            read_store(&world, engine, &mut part).await.expect("a store");
        });
        self.sim.kill(META_NODES[0]);
        pairs
    }

    /// The store is lost, and a new one is made of a backup, which does not wait for some bricks.
    pub(crate) fn restore(&self, backup: Vec<(Vec<u8>, Vec<u8>)>, lost: &[BrickId]) {
        let engine = Engine::memory_with_journal("journal of the restored");
        let mut restoring = Restoring::begin(&engine, 1_700_000_000).expect("a fresh engine");
        restoring.add(backup).expect("of this build");
        restoring.finish(lost).expect("it has a cluster");
        self.engines.borrow_mut().insert(META_NODES[0], engine);
    }

    pub(crate) fn start_brick(&self, brick: u32) {
        let world = self.sim.node(&brick_node(brick));
        let (on, memory_budget, ended) = (world.clone(), self.brick_memory, self.ended.clone());
        let (io, policy) = (self.brick_io, self.policy);
        let advertise = HAS_RAILS.get().then(|| brick_address(brick));
        world.spawn("test", async move {
            let disk = on.open_disk_as("disk", io).await.expect("the disk is there");
            let cache = brick_cache(&on, memory_budget).await;
            let options = BrickOptions {
                brick: BrickId(brick),
                node: NodeId(brick),
                identity: Identity { name: advertise.clone().unwrap_or_default(), ..identity(Role::Brick) },
                listen: format!("{}:1", brick_node(brick)),
                advertise,
                meta: meta().to_owned(),
                memory_budget,
                threads: 1,
                depth: 3,
                policy,
                priority: None,
                class: BrickClass::Ssd,
            };
            let ran = match Brick::start(on.clone(), disk, cache, options).await {
                Ok(started) => started.run().await,
                Err(error) => Err(error),
            };
            if let Err(error) = ran {
                tracing::warn!(brick, %error, "a brick has ended");
                ended.borrow_mut().insert(brick, error.to_string());
            }
        });
    }

    /// Every process dies and every machine loses power.
    pub(crate) fn power_cut_all(&self) {
        (0..self.bricks).for_each(|brick| self.sim.power_cut(&brick_node(brick)));
        meta_nodes().iter().for_each(|node| self.sim.power_cut(node));
    }
}

pub(crate) fn brick_node(brick: u32) -> String {
    format!("brick{brick}")
}

/// Where a brick is reached: it answers at no other address.
pub(crate) fn brick_address(brick: u32) -> String {
    match HAS_RAILS.get() {
        true => RAILS.map(|which| format!("{}:1", rail(brick, which))).join("+"),
        false => format!("{}:1", brick_node(brick)),
    }
}

/// The two networks of bricks with rails.
pub(crate) const RAILS: [char; 2] = ['l', 'r'];

/// The name of a brick in one of the two networks.
pub(crate) fn rail(brick: u32, which: char) -> String {
    format!("{}{which}", brick_node(brick))
}

/// Makes the volume once enough bricks are up.
pub(crate) async fn create_volume(world: &World, code: &str, unit: u32, extent_stripes: u32, groups: u32) {
    let geometry = Geometry::new(code.parse().expect("a code"), unit, extent_stripes).expect("a geometry");
    create_volume_of(world, geometry, groups, None, None).await;
}

/// A plain volume of files.
pub(crate) fn volume_create(name: &str, geometry: Geometry, groups: u32) -> VolumeCreate {
    VolumeCreate {
        name: name.to_owned(),
        geometry,
        groups,
        same_node: false,
        block: None,
        class: None,
        tiers: Vec::new(),
        placement: None,
        near_writer: false,
        shard: None,
        token: 0,
    }
}

/// As [`create_volume`], with any geometry, with that of a second tier, and on a known network.
pub(crate) async fn create_volume_of(
    world: &World,
    geometry: Geometry,
    groups: u32,
    tier: Option<Geometry>,
    topology: Option<&(String, PlacementSpec)>,
) {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let create = VolumeCreate {
        tiers: tier.map(|geometry| TierSpec { geometry, class: None }).into_iter().collect(),
        placement: topology.map(|(_, spec)| *spec),
        ..volume_create(VOLUME, geometry, groups)
    };
    if let Some((text, _)) = topology {
        set_topology(&peers, world, text).await;
    }
    for _ in 0..1000 {
        match peers.call(meta(), Epoch(0), &create, Buf::empty()).await {
            // The answer to an earlier try may have been lost.
            Ok(_) | Err(CallError::Refused(Refusal::Exists)) => return,
            Err(error) => tracing::debug!(%error, "no volume yet"),
        }
        world.sleep(50_000).await;
    }
    panic!("the volume cannot be made");
}

async fn set_topology(peers: &Peers, world: &World, text: &str) {
    let set = TopologySet { topology: text.to_owned(), may_move: false };
    for _ in 0..1000 {
        match peers.call(meta(), Epoch(0), &set, Buf::empty()).await {
            Ok(_) => return,
            Err(CallError::Refused(refusal)) => panic!("the topology is refused: {refusal}\n{text}"),
            Err(error) => tracing::debug!(%error, "no topology yet"),
        }
        world.sleep(50_000).await;
    }
    panic!("the topology cannot be set");
}

/// The map as the arbiter has it.
pub(crate) async fn map(world: &World) -> ClusterMap {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let mut fetch = MapFetch::new(MapVersion(0), None);
    for _ in 0..1000 {
        match peers.call(meta(), Epoch(0), fetch.request(), Buf::empty()).await {
            Ok((reply, _)) => {
                if fetch.answered(reply) {
                    let mut map = ClusterMap::empty(peers.cluster());
                    fetch.apply(&mut map);
                    return map;
                }
            }
            Err(_) => world.sleep(50_000).await,
        }
    }
    panic!("no map");
}

/// Settings of the translators, of which each mount has some.
const TUNINGS: [&str; 8] = [
    "",
    "",
    "io-cache=off read-ahead=off disk-cache=auto",
    "io-cache=on io-cache.page=4K",
    "io-cache=on io-cache.page=64K read-ahead=on",
    "io-cache=off read-ahead=on read-ahead.window=64K",
    "write-behind=off",
    "io-cache=on write-behind.size=8K write-behind.age=30ms",
];

/// Gives a mount some settings of the translators, the same for every run of a seed.
pub(crate) fn tune(world: &World, mount: &Mount) {
    let tuning = TUNINGS[world.random() as usize % TUNINGS.len()];
    mount.tune(tuning).expect("these are settings");
}

/// A disk for the cache of a mount, which every other mount has. It is found again by the next mount of the machine.
async fn cache_disk(world: &World) -> Option<String> {
    if world.random().is_multiple_of(2) {
        return None;
    }
    drop(world.create_disk(CACHE, CACHE_BYTES).await);
    Some(CACHE.to_owned())
}

/// A cache for a brick that has memory for it, at every other start. What earlier lives have left there may be damaged.
async fn brick_cache(world: &World, memory: u64) -> Option<CacheFile> {
    if memory < CACHE_MEMORY_MIN || world.random().is_multiple_of(2) {
        return None;
    }
    drop(world.create_disk(CACHE, BRICK_CACHE_BYTES).await);
    if world.random().is_multiple_of(4) {
        let disk = world.open_disk(CACHE).await.expect("the disk is there");
        let at = world.random() % (BRICK_CACHE_BYTES - 8192);
        let mut noise = BufMut::zeroed(8192);
        world.random_bytes(&mut noise);
        // The header stays, or there would be no cache.
        drop(disk.write(at.max(4096), vec![noise.freeze()]).await);
    }
    Some(CacheFile::open(world, CACHE).await.expect("there is a cache"))
}

impl Client {
    /// Mounts the volume on a machine.
    pub(crate) async fn mount(world: World, unstable_budget: u64, encode: Encode) -> Client {
        for _ in 0..200 {
            let mut options = MountOptions::new(meta(), VOLUME, identity(Role::Client));
            options.unstable_budget = unstable_budget;
            options.encode = encode;
            options.disk_cache = cache_disk(&world).await;
            match Mount::join(&world, options).await {
                Ok(mount) => {
                    tune(&world, &mount);
                    world.spawn("client", mount.clone().background(world.clone()));
                    let session = mount.session(world.clone());
                    return Client { world, mount, session };
                }
                Err(error) => tracing::debug!(%error, "not mounted yet"),
            }
            world.sleep(100_000).await;
        }
        panic!("the volume cannot be mounted");
    }
}
