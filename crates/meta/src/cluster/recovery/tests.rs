//! What bricks tell a restored cluster: groups come back by what each brick knows, and by nothing else.

use super::*;
use crate::fixture::{Fixture, on_all};
use types::VolumeId;

/// The map of a cluster as it is after a restoration, and one of its groups.
fn restored(fixture: &mut Fixture) -> (ClusterMap, GroupId, Vec<BrickId>) {
    let mut map = fixture.state.cluster.map().clone();
    let volume: VolumeId = fixture.volume;
    for volume in &mut map.volumes {
        for group in &mut volume.groups {
            group.slots.iter_mut().for_each(|slot| slot.state = SlotState::Out);
            group.epoch = Epoch(group.epoch.0 + FLOOR_STEP);
        }
    }
    let group = GroupId { volume, index: 0 };
    let bricks = map.group(group).expect("there").1.slots.iter().map(|slot| slot.brick).collect();
    (map, group, bricks)
}

fn config(epoch: u32, slots: &[(BrickId, bool)]) -> GroupConfig {
    let slot = |(brick, live): &(BrickId, bool)| SlotConfig {
        brick: *brick,
        state: if *live { SlotState::Live } else { SlotState::Out },
    };
    GroupConfig { epoch: Epoch(epoch), slots: slots.iter().map(slot).collect() }
}

fn holds(group: GroupId, config: &GroupConfig, floor: Epoch) -> HeldGroup {
    HeldGroup { group, promised: config.epoch, config: Some(config.clone()), floor }
}

/// Asks one brick about one group and gives its answer.
fn tell(recovery: &mut Recovery, group: GroupId, brick: BrickId, said: Option<&GroupConfig>) -> bool {
    let asked: Vec<_> =
        recovery.to_ask(brick, None).into_iter().filter(|asked| asked.group == group).collect();
    let Some(floor) = asked.first().map(|asked| asked.floor) else { return true };
    let held: Vec<HeldGroup> = said.map(|config| holds(group, config, floor)).into_iter().collect();
    recovery.answered(brick, &asked, &held)
}

/// What is known goes on: its space comes back, and its bricks are replaced.
#[test]
fn a_group_that_is_not_known_concerns_its_own_volume_and_bricks() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        assert_eq!(recovery.volumes().into_iter().collect::<Vec<_>>(), [group.volume]);
        assert!(bricks.iter().all(|brick| recovery.concerns(*brick)));
        assert!(!recovery.concerns(BrickId(9999)));
        recovery.groups.clear();
        assert!(recovery.volumes().is_empty() && !recovery.concerns(bricks[0]));
    });
}

#[test]
fn the_newest_configuration_goes_on_when_all_members_have_answered() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        let all: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
        let mut without_first = all.clone();
        without_first[0].1 = false;
        let (older, newer) = (config(7, &all), config(8, &without_first));
        assert!(tell(&mut recovery, group, bricks[0], Some(&older)));
        for brick in &bricks[2..] {
            assert!(tell(&mut recovery, group, *brick, Some(&newer)));
            assert!(
                recovery.take_known(&map.bricks, 9).iter().all(|one| one.group != group),
                "one may know more"
            );
        }
        assert!(tell(&mut recovery, group, bricks[1], Some(&newer)));
        let resumed = recovery.take_known(&map.bricks, 9);
        assert_eq!(resumed.len(), 1);
        assert_eq!(resumed[0].config.slots, newer.slots);
        assert!(resumed[0].config.epoch > newer.epoch);
        fixture.state.cluster.map = map;
        let writes = fixture.state.cluster.resume_groups(resumed, 10);
        assert!(!writes.is_empty());
        let (_, found) = fixture.state.cluster.map().group(group).expect("there");
        assert_eq!(found.live().count_ones() as usize, bricks.len() - 1);
        assert!(found.epoch > newer.epoch);
    });
}

#[test]
fn a_brick_that_only_a_newer_configuration_names_is_awaited() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        let mut replaced: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
        replaced[0].0 = BrickId(77);
        let newer = config(9, &replaced);
        for brick in &bricks {
            let said = (*brick != bricks[0]).then_some(&newer);
            assert!(tell(&mut recovery, group, *brick, said));
        }
        assert!(recovery.take_known(&map.bricks, 9).iter().all(|one| one.group != group));
        assert!(recovery.report(&map.bricks).waits_for.contains(&BrickId(77)));
        assert!(tell(&mut recovery, group, BrickId(77), Some(&newer)));
        assert!(recovery.take_known(&map.bricks, 9).iter().any(|one| one.config.slots == newer.slots));
    });
}

#[test]
fn epochs_above_the_floor_raise_it_and_all_are_asked_again() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
        let far = config(3 * FLOOR_STEP, &slots);
        for brick in bricks.iter().rev() {
            assert!(tell(&mut recovery, group, *brick, Some(&far)));
        }
        assert!(
            recovery.take_known(&map.bricks, 9).iter().all(|one| one.group != group),
            "the first must promise more"
        );
        let again = recovery.to_ask(*bricks.last().expect("a brick"), None);
        assert!(again.iter().any(|asked| asked.group == group && asked.floor > far.epoch));
        for brick in &bricks {
            assert!(tell(&mut recovery, group, *brick, Some(&far)));
        }
        let resumed = recovery.take_known(&map.bricks, 9);
        assert!(resumed.iter().any(|one| one.group == group && one.config.epoch > far.epoch));
    });
}

