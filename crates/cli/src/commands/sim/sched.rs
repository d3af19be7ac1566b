//! `shoal sim sched`: what the order of requests does on an SSD.

mod table3;
mod words;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use devsim::trace::{self, Format};
use devsim::{Refused, Report, Setup, Simulation, Ssd, WorkloadName};
use pace::device::{Parameters, PolicyName};

use super::net::microseconds;
use crate::output::Output;
use crate::problem::problem;
use crate::size::Size;

/// Models an SSD, programs that use it, and the order in which their requests go to it
#[derive(Args)]
#[command(after_help = "\
The scheduler is the code of direct bricks (`shoal brick --io direct`). The device (an SSD with SATA), the page cache and the
programs are modelled. It asks nobody and needs no cluster. The same arguments give the same answer.
docs/scheduler-model.md says what is modelled, and how it was fitted.

Policies: noop, deadline, cfq, bfq, kyber, slq-nearest, slq-lisf-first, slq-auto, or all.

Examples:
  shoal sim sched --workload dbench                     all policies on one workload
  shoal sim sched --workload fio-b --policy slq-nearest --priority 0
  shoal sim sched --policy deadline --set fifo-batch=1 --set read-expiry=100000
  shoal sim sched --table3                              table 3 of the paper about SLQ, and slq-auto: half a minute
  shoal sim sched --probe --buffer 1M                   single reads of a device with another buffer
  shoal sim sched --trace sda.txt --trace-format blkparse --policy all")]
pub(super) struct SchedArgs {
    /// What uses the device
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',', default_values_t = [Workload::All])]
    workload: Vec<Workload>,
    /// Who decides the order: a name of a policy, some with commas between them, or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    policy: Vec<PolicyText>,
    /// Dispatch priority of slq-nearest and slq-lisf-first, and the first of slq-auto, for reads and writes
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    priority: Size,
    /// The same for reads alone
    #[arg(long, value_name = "SIZE")]
    read_priority: Option<Size>,
    /// The same for writes alone
    #[arg(long, value_name = "SIZE")]
    write_priority: Option<Size>,
    /// Most bytes of a merged request [default: 4M with slq, 512K with others]
    #[arg(long, value_name = "SIZE")]
    largest: Option<Size>,
    /// Another parameter of the scheduler, such as read-expiry=500000; times in us
    #[arg(long = "set", value_name = "KEY=N")]
    set: Vec<String>,
    /// Bytes of the device's buffer
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    buffer: Size,
    /// Microseconds that a command pauses after each buffer's worth
    #[arg(long, value_name = "US", default_value_t = Ssd::SATA.refill_us)]
    refill_us: u64,
    /// Microseconds of the link for a command, besides its bytes
    #[arg(long, value_name = "US", default_value_t = Ssd::SATA.command_us)]
    command_us: u64,
    /// Bytes per second of the link
    #[arg(long, value_name = "N", default_value_t = Ssd::SATA.link)]
    link: u64,
    /// Commands that the device can queue
    #[arg(long, value_name = "N", default_value_t = Ssd::SATA.depth)]
    depth: u64,
    /// Channels with flash
    #[arg(long, value_name = "N", default_value_t = Ssd::SATA.channels)]
    channels: u64,
    /// Bytes that a channel reads or programs at once
    #[arg(long, value_name = "SIZE", default_value = "32K")]
    page: Size,
    /// Microseconds that a read of them takes
    #[arg(long, value_name = "US", default_value_t = Ssd::SATA.read_us)]
    read_us: u64,
    /// Microseconds that a program of them takes
    #[arg(long, value_name = "US", default_value_t = Ssd::SATA.program_us)]
    program_us: u64,
    /// Of a million programs, how many are followed by a collection of garbage
    #[arg(long, value_name = "N", default_value_t = Ssd::SATA.collect_per_million)]
    collect_per_million: u64,
    /// Requests of a trace in place of a workload
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["workload", "table3", "ramp", "seconds"],
        requires = "trace_format"
    )]
    trace: Option<PathBuf>,
    /// How the trace is written down: blkparse or fio-iolog
    #[arg(long, value_name = "FORMAT", requires = "trace")]
    trace_format: Option<Format>,
    /// Repeats table 3 of the paper, and compares slq-auto with fixed priorities
    #[arg(
        long,
        conflicts_with_all = ["workload", "policy", "priority", "read_priority", "write_priority", "largest"]
    )]
    table3: bool,
    /// Shows how long single reads take, by which the paper found the buffer of its device
    #[arg(
        long,
        conflicts_with_all = ["workload", "policy", "priority", "read_priority", "write_priority", "largest",
            "set", "table3", "trace"]
    )]
    probe: bool,
    /// Seconds of the model before anything counts
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    ramp: f64,
    /// Seconds of the model that count
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Source of all chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A workload, or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Workload {
    /// fio: 4 KiB to 8 MiB, sequential and random, reads and writes
    FioA,
    /// fio: the pattern of a file server (IOmeter), 64 in flight
    FioB,
    /// 500 files of 4 KiB to 16 MiB
    Postmark,
    /// 100 readers, 9 writers
    Blogbench,
    /// 128 clients of a file server
    Dbench,
    /// A tree is created, compiled, and read
    Compilebench,
    /// All of them
    All,
}

