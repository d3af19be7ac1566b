//! What is measured, in which order.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::device::{Ext4, LoopDevice, make_stable};
use super::fio::{self, Found};
use super::model::Model;
use super::runs::{Measured, Reader, Reads, Run};
use super::scale::{BRICK_MEMORY, CLIENT_MEMORY, DEPTH, Scale, UNIT};
use super::systems::{NOOP, Side, System};
use super::workloads::{Phase, Workload, random_reads};
use crate::cluster::{Cluster, ClusterPlan, Disks, Mount};
use crate::error::{LabError, Result, doing};
use crate::meter::CpuTimes;
use crate::network::Network;
use crate::sandbox::SANDBOX_DIR;
use crate::star::Link;

/// The link of the only node, which nothing passes.
const LINK: Link = Link { mbit: 1000, queue: 1 << 20 };
/// How often, and how long each time, a brick's queue is looked at until nothing waits.
const LOOKS: u32 = 20;
const LOOK_AFTER: Duration = Duration::from_millis(50);
/// Turns of random reads.
const READ_TURNS: u32 = 5;

/// Measures everything, within a [sandbox](crate::sandbox). `shoal` is the program, and files of loop devices are in `disk_dir`;
/// `say` gets progress messages.
///
/// # Errors
/// A step failed; then there are no results.
pub fn measure(shoal: &Path, disk_dir: &Path, scale: &Scale, say: &dyn Fn(&str)) -> Result<Measured> {
    let start = Instant::now();
    let tell = |what: &str| {
        let seconds = start.elapsed().as_secs();
        say(&format!("{:2}:{:02}  {what}", seconds / 60, seconds % 60));
    };
    tell("the model: table 3, slq-auto, single reads");
    let model = Model::ask(shoal, scale)?;
    tell(&format!("two loop devices of {} MiB in {}, direct I/O", scale.device >> 20, disk_dir.display()));
    let below_ext4 = LoopDevice::make(disk_dir, scale.device)?;
    let below_brick = LoopDevice::make(disk_dir, scale.device)?;
    below_brick.schedule_by("none")?;
    let reads = reads_of_device(shoal, &below_brick.path(), scale, &tell)?;
    tell("ext4 on one of them, a direct brick on the other");
    let ext4 = Ext4::make(&below_ext4, &Path::new(SANDBOX_DIR).join("ext4"))?;
    let network = Network::build(1, LINK)?;
    let cluster = Cluster::start(shoal, &network, plan(&below_brick, scale), None)?;
    let mount = cluster.mount_with(1, crate::cluster::FILES, &["--exclusive"])?;
    let mut lab = Lab {
        scale,
        tell: &tell,
        below_ext4: &below_ext4,
        below_brick: &below_brick,
        ext4: &ext4,
        cluster: &cluster,
        mount: &mount,
        runs: Vec::new(),
        reads,
    };
    lab.lay_out()?;
    lab.random_reads()?;
    for turn in 1..=scale.turns {
        let begun = Instant::now();
        lab.turn(turn)?;
        if start.elapsed() + begun.elapsed() > Duration::from_secs(scale.limit_s) {
            break;
        }
    }
    let Lab { runs, reads, .. } = lab;
    mount.unmount()?;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let file = "/proc/sys/kernel/osrelease";
    let kernel = std::fs::read_to_string(file).map_err(doing(format!("read {file}")))?.trim().to_owned();
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measured { scale: scale.clone(), cores, kernel, model, runs, reads, seconds })
}

/// One brick, over the device, and a volume without parity.
fn plan(device: &LoopDevice, scale: &Scale) -> ClusterPlan {
    ClusterPlan {
        nodes: 1,
        disks: Disks::Own,
        brick: scale.device,
        brick_memory: BRICK_MEMORY,
        client_memory: CLIENT_MEMORY,
        unit: UNIT,
        code: "1+0".to_owned(),
        receive_window: "auto",
        topology: None,
        device: Some(device.path()),
    }
}

