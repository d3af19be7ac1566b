//! What `shoal why` shows: a waterfall for each request and the verdict, or a JSON document.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::cause::{Verdict, ms, verdict};
use super::requests::{Kind, Remembered, Request, Served, Server, Times};
use super::shares::{Cause, Stage, shares};

/// Columns of a bar.
const BAR: usize = 40;

/// What was looked at.
pub(super) enum Subject {
    File(PathBuf),
    Mount(PathBuf),
    Gate(String),
}

impl Subject {
    pub(super) fn name(&self) -> String {
        match self {
            Subject::File(path) | Subject::Mount(path) => path.to_string_lossy().into_owned(),
            Subject::Gate(uri) => uri.clone(),
        }
    }
}

/// The slowest requests.
pub(super) struct Report {
    pub(super) subject: Subject,
    pub(super) remembered: Remembered,
    /// Most requests that are shown.
    pub(super) count: usize,
}

impl Report {
    /// The requests of programs; those of the background only if there are no others.
    fn asked(&self) -> Vec<&Request> {
        let all = || self.remembered.requests.iter();
        let programs: Vec<&Request> = all().filter(|request| !request.is_background()).collect();
        if programs.is_empty() { all().collect() } else { programs }
    }

    fn shown(&self) -> Vec<&Request> {
        self.asked().into_iter().take(self.count).collect()
    }

    fn verdict(&self, request: &Request) -> Option<Verdict> {
        verdict(&self.remembered, request, &self.subject.name())
    }

    pub(super) fn text(&self) -> String {
        let (name, shown) = (self.subject.name(), self.shown());
        let closed = if self.remembered.open == Some(false) { ", which is not open any more" } else { "" };
        if shown.is_empty() {
            return format!("no request to {name}{closed} took 1 ms or more in the last ten minutes");
        }
        let count = self.asked().len();
        let head = format!(
            "{name}{closed}: the slowest {} of {count} slow requests of the last ten minutes",
            shown.len()
        );
        let one = |request: &&Request| {
            let verdict = self.verdict(request);
            let said = verdict.map(|verdict| format!("\n{}\n  try: {}\n", verdict.sentence, verdict.remedy));
            format!("\n{}\n{}{}", self.title(request), waterfall(request), said.unwrap_or_default())
        };
        format!("{head}\n{}", shown.iter().map(one).collect::<String>())
    }

    /// `read of 4096 bytes at 8192, 52 ms, 3 s ago`
    fn title(&self, request: &Request) -> String {
        let Request { op, inode, offset, len, age, took, failed, .. } = request;
        let what = match op.as_str() {
            "fetch" => format!("read-ahead of {len} bytes at {offset}"),
            "send" => format!("write-behind sends the stripe at {offset}"),
            "flush" => "close".to_owned(),
            "fsync" => "fsync".to_owned(),
            op => format!("{op} of {len} bytes at {offset}"),
        };
        let whose = match self.subject {
            Subject::File(_) => String::new(),
            Subject::Mount(_) | Subject::Gate(_) => format!(", inode {inode}"),
        };
        let failed = if *failed { ", failed" } else { "" };
        format!("{what}{whose}: {}{failed}, {:.1} s ago", ms(*took), *age as f64 / 1e6)
    }

    pub(super) fn document(&self) -> Value {
        let one = |request: &&Request| {
            let verdict = self.verdict(request);
            json!({
                "op": request.op,
                "inode": request.inode,
                "offset": request.offset,
                "bytes": request.len,
                "age_us": request.age,
                "gate_us": request.gate,
                "took_us": request.took,
                "failed": request.failed,
                "spans": rows(request).iter().map(Row::document).collect::<Vec<_>>(),
                "shares": shares(request).iter().map(|(cause, us)| share(cause, *us)).collect::<Vec<_>>(),
                "cause": verdict.as_ref().map(|verdict| share(&verdict.cause, verdict.us)),
                "via": verdict.as_ref().and_then(|verdict| verdict.via.clone()),
                "sentence": verdict.as_ref().map(|verdict| verdict.sentence.clone()),
                "remedy": verdict.as_ref().map(|verdict| verdict.remedy.clone()),
            })
        };
        let (file, mount, gate) = match &self.subject {
            Subject::File(path) => (Some(path.to_string_lossy()), None, None),
            Subject::Mount(path) => (None, Some(path.to_string_lossy()), None),
            Subject::Gate(uri) => (None, None, Some(uri)),
        };
        json!({
            "file": file,
            "mount": mount,
            "gate": gate,
            "open": self.remembered.open,
            "requests": self.shown().iter().map(one).collect::<Vec<_>>(),
        })
    }
}

