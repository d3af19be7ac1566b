//! The paper's findings and the results here.

use super::model::{BASELINES, Cell, READINGS, Row, impossible};
use super::runs::{Compared, Measured};
use super::systems::{NOOP, Side, System};
use super::workloads::Workload;
pub use crate::verdict::{Claim, Verdict};
use crate::verdict::{Judged, judge};

/// The findings of table 3: the title of the row, the experiment, and the finding.
const ROWS: [(&str, &str, &str); 15] = [
    (
        "Fio-A bandwidth, 4 MiB and 512 KiB",
        "003-Fig7",
        "requests of up to 4 MB give Fio-A 4.7 to 5.0 % more bandwidth than those of 512 KB",
    ),
    ("Fio-A bandwidth, all 4 MiB", "003-Fig8", "with equal limits nothing is left: -0.1 to +0.2 %"),
    ("Fio-A latency, 4 MiB and 512 KiB", "003-Fig9", "they cost Fio-A 5.4 to 5.9 % more latency"),
    ("Fio-A latency, all 4 MiB", "003-Fig10", "with equal limits nothing is left: 0.0 to 0.1 %"),
    (
        "Fio-B bandwidth, read",
        "003-Table3",
        "Fio-B reads lose 1.0 % over CFQ, 6.3 % over Deadline, 1.6 % over NOOP",
    ),
    ("Fio-B bandwidth, write", "003-Table3", "Fio-B writes lose the same"),
    ("Fio-B latency, read", "003-Fig11", "Fio-B reads take 17 to 24 % longer"),
    ("Fio-B latency, write", "003-Fig11", "Fio-B writes take 80 to 90 % less time"),
    (
        "Postmark bandwidth",
        "003-Fig12",
        "Postmark loses 8 % over CFQ and gains 0 and 3 % over Deadline and NOOP",
    ),
    ("Blogbench read score", "003-Fig13", "Blogbench reads gain 8.7, 17.5 and 15.5 %"),
    ("Blogbench write score", "003-Fig14", "Blogbench writes gain 2.6 %, lose 12.3 % and gain 2.6 %"),
    (
        "Dbench bandwidth",
        "003-Fig15",
        "Dbench gains 1.3 % over CFQ, and loses 39.9 and 43.9 % over Deadline and NOOP",
    ),
    ("Compilebench create", "003-Fig16", "Compilebench's create loses 17.0 %, gains 2.4 % and loses 15.4 %"),
    ("Compilebench compile", "003-Fig16", "its compile loses 6.8, 6.8 and 7.8 %"),
    ("Compilebench read", "003-Fig16", "its reading of the tree gains 5.1, 1.6 and 1.6 %"),
];

/// Bytes of the paper's buffer, and of its longest single read that is told.
const BUFFER: u64 = 512 << 10;
const LONG_READ: u64 = 2_300_000;

/// All findings, in the order of the paper.
pub fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = single_reads(measured);
    claims.extend(ROWS.into_iter().filter_map(|(title, id, paper)| {
        let row = measured.model.rows.iter().find(|row| row.title == title)?;
        Some(Claim {
            id,
            paper,
            here: cells(row, measured.model.better_reading()),
            verdict: row_verdict(measured, row),
        })
    }));
    claims.extend(priorities(measured));
    claims.push(order_on_the_device(measured));
    claims
}

/// Figures 17 and 18.
fn single_reads(measured: &Measured) -> Vec<Claim> {
    let extra = |bytes: u64| {
        let read = measured.model.reads.iter().find(|read| read.bytes == bytes);
        read.map_or(f64::NAN, |read| read.extra_us)
    };
    let beyond = measured.model.reads.iter().filter(|read| read.bytes > BUFFER);
    let first = beyond.map(|read| read.extra_us).fold(f64::INFINITY, f64::min);
    let (within, long) = (extra(BUFFER), extra(LONG_READ));
    vec![
        Claim {
            id: "003-Fig17",
            paper: "a single read takes 100 to 150 us more for each 512 KB that it passes: the buffer of the device",
            here: format!("model: {:.0} us more at 512 KiB, {first:.0} us beyond", within.max(0.0)),
            verdict: judge(
                within.abs() < 1.0 && (100.0..=150.0).contains(&first),
                (Verdict::Reproduced, "the model was fitted to this; it predicts nothing"),
                (Verdict::NotReproduced, "the model is another one"),
            ),
        },
        Claim {
            id: "003-Fig18",
            paper: "a read of 2.3 MB takes 400 to 600 us more",
            here: format!("model: {long:.0} us"),
            verdict: judge(
                (400.0..=600.0).contains(&long),
                (Verdict::Reproduced, "four buffers more"),
                (Verdict::NotReproduced, "the model is another one"),
            ),
        },
    ]
}

