//! The check of a whole store.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::replica::MetaRepair;
use types::{InodeId, ObjectId, VolumeId};

use super::fault::{Fault, Found};
use super::pairs::{CheckError, Pairs, value_of};
use super::volume;
use crate::records::{VolumeRecord, from_value};
use crate::{ids_end, keys};

/// Most files without bytes that are kept.
pub(super) const EMPTY_MAX: usize = 1000;
/// Most faults that one check finds. What else is wrong, the next one finds.
pub const FAULTS_MAX: usize = 100_000;

/// What a check has seen.
#[derive(Clone, Default, Debug)]
pub struct Checked {
    /// Volumes that are in use.
    pub volumes: u64,
    /// Inodes of all kinds.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Names.
    pub names: u64,
    /// Objects that wait to be purged.
    pub purges: u64,
    /// What is wrong, in the order in which it is to be repaired.
    pub found: Vec<Found>,
    /// Keys and values that cannot be read.
    pub unreadable: u64,
    /// There may be more, because these are as many as one check finds.
    pub is_cut: bool,
    /// Files with a length of which no brick has a byte, as many as are kept: all of it is a hole, or it is lost. Files that
    /// have changed lately are not among them.
    pub empty: Vec<(String, InodeId)>,
    /// How many there are.
    pub empty_files: u64,
}

impl Checked {
    pub(super) fn add(&mut self, volume: Option<&str>, fault: Fault, repair: Option<MetaRepair>) {
        self.unreadable += u64::from(matches!(fault, Fault::Unreadable { .. }));
        if self.found.len() < FAULTS_MAX {
            self.found.push(Found { volume: volume.map(str::to_owned), fault, repair });
        } else {
            self.is_cut = true;
        }
    }
}

/// A repair that does nothing yet.
pub(super) fn nothing() -> MetaRepair {
    MetaRepair { patches: Vec::new(), inodes: None, ids_up_to: 0, adopt: None, purge: None }
}

/// Objects that bricks hold of each volume, in order, as they were before the moment of the store.
pub type Held = BTreeMap<VolumeId, Vec<ObjectId>>;

/// Checks a store, with about `memory` bytes of memory, and compares it with what bricks hold. `now`: the time of repairs, in
/// nanoseconds since 1970, from before the bricks were asked. `read` is told from time to time how many keys were read.
///
/// # Errors
/// If the store cannot be read, or if the memory is too little.
pub fn check<P: Pairs>(
    pairs: &mut P,
    memory: usize,
    now: i64,
    held: Option<&Held>,
    read: &mut dyn FnMut(u64),
) -> Result<Checked, CheckError<P::Error>> {
    let mut checked = Checked::default();
    let volumes = volumes(pairs, &mut checked)?;
    if checked.unreadable == 0 {
        check_no_others(pairs, &volumes, &mut checked)?;
    }
    let mut counted = Counted { pairs, keys: 0, read };
    let mut last_id = 0;
    for (id, volume) in &volumes {
        if volume.deleted {
            last_id = last_id.max(last_id_of_deleted(counted.pairs, *id)?);
            continue;
        }
        checked.volumes += 1;
        let held = held.map(|held| held.get(id).map_or(&[][..], Vec::as_slice));
        let is_disk = volume.block.is_some();
        let about = volume::About { id: *id, name: &volume.name, memory, now, held, is_disk };
        let (first, unreadable) = (checked.found.len(), checked.unreadable);
        last_id = last_id.max(volume::check(&mut counted, &about, &mut checked)?);
        if checked.unreadable > unreadable {
            // What cannot be read may have any of the names, links and objects that are missing elsewhere.
            checked.found[first..].iter_mut().for_each(|found| found.repair = None);
        }
        keep_evidence(&mut checked.found[first..], held.is_some());
    }
    let stored = value_of(pairs, &keys::id_counter())?;
    let stored = stored.and_then(|value| from_value::<u64>(&value).ok()).unwrap_or(0);
    if last_id > stored.max(InodeId::ROOT.0) {
        let repair = MetaRepair { ids_up_to: last_id, ..nothing() };
        let fault = Fault::Ids { stored, found: last_id };
        // The first of all: a repair may take a new id.
        checked.found.insert(0, Found { volume: None, fault, repair: Some(repair) });
    }
    Ok(checked)
}

