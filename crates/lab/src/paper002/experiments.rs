//! All measurements, in order.
//!
//! | network | what | for |
//! |---|---|---|
//! | none | the code, by sizes of stripes | E2 |
//! | chain | small messages and streams, by hops | E1 |
//! | torus | one message and four | E3 |
//! | torus | Shoal: bytes on cables; records of many sizes by a client in the torus, and by one in front; who encodes | Figs. 5, 6; E4, E5 |
//! | tree | one message and four | E3 |
//! | tree | Shoal: the same | the same |
//! | tree | GlusterFS: records of many sizes, coded and with copies | E4, E5 |
//!
//! The networks have the same cables, and one takes the place of the other.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use layout::code_bench;
use types::{Code, NodeId};

use super::chain;
use super::counted::{self, CountRun, Route, message_hops, predicted};
use super::networks::{self, Place, servers_beside};
use super::runs::{CodeRun, Encoder, Measured, Point, Run, System};
use super::scale::{Scale, cables, making};
use super::sends::{self, SendRun};
use crate::cluster::{Cluster, ClusterPlan, Disks, FILES, Mount};
use crate::error::{Result, doing};
use crate::fabric::Fabric;
use crate::gluster::{self, Gluster, Kind};
use crate::load::readers::{Order, make_files};
use crate::load::records::Records;
use crate::load::streams::Way;
use crate::meter::CpuTimes;
use crate::node::Node;

/// Bytes that may leave at once where one message is compared with four: two packets.
const SEND_BURST: u32 = 3028;
/// No record in order begins after that: only what does not work at all takes so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// What comes from the bricks counts, not what a client has kept.
const SETTINGS: [&str; 1] = ["io-cache=off"];
/// The same for GlusterFS.
const GLUSTER_SETTINGS: [(&str, &str); 2] =
    [("performance.io-cache", "off"), ("performance.quick-read", "off")];

/// Where bytes on cables are counted nobody asks for a unit twice.
const COUNTED_SETTINGS: [&str; 2] = ["io-cache=off", "hedge=off"];

/// Shoal's nodes.
type Shoal<'n> = Cluster<'n, [Node]>;

/// Measures everything, within a [sandbox](crate::sandbox). `shoal` is the program; `say` gets progress messages.
///
/// # Errors
/// A step failed; then there are no results. That GlusterFS cannot be measured is a result.
pub fn measure(shoal: &Path, scale: &Scale, say: &dyn Fn(&str)) -> Result<Measured> {
    let start = Instant::now();
    let mut lab = Lab { scale, shoal, runs: Vec::new(), counts: Vec::new(), say, start };
    let codes = lab.codes()?;
    let hops = lab.chain()?;
    let (on_torus, ()) = lab.network(Place::Torus, |lab, fabric, nodes| {
        let cluster = lab.start(fabric, nodes)?;
        lab.shoal_at(Place::Torus, fabric, &cluster)?;
        lab.shoal_at(Place::Front, fabric, &cluster)
    })?;
    let (on_tree, gluster) = lab.network(Place::Tree, |lab, fabric, nodes| {
        let cluster = lab.start(fabric, nodes)?;
        lab.shoal_at(Place::Tree, fabric, &cluster)?;
        drop(cluster);
        let before = lab.runs.len();
        let gluster = gluster::measured(scale.is_quick, || lab.gluster(fabric, nodes));
        if let Err(why) = &gluster {
            lab.say(&format!("GlusterFS: {why}"));
            lab.runs.truncate(before);
        }
        Ok(gluster)
    })?;
    let Lab { runs, counts, .. } = lab;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let (sends, seconds) = ([on_torus, on_tree], start.elapsed().as_secs_f64());
    Ok(Measured { scale: scale.clone(), cores, gluster, hops, codes, sends, counts, runs, seconds })
}

