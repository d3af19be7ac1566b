//! A history of names: clients make, look up, remove and rename the same few names, while metadata servers and clients die. Then
//! there must be an order of all operations, in which none comes before one that had ended when it began, and in which each has the
//! answer that it got: no name is lost, none is there twice, and what was asked for twice was done once.
//!
//! Names come in pairs, and a rename stays within its pair, so the pairs are checked one by one (linearizability is a local
//! property: Herlihy and Wing, 1990). The search is that of Wing and Gong (1993), with a memory of states that led nowhere.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use client::{ClientError, Encode};
use types::messages::names::{Owner, RenameHow};
use types::messages::replica::MetaLead;
use types::messages::session::Role;
use types::{Buf, Epoch, InodeId, Refusal};
use world::Peers;
use world::sim::SimOptions;

use crate::check::liveness::RECOVERY_US;
use crate::cluster::{Client, Cluster, META_NODES, create_volume, identity, meta};
use crate::prng::Prng;

const OWNER: Owner = Owner { uid: 0, gid: 0, mode: 0o644 };
const PAIRS: u64 = 48;
/// Every other operation is on one of these.
const HOT: u64 = 4;
const CLIENTS: [&str; 3] = ["clienta", "clientb", "clientc"];
const TASKS: u64 = 2;
/// Most operations of a pair whose outcome nobody knows.
const UNKNOWN_MAX: usize = 60;

/// Most operations that are looked at, from the first that is not placed on.
const WINDOW: usize = 128;

/// One of the two names of a pair.
type Side = usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Create(Side),
    Lookup(Side),
    Unlink(Side),
    /// To the other name, which it replaces.
    Rename(Side),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Inode(u64),
    Done,
    Exists,
    Absent,
    /// It was done once, later or never.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    began: u64,
    ended: u64,
    what: What,
    outcome: Outcome,
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Name {
    Absent,
    Inode(u64),
    /// An inode that nobody has seen yet.
    Unseen,
}

type State = [Name; 2];

/// The state after an operation with this outcome; `None` if it cannot have it.
fn apply(mut state: State, what: What, outcome: Outcome, made: &HashSet<u64>) -> Option<State> {
    let is_known = outcome != Outcome::Unknown;
    match (what, outcome) {
        (What::Create(side), _) if state[side] != Name::Absent => {
            return (outcome == Outcome::Exists || !is_known).then_some(state);
        }
        (What::Create(side), Outcome::Inode(inode)) => state[side] = Name::Inode(inode),
        (What::Create(side), Outcome::Unknown) => state[side] = Name::Unseen,
        (What::Lookup(side), Outcome::Inode(inode)) => match state[side] {
            Name::Inode(found) if found == inode => {}
            // Not one that an operation has made of which the outcome is known.
            Name::Unseen if !made.contains(&inode) => state[side] = Name::Inode(inode),
            _ => return None,
        },
        (What::Lookup(_), Outcome::Unknown) => {}
        (What::Lookup(side) | What::Unlink(side) | What::Rename(side), Outcome::Absent) => {
            return (state[side] == Name::Absent).then_some(state);
        }
        (What::Unlink(side), Outcome::Done | Outcome::Unknown) => {
            if is_known && state[side] == Name::Absent {
                return None;
            }
            state[side] = Name::Absent;
        }
        (What::Rename(side), Outcome::Done | Outcome::Unknown) => {
            if state[side] == Name::Absent {
                return (!is_known).then_some(state);
            }
            state[1 - side] = state[side];
            state[side] = Name::Absent;
        }
        _ => return None,
    }
    Some(state)
}

/// Operations of a pair, and which of them are placed.
struct Search<'a> {
    known: Vec<&'a Operation>,
    unknown: Vec<&'a Operation>,
    /// Where nothing fits: the first that is not placed, those after it that are, the unknown ones that are, the state.
    dead: HashSet<(usize, u128, u64, State)>,
    /// Inodes that a known operation has made.
    made: HashSet<u64>,
}

impl Search<'_> {
    /// Whether the rest can be placed. All before `first` are, and those after it with their bit.
    fn fits(&mut self, first: usize, placed: u128, done: u64, state: State) -> bool {
        let (mut stack, start) = (Vec::new(), (first, placed, done, state));
        stack.push(start);
        while let Some((first, placed, done, state)) = stack.pop() {
            if first == self.known.len() {
                return true;
            }
            if !self.dead.insert((first, placed, done, state)) {
                continue;
            }
            // What is placed next began before any other one that is not placed had ended.
            let window = first..self.known.len().min(first + WINDOW);
            let is_placed = |at: usize| at > first && placed >> (at - first - 1) & 1 == 1;
            let rest: Vec<usize> = window.filter(|at| !is_placed(*at)).collect();
            let end = rest.iter().map(|at| self.known[*at].ended).min().unwrap_or(u64::MAX);
            let beyond = self.known.get(first + WINDOW);
            assert!(
                beyond.is_none_or(|next| next.began > end),
                "more operations at a time than the search looks at"
            );
            for (bit, operation) in self.unknown.iter().enumerate() {
                if done >> bit & 1 == 0
                    && operation.began <= end
                    && let Some(next) = apply(state, operation.what, operation.outcome, &self.made)
                    && next != state
                {
                    stack.push((first, placed, done | 1 << bit, next));
                }
            }
            for at in rest.into_iter().rev().filter(|at| self.known[*at].began <= end) {
                let operation = self.known[at];
                let Some(next) = apply(state, operation.what, operation.outcome, &self.made) else {
                    continue;
                };
                let (mut to, mut more) = (first, placed);
                if at == first {
                    to += 1;
                    while more & 1 == 1 {
                        (to, more) = (to + 1, more >> 1);
                    }
                    more >>= 1;
                } else {
                    more |= 1 << (at - first - 1);
                }
                stack.push((to, more, done, next));
            }
        }
        false
    }
}

