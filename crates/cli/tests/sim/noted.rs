//! Sizes that only the bricks know: programs append records to logs and sync them, while bricks and metadata servers die. Then their
//! machine dies as well. Whoever looks at a log next finds everything that was synced, and nothing that was never written; so does
//! whoever asks for its attributes at any time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use client::{Encode, SetAttrs};
use types::InodeId;
use types::messages::names::Owner;
use world::World;
use world::sim::SimOptions;

use crate::check::liveness::RECOVERY_US;
use crate::cluster::{Client, Cluster, META_NODES, brick_node, create_volume, meta_nodes};
use crate::prng::Prng;
use crate::scenario::bytes_of;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const BRICKS: u32 = 5;
/// Bytes of the longest log.
const LOG: usize = 512 << 10;

/// What the programs that append to a log have done, and were told.
#[derive(Default)]
struct Log {
    /// Up to here the bytes are there for good.
    synced: Cell<usize>,
    /// What was written, as far as anybody has begun to.
    bytes: RefCell<Vec<u8>>,
    /// What it was before the cut that is under way.
    uncut: RefCell<Option<Vec<u8>>>,
    /// Ends of records, of which all before were written too.
    written: Cell<usize>,
    /// Records that were written and are not next to these.
    apart: RefCell<BTreeSet<(usize, usize)>>,
    /// Other bytes after each cut.
    cuts: Cell<u64>,
}

impl Log {
    /// Where the next record lies, and its bytes.
    fn begin(&self, prng: &Prng) -> (usize, Vec<u8>) {
        let mut all = self.bytes.borrow_mut();
        let (at, len) = (all.len(), 1 + prng.below(6000) as usize);
        let record = bytes_of(1000 * self.cuts.get() + at as u64, len.min(LOG - at));
        all.extend(&record);
        (at, record)
    }

    fn is_written(&self, at: usize, end: usize) {
        let mut apart = self.apart.borrow_mut();
        apart.insert((at, end));
        while let Some(&(from, to)) = apart.first().filter(|(from, _)| *from <= self.written.get()) {
            apart.remove(&(from, to));
            self.written.set(self.written.get().max(to));
        }
    }

    /// Whether a log that was found may be this one.
    fn may_be(&self, found: &[u8]) -> bool {
        let is_start = |of: &[u8]| found.len() <= of.len() && *found == of[..found.len()];
        let uncut = self.uncut.borrow();
        found.len() >= self.synced.get()
            && (is_start(&self.bytes.borrow()) || uncut.as_ref().is_some_and(|uncut| is_start(uncut)))
    }
}

/// A program that appends records and syncs them until its machine dies. Alone it cuts the log now and then, or writes its end
/// once more.
async fn append(client: Rc<Client>, inode: InodeId, handle: u64, prng: Prng, log: Rc<Log>, alone: bool) {
    loop {
        match prng.below(40) {
            0 if alone && log.synced.get() > 0 => {
                let size = log.synced.get() - prng.below(log.synced.get().min(5000) as u64) as usize;
                log.uncut.replace(Some(log.bytes.borrow().clone()));
                log.synced.set(size);
                log.bytes.borrow_mut().truncate(size);
                log.cuts.set(log.cuts.get() + 1);
                let changes = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
                if client.session.setattr(inode, changes).await.is_err() {
                    return;
                }
                log.written.set(size);
                log.uncut.replace(None);
                continue;
            }
            1 => client.world.sleep(prng.below(3_000_000)).await,
            _ => {}
        }
        let (at, record) = log.begin(&prng);
        if record.is_empty() {
            return std::future::pending().await;
        }
        if client.session.write(handle, at as u64, &record).await.is_err() {
            return;
        }
        log.is_written(at, at + record.len());
        match prng.below(8) {
            0 => client.world.sleep(prng.below(1_500_000)).await,
            1 => continue,
            _ => {}
        }
        let written = log.written.get();
        if prng.below(30) == 0 {
            // A program that is interrupted.
            let fsync = Box::pin(client.session.fsync(handle));
            client.world.timeout(prng.below(2000), fsync).await;
            continue;
        }
        if client.session.fsync(handle).await.is_err() {
            return;
        }
        log.synced.set(log.synced.get().max(written));
    }
}

/// A program that makes files, each of which it syncs a few times: the machine's notes are many.
async fn make_journals(client: Rc<Client>, round: u64, prng: Prng) {
    for n in 0u64.. {
        let name = format!("journal{round}-{n}").into_bytes();
        let Ok(opened) = client.session.create(InodeId::ROOT, &name, OWNER).await else { return };
        for at in 0..5 {
            let written = client.session.write(opened.handle, at * 100, &[7; 100]).await;
            if written.is_err() || client.session.fsync(opened.handle).await.is_err() {
                return;
            }
        }
        if client.session.release(opened.handle).await.is_err() {
            return;
        }
        client.world.sleep(prng.below(50_000)).await;
    }
}

