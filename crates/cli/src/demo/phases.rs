//! The phases of the demo, in order.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::ProgressBar;
use types::messages::cluster::{BrickState, ClusterMap};
use types::{BrickId, Code};

use super::cluster::{Cleanup, ClusterOptions, DemoCluster, DemoMount};
use super::files::{List, Pass};
use super::report::{Phase, Report};
use super::victims::{LostLeader, Victim, busiest_primary, fullest_data_brick, kill, kill_leader};
use crate::embedded::MAIN_VOLUME;
use crate::mountpoint;
use crate::output::Output;
use crate::picture::picture;
use crate::problem::problem;
use crate::signals;
use crate::size::Size;

/// Options of the demo.
pub(crate) struct DemoOptions {
    pub(crate) input: Option<PathBuf>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) code: Code,
    pub(crate) bricks: u32,
    pub(crate) memory: Size,
    pub(crate) ha: bool,
    pub(crate) keep: bool,
}

/// Runs the demo, removes everything, and fails if the report is bad.
pub(crate) fn run_demo(args: &DemoOptions, output: &Output) -> anyhow::Result<()> {
    if args.code.m() < 2 {
        return Err(problem(
            format!("the demo kills two bricks and code {} bears the loss of {}", args.code, args.code.m()),
            "a code with two parity units or more, such as --code 4+2",
        ));
    }
    mountpoint::check_fuse()?;
    let cleanup = Arc::new(Cleanup::default());
    let stage = Arc::clone(&cleanup);
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = Arc::clone(&interrupted);
    signals::on_stop(move |_| {
        interrupt.store(true, Ordering::Relaxed);
        eprintln!("\ninterrupted: clearing up");
        stage.clear();
        std::process::exit(130);
    })?;
    let result =
        Demo { lost_leader: RefCell::default(), args, output, phases: Vec::new(), began: Instant::now() }
            .run(&cleanup);
    if interrupted.load(Ordering::Relaxed) {
        // The error comes from the removal after Ctrl-C. The thread that removes everything also ends the process.
        loop {
            thread::park();
        }
    }
    let failed = result.as_ref().map_or(true, |report| !report.is_good());
    let logs = failed.then(|| cleanup.save_logs()).flatten();
    cleanup.clear();
    if let Some(logs) = logs {
        eprintln!("the logs of all processes are kept in {}", logs.display());
    }
    let report = result?;
    output.answer(&report.document(), || report.words());
    if report.is_good() { Ok(()) } else { Err(anyhow::anyhow!("the demo failed: {}", report.complaint())) }
}

struct Demo<'a> {
    lost_leader: RefCell<Option<LostLeader>>,
    args: &'a DemoOptions,
    output: &'a Output,
    phases: Vec<Phase>,
    began: Instant,
}

