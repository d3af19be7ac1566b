//! One measurement, and all of them as JSON.

use layout::{Access, Backend, Operation, Row};
use serde_json::{Value, json};

use super::chain::HopRun;
use super::counted::{CountRun, Route};
use super::networks::Place;
use super::scale::Scale;
use super::sends::SendRun;
use crate::document::{Fields, MB, parsed};
use crate::error::Result;
use crate::load::readers::Order;
use crate::load::streams::Way;

/// A file system that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// Shoal on the torus, whose client is one of its nodes.
    Torus,
    /// Shoal on the torus, whose client is in front of it, by one cable.
    Front,
    /// Shoal on the tree.
    Tree,
    /// GlusterFS on the tree, dispersed.
    GlusterCoded,
    /// GlusterFS on the tree, with copies.
    GlusterCopies,
}

impl System {
    /// All of them.
    pub const ALL: [System; 5] =
        [System::Torus, System::Front, System::Tree, System::GlusterCoded, System::GlusterCopies];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            System::Torus => "Shoal, torus",
            System::Front => "Shoal, in front",
            System::Tree => "Shoal, tree",
            System::GlusterCoded => "GlusterFS coded, tree",
            System::GlusterCopies => "GlusterFS copies, tree",
        }
    }

    /// Shoal with a client at a place.
    pub fn shoal(place: Place) -> System {
        match place {
            Place::Torus => System::Torus,
            Place::Front => System::Front,
            Place::Tree => System::Tree,
        }
    }

    /// Who encodes in Figures 8 and 9: the primary, as in the paper, where the client has one cable, on which parities would take a
    /// fifth of the room; the client where it has four. The client of GlusterFS always does.
    pub fn encoder(self) -> Encoder {
        match self {
            System::Front | System::Tree => Encoder::Primary,
            System::Torus | System::GlusterCoded | System::GlusterCopies => Encoder::Client,
        }
    }

    /// Whether it is GlusterFS.
    pub fn is_gluster(self) -> bool {
        matches!(self, System::GlusterCoded | System::GlusterCopies)
    }
}

/// Who encodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoder {
    /// The client.
    Client,
    /// The primary.
    Primary,
}

impl Encoder {
    /// Both.
    pub const ALL: [Encoder; 2] = [Encoder::Client, Encoder::Primary];

    /// The word for it in `shoal mount --encode`.
    pub fn title(self) -> &'static str {
        match self {
            Encoder::Client => "client",
            Encoder::Primary => "primary",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The system.
    pub system: System,
    /// Who encodes.
    pub encoder: Encoder,
    /// Bytes of a unit of Shoal.
    pub unit: u32,
    /// Reads or writes.
    pub way: Way,
    /// The order of records.
    pub order: Order,
    /// Tasks.
    pub tasks: u32,
    /// Bytes of a record.
    pub record: u32,
}

impl Scale {
    /// Records in order (Figure 8).
    pub fn in_order(&self, system: System, way: Way, tasks: u32, record: u32) -> Point {
        let (encoder, unit) = (system.encoder(), self.unit);
        Point { system, encoder, unit, way, order: Order::Sequential, tasks, record }
    }

    /// Records in an order of chance (Figure 9).
    pub fn by_chance(&self, system: System, way: Way, tasks: u32) -> Point {
        Point { order: Order::Random, ..self.in_order(system, way, tasks, self.random) }
    }

    /// All points of a system for Figures 8 and 9.
    pub fn points(&self, system: System) -> Vec<Point> {
        let mut points = Vec::new();
        for way in [Way::Write, Way::Read] {
            for &tasks in &self.tasks {
                points.extend(self.records_of(tasks).map(|record| self.in_order(system, way, tasks, record)));
            }
        }
        for way in [Way::Read, Way::Write] {
            points.extend(self.tasks.iter().map(|&tasks| self.by_chance(system, way, tasks)));
        }
        points
    }

    /// The points that compare who encodes, with one unit. Some may be those of Figure 8.
    pub fn routes(&self, system: System, unit: u32) -> Vec<Point> {
        let mut points = Vec::new();
        for encoder in Encoder::ALL {
            for &tasks in &self.tasks {
                let of = |&record: &u32| Point {
                    encoder,
                    unit,
                    ..self.in_order(system, Way::Write, tasks, record)
                };
                points.extend(self.route_records.iter().map(of));
            }
        }
        points
    }
}

/// One run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// What was measured.
    pub point: Point,
    /// Bytes that were read, or written and stable.
    pub bytes: u64,
    /// The time for that, in seconds.
    pub seconds: f64,
    /// Share of their time for which the cores were busy, 0 to 1.
    pub busy: f64,
}

impl Run {
    /// MB/s.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / MB / self.seconds } else { 0.0 }
    }

    fn to_json(self) -> Value {
        let Point { system, encoder, unit, way, order, tasks, record } = self.point;
        json!({
            "system": system.title(), "encode": encoder.title(), "unit": unit, "way": way.title(), "order": order.title(),
            "tasks": tasks, "record": record, "bytes": self.bytes, "seconds": self.seconds, "mb_per_s": self.rate(),
            "cores_busy": self.busy,
        })
    }

    fn from_json(value: &Value) -> Option<Run> {
        let fields = Fields(value);
        let point = Point {
            system: fields.named("system", &System::ALL, System::title)?,
            encoder: fields.named("encode", &Encoder::ALL, Encoder::title)?,
            unit: fields.small("unit")?,
            way: fields.named("way", &Way::ALL, Way::title)?,
            order: fields.named("order", &[Order::Sequential, Order::Random], Order::title)?,
            tasks: fields.small("tasks")?,
            record: fields.small("record")?,
        };
        Some(Run {
            point,
            bytes: fields.number("bytes")?,
            seconds: value["seconds"].as_f64()?,
            busy: value["cores_busy"].as_f64()?,
        })
    }
}

