//! `shoal sim torus`: writes, reads and rebuilds on a network without switches.

mod against;
mod experiments;
mod places;
mod words;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use layout::topology::Shape;
use netsim::torus::{Model, Setup};
use types::Code;

use super::net::{microseconds, refused};
use super::rate::RateText;
use crate::output::Output;
use crate::problem::problem;
use crate::size::Size;
use experiments::Experiments;

/// Models writes, reads and rebuilds on a torus: hundreds of nodes that forward for each other, without switches
#[derive(Args)]
#[command(after_help = "\
Each node of the torus has one brick and one client. Stripes go slice by slice, and each link takes them first in, first out.
Placement and routes are those of the product; hosts are modelled by the time for computing only. It asks nobody and needs no
cluster. The same arguments give the same answer. docs/torus-model.md says what is modelled, and how it was checked.

Rebuilds are a sample: what is rebuilt within the time that counts is scaled to a whole brick.

Examples:
  shoal sim torus                                       8x8x8 nodes with 10 Gbit/s for each cable, 8+2
  shoal sim torus 4x4 --code 4+2 --link-rate 1gbit
  shoal sim torus --tables writes --client-rate 10gbit  clients are machines of their own, each with a cable to its node
  shoal sim torus --tables rebuilds --brick-rate 250M   disks that are slower than the network
  shoal sim torus --against docs/papers/002.json        the runs of the lab, repeated by the model")]
pub(super) struct TorusArgs {
    /// Nodes along each dimension
    #[arg(value_name = "SIZES", default_value = "8x8x8")]
    sizes: String,
    /// What is printed
    #[arg(long, value_name = "TABLE", value_enum, value_delimiter = ',', default_values_t = TableName::ALL)]
    tables: Vec<TableName>,
    /// Data and parity units of a stripe
    #[arg(long, value_name = "K+M", default_value = "8+2")]
    code: Code,
    /// Bytes of a unit
    #[arg(long, value_name = "SIZE", default_value = "256K")]
    unit: Size,
    /// Bytes that a node takes in before it forwards them
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    slice: Size,
    /// Slices of a unit that may be on their way
    #[arg(long, value_name = "N", default_value_t = 16)]
    slices: u32,
    /// Rate of a cable in each direction
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    link_rate: RateText,
    /// Microseconds for a cable and the node at its end that forwards
    #[arg(long, value_name = "US", default_value_t = 20)]
    hop_us: u64,
    /// Bytes per second from which a node computes units
    #[arg(long, value_name = "SIZE", default_value = "5G")]
    compute: Size,
    /// Rate of the cable between a client and its node [default: clients are programs on the nodes]
    #[arg(long, value_name = "RATE")]
    client_rate: Option<RateText>,
    /// Bytes per second that a brick reads or writes [default: no limit]
    #[arg(long, value_name = "SIZE")]
    brick_rate: Option<Size>,
    /// Bytes of a brick, for the time of a rebuild
    #[arg(long, value_name = "SIZE", default_value = "4T")]
    brick: Size,
    /// Clients, each at a node of its own [default: one at each node]
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// Stripes that each client has in flight
    #[arg(long, value_name = "N", default_value_t = 4)]
    stripes: u32,
    /// Units that are rebuilt together, for each new brick
    #[arg(long, value_name = "N", default_value_t = 32)]
    rebuilds: u32,
    /// Load under which failures are looked at, as a part of what the intact network can take
    #[arg(long, value_name = "PART", default_value_t = 0.5)]
    load: f64,
    /// Seconds of the model before anything counts
    #[arg(long, value_name = "S", default_value_t = 0.03)]
    ramp: f64,
    /// Seconds of the model that count
    #[arg(long, value_name = "S", default_value_t = 0.04)]
    seconds: f64,
    /// Source of all chance; it also decides what is lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Repeats what `shoal paper 002` has measured of Shoal, and compares; takes no other option of the model
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_THE_MODEL)]
    against: Option<PathBuf>,
}

/// The arguments that say what is modelled.
const OF_THE_MODEL: [&str; 19] = [
    "sizes",
    "tables",
    "code",
    "unit",
    "slice",
    "slices",
    "link_rate",
    "hop_us",
    "compute",
    "client_rate",
    "brick_rate",
    "brick",
    "clients",
    "stripes",
    "rebuilds",
    "load",
    "ramp",
    "seconds",
    "seed",
];

/// A part of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum TableName {
    /// Writes by route and placement
    Writes,
    /// Reads by route and placement
    Reads,
    /// Reads with a lost node, cable or row
    Failures,
    /// Lost bricks that are rebuilt in their places
    Rebuilds,
}

impl TableName {
    const ALL: [TableName; 4] =
        [TableName::Writes, TableName::Reads, TableName::Failures, TableName::Rebuilds];
}

