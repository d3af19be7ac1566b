//! Makes, starts and stops an embedded cluster.
//!
//! The metadata service is stopped first. So no brick is put Out because it stops slowly.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use store::FormatOptions;
use types::messages::cluster::{BrickState, ClusterMap, VolumeCreate, VolumeInfo};
use types::messages::replica::{MetaReport, MetaStatus};
use types::messages::session::Role;
use types::{BrickId, ClusterId, Code, Geometry, Refusal, limits};
use world::{CallError, World};

use crate::daemon::LISTENING;
use crate::home::{Home, Plan};
use crate::new_cluster::{create_store, new_identity};
use crate::output::Output;
use crate::problem::problem;
use crate::process::{self, Started, Stopped};
use crate::remote::{ClusterSnapshot, Remote, Target, explain, real_world};
use crate::size::Size;

/// Name of the volume that every embedded cluster begins with.
pub(crate) const MAIN_VOLUME: &str = "main";
/// How long a metadata server may take to say how it is, in microseconds.
const META_PATIENCE_US: u64 = 500_000;
/// How long a start may take before it counts as failed.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// How long a daemon may take to stop by itself.
const STOP_PATIENCE: Duration = Duration::from_secs(20);

/// The properties of a new embedded cluster.
pub(crate) struct ClusterSpec {
    pub(crate) bricks: u32,
    pub(crate) code: Code,
    pub(crate) size: Size,
    pub(crate) memory: Size,
    /// Bytes of each brick's journal; chosen by the brick's size if [`None`].
    pub(crate) journal: Option<Size>,
    /// Port of the metadata service; any free one if [`None`].
    pub(crate) port: Option<u16>,
    /// Metadata servers.
    pub(crate) metas: u32,
}

