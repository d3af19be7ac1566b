//! A fault of storms: a daemon and some others do not reach each other for seconds, or only one way, and all go on renewing their leases.

use world::World;

use crate::cluster::{brick_node, meta_nodes};
use crate::storm::Storm;

/// How long two daemons are apart at most, in microseconds: until a brick is put Out because others do not reach it, and longer.
const APART_US: u64 = 12_000_000;
/// How long one is apart from the metadata service at most: shorter than leases last, with the time of a beat that is given up.
const WITHOUT_META_US: u64 = 1_200_000;
/// Nodes besides the bricks.
const CLIENTS: [&str; 2] = ["clienta", "clientb"];

/// Who does not reach whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Apart {
    /// Two bricks: a pair proves nothing, and writes of their groups wait.
    Bricks,
    /// A brick and several others, as many as all: it is held, if groups can do without it.
    BrickAndMany,
    ClientAndBrick,
    ClientAndSeveral,
    BrickAndMeta,
    ClientAndMeta,
}

impl Apart {
    pub(crate) const ALL: [Apart; 6] = [
        Apart::Bricks,
        Apart::BrickAndMany,
        Apart::ClientAndBrick,
        Apart::ClientAndSeveral,
        Apart::BrickAndMeta,
        Apart::ClientAndMeta,
    ];
}

impl Storm<'_> {
    /// Two daemons, or one and several, are apart for a while.
    pub(crate) async fn unreached(&self, world: &World) {
        let mut apart = self.prng.pick(&Apart::ALL);
        let names: Vec<String> = (0..self.config.bricks).map(brick_node).collect();
        let bricks: Vec<&str> = names.iter().map(String::as_str).collect();
        let (brick, client) = (self.prng.pick(&bricks), self.prng.pick(&CLIENTS));
        // Each time that a brick is held takes twice as long; and storms end.
        if apart == Apart::BrickAndMany && self.held_once.replace(true) {
            apart = Apart::Bricks;
        }
        let rest: Vec<&str> = bricks.iter().copied().filter(|other| *other != brick).collect();
        let (one, others, most_us) = match apart {
            Apart::Bricks => (brick, vec![self.prng.pick(&rest)], APART_US),
            Apart::BrickAndMany if self.prng.coin() => (brick, [&rest[..], &CLIENTS].concat(), APART_US),
            Apart::BrickAndMany => {
                let clients = self.prng.subset(&CLIENTS);
                (brick, [self.prng.subset(&rest), clients].concat(), APART_US)
            }
            Apart::ClientAndBrick => (client, vec![brick], APART_US),
            Apart::ClientAndSeveral => (client, self.prng.subset(&bricks), APART_US),
            Apart::BrickAndMeta => (brick, meta_nodes().to_vec(), WITHOUT_META_US),
            Apart::ClientAndMeta => (client, meta_nodes().to_vec(), WITHOUT_META_US),
        };
        let how = self.prng.below(3);
        self.set_apart(one, &others, how, true);
        self.tally.borrow_mut().unreached[apart as usize] += 1;
        let until = world.now() + self.prng.below(most_us);
        while world.now() < until && !self.faults_are_over() {
            world.sleep(50_000).await;
        }
        let is_over = |other: &&str| !self.is_cut_off(other) && !self.is_cut_off(one);
        let healed: Vec<&str> = others.iter().copied().filter(is_over).collect();
        self.set_apart(one, &healed, how, false);
    }

    fn set_apart(&self, one: &str, others: &[&str], how: u64, cut: bool) {
        let sim = &self.cluster.sim;
        others.iter().for_each(|other| match how {
            0 => sim.partition(one, other, cut),
            1 => sim.cut_one_way(one, other, cut),
            _ => sim.cut_one_way(other, one, cut),
        });
    }
}
