//! The model beside the lab: what `shoal paper 002` has measured of Shoal, run by run.

mod words;

use std::path::Path;

use anyhow::Context;
use layout::topology::Topology;
use netsim::Rate;
use netsim::torus::{Done, Job, Lane, ReadRoute, Work, WriteRoute};
use serde_json::{Value, json};
use types::Code;

use super::super::against::{NEAR, document, is_near};
use super::super::net::refused;
use super::places::{ClientAt, Volume};
use crate::output::Output;
use crate::problem::problem;

/// Runs of the model for each run of the lab: files have other groups.
const SEEDS: u64 = 10;
/// Share of their time above which the cores may have been the limit, as paper 002 has it.
const BUSY: f64 = 0.85;
/// What computes is no limit there: a core encodes some times as much.
const COMPUTE: u64 = 5_000_000_000;

/// Volumes by number: files, where bytes on cables were counted, and then one for each unit where those who encode are compared.
const FILES: u32 = 1;
const COUNTED: u32 = 2;
const ROUTES: u32 = 3;

/// What all runs share.
#[derive(Clone, Debug)]
struct Scale {
    code: Code,
    unit: u64,
    counted_unit: u64,
    route_units: Vec<u64>,
    link: Rate,
    hop_us: u64,
    file: u64,
    memory: u64,
}

/// A run of the lab that reads or writes files in order.
#[derive(Clone, Debug)]
struct Point {
    client: ClientAt,
    work: Work,
    unit: u64,
    tasks: u64,
    record: u64,
    /// Bytes of each task.
    span: u64,
    /// The number of its volume.
    volume: u32,
    /// Bytes per second.
    rate: f64,
}

/// Units over cables, for each stripe.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cost {
    unit_hops: f64,
    client: f64,
    worst: f64,
}

/// A run of the lab whose bytes on cables were counted.
#[derive(Clone, Copy, Debug)]
struct Count {
    client: ClientAt,
    work: Work,
    stripes: u64,
    predicted: Cost,
    measured: Cost,
}

/// The runs of the document that can be compared.
#[derive(Debug)]
struct Document {
    scale: Scale,
    points: Vec<Point>,
    counts: Vec<Count>,
    /// Runs in order that were left out: the cores may have been the limit.
    busy: usize,
    /// Runs in an order of chance: small requests are not modelled.
    random: usize,
}

/// A run of the lab, and what the model says.
#[derive(Clone, Debug)]
struct Compared {
    point: Point,
    /// Bytes per second by each seed, in ascending order.
    rates: Vec<f64>,
    /// The mean if units only are modelled.
    plain: f64,
}

/// The same for the bytes on cables.
#[derive(Clone, Copy, Debug)]
struct Counted {
    count: Count,
    plain: Cost,
    exact: Cost,
}

impl Cost {
    fn read(value: &Value) -> Option<Cost> {
        let number = |name: &str| value[name].as_f64().filter(|number| *number > 0.0);
        Some(Cost {
            unit_hops: number("unit_hops")?,
            client: number("client_units")?,
            worst: number("worst_cable_units")?,
        })
    }

    fn of(done: &Done, client: u32, unit: u64, stripes: u64) -> Cost {
        let units = |bytes: u64| bytes as f64 / unit as f64 / stripes as f64;
        Cost {
            unit_hops: units(done.on_all()),
            client: units(done.of_node(client)),
            worst: units(done.on_worst()),
        }
    }

    fn all(self) -> [f64; 3] {
        [self.unit_hops, self.client, self.worst]
    }

    fn to_json(self) -> Value {
        json!({ "unit_hops": self.unit_hops, "client_units": self.client, "worst_cable_units": self.worst })
    }
}

impl Compared {
    fn mean(&self) -> f64 {
        self.rates.iter().sum::<f64>() / self.rates.len().max(1) as f64
    }

    /// The model over the lab.
    fn ratio(&self) -> f64 {
        self.mean() / self.point.rate
    }

