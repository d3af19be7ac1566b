//! One measurement, and all of them as JSON.

use serde_json::{Value, json};

use super::model::Model;
use super::scale::Scale;
use super::systems::{Side, System};
use super::workloads::Workload;
use crate::document::{Fields, parsed};
use crate::error::Result;

/// One run of a workload under a system.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// The workload.
    pub workload: Workload,
    /// The system.
    pub system: System,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// The score, by the workload's own metric; more is better.
    pub score: f64,
    /// Mean times of reads and of writes, as programs see them, in microseconds.
    pub mean_us: [f64; 2],
    /// Share of the time for which the cores were busy, 0 to 1.
    pub busy: f64,
}

/// Who makes random reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// fio, of the device.
    Fio,
    /// The queue of a direct brick, of the device.
    Queue,
    /// fio, of the device when a brick has it.
    Beside,
    /// fio, of a file of a mount of that brick.
    Mount,
}

impl Reader {
    /// All.
    pub const ALL: [Reader; 4] = [Reader::Fio, Reader::Queue, Reader::Beside, Reader::Mount];

    /// The one in whose turns it is measured too.
    pub fn compared(self) -> Reader {
        match self {
            Reader::Fio | Reader::Queue => Reader::Fio,
            Reader::Beside | Reader::Mount => Reader::Beside,
        }
    }

    /// Its name on the page.
    pub fn title(self) -> &'static str {
        match self {
            Reader::Fio => "fio, of the device",
            Reader::Queue => "a direct brick's queue, of the device",
            Reader::Beside => "fio, of the brick's device",
            Reader::Mount => "fio, of a file of the mount",
        }
    }
}

/// One run of random reads of 4 KiB.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reads {
    /// Who reads.
    pub by: Reader,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Reads per second.
    pub per_second: f64,
    /// Share of the time for which the cores were busy, 0 to 1.
    pub busy: f64,
}

/// Everything that was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The sizes.
    pub scale: Scale,
    /// Cores of the machine, shared by all.
    pub cores: u32,
    /// The kernel's version.
    pub kernel: String,
    /// What the model says.
    pub model: Model,
    /// Every run of a workload.
    pub runs: Vec<Run>,
    /// Random reads.
    pub reads: Vec<Reads>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

/// Scores of some turns: the least, the median, the most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Turns {
    /// The least.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Turns {
    /// Of some numbers, if there are any.
    pub fn of(mut numbers: Vec<f64>) -> Option<Turns> {
        numbers.sort_by(f64::total_cmp);
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        let middle = numbers.len() / 2;
        let median = match numbers.len() % 2 {
            0 => (numbers[middle - 1] + numbers[middle]) / 2.0,
            _ => numbers[middle],
        };
        Some(Turns { least, median, most })
    }

    /// How far the turns are apart, as a share of the median.
    pub fn spread(self) -> f64 {
        (self.most - self.least) / self.median.max(f64::MIN_POSITIVE)
    }

    /// How it compares with others: only if no turn of one reaches any of the others, they differ.
    pub fn against(self, other: Turns) -> Compared {
        if self.least > other.most {
            Compared::Above
        } else if self.most < other.least {
            Compared::Below
        } else {
            Compared::Level
        }
    }
}

/// How scores of some turns compare with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// Every turn is above all of the other's.
    Above,
    /// They overlap: the difference is within the spread.
    Level,
    /// Every turn is below all of the other's.
    Below,
}

impl Compared {
    /// In a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Compared::Above => "above",
            Compared::Level => "within the spread",
            Compared::Below => "below",
        }
    }
}

impl Measured {
    /// Turns that were made.
    pub fn turns(&self) -> u32 {
        self.runs.iter().map(|run| run.turn).max().unwrap_or(0)
    }

    /// The scores of a workload under a system.
    pub fn scores(&self, workload: Workload, system: System) -> Option<Turns> {
        let of = self.runs.iter().filter(|run| run.workload == workload && run.system == system);
        Turns::of(of.map(|run| run.score).collect())
    }

