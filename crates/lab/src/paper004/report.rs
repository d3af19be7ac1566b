//! The page and its pictures.

use std::fmt::Write;

use super::claims::{BUSY, claims, listed};
use super::mechanisms::{MECHANISMS, NOTE};
use super::runs::{Measured, Point, Run, System};
use super::scale::{FASTER, payload};
use crate::chart::{Axes, Series, bar_chart, line_chart};
use crate::document::{self, size, written};
use crate::load::streams::Way;
use crate::mechanism;
use crate::star::Control;
use crate::verdict;

/// The page, its pictures and all runs, as files by name.
pub fn files(measured: &Measured) -> Vec<(&'static str, String)> {
    let [small, large] = measured.scale.buffers;
    vec![
        ("004.json", format!("{:#}\n", measured.to_json())),
        ("004.md", page(measured)),
        ("004-fig3.svg", tasks_picture(measured, small, "Figure 3: behind the small buffer")),
        ("004-fig4.svg", tasks_picture(measured, large, "Figures 4 and 5: behind the large buffer")),
        ("004-clients.svg", clients_picture(measured)),
        ("004-ports.svg", ports_picture(measured)),
    ]
}

/// The page, in Markdown.
pub fn page(measured: &Measured) -> String {
    let [small, large] = measured.scale.buffers;
    let parts = [
        head(measured),
        guard(measured),
        verdict::table(&claims(measured)),
        how(measured),
        format!(
            "## Figure 3 (004-E1): behind the small buffer\n\n![Figure 3](004-fig3.svg)\n\n{}",
            tasks(measured, small)
        ),
        format!(
            "## Figures 4 and 5 (004-E2): behind the large buffer\n\n![Figures 4 and 5](004-fig4.svg)\n\n{}",
            tasks(measured, large)
        ),
        clients(measured),
        sharers(measured),
        mounts(measured),
        ports(measured),
        controls(measured),
        writers(measured),
        probes(measured),
        mechanism::table(&MECHANISMS, NOTE),
        tail(measured),
    ];
    parts.join("\n")
}

fn head(measured: &Measured) -> String {
    let quick = verdict::quick_note(measured.scale.is_quick);
    format!(
        "# Paper 004: reads behind a shallow switch\n\n\
         Woo, Jang and Hong (KISTI) looked for the reason why clients of a global file system (GPFS, Lustre) read with a fifth of\n\
         what their links carry, and a quarter of what they write: servers with ten times the rate overflow the buffer of the\n\
         client's switch, 3 MB for all its ports. A switch with 768 MB made reads four times as fast. This page repeats that\n\
         with Shoal without its receive window, with it, and with GlusterFS.\n\n\
         {quick}{}\n",
        written("004", measured.seconds)
    )
}

/// Whether there is anything to cure.
fn guard(measured: &Measured) -> String {
    if measured.suffers() {
        "Reads without a window do suffer here, so what the window does can be told.\n".to_owned()
    } else {
        "**Reads without a window do not suffer on this machine: this page says nothing about the window.**\n"
            .to_owned()
    }
}

fn how(measured: &Measured) -> String {
    let scale = &measured.scale;
    let [small, large] = scale.buffers.map(|bytes| size(bytes.into()));
    let mut rows = vec![
        (
            "nodes",
            "10 GbE servers and 1 GbE clients in production; the number of clients is not printed, four fit its numbers".to_owned(),
            format!(
                "{} servers and {} clients, network namespaces of one machine with {} cores, which they share",
                scale.servers, scale.clients, measured.cores
            ),
        ),
        (
            "links",
            "1 Gbit/s for a client, 10 for a server".into(),
            format!(
                "{} Mbit/s for the only client and {} where there are several; servers have {FASTER} times as much; token buckets; \
                 {:.1} and {:.1} MB/s of payload",
                scale.mbit,
                scale.mbit_shared,
                payload(scale.mbit),
                payload(scale.mbit_shared)
            ),
        ),
        (
            "buffer",
            "3 MB, then 768 MB, for all ports of a switch".into(),
            format!("{small}, then {large}, for each client's port of a router, counted in bytes of packets"),
        ),
        (
            "volume",
            "GPFS and Lustre".into(),
            format!(
                "code {}+{}, units of {}; GlusterFS's dispersed volume with the same code. A record has a unit of each data brick; \
                 bricks in RAM",
                scale.data(),
                scale.parities,
                size(u64::from(scale.unit))
            ),
        ),
        (
            "load",
            "IOzone, reads and writes, number of tasks varied".into(),
            format!(
                "{} tasks, each reads or writes its file of {} MiB, record after record, with `O_DIRECT`, writes also with \
                 `O_DSYNC`; {:.1} s after {:.1} s that do not count; what is read is compared",
                listed(&scale.tasks),
                scale.file >> 20,
                scale.time().as_secs_f64(),
                scale.ramp().as_secs_f64()
            ),
        ),
        (
            "caches of clients",
            "not told".into(),
            "none: `io-cache=off read-ahead=off`, and the same for GlusterFS".into(),
        ),
        (
            "congestion control",
            "not told".into(),
            "cubic, where nothing else is said; as the kernel comes (RACK, no change of its timeouts)".into(),
        ),
    ];
    if let Ok(version) = &measured.gluster {
        rows.push(("GlusterFS", "-".into(), version.clone()));
    }
    document::how(&rows)
        + "\nMB are 10^6 bytes. *Share*: of the payload that the clients' links can carry. *p50, p99*: milliseconds that half and 99 of\n\
            100 records take at most. *Dropped*: packets, by the ports that are studied; *timeouts*: how often a node heard nothing for\n\
            so long that TCP began anew (200 ms at least). *Window*: the mount's receive window at the end.\n\
            A written byte takes more than one on the client's link, for parities: writes cannot reach a share of 1.\n"
}

