//! Three servers, of which any two are enough, under faults: what was answered stays, nobody is told anything old, and all
//! copies become the same.

mod full_disk;
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

#[test]
fn one_follower_gets_records_at_once_and_the_other_soon() {
    const TIMES: u64 = 100;
    let (servers, client) = Servers::together(11, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let leads = leader(&client).await;
        // Which followers have all that the leader has.
        let level = async || {
            let report = status(&peers, &leads).await.expect("it leads");
            let others = report.members.into_iter().filter(|member| member.member.id != report.id);
            let has_all = others.filter(|member| member.last == report.last.number);
            has_all.map(|member| member.member.address).collect::<Vec<_>>()
        };
        let rate = async |first: u64| {
            let begun_us = client.now();
            for value in first..first + TIMES {
                set(&peers, value).await.expect("a majority is there");
            }
            client.now() - begun_us
        };
        let mut both = 0;
        for value in 0..TIMES {
            set(&peers, 100 + value).await.expect("a majority is there");
            both += u64::from(level().await.len() == 2);
        }
        assert!(both <= TIMES / 4, "both followers had {both} of {TIMES} records at once");
        let usual_us = rate(200).await;
        client.sleep(50_000).await;
        assert_eq!(level().await.len(), 2, "the other one does not get them");
        // The one that is waited for dies.
        set(&peers, 300).await.expect("a majority is there");
        let first = level().await.pop().expect("a majority has it");
        servers.simulation.kill(first.trim_end_matches(":1"));
        let without_us = rate(400).await;
        assert!(without_us < 2 * usual_us + 50_000, "{without_us} us without it, {usual_us} us with it");
    });
}

#[test]
fn a_killed_leader_is_followed_by_another_one() {
    let (servers, client) = Servers::together(1, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        for round in 0..20 {
            set(&peers, round + 1).await.expect("somebody leads");
            let leads = leader(&client).await;
            let at = client.now();
            servers.simulation.kill(&leads);
            while get(&peers).await.is_err() {
                client.sleep(10_000).await;
            }
            let pause = client.now() - at;
            assert!(pause < 6_000_000, "{pause} us without a leader");
            let (_, text) = get(&peers).await.expect("somebody leads");
            assert_eq!(text, format!("mesh\nnode {}\n", round + 1));
            servers.start(&leads);
            client.sleep(1_000_000).await;
        }
    });
    servers.assert_none_has_ended();
}

/// Programs wait for much less than an election takes, however busy the leader is, and nothing is lost.
#[test]
fn a_leader_lets_another_one_lead() {
    let (servers, client) = Servers::together(6, SimOptions::default());
    servers.simulation.block_on("client", async {
        let (peers, stop) = (Peers::new(client.clone(), identity(Role::Client)), Rc::new(Cell::new(false)));
        let servers_only = Peers::new(client.clone(), identity(Role::Meta));
        let seen = Rc::new(RefCell::new(Seen::default()));
        for number in 0..4 {
            let (seen, stop) = (Rc::clone(&seen), Rc::clone(&stop));
            client.spawn("test", work(client.clone(), 6, number, seen, stop));
        }
        let mut pauses = Vec::new();
        for round in 0..20 {
            let leads = leader(&client).await;
            let next = *NODES.iter().filter(|node| **node != leads).nth(round % 2).expect("there are three");
            let at = client.now();
            let led = lead(&peers, next).await;
            assert!(!matches!(&led, Ok(MetaLed { error: Some(_) })), "{led:?}");
            let status_of =
                async || status(&servers_only, next).await.is_some_and(|report| report.leader == report.id);
            while !status_of().await || get(&peers).await.is_err() {
                assert!(client.now() < at + RECOVERY_US, "{next} never leads");
                client.sleep(10_000).await;
            }
            pauses.push(client.now() - at);
            assert_eq!(lead(&peers, next).await, Ok(MetaLed { error: None }), "it leads already");
            client.sleep(1_000_000).await;
        }
        pauses.sort_unstable();
        assert!(pauses[18] < 1_000_000, "{pauses:?}");
        let unknown = lead(&peers, "mx").await.expect("somebody leads").error;
        assert!(unknown.is_some_and(|error| error.contains("mx:1 is not a member")));
        // One that does not answer is not asked to lead.
        let leads = leader(&client).await;
        let away = *NODES.iter().find(|node| **node != leads).expect("there are three");
        servers.simulation.kill(away);
        client.sleep(3_000_000).await;
        let silent = lead(&peers, away).await.expect("somebody leads").error;
        assert!(silent.is_some_and(|error| error.contains("does not answer the leader")));
        assert_eq!(leader(&client).await, leads);
        servers.start(away);
        stop.set(true);
        client.sleep(1_000_000).await;
    });
    servers.assert_none_has_ended();
}

/// One follower knows that the last record is chosen, the other one, which may lead next, does not.
#[test]
fn a_follower_may_know_more_than_the_next_leader() {
    let (servers, client) = Servers::together(4, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        for round in 0..10 {
            let leads = leader(&client).await;
            let unknowing = NODES.iter().find(|node| **node != leads).expect("there are three");
            set(&peers, round + 1).await.expect("somebody leads");
            client.sleep(2_000).await;
            servers.simulation.partition(&leads, unknowing, true);
            client.sleep(500_000).await;
            servers.simulation.kill(&leads);
            servers.simulation.partition(&leads, unknowing, false);
            let at = client.now();
            while get(&peers).await.is_err() {
                assert!(client.now() < at + RECOVERY_US, "round {round}: nobody leads");
                client.sleep(10_000).await;
            }
            servers.start(&leads);
            client.sleep(1_000_000).await;
        }
    });
    servers.assert_none_has_ended();
}

