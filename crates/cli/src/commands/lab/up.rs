//! `shoal lab up` and `down`, and the processes between them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use lab::LabError;
use lab::fabric::cable::find_node;
use lab::fabric::shape::{described, topology};
use lab::fabric::{Cable, CablePlan};
use lab::live::server::Said;
use lab::live::{LabPlan, Place, Request, ask, first as first_process, owner, request, server};
use lab::sandbox;
use lab::star::Link;
use layout::topology::{Shape, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use types::Code;

use super::units::{Rate, Time};
use super::{About, explain};
use crate::embedded::fitting_code;
use crate::output::{Output, table};
use crate::problem::problem;
use crate::signals;
use crate::size::Size;

/// Makes a lab and starts a cluster in it
#[derive(Args)]
#[command(after_help = "\
Shapes: flat (all nodes on one switch), fat-tree or fat-tree:RACKS (racks with a switch each, and one above them),
torus:AxB or torus:AxBxC (rings; the nodes forward packets), mesh (every node is cabled to all others). Other networks:
--topology-file, with lines such as

  links
  node 1
  node 2
  link 1 2

Node 1 has the metadata service too. With --hop-delay the kernel needs the module sch_netem.

Examples:
  shoal lab up                                      six nodes on a switch
  shoal lab up --nodes 16 --topology torus:4x4 --code 8+2
  shoal lab up --nodes 12 --topology fat-tree:3 --link 100mbit --buffer 32K
  shoal lab up --topology torus:3x3 --name second   another one beside it")]
pub(super) struct UpArgs {
    /// Number of nodes [default: those of the torus, otherwise 6]
    #[arg(long, value_name = "N", conflicts_with = "topology_file")]
    nodes: Option<u32>,
    /// Shape of the network
    #[arg(long, value_name = "SHAPE", default_value = "flat")]
    topology: String,
    /// File that describes the network instead
    #[arg(long, value_name = "FILE", conflicts_with = "topology")]
    topology_file: Option<PathBuf>,
    /// Rate of each cable, in each direction
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    link: Rate,
    /// Queue at each end of a cable, in bytes; more packets are dropped
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    buffer: Size,
    /// Time that a packet needs along a cable, besides that for its bytes
    #[arg(long, value_name = "TIME", default_value = "0")]
    hop_delay: Time,
    /// Code of the volume: data and parity units [default: one that fits the nodes]
    #[arg(long, value_name = "K+M")]
    code: Option<Code>,
    /// Bytes of each brick; RAM is taken as they fill up
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    brick: Size,
    /// Node where the volume is mounted
    #[arg(long, value_name = "NODE", default_value = "1")]
    mount_at: String,
}

/// Nodes if nothing says how many.
const NODES_DEFAULT: u32 = 6;
/// Least and most bytes of a queue: some packets, and what 100 Gbit/s send in 5 ms.
const BUFFER: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 20;
/// Longest delay of a cable: around the earth.
const HOP_DELAY_MAX: Duration = Duration::from_secs(1);
/// How long a lab may take to end.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(args: &UpArgs, place: &Place, output: &Output) -> anyhow::Result<()> {
    let plan = plan(args)?;
    if place.is_up() {
        let what = format!("a lab `{}` is up already", place.name());
        let remedy = format!("`shoal lab down --name {}`, or --name for another lab", place.name());
        return Err(problem(what, remedy));
    }
    plan.check().map_err(explain)?;
    let about = start(&plan, place, output)?;
    let mut document = about.document.clone();
    document["name"] = place.name().into();
    output.answer(&document, || words(&about, place));
    Ok(())
}

