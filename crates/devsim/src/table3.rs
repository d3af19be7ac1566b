//! The paper's comparison, repeated: table 3 of Lee, Ju and Jeon 2014, the best dispatch priorities of its text, and
//! `slq-auto` beside every fixed priority.

use std::collections::BTreeMap;

use pace::device::{Parameters, PolicyName};

use crate::report::Report;
use crate::setup::{Refused, Setup};
use crate::simulation::Simulation;
use crate::workload::WorkloadName;

/// What SLQ is compared with, in the paper's order.
pub const BASELINES: [PolicyName; 3] = [PolicyName::Cfq, PolicyName::Deadline, PolicyName::Noop];
/// The two ways to read the paper.
pub const READINGS: [PolicyName; 2] = [PolicyName::SlqNearest, PolicyName::SlqLisfFirst];
/// Dispatch priorities that are compared, in bytes.
pub const PRIORITIES: [u64; 9] =
    [0, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20];
/// Cells below so many percent do not count: the paper's own noise.
pub const COUNTS_FROM: f64 = 2.0;
/// What the model says below so many percent has no sign: it is no effect.
pub const EFFECT_FROM: f64 = 0.5;

/// A number of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Bytes per second of a kind of operations, or of all.
    Bandwidth(Option<usize>),
    /// The mean time of an operation of a kind, or of all.
    Latency(Option<usize>),
    /// Operations of a kind per second.
    Rate(usize),
}

impl Metric {
    /// Its value.
    pub fn of(self, report: &Report) -> f64 {
        match self {
            Metric::Bandwidth(kind) => report.bandwidth(kind),
            Metric::Latency(kind) => report.latency_us(kind),
            Metric::Rate(kind) => report.rate(kind),
        }
    }
}

/// A row of table 3.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// What it is about.
    pub title: &'static str,
    /// The workload.
    pub workload: WorkloadName,
    /// What is compared.
    pub metric: Metric,
    /// Whether the baselines merge up to 4 MiB too.
    pub alike: bool,
    /// What the paper has measured: SLQ over cfq, deadline and noop, in percent.
    pub paper: [f64; 3],
}

const fn row(title: &'static str, workload: WorkloadName, metric: Metric, paper: [f64; 3]) -> Row {
    Row { title, workload, metric, alike: false, paper }
}

/// The rows of table 3.
pub const ROWS: [Row; 15] = [
    row("Fio-A bandwidth, 4 MiB and 512 KiB", WorkloadName::FioA, Metric::Bandwidth(None), [4.9, 4.7, 5.0]),
    Row {
        alike: true,
        ..row("Fio-A bandwidth, all 4 MiB", WorkloadName::FioA, Metric::Bandwidth(None), [0.2, -0.1, -0.1])
    },
    row("Fio-B bandwidth, read", WorkloadName::FioB, Metric::Bandwidth(Some(0)), [-1.0, -6.3, -1.6]),
    row("Fio-B bandwidth, write", WorkloadName::FioB, Metric::Bandwidth(Some(1)), [-1.0, -6.3, -1.6]),
    row("Postmark bandwidth", WorkloadName::Postmark, Metric::Bandwidth(None), [-8.0, 0.0, 3.0]),
    row("Dbench bandwidth", WorkloadName::Dbench, Metric::Bandwidth(None), [1.3, -39.9, -43.9]),
    row("Compilebench create", WorkloadName::CompileCreate, Metric::Bandwidth(None), [-17.0, 2.4, -15.4]),
    row("Compilebench compile", WorkloadName::CompileMake, Metric::Bandwidth(None), [-6.8, -6.8, -7.8]),
    row("Compilebench read", WorkloadName::CompileRead, Metric::Bandwidth(None), [5.1, 1.6, 1.6]),
    row("Fio-A latency, 4 MiB and 512 KiB", WorkloadName::FioA, Metric::Latency(None), [5.9, 5.4, 5.8]),
    Row {
        alike: true,
        ..row("Fio-A latency, all 4 MiB", WorkloadName::FioA, Metric::Latency(None), [0.0, 0.1, 0.0])
    },
    row("Fio-B latency, read", WorkloadName::FioB, Metric::Latency(Some(0)), [24.0, 17.0, 24.0]),
    row("Fio-B latency, write", WorkloadName::FioB, Metric::Latency(Some(1)), [-90.0, -80.0, -90.0]),
    row("Blogbench read score", WorkloadName::Blogbench, Metric::Rate(0), [8.7, 17.5, 15.5]),
    row("Blogbench write score", WorkloadName::Blogbench, Metric::Rate(1), [2.6, -12.3, 2.6]),
];