/// Makes the directory, the key, the metadata service's store and the bricks.
pub(crate) fn make(dir: &Path, spec: &ClusterSpec, output: &Output) -> anyhow::Result<Home> {
    if spec.code.slots() > spec.bricks as usize {
        return Err(problem(
            format!(
                "code {} needs {} bricks, one for each unit, and there are {}",
                spec.code,
                spec.code.slots(),
                spec.bricks
            ),
            format!("--bricks {}, or --code {}", spec.code.slots(), fitting_code(spec.bricks)),
        ));
    }
    let world = real_world()?;
    let (cluster, key) = new_identity(&world);
    let ClusterSpec { bricks, code, size, memory, metas, .. } = *spec;
    let port = spec.port.map_or_else(|| free_ports(&world, bricks + metas - 1), Ok)?;
    let home = Home::prepare(dir, Plan { cluster, port, bricks, size, code, memory, metas }, &key)?;
    create_store(&home.meta_dir(), cluster)?;
    let bar = output.count_bar("formatting bricks", bricks.into());
    for brick in home.bricks() {
        format(&world, &home.brick_path(brick), brick, cluster, spec)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    home.commit()?;
    Ok(home)
}

/// The first of consecutive free ports of loopback: one for the metadata service and so many others. They lie below the
/// range that the kernel assigns to connections, so they stay free while the cluster is down.
fn free_ports(world: &World, others: u32) -> anyhow::Result<u16> {
    const LOWEST: u64 = 10_000;
    const HIGHEST: u64 = 32_000;
    const TRIES: usize = 200;
    let free =
        |port: u64| u16::try_from(port).is_ok_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let mut runs = (0..TRIES).map(|_| LOWEST + world.random() % (HIGHEST - LOWEST));
    let run = runs.find(|first| (*first..=first + u64::from(others)).all(free));
    run.and_then(|first| u16::try_from(first).ok()).context("no run of ports of 127.0.0.1 is free")
}

fn format(
    world: &World,
    path: &Path,
    brick: BrickId,
    cluster: ClusterId,
    spec: &ClusterSpec,
) -> anyhow::Result<()> {
    let text = path.to_str().context("the directory's path must be UTF-8")?;
    // A file from an interrupted start belongs to no cluster yet, because cluster.json is written last.
    let _ = std::fs::remove_file(path);
    let options = FormatOptions { cluster, brick, journal_bytes: spec.journal.map(|j| j.0) };
    world.block_on(async {
        let disk =
            world.create_disk(text, spec.size.0).await.with_context(|| format!("cannot make {text}"))?;
        store::format(world, &disk, &options).await.with_context(|| format!("cannot format {text}"))?;
        Ok(())
    })
}

/// The default code of an embedded cluster of `bricks` bricks: two parity units from four bricks on, at most 8+2.
pub(crate) fn fitting_code(bricks: u32) -> Code {
    let (k, m) = match bricks {
        0 | 1 => (1, 0),
        2 => (1, 1),
        3 => (2, 1),
        n => (u8::try_from(n - 2).unwrap_or(8).min(8), 2),
    };
    Code::new(k, m).expect("1 to 8 data units and up to 2 parity units are in range")
}

/// Starts all daemons that do not run, and waits until they serve.
///
/// `tied` daemons die with this process, however it ends.
pub(crate) fn start(home: &Home, tied: bool, output: &Output) -> anyhow::Result<ClusterSnapshot> {
    home.secure()?;
    let end = Instant::now() + START_PATIENCE;
    let mut started = launch_bricks(home, tied, end, output)?;
    for (name, address) in home.metas() {
        started.extend(launch(home, &name, meta_args(home, &name, &address), tied)?);
    }
    let spinner = output.spinner("starting the metadata service");
    let remote = Remote::new(&Target::embedded(home)?)?;
    while home.plan().metas > 1 && !has_all_metas(home)? {
        patience(&mut started, end, "the metadata servers")?;
    }
    let mut map = ClusterMap::empty(home.plan().cluster);
    loop {
        match remote.follow(&mut map) {
            Ok(()) => {
                let waiting = home.bricks().filter(|b| !serves(&map, *b)).count();
                if waiting == 0 {
                    break;
                }
                spinner.set_message(format!("waiting for {waiting} of {} bricks", home.plan().bricks));
            }
            Err(CallError::Unreachable) => {}
            Err(error) => return Err(explain(error, &home.meta_address())),
        }
        patience(&mut started, end, "the cluster")?;
    }
    spinner.finish_and_clear();
    remote.status()
}

/// Starts the bricks that do not run, and waits until each has recovered. Only then is the metadata service started,
/// because from its start on the arbiter counts how long it has not heard a brick.
fn launch_bricks(home: &Home, tied: bool, end: Instant, output: &Output) -> anyhow::Result<Vec<Started>> {
    let mut started = Vec::new();
    for brick in home.bricks() {
        started.extend(launch(home, &brick.to_string(), brick_args(home, brick), tied)?);
    }
    let bar = output.count_bar("starting bricks", started.len() as u64);
    loop {
        let ready = started.iter().filter(|brick| brick.said().contains(LISTENING)).count();
        bar.set_position(ready as u64);
        if ready == started.len() {
            bar.finish_and_clear();
            return Ok(started);
        }
        patience(&mut started, end, "the bricks")?;
    }
}

/// Whether the leader counts all metadata servers as members.
fn has_all_metas(home: &Home) -> anyhow::Result<bool> {
    let leads = leader(home)?;
    let members = leads.iter().flat_map(|(_, report)| &report.members);
    Ok(members.filter(|member| !member.is_joining).count() == home.plan().metas as usize)
}

/// The name of the metadata server that leads, if one does, and what it says.
pub(crate) fn leader(home: &Home) -> anyhow::Result<Option<(String, MetaReport)>> {
    let remote = Remote::as_role(&Target::embedded(home)?, Role::MetaFollower)?;
    let mut newest: Option<(String, MetaReport)> = None;
    for (name, address) in home.metas() {
        let Ok(report) = remote.server(&address, META_PATIENCE_US, &MetaStatus {}) else { continue };
        let is_newer = newest.as_ref().is_none_or(|(_, other)| other.term < report.term);
        if report.id != 0 && report.leader == report.id && is_newer {
            newest = Some((name, report));
        }
    }
    Ok(newest)
}

fn serves(map: &ClusterMap, brick: BrickId) -> bool {
    map.brick(brick).is_some_and(|b| b.state == BrickState::Up)
}

fn patience(started: &mut [Started], end: Instant, what: &str) -> anyhow::Result<()> {
    for daemon in started {
        daemon.check()?;
    }
    if Instant::now() > end {
        let what = format!("{what} did not come up within {} s", START_PATIENCE.as_secs());
        return Err(problem(what, "the logs in the directory's log/"));
    }
    thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// Starts one daemon unless it runs.
fn launch(home: &Home, name: &str, args: Vec<OsString>, tied: bool) -> anyhow::Result<Option<Started>> {
    if home.daemon(name).is_some() {
        return Ok(None);
    }
    let mut args = args;
    args.push(if tied { "--tied" } else { "--detached" }.into());
    let mut started = process::start(name, &args, &home.log_path(name))?;
    match started.daemon() {
        Some(daemon) => daemon.write(&home.pid_path(name))?,
        None => started.check()?,
    }
    Ok(Some(started))
}

fn meta_args(home: &Home, name: &str, address: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["meta".into(), "--dir".into(), home.dir().join(name).into()];
    args.extend(["--listen".into(), address.into()]);
    if home.dir().join(name) != home.meta_dir() {
        args.extend(["--join".into(), home.meta_address().into()]);
    }
    args.extend(["--key-file".into(), home.key_path().into()]);
    args.extend(["--memory".into(), home.plan().memory.0.to_string().into()]);
    args
}

fn brick_args(home: &Home, brick: BrickId) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["brick".into(), "--disk".into(), home.brick_path(brick).into()];
    args.extend(["--meta".into(), home.meta_address().into()]);
    args.extend(["--listen".into(), home.brick_address(brick).into()]);
    args.extend(["--node".into(), "1".into()]);
    args.extend(["--key-file".into(), home.key_path().into()]);
    args.extend(["--memory".into(), home.plan().memory.0.to_string().into()]);
    args
}

/// The volume `main`; makes it if it does not exist.
pub(crate) fn main_volume(home: &Home, remote: &Remote) -> anyhow::Result<VolumeInfo> {
    let geometry = Geometry::new(home.plan().code, limits::UNIT_DEFAULT, limits::EXTENT_STRIPES_DEFAULT)
        .context("the code does not fit the default unit")?;
    let create = VolumeCreate {
        name: MAIN_VOLUME.into(),
        geometry,
        groups: 0,
        same_node: true,
        block: None,
        class: None,
        tiers: Vec::new(),
        placement: None,
        near_writer: false,
        shard: None,
        token: 0,
    };
    match remote.meta_or_refusal(&create)? {
        Ok(reply) => Ok(reply.volume),
        Err(Refusal::Exists) => {
            let map = remote.status()?.map;
            map.volume_named(MAIN_VOLUME).cloned().context("the volume `main` was there and is gone")
        }
        Err(refusal) => Err(anyhow::anyhow!("cannot make the volume `main`: {refusal}")),
    }
}

/// What became of the daemons of a cluster that were to stop.
#[derive(Default)]
pub(crate) struct StopReport {
    /// Names of the daemons that had to be killed.
    pub(crate) killed: Vec<String>,
    /// Names of the daemons that still run, and why.
    pub(crate) running: Vec<(String, &'static str)>,
}

impl StopReport {
    fn add(&mut self, name: String, stopped: Stopped) {
        match stopped {
            Stopped::ByItself => {}
            Stopped::Killed => self.killed.push(name),
            Stopped::Runs(why) => self.running.push((name, why)),
        }
    }
}

/// Stops every daemon of the cluster.
pub(crate) fn stop(home: &Home, output: &Output) -> StopReport {
    let spinner = output.spinner("stopping");
    let mut report = StopReport::default();
    let names: Vec<String> = home.metas().into_iter().map(|(name, _)| name).collect();
    let metas: Vec<_> = names.iter().filter_map(|name| Some((name.clone(), home.daemon(name)?))).collect();
    for (_, daemon) in &metas {
        // One that may not be signalled is named below.
        let _ = daemon.signal(nix::sys::signal::Signal::SIGTERM);
    }
    for (name, daemon) in metas {
        report.add(name, daemon.stop(STOP_PATIENCE));
    }
    let bricks: Vec<_> =
        home.bricks().filter_map(|b| Some((b.to_string(), home.daemon(&b.to_string())?))).collect();
    for (_, daemon) in &bricks {
        let _ = daemon.signal(nix::sys::signal::Signal::SIGTERM);
    }
    for (name, daemon) in bricks {
        report.add(name, daemon.stop(STOP_PATIENCE));
    }
    let stays = |name: &String| report.running.iter().any(|(running, _)| running == name);
    for name in names.into_iter().chain(home.bricks().map(|b| b.to_string())).filter(|name| !stays(name)) {
        let _ = std::fs::remove_file(home.pid_path(&name));
    }
    spinner.finish_and_clear();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_fit_their_bricks() {
        let codes: Vec<String> = [1, 2, 3, 4, 6, 10, 40].map(|n| fitting_code(n).to_string()).into();
        assert_eq!(codes, ["1+0", "1+1", "2+1", "2+2", "4+2", "8+2", "8+2"]);
    }
}
