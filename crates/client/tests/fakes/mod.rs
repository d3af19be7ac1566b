//! A cluster of fakes in a simulated world: bricks that keep stripes in memory, and a metadata service that keeps
//! just enough. What all of them know lies in one [`Cluster`] outside the nodes, so it survives their deaths.

mod brick;
mod meta;
mod stage;

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use client::{Encode, Mount, MountError, MountOptions, Session};
use types::messages::brick::Write;
use types::messages::cluster::{
    BrickClass, BrickInfo, BrickState, ClusterMap, GroupConfig, Mode, SlotConfig, SlotState, VolumeInfo,
};
use types::messages::names::Owner;
use types::messages::session::Role;
use types::wire::Key;
use types::{
    BrickId, ClientId, ClientSeq, ClusterId, Code, Epoch, Geometry, InodeId, MapVersion, NodeId, ObjectId,
    StripeKey, VolumeId,
};
use world::{Identity, SimOptions, Simulation, World};

pub use meta::File;

pub const VOLUME: VolumeId = VolumeId(1);
pub const UNIT: usize = 4096;
/// What may be unstable, in bytes.
pub const BUDGET: u64 = 768 << 10;
pub const META: &str = "meta:1";
pub const OWNER: Owner = Owner { uid: 1, gid: 2, mode: 0o644 };

/// A write that a primary holds and has not made stable.
#[derive(Clone)]
pub struct UnstableWrite {
    pub write: Write,
    pub bytes: Vec<u8>,
}

/// What bricks and the metadata service know.
pub struct Known {
    pub map: ClusterMap,
    /// Stable data.
    pub stripes: BTreeMap<StripeKey, Vec<u8>>,
    /// Unstable data, in order; gone with the primary.
    pub held: BTreeMap<BrickId, Vec<UnstableWrite>>,
    /// Writes that took effect or are held.
    pub seen: BTreeSet<(ClientId, ClientSeq)>,
    /// Stable writes of each client in the order in which they became so.
    pub order: BTreeMap<(StripeKey, ClientId), Vec<ClientSeq>>,
    pub files: BTreeMap<InodeId, File>,
    pub names: BTreeMap<(InodeId, Vec<u8>), InodeId>,
    pub next: u64,
    /// Clients that may speak.
    pub clients: BTreeSet<ClientId>,
    /// Clients that have joined in this life of the service.
    pub announced: BTreeSet<ClientId>,
    pub modes: BTreeMap<(InodeId, ClientId), Mode>,
    pub recalls: BTreeMap<(InodeId, ClientId), Mode>,
    pub opens: BTreeMap<(InodeId, ClientId), (u32, u32)>,
    /// Changes done, by client and number.
    pub done: BTreeMap<(ClientId, u64), world::Frame>,
    /// Requests by name.
    pub calls: BTreeMap<&'static str, u64>,
    /// Bytes of writes on the wire.
    pub written: u64,
    /// Writes that were answered when stable.
    pub stable_writes: usize,
    /// Ranges that writes wrote.
    pub spans: usize,
    /// Faults.
    pub full: bool,
    /// Stripes whose writes find no room.
    pub full_stripes: BTreeSet<u64>,
    pub write_us: u64,
    pub sync_us: u64,
    /// How long a brick takes to keep a unit, and how long the answer to a stable write is on its way.
    pub stage_us: u64,
    pub answer_us: u64,
    /// Bricks whose device takes so long for a read, and say so.
    pub slow_device: BTreeMap<BrickId, u64>,
    /// How long the service takes to change attributes.
    pub setattr_us: u64,
    /// How long its answer is on its way, and how long the service takes to take the end of a file back, in microseconds.
    pub setattr_answer_us: u64,
    pub retract_us: u64,
    /// Whether what a truncation leaves is purged at once.
    pub purges: bool,
    /// Objects that are being purged.
    pub purged: BTreeSet<ObjectId>,
    /// How long the service takes before it looks at an open, in microseconds.
    pub open_us: u64,
    /// How long its answer is on its way.
    pub opened_us: u64,
    pub mute: BTreeSet<BrickId>,
    /// Bricks that stage nothing.
    pub unwilling: BTreeSet<BrickId>,
    /// What is staged gets lost before it is ordered.
    pub forgetful: bool,
    /// Units that wait for their write.
    pub staged: BTreeMap<(StripeKey, ClientId, ClientSeq, u8), Vec<u8>>,
    /// How mounts encode.
    pub encode: Encode,
    /// Most writes of one stripe at a time, and most at all.
    pub writing: BTreeMap<StripeKey, u32>,
    pub writing_max: usize,
}

/// See the module.
#[derive(Clone)]
pub struct Cluster {
    pub sim: Rc<Simulation>,
    pub known: Rc<RefCell<Known>>,
}

pub fn identity(role: Role) -> Identity {
    Identity { cluster: ClusterId([7; 16]), key: Key([3; 32]), role, name: String::new() }
}

impl Cluster {
    /// `bricks` bricks, volume `v` of `code` in units of [`UNIT`] bytes and extents of two stripes.
    pub fn new(seed: u64, code: &str, bricks: u32) -> Cluster {
        Cluster::rough(seed, code, bricks, SimOptions { stall_per_million: 0, ..SimOptions::default() })
    }

