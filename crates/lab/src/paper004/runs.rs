//! One measurement, and all of them as JSON.

use serde_json::{Value, json};

use super::scale::{Scale, payload};
use crate::document::{Fields, MB, parsed};
use crate::error::Result;
use crate::load::streams::Way;
use crate::star::Control;

/// A system that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// A dispersed volume, whose client asks all bricks at once.
    Gluster,
    /// Shoal without a receive window: it asks all bricks at once, too.
    NoWindow,
    /// Shoal as it is.
    Shoal,
}

impl System {
    /// All of them.
    pub const ALL: [System; 3] = [System::Gluster, System::NoWindow, System::Shoal];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            System::Gluster => "GlusterFS",
            System::NoWindow => "Shoal without a window",
            System::Shoal => "Shoal",
        }
    }
}

/// Whose ports have the rate and the buffer that are studied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Many servers answer each of them.
    Clients,
    /// Several clients, and other servers, write to each of them.
    Servers,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::Clients, Side::Servers];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Side::Clients => "clients",
            Side::Servers => "servers",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The system.
    pub system: System,
    /// Reads or writes.
    pub way: Way,
    /// Clients at once.
    pub clients: u32,
    /// Mounts of each.
    pub mounts: u32,
    /// Tasks of each mount.
    pub tasks: u32,
    /// Data units of a stripe: so many servers answer a read.
    pub senders: u32,
    /// Whose ports are studied.
    pub side: Side,
    /// Bytes of such a port.
    pub buffer: u32,
    /// All such ports have these bytes together, and not each.
    pub is_shared: bool,
    /// Rate of such a link, in Mbit/s.
    pub mbit: u32,
    /// Congestion control of all nodes.
    pub control: Control,
}

impl Scale {
    /// One client that reads with a few tasks from all servers that have data.
    pub fn read(&self, system: System, buffer: u32) -> Point {
        let (tasks, senders, mbit) = (self.few_tasks, self.data(), self.mbit);
        let (way, side, control, is_shared) = (Way::Read, Side::Clients, Control::Cubic, false);
        Point { system, way, clients: 1, mounts: 1, tasks, senders, side, buffer, is_shared, mbit, control }
    }

    /// Several clients whose ports share one memory.
    pub fn shared(&self, system: System, clients: u32) -> Point {
        let read = self.read(system, self.shared_buffer);
        Point { clients, mbit: self.mbit_shared, is_shared: true, ..read }
    }

    /// One client with two mounts, which receive through the same port.
    pub fn two_mounts(&self, system: System, buffer: u32) -> Point {
        Point { mounts: 2, ..self.read(system, buffer) }
    }

    /// Clients that write to few servers, whose ports are the narrow ones.
    pub fn write(&self, system: System, clients: u32) -> Point {
        let (side, senders, mbit) = (Side::Servers, self.written_data(), self.mbit_shared);
        let read = self.read(system, self.buffers[0]);
        Point { way: Way::Write, clients, tasks: 1, senders, side, mbit, ..read }
    }
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// What was measured.
    pub point: Point,
    /// Bytes that each mount has read or written while it counted.
    pub bytes: Vec<u64>,
    /// The time for that, in seconds.
    pub seconds: f64,
    /// How long a record took, in milliseconds: the median, and the 99th and 99.9th percentile.
    pub millis: [f64; 3],
    /// Packets that the ports that are studied dropped because their buffers were full.
    pub dropped: u64,
    /// Packets that all nodes sent once more.
    pub repeated: u64,
    /// How often a node waited for a timeout of TCP.
    pub timeouts: u64,
    /// The receive windows of all mounts at the end, in bytes; none if there is none, or nothing came through it.
    pub windows: Vec<u64>,
    /// Share of their time for which the cores were busy, 0 to 1.
    pub busy: f64,
}

impl Run {
    /// MB/s of all clients together.
    pub fn rate(&self) -> f64 {
        let bytes: u64 = self.bytes.iter().sum();
        if self.seconds > 0.0 { bytes as f64 / MB / self.seconds } else { 0.0 }
    }

    /// The rate over what the links that are studied can carry. A server's carries one unit of each written stripe.
    pub fn share(&self) -> f64 {
        let Point { side, clients, senders, mbit, .. } = self.point;
        let links = if side == Side::Clients { clients } else { senders };
        self.rate() / (payload(mbit) * f64::from(links))
    }

    /// How equal the mounts' shares are (Jain).
    pub fn fairness(&self) -> f64 {
        types::fairness(self.bytes.iter().map(|bytes| *bytes as f64))
    }

    fn to_json(&self) -> Value {
        let Point { system, way, clients, mounts, tasks, senders, side, buffer, is_shared, mbit, control } =
            self.point;
        json!({
            "system": system.title(), "way": way.title(), "clients": clients, "mounts": mounts, "tasks": tasks, "senders": senders,
            "side": side.title(), "buffer": buffer, "is_shared": is_shared, "mbit": mbit, "control": control.title(), "bytes": self.bytes,
            "seconds": self.seconds,
            "mb_per_s": self.rate(), "share": self.share(), "fairness": self.fairness(), "record_ms": self.millis,
            "dropped_packets": self.dropped, "repeated_packets": self.repeated, "timeouts": self.timeouts,
            "windows": self.windows, "cores_busy": self.busy,
        })
    }