#[test]
fn a_server_that_lost_its_store_gets_everything_again() {
    let (servers, client) = Servers::together(2, SimOptions::default());
    let peers = Peers::new(client.clone(), identity(Role::Client));
    servers.simulation.block_on("client", async {
        for value in 1..400 {
            set(&peers, value).await.expect("somebody leads");
        }
    });
    servers.wipe("mc", "another journal");
    servers.simulation.block_on("client", async {
        client.sleep(3_000_000).await;
        until_members(&client, 3).await;
        // The new one is as good as the others.
        servers.simulation.kill("ma");
        client.sleep(5_000_000).await;
        set(&peers, 500).await.expect("two of three are there");
        assert_eq!(get(&peers).await.expect("somebody leads").1, "mesh\nnode 500\n");
    });
    servers.assert_none_has_ended();
}

#[test]
fn a_removed_server_ends_and_the_last_one_stays() {
    let (servers, client) = Servers::together(3, SimOptions::default());
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let remove = async |address: &str| {
            let remove = MetaRemove { address: address.to_owned() };
            loop {
                match peers.call_within(3_000_000, LIST, Epoch(0), &remove, Buf::empty()).await {
                    Ok((removed, _)) => return removed.error,
                    Err(_) => client.sleep(100_000).await,
                }
            }
        };
        let leads = leader(&client).await;
        let follows = NODES.iter().find(|node| **node != leads).expect("there are three");
        assert!(remove("mx:1").await.is_some_and(|error| error.contains("mx:1 is not a member")));
        assert_eq!(remove(&format!("{follows}:1")).await, None);
        assert!(remove(&format!("{follows}:1")).await.is_some(), "it is gone already");
        client.sleep(3_000_000).await;
        let removed = MetaError::Removed.to_string();
        assert_eq!(servers.ended.borrow().get(*follows), Some(&removed));
        // The leader itself.
        remove(&format!("{leads}:1")).await;
        client.sleep(6_000_000).await;
        assert_eq!(servers.ended.borrow().get(&leads), Some(&removed));
        let last = leader(&client).await;
        let error = remove(&format!("{last}:1")).await;
        assert!(error.is_some_and(|error| error.contains("is the only member")));
        set(&peers, 7).await.expect("one is enough, if it is the only one");
    });
}

#[test]
fn leaders_of_shards_move_to_machines_that_serve_less() {
    let (servers, client) = Servers::together(7, SimOptions::default());
    let other = servers.of_another_shard();
    NODES.iter().for_each(|node| other.start(node));
    servers.simulation.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Meta));
        let operator = Peers::new(client.clone(), identity(Role::Client));
        let until = async |what: &str, is_so: &dyn Fn(&str) -> bool| {
            let end = client.now() + 100_000_000;
            while !leader_of_other_shard(&peers).await.is_some_and(|node| is_so(&node)) {
                assert!(client.now() < end, "{what}");
                client.sleep(500_000).await;
            }
        };
        until("three servers", &|_| true).await;
        for round in 0..3 {
            let first = leader(&client).await;
            let lead = MetaLead { address: format!("{first}:2") };
            let all = LIST.replace(":1", ":2");
            let asked = operator.call_within(3_000_000, &all, Epoch(0), &lead, Buf::empty()).await;
            assert!(asked.is_ok_and(|(led, _)| led.error.is_none()), "round {round}");
            until("the command", &|node| node == first).await;
            until("it leads elsewhere", &|node| node != first).await;
            // Two machines, one leader each: nothing moves any more.
            let settled = leader_of_other_shard(&peers).await;
            client.sleep(100_000_000).await;
            assert_eq!(leader_of_other_shard(&peers).await, settled, "round {round}");
        }
    });
    servers.assert_none_has_ended();
    other.assert_none_has_ended();
}

/// The journal of one follower is so slow that it could not take records one by one.
#[test]
fn a_slow_follower_keeps_up() {
    let (servers, client) = Servers::together(5, SimOptions::default());
    let seen = servers.simulation.block_on("client", async {
        let leads = leader(&client).await;
        let slow = NODES.into_iter().find(|node| *node != leads).expect("there are three");
        servers.simulation.slow_disk(slow, JOURNAL, 200);
        let stop = Rc::new(Cell::new(false));
        for number in 0..8 {
            let (on, stop) = (client.clone(), Rc::clone(&stop));
            client.spawn("test", async move {
                let peers = Peers::new(on.clone(), identity(Role::Client));
                for value in (0..).map(|round: u64| 10 * round + number) {
                    if stop.get() || set(&peers, value).await.is_err() {
                        break;
                    }
                }
            });
        }
        let peers = Peers::new(client.clone(), identity(Role::Meta));
        let (mut most, mut last) = (0, 0);
        let until = client.now() + 20_000_000;
        while client.now() < until {
            client.sleep(100_000).await;
            let (Some(first), Some(behind)) = (status(&peers, &leads).await, status(&peers, slow).await)
            else {
                continue;
            };
            last = first.last.number;
            most = most.max(last.saturating_sub(behind.last.number));
        }
        stop.set(true);
        client.sleep(2_000_000).await;
        let level = status(&peers, slow).await.expect("it is there").last.number;
        assert!(level >= last, "two seconds later it has {level} of {last}");
        (most, last)
    });
    servers.assert_none_has_ended();
    let (most, last) = seen;
    assert!(last > 5_000, "there were only {last} records");
    assert!(most < 1_000, "it was {most} records behind, of {last}");
}
