//! The page and its pictures.

use std::fmt::Write;

use layout::{Access, Backend, Operation};

use super::claims::{BUSY, bytes_text, claims, is_hot, sizes, tasks_text};
use super::mechanisms::{MECHANISMS, NOTE};
use super::networks::Place;
use super::runs::{Encoder, Measured, OPERATIONS, Point, Run, System};
use super::scale::payload;
use super::sends::SendRun;
use crate::chart::{Axes, Series, bar_chart, line_chart, line_chart_over};
use crate::document::{self, size, written};
use crate::load::streams::Way;
use crate::mechanism;
use crate::verdict;

/// The page, its pictures and all runs, as files by name.
pub fn files(measured: &Measured) -> Vec<(&'static str, String)> {
    let [one, many] = ends(&measured.scale.tasks);
    vec![
        ("002.json", format!("{:#}\n", measured.to_json())),
        ("002.md", page(measured)),
        ("002-fig1.svg", hops_picture(measured)),
        ("002-fig2.svg", codes_picture(measured)),
        ("002-fig3.svg", sends_picture(measured)),
        ("002-fig8a-write.svg", records_picture(measured, one, Way::Write)),
        ("002-fig8a-read.svg", records_picture(measured, one, Way::Read)),
        ("002-fig8b-write.svg", records_picture(measured, many, Way::Write)),
        ("002-fig8b-read.svg", records_picture(measured, many, Way::Read)),
        ("002-fig9.svg", random_picture(measured)),
    ]
}

/// The first and the last of some numbers.
fn ends(numbers: &[u32]) -> [u32; 2] {
    [numbers.first(), numbers.last()].map(|number| number.copied().unwrap_or(1))
}

/// The page, in Markdown.
pub fn page(measured: &Measured) -> String {
    let parts = [
        head(measured),
        verdict::table(&claims(measured)),
        how(measured),
        hops(measured),
        codes(measured),
        sends(measured),
        counts(measured),
        records(measured),
        random(measured),
        encoders(measured),
        mechanism::table(&MECHANISMS, NOTE),
        tail(measured),
    ];
    parts.join("\n")
}

fn head(measured: &Measured) -> String {
    let quick = verdict::quick_note(measured.scale.is_quick);
    format!(
        "# Paper 002: coded data on a torus\n\n\
         Kim, Kim, Kim, Kim (ETRI) and Seo (Kyungpook National University) store coded data on servers that are joined without\n\
         switches, as a torus, and want that to be as fast as copies on a fat tree. A primary server encodes, and the others lie\n\
         around it. This page repeats their experiments with Shoal on a torus and on a tree of the same cables, and with\n\
         GlusterFS on that tree.\n\n\
         {quick}{}\n",
        written("002", measured.seconds)
    )
}

