//! The page.

use std::fmt::Write;

use super::claims::claims;
use super::mechanisms::{MECHANISMS, NOTE};
use super::model::{BASELINES, Cell, IMPOSSIBLE, READINGS, figure, impossible};
use super::pictures::{kib, pictures};
use super::runs::{Measured, Reader, Turns};
use super::scale::{BRICK_MEMORY, CLIENT_MEMORY, DEPTH};
use super::systems::{AUTO, NOOP, Side, System};
use super::wanted::{self, BesideKernel, beside_kernel, beside_kernel_below};
use super::workloads::Workload;
use crate::document::{self, size, written};
use crate::{mechanism, verdict};

/// The share of busy time above which the cores may have been the limit.
const BUSY: f64 = 0.85;

/// The page, its pictures and all runs, as files by name.
pub fn files(measured: &Measured) -> Vec<(&'static str, String)> {
    let mut files = vec![("003.json", format!("{:#}\n", measured.to_json())), ("003.md", page(measured))];
    files.extend(pictures(measured));
    files
}

/// The page, in Markdown.
pub fn page(measured: &Measured) -> String {
    let parts = [
        head(measured),
        verdict::table(&claims(measured)),
        wanted::table(measured),
        how(measured),
        table3(measured),
        account(measured),
        other_priorities(measured),
        single_reads(measured),
        auto(measured),
        device(measured),
        against_kernel(measured),
        among_policies(measured),
        random_reads(measured),
        mechanism::table(&MECHANISMS, NOTE),
        tail(measured),
    ];
    parts.join("\n")
}

fn head(measured: &Measured) -> String {
    format!(
        "# Paper 003: a scheduler that knows the SSD's buffer\n\n\
         Lee, Ju and Jeon (Chungbuk National University, 2014) order the requests of an SSD by size, around a *dispatch priority*\n\
         that is the size of its buffer (SLQ), and compare that with CFQ, Deadline and NOOP. This page puts a model beside their\n\
         measurements ([scheduler-model.md](../scheduler-model.md) has its parts), and runs the six workloads on a real device,\n\
         under the schedulers of today's kernel and under the policies of a direct brick.\n\n\
         {}{}\n",
        verdict::quick_note(measured.scale.is_quick),
        written("003", measured.seconds)
    )
}

fn how(measured: &Measured) -> String {
    let scale = &measured.scale;
    let mut rows = vec![
        (
            "machine",
            "Core i5-3470, 4 GB, Linux 3.13.5".to_owned(),
            format!("{} cores, Linux {}; and a model in virtual time", measured.cores, measured.kernel),
        ),
        (
            "device",
            "Samsung 840 PRO, 128 GB".into(),
            format!(
                "two loop devices of {} with direct I/O, over files of one disk, all of whose bytes were written before",
                size(scale.device)
            ),
        ),
        ("file system", "ext4".into(), "ext4 on one device; a mount of a volume without parity on the other".into()),
        (
            "schedulers",
            "SLQ, CFQ, Deadline, NOOP".into(),
            "the model: both readings of SLQ, slq-auto, and the paper's three; the device: the kernel's none, mq-deadline, kyber \
             and bfq (CFQ has left Linux), seven policies of the brick, in front of a device with none, and a brick that takes requests as they come, in front \
             of a device with each of the kernel's"
                .into(),
        ),
        (
            "memory",
            "4 GB".into(),
            format!(
                "the kernel's page cache on both sides (the mount is exclusive); the brick {}, a quarter of it for blocks; the mount {}",
                size(BRICK_MEMORY),
                size(CLIENT_MEMORY)
            ),
        ),
        (
            "repetitions",
            "not told".into(),
            format!(
                "{} turns, each of every workload under every system, in another order each time; {} ms for a run that does \
                 not end by itself; medians of turns",
                measured.turns(),
                scale.run_ms
            ),
        ),
    ];
    for workload in Workload::ALL {
        rows.push((workload.title(), paper_words(workload).to_owned(), workload.words().to_owned()));
    }
    document::how(&rows)
        + "\nThe model's workloads are those of [scheduler-model.md](../scheduler-model.md). On the device all are jobs of fio. Files\n\
         that a run reads are not in the page cache when it begins; some may be in the memory of the brick or the mount. MB are 10^6\n\
         bytes.\n"
}