/// Whether there is an order of these operations.
fn is_linearizable(operations: &[Operation]) -> bool {
    let is_known = |operation: &&Operation| operation.outcome != Outcome::Unknown;
    let mut known: Vec<&Operation> = operations.iter().filter(is_known).collect();
    known.sort_by_key(|operation| operation.began);
    let unknown: Vec<&Operation> = operations.iter().filter(|operation| !is_known(operation)).collect();
    assert!(unknown.len() <= UNKNOWN_MAX, "{} operations of a pair have no outcome", unknown.len());
    let made = known.iter().filter_map(|operation| match (operation.what, operation.outcome) {
        (What::Create(_), Outcome::Inode(inode)) => Some(inode),
        _ => None,
    });
    let made = made.collect();
    Search { known, unknown, dead: HashSet::new(), made }.fits(0, 0, 0, [Name::Absent; 2])
}

/// What all have seen, by pair, and how many beginnings and ends there were: the clock of the test, because two of them never
/// have the same number.
#[derive(Default)]
struct Seen {
    pairs: Vec<Vec<Operation>>,
    events: u64,
}

impl Seen {
    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }
}

type History = Rc<RefCell<Seen>>;

fn name(pair: u64, side: Side) -> Vec<u8> {
    format!("{pair}{}", ["a", "b"][side]).into_bytes()
}

fn outcome_of(error: &ClientError) -> Outcome {
    match error {
        ClientError::Refused(Refusal::Exists) => Outcome::Exists,
        ClientError::Refused(Refusal::NotFound) => Outcome::Absent,
        ClientError::Refused(Refusal::Fenced | Refusal::MetaFailed)
        | ClientError::Unreachable
        | ClientError::Unmounted => Outcome::Unknown,
        other => panic!("{other}"),
    }
}

/// One operation.
async fn operate(client: &Client, pair: u64, what: What) -> Outcome {
    let session = &client.session;
    let root = InodeId::ROOT;
    let result = match what {
        What::Create(side) => match session.create(root, &name(pair, side), OWNER).await {
            Ok(opened) => {
                // Whether the close is heard says nothing of the name.
                let _ = session.release(opened.handle).await;
                Ok(Outcome::Inode(opened.attr.inode.0))
            }
            // Somebody has removed it before it was open.
            Err(ClientError::Refused(Refusal::Stale)) => Ok(Outcome::Unknown),
            Err(error) => Err(error),
        },
        What::Lookup(side) => {
            session.lookup(root, &name(pair, side)).await.map(|attr| Outcome::Inode(attr.inode.0))
        }
        What::Unlink(side) => session.unlink(root, &name(pair, side)).await.map(|_| Outcome::Done),
        What::Rename(side) => {
            let (from, to) = (name(pair, side), name(pair, 1 - side));
            session.rename((root, &from), (root, &to), RenameHow::Replace, None).await.map(|_| Outcome::Done)
        }
    };
    result.unwrap_or_else(|error| outcome_of(&error))
}

/// Works until `stop`, or until the mount is lost. An operation that is under way when the machine dies stays unknown.
async fn work(client: Rc<Client>, prng: Prng, history: History, stop: Rc<Cell<bool>>) {
    while !stop.get() && !client.mount.is_lost() {
        let pair = if prng.coin() { prng.below(HOT) } else { prng.below(PAIRS) };
        let side = prng.below(2) as usize;
        let what = match prng.below(8) {
            0..3 => What::Create(side),
            3..5 => What::Lookup(side),
            5..7 => What::Unlink(side),
            _ => What::Rename(side),
        };
        let at = {
            let mut seen = history.borrow_mut();
            let began = seen.event();
            let of_pair = &mut seen.pairs[pair as usize];
            of_pair.push(Operation { began, ended: u64::MAX, what, outcome: Outcome::Unknown });
            of_pair.len() - 1
        };
        let outcome = operate(&client, pair, what).await;
        let mut seen = history.borrow_mut();
        let ended = if outcome == Outcome::Unknown { u64::MAX } else { seen.event() };
        let operation = &mut seen.pairs[pair as usize][at];
        (operation.ended, operation.outcome) = (ended, outcome);
    }
}