/// What the paper says about another dispatch priority.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BestRow {
    /// What it is about.
    pub title: &'static str,
    /// The workload.
    pub workload: WorkloadName,
    /// What is compared.
    pub metric: Metric,
    /// The dispatch priority, in bytes.
    pub priority: u64,
    /// What the paper has measured: the least and the most over the baselines, in percent.
    pub paper: [f64; 2],
}

/// The best priorities, and the worst one, of the paper's text.
pub const BEST_ROWS: [BestRow; 5] = [
    BestRow {
        title: "Blogbench read score",
        workload: WorkloadName::Blogbench,
        metric: Metric::Rate(0),
        priority: 4 << 20,
        paper: [12.2, 20.0],
    },
    BestRow {
        title: "Blogbench write score",
        workload: WorkloadName::Blogbench,
        metric: Metric::Rate(1),
        priority: 0,
        paper: [58.8, 85.9],
    },
    BestRow {
        title: "Dbench bandwidth",
        workload: WorkloadName::Dbench,
        metric: Metric::Bandwidth(None),
        priority: 0,
        paper: [42.9, 158.1],
    },
    BestRow {
        title: "Compilebench create",
        workload: WorkloadName::CompileCreate,
        metric: Metric::Bandwidth(None),
        priority: 128 << 10,
        paper: [-1.0, 22.1],
    },
    BestRow {
        title: "Compilebench read",
        workload: WorkloadName::CompileRead,
        metric: Metric::Bandwidth(None),
        priority: 512 << 10,
        paper: [1.6, 5.1],
    },
];

/// A number that says how well a workload went: its bandwidth, or both scores of Blogbench together.
pub fn score(workload: WorkloadName, report: &Report) -> f64 {
    match workload {
        WorkloadName::Blogbench => (report.rate(0) * report.rate(1)).sqrt(),
        _ => report.bandwidth(None),
    }
}

/// The six workloads: the phases of Compilebench are one.
pub const SIX: [(&str, &[WorkloadName]); 6] = [
    ("fio-a", &[WorkloadName::FioA]),
    ("fio-b", &[WorkloadName::FioB]),
    ("postmark", &[WorkloadName::Postmark]),
    ("blogbench", &[WorkloadName::Blogbench]),
    ("dbench", &[WorkloadName::Dbench]),
    ("compilebench", &[WorkloadName::CompileCreate, WorkloadName::CompileMake, WorkloadName::CompileRead]),
];

/// What was run: workload, policy, largest merged request, dispatch priority.
type Key = (WorkloadName, PolicyName, u64, u64);

/// Runs that have been made, so that none is made twice.
#[derive(Debug)]
pub struct Runs {
    setup: Setup,
    found: BTreeMap<Key, Vec<Report>>,
}

impl Runs {
    /// No runs yet. Policy, dispatch priorities and largest request of `setup` do not matter.
    pub fn new(setup: Setup) -> Runs {
        Runs { setup, found: BTreeMap::new() }
    }

    /// Runs that one table needs at most.
    pub fn count() -> u64 {
        let table = WorkloadName::ALL.len() * (READINGS.len() + BASELINES.len()) + BASELINES.len();
        let sweep = WorkloadName::ALL.len() * (READINGS.len() * (PRIORITIES.len() - 1) + 1);
        (table + sweep) as u64
    }

    /// Runs that have been made.
    pub fn made(&self) -> u64 {
        self.found.len() as u64
    }

    /// The runs of one cell, one for each seed.
    pub fn run(
        &mut self,
        workload: WorkloadName,
        policy: PolicyName,
        largest: u64,
        priority: u64,
    ) -> Result<&[Report], Refused> {
        let key = (workload, policy, largest, priority);
        if !self.found.contains_key(&key) {
            let parameters = Parameters {
                largest,
                read_priority: priority,
                write_priority: priority,
                ..self.setup.parameters
            };
            // Operations of Fio-A are large and few.
            let longer = if workload == WorkloadName::FioA { FIO_A_LONGER } else { 1 };
            let time_ms = self.setup.time_ms * longer;
            let run = |number| {
                let seed = self.setup.seed.wrapping_add(number);
                Ok(Simulation::new(Setup { policy, parameters, time_ms, seed, ..self.setup }, workload)?
                    .run())
            };
            let reports = (0..SEEDS).map(run).collect::<Result<Vec<Report>, Refused>>()?;
            self.found.insert(key, reports);
        }
        Ok(&self.found[&key])
    }

    fn slq(
        &mut self,
        workload: WorkloadName,
        reading: PolicyName,
        priority: u64,
        metric: Metric,
    ) -> Result<f64, Refused> {
        Ok(mean(self.run(workload, reading, LARGEST_SLQ, priority)?, |report| metric.of(report)))
    }