    /// As [`Cluster::new`], in a world as rough as `options` say.
    pub fn rough(seed: u64, code: &str, bricks: u32, options: SimOptions) -> Cluster {
        let code: Code = code.parse().expect("a code");
        let geometry = Geometry::new(code, UNIT as u32, 2).expect("a geometry");
        let group = |first: u32| GroupConfig {
            epoch: Epoch(1),
            slots: (0..code.slots() as u32)
                .map(|slot| SlotConfig {
                    brick: BrickId((first + slot) % bricks + 1),
                    state: SlotState::Live,
                })
                .collect(),
        };
        let info = |id: u32| BrickInfo {
            id: BrickId(id),
            node: NodeId(id),
            address: format!("b{id}:1"),
            capacity: 1 << 30,
            free: 1 << 30,
            state: BrickState::Up,
            class: BrickClass::Ssd,
        };
        let map = ClusterMap {
            version: MapVersion(1),
            cluster: ClusterId([7; 16]),
            bricks: (1..=bricks).map(info).collect(),
            volumes: vec![VolumeInfo {
                id: VOLUME,
                name: "v".into(),
                geometry,
                groups: (0..bricks).map(group).collect(),
                same_node: false,
                block: None,
                tuning: String::new(),
                class: None,
                tiers: Vec::new(),
                placement: None,
                near_writer: false,
            }],
            topology: String::new(),
            shards: Vec::new(),
        };
        let known = Known {
            map,
            stripes: BTreeMap::new(),
            held: BTreeMap::new(),
            seen: BTreeSet::new(),
            order: BTreeMap::new(),
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            next: 10,
            clients: BTreeSet::new(),
            announced: BTreeSet::new(),
            modes: BTreeMap::new(),
            recalls: BTreeMap::new(),
            opens: BTreeMap::new(),
            done: BTreeMap::new(),
            calls: BTreeMap::new(),
            written: 0,
            stable_writes: 0,
            spans: 0,
            full: false,
            full_stripes: BTreeSet::new(),
            unwilling: BTreeSet::new(),
            forgetful: false,
            staged: BTreeMap::new(),
            encode: Encode::Auto,
            write_us: 0,
            sync_us: 1000,
            stage_us: 0,
            answer_us: 0,
            slow_device: BTreeMap::new(),
            setattr_us: 0,
            setattr_answer_us: 0,
            retract_us: 0,
            purges: false,
            purged: BTreeSet::new(),
            open_us: 0,
            opened_us: 0,
            mute: BTreeSet::new(),
            writing: BTreeMap::new(),
            writing_max: 0,
        };
        let cluster =
            Cluster { sim: Rc::new(Simulation::new(seed, options)), known: Rc::new(RefCell::new(known)) };
        (1..=bricks).for_each(|id| cluster.start_brick(BrickId(id)));
        cluster.start_meta();
        cluster
    }

    pub fn known(&self) -> RefMut<'_, Known> {
        self.known.borrow_mut()
    }

    /// Runs `f` on node `client`, where mounts live too.
    pub fn run<F: Future>(&self, f: F) -> F::Output {
        self.sim.block_on("client", f)
    }

    pub fn options(&self) -> MountOptions {
        MountOptions {
            unstable_budget: BUDGET,
            memory_budget: 1 << 20,
            encode: self.known().encode,
            ..MountOptions::new(META, "v", identity(Role::Client))
        }
    }

    /// A mount with its background, on a node of its own.
    pub async fn mount(&self, node: &str) -> (Arc<Mount>, Session) {
        let world: World = self.sim.node(node);
        let mut joined = Mount::join(&world, self.options()).await;
        while matches!(joined, Err(MountError::Unreachable(_))) {
            joined = Mount::join(&world, self.options()).await;
        }
        let mount = joined.expect("joined");
        world.spawn("client", mount.clone().background(world.clone()));
        let session = mount.session(world);
        (mount, session)
    }

    /// Kills a brick: what it held unstable is gone.
    pub fn kill_brick(&self, brick: BrickId) {
        self.sim.kill(&format!("{brick}"));
        let mut known = self.known();
        for held in known.held.remove(&brick).unwrap_or_default() {
            known.seen.remove(&(held.write.client, held.write.seq));
        }
    }

    /// Puts a brick Out: a new epoch for every group, its slots lost. What it held unstable is gone.
    pub fn expel(&self, brick: BrickId) {
        let mut known = self.known();
        known.bump();
        for group in &mut known.map.volumes[0].groups {
            group.slots.iter_mut().filter(|s| s.brick == brick).for_each(|s| s.state = SlotState::Out);
        }
    }

    /// How often a request was made.
    pub fn calls(&self, name: &str) -> u64 {
        self.known().calls.get(name).copied().unwrap_or(0)
    }
}

impl Known {
    /// A new epoch for every group: nothing unstable survives it, its writers must send it again.
    pub fn bump(&mut self) {
        self.map.version = MapVersion(self.map.version.0 + 1);
        for group in &mut self.map.volumes[0].groups {
            group.epoch = group.epoch.next();
        }
        for held in std::mem::take(&mut self.held).into_values().flatten() {
            self.seen.remove(&(held.write.client, held.write.seq));
        }
    }

    pub fn count(&mut self, name: &'static str) {
        *self.calls.entry(name).or_default() += 1;
    }

    /// The stable bytes of a file, by name.
    pub fn stable(&self, name: &[u8]) -> Vec<u8> {
        let file = &self.files[&self.names[&(InodeId::ROOT, name.to_vec())]];
        let geometry = self.map.volumes[0].geometry;
        let mut bytes = vec![0; file.size as usize];
        for stripe in 0..geometry.stripes(file.size) {
            let at = stripe as usize * geometry.stripe();
            let len = geometry.stripe().min(bytes.len() - at);
            if let Some(stored) = self.stripes.get(&StripeKey { object: file.object, stripe }) {
                bytes[at..at + len].copy_from_slice(&stored[..len]);
            }
        }
        bytes
    }
}
