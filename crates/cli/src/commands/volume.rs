//! `shoal volume`: makes, lists, grows, compares and deletes volumes.

pub(crate) mod placement;
mod verify;
mod volume_type;

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal, Read};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use types::messages::cluster::{
    BrickClass, BrickInfo, BrickState, ClusterMap, Tier, TierSpec, VolumeCreate, VolumeDelete, VolumeGrow,
    VolumeInfo, tiers_of,
};
use types::{Geometry, Refusal, ShardId, limits};

use crate::embedded::fitting_code;
use crate::output::{Output, table};
use crate::picture::picture;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};
use crate::size::Size;
use crate::tier_code::TierCode;

use self::placement::PlacementArgs;
use self::volume_type::VolumeType;

/// Most bytes of a typed answer.
const TYPED_MAX: u64 = 1024;
/// Most bricks that an error names.
const NAMED_MAX: usize = 8;

/// Makes, lists, grows, compares and deletes volumes
#[derive(Args)]
#[command(after_help = "\
Examples:
  shoal volume create photos --code 4+2
  shoal volume create scratch --code 4+0 --unit 64K      striped, nothing protected
  shoal volume create ledger --code 1+2                  three copies
  shoal volume create mirror --type replicate 3          three copies, on three bricks
  shoal volume create media --hot 1+2@ssd --cold 8+2@hdd   two tiers: see `shoal tier`
  shoal volume create vm --code 4+2 --block 100G         a disk: see `shoal nbd`
  shoal volume create hall --code 8+2 --domain rack      no two units of a stripe in one rack: see `shoal topology`
  shoal volume create takes --code 4+2 --whole-files --near-writer   each file around the machine that writes it
  shoal volume grow vm 200G
  shoal volume list
  shoal volume info photos
  shoal volume verify photos                             reads and compares every unit
  shoal volume delete scratch                            asks for the name once more; scripts say --yes")]
pub(crate) struct VolumeArgs {
    #[command(flatten)]
    cluster: ConnectionArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Create(CreateArgs),
    /// Lists the volumes
    List,
    /// Shows one volume, its groups and their bricks
    Info {
        /// The volume
        name: String,
    },
    /// Makes a block volume larger; it is never made smaller
    Grow {
        /// The block volume
        name: String,
        /// Its new size
        size: Size,
    },
    Verify(verify::VerifyArgs),
    /// Deletes a volume and everything in it, after you have typed its name again
    Delete {
        /// The volume
        name: String,
        /// Does not ask for the name
        #[arg(long)]
        yes: bool,
        /// The shard that has it, if two shards have a volume of this name
        #[arg(long, value_name = "N")]
        shard: Option<u8>,
    },
}

/// Makes a volume
#[derive(Args)]
#[command(after_help = volume_type::TYPES)]
struct CreateArgs {
    /// Its name
    #[arg(required_unless_present = "kind")]
    name: Option<String>,
    /// Data and parity units of a stripe: 8+2 survives the loss of any two nodes; @ssd or @hdd behind it chooses bricks
    #[arg(long, value_name = "K+M[@CLASS]", required_unless_present_any = ["kind", "hot"])]
    code: Option<TierCode>,
    /// The code of new files, in a volume with tiers; for example 1+2@ssd
    #[arg(long, value_name = "K+M[@CLASS]", requires = "cold", conflicts_with_all = ["code", "kind", "block"])]
    hot: Option<TierCode>,
    /// The code of files that `shoal tier run` or `shoal convert` moves there; for example 8+2@hdd
    #[arg(long, value_name = "K+M[@CLASS]", requires = "hot")]
    cold: Option<TierCode>,
    /// The code by the name of a type, for example `replicate 3`: see below
    #[arg(long = "type", id = "kind", value_names = ["TYPE", "N|K+M"], num_args = 1..=2, conflicts_with = "code")]
    kind: Option<Vec<String>>,
    /// Bytes of a unit, a power of two from 4K to 4M
    #[arg(long, value_name = "SIZE", default_value = "256K")]
    unit: Size,
    /// Number of groups, 0 for a suitable one; it can never be changed
    #[arg(long, value_name = "N", default_value_t = 0)]
    groups: u32,
    /// Allows units of a stripe on the same machine: survives the loss of bricks, not of machines
    #[arg(long)]
    same_node: bool,
    /// Makes a block volume: one thin disk of this size, for `shoal nbd` or a loop device
    #[arg(long, value_name = "SIZE")]
    block: Option<Size>,
    /// Keeps each file whole in one group: a file can be no larger than what is free there
    #[arg(long, conflicts_with = "block")]
    whole_files: bool,
    /// Begins each new file in a group whose bricks are nearest to the machine that makes it, best on the same machine. With
    /// --whole-files all of the file is there, else its first 64 stripes
    #[arg(long, conflicts_with = "block")]
    near_writer: bool,
    /// The shard that is to have its names; as a rule the one with the fewest volumes
    #[arg(long, value_name = "N")]
    shard: Option<u8>,
    #[command(flatten)]
    placement: PlacementArgs,
}

