//! A disk over NBD has what was flushed after its gate has died: gates are killed, hang or lose their lease, and every
//! block is compared on another machine's gate.

use std::cell::RefCell;
use std::rc::Rc;

use client::{Encode, Mount, MountOptions};
use gates::nbd::{Listen, NbdOptions, Server};
use types::limits::LEASE_US;
use types::messages::cluster::{DISK as DISK_FILE, VolumeCreate};
use types::messages::session::Role;
use types::{Buf, Code, Epoch, Geometry};
use world::sim::SimOptions;
use world::{Peers, StreamReceiver, StreamSender, World};

use crate::cluster::{Cluster, brick_node, identity, meta, tune, volume_create};

const DISK: &str = "disk";
const BLOCK: usize = 4096;
const BLOCKS: u64 = 192;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZERO: u16 = 6;
const FUA: u16 = 1;

/// A client's connection.
struct Nbd {
    sender: StreamSender,
    receiver: StreamReceiver,
    cookie: u64,
}

/// The connection is of no further use.
#[derive(Debug)]
struct Broken;

impl Nbd {
    /// Connects, as the oldest clients do.
    async fn connect(world: &World, at: &str) -> Result<(Nbd, u64), Broken> {
        let conn = world.connect(at).await.map_err(|_| Broken)?;
        let (mut sender, mut receiver) = conn.split_stream();
        let greeting = receiver.head(18).await.map_err(|_| Broken)?.ok_or(Broken)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        let hello = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
        sender.send(&hello, Buf::empty()).await.map_err(|_| Broken)?;
        let export = receiver.head(10).await.map_err(|_| Broken)?.ok_or(Broken)?;
        let size = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Ok((Nbd { sender, receiver, cookie: 0 }, size))
    }

