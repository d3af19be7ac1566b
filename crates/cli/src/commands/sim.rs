//! `shoal sim`: models of what nobody has at hand.

mod against;
mod net;

use clap::{Args, Subcommand};

use crate::output::Output;

/// Models networks that nobody has at hand, in virtual time
#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    model: Model,
}

#[derive(Subcommand)]
enum Model {
    Net(net::NetArgs),
}

pub(crate) fn run(args: &SimArgs, output: &Output) -> anyhow::Result<()> {
    let Model::Net(args) = &args.model;
    net::run(args, output)
}
