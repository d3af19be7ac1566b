//! Chooses the object of a file, and with it the group in which the file begins.

use std::ops::Range;

use types::limits::NEAR_GROUPS_MAX;
use types::{ObjectId, Refusal, VolumeId};

use crate::kv::Txn;

/// How many times as many ids as it takes on average are looked at: 1 file in 10 million begins elsewhere.
const PATIENCE: u32 = 16;

/// A new id for an object of the first tier. An object's groups follow from its id, so with `near`, groups of that tier in
/// ascending order, it is an id whose first extent lies in one of them, if one is soon found.
pub(super) fn new_object_id(txn: &mut Txn<'_>, volume: VolumeId, near: &[u32]) -> Result<u64, Refusal> {
    if near.is_empty() {
        return txn.new_id();
    }
    let groups = 0..txn.table(volume)?.first_groups;
    let in_order = near.windows(2).all(|two| two[0] < two[1]);
    if near.len() > NEAR_GROUPS_MAX || !in_order || near.last().is_some_and(|last| *last >= groups.end) {
        return Err(Refusal::Invalid);
    }
    let tries = PATIENCE * groups.end.div_ceil(near.len() as u32);
    let is_near = |id| near.binary_search(&first_group(volume, ObjectId::in_tier(id, 0), &groups)).is_ok();
    txn.new_id_where(tries, is_near)
}

/// A new id for the object that takes the place of `old` in a file that begins anew. Where files begin near their writers, it
/// begins in the same group, if that is one of the first tier.
pub(super) fn new_object_id_like(txn: &mut Txn<'_>, volume: VolumeId, old: ObjectId) -> Result<u64, Refusal> {
    let table = txn.table(volume)?;
    if !table.near_writer || old.tier() > 0 {
        return txn.new_id();
    }
    let group = first_group(volume, old, &(0..table.first_groups));
    new_object_id(txn, volume, &[group])
}

/// The group of an object's first extent.
fn first_group(volume: VolumeId, object: ObjectId, groups: &Range<u32>) -> u32 {
    layout::group_of(volume, object, 0, groups).index
}

#[cfg(test)]
mod tests {
    use types::messages::names::{Attr, Create, FileKind};

    use super::*;
    use crate::fixture::{Fixture, ROOT, on_all};
    use crate::ops;

    /// Groups of the fixture's volume.
    const GROUPS: Range<u32> = 0..4;

    fn create(tree: &mut Fixture, name: &str, near: &[u32]) -> Result<Attr, Refusal> {
        let request = Create { near: near.to_vec(), ..tree.create_request(ROOT, name) };
        tree.once(request.caller.clone(), move |txn| ops::create(txn, &request)).map(|made| made.attr)
    }

    #[test]
    fn a_file_begins_in_a_wanted_group() {
        on_all(|mut tree| {
            let volume = tree.volume;
            for at in 0..64 {
                let near: &[u32] = [&[3][..], &[0, 2], &[1], &[0, 1, 2, 3]][at % 4];
                let made = create(&mut tree, &format!("f{at}"), near).expect("free");
                assert!(near.contains(&first_group(volume, made.object, &GROUPS)), "{near:?}");
            }
            // Ids are passed over, and never given twice.
            let before = tree.create(ROOT, "any").expect("free").inode;
            let next = create(&mut tree, "near", &[2]).expect("free").inode;
            assert!(before < next && tree.create(ROOT, "then").expect("free").inode > next);
        });
    }

    #[test]
    fn wishes_that_make_no_sense_are_refused() {
        on_all(|mut tree| {
            let many: Vec<u32> = (0..=NEAR_GROUPS_MAX as u32).collect();
            for near in [&[4][..], &[u32::MAX], &[1, 0], &[1, 1], &many] {
                assert_eq!(create(&mut tree, "f", near).err(), Some(Refusal::Invalid), "{near:?}");
            }
            let pipe = Create { kind: FileKind::Fifo, near: vec![9], ..tree.create_request(ROOT, "pipe") };
            let made = tree.once(pipe.caller.clone(), move |txn| ops::create(txn, &pipe));
            assert!(made.is_ok(), "it lies in no group");
        });
    }

    #[test]
    fn a_file_that_begins_anew_stays_in_its_group_where_files_are_near_their_writers() {
        on_all(|mut tree| {
            let volume = tree.volume;
            let stays = |tree: &mut Fixture, near_writer: bool| {
                tree.state.volatile.volumes.get_mut(&volume).expect("in use").near_writer = near_writer;
                (0..32).all(|at| {
                    let made = create(tree, &format!("{near_writer}{at}"), &[3]).expect("free");
                    tree.grow(&made, 9000, true).expect("there");
                    tree.truncate(made.inode, 0).expect("there");
                    let anew = tree.getattr(made.inode).expect("there").object;
                    assert_ne!(anew, made.object);
                    first_group(volume, anew, &GROUPS) == 3
                })
            };
            assert!(stays(&mut tree, true));
            assert!(!stays(&mut tree, false));
        });
    }
}
