//! `shoal net`: what the network between this machine and the bricks is like; how one without switches is planned.

mod check;
mod machine;
mod network_args;
mod plan;
mod planned;
mod probe;

use std::net::{ToSocketAddrs, UdpSocket};

use clap::{Args, Subcommand};
use serde_json::json;
use types::RAIL;
use types::messages::cluster::{BrickInfo, BrickState};
use world::WindowSetting;

use self::probe::{Probe, Probed};
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

/// Plans a network, and tells what one is like
#[derive(Args)]
pub(crate) struct NetArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Measures round trips, the rate, how many bricks may send at once, and how large a burst arrives whole
    #[command(after_help = "\
Asks the bricks for small answers, then more and more of them at once for 128 KiB each, then all for bursts that become
larger until packets are lost. It takes some seconds, moves up to 250 MB and touches no disk. Programs that use the network
meanwhile may lose a few packets too.

Bricks on this machine are left out: nothing is lost on the way to them.

Examples:
  shoal net probe --meta HOST:7400 --key-file key
  shoal net probe --json")]
    Probe,
    Plan(plan::PlanArgs),
    Check(check::CheckArgs),
}

pub(crate) fn run(args: &NetArgs, output: &Output) -> anyhow::Result<()> {
    match &args.command {
        Command::Probe => measure(&args.connection, output),
        Command::Plan(args) => plan::run(args, output),
        Command::Check(args) => check::run(args, output),
    }
}

fn measure(connection: &ConnectionArgs, output: &Output) -> anyhow::Result<()> {
    // The bursts are to come at once.
    world::set_receive_window(WindowSetting::Off, None);
    let target = connection.target()?;
    let remote = Remote::new(&target)?;
    let map = remote.status()?.map;
    let up: Vec<&BrickInfo> = map.bricks.iter().filter(|brick| brick.state == BrickState::Up).collect();
    if up.is_empty() {
        return Err(problem("no brick is up", "`shoal status` shows them"));
    }
    let (far, near): (Vec<&BrickInfo>, Vec<&BrickInfo>) =
        up.into_iter().partition(|brick| !brick.address.split(RAIL).any(is_here));
    if far.is_empty() {
        let document = json!({ "bricks": [], "here": near.len() });
        output.answer(&document, || {
            "all bricks are on this machine: there is no network to measure".to_owned()
        });
        return Ok(());
    }
    let rails = |brick: &&BrickInfo| {
        brick.address.split(RAIL).map(|rail| (brick.id, rail.to_owned())).collect::<Vec<_>>()
    };
    let bricks = far.iter().flat_map(rails).collect();
    let bar = output.spinner("measuring the network");
    let probed = Probe::new(&remote, bricks).run();
    bar.finish_and_clear();
    let probed = probed.map_err(|(brick, error)| {
        problem(
            format!("brick {brick} did not answer a probe: {error}"),
            "`shoal status`, then the same again",
        )
    })?;
    output.answer(&probed.to_json(near.len()), || words(&probed));
    Ok(())
}

/// Whether an address is this machine's own.
fn is_here(address: &str) -> bool {
    let Some(there) = address.to_socket_addrs().ok().and_then(|mut found| found.next()) else { return false };
    let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    // Nothing is sent: the kernel only looks for the way, and goes to its own addresses from themselves.
    let from =
        UdpSocket::bind(any).and_then(|socket| socket.connect(there).and_then(|()| socket.local_addr()));
    from.is_ok_and(|from| from.ip() == there.ip())
}

fn words(probed: &Probed) -> String {
    let mut rows = vec![["brick", "address", "round trip, us", "least"].map(str::to_owned).to_vec()];
    for trip in &probed.trips {
        let (brick, address) = (trip.brick.to_string(), trip.address.clone());
        rows.push(vec![brick, address, trip.median_us.to_string(), trip.least_us.to_string()]);
    }
    let mut text = table(&rows) + "\n";
    let head = ["bricks at once", "MB/s", "median, ms", "slowest, ms", "packets sent again"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for step in &probed.steps {
        rows.push(vec![
            step.senders.to_string(),
            format!("{:.1}", step.mb_per_s),
            format!("{:.1}", step.median_us as f64 / 1e3),
            format!("{:.1}", step.slowest_us as f64 / 1e3),
            step.resent.to_string(),
        ]);
    }
    text += &table(&rows);
    for finding in probed.findings() {
        text += &format!("\n{finding}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known() {
        assert!(is_here("127.0.0.1:7400"));
        assert!(!is_here("no address"));
        // Set aside for documentation (RFC 5737): never one's own.
        assert!(!is_here("192.0.2.7:7400"));
    }
}
