//! `shoal paper`: the experiments of a paper, repeated with Shoal.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context;
use clap::{Args, ValueEnum};
use lab::paper::{Paper, Report};
use lab::sandbox::{self, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::mountpoint::check_fuse;
use crate::output::Output;
use crate::problem::problem;
use crate::signals;

/// Repeats the experiments of a paper with Shoal, and writes a page with the results
#[derive(Args)]
#[command(after_help = "\
000: the translators of GlusterFS on SSDs. Two nodes with a brick in RAM, two that read, links of 500 Mbit/s; Shoal's
     translators on, off and auto, and those of GlusterFS, if it is installed. At most 3 GiB of RAM; five minutes, and nine
     with GlusterFS. Wants iproute2 and FUSE.
001: single I/O space from network block devices, software RAID and NFS. Up to 16 nodes, each a network namespace with a
     link of 10 or 100 Mbit/s and a brick in RAM; at most 3 GiB of RAM; ten minutes. Wants iproute2, FUSE and nbdkit.
002: a torus of nodes that store coded data. A chain of 16 nodes; ten nodes with a brick in RAM on a torus and on a switch, with
     the same links of 200 Mbit/s, and a client that reads and writes; Shoal, and GlusterFS coded and with copies, if it is
     installed. At most 6 GiB of RAM; ten minutes. Wants iproute2 and FUSE.
003: an I/O scheduler that knows the buffer of an SSD. The model of `shoal sim sched`, then six workloads by fio on two loop devices
     with direct I/O: on ext4 under each scheduler of the kernel, and through a mount of a direct brick under each of its
     policies, in turns. 7 GiB of --disk-dir; ten minutes. Wants fio, e2fsprogs, iproute2, FUSE, and the schedulers
     mq-deadline, kyber and bfq.
004: reads from many servers behind a switch with few buffers. Ten nodes with a brick in RAM, one to four that read with a
     tenth of their rate through ports with 32 KiB to 16 MiB; Shoal with and without its receive window, and GlusterFS,
     if it is installed. At most 4 GiB of RAM; eleven minutes. Wants iproute2 and FUSE.

The nodes, their links, programs, mounts and disks live in namespaces of their own, which the kernel clears away however
the command ends; loop devices and their files, which have no names, go with the last process that uses them. The page says which of the paper's findings are confirmed, and which are not. Leave the machine
idle meanwhile: other programs change the results.

Examples:
  shoal paper 000                          writes docs/papers/000.md with its pictures and 000.json with every run
  shoal paper 001                          writes docs/papers/001.md with its pictures and 001.json with every run
  shoal paper 002                          writes docs/papers/002.md with its pictures and 002.json with every run
  shoal paper 003 --disk-dir /mnt/ssd      writes docs/papers/003.md with its pictures and 003.json with every run
  shoal paper 004                          writes docs/papers/004.md with its pictures and 004.json with every run
  shoal paper 001 --quick --out /tmp/001   a minute, to see that it works
  shoal paper 001 --from docs/papers/001.json")]
pub(crate) struct PaperArgs {
    /// Which paper
    paper: Which,
    /// Much smaller, within a minute: only a check that it works, its figures have no meaning
    #[arg(long)]
    quick: bool,
    /// Directory for the page
    #[arg(long, value_name = "DIR", default_value = "docs/papers")]
    out: PathBuf,
    /// Where paper 003 makes the files of its loop devices: a directory on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    disk_dir: PathBuf,
    /// Measures nothing, and writes the page from the JSON file of an earlier run
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    from: Option<PathBuf>,
    /// The first process of the sandbox
    #[arg(long, hide = true)]
    inside: bool,
}

/// The papers whose experiments can be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Which {
    /// Performance optimization in GlusterFS on SSDs (2016)
    #[value(name = "000")]
    GlusterOnSsds,
    /// Single I/O space service for cluster computers (2006)
    #[value(name = "001")]
    SingleIoSpace,
    /// Torus network based distributed storage (2016)
    #[value(name = "002")]
    Torus,
    /// Linux I/O scheduler by the size of the SSD's buffer (2014)
    #[value(name = "003")]
    SsdBuffer,
    /// Data network performance of a global file system (2016)
    #[value(name = "004")]
    ShallowSwitch,
}

