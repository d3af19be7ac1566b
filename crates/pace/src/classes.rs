//! Which class of requests a device serves next.
//!
//! Each class has a share of the device's time: a *reservation* that it gets whenever it asks, a *weight* by which it shares what
//! is left, and a *limit* that it never exceeds. What a request costs is told in microseconds of the device, so shares mean the
//! same on a disk and on a fast SSD, and for reads of 4 KiB and writes of 1 MiB.
//!
//! Requests of the journal go first, always: everybody who writes waits for them, and they are few and in sequence.
//!
//! # Invariants
//! - A class that waits is served before its reservation has been idle for longer than one request of each other class.
//! - Over any time, a class with a limit is served at most that part of the time, and one request more.
//! - A class that has asked for nothing saves up nothing: it begins level with the others.
//!
//! Source: Gulati, Merchant, Varman, "mClock", OSDI 2010: tags of reservation, limit and proportion. Here a class has one tag of
//! each, for its next request, and the tag of its reservation does not move when it is served by weight; so what it gets by
//! weight never counts against what is reserved.

use std::fmt;
use std::str::FromStr;

/// Who asks a device for something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IoClass {
    /// Records of the journal, and the pages that make room in it.
    Journal,
    /// Reads by clients, and by primaries for them.
    ClientRead,
    /// Units that clients write.
    ClientWrite,
    /// Folding overlays into units.
    Fold,
    /// Filling a replaced or returned brick, and purging what was deleted.
    Rebuild,
    /// Comparing and checking what is stored.
    Scrub,
}

impl IoClass {
    /// All of them.
    pub const ALL: [IoClass; 6] = [
        IoClass::Journal,
        IoClass::ClientRead,
        IoClass::ClientWrite,
        IoClass::Fold,
        IoClass::Rebuild,
        IoClass::Scrub,
    ];

    /// Its name in commands.
    pub const fn word(self) -> &'static str {
        match self {
            IoClass::Journal => "journal",
            IoClass::ClientRead => "read",
            IoClass::ClientWrite => "write",
            IoClass::Fold => "fold",
            IoClass::Rebuild => "rebuild",
            IoClass::Scrub => "scrub",
        }
    }

    /// The class of an index of [`IoClass::ALL`].
    const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for IoClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for IoClass {
    type Err = String;

    fn from_str(text: &str) -> Result<IoClass, String> {
        let known = IoClass::ALL.into_iter().find(|class| class.word() == text);
        known.ok_or_else(|| {
            let words: Vec<&str> = IoClass::ALL.into_iter().map(IoClass::word).collect();
            format!("there is no class `{text}`: {}", words.join(", "))
        })
    }
}

/// The share of a class, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Thousandths of the device's time that it gets whenever it asks; those of all classes together are at most 1,000.
    pub reservation: u32,
    /// Its part of what is left, in proportion to the weights of the others; at least 1.
    pub weight: u32,
    /// Thousandths of the device's time that it gets at most, [`LIMIT_MIN`] to 1,000.
    pub limit: u32,
}

/// Thousandths in the whole.
pub const WHOLE: u32 = 1_000;
/// Smallest limit, in thousandths. Whoever folds or checks a stripe keeps others from writing it meanwhile, so nobody is to wait for
/// very long.
pub const LIMIT_MIN: u32 = 50;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

impl Share {
    /// The share of a class unless somebody says otherwise. Clients have most of the device; a rebuild gets a tenth however
    /// busy they are, because until it ends a further loss may be fatal; checking takes at most a quarter of an idle device.
    pub const fn of(class: IoClass) -> Share {
        match class {
            IoClass::Journal => Share { reservation: 0, weight: 1, limit: WHOLE },
            IoClass::ClientRead => Share { reservation: 300, weight: 400, limit: WHOLE },
            IoClass::ClientWrite => Share { reservation: 200, weight: 300, limit: WHOLE },
            IoClass::Fold => Share { reservation: 50, weight: 100, limit: WHOLE },
            IoClass::Rebuild => Share { reservation: 100, weight: 100, limit: WHOLE },
            IoClass::Scrub => Share { reservation: 0, weight: 20, limit: 250 },
        }
    }
}

/// Scale of tags: microseconds of the device times this, divided by a share in thousandths, is a whole number for small requests.
const SCALE: u64 = WHOLE as u64;

