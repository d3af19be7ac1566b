//! The page and its pictures.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::claims::claims;
use super::mechanisms::{MECHANISMS, NOTE};
use super::runs::{Measured, Point};
use super::scale::{FAST, SLOW};
use super::service::AccessPath;
use super::small_write::CLASSIC;
use crate::chart::{Axes, Series, bar_chart, line_chart};
use crate::document::{self, MB, size, written};
use crate::load::Item;
use crate::mechanism;
use crate::verdict;

/// The capacity of a link in MB/s.
fn wire(mbit: u32) -> f64 {
    f64::from(mbit) / 8.0
}

/// Bytes on the wire per byte written. Above this, stripes are not written whole: in the centralised arrangement a byte
/// takes two, and its parity.
const PARTS: f64 = 3.0;
/// The share of busy time above which the cores may have been the limit.
const BUSY: f64 = 0.85;

/// The page, its pictures and all runs, as files by name.
pub fn files(measured: &Measured) -> Vec<(&'static str, String)> {
    vec![
        ("001.json", format!("{:#}\n", measured.to_json())),
        ("001.md", page(measured)),
        ("001-table3.svg", table3_picture(measured)),
        ("001-fig7.svg", fig7_picture(measured)),
        ("001-fig8-write.svg", fig8_picture(measured, true)),
        ("001-fig8-read.svg", fig8_picture(measured, false)),
        ("001-fig9.svg", fig9_picture(measured)),
    ]
}

/// The page, in Markdown.
pub fn page(measured: &Measured) -> String {
    let parts = [
        head(measured),
        verdict::table(&claims(measured)),
        how(measured),
        table3(measured),
        fig7(measured),
        fig8(measured),
        fig9(measured),
        small_write(measured),
        mechanism::table(&MECHANISMS, NOTE),
        tail(measured),
    ];
    parts.join("\n")
}

fn head(measured: &Measured) -> String {
    let quick = verdict::quick_note(measured.scale.is_quick);
    format!(
        "# Paper 001: single I/O space from network block devices\n\n\
         Kim, Kim and Kim (Yonsei University, 2006) let one server import the disks of up to 16 PCs as network block devices\n\
         (ENBD), join them by software RAID-5, and export the whole by NFS. They measured with Bonnie what of the disks' speed\n\
         is left, and found the server's network to be the bottleneck. This page repeats their experiments with Shoal in both\n\
         ways: their centralised arrangement, and peer to peer, where each node finds the bricks by itself.\n\n\
         {quick}{}\n",
        written("001", measured.seconds)
    )
}

fn how(measured: &Measured) -> String {
    let scale = &measured.scale;
    let widths: Vec<String> = scale.widths.iter().map(u32::to_string).collect();
    let rows = [
        (
            "nodes",
            "16 PCs, Pentium 4".to_owned(),
            format!("{} network namespaces of one machine with {} cores", scale.nodes(), measured.cores),
        ),
        (
            "links",
            "10 and 100 Mbit/s, switching hub".into(),
            format!(
                "the same: veth pairs on a bridge, a token bucket at each end of each link, {} KiB of queue, TCP reno",
                FAST.queue >> 10
            ),
        ),
        (
            "disks",
            "1 GB of each node's disk".into(),
            format!("{} in RAM, so that links are what is measured", size(scale.brick)),
        ),
        (
            "RAID",
            "5, over 2 to 16 nodes".into(),
            format!("code (N-1)+1 over N = {} nodes, units of {} KiB", widths.join(", "), scale.unit >> 10),
        ),
        (
            "load",
            "Bonnie, 500 MB, blocks of 16 KB".into(),
            format!(
                "the same items, {} ({} each where several nodes share a gate); a write's time ends when all is stable; \
             what is read is compared",
                size(scale.bytes),
                size(scale.bytes_shared)
            ),
        ),
        (
            "caches",
            "disk buffers of 4 MB".into(),
            format!(
                "at most {} held back by a mount or gate, {} for each client where several share a gate; mounts and gates \
                 are restarted before anything is read",
                size(scale.cache()),
                size(scale.cache_shared())
            ),
        ),
        (
            "repetitions",
            "10, averaged".into(),
            format!(
                "{} at {} Mbit/s, {} at {} Mbit/s, averaged",
                scale.repetitions, FAST.mbit, scale.repetitions_slow, SLOW.mbit
            ),
        ),
    ];
    document::how(&rows)
        + "\nThe metadata service is at the first node. *Centralised*: all bricks' processes run at the first node, over NBD\n\
         (`nbdkit`) to the other nodes' disks; `shoal nfs` there serves all clients, which are 16 requests of 64 KiB ahead, as a\n\
         kernel's client would be. *Peer to peer*: each node's disk is served by a brick at that node, and each client mounts the\n\
         volume by itself. MB are 10^6 bytes; a link of 100 Mbit/s carries 12.5 MB/s, 11.9 of them without headers.\n"
}

