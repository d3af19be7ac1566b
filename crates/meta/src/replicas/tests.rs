//! Three servers, of which any two are enough, under faults: what was answered stays, nobody is told anything old, and all
//! copies become the same.

mod full_disk;
mod leaders;
mod storm;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use types::messages::cluster::{MapGet, TopologySet};
use types::messages::replica::{MemberReport, MetaLead, MetaLed, MetaRemove, MetaReport, MetaStatus};
use types::messages::session::Role;
use types::wire::Key;
use types::{Buf, ClusterId, Epoch, MapVersion, ShardId};
use world::{CallError, Identity, Peers, SimOptions, Simulation, World};

mod membership;

use super::{Server, ServerOptions};
use crate::kv::{Engine, KeyValue};
use crate::{MetaError, MetaOptions, keys};

const NODES: [&str; 3] = ["ma", "mb", "mc"];
const LIST: &str = "ma:1,mb:1,mc:1";
const JOURNAL: &str = "journal";
const CLUSTER: ClusterId = ClusterId([7; 16]);
/// The journal's halves are as short as they can be.
const MEMORY: u64 = 1 << 20;
/// How long an election and what comes after it may take, in microseconds.
const RECOVERY_US: u64 = 20_000_000;

fn identity(role: Role) -> Identity {
    Identity { cluster: CLUSTER, key: Key([1; 32]), role, name: String::new() }
}

struct Servers {
    simulation: Rc<Simulation>,
    /// Where they listen, on each machine.
    port: u16,
    engines: RefCell<BTreeMap<String, Engine>>,
    /// Those that were made to join the others.
    joins: RefCell<BTreeSet<String>>,
    /// How many stores a storm has taken away.
    lost: Cell<u64>,
    /// How servers have ended by themselves.
    ended: Rc<RefCell<BTreeMap<String, String>>>,
}

impl Servers {
    fn new(seed: u64, options: SimOptions) -> Servers {
        let engines: BTreeMap<String, Engine> =
            NODES.iter().map(|node| ((*node).to_owned(), Engine::memory_with_journal(JOURNAL))).collect();
        crate::create_cluster(&engines["ma"], CLUSTER).expect("empty");
        let simulation = Rc::new(Simulation::new(seed, options));
        Servers::of(simulation, 1, engines)
    }

    /// Another shard, with servers on the same machines.
    fn of_another_shard(&self) -> Servers {
        let engines: BTreeMap<String, Engine> = NODES
            .iter()
            .map(|node| ((*node).to_owned(), Engine::memory_with_journal("other journal")))
            .collect();
        crate::create_shard(&engines["ma"], CLUSTER, ShardId(1), LIST).expect("empty");
        Servers::of(Rc::clone(&self.simulation), 2, engines)
    }

    fn of(simulation: Rc<Simulation>, port: u16, engines: BTreeMap<String, Engine>) -> Servers {
        let joins = NODES[1..].iter().map(|node| (*node).to_owned()).collect();
        Servers {
            simulation,
            port,
            engines: RefCell::new(engines),
            joins: RefCell::new(joins),
            lost: Cell::new(0),
            ended: Rc::default(),
        }
    }

    /// Starts a server.
    fn start(&self, node: &str) {
        self.ended.borrow_mut().remove(node);
        let world = self.simulation.node(node);
        let (engine, on, ended) =
            (self.engines.borrow()[node].clone(), world.clone(), Rc::clone(&self.ended));
        let listen = format!("{node}:{}", self.port);
        let service = MetaOptions {
            listen: listen.clone(),
            identity: identity(Role::Meta),
            memory_budget: MEMORY,
            first_shard: None,
            keeps_leaders: false,
        };
        let join = self.joins.borrow().contains(node).then(|| LIST.replace(":1", &format!(":{}", self.port)));
        let (options, name) = (ServerOptions { service, advertise: listen, join }, node.to_owned());
        world.spawn("test", async move {
            let error = Server::new(on, engine, options).run(&|_| {}).await;
            ended.borrow_mut().insert(name, error.to_string());
        });
    }

    /// A server loses its store, and is started to get another one.
    fn wipe(&self, node: &str, journal: &str) {
        self.simulation.kill(node);
        self.engines.borrow_mut().insert(node.to_owned(), Engine::memory_with_journal(journal));
        self.joins.borrow_mut().insert(node.to_owned());
        self.start(node);
    }

    /// All three have just been started, and the test's client.
    fn begun(seed: u64, options: SimOptions) -> (Servers, World) {
        let servers = Servers::new(seed, options);
        NODES.iter().for_each(|node| servers.start(node));
        let client = servers.simulation.node("client");
        (servers, client)
    }

    /// Two are members, and the test's client.
    fn two(seed: u64, options: SimOptions) -> (Servers, World) {
        let servers = Servers::new(seed, options);
        NODES[..2].iter().for_each(|node| servers.start(node));
        let client = servers.simulation.node("client");
        servers.simulation.block_on("client", until_members(&client, 2));
        (servers, client)
    }

    /// All three are members, and the test's client.
    fn together(seed: u64, options: SimOptions) -> (Servers, World) {
        let (servers, client) = Servers::begun(seed, options);
        servers.simulation.block_on("client", until_members(&client, 3));
        (servers, client)
    }

