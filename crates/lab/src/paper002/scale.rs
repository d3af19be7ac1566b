//! The sizes of all experiments.

use std::time::Duration;

use serde_json::{Value, json};

use super::networks::SERVERS;
use crate::document::Fields;
use crate::fabric::CablePlan;
use crate::star::Link;

/// RAM of a sandbox, in bytes, for bricks and logs.
pub const SANDBOX_BYTES: u64 = 6 << 30;
/// Bytes that wait for a cable at each end: never the limit.
const DEEP: u32 = 4 << 20;
/// The rate of cables while files are made and bytes are counted, which is not measured.
const MAKING_MBIT: u32 = 10_000;
/// Payload of a full frame over its length, which the rate of a cable counts: 1,448 of 1,514 bytes.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// Cables of a rate.
pub fn cables(mbit: u32) -> CablePlan {
    CablePlan { link: Link { mbit, queue: DEEP }, delay: Duration::ZERO }
}

/// Cables that are no limit.
pub fn making() -> CablePlan {
    cables(MAKING_MBIT)
}

/// The payload that a cable carries in one direction, in MB/s.
pub fn payload(mbit: u32) -> f64 {
    f64::from(mbit) / 8.0 * PAYLOAD
}

/// The sizes of a run of all experiments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    /// A short run, which shows that everything works and measures nothing.
    pub is_quick: bool,
    /// Nodes of the chain (paper: 16).
    pub chain: u32,
    /// Rate of its cables, in Mbit/s (paper: 10,000).
    pub chain_mbit: u32,
    /// Small messages there and back over each number of hops.
    pub pings: u32,
    /// Milliseconds of a stream over each number of hops.
    pub stream_millis: u64,
    /// Bytes of data in a stripe of the code's own test.
    pub stripes: Vec<u32>,
    /// Milliseconds of each of its rows.
    pub code_millis: u64,
    /// Rate of the cables where one message is compared with four, in Mbit/s (paper: 10,000).
    pub sends_mbit: u32,
    /// Bytes of the message, by turns.
    pub sends: Vec<u32>,
    /// How often each is sent.
    pub repetitions: u32,
    /// Nodes with a brick: data units and parities of a stripe ([`SERVERS`], as in the paper).
    pub servers: u32,
    /// Of them parities (paper: 2).
    pub parities: u32,
    /// Copies where data are copied and not coded (paper: 3).
    pub copies: u32,
    /// Rate of the cables below the file systems, in Mbit/s (paper: 10,000).
    pub mbit: u32,
    /// Bytes of a unit (paper: 512).
    pub unit: u32,
    /// Bytes of a record, by turns, in order.
    pub records: Vec<u32>,
    /// Bytes of a record in an order of chance.
    pub random: u32,
    /// Tasks, by turns (paper: 1 and 10).
    pub tasks: Vec<u32>,
    /// Bytes of a file, and of all tasks of a run in order together, but each has at least a record.
    pub file: u64,
    /// In an order of chance no record begins after so many milliseconds.
    pub millis: u64,
    /// The largest record of several tasks, in bytes: more would take too long.
    pub record_of_many: u32,
    /// Bytes of a unit where those who encode are compared.
    pub route_units: Vec<u32>,
    /// Bytes of a record there.
    pub route_records: Vec<u32>,
    /// Bytes of a unit where the bytes on cables are counted.
    pub counted_unit: u32,
    /// Bytes of a brick.
    pub brick: u64,
    /// Memory budget of a brick, in bytes.
    pub brick_memory: u64,
    /// Memory budget of a mount, in bytes.
    pub client_memory: u64,
}

