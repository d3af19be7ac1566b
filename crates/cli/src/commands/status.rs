//! `shoal status`: the cluster at a glance.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use types::BrickId;
use types::messages::brick::{BrickReport, CacheReport};
use types::messages::cluster::{BrickInfo, BrickState, ClusterMap, GroupConfig};
use types::messages::reach::UnreachedBrick;
use types::messages::recovery::RecoveryReport;
use types::messages::{LongTurn, WindowReport};

use crate::broken_mounts::{self, BrokenMount};
use crate::gate::gates_of;
use crate::mountpoint::mount_daemons;
use crate::output::{Output, table};
use crate::peers;
use crate::picture::picture;
use crate::progress::Progress;
use crate::remote::{ClusterSnapshot, ConnectionArgs, Remote};
use crate::size::Size;

/// Shows bricks, space, groups with their epochs and primaries, memory against the budgets, and the longest turns
#[derive(Args)]
#[command(after_help = "\
A turn is the time for which one task keeps its thread, while everything else on this thread waits. `longest turn` is the
longest one of the last hour, with its task. `--json` has the longest of each kind of task: `wall_us` by the clock, and
`cpu_us`, at most the CPU time of the thread itself. If `cpu_us` is much less, the machine was busy with other programs.

Examples:
  shoal status                                              the embedded cluster
  shoal status --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  shoal status --json")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    cluster: ConnectionArgs,
    /// Asks a mount whether it answers, and nothing else: this command starts itself so
    #[arg(long, hide = true, value_name = "DIR")]
    ask_mount: Option<PathBuf>,
}

pub(crate) fn run(args: &StatusArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(dir) = &args.ask_mount {
        broken_mounts::answer(dir);
        return Ok(());
    }
    let target = args.cluster.target()?;
    let remote = Remote::new(&target)?;
    let report = remote.status()?;
    let mut answers = remote.bricks(&report.map);
    let infos = report.map.bricks.iter();
    let bricks: Vec<(BrickInfo, Option<BrickReport>)> =
        infos.map(|info| (info.clone(), answers.remove(&info.id))).collect();
    let here = Here::of(&target.meta);
    let progress = Progress::of(&report.map, bricks.iter().filter_map(|(_, answer)| answer.as_ref()));
    output.answer_by(
        || document(&report, &bricks, &progress, &here),
        || words(&report, &bricks, &progress, &here, &target.meta),
    );
    Ok(())
}

/// What this machine has of the cluster.
struct Here {
    mounts: Vec<PathBuf>,
    broken: Vec<BrokenMount>,
    exports: Vec<String>,
}

impl Here {
    fn of(meta: &str) -> Here {
        let mounts = mount_daemons().into_iter().filter(|m| m.meta == meta).map(|m| m.dir).collect();
        let exports = gates_of(meta).into_iter().map(|gate| gate.uri).collect();
        Here { mounts, broken: broken_mounts::broken_mounts(meta), exports }
    }

    fn words(&self) -> String {
        let is_sound = |dir: &&PathBuf| !self.broken.iter().any(|mount| mount.dir == **dir);
        let sound = self.mounts.iter().filter(is_sound);
        let mounts = sound.map(|dir| format!("\nmounted here at {}", dir.display()));
        let broken = self.broken.iter().map(|mount| format!("\n{}", mount.words()));
        let exports = self.exports.iter().map(|uri| format!("\nexported here at {uri}"));
        mounts.chain(broken).chain(exports).collect()
    }
}

fn state(info: &BrickInfo, report: Option<&BrickReport>) -> &'static str {
    match (info.state, report) {
        (BrickState::Out, _) => "out",
        (BrickState::Up, None) => "silent",
        (BrickState::Up, Some(_)) => "up",
    }
}