/// Cells of a run: rate, share, percentiles, drops, timeouts, window, cores.
fn cells(run: Option<&Run>) -> String {
    let Some(run) = run else { return "- | - | - | - | - | - | - | -".to_owned() };
    let [half, late, _] = run.millis;
    let windows: Vec<String> = run.windows.iter().map(|bytes| (bytes >> 10).to_string()).collect();
    let window = if windows.is_empty() { "-".to_owned() } else { format!("{} KiB", windows.join(", ")) };
    let mark = if run.busy > BUSY { " (!)" } else { "" };
    format!(
        "{:.1} | {:.2} | {half:.1} | {late:.1} | {} | {} | {window} | {:.0} %{mark}",
        run.rate(),
        run.share(),
        run.dropped,
        run.timeouts,
        run.busy * 100.0
    )
}

/// How equal the mounts' shares were in a run.
fn fairness(run: Option<&Run>) -> String {
    run.map_or("-".to_owned(), |run| format!("{:.3}", run.fairness()))
}

const COLUMNS: &str = "MB/s | share | p50 | p99 | dropped | timeouts | window | cores busy |";
const COLUMNS_RULE: &str = "---|---|---|---|---|---|---|---|";

/// Systems of which there are runs.
fn systems(measured: &Measured) -> impl Iterator<Item = System> + '_ {
    System::ALL.into_iter().filter(|system| measured.runs.iter().any(|run| run.point.system == *system))
}

fn tasks(measured: &Measured, buffer: u32) -> String {
    let mut text = format!("| system | | tasks | {COLUMNS}\n|---|---|---|{COLUMNS_RULE}\n");
    for way in Way::ALL {
        for system in systems(measured) {
            for &tasks in &measured.scale.tasks {
                let run = measured.run(measured.tasks(system, way, tasks, buffer));
                let _ = writeln!(text, "| {} | {} | {tasks} | {} |", system.title(), way.title(), cells(run));
            }
        }
    }
    text
}

fn clients(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = format!(
        "## One to {} clients\n\n\
         Reads by {} tasks of each client, links of {} Mbit/s. *Fairness* is Jain's index of the clients' rates: 1 if all are the\n\
         same.\n\n![Clients](004-clients.svg)\n\n| buffer | system | clients | fairness | {COLUMNS}\n|---|---|---|---|{COLUMNS_RULE}\n",
        scale.clients, scale.few_tasks, scale.mbit_shared
    );
    for buffer in scale.buffers {
        for system in systems(measured) {
            for clients in 1..=scale.clients {
                let run = measured.run(measured.clients(system, clients, buffer));
                let fairness = fairness(run);
                let system = system.title();
                let _ = writeln!(
                    text,
                    "| {} | {system} | {clients} | {fairness} | {} |",
                    size(u64::from(buffer)),
                    cells(run)
                );
            }
        }
    }
    text
}