/// How far a reservation that a class waits for may fall behind, while long requests of others are served, and is still made up
/// for; in microseconds.
const BEHIND_US: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
struct Tags {
    share: Share,
    /// When its reservation is due, in microseconds of the clock.
    reserved_at: u64,
    /// From when on it may be served by weight.
    allowed_at: u64,
    /// Virtual time at which its next request begins; the least goes first.
    virtual_start: u64,
    /// Requests that wait.
    waiting: u32,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Serve a request of this class.
    Serve(IoClass),
    /// Every class that waits and can go on is at its limit until this time, in microseconds.
    At(u64),
    /// Nobody waits who can go on.
    Idle,
}

/// The classes of a device, and whose turn it is. Time is in microseconds of any clock that never goes back.
#[derive(Clone, Debug)]
pub struct Classes {
    tags: [Tags; IoClass::ALL.len()],
    /// Virtual time of the last request that was served by weight.
    virtual_now: u64,
}

impl Default for Classes {
    fn default() -> Classes {
        let tags = IoClass::ALL.map(|class| Tags {
            share: Share::of(class),
            reserved_at: 0,
            allowed_at: 0,
            virtual_start: 0,
            waiting: 0,
        });
        Classes { tags, virtual_now: 0 }
    }
}

impl Classes {
    /// The share of a class.
    pub fn share(&self, class: IoClass) -> Share {
        self.tags[class.index()].share
    }

    /// Gives classes other shares, from now on: all, or nothing. What their earlier requests have used up is forgotten.
    ///
    /// # Errors
    /// What is out of range, with the range.
    pub fn set_shares(&mut self, shares: &[(IoClass, Share)], now: u64) -> Result<(), String> {
        let mut new = self.tags.map(|tags| tags.share);
        for (class, share) in shares {
            let Share { reservation, weight, limit } = *share;
            if *class == IoClass::Journal {
                return Err("the journal goes first, always: it has no share".to_owned());
            }
            if !(1..=WEIGHT_MAX).contains(&weight) {
                return Err(format!("a weight is 1 to {WEIGHT_MAX}, not {weight}"));
            }
            if !(LIMIT_MIN..=WHOLE).contains(&limit) {
                return Err(format!("a limit is {LIMIT_MIN} to {WHOLE} thousandths, not {limit}"));
            }
            if reservation > limit {
                return Err(format!(
                    "{class} would have {reservation} thousandths reserved, and at most {limit}"
                ));
            }
            new[class.index()] = *share;
        }
        let reserved: u64 = new.iter().map(|share| u64::from(share.reservation)).sum();
        if reserved > u64::from(WHOLE) {
            return Err(format!(
                "the reservations are {reserved} thousandths together, and there are {WHOLE}"
            ));
        }
        let virtual_now = self.virtual_now;
        for (tags, share) in self.tags.iter_mut().zip(new).filter(|(tags, share)| tags.share != *share) {
            tags.share = share;
            tags.reserved_at = tags.reserved_at.min(now);
            tags.allowed_at = tags.allowed_at.min(now);
            tags.virtual_start = tags.virtual_start.min(virtual_now);
        }
        Ok(())
    }

    /// A request of a class waits from now on.
    pub fn add(&mut self, class: IoClass, now: u64) {
        let virtual_now = self.virtual_now;
        let tags = &mut self.tags[class.index()];
        if tags.waiting == 0 {
            tags.reserved_at = tags.reserved_at.max(now);
            tags.allowed_at = tags.allowed_at.max(now);
            tags.virtual_start = tags.virtual_start.max(virtual_now);
        }
        tags.waiting += 1;
    }

    /// A request of a class that waited is given up.
    ///
    /// # Panics
    /// If none waits.
    pub fn leave(&mut self, class: IoClass) {
        let waiting = &mut self.tags[class.index()].waiting;
        *waiting = waiting.checked_sub(1).expect("a request would leave that does not wait");
    }

    /// All requests of a class that wait are given up.
    pub fn leave_all(&mut self, class: IoClass) {
        self.tags[class.index()].waiting = 0;
    }

    /// Whose turn it is, among those that can go on now.
    pub fn next(&self, now: u64, can_go: impl Fn(IoClass) -> bool) -> Next {
        let waits = |class: &IoClass| self.tags[class.index()].waiting > 0 && can_go(*class);
        if waits(&IoClass::Journal) {
            return Next::Serve(IoClass::Journal);
        }
        let waiting =
            || IoClass::ALL.into_iter().filter(waits).map(|class| (class, &self.tags[class.index()]));
        let due = waiting().filter(|(_, tags)| tags.share.reservation > 0 && tags.reserved_at <= now);
        if let Some((class, _)) = due.min_by_key(|(_, tags)| tags.reserved_at) {
            return Next::Serve(class);
        }
        let allowed = waiting().filter(|(_, tags)| tags.allowed_at <= now);
        if let Some((class, _)) = allowed.min_by_key(|(_, tags)| tags.virtual_start) {
            return Next::Serve(class);
        }
        let free_at = |(_, tags): (IoClass, &Tags)| match tags.share.reservation {
            0 => tags.allowed_at,
            _ => tags.allowed_at.min(tags.reserved_at),
        };
        waiting().map(free_at).min().map_or(Next::Idle, Next::At)
    }