fn words(
    report: &ClusterSnapshot,
    bricks: &[(BrickInfo, Option<BrickReport>)],
    progress: &Progress,
    here: &Here,
    meta: &str,
) -> String {
    let head = [
        "brick",
        "node",
        "class",
        "state",
        "used",
        "size",
        "units",
        "decoded",
        "damaged",
        "primary of",
        "memory",
        "longest turn",
        "at",
        "disk",
    ];
    let roles = roles(&report.map);
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (info, answer) in bricks {
        let answer = answer.as_ref();
        let count = |f: fn(&BrickReport) -> u64| answer.map_or("-".into(), |a| f(a).to_string());
        rows.push(vec![
            info.id.to_string(),
            info.node.to_string(),
            info.class.to_string(),
            format!("{}{}", state(info, answer), idle(&report.map, roles.get(&info.id))),
            Size(info.capacity.saturating_sub(info.free)).to_string(),
            Size(info.capacity).to_string(),
            count(|a| a.units),
            count(|a| a.decoded),
            count(|a| a.damaged),
            roles.get(&info.id).map_or(0, |roles| roles.primary).to_string(),
            answer.map_or("-".into(), |a| memory(a.memory, a.memory_budget)),
            answer.map_or("-".into(), |a| longest_turn(&a.turns)),
            info.address.clone(),
            answer.map_or("-".into(), |a| a.disk.clone()),
        ]);
    }
    let mut text = format!(
        "cluster {}   metadata service at {meta}: {} clients, {} files to purge, memory {}, longest turn {}\n\n{}",
        report.map.cluster,
        report.mounts.len(),
        report.purges,
        memory(report.memory, report.memory_budget),
        longest_turn(&report.turns),
        table(&rows),
    );
    text += &report.recovery.as_ref().map(recovery).unwrap_or_default();
    text += &report.unreached.iter().map(unreached).collect::<String>();
    for (info, answer) in bricks {
        let cache = answer.as_ref().and_then(|answer| answer.cache.as_ref());
        text += &cache.map_or(String::new(), |cache| format!("\n{}", cache_line(info.id, cache)));
    }
    for (info, answer) in bricks {
        text += &answer.as_ref().and_then(|answer| window_line(info.id, &answer.window)).unwrap_or_default();
    }
    let colours = std::io::stdout().is_terminal();
    if progress.slots > 0 {
        text += &format!("\n  {}\n", progress.line());
    }
    let joining = progress.rows(&report.map);
    if !joining.is_empty() {
        text += &format!("\n{}", table(&joining));
    }
    for volume in &report.map.volumes {
        let disk = volume.block.map(|size| format!("a disk of {}, ", Size(size))).unwrap_or_default();
        text += &format!("\nvolume {} ({disk}{} groups)\n", volume.name, volume.groups.len());
        text += &picture(&report.map, volume, colours);
        let live = |group: &GroupConfig| group.live().count_ones() as usize;
        let groups = || (0..).zip(&volume.groups).map(|(index, group)| (volume.code_of(index), live(group)));
        let short = groups().filter(|(code, live)| *live < code.slots()).count();
        if short > 0 {
            let stopped = groups().filter(|(code, live)| *live < code.k()).count();
            text += &format!("  {short} groups lack units, {stopped} of them more than the code survives\n");
        }
        for mount in report.mounts.iter().filter(|mount| mount.volume == volume.id && mount.exclusive) {
            text += &format!("  mounted exclusively at {} (client {})\n", mount.place, mount.client);
        }
    }
    text + &here.words()
}

/// Who does not reach a brick.
fn unreached(report: &UnreachedBrick) -> String {
    let UnreachedBrick { brick, bricks, clients, reached_by, held_us } = report;
    let names = |bricks: &[BrickId]| bricks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut said = Vec::new();
    if !bricks.is_empty() {
        said.push(names(bricks));
    }
    if !clients.is_empty() {
        let clients: Vec<String> = clients.iter().map(|client| format!("client {client}")).collect();
        said.push(clients.join(", "));
    }
    let others =
        if reached_by.is_empty() { String::new() } else { format!("; {} reach it", names(reached_by)) };
    let state = match held_us {
        Some(0) => ": it gets no lease until others reach it".to_owned(),
        Some(us) => format!(
            ": it gets no lease for {} s, and then not before others reach it",
            us.div_ceil(1_000_000)
        ),
        None => String::new(),
    };
    match said.is_empty() {
        true => format!("\n  {brick} could not be reached{others}{state}\n"),
        false => {
            format!("\n  {brick} and these do not reach each other: {}{others}{state}\n", said.join(", "))
        }
    }
}

