//! The tables for people.

use netsim::torus::{ClientPlace, Failure, Model, PlacementName, Writes};

use super::super::rate::rate_words;
use super::experiments::{Experiments, FailureRow, RebuildRow};
use crate::output::table;
use crate::size::Size;

/// The whole answer.
pub(super) fn tell(model: &Model, found: &Experiments) -> String {
    let mut text = network(model);
    text += &placements(model);
    if !found.writes.is_empty() {
        let rows = found.writes.iter().map(|(a, b, route, row)| busy(*a, *b, route.word(), row));
        text += &titled("Writes of whole stripes", &BUSY, rows.collect());
    }
    if !found.reads.is_empty() {
        let rows = found.reads.iter().map(|(a, b, route, row)| busy(*a, *b, route.word(), row));
        text += &titled("Reads of whole stripes", &BUSY, rows.collect());
    }
    if !found.failures.is_empty() {
        text += &failures(model, &found.failures);
    }
    if !found.rebuilds.is_empty() {
        text += &rebuilds(model, &found.rebuilds);
    }
    text
}

fn network(model: &Model) -> String {
    let setup = model.setup();
    let clients = setup.clients.map_or(model.nodes(), |clients| clients as usize);
    let clients = match setup.client {
        Some(rate) => format!("{clients} clients, each with a cable of {} to its node", rate_words(rate)),
        None => format!("{clients} clients, programs on the nodes"),
    };
    let bricks = setup.brick.map_or("no limit".to_owned(), |rate| format!("{} per second", Size(rate)));
    format!(
        "a {} of {} nodes, {:.2} hops between two on the average; cables with {} each way, {} us for a hop\n\
         {}, units of {}, slices of {}; {clients}; bricks: {bricks}\n\
         {} ms count after {} ms; seed {}\n",
        setup.shape,
        model.nodes(),
        model.mean_hops(),
        rate_words(setup.link),
        setup.hop_us,
        setup.code,
        Size(setup.unit),
        Size(setup.slice),
        setup.time_us as f64 / 1e3,
        setup.ramp_us as f64 / 1e3,
        setup.seed,
    )
}

fn titled(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    format!("\n{title}\n{}", table(&rows))
}

fn placements(model: &Model) -> String {
    let row = |name: PlacementName| {
        vec![name.word().to_owned(), model.radius(name).to_string(), format!("{:.0}", model.peers(name))]
    };
    let names = model.placements();
    let head = ["placement", "hops to the farthest member", "peers of a brick"];
    let mut text = titled("Placements", &head, names.iter().copied().map(row).collect());
    if !names.contains(&PlacementName::NearRows) {
        text += "  no placement with members in different rows: there are too few rows\n";
    }
    text
}

const BUSY: [&str; 11] = [
    "placement",
    "clients",
    "route",
    "MB/s each",
    "of a link",
    "unit-hops",
    "units sent",
    "links, mean",
    "worst",
    "alone, ms",
    "loaded p99, ms",
];

fn busy(placement: PlacementName, place: ClientPlace, route: &str, row: &Writes) -> Vec<String> {
    vec![
        placement.word().to_owned(),
        place.word().to_owned(),
        route.to_owned(),
        megabytes(row.rate),
        format!("{:.2}", row.share),
        format!("{:.1}", row.unit_hops),
        format!("{:.1}", row.sent),
        format!("{:.2}", row.links.mean),
        format!("{:.2}", row.links.worst),
        millis(row.alone_us),
        millis(row.loaded.p99_us),
    ]
}

fn megabytes(rate: f64) -> String {
    format!("{:.0}", rate / 1e6)
}

fn millis(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn failures(model: &Model, rows: &[FailureRow]) -> String {
    let head = [
        "placement",
        "lost",
        "unreadable",
        "decoded",
        "MB/s each",
        "at load: mean, ms",
        "p99, ms",
        "links, mean",
        "worst",
    ];
    let row = |row: &FailureRow| {
        let reads = &row.reads;
        vec![
            row.placement.word().to_owned(),
            row.failure.word().to_owned(),
            percent(reads.unreadable),
            percent(reads.decoded),
            megabytes(reads.rate),
            millis(reads.loaded.mean_us),
            millis(reads.loaded.p99_us),
            format!("{:.2}", reads.links.mean),
            format!("{:.2}", reads.links.worst),
        ]
    };
    let load = model.setup().load;
    let title = format!(
        "Direct reads with a failure, clients anywhere; at load: {load} of what the intact network takes"
    );
    titled(&title, &head, rows.iter().map(row).collect())
}

fn rebuilds(model: &Model, rows: &[RebuildRow]) -> String {
    let brick = Size(model.setup().brick_bytes);
    let load = model.setup().load;
    let of = |failure| rows.iter().filter(move |row| row.failure == failure);
    let head = [
        "placement",
        "route",
        "peers",
        "unit-hops",
        "MB/s",
        "hours",
        "worst link",
        "at load: MB/s",
        "hours",
        "worst link",
        "reads, ms",
        "before",
        "p99, ms",
        "before",
    ];
    let title = format!(
        "One brick of {brick} is rebuilt, alone and at load {load} of direct reads (a sample, scaled)"
    );
    let mut text = titled(&title, &head, of(Failure::Node).map(one_brick).collect());
    let head = ["placement", "route", "bricks", "possible", "unit-hops", "MB/s each", "hours", "worst link"];
    let title = format!("The bricks of a row are rebuilt, {brick} each, alone (a sample, scaled)");
    text += &titled(&title, &head, of(Failure::Row).map(row_of_bricks).collect());
    text
}

fn one_brick(row: &RebuildRow) -> Vec<String> {
    let alone = &row.alone;
    let mut cells = vec![
        row.placement.word().to_owned(),
        row.route.word().to_owned(),
        format!("{:.0}", alone.peers),
        format!("{:.1}", alone.unit_hops),
        megabytes(alone.rate),
        format!("{:.2}", alone.seconds / 3600.0),
        format!("{:.2}", alone.links.worst),
    ];
    if let Some((loaded, baseline)) = &row.loaded {
        let reads = loaded.reads.unwrap_or_default();
        cells.extend([
            megabytes(loaded.rate),
            format!("{:.2}", loaded.seconds / 3600.0),
            format!("{:.2}", loaded.links.worst),
            millis(reads.mean_us),
            millis(baseline.reads.mean_us),
            millis(reads.p99_us),
            millis(baseline.reads.p99_us),
        ]);
    }
    cells
}

fn row_of_bricks(row: &RebuildRow) -> Vec<String> {
    let alone = &row.alone;
    vec![
        row.placement.word().to_owned(),
        row.route.word().to_owned(),
        alone.bricks.to_string(),
        percent(alone.possible),
        format!("{:.1}", alone.unit_hops),
        megabytes(alone.rate),
        format!("{:.2}", alone.seconds / 3600.0),
        format!("{:.2}", alone.links.worst),
    ]
}