    fn assert_none_has_ended(&self) {
        assert!(self.ended.borrow().is_empty(), "{:?}", self.ended.borrow());
    }

    /// What each server has, once it was started and killed in peace.
    fn contents(&self) -> Vec<Vec<KeyValue>> {
        let all = |engine: &Engine| {
            let mut pairs = Vec::new();
            let reader = engine.reader().expect("readable");
            reader
                .range(&[], &[0xff], &mut |key, value| {
                    if key != keys::applied() {
                        pairs.push((key.to_vec(), value.to_vec()));
                    }
                    true
                })
                .expect("readable");
            pairs
        };
        self.engines.borrow().values().map(all).collect()
    }
}

async fn status(peers: &Peers, node: &str) -> Option<MetaReport> {
    let address = format!("{node}:1");
    let asked = peers.call_within(500_000, &address, Epoch(0), &MetaStatus {}, Buf::empty());
    asked.await.ok().map(|(report, _)| report)
}

/// On which machine the other shard is led, if it has three members.
async fn leader_of_other_shard(peers: &Peers) -> Option<String> {
    for node in NODES {
        let address = format!("{node}:2");
        let asked = peers.call_within(500_000, &address, Epoch(0), &MetaStatus {}, Buf::empty());
        let Ok((report, _)) = asked.await else { continue };
        let members = report.members.iter().filter(|member| !member.is_joining).count();
        if report.leader == report.id && members == 3 {
            return Some(node.to_owned());
        }
    }
    None
}

/// Waits until a leader says that there are so many members.
async fn until_members(world: &World, count: usize) {
    let peers = Peers::new(world.clone(), identity(Role::Meta));
    let until = world.now() + RECOVERY_US;
    while world.now() < until {
        for node in NODES {
            let Some(report) = status(&peers, node).await else { continue };
            let members = report.members.iter().filter(|member| !member.is_joining).count();
            if report.leader == report.id && members == count {
                return;
            }
        }
        world.sleep(100_000).await;
    }
    for node in NODES {
        eprintln!("{node}: {:?}", status(&peers, node).await);
    }
    panic!("there are never {count} members");
}

/// The server that leads.
async fn leader(world: &World) -> String {
    let peers = Peers::new(world.clone(), identity(Role::Meta));
    for _ in 0..200 {
        for node in NODES {
            if status(&peers, node).await.is_some_and(|report| report.leader == report.id && report.id != 0) {
                return node.to_owned();
            }
        }
        world.sleep(100_000).await;
    }
    panic!("nobody leads");
}

/// A register with versions: the topology of the map.
async fn set(peers: &Peers, value: u64) -> Result<(), CallError> {
    let set = TopologySet { topology: format!("mesh\nnode {value}\n"), may_move: true };
    peers.call_within(3_000_000, LIST, Epoch(0), &set, Buf::empty()).await.map(drop)
}

/// Has another server lead.
async fn lead(peers: &Peers, node: &str) -> Result<MetaLed, CallError> {
    let lead = MetaLead { address: format!("{node}:1") };
    peers.call_within(3_000_000, LIST, Epoch(0), &lead, Buf::empty()).await.map(|(led, _)| led)
}

async fn get(peers: &Peers) -> Result<(u64, String), CallError> {
    let get = MapGet { have: MapVersion(0), volume: None, rest: None };
    let (reply, _) = peers.call_within(3_000_000, LIST, Epoch(0), &get, Buf::empty()).await?;
    let update = reply.update.expect("nothing is known here");
    Ok((update.version.0, update.topology.unwrap_or_default()))
}

/// What clients have seen, in the order of time.
#[derive(Default)]
struct Seen {
    texts: BTreeMap<u64, String>,
    newest: u64,
    sets: u64,
    gets: u64,
}

impl Seen {
    /// A version was read by an operation that was begun when `floor` was the newest known one.
    fn see(&mut self, seed: u64, (version, text): (u64, String), floor: u64) {
        assert!(version >= floor, "seed {seed}: version {version} was told after {floor}");
        let first = self.texts.entry(version).or_insert_with(|| text.clone());
        assert_eq!(*first, text, "seed {seed}: version {version} is two");
        self.newest = self.newest.max(version);
        self.gets += 1;
    }
}

async fn work(world: World, seed: u64, number: u64, seen: Rc<RefCell<Seen>>, stop: Rc<Cell<bool>>) {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let mut value = number;
    while !stop.get() {
        value += 10;
        let floor = seen.borrow().newest;
        if world.random().is_multiple_of(2) && set(&peers, value).await.is_ok() {
            seen.borrow_mut().sets += 1;
            // Every value is new, so what was answered has made a version.
            if let Ok(found) = get(&peers).await {
                assert!(found.0 > floor, "seed {seed}: a change that was answered is lost");
                seen.borrow_mut().see(seed, found, floor);
            }
        } else if let Ok(found) = get(&peers).await {
            seen.borrow_mut().see(seed, found, floor);
        }
        world.sleep(world.random() % 100_000).await;
    }
}
