//! The page and its pictures.

use std::fmt::Write;

use super::claims::{BUSY, PAPER, PAPER_CLIENTS, claims};
use super::mechanisms::{MECHANISMS, NOTE};
use super::runs::{Measured, Point, Run, Setting, System};
use super::scale::{BLOCKS, CLIENTS, PAGE, SERVERS};
use crate::chart::{Axes, Series, bar_chart};
use crate::document::{self, MB, size, written};
use crate::load::readers::Order;
use crate::mechanism;
use crate::verdict;

/// The page, its pictures and all runs, as files by name.
pub fn files(measured: &Measured) -> Vec<(&'static str, String)> {
    let mut files = vec![
        ("000.json", format!("{:#}\n", measured.to_json())),
        ("000.md", page(measured)),
        ("000-fig4.svg", rates_picture(measured, System::Shoal, Order::Random, "Figure 4: random reads")),
        (
            "000-fig5.svg",
            rates_picture(measured, System::Shoal, Order::Sequential, "Figure 5: sequential reads"),
        ),
        ("000-fig6.svg", clients_picture(measured)),
        ("000-gains.svg", gains_picture(measured)),
    ];
    if measured.gluster.is_ok() {
        let title = "GlusterFS: random reads";
        files.push(("000-gluster.svg", rates_picture(measured, System::Gluster, Order::Random, title)));
    }
    files
}

/// The page, in Markdown.
pub fn page(measured: &Measured) -> String {
    let parts = [
        head(measured),
        verdict::table(&claims(measured)),
        how(measured),
        figures(measured),
        clients(measured),
        threads(measured),
        gluster(measured),
        mechanism::table(&MECHANISMS, NOTE),
        tail(measured),
    ];
    parts.join("\n")
}

fn head(measured: &Measured) -> String {
    let quick = verdict::quick_note(measured.scale.is_quick);
    format!(
        "# Paper 000: the translators of GlusterFS on SSDs\n\n\
         Kim, Eom and Yeom (Seoul National University, 2016) read files of a GlusterFS volume on SSDs, and found that three\n\
         translators of its client, io-cache, read-ahead and write-behind, suit large sequential reads and cost small random\n\
         ones most of the network: io-cache fetches a page of 128 KiB for each 4 KiB. They removed the three. This page repeats\n\
         their experiments with Shoal, whose translators `shoal tune` turns off and on while the volume is mounted, and with\n\
         GlusterFS itself.\n\n\
         {quick}{}\n",
        written("000", measured.seconds)
    )
}