fn how(measured: &Measured) -> String {
    let scale = &measured.scale;
    let gluster = match &measured.gluster {
        Ok(version) => format!(
            "Shoal, and GlusterFS {version}: coded {}, and with {} copies on nine of the ten servers; Ceph was not measured",
            scale.code(),
            scale.copies
        ),
        Err(why) => format!("Shoal; not GlusterFS ({why}), not Ceph"),
    };
    let rows = [
        (
            "nodes",
            "16 in a chain; 10 servers with 8 ports of 10 Gbit/s each, and a client".to_owned(),
            format!(
                "{} in a chain; {} with a brick and a client, network namespaces of one machine with {} cores, which they share",
                scale.chain, scale.servers, measured.cores
            ),
        ),
        (
            "torus",
            "a client joined by a switch to the primary, servers around that".into(),
            "4 x 3, with ten bricks. The client is one of its nodes, with four ports; or it is in front, by one cable to that node".into(),
        ),
        ("tree", "one switch".into(), "a router; all have one cable to it".into()),
        (
            "cables",
            "10 Gbit/s".into(),
            format!(
                "{} Mbit/s below file systems ({:.1} MB/s of payload in each direction), {} in the chain, {} for messages: as much as \
                 the cores carry; token buckets, queues of 4 MiB, reno; nodes forward as the kernel does",
                scale.mbit,
                payload(scale.mbit),
                scale.chain_mbit,
                scale.sends_mbit
            ),
        ),
        ("systems", "a prototype; GlusterFS and Ceph, coded and with three copies".into(), gluster),
        (
            "code",
            "8+2, units of 512 bytes, stripes of 5 KB".into(),
            format!(
                "{}, units of {}, and of {} where those who encode are compared. Units of 512 bytes are not possible: the grain of \
                 checksums, allocation and decoding is a block of 4 KiB",
                scale.code(),
                size(scale.unit.into()),
                sizes(&scale.route_units)
            ),
        ),
        (
            "who encodes",
            "the primary; the client of GlusterFS".into(),
            "the client in the torus; the primary where the client has one cable; the client of GlusterFS".into(),
        ),
        ("disks", "SATA disks".into(), "RAM: bricks are files there".into()),
        (
            "load",
            "IOzone".into(),
            format!(
                "the same by the lab: {} tasks with a file each, `read` and `write` of records; {} of all tasks together, each at \
                 least a record; random ones {} s",
                scale.tasks.iter().map(u32::to_string).collect::<Vec<_>>().join(" and "),
                size(scale.file),
                scale.millis as f64 / 1e3
            ),
        ),
        (
            "what is cached",
            "the kernel reads 128 KB ahead; other caches are not told".into(),
            "reads: nothing when they begin; what the kernel has of a file is dropped, `io-cache` (and `quick-read`) is off; the \
             kernel and both systems read ahead. Writes: as usual, but the time ends when `fsync` has returned"
                .into(),
        ),
    ];
    document::how(&rows)
        + "\nMB are 10^6 bytes. *(!)*: cores were busy for so much of the time that they may have been the limit.\n"
}

fn hops(measured: &Measured) -> String {
    let mut text = format!(
        "## Figure 1 (002-E1): hops\n\n\
         From the first node of the chain to each other one: messages of 64 bytes there and back, of which half the time is told\n\
         (the median, and the least), then a stream. Hops as the paper counts them: nodes in between.\n\n\
         ![Figure 1](002-fig1.svg)\n\n| hops | us | least us | MB/s of {:.1} | cores busy |\n|---|---|---|---|---|\n",
        payload(measured.scale.chain_mbit)
    );
    for run in &measured.hops {
        let _ = writeln!(
            text,
            "| {} | {:.1} | {:.1} | {:.2} | {} |",
            run.hops,
            run.micros,
            run.least,
            run.rate,
            percent(run.busy)
        );
    }
    text
}

/// A share of busy time, marked if it is large.
fn percent(busy: f64) -> String {
    format!("{:.0} %{}", busy * 100.0, if busy > BUSY { " (!)" } else { "" })
}

fn codes(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = format!(
        "## Figure 2 (002-E2): the code\n\n\
         `shoal code bench` for {}, by bytes of data in a stripe: GB/s (10^9 bytes) of data by one core. *Hot*: one stripe again and\n\
         again; *memory*: 64 MiB of stripes. Scalar code stands for Jerasure, the fast kernels for ISA-L.\n\n\
         ![Figure 2](002-fig2.svg)\n\n| stripe | data | by | encode | decode, 1 lost | decode, 2 lost |\n|---|---|---|---|---|---|\n",
        scale.code()
    );
    for stripe in &scale.stripes {
        for access in [Access::Hot, Access::Memory] {
            for backend in Backend::ALL {
                let speed = |operation| measured.code(*stripe, backend, access, operation);
                let cells = OPERATIONS
                    .map(|operation| speed(operation).map_or("-".to_owned(), |rate| format!("{rate:.2}")));
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} |",
                    size(u64::from(*stripe)),
                    access.name(),
                    backend.name(),
                    cells.join(" | ")
                );
            }
        }
    }
    text
}