fn plan(args: &UpArgs) -> anyhow::Result<LabPlan> {
    let topology = network(args)?;
    let nodes = topology.nodes().len() as u32;
    let code = args.code.unwrap_or_else(|| fitting_code(nodes));
    if code.slots() > nodes as usize {
        let slots = code.slots();
        let what = format!(
            "code {code} needs {slots} nodes, and there are {nodes}: units of a stripe go to different ones"
        );
        return Err(problem(what, format!("--code {}, or at least {slots} nodes", fitting_code(nodes))));
    }
    if !BUFFER.contains(&args.buffer.0) {
        let what = format!("a queue of {} is too small or too large", args.buffer);
        let remedy = format!("--buffer with {}K to {}M", BUFFER.start() >> 10, BUFFER.end() >> 20);
        return Err(problem(what, remedy));
    }
    if args.hop_delay.0 > HOP_DELAY_MAX {
        return Err(problem("a cable does not delay packets for so long", "--hop-delay of at most 1s"));
    }
    let mount_at = find_node(&topology, &args.mount_at).map_err(explain)?;
    let link = Link { mbit: args.link.0, queue: args.buffer.0 as u32 };
    let cable = CablePlan { link, delay: args.hop_delay.0 };
    Ok(LabPlan { topology, cable, code, brick: args.brick.0, mount_at })
}

fn network(args: &UpArgs) -> anyhow::Result<Topology> {
    if let Some(file) = &args.topology_file {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        return described(&text).map_err(explain);
    }
    let places = args
        .topology
        .parse::<Shape>()
        .map_or(0, |shape| shape.places().take(usize::from(u16::MAX)).count() as u32);
    let nodes = args.nodes.unwrap_or(if places == 0 { NODES_DEFAULT } else { places });
    topology(nodes, &args.topology).map_err(explain)
}

/// Starts the lab's owner in the background, and waits until the lab is up.
fn start(plan: &LabPlan, place: &Place, output: &Output) -> anyhow::Result<About> {
    let mut command = this_program()?;
    command.args(["lab", "--name", place.name(), "own", &plan.to_json().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
    let mut owner = command.spawn().context("cannot start the lab's owner")?;
    let said = owner.stdout.take().context("the lab's owner has no output")?;
    let mut spinner = output.spinner("starting the lab");
    for line in BufReader::new(said).lines() {
        let value: Value = serde_json::from_str(&line?).context("cannot understand the lab's owner")?;
        if let Some(step) = value["step"].as_str() {
            spinner.finish_and_clear();
            spinner = output.spinner(step);
            continue;
        }
        spinner.finish_and_clear();
        return match request::outcome(&value) {
            Ok(about) => About::parse(about),
            Err(error) => {
                // Nothing is left of it when this command returns.
                let _ = owner.wait();
                Err(explain(error))
            }
        };
    }
    let status = owner.wait().context("cannot wait for the lab's owner")?;
    Err(problem(format!("the lab ended before it was up ({status})"), "the command again"))
}

fn words(about: &About, place: &Place) -> String {
    let plan = &about.plan;
    let (nodes, shape, code) = (plan.nodes(), plan.topology.shape(), plan.code);
    let (cables, rate) = (plan.topology.links().len(), Rate(plan.cable.link.mbit));
    let name = if place.name() == "lab" { String::new() } else { format!(" --name {}", place.name()) };
    let first = plan.topology.links().first().map(|(a, b)| Cable::new(*a, *b));
    let at = plan.mount_at.0;
    let mut hints = vec![
        ("watch".to_owned(), "the map: states, and the load of each cable"),
        (format!("shell {at}"), "a shell there; `shoal status` and all else work in it"),
        (format!("kill {nodes}"), "the brick of a node"),
        ("heal".to_owned(), "everything as it was"),
        ("down".to_owned(), "the end of the lab, and of what is in its volume"),
    ];
    if let Some(cable) = first {
        hints.insert(2, (format!("cut {cable}"), "packets go another way, if there is one"));
    }
    let row = |(words, what): (String, &str)| vec![format!("shoal lab {words}{name}"), what.to_owned()];
    let hints: Vec<Vec<String>> = hints.into_iter().map(row).collect();
    format!(
        "lab `{}` is up: {nodes} nodes, {shape}, {cables} cables of {rate}, a brick of {} at each node\n\
         volume `main` with code {code} bears the loss of {} bricks; it is mounted at node {at}: {}\n\n\
         Try:\n{}",
        place.name(),
        Size(plan.brick),
        code.m(),
        about.mount,
        table(&hints),
    )
}

pub(super) fn down(place: &Place, output: &Output) -> anyhow::Result<()> {
    if !place.is_up() {
        return Err(explain(place.not_up()));
    }
    let first = fs::read_to_string(place.first()).ok().and_then(|pid| pid.trim().parse().ok());
    let spinner = output.spinner("ending the lab");
    if let (Err(_), Some(first)) = (ask(place, &Request::Down), first) {
        // Its server is dead or stuck. All others end with the first process.
        let _ = kill(Pid::from_raw(first), Signal::SIGKILL);
    }
    let end = Instant::now() + DOWN_PATIENCE;
    while place.is_up() && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    spinner.finish_and_clear();
    if place.is_up() {
        let what = format!("lab `{}` does not end within {} s", place.name(), DOWN_PATIENCE.as_secs());
        return Err(problem(what, "end the shells at its nodes, then the same again"));
    }
    output.answer(&json!({ "name": place.name() }), || format!("lab `{}` has ended", place.name()));
    Ok(())
}

/// This program, to be started again.
fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?))
}

