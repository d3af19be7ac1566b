//! The model beside the lab: the reads of `shoal paper 004`, run by run.

use std::path::Path;

use anyhow::Context;
use netsim::{Rate, Setup, Simulation, WindowSetting};
use serde_json::{Value, json};

use super::net::refused;
use crate::output::{Output, table};
use crate::problem::problem;

/// Runs of the model for each run of the lab, by other seeds: a timeout more or less is chance.
const SEEDS: u64 = 5;
/// The model agrees if its mean differs by no more.
pub(super) const NEAR: f64 = 0.10;

/// A run of the lab.
#[derive(Clone, Debug)]
struct Point {
    setup: Setup,
    share: f64,
}

/// A run of the lab, and what the model says.
#[derive(Clone, Debug)]
struct Compared {
    point: Point,
    /// The shares of the seeds, in ascending order.
    shares: Vec<f64>,
}

impl Compared {
    fn mean(&self) -> f64 {
        self.shares.iter().sum::<f64>() / self.shares.len().max(1) as f64
    }

    /// The model over the lab.
    fn ratio(&self) -> f64 {
        self.mean() / self.point.share
    }

    fn is_near(&self) -> bool {
        is_near(self.ratio())
    }

    fn has_window(&self) -> bool {
        self.point.setup.window != WindowSetting::Off
    }
}

/// Whether the model is near the lab: `ratio` is the one over the other.
pub(super) fn is_near(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= NEAR
}

/// A document that `shoal paper` has written.
pub(super) fn document(file: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))
}