fn paper_words(workload: Workload) -> &'static str {
    match workload {
        Workload::FioA => "4 KB to 8 MB, files of 256 KB to 512 MB, in order and at random, reads and writes",
        Workload::FioB => "IOmeter's pattern of a file server",
        Workload::Postmark => "500 files of 4 KB to 16 MB, 25,000 transactions, 4 KB",
        Workload::Blogbench => "read and write score",
        Workload::Dbench => "128 clients",
        Workload::Compilebench => "create, compile, read",
    }
}

fn table3(measured: &Measured) -> String {
    let model = &measured.model;
    let mut text = format!(
        "## Table 3 (figures 7 to 16)\n\n\
         SLQ at 512 KiB, merging up to 4 MiB, over others that merge up to 512 KiB, in percent: *the paper / the model*. Means of\n\
         {} seeds, {} s of the model each, ten times that for Fio-A. Cells in which the paper has less than {} % do not count (-).\n\
         *Wrong*: the sign is another one, or the model has no effect (less than {} %). *(!)*: no order of requests can give the\n\
         paper's number (the account below). The rows of Fio-A's bandwidth at 4 MiB were fitted, all others are predicted.\n\n\
         ![Bandwidth](003-bandwidth.svg)\n\n![Latency](003-latency.svg)\n\n![Blogbench](003-blogbench.svg)\n",
        model.seeds, model.seconds, model.counts_from, model.effect_from
    );
    for (reading, name) in READINGS.into_iter().enumerate() {
        let signs = model.signs(reading);
        let _ = write!(
            text,
            "\n**`{name}`: {} of {} signs are right**, {:.0} %; of the {} cells that the rules can give, {}, {:.0} %.\n\n\
             | row | figure | cfq | | deadline | | noop | |\n|---|---|---|---|---|---|---|---|\n",
            signs.right,
            signs.counted,
            signs.share() * 100.0,
            signs.counted - signs.impossible,
            signs.right_of_possible,
            signs.share_of_possible() * 100.0
        );
        for row in &model.rows {
            let _ = write!(text, "| {} | {} |", row.title, figure(&row.title));
            for (at, baseline) in BASELINES.into_iter().enumerate() {
                let cell = model.cell(row, reading, at);
                let mark = match cell != Cell::Small && impossible(&row.title, baseline).is_some() {
                    true => " (!)",
                    false => "",
                };
                let (paper, ours) = (row.paper[at], row.model[reading][at]);
                let _ = write!(text, " {paper:+.1} / {ours:+.1} | {}{mark} |", cell.word());
            }
            text.push('\n');
        }
    }
    text
}

fn account(measured: &Measured) -> String {
    let model = &measured.model;
    let mut text = String::from(
        "## Why the paper's numbers cannot all come from its rules\n\n\
         The rules say which of the queued requests goes next, and how far requests are merged; nothing more. So some cells cannot\n\
         be their doing, whatever the device. [The model's page](../scheduler-model.md#where-the-paper-and-the-model-part) has the\n\
         same at length. The account was made after the model's cells had been seen.\n\n| row | over | why |\n|---|---|---|\n",
    );
    for cell in &IMPOSSIBLE {
        let _ = writeln!(text, "| {} | {} | {} |", cell.row, cell.baselines.join(", "), cell.why);
    }
    let reading = model.better_reading();
    let mut rest = Vec::new();
    for row in &model.rows {
        for (at, baseline) in BASELINES.into_iter().enumerate() {
            if model.cell(row, reading, at) == Cell::Wrong && impossible(&row.title, baseline).is_none() {
                rest.push(format!("{} over {baseline}", row.title));
            }
        }
    }
    let _ = writeln!(
        text,
        "\nWrong with `{}`, and not accounted for: {}. There the model's assumptions about the programs (how much is read from the page\n\
         cache, how many wait) differ from what the paper ran, or the rules do.",
        READINGS[reading],
        if rest.is_empty() { "none".to_owned() } else { rest.join("; ") }
    );
    text
}

fn other_priorities(measured: &Measured) -> String {
    let range = |range: [f64; 2]| format!("{:+.1} to {:+.1}", range[0], range[1]);
    let mut text = format!(
        "## Other dispatch priorities\n\nLeast to most over the three others, in percent, and the model's own best priority.\n\n\
         | row | priority | the paper | {} | its best | {} | its best |\n|---|---|---|---|---|---|---|\n",
        READINGS[0], READINGS[1]
    );
    for row in &measured.model.others {
        let [one, two] = row.model;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.title,
            kib(row.priority),
            range(row.paper),
            range(one.0),
            kib(one.1),
            range(two.0),
            kib(two.1)
        );
    }
    text
}