pub(crate) fn run(args: &VolumeArgs, output: &Output) -> anyhow::Result<()> {
    let target = args.cluster.target()?;
    let remote = Remote::new(&target)?;
    match &args.action {
        Action::Create(create) => self::create(create, &remote, output),
        Action::List => list(&remote, output),
        Action::Info { name } => info(name, &remote, output),
        Action::Grow { name, size } => grow(name, *size, &remote, output),
        Action::Verify(args) => verify::run(args, &target, &remote, output),
        Action::Delete { name, yes, shard } => delete(name, *yes, shard.map(ShardId), &remote, output),
    }
}

fn create(args: &CreateArgs, remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let mut request = requested(args)?;
    remote.require_first_shard()?;
    let map = remote.status()?.map;
    request.placement = args.placement.spec(request.same_node, &map)?;
    let name = &request.name;
    let volume = match remote.meta_or_refusal(&request)? {
        Ok(reply) => reply.volume,
        Err(refusal @ (Refusal::TooFewDomains | Refusal::Invalid)) if request.placement.is_some() => {
            let tiers =
                [&[TierSpec { geometry: request.geometry, class: request.class }], &*request.tiers].concat();
            return Err(match placement::why_not(request.placement, &tiers, &remote.status()?.map) {
                Some(why) => why,
                None => anyhow::anyhow!("cannot make the volume `{name}`: {refusal}"),
            });
        }
        Err(Refusal::TooFewDomains) => {
            let tiers =
                tiers_of((request.geometry, request.class), &[], 0).map(|tier| (tier.geometry, tier.class));
            let tiers: Vec<_> =
                tiers.chain(request.tiers.iter().map(|tier| (tier.geometry, tier.class))).collect();
            return Err(too_few(&tiers, request.same_node, &remote.status()?.map));
        }
        Err(Refusal::Exists) => {
            return Err(problem(format!("the volume `{name}` exists already"), "another name"));
        }
        Err(Refusal::TooMany) => {
            let groups = if request.groups == 0 { "so many".to_owned() } else { request.groups.to_string() };
            let what = format!("the cluster's map has no room for {groups} more groups");
            return Err(problem(what, "fewer --groups, or delete volumes that are not needed"));
        }
        Err(Refusal::NotServing) => {
            return Err(problem(
                "a shard does not answer, and may have a volume of this name; or it does not have all bricks, or the present topology, yet",
                "`shoal meta list` shows them; start them, or wait until one leads",
            ));
        }
        Err(Refusal::Unknown) if args.shard.is_some() => {
            return Err(problem(
                "the cluster has no such shard, or none of its servers has led yet",
                "`shoal meta list` shows the shards",
            ));
        }
        Err(refusal) => anyhow::bail!("cannot make the volume `{name}`: {refusal}"),
    };
    output.answer(&document(&volume), || {
        let (name, code, groups) = (&volume.name, code_of(&volume), groups_of(&volume));
        match volume.block {
            None => {
                format!("volume `{name}` with {code} in {groups} is made; `shoal mount {name} DIR` shows it as files")
            }
            Some(size) => format!(
                "block volume `{name}` of {} with {code} in {groups} is made; `shoal nbd {name}` exports it",
                Size(size)
            ),
        }
    });
    Ok(())
}

