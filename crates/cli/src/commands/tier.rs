//! `shoal tier`: the tiers of a volume, and the mover that keeps each file in the tier that its use deserves.

pub(crate) mod mover;

use std::collections::BTreeMap;
use std::time::Duration;

use ::mover::{Policy, Walk};
use clap::{Args, Subcommand};
use client::{ClientError, Session};
use serde_json::json;
use types::messages::cluster::{BrickState, ClusterMap, Tier, VolumeAddTier, VolumeInfo};
use types::messages::names::FileKind;
use types::{BrickId, Refusal};
use world::World;

use self::mover::{Linked, Run, files, with_mover};
use crate::commands::volume::{document, placement, tier_document, tier_spec, too_few, unknown};
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote, Target};
use crate::size::Size;
use crate::tier_code::TierCode;

/// Shows and adds the tiers of a volume, and moves files between them by their last use
#[derive(Args)]
#[command(after_help = "\
A tier is a code and bricks of a class (`shoal brick --class`). New files are made in the first tier. `shoal convert`
moves files by hand. A move copies the bytes beside the old ones and switches in one step: a crash, a reader or a writer
at any moment finds the file whole. A file that somebody has open for writing stays where it is.

Examples:
  shoal volume create media --hot 1+2@ssd --cold 8+2@hdd   three copies on SSDs, then 8+2 on disks
  shoal tier list media
  shoal tier add photos 8+2@hdd                            another tier for a volume that exists
  shoal tier run media --cold-after 30d                    every hour: what nobody used for 30 days goes to the last tier
  shoal tier run media --cold-after 7d --hot-within 12h --rate 100M --once
  shoal tier run media --cold-after 30d --dry-run          only says what would move")]
pub(crate) struct TierArgs {
    #[command(flatten)]
    cluster: ConnectionArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Shows the tiers of a volume and their room; with --files also what lies in each
    List {
        /// The volume
        name: String,
        /// Counts the files and bytes of each tier, which takes a walk over all names
        #[arg(long)]
        files: bool,
    },
    /// Adds a tier to a volume, behind those that it has
    Add {
        /// The volume
        name: String,
        /// Its code, and the class of its bricks: 8+2@hdd
        #[arg(value_name = "K+M[@CLASS]")]
        code: TierCode,
        /// Bytes of a unit, a power of two from 4K to 4M
        #[arg(long, value_name = "SIZE", default_value = "256K")]
        unit: Size,
    },
    Run(RunArgs),
}

/// Moves files between the first and the last tier by their last use (a daemon; stop it with SIGTERM)
#[derive(Args)]
struct RunArgs {
    /// The volume
    name: String,
    /// Moves files to the last tier that nobody has read or written for so long: 30d, 12h, 45m, 10s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    cold_after: Duration,
    /// Moves files back to the first tier that somebody has used within this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    hot_within: Option<Duration>,
    /// Copies at most so many bytes per second
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// Time from one look at all files to the next
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1h")]
    every: Duration,
    /// Looks at all files once and ends
    #[arg(long)]
    once: bool,
    /// Only says what would move
    #[arg(long)]
    dry_run: bool,
}

/// A time such as `30d`, `12h`, `45m` or `10s`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time: write a number with s, m, h or d, such as 30d");
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let (number, seconds) = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)))
        .ok_or_else(bad)?;
    let number: u64 = number.parse().map_err(|_| bad())?;
    let seconds =
        number.checked_mul(seconds).filter(|seconds| *seconds <= 100 * 365 * 86_400).ok_or_else(bad)?;
    if seconds == 0 {
        return Err(format!("`{text}` is no time at all: the shortest is 1s"));
    }
    Ok(Duration::from_secs(seconds))
}

pub(crate) fn run(args: &TierArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?;
    let remote = Remote::new(&target)?;
    match &args.action {
        Action::List { name, files } => list(name, *files, &remote, &target, output),
        Action::Add { name, code, unit } => add(name, *code, *unit, &remote, output),
        Action::Run(run) => serve(run, &remote, &target, output),
    }
}

