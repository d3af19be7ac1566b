//! `shoal`: the only program, for users and for service managers.
//!
//! Reading order:
//!
//! | file | what |
//! |---|---|
//! | `commands/` | one file per command |
//! | `home.rs` | the directory of a cluster that `shoal up` makes |
//! | `process.rs` | the daemons of this machine |
//! | `remote.rs` | requests to the servers of a cluster |
//! | `mount8.rs` | the interface for mount(8) |
//! | `demo/` | `shoal demo` |

mod broken_mounts;
mod cache_file;
mod commands;
mod daemon;
mod damage;
mod demo;
mod device_class;
mod device_profile;
mod embedded;
mod gate;
mod home;
mod lock_holder;
mod mount8;
mod mountpoint;
mod new_cluster;
mod output;
mod peers;
mod picture;
mod private;
mod problem;
mod process;
mod progress;
mod remote;
mod run_files;
mod signals;
mod size;
mod store_scan;
mod tier_code;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::Output;

/// Many disks that move as one: files on a cluster of bricks, protected by codes of K data and M parity units.
#[derive(Parser)]
#[command(name = "shoal", version, max_term_width = 100, after_help = EXAMPLES)]
struct Shoal {
    /// Answers with one JSON document on standard output.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(commands::demo::DemoArgs),
    Up(commands::up::UpArgs),
    Down(commands::down::DownArgs),
    Status(commands::status::StatusArgs),
    Mount(commands::mount::MountArgs),
    Umount(commands::umount::UmountArgs),
    Nbd(commands::nbd::NbdArgs),
    Nfs(commands::nfs::NfsArgs),
    Volume(commands::volume::VolumeArgs),
    Tier(commands::tier::TierArgs),
    Convert(commands::convert::ConvertArgs),
    Tune(commands::tune::TuneArgs),
    Xray(commands::xray::XrayArgs),
    Why(commands::why::WhyArgs),
    Topology(commands::topology::TopologyArgs),
    Net(commands::net::NetArgs),
    Cluster(commands::cluster::ClusterArgs),
    Meta(commands::meta::MetaArgs),
    Brick(commands::brick::BrickArgs),
    Code(commands::code::CodeArgs),
    Lab(commands::lab::LabArgs),
    Paper(commands::paper::PaperArgs),
    Sim(commands::sim::SimArgs),
}

const EXAMPLES: &str = "\
Examples:
  shoal demo                          watch ten bricks, two of them killed, lose nothing
  shoal up --bricks 6                 a cluster of this machine, data in one directory
  shoal mount main /mnt/shoal         its volume as files
  shoal status                        bricks, space, groups and memory
  shoal tune /mnt/shoal               settings of a mount, which change while it is in use
  shoal xray /mnt/shoal               what each layer of a mount reads and writes
  shoal why --slow /mnt/shoal         what its slowest requests have waited for
  shoal net probe                     what the network towards the bricks is like
  shoal net plan --mesh 3             cables and addresses of a network without a switch
  shoal umount /mnt/shoal; shoal down
  shoal tier run main --cold-after 30d   files that nobody uses go to slower disks
  shoal nbd vm                        a block volume as a disk for virtual machines
  shoal nfs main                      a volume for clients of NFS
  shoal lab up --topology torus:3x3   a cluster on a network of any shape, to try things with
  shoal paper 000                     the experiments of a paper, repeated
  shoal sim net                       reads through switches that nobody has at hand, modelled
  shoal sim torus                     hundreds of nodes without a switch, modelled

A cluster of several machines: `shoal cluster init`, then `shoal meta`, `shoal brick` and `shoal volume create`;
each one's --help has its lines of the example.";

fn main() -> ExitCode {
    abort_on_panic();
    daemon::close_inherited();
    let done = match mount8::translate(&std::env::args_os().collect::<Vec<_>>()) {
        None => {
            let shoal = Shoal::parse();
            let output = Output::new(shoal.json);
            return ended(run(shoal.command, &output), &output);
        }
        Some(Ok(mounting)) if mounting.words.is_empty() => Ok(()),
        Some(Ok(mounting)) => {
            let shoal = Shoal::parse_from(&mounting.words);
            run(shoal.command, &Output::silent()).and_then(|()| mounting.finish())
        }
        Some(Err(error)) => Err(error),
    };
    ended(done, &Output::silent())
}

fn ended(done: anyhow::Result<()>, output: &Output) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Ends the process when any thread panics, in builds that would unwind too: what goes on after a panic may be wrong.
fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some(error) = damage::explain(info) {
            Output::new(false).error(&error);
            std::process::exit(1);
        }
        tell(info);
        std::process::abort();
    }));
}

fn run(command: Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => commands::demo::run(&args, output),
        Command::Up(args) => commands::up::run(&args, output),
        Command::Down(args) => commands::down::run(&args, output),
        Command::Status(args) => commands::status::run(&args, output),
        Command::Mount(args) => commands::mount::run(&args, output),
        Command::Nbd(args) => commands::nbd::run(&args, output),
        Command::Nfs(args) => commands::nfs::run(&args, output),
        Command::Umount(args) => commands::umount::run(&args, output),
        Command::Volume(args) => commands::volume::run(&args, output),
        Command::Tier(args) => commands::tier::run(&args, output),
        Command::Convert(args) => commands::convert::run(&args, output),
        Command::Tune(args) => commands::tune::run(&args, output),
        Command::Xray(args) => commands::xray::run(&args, output),
        Command::Why(args) => commands::why::run(&args, output),
        Command::Topology(args) => commands::topology::run(&args, output),
        Command::Net(args) => commands::net::run(&args, output),
        Command::Cluster(args) => commands::cluster::run(&args, output),
        Command::Meta(args) => commands::meta::run(&args, output),
        Command::Brick(args) => commands::brick::run(&args, output),
        Command::Code(args) => commands::code::run(&args, output),
        Command::Lab(args) => commands::lab::run(&args, output),
        Command::Paper(args) => commands::paper::run(&args, output),
        Command::Sim(args) => commands::sim::run(&args, output),
    }
}
