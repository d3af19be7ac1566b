//! The pictures of the page.

use super::model::{BASELINES, Model, READINGS, Row};
use super::runs::Measured;
use super::systems::{AUTO, NOOP, Side, System};
use super::workloads::Workload;
use crate::chart::{Axes, Series, bar_chart, line_chart_over};

/// All, by name.
pub fn pictures(measured: &Measured) -> Vec<(&'static str, String)> {
    let model = &measured.model;
    vec![
        (
            "003-bandwidth.svg",
            rows(model, "Figures 7, 8, 12, 15, 16: bandwidth, SLQ over others", &BANDWIDTH),
        ),
        (
            "003-latency.svg",
            rows(model, "Figures 9 to 11: latency, SLQ over others (less is better)", &LATENCY),
        ),
        (
            "003-blogbench.svg",
            rows(model, "Figures 13 and 14: Blogbench's scores, SLQ over others", &BLOGBENCH),
        ),
        ("003-fig17.svg", single_reads(model)),
        ("003-auto.svg", auto(model)),
        ("003-device.svg", device(measured)),
    ]
}

/// Begins of titles, and what they are called below the bars.
type Named = (&'static str, &'static str);

const BANDWIDTH: [Named; 8] = [
    ("Fio-A bandwidth, 4 ", "Fio-A"),
    ("Fio-A bandwidth, all", "Fio-A, alike"),
    ("Fio-B bandwidth, read", "Fio-B read"),
    ("Postmark", "Postmark"),
    ("Dbench", "Dbench"),
    ("Compilebench create", "create"),
    ("Compilebench compile", "compile"),
    ("Compilebench read", "read tree"),
];
const LATENCY: [Named; 4] = [
    ("Fio-A latency, 4 ", "Fio-A"),
    ("Fio-A latency, all", "Fio-A, alike"),
    ("Fio-B latency, read", "Fio-B read"),
    ("Fio-B latency, write", "Fio-B write"),
];
const BLOGBENCH: [Named; 2] = [("Blogbench read", "reads"), ("Blogbench write", "writes")];

/// SLQ over each baseline: the paper, and the reading that has more right signs.
fn rows(model: &Model, title: &str, named: &[Named]) -> String {
    let reading = model.better_reading();
    let of = |begin: &str| model.rows.iter().find(|row| row.title.starts_with(begin));
    let over = |percent: f64| 1.0 + percent / 100.0;
    let names: Vec<String> = (0..BASELINES.len())
        .flat_map(|at| ["the paper", "the model"].map(|who| format!("over {}, {who}", BASELINES[at])))
        .collect();
    let values = |which: usize| {
        let cell = move |row: &Row| match which % 2 {
            0 => row.paper[which / 2],
            _ => row.model[reading][which / 2],
        };
        named.iter().map(|(begin, _)| of(begin).map(|row| over(cell(row)))).collect::<Vec<_>>()
    };
    let series: Vec<Series<'_>> = names.iter().enumerate().map(|(at, name)| (&**name, values(at))).collect();
    let groups: Vec<&str> = named.iter().map(|(_, name)| *name).collect();
    let axes = Axes { title, x: READINGS[reading], y: "SLQ over others", level: Some((1.0, "as before")) };
    bar_chart(&axes, &groups, &series)
}

fn single_reads(model: &Model) -> String {
    let names: Vec<String> = model.reads.iter().map(|read| kib(read.bytes)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let extra = model.reads.iter().map(|read| Some(read.extra_us.max(0.0))).collect();
    let axes = Axes {
        title: "Figures 17 and 18: what single reads wait for the buffer (model)",
        x: "bytes of the read",
        y: "us",
        level: None,
    };
    line_chart_over(&axes, &names, &[("refilling", extra)])
}

fn auto(model: &Model) -> String {
    let groups: Vec<&str> = model.auto.iter().map(|row| &*row.workload).collect();
    let over_best = model.auto.iter().map(|row| Some(row.over_best)).collect();
    let least = |row: &super::model::Auto| row.over_fixed.iter().copied().fold(0.0, f64::max);
    let over_worst = model.auto.iter().map(|row| Some(least(row))).collect();
    let axes = Axes {
        title: "slq-auto over fixed priorities (model)",
        x: "workload",
        y: "slq-auto over it",
        level: Some((0.95, "wanted")),
    };
    bar_chart(&axes, &groups, &[("over the best", over_best), ("over the worst", over_worst)])
}

/// The device: the kernel's best and Shoal, over ext4 without a scheduler.
fn device(measured: &Measured) -> String {
    let none = |workload| measured.scores(workload, System::ALL[0]).map(|turns| turns.median);
    let over = |score: &dyn Fn(Workload) -> Option<f64>| {
        let of = |workload| Some(score(workload)? / none(workload)?.max(f64::MIN_POSITIVE));
        Workload::ALL.into_iter().map(of).collect::<Vec<_>>()
    };
    let median = |workload, system| measured.scores(workload, system).map(|turns| turns.median);
    let best = |workload, side| measured.best(workload, side).map(|(_, turns)| turns.median);
    let series: [Series<'_>; 4] = [
        ("the kernel's best", over(&|workload| best(workload, Side::Kernel))),
        ("Shoal noop", over(&|workload| median(workload, NOOP))),
        ("Shoal slq-auto", over(&|workload| median(workload, AUTO))),
        ("Shoal's best", over(&|workload| best(workload, Side::Shoal))),
    ];
    let axes = Axes {
        title: "The loop device: six workloads, over ext4 with the scheduler none",
        x: "workload",
        y: "score over that",
        level: Some((1.0, "ext4, none")),
    };
    bar_chart(&axes, &Workload::ALL.map(Workload::title), &series)
}

/// Bytes in KiB, or in MB where that is no whole number.
pub fn kib(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{:.1} MB", bytes as f64 / 1e6)
    }
}
