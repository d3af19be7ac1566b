//! What was wanted of Shoal, and whether it is so.

use std::fmt::Write;

use super::model::READINGS;
use super::runs::{Compared, Measured, Reader, Turns};
use super::systems::{AUTO, NOOP, Side, System};
use super::workloads::Workload;

/// The wanted share of right signs, 0 to 1.
const SIGNS: f64 = 0.8;
/// What `slq-auto` must have of the best fixed priority in the model.
const OF_BEST_FIXED: f64 = 0.95;
/// On how many workloads it must be as good as the kernel's best on the device.
const WORKLOADS: usize = 4;
/// What 4-KiB reads by a brick's queue must have of fio's.
const OF_DEVICE: f64 = 0.9;

/// Whether something is as wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// The turns are too far apart to say.
    Open,
}

impl Met {
    /// In a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Met::Yes => "met",
            Met::No => "not met",
            Met::Open => "open",
        }
    }
}

/// Something that was wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    /// What.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// Whether that is so.
    pub met: Met,
}

/// `slq-auto` beside the best scheduler of the kernel on a workload of the device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BesideKernel {
    /// The workload.
    pub workload: Workload,
    /// `slq-auto`.
    pub auto: Turns,
    /// The kernel's best.
    pub best: (System, Turns),
}

impl BesideKernel {
    /// How it compares.
    pub fn compared(self) -> Compared {
        self.auto.against(self.best.1)
    }

    /// Median over median.
    pub fn ratio(self) -> f64 {
        self.auto.median / self.best.1.median.max(f64::MIN_POSITIVE)
    }
}

/// On all workloads that were measured, beside ext4 over the kernel's best.
pub fn beside_kernel(measured: &Measured) -> Vec<BesideKernel> {
    let of = |workload| {
        let (auto, best) = (measured.scores(workload, AUTO)?, measured.best(workload, Side::Kernel)?);
        Some(BesideKernel { workload, auto, best })
    };
    Workload::ALL.into_iter().filter_map(of).collect()
}

/// The same beside the same mount, over a brick over the kernel's best.
pub fn beside_kernel_below(measured: &Measured) -> Vec<BesideKernel> {
    let of = |workload| {
        let auto = measured.scores(workload, AUTO)?;
        let none = (NOOP, measured.scores(workload, NOOP)?);
        let other = measured.best(workload, Side::BelowBrick)?;
        let best = if other.1.median > none.1.median { other } else { none };
        Some(BesideKernel { workload, auto, best })
    };
    Workload::ALL.into_iter().filter_map(of).collect()
}

/// All that was wanted.
pub fn wanted(measured: &Measured) -> Vec<Wanted> {
    let [below, beside] = [
        ("`slq-auto` is as good as the best scheduler of the kernel below the same mount and brick on four of six workloads",
            beside_kernel_below(measured)),
        ("the whole of Shoal with `slq-auto` is as good as ext4 over the kernel's best on four of six workloads",
            beside_kernel(measured)),
    ]
    .map(|(what, all)| device(what, &all));
    vec![signs(measured), account(measured), auto(measured), below, beside, reads(measured)]
}

/// The section of the page.
pub fn table(measured: &Measured) -> String {
    let mut text = String::from("## What was wanted\n\n| wanted | found | |\n|---|---|---|\n");
    for Wanted { what, found, met } in wanted(measured) {
        let _ = writeln!(text, "| {what} | {found} | **{}** |", met.words());
    }
    text
}

fn met(is_so: bool) -> Met {
    if is_so { Met::Yes } else { Met::No }
}

fn signs(measured: &Measured) -> Wanted {
    let at = measured.model.better_reading();
    let found = [0, 1].map(|at| {
        let signs = measured.model.signs(at);
        format!("{} of {} with `{}`", signs.right, signs.counted, READINGS[at])
    });
    Wanted {
        what: "the model has the sign of at least 80 % of the cells of table 3 that count, by one reading",
        found: found.join(", "),
        met: met(measured.model.signs(at).share() >= SIGNS),
    }
}

fn account(measured: &Measured) -> Wanted {
    let at = measured.model.better_reading();
    let signs = measured.model.signs(at);
    Wanted {
        what: "or the account of those that are wrong: at least 80 % of the cells that the paper's rules can give",
        found: format!(
            "{} cells cannot come from the rules (below); of the other {}, {} are right with `{}`",
            signs.impossible,
            signs.counted - signs.impossible,
            signs.right_of_possible,
            READINGS[at]
        ),
        met: met(signs.share_of_possible() >= SIGNS),
    }
}

fn auto(measured: &Measured) -> Wanted {
    let rows = &measured.model.auto;
    let each = rows.iter().map(|row| format!("{} {:.3}", row.workload, row.over_best));
    Wanted {
        what: "`slq-auto` has at least 0.95 of the best fixed priority on each of the six workloads (model)",
        found: each.collect::<Vec<_>>().join(", "),
        met: met(!rows.is_empty() && rows.iter().all(|row| row.over_best >= OF_BEST_FIXED)),
    }
}

fn device(what: &'static str, all: &[BesideKernel]) -> Wanted {
    let count = |what: Compared| all.iter().filter(|of| of.compared() == what).count();
    let (above, level, below) = (count(Compared::Above), count(Compared::Level), count(Compared::Below));
    let higher = all.iter().filter(|of| of.ratio() >= 1.0).count();
    Wanted {
        what,
        found: format!(
            "above on {above}, within the spread on {level}, below on {below}; its median is at least as high on {higher}"
        ),
        met: if above >= WORKLOADS || (higher >= WORKLOADS && above + level >= WORKLOADS) {
            Met::Yes
        } else if above + level < WORKLOADS {
            Met::No
        } else {
            Met::Open
        },
    }
}

fn reads(measured: &Measured) -> Wanted {
    let ratios = measured.reads_per_second(Reader::Queue).zip(measured.reads_per_second(Reader::Fio));
    let what = "random reads of 4 KiB by the queue of a direct brick, 32 in flight, have at least 0.9 of those of fio with \
                io_uring on the same device";
    let Some((queue, device)) = ratios else {
        return Wanted { what, found: "not measured".to_owned(), met: Met::Open };
    };
    let ratio = queue.median / device.median.max(f64::MIN_POSITIVE);
    Wanted {
        what,
        found: format!("{:.0} of {:.0} per second: {ratio:.2}", queue.median, device.median),
        met: if ratio >= OF_DEVICE {
            Met::Yes
        } else if queue.most >= OF_DEVICE * device.least {
            Met::Open
        } else {
            Met::No
        },
    }
}
