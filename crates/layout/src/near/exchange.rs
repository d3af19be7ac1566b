//! Evens out in how many groups the bricks are.
//!
//! A member of a group can be exchanged for any candidate of the group's primary. A brick in too many groups leaves one to
//! a brick that is in fewer, directly or through others: the second leaves another group to the third, and so on.

use std::collections::VecDeque;

use super::bricks::Bricks;
use super::placement::Group;

/// Exchanges looked at, after which the table is left as it is. Only large tables without symmetry come so far.
const STEPS_MAX: usize = 100_000_000;

/// One exchange: in `group`, `from` gives its place to `to`.
#[derive(Clone, Copy)]
struct Exchange {
    group: usize,
    from: usize,
    to: usize,
}

/// Exchanges members until no chain of exchanges makes two bricks' numbers of groups more even.
pub(super) fn even_out(table: &mut [Group], bricks: &Bricks) {
    let mut shares = Shares::new(table, bricks);
    let most = |shares: &Shares<'_>, below: usize| shares.count.iter().copied().filter(|&c| c < below).max();
    let mut level = most(&shares, usize::MAX);
    while let Some(count) = level.filter(|&count| shares.may_improve(count)) {
        match shares.chain(table, count) {
            Some(chain) => shares.apply(table, &chain),
            None => level = most(&shares, count),
        }
    }
}

struct Shares<'a> {
    bricks: &'a Bricks,
    /// Per brick: how many groups it is in, as a member or as primary.
    count: Vec<usize>,
    /// Per brick: the groups of which it is a member.
    places: Vec<Vec<usize>>,
    /// Per group, per domain: whether a member or the primary is in it.
    taken: Vec<Vec<bool>>,
    steps: usize,
}

impl<'a> Shares<'a> {
    fn new(table: &[Group], bricks: &'a Bricks) -> Shares<'a> {
        let mut count = vec![0; bricks.ids.len()];
        let mut places = vec![Vec::new(); bricks.ids.len()];
        let mut taken = vec![vec![false; bricks.ids.len()]; table.len()];
        for (at, group) in table.iter().enumerate() {
            group.members.iter().for_each(|&brick| places[brick].push(at));
            group.members.iter().chain([&group.primary]).for_each(|&brick| {
                count[brick] += 1;
                taken[at][bricks.domain_of[brick]] = true;
            });
        }
        Shares { bricks, count, places, taken, steps: 0 }
    }

    fn may_improve(&self, count: usize) -> bool {
        self.steps < STEPS_MAX && self.count.iter().any(|&other| other + 2 <= count)
    }

    /// The shortest chain of exchanges from a brick that is in `count` groups to one that is in two less or fewer.
    fn chain(&mut self, table: &[Group], count: usize) -> Option<Vec<Exchange>> {
        let mut by: Vec<Option<Exchange>> = vec![None; self.count.len()];
        let starts = |brick: &usize| self.count[*brick] == count;
        let mut queue: VecDeque<usize> = (0..self.count.len()).filter(starts).collect();
        while let Some(from) = queue.pop_front() {
            for &group in &self.places[from] {
                for &to in &self.bricks.candidates[table[group].primary] {
                    self.steps += if self.bricks.shares_nodes { table[group].members.len() } else { 1 };
                    if by[to].is_some()
                        || self.count[to] == count
                        || !self.fits(table, Exchange { group, from, to })
                    {
                        continue;
                    }
                    // Whether an exchange fits was found out for the group as it is now.
                    if chain_from(&by, by[from]).any(|earlier| earlier.group == group) {
                        continue;
                    }
                    let last = Exchange { group, from, to };
                    if self.count[to] + 2 <= count {
                        return Some(chain_from(&by, Some(last)).collect());
                    }
                    by[to] = Some(last);
                    queue.push_back(to);
                }
            }
            if self.steps > STEPS_MAX {
                return None;
            }
        }
        None
    }

    /// Whether an exchange leaves each domain with one member, and no node with more members than before.
    fn fits(&self, table: &[Group], Exchange { group, from, to }: Exchange) -> bool {
        let Bricks { domain_of, node_of, .. } = self.bricks;
        if domain_of[from] != domain_of[to] && self.taken[group][domain_of[to]] {
            return false;
        }
        if !self.bricks.shares_nodes {
            return true;
        }
        let Group { primary, members } = &table[group];
        let others = members.iter().filter(|&&brick| brick != from).chain([primary]);
        let (mut before, mut after) = (0, 0);
        others.for_each(|&other| {
            before += usize::from(node_of[other] == node_of[from]);
            after += usize::from(node_of[other] == node_of[to]);
        });
        before >= after
    }

    fn apply(&mut self, table: &mut [Group], chain: &[Exchange]) {
        for &Exchange { group, from, to } in chain {
            let members = &mut table[group].members;
            let at = members.iter().position(|&brick| brick == from).expect("it was found there");
            members[at] = to;
            self.taken[group][self.bricks.domain_of[from]] = false;
            self.taken[group][self.bricks.domain_of[to]] = true;
            self.places[from].retain(|&place| place != group);
            self.places[to].push(group);
            self.count[from] -= 1;
            self.count[to] += 1;
        }
    }
}

/// The chain that ends with `last`, which comes first.
fn chain_from(by: &[Option<Exchange>], last: Option<Exchange>) -> impl Iterator<Item = Exchange> {
    std::iter::successors(last, |exchange| by[exchange.from])
}