/// What a restored cluster does not know yet.
fn recovery(report: &RecoveryReport) -> String {
    let RecoveryReport { groups, unclear, waits_for, doubtful } = report;
    let mut text = String::new();
    if *groups > 0 {
        let bricks: Vec<String> = waits_for.iter().map(ToString::to_string).collect();
        let awaited = match bricks.is_empty() {
            true => String::new(),
            false => format!(
                ": start the bricks {} (or stop this server, and restore from its directory --without the bricks that are gone for good)",
                bricks.join(", ")
            ),
        };
        text += &format!("\n  restored: {groups} groups wait for what bricks know of them{awaited}\n");
    }
    if *unclear > 0 {
        text += &format!(
            "  of these, {unclear} stay unknown: too many of their bricks are lost, or were not started since they got this version\n"
        );
    }
    if *doubtful > 0 {
        text += &format!(
            "\n  restored: {doubtful} groups may lack their last writes: too many of their bricks are lost\n"
        );
    }
    text
}

/// A note for a brick that no volume uses.
fn idle(map: &ClusterMap, roles: Option<&Roles>) -> &'static str {
    if !map.volumes.is_empty() && roles.is_none() { ", in no group" } else { "" }
}

/// The number of roles that a brick has in groups.
#[derive(Default)]
struct Roles {
    /// Groups in which it has a slot.
    groups: usize,
    /// Groups of which it is the primary.
    primary: usize,
}

/// The roles of each brick that is in a group. One pass over the map, for any number of bricks.
fn roles(map: &ClusterMap) -> BTreeMap<BrickId, Roles> {
    let mut roles: BTreeMap<BrickId, Roles> = BTreeMap::new();
    let groups =
        map.volumes.iter().flat_map(|v| (0..).zip(&v.groups).map(move |(index, g)| (v.code_of(index), g)));
    for (code, group) in groups {
        let primary = group.primary(code);
        for (index, slot) in group.slots.iter().enumerate() {
            let role = roles.entry(slot.brick).or_default();
            role.groups += 1;
            role.primary += usize::from(primary == Some(index));
        }
    }
    roles
}

/// Groups of which a brick is the primary.
pub(crate) fn primary_of(map: &ClusterMap, brick: BrickId) -> usize {
    roles(map).get(&brick).map_or(0, |roles| roles.primary)
}

fn memory(used: u64, budget: u64) -> String {
    format!("{} of {}", Size(used), Size(budget))
}

/// What the cache of a brick is worth.
fn cache_line(brick: BrickId, cache: &CacheReport) -> String {
    let reads = cache.hit_bytes + cache.missed_bytes;
    let found = match reads {
        0 => "nothing was read yet".to_owned(),
        _ => format!("{} % of the bytes that were read came from it", cache.hit_bytes * 100 / reads),
    };
    let state = match (&*cache.state, &cache.reason) {
        ("on", _) => String::new(),
        (state, reason) => format!(", {state}: {}", reason.as_deref().unwrap_or("no reason is known")),
    };
    let (used, most) = (Size(cache.bytes), Size(cache.bytes_most));
    format!("cache of {brick}: {used} of {most}, {found}{state}\n")
}

/// That writes to a brick are held back, if packets to it were lost.
fn window_line(brick: BrickId, window: &WindowReport) -> Option<String> {
    let WindowReport { bytes, lost, is_crowded, .. } = window;
    let worst = window.peers.iter().max_by_key(|peer| peer.lost).filter(|peer| peer.lost > 0);
    let from = worst.map(|peer| format!(", most of them from {}", peer.address)).unwrap_or_default();
    (*is_crowded && *lost > 0).then(|| {
        format!(
            "\nwrites to {brick} are held to {} in flight, because {lost} packets were lost on the way to it{from}: a switch port \
             or a link towards its machine has few bytes of buffer\n",
            Size(*bytes)
        )
    })
}

fn window_document(window: &WindowReport) -> Value {
    json!({
        "bytes": window.bytes, "is_crowded": window.is_crowded, "cuts": window.cuts, "lost_packets": window.lost,
        "granted_bytes": window.granted, "free_bytes": window.free, "peers": peers::document(&window.peers),
        "fairness": peers::fairness(&window.peers).map(|(index, _)| index),
    })
}

/// The longest turn of a process in the last hour, and its task.
fn longest_turn(turns: &[LongTurn]) -> String {
    turns.first().map_or("< 1 ms".into(), |turn| format!("{} ms, {}", turn.wall_us / 1000, turn.task))
}

