//! What `shoal sim sched` says about table 3 and figures 17 and 18, and which cells no order of requests can give.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::scale::Scale;
use crate::document::{Fields, parsed};
use crate::error::{LabError, Result, doing};

/// The two ways to read the paper.
pub const READINGS: [&str; 2] = ["slq-nearest", "slq-lisf-first"];
/// What SLQ is compared with, in the paper's order.
pub const BASELINES: [&str; 3] = ["cfq", "deadline", "noop"];

/// A row of table 3.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What it is about.
    pub title: String,
    /// The paper: SLQ over each baseline, in percent.
    pub paper: [f64; 3],
    /// The model, by each reading, in percent.
    pub model: [[f64; 3]; 2],
}

/// What the paper's text says about another dispatch priority.
#[derive(Clone, PartialEq, Debug)]
pub struct OtherPriority {
    /// What it is about.
    pub title: String,
    /// The priority, in bytes.
    pub priority: u64,
    /// The paper: least and most over the baselines, in percent.
    pub paper: [f64; 2],
    /// The model, by each reading: the same, and its own best priority in bytes.
    pub model: [([f64; 2], u64); 2],
}

/// `slq-auto` over fixed priorities on a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Auto {
    /// The workload.
    pub workload: String,
    /// Over the best fixed priority.
    pub over_best: f64,
    /// Which that is, in bytes.
    pub best: u64,
    /// Over each of the fixed priorities.
    pub over_fixed: Vec<f64>,
}

/// A single read of the modelled device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Read {
    /// Its bytes.
    pub bytes: u64,
    /// How long it takes, in microseconds.
    pub us: f64,
    /// What of that is the refilling of the buffer, in microseconds.
    pub extra_us: f64,
}

/// Everything that the model says.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Runs of each cell, with seeds of their own.
    pub seeds: u64,
    /// Seconds of the model that each run has.
    pub seconds: f64,
    /// A cell of the paper below so many percent does not count.
    pub counts_from: f64,
    /// The model has no sign below so many percent.
    pub effect_from: f64,
    /// Table 3.
    pub rows: Vec<Row>,
    /// Other priorities.
    pub others: Vec<OtherPriority>,
    /// The fixed priorities that `slq-auto` is compared with, in bytes.
    pub priorities: Vec<u64>,
    /// `slq-auto`.
    pub auto: Vec<Auto>,
    /// Figures 17 and 18.
    pub reads: Vec<Read>,
    /// What the program said, to be kept.
    said: [Value; 2],
}

/// What became of a cell of table 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// The paper's effect is too small to count.
    Small,
    /// The same sign, and an effect.
    Right,
    /// Another sign, or no effect.
    Wrong,
}

impl Cell {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Cell::Small => "-",
            Cell::Right => "right",
            Cell::Wrong => "wrong",
        }
    }
}

/// Signs of a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signs {
    /// Those that are right.
    pub right: usize,
    /// Those that count.
    pub counted: usize,
    /// Of those that count, cells that no order of requests can give.
    pub impossible: usize,
    /// Those of the others that are right.
    pub right_of_possible: usize,
}

impl Signs {
    /// The share that is right, 0 to 1.
    pub fn share(self) -> f64 {
        self.right as f64 / self.counted.max(1) as f64
    }

    /// The share of cells that the rules can give, 0 to 1.
    pub fn share_of_possible(self) -> f64 {
        self.right_of_possible as f64 / (self.counted - self.impossible).max(1) as f64
    }
}

/// A cell that no order of requests can give: the row, the baselines, and why. The reasons are those of docs/scheduler-model.md.
pub struct Impossible {
    /// The title of the row.
    pub row: &'static str,
    /// The baselines.
    pub baselines: &'static [&'static str],
    /// Why.
    pub why: &'static str,
}

/// All of them.
pub const IMPOSSIBLE: [Impossible; 5] = [
    Impossible {
        row: "Fio-A latency, 4 MiB and 512 KiB",
        baselines: &BASELINES,
        why: "a fixed number of processes each wait for one operation, so latency is their number over the rate: it falls by what \
              the bandwidth rises, and the paper has both rise",
    },
    Impossible {
        row: "Fio-B bandwidth",
        baselines: &["deadline"],
        why: "as many requests are always in flight, so the paper's own latencies, 0.8 x 1.17 + 0.2 x 0.20 of what they were, mean \
              that the bandwidth rises, unless deadline, which prefers reads, had writes wait half as long as them; the paper has \
              it fall by 6.3 %",
    },
    Impossible {
        row: "Dbench bandwidth",
        baselines: &["deadline", "noop"],
        why: "requests have up to 64 KiB, and hardly any two can be merged: a device that always has something to do does as much \
              in any order; to lose two fifths it must have waited for something that is not ordered",
    },
    Impossible {
        row: "Compilebench create",
        baselines: &["deadline"],
        why: "one process, whose write-back alone is queued: the baselines can hardly differ, and the paper's differ by a fifth, \
              so a cell over one of them says nothing about SLQ",
    },
    Impossible {
        row: "Compilebench read",
        baselines: &["cfq"],
        why: "one process reads, one request after the other: there is nothing to choose from",
    },
];

impl Model {
    /// Asks the program `shoal`.
    ///
    /// # Errors
    /// What it said.
    pub fn ask(shoal: &Path, scale: &Scale) -> Result<Model> {
        let seconds = |ms: u64| (ms as f64 / 1e3).to_string();
        let (ramp, counted) = (seconds(scale.model_ramp_ms), seconds(scale.model_ms));
        let table3 = said(shoal, &["--table3", "--ramp", &ramp, "--seconds", &counted])?;
        let probe = said(shoal, &["--probe"])?;
        Model::read(&table3, &probe)
    }

