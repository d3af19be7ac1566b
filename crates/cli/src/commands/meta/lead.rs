//! `shoal meta lead`: another metadata server leads.

use clap::Args;
use serde_json::json;
use types::messages::replica::{MetaLead, MetaStatus};
use types::messages::session::Role;

use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

/// How long it may take until that server leads, how long its answers may, the pause between them, and the time after which the
/// leader is asked again, in microseconds.
const LEADS_US: u64 = 20_000_000;
const ASK_US: u64 = 1_000_000;
const PAUSE_US: u64 = 20_000;
const AGAIN_US: u64 = 3_000_000;

/// Lets another metadata server lead, for example before its machine is stopped, or to spread the leaders of shards
#[derive(Args)]
#[command(after_help = "\
Programs wait for some tenths of a second. A server that is stopped in order does this by itself.

Examples:
  shoal meta lead 10.0.0.2:7400 --meta 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400 --key-file /etc/shoal/key
  shoal meta lead 10.0.0.2:7401 --shard 1                   of the servers of shard 1")]
pub(crate) struct LeadArgs {
    /// Its address, as `shoal meta list` shows it
    #[arg(value_name = "ADDR")]
    server: String,
    /// Of this shard; without it, of the one whose servers --meta names
    #[arg(long, value_name = "N")]
    shard: Option<u8>,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

pub(super) fn run(args: &LeadArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?.of_shard(args.shard)?;
    let remote = Remote::new(&target)?;
    let ask = || -> anyhow::Result<()> {
        match remote.meta_or_explain(&MetaLead { address: args.server.clone() })?.error {
            Some(error) => Err(problem(error, "`shoal meta list` shows the servers")),
            None => Ok(()),
        }
    };
    ask()?;
    let followers = Remote::as_role(&target, Role::MetaFollower)?;
    let until = remote.now() + LEADS_US;
    let mut again = remote.now() + AGAIN_US;
    while remote.now() < until {
        // It may have been behind, on a busy machine, or another one was elected.
        if remote.now() >= again {
            ask()?;
            again = remote.now() + AGAIN_US;
        }
        let report = followers.server(&args.server, ASK_US, &MetaStatus {});
        if report.is_ok_and(|report| report.id != 0 && report.leader == report.id) {
            output.answer(&json!({ "leads": args.server }), || format!("{} leads", args.server));
            return Ok(());
        }
        remote.pause(PAUSE_US);
    }
    Err(problem(
        format!("{} does not lead yet", args.server),
        "`shoal meta list` shows who leads; again, if it is another one",
    ))
}
