//! Who answers much later than others, and how long to wait before the same bytes are asked for in another way.
//!
//! ```text
//!  request ---> nothing has come when its patience ends: ask in another way too, if that is affordable; the first
//!               answer counts
//!                  |
//!                  | four of the last eight answers were late, and it takes twice as long as the others do
//!                  v
//!               slow: asked in the other way alone; up to ten requests per second, one at a time, go to it as well, to
//!               see whether it still is
//! ```
//!
//! A sender is compared with the others, never with a fixed time: while all of them are busy, none is late. Answers that are
//! late at the same time count once: a process that has no CPU for some milliseconds delays all that it was asked for.
//!
//! Source: Dean and Barroso, CACM 2013 (hedged requests, of which few are sent).

use std::collections::BTreeMap;

/// An answer is late after so many times the time that the others take.
const LATE_TIMES: u64 = 4;
/// And never before so many microseconds: a thread of a busy machine waits so long for its turn.
const LATE_MIN_US: u64 = 2_000;
/// Of the last eight answers so many have to be late before their sender is slow, and to be late when it no longer is.
const SLOW_FROM: u32 = 4;
const SLOW_TO: u32 = 1;
/// A slow sender takes so many times as long as the others, or more.
const SLOW_TIMES: u64 = 2;
/// Fewer senders say nothing about each other.
const SENDERS_MIN: usize = 3;
/// Answers after which the average of a sender counts.
const ANSWERS_MIN: u32 = 4;
/// An average is over about so many answers.
const AVERAGED: u64 = 8;
/// How often a slow sender is asked all the same, and what is usual is computed, in microseconds.
const PROBE_US: u64 = 100_000;
const USUAL_US: u64 = 10_000;
/// What is older says nothing about a sender, in microseconds.
const STALE_US: u64 = 5_000_000;
/// Answers of at most so many bytes are compared with each other, and so are larger ones.
const SMALL: u64 = 16 << 10;
const CLASSES: usize = 2;
/// Of the bytes that are asked for, this part may be asked for once more; so many can be saved up.
const EXTRA_PART: u64 = 20;
const EXTRA_MAX: u64 = 8 << 20;

/// How to ask for bytes of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// It. If nothing has come after `patience_us`, its answer is late; `None` if there is nothing to compare it with.
    Sender {
        /// In microseconds.
        patience_us: Option<u64>,
    },
    /// In another way, because it is slow.
    Elsewhere {
        /// Ask it too, and see whether it still is.
        probe: bool,
    },
}

/// A slow sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slow<K> {
    /// Which.
    pub sender: K,
    /// How long it takes on average to answer, or longer, in microseconds.
    pub answers_us: u64,
    /// How long others take.
    pub usual_us: u64,
}

/// How long each sender takes to answer.
#[derive(Debug)]
pub struct Latencies<K> {
    senders: BTreeMap<K, Sender>,
    /// The median of the averages, by class.
    usual_us: [Option<u64>; CLASSES],
    /// When it was computed.
    computed_us: Option<u64>,
    /// Bytes that may be asked for once more.
    extra: u64,
}

#[derive(Default, Debug)]
struct Sender {
    averages: [Average; CLASSES],
    /// Whether the last answers were late, the newest in the lowest bit.
    late: u8,
    /// When the last of the late ones was noted.
    late_us: u64,
    is_slow: bool,
    /// When the last answer came, or was given up.
    heard_us: u64,
    probed_us: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Average {
    us: u64,
    answers: u32,
}

impl Average {
    fn note(&mut self, us: u64) {
        self.us = if self.answers == 0 { us } else { (self.us * (AVERAGED - 1) + us) / AVERAGED };
        self.answers = self.answers.saturating_add(1);
    }
}

impl<K> Default for Latencies<K> {
    fn default() -> Latencies<K> {
        let senders = BTreeMap::new();
        Latencies { senders, usual_us: [None; CLASSES], computed_us: None, extra: EXTRA_MAX }
    }
}

fn class_of(bytes: u64) -> usize {
    usize::from(bytes > SMALL)
}

impl<K: Ord + Copy> Latencies<K> {
    /// How to ask for `bytes` bytes of a sender.
    pub fn ask(&mut self, now_us: u64, sender: K, bytes: u64) -> Ask {
        self.compute(now_us);
        if let Some(known) = self.senders.get_mut(&sender).filter(|known| known.is_slow) {
            if now_us.saturating_sub(known.heard_us) < STALE_US {
                let is_heard = known.heard_us >= known.probed_us;
                let probe = is_heard && now_us.saturating_sub(known.probed_us) >= PROBE_US;
                if probe {
                    known.probed_us = now_us;
                }
                return Ask::Elsewhere { probe };
            }
            *known = Sender::default();
        }
        self.extra = (self.extra + bytes / EXTRA_PART).min(EXTRA_MAX);
        Ask::Sender { patience_us: self.patience_us(bytes) }
    }

