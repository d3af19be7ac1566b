//! The comparison for people.

use netsim::torus::Work;

use super::{BUSY, Compared, Counted, Document, NEAR, is_near};
use crate::output::table;
use crate::size::Size;

/// What is done, and who encodes.
pub(super) fn way(work: Work) -> (&'static str, &'static str) {
    match work {
        Work::Write(route) => ("write", route.word()),
        Work::Read(_) => ("read", "-"),
    }
}

/// The whole answer.
pub(super) fn tell(document: &Document, runs: &[Compared], counts: &[Counted]) -> String {
    let mut text = rates(runs);
    let near = runs.iter().filter(|one| one.is_near()).count();
    text += &format!("\n{near} of {} runs within {:.0} %", runs.len(), NEAR * 100.0);
    let plain = runs.iter().filter(|one| is_near(one.plain / one.point.rate)).count();
    text += &format!(", {plain} with units only");
    text += &format!(
        "; left out: {} with cores busy for more than {:.0} %, {} in an order of chance\n\n",
        document.busy,
        BUSY * 100.0,
        document.random
    );
    text += &units(counts);
    let near = counts.iter().filter(|one| one.is_near()).count();
    text + &format!("\n{near} of {} rows of units over cables within {:.0} %", counts.len(), NEAR * 100.0)
}

fn mark(ratio: f64) -> String {
    format!("{ratio:.2}{}", if is_near(ratio) { "" } else { " (!)" })
}

fn rates(runs: &[Compared]) -> String {
    let head = [
        "client",
        "what",
        "encodes",
        "unit",
        "tasks",
        "record",
        "lab, MB/s",
        "model",
        "files",
        "units only",
        "model/lab",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in runs {
        let point = &one.point;
        let (what, encodes) = way(point.work);
        let megabytes = |rate: f64| format!("{:.1}", rate / 1e6);
        let [least, most] =
            [one.rates.first(), one.rates.last()].map(|rate| megabytes(rate.copied().unwrap_or(0.0)));
        rows.push(vec![
            point.client.word().to_owned(),
            what.to_owned(),
            encodes.to_owned(),
            Size(point.unit).to_string(),
            point.tasks.to_string(),
            Size(point.record).to_string(),
            megabytes(point.rate),
            megabytes(one.mean()),
            format!("{least} to {most}"),
            megabytes(one.plain),
            mark(one.ratio()),
        ]);
    }
    table(&rows)
}

fn units(counts: &[Counted]) -> String {
    let head =
        ["client", "what", "encodes", "units over", "predicted", "units only", "model", "lab", "model/lab"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in counts {
        let (what, encodes) = way(one.count.work);
        let [predicted, plain, exact, lab] =
            [one.count.predicted, one.plain, one.exact, one.count.measured].map(super::Cost::all);
        for (at, over) in ["all cables", "the client's", "the worst"].into_iter().enumerate() {
            let number = |numbers: [f64; 3]| format!("{:.2}", numbers[at]);
            rows.push(vec![
                one.count.client.word().to_owned(),
                what.to_owned(),
                encodes.to_owned(),
                over.to_owned(),
                number(predicted),
                number(plain),
                number(exact),
                number(lab),
                mark(one.ratios()[at]),
            ]);
        }
    }
    table(&rows)
}