    fn baseline(
        &mut self,
        workload: WorkloadName,
        policy: PolicyName,
        alike: bool,
        metric: Metric,
    ) -> Result<f64, Refused> {
        let largest = if alike { LARGEST_SLQ } else { LARGEST_LINUX };
        Ok(mean(self.run(workload, policy, largest, PAPER_PRIORITY)?, |report| metric.of(report)))
    }

    /// What the model says about a row, by one reading: over each baseline, in percent.
    pub fn cells(&mut self, row: &Row, reading: PolicyName) -> Result<[f64; 3], Refused> {
        let slq = self.slq(row.workload, reading, PAPER_PRIORITY, row.metric)?;
        let mut cells = [0.0; 3];
        for (cell, policy) in cells.iter_mut().zip(BASELINES) {
            *cell = percent(slq, self.baseline(row.workload, policy, row.alike, row.metric)?);
        }
        Ok(cells)
    }

    /// The same about another dispatch priority: the least and the most over the baselines, and which of
    /// [`PRIORITIES`] is best.
    pub fn best(&mut self, row: &BestRow, reading: PolicyName) -> Result<([f64; 2], u64), Refused> {
        let slq = self.slq(row.workload, reading, row.priority, row.metric)?;
        let mut range = [f64::INFINITY, f64::NEG_INFINITY];
        for policy in BASELINES {
            let cell = percent(slq, self.baseline(row.workload, policy, false, row.metric)?);
            range = [range[0].min(cell), range[1].max(cell)];
        }
        let mut best = (f64::NEG_INFINITY, PAPER_PRIORITY);
        for priority in PRIORITIES {
            let value = self.slq(row.workload, reading, priority, row.metric)?;
            if value > best.0 {
                best = (value, priority);
            }
        }
        Ok((range, best.1))
    }

    /// How well the workloads went together with a policy: the geometric mean of their scores.
    fn together(
        &mut self,
        workloads: &[WorkloadName],
        policy: PolicyName,
        priority: u64,
    ) -> Result<f64, Refused> {
        let mut product = 1.0;
        for workload in workloads {
            let reports = self.run(*workload, policy, LARGEST_SLQ, priority)?;
            product *= mean(reports, |report| score(*workload, report));
        }
        Ok(product.powf(1.0 / workloads.len() as f64))
    }

    /// `slq-auto` on the workloads, beside every fixed priority of `slq-nearest`.
    pub fn auto(&mut self, workloads: &[WorkloadName]) -> Result<AutoRow, Refused> {
        let auto = self.together(workloads, PolicyName::SlqAuto, PAPER_PRIORITY)?;
        let mut fixed = [0.0; PRIORITIES.len()];
        for (value, priority) in fixed.iter_mut().zip(PRIORITIES) {
            *value = self.together(workloads, PolicyName::SlqNearest, priority)? / auto;
        }
        Ok(AutoRow { fixed: fixed.map(|value| 1.0 / value) })
    }
}

/// `slq-auto` over fixed priorities.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AutoRow {
    /// Over each of [`PRIORITIES`]; above 1: `slq-auto` is better.
    pub fixed: [f64; PRIORITIES.len()],
}

impl AutoRow {
    /// Over the best fixed priority, and which that is.
    pub fn best(&self) -> (f64, u64) {
        let mut best = (f64::INFINITY, 0);
        for (ratio, priority) in self.fixed.iter().zip(PRIORITIES) {
            if *ratio < best.0 {
                best = (*ratio, priority);
            }
        }
        best
    }
}

/// The dispatch priority of table 3.
pub const PAPER_PRIORITY: u64 = 512 << 10;
/// The largest merged request of the paper's SLQ, and of Linux.
const LARGEST_SLQ: u64 = 4 << 20;
const LARGEST_LINUX: u64 = 512 << 10;

/// Runs of each cell, with seeds that follow each other; and how much longer those of Fio-A are.
pub const SEEDS: u64 = 3;
const FIO_A_LONGER: u64 = 10;

fn mean(reports: &[Report], value: impl Fn(&Report) -> f64) -> f64 {
    reports.iter().map(value).sum::<f64>() / reports.len().max(1) as f64
}

fn percent(one: f64, other: f64) -> f64 {
    (one / other - 1.0) * 100.0
}

/// Whether the model has the sign of the paper, with an effect. None: the paper's cell is too small to count.
pub fn agrees(paper: f64, ours: f64) -> Option<bool> {
    let is_effect = ours.abs() >= EFFECT_FROM;
    (paper.abs() >= COUNTS_FROM).then_some(is_effect && paper.signum() == ours.signum())
}
