//! The page and its verdicts say what the figures say: they are made from invented measurements whose right verdicts are known.

use serde_json::{Value, json};

use super::claims::claims;
use super::model::{BASELINES, Cell, IMPOSSIBLE, Model, READINGS, figure, impossible};
use super::pictures::kib;
use super::report::{files, page};
use super::runs::{Measured, Reader, Reads, Run};
use super::scale::Scale;
use super::systems::{AUTO, Side, System};
use super::wanted::{Met, beside_kernel, wanted};
use super::workloads::Workload;
use crate::verdict::Verdict;

/// The paper's table 3, and what the model says by both readings: `model` gets the row, the baseline and the paper's cell.
fn said(model: impl Fn(&str, usize, f64) -> f64) -> [Value; 2] {
    let rows = [
        ("Fio-A bandwidth, 4 MiB and 512 KiB", [4.9, 4.7, 5.0]),
        ("Fio-A bandwidth, all 4 MiB", [0.2, -0.1, -0.1]),
        ("Fio-B bandwidth, read", [-1.0, -6.3, -1.6]),
        ("Fio-B bandwidth, write", [-1.0, -6.3, -1.6]),
        ("Postmark bandwidth", [-8.0, 0.0, 3.0]),
        ("Dbench bandwidth", [1.3, -39.9, -43.9]),
        ("Compilebench create", [-17.0, 2.4, -15.4]),
        ("Compilebench compile", [-6.8, -6.8, -7.8]),
        ("Compilebench read", [5.1, 1.6, 1.6]),
        ("Fio-A latency, 4 MiB and 512 KiB", [5.9, 5.4, 5.8]),
        ("Fio-A latency, all 4 MiB", [0.0, 0.1, 0.0]),
        ("Fio-B latency, read", [24.0, 17.0, 24.0]),
        ("Fio-B latency, write", [-90.0, -80.0, -90.0]),
        ("Blogbench read score", [8.7, 17.5, 15.5]),
        ("Blogbench write score", [2.6, -12.3, 2.6]),
    ];
    let rows: Vec<Value> = rows
        .into_iter()
        .map(|(title, paper)| {
            let cells = [0, 1, 2].map(|at| model(title, at, paper[at]));
            json!({ "row": title, "paper_percent": paper, READINGS[0]: cells, READINGS[1]: cells })
        })
        .collect();
    let best = |title: &str, priority: u64| {
        let of = json!({ "percent": [1.0, 2.0], "best_priority": priority });
        json!({
            "row": title, "priority": priority, "paper_percent": [12.2, 20.0], READINGS[0]: of, READINGS[1]: of,
        })
    };
    let auto = Workload::ALL.map(|workload| {
        json!({
            "workload": workload.title(), "over_best_fixed": 0.97, "best_priority": 524_288, "over_fixed": [1.1, 0.97],
        })
    });
    let read = |bytes: u64, extra: f64| json!({ "bytes": bytes, "us": 1000.0, "extra_us": extra });
    [
        json!({
            "seeds": 3, "seconds": 10.0, "counts_from_percent": 2.0, "effect_from_percent": 0.5, "rows": rows,
            "best": [best("Blogbench read score", 4 << 20), best("Blogbench write score", 0)],
            "priorities": [0, 524_288], "auto": auto,
        }),
        json!({ "reads": [read(512 << 10, 0.0), read(516 << 10, 125.0), read(2_300_000, 500.0)] }),
    ]
}