struct Lab<'s> {
    scale: &'s Scale,
    shoal: &'s Path,
    runs: Vec<Run>,
    counts: Vec<CountRun>,
    say: &'s dyn Fn(&str),
    start: Instant,
}

impl Lab<'_> {
    fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        (self.say)(&format!("{:2}:{:02}  {what}", seconds / 60, seconds % 60));
    }

    fn codes(&self) -> Result<Vec<CodeRun>> {
        let scale = self.scale;
        self.say("the code, by sizes of stripes");
        let code: Code = scale.code().parse().map_err(doing("read the code"))?;
        let stripes: Vec<usize> = scale.stripes.iter().map(|stripe| *stripe as usize).collect();
        let now = || self.start.elapsed().as_micros() as u64;
        let rows = code_bench(&[code], &stripes, scale.code_millis as f64 / 1e3, &now);
        if let Some(error) = rows.iter().find_map(|row| row.speed.as_ref().err()) {
            return Err(doing("measure the code")(error.clone()));
        }
        Ok(rows.iter().filter_map(CodeRun::read).collect())
    }

    fn chain(&self) -> Result<Vec<chain::HopRun>> {
        let scale = self.scale;
        self.say(&format!("a chain of {} nodes, {} Mbit/s", scale.chain, scale.chain_mbit));
        let fabric = Fabric::build(networks::chain(scale.chain)?, cables(scale.chain_mbit))?;
        let nodes = nodes_of(&fabric)?;
        let runs = chain::measure(&nodes, scale.pings, Duration::from_millis(scale.stream_millis))?;
        for run in &runs {
            self.say(&format!(
                "{:>2} hops {:>7.1} us, at least {:>7.1}, {:>6.2} MB/s, cores {:>3.0} % busy",
                run.hops,
                run.micros,
                run.least,
                run.rate,
                run.busy * 100.0
            ));
        }
        drop(nodes);
        fabric.remove()?;
        Ok(runs)
    }

    /// Makes the network of a place, compares one message with four there, and then does the rest.
    fn network<T>(
        &mut self,
        place: Place,
        rest: impl FnOnce(&mut Self, &mut Fabric, &[Node]) -> Result<T>,
    ) -> Result<(Vec<SendRun>, T)> {
        let name = if place == Place::Tree { "tree" } else { "torus" };
        self.say(&format!("a {name}: one message and four"));
        let mut fabric = Fabric::build(place.network()?, cables(self.scale.sends_mbit))?;
        let nodes = nodes_of(&fabric)?;
        let sends = self.sends(place, &mut fabric, &nodes)?;
        let rest = rest(self, &mut fabric, &nodes)?;
        drop(nodes);
        fabric.remove()?;
        Ok((sends, rest))
    }

    fn sends(&self, place: Place, fabric: &mut Fabric, nodes: &[Node]) -> Result<Vec<SendRun>> {
        let scale = self.scale;
        fabric.shape_by(cables(scale.sends_mbit), SEND_BURST)?;
        let client = place.client();
        let beside = servers_beside(fabric.topology(), client);
        let to: Vec<&Node> = if place == Place::Tree {
            nodes.iter().take(sends::PARTS as usize).collect()
        } else {
            beside.iter().map(|number| &nodes[*number as usize - 1]).collect()
        };
        let runs = sends::measure(&nodes[client as usize - 1], &to, &scale.sends, scale.repetitions)?;
        for run in &runs {
            let SendRun { bytes, single, parallel } = run;
            self.say(&format!("{bytes:>8} bytes: one message {single:>8.1} us, four {parallel:>8.1} us"));
        }
        Ok(runs)
    }

    /// Shoal on a network.
    fn start<'n>(&self, fabric: &mut Fabric, nodes: &'n [Node]) -> Result<Shoal<'n>> {
        let scale = self.scale;
        self.say(&format!("Shoal: {} nodes with a brick", scale.servers));
        fabric.shape(making())?;
        let plan = ClusterPlan {
            nodes: scale.servers,
            disks: Disks::Own,
            brick: scale.brick,
            brick_memory: scale.brick_memory,
            client_memory: scale.client_memory,
            unit: scale.unit,
            code: scale.code(),
            receive_window: "auto",
            // A stripe is on all bricks anyway, and the tables count each route by itself.
            topology: None,
            device: None,
        };
        let cluster = Cluster::start(self.shoal, nodes, plan, None)?;
        // One round of these groups has each brick as the primary once.
        let (code, groups) = (scale.code(), scale.servers.to_string());
        let counted = scale.counted_unit.to_string();
        cluster
            .ask(&["volume", "create", COUNTED, "--code", &code, "--unit", &counted, "--groups", &groups])?;
        for unit in &scale.route_units {
            cluster.ask(&[
                "volume",
                "create",
                &route_volume(*unit),
                "--code",
                &code,
                "--unit",
                &unit.to_string(),
            ])?;
        }
        let mount = cluster.mount(first_client(fabric))?;
        self.say("Shoal: files");
        make_files(mount.dir(), self.most_tasks(), scale.file)?;
        mount.unmount()?;
        Ok(cluster)
    }

    /// Everything with a client of Shoal at a place.
    fn shoal_at(&mut self, place: Place, fabric: &mut Fabric, cluster: &Shoal<'_>) -> Result<()> {
        let (scale, client, system) = (self.scale, place.client(), System::shoal(place));
        fabric.shape(making())?;
        for route in Route::ALL {
            self.count(place, route, fabric, cluster)?;
        }
        fabric.shape(cables(scale.mbit))?;
        let mount = cluster.mount_with(client, FILES, &["--encode", system.encoder().title()])?;
        cluster.tune(&mount, &SETTINGS)?;
        scale.points(system).into_iter().try_for_each(|point| self.run(point, mount.dir()))?;
        mount.unmount()?;
        for &unit in &scale.route_units {
            for encoder in Encoder::ALL {
                let is_new = |point: &Point| {
                    point.encoder == encoder && self.runs.iter().all(|run| run.point != *point)
                };
                let points: Vec<Point> = scale.routes(system, unit).into_iter().filter(is_new).collect();
                if points.is_empty() {
                    continue;
                }
                let mount =
                    cluster.mount_with(client, &route_volume(unit), &["--encode", encoder.title()])?;
                points.into_iter().try_for_each(|point| self.run(point, mount.dir()))?;
                mount.unmount()?;
            }
        }
        Ok(())
    }

    /// Counts the bytes of whole stripes on the cables, of which each brick is the primary of as many.
    fn count(&mut self, place: Place, route: Route, fabric: &Fabric, cluster: &Shoal<'_>) -> Result<()> {
        let (scale, topology) = (self.scale, fabric.topology());
        let unit = scale.counted_unit;
        let stripes = scale.servers * types::limits::EXTENT_STRIPES_DEFAULT;
        let bytes = u64::from(stripes) * u64::from(unit * scale.data());
        let mount = cluster.mount_with(place.client(), COUNTED, &["--encode", route.encode()])?;
        cluster.tune(&mount, &COUNTED_SETTINGS)?;
        let before = fabric.loads()?;
        let (way, record) = (if route == Route::Read { Way::Read } else { Way::Write }, unit * scale.data());
        if way == Way::Write {
            make_files(mount.dir(), 1, bytes)?;
        } else {
            let (order, most) = (Order::Sequential, Duration::MAX);
            let records = Records { tasks: 1, file: bytes, span: bytes, record, order, way, most };
            records.run(mount.dir())?;
        }
        let after = fabric.loads()?;
        let count = CountRun {
            place,
            route,
            stripes,
            staged: staged(&mount)?,
            messages: message_hops(topology, place, route),
            predicted: predicted(topology, place, route, scale.data()),
            measured: counted::measured(&before, &after, place, unit, stripes),
        };
        self.say(&format!(
            "{:<22} {:<22} {:>6.2} unit-hops of a stripe, {:>6.2} predicted",
            place.title(),
            route.title(),
            count.measured.unit_hops,
            count.predicted.unit_hops
        ));
        self.counts.push(count);
        mount.unmount()
    }

    fn gluster(&mut self, fabric: &mut Fabric, nodes: &[Node]) -> Result<()> {
        let scale = self.scale;
        let kinds = [
            (System::GlusterCoded, Kind::Dispersed { redundancy: scale.parities }),
            (System::GlusterCopies, Kind::Replicated { copies: scale.copies }),
        ];
        let mut volume: Option<Gluster<'_, [Node]>> = None;
        for (system, kind) in kinds {
            self.say(system.title());
            fabric.shape(making())?;
            let gluster = match volume.take() {
                None => Gluster::start(nodes, scale.servers, kind)?,
                Some(mut gluster) => {
                    gluster.renew(kind)?;
                    gluster
                }
            };
            let gluster = volume.insert(gluster);
            gluster.set(&GLUSTER_SETTINGS, &[])?;
            let mount = gluster.mount(Place::Tree.client())?;
            make_files(mount.dir(), self.most_tasks(), scale.file)?;
            fabric.shape(cables(scale.mbit))?;
            scale.points(system).into_iter().try_for_each(|point| self.run(point, mount.dir()))?;
        }
        Ok(())
    }

    fn most_tasks(&self) -> u32 {
        self.scale.tasks.iter().copied().max().unwrap_or(1)
    }

    /// Measures a point.
    fn run(&mut self, point: Point, dir: &Path) -> Result<()> {
        let Point { system, encoder, unit, way, order, tasks, record } = point;
        let file = self.scale.file;
        let (span, most) = match order {
            Order::Sequential => (self.scale.span(tasks, record), PATIENCE),
            Order::Random => (file, Duration::from_millis(self.scale.millis)),
        };
        let before = CpuTimes::now()?;
        let done = Records { tasks, file, span, record, order, way, most }.run(dir)?;
        let busy = CpuTimes::now()?.busy_since(before);
        let run = Run { point, bytes: done.bytes, seconds: done.time.as_secs_f64(), busy };
        self.say(&format!(
            "{:<22} {:<7} encodes, unit {:>3} KiB, {:<10} {:<5} by {tasks:>2}, {:>5} KiB: {:>6.2} MB/s, cores {:>3.0} % busy",
            system.title(),
            encoder.title(),
            unit >> 10,
            order.title(),
            way.title(),
            record >> 10,
            run.rate(),
            busy * 100.0
        ));
        self.runs.push(run);
        Ok(())
    }
}

/// The volume whose bytes on cables are counted.
const COUNTED: &str = "counted";

/// The volume with units of a size where those who encode are compared.
fn route_volume(unit: u32) -> String {
    format!("unit{unit}")
}

/// A client's node of a network.
fn first_client(fabric: &Fabric) -> u32 {
    let is_torus = fabric.topology().nodes().contains_key(&NodeId(Place::Torus.client()));
    if is_torus { Place::Torus.client() } else { Place::Tree.client() }
}

/// The nodes of a fabric, whose congestion control is set.
fn nodes_of(fabric: &Fabric) -> Result<Vec<Node>> {
    let nodes = fabric.nodes()?;
    nodes.iter().try_for_each(Node::configure)?;
    Ok(nodes)
}

/// The stripes that a mount has encoded.
fn staged(mount: &Mount) -> Result<u64> {
    let file = mount.dir().join(".shoal/status");
    let text = std::fs::read_to_string(&file).map_err(doing(format!("read {}", file.display())))?;
    let found = text.lines().find_map(|line| line.strip_prefix("stripes_staged "));
    let count = found.and_then(|count| count.trim().parse().ok()).ok_or("no line `stripes_staged`");
    count.map_err(doing(format!("read {}", file.display())))
}
