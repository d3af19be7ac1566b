//! Selects and kills bricks.

use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use types::BrickId;
use types::messages::cluster::{BrickState, ClusterMap, SlotState};

use super::cluster::DemoCluster;
use crate::commands::status::primary_of;
use crate::embedded::{self, MAIN_VOLUME};

/// A brick that was killed.
pub(super) struct Victim {
    pub(super) brick: BrickId,
    pub(super) pid: i32,
    /// Groups of which it was the primary when it was killed.
    pub(super) primary_of: usize,
    /// Operations that it had ordered as primary.
    pub(super) ordered: u64,
    /// Units that it had decoded.
    pub(super) decoded: u64,
    /// When in the pass it was killed, in bytes.
    pub(super) at: u64,
}

/// A metadata server that led, and was killed.
pub(super) struct LostLeader {
    pub(super) name: String,
    /// The one that led after it, and how long nobody did.
    pub(super) follower: String,
    pub(super) seconds: f64,
}

/// How long an election may take.
const ELECTION: Duration = Duration::from_secs(60);

/// Kills the metadata server that leads with SIGKILL, and returns when another one does.
pub(super) fn kill_leader(cluster: &DemoCluster) -> anyhow::Result<LostLeader> {
    let leads = embedded::leader(&cluster.home)?.context("no metadata server leads")?;
    let (name, report) = leads;
    let daemon = cluster.home.daemon(&name).with_context(|| format!("{name} does not run"))?;
    let began = Instant::now();
    daemon.signal(Signal::SIGKILL)?;
    anyhow::ensure!(daemon.wait_gone(Duration::from_secs(5)), "{name} survived SIGKILL");
    while began.elapsed() < ELECTION {
        if let Some((follower, later)) = embedded::leader(&cluster.home)?
            && later.term > report.term
        {
            return Ok(LostLeader { name, follower, seconds: began.elapsed().as_secs_f64() });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("no metadata server leads {} s after {name} was killed", ELECTION.as_secs())
}

/// How long a small input may lie in the mount's buffers before the first write is ordered.
const FIRST_WRITE: Duration = Duration::from_secs(5);

/// The primary that has ordered the most operations so far, so that groups in use lose their primary. Waits for the first
/// write to be ordered: the mount keeps a small input for a second.
pub(super) fn busiest_primary(cluster: &DemoCluster) -> anyhow::Result<BrickId> {
    let began = Instant::now();
    loop {
        let map = cluster.remote.status()?.map;
        let reports = up(&map).filter_map(|(id, address)| Some((id, cluster.remote.brick(address)?)));
        let primaries = reports.filter(|(id, report)| report.ordered > 0 && primary_of(&map, *id) > 0);
        let busiest = primaries.max_by_key(|(_, report)| report.ordered);
        if let Some((id, _)) = busiest {
            return Ok(id);
        }
        anyhow::ensure!(began.elapsed() < FIRST_WRITE, "no brick has ordered a write yet");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The live brick with the most data slots, so that reads must decode.
pub(super) fn fullest_data_brick(cluster: &DemoCluster) -> anyhow::Result<BrickId> {
    let map = cluster.remote.status()?.map;
    let volume = map.volume_named(MAIN_VOLUME).context("the volume `main` is gone")?;
    let data_slots = |id: BrickId| {
        let data =
            (0..).zip(&volume.groups).flat_map(|(index, g)| g.slots.iter().take(volume.code_of(index).k()));
        data.filter(|s| s.brick == id && s.state == SlotState::Live).count()
    };
    let fullest = up(&map).max_by_key(|(id, _)| data_slots(*id));
    fullest.map(|(id, _)| id).context("no brick is up")
}

fn up(map: &ClusterMap) -> impl Iterator<Item = (BrickId, &str)> {
    map.bricks.iter().filter(|b| b.state == BrickState::Up).map(|b| (b.id, b.address.as_str()))
}

/// Kills a brick with SIGKILL.
pub(super) fn kill(cluster: &DemoCluster, brick: BrickId, at: u64) -> anyhow::Result<Victim> {
    let map = cluster.remote.status()?.map;
    let address = &map.brick(brick).with_context(|| format!("the map has no brick {brick}"))?.address;
    let report = cluster.remote.brick(address);
    let daemon = cluster.brick_daemon(brick)?;
    daemon.signal(Signal::SIGKILL)?;
    anyhow::ensure!(daemon.wait_gone(Duration::from_secs(5)), "brick {brick} survived SIGKILL");
    Ok(Victim {
        brick,
        pid: daemon.pid(),
        primary_of: primary_of(&map, brick),
        ordered: report.as_ref().map_or(0, |r| r.ordered),
        decoded: report.as_ref().map_or(0, |r| r.decoded),
        at,
    })
}
