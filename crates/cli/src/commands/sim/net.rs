//! `shoal sim net`: striped reads through a network whose switches keep few bytes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use netsim::{Delays, Refused, Report, Setup, Shape, Simulation, WindowSetting};
use serde_json::{Value, json};

use super::against;
use super::rate::{RateText, rate_words};
use crate::output::{Output, table};
use crate::problem::problem;
use crate::size::Size;

/// Models striped reads through a network whose switches keep few bytes, with Shoal's receive window or without
#[derive(Args)]
#[command(after_help = "\
Clients read records, one unit from each of `--width` bricks, record after record. The receive window is the code of a
mount; TCP (cubic), switches and hosts are modelled, packet by packet. It asks nobody and needs no cluster. The same
arguments give the same answer. docs/network-model.md says what is modelled, and how it was checked.

A run takes one core. A second of it is enough for some millions of packets times ports: a second of 100 clients with
1 Gbit/s has 50 million of them, with 10 Gbit/s 500 million.

Examples:
  shoal sim net                                         100 clients with 1 Gbit/s, 900 bricks with 10, 64 KiB for a port
  shoal sim net --window off                            the same without the receive window
  shoal sim net --client-rate 10gbit --buffer 128K --seconds 0.2
  shoal sim net --shared-buffer 3M --window off         ports that take their buffers from one memory of the switch
  shoal sim net --shape star --clients 1 --bricks 10 --client-rate 500mbit --brick-rate 5gbit
  shoal sim net --against docs/papers/004.json          the runs of the lab, repeated by the model")]
pub(super) struct NetArgs {
    /// How hosts and switches hang together
    #[arg(long, value_enum, default_value_t = ShapeName::FatTree)]
    shape: ShapeName,
    /// Ports for hosts, of the fat tree
    #[arg(long, value_name = "N", default_value_t = 1000)]
    ports: u32,
    /// Ports for hosts, of one leaf of the fat tree
    #[arg(long, value_name = "N", default_value_t = 32)]
    leaf: u32,
    /// Rate of a leaf's hosts over that of its cables to spines
    #[arg(long, value_name = "N", default_value_t = 1)]
    oversubscription: u32,
    /// Hosts that read [default: 100, of a star 1]
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// Hosts with a brick [default: all other ports, of a star 10]
    #[arg(long, value_name = "N")]
    bricks: Option<u32>,
    /// Bricks from which a record comes
    #[arg(long, value_name = "N", default_value_t = 8)]
    width: u32,
    /// Tasks of each client; each reads a file of its own
    #[arg(long, value_name = "N", default_value_t = 4)]
    tasks: u32,
    /// Threads of each client, each with a connection to every brick that it needs
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: u32,
    /// Bytes of a unit
    #[arg(long, value_name = "SIZE", default_value = "128K")]
    unit: Size,
    /// Rate of a client's link
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    client_rate: RateText,
    /// Rate of a brick's link, and of the cables between switches
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    brick_rate: RateText,
    /// Most bytes that wait for one port of a switch [default: 64K; all of --shared-buffer, if it is given]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Size>,
    /// Bytes of a switch from which all its ports take their buffers
    #[arg(long, value_name = "SIZE")]
    shared_buffer: Option<Size>,
    /// Receive window of each client: auto, off, or 16K to 64M
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    window: WindowSetting,
    /// Seconds of the model before anything counts: windows learn meanwhile
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    ramp: f64,
    /// Seconds of the model that count
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Source of all chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Repeats the reads of Shoal that `shoal paper 004` has measured, and compares; takes no other option of the model
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_THE_MODEL)]
    against: Option<PathBuf>,
}