/// The volume that the arguments describe.
fn requested(args: &CreateArgs) -> anyhow::Result<VolumeCreate> {
    let (mut name, mut groups) = (args.name.clone(), args.groups);
    if groups > limits::GROUPS_MAX {
        let what = format!("a volume has at most {} groups, not {groups}", limits::GROUPS_MAX);
        return Err(problem(what, "--groups 0 for a fitting number"));
    }
    let (tier, whole_files) = match args.kind.as_deref() {
        None => (args.code.or(args.hot).context("a volume needs --code, --type or --hot")?, false),
        Some(words) => {
            let (kind, mut argument) = (words.first().context("--type needs a type")?, words.get(1));
            // In `--type distribute photos` the second word is the volume's name.
            if name.is_none() && kind == "distribute" {
                name = argument.take().cloned();
            }
            let VolumeType { code, one_group, whole_files } =
                volume_type::parse(kind, argument.map(String::as_str))?;
            if one_group && groups > 1 {
                let what = format!("a volume of type `{kind}` has one group, not {groups}");
                return Err(problem(
                    what,
                    format!("--type distributed-{} --groups {groups}", words.join(" ")),
                ));
            }
            groups = if one_group { 1 } else { groups };
            (TierCode { code, class: None }, whole_files)
        }
    };
    let name = name.ok_or_else(|| {
        problem("the volume has no name", "`shoal volume create NAME --type ...`, with the name first")
    })?;
    let whole_files = whole_files || args.whole_files;
    let TierSpec { geometry, class } = tier_spec(tier, args.unit, whole_files)?;
    let block = args.block.map(check_disk).transpose()?;
    if let Some(cold) = args.cold.filter(|cold| *cold == tier) {
        let what = format!("both tiers have code {cold}: no file could move");
        return Err(problem(
            what,
            "--hot and --cold with different codes or classes, such as 1+2@ssd and 8+2@hdd",
        ));
    }
    let tiers =
        args.cold.map(|cold| tier_spec(cold, args.unit, whole_files)).transpose()?.into_iter().collect();
    let same_node = args.placement.by_brick(args.same_node);
    let (placement, near_writer) = (None, args.near_writer);
    let shard = args.shard.map(ShardId);
    let token = 0;
    Ok(VolumeCreate {
        name,
        geometry,
        groups,
        same_node,
        block,
        class,
        tiers,
        placement,
        near_writer,
        shard,
        token,
    })
}

/// A tier of this code with units of this size. With `whole_files` each file lies in one group.
pub(crate) fn tier_spec(tier: TierCode, unit: Size, whole_files: bool) -> anyhow::Result<TierSpec> {
    let unit = u32::try_from(unit.0).unwrap_or(u32::MAX);
    let geometry = match whole_files {
        true => Geometry::whole_files(tier.code, unit),
        false => Geometry::new(tier.code, unit, limits::EXTENT_STRIPES_DEFAULT),
    };
    Ok(TierSpec { geometry: geometry.context("cannot make the tier")?, class: tier.class })
}

/// A volume's code, with the name of its type if it is of one.
fn code_of(volume: &VolumeInfo) -> String {
    let name = volume_type::type_of(volume).map(|name| format!(" ({name})"));
    let codes: Vec<String> = volume.all_tiers().map(|tier| TierCode::of(&tier).to_string()).collect();
    match codes.as_slice() {
        [code] => format!("code {code}{}", name.unwrap_or_default()),
        [first, others @ ..] => format!("code {first} for new files, then {}", others.join(", ")),
        [] => String::new(),
    }
}

