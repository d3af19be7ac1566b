//! Who does not answer, and is it sure? A failed or silent call only raises a doubt: a new connection decides.
//!
//! ```text
//!  a call fails, or waits in silence         the metadata service asks
//!            |                                        |
//!          doubt -------------> probe <---------------+
//!                              |     |
//!                     answered |     | no answer: again, for two seconds
//!            reached <---------+     +---------> unreached, until a probe is answered
//! ```
//!
//! A busy server answers calls late and takes connections all the same, so it raises doubts and stays reached.

use std::collections::BTreeMap;

/// How long a probe may take, in microseconds: TCP repeats the first packet after 1 s.
pub const PROBE_US: u64 = 1_200_000;
/// A peer is unreached when probes have failed for so long, in microseconds.
const CONFIRM_US: u64 = 2_000_000;
/// Least time between the beginnings of two probes of a peer, in microseconds.
const AGAIN_US: u64 = 500_000;
/// How long a question about a peer is answered, in microseconds. It is asked again each second.
const ASKED_US: u64 = 3_000_000;

/// What is known of the peers of which somebody doubts that they can be reached. At most so many at a time; further doubts wait.
#[derive(Debug)]
pub struct Reach<K> {
    most: usize,
    doubts: BTreeMap<K, Doubt>,
}

#[derive(Default, Debug)]
struct Doubt {
    /// Until then somebody wants to know.
    asked_until: u64,
    /// When the next probe may begin.
    next: u64,
    is_probed: bool,
    /// When the first probe began of those that have failed since the last success.
    failing_since: Option<u64>,
    is_unreached: bool,
    is_reached: bool,
}

impl<K: Ord + Copy> Reach<K> {
    /// No doubts; room for `most`.
    pub fn new(most: usize) -> Reach<K> {
        Reach { most, doubts: BTreeMap::new() }
    }

    /// A call of this peer has failed, or brings no answer.
    pub fn doubt(&mut self, peer: K) {
        self.entry(peer);
    }

    /// Somebody wants to know whether this peer answers.
    pub fn ask(&mut self, peer: K, now: u64) {
        if let Some(doubt) = self.entry(peer) {
            doubt.asked_until = now + ASKED_US;
        }
    }

    fn entry(&mut self, peer: K) -> Option<&mut Doubt> {
        if self.doubts.len() >= self.most && !self.doubts.contains_key(&peer) {
            return None;
        }
        Some(self.doubts.entry(peer).or_default())
    }

    /// Forgets peers that nobody asks about and that `keep` does not name.
    pub fn retain(&mut self, now: u64, keep: impl Fn(K) -> bool) {
        self.doubts.retain(|peer, doubt| doubt.is_probed || now < doubt.asked_until || keep(*peer));
    }

    /// The peers to probe now. Each of them must be given to [`Reach::probed`] later.
    pub fn begin_probes(&mut self, now: u64) -> Vec<K> {
        let due = self.doubts.iter_mut().filter(|(_, doubt)| !doubt.is_probed && now >= doubt.next);
        let begun = due.map(|(peer, doubt)| {
            doubt.is_probed = true;
            *peer
        });
        begun.collect()
    }

    /// A probe that began at `began` has ended. Returns whether something is known now that was not known before.
    pub fn probed(&mut self, peer: K, began: u64, is_reached: bool, now: u64) -> bool {
        let Some(doubt) = self.doubts.get_mut(&peer) else { return false };
        let before = (doubt.is_reached, doubt.is_unreached);
        doubt.is_probed = false;
        doubt.next = began + AGAIN_US;
        if is_reached {
            (doubt.failing_since, doubt.is_unreached, doubt.is_reached) = (None, false, true);
        } else {
            let since = *doubt.failing_since.get_or_insert(began);
            doubt.is_unreached |= now >= since + CONFIRM_US;
            doubt.is_reached = false;
        }
        let after = (doubt.is_reached, doubt.is_unreached);
        if is_reached && now >= doubt.asked_until {
            self.doubts.remove(&peer);
        }
        before != after
    }

    /// Whether some peer does not answer.
    pub fn has_unreached(&self) -> bool {
        self.doubts.values().any(|doubt| doubt.is_unreached)
    }

    /// The peers that do not answer.
    pub fn unreached(&self) -> Vec<K> {
        self.those(|doubt| doubt.is_unreached)
    }

    /// Of the peers that somebody asks about, those that answer.
    pub fn reached(&self) -> Vec<K> {
        self.those(|doubt| doubt.is_reached)
    }

    /// Whether a peer does not answer.
    pub fn is_unreached(&self, peer: K) -> bool {
        self.doubts.get(&peer).is_some_and(|doubt| doubt.is_unreached)
    }

    fn those(&self, is: impl Fn(&Doubt) -> bool) -> Vec<K> {
        self.doubts.iter().filter(|(_, doubt)| is(doubt)).map(|(peer, _)| *peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One probe of each peer that is due, from `now` on, all with the same outcome after `us`.
    fn probe(reach: &mut Reach<u32>, now: u64, us: u64, is_reached: bool) -> Vec<u32> {
        let begun = reach.begin_probes(now);
        for peer in &begun {
            let _ = reach.probed(*peer, now, is_reached, now + us);
        }
        begun
    }

    #[test]
    fn a_doubt_is_not_believed_before_probes_have_failed_for_two_seconds() {
        let mut reach = Reach::new(4);
        reach.doubt(7);
        assert_eq!(probe(&mut reach, 0, PROBE_US, false), [7]);
        assert!(reach.unreached().is_empty(), "one packet may have been lost");
        assert_eq!(probe(&mut reach, PROBE_US, PROBE_US, false), [7]);
        assert_eq!(reach.unreached(), [7]);
        assert!(reach.is_unreached(7) && !reach.is_unreached(8) && reach.has_unreached());
        // One answer is enough, and it is forgotten.
        probe(&mut reach, 3 * PROBE_US, 10, true);
        assert!(reach.unreached().is_empty() && !reach.has_unreached());
        assert!(reach.begin_probes(u64::MAX).is_empty());
        // A peer that refuses at once is asked again, and not in a tight loop.
        reach.doubt(7);
        assert_eq!(probe(&mut reach, 0, 1, false), [7]);
        assert!(probe(&mut reach, AGAIN_US - 1, 1, false).is_empty());
        let mut now = AGAIN_US;
        while reach.unreached().is_empty() {
            probe(&mut reach, now, 1, false);
            now += AGAIN_US;
        }
        assert_eq!(now, CONFIRM_US + AGAIN_US);
    }

    #[test]
    fn who_is_asked_says_also_whom_it_reaches_and_few_are_kept() {
        let mut reach = Reach::new(2);
        (1..=5).for_each(|peer| reach.ask(peer, 0));
        assert_eq!(probe(&mut reach, 0, 5, true), [1, 2]);
        assert_eq!((reach.reached(), reach.unreached()), (vec![1, 2], vec![]));
        reach.retain(ASKED_US - 1, |_| false);
        assert_eq!(reach.reached(), [1, 2]);
        reach.retain(ASKED_US, |peer| peer == 2);
        assert_eq!(reach.reached(), [2]);
        reach.doubt(3);
        assert_eq!(probe(&mut reach, ASKED_US, 5, true), [2, 3]);
        assert!(reach.reached().is_empty(), "nobody asks");
    }
}
