//! One measurement, and all of them as JSON.

use serde_json::{Value, json};

use super::scale::Scale;
use super::service::AccessPath;
use super::small_write::SmallWrite;
use crate::document::{Fields, MB, parsed};
use crate::error::Result;
use crate::load::Item;

/// The arrangement of one point of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The access path.
    pub way: AccessPath,
    /// Nodes in the RAID.
    pub nodes: u32,
    /// Nodes that work at once.
    pub clients: u32,
    /// The first of them: 1 is the one with the metadata service, and the gate of the centralised arrangement.
    pub first: u32,
    /// Rate of the links, in Mbit/s.
    pub mbit: u32,
}

/// One run of an item.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// The arrangement.
    pub point: Point,
    /// The item of the load.
    pub item: Item,
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Bytes of all clients together.
    pub bytes: u64,
    /// From the first start to the last end, in seconds.
    pub seconds: f64,
    /// Share of their time for which the cores were busy, 0 to 1.
    pub busy: f64,
    /// Bytes that the switch passed on.
    pub wire: u64,
    /// Packets that were dropped because a queue was full.
    pub dropped: u64,
}

impl Run {
    /// Megabytes per second, of all clients together.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / MB / self.seconds } else { 0.0 }
    }

    fn to_json(&self) -> Value {
        let Point { way, nodes, clients, first, mbit } = self.point;
        json!({
            "way": way.title(), "nodes": nodes, "clients": clients, "first_client": first, "mbit": mbit,
            "item": self.item.title(), "repetition": self.repetition, "bytes": self.bytes,
            "seconds": self.seconds, "mb_per_s": self.rate(), "cores_busy": self.busy, "wire_bytes": self.wire,
            "dropped_packets": self.dropped,
        })
    }

    fn from_json(value: &Value) -> Option<Run> {
        let fields = Fields(value);
        let point = Point {
            way: AccessPath::named(value["way"].as_str()?)?,
            nodes: fields.small("nodes")?,
            clients: fields.small("clients")?,
            first: fields.small("first_client")?,
            mbit: fields.small("mbit")?,
        };
        Some(Run {
            point,
            item: Item::named(value["item"].as_str()?)?,
            repetition: fields.small("repetition")?,
            bytes: fields.number("bytes")?,
            seconds: value["seconds"].as_f64()?,
            busy: value["cores_busy"].as_f64()?,
            wire: fields.number("wire_bytes")?,
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
    /// Every run.
    pub runs: Vec<Run>,
    /// What a small overwrite costs.
    pub small_write: SmallWrite,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

impl Measured {
    /// The runs of a point and an item.
    pub fn of(&self, point: Point, item: Item) -> Vec<&Run> {
        self.runs.iter().filter(|run| run.item == item && run.point == point).collect()
    }

    /// Their mean rate in MB/s, if there are any.
    pub fn rate(&self, point: Point, item: Item) -> Option<f64> {
        let rates: Vec<f64> = self.of(point, item).iter().map(|run| run.rate()).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    }

    /// Mean number of bytes over links per byte written or read.
    pub fn wire_per_byte(&self, point: Point, item: Item) -> Option<f64> {
        let runs = self.of(point, item);
        let (wire, bytes) =
            runs.iter().fold((0, 0), |(wire, bytes), run| (wire + run.wire, bytes + run.bytes));
        (bytes > 0).then(|| wire as f64 / bytes as f64)
    }

    /// All as JSON.
    pub fn to_json(&self) -> Value {
        let scale = &self.scale;
        json!({
            "paper": "001",
            "quick": scale.is_quick,
            "seconds": self.seconds,
            "cores": self.cores,
            "scale": {
                "widths": scale.widths, "clients": scale.clients, "bytes": scale.bytes,
                "bytes_shared": scale.bytes_shared, "repetitions": scale.repetitions,
                "repetitions_slow": scale.repetitions_slow, "brick": scale.brick, "unit": scale.unit,
                "brick_memory": scale.brick_memory, "client_memory": scale.client_memory,
            },
            "small_write": self.small_write.to_json(),
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
        let base = if value["quick"].as_bool()? { Scale::quick() } else { Scale::full() };
        let (all, fields) = (Fields(value), Fields(&value["scale"]));
        let small_write = SmallWrite::from_json(&value["small_write"])?;
        let scale = Scale {
            widths: fields.smalls("widths")?,
            clients: fields.small("clients")?,
            bytes: fields.number("bytes")?,
            bytes_shared: fields.number("bytes_shared")?,
            repetitions: fields.small("repetitions")?,
            repetitions_slow: fields.small("repetitions_slow")?,
            overwrites: small_write.overwrites,
            brick: fields.number("brick")?,
            unit: fields.small("unit")?,
            brick_memory: fields.number("brick_memory")?,
            client_memory: fields.number("client_memory")?,
            ..base
        };
        let (runs, cores) = (all.list("runs", Run::from_json)?, all.small("cores")?);
        Some(Measured { scale, cores, runs, small_write, seconds: value["seconds"].as_f64()? })
    }
}