    /// The best of one side on a workload, by the median.
    pub fn best(&self, workload: Workload, side: Side) -> Option<(System, Turns)> {
        let all = System::of(side).filter_map(|system| Some((system, self.scores(workload, system)?)));
        all.max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))
    }

    /// Random reads per second.
    pub fn reads_per_second(&self, by: Reader) -> Option<Turns> {
        let of = self.reads.iter().filter(|reads| reads.by == by);
        Turns::of(of.map(|reads| reads.per_second).collect())
    }

    /// All as JSON.
    pub fn to_json(&self) -> Value {
        let [table3, probe] = self.model.said();
        let scale = &self.scale;
        json!({
            "paper": "003",
            "quick": scale.is_quick,
            "seconds": self.seconds,
            "cores": self.cores,
            "kernel": self.kernel,
            "scale": {
                "device": scale.device, "run_ms": scale.run_ms, "turns": scale.turns, "fio_a_file": scale.fio_a_file,
                "fio_b_file": scale.fio_b_file, "postmark": scale.postmark, "tree_files": scale.tree_files,
            },
            "table3": table3,
            "probe": probe,
            "random_reads": self.reads.iter().copied().map(Reads::to_json).collect::<Vec<_>>(),
            "runs": self.runs.iter().map(Run::to_json).collect::<Vec<_>>(),
        })
    }

    /// Reads the output of [`Measured::to_json`].
    ///
    /// # Errors
    /// Something is missing, or is not of this version.
    pub fn from_json(value: &Value) -> Result<Measured> {
        let model = Model::read(&value["table3"], &value["probe"])?;
        parsed(Measured::parse(value, model))
    }

    fn parse(value: &Value, model: Model) -> Option<Measured> {
        let base = if value["quick"].as_bool()? { Scale::quick() } else { Scale::full() };
        let (all, fields) = (Fields(value), Fields(&value["scale"]));
        let scale = Scale {
            device: fields.number("device")?,
            run_ms: fields.number("run_ms")?,
            turns: fields.small("turns")?,
            fio_a_file: fields.number("fio_a_file")?,
            fio_b_file: fields.number("fio_b_file")?,
            postmark: fields.number("postmark")?,
            tree_files: fields.small("tree_files")?,
            ..base
        };
        Some(Measured {
            scale,
            cores: all.small("cores")?,
            kernel: value["kernel"].as_str()?.to_owned(),
            model,
            runs: all.list("runs", Run::from_json)?,
            reads: all.list("random_reads", Reads::from_json)?,
            seconds: value["seconds"].as_f64()?,
        })
    }
}

impl Run {
    fn to_json(&self) -> Value {
        json!({
            "workload": self.workload.title(), "system": self.system.title(), "turn": self.turn, "score": self.score,
            "read_us": self.mean_us[0], "write_us": self.mean_us[1], "cores_busy": self.busy,
        })
    }

    fn from_json(value: &Value) -> Option<Run> {
        let fields = Fields(value);
        Some(Run {
            workload: fields.named("workload", &Workload::ALL, Workload::title)?,
            system: System::named(value["system"].as_str()?)?,
            turn: fields.small("turn")?,
            score: value["score"].as_f64()?,
            mean_us: [value["read_us"].as_f64()?, value["write_us"].as_f64()?],
            busy: value["cores_busy"].as_f64()?,
        })
    }
}

impl Reads {
    fn to_json(self) -> Value {
        json!({
            "by": self.by.title(), "turn": self.turn,
            "reads_per_s": self.per_second, "cores_busy": self.busy,
        })
    }

    fn from_json(value: &Value) -> Option<Reads> {
        let fields = Fields(value);
        Some(Reads {
            by: fields.named("by", &Reader::ALL, Reader::title)?,
            turn: fields.small("turn")?,
            per_second: value["reads_per_s"].as_f64()?,
            busy: value["cores_busy"].as_f64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_a_median_and_a_spread() {
        let odd = Turns::of(vec![3.0, 1.0, 2.0]).expect("numbers");
        assert_eq!((odd.least, odd.median, odd.most, odd.spread()), (1.0, 2.0, 3.0, 1.0));
        assert_eq!(Turns::of(vec![4.0, 2.0]).map(|turns| turns.median), Some(3.0));
        assert_eq!(Turns::of(Vec::new()), None);
    }

    #[test]
    fn only_turns_that_do_not_overlap_differ() {
        let of = |numbers: &[f64]| Turns::of(numbers.to_vec()).expect("numbers");
        let (low, high, wide) = (of(&[1.0, 2.0]), of(&[3.0, 4.0]), of(&[1.5, 3.5]));
        assert_eq!((high.against(low), low.against(high)), (Compared::Above, Compared::Below));
        assert_eq!(
            (wide.against(low), wide.against(high), low.against(low)),
            (Compared::Level, Compared::Level, Compared::Level)
        );
    }
}