/// Kills and starts metadata servers and clients, `crashes` times. Returns how many operations there were.
pub(crate) fn run(seed: u64, crashes: u64) -> usize {
    let mut cluster = Cluster::new(seed, SimOptions::default(), 3, 32 << 20, 8 << 20);
    cluster.with_three_metas();
    cluster.start();
    let (prng, stop) = (Prng::new(seed), Rc::new(Cell::new(false)));
    let seen = Seen { pairs: vec![Vec::new(); PAIRS as usize], events: 0 };
    let history: History = Rc::new(RefCell::new(seen));
    let driver = cluster.sim.node("driver");
    let mount = async |node: &str| {
        let world = cluster.sim.node(node);
        let client = Rc::new(Client::mount(world.clone(), 1 << 20, Encode::Primary).await);
        for _ in 0..TASKS {
            let (prng, history, stop) = (Prng::new(prng.next_u64()), Rc::clone(&history), Rc::clone(&stop));
            world.spawn("test", work(Rc::clone(&client), prng, history, stop));
        }
    };
    cluster.sim.block_on("driver", async {
        driver.sleep(4_000_000).await;
        create_volume(&driver, "2+1", 16 << 10, 4, 6).await;
        for node in CLIENTS {
            mount(node).await;
        }
        let peers = Peers::new(driver.clone(), identity(Role::Client));
        for _ in 0..crashes {
            driver.sleep(100_000 + prng.below(2_500_000)).await;
            let node = prng.pick(&META_NODES);
            match prng.below(14) {
                0 => {
                    let node = prng.pick(&CLIENTS);
                    cluster.sim.kill(node);
                    mount(node).await;
                }
                12..14 => {
                    let lead = MetaLead { address: format!("{node}:1") };
                    drop(peers.call(meta(), Epoch(0), &lead, Buf::empty()).await);
                }
                1..4 => {
                    let other = prng.pick(&META_NODES);
                    if other != node {
                        cluster.sim.partition(node, other, true);
                        driver.sleep(prng.below(4_000_000)).await;
                        cluster.sim.partition(node, other, false);
                    }
                }
                4..8 => {
                    cluster.sim.power_cut(node);
                    driver.sleep(prng.below(3_000_000)).await;
                    cluster.start_meta_server(node);
                }
                _ => {
                    cluster.sim.kill(node);
                    driver.sleep(prng.below(3_000_000)).await;
                    cluster.start_meta_server(node);
                }
            }
        }
        driver.sleep(RECOVERY_US / 4).await;
        stop.set(true);
        driver.sleep(RECOVERY_US).await;
    });
    let history = &history.borrow().pairs;
    for (pair, operations) in history.iter().enumerate() {
        assert!(
            is_linearizable(operations),
            "seed {seed}: no order of the operations on pair {pair}: {operations:?}"
        );
    }
    history.iter().map(Vec::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(began: u64, ended: u64, what: What, outcome: Outcome) -> Operation {
        Operation { began, ended, what, outcome }
    }

    #[test]
    fn what_no_order_explains_is_found() {
        let made = operation(0, 1, What::Create(0), Outcome::Inode(5));
        let is_fine = |operations: &[Operation]| is_linearizable(operations);
        assert!(is_fine(&[made, operation(2, 3, What::Lookup(0), Outcome::Inode(5))]));
        assert!(!is_fine(&[made, operation(2, 3, What::Lookup(0), Outcome::Absent)]), "lost");
        assert!(is_fine(&[made, operation(1, 3, What::Lookup(0), Outcome::Absent)]), "at the same time");
        assert!(!is_fine(&[made, operation(2, 3, What::Create(0), Outcome::Inode(6))]), "made twice");
        let moved = operation(2, 9, What::Rename(0), Outcome::Done);
        assert!(is_fine(&[made, moved, operation(3, 4, What::Lookup(1), Outcome::Inode(5))]));
        let twice = [operation(10, 11, What::Lookup(0), Outcome::Inode(5))];
        assert!(!is_fine(&[&[made, moved][..], &twice].concat()), "there under both names");
        let removed = operation(2, u64::MAX, What::Unlink(0), Outcome::Unknown);
        for outcome in [Outcome::Absent, Outcome::Inode(5)] {
            assert!(is_fine(&[made, removed, operation(7, 8, What::Lookup(0), outcome)]));
        }
        let back = [Outcome::Absent, Outcome::Inode(5)];
        let back = [operation(7, 8, What::Lookup(0), back[0]), operation(9, 10, What::Lookup(0), back[1])];
        assert!(!is_fine(&[&[made, removed][..], &back].concat()), "back again");
        let unseen = operation(0, u64::MAX, What::Create(1), Outcome::Unknown);
        let seen = [5, 6].map(|inode| operation(inode, inode, What::Lookup(1), Outcome::Inode(inode)));
        assert!(is_fine(&[unseen, seen[0]]) && !is_fine(&[unseen, seen[0], seen[1]]), "one inode");
        let gone = [
            operation(0, 1, What::Create(1), Outcome::Inode(7)),
            operation(2, 3, What::Unlink(1), Outcome::Done),
            operation(4, u64::MAX, What::Create(1), Outcome::Unknown),
            operation(5, 6, What::Lookup(1), Outcome::Inode(7)),
        ];
        assert!(!is_fine(&gone), "it came back");
    }
}
