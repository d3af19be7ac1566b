//! What can be tuned at run time, and the names of the policies.

use std::fmt;
use std::str::FromStr;

use super::request::{Direction, Refusal, refuse};

/// The largest dispatch priority, in bytes.
pub const DISPATCH_PRIORITY_MAX: u64 = 4 << 20;

/// How requests are put in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PolicyName {
    /// As they came.
    Noop,
    /// By place, reads before writes, none much later than its deadline. Linux 5.x, `mq-deadline`.
    Deadline,
    /// Time slices for processes. Linux 3.13.
    Cfq,
    /// Budgets of bytes for processes, by virtual time. Linux 4.12 and later.
    Bfq,
    /// As they came, with fewer in flight while latencies are above targets. Linux 4.20 and later.
    Kyber,
    /// The size nearest to the dispatch priority first.
    SlqNearest,
    /// Sizes up to the dispatch priority first, largest first; then larger ones, smallest first.
    SlqLisfFirst,
    /// `slq-nearest` with dispatch priorities that it looks for itself.
    SlqAuto,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [PolicyName; 8] = [
        PolicyName::Noop,
        PolicyName::Deadline,
        PolicyName::Cfq,
        PolicyName::Bfq,
        PolicyName::Kyber,
        PolicyName::SlqNearest,
        PolicyName::SlqLisfFirst,
        PolicyName::SlqAuto,
    ];

    /// The name in commands and reports.
    pub fn word(self) -> &'static str {
        match self {
            PolicyName::Noop => "noop",
            PolicyName::Deadline => "deadline",
            PolicyName::Cfq => "cfq",
            PolicyName::Bfq => "bfq",
            PolicyName::Kyber => "kyber",
            PolicyName::SlqNearest => "slq-nearest",
            PolicyName::SlqLisfFirst => "slq-lisf-first",
            PolicyName::SlqAuto => "slq-auto",
        }
    }

    /// Whether it orders by size.
    pub fn is_slq(self) -> bool {
        matches!(self, PolicyName::SlqNearest | PolicyName::SlqLisfFirst | PolicyName::SlqAuto)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for PolicyName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<PolicyName, Refusal> {
        match PolicyName::ALL.into_iter().find(|name| name.word() == text) {
            Some(name) => Ok(name),
            None => {
                let words = PolicyName::ALL.map(PolicyName::word).join(", ");
                refuse(format!("`{text}` is no policy: {words}"))
            }
        }
    }
}

/// Everything that can be tuned at run time. Times are in microseconds, sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Dispatch priority of reads: the size that `slq` takes first. `slq-auto` only begins with it.
    pub read_priority: u64,
    /// The same for writes.
    pub write_priority: u64,
    /// Requests are merged up to so many bytes. A single longer one is not cut.
    pub largest: u64,
    /// Reads for each write while both wait (`slq`); batches of reads for each of writes (`deadline`).
    pub reads_per_write: u64,
    /// A read's deadline (`slq`, `deadline`).
    pub read_expiry_us: u64,
    /// A write's deadline.
    pub write_expiry_us: u64,
    /// Requests of a batch (`deadline`).
    pub fifo_batch: u64,
    /// Most dispatches in flight: what the device can queue.
    pub depth: u64,
    /// Time slice of a process of priority 4 (`cfq`).
    pub slice_sync_us: u64,
    /// Time slice of write-back (`cfq`).
    pub slice_async_us: u64,
    /// All slices of busy processes together (`cfq`).
    pub target_latency_us: u64,
    /// Requests in flight of one process while others wait (`cfq`).
    pub quantum: u64,
    /// How long an idle process keeps its turn (`cfq`, `bfq`). 0 for SSDs, 8 ms is usual for rotating disks.
    pub slice_idle_us: u64,
    /// Most bytes of a budget (`bfq`).
    pub budget: u64,
    /// The longest time for a budget (`bfq`).
    pub budget_timeout_us: u64,
    /// Latency that most reads should have (`kyber`).
    pub read_target_us: u64,
    /// Latency that most writes should have (`kyber`).
    pub write_target_us: u64,
}

impl Default for Parameters {
    /// The defaults of Linux, and those of the paper where Linux has none.
    fn default() -> Parameters {
        Parameters {
            read_priority: 512 << 10,
            write_priority: 512 << 10,
            largest: 4 << 20,
            reads_per_write: 2,
            read_expiry_us: 500_000,
            write_expiry_us: 5_000_000,
            fifo_batch: 16,
            depth: 32,
            slice_sync_us: 100_000,
            slice_async_us: 40_000,
            target_latency_us: 300_000,
            quantum: 8,
            slice_idle_us: 0,
            budget: 8 << 20,
            budget_timeout_us: 125_000,
            read_target_us: 2_000,
            write_target_us: 10_000,
        }
    }
}