struct Lab<'n> {
    scale: &'n Scale,
    tell: &'n dyn Fn(&str),
    below_ext4: &'n LoopDevice,
    below_brick: &'n LoopDevice,
    ext4: &'n Ext4,
    cluster: &'n Cluster<'n>,
    mount: &'n Mount,
    runs: Vec<Run>,
    reads: Vec<Reads>,
}

impl Lab<'_> {
    fn dir(&self, side: Side) -> &Path {
        match side {
            Side::Kernel => self.ext4.dir(),
            Side::Shoal | Side::BelowBrick => self.mount.dir(),
        }
    }

    fn work(&self) -> &'static Path {
        Path::new(SANDBOX_DIR)
    }

    /// Makes the files of all workloads on both sides: no run has to.
    fn lay_out(&self) -> Result<()> {
        for side in [Side::Kernel, Side::Shoal] {
            let name = if side == Side::Kernel { "ext4" } else { "the mount" };
            (self.tell)(&format!("files of all workloads on {name}"));
            for workload in Workload::ALL {
                let dir = self.dir(side).join(workload.title());
                for sub in ["", "tree", "objects"] {
                    let dir = dir.join(sub);
                    std::fs::create_dir_all(&dir).map_err(doing(format!("make {}", dir.display())))?;
                }
                // The tree is made by each run.
                if workload != Workload::Compilebench {
                    for phase in workload.phases(self.dir(side), self.scale) {
                        fio::run(&phase.jobs, self.work(), &["--create_only=1"])?;
                    }
                }
            }
            make_stable(self.dir(side))?;
        }
        let file = self.file_of_reads();
        let made = std::fs::File::create(&file).and_then(|mut made| {
            let part = vec![0x5a; 1 << 20];
            (0..self.scale.fio_b_file >> 20).try_for_each(|_| std::io::Write::write_all(&mut made, &part))?;
            made.sync_all()
        });
        made.map_err(doing(format!("write {}", file.display())))
    }

    fn file_of_reads(&self) -> PathBuf {
        self.mount.dir().join("random-reads")
    }

    /// Random reads of 4 KiB through the mount, and of the brick's device beside it, in turns.
    fn random_reads(&mut self) -> Result<()> {
        self.schedule(NOOP)?;
        let (file, device) = (self.file_of_reads(), self.below_brick.path());
        let scale = self.scale;
        let mut found = Vec::new();
        in_turns(scale, [Reader::Beside, Reader::Mount], self.tell, &mut found, |by| {
            let (file, size) = match by {
                Reader::Mount => (&file, scale.fio_b_file),
                _ => (&device, scale.device),
            };
            let found = fio::run(&random_reads(file, size, scale.run_ms), self.work(), &[])?;
            Ok(found.rates()[0])
        })?;
        self.reads.append(&mut found);
        Ok(())
    }

    /// Every workload under every system, the systems of a workload one after the other.
    fn turn(&mut self, turn: u32) -> Result<()> {
        for workload in Workload::ALL {
            for system in System::in_turn(turn) {
                self.run(workload, system, turn)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, workload: Workload, system: System, turn: u32) -> Result<()> {
        self.schedule(system)?;
        let dir = self.dir(system.side);
        let phases = workload.phases(dir, self.scale);
        let home = dir.join(workload.title());
        let (found, busy) =
            busy(|| phases.iter().map(|phase| self.phase(&home, phase)).collect::<Result<Vec<_>>>())?;
        let score = workload.score(&found);
        let all = Found { jobs: found.into_iter().flat_map(|(found, _)| found.jobs).collect() };
        (self.tell)(&format!(
            "turn {turn}  {:<12} {:<21} {score:>9.1} {}, cores {:>3.0} % busy",
            workload.title(),
            system.title(),
            unit(workload),
            busy * 100.0
        ));
        self.runs.push(Run { workload, system, turn, score, mean_us: all.mean_us(), busy });
        // Nothing of it is left for the next run.
        make_stable(&home)
    }

    /// What a phase did, and how long it took until all was stable, in seconds.
    fn phase(&self, home: &Path, phase: &Phase) -> Result<(Found, f64)> {
        if let Some(name) = phase.emptied {
            empty(&home.join(name))?;
        }
        let found = fio::run(&phase.jobs, self.work(), &[])?;
        let begun = Instant::now();
        if phase.is_stable {
            make_stable(home)?;
        }
        Ok((found, begun.elapsed().as_secs_f64()))
    }

    /// Sets scheduler or policy, when nothing waits in the brick's queue any more.
    fn schedule(&self, system: System) -> Result<()> {
        for _ in 0..LOOKS {
            let queue = self.cluster.ask(&["brick", "tune", BRICK])?;
            if queue["waiting"] == 0 && queue["at_device"] == 0 {
                break;
            }
            thread::sleep(LOOK_AFTER);
        }
        let (of_kernel, of_brick) = match system.side {
            Side::Kernel => return self.below_ext4.schedule_by(system.policy),
            Side::Shoal => ("none", system.policy),
            Side::BelowBrick => (system.policy, NOOP.policy),
        };
        self.below_brick.schedule_by(of_kernel)?;
        self.cluster.ask(&["brick", "tune", BRICK, &format!("scheduler={of_brick}")]).map(drop)
    }
}

/// Does something, and says for which share of the time the cores were busy meanwhile, 0 to 1.
fn busy<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let before = CpuTimes::now()?;
    let done = work()?;
    Ok((done, CpuTimes::now()?.busy_since(before)))
}

