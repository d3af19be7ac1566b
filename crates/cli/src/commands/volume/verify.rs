//! `shoal volume verify`: reads every unit of a volume, encodes again and compares.

use clap::Args;
use serde_json::{Value, json};
use types::messages::brick::{StripeFault, Verified, Verify};
use types::messages::cluster::{ClusterMap, GroupConfig, VolumeInfo};
use types::{BrickId, GroupId, Refusal, StripeKey};
use world::CallError;

use super::unknown;
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::Remote;

/// Stripes per request.
const PAGE: u32 = 64;
/// How long a group may be without a primary: number of tries, and microseconds between them.
const TRIES: u32 = 60;
const PAUSE_US: u64 = 250_000;
/// Most faulty stripes that are shown per group.
const SHOWN: usize = 20;

/// Reads every unit of a volume and compares it with the others; repairs nothing
#[derive(Args)]
pub(super) struct VerifyArgs {
    /// The volume
    name: String,
}

/// The result for one group.
struct Found {
    index: usize,
    config: GroupConfig,
    primary: Option<BrickId>,
    stripes: u64,
    mismatched: Vec<StripeFault>,
    damaged: Vec<StripeFault>,
}

pub(super) fn run(args: &VerifyArgs, remote: &Remote, output: &Output) -> anyhow::Result<()> {
    let map = remote.whole_status()?.map;
    let volume = map.volume_named(&args.name).ok_or_else(|| unknown(&args.name, &map))?;
    let bar = output.count_bar("groups compared", volume.groups.len() as u64);
    let mut found = Vec::new();
    for index in 0..volume.groups.len() {
        found.push(group(remote, &map, volume, index)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let sum = |of: fn(&Found) -> u64| found.iter().map(of).sum::<u64>();
    let (stripes, mismatched, damaged) =
        (sum(|f| f.stripes), sum(|f| f.mismatched.len() as u64), sum(|f| f.damaged.len() as u64));
    let verdict = match mismatched + damaged {
        0 => "all is well".to_owned(),
        _ => format!("{mismatched} stripes mismatched, {damaged} damaged"),
    };
    let document = json!({
        "volume": args.name,
        "stripes": stripes,
        "mismatched": mismatched,
        "damaged": damaged,
        "groups": found.iter().map(document).collect::<Vec<_>>(),
    });
    output.answer(&document, || {
        format!("{}\n{stripes} stripes of `{}` compared: {verdict}", words(&found), args.name)
    });
    if mismatched + damaged == 0 {
        return Ok(());
    }
    if output.is_json() {
        // Exit here, so that no second JSON document is printed for the error.
        std::process::exit(1);
    }
    Err(problem(
        format!("volume `{}`: {verdict}", args.name),
        "the bricks that are named; a stripe that is written whole again is sound again",
    ))
}

/// Asks the primary of a group to verify all its stripes, even if the primary changes meanwhile. Fetches a newer map
/// than `known` only after a failed request.
fn group(remote: &Remote, known: &ClusterMap, volume: &VolumeInfo, index: usize) -> anyhow::Result<Found> {
    let id = GroupId { volume: volume.id, index: index as u32 };
    let mut found = Found {
        index,
        config: volume.groups[index].clone(),
        primary: None,
        stripes: 0,
        mismatched: Vec::new(),
        damaged: Vec::new(),
    };
    let mut after: Option<StripeKey> = None;
    let (mut tries, mut why) = (0, "its primary does not answer".to_owned());
    loop {
        if tries == TRIES {
            return Err(problem(
                format!("group {index} of volume `{}` is not served: {why}", volume.name),
                "`shoal status` shows which of its bricks are missing",
            ));
        }
        let newer = match tries {
            0 => None,
            _ => {
                remote.pause(PAUSE_US);
                Some(remote.whole_status()?.map)
            }
        };
        tries += 1;
        let map = newer.as_ref().unwrap_or(known);
        let Some((volume, config)) = map.group(id) else { return Ok(found) };
        let slot = config.primary(volume.code_of(id.index));
        let Some(brick) = slot.and_then(|slot| config.slots.get(slot)).map(|slot| slot.brick) else {
            why = "it has no live slot".to_owned();
            continue;
        };
        found = Found { config: config.clone(), primary: Some(brick), ..found };
        match pages(remote, map, id, &mut found, &mut after) {
            Ok(()) => return Ok(found),
            Err(CallError::Refused(Refusal::Unsupported)) => {
                return Err(problem(
                    format!("brick {brick} cannot compare stripes: its server is older than this command"),
                    "restart it with this version",
                ));
            }
            Err(error) => why = format!("brick {brick}: {error}"),
        }
    }
}

/// Requests page after page until the end or an error.
fn pages(
    remote: &Remote,
    map: &ClusterMap,
    id: GroupId,
    found: &mut Found,
    after: &mut Option<StripeKey>,
) -> Result<(), CallError> {
    let address = found.primary.and_then(|brick| map.brick(brick)).ok_or(CallError::Unreachable)?;
    loop {
        let verify = Verify { group: id, after: *after, limit: PAGE };
        let page: Verified = remote.primary(&address.address, found.config.epoch, &verify)?;
        found.stripes += page.stripes;
        found.mismatched.extend(page.mismatched);
        found.damaged.extend(page.damaged);
        match page.next {
            Some(next) => *after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Bricks of the slots at fault.
fn bricks(found: &Found, fault: &StripeFault) -> Vec<String> {
    let slots = found.config.slots.iter().enumerate();
    slots.filter(|(slot, _)| fault.slots & 1 << slot != 0).map(|(_, slot)| slot.brick.to_string()).collect()
}

fn document(found: &Found) -> Value {
    let faults = |faults: &[StripeFault]| -> Vec<Value> {
        let fault = |fault: &StripeFault| {
            json!({
                "object": fault.key.object.0,
                "stripe": fault.key.stripe,
                "bricks": bricks(found, fault),
            })
        };
        faults.iter().map(fault).collect()
    };
    json!({
        "group": found.index,
        "epoch": found.config.epoch.0,
        "primary": found.primary.map(|brick| brick.to_string()),
        "live": found.config.live().count_ones(),
        "slots": found.config.slots.len(),
        "stripes": found.stripes,
        "mismatched": faults(&found.mismatched),
        "damaged": faults(&found.damaged),
    })
}

fn words(found: &[Found]) -> String {
    let head = ["group", "primary", "live", "stripes", "mismatched", "damaged"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut faults = String::new();
    for group in found {
        rows.push(vec![
            group.index.to_string(),
            group.primary.map_or("-".to_owned(), |brick| brick.to_string()),
            format!("{} of {}", group.config.live().count_ones(), group.config.slots.len()),
            group.stripes.to_string(),
            group.mismatched.len().to_string(),
            group.damaged.len().to_string(),
        ]);
        for (what, list) in [("does not fit the others", &group.mismatched), ("is damaged", &group.damaged)] {
            for fault in list.iter().take(SHOWN) {
                let bricks = bricks(group, fault).join(", ");
                faults += &format!("group {}: {}: the unit on {bricks} {what}\n", group.index, fault.key);
            }
            if list.len() > SHOWN {
                faults += &format!("group {}: and {} more\n", group.index, list.len() - SHOWN);
            }
        }
    }
    format!("{}\n{faults}", table(&rows))
}