/// The options that say what is modelled.
const OF_THE_MODEL: [&str; 18] = [
    "shape",
    "ports",
    "leaf",
    "oversubscription",
    "clients",
    "bricks",
    "width",
    "tasks",
    "threads",
    "unit",
    "client_rate",
    "brick_rate",
    "buffer",
    "shared_buffer",
    "window",
    "ramp",
    "seconds",
    "seed",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ShapeName {
    /// All hosts on one switch
    Star,
    /// Leaves with hosts, and spines above them
    FatTree,
}

/// What the model refuses.
pub(super) fn refused(refused: Refused) -> anyhow::Error {
    problem(format!("this network cannot be modelled: {refused}"), refused.remedy)
}

pub(super) fn run(args: &NetArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(file) = &args.against {
        return against::run(file, output);
    }
    let setup = args.setup()?;
    let mut simulation = Simulation::new(setup.clone()).map_err(refused)?;
    let length_us = simulation.length_us();
    let bar = output.count_bar("ms of the model", length_us / 1000);
    for at_us in (0..=length_us).step_by(1000) {
        simulation.advance(at_us);
        bar.set_position(at_us / 1000);
    }
    simulation.advance(length_us);
    bar.finish_and_clear();
    let report = simulation.report();
    output.answer(&document(&setup, &report), || words(&setup, &report));
    Ok(())
}

/// Seconds as microseconds; what is no time becomes one that is refused.
pub(super) fn microseconds(seconds: f64) -> u64 {
    // The cast makes negative numbers and NaN 0, and huge ones the largest number.
    (seconds * 1e6).round() as u64
}

impl NetArgs {
    fn setup(&self) -> anyhow::Result<Setup> {
        let (is_star, shape) = match self.shape {
            ShapeName::Star => (true, Shape::Star { inside: None }),
            ShapeName::FatTree => {
                let (ports, leaf, oversubscription) = (self.ports, self.leaf, self.oversubscription);
                (false, Shape::FatTree { ports, leaf, oversubscription })
            }
        };
        let clients = self.clients.unwrap_or(if is_star { 1 } else { 100 });
        let others = if is_star { 10 } else { self.ports.saturating_sub(clients) };
        let shared_buffer = self.shared_buffer.map(|size| size.0);
        let setup = Setup {
            shape,
            clients,
            bricks: self.bricks.unwrap_or(others),
            width: self.width,
            tasks: self.tasks,
            threads: self.threads,
            unit: u32::try_from(self.unit.0).unwrap_or(u32::MAX),
            client_rate: self.client_rate.0,
            brick_rate: self.brick_rate.0,
            buffer: self.buffer.map_or(shared_buffer.unwrap_or(64 << 10), |size| size.0),
            shared_buffer,
            burst: 0,
            window: self.window,
            ramp_us: microseconds(self.ramp),
            time_us: microseconds(self.seconds),
            seed: self.seed,
            delays: Delays::MACHINES,
        };
        setup.check().map_err(refused)?;
        Ok(setup)
    }
}

fn document(setup: &Setup, report: &Report) -> Value {
    let (shape, ports) = match setup.shape {
        Shape::Star { .. } => ("star", setup.clients + setup.bricks),
        Shape::FatTree { ports, .. } => ("fat-tree", ports),
    };
    let within_us = |share| report.records.percentile_us(share);
    json!({
        "shape": shape, "ports": ports, "clients": setup.clients, "bricks": setup.bricks, "width": setup.width,
        "tasks": setup.tasks, "threads": setup.threads, "unit": setup.unit, "client_bit_per_s": setup.client_rate.0,
        "brick_bit_per_s": setup.brick_rate.0, "buffer": setup.buffer, "shared_buffer": setup.shared_buffer,
        "window": setup.window.to_string(), "seconds": report.seconds, "seed": setup.seed,
        "share": report.share(), "mb_per_s": report.rate(), "fairness": report.fairness(),
        "records": report.records.count(),
        "record_us": { "p50": within_us(0.5), "p99": within_us(0.99), "p99.9": within_us(0.999) },
        "ideal_us": report.ideal_us,
        "dropped_packets": report.dropped_last, "dropped_between_switches": report.dropped_inside,
        "repeated_packets": report.repeated, "timeouts": report.timeouts, "window_bytes": report.window(),
        "window_cuts": report.cuts, "bytes": report.bytes, "packet_hops": report.hops, "events": report.events,
    })
}

fn words(setup: &Setup, report: &Report) -> String {
    let network = match setup.shape {
        Shape::Star { .. } => "one switch".to_owned(),
        Shape::FatTree { ports, leaf, oversubscription } => {
            format!("a fat tree of {ports} ports, {leaf} of each leaf, {oversubscription}:1")
        }
    };
    let memory = match setup.shared_buffer {
        Some(shared) => format!("{} of memory for all ports of a switch", Size(shared)),
        None => format!("{} for a port of a switch", Size(setup.buffer)),
    };
    let mut text = format!(
        "{} clients with {}, {} tasks each; records of {} from {} of {} bricks with {}\n\
         {network}; {memory}; window {}\n\n",
        setup.clients,
        rate_words(setup.client_rate),
        setup.tasks,
        Size(setup.record()),
        setup.width,
        setup.bricks,
        rate_words(setup.brick_rate),
        setup.window,
    );
    let millis = |us: f64| format!("{:.1}", us / 1e3);
    let [half, most, nearly] = [0.5, 0.99, 0.999].map(|share| millis(report.records.percentile_us(share)));
    let head = ["share of the wire", "MB/s", "p50, ms", "p99, ms", "p99.9, ms", "at best, ms", "records"];
    let row = [
        format!("{:.2}", report.share()),
        format!("{:.1}", report.rate()),
        half,
        most,
        nearly,
        millis(report.ideal_us),
        report.records.count().to_string(),
    ];
    text += &table(&[head.map(str::to_owned).to_vec(), row.to_vec()]);
    let head = ["dropped", "between switches", "sent again", "timeouts", "fairness", "window, KiB", "cuts"];
    let row = [
        report.dropped_last.to_string(),
        report.dropped_inside.to_string(),
        report.repeated.to_string(),
        report.timeouts.to_string(),
        format!("{:.3}", report.fairness()),
        report.window().map_or("-".into(), |bytes| (bytes >> 10).to_string()),
        report.cuts.to_string(),
    ];
    text += "\n";
    text += &table(&[head.map(str::to_owned).to_vec(), row.to_vec()]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use netsim::Rate;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NetArgs,
    }

    fn setup(line: &str) -> anyhow::Result<Setup> {
        let words = std::iter::once("net").chain(line.split_whitespace());
        Line::try_parse_from(words)?.args.setup()
    }

    #[test]
    fn a_command_line_is_a_network() {
        let tree = setup("").expect("the defaults");
        assert_eq!((tree.clients, tree.bricks, tree.buffer, tree.record()), (100, 900, 64 << 10, 1 << 20));
        assert_eq!(tree.shape, Shape::FatTree { ports: 1000, leaf: 32, oversubscription: 1 });
        assert!(tree.hops() < 100_000_000, "less than a minute: {}", tree.hops());
        let star = setup("--shape star --client-rate 500mbit --brick-rate 5gbit --window off --seconds 0.25");
        let star = star.expect("a star");
        assert_eq!((star.clients, star.bricks, star.time_us), (1, 10, 250_000));
        assert_eq!((star.client_rate, star.window), (Rate::mbit(500), WindowSetting::Off));
        let shared = setup("--shared-buffer 3M").expect("shared memory");
        assert_eq!((shared.buffer, shared.shared_buffer), (3 << 20, Some(3 << 20)));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        let lines = [
            ("--clients 1001", "--bricks 0"),
            ("--width 0", "--width 0 is out of range"),
            ("--unit 1T", "--unit 4294967295"),
            ("--unit 100G", "--unit 4294967295"),
            ("--seconds -1", "unexpected argument"),
            ("--seconds=-1", "measurement in us, 0"),
            ("--seconds nan", "measurement in us, 0"),
            ("--seconds 1e300", "measurement in us"),
            ("--client-rate 10", "is not a rate"),
            ("--client-rate 99999999999999gbit", "is not a rate"),
            ("--client-rate 900gbit", "--client-rate"),
            ("--window 1K", "16K to 64M"),
            ("--client-rate 400gbit --seconds 60", "would take hours"),
        ];
        for (line, said) in lines {
            let error = setup(line).expect_err(line).to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn a_run_is_told_in_words_and_as_a_document() {
        let line = "--ports 16 --leaf 4 --clients 2 --bricks 8 --buffer 1M --ramp 0.02 --seconds 0.1";
        let setup = setup(line).expect("a network");
        let mut simulation = Simulation::new(setup.clone()).expect("a network");
        simulation.advance(u64::MAX);
        let report = simulation.report();
        let said = words(&setup, &report);
        for part in [
            "2 clients with 1 Gbit/s",
            "records of 1 MiB from 8 of 8 bricks",
            "share of the wire",
            "window auto",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let document = document(&setup, &report);
        assert_eq!((&document["shape"], &document["ports"]), (&json!("fat-tree"), &json!(16)));
        assert!(document["share"].as_f64().is_some_and(|share| share > 0.3 && share < 1.01), "{document}");
        assert!(document["record_us"]["p99"].as_f64() > document["record_us"]["p50"].as_f64(), "{document}");
        assert!(document["records"].as_u64().is_some_and(|records| records > 5), "{document}");
    }
}