    fn is_near(&self) -> bool {
        is_near(self.ratio())
    }
}

impl Counted {
    /// The model over the lab: of all cables, the client's, and the worst one.
    fn ratios(&self) -> [f64; 3] {
        let (model, lab) = (self.exact.all(), self.count.measured.all());
        std::array::from_fn(|at| model[at] / lab[at])
    }

    fn is_near(&self) -> bool {
        self.ratios().into_iter().all(is_near)
    }
}

pub(super) fn run(file: &Path, output: &Output) -> anyhow::Result<()> {
    let document = read(&document(file)?).filter(|document| !document.points.is_empty());
    let document = document.ok_or_else(|| {
        let what = format!("{} has no runs of paper 002", file.display());
        problem(what, "docs/papers/002.json, which `shoal paper 002` writes")
    })?;
    let bar = output.count_bar("runs of the lab", (document.points.len() + document.counts.len()) as u64);
    let (mut runs, mut counts) = (Vec::new(), Vec::new());
    for point in &document.points {
        runs.push(document.scale.compare(point)?);
        bar.inc(1);
    }
    for count in &document.counts {
        counts.push(document.scale.count(*count)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.answer(&to_json(&document, &runs, &counts), || words::tell(&document, &runs, &counts));
    Ok(())
}

/// What of a document can be compared. [`None`]: it is another one.
fn read(document: &Value) -> Option<Document> {
    if document["paper"] != "002" {
        return None;
    }
    let scale = Scale::read(document)?;
    let (mut points, mut counts, mut busy, mut random) = (Vec::new(), Vec::new(), 0, 0);
    for run in document["runs"].as_array()? {
        let Some(client) = ClientAt::named(run["system"].as_str()?) else { continue };
        if run["order"] != "sequential" {
            random += 1;
        } else if run["cores_busy"].as_f64()? > BUSY {
            busy += 1;
        } else {
            points.push(scale.point(client, run)?);
        }
    }
    for count in document["counts"].as_array()? {
        counts.push(Count {
            client: ClientAt::named(count["place"].as_str()?)?,
            work: match count["route"].as_str()? {
                "write, client encodes" => Work::Write(WriteRoute::Client),
                "write, primary encodes" => Work::Write(WriteRoute::Primary),
                "read" => Work::Read(ReadRoute::Direct),
                _ => return None,
            },
            stripes: count["stripes"].as_u64()?,
            predicted: Cost::read(&count["predicted"])?,
            measured: Cost::read(&count["measured"])?,
        });
    }
    Some(Document { scale, points, counts, busy, random })
}

impl Scale {
    fn read(document: &Value) -> Option<Scale> {
        let number = |name: &str| document["scale"][name].as_u64();
        let (servers, parities) = (number("servers")?, number("parities")?);
        // What one more node on the way costs a small message, by the chain of the same document.
        let hops = document["hops"].as_array()?;
        let (first, last) = (hops.first()?["us"].as_f64()?, hops.last()?["us"].as_f64()?);
        let each = (last - first) / (hops.len() as f64 - 1.0).max(1.0);
        let units = document["scale"]["route_units"].as_array()?;
        Some(Scale {
            code: format!("{}+{parities}", servers.checked_sub(parities)?).parse().ok()?,
            unit: number("unit")?,
            counted_unit: number("counted_unit")?,
            route_units: units.iter().map(Value::as_u64).collect::<Option<_>>()?,
            link: Rate::mbit(number("mbit")?),
            hop_us: each.max(0.0).round() as u64,
            file: number("file")?,
            memory: number("client_memory")?,
        })
    }

    fn point(&self, client: ClientAt, run: &Value) -> Option<Point> {
        let number = |name: &str| run[name].as_u64().filter(|number| *number > 0);
        let (unit, tasks, bytes) = (number("unit")?, number("tasks")?, number("bytes")?);
        let route = match run["encode"].as_str()? {
            "client" => WriteRoute::Client,
            "primary" => WriteRoute::Primary,
            _ => return None,
        };
        // The tables of records use the files' volume, with the encoder that suits the place.
        let usual = if client == ClientAt::Torus { WriteRoute::Client } else { WriteRoute::Primary };
        let volume = match self.route_units.iter().position(|other| *other == unit) {
            Some(at) if unit != self.unit || route != usual => ROUTES + at as u32,
            _ => FILES,
        };
        let work = match run["way"].as_str()? {
            "write" => Work::Write(route),
            "read" => Work::Read(ReadRoute::Direct),
            _ => return None,
        };
        let seconds = run["seconds"].as_f64().filter(|seconds| *seconds > 0.0)?;
        Some(Point {
            client,
            work,
            unit,
            tasks,
            record: number("record")?,
            span: bytes / tasks,
            volume,
            rate: bytes as f64 / seconds,
        })
    }

    fn volume(&self, id: u32, unit: u64, groups: Option<u32>) -> anyhow::Result<Volume> {
        Volume::new(id, self.code, unit, groups).context("the lab's volume cannot be placed")
    }

    fn job<'a>(&self, topology: &'a Topology, client: ClientAt, work: Work, unit: u64) -> Job<'a> {
        let (code, link, hop_us, lanes) = (self.code, self.link, self.hop_us, Vec::new());
        let client = client.node();
        Job { topology, client, code, unit, link, hop_us, compute: COMPUTE, work, is_exact: true, lanes }
    }

    fn compare(&self, point: &Point) -> anyhow::Result<Compared> {
        let network = point.client.network()?;
        let volume = self.volume(point.volume, point.unit, None)?;
        let job = self.job(&network, point.client, point.work, point.unit);
        let (mut rates, mut plain) = (Vec::new(), 0.0);
        let mut known: Vec<(Vec<Lane>, [f64; 2])> = Vec::new();
        for seed in 0..SEEDS {
            let lanes = match point.work {
                Work::Write(_) => volume.written(point.tasks, point.span, self.memory, seed),
                Work::Read(_) => volume.read(point.tasks, point.span, self.file, self.memory, seed),
            };
            let [exact, units] = match known.iter().find(|(others, _)| *others == lanes) {
                Some((_, found)) => *found,
                None => {
                    let run = |is_exact| Job { is_exact, lanes: lanes.clone(), ..job.clone() }.run();
                    let found = [run(true).map_err(refused)?.rate(), run(false).map_err(refused)?.rate()];
                    known.push((lanes, found));
                    found
                }
            };
            rates.push(exact);
            plain += units / SEEDS as f64;
        }
        rates.sort_unstable_by(f64::total_cmp);
        Ok(Compared { point: point.clone(), rates, plain })
    }

    fn count(&self, count: Count) -> anyhow::Result<Counted> {
        let network = count.client.network()?;
        let unit = self.counted_unit;
        // One round of these groups has each brick as the primary once.
        let lanes = self.volume(COUNTED, unit, Some(self.code.slots() as u32))?.in_each_group();
        let job = Job { lanes, ..self.job(&network, count.client, count.work, unit) };
        let cost = |is_exact| {
            let done = Job { is_exact, ..job.clone() }.run().map_err(refused)?;
            anyhow::Ok(Cost::of(&done, count.client.node(), unit, count.stripes))
        };
        Ok(Counted { count, plain: cost(false)?, exact: cost(true)? })
    }
}