    /// A request of a class that waited is served, and costs so many microseconds of the device.
    ///
    /// # Panics
    /// If none waits.
    pub fn serve(&mut self, class: IoClass, cost_us: u64, now: u64) {
        let tags = &mut self.tags[class.index()];
        assert!(tags.waiting > 0, "a request would be served that nobody has asked for");
        tags.waiting -= 1;
        if class == IoClass::Journal {
            return;
        }
        let step = |thousandths: u32| cost_us.saturating_mul(SCALE) / u64::from(thousandths.max(1));
        if tags.share.limit < WHOLE {
            tags.allowed_at = tags.allowed_at.max(now).saturating_add(step(tags.share.limit));
        }
        if tags.share.reservation > 0 && tags.reserved_at <= now {
            let since = tags.reserved_at.max(now.saturating_sub(BEHIND_US));
            tags.reserved_at = since.saturating_add(step(tags.share.reservation));
        } else {
            self.virtual_now = self.virtual_now.max(tags.virtual_start);
            tags.virtual_start = tags.virtual_start.saturating_add(step(tags.share.weight));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Serves `classes`, which always wait, with requests of the given cost for `total` microseconds; how much time each got.
    fn shares(classes: &mut Classes, costs: &[(IoClass, u64)], total: u64) -> BTreeMap<IoClass, u64> {
        let costs: BTreeMap<IoClass, u64> = costs.iter().copied().collect();
        let (mut now, mut got) = (1_000_000, BTreeMap::new());
        // Two of each: a class that is served goes on waiting.
        costs.keys().for_each(|class| (0..2).for_each(|_| classes.add(*class, now)));
        let end = now + total;
        while now < end {
            match classes.next(now, |_| true) {
                Next::Serve(class) => {
                    let cost = costs[&class];
                    classes.serve(class, cost, now);
                    *got.entry(class).or_default() += cost;
                    now += cost;
                    classes.add(class, now);
                }
                Next::At(at) => now = at.max(now + 1),
                Next::Idle => unreachable!("all wait"),
            }
        }
        got
    }

    fn part(got: &BTreeMap<IoClass, u64>, class: IoClass, total: u64) -> f64 {
        got.get(&class).copied().unwrap_or(0) as f64 / total as f64
    }

    #[test]
    fn the_journal_never_waits() {
        let mut classes = Classes::default();
        for class in IoClass::ALL {
            (0..3).for_each(|_| classes.add(class, 0));
        }
        for at in 0..3 {
            assert_eq!(classes.next(at, |_| true), Next::Serve(IoClass::Journal));
            classes.serve(IoClass::Journal, 1_000_000, at);
        }
        assert_ne!(classes.next(3, |_| true), Next::Serve(IoClass::Journal));
    }

    #[test]
    fn classes_that_all_wait_get_their_reservations_and_share_the_rest_by_weight() {
        use IoClass::*;
        let mut classes = Classes::default();
        let total = 10_000_000;
        let got = shares(&mut classes, &[(ClientRead, 100), (ClientWrite, 900), (Rebuild, 2_000)], total);
        // 300, 200 and 100 of 1,000 are reserved, the rest is 400 to 300 to 100.
        for (class, wanted) in [(ClientRead, 0.5), (ClientWrite, 0.35), (Rebuild, 0.15)] {
            let found = part(&got, class, total);
            assert!((found - wanted).abs() < 0.02, "{class}: {found} instead of {wanted}");
        }
    }

    #[test]
    fn a_class_alone_gets_the_device_up_to_its_limit() {
        for (class, wanted) in [(IoClass::Rebuild, 1.0), (IoClass::Scrub, 0.25)] {
            let total = 10_000_000;
            let found = part(&shares(&mut Classes::default(), &[(class, 500)], total), class, total);
            assert!((found - wanted).abs() < 0.01, "{class}: {found} instead of {wanted}");
        }
    }

    #[test]
    fn who_has_asked_for_nothing_has_saved_up_nothing() {
        use IoClass::*;
        let mut classes = Classes::default();
        shares(&mut classes, &[(ClientRead, 100)], 5_000_000);
        // One that comes later does not get all for the time in which it did not ask.
        let mut got = BTreeMap::<IoClass, u64>::new();
        let mut now = 10_000_000;
        (0..1000).for_each(|_| classes.add(Rebuild, now));
        (0..1000).for_each(|_| classes.add(ClientRead, now));
        for _ in 0..100 {
            let Next::Serve(class) = classes.next(now, |_| true) else { unreachable!("both wait") };
            classes.serve(class, 1_000, now);
            *got.entry(class).or_default() += 1;
            now += 1_000;
        }
        assert!(got[&ClientRead] >= 60, "{got:?}");
        assert!(got[&Rebuild] >= 10, "{got:?}");
    }

    #[test]
    fn shares_that_make_no_sense_are_refused() {
        let mut classes = Classes::default();
        let mut refused = |class, reservation, weight, limit| {
            let share = (class, Share { reservation, weight, limit });
            let before = IoClass::ALL.map(|class| classes.share(class));
            let why = classes
                .set_shares(&[(IoClass::Scrub, Share::of(IoClass::Fold)), share], 0)
                .expect_err("nonsense");
            assert_eq!(before, IoClass::ALL.map(|class| classes.share(class)), "nothing changes");
            why
        };
        assert!(refused(IoClass::Journal, 0, 1, 1_000).contains("goes first"));
        assert!(refused(IoClass::Fold, 0, 0, 1_000).contains("a weight is 1 to 10000, not 0"));
        assert!(refused(IoClass::Fold, 0, 10_001, 1_000).contains("10001"));
        assert!(refused(IoClass::Fold, 0, 1, 49).contains("a limit is 50 to 1000"));
        assert!(refused(IoClass::Fold, 0, 1, 1_001).contains("1001"));
        assert!(refused(IoClass::Fold, 300, 1, 200).contains("at most 200"));
        assert!(refused(IoClass::Rebuild, 451, 1, 1_000).contains("1051 thousandths together"));
        let most = Share { reservation: 450, weight: 1, limit: 1_000 };
        assert_eq!(classes.set_shares(&[(IoClass::Rebuild, most)], 0), Ok(()));
        assert!("folds".parse::<IoClass>().expect_err("no class").contains("journal, read, write, fold"));
        assert!(IoClass::ALL.into_iter().all(|class| class.word().parse() == Ok(class)));
    }

    proptest! {
        /// Whoever waits is served, limits hold, and nobody's reservation is passed over for long.
        #[test]
        fn nobody_starves_and_no_limit_is_exceeded(
            steps in proptest::collection::vec((0..6_usize, 1..3_000_u64, 0..4_u8), 1..400),
        ) {
            let mut classes = Classes::default();
            let (mut now, mut waiting, mut scrubbed) = (0_u64, [0_u32; 6], 0);
            let add = |classes: &mut Classes, waiting: &mut [u32; 6], at: usize, now: u64| {
                classes.add(IoClass::ALL[at], now);
                waiting[at] += 1;
            };
            for (at, cost, more) in steps {
                for further in 0..=usize::from(more) {
                    add(&mut classes, &mut waiting, (at + further) % 6, now);
                }
                match classes.next(now, |_| true) {
                    Next::Serve(class) => {
                        let at = IoClass::ALL.iter().position(|other| *other == class).expect("a class");
                        prop_assert!(waiting[at] > 0);
                        waiting[at] -= 1;
                        classes.serve(class, cost, now);
                        if class == IoClass::Scrub {
                            // One request more than the limit at most, which takes 3,000.
                            prop_assert!(scrubbed * 4 <= now, "{scrubbed} of {now}");
                            scrubbed += cost;
                        }
                        now += cost;
                    }
                    Next::At(at) => {
                        prop_assert!(at > now);
                        now = at;
                    }
                    Next::Idle => prop_assert!(waiting.iter().all(|count| *count == 0)),
                }
            }
            // All is served in the end.
            let mut left: u32 = waiting.iter().sum();
            for _ in 0..10_000 {
                match classes.next(now, |_| true) {
                    Next::Serve(class) => {
                        classes.serve(class, 100, now);
                        left -= 1;
                        now += 100;
                    }
                    Next::At(at) => now = at,
                    Next::Idle => break,
                }
            }
            prop_assert_eq!(left, 0);
        }
    }
}