    fn from_json(value: &Value) -> Option<Run> {
        let fields = Fields(value);
        let point = Point {
            system: fields.named("system", &System::ALL, System::title)?,
            way: fields.named("way", &Way::ALL, Way::title)?,
            clients: fields.small("clients")?,
            mounts: fields.small("mounts")?,
            tasks: fields.small("tasks")?,
            senders: fields.small("senders")?,
            side: fields.named("side", &Side::ALL, Side::title)?,
            buffer: fields.small("buffer")?,
            is_shared: value["is_shared"].as_bool()?,
            mbit: fields.small("mbit")?,
            control: fields.named("control", &Control::ALL, Control::title)?,
        };
        Some(Run {
            point,
            bytes: fields.list("bytes", Value::as_u64)?,
            seconds: value["seconds"].as_f64()?,
            millis: fields.list("record_ms", Value::as_f64)?.try_into().ok()?,
            dropped: fields.number("dropped_packets")?,
            repeated: fields.number("repeated_packets")?,
            timeouts: fields.number("timeouts")?,
            windows: fields.list("windows", Value::as_u64)?,
            busy: value["cores_busy"].as_f64()?,
        })
    }
}

/// What `shoal net probe` said of a network.
#[derive(Clone, PartialEq, Debug)]
pub struct ProbeRun {
    /// Bytes that the client's port has.
    pub port: u32,
    /// The largest burst that arrived whole, in bytes.
    pub whole: u64,
    /// The smallest one that lost packets, if any did.
    pub broken: Option<u64>,
    /// At how many senders reads begin to wait for timeouts.
    pub knee: Option<u64>,
    /// The rate in MB/s.
    pub rate: f64,
    /// The least round trip, in microseconds.
    pub round_trip: u64,
    /// The sentences.
    pub findings: Vec<String>,
}

impl ProbeRun {
    /// From the command's answer.
    pub fn read(port: u32, said: &Value) -> Option<ProbeRun> {
        let findings = said["findings"].as_array()?.iter();
        Some(ProbeRun {
            port,
            whole: said["burst_whole_bytes"].as_u64()?,
            broken: said["burst_broken_bytes"].as_u64(),
            knee: said["knee_senders"].as_u64(),
            rate: said["mb_per_s"].as_f64()?,
            round_trip: said["bricks"]
                .as_array()?
                .iter()
                .filter_map(|brick| brick["least_us"].as_u64())
                .min()?,
            findings: findings.map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "port": self.port, "burst_whole_bytes": self.whole, "burst_broken_bytes": self.broken, "knee_senders": self.knee, "mb_per_s": self.rate,
            "bricks": [{ "least_us": self.round_trip }], "findings": self.findings,
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
    /// What the probe said of each port.
    pub probes: Vec<ProbeRun>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

impl Measured {
    /// The run of a point.
    pub fn run(&self, point: Point) -> Option<&Run> {
        self.runs.iter().find(|run| run.point == point)
    }

    /// All as JSON.
    pub fn to_json(&self) -> Value {
        let scale = &self.scale;
        json!({
            "paper": "004",
            "quick": scale.is_quick,
            "seconds": self.seconds,
            "cores": self.cores,
            "scale": {
                "servers": scale.servers, "parities": scale.parities, "clients": scale.clients, "mbit": scale.mbit,
                "mbit_shared": scale.mbit_shared, "unit": scale.unit, "tasks": scale.tasks,
                "few_tasks": scale.few_tasks, "buffers": scale.buffers, "shared_buffer": scale.shared_buffer,
                "sharers": scale.sharers, "ports": scale.ports,
                "senders": scale.senders, "written_servers": scale.written_servers, "writers": scale.writers,
                "file": scale.file, "millis": scale.millis, "ramp": scale.ramp,
                "brick": scale.brick, "brick_memory": scale.brick_memory, "client_memory": scale.client_memory,
            },
            "gluster": self.gluster.as_ref().ok(),
            "gluster_missing": self.gluster.as_ref().err(),
            "probes": self.probes.iter().map(ProbeRun::to_json).collect::<Vec<_>>(),
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
            servers: fields.small("servers")?,
            parities: fields.small("parities")?,
            clients: fields.small("clients")?,
            mbit: fields.small("mbit")?,
            mbit_shared: fields.small("mbit_shared")?,
            unit: fields.small("unit")?,
            tasks: fields.smalls("tasks")?,
            few_tasks: fields.small("few_tasks")?,
            buffers: fields.smalls("buffers")?.try_into().ok()?,
            shared_buffer: fields.small("shared_buffer")?,
            sharers: fields.smalls("sharers")?,
            ports: fields.smalls("ports")?,
            senders: fields.smalls("senders")?,
            written_servers: fields.small("written_servers")?,
            writers: fields.smalls("writers")?,
            file: fields.number("file")?,
            millis: fields.number("millis")?,
            ramp: fields.number("ramp")?,
            brick: fields.number("brick")?,
            brick_memory: fields.number("brick_memory")?,
            client_memory: fields.number("client_memory")?,
        };
        let probe = |said: &Value| ProbeRun::read(Fields(said).small("port")?, said);
        Some(Measured {
            scale,
            cores: all.small("cores")?,
            gluster: all.peer("gluster")?,
            runs: all.list("runs", Run::from_json)?,
            probes: all.list("probes", probe)?,
            seconds: value["seconds"].as_f64()?,
        })
    }
}
