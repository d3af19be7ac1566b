//! `shoal brick replace`: replaces a brick that is lost for good.

use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use types::messages::cluster::{BrickReplace, BrickState, ClusterMap, ReplaceError, ReplaceErrorKind};
use types::{BrickId, GroupId};

use crate::output::Output;
use crate::problem::problem;
use crate::progress::{Progress, group_name};
use crate::remote::{ConnectionArgs, Remote};
use crate::size::Size;
use crate::tier_code::TierCode;

/// Time between two checks with `--wait`.
const LOOK: Duration = Duration::from_millis(500);

/// Replaces a brick that is lost for good by another one
#[derive(Args)]
#[command(after_help = "\
The new brick gets every unit of the old one, computed from the others, while the volumes stay in use. Until that
is done, the volumes survive the loss of one brick less. `shoal status` shows the progress; --wait waits for the end.
A brick that was only away needs no replacement: start it again. The old brick must not be used again: format
its disk with a new id.

Examples:
  shoal brick --disk /dev/sdc --format --id 11 --node 2 --listen 10.0.0.2:7413 --meta 10.0.0.1:7400 ...
  shoal brick replace b3 b11 --wait
  shoal brick replace 3 11 --meta 10.0.0.1:7400 --key-file /etc/shoal/key")]
pub(crate) struct ReplaceArgs {
    /// The lost brick: out, and in groups
    #[arg(value_parser = brick_id)]
    old: BrickId,
    /// The brick that takes its place: up, and in none of those groups
    #[arg(value_parser = brick_id)]
    new: BrickId,
    /// Returns only when every slot of the new brick is live
    #[arg(long)]
    wait: bool,
    /// Allows a brick of another class than a tier asks for
    #[arg(long)]
    any_class: bool,
    #[command(flatten)]
    cluster: ConnectionArgs,
}

/// `b3` or `3`.
pub(crate) fn brick_id(text: &str) -> Result<BrickId, String> {
    let digits = text.strip_prefix('b').unwrap_or(text);
    let id = digits.parse().ok().filter(|id| *id > 0);
    id.map(BrickId).ok_or_else(|| format!("`{text}` is no brick: write its id, such as b3"))
}

pub(super) fn run(args: &ReplaceArgs, output: &Output) -> anyhow::Result<()> {
    let remote = Remote::new(&args.cluster.target()?)?;
    let (old, new) = (args.old, args.new);
    remote.require_first_shard()?;
    if !args.any_class {
        check_class(old, new, &remote.status()?.map)?;
    }
    let replaced = remote.meta_or_explain(&BrickReplace { old, new })?;
    if let Some(error) = replaced.error {
        return Err(refused(args, &error, &remote.status()?.map));
    }
    if args.wait {
        wait(new, &remote, output)?;
    }
    let (map, progress) = look(new, &remote)?;
    let document = json!({
        "old": old.to_string(),
        "new": new.to_string(),
        "groups": replaced.groups,
        "progress": progress.document(&map),
    });
    output.answer(&document, || match (replaced.groups, args.wait) {
        (0, _) => format!("nothing to do: {old} is in no group; of {new}, {}", progress.line()),
        (groups, true) => {
            format!("{new} has taken the place of {old} in {groups} groups; {}", progress.line())
        }
        (groups, false) => format!(
            "{new} takes the place of {old} in {groups} groups; {}\n`shoal status` shows how far it is",
            progress.line()
        ),
    });
    Ok(())
}

/// Refuses a brick of another class than the tiers want that it would become a part of.
fn check_class(old: BrickId, new: BrickId, map: &ClusterMap) -> anyhow::Result<()> {
    // The arbiter says what is wrong with a brick that is not there.
    let Some(class) = map.brick(new).map(|info| info.class) else { return Ok(()) };
    for volume in &map.volumes {
        let tiers = volume.all_tiers().filter(|tier| tier.class.is_some_and(|wanted| wanted != class));
        for tier in tiers {
            let mut groups = tier.groups.clone().filter_map(|index| volume.groups.get(index as usize));
            if groups.any(|group| group.slot_of(old).is_some()) {
                let wanted = TierCode::of(&tier);
                return Err(problem(
                    format!(
                        "{new} is of class {class}, and {old} holds units of tier {wanted} of volume `{}`",
                        volume.name
                    ),
                    "a brick of the tier's class; or --any-class, if the tier may have a brick of another one",
                ));
            }
        }
    }
    Ok(())
}

