//! Who is held by which reports: four bricks in groups of three (2+1), and a clock that the test moves.

use types::limits::{LEASE_MARGIN_US, LEASE_US};
use types::messages::cluster::{BrickHeartbeat, BrickJoin, GroupAdmit};
use types::{GroupId, Incarnation, Refusal};

use super::*;
use crate::fixture::{Fixture, brick_join, on_all, volume_create};

const SECOND: u64 = 1_000_000;

fn bricks(ids: &[u32]) -> Vec<BrickId> {
    ids.iter().map(|id| BrickId(*id)).collect()
}

/// What a brick says: itself, whom it does not reach, whom it reaches.
type Said<'a> = (u32, &'a [u32], &'a [u32]);

fn beat(fixture: &mut Fixture, (brick, unreached, reached): Said<'_>, now: u64) -> Result<(), Refusal> {
    fixture.state.cluster.beat(
        &BrickHeartbeat {
            brick: BrickId(brick),
            incarnation: Incarnation(1),
            free: 1 << 29,
            shard: types::ShardId::FIRST,
            reach: ReachReport { unreached: bricks(unreached), reached: bricks(reached) },
        },
        now,
    )
}

/// Everybody says the same once a second for so many seconds; the arbiter judges each time. Returns whom it holds.
fn rounds(fixture: &mut Fixture, from: &mut u64, seconds: u64, said: &[Said<'_>]) -> Vec<BrickId> {
    let mut held = Vec::new();
    for _ in 0..seconds {
        *from += SECOND;
        for said in said {
            let _ = beat(fixture, *said, *from);
        }
        held.extend(fixture.state.cluster.judge(*from).held.iter().map(|(brick, _)| *brick));
        let writes = fixture.state.cluster.expire(*from);
        assert!(fixture.state.commit(writes));
    }
    held
}

fn is_up(fixture: &Fixture, brick: u32) -> bool {
    fixture.state.cluster.map().is_up(BrickId(brick))
}

/// The primaries have brought all slots level.
fn admit_all(fixture: &mut Fixture, now: u64) {
    let volume = fixture.state.cluster.map().volumes[0].clone();
    let code = volume.geometry.code();
    for (index, group) in (0..).zip(&volume.groups) {
        let id = GroupId { volume: volume.id, index };
        let primary = group.slots[group.primary(code).expect("enough are live")].brick;
        for (slot, _) in (0..).zip(&group.slots).filter(|(_, slot)| slot.state == SlotState::Out) {
            let admit = GroupAdmit { group: id, epoch: group.epoch, brick: primary, slot };
            assert!(fixture.state.cluster.admit(&admit, now).is_ok());
        }
    }
}

/// Nobody reaches brick 3, which reaches everybody.
const ALONE: [Said<'_>; 4] = [(1, &[3], &[]), (2, &[3], &[]), (3, &[], &[]), (4, &[3], &[])];

#[test]
fn a_brick_that_renews_its_lease_and_that_nobody_reaches_is_out_when_the_lease_is_over() {
    on_all(|mut fixture| {
        let mut now = 0;
        assert!(rounds(&mut fixture, &mut now, 2, &[(1, &[], &[]), (2, &[], &[]), (3, &[], &[])]).is_empty());
        // It has to renew its lease after the reports: else it is dead, and nobody need say so.
        assert!(rounds(&mut fixture, &mut now, 1, &ALONE).is_empty());
        assert_eq!(fixture.state.cluster.doubtful_to(BrickId(1)), bricks(&[3]));
        assert_eq!(fixture.state.cluster.doubtful_to(BrickId(3)), []);
        assert_eq!(rounds(&mut fixture, &mut now, 2, &ALONE), bricks(&[3]));
        let (held_at, last) = (now, now);
        assert_eq!(beat(&mut fixture, (3, &[], &[]), now), Err(Refusal::Unreached));
        let lease = LEASE_US + LEASE_MARGIN_US;
        while is_up(&fixture, 3) {
            assert!(now <= last + lease + SECOND, "the others would wait for ever");
            rounds(&mut fixture, &mut now, 1, &ALONE);
            assert!(
                is_up(&fixture, 3) || now > held_at + lease,
                "it would answer reads while writes are acknowledged without it"
            );
        }
        // It comes back neither early, nor as long as it cannot be reached.
        let join = |fixture: &mut Fixture, incarnation: u64, now: u64| {
            fixture.state.cluster.join(&brick_join(3, incarnation), now).map(|_| ())
        };
        rounds(&mut fixture, &mut now, 2, &ALONE);
        assert_eq!(join(&mut fixture, 1, held_at + HOLD_MIN_US - 1), Err(Refusal::Unreached));
        assert_eq!(join(&mut fixture, 1, now + SECOND / 2), Err(Refusal::Unreached));
        let seen = fixture.state.cluster.unreached(now).remove(0);
        assert_eq!((seen.brick, seen.bricks), (BrickId(3), bricks(&[1, 2, 4])));
        assert_eq!(seen.held_us, Some((held_at + HOLD_MIN_US).saturating_sub(now)));
        let reached: [Said<'_>; 3] = [(1, &[], &[3]), (2, &[], &[3]), (4, &[], &[3])];
        rounds(&mut fixture, &mut now, 1, &reached);
        assert_eq!(join(&mut fixture, 1, now), Ok(()));
        assert!(is_up(&fixture, 3) && fixture.state.cluster.unreached(now).is_empty());
        admit_all(&mut fixture, now);
        // The second time it stays away for longer; another run of it does not.
        assert_eq!(rounds(&mut fixture, &mut now, 3, &ALONE), bricks(&[3]));
        let again = now;
        rounds(&mut fixture, &mut now, 6, &reached);
        assert!(!is_up(&fixture, 3));
        assert_eq!(join(&mut fixture, 1, again + 2 * HOLD_MIN_US - 1), Err(Refusal::Unreached));
        assert_eq!(join(&mut fixture, 2, now), Ok(()));
    });
}

#[test]
fn a_brick_that_does_not_reach_the_others_is_the_one_that_is_held() {
    on_all(|mut fixture| {
        let mut now = 0;
        let said: [Said<'_>; 4] =
            [(1, &[], &[2, 3, 4]), (2, &[1, 3, 4], &[]), (3, &[], &[1, 2, 4]), (4, &[], &[1, 2, 3])];
        assert_eq!(rounds(&mut fixture, &mut now, 12, &said), bricks(&[2]));
        assert!(!is_up(&fixture, 2) && [1, 3, 4].iter().all(|brick| is_up(&fixture, *brick)));
        // It says when it joins whom it does not reach.
        let reach = ReachReport { unreached: bricks(&[1, 3, 4]), reached: Vec::new() };
        let join = BrickJoin { reach, ..brick_join(2, 1) };
        assert_eq!(fixture.state.cluster.join(&join, now).err(), Some(Refusal::Unreached));
        assert!(fixture.state.cluster.join(&brick_join(2, 1), now).is_ok(), "now it reaches them");
    });
}

#[test]
fn too_few_and_a_minority_are_not_believed() {
    on_all(|mut fixture| {
        let mut now = 0;
        // One pair.
        let pair: [Said<'_>; 4] = [(1, &[3], &[]), (2, &[], &[3]), (3, &[1], &[]), (4, &[], &[3])];
        assert!(rounds(&mut fixture, &mut now, 10, &pair).is_empty());
        // A client says so too, but more bricks reach it. Where none does, the client's word counts.
        fixture.state.cluster.client_reaches(ClientId(9), &bricks(&[3]), now + 5 * SECOND);
        assert!(rounds(&mut fixture, &mut now, 5, &pair).is_empty());
        // Nobody has said anything for a while.
        now += FRESH_US;
        assert!(rounds(&mut fixture, &mut now, 1, &[(1, &[], &[])]).is_empty());
        assert!(fixture.state.cluster.doubtful_to(BrickId(1)).is_empty());
    });
}

#[test]
fn two_bricks_and_a_client_are_enough_to_know() {
    let mut fixture = Fixture::new(crate::fixture::engines()[0].clone());
    let mut now = 0;
    fixture.state.volume_create(&volume_create("copies", "1+1"), 1).expect("it fits");
    // Bricks 3 and 4 are dead; groups of 2+1 keep what they have.
    let two: [Said<'_>; 2] = [(1, &[], &[]), (2, &[], &[])];
    rounds(&mut fixture, &mut now, 6, &two);
    assert!(!is_up(&fixture, 3) && !is_up(&fixture, 4));
    let cut: [Said<'_>; 2] = [(1, &[2], &[]), (2, &[1], &[])];
    assert!(rounds(&mut fixture, &mut now, 8, &cut).is_empty(), "nothing says which of them it is");
}

#[test]
fn a_lease_that_is_extended_is_not_one_that_a_brick_has_renewed() {
    on_all(|mut fixture| {
        let mut now = 0;
        rounds(&mut fixture, &mut now, 2, &[(1, &[], &[]), (2, &[], &[]), (3, &[], &[]), (4, &[], &[])]);
        // Brick 3 is dead when the others say that they do not reach it.
        let others: [Said<'_>; 3] = [(1, &[3], &[]), (2, &[3], &[]), (4, &[3], &[])];
        assert!(rounds(&mut fixture, &mut now, 1, &others).is_empty());
        for _ in 0..3 {
            now += 2 * SECOND;
            fixture.state.cluster.extend_leases(2 * SECOND);
            assert_eq!(fixture.state.cluster.judge(now), Judged::default());
            assert_eq!(
                fixture.state.cluster.doubtful_to(BrickId(1)),
                bricks(&[3]),
                "the reports still count"
            );
        }
    });
}

#[test]
fn no_group_is_stopped_by_reports() {
    on_all(|mut fixture| {
        let mut now = 0;
        // Brick 4 is dead. Groups with it have the two live slots that they need.
        rounds(&mut fixture, &mut now, 6, &[(1, &[], &[]), (2, &[], &[]), (3, &[], &[])]);
        assert!(!is_up(&fixture, 4));
        let said: [Said<'_>; 3] = [(1, &[3], &[]), (2, &[3], &[]), (3, &[], &[])];
        assert!(rounds(&mut fixture, &mut now, 8, &said).is_empty());
        assert!(is_up(&fixture, 3), "reads of these groups go on");
        let seen = fixture.state.cluster.unreached(now);
        assert_eq!(seen.iter().map(|seen| seen.brick).collect::<Vec<_>>(), bricks(&[3]));
    });
}

#[test]
fn what_reporters_say_is_bounded() {
    let mut fixture = Fixture::new(crate::fixture::engines()[0].clone());
    let many: Vec<u32> = (1..10_000).collect();
    assert_eq!(beat(&mut fixture, (1, &many, &many), 1), Ok(()));
    fixture.state.cluster.client_reaches(ClientId(9), &bricks(&many), 1);
    let reports = &fixture.state.cluster.reports;
    let kept = reports.bricks[&BrickId(1)].unreached.len() + reports.bricks[&BrickId(1)].reached.len();
    assert_eq!((kept, reports.clients[&ClientId(9)].unreached.len()), (2 * REPORTED_MAX, REPORTED_MAX));
}