fn sharers(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = format!(
        "## One memory for the ports of all clients\n\n\
         Most switches have one memory, from which each port takes what it needs: here {} for the ports of {} clients. Reads by {} \
         tasks\nof each client that reads, links of {} Mbit/s. The kernel has no such queue, so a thread of the lab forwards the \
         packets.\n\n| system | clients | fairness | {COLUMNS}\n|---|---|---|{COLUMNS_RULE}\n",
        size(u64::from(scale.shared_buffer)),
        scale.clients,
        scale.few_tasks,
        scale.mbit_shared
    );
    for system in systems(measured) {
        for &clients in &scale.sharers {
            let run = measured.run(scale.shared(system, clients));
            let fairness = fairness(run);
            let _ = writeln!(text, "| {} | {clients} | {fairness} | {} |", system.title(), cells(run));
        }
    }
    text
}

fn mounts(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = format!(
        "## Two mounts of one client\n\n\
         Two processes receive through one port; each has {} tasks. They tell each other of the window, and have equal parts of\n\
         it. *Window*: of each.\n\n| buffer | system | fairness | {COLUMNS}\n|---|---|---|{COLUMNS_RULE}\n",
        scale.few_tasks
    );
    for buffer in scale.buffers {
        for system in [System::NoWindow, System::Shoal] {
            let run = measured.run(scale.two_mounts(system, buffer));
            let fairness = fairness(run);
            let _ = writeln!(
                text,
                "| {} | {} | {fairness} | {} |",
                size(u64::from(buffer)),
                system.title(),
                cells(run)
            );
        }
    }
    text
}

fn ports(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = format!(
        "## {} servers, and smaller and larger ports\n\n\
         Reads by {} tasks of one client, from volumes whose stripes have so many data units ({} with parities, the others\n\
         without). *Of the record*: the 99th percentile over what the wire needs for the records of all tasks.\n\n![Ports](004-ports.svg)\n\n\
         | buffer | servers | system | of the record | {COLUMNS}\n|---|---|---|---|{COLUMNS_RULE}\n",
        listed(&scale.senders),
        scale.few_tasks,
        scale.data()
    );
    for &port in &scale.ports {
        for &senders in &scale.senders {
            for system in [System::NoWindow, System::Shoal] {
                let run = measured.run(measured.senders(system, senders, port));
                let ideal = measured.ideal_millis(senders) * f64::from(scale.few_tasks);
                let late = run.map_or("-".to_owned(), |run| format!("{:.1}", run.millis[1] / ideal));
                let _ = writeln!(
                    text,
                    "| {} | {senders} | {} | {late} | {} |",
                    size(u64::from(port)),
                    system.title(),
                    cells(run)
                );
            }
        }
    }
    text
}

fn controls(measured: &Measured) -> String {
    let small = measured.scale.buffers[0];
    let mut text = format!(
        "## Other congestion controls\n\n\
         Reads by {} tasks of one client behind {}. Bbr paces what it sends by what it has measured, and so needs less of the\n\
         buffer by itself.\n\n| control | system | {COLUMNS}\n|---|---|{COLUMNS_RULE}\n",
        measured.scale.few_tasks,
        size(u64::from(small))
    );
    for control in Control::ALL {
        for system in [System::NoWindow, System::Shoal] {
            let point = match control {
                // Measured as one of the numbers of tasks.
                Control::Cubic => measured.tasks(system, Way::Read, measured.scale.few_tasks, small),
                _ => Point { control, ..measured.scale.read(system, small) },
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                control.title(),
                system.title(),
                cells(measured.run(point))
            );
        }
    }
    text
}

fn writers(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut text = format!(
        "## Writes of several clients to few servers\n\n\
         Here the servers are the receivers: {} bricks with code {}+1, behind ports of {} Mbit/s and {}, and clients whose links\n\
         are {FASTER} times as fast. One task of each client writes. The share is that of the servers' links. Without a window: bricks\n\
         with `--receive-window off`.\n\n| system | clients | fairness | {COLUMNS}\n|---|---|---|{COLUMNS_RULE}\n",
        scale.written_servers,
        scale.written_data(),
        scale.mbit_shared,
        size(u64::from(scale.buffers[0]))
    );
    for system in [System::NoWindow, System::Shoal] {
        for &clients in &scale.writers {
            let run = measured.run(scale.write(system, clients));
            let fairness = fairness(run);
            let _ = writeln!(text, "| {} | {clients} | {fairness} | {} |", system.title(), cells(run));
        }
    }
    text
}