pub(super) fn run(file: &Path, output: &Output) -> anyhow::Result<()> {
    let document = document(file)?;
    let points = points(&document).filter(|points| !points.is_empty());
    let points = points.ok_or_else(|| {
        let what = format!("{} has no reads of paper 004", file.display());
        problem(what, "docs/papers/004.json, which `shoal paper 004` writes")
    })?;
    let bar = output.count_bar("runs of the lab", points.len() as u64);
    let mut compared = Vec::new();
    for point in points {
        compared.push(compare(point, SEEDS)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.answer(&to_json(&compared), || words(&compared));
    Ok(())
}

/// The reads of Shoal under the usual congestion control. `None`: the document is another one.
fn points(document: &Value) -> Option<Vec<Point>> {
    let micros = |name: &str| document["scale"][name].as_u64()?.checked_mul(1000);
    let (ramp_us, time_us) = (micros("ramp")?, micros("millis")?);
    let unit = u32::try_from(document["scale"]["unit"].as_u64()?).ok()?;
    let bricks = u32::try_from(document["scale"]["servers"].as_u64()?).ok()?;
    let mut points = Vec::new();
    for run in document["runs"].as_array()? {
        let window = match run["system"].as_str()? {
            "Shoal" => WindowSetting::Auto,
            "Shoal without a window" => WindowSetting::Off,
            _ => continue,
        };
        if run["way"] != "read" || run["control"] != "cubic" {
            continue;
        }
        let small = |name: &str| u32::try_from(run[name].as_u64()?).ok();
        let (mbit, buffer) = (u64::from(small("mbit")?), run["buffer"].as_u64()?);
        let setup = Setup {
            clients: small("clients")?,
            bricks,
            unit,
            client_rate: Rate::mbit(mbit),
            brick_rate: Rate::mbit(10 * mbit),
            ramp_us,
            time_us,
            shared_buffer: (run["is_shared"] == true).then_some(buffer),
            ..Setup::lab(small("senders")?, small("tasks")?, buffer, window)
        };
        points.push(Point { setup, share: run["share"].as_f64().filter(|share| *share > 0.0)? });
    }
    Some(points)
}

fn compare(point: Point, seeds: u64) -> anyhow::Result<Compared> {
    let mut shares = Vec::new();
    for seed in 1..=seeds {
        let mut simulation = Simulation::new(Setup { seed, ..point.setup.clone() }).map_err(refused)?;
        simulation.advance(u64::MAX);
        shares.push(simulation.report().share());
    }
    shares.sort_unstable_by(f64::total_cmp);
    Ok(Compared { point, shares })
}

/// How many agree, with the window or without it, and of how many.
fn near(compared: &[Compared], has_window: bool) -> (usize, usize) {
    let these = || compared.iter().filter(|one| one.has_window() == has_window);
    (these().filter(|one| one.is_near()).count(), these().count())
}

fn to_json(compared: &[Compared]) -> Value {
    let one = |compared: &Compared| {
        let setup = &compared.point.setup;
        json!({
            "window": setup.window.to_string(), "clients": setup.clients, "tasks": setup.tasks, "width": setup.width,
            "buffer": setup.buffer, "is_shared": setup.shared_buffer.is_some(), "client_bit_per_s": setup.client_rate.0, "lab": compared.point.share,
            "model": compared.mean(), "least": compared.shares.first(), "most": compared.shares.last(),
            "ratio": compared.ratio(), "is_near": compared.is_near(),
        })
    };
    let count = |has_window| {
        let (near, all) = near(compared, has_window);
        json!({ "near": near, "of": all })
    };
    json!({
        "seeds": SEEDS,
        "with_window": count(true),
        "without_window": count(false),
        "runs": compared.iter().map(one).collect::<Vec<_>>(),
    })
}

fn words(compared: &[Compared]) -> String {
    let head =
        ["window", "clients", "tasks", "servers", "buffer", "Mbit/s", "lab", "model", "seeds", "model/lab"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in compared {
        let setup = &one.point.setup;
        let [least, most] =
            [one.shares.first(), one.shares.last()].map(|share| share.copied().unwrap_or(0.0));
        rows.push(vec![
            setup.window.to_string(),
            setup.clients.to_string(),
            setup.tasks.to_string(),
            setup.width.to_string(),
            format!(
                "{} KiB{}",
                setup.buffer >> 10,
                if setup.shared_buffer.is_some() { " in all" } else { "" }
            ),
            (setup.client_rate.0 / 1_000_000).to_string(),
            format!("{:.3}", one.point.share),
            format!("{:.3}", one.mean()),
            format!("{least:.2} to {most:.2}"),
            format!("{:.2}{}", one.ratio(), if one.is_near() { "" } else { " (!)" }),
        ]);
    }
    let mut text = table(&rows);
    for (has_window, what) in [(true, "with the window"), (false, "without a window")] {
        let (near, all) = near(compared, has_window);
        text += &format!("\n{what}: {near} of {all} runs within {:.0} %", NEAR * 100.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of the page of paper 004, as it is now.
    fn of_the_page() -> Vec<Point> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers/004.json");
        let text = std::fs::read_to_string(file).expect("the page's runs");
        points(&serde_json::from_str(&text).expect("JSON")).expect("the runs of paper 004")
    }

    #[test]
    fn with_the_window_the_model_is_within_a_tenth_of_the_lab() {
        // A quarter of the runs: the command has all of them.
        let points = of_the_page().into_iter().filter(|point| point.setup.window == WindowSetting::Auto);
        for point in points.step_by(4) {
            let compared = compare(point, SEEDS).expect("a run");
            // Where the model's own runs differ by more than a tenth, one run of the lab can be any of them.
            let [least, most] =
                [compared.shares.first(), compared.shares.last()].map(|share| *share.expect("runs"));
            let is_one_of_them = (least..=most).contains(&compared.point.share);
            assert!(compared.is_near() || is_one_of_them, "{:.2}: {compared:?}", compared.ratio());
        }
    }

    #[test]
    fn the_runs_of_the_page_are_found() {
        let points = of_the_page();
        let with = points.iter().filter(|point| point.setup.window == WindowSetting::Auto).count();
        assert!(with > 20 && points.len() == 2 * with, "{with} of {}", points.len());
        assert!(points.iter().all(|point| point.setup.check().is_ok() && point.setup.threads == 4));
        assert!(super::points(&json!({ "paper": "001" })).is_none());
    }

    #[test]
    fn who_agrees_is_counted() {
        let point = |window, share| Point { setup: Setup::lab(8, 2, 64 << 10, window), share };
        let one = |window, lab, shares| Compared { point: point(window, lab), shares };
        let compared = [
            one(WindowSetting::Auto, 0.9, vec![0.8, 0.9, 1.0]),
            one(WindowSetting::Off, 0.5, vec![0.5, 0.7]),
        ];
        assert_eq!((near(&compared, true), near(&compared, false)), ((1, 1), (0, 1)));
        let said = words(&compared);
        assert!(said.contains("1.20 (!)") && said.contains("with the window: 1 of 1"), "{said}");
        assert_eq!(to_json(&compared)["without_window"], json!({ "near": 0, "of": 1 }));
    }
}