fn how(measured: &Measured) -> String {
    let scale = &measured.scale;
    let rows = [
        (
            "nodes",
            "2 servers, 2 clients, 4 cores and 8 GB each".to_owned(),
            format!(
                "{} network namespaces of one machine with {} cores, which they share",
                SERVERS + CLIENTS,
                measured.cores
            ),
        ),
        (
            "links",
            "10 Gbit/s".into(),
            format!(
                "{} Mbit/s, a token bucket at each end of each link: a rate that this machine fills with cores to spare; \
                 {} where clients are added, {} where threads are",
                scale.mbit, scale.mbit_shared, scale.mbit_wide
            ),
        ),
        ("disks", "an SSD of 256 GB in each server, XFS".into(), format!("{} in RAM", size(scale.brick))),
        (
            "volume",
            "GlusterFS 3.6, distributed: no redundancy".into(),
            format!("code 1+0, units of {} KiB: no redundancy, extents of all files on both bricks", scale.unit >> 10),
        ),
        (
            "load",
            "fio, buffered reads, 16 jobs with a file of 8 GB each, 600 s".into(),
            format!(
                "buffered reads, {} jobs with a file of {} each. At random: {:.1} s, after {:.2} s that do not count. In sequence: the last {} of each file, from the first byte asked for to the last that came, so what was fetched ahead is not counted as read, nor lost. What is read is compared",
                scale.jobs,
                size(scale.file),
                scale.millis as f64 / 1e3,
                scale.ramp as f64 / 1e3,
                size(scale.tail)
            ),
        ),
        (
            "caches",
            "files larger than memory".into(),
            "what the kernel has of a file is dropped before each run, and no run reads a block twice; io-cache may keep \
             1 MiB in all runs of Shoal, and GlusterFS 16 MB, in which the pages have room that its read-ahead fetches for all \
             jobs: what is read comes from the bricks"
                .into(),
        ),
        (
            "with the translators",
            "the default of GlusterFS 3.6".into(),
            format!("`io-cache=on io-cache.page={}K read-ahead=on write-behind=on`", PAGE >> 10),
        ),
        (
            "without them",
            "removed from the volume's graph".into(),
            "`io-cache=off read-ahead=off write-behind=off`, by `shoal tune`, while mounted and between runs".into(),
        ),
        (
            "a client's loop",
            "one thread".into(),
            "`shoal mount --threads 1`; GlusterFS: `client.event-threads` 1".into(),
        ),
        (
            "repetitions",
            "not told".into(),
            format!("{}, by turns of the settings; the median counts", scale.rounds),
        ),
    ];
    document::how(&rows)
        + "\nMB are 10^6 bytes. *On the wire*: bytes that the client's link brought, headers counted. Reads are buffered, as in the\n\
            paper, because with `O_DIRECT` the kernel would not read ahead in sequence, neither there nor here. Random readers\n\
            say so (`posix_fadvise`), as those of fio do: then the kernel asks for no more than they do.\n"
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn figures(measured: &Measured) -> String {
    let mut text = String::from(
        "## Figures 4 and 5 (000-E1, 000-E2): one client\n\n\
         ![Figure 4](000-fig4.svg)\n\n![Figure 5](000-fig5.svg)\n\n![Gains](000-gains.svg)\n\n",
    );
    text.push_str(&table(measured, System::Shoal, &Setting::ALL));
    text + "\nA *gain* is the rate without the translators over that with them.\n"
}

/// Rates and bytes on the wire of all rows, beside the paper's.
fn table(measured: &Measured, system: System, settings: &[Setting]) -> String {
    let titles: Vec<String> =
        settings.iter().map(|setting| format!("{}, MB/s | wire per byte", setting.title())).collect();
    let mut text = format!(
        "| order | KiB | {} | cores busy | gain | the paper's on, MB/s | off, MB/s | gain |\n|---|---|{}---|---|---|---|---|\n",
        titles.join(" | "),
        "---|---|".repeat(settings.len())
    );
    for (_, order, block, paper) in PAPER {
        let of = |setting| measured.point(system, order, block, setting);
        let cells: Vec<String> = settings
            .iter()
            .map(|&setting| {
                format!(
                    "{} | {}",
                    number(measured.rate(of(setting))),
                    number(measured.wire_per_byte(of(setting)))
                )
            })
            .collect();
        let points: Vec<Point> = settings.iter().map(|&setting| of(setting)).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            order.title(),
            block >> 10,
            cells.join(" | "),
            busy(measured, &points),
            number(measured.gain(system, order, block)),
            paper.map_or("10 GbE".to_owned(), |(with, _)| format!("{:.0}", with / 1000.0)),
            paper.map_or("10 GbE".to_owned(), |(_, without)| format!("{:.0}", without / 1000.0)),
            paper.map_or("1".to_owned(), |(with, without)| format!("{:.2}", without / with)),
        );
    }
    text
}

fn clients(measured: &Measured) -> String {
    let mut text = format!(
        "## Figure 6 (000-E3): two clients at once\n\n\
         Random reads without the translators, each client by one thread, links of {} Mbit/s: both clients have the cores of one\n\
         machine, so together they may have what one has above. All of them read the same files, each in an order of its own.\n\n\
         ![Figure 6](000-fig6.svg)\n\n\
         | system | KiB | one client, MB/s | two, MB/s | ratio | cores busy | the paper's two, MB/s | ratio |\n\
         |---|---|---|---|---|---|---|---|\n",
        measured.scale.mbit_shared
    );
    for system in System::ALL {
        for (_, block, paper, ratio) in PAPER_CLIENTS {
            let [one, both] = [1, CLIENTS].map(|clients| measured.clients(system, block, clients));
            if measured.rate(both).is_none() {
                continue;
            }
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {:.0} | {ratio:.2} |",
                system.title(),
                block >> 10,
                number(measured.rate(one)),
                number(measured.rate(both)),
                number(measured.second_client(system, block)),
                busy(measured, &[one, both]),
                paper / 1000.0,
            );
        }
    }
    text
}

fn threads(measured: &Measured) -> String {
    let mut text = format!(
        "## One loop, and several\n\n\
         The paper's client has one loop that waits for the network, and it was busy all the time; later versions of GlusterFS\n\
         have several. `shoal mount` has four threads unless it is told otherwise. Random reads without the translators, one\n\
         client, links of {} Mbit/s, so that they are not the limit:\n\n\
         | KiB | one thread, MB/s | four, MB/s | ratio | cores busy |\n|---|---|---|---|---|\n",
        measured.scale.mbit_wide
    );
    for block in BLOCKS {
        let [one, usual] = [1, 0].map(|threads| measured.threads(block, threads));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            block >> 10,
            number(measured.rate(one)),
            number(measured.rate(usual)),
            number(measured.more_threads(block)),
            busy(measured, &[one, usual])
        );
    }
    text
}

