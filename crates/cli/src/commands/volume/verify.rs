//! `shoal volume verify`: reads every unit of a volume, encodes again and compares.
//!
//! Bricks forget a removed object one after the other. A stripe that was compared between the first and the last of them looks
//! as if units were lost. So at the end the metadata service is asked which objects wait to be purged: these have no bytes that
//! anybody could miss. All other stripes at fault are compared once more: by then all bricks have forgotten what did not wait.

use std::collections::{BTreeSet, VecDeque};

use clap::Args;
use meta::check::is_to_purge;
use serde_json::{Value, json};
use types::messages::brick::{StripeFault, Verified, Verify};
use types::messages::cluster::{ClusterMap, GroupConfig, VolumeInfo};
use types::{BrickId, GroupId, ObjectId, Refusal, StripeKey};
use world::CallError;

use super::unknown;
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::{Remote, Target};
use crate::store_scan::{ScanError, StoreScan};

/// Stripes per request.
const PAGE: u32 = 64;
/// How long a group may be without a primary, or the metadata service away: number of tries, and microseconds between them.
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

impl Found {
    /// The stripes at fault.
    fn faults(&self) -> BTreeSet<StripeKey> {
        self.mismatched.iter().chain(&self.damaged).map(|fault| fault.key).collect()
    }
}

/// Stripes to compare.
struct Part {
    /// Those above this one.
    after: Option<StripeKey>,
    /// No other than this one, which is the next after `after`.
    only: Option<StripeKey>,
}

impl Part {
    const ALL: Part = Part { after: None, only: None };

    fn one(key: StripeKey) -> Part {
        let before = match key.stripe.checked_sub(1) {
            Some(stripe) => Some(StripeKey { stripe, ..key }),
            None => key.object.0.checked_sub(1).map(|o| StripeKey { object: ObjectId(o), stripe: u64::MAX }),
        };
        Part { after: before, only: Some(key) }
    }
}

pub(super) fn run(
    args: &VerifyArgs,
    target: &Target,
    remote: &Remote,
    output: &Output,
) -> anyhow::Result<()> {
    let map = remote.whole_status()?.map;
    let volume = map.volume_named(&args.name).ok_or_else(|| unknown(&args.name, &map))?;
    let bar = output.count_bar("groups compared", volume.groups.len() as u64);
    let mut found = Vec::new();
    for index in 0..volume.groups.len() {
        found.push(group(remote, &map, volume, index, [Part::ALL].into())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    confirm(target, remote, &map, volume, &mut found, output)?;
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

/// Drops what looked like a fault only because it was being removed.
fn confirm(
    target: &Target,
    remote: &Remote,
    map: &ClusterMap,
    volume: &VolumeInfo,
    found: &mut [Found],
    output: &Output,
) -> anyhow::Result<()> {
    let objects: BTreeSet<ObjectId> = found.iter().flat_map(Found::faults).map(|key| key.object).collect();
    if objects.is_empty() {
        return Ok(());
    }
    let removed = removed(&target.clone().of_shard(Some(volume.id.shard().0))?, volume, &objects)?;
    let faulty: Vec<&mut Found> = found.iter_mut().filter(|one| !one.faults().is_empty()).collect();
    let bar = output.count_bar("groups with faults compared again", faulty.len() as u64);
    for one in faulty {
        let left = one.faults().into_iter().filter(|key| !removed.contains(&key.object));
        let again = group(remote, map, volume, one.index, left.map(Part::one).collect())?;
        *one = Found { stripes: one.stripes, ..again };
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Those of some objects that wait to be purged, or did a moment ago. `target` is the shard that has the volume.
fn removed(
    target: &Target,
    volume: &VolumeInfo,
    objects: &BTreeSet<ObjectId>,
) -> anyhow::Result<BTreeSet<ObjectId>> {
    let names = Remote::new(target)?;
    let at_one_moment = || -> Result<BTreeSet<ObjectId>, ScanError> {
        let mut scan = StoreScan::begin(&names);
        let waits = objects.iter().map(|object| Ok((*object, is_to_purge(&mut scan, volume.id, *object)?)));
        let waits = waits.collect::<Result<Vec<_>, ScanError>>()?;
        Ok(waits.into_iter().filter_map(|(object, waits)| waits.then_some(object)).collect())
    };
    let mut why = String::new();
    for _ in 0..TRIES {
        match at_one_moment() {
            Ok(removed) => return Ok(removed),
            Err(ScanError::Forgotten) => why = "it has forgotten the question".to_owned(),
            Err(ScanError::Call(error)) => why = error.to_string(),
        }
        names.pause(PAUSE_US);
    }
    Err(problem(
        format!(
            "the metadata service at {} does not say which objects wait to be purged: {why}",
            target.meta
        ),
        "`shoal meta list` shows its servers; then again",
    ))
}

/// Asks the primary of a group to verify stripes, even if the primary changes meanwhile. Fetches a newer map than
/// `known` only after a failed request.
fn group(
    remote: &Remote,
    known: &ClusterMap,
    volume: &VolumeInfo,
    index: usize,
    mut parts: VecDeque<Part>,
) -> anyhow::Result<Found> {
    let id = GroupId { volume: volume.id, index: index as u32 };
    let mut found = Found {
        index,
        config: volume.groups[index].clone(),
        primary: None,
        stripes: 0,
        mismatched: Vec::new(),
        damaged: Vec::new(),
    };
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
        match pages(remote, map, id, &mut found, &mut parts) {
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
    parts: &mut VecDeque<Part>,
) -> Result<(), CallError> {
    let address = found.primary.and_then(|brick| map.brick(brick)).ok_or(CallError::Unreachable)?;
    while let Some(part) = parts.front_mut() {
        let limit = if part.only.is_some() { 1 } else { PAGE };
        let verify = Verify { group: id, after: part.after, limit };
        let page: Verified = remote.primary(&address.address, found.config.epoch, &verify)?;
        let only = part.only;
        let is_wanted = move |fault: &StripeFault| only.is_none_or(|key| fault.key == key);
        found.stripes += page.stripes;
        found.mismatched.extend(page.mismatched.into_iter().filter(is_wanted));
        found.damaged.extend(page.damaged.into_iter().filter(is_wanted));
        match page.next.filter(|_| only.is_none()) {
            Some(next) => part.after = Some(next),
            None => drop(parts.pop_front()),
        }
    }
    Ok(())
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