fn single_reads(measured: &Measured) -> String {
    let mut text = String::from(
        "## Figures 17 and 18: the buffer\n\nSingle reads of the modelled device. *Extra*: what the formula of the paper has for the \
         buffer, which was fitted to 100 to\n150 us beyond 512 KB and 400 to 600 us for 2.3 MB.\n\n\
         ![Figures 17 and 18](003-fig17.svg)\n\n| read of | us | extra us |\n|---|---|---|\n",
    );
    for read in &measured.model.reads {
        let _ = writeln!(text, "| {} | {:.0} | {:.0} |", kib(read.bytes), read.us, read.extra_us.max(0.0));
    }
    text
}

fn auto(measured: &Measured) -> String {
    let model = &measured.model;
    let head: Vec<String> = model.priorities.iter().map(|bytes| format!("over {}", kib(*bytes))).collect();
    let mut text = format!(
        "## slq-auto and fixed priorities (model)\n\n`slq-auto`, which begins at 512 KiB and knows nothing, over `slq-nearest` with \
         each fixed priority.\n\n![slq-auto](003-auto.svg)\n\n\
         | workload | over the best | which is | {} |\n|---|---|---|{}\n",
        head.join(" | "),
        "---|".repeat(head.len())
    );
    for row in &model.auto {
        let each: Vec<String> = row.over_fixed.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let _ = writeln!(
            text,
            "| {} | {:.3} | {} | {} |",
            row.workload,
            row.over_best,
            kib(row.best),
            each.join(" | ")
        );
    }
    text
}

/// A median and how far the turns are apart.
fn turns(found: Option<Turns>) -> String {
    found.map_or("-".to_owned(), |turns| format!("{:.1} ({:.0} %)", turns.median, turns.spread() * 100.0))
}

fn device(measured: &Measured) -> String {
    let names: Vec<&str> = Workload::ALL.map(Workload::title).to_vec();
    let mut text = format!(
        "## The device: six workloads\n\nMedians of {} turns, and in brackets how far the turns are apart: most less least, in percent \
         of the median. In MB/s;\nBlogbench in operations per second (the geometric mean of reads and writes), Compilebench the \
         geometric mean of its phases.\nMore is better. *(!)*: the cores were busy for more than {:.0} % of the time in the median \
         turn, and may be what is measured.\n\n![The device](003-device.svg)\n\n| | {} |\n|---|{}\n",
        measured.turns(),
        BUSY * 100.0,
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for system in System::ALL {
        let of = |workload| {
            let of = measured.runs.iter().filter(|run| run.workload == workload && run.system == system);
            let busy = Turns::of(of.map(|run| run.busy).collect());
            let mark = if busy.is_some_and(|busy| busy.median > BUSY) { " (!)" } else { "" };
            turns(measured.scores(workload, system)) + mark
        };
        let each = Workload::ALL.map(of);
        let _ = writeln!(text, "| {} | {} |", system.title(), each.join(" | "));
    }
    text
}

/// Of how many pairs of systems that are alike one does not overlap, with so many turns each.
fn pairs_by_chance(turns: u32) -> u64 {
    // All orders of the turns of both are as likely, and in two of them one is before the other.
    let orders = (1..=u64::from(turns)).fold(1, |orders, at| orders * (u64::from(turns) + at) / at);
    (orders / 2).max(1)
}

fn against_kernel(measured: &Measured) -> String {
    let mut text = format!(
        "## slq-auto and the kernel's best\n\nFirst the orders alone: the same mount and the same brick, with `slq-auto` in its queue, or \
         with requests as they come and the\nkernel's best scheduler below. Then the whole of Shoal, a mount, its daemons and the queue of \
         the brick, beside ext4 over the kernel's\nbest. Two differ only if no turn of one reaches any turn of the other; with {} turns \
         each, chance alone does that to one pair in {}.\n\n\
         | workload | slq-auto | the kernel's best, below the brick | which is | ratio | | ext4 over the kernel's best | which is | ratio | \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
        measured.turns(),
        pairs_by_chance(measured.turns())
    );
    let whole = beside_kernel(measured);
    for below in beside_kernel_below(measured) {
        let of = |beside: &BesideKernel| {
            let (best, scores) = beside.best;
            let name = if best == NOOP { "none" } else { best.policy };
            format!(
                "{} | {name} | {:.2} | {}",
                turns(Some(scores)),
                beside.ratio(),
                beside.compared().words()
            )
        };
        let ext4 = whole.iter().find(|beside| beside.workload == below.workload);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            below.workload.title(),
            turns(Some(below.auto)),
            of(&below),
            ext4.map_or("- | - | - | -".to_owned(), of),
        );
    }
    text
}