fn probes(measured: &Measured) -> String {
    let mut text = String::from(
        "## What the probe says\n\n\
         `shoal net probe` at the client, for each port. *Knee*: from how many bricks at once on reads wait for timeouts. Bursts\n\
         come hardly faster here than the port sends, because all servers share the cores: they may be several times as large\n\
         as the port's buffer.\n\n\
         | the port has | burst that arrives whole | that does not | knee | MB/s | least round trip, us |\n|---|---|---|---|---|---|\n",
    );
    for probe in &measured.probes {
        let broken = probe.broken.map_or("-".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
        let _ = writeln!(
            text,
            "| {} | {} KiB | {broken} | {} | {:.1} | {} |",
            size(u64::from(probe.port)),
            probe.whole >> 10,
            probe.knee.map_or("-".to_owned(), |senders| senders.to_string()),
            probe.rate,
            probe.round_trip
        );
    }
    text
}

fn tail(measured: &Measured) -> String {
    let hot = measured.runs.iter().filter(|run| run.busy > BUSY).count();
    format!(
        "## What limits what\n\n\
         The cores were busy for more than {:.0} % of the time in {hot} of {} runs, and may have been the limit there (!): all\n\
         nodes and the router share them. Timeouts of TCP do not become shorter with the rate of a link, so the link is as fast\n\
         as the cores allow. Each run is measured once.\n\n\
         ## Repeat it\n\n\
         ```sh\nshoal paper 004              # as root; iproute2 and FUSE; writes docs/papers/004.*\n\
         shoal paper 004 --quick      # a minute, to see that it works\n```\n\n\
         GlusterFS (`glusterfs-server`) is measured too if it is installed. Nodes, links, mounts and the RAM of the disks are in\n\
         namespaces that the kernel clears away, however the command ends.\n",
        BUSY * 100.0,
        measured.runs.len()
    )
}

fn tasks_picture(measured: &Measured, buffer: u32, title: &str) -> String {
    let scale = &measured.scale;
    let names: Vec<String> = scale.tasks.iter().map(|tasks| format!("{tasks} tasks")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rates = |system, way| {
        let rate = |tasks: &u32| measured.run(measured.tasks(system, way, *tasks, buffer)).map(Run::rate);
        scale.tasks.iter().map(rate).collect()
    };
    let titles: Vec<(String, System, Way)> = systems(measured)
        .flat_map(|system| Way::ALL.map(|way| (format!("{}: {}", system.title(), way.title()), system, way)))
        .collect();
    let series: Vec<Series<'_>> =
        titles.iter().map(|(title, system, way)| (&**title, rates(*system, *way))).collect();
    let wire = format!("what {} Mbit/s carry", scale.mbit);
    let axes = Axes { title, x: "", y: "MB/s", level: Some((payload(scale.mbit), &wire)) };
    bar_chart(&axes, &names, &series)
}

fn clients_picture(measured: &Measured) -> String {
    let scale = &measured.scale;
    let counts: Vec<u32> = (1..=scale.clients).collect();
    let shares = |system| {
        let point = |clients: &u32| measured.clients(system, *clients, scale.buffers[0]);
        counts.iter().map(|clients| measured.run(point(clients)).map(Run::share)).collect()
    };
    let series: Vec<Series<'_>> = systems(measured).map(|system| (system.title(), shares(system))).collect();
    let axes = Axes {
        title: "Reads of several clients behind the small buffer",
        x: "clients",
        y: "share of their wires",
        level: Some((1.0, "all of it")),
    };
    line_chart(&axes, &counts.iter().map(|count| f64::from(*count)).collect::<Vec<_>>(), &series)
}

fn ports_picture(measured: &Measured) -> String {
    let scale = &measured.scale;
    let shares = |system, port| {
        let point = |senders: &u32| measured.senders(system, *senders, port);
        scale.senders.iter().map(|senders| measured.run(point(senders)).map(Run::share)).collect()
    };
    let ports = [scale.ports.first(), scale.ports.last()];
    let mut titles = Vec::new();
    for system in [System::NoWindow, System::Shoal] {
        titles.extend(
            ports
                .into_iter()
                .flatten()
                .map(|port| (format!("{}, {}", system.title(), size(u64::from(*port))), system, *port)),
        );
    }
    titles.dedup_by(|one, other| one.0 == other.0);
    let series: Vec<Series<'_>> =
        titles.iter().map(|(title, system, port)| (&**title, shares(*system, *port))).collect();
    let axes = Axes {
        title: "Reads by how many servers send",
        x: "servers",
        y: "share of the wire",
        level: Some((1.0, "all of it")),
    };
    line_chart(&axes, &scale.senders.iter().map(|count| f64::from(*count)).collect::<Vec<_>>(), &series)
}
