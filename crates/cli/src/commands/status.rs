//! `shoal status`: the cluster at a glance.

use std::io::IsTerminal;

use clap::Args;
use serde_json::{Value, json};
use types::BrickId;
use types::messages::brick::BrickReport;
use types::messages::cluster::{BrickInfo, BrickState, ClusterMap, ClusterReport};

use crate::gate::gates_of;
use crate::mountpoint::mount_daemons;
use crate::output::{Output, table};
use crate::picture::picture;
use crate::progress::Progress;
use crate::remote::{Remote, Where};
use crate::size::Size;

/// Shows bricks, space, groups with their epochs and primaries, and memory against the budgets
#[derive(Args)]
#[command(after_help = "\
Examples:
  shoal status                                              the embedded cluster
  shoal status --meta 10.0.0.1:7400 --key-file /etc/shoal/key
  shoal status --json")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    cluster: Where,
}

pub(crate) fn run(args: &StatusArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?;
    let remote = Remote::new(&target)?;
    let report = remote.status()?;
    let bricks: Vec<(BrickInfo, Option<BrickReport>)> = report
        .map
        .bricks
        .iter()
        .map(|info| {
            let answer = (info.state == BrickState::Up).then(|| remote.brick(&info.address)).flatten();
            (info.clone(), answer)
        })
        .collect();
    let mounts: Vec<String> = mount_daemons()
        .into_iter()
        .filter(|m| m.meta == target.meta)
        .map(|m| m.dir.to_string_lossy().into_owned())
        .collect();
    let progress = Progress::of(&report.map, bricks.iter().filter_map(|(_, answer)| answer.as_ref()));
    let exports: Vec<String> = gates_of(&target.meta).into_iter().map(|gate| gate.uri).collect();
    output.answer(&document(&report, &bricks, &progress, &mounts, &exports), || {
        words(&report, &bricks, &progress, &mounts, &exports, &target.meta)
    });
    Ok(())
}

fn state(info: &BrickInfo, report: Option<&BrickReport>) -> &'static str {
    match (info.state, report) {
        (BrickState::Out, _) => "out",
        (BrickState::Up, None) => "silent",
        (BrickState::Up, Some(_)) => "up",
    }
}

fn words(
    report: &ClusterReport,
    bricks: &[(BrickInfo, Option<BrickReport>)],
    progress: &Progress,
    mounts: &[String],
    exports: &[String],
    meta: &str,
) -> String {
    let head = [
        "brick",
        "node",
        "state",
        "used",
        "size",
        "units",
        "decoded",
        "damaged",
        "primary of",
        "memory",
        "at",
        "disk",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (info, answer) in bricks {
        let answer = answer.as_ref();
        let count = |f: fn(&BrickReport) -> u64| answer.map_or("-".into(), |a| f(a).to_string());
        rows.push(vec![
            info.id.to_string(),
            info.node.to_string(),
            format!("{}{}", state(info, answer), idle(&report.map, info.id)),
            Size(info.capacity.saturating_sub(info.free)).to_string(),
            Size(info.capacity).to_string(),
            count(|a| a.units),
            count(|a| a.decoded),
            count(|a| a.damaged),
            primary_of(&report.map, info.id).to_string(),
            answer.map_or("-".into(), |a| memory(a.memory, a.memory_budget)),
            info.address.clone(),
            answer.map_or("-".into(), |a| a.disk.clone()),
        ]);
    }
    let mut text = format!(
        "cluster {}   metadata service at {meta}: {} clients, {} files to purge, memory {}\n\n{}",
        report.map.cluster,
        report.mounts.len(),
        report.purges,
        memory(report.memory, report.memory_budget),
        table(&rows),
    );
    let colours = std::io::stdout().is_terminal();
    if progress.slots > 0 {
        text += &format!("\n  {}\n", progress.line());
    }
    let joining = progress.rows(&report.map);
    if !joining.is_empty() {
        text += &format!("\n{}", table(&joining));
    }
    for volume in &report.map.volumes {
        let code = volume.geometry.code();
        let disk = volume.block.map(|size| format!("a disk of {}, ", Size(size))).unwrap_or_default();
        text += &format!("\nvolume {} ({disk}{} groups)\n", volume.name, volume.groups.len());
        text += &picture(&report.map, volume, colours);
        let short = volume.groups.iter().filter(|g| (g.live().count_ones() as usize) < code.slots()).count();
        if short > 0 {
            let stopped =
                volume.groups.iter().filter(|g| (g.live().count_ones() as usize) < code.k()).count();
            text += &format!("  {short} groups lack units, {stopped} of them more than the code bears\n");
        }
        for mount in report.mounts.iter().filter(|mount| mount.volume == volume.id && mount.exclusive) {
            text += &format!("  mounted exclusively at {} (client {})\n", mount.place, mount.client);
        }
    }
    for dir in mounts {
        text += &format!("\nmounted here at {dir}");
    }
    for uri in exports {
        text += &format!("\nexported here at {uri}");
    }
    text
}

/// What is to be said of a brick that no volume uses.
fn idle(map: &ClusterMap, brick: BrickId) -> &'static str {
    if !map.volumes.is_empty() && groups_of(map, brick) == 0 { ", in no group" } else { "" }
}

/// Groups in which a brick has a slot.
fn groups_of(map: &ClusterMap, brick: BrickId) -> usize {
    map.volumes.iter().flat_map(|v| &v.groups).filter(|group| group.slot_of(brick).is_some()).count()
}

/// Groups of which a brick is the primary.
pub(crate) fn primary_of(map: &ClusterMap, brick: BrickId) -> usize {
    let groups = map.volumes.iter().flat_map(|v| v.groups.iter().map(|g| (v.geometry.code(), g)));
    let primaries = groups.filter_map(|(code, group)| group.slots.get(group.primary(code)?));
    primaries.filter(|slot| slot.brick == brick).count()
}

fn memory(used: u64, budget: u64) -> String {
    format!("{} of {}", Size(used), Size(budget))
}

fn document(
    report: &ClusterReport,
    bricks: &[(BrickInfo, Option<BrickReport>)],
    progress: &Progress,
    mounts: &[String],
    exports: &[String],
) -> Value {
    let bricks: Vec<Value> = bricks
        .iter()
        .map(|(info, answer)| {
            let mut value = json!({
                "id": info.id.to_string(),
                "node": info.node.to_string(),
                "state": state(info, answer.as_ref()),
                "address": info.address,
                "capacity": info.capacity,
                "free": info.free,
                "groups": groups_of(&report.map, info.id),
            });
            if let Some(a) = answer {
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
            }
            value
        })
        .collect();
    let volumes: Vec<Value> = report.map.volumes.iter().map(crate::commands::volume::document).collect();
    json!({
        "cluster": report.map.cluster.to_string(),
        "map": report.map.version.0,
        "meta": {
            "pid": report.pid,
            "clients": report.mounts.len(),
            "purges": report.purges,
            "memory": report.memory,
            "memory_budget": report.memory_budget,
        },
        "bricks": bricks,
        "progress": progress.document(&report.map),
        "volumes": volumes,
        "mounts": mounts,
        "exports": exports,
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
