//! All measurements, in order.
//!
//! | cluster | runs | for |
//! |---|---|---|
//! | none | a file in RAM | Table 3 |
//! | 2 to 12 nodes, peer to peer | the first node works | Fig. 9 |
//! | 16 nodes, peer to peer | the first node; 1 to 5 others; one by NFS; a disk; one at 10 Mbit/s | Table 3, Figs. 7, 8, 9 |
//! | 4 nodes, bricks gathered at the first | that node | Fig. 9 |
//! | 16 nodes, bricks gathered at the first | that node; 1 to 5 others by NFS | Table 3, Figs. 8, 9 |
//! | 16 nodes, counted disks | overwrites of 4 KiB | the small write |

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::runs::{Measured, Point, Run};
use super::scale::{FAST, MAKING, SLOW, Scale};
use super::service::{AccessPath, Disk, Local, Mounts, Nfs, Service};
use super::small_write::{self, SmallWrite};
use crate::cluster::{Cluster, ClusterPlan, Disks, raid_5};
use crate::error::Result;
use crate::load::{self, Interval, Item};
use crate::meter::CpuTimes;
use crate::network::Network;
use crate::sandbox::SANDBOX_DIR;

/// The node of the centralised arrangement's gate.
const GATE: u32 = 1;
const BLOCKS: [Item; 2] = [Item::WriteBlocks, Item::ReadBlocks];

/// Measures everything, within a [sandbox](crate::sandbox). `shoal` is the program; `say` gets progress messages.
///
/// # Errors
/// A step failed; then there are no results.
pub fn measure(shoal: &Path, scale: &Scale, say: &dyn Fn(&str)) -> Result<Measured> {
    let start = Instant::now();
    let network = Network::build(scale.nodes(), FAST)?;
    let mut lab = Lab { shoal, scale, network: &network, runs: Vec::new(), say, start };
    lab.local()?;
    for &nodes in &scale.widths[..scale.widths.len() - 1] {
        let cluster = lab.cluster(nodes, Disks::Own)?;
        lab.width(&cluster)?;
    }
    lab.peers()?;
    for &nodes in &scale.widths_gathered {
        let cluster = lab.cluster(nodes, Disks::Gathered)?;
        lab.gathered(&cluster)?;
    }
    let small_write = lab.small_write()?;
    let Lab { runs, .. } = lab;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    Ok(Measured { scale: scale.clone(), cores, runs, small_write, seconds: start.elapsed().as_secs_f64() })
}

struct Lab<'n> {
    shoal: &'n Path,
    scale: &'n Scale,
    network: &'n Network,
    runs: Vec<Run>,
    say: &'n dyn Fn(&str),
    start: Instant,
}