/// A parameter by its name.
struct Key {
    name: &'static str,
    unit: &'static str,
    least: u64,
    most: u64,
    place: fn(&mut Parameters) -> &mut u64,
}

macro_rules! key {
    ($field:ident, $name:literal, $unit:literal, $least:expr, $most:expr) => {
        Key { name: $name, unit: $unit, least: $least, most: $most, place: |all| &mut all.$field }
    };
}

const MINUTE_US: u64 = 60_000_000;

const KEYS: [Key; 17] = [
    key!(read_priority, "read-priority", "bytes", 0, DISPATCH_PRIORITY_MAX),
    key!(write_priority, "write-priority", "bytes", 0, DISPATCH_PRIORITY_MAX),
    key!(largest, "largest", "bytes", 4 << 10, 64 << 20),
    key!(reads_per_write, "reads-per-write", "reads", 1, 64),
    key!(read_expiry_us, "read-expiry", "us", 1_000, MINUTE_US),
    key!(write_expiry_us, "write-expiry", "us", 1_000, MINUTE_US),
    key!(fifo_batch, "fifo-batch", "requests", 1, 1024),
    key!(depth, "depth", "requests", 1, 65_535),
    key!(slice_sync_us, "slice-sync", "us", 1_000, MINUTE_US),
    key!(slice_async_us, "slice-async", "us", 1_000, MINUTE_US),
    key!(target_latency_us, "target-latency", "us", 1_000, MINUTE_US),
    key!(quantum, "quantum", "requests", 1, 1024),
    key!(slice_idle_us, "slice-idle", "us", 0, 1_000_000),
    key!(budget, "budget", "bytes", 64 << 10, 64 << 20),
    key!(budget_timeout_us, "budget-timeout", "us", 1_000, MINUTE_US),
    key!(read_target_us, "read-target", "us", 10, MINUTE_US),
    key!(write_target_us, "write-target", "us", 10, MINUTE_US),
];

impl Parameters {
    /// Sets the one of this name. Refused, with the range, if the value is out of it.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), Refusal> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let names = KEYS.each_ref().map(|key| key.name).join(", ");
            return refuse(format!("`{name}` is no parameter of a device scheduler: {names}"));
        };
        key.check(value)?;
        *(key.place)(self) = value;
        Ok(())
    }

    /// The value of the one of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut all = *self;
        KEYS.iter().find(|key| key.name == name).map(|key| *(key.place)(&mut all))
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|key| key.name)
    }

    /// Refuses values that are out of their ranges.
    pub fn check(&self) -> Result<(), Refusal> {
        let mut all = *self;
        KEYS.iter().try_for_each(|key| key.check(*(key.place)(&mut all)))
    }

    /// The dispatch priority of a direction.
    pub fn priority(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Read => self.read_priority,
            Direction::Write => self.write_priority,
        }
    }

    /// How long a request may wait.
    pub(super) fn expiry_us(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Read => self.read_expiry_us,
            Direction::Write => self.write_expiry_us,
        }
    }
}

impl Key {
    fn check(&self, value: u64) -> Result<(), Refusal> {
        let Key { name, unit, least, most, .. } = self;
        if (*least..=*most).contains(&value) {
            return Ok(());
        }
        refuse(format!("{name} {value} is out of range: {least} to {most} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        for name in PolicyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let why = "elevator".parse::<PolicyName>().expect_err("no policy").to_string();
        assert!(why.contains("`elevator`") && why.contains("slq-lisf-first, slq-auto"), "{why}");
    }

    #[test]
    fn every_parameter_has_a_name_and_a_range() {
        let mut all = Parameters::default();
        assert_eq!(all.check(), Ok(()));
        for key in &KEYS {
            assert_eq!(all.set(key.name, key.least), Ok(()));
            assert_eq!((all.set(key.name, key.most), all.get(key.name)), (Ok(()), Some(key.most)));
            let why = all.set(key.name, key.most + 1).expect_err("above its range").to_string();
            assert!(why.contains(key.name) && why.contains(&key.most.to_string()), "{why}");
        }
        assert_eq!(Parameters::names().count(), KEYS.len());
        assert_eq!((all.get("wind"), all.check()), (None, Ok(())));
        let why = all.set("wind", 1).expect_err("no parameter").to_string();
        assert!(why.contains("`wind`") && why.contains("read-priority"), "{why}");
        all.largest = 1;
        assert!(all.check().is_err());
    }
}