/// Kills and starts bricks and metadata servers, one at a time, and then the machine with the programs, `rounds` times.
pub(crate) fn run(seed: u64, rounds: u64) {
    let prng = Prng::new(seed);
    let mut cluster = Cluster::new(seed, SimOptions::default(), BRICKS, 128 << 20, 8 << 20);
    if prng.coin() {
        cluster.with_three_metas();
    }
    cluster.start();
    let driver = cluster.sim.node("driver");
    let (code, losses) = prng.pick(&[("2+1", 1), ("2+2", 2), ("1+2", 2)]);
    cluster.sim.block_on("driver", async {
        driver.sleep(4_000_000).await;
        create_volume(&driver, code, 16 << 10, 4, prng.pick(&[1, 6])).await;
        let looker = Client::mount(driver.clone(), 1 << 20, Encode::Primary).await;
        for round in 0..rounds {
            let logs = begin(&cluster.sim.node("writer"), round, &prng).await;
            for _ in 0..prng.below(4) {
                driver.sleep(prng.below(2_000_000)).await;
                fault(&cluster, &prng).await;
                look(&looker, &logs).await;
            }
            for _ in 0..prng.below(20) {
                driver.sleep(prng.below(300_000)).await;
                look(&looker, &logs).await;
            }
            // All at once: what only the memory of one of them knows is gone.
            cluster.sim.kill("writer");
            if prng.below(3) == 0 {
                meta_nodes().iter().for_each(|node| cluster.sim.kill(node));
                driver.sleep(prng.below(1_000_000)).await;
                meta_nodes().iter().for_each(|node| cluster.start_meta_server(node));
            }
            let lost: BTreeSet<u32> = match prng.below(3) {
                0 => (0..losses).map(|_| prng.below(u64::from(BRICKS)) as u32).collect(),
                _ => BTreeSet::new(),
            };
            lost.iter().for_each(|brick| cluster.sim.power_cut(&brick_node(*brick)));
            if prng.coin() {
                look(&looker, &logs).await;
            }
            if prng.coin() {
                driver.sleep(prng.below(6_000_000)).await;
                lost.iter().for_each(|brick| cluster.start_brick(*brick));
            }
            for (inode, log) in &logs {
                let found =
                    looker.session.open(*inode, true, false).await.expect("the writer is gone").handle;
                let size = looker.session.getattr(*inode).await.expect("known").size as usize;
                let bytes = looker.session.read(found, 0, LOG).await.expect("readable");
                let differs = bytes.iter().zip(&*log.bytes.borrow()).position(|(found, wrote)| found != wrote);
                assert!(
                    bytes.len() == size && log.may_be(&bytes),
                    "seed {seed}, round {round}, {inode}: {size} bytes, {} were synced of {}, first difference {differs:?}",
                    log.synced.get(),
                    log.bytes.borrow().len()
                );
                looker.session.release(found).await.expect("closed");
            }
            for brick in lost {
                cluster.sim.kill(&brick_node(brick));
                cluster.start_brick(brick);
                driver.sleep(RECOVERY_US / 2).await;
            }
        }
    });
}

/// Mounts the volume on a machine, where programs begin to append: one to one log, two to one, or one to each of several.
async fn begin(world: &World, round: u64, prng: &Prng) -> Vec<(InodeId, Rc<Log>)> {
    let client = Rc::new(Client::mount(world.clone(), 1 << 20, Encode::Primary).await);
    let (count, writers) = prng.pick(&[(1, 1), (1, 2), (12, 1)]);
    let mut logs = Vec::new();
    for n in 0..count {
        let name = format!("log{round}-{n}").into_bytes();
        let opened = client.session.create(InodeId::ROOT, &name, OWNER).await.expect("created");
        let (inode, log) = (opened.attr.inode, Rc::new(Log::default()));
        for _ in 0..writers {
            let own = Prng::new(prng.next_u64());
            let work = append(Rc::clone(&client), inode, opened.handle, own, Rc::clone(&log), writers == 1);
            world.spawn("test", work);
        }
        logs.push((inode, log));
    }
    if prng.coin() {
        world.spawn("test", make_journals(client, round, Prng::new(prng.next_u64())));
    }
    logs
}

/// Nobody is shown fewer bytes than were synced when he asked.
async fn look(looker: &Client, logs: &[(InodeId, Rc<Log>)]) {
    for (inode, log) in logs {
        let synced = log.synced.get();
        let attr = looker.session.getattr(*inode).await.expect("the service is there");
        // A cut may have come between.
        assert!(
            attr.size as usize >= synced.min(log.synced.get()),
            "{inode}: {} bytes are shown, {synced} were synced",
            attr.size
        );
    }
}

async fn fault(cluster: &Cluster, prng: &Prng) {
    let driver = cluster.sim.node("driver");
    if prng.coin() {
        let node = prng.pick(&META_NODES[..meta_nodes().len()]);
        cluster.sim.power_cut(node);
        driver.sleep(prng.below(2_000_000)).await;
        cluster.start_meta_server(node);
    } else {
        let brick = prng.below(u64::from(BRICKS)) as u32;
        cluster.sim.power_cut(&brick_node(brick));
        driver.sleep(prng.below(8_000_000)).await;
        cluster.start_brick(brick);
    }
    driver.sleep(RECOVERY_US / 4).await;
}