fn share(cause: &Cause, us: u64) -> Value {
    let stage = |stage: Stage| match stage {
        Stage::Queue => "queue",
        Stage::Lane => "lane",
        Stage::Journal => "journal",
        Stage::Device => "device",
        Stage::Process => "process",
    };
    let (what, brick, layer) = match cause {
        Cause::Gate => ("gate", None, None),
        Cause::Layer(layer) => ("layer", None, Some(layer)),
        Cause::Room => ("room", None, None),
        Cause::Pause => ("pause", None, None),
        Cause::Underway(layer) => ("underway", None, Some(layer)),
        Cause::Meta => ("meta", None, None),
        Cause::Unknown => ("unknown", None, None),
        Cause::Credit => ("credit", None, None),
        Cause::Network(brick) => ("network", Some(*brick), None),
        Cause::Brick(brick, at) => (stage(*at), Some(*brick), None),
    };
    json!({ "what": what, "brick": brick.map(|brick| format!("b{brick}")), "layer": layer, "us": us })
}

/// A row of a waterfall.
struct Row {
    name: String,
    from: u64,
    took: u64,
    /// How deep it is below the request.
    depth: usize,
    /// Its place in time is known.
    placed: bool,
}

impl Row {
    fn document(&self) -> Value {
        let from = self.placed.then_some(self.from);
        json!({ "name": self.name, "from_us": from, "took_us": self.took, "depth": self.depth })
    }
}

/// The rows of a request, in the order in which they begin. What a brick tells has no place in time; it is put after one half of
/// the network's time, one stage after the other.
fn rows(request: &Request) -> Vec<Row> {
    let row = |name: &str, from, took, depth| Row { name: name.to_owned(), from, took, depth, placed: true };
    let mut rows = Vec::new();
    if request.gate > 0 {
        rows.push(row("gate", 0, request.gate, 0));
    }
    let mut spans: Vec<_> = request.spans.iter().collect();
    spans.sort_by_key(|span| span.from);
    for span in spans {
        match &span.kind {
            // A layer has the request until its end.
            Kind::Layer(name) => rows.push(row(name, span.from, request.took.saturating_sub(span.from), 0)),
            Kind::Wait(wait) => rows.push(row(&format!("wait: {}", wait.name()), span.from, span.took, 1)),
            Kind::Call { request, server, credit, served } => {
                let server = match server {
                    Server::Meta => "metadata service".to_owned(),
                    Server::Brick(brick) => format!("b{brick}"),
                    Server::Unknown => "unknown".to_owned(),
                };
                rows.push(row(&format!("{request} {server}"), span.from, span.took, 1));
                let took = span.took.saturating_sub(*credit);
                rows.extend(served.iter().flat_map(|served| served_rows(span.from, took, served)));
                if *credit > 0 {
                    rows.push(row("credit", span.from.saturating_add(took), *credit, 2));
                }
            }
        }
    }
    rows
}

fn served_rows(from: u64, took: u64, served: &Served) -> Vec<Row> {
    let mut rows = Vec::new();
    let network = took.saturating_sub(served.own.total);
    let mut put = |name: String, from: u64, took: u64, depth| {
        if took > 0 {
            rows.push(Row { name, from, took, depth, placed: false });
        }
    };
    put("network".to_owned(), from, network, 2);
    let inside = from.saturating_add(network / 2);
    let mut at = inside;
    for (name, us) in stages(&served.own) {
        put(name.to_owned(), at, us, 2);
        at = at.saturating_add(us);
    }
    if let Some((brick, took, times)) = &served.other {
        put(format!("asks b{brick}"), inside, *took, 2);
        let mut at = inside;
        for (name, us) in stages(times) {
            put(name.to_owned(), at, us, 3);
            at = at.saturating_add(us);
        }
    }
    rows
}

