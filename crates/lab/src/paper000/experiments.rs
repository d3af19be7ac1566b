//! All measurements, in order.
//!
//! | system | clients | runs | for |
//! |---|---|---|---|
//! | Shoal | one with one thread | three sizes, two orders; translators on, off and auto | E1, E2 |
//! | Shoal | one and two with one thread each | three sizes at random, translators off | E3 |
//! | Shoal | one with one thread, one with the usual number | the same | E3, threads |
//! | GlusterFS | one and two with one thread each | as with Shoal, but there is no auto | E1, E2, E3 |
//!
//! The settings take turns, and each round goes through them in the other direction than the one before, so what changes
//! slowly on the machine favours none. They change while the volume is mounted.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::runs::{Measured, Point, Run, Setting, System};
use super::scale::{BLOCKS, CLIENTS, MAKING, SERVERS, Scale, link};
use crate::cluster::{Cluster, ClusterPlan, Disks};
use crate::error::Result;
use crate::gluster::{self, Gluster, GlusterMount, Kind};
use crate::load::readers::{Order, Readers, make_files};
use crate::meter::CpuTimes;
use crate::network::{Network, Traffic};

/// The node of the first client; the servers are before it.
const CLIENT: u32 = SERVERS + 1;
/// Without redundancy, as the paper's distributed volume.
const CODE: &str = "1+0";
/// Settings of a mount in all runs: so little cache that no run finds what an earlier one has read.
const FEW_PAGES: &str = "io-cache.size=1M";
/// The same for GlusterFS, whose read-ahead keeps its pages in io-cache: five of 128 KiB for each job have to find room.
/// One thread looks after a client's connections, as in the paper.
const GLUSTER_BASE: [(&str, &str); 2] =
    [("performance.io-cache-size", "16MB"), ("client.event-threads", "1")];
const GLUSTER_TRANSLATORS: [&str; 3] =
    ["performance.io-cache", "performance.read-ahead", "performance.write-behind"];

/// A link is quiet if less than this comes, in bytes per second; heart beats go on.
const QUIET: f64 = 1e6;
/// How long quiet is waited for at most.
const QUIET_PATIENCE: Duration = Duration::from_secs(4);

/// The words of `shoal tune` for a setting.
fn words(setting: Setting) -> [&'static str; 4] {
    match setting {
        Setting::On => ["io-cache=on", "io-cache.page=128K", "read-ahead=on", "write-behind=on"],
        Setting::Off => ["io-cache=off", "io-cache.page=auto", "read-ahead=off", "write-behind=off"],
        Setting::Auto => ["io-cache=auto", "io-cache.page=auto", "read-ahead=auto", "write-behind=auto"],
    }
}

/// Measures everything, within a [sandbox](crate::sandbox). `shoal` is the program; `say` gets progress messages.
///
/// # Errors
/// A step failed; then there are no results. That GlusterFS cannot be measured is a result.
pub fn measure(shoal: &Path, scale: &Scale, say: &dyn Fn(&str)) -> Result<Measured> {
    let start = Instant::now();
    let network = Network::build(SERVERS + CLIENTS, MAKING)?;
    let mut lab = Lab { scale, network: &network, runs: Vec::new(), say, start };
    lab.shoal(shoal)?;
    let before = lab.runs.len();
    let gluster = gluster::measured(scale.is_quick, || lab.gluster());
    if let Err(why) = &gluster {
        lab.say(&format!("GlusterFS: {why}"));
        lab.runs.truncate(before);
    }
    let Lab { runs, .. } = lab;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    Ok(Measured { scale: scale.clone(), cores, gluster, runs, seconds: start.elapsed().as_secs_f64() })
}

struct Lab<'n> {
    scale: &'n Scale,
    network: &'n Network,
    runs: Vec<Run>,
    say: &'n dyn Fn(&str),
    start: Instant,
}

/// Puts a setting into effect.
type Set<'a> = &'a mut dyn FnMut(Setting) -> Result<()>;