/// A volume's number of groups, in words.
fn groups_of(volume: &VolumeInfo) -> String {
    match volume.groups.len() {
        1 => "1 group".to_owned(),
        groups => format!("{groups} groups"),
    }
}

/// The size of a disk, in bytes.
fn check_disk(size: Size) -> anyhow::Result<u64> {
    let block = limits::BLOCK as u64;
    if size.0 == 0 || size.0 > limits::FILE_SIZE_MAX || !size.0.is_multiple_of(block) {
        let what = format!("a disk cannot have {} bytes", size.0);
        return Err(problem(what, format!("a multiple of {block}, up to {}", Size(limits::FILE_SIZE_MAX))));
    }
    Ok(size.0)
}

fn grow(name: &str, size: Size, remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let volume = map.volume_named(name).ok_or_else(|| unknown(name, &map))?;
    let Some(old) = volume.block else {
        let what = format!("volume `{name}` holds files, which grow by themselves");
        return Err(problem(what, "`shoal volume list` shows which volumes are disks"));
    };
    let size = check_disk(size)?;
    if size < old {
        let what = format!("volume `{name}` has {} and is never made smaller", Size(old));
        return Err(problem(what, "make a smaller volume and copy what is needed, for example by `nbdcopy`"));
    }
    match remote.meta_or_refusal(&VolumeGrow { name: name.to_owned(), size })? {
        Ok(reply) => output.answer(&document(&reply.volume), || {
            format!("volume `{name}` has {}; a client sees it when it connects anew", Size(size))
        }),
        Err(refusal) => anyhow::bail!("cannot grow the volume `{name}`: {refusal}"),
    }
    Ok(())
}

/// The error for too few failure domains: those that exist, those that are Up, and a code that would fit.
pub(crate) fn too_few(
    tiers: &[(Geometry, Option<BrickClass>)],
    same_node: bool,
    map: &ClusterMap,
) -> anyhow::Error {
    let is_up = |brick: &&BrickInfo| brick.state == BrickState::Up;
    let of = |class: Option<BrickClass>| {
        let bricks = map.bricks.iter().filter(move |brick| class.is_none_or(|class| brick.class == class));
        (Domains::of(bricks.clone()), Domains::of(bricks.clone().filter(is_up)), bricks)
    };
    let lacks = |(geometry, class): &&(Geometry, Option<BrickClass>)| {
        let up = of(*class).1;
        (if same_node { up.bricks } else { up.nodes }) < geometry.code().slots() as u32
    };
    // The bricks may have changed since the service looked.
    let (geometry, class) = *tiers.iter().find(lacks).unwrap_or(&tiers[0]);
    let code = geometry.code();
    let (known, up, bricks) = of(class);
    let out: Vec<String> = bricks.filter(|b| !is_up(b)).map(|b| b.id.to_string()).collect();
    let slots = code.slots() as u32;
    let of_class = class.map(|class| format!(" of class {class}")).unwrap_or_default();
    let there = if out.is_empty() {
        format!("and there are {}{of_class}", known.text(same_node))
    } else {
        let (are, out) = (if out.len() == 1 { "is" } else { "are" }, some_of(&out));
        format!(
            "that are up; {}{of_class} are known, {} are up: {out} {are} Out",
            known.text(same_node),
            up.text(same_node)
        )
    };
    let what = format!("code {code} needs {slots} failure domains, one for each unit, {there}");
    let fits = |domains: &Domains| slots <= if same_node { domains.bricks } else { domains.nodes };
    let other = if up.bricks == 0 {
        String::new()
    } else if same_node {
        format!("--code {}", fitting_code(up.bricks))
    } else if slots <= up.bricks {
        let code = fitting_code(up.nodes);
        format!("--code {code}, or --same-node to let units share a node and survive the loss of bricks only")
    } else {
        format!("--code {}, or --code {} --same-node", fitting_code(up.nodes), fitting_code(up.bricks))
    };
    let remedy = match (known.bricks, fits(&known)) {
        (0, _) if class.is_none() => "`shoal brick` first: the cluster has no brick yet".to_owned(),
        (0, _) => format!(
            "`shoal brick --class {}`, or no class",
            class.map(|class| class.to_string()).unwrap_or_default()
        ),
        (_, true) if other.is_empty() => "start the bricks that are Out".to_owned(),
        (_, true) => format!("start the bricks that are Out; or {other}, with those that are up"),
        _ => other,
    };
    problem(what, remedy)
}

