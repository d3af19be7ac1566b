//! All measurements, in order. All nodes are on a router, whose ports towards the clients have the buffers that are studied;
//! where several clients write, those towards the servers.
//!
//! | system | clients | runs | for |
//! |---|---|---|---|
//! | Shoal with and without a window, GlusterFS | one | reads and writes by 1 to 16 tasks, small and large buffer | E1, E2 |
//! | the same | one to four, slower links | reads, small and large buffer | E1, fairness |
//! | the same | one and four, slower links | reads, one buffer for the ports of all clients | fairness |
//! | Shoal with and without a window | one, with two mounts | reads, small and large buffer | fairness |
//! | the same | one | reads from 2 to 10 servers, four buffers | M1, M3 |
//! | the same | one | reads under other congestion controls, small buffer | M3 |
//! | the same, other bricks | up to 16 | writes to few servers behind small buffers | M3 |
//! | `shoal net probe` | one | each buffer | M4 |
//!
//! Each buffer has new mounts: a window has nothing left of what it learned behind another port.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::runs::{Measured, Point, ProbeRun, Run, Side, System};
use super::scale::{MAKING, Scale, client_link, server_link, written_links};
use crate::cluster::{Cluster, ClusterPlan, Disks, FILES, Mount};
use crate::error::{Result, doing};
use crate::gluster::{self, Gluster, GlusterMount, Kind};
use crate::load::readers::make_files;
use crate::load::streams::{Streams, Way};
use crate::meter::CpuTimes;
use crate::network::Network;
use crate::node::Repeated;
use crate::shared_buffer::SharedBuffer;
use crate::star::{Control, Link};

/// Without a window, and with it.
const SHOALS: [System; 2] = [System::NoWindow, System::Shoal];
/// What comes from the bricks counts, not what a client has kept or asked for ahead.
const SETTINGS: [&str; 2] = ["io-cache=off", "read-ahead=off"];
/// The same for GlusterFS.
const GLUSTER_SETTINGS: [(&str, &str); 4] = [
    ("performance.io-cache", "off"),
    ("performance.read-ahead", "off"),
    ("performance.quick-read", "off"),
    ("performance.write-behind", "off"),
];

/// Measures everything, within a [sandbox](crate::sandbox). `shoal` is the program; `say` gets progress messages.
///
/// # Errors
/// A step failed; then there are no results. That GlusterFS cannot be measured is a result.
pub fn measure(shoal: &Path, scale: &Scale, say: &dyn Fn(&str)) -> Result<Measured> {
    let start = Instant::now();
    let network = Network::build_routed(scale.servers + scale.most_clients(), Control::Cubic)?;
    let mut lab = Lab { scale, network: &network, runs: Vec::new(), probes: Vec::new(), say, start };
    lab.shoal(shoal)?;
    lab.writers(shoal)?;
    let before = lab.runs.len();
    let gluster = gluster::measured(scale.is_quick, || lab.gluster());
    if let Err(why) = &gluster {
        lab.say(&format!("GlusterFS: {why}"));
        lab.runs.truncate(before);
    }
    let Lab { runs, probes, .. } = lab;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measured { scale: scale.clone(), cores, gluster, runs, probes, seconds })
}

struct Lab<'n> {
    scale: &'n Scale,
    network: &'n Network,
    runs: Vec<Run>,
    probes: Vec<ProbeRun>,
    say: &'n dyn Fn(&str),
    start: Instant,
}

/// Mounts of one system at some nodes.
trait Mounts {
    fn dirs(&self) -> Vec<&Path>;
}

impl Mounts for [Mount] {
    fn dirs(&self) -> Vec<&Path> {
        self.iter().map(Mount::dir).collect()
    }
}

impl Mounts for [GlusterMount] {
    fn dirs(&self) -> Vec<&Path> {
        self.iter().map(GlusterMount::dir).collect()
    }
}

