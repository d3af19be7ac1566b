//! What is modelled, and what is refused.

use pace::device::{Parameters, PolicyName, Refusal};

/// The longest run, in milliseconds of the model.
pub(crate) const RUN_MAX_MS: u64 = 3_600_000;

/// An SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ssd {
    /// Bytes of its buffer.
    pub buffer: u64,
    /// How long a command pauses after each buffer's worth, in microseconds.
    pub refill_us: u64,
    /// How long the link is busy with a command besides its bytes, in microseconds.
    pub command_us: u64,
    /// Bytes per second of the link.
    pub link: u64,
    /// Commands that it can queue.
    pub depth: u64,
    /// Channels with flash.
    pub channels: u64,
    /// Bytes that a channel reads or programs at once.
    pub page: u64,
    /// How long that takes to read, in microseconds.
    pub read_us: u64,
    /// How long that takes to program, in microseconds.
    pub program_us: u64,
    /// Of a million programs so many are followed by a collection of garbage.
    pub collect_per_million: u64,
    /// The shortest collection, in microseconds.
    pub collect_min_us: u64,
    /// The longest collection, in microseconds.
    pub collect_max_us: u64,
}

impl Ssd {
    /// The SSD of the paper, with SATA 3. docs/scheduler-model.md says where each number comes from.
    pub const SATA: Ssd = Ssd {
        buffer: 512 << 10,
        refill_us: 125,
        command_us: 62,
        link: 530_000_000,
        depth: 32,
        channels: 8,
        page: 32 << 10,
        read_us: 75,
        program_us: 650,
        collect_per_million: 2_000,
        collect_min_us: 1_000,
        collect_max_us: 5_000,
    };

    fn check(&self) -> Result<(), Refused> {
        within("--buffer", self.buffer, 32 << 10, 1 << 30)?;
        within("--refill-us", self.refill_us, 0, 100_000)?;
        within("--command-us", self.command_us, 0, 100_000)?;
        within("--link", self.link, 1_000_000, 100_000_000_000)?;
        within("--depth", self.depth, 1, 65_535)?;
        within("--channels", self.channels, 1, 256)?;
        within("--page", self.page, 4 << 10, 1 << 20)?;
        within("--read-us", self.read_us, 1, 100_000)?;
        within("--program-us", self.program_us, 1, 100_000)?;
        within("--collect-per-million", self.collect_per_million, 0, 1_000_000)?;
        within("--collect-max-us", self.collect_max_us, self.collect_min_us, 1_000_000)
    }
}

/// A policy with its parameters on a device, for so long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// The device.
    pub ssd: Ssd,
    /// The policy.
    pub policy: PolicyName,
    /// Its parameters. The depth is that of the device.
    pub parameters: Parameters,
    /// How long everything runs before anything counts, in milliseconds.
    pub ramp_ms: u64,
    /// How long it counts, in milliseconds.
    pub time_ms: u64,
    /// The source of all chance.
    pub seed: u64,
}

impl Setup {
    /// The paper's device and times that are enough for its workloads.
    pub fn new(policy: PolicyName) -> Setup {
        // Linux merges up to 512 KiB, the paper's SLQ up to 4 MiB.
        let largest = if policy.is_slq() { 4 << 20 } else { 512 << 10 };
        let parameters = Parameters { largest, ..Parameters::default() };
        Setup { ssd: Ssd::SATA, policy, parameters, ramp_ms: 2_000, time_ms: 10_000, seed: 1 }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), Refused> {
        self.ssd.check()?;
        within("ramp in ms,", self.ramp_ms, 0, RUN_MAX_MS)?;
        within("measurement in ms,", self.time_ms, 1, RUN_MAX_MS)?;
        self.parameters.check().map_err(Refused::from)
    }
}

/// Why a setup or a trace cannot be modelled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// What cannot be.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused { what: refusal.to_string(), remedy: "a value within its range".into() }
    }
}

/// Refuses a number that is out of its range.
fn within(what: &str, number: u64, least: u64, most: u64) -> Result<(), Refused> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    let what = format!("{what} {number} is out of range");
    Err(Refused { remedy: format!("{least} to {most}"), what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        type Change = fn(&mut Setup);
        let refused: [(&str, Change); 4] = [
            ("--channels 0", |setup| setup.ssd.channels = 0),
            ("--link 1", |setup| setup.ssd.link = 1),
            ("measurement in ms, 0", |setup| setup.time_ms = 0),
            ("read-priority 4194305", |setup| setup.parameters.read_priority = (4 << 20) + 1),
        ];
        for (words, change) in refused {
            let mut setup = Setup::new(PolicyName::SlqAuto);
            assert_eq!(setup.check(), Ok(()));
            change(&mut setup);
            let refused = setup.check().expect_err(words);
            assert!(refused.to_string().contains(words), "{refused}");
            assert!(!refused.remedy.is_empty());
        }
    }
}