impl<'n> Lab<'n> {
    fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        (self.say)(&format!("{:2}:{:02}  {what}", seconds / 60, seconds % 60));
    }

    fn cluster(&self, nodes: u32, disks: Disks) -> Result<Cluster<'n>> {
        let scale = self.scale;
        let plan = ClusterPlan {
            nodes,
            disks,
            brick: scale.brick,
            brick_memory: scale.brick_memory,
            client_memory: scale.client_memory,
            unit: scale.unit,
            code: raid_5(nodes),
            receive_window: "auto",
            topology: None,
            device: None,
        };
        let of = match disks {
            Disks::Own => "each with a brick",
            Disks::Gathered => "their disks gathered at the first by NBD",
            Disks::Counted => "every access of a disk noted",
        };
        self.say(&format!("{nodes} nodes, {of}, RAID-5 {}", plan.code));
        self.network.shape(MAKING)?;
        let cluster = Cluster::start(self.shoal, self.network, plan, Some(2 * scale.bytes))?;
        self.network.shape(FAST)?;
        Ok(cluster)
    }

    fn local(&mut self) -> Result<()> {
        let point = Point { way: AccessPath::Local, nodes: 1, clients: 1, first: 1, mbit: 0 };
        let (bytes, times) = (self.scale.bytes, self.scale.repetitions);
        self.series(point, &Item::ALL, bytes, times, || {
            Ok(Box::new(Local(Path::new(SANDBOX_DIR).to_owned())))
        })
    }

    /// The first node works, as many nodes in the RAID as the cluster has.
    fn width(&mut self, cluster: &Cluster<'n>) -> Result<()> {
        let nodes = cluster.plan().nodes;
        let point = Point { way: AccessPath::FileGate, nodes, clients: 1, first: 1, mbit: FAST.mbit };
        self.mounts(cluster, point, &Item::ALL, self.scale.repetitions)
    }

    fn mounts(&mut self, cluster: &Cluster<'n>, point: Point, items: &[Item], times: u32) -> Result<()> {
        let nodes: Vec<u32> = (point.first..point.first + point.clients).collect();
        let bytes = self.scale.bytes;
        self.series(point, items, bytes, times, || Ok(Box::new(Mounts::open(cluster, nodes.clone())?)))
    }

    /// Everything of the largest cluster, peer to peer.
    fn peers(&mut self) -> Result<()> {
        let (nodes, times, bytes) = (self.scale.nodes(), self.scale.repetitions, self.scale.bytes);
        let cluster = self.cluster(nodes, Disks::Own)?;
        self.width(&cluster)?;
        let point = Point { way: AccessPath::FileGate, nodes, clients: 1, first: 2, mbit: FAST.mbit };
        for clients in 1..=self.scale.clients {
            self.mounts(&cluster, Point { clients, ..point }, &Item::ALL, times)?;
        }
        let by_nfs = Point { way: AccessPath::NfsGate, ..point };
        self.nfs(&cluster, point.first, by_nfs, bytes)?;
        let disk = Point { way: AccessPath::BlockGate, ..point };
        self.series(disk, &BLOCKS, bytes, times, || Ok(Box::new(Disk::open(&cluster, disk.first)?)))?;
        self.network.shape(SLOW)?;
        let slow = Point { mbit: SLOW.mbit, ..point };
        self.mounts(&cluster, slow, &Item::ALL, self.scale.repetitions_slow)?;
        self.network.shape(FAST)
    }

    /// The centralised arrangement: its gate node alone, and, in the largest cluster, its clients too.
    fn gathered(&mut self, cluster: &Cluster<'n>) -> Result<()> {
        let (nodes, times) = (cluster.plan().nodes, self.scale.repetitions);
        let point =
            Point { way: AccessPath::GatheredFileGate, nodes, clients: 1, first: GATE, mbit: FAST.mbit };
        self.mounts(cluster, point, &Item::ALL, times)?;
        if nodes < self.scale.nodes() {
            return Ok(());
        }
        for clients in 1..=self.scale.clients {
            let point = Point { way: AccessPath::Centralised, clients, first: GATE + 1, ..point };
            let bytes = if clients == 1 { self.scale.bytes } else { self.scale.bytes_shared };
            self.nfs(cluster, GATE, point, bytes)?;
        }
        Ok(())
    }

    /// Measures through an NFS gate at a node.
    fn nfs(&mut self, cluster: &Cluster<'n>, gate: u32, point: Point, bytes: u64) -> Result<()> {
        let nodes: Vec<u32> = (point.first..point.first + point.clients).collect();
        let memory = self.scale.gate_memory(point.clients);
        let open = || Ok(Box::new(Nfs::open(cluster, gate, memory, nodes.clone())?) as Box<dyn Service + '_>);
        self.series(point, &BLOCKS, bytes, self.scale.repetitions, open)
    }

    fn small_write(&mut self) -> Result<SmallWrite> {
        let cluster = self.cluster(self.scale.nodes(), Disks::Counted)?;
        self.say(&format!("{} overwrites of 4 KiB", self.scale.overwrites));
        small_write::count(&cluster, 2, self.scale.overwrites)
    }

    /// Measures some items at a point, several times: first writes, then, with empty caches, reads.
    fn series<'s>(
        &mut self,
        point: Point,
        items: &[Item],
        bytes: u64,
        times: u32,
        open: impl Fn() -> Result<Box<dyn Service + 's>>,
    ) -> Result<()> {
        for repetition in 1..=times {
            let mut service = open()?;
            for &item in items.iter().filter(|item| item.writes()) {
                self.item(&*service, point, item, bytes, repetition)?;
            }
            service.drop_caches()?;
            for &item in items.iter().filter(|item| !item.writes()) {
                self.item(&*service, point, item, bytes, repetition)?;
            }
            service.close()?;
        }
        Ok(())
    }

    fn item(
        &mut self,
        service: &dyn Service,
        point: Point,
        item: Item,
        bytes: u64,
        repetition: u32,
    ) -> Result<()> {
        let (cores, traffic) = (CpuTimes::now()?, self.network.forwarded()?);
        let intervals = together(point.clients, |client| one(service, client, item, bytes))?;
        let busy = CpuTimes::now()?.busy_since(cores);
        let traffic = self.network.forwarded()?.since(traffic);
        let run = Run {
            point,
            item,
            repetition,
            bytes: bytes * u64::from(point.clients),
            seconds: Interval::over(&intervals).as_secs_f64(),
            busy,
            wire: traffic.received,
            dropped: traffic.dropped,
        };
        let Point { way, nodes, clients, mbit, .. } = point;
        self.say(&format!(
            "{:<34} {mbit:>3} Mbit/s, {clients} of {nodes:>2} nodes, {:<11} {:>7.2} MB/s, cores {:>3.0} % busy",
            way.title(),
            item.title(),
            run.rate(),
            busy * 100.0
        ));
        self.runs.push(run);
        Ok(())
    }
}

/// Runs `work` for all clients at the same time.
fn together(clients: u32, work: impl Fn(usize) -> Result<Interval> + Sync) -> Result<Vec<Interval>> {
    let start = Barrier::new(clients as usize);
    thread::scope(|scope| {
        let client = |client: usize| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(client)
            })
        };
        let threads: Vec<_> = (0..clients as usize).map(client).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Interval>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

fn one(service: &dyn Service, client: usize, item: Item, bytes: u64) -> Result<Interval> {
    if item.writes() {
        load::write(item, bytes, || service.sink(client, item, bytes))
    } else {
        load::read(item, bytes, || service.source(client, item, bytes))
    }
}
