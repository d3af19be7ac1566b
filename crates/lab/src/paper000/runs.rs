//! One measurement, and all of them as JSON.

use serde_json::{Value, json};

use super::scale::Scale;
use crate::document::{Fields, MB, parsed};
use crate::error::Result;
use crate::load::readers::Order;

/// A system that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// This one.
    Shoal,
    /// The paper's.
    Gluster,
}

impl System {
    /// Both.
    pub const ALL: [System; 2] = [System::Shoal, System::Gluster];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            System::Shoal => "Shoal",
            System::Gluster => "GlusterFS",
        }
    }
}

/// How the translators are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Io-cache with pages of 128 KiB, read-ahead and write-behind: the paper's default.
    On,
    /// None of the three: the paper's change.
    Off,
    /// The client chooses, by what it observes.
    Auto,
}

impl Setting {
    /// All settings.
    pub const ALL: [Setting; 3] = [Setting::On, Setting::Off, Setting::Auto];

    /// In a word.
    pub fn title(self) -> &'static str {
        match self {
            Setting::On => "on",
            Setting::Off => "off",
            Setting::Auto => "auto",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The system.
    pub system: System,
    /// Threads of a client that serve requests; 0 if the system chooses.
    pub threads: u32,
    /// Clients that read at once.
    pub clients: u32,
    /// The order of their reads.
    pub order: Order,
    /// Bytes of a read.
    pub block: u32,
    /// The translators.
    pub setting: Setting,
    /// Rate of the links, in Mbit/s.
    pub mbit: u32,
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// What was measured.
    pub point: Point,
    /// Its round, from 1.
    pub round: u32,
    /// Bytes that all clients have read while it counted.
    pub bytes: u64,
    /// The time for that, in seconds.
    pub seconds: f64,
    /// Bytes that the clients' links brought, headers counted.
    pub wire: u64,
    /// Share of their time for which the cores were busy, 0 to 1.
    pub busy: f64,
    /// Packets that were dropped because a queue was full.
    pub dropped: u64,
}

impl Run {
    fn per_second(&self, bytes: u64) -> f64 {
        if self.seconds > 0.0 { bytes as f64 / MB / self.seconds } else { 0.0 }
    }

    /// MB/s of all clients together.
    pub fn rate(&self) -> f64 {
        self.per_second(self.bytes)
    }

    /// MB/s on the links of all clients together.
    pub fn wire_rate(&self) -> f64 {
        self.per_second(self.wire)
    }

    fn to_json(&self) -> Value {
        let Point { system, threads, clients, order, block, setting, mbit } = self.point;
        json!({
            "system": system.title(), "threads": threads, "clients": clients, "order": order.title(),
            "block": block, "setting": setting.title(), "mbit": mbit, "round": self.round, "bytes": self.bytes,
            "seconds": self.seconds, "mb_per_s": self.rate(), "wire_bytes": self.wire, "cores_busy": self.busy,
            "dropped_packets": self.dropped,
        })
    }

    fn from_json(value: &Value) -> Option<Run> {
        let fields = Fields(value);
        let point = Point {
            system: fields.named("system", &System::ALL, System::title)?,
            threads: fields.small("threads")?,
            clients: fields.small("clients")?,
            order: Order::named(value["order"].as_str()?)?,
            block: fields.small("block")?,
            setting: fields.named("setting", &Setting::ALL, Setting::title)?,
            mbit: fields.small("mbit")?,
        };
        Some(Run {
            point,
            round: fields.small("round")?,
            bytes: fields.number("bytes")?,
            seconds: value["seconds"].as_f64()?,
            wire: fields.number("wire_bytes")?,
            busy: value["cores_busy"].as_f64()?,
            dropped: fields.number("dropped_packets")?,
        })
    }
}

/// Everything that was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The sizes.
    pub scale: Scale,
    /// Cores of the machine, shared by all nodes.
    pub cores: u32,
    /// The version of GlusterFS, or why it was not measured.
    pub gluster: std::result::Result<String, String>,
    /// Every run.
    pub runs: Vec<Run>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

/// The middle one of some numbers, or the mean of the two in the middle.
fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    Some(if numbers.len() % 2 == 1 { upper } else { f64::midpoint(numbers[middle - 1], upper) })
}

impl Measured {
    /// The median of what the runs of a point say, if there are any.
    pub fn median(&self, point: Point, of: impl Fn(&Run) -> f64) -> Option<f64> {
        median(self.runs.iter().filter(|run| run.point == point).map(of).collect())
    }

    /// Their median rate in MB/s.
    pub fn rate(&self, point: Point) -> Option<f64> {
        self.median(point, Run::rate)
    }

    /// The median of bytes on the clients' links for a byte that is read.
    pub fn wire_per_byte(&self, point: Point) -> Option<f64> {
        self.median(point, |run| run.wire as f64 / run.bytes.max(1) as f64)
    }

    /// The rate of one point over that of another, if both were measured.
    pub fn ratio(&self, over: Point, under: Point) -> Option<f64> {
        let (over, under) = self.rate(over).zip(self.rate(under))?;
        (under > 0.0).then(|| over / under)
    }

    /// All as JSON.
    pub fn to_json(&self) -> Value {
        let scale = &self.scale;
        json!({
            "paper": "000",
            "quick": scale.is_quick,
            "seconds": self.seconds,
            "cores": self.cores,
            "scale": {
                "mbit": scale.mbit, "mbit_shared": scale.mbit_shared, "mbit_wide": scale.mbit_wide,
                "jobs": scale.jobs, "file": scale.file, "millis": scale.millis, "ramp": scale.ramp, "tail": scale.tail,
                "rounds": scale.rounds, "brick": scale.brick, "brick_memory": scale.brick_memory,
                "client_memory": scale.client_memory, "unit": scale.unit,
            },
            "gluster": self.gluster.as_ref().ok(),
            "gluster_missing": self.gluster.as_ref().err(),
            "runs": self.runs.iter().map(Run::to_json).collect::<Vec<_>>(),
        })
    }

    /// Reads the output of [`Measured::to_json`].
    ///
    /// # Errors
    /// Something is missing, or is not of this version.
    pub fn from_json(value: &Value) -> Result<Measured> {
        parsed(Measured::parse(value))
    }

    fn parse(value: &Value) -> Option<Measured> {
        let (all, fields) = (Fields(value), Fields(&value["scale"]));
        let scale = Scale {
            is_quick: value["quick"].as_bool()?,
            mbit: fields.small("mbit")?,
            mbit_shared: fields.small("mbit_shared")?,
            mbit_wide: fields.small("mbit_wide")?,
            jobs: fields.small("jobs")?,
            file: fields.number("file")?,
            millis: fields.number("millis")?,
            ramp: fields.number("ramp")?,
            tail: fields.number("tail")?,
            rounds: fields.small("rounds")?,
            brick: fields.number("brick")?,
            brick_memory: fields.number("brick_memory")?,
            client_memory: fields.number("client_memory")?,
            unit: fields.small("unit")?,
        };
        Some(Measured {
            scale,
            cores: all.small("cores")?,
            gluster: all.peer("gluster")?,
            runs: all.list("runs", Run::from_json)?,
            seconds: value["seconds"].as_f64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 90.0, 1.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 90.0]), Some(3.0));
    }
}