fn to_json(document: &Document, runs: &[Compared], counts: &[Counted]) -> Value {
    let run = |one: &Compared| {
        let point = &one.point;
        let (way, encode) = words::way(point.work);
        json!({
            "client": point.client.word(), "way": way, "encode": encode, "unit": point.unit, "tasks": point.tasks,
            "record": point.record, "lab": point.rate / 1e6, "model": one.mean() / 1e6,
            "least": one.rates.first().map(|rate| rate / 1e6), "most": one.rates.last().map(|rate| rate / 1e6),
            "units_only": one.plain / 1e6, "ratio": one.ratio(), "is_near": one.is_near(),
        })
    };
    let count = |one: &Counted| {
        let (way, encode) = words::way(one.count.work);
        json!({
            "client": one.count.client.word(), "way": way, "encode": encode, "lab": one.count.measured.to_json(),
            "predicted": one.count.predicted.to_json(), "units_only": one.plain.to_json(),
            "model": one.exact.to_json(), "ratios": one.ratios(), "is_near": one.is_near(),
        })
    };
    json!({
        "seeds": SEEDS,
        "near": { "near": runs.iter().filter(|one| one.is_near()).count(), "of": runs.len() },
        "counts_near": { "near": counts.iter().filter(|one| one.is_near()).count(), "of": counts.len() },
        "left_out": { "cores": document.busy, "random": document.random },
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
        "counts": counts.iter().map(count).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of paper 002, as it is now.
    fn of_the_page() -> Document {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers/002.json");
        let text = std::fs::read_to_string(file).expect("the page's runs");
        read(&serde_json::from_str(&text).expect("JSON")).expect("the runs of paper 002")
    }

    #[test]
    fn the_model_is_within_a_tenth_of_the_lab() {
        let document = of_the_page();
        // A part of the runs: the command has all of them.
        for point in document.points.iter().filter(|point| point.unit == document.scale.unit).step_by(7) {
            let one = document.scale.compare(point).expect("a run");
            // Where files of other groups differ, the lab's can be any of them.
            let [least, most] = [one.rates[0], *one.rates.last().expect("runs")];
            let is_one_of_them = (least..=most).contains(&point.rate);
            assert!(one.is_near() || is_one_of_them, "{:.2}: {one:?}", one.ratio());
        }
    }

    #[test]
    fn units_over_cables_are_those_of_the_lab() {
        let document = of_the_page();
        assert_eq!(document.counts.len(), 9);
        for &count in &document.counts {
            let one = document.scale.count(count).expect("a run");
            // The lab's own prediction counts the same units by the same routes.
            for (here, there) in one.plain.all().into_iter().zip(count.predicted.all()) {
                assert!((here - there).abs() < 1e-9, "{one:?}");
            }
            assert!(one.is_near(), "{:?}: {one:?}", one.ratios());
        }
    }

    #[test]
    fn the_runs_of_the_page_are_found() {
        let document = of_the_page();
        assert!(document.points.len() > 100 && document.busy < 20 && document.random == 12, "{document:?}");
        assert!(document.points.iter().all(|point| point.rate > 1e6 && point.span > 1 << 20));
        assert_eq!((document.scale.hop_us, document.scale.link), (1, Rate::mbit(200)));
        assert!(read(&json!({ "paper": "004" })).is_none());
        assert!(read(&json!({ "paper": "002" })).is_none());
    }

    #[test]
    fn who_agrees_is_counted_and_told() {
        let mut document = of_the_page();
        document.points.truncate(2);
        let compared = |factor: f64, point: &Point| {
            let rate = point.rate * factor;
            Compared { point: point.clone(), rates: vec![rate, rate], plain: rate }
        };
        let runs = [compared(1.05, &document.points[0]), compared(1.2, &document.points[1])];
        let count = document.counts[0];
        let counts = [Counted { count, plain: count.predicted, exact: count.measured }];
        let said = words::tell(&document, &runs, &counts);
        for part in ["1.20 (!)", "1 of 2 runs within 10 %, 1 with units only", "1 of 1 rows", "in the torus"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        let answer = to_json(&document, &runs, &counts);
        assert_eq!(answer["near"], json!({ "near": 1, "of": 2 }));
        assert_eq!(answer["runs"][1]["is_near"], json!(false));
    }
}