/// Numbers of failure domains.
struct Domains {
    bricks: u32,
    nodes: u32,
}

impl Domains {
    fn of<'a>(bricks: impl Iterator<Item = &'a BrickInfo>) -> Domains {
        let nodes: Vec<_> = bricks.map(|brick| brick.node).collect();
        let apart: BTreeSet<_> = nodes.iter().collect();
        Domains { bricks: nodes.len() as u32, nodes: apart.len() as u32 }
    }

    fn text(&self, same_node: bool) -> String {
        let Domains { bricks, nodes } = self;
        if same_node { format!("{bricks} bricks") } else { format!("{nodes} nodes (with {bricks} bricks)") }
    }
}

/// The first names, and the number of others.
fn some_of(names: &[String]) -> String {
    let named = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => named,
        others => format!("{named} and {others} others"),
    }
}

fn list(remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let document = || map.volumes.iter().map(document).collect::<Vec<Value>>().into();
    output.answer_by(document, || {
        let mut rows = vec![["volume", "type", "code", "unit", "groups", "disk"].map(str::to_owned).to_vec()];
        let has_shards = !map.shards.is_empty();
        rows[0].extend(has_shards.then(|| "shard".to_owned()));
        for volume in &map.volumes {
            let geometry = &volume.geometry;
            let unit = Size(geometry.unit() as u64).to_string();
            rows.push(vec![
                volume.name.clone(),
                volume_type::type_of(volume).unwrap_or("-").to_owned(),
                geometry.code().to_string(),
                unit,
                volume.groups.len().to_string(),
                volume.block.map_or("-".into(), |size| Size(size).to_string()),
            ]);
            let shard = has_shards.then(|| volume.id.shard().0.to_string());
            rows.last_mut().expect("just added").extend(shard);
        }
        table(&rows)
    });
    Ok(())
}

fn info(name: &str, remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let volume = map.volume_named(name).ok_or_else(|| unknown(name, &map))?;
    let mut described = document(volume);
    let reports = placement::reports(&map, volume);
    described["network"] = placement::document(&reports);
    output.answer(&described, || {
        let geometry = &volume.geometry;
        format!(
            "volume `{name}`: {}{}, units of {}, stripes of {}, {}{}{}\n\n{}{}",
            volume.block.map(|size| format!("a disk of {}, ", Size(size))).unwrap_or_default(),
            code_of(volume),
            Size(geometry.unit() as u64),
            Size(geometry.stripe() as u64),
            groups_of(volume),
            if geometry.has_whole_files() { ", each file whole in one" } else { "" },
            if volume.near_writer { ", new files begin near their writers" } else { "" },
            picture(&map, volume, std::io::stdout().is_terminal()),
            placement::words(&reports)
        )
    });
    Ok(())
}

fn delete(
    name: &str,
    yes: bool,
    shard: Option<ShardId>,
    remote: &Remote,
    output: &Output,
) -> anyhow::Result<()> {
    let map = remote.status()?.map;
    let is_meant =
        |volume: &&VolumeInfo| volume.name == name && shard.is_none_or(|shard| volume.id.shard() == shard);
    let found: Vec<&VolumeInfo> = map.volumes.iter().filter(is_meant).collect();
    match *found {
        [one, other, ..] => {
            let [one, other] = [one, other].map(|volume| volume.id.shard().0);
            return Err(problem(
                format!("the shards {one} and {other} both have a volume `{name}`"),
                format!("`shoal volume delete {name} --shard {other}`, or {one}"),
            ));
        }
        [volume] if !yes => confirm(volume)?,
        [] if !yes => return Err(unknown(name, &map)),
        _ => {}
    }
    match remote.meta_or_refusal(&VolumeDelete { name: name.to_owned(), shard })? {
        Ok(_) => output.answer(&json!({ "deleted": name }), || format!("volume `{name}` is deleted")),
        Err(Refusal::Unknown | Refusal::NotFound) => return Err(unknown(name, &remote.status()?.map)),
        Err(Refusal::Busy) => {
            return Err(problem(
                format!("the volume `{name}` is mounted somewhere"),
                "unmount it everywhere first",
            ));
        }
        Err(refusal) => anyhow::bail!("cannot delete the volume `{name}`: {refusal}"),
    }
    Ok(())
}