impl Scale {
    /// The sizes for the page; a run takes less than ten minutes on two cores.
    pub fn full() -> Scale {
        Scale {
            is_quick: false,
            chain: 16,
            chain_mbit: 100,
            pings: 2000,
            stream_millis: 500,
            stripes: vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20],
            code_millis: 100,
            sends_mbit: 250,
            sends: (9..=20).map(|power| 1 << power).collect(),
            repetitions: 60,
            servers: SERVERS,
            parities: 2,
            copies: 3,
            mbit: 200,
            unit: 64 << 10,
            records: (12..=24).step_by(2).map(|power| 1 << power).chain([8 << 10]).collect(),
            random: 4 << 10,
            tasks: vec![1, 10],
            file: 16 << 20,
            millis: 800,
            record_of_many: 4 << 20,
            route_units: vec![4 << 10, 64 << 10],
            route_records: vec![4 << 10, 1 << 20],
            counted_unit: 16 << 10,
            brick: 384 << 20,
            brick_memory: 64 << 20,
            client_memory: 64 << 20,
        }
        .sorted()
    }

    /// The sizes for a run of less than a minute.
    pub fn quick() -> Scale {
        Scale {
            is_quick: true,
            chain: 5,
            pings: 200,
            stream_millis: 150,
            stripes: vec![64 << 10],
            code_millis: 10,
            sends: vec![4 << 10, 256 << 10],
            repetitions: 10,
            records: vec![8 << 10, 512 << 10],
            tasks: vec![1, 2],
            file: 2 << 20,
            millis: 200,
            route_units: vec![4 << 10],
            route_records: vec![512 << 10],
            counted_unit: 4 << 10,
            brick: 256 << 20,
            ..Scale::full()
        }
    }

    fn sorted(mut self) -> Scale {
        self.records.sort_unstable();
        self
    }

    /// Data units of a stripe.
    pub fn data(&self) -> u32 {
        self.servers - self.parities
    }

    /// The code, as `K+M`.
    pub fn code(&self) -> String {
        format!("{}+{}", self.data(), self.parities)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "chain": self.chain, "chain_mbit": self.chain_mbit, "pings": self.pings, "stream_millis": self.stream_millis,
            "stripes": self.stripes, "code_millis": self.code_millis, "sends_mbit": self.sends_mbit, "sends": self.sends,
            "repetitions": self.repetitions, "servers": self.servers, "parities": self.parities, "copies": self.copies,
            "mbit": self.mbit, "unit": self.unit, "records": self.records, "random": self.random, "tasks": self.tasks,
            "file": self.file, "millis": self.millis, "record_of_many": self.record_of_many, "route_units": self.route_units,
            "route_records": self.route_records, "counted_unit": self.counted_unit, "brick": self.brick,
            "brick_memory": self.brick_memory, "client_memory": self.client_memory,
        })
    }

    pub(super) fn from_json(is_quick: bool, value: &Value) -> Option<Scale> {
        let fields = Fields(value);
        Some(Scale {
            is_quick,
            chain: fields.small("chain")?,
            chain_mbit: fields.small("chain_mbit")?,
            pings: fields.small("pings")?,
            stream_millis: fields.number("stream_millis")?,
            stripes: fields.smalls("stripes")?,
            code_millis: fields.number("code_millis")?,
            sends_mbit: fields.small("sends_mbit")?,
            sends: fields.smalls("sends")?,
            repetitions: fields.small("repetitions")?,
            servers: fields.small("servers")?,
            parities: fields.small("parities")?,
            copies: fields.small("copies")?,
            mbit: fields.small("mbit")?,
            unit: fields.small("unit")?,
            records: fields.smalls("records")?,
            random: fields.small("random")?,
            tasks: fields.smalls("tasks")?,
            file: fields.number("file")?,
            millis: fields.number("millis")?,
            record_of_many: fields.small("record_of_many")?,
            route_units: fields.smalls("route_units")?,
            route_records: fields.smalls("route_records")?,
            counted_unit: fields.small("counted_unit")?,
            brick: fields.number("brick")?,
            brick_memory: fields.number("brick_memory")?,
            client_memory: fields.number("client_memory")?,
        })
    }

    /// Bytes of each of some tasks in order: whole records.
    pub fn span(&self, tasks: u32, record: u32) -> u64 {
        let record = u64::from(record);
        (self.file / u64::from(tasks)).div_ceil(record).max(1) * record
    }

    /// The records of some tasks in order, in bytes.
    pub fn records_of(&self, tasks: u32) -> impl Iterator<Item = u32> + '_ {
        let most = if tasks == 1 { u32::MAX } else { self.record_of_many };
        self.records.iter().copied().filter(move |record| *record <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_order_has_whole_records_and_fits_the_files() {
        for scale in [Scale::full(), Scale::quick()] {
            assert!(scale.records.is_sorted() && scale.records.len() > 1);
            for &tasks in &scale.tasks {
                for record in scale.records_of(tasks) {
                    let span = scale.span(tasks, record);
                    assert!(span.is_multiple_of(record.into()) && span <= scale.file, "{tasks} x {record}");
                    assert!(span * u64::from(tasks) >= scale.file.min(16 << 20));
                    assert!(scale.file.is_multiple_of(record.into()));
                }
            }
        }
    }
}
