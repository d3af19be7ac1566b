//! `shoal sim`: models of what nobody has at hand.

mod against;
mod net;
mod rate;
mod sched;
mod torus;

use clap::{Args, Subcommand};

use crate::output::Output;

/// Models networks and devices that nobody has at hand, in virtual time
#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    model: Model,
}

#[derive(Subcommand)]
enum Model {
    Net(net::NetArgs),
    Sched(sched::SchedArgs),
    Torus(torus::TorusArgs),
}

pub(crate) fn run(args: &SimArgs, output: &Output) -> anyhow::Result<()> {
    match &args.model {
        Model::Net(args) => net::run(args, output),
        Model::Sched(args) => sched::run(args, output),
        Model::Torus(args) => torus::run(args, output),
    }
}