fn gluster(measured: &Measured) -> String {
    match &measured.gluster {
        Ok(version) => format!(
            "## GlusterFS {version}\n\n\
             The same links, files and reads, and a distributed volume over two bricks in RAM. `on` and `off` are\n\
             `performance.io-cache`, `performance.read-ahead` and `performance.write-behind`; this version has the first two off\n\
             unless they are set. Its io-cache always has pages of 128 KiB.\n\n![GlusterFS](000-gluster.svg)\n\n{}",
            table(measured, System::Gluster, &[Setting::On, Setting::Off])
        ),
        Err(why) => format!("## GlusterFS\n\nIt was not measured: {why}.\n"),
    }
}

/// The mean and the largest share of busy time of some points; marked if the cores may have been the limit.
fn busy(measured: &Measured, points: &[Point]) -> String {
    let shares: Vec<f64> =
        points.iter().filter_map(|point| measured.median(*point, |run| run.busy)).collect();
    if shares.is_empty() {
        return "-".to_owned();
    }
    let text: Vec<String> = shares.iter().map(|share| format!("{:.0}", share * 100.0)).collect();
    let mark = if shares.iter().any(|share| *share > BUSY) { " (!)" } else { "" };
    format!("{} %{mark}", text.join(", "))
}

fn tail(measured: &Measured) -> String {
    let dropped: u64 = measured.runs.iter().map(|run| run.dropped).sum();
    let over: u64 = measured.runs.iter().map(|run| run.wire).sum();
    let hot = measured.runs.iter().filter(|run| run.busy > BUSY).count();
    format!(
        "## What limits what\n\n\
         The cores were busy for more than {:.0} % of the time in {hot} of {} runs, and may have been the limit there (!). All\n\
         nodes share them, so what a second client or more threads bring cannot show where they are busy already. Queues of\n\
         the clients' links dropped {dropped} packets while {:.0} MB went over them.\n\n\
         ## Repeat it\n\n\
         ```sh\nshoal paper 000              # as root; iproute2 and FUSE; writes docs/papers/000.*\n\
         shoal paper 000 --quick      # a minute, to see that it works\n```\n\n\
         GlusterFS (`glusterfs-server`) is measured too if it is installed. Nodes, links, mounts and the RAM of the disks are in\n\
         namespaces that the kernel clears away, however the command ends.\n",
        BUSY * 100.0,
        measured.runs.len(),
        over as f64 / MB
    )
}

fn names() -> [String; 3] {
    BLOCKS.map(|block| format!("{} KiB", block >> 10))
}

fn bars(axes: &Axes<'_>, series: &[Series<'_>]) -> String {
    let names = names();
    bar_chart(axes, &names.each_ref().map(String::as_str), series)
}

fn rates_picture(measured: &Measured, system: System, order: Order, title: &str) -> String {
    let of = |setting, value: fn(&Run) -> f64| {
        BLOCKS.map(|block| measured.median(measured.point(system, order, block, setting), value)).to_vec()
    };
    let mut series: Vec<Series<'_>> = vec![
        ("with the translators", of(Setting::On, Run::rate)),
        ("without them", of(Setting::Off, Run::rate)),
    ];
    if system == System::Shoal {
        series.push(("auto", of(Setting::Auto, Run::rate)));
    }
    series.push(("on the wire, with", of(Setting::On, Run::wire_rate)));
    series.push(("on the wire, without", of(Setting::Off, Run::wire_rate)));
    let link = format!("{} Mbit/s", measured.scale.mbit);
    let axes = Axes { title, x: "bytes of a read", y: "MB/s", level: Some((measured.scale.wire(), &link)) };
    bars(&axes, &series)
}

fn gains_picture(measured: &Measured) -> String {
    let gains = |system| BLOCKS.map(|block| measured.gain(system, Order::Random, block)).to_vec();
    let paper =
        PAPER.iter().take(BLOCKS.len()).map(|(.., rates)| rates.map(|(with, without)| without / with));
    let mut series: Vec<Series<'_>> = vec![("the paper", paper.collect()), ("Shoal", gains(System::Shoal))];
    if measured.gluster.is_ok() {
        series.push(("GlusterFS", gains(System::Gluster)));
    }
    let axes = Axes {
        title: "Random reads without the translators, over those with them",
        x: "bytes of a read",
        y: "times",
        level: Some((1.0, "no gain")),
    };
    bars(&axes, &series)
}

fn clients_picture(measured: &Measured) -> String {
    let ratios = |system| BLOCKS.map(|block| measured.second_client(system, block)).to_vec();
    let paper = PAPER_CLIENTS.map(|(.., ratio)| Some(ratio)).to_vec();
    let mut series: Vec<Series<'_>> = vec![("the paper", paper), ("Shoal", ratios(System::Shoal))];
    if measured.gluster.is_ok() {
        series.push(("GlusterFS", ratios(System::Gluster)));
    }
    let axes = Axes {
        title: "Figure 6: two clients over one, without the translators",
        x: "bytes of a read",
        y: "times",
        level: Some((1.0, "no gain")),
    };
    bars(&axes, &series)
}