impl Demo<'_> {
    fn run(mut self, cleanup: &Arc<Cleanup>) -> anyhow::Result<Report> {
        let list = List::gather(self.args.input.as_deref())?;
        self.output.say(&format!(
            "{} bricks, code {}: {} files, {}",
            self.args.bricks,
            self.args.code,
            list.files,
            Size(list.bytes)
        ));
        let cluster = self.phase("start", |demo| demo.start(&list, cleanup))?;
        let first = self.phase("mount", |demo| cluster.mount("mount-1", demo.output))?;
        let pass = Pass::new(&list);
        let copied = self.phase("copy", |demo| demo.copy(&cluster, &first, &list, &pass))?;
        self.phase("settle", |demo| cluster.unmount(&first, demo.output))?;
        let second = self.phase("mount again", |demo| cluster.mount("mount-2", demo.output))?;
        let before = second.counters()?;
        let pass = Pass::new(&list);
        let (killed, done) = self.phase("compare", |demo| demo.compare(&cluster, &second, &list, &pass))?;
        let counters = second.counters()?;
        let decoded_by_bricks = decoded(&cluster)? + copied.decoded + killed.decoded;
        if self.args.keep {
            cluster.keep();
            let dir = cluster.home.dir().display();
            self.output.say(&format!(
                "kept: files at {}, `shoal status --dir {dir}`, `shoal down --dir {dir}`",
                second.dir.display()
            ));
        } else {
            self.phase("end", |demo| cluster.unmount(&second, demo.output))?;
        }
        Ok(Report {
            code: self.args.code,
            bricks: self.args.bricks,
            bytes: list.bytes,
            files: list.files,
            links: list.links,
            directories: list.directories,
            victims: vec![copied, killed],
            lost_leader: self.lost_leader.into_inner(),
            decoded_by_bricks,
            before,
            counters,
            mismatches: done.mismatches,
            notes: done.notes,
            phases: self.phases,
            seconds: self.began.elapsed().as_secs_f64(),
        })
    }

    fn phase<T>(
        &mut self,
        name: &'static str,
        act: impl FnOnce(&Demo<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        let result = act(self).with_context(|| format!("in the phase `{name}`"))?;
        let seconds = began.elapsed().as_secs_f64();
        self.output.say(&format!("{name:<12} {seconds:>7.1} s"));
        self.phases.push(Phase { name, seconds });
        Ok(result)
    }

    fn start(&self, list: &List, cleanup: &Arc<Cleanup>) -> anyhow::Result<DemoCluster> {
        let options = ClusterOptions {
            bricks: self.args.bricks,
            code: self.args.code,
            memory: self.args.memory,
            bytes: list.bytes,
            ha: self.args.ha,
            keep: self.args.keep,
        };
        let (cluster, _) =
            DemoCluster::start(self.args.dir.as_deref(), &options, Arc::clone(cleanup), self.output)?;
        self.draw(&cluster.remote.status()?.map);
        Ok(cluster)
    }

    fn draw(&self, map: &ClusterMap) {
        if let Some(volume) = map.volume_named(MAIN_VOLUME) {
            let colours = !self.output.is_json() && std::io::stdout().is_terminal();
            self.output.say(&picture(map, volume, colours));
        }
    }

    fn copy(
        &self,
        cluster: &DemoCluster,
        mount: &DemoMount,
        list: &List,
        pass: &Pass,
    ) -> anyhow::Result<Victim> {
        let bar = self.output.bytes_bar("copy", list.bytes);
        let mut victim = None;
        let watch = || {
            if self.args.ha {
                let mut lost = self.lost_leader.borrow_mut();
                *lost = Some(self.strike_leader(cluster, pass, &bar, list.bytes)?);
            }
            victim = Some(self.strike(cluster, pass, &bar, list.bytes, busiest_primary)?);
            Ok(())
        };
        pass.copy(list, &mount.dir, watch)?;
        bar.finish_and_clear();
        victim.context("no brick was killed while copying")
    }

    fn compare(
        &self,
        cluster: &DemoCluster,
        mount: &DemoMount,
        list: &List,
        pass: &Pass,
    ) -> anyhow::Result<(Victim, super::files::Done)> {
        let bar = self.output.bytes_bar("compare", list.bytes);
        let mut victim = None;
        let watch = || {
            victim = Some(self.strike(cluster, pass, &bar, list.bytes, fullest_data_brick)?);
            Ok(())
        };
        let done = pass.compare(list, &mount.dir, watch)?;
        bar.finish_and_clear();
        Ok((victim.context("no brick was killed while comparing")?, done))
    }

    /// Kills the metadata server that leads after a fifth of the pass, lets the rest continue, and waits until another one
    /// leads.
    fn strike_leader(
        &self,
        cluster: &DemoCluster,
        pass: &Pass,
        bar: &ProgressBar,
        total: u64,
    ) -> anyhow::Result<LostLeader> {
        while pass.bytes() < total / 5 && pass.is_running() {
            bar.set_position(pass.bytes());
            thread::sleep(Duration::from_millis(25));
        }
        let lost = kill_leader(cluster)?;
        bar.suspend(|| {
            self.output.say(&format!(
                "{} led the metadata servers: killed; {} leads after {:.1} s",
                lost.name, lost.follower, lost.seconds
            ));
        });
        Ok(lost)
    }

    /// Kills one brick after two fifths of the pass, lets the rest continue, and shows the state of the cluster.
    /// Returns at the end of the pass.
    fn strike(
        &self,
        cluster: &DemoCluster,
        pass: &Pass,
        bar: &ProgressBar,
        total: u64,
        choose: impl Fn(&DemoCluster) -> anyhow::Result<BrickId>,
    ) -> anyhow::Result<Victim> {
        let mut victim = None;
        let mut drawn = false;
        loop {
            let bytes = pass.bytes();
            bar.set_position(bytes);
            if victim.is_none() && bytes >= total * 2 / 5 {
                let killed = kill(cluster, choose(cluster)?, bytes)?;
                bar.suspend(|| self.announce(&killed, total));
                pass.open_gate();
                victim = Some(killed);
            }
            if let Some(victim) = &victim
                && !drawn
            {
                let map = cluster.remote.status()?.map;
                if map.brick(victim.brick).is_some_and(|b| b.state == BrickState::Out) {
                    bar.suspend(|| self.draw(&map));
                    drawn = true;
                }
            }
            if !pass.is_running() {
                return victim.context("the pass ended before a brick was killed");
            }
            thread::sleep(Duration::from_millis(25));
        }
    }

    fn announce(&self, victim: &Victim, total: u64) {
        self.output.say(&format!(
            "kill -9      {} (pid {}) at {} of {}; it was the primary of {} groups and had ordered {} writes",
            victim.brick,
            victim.pid,
            Size(victim.at),
            Size(total),
            victim.primary_of,
            victim.ordered
        ));
    }
}

/// Units that the bricks that still answer have decoded.
fn decoded(cluster: &DemoCluster) -> anyhow::Result<u64> {
    let map = cluster.remote.status()?.map;
    let up = map.bricks.iter().filter(|b| b.state == BrickState::Up);
    Ok(up.filter_map(|b| cluster.remote.brick(&b.address)).map(|report| report.decoded).sum())
}
