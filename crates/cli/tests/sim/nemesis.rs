//! Who does it: transient faults for as long as the clients work, and what stays with some bricks.

use std::collections::BTreeSet;

use world::World;
use world::sim::DiskFaults;

use crate::cluster::{brick_node, meta_nodes};
use crate::storm::Storm;
use crate::swarm::{PersistentFault, TransientFault};

/// A process is told to die within so many polls, or up to `2^POLLS_DOUBLED` times as many: an operation of a brick takes
/// some ten, and one that has little to do takes few in all the time that it has.
const POLLS_MIN: u64 = 8;
const POLLS_DOUBLED: u64 = 8;
/// How long it has for them, in microseconds.
const POLLS_US: u64 = 500_000;
/// A brick that is away for so long is put Out, in microseconds.
const OUTAGE_US: u64 = 6_000_000;
/// How often the metadata service dies while a brick that is back is brought level and admitted, and how soon again.
const ADMISSION_KILLS: u32 = 4;
const ADMISSION_PAUSE_US: u64 = 400_000;
/// Pause after a power cut of everything, in microseconds.
const ALL_DOWN_PAUSE_US: u64 = 3_000_000;
/// Blocks rot that were written so long ago, in microseconds: longer than a brick is away without being put Out. What was
/// written just before a brick's last sync nothing tells from a torn write.
const RESTED_US: u64 = 4_000_000;
/// A brick whose writes go astray is cut off for so long before it ends, in microseconds: some syncs of a disk that no
/// fault makes slower. What it was given last, and its journal does not tell of yet, would look torn at its next start.
const ASTRAY_US: u64 = 700_000;
/// How soon the end of a process is noticed that ended by itself, in microseconds.
const REAP_US: u64 = 5_000;