impl TorusArgs {
    fn setup(&self) -> anyhow::Result<Setup> {
        let is_sizes = self.sizes.split('x').all(|size| size.parse::<u16>().is_ok());
        let shape = if is_sizes { format!("torus:{}", self.sizes) } else { self.sizes.clone() };
        let shape: Shape = shape.parse().map_err(|why: String| problem(why, "sizes such as 8x8x8"))?;
        let setup = Setup {
            shape,
            code: self.code,
            unit: self.unit.0,
            slice: self.slice.0,
            window: self.slices,
            link: self.link_rate.0,
            hop_us: self.hop_us,
            compute: self.compute.0,
            client: self.client_rate.map(|rate| rate.0),
            brick: self.brick_rate.map(|size| size.0),
            brick_bytes: self.brick.0,
            clients: self.clients,
            stripes: self.stripes,
            rebuilds: self.rebuilds,
            load: self.load,
            ramp_us: microseconds(self.ramp),
            time_us: microseconds(self.seconds),
            seed: self.seed,
        };
        setup.check().map_err(refused)?;
        Ok(setup)
    }
}

pub(super) fn run(args: &TorusArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(file) = &args.against {
        return against::run(file, output);
    }
    let setup = args.setup()?;
    let spinner = output.spinner("placing groups");
    let model = Model::new(setup).map_err(refused)?;
    spinner.finish_and_clear();
    let has = |table| args.tables.contains(&table);
    let bar = output.count_bar("experiments", experiments::count(&model, has));
    let found = Experiments::run(&model, has, || bar.inc(1));
    bar.finish_and_clear();
    output.answer_by(|| found.document(&model), || words::tell(&model, &found));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TorusArgs,
    }

    fn args(line: &str) -> anyhow::Result<TorusArgs> {
        let words = std::iter::once("torus").chain(line.split_whitespace());
        Ok(Line::try_parse_from(words)?.args)
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_to_do() {
        for (line, said) in [
            ("flat", "has switches"),
            ("fat-tree", "has switches"),
            ("16", "one row only"),
            ("3x3", "has 9 nodes"),
            ("32x32x32", "has 32768 nodes"),
            ("8x8x8x8", "one to 3 numbers"),
            ("8y8", "is no shape"),
            ("8x8 --code 9", "code"),
            ("8x8 --load 1", "--load"),
            ("8x8 --seconds 1000", "measurement in us"),
            ("--seconds 10", "would take an hour"),
            ("8x8 --slices 0", "--slices"),
        ] {
            let error = args(line).and_then(|args| args.setup()).expect_err(line).to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn the_runs_of_the_lab_take_no_other_option_of_the_model() {
        assert!(args("--against docs/papers/002.json").is_ok_and(|args| args.against.is_some()));
        for other in ["8x8", "--seed 2", "--code 4+2", "--tables writes"] {
            let error = args(&format!("--against 002.json {other}")).map(drop).expect_err(other).to_string();
            assert!(error.contains("cannot be used with"), "{other}: {error}");
        }
    }

    #[test]
    fn all_tables_are_told_in_words_and_as_a_document() {
        let args = args("4x4 --code 4+2 --ramp 0.005 --seconds 0.02 --client-rate 10gbit --clients 8");
        let args = args.expect("a command line");
        let model = Model::new(args.setup().expect("a setup")).expect("a torus");
        let (all, mut done) = (|_| true, 0);
        let found = Experiments::run(&model, all, || done += 1);
        assert_eq!(done, experiments::count(&model, all));
        let text = words::tell(&model, &found);
        for part in [
            "16 nodes",
            "8 clients, each with a cable of 10 Gbit/s",
            "no placement with members in different rows",
            "random     anywhere        primary",
            "near       at the primary  relay",
            "gathered",
            "path",
            "pipeline",
            "row",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let document = found.document(&model);
        for (table, rows) in [("writes", 12), ("reads", 8), ("failures", 8), ("rebuilds", 20)] {
            assert_eq!(document[table].as_array().map(Vec::len), Some(rows), "{table}");
        }
        assert!(document["writes"][0]["mb_per_s"].as_f64().is_some_and(|rate| rate > 1.0));
        assert!(document["rebuilds"][0]["hours"].as_f64().is_some_and(|hours| hours > 0.1));
    }

    #[test]
    fn a_table_that_is_not_asked_for_is_not_made() {
        let args = args("4x4 --code 4+2 --ramp 0 --seconds 0.005 --tables writes").expect("a command line");
        let model = Model::new(args.setup().expect("a setup")).expect("a torus");
        let writes = |table| table == TableName::Writes;
        assert_eq!(experiments::count(&model, writes), 16);
        let found = Experiments::run(&model, writes, || ());
        let document = found.document(&model);
        assert_eq!(document["writes"].as_array().map(Vec::len), Some(16));
        assert!(document.get("reads").is_none());
        assert!(!words::tell(&model, &found).contains("gathered"));
    }
}