/// The note below tables with a column for bytes on the wire.
const WIRE_PER_BYTE: &str =
    "\n*Wire per byte*: bytes on all links, headers counted, for one that is written or read.\n";

fn number(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.2}"))
}

/// A row of the paper's Table 3: our way, its name for it, and its block write and block read in MB/s.
type Table3Row = (AccessPath, &'static str, Option<(f64, f64)>);

const TABLE3: [Table3Row; 6] = [
    (AccessPath::Local, "local disk", Some((28.80, 42.14))),
    (AccessPath::FileGate, "(not measured)", None),
    (AccessPath::NfsGate, "NFS", Some((7.66, 12.93))),
    (AccessPath::BlockGate, "ENBD", Some((7.23, 11.00))),
    (AccessPath::GatheredFileGate, "(not measured)", None),
    (AccessPath::Centralised, "NFS + ENBD", Some((3.99, 10.10))),
];

fn table3(measured: &Measured) -> String {
    let mut text = format!(
        "## Table 3 (001-E1): four ways to the bytes\n\n\
         {} nodes at {} Mbit/s, one of them at work, MB/s.\n\n\
         ![Table 3](001-table3.svg)\n\n\
         | here | block write | block read | of the wire | cores busy | the paper's | block write | block read |\n\
         |---|---|---|---|---|---|---|---|\n",
        measured.scale.nodes(),
        FAST.mbit
    );
    for (way, name, paper) in TABLE3 {
        let point = measured.service(way);
        let rates = [Item::WriteBlocks, Item::ReadBlocks].map(|item| measured.rate(point, item));
        let share = |rate: Option<f64>| {
            if way == AccessPath::Local {
                return "-".to_owned();
            }
            rate.map_or("-".to_owned(), |rate| format!("{:.0} %", rate / wire(FAST.mbit) * 100.0))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}, {} | {} | {name} | {} | {} |",
            way.title(),
            number(rates[0]),
            number(rates[1]),
            share(rates[0]),
            share(rates[1]),
            busy(measured, &[point]),
            number(paper.map(|(write, _)| write)),
            number(paper.map(|(_, read)| read)),
        );
    }
    text.push_str(
        "\nThe *local disk* is a file in the same RAM that the bricks are in: neither network nor Shoal. *File gate*: a mount of a\n\
         volume whose bricks are on the nodes. *NFS gate* and *block gate*: `shoal nfs` and `shoal nbd` at the node that works,\n\
         for a client there that is 16 requests of 64 KiB ahead. The last two are the centralised arrangement: the gate's node\n\
         itself by its own mount, and another node by NFS. The paper's NFS is a server with its own disk and a client at another\n\
         node; here only the bytes between the gate and the bricks pass links.\n",
    );
    text
}

fn table3_picture(measured: &Measured) -> String {
    let ways = &TABLE3[1..];
    let names = ["file gate", "NFS gate", "block gate", "gathered bricks", "gathered, by NFS"];
    let here = |item| ways.iter().map(|(way, ..)| measured.rate(measured.service(*way), item)).collect();
    let paper = |pick: fn((f64, f64)) -> f64| ways.iter().map(|(_, _, paper)| paper.map(pick)).collect();
    let series: [Series<'_>; 4] = [
        ("block write, here", here(Item::WriteBlocks)),
        ("block write, the paper", paper(|(write, _)| write)),
        ("block read, here", here(Item::ReadBlocks)),
        ("block read, the paper", paper(|(_, read)| read)),
    ];
    let axes = Axes {
        title: "Table 3: ways to the bytes, one node at work",
        x: "way",
        y: "MB/s",
        level: Some((wire(FAST.mbit), "100 Mbit/s")),
    };
    bar_chart(&axes, &names, &series)
}