    /// A request for `bytes` bytes took `us` microseconds. `came`: until its answer; otherwise it was given up.
    pub fn note(&mut self, now_us: u64, sender: K, bytes: u64, us: u64, came: bool) {
        self.compute(now_us);
        let is_late = self.patience_us(bytes).is_some_and(|patience| us >= patience);
        let (class, may_be_slow) = (class_of(bytes), self.may_be_slow());
        let usual_us = self.usual_us[class];
        let known = self.senders.entry(sender).or_default();
        if now_us.saturating_sub(known.heard_us) > STALE_US {
            *known = Sender::default();
        }
        known.heard_us = now_us;
        let average = &mut known.averages[class];
        // Given up: it would have taken longer.
        average.note(if came { us } else { us.max(average.us) });
        // Asked for before the last late answer came: the same delay.
        if !is_late || now_us.saturating_sub(us) >= known.late_us {
            known.late = known.late << 1 | u8::from(is_late);
        }
        if is_late {
            known.late_us = now_us;
        }
        let late = known.late.count_ones();
        if known.is_slow {
            if late <= SLOW_TO {
                *known = Sender { heard_us: now_us, ..Sender::default() };
            }
        } else if late >= SLOW_FROM && usual_us.is_some_and(|usual| average.us >= SLOW_TIMES * usual) {
            // While many seem to be slow, nobody is: asking in another way asks them.
            known.is_slow = may_be_slow;
            known.probed_us = now_us;
        }
    }

    /// Whether `bytes` bytes more may be asked for, because an answer is late. They count as asked for.
    pub fn may_ask_again(&mut self, bytes: u64) -> bool {
        let left = self.extra.checked_sub(bytes);
        self.extra = left.unwrap_or(self.extra);
        left.is_some()
    }

    /// Whether a sender is slow.
    pub fn is_slow(&self, sender: K) -> bool {
        self.senders.get(&sender).is_some_and(|known| known.is_slow)
    }

    /// The slow ones.
    pub fn slow(&self) -> impl Iterator<Item = Slow<K>> + '_ {
        self.senders.iter().filter(|(_, known)| known.is_slow).map(|(sender, known)| {
            // The class of which more is known.
            let class = (0..CLASSES).max_by_key(|class| known.averages[*class].answers).unwrap_or(0);
            let (answers_us, usual_us) = (known.averages[class].us, self.usual_us[class].unwrap_or(0));
            Slow { sender: *sender, answers_us, usual_us }
        })
    }

    fn patience_us(&self, bytes: u64) -> Option<u64> {
        self.usual_us[class_of(bytes)].map(|usual| (usual * LATE_TIMES).max(LATE_MIN_US))
    }

    /// Whether one more sender may be slow: a quarter of them.
    fn may_be_slow(&self) -> bool {
        let slow = self.senders.values().filter(|known| known.is_slow).count();
        slow < (self.senders.len() / 4).max(1)
    }