    /// One request; the bytes that it reads, or its error.
    async fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        len: u32,
        body: Buf,
    ) -> Result<Vec<u8>, Broken> {
        self.send(kind, flags, offset, len, body).await?;
        let bytes = if kind == READ { len as usize } else { 0 };
        self.reply(bytes).await
    }

    /// One request, whose answer is not waited for.
    async fn send(&mut self, kind: u16, flags: u16, offset: u64, len: u32, body: Buf) -> Result<(), Broken> {
        self.cookie += 1;
        let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
        head.extend(flags.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(self.cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(len.to_be_bytes());
        self.sender.send(&head, body).await.map_err(|_| Broken)
    }

    /// The answer to the last request, with so many bytes.
    async fn reply(&mut self, bytes: usize) -> Result<Vec<u8>, Broken> {
        let reply = self.receiver.head(16).await.map_err(|_| Broken)?.ok_or(Broken)?;
        assert_eq!(reply[8..], self.cookie.to_be_bytes(), "one request at a time");
        // An error is the end of the lease: the gate closes the connection after it.
        if reply[4..8] != [0; 4] {
            return Err(Broken);
        }
        self.receiver.body(bytes).await.map(|bytes| bytes.to_vec()).map_err(|_| Broken)
    }
}

/// What the disk may hold, by block: a salt for its bytes, 0 for zeros.
struct Model {
    /// Flushed, or older.
    sure: Vec<u64>,
    /// Written since, in order.
    maybe: Vec<Vec<u64>>,
    next: u64,
    flushes: u64,
}

fn block(salt: u64, at: u64) -> Vec<u8> {
    if salt == 0 {
        return vec![0; BLOCK];
    }
    (0..BLOCK as u64).map(|i| (i.wrapping_mul(salt * 2 + 1) ^ (i >> 7) ^ at ^ (salt << 3)) as u8).collect()
}

impl Model {
    fn new() -> Model {
        let blocks = BLOCKS as usize;
        Model { sure: vec![0; blocks], maybe: vec![Vec::new(); blocks], next: 1, flushes: 0 }
    }

    fn note(&mut self, first: u64, count: u64, salt: u64) {
        (first..first + count).for_each(|at| self.maybe[at as usize].push(salt));
    }

    /// What is read now, as long as no gate has died.
    fn now(&self, at: u64) -> u64 {
        *self.maybe[at as usize].last().unwrap_or(&self.sure[at as usize])
    }

    fn flushed(&mut self) {
        self.flushes += 1;
        self.are_sure(0, BLOCKS);
    }

    /// What these blocks are now is stable.
    fn are_sure(&mut self, first: u64, count: u64) {
        for at in first as usize..(first + count) as usize {
            self.sure[at] = self.maybe[at].drain(..).next_back().unwrap_or(self.sure[at]);
        }
    }

    /// Takes over what is there after a death.
    fn compare(&mut self, bytes: &[u8]) {
        for (at, found) in bytes.chunks(BLOCK).enumerate() {
            let (sure, maybe) = (self.sure[at], std::mem::take(&mut self.maybe[at]));
            let known = |salt: &u64| found == block(*salt, at as u64);
            let salt = std::iter::once(sure).chain(maybe.iter().copied()).find(|salt| known(salt));
            self.sure[at] = salt.unwrap_or_else(|| panic!("block {at}: neither {sure} nor any of {maybe:?}"));
        }
    }
}

/// A gate on a machine of its own, for as long as that lives.
fn start_gate(cluster: &Cluster, node: &str, write_through: bool, unstable_budget: u64) {
    let world = cluster.sim.node(node);
    let (on, at) = (world.clone(), format!("{node}:10809"));
    world.spawn("test", async move {
        loop {
            let mut options = MountOptions::new(meta(), DISK, identity(Role::Client));
            options.encode = Encode::Auto;
            options.unstable_budget = unstable_budget;
            if let Ok(mount) = Mount::join(&on, options).await {
                tune(&on, &mount);
                on.spawn("client", mount.clone().background(on.clone()));
                let listen = Listen::Port(at.clone());
                let options = NbdOptions {
                    listen,
                    file: None,
                    read_only: false,
                    write_through,
                    connections: 4,
                    threads: 1,
                };
                let started = Server::start(&on, &mount, DISK, &options).await;
                let (server, listener) = started.expect("the disk is there");
                server.serve(&listener).await.expect("it is not exclusive");
                return;
            }
            on.sleep(100_000).await;
        }
    });
}

async fn connect(world: &World, node: &str) -> Nbd {
    for _ in 0..2000 {
        if let Ok((nbd, size)) = Nbd::connect(world, &format!("{node}:10809")).await {
            assert_eq!(size, BLOCKS * BLOCK as u64);
            return nbd;
        }
        world.sleep(50_000).await;
    }
    panic!("the gate on {node} lets nobody in");
}

/// Random requests on two connections of one gate, until something breaks: flushes are asked for on the other one than
/// writes. Some changes are stable when they are answered, or all of them if the gate writes through.
async fn work(world: &World, node: &str, model: &RefCell<Model>, write_through: bool) -> Result<(), Broken> {
    let (mut one, mut other) = (connect(world, node).await, connect(world, node).await);
    loop {
        let dice = world.random();
        let first = (dice >> 8) % BLOCKS;
        let count = 1 + (dice >> 32) % (BLOCKS - first).min(40);
        let (offset, len) = (first * BLOCK as u64, count as u32 * BLOCK as u32);
        let flags = if dice & 64 == 0 { FUA } else { 0 };
        let stable = flags == FUA || write_through;
        match dice % 8 {
            0..=3 => {
                let salt = model.borrow().next;
                model.borrow_mut().next += 1;
                let bytes: Vec<u8> = (first..first + count).flat_map(|at| block(salt, at)).collect();
                model.borrow_mut().note(first, count, salt);
                one.ask(WRITE, flags, offset, len, Buf::copy_of(&bytes)).await?;
                if stable {
                    model.borrow_mut().are_sure(first, count);
                }
            }
            4 => {
                model.borrow_mut().note(first, count, 0);
                let kind = if dice & 128 == 0 { TRIM } else { ZERO };
                one.ask(kind, flags, offset, len, Buf::empty()).await?;
                if stable {
                    model.borrow_mut().are_sure(first, count);
                }
            }
            5 => {
                other.ask(FLUSH, 0, 0, 0, Buf::empty()).await?;
                model.borrow_mut().flushed();
            }
            _ => {
                let found = other.ask(READ, 0, offset, len, Buf::empty()).await?;
                for (at, found) in (first..).zip(found.chunks(BLOCK)) {
                    let right = model.borrow().now(at);
                    assert!(found == block(right, at), "block {at} is not as it was written last, {right}");
                }
            }
        }
    }
}

/// Whoever asks where bytes are is told of all of them.
async fn check_holes(world: &World, bytes: &[u8]) {
    let options = MountOptions::new(meta(), DISK, identity(Role::Client));
    let mount = Mount::join(world, options).await.expect("anybody may mount it");
    world.spawn("client", mount.clone().background(world.clone()));
    let session = mount.session(world.clone());
    let disk = session.lookup(mount.root(), DISK_FILE).await.expect("the disk is there");
    let opened = session.open(disk.inode, false, false).await.expect("opened");
    let found = session.find_bytes(opened.handle, 0..disk.size).await.expect("found");
    for (at, block) in bytes.chunks(BLOCK).enumerate() {
        let at = (at * BLOCK) as u64;
        let known = found.iter().any(|range| range.start <= at && at + BLOCK as u64 <= range.end);
        assert!(known || block.iter().all(|byte| *byte == 0), "the bytes at {at} lie in a hole of {found:?}");
    }
    mount.leave(world).await.expect("nothing was written");
}

/// A cluster with the disk, and somebody who uses it.
fn with_disk<F: Future>(seed: u64, story: impl FnOnce(Rc<Cluster>, World) -> F) -> F::Output {
    let cluster = Rc::new(Cluster::new(seed, SimOptions::default(), 4, 32 << 20, 8 << 20));
    cluster.start();
    let vm = cluster.sim.node("vm");
    cluster.sim.block_on("vm", async {
        vm.sleep(2_000_000).await;
        let peers = Peers::new(vm.clone(), identity(Role::Client));
        let geometry =
            Geometry::new("2+1".parse::<Code>().expect("a code"), 16 << 10, 4).expect("a geometry");
        let block = Some(BLOCKS * BLOCK as u64);
        let create = VolumeCreate { block, ..volume_create(DISK, geometry, 4) };
        while peers.call(meta(), Epoch(0), &create, Buf::empty()).await.is_err() {
            vm.sleep(100_000).await;
        }
        story(cluster.clone(), vm.clone()).await
    })
}

/// Gates die one after the other, sometimes with everything else. Returns how many flushes were answered.
pub(crate) fn run(seed: u64) -> u64 {
    let write_through = seed.is_multiple_of(4);
    with_disk(seed, async |cluster, vm| {
        let model = RefCell::new(Model::new());
        start_gate(&cluster, "gate0", write_through, 1 << 20);
        for round in 0..4 {
            let (node, next) = (format!("gate{round}"), format!("gate{}", round + 1));
            // The next gate is there before it is needed; without a client it is in nobody's way.
            start_gate(&cluster, &next, write_through, 1 << 20);
            let until = 500_000 + vm.random() % 3_000_000;
            let worked = vm.timeout(until, work(&vm, &node, &model, write_through)).await;
            assert!(worked.is_none(), "nothing breaks while everybody lives");
            cluster.sim.kill(&node);
            if round == 2 {
                cluster.power_cut_all();
                cluster.start();
            }
            let mut nbd = connect(&vm, &next).await;
            let len = (BLOCKS * BLOCK as u64) as u32;
            let found = nbd.ask(READ, 0, 0, len, Buf::empty()).await.expect("the disk can be read");
            model.borrow_mut().compare(&found);
            drop(nbd);
            check_holes(&vm, &found).await;
        }
        model.into_inner().flushes
    })
}

/// A client whose requests hang gives its connection up, has the last of them carried out on another one, and then writes
/// something else there. The gate has not even read that request from the first connection, and must not do so now.
pub(crate) fn a_request_that_waited(seed: u64) {
    const OLD: u64 = 1;
    const NEW: u64 = 2;
    let at = BLOCKS - 1;
    let (offset, len) = (at * BLOCK as u64, BLOCK as u32);
    with_disk(seed, async |cluster, vm| {
        start_gate(&cluster, "gate", false, 16 << 20);
        let (mut one, mut other) = (connect(&vm, "gate").await, connect(&vm, "gate").await);
        let cut = |is_cut| {
            (0..4).for_each(|brick| cluster.sim.partition("gate", &brick_node(brick), is_cut));
        };
        cut(true);
        // As many as are taken at a time, each of which must become stable; behind them the one that matters.
        for _ in 0..128 {
            one.send(WRITE, FUA, 0, len, Buf::copy_of(&block(OLD, 0)))
                .await
                .expect("they have room on the way");
        }
        one.send(WRITE, 0, offset, len, Buf::copy_of(&block(OLD, at))).await.expect("so has this one");
        vm.sleep(300_000).await;
        drop(one);
        vm.sleep(100_000).await;
        for salt in [OLD, NEW] {
            other.ask(WRITE, 0, offset, len, Buf::copy_of(&block(salt, at))).await.expect("it is buffered");
        }
        cut(false);
        vm.sleep(5_000_000).await;
        other.ask(FLUSH, 0, 0, 0, Buf::empty()).await.expect("the bricks are back");
        let found = other.ask(READ, 0, offset, len, Buf::empty()).await.expect("the disk can be read");
        assert!(found == block(NEW, at), "seed {seed}: an old request came after a newer one");
    });
}

/// A gate loses its lease, and with it what it held back. Who comes then may be one more connection of a client that has
/// others: it is let in when those are closed, or its flush fails. Returns whether it was let in so late.
pub(crate) fn a_lost_lease(seed: u64) -> bool {
    with_disk(seed, async |cluster, vm| {
        start_gate(&cluster, "gate", false, 16 << 20);
        let mut one = connect(&vm, "gate").await;
        let body = Buf::copy_of(&block(1, 0));
        one.ask(WRITE, 0, 0, BLOCK as u32, body).await.expect("it is buffered");
        if seed.is_multiple_of(2) {
            // More than the way has room for, and it takes none of it.
            for _ in 0..9 {
                let len = (BLOCKS * BLOCK as u64) as u32;
                one.send(READ, 0, 0, len, Buf::empty()).await.expect("the gate listens");
            }
            vm.sleep(500_000).await;
        }
        // The bricks too, for they take what the gate holds back as long as they know nothing.
        let nodes = (0..4).map(brick_node).chain(["meta".to_owned()]);
        nodes.clone().for_each(|node| cluster.sim.partition("gate", &node, true));
        vm.sleep(3 * LEASE_US).await;
        nodes.for_each(|node| cluster.sim.partition("gate", &node, false));
        // Until the gate is a client of the cluster again, under another name.
        vm.sleep(vm.random() % (4 * LEASE_US)).await;
        let begun = vm.now();
        let mut other = connect(&vm, "gate").await;
        assert!(
            vm.now() - begun < 6 * LEASE_US,
            "seed {seed}: a client that takes no answers keeps others out"
        );
        // The news may be slower than the other one's answer was.
        vm.sleep(10_000).await;
        let covers = other.ask(FLUSH, 0, 0, 0, Buf::empty()).await.is_ok();
        assert!(!covers || one.receiver.is_hung_up(), "seed {seed}: a flush covers what is lost");
        covers
    })
}