/// How fast the code is at a size of stripes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CodeRun {
    /// Bytes of data in a stripe.
    pub stripe: u32,
    /// The implementation.
    pub backend: Backend,
    /// Where the stripes lie.
    pub access: Access,
    /// What is done.
    pub operation: Operation,
    /// GB/s of data.
    pub rate: f64,
}

/// All operations of the code's own test.
pub const OPERATIONS: [Operation; 3] = [Operation::Encode, Operation::DecodeOne, Operation::DecodeTwo];

impl CodeRun {
    /// A row of the code's own test, if it has a result.
    pub fn read(row: &Row) -> Option<CodeRun> {
        let rate = *row.speed.as_ref().ok()?;
        let stripe = u32::try_from(row.stripe).ok()?;
        Some(CodeRun { stripe, backend: row.backend, access: row.access, operation: row.operation, rate })
    }

    fn to_json(self) -> Value {
        json!({
            "stripe": self.stripe, "backend": self.backend.name(), "data": self.access.name(),
            "operation": self.operation.name(), "gb_per_s": self.rate,
        })
    }

    fn from_json(value: &Value) -> Option<CodeRun> {
        let fields = Fields(value);
        Some(CodeRun {
            stripe: fields.small("stripe")?,
            backend: fields.named("backend", &Backend::ALL, Backend::name)?,
            access: fields.named("data", &[Access::Hot, Access::Memory], Access::name)?,
            operation: fields.named("operation", &OPERATIONS, Operation::name)?,
            rate: value["gb_per_s"].as_f64()?,
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
    /// The chain, by hops.
    pub hops: Vec<HopRun>,
    /// The code, by stripes.
    pub codes: Vec<CodeRun>,
    /// One message and four, on the torus and on the tree.
    pub sends: [Vec<SendRun>; 2],
    /// Bytes on cables.
    pub counts: Vec<CountRun>,
    /// The file systems.
    pub runs: Vec<Run>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

impl Measured {
    /// The run of a point.
    pub fn run(&self, point: Point) -> Option<&Run> {
        self.runs.iter().find(|run| run.point == point)
    }

    /// What a stripe costs.
    pub fn count(&self, place: Place, route: Route) -> Option<&CountRun> {
        self.counts.iter().find(|run| (run.place, run.route) == (place, route))
    }

    /// The code's speed.
    pub fn code(&self, stripe: u32, backend: Backend, access: Access, operation: Operation) -> Option<f64> {
        let is_it = |run: &&CodeRun| {
            (run.stripe, run.backend, run.access, run.operation) == (stripe, backend, access, operation)
        };
        self.codes.iter().find(is_it).map(|run| run.rate)
    }

    /// All as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "paper": "002",
            "quick": self.scale.is_quick,
            "seconds": self.seconds,
            "cores": self.cores,
            "scale": self.scale.to_json(),
            "gluster": self.gluster.as_ref().ok(),
            "gluster_missing": self.gluster.as_ref().err(),
            "hops": self.hops.iter().map(hop_to_json).collect::<Vec<_>>(),
            "codes": self.codes.iter().map(|run| run.to_json()).collect::<Vec<_>>(),
            "torus_sends": self.sends[0].iter().map(send_to_json).collect::<Vec<_>>(),
            "tree_sends": self.sends[1].iter().map(send_to_json).collect::<Vec<_>>(),
            "counts": self.counts.iter().map(|run| run.to_json()).collect::<Vec<_>>(),
            "runs": self.runs.iter().map(|run| run.to_json()).collect::<Vec<_>>(),
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
        let all = Fields(value);
        Some(Measured {
            scale: Scale::from_json(value["quick"].as_bool()?, &value["scale"])?,
            cores: all.small("cores")?,
            gluster: all.peer("gluster")?,
            hops: all.list("hops", hop_from_json)?,
            codes: all.list("codes", CodeRun::from_json)?,
            sends: [all.list("torus_sends", send_from_json)?, all.list("tree_sends", send_from_json)?],
            counts: all.list("counts", CountRun::from_json)?,
            runs: all.list("runs", Run::from_json)?,
            seconds: value["seconds"].as_f64()?,
        })
    }
}

fn hop_to_json(run: &HopRun) -> Value {
    let HopRun { hops, micros, least, rate, busy } = *run;
    json!({ "hops": hops, "us": micros, "least_us": least, "mb_per_s": rate, "cores_busy": busy })
}

fn hop_from_json(value: &Value) -> Option<HopRun> {
    Some(HopRun {
        hops: Fields(value).small("hops")?,
        micros: value["us"].as_f64()?,
        least: value["least_us"].as_f64()?,
        rate: value["mb_per_s"].as_f64()?,
        busy: value["cores_busy"].as_f64()?,
    })
}

fn send_to_json(run: &SendRun) -> Value {
    json!({ "bytes": run.bytes, "single_us": run.single, "parallel_us": run.parallel })
}

fn send_from_json(value: &Value) -> Option<SendRun> {
    Some(SendRun {
        bytes: Fields(value).small("bytes")?,
        single: value["single_us"].as_f64()?,
        parallel: value["parallel_us"].as_f64()?,
    })
}