fn cells(row: &Row, reading: usize) -> String {
    let each = row.model[reading].iter().zip(BASELINES);
    let each: Vec<String> = each.map(|(model, baseline)| format!("{model:+.1} % over {baseline}")).collect();
    format!("`{}`: {}", READINGS[reading], each.join(", "))
}

/// The verdict on a row: by all cells that count, of the reading with more right signs.
fn row_verdict(measured: &Measured, row: &Row) -> Judged {
    let model = &measured.model;
    let reading = model.better_reading();
    let of = |at| model.cell(row, reading, at);
    let wrong: Vec<usize> = (0..BASELINES.len()).filter(|at| of(*at) == Cell::Wrong).collect();
    let counts = (0..BASELINES.len()).any(|at| of(at) != Cell::Small);
    if !counts {
        let is_small = row.model[reading].iter().all(|cell| cell.abs() < model.counts_from);
        return judge(
            is_small,
            (Verdict::Reproduced, "no effect in either"),
            (Verdict::NotReproduced, "the model has an effect where the paper has none"),
        );
    }
    let Some(first) = wrong.first() else {
        return (Verdict::Reproduced, "the signs are the paper's");
    };
    let reason = impossible(&row.title, BASELINES[*first]);
    let all_impossible = wrong.iter().all(|at| impossible(&row.title, BASELINES[*at]).is_some());
    match reason.filter(|_| all_impossible) {
        Some(reason) => (Verdict::NotReproduced, reason.why),
        None => (Verdict::NotReproduced, "what the model assumes of the program is not what the paper ran"),
    }
}

/// No fixed priority is right for all, and what that asks for.
fn priorities(measured: &Measured) -> Vec<Claim> {
    let reading = measured.model.better_reading();
    let best = |title: &str| {
        let row = measured.model.others.iter().find(|row| row.title.starts_with(title));
        row.map_or(0, |row| row.model[reading].1)
    };
    let (reads, writes) = (best("Blogbench read"), best("Blogbench write"));
    let least = measured.model.auto.iter().map(|row| row.over_best).fold(f64::INFINITY, f64::min);
    vec![
        Claim {
            id: "003-Table3",
            paper: "Blogbench's reads want the largest priority (4 MB), its writes the smallest (0 KB)",
            here: format!("best for reads {} KiB, for writes {} KiB", reads >> 10, writes >> 10),
            verdict: judge(
                reads > writes,
                (Verdict::Reproduced, "in kind: how much it brings is another matter (below)"),
                (Verdict::NotReproduced, "the model wants no larger priority for reads"),
            ),
        },
        Claim {
            id: "003-M8",
            paper: "(future work) no fixed priority is right: it should follow the load, for reads and writes apart",
            here: format!(
                "`slq-auto` has at least {least:.3} of the best fixed priority of each workload (model)"
            ),
            verdict: judge(
                least >= 0.95,
                (
                    Verdict::Better,
                    "nobody has to know the priority; in the model there is little to win by it",
                ),
                (Verdict::NotReproduced, "its trials cost more than what it finds"),
            ),
        },
    ]
}

/// What the order of requests does on the loop device: Shoal's policies against each other.
fn order_on_the_device(measured: &Measured) -> Claim {
    let (mut more, mut less, mut pairs) = (0, 0, 0);
    for workload in Workload::ALL {
        let Some(noop) = measured.scores(workload, NOOP) else { continue };
        for system in System::of(Side::Shoal).filter(|system| *system != NOOP) {
            let Some(scores) = measured.scores(workload, system) else { continue };
            pairs += 1;
            match scores.against(noop) {
                Compared::Above => more += 1,
                Compared::Below => less += 1,
                Compared::Level => {}
            }
        }
    }
    Claim {
        id: "003-Table3",
        paper: "the order of requests changes what programs get from an SSD by up to a factor of 2.6",
        here: format!(
            "on the loop device, of {pairs} pairs of a policy of the brick and a workload, {more} are above `noop` by more than the \
             spread, {less} below"
        ),
        verdict: if pairs == 0 || measured.turns() < 2 {
            (Verdict::NotMeasured, "one turn has no spread")
        } else if more + less == 0 {
            (Verdict::NotReproduced, "no difference is larger than that between turns")
        } else {
            (
                Verdict::NotComparable,
                "a disk of today behind a loop device is not the paper's SSD; the tables below have the sizes",
            )
        },
    }
}