/// Three turns of all workloads under all systems: `score` gets both, and the turns are a twentieth below and above it.
fn made(model: &[Value; 2], score: impl Fn(Workload, System) -> f64, by_queue: f64) -> Measured {
    let mut runs = Vec::new();
    for (workload, system) in Workload::ALL.into_iter().flat_map(|of| System::ALL.map(|system| (of, system)))
    {
        for (turn, part) in (1..).zip([0.95, 1.0, 1.05]) {
            let score = score(workload, system) * part;
            runs.push(Run { workload, system, turn, score, mean_us: [100.0, 0.0], busy: 0.9 });
        }
    }
    let reads = [(Reader::Fio, 20_000.0), (Reader::Queue, by_queue), (Reader::Mount, 5_000.0)];
    let reads = reads.map(|(by, per_second)| Reads { by, turn: 1, per_second, busy: 0.5 }).to_vec();
    let model = Model::read(&model[0], &model[1]).expect("a model");
    Measured { scale: Scale::full(), cores: 2, kernel: "6.18".into(), model, runs, reads, seconds: 571.0 }
}

/// The model has each sign of the paper.
fn as_told(_: &str, _: usize, paper: f64) -> f64 {
    paper
}

#[test]
fn table_3_is_read_and_its_signs_are_counted() {
    let [table3, probe] = said(as_told);
    let model = Model::read(&table3, &probe).expect("a model");
    assert_eq!((model.rows.len(), model.reads.len(), model.auto.len()), (15, 3, 6));
    for reading in [0, 1] {
        let signs = model.signs(reading);
        assert_eq!((signs.right, signs.counted, signs.share()), (31, 31, 1.0));
        assert_eq!((signs.impossible, signs.right_of_possible), (9, 22));
    }
    assert!(
        model.rows.iter().all(|row| figure(&row.title) != "-" || row.title.starts_with("Fio-B bandwidth"))
    );
    // Without the limits, or without a cell, it is another version's.
    assert!(Model::read(&json!({ "rows": [] }), &probe).is_err());
    let mut short = table3.clone();
    short["rows"][3][READINGS[1]] = json!([1.0, 2.0]);
    assert!(Model::read(&short, &probe).is_err());
}

#[test]
fn a_cell_is_right_only_with_the_sign_and_an_effect() {
    for (ours, expected) in [(5.0, Cell::Right), (0.5, Cell::Right), (0.4, Cell::Wrong), (-5.0, Cell::Wrong)]
    {
        let [table3, probe] = said(|_, _, _| ours);
        let model = Model::read(&table3, &probe).expect("a model");
        let row = &model.rows[0];
        assert_eq!([0, 1, 2].map(|at| model.cell(row, 0, at)), [expected; 3], "{ours}");
        // What the paper has below 2 % does not count, whatever the model says.
        assert_eq!([0, 1, 2].map(|at| model.cell(&model.rows[1], 1, at)), [Cell::Small; 3], "{ours}");
    }
}

#[test]
fn every_cell_of_the_account_counts() {
    let [table3, probe] = said(as_told);
    let model = Model::read(&table3, &probe).expect("a model");
    for cell in &IMPOSSIBLE {
        let rows = model.rows.iter().filter(|row| row.title.starts_with(cell.row));
        let mut found = 0;
        for row in rows {
            for baseline in cell.baselines {
                let at = BASELINES.iter().position(|one| one == baseline).expect("a baseline");
                assert_ne!(model.cell(row, 0, at), Cell::Small, "{} over {baseline}", row.title);
                found += 1;
            }
        }
        assert!(found > 0, "{}", cell.row);
    }
    assert!(
        impossible("Dbench bandwidth", "noop").is_some() && impossible("Dbench bandwidth", "cfq").is_none()
    );
}

#[test]
fn verdicts_follow_the_cells() {
    let all = claims(&made(&said(as_told), |_, _| 10.0, 19_000.0));
    let verdict = |id: &str| all.iter().find(|claim| claim.id == id).map(|claim| claim.verdict.0);
    for id in
        ["003-Fig7", "003-Fig8", "003-Fig9", "003-Fig12", "003-Fig15", "003-Fig16", "003-Fig17", "003-Fig18"]
    {
        assert_eq!(verdict(id), Some(Verdict::Reproduced), "{id}");
    }
    let turned = claims(&made(&said(|_, _, paper| -paper), |_, _| 10.0, 19_000.0));
    let of = |id: &str| turned.iter().find(|claim| claim.id == id).expect("a claim").verdict;
    assert_eq!((of("003-Fig7").0, of("003-Fig8").0), (Verdict::NotReproduced, Verdict::Reproduced));
    assert!(of("003-Fig9").1.contains("their number over the rate"));
    assert!(of("003-Fig13").1.contains("what the model assumes"));
}