impl Lab<'_> {
    fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        (self.say)(&format!("{:2}:{:02}  {what}", seconds / 60, seconds % 60));
    }

    /// The volume whose reads come from so many servers.
    fn volume_of(&self, senders: u32) -> String {
        if senders == self.scale.data() { FILES.to_owned() } else { format!("from{senders}") }
    }

    /// The node of a client, from 0 on; the servers are before them.
    fn client(&self, number: u32) -> u32 {
        self.scale.servers + 1 + number
    }

    fn shoal(&mut self, shoal: &Path) -> Result<()> {
        let scale = self.scale;
        let plan = ClusterPlan {
            nodes: scale.servers,
            disks: Disks::Own,
            brick: scale.brick,
            brick_memory: scale.brick_memory,
            client_memory: scale.client_memory,
            unit: scale.unit,
            code: format!("{}+{}", scale.data(), scale.parities),
            receive_window: "auto",
            topology: None,
            device: None,
        };
        self.say(&format!("Shoal: {} nodes with a brick", scale.servers));
        self.shape_for_making()?;
        let cluster = Cluster::start(shoal, self.network, plan, None)?;
        self.make_shoal_files(&cluster)?;
        self.by_tasks(&cluster)?;
        self.by_clients(&cluster)?;
        self.by_mounts(&cluster)?;
        self.by_servers(&cluster)?;
        self.by_probe(&cluster)?;
        self.by_control(&cluster)?;
        // At last, because the kernel remembers for a while what it has lost on the way to a client.
        self.by_sharers(&cluster)
    }

    fn by_tasks(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        for (buffer, way) in self.matrix() {
            self.shape(self.scale.mbit, buffer)?;
            for system in SHOALS {
                let mounts = self.mount(cluster, system, FILES, 1)?;
                self.tasks(system, &mounts.dirs(), buffer, way)?;
            }
        }
        Ok(())
    }

    fn by_clients(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        for buffer in self.scale.buffers {
            self.shape(self.scale.mbit_shared, buffer)?;
            for system in SHOALS {
                let mounts = self.mount(cluster, system, FILES, self.scale.clients)?;
                self.clients(system, &mounts.dirs(), buffer)?;
            }
        }
        Ok(())
    }

    /// The ports of the clients share one memory.
    fn by_sharers(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        self.behind_shared_buffer(|lab, ports| {
            for system in SHOALS {
                let mounts = lab.mount(cluster, system, FILES, lab.scale.clients)?;
                lab.sharers(system, &mounts.dirs(), ports)?;
            }
            Ok(())
        })
    }

    fn sharers(&mut self, system: System, dirs: &[&Path], ports: &SharedBuffer) -> Result<()> {
        let scale = self.scale;
        let run = |&clients: &u32| {
            let dropped = || Ok(ports.counts()?.iter().map(|port| port.dropped).sum());
            self.run_with(scale.shared(system, clients), &dirs[..clients as usize], dropped)
        };
        scale.sharers.iter().try_for_each(run)
    }

    /// Two processes receive through one port.
    fn by_mounts(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        for buffer in self.scale.buffers {
            self.shape(self.scale.mbit, buffer)?;
            for system in SHOALS {
                let mounts = [0, 1].map(|number| self.mount_one(cluster, system, FILES, 0, number));
                let mounts: Vec<Mount> = mounts.into_iter().collect::<Result<_>>()?;
                self.run(self.scale.two_mounts(system, buffer), &mounts.dirs())?;
            }
        }
        Ok(())
    }

    fn by_servers(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        let scale = self.scale;
        for &buffer in &scale.ports {
            self.shape(scale.mbit, buffer)?;
            for &senders in &scale.senders {
                for system in SHOALS {
                    let point = Point { senders, ..scale.read(system, buffer) };
                    // One of them is a point of one client, by the number of its tasks.
                    if self.runs.iter().all(|run| run.point != point) {
                        let mounts = self.mount(cluster, system, &self.volume_of(senders), 1)?;
                        self.run(point, &mounts.dirs())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn by_probe(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        let scale = self.scale;
        for buffer in scale.ports.iter().copied().chain([scale.buffers[1]]) {
            self.shape(scale.mbit, buffer)?;
            let said = cluster.ask_at(self.client(0), &["net", "probe"])?;
            let probe = ProbeRun::read(buffer, &said).ok_or("it is of another version");
            let probe = probe.map_err(doing("read what `shoal net probe` says"))?;
            self.say(&format!("shoal net probe, {:>5} KiB: {}", buffer >> 10, probe.findings.join("; ")));
            self.probes.push(probe);
        }
        Ok(())
    }

    fn by_control(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        let small = self.scale.buffers[0];
        self.shape(self.scale.mbit, small)?;
        for control in [Control::Reno, Control::Bbr] {
            if let Err(error) = self.network.control_by(control) {
                // A kernel without it: the page shows no runs of it.
                self.say(&format!("{} is left out: {error}", control.title()));
                continue;
            }
            for system in SHOALS {
                let mounts = self.mount(cluster, system, FILES, 1)?;
                self.run(Point { control, ..self.scale.read(system, small) }, &mounts.dirs())?;
            }
        }
        self.network.control_by(Control::Cubic)
    }

    /// Several clients write to few servers: it is the servers' windows that matter.
    fn writers(&mut self, shoal: &Path) -> Result<()> {
        let scale = self.scale;
        for system in SHOALS {
            let plan = ClusterPlan {
                nodes: scale.written_servers,
                disks: Disks::Own,
                brick: scale.brick,
                brick_memory: scale.brick_memory,
                client_memory: scale.client_memory,
                unit: scale.unit,
                code: format!("{}+1", scale.written_data()),
                receive_window: window_of(system),
                topology: None,
                device: None,
            };
            self.say(&format!("{}: {} nodes with a brick", system.title(), scale.written_servers));
            self.shape_for_making()?;
            let cluster = Cluster::start(shoal, self.network, plan, None)?;
            let mounts = self.mount(&cluster, system, FILES, scale.most_clients())?;
            let own = |(number, mount): (usize, &Mount)| {
                let dir = mount.dir().join(format!("client{number}"));
                std::fs::create_dir(&dir).map_err(doing(format!("make {}", dir.display())))?;
                make_files(&dir, 1, self.file(scale.written_data()))?;
                Ok(dir)
            };
            let dirs: Vec<_> = mounts.iter().enumerate().map(own).collect::<Result<_>>()?;
            let dirs: Vec<&Path> = dirs.iter().map(|dir| &**dir).collect();
            let [server, client] = written_links(scale.mbit_shared, scale.buffers[0]);
            self.shape_each(client, server)?;
            for &clients in &scale.writers {
                self.run(scale.write(system, clients), &dirs[..clients as usize])?;
            }
        }
        Ok(())
    }

    fn gluster(&mut self) -> Result<()> {
        let scale = self.scale;
        self.say(&format!("GlusterFS: {} nodes with a brick", scale.servers));
        self.shape_for_making()?;
        let kind = Kind::Dispersed { redundancy: scale.parities };
        let mut gluster = Gluster::start(self.network, scale.servers, kind)?;
        gluster.set(&GLUSTER_SETTINGS, &[])?;
        let mounts: Vec<GlusterMount> =
            (0..scale.clients).map(|number| gluster.mount(self.client(number))).collect::<Result<_>>()?;
        let dirs = mounts.dirs();
        self.say(&format!("GlusterFS: {} files", self.most_tasks()));
        make_files(dirs[0], self.most_tasks(), scale.file)?;
        for (buffer, way) in self.matrix() {
            self.shape(scale.mbit, buffer)?;
            self.tasks(System::Gluster, &dirs[..1], buffer, way)?;
        }
        for buffer in scale.buffers {
            self.shape(scale.mbit_shared, buffer)?;
            self.clients(System::Gluster, &dirs, buffer)?;
        }
        self.behind_shared_buffer(|lab, ports| lab.sharers(System::Gluster, &dirs, ports))
    }

    /// Files of all volumes, made by links without limits that matter.
    fn make_shoal_files(&self, cluster: &Cluster<'_>) -> Result<()> {
        let scale = self.scale;
        self.say(&format!("Shoal: {} files", self.most_tasks()));
        let mount = cluster.mount(self.client(0))?;
        make_files(mount.dir(), self.most_tasks(), scale.file)?;
        mount.unmount()?;
        for &senders in scale.senders.iter().filter(|senders| **senders != scale.data()) {
            let (volume, code) = (self.volume_of(senders), format!("{senders}+0"));
            let unit = scale.unit.to_string();
            cluster.ask(&["volume", "create", &volume, "--code", &code, "--unit", &unit])?;
            let mount = cluster.mount_with(self.client(0), &volume, &[])?;
            make_files(mount.dir(), scale.few_tasks, self.file(senders))?;
            mount.unmount()?;
        }
        Ok(())
    }

    /// Mounts of a volume at the first clients.
    fn mount(&self, cluster: &Cluster<'_>, system: System, volume: &str, clients: u32) -> Result<Vec<Mount>> {
        (0..clients).map(|client| self.mount_one(cluster, system, volume, client, 0)).collect()
    }

    /// A mount of a volume at a client, which has others with other numbers.
    fn mount_one(
        &self,
        cluster: &Cluster<'_>,
        system: System,
        volume: &str,
        client: u32,
        number: u32,
    ) -> Result<Mount> {
        let words = ["--receive-window", window_of(system)];
        let mount = cluster.mount_as(self.client(client), volume, number, &words)?;
        cluster.tune(&mount, &SETTINGS)?;
        Ok(mount)
    }

    fn most_tasks(&self) -> u32 {
        self.scale.tasks.iter().copied().max().unwrap_or(1)
    }

    /// Bytes of a file whose records come from so many servers: whole records.
    fn file(&self, senders: u32) -> u64 {
        let record = u64::from(senders * self.scale.unit);
        (self.scale.file / record).max(1) * record
    }

    /// The buffers, and what is done behind each.
    fn matrix(&self) -> Vec<(u32, Way)> {
        self.scale.buffers.into_iter().flat_map(|buffer| Way::ALL.map(|way| (buffer, way))).collect()
    }

    fn shape_for_making(&self) -> Result<()> {
        (1..=self.network.size()).try_for_each(|node| self.network.shape_node(node, MAKING, MAKING))
    }

    /// Sets all links for clients with this rate and buffer.
    fn shape(&self, mbit: u32, buffer: u32) -> Result<()> {
        self.shape_each(client_link(mbit, buffer), (server_link(mbit), server_link(mbit)))
    }

    /// Calls `with` while the ports of the clients share one memory: it, and not their links, has their rate.
    fn behind_shared_buffer(
        &mut self,
        with: impl FnOnce(&mut Self, &SharedBuffer) -> Result<()>,
    ) -> Result<()> {
        let Scale { mbit_shared: mbit, shared_buffer, .. } = *self.scale;
        let (link, fast) = (client_link(mbit, shared_buffer).0, server_link(mbit));
        self.shape_each((fast, client_link(mbit, shared_buffer).1), (fast, fast))?;
        let clients: Vec<u32> = (0..self.scale.clients).map(|number| self.client(number)).collect();
        self.network.with_shared_buffer(&clients, link, |ports| with(self, ports))
    }

    /// Sets the links of all clients and of all servers, to and from each.
    fn shape_each(&self, client: (Link, Link), server: (Link, Link)) -> Result<()> {
        (1..=self.network.size()).try_for_each(|node| {
            let (down, up) = if node > self.scale.servers { client } else { server };
            self.network.shape_node(node, down, up)
        })
    }

    /// One client, by the number of its tasks.
    fn tasks(&mut self, system: System, dirs: &[&Path], buffer: u32, way: Way) -> Result<()> {
        let scale = self.scale;
        let points = scale.tasks.iter().map(|&tasks| Point { way, tasks, ..scale.read(system, buffer) });
        points.into_iter().try_for_each(|point| self.run(point, dirs))
    }

    /// One client to all of them at once.
    fn clients(&mut self, system: System, dirs: &[&Path], buffer: u32) -> Result<()> {
        let scale = self.scale;
        for clients in 1..=scale.clients {
            let point = Point { clients, mbit: scale.mbit_shared, ..scale.read(system, buffer) };
            self.run(point, &dirs[..clients as usize])?;
        }
        Ok(())
    }

    /// Measures a point; the clients have their directories.
    fn run(&mut self, point: Point, dirs: &[&Path]) -> Result<()> {
        let (network, servers) = (self.network, self.scale.servers as usize);
        self.run_with(point, dirs, || dropped(network, servers, point))
    }

    /// The same, where something else knows how many packets the ports that are studied have dropped.
    fn run_with(&mut self, point: Point, dirs: &[&Path], dropped: impl Fn() -> Result<u64>) -> Result<()> {
        let Point { system, way, clients, mounts, tasks, senders, side, buffer, is_shared, mbit, control } =
            point;
        let scale = self.scale;
        let record = senders * scale.unit;
        let file = if system == System::Gluster { scale.file } else { self.file(senders) };
        let streams = Streams { tasks, file, record, way, ramp: scale.ramp(), time: scale.time() };
        let look = || Ok((CpuTimes::now()?, dropped()?, self.repeated()?));
        let done = streams.run(dirs, look)?;
        let (before, after) = (done.before, done.after);
        let repeated = after.2.since(before.2);
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let run = Run {
            point,
            seconds: done.time.as_secs_f64(),
            millis: [0.5, 0.99, 0.999].map(|share| milliseconds(done.percentile(share))),
            dropped: after.1 - before.1,
            repeated: repeated.packets,
            timeouts: repeated.timeouts,
            windows: dirs.iter().filter_map(|dir| window(dir).transpose()).collect::<Result<_>>()?,
            busy: after.0.busy_since(before.0),
            bytes: done.bytes,
        };
        self.say(&format!(
            "{:<22} {:>5} KiB{}, {mbit:>3} Mbit/s, at {}, {clients} x {mounts} x {tasks:>2} tasks {:<5} {:>2} servers, {:<5} {:>6.2} MB/s, {:>4.2} of the rate, {:>3} timeouts, cores {:>3.0} % busy",
            system.title(),
            buffer >> 10,
            if is_shared { " in all" } else { "" },
            side.title(),
            way.title(),
            senders,
            control.title(),
            run.rate(),
            run.share(),
            run.timeouts,
            run.busy * 100.0
        ));
        self.runs.push(run);
        Ok(())
    }

    /// What the nodes' TCP has sent once more.
    fn repeated(&self) -> Result<Repeated> {
        let each = (1..=self.network.size()).map(|node| self.network.node(node).repeated());
        each.sum()
    }
}

/// Packets that the ports of the servers have dropped, or of the first clients.
fn dropped(network: &Network, servers: usize, Point { side, clients, .. }: Point) -> Result<u64> {
    let ports = network.towards()?;
    let (servers, all_clients) = ports.split_at(servers);
    let own = if side == Side::Servers { servers } else { &all_clients[..clients as usize] };
    Ok(own.iter().map(|port| port.dropped).sum())
}

/// The option for it.
fn window_of(system: System) -> &'static str {
    if system == System::NoWindow { "off" } else { "auto" }
}

/// The receive window of a mount of Shoal, in bytes, if it has been used.
fn window(dir: &Path) -> Result<Option<u64>> {
    let file = dir.join(".shoal/status");
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let line = text.lines().find_map(|line| line.strip_prefix("receive_window_bytes "));
            Ok(line.and_then(|bytes| bytes.trim().parse().ok()))
        }
        // Another system's.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(doing(format!("read {}", file.display()))(error)),
    }
}
