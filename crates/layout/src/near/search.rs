//! Chooses the members of each group: greedily, then by replacing one at a time while that helps.

use std::collections::BTreeMap;

use super::bricks::Bricks;
use super::placement::{Placement, Scatter};
use crate::topology::{Topology, Vertex};

/// Most passes over the members of a group in search of better ones.
const PASSES_MAX: usize = 8;
/// Steps after which no more passes are made: only large networks without symmetry come so far.
const STEPS_MAX: u64 = 200_000_000;

/// What the groups chosen so far cost; less is better, the first number first.
type Cost = [u64; 4];

/// Positions in [`Cost`] of what all placements avoid first: members on one node, and bricks in too many groups.
const CROWDED: usize = 0;
const OVER: usize = 1;

/// The groups chosen so far, in numbers that tell what one more member costs.
pub(super) struct Search<'a> {
    bricks: &'a Bricks,
    slots: usize,
    scatter: Scatter,
    /// Bricks for whose groups members are chosen; the groups of all others are images.
    representatives: Vec<usize>,
    /// Per representative, per candidate: the links that a unit from the one to the other crosses, and the same of all
    /// images.
    routes: Vec<Vec<Vec<u32>>>,
    rounds: usize,
    /// Units on each link if each group has one stripe.
    load: Vec<u64>,
    /// Per brick, of which only one of those alike is counted: its groups.
    count: Vec<u64>,
    /// Groups that a brick should be in at most.
    cap: u64,
    /// Per pair of bricks, of which only one of those alike is counted: their common groups.
    met: Vec<u16>,
    /// Per brick, the shift to the first of those alike, that brick, and its row of `met`.
    homes: Vec<Home>,
    cost: Cost,
    steps: u64,
}

#[derive(Clone, Copy)]
struct Home {
    shift: usize,
    brick: usize,
    row: usize,
}

/// A group of which members are being chosen. Candidates are told by their position.
struct Draft<'a> {
    representative: usize,
    primary: usize,
    candidates: &'a [usize],
    chosen: Vec<usize>,
    /// Domains of the chosen ones.
    taken: Vec<bool>,
    /// Per chosen one: what it costs each candidate to meet it.
    costs: Vec<Vec<u64>>,
    /// Per candidate: what it costs to meet all chosen ones and the primary.
    sums: Vec<u64>,
}