impl Lab<'_> {
    fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        (self.say)(&format!("{:2}:{:02}  {what}", seconds / 60, seconds % 60));
    }

    fn shoal(&mut self, shoal: &Path) -> Result<()> {
        let scale = self.scale;
        let plan = ClusterPlan {
            nodes: SERVERS,
            disks: Disks::Own,
            brick: scale.brick,
            brick_memory: scale.brick_memory,
            client_memory: scale.client_memory,
            unit: scale.unit,
            code: CODE.to_owned(),
            receive_window: "auto",
            topology: None,
            device: None,
        };
        self.say(&format!("Shoal: {SERVERS} nodes with a brick, {} files", scale.jobs));
        self.network.shape(MAKING)?;
        let cluster = Cluster::start(shoal, self.network, plan, None)?;
        let first = cluster.mount_by_threads(CLIENT, 1)?;
        make_files(first.dir(), scale.jobs, scale.file)?;
        self.network.shape(link(scale.mbit))?;
        cluster.tune(&first, &[FEW_PAGES])?;
        let mut set = |setting| cluster.tune(&first, &words(setting));
        self.matrix(System::Shoal, first.dir(), &Setting::ALL, &mut set)?;
        set(Setting::Off)?;
        let second = cluster.mount_by_threads(CLIENT + 1, 1)?;
        cluster.tune(&second, &[FEW_PAGES])?;
        cluster.tune(&second, &words(Setting::Off))?;
        self.clients(System::Shoal, first.dir(), second.dir())?;
        second.unmount()?;
        let second = cluster.mount(CLIENT + 1)?;
        cluster.tune(&second, &[FEW_PAGES])?;
        cluster.tune(&second, &words(Setting::Off))?;
        self.threads(first.dir(), second.dir())
    }

    fn gluster(&mut self) -> Result<()> {
        let scale = self.scale;
        self.say(&format!("GlusterFS: {SERVERS} nodes with a brick, {} files", scale.jobs));
        self.network.shape(MAKING)?;
        let mut gluster = Gluster::start(self.network, SERVERS, Kind::Distributed)?;
        gluster.set(&GLUSTER_BASE, &[])?;
        let first = gluster.mount(CLIENT)?;
        make_files(first.dir(), scale.jobs, scale.file)?;
        self.network.shape(link(scale.mbit))?;
        let settings = [Setting::On, Setting::Off];
        let mut set = |setting| gluster_set(&mut gluster, setting, &[&first]);
        self.matrix(System::Gluster, first.dir(), &settings, &mut set)?;
        set(Setting::Off)?;
        let second = gluster.mount(CLIENT + 1)?;
        self.clients(System::Gluster, first.dir(), second.dir())
    }

    /// One client with one thread: all orders, sizes and settings.
    fn matrix(&mut self, system: System, dir: &Path, settings: &[Setting], set: Set<'_>) -> Result<()> {
        for round in 1..=self.scale.rounds {
            for (order, block, setting) in round_of(system, settings, round) {
                set(setting)?;
                let point = Point { order, setting, ..bare(system, block, self.scale.mbit) };
                self.run(point, round, CLIENT, &[dir])?;
            }
        }
        Ok(())
    }

    /// One client and two, with one thread each, without the translators.
    fn clients(&mut self, system: System, first: &Path, second: &Path) -> Result<()> {
        let (dirs, mbit) = ([first, second], self.scale.mbit_shared);
        self.network.shape(link(mbit))?;
        for round in 1..=self.scale.rounds {
            for block in BLOCKS {
                for &clients in &turn(&[1, CLIENTS], round) {
                    let point = Point { clients, ..bare(system, block, mbit) };
                    self.run(point, round, CLIENT, &dirs[..clients as usize])?;
                }
            }
        }
        Ok(())
    }

    /// A client with one thread, and another one with the usual number, by turns.
    fn threads(&mut self, one: &Path, usual: &Path) -> Result<()> {
        let mbit = self.scale.mbit_wide;
        self.network.shape(link(mbit))?;
        for round in 1..=self.scale.rounds {
            for block in BLOCKS {
                for &threads in &turn(&[1, 0], round) {
                    let point = Point { threads, ..bare(System::Shoal, block, mbit) };
                    let (node, dir) = if threads == 1 { (CLIENT, one) } else { (CLIENT + 1, usual) };
                    self.run(point, round, node, &[dir])?;
                }
            }
        }
        Ok(())
    }

    /// Clients from the node `first` on read below their directories.
    fn run(&mut self, point: Point, round: u32, first: u32, dirs: &[&Path]) -> Result<()> {
        let Point { system, threads, clients, order, block, setting, mbit } = point;
        let scale = self.scale;
        let seed = self.runs.len() as u64;
        let until = scale.until(order);
        let readers = Readers { jobs: scale.jobs, file: scale.file, block, order, until, seed };
        self.wait_for_quiet(first, clients)?;
        let done = readers.read(dirs, || Ok((CpuTimes::now()?, self.received(first, clients)?)))?;
        let ((cores_before, before), (cores, after)) = (done.before, done.after);
        let (busy, traffic) = (cores.busy_since(cores_before), after.since(before));
        let run = Run {
            point,
            round,
            bytes: done.bytes,
            seconds: done.time.as_secs_f64(),
            wire: traffic.received,
            busy,
            dropped: traffic.dropped,
        };
        self.say(&format!(
            "{:<9} {mbit:>4} Mbit/s, {clients} with {} {:<10} {:>3} KiB, {:<4} {:>7.2} MB/s, wire {:>7.2} MB/s, cores {:>3.0} % busy",
            system.title(),
            if threads == 0 { "the usual threads," } else { "1 thread," },
            order.title(),
            block >> 10,
            setting.title(),
            run.rate(),
            run.wire_rate(),
            busy * 100.0
        ));
        self.runs.push(run);
        Ok(())
    }

    /// Waits until nothing comes any more that the kernel or a client has asked for ahead in an earlier run.
    fn wait_for_quiet(&self, first: u32, clients: u32) -> Result<()> {
        let begin = Instant::now();
        let mut before = (begin, self.received(first, clients)?);
        while begin.elapsed() < QUIET_PATIENCE {
            thread::sleep(Duration::from_millis(50));
            let now = (Instant::now(), self.received(first, clients)?);
            let came = now.1.since(before.1).received as f64;
            if came / (now.0 - before.0).as_secs_f64() < QUIET {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// What the switch has sent to some clients.
    fn received(&self, first: u32, clients: u32) -> Result<Traffic> {
        // One look at the switch: looking at each node too takes seconds while the cores have much to do.
        let links = self.network.towards()?;
        let own = links.into_iter().skip(first as usize - 1).take(clients as usize);
        Ok(own.fold(Traffic::default(), Traffic::and))
    }
}

fn gluster_set(gluster: &mut Gluster<'_>, setting: Setting, mounts: &[&GlusterMount]) -> Result<()> {
    let value = if setting == Setting::On { "on" } else { "off" };
    gluster.set(&GLUSTER_TRANSLATORS.map(|key| (key, value)), mounts)
}

/// A point of one client with one thread that reads at random without the translators.
pub fn bare(system: System, block: u32, mbit: u32) -> Point {
    Point { system, threads: 1, clients: 1, order: Order::Random, block, setting: Setting::Off, mbit }
}

/// The orders and sizes, in the order of the paper.
pub fn rows() -> impl Iterator<Item = (Order, u32)> {
    [Order::Random, Order::Sequential].into_iter().flat_map(|order| BLOCKS.map(|block| (order, block)))
}

/// What a round measures, one after the other. Settings of Shoal take turns at each size. Those of GlusterFS take seconds
/// to come to a mount, so there they take turns from round to round.
fn round_of(system: System, settings: &[Setting], round: u32) -> Vec<(Order, u32, Setting)> {
    let turn = turn(settings, round);
    match system {
        System::Shoal => rows()
            .flat_map(|(order, block)| turn.iter().map(move |setting| (order, block, *setting)))
            .collect(),
        System::Gluster => turn
            .iter()
            .flat_map(|setting| rows().map(move |(order, block)| (order, block, *setting)))
            .collect(),
    }
}

/// Each other round goes backwards.
fn turn<T: Copy>(of: &[T], round: u32) -> Vec<T> {
    let mut turn = of.to_vec();
    if round.is_multiple_of(2) {
        turn.reverse();
    }
    turn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_take_turns() {
        let [on, off, auto] = Setting::ALL;
        assert_eq!(turn(&Setting::ALL, 1), [on, off, auto]);
        assert_eq!(turn(&Setting::ALL, 2), [auto, off, on]);
        let settings = |system, settings: &[Setting]| -> Vec<Setting> {
            round_of(system, settings, 2).into_iter().map(|(.., setting)| setting).collect()
        };
        assert_eq!(settings(System::Shoal, &Setting::ALL)[..4], [auto, off, on, auto]);
        let gluster = settings(System::Gluster, &[on, off]);
        assert_eq!((gluster.len(), &gluster[..6], &gluster[6..]), (12, &[off; 6][..], &[on; 6][..]));
    }
}
