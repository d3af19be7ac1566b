//! The experiments behind the tables, and their answer as a document.

use netsim::torus::{
    Baseline, ClientPlace, DegradedReads, Failure, Latency, Links, Model, PlacementName, ReadRoute, Reads,
    Rebuild, RebuildRoute, WriteRoute, Writes,
};
use serde_json::{Map, Value, json};

use super::TableName;

/// A row of reads with a failure.
pub(super) struct FailureRow {
    pub(super) placement: PlacementName,
    pub(super) failure: Failure,
    pub(super) reads: DegradedReads,
}

/// A row of bricks that are rebuilt.
pub(super) struct RebuildRow {
    pub(super) placement: PlacementName,
    pub(super) failure: Failure,
    pub(super) route: RebuildRoute,
    pub(super) alone: Rebuild,
    /// Under reads, with what these were before.
    pub(super) loaded: Option<(Rebuild, Baseline)>,
}

/// Everything that was measured. A table that was not asked for is empty.
#[derive(Default)]
pub(super) struct Experiments {
    pub(super) writes: Vec<(PlacementName, ClientPlace, WriteRoute, Writes)>,
    pub(super) reads: Vec<(PlacementName, ClientPlace, ReadRoute, Reads)>,
    pub(super) failures: Vec<FailureRow>,
    pub(super) rebuilds: Vec<RebuildRow>,
}

/// What is rebuilt: one brick, or those of a row.
const REBUILT: [Failure; 2] = [Failure::Node, Failure::Row];

/// How many experiments these tables need.
pub(super) fn count(model: &Model, has: impl Fn(TableName) -> bool) -> u64 {
    let each = |table| match table {
        TableName::Writes => ClientPlace::ALL.len() * model.write_routes().len(),
        TableName::Reads => ClientPlace::ALL.len() * ReadRoute::ALL.len(),
        TableName::Failures => Failure::ALL.len(),
        TableName::Rebuilds => REBUILT.len() * RebuildRoute::ALL.len(),
    };
    let tables = TableName::ALL.into_iter().filter(|&table| has(table));
    (tables.map(each).sum::<usize>() * model.placements().len()) as u64
}

impl Experiments {
    /// Runs the experiments of the tables that `has` names, and calls `step` after each.
    pub(super) fn run(model: &Model, has: impl Fn(TableName) -> bool, mut step: impl FnMut()) -> Experiments {
        let mut found = Experiments::default();
        for placement in model.placements() {
            if has(TableName::Writes) {
                found.write(model, placement, &mut step);
            }
            if has(TableName::Reads) {
                found.read(model, placement, &mut step);
            }
            if !has(TableName::Failures) && !has(TableName::Rebuilds) {
                continue;
            }
            let intact = model.reads(placement, ClientPlace::Anywhere, ReadRoute::Direct).rate;
            if has(TableName::Failures) {
                found.fail(model, placement, intact, &mut step);
            }
            if has(TableName::Rebuilds) {
                found.rebuild(model, placement, intact, &mut step);
            }
        }
        found
    }

    fn write(&mut self, model: &Model, placement: PlacementName, step: &mut impl FnMut()) {
        for place in ClientPlace::ALL {
            for route in model.write_routes() {
                self.writes.push((placement, place, route, model.writes(placement, place, route)));
                step();
            }
        }
    }

    fn read(&mut self, model: &Model, placement: PlacementName, step: &mut impl FnMut()) {
        for place in ClientPlace::ALL {
            for route in ReadRoute::ALL {
                self.reads.push((placement, place, route, model.reads(placement, place, route)));
                step();
            }
        }
    }

    fn fail(&mut self, model: &Model, placement: PlacementName, intact: f64, step: &mut impl FnMut()) {
        for failure in Failure::ALL {
            let reads = model.degraded(placement, failure, intact);
            self.failures.push(FailureRow { placement, failure, reads });
            step();
        }
    }

    fn rebuild(&mut self, model: &Model, placement: PlacementName, intact: f64, step: &mut impl FnMut()) {
        for failure in REBUILT {
            let baseline = (failure == Failure::Node).then(|| model.baseline(placement, failure, intact));
            for route in RebuildRoute::ALL {
                let alone = model.rebuild(placement, route, failure, None);
                let under = |load| (model.rebuild(placement, route, failure, Some(load)), load);
                let loaded = baseline.map(under);
                self.rebuilds.push(RebuildRow { placement, failure, route, alone, loaded });
                step();
            }
        }
    }