/// A brick that the map has says that it knows nothing of any group.
fn tell_nothing(recovery: &mut Recovery, brick: BrickId) {
    let raised = recovery.raised();
    let asked = recovery.to_ask(brick, None);
    assert!(recovery.answered(brick, &asked, &[]));
    recovery.told_all(brick, raised);
}

#[test]
fn lost_bricks_are_not_awaited_and_too_many_of_them_leave_nothing() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let code = map.volume(group.volume).expect("there").code_of(0);
        let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
        for given_up in 1..bricks.len() {
            let mut recovery = Recovery::of(&map, &bricks[..given_up]).expect("groups without live slots");
            let goes_on = |recovery: &mut Recovery| {
                recovery.take_known(&map.bricks, 9).iter().any(|one| one.group == group)
            };
            for brick in &bricks[given_up..] {
                assert!(!goes_on(&mut recovery));
                assert!(tell(&mut recovery, group, *brick, Some(&config(7, &slots))));
            }
            for other in map.bricks.iter().filter(|brick| !bricks.contains(&brick.id)) {
                assert_eq!(goes_on(&mut recovery), given_up < code.k() && given_up <= code.m());
                tell_nothing(&mut recovery, other.id);
            }
            let unclear = recovery.report(&map.bricks).unclear;
            assert_eq!(unclear > 0, given_up > code.m(), "{given_up} of {code}");
        }
    });
}

#[test]
fn bricks_that_nobody_has_named_are_asked_where_a_configuration_may_lie_on_them() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let code = map.volume(group.volume).expect("there").code_of(0);
        // All bricks of the table were replaced since, and are gone.
        let mut recovery = Recovery::of(&map, &bricks).expect("groups without live slots");
        let others: Vec<BrickId> =
            map.bricks.iter().map(|brick| brick.id).filter(|brick| !bricks.contains(brick)).collect();
        others.iter().for_each(|brick| tell_nothing(&mut recovery, *brick));
        assert!(recovery.take_known(&map.bricks, 9).iter().all(|one| one.group != group));
        assert!(recovery.report(&map.bricks).unclear > 0);
        // They join only now.
        let new: Vec<_> = (70..70 + bricks.len() as u32).map(|brick| (BrickId(brick), true)).collect();
        let newer = config(9, &new);
        for (brick, _) in &new {
            assert!(tell(&mut recovery, group, *brick, Some(&newer)));
        }
        let resumed = recovery.take_known(&map.bricks, 9);
        assert!(resumed.iter().any(|one| one.config.slots == newer.slots), "{code}");
        assert!(recovery.report(&map.bricks).doubtful > 0);
    });
}

#[test]
fn a_disk_that_was_made_anew_under_its_old_id_has_nothing() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
        for brick in &bricks {
            let said = (*brick != bricks[1]).then(|| config(7, &slots));
            assert!(tell(&mut recovery, group, *brick, said.as_ref()));
        }
        let resumed = recovery.take_known(&map.bricks, 9);
        let one = resumed.iter().find(|one| one.group == group).expect("enough are left");
        let out: Vec<_> = one.config.slots.iter().filter(|slot| slot.state == SlotState::Out).collect();
        assert_eq!(out.iter().map(|slot| slot.brick).collect::<Vec<_>>(), [bricks[1]]);
    });
}

#[test]
fn what_was_never_served_goes_on_as_it_was() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        for brick in &bricks {
            assert!(tell(&mut recovery, group, *brick, None));
        }
        let resumed = recovery.take_known(&map.bricks, 9);
        let one = resumed.iter().find(|one| one.group == group).expect("it is known");
        assert_eq!(one.config.live().count_ones() as usize, bricks.len());
    });
}

#[test]
fn nonsense_is_not_believed_and_what_nobody_kept_is_unclear() {
    on_all(|mut fixture| {
        let (map, group, bricks) = restored(&mut fixture);
        let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
        let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
        let floor = recovery.to_ask(bricks[0], None)[0].floor;
        let good = holds(group, &config(7, &slots), floor);
        let asked = [GroupFloor { group, floor }];
        let too_far = HeldGroup { promised: Epoch(Epoch::END.0 - 1), config: None, ..good.clone() };
        let twice = config(7, &vec![slots[0]; slots.len()]);
        let nobody = config(7, &bricks.iter().map(|brick| (*brick, false)).collect::<Vec<_>>());
        let bad = [too_far, holds(group, &twice, floor), holds(group, &nobody, floor)];
        for held in bad {
            assert!(!recovery.answered(bricks[0], &asked, &[held]));
        }
        assert!(recovery.report(&map.bricks).waits_for.contains(&bricks[0]));
        assert!(recovery.answered(bricks[0], &asked, &[HeldGroup { config: None, ..good }]));
        for brick in &bricks[1..] {
            assert!(tell(&mut recovery, group, *brick, Some(&config(6, &slots))));
        }
        assert!(
            recovery.take_known(&map.bricks, 9).iter().all(|one| one.group != group),
            "nobody kept epoch 7"
        );
        assert_eq!(recovery.report(&map.bricks).unclear, 1);
    });
}