    /// The median of all senders, so that a slow one does not change what is usual.
    fn compute(&mut self, now_us: u64) {
        if self.computed_us.is_some_and(|then| now_us.saturating_sub(then) < USUAL_US) {
            return;
        }
        self.computed_us = Some(now_us);
        self.senders.retain(|_, known| now_us.saturating_sub(known.heard_us) <= STALE_US);
        for class in 0..CLASSES {
            let averages = self.senders.values().map(|known| known.averages[class]);
            let mut known: Vec<u64> =
                averages.filter(|average| average.answers >= ANSWERS_MIN).map(|average| average.us).collect();
            known.sort_unstable();
            self.usual_us[class] = (known.len() >= SENDERS_MIN).then(|| known[(known.len() - 1) / 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 4096;

    /// Six senders, which have answered within 300 microseconds so far.
    fn six(now: &mut u64) -> Latencies<u32> {
        let mut latencies = Latencies::default();
        (0..20).for_each(|_| all_answer(&mut latencies, now, 300));
        latencies
    }

    fn all_answer(latencies: &mut Latencies<u32>, now: &mut u64, us: u64) {
        for sender in 0..6 {
            answer(latencies, now, sender, us);
        }
    }

    /// A request that is answered after `us`, or is late and given up.
    fn answer(latencies: &mut Latencies<u32>, now: &mut u64, sender: u32, us: u64) -> Ask {
        let ask = latencies.ask(*now, sender, BYTES);
        match ask {
            Ask::Sender { patience_us: Some(patience) } if us > patience => {
                *now += patience;
                latencies.note(*now, sender, BYTES, patience, false);
            }
            Ask::Sender { .. } | Ask::Elsewhere { probe: true } => {
                *now += us;
                latencies.note(*now, sender, BYTES, us, true);
            }
            Ask::Elsewhere { probe: false } => *now += 1000,
        }
        ask
    }

    #[test]
    fn few_senders_are_not_compared() {
        let (mut latencies, mut now) = (Latencies::default(), 0);
        for n in 0..100 {
            let ask = answer(&mut latencies, &mut now, n % 2, if n % 2 == 0 { 300 } else { 90_000 });
            assert_eq!(ask, Ask::Sender { patience_us: None });
        }
    }

    #[test]
    fn one_that_becomes_slow_is_left_out_and_comes_back() {
        let mut now = 0;
        let mut latencies = six(&mut now);
        assert_eq!(latencies.ask(now, 2, BYTES), Ask::Sender { patience_us: Some(2000) });
        let asked = (0..).take_while(|_| {
            answer(&mut latencies, &mut now, 2, 6000);
            !latencies.is_slow(2)
        });
        assert!(asked.count() <= 4);
        let slow: Vec<_> = latencies.slow().collect();
        assert!(matches!(slow[..], [Slow { sender: 2, usual_us: 300, answers_us: 600.. }]), "{slow:?}");
        // It stays slow, and is asked ten times a second.
        let mut probes = 0;
        let end = now + 1_000_000;
        while now < end {
            for sender in 0..6 {
                if answer(&mut latencies, &mut now, sender, if sender == 2 { 6000 } else { 300 })
                    == (Ask::Elsewhere { probe: true })
                {
                    probes += 1;
                }
            }
        }
        assert!(latencies.is_slow(2) && (8..=11).contains(&probes), "{probes}");
        // It recovers.
        let end = now + 1_000_000;
        while now < end {
            all_answer(&mut latencies, &mut now, 300);
        }
        assert_eq!(latencies.slow().count(), 0);
    }

    #[test]
    fn while_all_are_busy_nobody_is_slow() {
        let mut now = 0;
        let mut latencies = six(&mut now);
        for _ in 0..100 {
            all_answer(&mut latencies, &mut now, 20_000);
            assert!(latencies.slow().count() <= 1);
        }
        assert_eq!(latencies.slow().count(), 0);
        let ask = latencies.ask(now, 0, BYTES);
        assert!(matches!(ask, Ask::Sender { patience_us: Some(79_000..=80_000) }), "{ask:?}");
    }

    #[test]
    fn answers_that_are_late_together_count_once() {
        let mut now = 0;
        let mut latencies = six(&mut now);
        // Twice, three stalls of 5 ms, each with 16 requests under way.
        for _ in 0..2 {
            for _ in 0..3 {
                now += 5000;
                (0..16).for_each(|late| latencies.note(now, 2, BYTES, 5000 - late, true));
            }
            assert!(!latencies.is_slow(2));
            for _ in 0..8 {
                answer(&mut latencies, &mut now, 2, 300);
            }
        }
        for _ in 0..4 {
            now += 5000;
            latencies.note(now, 2, BYTES, 5000, true);
        }
        assert!(latencies.is_slow(2));
    }

    #[test]
    fn a_probe_that_is_not_answered_is_the_only_one() {
        let mut now = 0;
        let mut latencies = six(&mut now);
        while !latencies.is_slow(2) {
            answer(&mut latencies, &mut now, 2, 6000);
        }
        now += PROBE_US;
        assert_eq!(latencies.ask(now, 2, BYTES), Ask::Elsewhere { probe: true });
        for _ in 0..10 {
            now += PROBE_US;
            assert_eq!(latencies.ask(now, 2, BYTES), Ask::Elsewhere { probe: false });
        }
    }

    #[test]
    fn what_has_not_been_asked_for_long_is_forgotten() {
        let mut now = 0;
        let mut latencies = six(&mut now);
        while !latencies.is_slow(2) {
            answer(&mut latencies, &mut now, 2, 6000);
        }
        now += STALE_US + 1;
        assert_eq!(latencies.ask(now, 2, BYTES), Ask::Sender { patience_us: None });
        assert_eq!(latencies.slow().count(), 0);
    }

    proptest! {
        /// However late answers are: few bytes are asked for twice, and few senders are left out.
        #[test]
        fn what_is_asked_for_again_is_bounded(
            answers in proptest::collection::vec((0u32..8, 0u64..100_000, 1u64..300_000), 0..2000)
        ) {
            let (mut latencies, mut now, mut asked, mut again) = (Latencies::default(), 0, 0, 0);
            for (sender, us, bytes) in answers {
                if let Ask::Sender { patience_us } = latencies.ask(now, sender, bytes) {
                    asked += bytes;
                    let is_late = patience_us.is_some_and(|patience| us > patience);
                    if is_late && latencies.may_ask_again(4 * bytes) {
                        again += 4 * bytes;
                    }
                    latencies.note(now, sender, bytes, us, !is_late);
                }
                now += us / 8;
                prop_assert!(again <= asked / EXTRA_PART + EXTRA_MAX);
                prop_assert!(latencies.slow().count() <= 2);
            }
        }
    }
}