fn sends(measured: &Measured) -> String {
    let mut text = format!(
        "## Figures 3 and 4 (002-E3): one message or four\n\n\
         The time until the receivers have said that they have everything: of one message to one node, and of the same bytes cut in\n\
         four for four nodes. On the torus these are the sender's neighbours, each by a cable of {} Mbit/s; on the tree all parts\n\
         leave by the sender's only one. A bucket lets two packets pass at once. Medians of {}, in microseconds.\n\n\
         ![Figures 3 and 4](002-fig3.svg)\n\n| message | torus: one | four | times as fast | tree: one | four | times as fast |\n|---|---|---|---|---|---|---|\n",
        measured.scale.sends_mbit, measured.scale.repetitions
    );
    for &bytes in &measured.scale.sends {
        let cells = |runs: &[SendRun]| {
            let run = runs.iter().find(|run| run.bytes == bytes);
            run.map_or("- | - | -".to_owned(), |SendRun { single, parallel, .. }| {
                format!("{single:.1} | {parallel:.1} | {:.2}", single / parallel)
            })
        };
        let [torus, tree] = &measured.sends;
        let _ = writeln!(text, "| {} | {} | {} |", bytes_text(bytes), cells(torus), cells(tree));
    }
    text
}

fn counts(measured: &Measured) -> String {
    let mut text = format!(
        "## Figures 5 and 6: hops of units\n\n\
         A unit-hop is one unit over one cable. The paper counts messages of the client times hops; but a message to the primary is\n\
         as long as all data units, and the primary sends nine units on. Each of the ten bricks is the primary of as many stripes.\n\
         *Measured*: all bytes of all packets on all cables, with headers and acknowledgements, over the bytes of a unit ({}).\n\
         *Client*: units that leave it or come to it. *Worst*: units on the cable with most of them, in one direction.\n\n\
         | client | route | client's messages x hops | unit-hops predicted | measured | client predicted | measured | worst predicted | measured | stripes | encoded by the client |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        size(measured.scale.counted_unit.into())
    );
    for run in &measured.counts {
        let (told, seen) = (run.predicted, run.measured);
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} |",
            run.place.title(),
            run.route.title(),
            run.messages,
            told.unit_hops,
            seen.unit_hops,
            told.client,
            seen.client,
            told.worst,
            seen.worst,
            run.stripes,
            run.staged
        );
    }
    text + "\nSo a primary saves a fifth of what is on the client's own cable, and costs more on all others together. In the torus,\n\
            where four ports share the client's units, the client had better encode itself.\n"
}

/// Systems of which there are runs.
fn systems(measured: &Measured) -> Vec<System> {
    let has_runs = |system: &System| measured.runs.iter().any(|run| run.point.system == *system);
    System::ALL.into_iter().filter(has_runs).collect()
}

fn rate(run: Option<&Run>) -> String {
    run.map_or("-".to_owned(), |run| format!("{:.1}{}", run.rate(), if is_hot(run) { " (!)" } else { "" }))
}

fn titles(systems: &[System]) -> String {
    systems.iter().map(|system| system.title()).collect::<Vec<_>>().join(" | ")
}

fn records(measured: &Measured) -> String {
    let (scale, systems) = (&measured.scale, systems(measured));
    let mut text = String::from("## Figure 8 (002-E4): records in order\n\nMB/s.\n\n");
    for (letter, tasks) in ['a', 'b'].into_iter().zip(&scale.tasks) {
        for way in [Way::Write, Way::Read] {
            let _ = write!(
                text,
                "![Figure 8{letter}](002-fig8{letter}-{}.svg)\n\n| {}, {} | {} |\n|---|{}\n",
                way.title(),
                way.title(),
                tasks_text(*tasks),
                titles(&systems),
                "---|".repeat(systems.len())
            );
            for record in scale.records_of(*tasks) {
                let cells: Vec<String> = systems
                    .iter()
                    .map(|system| rate(measured.run(scale.in_order(*system, way, *tasks, record))))
                    .collect();
                let _ = writeln!(text, "| {} | {} |", size(record.into()), cells.join(" | "));
            }
            text.push('\n');
        }
    }
    let _ = writeln!(
        text,
        "Records of more than {} were left out with several tasks: one of each would take longer than all other runs.",
        size(scale.record_of_many.into())
    );
    text
}

