//! `shoal sim sched --table3`: the paper's numbers and the model's, side by side.

use devsim::Setup;
use devsim::table3::{
    AutoRow, BASELINES, BEST_ROWS, COUNTS_FROM, EFFECT_FROM, PRIORITIES, READINGS, ROWS, Runs, SEEDS, SIX,
    agrees,
};
use serde_json::{Value, json};

use super::refused;
use crate::output::{Output, table};
use crate::size::Size;

/// What the model says about a row of the paper: by each reading, over each baseline.
type Cells = [[f64; 3]; 2];
/// The same about a best priority: by each reading, the range over the baselines, and the model's best.
type Best = [([f64; 2], u64); 2];

struct Found {
    setup: Setup,
    rows: Vec<Cells>,
    best: Vec<Best>,
    auto: Vec<AutoRow>,
}

pub(super) fn run(setup: Setup, output: &Output) -> anyhow::Result<()> {
    let found = find(setup, output).map_err(refused)?;
    output.answer_by(|| document(&found), || tell(&found));
    Ok(())
}

fn find(setup: Setup, output: &Output) -> Result<Found, devsim::Refused> {
    let mut runs = Runs::new(setup);
    let bar = output.count_bar("runs", Runs::count());
    let (mut rows, mut best, mut auto) = (Vec::new(), Vec::new(), Vec::new());
    for row in &ROWS {
        let mut cells = [[0.0; 3]; 2];
        for (cells, reading) in cells.iter_mut().zip(READINGS) {
            *cells = runs.cells(row, reading)?;
            bar.set_position(runs.made());
        }
        rows.push(cells);
    }
    for row in &BEST_ROWS {
        let mut cells = [([0.0; 2], 0); 2];
        for (cells, reading) in cells.iter_mut().zip(READINGS) {
            *cells = runs.best(row, reading)?;
            bar.set_position(runs.made());
        }
        best.push(cells);
    }
    for (_, workloads) in SIX {
        auto.push(runs.auto(workloads)?);
        bar.set_position(runs.made());
    }
    bar.finish_and_clear();
    Ok(Found { setup, rows, best, auto })
}

/// Signs that are right, and those that count, by a reading.
fn signs(found: &Found, reading: usize) -> (usize, usize) {
    let cells =
        ROWS.iter().zip(&found.rows).flat_map(|(row, cells)| row.paper.into_iter().zip(cells[reading]));
    let agreed: Vec<bool> = cells.filter_map(|(paper, ours)| agrees(paper, ours)).collect();
    (agreed.iter().filter(|right| **right).count(), agreed.len())
}

fn document(found: &Found) -> Value {
    let rows = ROWS.iter().zip(&found.rows).map(|(row, cells)| {
        json!({
            "row": row.title, "paper_percent": row.paper,
            READINGS[0].word(): cells[0], READINGS[1].word(): cells[1],
        })
    });
    let best = BEST_ROWS.iter().zip(&found.best).map(|(row, cells)| {
        let of = |(range, best): ([f64; 2], u64)| json!({ "percent": range, "best_priority": best });
        json!({
            "row": row.title, "priority": row.priority, "paper_percent": row.paper,
            READINGS[0].word(): of(cells[0]), READINGS[1].word(): of(cells[1]),
        })
    });
    let auto = SIX.iter().zip(&found.auto).map(|((name, _), row)| {
        let (ratio, priority) = row.best();
        json!({
            "workload": name, "over_best_fixed": ratio, "best_priority": priority, "over_fixed": row.fixed,
        })
    });
    let right = |reading| {
        let (right, counted) = signs(found, reading);
        json!({ "right": right, "counted": counted })
    };
    json!({
        "seed": found.setup.seed, "seeds": SEEDS, "seconds": found.setup.time_ms as f64 / 1e3,
        "counts_from_percent": COUNTS_FROM, "effect_from_percent": EFFECT_FROM,
        "baselines": BASELINES.map(|policy| policy.word()), "priorities": PRIORITIES,
        "signs": { READINGS[0].word(): right(0), READINGS[1].word(): right(1) },
        "rows": rows.collect::<Vec<_>>(), "best": best.collect::<Vec<_>>(), "auto": auto.collect::<Vec<_>>(),
    })
}

fn cell(paper: f64, ours: f64) -> String {
    let mark = match agrees(paper, ours) {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "-",
    };
    format!("{paper:+.1} {ours:+.1} {mark}")
}

fn tell(found: &Found) -> String {
    let last = found.setup.seed.wrapping_add(SEEDS - 1);
    let mut text = format!("means of seeds {} to {last}\n\n", found.setup.seed);
    for (at, reading) in READINGS.into_iter().enumerate() {
        let (right, counted) = signs(found, at);
        text += &format!(
            "{reading} at 512 KiB, percent over others: the paper, the model, whether the sign is right\n\
             {right} of {counted} signs are right; cells below {COUNTS_FROM} % in the paper do not count; below\n\
             {EFFECT_FROM} % the model has no sign\n\n"
        );
        let mut rows = vec![vec!["row".to_owned()]];
        rows[0].extend(BASELINES.map(|policy| policy.to_string()));
        for (row, cells) in ROWS.iter().zip(&found.rows) {
            let mut line = vec![row.title.to_owned()];
            line.extend(row.paper.into_iter().zip(cells[at]).map(|(paper, ours)| cell(paper, ours)));
            rows.push(line);
        }
        text += &table(&rows);
        text += "\n";
    }
    text += "Other dispatch priorities, percent over the baselines, least to most\n\n";
    let head = ["row", "priority", "paper", "slq-nearest", "best at", "slq-lisf-first", "best at"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let range = |range: [f64; 2]| format!("{:+.1} to {:+.1}", range[0], range[1]);
    for (row, cells) in BEST_ROWS.iter().zip(&found.best) {
        let mut line = vec![row.title.to_owned(), Size(row.priority).to_string(), range(row.paper)];
        line.extend(cells.iter().flat_map(|(cells, best)| [range(*cells), Size(*best).to_string()]));
        rows.push(line);
    }
    text += &table(&rows);
    text += "\nslq-auto over slq-nearest with fixed priorities; 1: as good\n\n";
    let mut rows = vec![vec!["workload".to_owned(), "the best".to_owned(), "which is".to_owned()]];
    rows[0].extend(PRIORITIES.map(|bytes| Size(bytes).to_string()));
    for ((name, _), row) in SIX.iter().zip(&found.auto) {
        let (ratio, priority) = row.best();
        let mut line = vec![(*name).to_owned(), format!("{ratio:.3}"), Size(priority).to_string()];
        line.extend(row.fixed.map(|ratio| format!("{ratio:.2}")));
        rows.push(line);
    }
    text += &table(&rows);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pace::device::PolicyName;

    #[test]
    fn the_table_has_every_row_and_counts_signs() {
        let mut setup = Setup::new(PolicyName::SlqNearest);
        (setup.ramp_ms, setup.time_ms) = (0, 20);
        let found = find(setup, &Output::new(true)).expect("a setup");
        let (right, counted) = signs(&found, 0);
        assert!(right <= counted && counted == 31, "{right} {counted}");
        let text = tell(&found);
        for part in ["Fio-B latency, write", "slq-lisf-first at 512 KiB", "compilebench", "of 31 signs"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let document = document(&found);
        assert_eq!(document["rows"].as_array().map(Vec::len), Some(ROWS.len()));
        assert_eq!(document["auto"].as_array().map(Vec::len), Some(SIX.len()));
    }
}