impl Storm<'_> {
    /// Transient faults, one after the other, until the clients are done.
    pub(crate) async fn transient_faults(&self, world: &World) {
        while !self.faults_are_over() {
            world.sleep(50_000 + self.prng.below(self.config.pace_us)).await;
            if self.config.transient.is_empty() || self.faults_are_over() {
                continue;
            }
            let brick = self.prng.below(u64::from(self.config.bricks)) as u32;
            let node = brick_node(brick);
            match self.prng.pick(&self.config.transient) {
                TransientFault::Kill => self.down(world, &node, |sim| sim.kill(&node)).await,
                TransientFault::KillAtPoll => self.down_at_poll(world, &node, false).await,
                TransientFault::PowerCut if self.prng.coin() => self.down_at_poll(world, &node, true).await,
                TransientFault::PowerCut => self.down(world, &node, |sim| sim.power_cut(&node)).await,
                TransientFault::PowerCutAll => self.all_down(world).await,
                TransientFault::KillMeta if self.prng.coin() => {
                    self.down_at_poll(world, self.a_meta(), false).await;
                }
                TransientFault::KillMeta => {
                    let meta = self.a_meta();
                    self.down(world, meta, |sim| sim.kill(meta)).await;
                }
                TransientFault::PowerCutMeta => self.down_at_poll(world, self.a_meta(), true).await,
                TransientFault::MetaCut => self.cut_off_meta(world).await,
                TransientFault::Relay => self.relays_misbehave(world).await,
                TransientFault::Cable => self.cut_a_cable(world).await,
                TransientFault::Rail => self.cut_a_rail(world).await,
                TransientFault::Unreached => self.unreached(world).await,
                transient => self.trouble(world, transient, &node).await,
            }
        }
    }

    /// One of the metadata servers.
    fn a_meta(&self) -> &'static str {
        match meta_nodes() {
            [only] => only,
            several => self.prng.pick(several),
        }
    }

    /// A metadata server does not reach the others, or they do not reach it.
    async fn cut_off_meta(&self, world: &World) {
        let (sim, node, how) = (&self.cluster.sim, self.a_meta(), self.prng.below(3));
        let others = || meta_nodes().iter().filter(|other| **other != node);
        let cut = |cut| {
            others().for_each(|other| match how {
                0 => sim.partition(node, other, cut),
                1 => sim.cut_one_way(node, other, cut),
                _ => sim.cut_one_way(other, node, cut),
            });
        };
        cut(true);
        world.sleep(self.prng.below(6_000_000)).await;
        cut(false);
    }

    /// A process ends now, and is started again.
    async fn down(&self, world: &World, node: &str, end: impl Fn(&world::Simulation)) {
        if self.claim(node) {
            self.rest_if_astray(world, &[node.to_owned()]).await;
            end(&self.cluster.sim);
            world.sleep(self.prng.below(700_000)).await;
            self.up_again(node);
        }
    }

    /// A process ends before one of its next polls, or soon after, and is started again.
    async fn down_at_poll(&self, world: &World, node: &str, power_cut: bool) {
        if self.is_astray(node) || !self.claim(node) {
            return;
        }
        let sim = &self.cluster.sim;
        sim.kill_at(node, self.prng.below(POLLS_MIN << self.prng.below(POLLS_DOUBLED)), power_cut);
        let until = world.now() + POLLS_US;
        while sim.is_alive(node) && world.now() < until {
            world.sleep(self.prng.below(50_000)).await;
        }
        match (sim.is_alive(node), power_cut) {
            (false, _) => {}
            (true, false) => sim.kill(node),
            (true, true) => sim.power_cut(node),
        }
        world.sleep(self.prng.below(500_000)).await;
        self.up_again(node);
    }

    /// All bricks and the metadata service lose power, and come back one after the other, within their leases.
    async fn all_down(&self, world: &World) {
        let mut nodes: Vec<String> = (0..self.config.bricks).map(brick_node).collect();
        nodes.extend(meta_nodes().iter().map(|node| (*node).to_owned()));
        nodes.retain(|node| self.claim(node));
        self.rest_if_astray(world, &nodes).await;
        nodes.iter().for_each(|node| self.cluster.sim.power_cut(node));
        world.sleep(self.prng.below(500_000)).await;
        while !nodes.is_empty() {
            let node = nodes.swap_remove(self.prng.below(nodes.len() as u64) as usize);
            self.up_again(&node);
            world.sleep(self.prng.below(40_000)).await;
        }
        // Somebody must get a word in between.
        world.sleep(ALL_DOWN_PAUSE_US).await;
    }

    /// A node is this fault's alone, if it runs and nobody has it.
    pub(crate) fn claim(&self, node: &str) -> bool {
        self.cluster.sim.is_alive(node) && self.down.borrow_mut().insert(node.to_owned())
    }

    /// Writes of this node's brick go astray, or will.
    pub(crate) fn is_astray(&self, node: &str) -> bool {
        let astray = |(brick, what): &(u32, PersistentFault)| {
            *what == PersistentFault::Misdirect && brick_node(*brick) == node
        };
        self.config.persistent.iter().any(astray)
    }

    /// Those of some nodes whose writes go astray are given nothing more, and have time to tell what they hold.
    async fn rest_if_astray(&self, world: &World, nodes: &[String]) {
        let astray: Vec<&String> = nodes.iter().filter(|node| self.is_astray(node)).collect();
        for node in &astray {
            self.cut_off(node, true);
        }
        if !astray.is_empty() {
            world.sleep(ASTRAY_US).await;
        }
    }

    /// Cuts a node off from all others, or ends that.
    fn cut_off(&self, node: &str, cut: bool) {
        let bricks = (0..self.config.bricks).map(brick_node);
        let metas = meta_nodes().iter().copied();
        let others = bricks.chain(["clienta", "clientb"].into_iter().chain(metas).map(str::to_owned));
        others.filter(|other| other != node).for_each(|other| self.cluster.sim.partition(node, &other, cut));
    }

    /// Whether a node is cut off from all others: that lasts longer than any other fault between two nodes.
    pub(crate) fn is_cut_off(&self, node: &str) -> bool {
        self.is_astray(node) && self.down.borrow().contains(node)
    }

    pub(crate) fn up_again(&self, node: &str) {
        self.down.borrow_mut().remove(node);
        if self.is_astray(node) {
            self.cut_off(node, false);
        }
        match node.strip_prefix("brick").and_then(|number| number.parse().ok()) {
            None => self.cluster.start_meta_server(node),
            // A brick whose disk failed meanwhile stays away.
            Some(brick) if self.dead.borrow().contains(&brick) => {}
            Some(brick) => self.cluster.start_brick(brick),
        }
    }

    /// Something that ends no process.
    async fn trouble(&self, world: &World, transient: TransientFault, node: &str) {
        let sim = &self.cluster.sim;
        let peers = ["clienta", "clientb", self.a_meta()].map(str::to_owned);
        let bricks: Vec<String> =
            (0..self.config.bricks).map(brick_node).filter(|other| other != node).collect();
        let other = match self.prng.below(2) {
            0 => &peers[self.prng.below(3) as usize],
            _ => &bricks[self.prng.below(bricks.len() as u64) as usize],
        };
        match transient {
            TransientFault::Partition => {
                sim.partition(node, other, true);
                world.sleep(self.prng.below(900_000)).await;
                if !self.is_cut_off(node) && !self.is_cut_off(other) {
                    sim.partition(node, other, false);
                }
            }
            TransientFault::OneWayPartition => {
                let (from, to) = if self.prng.coin() { (node, &**other) } else { (&**other, node) };
                sim.cut_one_way(from, to, true);
                world.sleep(self.prng.below(900_000)).await;
                if !self.is_cut_off(from) && !self.is_cut_off(to) {
                    sim.cut_one_way(from, to, false);
                }
            }
            TransientFault::Halves => {
                // As where the cables of two lines of a torus are cut: the first bricks here, the others there.
                let first = 1 + self.prng.below(u64::from(self.config.bricks) - 1) as usize;
                let mut here: Vec<String> = (0..self.config.bricks).map(brick_node).collect();
                let mut there = here.split_off(first);
                peers.iter().for_each(|peer| {
                    if self.prng.coin() { here.push(peer.clone()) } else { there.push(peer.clone()) }
                });
                let pairs = || here.iter().flat_map(|a| there.iter().map(move |b| (a, b)));
                pairs().for_each(|(a, b)| sim.partition(a, b, true));
                world.sleep(self.prng.below(900_000)).await;
                let healed = pairs().filter(|(a, b)| !self.is_cut_off(a) && !self.is_cut_off(b));
                healed.for_each(|(a, b)| sim.partition(a, b, false));
            }
            TransientFault::SlowLink => {
                sim.slow_link(node, other, self.prng.pick(&[5_000, 50_000, 400_000]));
                world.sleep(self.prng.below(2_000_000)).await;
                sim.slow_link(node, other, 0);
            }
            // Else nobody knows how long the journal takes to tell what it holds.
            _ if self.is_astray(node) => {}
            _ => {
                sim.slow_disk(node, "disk", self.prng.pick(&[3, 20, 100]));
                world.sleep(self.prng.below(2_000_000)).await;
                sim.slow_disk(node, "disk", 1);
            }
        }
    }

    /// What stays with one brick.
    pub(crate) async fn persistent_fault(&self, world: &World, brick: u32, persistent: PersistentFault) {
        let (sim, node, within) = (&self.cluster.sim, brick_node(brick), self.cluster.data.clone());
        world.sleep(self.prng.below(4_000_000)).await;
        let faults = |read_error_per_million, misdirect_per_million| DiskFaults {
            within: within.clone(),
            read_error_per_million,
            misdirect_per_million,
            ..DiskFaults::default()
        };
        match persistent {
            PersistentFault::Outage | PersistentFault::MetaPartition => {
                while !self.faults_are_over() && !self.claim(&node) {
                    world.sleep(100_000).await;
                }
                if !self.faults_are_over() {
                    self.away(world, &node, persistent == PersistentFault::MetaPartition).await;
                }
            }
            PersistentFault::Rot => {
                self.rotten.borrow_mut().insert(brick);
                while !self.faults_are_over() {
                    sim.rot(&node, "disk", within.clone(), 1 + self.prng.below(8), RESTED_US);
                    world.sleep(self.prng.below(1_000_000)).await;
                }
            }
            PersistentFault::Misdirect => {
                self.rotten.borrow_mut().insert(brick);
                sim.disk_faults(&node, "disk", faults(0, self.prng.pick(&[10_000, 200_000])));
            }
            PersistentFault::ReadErrors => {
                self.rotten.borrow_mut().insert(brick);
                sim.disk_faults(&node, "disk", faults(self.prng.pick(&[10_000, 300_000]), 0));
            }
            PersistentFault::FailSync | PersistentFault::Full => {
                self.dead.borrow_mut().insert(brick);
                let (fail_sync, full) =
                    (persistent == PersistentFault::FailSync, persistent == PersistentFault::Full);
                sim.disk_faults(&node, "disk", DiskFaults { fail_sync, full, ..DiskFaults::default() });
            }
        }
    }

    /// A brick is away until others have its place, dead or cut off from who says so. When it is back, admissions and their
    /// answers get lost.
    async fn away(&self, world: &World, node: &str, cut_off: bool) {
        let sim = &self.cluster.sim;
        match cut_off {
            true => meta_nodes().iter().for_each(|meta| sim.partition(node, meta, true)),
            false => sim.kill(node),
        }
        world.sleep(OUTAGE_US).await;
        if cut_off {
            meta_nodes().iter().for_each(|meta| sim.partition(node, meta, false));
            self.down.borrow_mut().remove(node);
        } else {
            self.up_again(node);
        }
        for _ in 0..if self.prng.coin() { ADMISSION_KILLS } else { 0 } {
            world.sleep(self.prng.below(ADMISSION_PAUSE_US)).await;
            self.down_at_poll(world, self.a_meta(), self.prng.coin()).await;
        }
    }

    /// Sees that the rest of a process goes with it when its brick has ended, until the faults are over.
    pub(crate) async fn reap(&self, world: &World) {
        while !self.faults_are_over() {
            self.reap_ended();
            world.sleep(REAP_US).await;
        }
    }

    pub(crate) fn reap_ended(&self) {
        let ended = std::mem::take(&mut *self.cluster.ended.borrow_mut());
        for (brick, why) in ended {
            self.cluster.sim.kill(&brick_node(brick));
            let expected = self.dead.borrow().contains(&brick) || self.rotten.borrow().contains(&brick);
            assert!(expected, "seed {}: b{brick} has ended by itself: {why}", self.seed);
            self.dead.borrow_mut().insert(brick);
        }
    }

    /// All faults stop, but for what stays.
    pub(crate) fn heal(&self) {
        for brick in 0..self.config.bricks {
            let faults = match self.dead.borrow().contains(&brick) {
                // A brick that has not noticed yet that its disk fails is still to find out.
                true => continue,
                false => DiskFaults::default(),
            };
            self.cluster.sim.disk_faults(&brick_node(brick), "disk", faults);
        }
    }

    /// Bricks that are no longer what they should be.
    pub(crate) fn harmed(&self) -> BTreeSet<u32> {
        self.rotten.borrow().union(&self.dead.borrow()).copied().collect()
    }
}