fn random(measured: &Measured) -> String {
    let (scale, systems) = (&measured.scale, systems(measured));
    let mut text = format!(
        "## Figure 9 (002-E5): random records of {}\n\nMB/s.\n\n![Figure 9](002-fig9.svg)\n\n| | tasks | {} |\n|---|---|{}\n",
        size(scale.random.into()),
        titles(&systems),
        "---|".repeat(systems.len())
    );
    for way in [Way::Read, Way::Write] {
        for tasks in &scale.tasks {
            let cells: Vec<String> = systems
                .iter()
                .map(|system| rate(measured.run(scale.by_chance(*system, way, *tasks))))
                .collect();
            let _ = writeln!(text, "| {} | {tasks} | {} |", way.title(), cells.join(" | "));
        }
    }
    text
}

fn encoders(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = String::from(
        "## Who encodes\n\n\
         Writes in order, MB/s. With one cable, a primary has room for a quarter more data on it; with four, the client has. Small\n\
         units make a message each.\n\n| | unit | tasks | record | client encodes | primary encodes |\n|---|---|---|---|---|---|\n",
    );
    for place in Place::ALL {
        let system = System::shoal(place);
        for &unit in &scale.route_units {
            for point in
                scale.routes(system, unit).into_iter().filter(|point| point.encoder == Encoder::Client)
            {
                let cells = Encoder::ALL.map(|encoder| rate(measured.run(Point { encoder, ..point })));
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {} |",
                    system.title(),
                    size(unit.into()),
                    point.tasks,
                    size(point.record.into()),
                    cells.join(" | ")
                );
            }
        }
    }
    text
}

fn tail(measured: &Measured) -> String {
    let hot = measured.runs.iter().filter(|run| is_hot(run)).count();
    format!(
        "## What limits what\n\n\
         The cores were busy for more than {:.0} % of the time in {hot} of {} runs of file systems, and may have been the limit\n\
         there (!): all nodes share them, and those of the torus also forward; all other programs of the machine count too. The paper's links are fifty times as fast; so a\n\
         small message costs much here, compared with what a link carries meanwhile, and rows that are limited by links show how\n\
         many bytes a system puts on them. Each run is measured once.\n\n\
         ## Repeat it\n\n\
         ```sh\nshoal paper 002              # as root; iproute2 and FUSE; writes docs/papers/002.*\n\
         shoal paper 002 --quick      # a minute, to see that it works\n```\n\n\
         GlusterFS (`glusterfs-server`) is measured too if it is installed. Nodes, links, mounts and the RAM of the disks are in\n\
         namespaces that the kernel clears away, however the command ends.\n",
        BUSY * 100.0,
        measured.runs.len()
    )
}

fn hops_picture(measured: &Measured) -> String {
    let places: Vec<f64> = measured.hops.iter().map(|run| f64::from(run.hops)).collect();
    let values =
        |of: fn(&super::chain::HopRun) -> f64| measured.hops.iter().map(|run| Some(of(run))).collect();
    let series: Vec<Series<'_>> = vec![
        ("half of there and back, us", values(|run| run.micros)),
        ("stream, MB/s", values(|run| run.rate)),
    ];
    let wire = payload(measured.scale.chain_mbit);
    let axes = Axes {
        title: "Figure 1: latency and rate over hops",
        x: "nodes in between",
        y: "us, MB/s",
        level: Some((wire, "what a cable carries, MB/s")),
    };
    line_chart(&axes, &places, &series)
}