/// Names whose inodes are lost may be those of the bytes that no file has: then neither goes. Without the bricks' answers nobody
/// knows whether there are such bytes.
fn keep_evidence(found: &mut [Found], has_asked_bricks: bool) {
    let is_nameless_byte = |found: &Found| matches!(found.fault, Fault::Unowned { .. });
    let leads_nowhere = |found: &Found| matches!(found.fault, Fault::NameWithoutInode { .. });
    let has_names = found.iter().any(leads_nowhere);
    if has_asked_bricks && !(has_names && found.iter().any(is_nameless_byte)) {
        return;
    }
    let is_evidence = |found: &&mut Found| {
        leads_nowhere(found)
            || has_names && (is_nameless_byte(found) || matches!(found.fault, Fault::Inodes { .. }))
    };
    found.iter_mut().filter(is_evidence).for_each(|found| found.repair = None);
}

/// The last id in use in a volume that is being removed.
fn last_id_of_deleted<P: Pairs>(pairs: &mut P, volume: VolumeId) -> Result<u64, P::Error> {
    let mut last = 0;
    for prefix in [keys::all::inodes(volume), keys::all::purges_of(volume)] {
        pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, _| {
            let number = keys::last_u64(key).map_or(0, |number| ObjectId(number).number());
            last = last.max(if number < ids_end(volume) { number } else { 0 });
            true
        })?;
    }
    Ok(last)
}

/// Counts what is read.
struct Counted<'a, P> {
    pairs: &'a mut P,
    keys: u64,
    read: &'a mut dyn FnMut(u64),
}

/// After so many keys it is told that they were read.
const TOLD_EVERY: u64 = 4096;

impl<P: Pairs> Pairs for Counted<'_, P> {
    type Error = P::Error;

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), P::Error> {
        let Counted { pairs, keys, read } = self;
        pairs.range(from, to, &mut |key, value| {
            *keys += 1;
            if keys.is_multiple_of(TOLD_EVERY) {
                read(*keys);
            }
            f(key, value)
        })
    }
}

fn volumes<P: Pairs>(
    pairs: &mut P,
    checked: &mut Checked,
) -> Result<BTreeMap<VolumeId, VolumeRecord>, P::Error> {
    let (prefix, mut volumes) = (keys::all::volumes(), BTreeMap::new());
    pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
        match (keys::last_u32(key), from_value(value)) {
            (Some(id), Ok(volume)) => drop(volumes.insert(VolumeId(id), volume)),
            _ => checked.add(None, Fault::Unreadable { key: key.to_vec() }, None),
        }
        true
    })?;
    Ok(volumes)
}

/// Finds keys of volumes that do not exist.
fn check_no_others<P: Pairs>(
    pairs: &mut P,
    volumes: &BTreeMap<VolumeId, VolumeRecord>,
    checked: &mut Checked,
) -> Result<(), P::Error> {
    let mut unknown = BTreeSet::new();
    for kind in keys::all::of_volumes() {
        let (mut from, end) = (kind.clone(), keys::after_all(&kind));
        loop {
            let mut first = None;
            pairs.range(&from, &end, &mut |key, _| {
                first = Some(key.to_vec());
                false
            })?;
            let Some(key) = first else { break };
            let volume = key.get(1..5).and_then(|bytes| bytes.first_chunk::<4>());
            let Some(volume) = volume.map(|bytes| VolumeId(u32::from_be_bytes(*bytes))) else {
                checked.add(None, Fault::Unreadable { key }, None);
                break;
            };
            if !volumes.contains_key(&volume) && unknown.len() < FAULTS_MAX && unknown.insert(volume) {
                checked.add(None, Fault::UnknownVolume { volume }, None);
            }
            from = keys::after_all(&key[..5]);
        }
    }
    Ok(())
}
