//! `shoal volume verify`: reads every unit of a volume, encodes again and compares.
//!
//! Bricks forget a removed object one after the other. A stripe that was seen between the first and the last of them looks as
//! if units were lost. So a stripe at fault is compared again, unless the metadata service says that its object waits to be
//! purged: then it has no bytes that anybody could miss.

use std::collections::BTreeMap;

use clap::Args;
use meta::check::is_to_purge;
use serde_json::{Value, json};
use types::messages::brick::{StripeFault, Verified, Verify};
use types::messages::cluster::{ClusterMap, GroupConfig, VolumeInfo};
use types::{BrickId, Epoch, GroupId, ObjectId, Refusal, StripeKey};
use world::CallError;

use super::unknown;
use crate::output::{Output, table};
use crate::problem::problem;
use crate::remote::{Remote, Target};
use crate::store_scan::{ScanError, StoreScan};

/// Stripes per request.
const PAGE: u32 = 64;
/// How long a group may be without a primary: number of tries, and microseconds between them.
const TRIES: u32 = 60;
const PAUSE_US: u64 = 250_000;
/// How often the service is asked again which objects wait to be purged, if it has forgotten the question.
const SCANS: u32 = 5;
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

pub(super) fn run(
    args: &VerifyArgs,
    target: &Target,
    remote: &Remote,
    output: &Output,
) -> anyhow::Result<()> {
    let map = remote.whole_status()?.map;
    let volume = map.volume_named(&args.name).ok_or_else(|| unknown(&args.name, &map))?;
    let names = Remote::new(&target.clone().of_shard(Some(volume.id.shard().0))?)?;
    let bar = output.count_bar("groups compared", volume.groups.len() as u64);
    let mut found = Vec::new();
    for index in 0..volume.groups.len() {
        found.push(group(remote, &names, &map, volume, index)?);
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
/// than `known` only after a failed request. `names` asks the service of the volume's names.
fn group(
    remote: &Remote,
    names: &Remote,
    known: &ClusterMap,
    volume: &VolumeInfo,
    index: usize,
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
        match pages(remote, names, map, id, &mut found, &mut after) {
            Ok(()) => return Ok(found),
            Err(Silent::Names(error)) => why = format!("the metadata service: {error}"),
            Err(Silent::Primary(CallError::Refused(Refusal::Unsupported))) => {
                return Err(problem(
                    format!("brick {brick} cannot compare stripes: its server is older than this command"),
                    "restart it with this version",
                ));
            }
            Err(Silent::Primary(error)) => why = format!("brick {brick}: {error}"),
        }
    }
}

/// Who does not answer as it should.
enum Silent {
    Primary(CallError),
    Names(CallError),
}

/// Requests page after page until the end or an error.
fn pages(
    remote: &Remote,
    names: &Remote,
    map: &ClusterMap,
    id: GroupId,
    found: &mut Found,
    after: &mut Option<StripeKey>,
) -> Result<(), Silent> {
    let brick = found.primary.and_then(|brick| map.brick(brick));
    let brick = brick.ok_or(Silent::Primary(CallError::Unreachable))?;
    let primary = Primary { remote, address: &brick.address, epoch: found.config.epoch, group: id };
    loop {
        let page = primary.verify(*after, PAGE)?;
        let page = primary.confirm(names, page)?;
        found.stripes += page.stripes;
        found.mismatched.extend(page.mismatched);
        found.damaged.extend(page.damaged);
        match page.next {
            Some(next) => *after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The primary of a group, in an epoch.
struct Primary<'a> {
    remote: &'a Remote,
    address: &'a str,
    epoch: Epoch,
    group: GroupId,
}

impl Primary<'_> {
    fn verify(&self, after: Option<StripeKey>, limit: u32) -> Result<Verified, Silent> {
        let verify = Verify { group: self.group, after, limit };
        self.remote.primary(self.address, self.epoch, &verify).map_err(Silent::Primary)
    }

    /// Looks again at the stripes at fault. An object that waits to be purged now has no fault. The others did not wait
    /// when they are compared again, or all bricks have forgotten them.
    fn confirm(&self, names: &Remote, page: Verified) -> Result<Verified, Silent> {
        let faults = page.mismatched.iter().chain(&page.damaged).map(|fault| fault.key);
        let mut again: BTreeMap<StripeKey, Verified> = BTreeMap::new();
        for key in awaited(names, self.group, faults.collect()).map_err(Silent::Names)? {
            again.insert(key, self.verify(before(key), 1)?);
        }
        let of = |faults: fn(&Verified) -> &Vec<StripeFault>| -> Vec<StripeFault> {
            let faults = again.iter().flat_map(|(key, seen)| faults(seen).iter().filter(|f| f.key == *key));
            faults.cloned().collect()
        };
        Ok(Verified { mismatched: of(|seen| &seen.mismatched), damaged: of(|seen| &seen.damaged), ..page })
    }
}

/// Those of some stripes whose object does not wait to be purged.
fn awaited(names: &Remote, group: GroupId, keys: Vec<StripeKey>) -> Result<Vec<StripeKey>, CallError> {
    let (mut tries, mut known) = (0, BTreeMap::<ObjectId, bool>::new());
    let mut scan = StoreScan::begin(names);
    for object in keys.iter().map(|key| key.object) {
        while !known.contains_key(&object) {
            match is_to_purge(&mut scan, group.volume, object) {
                Ok(waits) => drop(known.insert(object, waits)),
                Err(ScanError::Forgotten) if tries < SCANS => {
                    tries += 1;
                    scan = StoreScan::begin(names);
                }
                Err(ScanError::Forgotten) => return Err(CallError::Refused(Refusal::Unknown)),
                Err(ScanError::Call(error)) => return Err(error),
            }
        }
    }
    Ok(keys.into_iter().filter(|key| !known[&key.object]).collect())
}

/// The greatest key below another one.
fn before(key: StripeKey) -> Option<StripeKey> {
    match key.stripe.checked_sub(1) {
        Some(stripe) => Some(StripeKey { stripe, ..key }),
        None => Some(StripeKey { object: ObjectId(key.object.0.checked_sub(1)?), stripe: u64::MAX }),
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