fn fig7(measured: &Measured) -> String {
    let (fast, slow) = (measured.peers(1, FAST.mbit), measured.peers(1, SLOW.mbit));
    let mut text = format!(
        "## Figure 7 (001-E2): 10 and 100 Mbit/s\n\n\
         {} nodes, one of them at work, peer to peer, MB/s.\n\n\
         ![Figure 7](001-fig7.svg)\n\n\
         | item | 10 Mbit/s | 100 Mbit/s | ratio | the paper's ratio | char of block at 100 | the paper's | wire per byte at 10 | at 100 |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        measured.scale.nodes()
    );
    for item in Item::ALL {
        let is_chars = item.file() == Item::PutChars.file();
        let blocks = if item.writes() { Item::WriteBlocks } else { Item::ReadBlocks };
        let share = measured.rate(fast, item).zip(measured.rate(fast, blocks)).map(|(c, b)| c / b * 100.0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {} | {} | {} | {} | {} |",
            item.title(),
            number(measured.rate(slow, item)),
            number(measured.rate(fast, item)),
            measured.ratio(item, fast, slow),
            if is_chars { "4" } else { "12 to 14" },
            share.filter(|_| is_chars).map_or("-".into(), |share| format!("{share:.0} %")),
            if is_chars { "30 %" } else { "-" },
            number(measured.wire_per_byte(slow, item)),
            number(measured.wire_per_byte(fast, item)),
        );
    }
    let _ = writeln!(
        text,
        "\nCores busy: {} at 100 Mbit/s, {} at 10.",
        busy(measured, &[fast]),
        busy(measured, &[slow])
    );
    text.push_str(WIRE_PER_BYTE);
    let (slow_wire, fast_wire) =
        (measured.wire_per_byte(slow, Item::WriteBlocks), measured.wire_per_byte(fast, Item::WriteBlocks));
    if slow_wire > fast_wire.map(|wire| wire * 1.1) {
        let _ = writeln!(
            text,
            "\nAt 10 Mbit/s some stripes are sent twice: the {} that a mount may hold back keep its link busy for about as long\n\
             as a client waits for bricks before it sends a stripe to its primary instead (5 s).",
            size(measured.scale.cache())
        );
    }
    text
}

