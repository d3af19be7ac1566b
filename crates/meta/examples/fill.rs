//! Makes many empty files in a cluster that runs, faster than a mount could: it asks the metadata service itself.
//!
//! `fill META KEY_FILE VOLUME DIR FIRST END [PER_DIR]` makes DIR in the volume's root if it is not there, and in it the
//! files `f%08d` from FIRST to END - 1; with PER_DIR not all in DIR, but so many in each of `d%08d` below it. Prints
//! the seconds. The loads of `bench/load/growth.c` know these names.

use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::HEARTBEAT_US;
use types::messages::brick::AskedCounts;
use types::messages::cluster::{ClientJoin, ClientLeave, ClientPoll};
use types::messages::names::{Caller, Create, FileKind, Lookup, Mkdir, Owner};
use types::messages::session::Role;
use types::wire::{Key, Request};
use types::{Buf, ClientId, ClusterId, Epoch, InodeId, MapVersion, VolumeId};
use world::{CallError, Identity, Peers, World};

type Fault = Box<dyn std::error::Error>;

/// Requests under way at a time; the service gathers them to few records of its journal.
const WAVE: u64 = 512;

fn main() -> Result<(), Fault> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [meta, key_file, volume, dir, first, end, rest @ ..] = arguments.as_slice() else {
        return Err("usage: fill META KEY_FILE VOLUME DIR FIRST END [PER_DIR]".into());
    };
    let (first, end): (u64, u64) = (first.parse()?, end.parse()?);
    let per_dir: u64 = rest.first().map_or(Ok(0), |text| text.parse())?;
    let key: Key = std::fs::read_to_string(key_file)?.trim().parse().map_err(|_| "no key file")?;
    let world = World::real()?;
    let identity = Identity { cluster: ClusterId::default(), key, role: Role::Client, name: String::new() };
    let filler = Filler { peers: Peers::new(world.clone(), identity), meta: meta.clone() };
    let start = world.now();
    world.block_on(async {
        let mut session = Session::begin(Rc::new(filler), &world, volume).await?;
        session.fill(dir, first..end, per_dir).await?;
        session.end().await
    })?;
    println!("{:.3}", (world.now() - start) as f64 / 1e6);
    Ok(())
}

struct Filler {
    peers: Peers,
    meta: String,
}

impl Filler {
    async fn ask<R: Request>(&self, request: &R) -> Result<R::Reply, CallError> {
        Ok(self.peers.call(&self.meta, Epoch(0), request, Buf::default()).await?.0)
    }
}

/// A client of the volume, which numbers its changes.
struct Session {
    filler: Rc<Filler>,
    client: ClientId,
    volume: VolumeId,
    next: u64,
    /// All changes below have been answered.
    acked: u64,
}

impl Session {
    /// Joins, and keeps the lease from then on.
    async fn begin(filler: Rc<Filler>, world: &World, volume: &str) -> Result<Session, Fault> {
        let join = ClientJoin {
            volume: volume.to_owned(),
            client: None,
            opens: Vec::new(),
            exclusive: false,
            place: "fill".to_owned(),
        };
        let joined = filler.ask(&join).await?;
        let (beat, client, pause) = (Rc::clone(&filler), joined.client, world.clone());
        world.spawn("beat", async move {
            while beat
                .ask(&ClientPoll {
                    client,
                    map: MapVersion(1 << 30),
                    asked: AskedCounts::default(),
                    unreached: Vec::new(),
                })
                .await
                .is_ok()
            {
                pause.sleep(HEARTBEAT_US / 4).await;
            }
        });
        Ok(Session { filler, client, volume: joined.volume, next: 1, acked: 0 })
    }

    async fn end(self) -> Result<(), Fault> {
        self.filler.ask(&ClientLeave { client: self.client }).await?;
        Ok(())
    }

    fn caller(&mut self) -> Caller {
        let op = self.next;
        self.next += 1;
        Caller { client: self.client, op, acked: self.acked }
    }

    async fn fill(&mut self, dir: &str, files: std::ops::Range<u64>, per_dir: u64) -> Result<(), Fault> {
        let top = self.directory(InodeId::ROOT, dir).await?;
        let mut at = files.start;
        while at < files.end {
            let (parent, until) = match at.checked_div(per_dir) {
                None => (top, files.end),
                Some(part) => (
                    self.directory(top, &format!("d{part:08}")).await?,
                    ((part + 1) * per_dir).min(files.end),
                ),
            };
            while at < until {
                let wave = at..until.min(at + WAVE);
                at = wave.end;
                self.create(parent, wave).await?;
            }
        }
        Ok(())
    }

    /// A directory by its name, made if it is not there.
    async fn directory(&mut self, parent: InodeId, name: &str) -> Result<InodeId, Fault> {
        let (volume, name) = (self.volume, name.as_bytes().to_vec());
        if let Ok(found) = self.filler.ask(&Lookup { volume, parent, name: name.clone() }).await {
            return Ok(found.attr.inode);
        }
        let owner = Owner { uid: 0, gid: 0, mode: 0o755 };
        let request = Mkdir { caller: self.caller(), volume, parent, name, owner, now: 1 };
        let made = self.filler.ask(&request).await?;
        self.acked = self.next - 1;
        Ok(made.attr.inode)
    }

    async fn create(&mut self, parent: InodeId, files: std::ops::Range<u64>) -> Result<(), Fault> {
        let requests: Vec<Create> = files
            .map(|file| Create {
                caller: self.caller(),
                volume: self.volume,
                parent,
                name: format!("f{file:08}").into_bytes(),
                kind: FileKind::File,
                owner: Owner { uid: 0, gid: 0, mode: 0o644 },
                rdev: 0,
                open: false,
                near: Vec::new(),
                now: 1,
            })
            .collect();
        let filler = &self.filler;
        for answer in join_all(requests.iter().map(|request| filler.ask(request))).await {
            answer?;
        }
        self.acked = self.next - 1;
        Ok(())
    }
}