    /// The answer for programs.
    pub(super) fn document(&self, model: &Model) -> Value {
        let setup = model.setup();
        let mut document = json!({
            "shape": setup.shape.to_string(), "nodes": model.nodes(), "mean_hops": model.mean_hops(),
            "code": setup.code.to_string(), "unit": setup.unit, "slice": setup.slice, "slices": setup.window,
            "link_bit_per_s": setup.link.0, "hop_us": setup.hop_us, "compute_bytes_per_s": setup.compute,
            "client_bit_per_s": setup.client.map(|rate| rate.0), "brick_bytes_per_s": setup.brick,
            "brick_bytes": setup.brick_bytes, "clients": setup.clients, "stripes": setup.stripes,
            "rebuilds": setup.rebuilds, "load": setup.load, "seconds": setup.time_us as f64 / 1e6,
            "seed": setup.seed,
            "placements": model.placements().into_iter().map(|name| placement(model, name)).collect::<Vec<_>>(),
        });
        let busy = |&(placement, place, route, ref row): &(_, _, ReadRoute, _)| {
            busy_row(placement, place, route.word(), row)
        };
        let write = |&(placement, place, route, ref row): &(_, _, WriteRoute, _)| {
            busy_row(placement, place, route.word(), row)
        };
        let tables: [(&str, Vec<Value>); 4] = [
            ("writes", self.writes.iter().map(write).collect()),
            ("reads", self.reads.iter().map(busy).collect()),
            ("failures", self.failures.iter().map(failure_row).collect()),
            ("rebuilds", self.rebuilds.iter().map(rebuild_row).collect()),
        ];
        let into = document.as_object_mut().expect("it was made as an object");
        into.extend(
            tables
                .into_iter()
                .filter(|(_, rows)| !rows.is_empty())
                .map(|(name, rows)| (name.to_owned(), rows.into())),
        );
        document
    }
}

fn placement(model: &Model, name: PlacementName) -> Value {
    json!({ "placement": name.word(), "radius": model.radius(name), "peers": model.peers(name) })
}

fn links(links: &Links) -> Value {
    json!({ "mean": links.mean, "worst": links.worst, "waiting_bytes": links.waiting })
}

fn latency(latency: &Latency) -> Value {
    json!({ "mean_us": latency.mean_us, "p99_us": latency.p99_us })
}

fn busy_row(placement: PlacementName, place: ClientPlace, route: &str, row: &Writes) -> Value {
    json!({
        "placement": placement.word(), "clients": place.word(), "route": route, "mb_per_s": row.rate / 1e6,
        "share": row.share, "unit_hops": row.unit_hops, "sent_units": row.sent, "links": links(&row.links),
        "alone_us": row.alone_us, "loaded": latency(&row.loaded),
    })
}

fn failure_row(row: &FailureRow) -> Value {
    let reads = &row.reads;
    json!({
        "placement": row.placement.word(), "lost": row.failure.word(), "clients": reads.clients,
        "unreadable": reads.unreadable, "decoded": reads.decoded, "mb_per_s": reads.rate / 1e6,
        "loaded": latency(&reads.loaded), "links": links(&reads.links),
    })
}

fn rebuild_row(row: &RebuildRow) -> Value {
    let mut fields = rebuild_fields(&row.alone);
    fields.insert("placement".into(), row.placement.word().into());
    fields.insert("lost".into(), row.failure.word().into());
    fields.insert("route".into(), row.route.word().into());
    if let Some((loaded, baseline)) = &row.loaded {
        let mut under = rebuild_fields(loaded);
        under.insert("reads".into(), loaded.reads.as_ref().map(latency).into());
        under.insert("reads_before".into(), latency(&baseline.reads));
        under.insert("reads_mb_per_s".into(), (baseline.rate / 1e6).into());
        fields.insert("under_load".into(), under.into());
    }
    fields.into()
}

fn rebuild_fields(rebuild: &Rebuild) -> Map<String, Value> {
    let fields = json!({
        "bricks": rebuild.bricks, "possible": rebuild.possible, "peers": rebuild.peers,
        "mb_per_s": rebuild.rate / 1e6, "hours": rebuild.seconds / 3600.0, "unit_hops": rebuild.unit_hops,
        "links": links(&rebuild.links),
    });
    fields.as_object().cloned().unwrap_or_default()
}