impl<'a> Search<'a> {
    pub(super) fn new(placement: &Placement<'_>, bricks: &'a Bricks) -> Search<'a> {
        let representatives = bricks.representatives();
        let mut links = Links::default();
        let routes =
            representatives.iter().map(|&brick| links.routes(brick, bricks, placement.topology)).collect();
        let homes: Vec<(usize, usize)> = (0..bricks.ids.len()).map(|brick| bricks.home(brick)).collect();
        let mut kinds: Vec<usize> = homes.iter().map(|&(_, brick)| brick).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let home = |(shift, brick)| {
            let row = kinds.partition_point(|&kind| kind < brick) * bricks.ids.len();
            Home { shift, brick, row }
        };
        Search {
            bricks,
            slots: placement.code.slots(),
            scatter: placement.scatter,
            representatives,
            routes,
            rounds: 0,
            load: vec![0; links.known.len()],
            count: vec![0; bricks.ids.len()],
            cap: 0,
            met: vec![0; kinds.len() * bricks.ids.len()],
            homes: homes.into_iter().map(home).collect(),
            cost: [0; 4],
            steps: 0,
        }
    }

    /// The members of one more group of each primary.
    pub(super) fn round(&mut self) -> BTreeMap<usize, Vec<usize>> {
        self.rounds += 1;
        self.cap = self.fair_share();
        for brick in self.representatives.clone() {
            self.count[brick] += 1;
        }
        let mut round = BTreeMap::new();
        for at in 0..self.representatives.len() {
            let primary = self.representatives[at];
            let members = self.members(at);
            for shift in 0..self.bricks.symmetry.count() {
                let image = |&brick: &usize| self.bricks.image(shift, brick);
                round.insert(image(&primary), members.iter().map(image).collect());
            }
        }
        round
    }

    /// In how many groups of all rounds a brick should be, rounded up: all are in as many, but for primaries that are in
    /// more groups than that anyway.
    fn fair_share(&self) -> u64 {
        let bricks = self.bricks.ids.len() as u64;
        let leads = self.bricks.may_lead.iter().filter(|&&leads| leads).count() as u64;
        let rounds = self.rounds as u64;
        let places = leads * rounds * self.slots as u64;
        let share = places.div_ceil(bricks);
        if share >= rounds { share } else { (places - leads * rounds).div_ceil((bricks - leads).max(1)) }
    }

    /// Chooses the members of a representative's group, and counts them.
    fn members(&mut self, representative: usize) -> Vec<usize> {
        let mut draft = self.draft(representative);
        while draft.chosen.len() + 1 < self.slots {
            // The candidates are the nearest first: where the time is used up, near is all that is looked for.
            let best = match self.steps > STEPS_MAX {
                true => self.free(&draft).next(),
                false => self.best(&draft).map(|(_, best)| best),
            };
            self.put(&mut draft, best.expect("the radius holds enough domains"));
        }
        for _ in 0..PASSES_MAX {
            if self.steps > STEPS_MAX || !self.improve(&mut draft) {
                break;
            }
        }
        draft.chosen.iter().map(|&position| draft.candidates[position]).collect()
    }

    fn draft(&self, representative: usize) -> Draft<'a> {
        let bricks = self.bricks;
        let primary = self.representatives[representative];
        let candidates = &bricks.candidates[primary];
        Draft {
            representative,
            primary,
            candidates,
            chosen: Vec::with_capacity(self.slots),
            taken: vec![false; bricks.ids.len()],
            costs: Vec::with_capacity(self.slots),
            sums: candidates.iter().map(|&brick| self.cost_of_meeting(brick, primary)).collect(),
        }
    }

    /// Replaces each member by the best candidate. Says whether anything became better.
    fn improve(&mut self, draft: &mut Draft<'_>) -> bool {
        let before = self.cost;
        for _ in 0..draft.chosen.len() {
            let cost = self.cost;
            let old = self.take_first(draft);
            let better = self.best(draft).filter(|&(better, _)| better < cost);
            self.put(draft, better.map_or(old, |(_, new)| new));
        }
        self.cost < before
    }

    /// The candidates in domains that the group does not have yet.
    fn free(&self, draft: &Draft<'_>) -> impl Iterator<Item = usize> {
        let free = |&next: &usize| !draft.taken[self.bricks.domain_of[draft.candidates[next]]];
        (0..draft.candidates.len()).filter(free)
    }

    /// The candidate that costs least, and the cost with it. The first of equals.
    fn best(&mut self, draft: &Draft<'_>) -> Option<(Cost, usize)> {
        let free: Vec<usize> = self.free(draft).collect();
        free.into_iter().map(|next| (self.cost_with(draft, next), next)).min()
    }

    /// The cost with one more member.
    fn cost_with(&mut self, draft: &Draft<'_>, next: usize) -> Cost {
        let mut cost = self.cost;
        self.cross(draft, next, true);
        cost[self.light()] = self.cost[self.light()];
        self.cross(draft, next, false);
        cost[self.spread()] += self.cost_of_pairs(draft, next);
        cost[CROWDED] += self.on_its_node(draft, next);
        let brick = self.homes[draft.candidates[next]].brick;
        cost[OVER] += (self.count[brick] + 1).saturating_sub(self.cap);
        cost
    }

    /// What it costs that one more member meets the others.
    fn cost_of_pairs(&mut self, draft: &Draft<'_>, next: usize) -> u64 {
        if self.bricks.symmetry.count() == 1 {
            return draft.sums[next];
        }
        // Two pairs of the group may be alike, which the sums do not know.
        let before = self.cost[self.spread()];
        self.meet(draft, next, true);
        let after = self.cost[self.spread()];
        self.meet(draft, next, false);
        after - before
    }

    /// Adds a candidate to the group.
    fn put(&mut self, draft: &mut Draft<'_>, next: usize) {
        let brick = draft.candidates[next];
        self.cost[CROWDED] += self.on_its_node(draft, next);
        self.cross(draft, next, true);
        self.count(draft, next, true);
        let costs: Vec<u64> =
            draft.candidates.iter().map(|&other| self.cost_of_meeting(other, brick)).collect();
        draft.sums.iter_mut().zip(&costs).for_each(|(sum, cost)| *sum += cost);
        self.meet(draft, next, true);
        draft.costs.push(costs);
        draft.chosen.push(next);
        draft.taken[self.bricks.domain_of[brick]] = true;
    }

    /// Takes the first of the chosen ones out of the group.
    fn take_first(&mut self, draft: &mut Draft<'_>) -> usize {
        let old = draft.chosen.remove(0);
        draft.taken[self.bricks.domain_of[draft.candidates[old]]] = false;
        let costs = draft.costs.remove(0);
        draft.sums.iter_mut().zip(&costs).for_each(|(sum, cost)| *sum -= cost);
        self.meet(draft, old, false);
        self.count(draft, old, false);
        self.cross(draft, old, false);
        self.cost[CROWDED] -= self.on_its_node(draft, old);
        old
    }

    /// Adds a unit to, or takes it from, the links between the primary and a candidate, and those of all images.
    fn cross(&mut self, draft: &Draft<'_>, next: usize, more: bool) {
        let light = self.light();
        let route = &self.routes[draft.representative][next];
        self.steps += route.len() as u64 + 1;
        for &link in route {
            step(&mut self.cost[light], &mut self.load[link as usize], more, |load| 2 * load + 1);
        }
    }

    /// Counts one group more or less of a candidate.
    fn count(&mut self, draft: &Draft<'_>, next: usize, more: bool) {
        let cap = self.cap;
        let count = &mut self.count[self.homes[draft.candidates[next]].brick];
        step(&mut self.cost[OVER], count, more, |count| (count + 1).saturating_sub(cap));
    }

    /// Counts one common group more or less of a candidate and the members of the group.
    fn meet(&mut self, draft: &Draft<'_>, next: usize, more: bool) {
        let (scatter, spread) = (self.scatter, self.spread());
        let others = draft.chosen.iter().map(|&position| draft.candidates[position]).chain([draft.primary]);
        for other in others {
            let pair = self.pair(draft.candidates[next], other);
            let mut met = self.met[pair].into();
            step(&mut self.cost[spread], &mut met, more, |met| once_more(scatter, met));
            self.met[pair] = met as u16;
        }
    }

    /// What it costs that two bricks share one more group.
    fn cost_of_meeting(&self, a: usize, b: usize) -> u64 {
        once_more(self.scatter, self.met[self.pair(a, b)].into())
    }

    /// Members that are on the node of a candidate, if that may be.
    fn on_its_node(&self, draft: &Draft<'_>, next: usize) -> u64 {
        if !self.bricks.shares_nodes {
            return 0;
        }
        let node = |brick: usize| self.bricks.node_of[brick];
        let here = node(draft.candidates[next]);
        let others = draft.chosen.iter().map(|&position| draft.candidates[position]).chain([draft.primary]);
        others.filter(|&other| node(other) == here).count() as u64
    }

    /// The place of a pair in `met`: the same for all pairs that are alike.
    fn pair(&self, a: usize, b: usize) -> usize {
        let seen_from = |a: usize, b: usize| self.homes[a].row + self.bricks.image(self.homes[a].shift, b);
        seen_from(a, b).min(seen_from(b, a))
    }

    /// Position in [`Cost`] of the sum of the squares of the links' loads.
    fn light(&self) -> usize {
        if self.scatter == Scatter::Bounded { 2 } else { 3 }
    }

    /// Position in [`Cost`] of the sum over pairs of what their meetings cost.
    fn spread(&self) -> usize {
        5 - self.light()
    }
}