/// Asks the user to type the volume's name.
fn confirm(volume: &VolumeInfo) -> anyhow::Result<()> {
    let name = &volume.name;
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(problem(
            format!(
                "nothing is deleted: there is no terminal to ask whether all of volume `{name}` is to be deleted"
            ),
            format!("`shoal volume delete {name} --yes`, if everything in it is to be lost"),
        ));
    }
    let what = volume.block.map_or("its files".to_owned(), |size| format!("its disk of {}", Size(size)));
    eprint!("Volume `{name}` and {what} will be lost for good. Type its name to delete it: ");
    let mut typed = String::new();
    std::io::stdin().lock().take(TYPED_MAX).read_line(&mut typed).context("cannot read what was typed")?;
    if typed.trim() == name {
        return Ok(());
    }
    Err(problem("nothing is deleted: that is not the name of the volume", format!("type `{name}`, or --yes")))
}

/// The error for a name that no volume has.
pub(crate) fn unknown(name: &str, map: &ClusterMap) -> anyhow::Error {
    let names: Vec<&str> = map.volumes.iter().map(|v| v.name.as_str()).collect();
    let remedy = if names.is_empty() {
        format!("`shoal volume create {name} --code K+M`: there is no volume yet")
    } else {
        format!("one of: {}", names.join(", "))
    };
    problem(format!("there is no volume `{name}` in cluster {}", map.cluster), remedy)
}

/// A volume as JSON.
pub(crate) fn document(volume: &VolumeInfo) -> Value {
    let code = volume.geometry.code();
    let groups: Vec<Value> = (0..)
        .zip(&volume.groups)
        .map(|(index, group)| {
            let slots: Vec<Value> = group
                .slots
                .iter()
                .map(|slot| json!({ "brick": slot.brick.to_string(), "state": format!("{:?}", slot.state).to_lowercase() }))
                .collect();
            let primary = group.primary(volume.code_of(index)).and_then(|slot| group.slots.get(slot));
            let primary = primary.map(|slot| slot.brick.to_string());
            json!({ "epoch": group.epoch.0, "primary": primary, "slots": slots })
        })
        .collect();
    let whole_files = volume.geometry.has_whole_files();
    json!({
        "name": volume.name,
        "shard": volume.id.shard().0,
        "type": volume_type::type_of(volume),
        "code": code.to_string(),
        "unit": volume.geometry.unit(),
        "extent_stripes": (!whole_files).then_some(volume.geometry.extent_stripes()),
        "groups": groups,
        "tiers": volume.all_tiers().map(|tier| tier_document(&tier)).collect::<Vec<_>>(),
        "block": volume.block,
        "tuning": volume.tuning,
        "near_writer": volume.near_writer,
        "placement": volume.placement.map(|spec| json!({
            "domain": spec.domain.word(),
            "primaries": if spec.front_primaries { "front" } else { "all" },
            "scatter": if spec.wide { "wide" } else { "bounded" },
        })),
    })
}

/// A tier as JSON.
pub(crate) fn tier_document(tier: &Tier) -> Value {
    json!({
        "number": tier.number,
        "code": tier.geometry.code().to_string(),
        "class": tier.class.map(|class| class.to_string()),
        "unit": tier.geometry.unit(),
        "groups": tier.groups.len(),
    })
}
