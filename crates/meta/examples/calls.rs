//! How many files a second a metadata service makes for callers on connections: `calls DIR [CALLERS] [COUNT] [SERVERS]`.
//!
//! Each server is a process with its store in DIR (which must be empty), the callers are another one. Each caller makes a file
//! and opens it, tells its size and closes it, one request after the other. Prints files per second, and the CPU time per
//! file of the callers and of all servers.

use std::process::{Child, Command};
use std::rc::Rc;
use std::time::Duration;

use meta::{Engine, MetaError, MetaOptions, Server, ServerOptions, create_cluster};
use types::messages::brick::AskedCounts;
use types::messages::cluster::{BrickClass, BrickJoin, ClientJoin, ClientPoll, VolumeCreate};
use types::messages::names::{Caller, Create, FileKind, Owner, Release, SizeUpdate, Unlink, UpdateSizes};
use types::messages::replica::MetaStatus;
use types::messages::session::Role;
use types::wire::Key;
use types::{BrickId, Buf, ClusterId, Code, Epoch, Geometry, Incarnation, InodeId, MapVersion, NodeId};
use world::{Identity, Peers, World};

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize, default: &str| arguments.get(at).cloned().unwrap_or_else(|| default.to_owned());
    if text(0, "") == "--callers" {
        return call(&text(1, ""), text(2, "16").parse()?, text(3, "20000").parse()?);
    }
    if text(0, "") == "--server" {
        let world = World::real()?;
        let join = Some(text(3, "")).filter(|join| !join.is_empty());
        return Err(world.block_on(serve(&world, &text(1, ""), &text(2, ""), join)?).into());
    }
    let servers: usize = text(3, "1").parse()?;
    let world = World::real()?;
    let addresses: Vec<String> = (0..servers).map(|_| free_address()).collect::<Result<_, _>>()?;
    let mut others = Others(Vec::new());
    for (number, address) in addresses.iter().enumerate() {
        let dir = std::path::Path::new(&text(0, ".")).join(format!("meta{number}"));
        std::fs::create_dir_all(&dir)?;
        let dir = dir.to_string_lossy().into_owned();
        let join = if number == 0 { "" } else { &addresses[0] };
        let server =
            Command::new(std::env::current_exe()?).args(["--server", &dir, address, join]).spawn()?;
        others.0.push(server);
    }
    let peers = Peers::new(world.clone(), identity(Role::MetaFollower));
    world.block_on(async {
        let members = async |address: &str| {
            let asked = peers.call(address, Epoch(0), &MetaStatus {}, Buf::default()).await;
            asked.map_or(0, |(report, _)| {
                report.members.iter().filter(|member| !member.is_joining).count().max(1)
            })
        };
        while members(&addresses[0]).await < servers {
            world.sleep(100_000).await;
        }
    });
    let before = others.cpu_time();
    let status = Command::new(std::env::current_exe()?)
        .args(["--callers", &addresses.join(","), &text(1, "16"), &text(2, "20000")])
        .status()?;
    println!("servers: {:.2} CPU s", (others.cpu_time() - before).as_secs_f64());
    if status.success() { Ok(()) } else { Err("the callers failed".into()) }
}

/// The servers' processes, which end with this one.
struct Others(Vec<Child>);