    /// Reads what `shoal sim sched --table3` and `--probe` say in JSON.
    ///
    /// # Errors
    /// Something is missing, or another version wrote it.
    pub fn read(table3: &Value, probe: &Value) -> Result<Model> {
        parsed(Model::parse(table3, probe))
    }

    fn parse(table3: &Value, probe: &Value) -> Option<Model> {
        let (all, of_probe) = (Fields(table3), Fields(probe));
        let row = |value: &Value| {
            let model = [numbers(&value[READINGS[0]])?, numbers(&value[READINGS[1]])?];
            Some(Row { title: title(value)?, paper: numbers(&value["paper_percent"])?, model })
        };
        let other = |value: &Value| {
            let of = |reading: &str| {
                let of = &value[reading];
                Some((numbers(&of["percent"])?, of["best_priority"].as_u64()?))
            };
            Some(OtherPriority {
                title: title(value)?,
                priority: value["priority"].as_u64()?,
                paper: numbers(&value["paper_percent"])?,
                model: [of(READINGS[0])?, of(READINGS[1])?],
            })
        };
        let auto = |value: &Value| {
            Some(Auto {
                workload: value["workload"].as_str()?.to_owned(),
                over_best: value["over_best_fixed"].as_f64()?,
                best: value["best_priority"].as_u64()?,
                over_fixed: Fields(value).list("over_fixed", Value::as_f64)?,
            })
        };
        let read = |value: &Value| {
            let number = |name: &str| value[name].as_f64();
            Some(Read { bytes: value["bytes"].as_u64()?, us: number("us")?, extra_us: number("extra_us")? })
        };
        Some(Model {
            seeds: all.number("seeds")?,
            seconds: table3["seconds"].as_f64()?,
            counts_from: table3["counts_from_percent"].as_f64()?,
            effect_from: table3["effect_from_percent"].as_f64()?,
            rows: all.list("rows", row)?,
            others: all.list("best", other)?,
            priorities: all.list("priorities", Value::as_u64)?,
            auto: all.list("auto", auto)?,
            reads: of_probe.list("reads", read)?,
            said: [table3.clone(), probe.clone()],
        })
    }

    /// What the program said about table 3, and about single reads.
    pub fn said(&self) -> &[Value; 2] {
        &self.said
    }

    /// What became of a cell, by a reading, over a baseline.
    pub fn cell(&self, row: &Row, reading: usize, baseline: usize) -> Cell {
        let (paper, model) = (row.paper[baseline], row.model[reading][baseline]);
        match paper.abs() < self.counts_from {
            true => Cell::Small,
            false if model.abs() >= self.effect_from && paper.signum() == model.signum() => Cell::Right,
            false => Cell::Wrong,
        }
    }

    /// The signs of a reading.
    pub fn signs(&self, reading: usize) -> Signs {
        let mut signs = Signs { right: 0, counted: 0, impossible: 0, right_of_possible: 0 };
        for row in &self.rows {
            for (at, baseline) in BASELINES.into_iter().enumerate() {
                let cell = self.cell(row, reading, at);
                let (counts, right) = (cell != Cell::Small, cell == Cell::Right);
                let is_possible = impossible(&row.title, baseline).is_none();
                signs.counted += usize::from(counts);
                signs.right += usize::from(right);
                signs.impossible += usize::from(counts && !is_possible);
                signs.right_of_possible += usize::from(right && is_possible);
            }
        }
        signs
    }

    /// The reading with more right signs.
    pub fn better_reading(&self) -> usize {
        usize::from(self.signs(1).right > self.signs(0).right)
    }
}

/// Why no order of requests can give a cell.
pub fn impossible(row: &str, baseline: &str) -> Option<&'static Impossible> {
    IMPOSSIBLE.iter().find(|cell| row.starts_with(cell.row) && cell.baselines.contains(&baseline))
}

/// The figure of the paper with a row's numbers.
pub fn figure(title: &str) -> &'static str {
    const FIGURES: [(&str, &str); 10] = [
        ("Fio-A bandwidth, 4", "7"),
        ("Fio-A bandwidth, all", "8"),
        ("Fio-A latency, 4", "9"),
        ("Fio-A latency, all", "10"),
        ("Fio-B latency", "11"),
        ("Postmark", "12"),
        ("Blogbench read", "13"),
        ("Blogbench write", "14"),
        ("Dbench", "15"),
        ("Compilebench", "16"),
    ];
    FIGURES.iter().find(|(begin, _)| title.starts_with(begin)).map_or("-", |(_, figure)| figure)
}

fn said(shoal: &Path, words: &[&str]) -> Result<Value> {
    let mut command = Command::new(shoal);
    command.args(["--json", "sim", "sched"]).args(words);
    let ran = command.output().map_err(doing("start the model"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        return Err(LabError::Command { command: format!("{command:?}"), said });
    }
    serde_json::from_slice(&ran.stdout).map_err(doing("read what the model says"))
}

fn title(value: &Value) -> Option<String> {
    value["row"].as_str().map(str::to_owned)
}

fn numbers<const N: usize>(value: &Value) -> Option<[f64; N]> {
    let numbers: Vec<f64> = value.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    numbers.try_into().ok()
}