/// Random reads by two readers, in turns; `read` returns how many there were per second.
fn in_turns(
    scale: &Scale,
    readers: [Reader; 2],
    tell: &dyn Fn(&str),
    found: &mut Vec<Reads>,
    read: impl Fn(Reader) -> Result<f64>,
) -> Result<()> {
    let turns = if scale.is_quick { 1 } else { READ_TURNS };
    for turn in 1..=turns {
        let [one, other] = readers;
        for by in if turn % 2 == 0 { [one, other] } else { [other, one] } {
            let (per_second, busy) = busy(|| read(by))?;
            let percent = busy * 100.0;
            tell(&format!(
                "random reads by {:<38} {per_second:>8.0}/s, cores {percent:>3.0} % busy",
                by.title()
            ));
            found.push(Reads { by, turn, per_second, busy });
        }
    }
    Ok(())
}

/// Random reads of a device that nobody uses: by fio, and by the queue of a direct brick.
fn reads_of_device(shoal: &Path, device: &Path, scale: &Scale, tell: &dyn Fn(&str)) -> Result<Vec<Reads>> {
    let seconds = (scale.run_ms as f64 / 1e3).to_string();
    let by_queue = || {
        let mut command = Command::new(shoal);
        command.args(["--json", "brick", "bench", "--seconds", &seconds]);
        command.args(["--depth", &DEPTH.to_string()]).arg(device);
        let ran = command.output().map_err(doing("start shoal brick bench"))?;
        let found = serde_json::from_slice::<Value>(&ran.stdout).ok();
        let per_second = found.as_ref().and_then(|found| found["reads_per_s"].as_f64());
        per_second.ok_or_else(|| {
            let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            LabError::Command { command: format!("{command:?}"), said }
        })
    };
    let mut found = Vec::new();
    in_turns(scale, [Reader::Fio, Reader::Queue], tell, &mut found, |by| match by {
        Reader::Queue => by_queue(),
        _ => {
            let jobs = random_reads(device, scale.device, scale.run_ms);
            fio::run(&jobs, Path::new(SANDBOX_DIR), &[]).map(|found| found.rates()[0])
        }
    })?;
    Ok(found)
}

/// The only brick.
const BRICK: &str = "b1";

/// What is told of a score while it runs.
fn unit(workload: Workload) -> &'static str {
    if workload == Workload::Blogbench { "op/s" } else { "MB/s" }
}

/// Removes what is in a directory.
fn empty(dir: &Path) -> Result<()> {
    let emptied = std::fs::read_dir(dir)
        .and_then(|mut entries| entries.try_for_each(|entry| std::fs::remove_file(entry?.path())));
    emptied.map_err(doing(format!("empty {}", dir.display())))
}