fn cache_document(cache: &CacheReport) -> Value {
    json!({
        "state": cache.state, "reason": cache.reason,
        "bytes_most": cache.bytes_most, "bytes": cache.bytes,
        "hits": cache.hits, "hit_bytes": cache.hit_bytes,
        "misses": cache.misses, "missed_bytes": cache.missed_bytes,
        "damaged": cache.damaged,
        "filled_bytes": cache.filled_bytes, "skipped_bytes": cache.skipped_bytes,
    })
}

fn turns(turns: &[LongTurn]) -> Value {
    let turn = |turn: &LongTurn| json!({ "task": turn.task, "wall_us": turn.wall_us, "cpu_us": turn.cpu_us, "age_us": turn.age_us });
    turns.iter().map(turn).collect()
}

fn document(
    report: &ClusterSnapshot,
    bricks: &[(BrickInfo, Option<BrickReport>)],
    progress: &Progress,
    here: &Here,
) -> Value {
    let roles = roles(&report.map);
    let bricks: Vec<Value> = bricks
        .iter()
        .map(|(info, answer)| {
            let mut value = json!({
                "id": info.id.to_string(),
                "node": info.node.to_string(),
                "class": info.class.to_string(),
                "state": state(info, answer.as_ref()),
                "address": info.address,
                "capacity": info.capacity,
                "free": info.free,
                "groups": roles.get(&info.id).map_or(0, |roles| roles.groups),
            });
            if let Some(a) = answer {
                value["cache"] = a.cache.as_ref().map(cache_document).into();
                value["pid"] = a.pid.into();
                value["disk"] = a.disk.clone().into();
                value["units"] = a.units.into();
                value["overlays"] = a.overlays.into();
                value["decoded"] = a.decoded.into();
                value["damaged"] = a.damaged.into();
                value["ordered"] = a.ordered.into();
                value["folded"] = a.folded.into();
                value["patched"] = a.patched.into();
                value["primary_of"] = a.primary_of.iter().map(ToString::to_string).collect();
                value["memory"] = a.memory.into();
                value["memory_budget"] = a.memory_budget.into();
                value["turns"] = turns(&a.turns);
                value["receive_window"] = window_document(&a.window);
                value["asked"] = json!({
                    "reads": a.asked.reads, "read_bytes": a.asked.read_bytes,
                    "writes": a.asked.writes, "written_bytes": a.asked.written_bytes,
                });
                value["device"] = json!({
                    "reads": a.device.reads, "read_bytes": a.device.read_bytes, "read_us": a.device.read_us,
                    "writes": a.device.writes, "written_bytes": a.device.written_bytes, "write_us": a.device.write_us,
                    "syncs": a.device.syncs, "sync_us": a.device.sync_us,
                });
            }
            value
        })
        .collect();
    let volumes: Vec<Value> = report.map.volumes.iter().map(crate::commands::volume::document).collect();
    json!({
        "cluster": report.map.cluster.to_string(),
        "map": report.map.version.0,
        "map_bytes": types::wire::to_bytes(&report.map).len(),
        "meta": {
            "pid": report.pid,
            "clients": report.mounts.len(),
            "purges": report.purges,
            "memory": report.memory,
            "memory_budget": report.memory_budget,
            "turns": turns(&report.turns),
        },
        "recovery": report.recovery.as_ref().map(|recovery| json!({
            "groups": recovery.groups,
            "unclear": recovery.unclear,
            "waits_for": recovery.waits_for.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "doubtful": recovery.doubtful,
        })),
        "unreached": report.unreached.iter().map(|unreached| json!({
            "brick": unreached.brick.to_string(),
            "bricks": unreached.bricks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "clients": unreached.clients.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "reached_by": unreached.reached_by.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "held_us": unreached.held_us,
        })).collect::<Vec<_>>(),
        "bricks": bricks,
        "progress": progress.document(&report.map),
        "volumes": volumes,
        "mounts": here.mounts.iter().map(|dir| dir.to_string_lossy()).collect::<Vec<_>>(),
        "broken_mounts": here.broken.iter().map(BrokenMount::document).collect::<Vec<_>>(),
        "exports": here.exports,
        "clients": report.mounts.iter().map(|mount| json!({
            "id": mount.client.to_string(),
            "volume": report.map.volume(mount.volume).map(|volume| volume.name.clone()),
            "at": mount.place,
            "exclusive": mount.exclusive,
            "age_us": mount.age,
            "silent_us": mount.silent,
        })).collect::<Vec<_>>(),
    })
}