/// The progress of a brick's slots.
fn look(brick: BrickId, remote: &Remote) -> anyhow::Result<(ClusterMap, Progress)> {
    let map = remote.whole_status()?.map;
    let progress = Progress::of(&map, remote.bricks(&map).values()).of_brick(&map, brick);
    Ok((map, progress))
}

/// Waits until every slot of a brick is live.
fn wait(brick: BrickId, remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let spinner = output.spinner(&format!("{brick} is brought level"));
    loop {
        let (map, progress) = look(brick, remote)?;
        if progress.out == 0 {
            spinner.finish_and_clear();
            return Ok(());
        }
        if map.brick(brick).is_none_or(|info| info.state == BrickState::Out) {
            spinner.finish_and_clear();
            return Err(problem(
                format!("{brick} is out before it is level: {}", progress.line()),
                format!("start the process of {brick}, then `shoal status`: it continues where it was"),
            ));
        }
        spinner.set_message(format!("{brick}: {}", progress.line()));
        thread::sleep(LOOK);
    }
}

/// The error for a refused replacement, with a remedy.
fn refused(args: &ReplaceArgs, error: &ReplaceError, map: &ClusterMap) -> anyhow::Error {
    let (old, new) = (args.old, args.new);
    let group = error.group.map_or(String::new(), |id: GroupId| group_name(map, id));
    let other = error.brick.unwrap_or_default();
    let node = map.brick(new).map(|info| info.node).unwrap_or_default();
    let free = map.brick(new).map_or(0, |info| info.free);
    let used = map.brick(old).map_or(0, |info| info.capacity.saturating_sub(info.free));
    match error.what {
        ReplaceErrorKind::ShardSilent => problem(
            format!(
                "a shard does not answer: {old} keeps its place in the groups of that one, {new} has it in all others"
            ),
            "`shoal meta list` shows the shards; the same command again when all of them answer",
        ),
        ReplaceErrorKind::OldUnknown => problem(
            format!("the cluster has no brick {old} that could be replaced"),
            "`shoal status`: it lists the bricks",
        ),
        ReplaceErrorKind::OldUp => problem(
            format!("{old} is up: only a brick that is out can be replaced"),
            format!(
                "stop the process of {old} for good, wait until `shoal status` shows it out, then repeat the command"
            ),
        ),
        ReplaceErrorKind::NewUnknown => problem(
            format!("the cluster has no brick {new} that could take the place of {old}"),
            format!(
                "`shoal brick --disk PATH --format --id {} ...` to start it, then repeat the command",
                new.0
            ),
        ),
        ReplaceErrorKind::NewOut => problem(
            format!("{new} is out: it cannot take the place of {old}"),
            format!("start the process of {new}, then repeat the command"),
        ),
        ReplaceErrorKind::SameBrick => problem(
            format!("{new} cannot take its own place"),
            "the id of another brick; if its disk is intact it needs no replacement: start its process again",
        ),
        ReplaceErrorKind::InGroup => problem(
            format!("{other} is in group {group} of {old} already: it would hold two units of each stripe"),
            format!("a brick that is in no group with {old}: format a new one"),
        ),
        ReplaceErrorKind::SharedNode => problem(
            format!(
                "{new} is on machine {node}, as is {other}, which holds another unit of the same stripes in group {group}"
            ),
            "a brick on a machine that holds no other unit of these stripes (the volume was made without --same-node)",
        ),
        ReplaceErrorKind::SharedDomain => problem(
            format!(
                "{new} is on machine {node}, which has no place in the topology, or is in the rack or row of {other}, which holds \
                 another unit of the same stripes in group {group}"
            ),
            "a brick in a rack or row that holds no other unit of these stripes; `shoal topology show` draws them",
        ),
        ReplaceErrorKind::TooSmall => problem(
            format!("{new} has {} free, and {old} had {} in use", Size(free), Size(used)),
            "a larger brick",
        ),
        ReplaceErrorKind::Needed => problem(
            format!("group {group} has lost so many bricks that the units of {other} cannot be computed"),
            format!(
                "start the process of {other}, or of another brick that is out, and wait until it is level"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brick_is_named_with_or_without_its_letter() {
        assert_eq!((brick_id("b3"), brick_id("3")), (Ok(BrickId(3)), Ok(BrickId(3))));
        for bad in ["", "b", "n3", "0", "b0", "-1", "3x", "99999999999"] {
            assert!(brick_id(bad).is_err(), "{bad}");
        }
    }
}