/// The baselines of the paper as the brick has them, with which `slq-nearest` is compared on the device.
const DESCENDANTS: [&str; 3] = ["bfq", "deadline", "noop"];

fn among_policies(measured: &Measured) -> String {
    let mut text = String::from(
        "## SLQ on the device\n\n`slq-nearest` at 512 KiB over the brick's own bfq (the descendant of cfq), deadline and noop, in \
         percent of the score; in brackets\nwhether the turns differ. In a brick each class of requests has a queue of its own, \
         and the depth of the device is 32: there is a\nchoice only where more than that wait.\n\n\
         | workload | over bfq | over deadline | over noop | slq-lisf-first over slq-nearest | slq-auto over slq-nearest |\n\
         |---|---|---|---|---|---|\n",
    );
    let nearest = System { side: Side::Shoal, policy: READINGS[0] };
    let cell = |workload, one, other| {
        let pair = measured.scores(workload, one).zip(measured.scores(workload, other));
        pair.map_or("-".to_owned(), |(one, other)| {
            let percent = (one.median / other.median.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
            format!("{percent:+.1} ({})", one.against(other).words())
        })
    };
    for workload in Workload::ALL {
        let over = DESCENDANTS.map(|policy| cell(workload, nearest, System { side: Side::Shoal, policy }));
        let lisf = System { side: Side::Shoal, policy: READINGS[1] };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            workload.title(),
            over.join(" | "),
            cell(workload, lisf, nearest),
            cell(workload, AUTO, nearest)
        );
    }
    text
}

fn random_reads(measured: &Measured) -> String {
    let mut text = format!(
        "## Random reads of 4 KiB\n\n{DEPTH} in flight, medians of turns: of the device by one job of fio with io_uring and direct I/O, \
         and by the queue of a direct brick\n(`shoal brick bench`, `noop`), before anything is on the device; then by the same job of \
         fio of a file of {} of the mount, whose\nbrick is on that device, and of the device beside it. A mount adds FUSE, checksums, and a message each way.\n\n\
         | by | reads per second | turns apart | cores busy | CPU us for each | over fio |\n|---|---|---|---|---|---|\n",
        size(measured.scale.fio_b_file)
    );
    for by in Reader::ALL {
        let busy = measured.reads.iter().filter(|reads| reads.by == by);
        let busy = Turns::of(busy.map(|reads| reads.busy).collect());
        let Some((found, busy)) = measured.reads_per_second(by).zip(busy) else { continue };
        let each = busy.median * f64::from(measured.cores) * 1e6 / found.median.max(f64::MIN_POSITIVE);
        let device = measured.reads_per_second(by.compared());
        let over = |device: Turns| format!("{:.2}", found.median / device.median.max(f64::MIN_POSITIVE));
        let ratio = device.map_or("-".to_owned(), over);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} % | {:.0} % | {each:.0} | {ratio} |",
            by.title(),
            found.median,
            found.spread() * 100.0,
            busy.median * 100.0
        );
    }
    text + "\n*CPU*: of the whole machine, all other programs too.\n"
}

fn tail(measured: &Measured) -> String {
    let hot = measured.runs.iter().filter(|run| run.busy > BUSY).count();
    format!(
        "## What limits what\n\n\
         The cores were busy for more than {:.0} % of the time in {hot} of {} runs. Fio, the loop devices, ext4 or Shoal's mount, brick and\n\
         metadata service, and all other programs of the machine share them: where they are the limit, an order of requests cannot\n\
         show. A loop device is a queue of its own in front of a disk that others use too, and that may have a buffer, a cache and a\n\
         scheduler behind it.\n\n\
         ## Repeat it\n\n\
         ```sh\nshoal paper 003 --disk-dir DIR   # as root; fio, e2fsprogs, iproute2 and FUSE; writes docs/papers/003.*\n\
         shoal paper 003 --quick          # a minute, to see that it works\nshoal sim sched --table3         # the model alone\n```\n\n\
         Mounts and programs are in namespaces that the kernel clears away, however the command ends. The files of the loop devices\n\
         have no names, and the kernel takes the devices apart when the last program that uses them has ended.\n",
        BUSY * 100.0,
        measured.runs.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_parts_fewer_pairs_with_more_turns() {
        assert_eq!([1, 2, 3, 5].map(pairs_by_chance), [1, 3, 10, 126]);
    }
}