/// The owner: in the background, outside of the sandbox.
pub(super) fn own(place: &Place, plan: &str) -> anyhow::Result<()> {
    // Fails only for the leader of a process group, which needs no new session.
    let _ = nix::unistd::setsid();
    let first = Arc::new(AtomicI32::new(0));
    let to_end = Arc::clone(&first);
    signals::on_stop(move |_| match to_end.load(Ordering::Acquire) {
        0 => std::process::exit(1),
        // It ends everything in the sandbox, and this process goes on.
        pid => drop(kill(Pid::from_raw(pid), Signal::SIGTERM)),
    })?;
    let mut command = this_program()?;
    command.args(["lab", "--name", place.name(), "first", plan]);
    or_say(owner::run(place, &mut command, |pid| first.store(pid.as_raw(), Ordering::Release)));
    Ok(())
}

/// The first process of the sandbox.
pub(super) fn first(place: &Place, plan: &str) -> anyhow::Result<()> {
    signals::on_stop(|_| sandbox::end_all())?;
    let mut command = this_program()?;
    command.args(["lab", "--name", place.name(), "serve", plan]);
    let bytes = parse(plan).map(|plan| plan.sandbox_bytes());
    or_say(bytes.and_then(|bytes| first_process::run(bytes, &place.socket(), &mut command)));
    Ok(())
}

/// The server, within the sandbox.
pub(super) fn serve(plan: &str) -> anyhow::Result<()> {
    let shoal = std::env::current_exe().context("cannot find this program's own file")?;
    let tell = |said: Said<'_>| match said {
        Said::Step(step) => say(&json!({ "step": step })),
        Said::Up(about) => say(&request::answer(Ok(about.clone()))),
    };
    or_say(parse(plan).and_then(|plan| server::run(&shoal, plan, tell)));
    Ok(())
}

fn parse(plan: &str) -> Result<LabPlan, LabError> {
    let value: Value = serde_json::from_str(plan).map_err(lab::doing("read the plan of a lab"))?;
    LabPlan::from_json(&value)
}

/// Tells `shoal lab up`, which reads lines.
fn say(line: &Value) -> Result<(), LabError> {
    let mut to = std::io::stdout().lock();
    writeln!(to, "{line}").and_then(|()| to.flush()).map_err(lab::doing("tell what happens"))
}

/// Tells an error to `shoal lab up`, and to the log.
fn or_say(ran: Result<(), LabError>) {
    if let Err(error) = ran {
        let _ = writeln!(std::io::stderr(), "error: {error}");
        let _ = say(&request::answer(Err(error)));
    }
}