impl Others {
    fn cpu_time(&self) -> Duration {
        self.0.iter().map(|child| cpu_time(&child.id().to_string())).sum()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

fn free_address() -> std::io::Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// A server that runs until it cannot go on.
fn serve(
    world: &World,
    dir: &str,
    listen: &str,
    join: Option<String>,
) -> Result<impl Future<Output = MetaError>, Fault> {
    let engine = Engine::open_redb(std::path::Path::new(dir).join("store.redb"))?;
    if join.is_none() {
        create_cluster(&engine, ClusterId([7; 16]))?;
    }
    let service = MetaOptions {
        listen: listen.to_owned(),
        identity: identity(Role::Meta),
        memory_budget: meta::MEMORY_BUDGET_DEFAULT,
        first_shard: None,
        keeps_leaders: false,
    };
    let options = ServerOptions { service, advertise: listen.to_owned(), join };
    let server = Server::new(world.clone(), engine, options);
    Ok(async move { server.run(&|_| {}).await })
}

fn identity(role: Role) -> Identity {
    Identity { cluster: ClusterId([7; 16]), key: Key::OPEN, role, name: String::new() }
}

fn call(address: &str, callers: u64, count: u64) -> Result<(), Fault> {
    let world = World::real()?;
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let part = count / callers;
    world.block_on(async {
        let brick = BrickJoin {
            brick: BrickId(1),
            device: [1; 16],
            node: NodeId(1),
            address: "127.0.0.1:1".into(),
            capacity: 1,
            free: 1,
            incarnation: Incarnation(1),
            class: BrickClass::Ssd,
            shard: types::ShardId::FIRST,
            shards: Vec::new(),
            restored: 0,
            reach: Default::default(),
        };
        let ask = Rc::new(Asker { peers, address: address.to_owned() });
        ask.ask(&brick).await;
        let geometry = Geometry::new(Code::new(1, 0).expect("a code"), 4096, 64).expect("a geometry");
        ask.ask(&VolumeCreate {
            name: "v".into(),
            geometry,
            groups: 1,
            same_node: true,
            block: None,
            class: None,
            tiers: Vec::new(),
            placement: None,
            near_writer: false,
            shard: None,
            token: 0,
        })
        .await;
        let joined = ask
            .ask(&ClientJoin {
                volume: "v".into(),
                client: None,
                opens: Vec::new(),
                exclusive: false,
                place: String::new(),
            })
            .await;
        // Keeps the lease.
        let beat = Rc::clone(&ask);
        world.spawn("test", async move {
            loop {
                beat.ask(&ClientPoll {
                    client: joined.client,
                    map: MapVersion(1 << 30),
                    asked: AskedCounts::default(),
                    unreached: Vec::new(),
                })
                .await;
            }
        });
        let ops = Rc::new(std::cell::Cell::new(0u64));
        let caller = || {
            ops.set(ops.get() + 1);
            Caller { client: joined.client, op: ops.get(), acked: ops.get().saturating_sub(2 * callers) }
        };
        let volume = joined.volume;
        let (mut wall, mut cpu) = (world.now(), cpu_time("self"));
        let mut tell = |what: &str| {
            let rate = (part * callers) as f64 / ((world.now() - wall) as f64 / 1e6);
            let used = (cpu_time("self") - cpu).as_secs_f64() * 1e6 / (part * callers) as f64;
            println!("{what:>30}: {rate:>8.0} files/s, callers' CPU {used:.1} us");
            (wall, cpu) = (world.now(), cpu_time("self"));
        };
        let name = |who: u64, at: u64| format!("file-{who}-{at}").into_bytes();
        let parts = (0..callers).map(|who| {
            let (ask, caller) = (&ask, &caller);
            async move {
                for at in 0..part {
                    let owner = Owner { uid: 0, gid: 0, mode: 0o644 };
                    let (parent, kind) = (InodeId::ROOT, FileKind::File);
                    let (name, caller) = (name(who, at), caller());
                    let create = Create {
                        caller,
                        volume,
                        parent,
                        name,
                        kind,
                        owner,
                        rdev: 0,
                        open: true,
                        near: Vec::new(),
                        now: 1,
                    };
                    ask.ask(&create).await;
                }
            }
        });
        futures_util::future::join_all(parts).await;
        tell("create");
        let parts = (0..callers).map(|who| {
            let (ask, caller) = (&ask, &caller);
            async move {
                for at in 0..part {
                    let owner = Owner { uid: 0, gid: 0, mode: 0o644 };
                    let (parent, kind) = (InodeId::ROOT, FileKind::File);
                    let name = name(who + callers, at);
                    let create = Create {
                        caller: caller(),
                        volume,
                        parent,
                        name,
                        kind,
                        owner,
                        rdev: 0,
                        open: true,
                        near: Vec::new(),
                        now: 1,
                    };
                    let attr = ask.ask(&create).await.attr;
                    let size = SizeUpdate {
                        inode: attr.inode,
                        truncate_seq: attr.truncate_seq,
                        size: 1024,
                        mtime: 2,
                        set_time: false,
                    };
                    ask.ask(&UpdateSizes {
                        client: joined.client,
                        volume,
                        sizes: vec![size],
                        stable: true,
                        noting: false,
                    })
                    .await;
                    ask.ask(&Release { caller: caller(), volume, inode: attr.inode, write: true }).await;
                }
            }
        });
        futures_util::future::join_all(parts).await;
        tell("create, size, close");
        let parts = (0..callers).map(|who| {
            let (ask, caller) = (&ask, &caller);
            async move {
                for at in 0..part {
                    let name = name(who + callers, at);
                    ask.ask(&Unlink { caller: caller(), volume, parent: InodeId::ROOT, name, now: 3 }).await;
                }
            }
        });
        futures_util::future::join_all(parts).await;
        tell("unlink");
    });
    Ok(())
}

struct Asker {
    peers: Peers,
    address: String,
}

impl Asker {
    async fn ask<R: types::wire::Request>(&self, request: &R) -> R::Reply {
        let answer = self.peers.call(&self.address, Epoch(0), request, Buf::default()).await;
        answer.expect("the service is there").0
    }
}

/// CPU time that a process has taken, all its threads.
fn cpu_time(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Fields 14 and 15 of proc(5), counted from behind the name, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((field(11) + field(12)) * 10)
}