fn stages(times: &Times) -> [(&'static str, u64); 4] {
    [("queue", times.queue), ("lane", times.lane), ("device", times.device), ("journal", times.journal)]
}

fn waterfall(request: &Request) -> String {
    let rows = rows(request);
    let name = |row: &Row| format!("{:indent$}{}", "", row.name, indent = 2 + 2 * row.depth);
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0);
    let line = |row: &Row| {
        let name = name(row);
        format!("{name:<width$}  |{}| {:>8.1} ms\n", bar(row, request.took), row.took as f64 / 1e3)
    };
    rows.iter().map(line).collect()
}

/// A bar: `#` is time that was spent there, `-` the time of a layer, with everything below it.
fn bar(row: &Row, whole: u64) -> String {
    let column =
        |at: u64| (u128::from(at) * BAR as u128 / u128::from(whole.max(1))).min(BAR as u128) as usize;
    let from = column(row.from).min(BAR - 1);
    let until = column(row.from.saturating_add(row.took)).max(from + 1);
    let sign = if row.depth == 0 { "-" } else { "#" };
    format!("{}{}{}", " ".repeat(from), sign.repeat(until - from), " ".repeat(BAR - until))
}

#[cfg(test)]
mod tests {
    use super::super::shares::tests::{call, device, layer, read};
    use super::*;

    fn report(requests: Vec<Request>, open: Option<bool>) -> Report {
        let remembered = Remembered { open, requests };
        Report { subject: Subject::File("/mnt/file".into()), remembered, count: 1 }
    }

    fn slow() -> Request {
        let spans = vec![
            layer("auto", 0),
            layer("write-behind", 1_000),
            call(Server::Brick(3), 1_000, 51_000, Some(device(43_000, 41_000))),
        ];
        Request { gate: 500, age: 2_500_000, ..read(52_000, spans) }
    }

    #[test]
    fn a_waterfall_has_a_bar_for_each_part_and_ends_in_a_sentence() {
        let text = report(vec![slow(), slow()], Some(true)).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "/mnt/file: the slowest 1 of 2 slow requests of the last ten minutes");
        assert_eq!(lines[2], "read of 4096 bytes at 0: 52 ms, 2.5 s ago");
        let names: Vec<&str> =
            lines[3..9].iter().filter_map(|line| line.split('|').next()).map(str::trim).collect();
        assert_eq!(names, ["gate", "auto", "write-behind", "ReadUnit b3", "network", "device"]);
        assert!(
            lines[3..9].iter().all(|line| line.split('|').nth(1).is_some_and(|bar| bar.len() == BAR)),
            "{text}"
        );
        let device = lines[8].matches('#').count();
        assert_eq!((device, lines[8].ends_with("41.0 ms")), (BAR * 41 / 52 + 1, true), "{text}");
        assert!(
            text.contains("\n41 of 52 ms were spent waiting for the device of brick b3\n  try: "),
            "{text}"
        );
    }

    #[test]
    fn a_document_has_the_parts_and_the_cause() {
        let document = report(vec![slow()], Some(false)).document();
        let request = &document["requests"][0];
        assert_eq!((&document["open"], &document["file"]), (&json!(false), &json!("/mnt/file")));
        assert_eq!(request["cause"], json!({ "what": "device", "brick": "b3", "layer": null, "us": 41_000 }));
        assert_eq!(request["spans"][3]["name"], "ReadUnit b3");
        assert_eq!(
            request["spans"][5],
            json!({ "name": "device", "from_us": null, "took_us": 41_000, "depth": 2 })
        );
        let sum: u64 =
            request["shares"].as_array().expect("shares").iter().filter_map(|one| one["us"].as_u64()).sum();
        assert_eq!(sum, 52_000);
    }

    #[test]
    fn nothing_slow_is_said() {
        let text = report(Vec::new(), Some(false)).text();
        assert_eq!(
            text,
            "no request to /mnt/file, which is not open any more took 1 ms or more in the last ten minutes"
        );
        assert!(
            report(vec![slow()], Some(false)).text().starts_with("/mnt/file, which is not open any more: ")
        );
    }

    #[test]
    fn bars_stay_in_their_column() {
        for (from, took) in [(0, 0), (0, u64::MAX), (u64::MAX, 1), (9, 1), (10, 0)] {
            let row = Row { name: String::new(), from, took, depth: 1, placed: true };
            assert_eq!(bar(&row, 10).len(), BAR);
            assert_eq!(bar(&row, 0).len(), BAR);
        }
    }
}