impl Workload {
    fn names(self) -> &'static [WorkloadName] {
        use WorkloadName::{CompileCreate, CompileMake, CompileRead};
        match self {
            Workload::FioA => &[WorkloadName::FioA],
            Workload::FioB => &[WorkloadName::FioB],
            Workload::Postmark => &[WorkloadName::Postmark],
            Workload::Blogbench => &[WorkloadName::Blogbench],
            Workload::Dbench => &[WorkloadName::Dbench],
            Workload::Compilebench => &[CompileCreate, CompileMake, CompileRead],
            Workload::All => &WorkloadName::ALL,
        }
    }
}

/// A policy, or all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PolicyText {
    One(PolicyName),
    All,
}

impl std::str::FromStr for PolicyText {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyText, String> {
        if text == "all" {
            return Ok(PolicyText::All);
        }
        text.parse().map(PolicyText::One).map_err(|refusal: pace::device::Refusal| format!("{refusal}, all"))
    }
}

/// What the model refuses.
fn refused(refused: Refused) -> anyhow::Error {
    problem(format!("this cannot be modelled: {refused}"), refused.remedy)
}

impl SchedArgs {
    /// The run of a policy.
    fn setup(&self, policy: PolicyName) -> anyhow::Result<Setup> {
        let mut setup = Setup::new(policy);
        setup.ssd = Ssd {
            buffer: self.buffer.0,
            refill_us: self.refill_us,
            command_us: self.command_us,
            link: self.link,
            depth: self.depth,
            channels: self.channels,
            page: self.page.0,
            read_us: self.read_us,
            program_us: self.program_us,
            collect_per_million: self.collect_per_million,
            ..Ssd::SATA
        };
        let parameters = &mut setup.parameters;
        parameters.read_priority = self.read_priority.unwrap_or(self.priority).0;
        parameters.write_priority = self.write_priority.unwrap_or(self.priority).0;
        parameters.largest = self.largest.map_or(parameters.largest, |size| size.0);
        for text in &self.set {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            if key == "depth" {
                return Err(problem("the depth is that of the device", "--depth N"));
            }
            let value = value.parse().map_err(|_| {
                let names: Vec<&str> = Parameters::names().collect();
                problem(
                    format!("`{text}` sets nothing"),
                    format!("KEY=NUMBER, with KEY of: {}", names.join(", ")),
                )
            })?;
            parameters.set(key, value).map_err(|why| refused(why.into()))?;
        }
        (setup.ramp_ms, setup.time_ms) = (microseconds(self.ramp) / 1000, microseconds(self.seconds) / 1000);
        setup.seed = self.seed;
        setup.check().map_err(refused)?;
        Ok(setup)
    }