impl From<Which> for Paper {
    fn from(which: Which) -> Paper {
        match which {
            Which::GlusterOnSsds => Paper::GlusterOnSsds,
            Which::SingleIoSpace => Paper::SingleIoSpace,
            Which::Torus => Paper::Torus,
            Which::SsdBuffer => Paper::SsdBuffer,
            Which::ShallowSwitch => Paper::ShallowSwitch,
        }
    }
}

pub(crate) fn run(args: &PaperArgs, output: &Output) -> anyhow::Result<()> {
    let paper = Paper::from(args.paper);
    if args.inside {
        return inside(paper, &args.disk_dir, args.quick);
    }
    let document = match &args.from {
        Some(file) => read(file)?,
        None => in_sandbox(paper, &args.disk_dir, args.quick)?,
    };
    let report = paper.report(&document).map_err(|error| match &args.from {
        Some(file) => {
            let remedy = format!("`shoal paper {}` measures anew", paper.number());
            problem(format!("{}: {error}", file.display()), remedy)
        }
        None => error.into(),
    })?;
    report.write(&args.out)?;
    let page = args.out.join(format!("{}.md", paper.number()));
    output.answer(&document, || verdicts(&report, &page));
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))
}

fn verdicts(report: &Report, page: &Path) -> String {
    let mut text = String::new();
    for claim in &report.claims {
        let paper = claim.paper;
        text += &format!("{}  the paper: {paper}\n        here: {}\n", claim.id, claim.here);
        let (verdict, why) = claim.verdict;
        text += &format!("        {}: {why}\n", verdict.words());
    }
    text + &format!("\nall of it: {}", page.display())
}

/// Starts this program again in a sandbox, shows its progress, and returns its document.
fn in_sandbox(paper: Paper, disk_dir: &Path, is_quick: bool) -> anyhow::Result<Value> {
    check_fuse()?;
    paper.check(disk_dir, is_quick).map_err(|error| {
        problem(error.to_string(), format!("`shoal paper --help` has what paper {} wants", paper.number()))
    })?;
    let first = Arc::new(AtomicI32::new(0));
    let to_end = Arc::clone(&first);
    signals::on_stop(move |_| match to_end.load(Ordering::Acquire) {
        0 => std::process::exit(130),
        // It ends everything in the sandbox, and the thread that waits for it goes on.
        pid => drop(kill(Pid::from_raw(pid), Signal::SIGTERM)),
    })?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(["paper", paper.number(), "--inside"]).args(is_quick.then_some("--quick"));
    command.arg("--disk-dir").arg(disk_dir);
    command.stdout(Stdio::piped());
    let mut sandbox = Sandbox::start(&mut command)?;
    first.store(sandbox.init().id().cast_signed(), Ordering::Release);
    let mut said = String::new();
    if let Some(mut from) = sandbox.init().stdout.take() {
        from.read_to_string(&mut said).context("cannot read what the sandbox says")?;
    }
    drop(sandbox);
    let document: Value = serde_json::from_str(&said)
        .map_err(|_| problem("the experiments were ended before they had a result", "the command again"))?;
    match document["error"].as_str() {
        None => Ok(document),
        Some(error) => {
            let remedy = format!("`shoal paper {} --quick`, to see whether it works at all", paper.number());
            Err(problem(error.to_owned(), remedy))
        }
    }
}

/// The first process of the sandbox: measures, prints its progress on standard error, and prints a document.
fn inside(paper: Paper, disk_dir: &Path, is_quick: bool) -> anyhow::Result<()> {
    sandbox::enter(paper.sandbox_bytes())?;
    signals::on_stop(|_| sandbox::end_all())?;
    let shoal = std::env::current_exe().context("cannot find this program's own file")?;
    let say = |line: &str| drop(writeln!(std::io::stderr(), "  {line}"));
    let measured = paper.measure(&shoal, disk_dir, is_quick, &say);
    let document = measured.unwrap_or_else(|error| json!({ "error": error.to_string() }));
    println!("{document}");
    Ok(())
}