fn add(name: &str, code: TierCode, unit: Size, remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let old = map.volume_named(name).ok_or_else(|| unknown(name, &map))?;
    let tier = tier_spec(code, unit, old.geometry.has_whole_files())?;
    let request = VolumeAddTier { name: name.to_owned(), tier: tier.clone() };
    let volume = match remote.meta_or_refusal(&request)? {
        Ok(reply) => reply.volume,
        Err(Refusal::Unknown) => return Err(unknown(name, &map)),
        Err(Refusal::Invalid) if old.block.is_some() => {
            let what = format!("volume `{name}` is a disk, which cannot move to another tier");
            return Err(problem(what, "a volume of files"));
        }
        Err(refusal @ (Refusal::TooFewDomains | Refusal::Invalid)) if old.placement.is_some() => {
            return Err(match placement::why_not(old.placement, &[tier], &map) {
                Some(why) => why,
                None => anyhow::anyhow!("cannot add a tier to `{name}`: {refusal}"),
            });
        }
        Err(Refusal::TooFewDomains) => {
            return Err(too_few(&[(tier.geometry, tier.class)], old.same_node, &map));
        }
        Err(Refusal::Exists) => {
            let what = format!("volume `{name}` has a tier of code {code} already");
            return Err(problem(what, format!("`shoal tier list {name}` shows its tiers")));
        }
        Err(Refusal::TooMany) => {
            let what =
                format!("volume `{name}` has as many tiers as it can, or the map has no room for its groups");
            return Err(problem(what, format!("`shoal tier list {name}` shows its tiers")));
        }
        Err(refusal) => anyhow::bail!("cannot add a tier to `{name}`: {refusal}"),
    };
    output.answer(&document(&volume), || {
        format!(
            "volume `{name}` has a tier of code {code}; `shoal convert FILE --code {code}` moves files there"
        )
    });
    Ok(())
}

/// What lies in a tier.
#[derive(Default, Clone)]
struct Content {
    files: u64,
    bytes: u64,
}

fn list(name: &str, count: bool, remote: &Remote, target: &Target, output: &Output) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let volume = map.volume_named(name).ok_or_else(|| unknown(name, &map))?;
    let contents = if count {
        let Some(found) = with_mover(target, name, None, async |_, session, _| contents(session).await)?
        else {
            return Ok(());
        };
        Some(found)
    } else {
        None
    };
    let content =
        |tier: &Tier| contents.as_ref().map(|all| all.get(&tier.number).cloned().unwrap_or_default());
    let documents = || {
        let tier = |tier: Tier| {
            let (bricks, free) = room(&map, volume, &tier);
            let mut document = tier_document(&tier);
            document["bricks"] = bricks.iter().map(|brick| brick.to_string()).collect::<Vec<_>>().into();
            document["free"] = free.into();
            if let Some(content) = content(&tier) {
                (document["files"], document["bytes"]) = (content.files.into(), content.bytes.into());
            }
            document
        };
        volume.all_tiers().map(tier).collect::<Vec<_>>().into()
    };
    output.answer_by(documents, || {
        let heads = ["tier", "code", "class", "unit", "bricks", "free"].map(str::to_owned);
        let mut rows = vec![heads.to_vec()];
        if count {
            rows[0].extend(["files", "bytes"].map(str::to_owned));
        }
        for tier in volume.all_tiers() {
            let (bricks, free) = room(&map, volume, &tier);
            let mut row = vec![
                tier.number.to_string(),
                tier.geometry.code().to_string(),
                tier.class.map_or("any".to_owned(), |class| class.to_string()),
                Size(tier.geometry.unit() as u64).to_string(),
                bricks.len().to_string(),
                Size(free).to_string(),
            ];
            if let Some(content) = content(&tier) {
                row.extend([content.files.to_string(), Size(content.bytes).to_string()]);
            }
            rows.push(row);
        }
        format!("{}new files are made in tier 0", table(&rows))
    });
    Ok(())
}

/// Counts the files of each tier.
async fn contents(session: &Session) -> anyhow::Result<BTreeMap<u8, Content>> {
    let mut contents: BTreeMap<u8, Content> = BTreeMap::new();
    let mut walk = Walk::new(session.clone(), session.mount().root());
    let mut linked = Linked::default();
    while let Some(attr) = walk.next().await? {
        if attr.kind == FileKind::File && !linked.is_known(&attr) {
            let content = contents.entry(attr.object.tier()).or_default();
            content.files += 1;
            content.bytes += attr.size;
        }
    }
    Ok(contents)
}