    fn policies(&self) -> Vec<PolicyName> {
        let is_chosen = |name: &PolicyName| {
            self.policy.contains(&PolicyText::All) || self.policy.contains(&PolicyText::One(*name))
        };
        PolicyName::ALL.into_iter().filter(is_chosen).collect()
    }

    fn workloads(&self) -> Vec<WorkloadName> {
        let is_chosen = |name: &WorkloadName| self.workload.iter().any(|of| of.names().contains(name));
        WorkloadName::ALL.into_iter().filter(is_chosen).collect()
    }
}

/// Bytes of the reads of `--probe`. One of them is the paper's: 2.3 MB.
const PROBED: [u64; 12] = [
    4 << 10,
    64 << 10,
    256 << 10,
    512 << 10,
    516 << 10,
    768 << 10,
    1 << 20,
    1028 << 10,
    2 << 20,
    2_300_000,
    4 << 20,
    8 << 20,
];

/// A run and what it was.
struct Run {
    /// None: a trace.
    workload: Option<WorkloadName>,
    setup: Setup,
    report: Report,
}

pub(super) fn run(args: &SchedArgs, output: &Output) -> anyhow::Result<()> {
    if args.table3 {
        return table3::run(args.setup(PolicyName::SlqNearest)?, output);
    }
    if args.probe {
        let found = devsim::probe(&args.setup(PolicyName::Noop)?, &PROBED).map_err(refused)?;
        output.answer(&words::probe_document(&found), || words::tell_probe(&found));
        return Ok(());
    }
    let setups = args.policies().into_iter().map(|policy| args.setup(policy));
    let setups = setups.collect::<anyhow::Result<Vec<Setup>>>()?;
    let runs = match &args.trace {
        Some(file) => replay(file, args.trace_format.unwrap_or(Format::Blkparse), &setups, output)?,
        None => {
            let workloads = args.workloads();
            let bar = output.count_bar("runs", (workloads.len() * setups.len()) as u64);
            let mut runs = Vec::new();
            for (workload, setup) in
                workloads.iter().flat_map(|name| setups.iter().map(move |to| (*name, *to)))
            {
                let report = Simulation::new(setup, workload).map_err(refused)?.run();
                runs.push(Run { workload: Some(workload), setup, report });
                bar.inc(1);
            }
            bar.finish_and_clear();
            runs
        }
    };
    output.answer_by(|| words::document(&runs), || words::tell(&runs));
    Ok(())
}

