//! A file that several machines write, read and truncate at once behaves as if one thing were done after the other:
//! messages are late, lost and doubled, processes die, and every read is fitted into the history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use client::{ClientError, Encode, SetAttrs};
use futures_util::future::{join, join3};
use types::messages::names::Owner;
use types::{InodeId, Refusal};
use world::World;
use world::sim::{Fault, SimOptions};

use crate::check::history::{History, filled, value_of};
use crate::cluster::{Client, Cluster, brick_node, create_volume};
use crate::prng::Prng;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const NAME: &[u8] = b"file";
const BLOCK: usize = 4096;
const UNIT: u32 = 8 << 10;
const STRIPES: u64 = 5;
const BLOCKS: u64 = STRIPES * 2 * UNIT as u64 / BLOCK as u64;
const BRICKS: u32 = 4;
/// What each client does.
const STEPS: u32 = 60;
const SEEDS: u64 = 40;

struct Story<'a> {
    cluster: &'a Cluster,
    prng: Prng,
    seed: u64,
    history: RefCell<History>,
    /// A client has lost its lease.
    lost: Cell<bool>,
}

/// What came of a seed.
struct Outcome {
    /// Connections that broke.
    broken: u64,
    /// No client has lost its lease.
    whole: bool,
}

impl Story<'_> {
    fn must(&self, checked: Result<(), String>) {
        if let Err(why) = checked {
            panic!("seed {}: {why}", self.seed);
        }
    }

    /// A range of blocks: a few, or from somewhere to somewhere.
    fn range(&self) -> (u64, u64) {
        let first = self.prng.below(BLOCKS);
        let len = if self.prng.coin() { 1 } else { 1 + self.prng.below(8) };
        (first, len.min(BLOCKS - first))
    }

    async fn work(&self, client: &Client, inode: InodeId, writes: bool) {
        match self.steps(client, inode, writes).await {
            Ok(()) => {}
            // Stalls can be so many that no poll comes through for as long as a lease lasts.
            Err(ClientError::Refused(Refusal::Fenced)) => self.lost.set(true),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    async fn steps(&self, client: &Client, inode: InodeId, writes: bool) -> Result<(), ClientError> {
        let opened = client.session.open(inode, writes, false).await?;
        for _ in 0..STEPS {
            match self.prng.below(8) {
                _ if !writes => self.read(client, opened.handle).await?,
                0 => self.cut(client, inode).await?,
                1..=4 => self.write(client, opened.handle).await?,
                _ => self.read(client, opened.handle).await?,
            }
            client.world.sleep(self.prng.below(3_000)).await;
        }
        client.session.release(opened.handle).await
    }

    async fn cut(&self, client: &Client, inode: InodeId) -> Result<(), ClientError> {
        // Cut off whole or in part, often somewhere in a stripe.
        let blocks = if self.prng.below(4) == 0 { 0 } else { self.prng.below(BLOCKS) };
        let number = self.history.borrow_mut().cut(blocks);
        let changes = SetAttrs { size: Some(blocks * BLOCK as u64), ..SetAttrs::default() };
        client.session.setattr(inode, changes).await?;
        self.history.borrow_mut().has_cut(number);
        Ok(())
    }

    async fn write(&self, client: &Client, handle: u64) -> Result<(), ClientError> {
        let (first, len) = self.range();
        let value = self.history.borrow_mut().write(first..first + len);
        let bytes = filled(value, len as usize);
        client.session.write(handle, first * BLOCK as u64, &bytes).await?;
        self.history.borrow_mut().written(value);
        Ok(())
    }

    async fn read(&self, client: &Client, handle: u64) -> Result<(), ClientError> {
        let (first, len) = self.range();
        let start = self.history.borrow_mut().tick();
        let found = client.session.read(handle, first * BLOCK as u64, len as usize * BLOCK).await?;
        self.found(start, first, len, &found);
        Ok(())
    }

    fn found(&self, start: u64, first: u64, len: u64, found: &[u8]) {
        self.must(self.history.borrow_mut().read_blocks(start, first, len, found));
    }

    /// Makes the file long, so that nothing beyond the end stays hidden, and reads it.
    async fn show(&self, client: &Client, inode: InodeId) -> Result<(), ClientError> {
        let opened = client.session.open(inode, true, false).await?;
        let changes = SetAttrs { size: Some(BLOCKS * BLOCK as u64), ..SetAttrs::default() };
        client.session.setattr(inode, changes).await?;
        let start = self.history.borrow_mut().tick();
        let found = client.session.read(opened.handle, 0, BLOCKS as usize * BLOCK).await?;
        assert_eq!(found.len(), BLOCKS as usize * BLOCK);
        self.found(start, 0, BLOCKS, &found);
        let values: BTreeMap<u64, u64> =
            (0..).zip(found.chunks(BLOCK).map(|block| value_of(block).unwrap_or(0))).collect();
        let whole = self.history.borrow().all_or_nothing(&values, 2 * u64::from(UNIT) / BLOCK as u64);
        self.must(whole.map(drop));
        client.session.release(opened.handle).await
    }

    /// Processes die one at a time, and are back before their leases have run out.
    async fn deaths(&self, world: &World) {
        for _ in 0..2 {
            world.sleep(self.prng.below(2_000_000)).await;
            if self.prng.below(3) == 0 {
                self.cluster.sim.kill("meta");
                world.sleep(self.prng.below(500_000)).await;
                self.cluster.start_meta();
            } else {
                let brick = self.prng.below(u64::from(BRICKS)) as u32;
                self.cluster.sim.kill(&brick_node(brick));
                world.sleep(self.prng.below(500_000)).await;
                self.cluster.start_brick(brick);
            }
            world.sleep(2_000_000).await;
        }
    }
}

/// Runs one seed, with or without deaths.
fn run(seed: u64, deaths: bool) -> Outcome {
    let prng = Prng::new(seed ^ 0x0063_7574_7300);
    let options = SimOptions {
        stall_per_million: prng.pick(&[1_000, 20_000, 100_000]),
        stall_us: 1_000..prng.pick(&[10_000, 300_000]),
        break_per_million: prng.pick(&[0, 1_000, 5_000]),
        ..SimOptions::default()
    };
    let cluster = Cluster::new(seed, options, BRICKS, 32 << 20, 8 << 20);
    cluster.start();
    let story = Story { cluster: &cluster, prng, seed, history: RefCell::default(), lost: Cell::new(false) };
    let driver = cluster.sim.node("driver");
    cluster.sim.block_on("driver", async {
        driver.sleep(2_000_000).await;
        create_volume(&driver, "2+1", UNIT, 4, 3).await;
        let mut clients = Vec::new();
        for name in ["clienta", "clientb", "clientc"] {
            clients.push(Client::mount(cluster.sim.node(name), 1 << 20, Encode::Primary).await);
        }
        let [a, b, c] = clients.as_slice() else { unreachable!("three were mounted") };
        let made = a.session.create(InodeId::ROOT, NAME, OWNER).await.expect("created");
        a.session.release(made.handle).await.expect("closed");
        let inode = made.attr.inode;
        // One of them only reads, in half of the runs.
        let all_write = story.prng.coin();
        let work =
            join3(story.work(a, inode, true), story.work(b, inode, true), story.work(c, inode, all_write));
        let dying = async {
            if deaths {
                story.deaths(&driver).await;
            }
        };
        join(work, dying).await;
        if !story.lost.get() {
            match story.show(b, inode).await {
                // Its connection has broken twice in a row.
                Err(ClientError::Refused(Refusal::Fenced)) => story.lost.set(true),
                shown => shown.expect("shown"),
            }
        }
    });
    Outcome { broken: cluster.sim.faults(Fault::Break), whole: !story.lost.get() }
}

fn seeds() -> std::ops::Range<u64> {
    let first = crate::number("SHOAL_SEED", 1);
    first..first + crate::number("SHOAL_SEEDS", SEEDS)
}

fn run_all(deaths: bool) {
    crate::log_if_asked();
    let outcomes: Vec<Outcome> = seeds().map(|seed| run(seed, deaths)).collect();
    let whole = outcomes.iter().filter(|outcome| outcome.whole).count();
    assert!(whole * 10 >= outcomes.len() * 9, "{whole} of {} kept their leases", outcomes.len());
    let broken: u64 = outcomes.iter().map(|outcome| outcome.broken).sum();
    assert!(broken > 0 || outcomes.len() < SEEDS as usize, "no connection broke");
}

#[test]
fn cuts_of_a_shared_file_are_in_order_with_the_rest() {
    run_all(false);
}

#[test]
fn cuts_of_a_shared_file_are_in_order_with_the_rest_while_processes_die() {
    run_all(true);
}