/// The bricks of a tier, and the bytes free on those that are Up.
fn room(map: &ClusterMap, volume: &VolumeInfo, tier: &Tier) -> (Vec<BrickId>, u64) {
    let groups = volume.groups.get(tier.groups.start as usize..tier.groups.end as usize).unwrap_or_default();
    let mut bricks: Vec<BrickId> =
        groups.iter().flat_map(|group| &group.slots).map(|slot| slot.brick).collect();
    bricks.sort_unstable();
    bricks.dedup();
    let up =
        bricks.iter().filter_map(|brick| map.brick(*brick)).filter(|brick| brick.state == BrickState::Up);
    let free = up.map(|brick| brick.free).sum();
    (bricks, free)
}

fn serve(args: &RunArgs, remote: &Remote, target: &Target, output: &Output) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let volume = map.volume_named(&args.name).ok_or_else(|| unknown(&args.name, &map))?;
    let last = volume.all_tiers().last().map_or(0, |tier| tier.number);
    if last == 0 {
        let what = format!("volume `{}` has one tier, so nothing can move", args.name);
        return Err(problem(what, format!("`shoal tier add {} K+M@hdd`", args.name)));
    }
    if args.hot_within.is_some_and(|within| within >= args.cold_after) {
        return Err(problem(
            "with --hot-within as long as --cold-after, files would move back and forth",
            "a shorter --hot-within",
        ));
    }
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let policy =
        Policy { cold: last, cold_after: nanos(args.cold_after), hot_within: args.hot_within.map(nanos) };
    let done = with_mover(target, &args.name, args.rate, async |world, session, mover| {
        loop {
            let mut run = Run::new(mover, output);
            look(args, &policy, world, session, &mut run).await?;
            let tally = run.tally;
            if args.once || args.dry_run {
                return Ok(tally);
            }
            output.say(&tally.words());
            world.sleep(u64::try_from(args.every.as_micros()).unwrap_or(u64::MAX)).await;
        }
    })?;
    let Some(tally) = done else {
        output.answer(&json!({ "stopped": true }), || "stopped; no file is half moved".to_owned());
        return Ok(());
    };
    output.answer(&tally.document(), || match args.dry_run {
        true => format!("{} would move ({})", files(tally.moved), Size(tally.bytes)),
        false => tally.words(),
    });
    Ok(())
}

/// Looks at every file of the volume once, and moves those that belong elsewhere.
async fn look(
    args: &RunArgs,
    policy: &Policy,
    world: &World,
    session: &Session,
    run: &mut Run<'_>,
) -> anyhow::Result<()> {
    let mut walk = Walk::new(session.clone(), session.mount().root());
    while let Some(attr) = walk.next().await? {
        if attr.kind != FileKind::File || run.is_known(&attr) {
            continue;
        }
        run.tally.seen += 1;
        let Some(tier) = policy.target(&attr, world.wall()) else { continue };
        if args.dry_run {
            run.tally.moved += 1;
            run.tally.bytes += attr.size;
        } else if let Err(error) = run.move_file(&attr, tier).await {
            if !args.once
                && matches!(error, ClientError::Unreachable | ClientError::Refused(Refusal::NoSpace))
            {
                // The next look tries again.
                tracing::warn!(inode = %attr.inode, %error, "a file could not be moved");
                continue;
            }
            return Err(anyhow::Error::new(error).context(format!("cannot move inode {}", attr.inode.0)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::mover::Tally;
    use super::*;

    #[test]
    fn times_are_read() {
        let seconds = |text| parse_time(text).map(|time| time.as_secs());
        assert_eq!(seconds("30d"), Ok(30 * 86_400));
        assert_eq!(seconds("45m"), Ok(2700));
        for bad in ["30", "d", "-1d", "0s", "99999999999d", "1.5h", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tally_says_what_became_of_the_files() {
        let tally = Tally { seen: 9, moved: 1, bytes: 2 << 20, in_place: 3, busy: 2 };
        assert_eq!(
            tally.words(),
            "1 file moved (2 MiB), 3 were there already; 2 are in use and stay where they are"
        );
    }
}