/// The same trace with each policy.
fn replay(file: &Path, format: Format, setups: &[Setup], output: &Output) -> anyhow::Result<Vec<Run>> {
    let shown = file.display();
    let opened = File::open(file).map_err(|why| {
        problem(format!("the trace {shown} cannot be read: {why}"), "a file that there is, with --trace")
    })?;
    let trace = trace::read(format, BufReader::new(opened))
        .map_err(|why| problem(format!("the trace {shown} cannot be read: {why}"), why.remedy))?;
    if trace.records.is_empty() {
        let remedy = format!("another --trace-format than {format}, or a trace with requests");
        return Err(problem(format!("the trace {shown} has no requests"), remedy));
    }
    let bar = output.count_bar("runs", setups.len() as u64);
    let mut runs = Vec::new();
    for setup in setups {
        let report = Simulation::replay(*setup, trace.clone()).map_err(refused)?.run();
        runs.push(Run { workload: None, setup: *setup, report });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SchedArgs,
    }

    fn args(line: &str) -> anyhow::Result<SchedArgs> {
        let words = std::iter::once("sched").chain(line.split_whitespace());
        Ok(Line::try_parse_from(words)?.args)
    }

    fn setup(line: &str) -> anyhow::Result<Setup> {
        let args = args(line)?;
        args.setup(args.policies()[0])
    }

    #[test]
    fn a_command_line_is_a_setup() {
        let all = args("").expect("the defaults");
        assert_eq!((all.policies().len(), all.workloads().len()), (8, 8));
        let some = args("--workload compilebench,fio-a --policy noop,slq-auto").expect("names");
        assert_eq!((some.policies().len(), some.workloads().len()), (2, 4));
        let line = "--policy slq-nearest --priority 0 --write-priority 1M --set write-expiry=1000000 --link 3000000000";
        let found = setup(line).expect("a setup");
        assert_eq!((found.parameters.read_priority, found.parameters.write_priority), (0, 1 << 20));
        assert_eq!((found.parameters.write_expiry_us, found.ssd.link), (1_000_000, 3_000_000_000));
        assert_eq!((found.parameters.largest, found.time_ms), (4 << 20, 10_000));
        assert_eq!(setup("--policy noop").map(|setup| setup.parameters.largest).ok(), Some(512 << 10));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        for (line, said) in [
            ("--policy elevator", "slq-auto, all"),
            ("--priority 5M", "read-priority 5242880 is out of range: 0 to 4194304 bytes"),
            ("--set fifo-batch=0", "fifo-batch 0 is out of range: 1 to 1024 requests"),
            ("--set wind=1", "`wind` is no parameter"),
            ("--set fifo-batch", "sets nothing"),
            ("--set depth=4", "the depth is that of the device"),
            ("--seconds nan", "measurement in ms, 0"),
            ("--channels 0", "--channels 0"),
            ("--trace x", "--trace-format"),
            ("--trace x --trace-format csv", "is no format"),
            ("--table3 --policy noop", "cannot be used with"),
        ] {
            let error = setup(line).map(|_| ()).expect_err(line).to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn runs_are_told_in_words_and_as_a_document() {
        let args = args("--policy slq-auto --ramp 0 --seconds 0.2").expect("a command line");
        let setup = args.setup(PolicyName::SlqAuto).expect("a setup");
        let report = Simulation::new(setup, WorkloadName::FioB).expect("a setup").run();
        let runs = [Run { workload: Some(WorkloadName::FioB), setup, report }];
        let text = words::tell(&runs);
        for part in ["fio-b", "slq-auto", "read", "write", "MB/s", "p99, ms"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let document = words::document(&runs);
        assert_eq!(document["runs"][0]["policy"], "slq-auto");
        assert!(document["runs"][0]["kinds"][0]["mb_per_s"].as_f64().is_some_and(|rate| rate > 1.0));
    }

    #[test]
    fn the_probe_shows_the_buffer() {
        let setup = setup("--buffer 1M --policy noop").expect("a setup");
        let found = devsim::probe(&setup, &PROBED).expect("a setup");
        let text = words::tell_probe(&found);
        assert!(text.contains("1028 KiB"), "{text}");
        let document = words::probe_document(&found);
        assert_eq!(document["reads"][6]["extra_us"].as_f64().map(f64::round), Some(0.0));
        assert_eq!(document["reads"][7]["extra_us"].as_f64().map(f64::round), Some(125.0));
    }

    #[test]
    fn a_trace_is_replayed_by_every_policy() {
        let file = std::env::temp_dir().join(format!("shoal-trace-{}", std::process::id()));
        std::fs::write(&file, "fio version 3 iolog\n0 /a read 0 4096\n500 /a write 8192 4096\n")
            .expect("a file");
        let setups = PolicyName::ALL.map(Setup::new);
        let runs = replay(&file, Format::FioIolog, &setups, &Output::new(true)).expect("a trace");
        std::fs::remove_file(&file).expect("the file");
        assert_eq!(runs.len(), setups.len());
        for run in runs {
            assert_eq!((run.report.requests.count(), run.report.counters.writes), (2, 1));
        }
        let error = replay(&file, Format::Blkparse, &setups, &Output::new(true)).err().expect("no file");
        assert!(error.to_string().contains("cannot be read"));
    }
}