#[test]
fn what_was_wanted_is_told_as_it_is() {
    let mets =
        |measured: &Measured| wanted(measured).into_iter().map(|wanted| wanted.met).collect::<Vec<_>>();
    let far_above = |_: Workload, system: System| if system == AUTO { 20.0 } else { 10.0 };
    assert_eq!(mets(&made(&said(as_told), far_above, 19_000.0)), [Met::Yes; 6]);
    let far_below = |_: Workload, system: System| if system.side == Side::Shoal { 5.0 } else { 10.0 };
    let measured = made(&said(|_, _, paper| -paper), far_below, 9_000.0);
    assert_eq!(mets(&measured), [Met::No, Met::No, Met::Yes, Met::No, Met::No, Met::No]);
    // The orders are level, and a mount is slower than ext4.
    let as_ext4_is_faster =
        |_: Workload, system: System| if system.side == Side::Kernel { 20.0 } else { 10.0 };
    let measured = made(&said(as_told), as_ext4_is_faster, 19_000.0);
    assert_eq!(mets(&measured)[3..5], [Met::Yes, Met::No]);
    // A little below, within the spread of the turns: nobody can say.
    let near = |_: Workload, system: System| if system == AUTO { 9.8 } else { 10.0 };
    let measured = made(&said(as_told), near, 19_000.0);
    assert_eq!(mets(&measured)[3], Met::Open);
    assert!(beside_kernel(&measured).iter().all(|beside| (beside.ratio() - 0.98).abs() < 1e-9));
    // The account alone: only the cells that no rule can give are wrong.
    let accounted = |title: &str, at: usize, paper: f64| {
        if impossible(title, BASELINES[at]).is_some() { -paper } else { paper }
    };
    assert_eq!(mets(&made(&said(accounted), near, 19_000.0))[..2], [Met::No, Met::Yes]);
}

#[test]
fn runs_survive_json_and_the_page_has_all() {
    let measured = made(&said(as_told), |_, _| 10.0, 19_000.0);
    let text = measured.to_json().to_string();
    let read = Measured::from_json(&serde_json::from_str(&text).expect("JSON")).expect("runs");
    assert_eq!(read, measured);
    assert!(Measured::from_json(&json!({ "quick": false })).is_err());
    let page = page(&measured);
    for system in System::ALL {
        assert!(page.contains(&format!("| {} |", system.title())), "{}", system.title());
    }
    for words in [
        "# Paper 003",
        "## What was wanted",
        "31 of 31 signs",
        "within the spread",
        "9 min 31 s",
        "0.95",
        "(!)",
    ] {
        assert!(page.contains(words), "`{words}` is not in\n{page}");
    }
    for (name, text) in files(&measured) {
        assert!(!text.contains("NaN") && !text.contains("inf "), "{name}");
        assert!(!name.ends_with("svg") || page.contains(name), "{name} is not shown");
    }
}

#[test]
fn a_system_that_was_not_measured_has_no_figures() {
    let mut measured = made(&said(as_told), |_, _| 10.0, 19_000.0);
    measured.runs.retain(|run| run.workload != Workload::Dbench);
    measured.reads.clear();
    assert_eq!((beside_kernel(&measured).len(), measured.reads_per_second(Reader::Queue)), (5, None));
    assert_eq!(wanted(&measured)[5].met, Met::Open);
    assert!(page(&measured).contains(" - |"));
}

#[test]
fn sizes_are_for_people() {
    assert_eq!((kib(512 << 10), kib(2_300_000)), ("512 KiB".to_owned(), "2.3 MB".to_owned()));
}