fn fig7_picture(measured: &Measured) -> String {
    let of = |mbit| Item::ALL.iter().map(|item| measured.rate(measured.peers(1, mbit), *item)).collect();
    let series: [Series<'_>; 2] = [("10 Mbit/s", of(SLOW.mbit)), ("100 Mbit/s", of(FAST.mbit))];
    let axes = Axes {
        title: "Figure 7: one node at work, 10 and 100 Mbit/s",
        x: "item",
        y: "MB/s",
        level: Some((wire(FAST.mbit), "100 Mbit/s")),
    };
    bar_chart(&axes, &Item::ALL.map(Item::title), &series)
}

fn fig8(measured: &Measured) -> String {
    let most = measured.scale.clients;
    let mut text = format!(
        "## Figure 8 (001-E3): several nodes at once\n\n\
         {} nodes at {} Mbit/s; the first, which is the centralised arrangement's gate, does not work itself. Total MB/s.\n\n\
         ![Figure 8, writes](001-fig8-write.svg)\n\n![Figure 8, reads](001-fig8-read.svg)\n\n\
         | nodes at work | centralised write | read | wire per byte written | cores busy | peer to peer write | read | \
         char write | char read | wire per byte written | cores busy |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        measured.scale.nodes(),
        FAST.mbit
    );
    for clients in 1..=most {
        let (central, peers) = (measured.central(clients), measured.peers(clients, FAST.mbit));
        let _ = writeln!(
            text,
            "| {clients} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            number(measured.rate(central, Item::WriteBlocks)),
            number(measured.rate(central, Item::ReadBlocks)),
            number(measured.wire_per_byte(central, Item::WriteBlocks)),
            busy(measured, &[central]),
            number(measured.rate(peers, Item::WriteBlocks)),
            number(measured.rate(peers, Item::ReadBlocks)),
            number(measured.rate(peers, Item::PutChars)),
            number(measured.rate(peers, Item::GetChars)),
            number(measured.wire_per_byte(peers, Item::WriteBlocks)),
            busy(measured, &[peers]),
        );
    }
    text.push_str(
        "\nThe paper has no numbers for this figure: totals rise, not in proportion, and writes saturate at four nodes or more.\n",
    );
    text.push_str(WIRE_PER_BYTE);
    let parts = |n: &u32| measured.wire_per_byte(measured.central(*n), Item::WriteBlocks) > Some(PARTS);
    if let Some(clients) = (1..=most).find(parts) {
        let _ = writeln!(
            text,
            "\nFrom {clients} nodes at work on the centralised arrangement writes more than its link alone explains: the gate has not\n\
             held back whole stripes, and parity is made from parts of them. So gains are told over the best that it reaches with\n\
             any number of clients."
        );
    } else {
        let _ = writeln!(
            text,
            "\nThe centralised arrangement's gate may hold back {} for each of its clients, which are whole stripes: what its writes\n\
             end at is its link, not its memory.",
            size(measured.scale.cache_shared())
        );
    }
    text
}

fn fig8_picture(measured: &Measured, writes: bool) -> String {
    let clients: Vec<u32> = (1..=measured.scale.clients).collect();
    let of =
        |point: &dyn Fn(u32) -> Point, item| clients.iter().map(|n| measured.rate(point(*n), item)).collect();
    let (blocks, chars) =
        if writes { (Item::WriteBlocks, Item::PutChars) } else { (Item::ReadBlocks, Item::GetChars) };
    let peers = |n| measured.peers(n, FAST.mbit);
    let central = |n| measured.central(n);
    let series: [Series<'_>; 3] = [
        ("peer to peer, blocks", of(&peers, blocks)),
        ("peer to peer, characters", of(&peers, chars)),
        ("centralised, blocks", of(&central, blocks)),
    ];
    let title =
        if writes { "Figure 8: several nodes write at once" } else { "Figure 8: several nodes read at once" };
    let level = Some((wire(FAST.mbit), "one link"));
    let axes = Axes { title, x: "nodes at work", y: "MB/s, all together", level };
    line_chart(&axes, &clients.iter().map(|n| f64::from(*n)).collect::<Vec<_>>(), &series)
}

fn fig9(measured: &Measured) -> String {
    let mut text = format!(
        "## Figure 9 (001-E4): 2 to {} nodes\n\n\
         Only the first node works, at {} Mbit/s, MB/s: peer to peer, and centralised, where all bricks are gathered at that node\n\
         and their disks are at the others. The paper has ratios to CDD only, another system that cannot be had any more: twice\n\
         the character writes, 5.5 times the block writes, 2.3 times the block reads.\n\n\
         ![Figure 9](001-fig9.svg)\n\n| nodes | code |",
        measured.scale.nodes(),
        FAST.mbit
    );
    for way in ["", "centralised "] {
        for item in Item::ALL {
            let _ = write!(text, " {way}{} |", item.title());
        }
        text.push_str(" cores busy |");
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for &nodes in &measured.scale.widths {
        let _ = write!(text, "| {nodes} | {}+1 |", nodes - 1);
        for point in [measured.width(nodes), measured.gathered(nodes)] {
            for item in Item::ALL {
                let _ = write!(text, " {} |", number(measured.rate(point, item)));
            }
            let _ = write!(text, " {} |", busy(measured, &[point]));
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "\nThe centralised arrangement is not measured at every width: all of it is to take ten minutes at most.\n\n\
         With {} nodes at work, peer to peer reaches {:.1} times the block writes and {:.1} times the block reads of the best of\n\
         the centralised arrangement.",
        measured.scale.clients,
        measured.gain(Item::WriteBlocks),
        measured.gain(Item::ReadBlocks)
    );
    text
}

fn fig9_picture(measured: &Measured) -> String {
    let widths = &measured.scale.widths;
    let of = |item: Item| {
        let rates = widths.iter().map(|nodes| measured.rate(measured.width(*nodes), item)).collect();
        (item.title(), rates)
    };
    let gathered = |item| widths.iter().map(|nodes| measured.rate(measured.gathered(*nodes), item)).collect();
    let mut series: Vec<Series<'_>> = Item::ALL.map(of).to_vec();
    series.push(("centralised, block write", gathered(Item::WriteBlocks)));
    series.push(("centralised, block read", gathered(Item::ReadBlocks)));
    let axes = Axes {
        title: "Figure 9: the first node at work",
        x: "nodes in the RAID",
        y: "MB/s",
        level: Some((wire(FAST.mbit), "100 Mbit/s")),
    };
    line_chart(&axes, &widths.iter().map(|n| f64::from(*n)).collect::<Vec<_>>(), &series)
}

fn small_write(measured: &Measured) -> String {
    let small = &measured.small_write;
    let row = |count: u64| format!("{:.2}", small.each(count));
    let (durable, later) = (small.durable, small.later);
    format!(
        "## The small write, counted\n\n\
         {} overwrites of 4 KiB all over a file of {} nodes' RAID-5, each followed by `fdatasync`. Every disk is an NBD server that\n\
         notes each request. Accesses of all disks together, for one overwrite:\n\n\
         | | reads | writes | reads and writes | syncs |\n|---|---|---|---|---|\n\
         | classic RAID-5 | 2 | 2 | {CLASSIC} | - |\n\
         | until it is durable | {} | {} | {} | {} |\n\
         | put off: folding, checkpoints | {} | {} | {} | {} |\n\n\
         Over all links together an overwrite and its `fdatasync` cost {} packets and {} bytes, headers and the metadata service\n\
         counted, heart beats not. The file lies in one group: where its primary is at the node that works, the bytes cross one\n\
         link, elsewhere two.\n",
        small.overwrites,
        measured.scale.nodes(),
        row(durable.reads),
        row(durable.writes),
        row(durable.reads + durable.writes),
        row(durable.syncs),
        row(later.reads),
        row(later.writes),
        row(later.reads + later.writes),
        row(later.syncs),
        small.packets / small.overwrites.max(1),
        small.wire / small.overwrites.max(1),
    )
}

/// How busy the cores were in the runs of some points: mean and most.
fn busy(measured: &Measured, points: &[Point]) -> String {
    let runs = points.iter().flat_map(|point| Item::ALL.map(|item| measured.of(*point, item)));
    let shares: Vec<f64> = runs.flatten().map(|run| run.busy).collect();
    if shares.is_empty() {
        return "-".to_owned();
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let most = shares.iter().copied().fold(0.0, f64::max);
    let mark = if most > BUSY { " (!)" } else { "" };
    format!("{:.0} %, at most {:.0} %{mark}", mean * 100.0, most * 100.0)
}

/// The access paths and numbers of clients at which the cores may have been the limit.
fn hot(measured: &Measured) -> Vec<String> {
    let over_links = measured.runs.iter().filter(|run| run.point.way != AccessPath::Local);
    let hot = over_links.filter(|run| run.busy > BUSY).map(|run| (run.point.way, run.point.clients));
    let places: BTreeSet<(AccessPath, u32)> = hot.collect();
    places.into_iter().map(|(way, clients)| format!("{} ({clients} at work)", way.title())).collect()
}

fn tail(measured: &Measured) -> String {
    let dropped: u64 = measured.runs.iter().map(|run| run.dropped).sum();
    let over: u64 = measured.runs.iter().map(|run| run.wire).sum();
    let hot = hot(measured);
    let cores = if hot.is_empty() {
        format!("In no run over links were the cores busy for more than {:.0} % of their time.", BUSY * 100.0)
    } else {
        format!(
            "The cores were busy for more than {:.0} % of their time, and may have been the limit, in: {}.",
            BUSY * 100.0,
            hot.join("; ")
        )
    };
    format!(
        "## What limits what\n\n\
         {cores} Queues of links dropped {dropped} packets while {:.0} MB went over them.\n\n\
         ## Repeat it\n\n\
         ```sh\nshoal paper 001              # as root; iproute2, FUSE and nbdkit; writes docs/papers/001.*\n\
         shoal paper 001 --quick      # a minute, to see that it works\n```\n\n\
         Nodes, links, mounts and the RAM of the disks are in namespaces that the kernel clears away, however the command ends.\n",
        over as f64 / MB
    )
}
