//! `shoal lab`: a whole cluster on a network of any shape, on this machine, to try things with.

mod faults;
mod map;
mod rates;
mod shell;
mod units;
mod up;
mod watch;

use clap::{Args, Subcommand};
use lab::LabError;
use lab::live::{LabPlan, Place, Request, ask};
use serde_json::Value;

use crate::output::Output;
use crate::problem::problem;

/// A cluster on a network of any shape, on this machine only: cut cables, kill bricks, and watch what happens
#[derive(Args)]
#[command(after_help = "\
A lab has nodes, each a network namespace with a brick in RAM, and cables between them with a rate and a queue: all nodes on
a switch, racks with switches, or rings of nodes that forward packets for each other. The real programs run there, and the
kernel's real network. A volume is mounted at one of the nodes.

A lab lives on in the background until `shoal lab down`. Everything of it is in namespaces that the kernel clears away however
it ends: no process, mount, file or network is left. What is in its volume is lost then.

Examples:
  shoal lab up --nodes 16 --topology torus:4x4 --code 8+2
  shoal lab shell 1                        a shell at node 1, in the mounted volume
  shoal lab shell 6 shoal status           a command there
  shoal lab watch                          the map: states and load, new each second
  shoal lab cut 1-2; shoal lab mend 1-2
  shoal lab kill 7; shoal lab slow 5 20ms
  shoal lab heal                           mends, starts and speeds up everything
  shoal lab down")]
pub(crate) struct LabArgs {
    /// Name of the lab: several can be up at the same time
    #[arg(long, value_name = "NAME", default_value = "lab", global = true)]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::UpArgs),
    Shell(shell::ShellArgs),
    Cut(faults::CutArgs),
    Mend(faults::MendArgs),
    Kill(faults::KillArgs),
    Slow(faults::SlowArgs),
    /// Mends all cables, starts killed bricks again on their disks, and ends all slowness
    Heal,
    Watch(watch::WatchArgs),
    /// Shows the map once: the same as `watch --once`
    Status,
    /// Ends the lab; returns when everything of it has gone. What is in its volume is lost
    Down,
    /// The owner of a lab
    #[command(hide = true)]
    Own {
        plan: String,
    },
    /// The first process of a lab's sandbox
    #[command(hide = true)]
    First {
        plan: String,
    },
    /// The server of a lab
    #[command(hide = true)]
    Serve {
        plan: String,
    },
}

pub(crate) fn run(args: &LabArgs, output: &Output) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(problem("a lab needs root: it is made of namespaces", "the same command with sudo"));
    }
    let place = Place::named(&args.name).map_err(explain)?;
    match &args.command {
        Command::Up(args) => up::run(args, &place, output),
        Command::Shell(args) => shell::run(args, &place, output),
        Command::Cut(args) => faults::cut(args, &place, output),
        Command::Mend(args) => faults::mend(args, &place, output),
        Command::Kill(args) => faults::kill(args, &place, output),
        Command::Slow(args) => faults::slow(args, &place, output),
        Command::Heal => faults::heal(&place, output),
        Command::Watch(args) => watch::run(args, &place, output),
        Command::Status => watch::once(&place, output),
        Command::Down => up::down(&place, output),
        Command::Own { plan } => up::own(&place, plan),
        Command::First { plan } => up::first(&place, plan),
        Command::Serve { plan } => up::serve(plan),
    }
}

/// What a lab was made as, and how programs find its cluster.
struct About {
    plan: LabPlan,
    mount: String,
    meta: String,
    key_file: String,
    document: Value,
}

impl About {
    /// Asks a lab.
    fn of(place: &Place) -> anyhow::Result<About> {
        About::parse(ask(place, &Request::About).map_err(explain)?)
    }

    fn parse(document: Value) -> anyhow::Result<About> {
        let plan = LabPlan::from_json(&document["plan"]).map_err(explain)?;
        let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
        Ok(About { plan, mount: text("mount"), meta: text("meta"), key_file: text("key_file"), document })
    }
}

/// An error of a lab, with its remedy.
fn explain(error: LabError) -> anyhow::Error {
    match error {
        LabError::Refused { what, remedy } => problem(what, remedy),
        other => other.into(),
    }
}