fn codes_picture(measured: &Measured) -> String {
    let stripes = &measured.scale.stripes;
    let names: Vec<String> = stripes.iter().map(|stripe| size(u64::from(*stripe))).collect();
    let speeds = |backend, operation| {
        stripes.iter().map(|stripe| measured.code(*stripe, backend, Access::Hot, operation)).collect()
    };
    let series: Vec<Series<'_>> = vec![
        ("encode, fast", speeds(Backend::Fast, Operation::Encode)),
        ("decode 2 lost, fast", speeds(Backend::Fast, Operation::DecodeTwo)),
        ("encode, scalar", speeds(Backend::Scalar, Operation::Encode)),
        ("decode 2 lost, scalar", speeds(Backend::Scalar, Operation::DecodeTwo)),
    ];
    let axes = Axes {
        title: "Figure 2: speed of the code",
        x: "data in a stripe",
        y: "GB/s",
        level: Some((8.0, "8 GB/s, the paper's least to encode")),
    };
    line_chart_over(&axes, &borrowed(&names), &series)
}

fn sends_picture(measured: &Measured) -> String {
    let sends = &measured.scale.sends;
    let names: Vec<String> = sends.iter().map(|bytes| short(*bytes)).collect();
    let gains = |runs: &[SendRun]| {
        let gain =
            |bytes: &u32| runs.iter().find(|run| run.bytes == *bytes).map(|run| run.single / run.parallel);
        sends.iter().map(gain).collect()
    };
    let [torus, tree] = &measured.sends;
    let series: Vec<Series<'_>> = vec![("torus", gains(torus)), ("tree", gains(tree))];
    let axes = Axes {
        title: "Figures 3 and 4: four messages instead of one",
        x: "bytes in all",
        y: "times as fast",
        level: Some((1.0, "as fast")),
    };
    line_chart_over(&axes, &borrowed(&names), &series)
}

/// Bytes in the fewest letters.
fn short(bytes: u32) -> String {
    match bytes {
        ..1024 => bytes.to_string(),
        1024..1_048_576 => format!("{}K", bytes >> 10),
        _ => format!("{}M", bytes >> 20),
    }
}

fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn records_picture(measured: &Measured, tasks: u32, way: Way) -> String {
    let scale = &measured.scale;
    let records: Vec<u32> = scale.records_of(tasks).collect();
    let names: Vec<String> = records.iter().map(|record| size(u64::from(*record))).collect();
    let rates = |system: System| {
        let run = |record: &u32| measured.run(scale.in_order(system, way, tasks, *record));
        (system.title(), records.iter().map(|record| run(record).map(Run::rate)).collect())
    };
    let series: Vec<Series<'_>> = systems(measured).into_iter().map(rates).collect();
    let title = format!("Figure 8: {} in order, {}", way.title(), tasks_text(tasks));
    let level = Some((payload(scale.mbit), "what a cable carries"));
    let axes = Axes { title: &title, x: "record", y: "MB/s", level };
    line_chart_over(&axes, &borrowed(&names), &series)
}

fn random_picture(measured: &Measured) -> String {
    let scale = &measured.scale;
    let ways = [Way::Read, Way::Write];
    let groups: Vec<(Way, u32)> =
        ways.into_iter().flat_map(|way| scale.tasks.iter().map(move |tasks| (way, *tasks))).collect();
    let names: Vec<String> =
        groups.iter().map(|(way, tasks)| format!("{} by {tasks}", way.title())).collect();
    let rates = |system: System| {
        let run =
            |(way, tasks): &(Way, u32)| measured.run(scale.by_chance(system, *way, *tasks)).map(Run::rate);
        (system.title(), groups.iter().map(run).collect())
    };
    let series: Vec<Series<'_>> = systems(measured).into_iter().map(rates).collect();
    let title = format!("Figure 9: random records of {}", size(scale.random.into()));
    let level = Some((payload(scale.mbit), "what a cable carries"));
    bar_chart(&Axes { title: &title, x: "", y: "MB/s", level }, &borrowed(&names), &series)
}
