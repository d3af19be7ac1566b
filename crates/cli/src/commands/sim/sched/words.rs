//! Runs as tables and documents.

use devsim::{Latencies, Probe, Report};
use serde_json::{Value, json};

use super::Run;
use crate::output::table;
use crate::size::Size;

fn name(run: &Run) -> &'static str {
    run.workload.map_or("trace", |workload| workload.word())
}

fn latency(latencies: &Latencies) -> Value {
    json!({
        "mean": latencies.mean_us(), "p50": latencies.percentile_us(0.5), "p99": latencies.percentile_us(0.99),
    })
}

/// The answer as a document.
pub(super) fn document(runs: &[Run]) -> Value {
    let runs: Vec<Value> = runs.iter().map(run_document).collect();
    json!({ "runs": runs })
}

fn run_document(run: &Run) -> Value {
    let (report, counters) = (&run.report, &run.report.counters);
    let kind = |(at, kind): (usize, &devsim::Kind)| {
        json!({
            "kind": kind.name, "operations": kind.latencies.count(), "mb_per_s": report.bandwidth(Some(at)) / 1e6,
            "per_s": report.rate(at), "us": latency(&kind.latencies),
        })
    };
    json!({
        "workload": name(run), "policy": run.setup.policy.word(), "seed": run.setup.seed, "seconds": report.seconds,
        "largest": run.setup.parameters.largest,
        "priority": { "read": report.priorities[0], "write": report.priorities[1] },
        "kinds": report.kinds.iter().enumerate().map(kind).collect::<Vec<_>>(),
        "requests": report.requests.count(), "request_us": latency(&report.requests),
        "device_mb_per_s": device_rate(report), "link_busy": report.busy,
        "dispatched": { "reads": counters.reads, "writes": counters.writes, "flushes": counters.flushes },
        "merges": { "back": counters.back_merges, "front": counters.front_merges, "joins": counters.joins },
        "expired": counters.expiries, "held": counters.held,
    })
}

fn device_rate(report: &Report) -> f64 {
    report.device_bytes as f64 / report.seconds / 1e6
}

const HEAD: [&str; 13] = [
    "workload",
    "policy",
    "operations",
    "MB/s",
    "per s",
    "mean, ms",
    "p50, ms",
    "p99, ms",
    "device MB/s",
    "link",
    "merged",
    "expired",
    "priorities",
];

/// The answer as a table.
pub(super) fn tell(runs: &[Run]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for run in runs {
        rows.extend(lines(run));
    }
    let mut text = table(&rows);
    text += "\n  operations: what the programs do; requests: what the scheduler was given. link: part of the time in which\n  \
             it was busy. merged, expired: since the run began. priorities: of reads and of writes, at the end\n";
    text
}

fn lines(run: &Run) -> Vec<Vec<String>> {
    let (report, counters) = (&run.report, &run.report.counters);
    let priorities = if run.setup.policy.is_slq() {
        report.priorities.map(|bytes| Size(bytes).to_string()).join(", ")
    } else {
        "-".to_owned()
    };
    let shared = [
        format!("{:.1}", device_rate(report)),
        format!("{:.2}", report.busy),
        (counters.back_merges + counters.front_merges + counters.joins).to_string(),
        counters.expiries.to_string(),
        priorities,
    ];
    let timed = |latencies: &Latencies| {
        let times = [latencies.mean_us(), latencies.percentile_us(0.5), latencies.percentile_us(0.99)];
        times.map(|us| format!("{:.3}", us / 1e3))
    };
    let line = |what: &str, rate: String, count: f64, latencies: &Latencies| {
        let mut cells = vec![name(run).to_owned(), run.setup.policy.word().to_owned(), what.to_owned()];
        cells.extend([rate, format!("{count:.0}")]);
        cells.extend(timed(latencies));
        cells
    };
    let mut lines = Vec::new();
    for (at, kind) in report.kinds.iter().enumerate() {
        let rate = format!("{:.1}", report.bandwidth(Some(at)) / 1e6);
        lines.push(line(kind.name, rate, report.rate(at), &kind.latencies));
    }
    let count = report.requests.count() as f64 / report.seconds;
    let mut all = line("requests", "-".to_owned(), count, &report.requests);
    all.extend(shared);
    lines.push(all);
    lines
}

/// Single reads as a document.
pub(super) fn probe_document(found: &[Probe]) -> Value {
    let read = |probe: &Probe| json!({ "bytes": probe.length, "us": probe.us, "extra_us": probe.extra_us });
    json!({ "reads": found.iter().map(read).collect::<Vec<_>>() })
}

/// Single reads as a table.
pub(super) fn tell_probe(found: &[Probe]) -> String {
    let head = ["read of", "us", "of them extra", "MB/s"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for probe in found {
        let cells = [
            format!("{} KiB", probe.length >> 10),
            format!("{:.0}", probe.us),
            // Parts of a nanosecond are rounded, which may leave less than nothing.
            format!("{:.0}", probe.extra_us.max(0.0)),
            format!("{:.0}", probe.length as f64 / probe.us),
        ];
        rows.push(cells.to_vec());
    }
    table(&rows)
        + "\n  extra: besides the command, the flash and the bytes; it begins behind the first buffer's worth\n"
}