/// What it costs that two bricks which share `met` groups share one more: all pairs that meet at all are to be few, or the
/// sum of the squares is to be small.
fn once_more(scatter: Scatter, met: u64) -> u64 {
    match scatter {
        Scatter::Bounded => u64::from(met == 0),
        Scatter::Wide => 2 * met + 1,
    }
}

/// Makes a number one more or less, and a cost with it: `of` says what one more costs.
fn step(cost: &mut u64, number: &mut u64, more: bool, of: impl Fn(u64) -> u64) {
    if more {
        *cost += of(*number);
        *number += 1;
    } else {
        *number -= 1;
        *cost -= of(*number);
    }
}

/// Links by number, each direction apart.
#[derive(Default)]
struct Links {
    known: BTreeMap<(Vertex, Vertex), u32>,
}

impl Links {
    /// Per candidate of a representative: the links from the one to the other, and from each image to its image.
    fn routes(&mut self, primary: usize, bricks: &Bricks, topology: &Topology) -> Vec<Vec<u32>> {
        let candidates = &bricks.candidates[primary];
        candidates.iter().map(|&brick| self.all_images(primary, brick, bricks, topology)).collect()
    }

    fn all_images(&mut self, from: usize, to: usize, bricks: &Bricks, topology: &Topology) -> Vec<u32> {
        let mut links = Vec::new();
        for shift in 0..bricks.symmetry.count() {
            let node = |brick| bricks.nodes[bricks.symmetry.image(shift, bricks.node_of[brick])];
            for hop in topology.route(node(from), node(to)).windows(2) {
                let next = self.known.len() as u32;
                links.push(*self.known.entry((hop[0], hop[1])).or_insert(next));
            }
        }
        links
    }
}
