//! Assigns the slots of each group to its members.
//!
//! A brick has each slot in its fair share of its groups, rounded up or down. First each group is divided into parity
//! and data members, then the parity members into the primary and the rest, and so on. Such an assignment always
//! exists: the exact shares are a flow in a network with integer bounds, so an integer flow exists too. [`deal`]
//! finds it.

use types::Code;

/// Orders the members of each group by slot.
pub(super) fn assign(members: Vec<Vec<usize>>, code: Code, bricks: usize) -> Vec<Vec<usize>> {
    let (parity, data) = deal(members, code.m(), bricks);
    let mut table = in_turn(data, code.k(), bricks);
    table.iter_mut().zip(in_turn(parity, code.m(), bricks)).for_each(|(slots, rest)| slots.extend(rest));
    table
}

/// Orders the members of each group by slot around its primary, which has the first parity slot, or the first data slot if
/// there is no parity.
pub(crate) fn assign_around(
    primaries: Vec<usize>,
    members: Vec<Vec<usize>>,
    code: Code,
    bricks: usize,
) -> Vec<Vec<usize>> {
    let primaries = primaries.into_iter().map(|primary| vec![primary]);
    if code.m() == 0 {
        let rest = in_turn(members, code.k() - 1, bricks);
        return primaries.zip(rest).map(|(first, rest)| [first, rest].concat()).collect();
    }
    let (parity, data) = deal(members, code.m() - 1, bricks);
    let parity = in_turn(parity, code.m() - 1, bricks);
    let rows = in_turn(data, code.k(), bricks).into_iter().zip(primaries).zip(parity);
    rows.map(|((data, primary), parity)| [data, primary, parity].concat()).collect()
}

/// Assigns the `slots` members of each group to its `slots` slots, one slot after the other.
fn in_turn(mut members: Vec<Vec<usize>>, slots: usize, bricks: usize) -> Vec<Vec<usize>> {
    let mut table = vec![Vec::with_capacity(slots); members.len()];
    for _ in 0..slots {
        let (taken, rest) = deal(members, 1, bricks);
        table.iter_mut().zip(taken).for_each(|(slots, taken)| slots.extend(taken));
        members = rest;
    }
    table
}

/// Takes `count` members of each group, so that every brick is taken in its fair share of its groups, rounded up or
/// down. All groups have the same size. Returns the members taken, and the rest.
fn deal(members: Vec<Vec<usize>>, count: usize, bricks: usize) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let size = members.first().map_or(0, Vec::len);
    if count == 0 || count == size {
        let none = vec![Vec::new(); members.len()];
        return if count == 0 { (none, members) } else { (members, none) };
    }
    let mut deal = Deal::new(&members, bricks);
    deal.start(count);
    for brick in 0..bricks {
        let share = deal.places[brick].len() * count;
        deal.low[brick] = share / size;
        deal.high[brick] = share.div_ceil(size);
    }
    for brick in 0..bricks {
        while deal.count[brick] > deal.high[brick] {
            deal.pass(brick, true);
        }
    }
    for brick in 0..bricks {
        while deal.count[brick] < deal.low[brick] {
            deal.pass(brick, false);
        }
    }
    let part = |taken: bool| {
        let rows = members.iter().zip(&deal.taken);
        rows.map(|(row, flags)| {
            row.iter().zip(flags).filter(|(_, flag)| **flag == taken).map(|(b, _)| *b).collect()
        })
        .collect()
    };
    (part(true), part(false))
}

struct Deal<'a> {
    members: &'a [Vec<usize>],
    /// Per brick: its groups, and its position in each.
    places: Vec<Vec<(usize, usize)>>,
    taken: Vec<Vec<bool>>,
    /// Per brick: the number of groups in which it is taken, and the bounds of this number.
    count: Vec<usize>,
    low: Vec<usize>,
    high: Vec<usize>,
}

impl<'a> Deal<'a> {
    fn new(members: &'a [Vec<usize>], bricks: usize) -> Deal<'a> {
        let mut places = vec![Vec::new(); bricks];
        for (group, row) in members.iter().enumerate() {
            row.iter().enumerate().for_each(|(at, &brick)| places[brick].push((group, at)));
        }
        let taken = members.iter().map(|row| vec![false; row.len()]).collect();
        let zeros = vec![0; bricks];
        Deal { members, places, taken, count: zeros.clone(), low: zeros.clone(), high: zeros }
    }

    /// Initial choice: in each group, takes the bricks that are taken in the smallest share of their groups so far.
    fn start(&mut self, count: usize) {
        for (row, flags) in self.members.iter().zip(&mut self.taken) {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by_key(|&at| (self.count[row[at]] << 32) / self.places[row[at]].len());
            for at in order.into_iter().take(count) {
                flags[at] = true;
                self.count[row[at]] += 1;
            }
        }
    }

    /// Takes `brick` in one group less (`less`) or more. In one of its groups it changes places with another brick.
    /// If that brick then violates its own bound, it changes places with a third one in another group, and so on.
    /// Uses the shortest such chain.
    fn pass(&mut self, brick: usize, less: bool) {
        // Per brick: its predecessor in the chain, their common group, and the positions of both in it.
        let mut from: Vec<Option<(usize, usize, usize, usize)>> = vec![None; self.count.len()];
        let mut queue = std::collections::VecDeque::from([brick]);
        let end = 'search: loop {
            let here = queue.pop_front().expect("shares that add up can be dealt in whole numbers");
            for &(group, at) in self.places[here].iter().filter(|&&(group, at)| self.taken[group][at] == less)
            {
                for (to, &there) in self.members[group].iter().enumerate() {
                    if self.taken[group][to] == less || there == brick || from[there].is_some() {
                        continue;
                    }
                    from[there] = Some((here, group, at, to));
                    let room = if less {
                        self.count[there] < self.high[there]
                    } else {
                        self.count[there] > self.low[there]
                    };
                    if room {
                        break 'search there;
                    }
                    queue.push_back(there);
                }
            }
        };
        let mut at_end = end;
        while let Some((before, group, at, to)) = from[at_end] {
            self.taken[group][at] = !less;
            self.taken[group][to] = less;
            at_end = before;
        }
        let (giver, receiver) = if less { (brick, end) } else { (end, brick) };
        self.count[giver] -= 1;
        self.count[receiver] += 1;
    }
}
