//! A slot that joins is offered, told and sealed only what it may be: the steps of a primary are taken one by one, and
//! its answers are compared.

use super::super::tests::{GROUP, key, serving};
use super::*;
use types::messages::brick::WriteId;
use types::{ClientId, ClientSeq};

const EPOCH: Epoch = Epoch(1);
const PARITY: u64 = 0b1100;

/// Slot 0 or 3 of 2+2 joins; `upto`: so far the comparison has come.
fn joining(slot: usize, upto: Option<Option<u64>>) -> (PrimaryCore, Attempt) {
    let mut core = serving(&[slot]);
    let attempt = core.begin_join(GROUP, EPOCH, slot, 0).expect("it is out");
    core.clean(&attempt, Seq::new(EPOCH, 0));
    if let Some(upto) = upto {
        core.compared(&attempt, None, upto.map(key), []);
    }
    (core, attempt)
}

fn order(core: &mut PrimaryCore, stripe: u64, touched: u64, whole: bool) -> super::super::Order {
    core.order(GROUP, EPOCH, key(stripe), touched, whole, Vec::new()).expect("ordered")
}

fn commit(core: &mut PrimaryCore, order: &super::super::Order) {
    for (slot, _) in &order.targets {
        core.acked(GROUP, order.seq, *slot);
    }
}

#[test]
fn one_slot_a_group_that_is_out_and_wanted() {
    let mut core = serving(&[1, 3]);
    assert_eq!(core.joinable(|_, slot, _| slot == 3), [(GROUP, EPOCH, 3)]);
    assert_eq!(core.joinable(|_, _, _| true), [(GROUP, EPOCH, 1)]);
    assert_eq!(core.begin_join(GROUP, EPOCH, 0, 0), None, "it is live");
    let attempt = core.begin_join(GROUP, EPOCH, 1, 0).expect("it is out");
    assert_eq!(core.begin_join(GROUP, EPOCH, 3, 0), None, "one at a time");
    assert!(core.joinable(|_, _, _| true).is_empty());
    core.end_joins(|_, brick| brick == BrickId(1));
    assert!(!core.is_joining(&attempt), "its brick is gone");
    let again = core.begin_join(GROUP, EPOCH, 1, 0).expect("it is back");
    core.end_join(&attempt);
    assert!(core.is_joining(&again), "another attempt");
}

#[test]
fn only_what_is_level_gets_parts() {
    let (mut core, attempt) = joining(3, Some(Some(5)));
    assert!(order(&mut core, 5, 0b01, false).offer.is_some());
    let first = order(&mut core, 6, 0b01, false);
    assert_eq!(first.offer, None, "not compared yet");
    commit(&mut core, &first);
    assert!(order(&mut core, 7, 0b01, true).offer.is_some(), "the whole of it");
    assert_eq!(core.behind(&attempt, 9), [key(6)]);
    let second = order(&mut core, 6, 0b01, false);
    assert_eq!(second.offer, None);
    commit(&mut core, &second);
    let whole = order(&mut core, 6, 0b11, true);
    core.offered(GROUP, whole.seq, OfferOutcome::Prepared, true);
    assert!(core.behind(&attempt, 9).is_empty(), "it has all of it");
    // A data slot is not concerned by what touches others only.
    let (mut core, attempt) = joining(0, Some(None));
    let others = order(&mut core, 1, 0b10, false);
    assert_eq!(others.offer, None);
    commit(&mut core, &others);
    assert!(core.behind(&attempt, 9).is_empty());
    assert!(order(&mut core, 1, 0b11, false).offer.is_some());
}

#[test]
fn it_is_no_part_of_a_commit_and_takes_part_only_when_clean() {
    let mut core = serving(&[3]);
    let attempt = core.begin_join(GROUP, EPOCH, 3, 0).expect("it is out");
    let before = order(&mut core, 1, 0b01, true);
    assert_eq!(before.offer, None, "it may hold things from a former life");
    core.clean(&attempt, Seq::new(EPOCH, 0));
    assert_eq!(core.behind(&attempt, 9), [key(1)], "on its way without it");
    let after = order(&mut core, 2, 0b01, true);
    assert!(after.offer.is_some());
    assert_eq!(after.targets.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [0, 2]);
    commit(&mut core, &before);
    commit(&mut core, &after);
    assert_eq!(core.decided(GROUP), after.seq, "without its answer");
}

#[test]
fn it_is_not_told_of_what_it_has_not_answered() {
    let (mut core, attempt) = joining(3, Some(None));
    let first = order(&mut core, 1, 0b01, false);
    let second = order(&mut core, 2, 0b01, false);
    commit(&mut core, &first);
    commit(&mut core, &second);
    core.offered(GROUP, second.seq, OfferOutcome::Prepared, false);
    assert_eq!(core.decided_limit(&attempt), Some(Seq::new(EPOCH, 0)));
    let news = core.undelivered();
    assert!(!news.contains_key(&BrickId(3)), "the first one is open: {news:?}");
    let third = order(&mut core, 3, 0b01, false);
    assert_eq!((third.decided, third.offer.map(|o| o.decided)), (second.seq, Some(Seq::new(EPOCH, 0))));
    core.offered(GROUP, first.seq, OfferOutcome::Prepared, false);
    assert_eq!(core.decided_limit(&attempt), Some(second.seq));
    assert_eq!(core.undelivered()[&BrickId(3)][0].upto, second.seq);
    core.offered(GROUP, third.seq, OfferOutcome::Refused(Refusal::NoSpace), false);
    assert_eq!(core.refused(&attempt), Some(Refusal::NoSpace));
    assert_eq!(core.behind(&attempt, 9), [key(3)]);
}

#[test]
fn who_is_silent_too_often_is_gone() {
    let (mut core, attempt) = joining(3, Some(None));
    for n in 0..5 {
        let order = order(&mut core, n, 0b01, false);
        core.offered(
            GROUP,
            order.seq,
            if n == 1 { OfferOutcome::Prepared } else { OfferOutcome::NoAnswer },
            false,
        );
        assert_eq!(core.is_joining(&attempt), n < 4, "three in a row, after {n}");
    }
}

#[test]
fn a_page_adds_to_what_fell_behind_meanwhile() {
    let (mut core, attempt) = joining(3, None);
    assert_eq!(core.compare_from(&attempt), Some(None));
    assert_eq!(order(&mut core, 1, 0b01, false).offer, None);
    core.compared(&attempt, None, Some(key(4)), [key(2)]);
    assert_eq!(core.behind(&attempt, 9), [key(1), key(2)]);
    assert_eq!(core.compare_from(&attempt), Some(Some(key(4))));
    core.compared(&attempt, None, None, []);
    assert_eq!(core.compare_from(&attempt), Some(Some(key(4))), "a page from elsewhere");
    core.compared(&attempt, Some(key(4)), None, []);
    assert_eq!(core.compare_from(&attempt), None, "done");
    core.leveled(&attempt, key(1));
    assert_eq!(core.behind(&attempt, 9), [key(2)]);
}

#[test]
fn too_many_behind_start_the_comparison_over() {
    let (mut core, attempt) = joining(3, Some(None));
    for stripe in 0..=BEHIND_MAX as u64 {
        core.mark_behind(GROUP, key(stripe));
    }
    assert_eq!(core.behind_len(&attempt), 0);
    assert_eq!(core.compare_from(&attempt), Some(None));
    core.compared(&attempt, None, None, []);
    assert_eq!(core.compare_from(&attempt), Some(None), "that page was asked for before");
    core.compared(&attempt, None, None, []);
    assert_eq!(core.compare_from(&attempt), None);
}

#[test]
fn sealed_only_when_nothing_is_on_its_way() {
    let (mut core, attempt) = joining(3, Some(None));
    let origin = WriteId { client: ClientId(5), seq: ClientSeq(1), note: None };
    assert!(core.accept(GROUP, origin.client, origin.seq, ClientSeq(0)));
    core.close(&attempt);
    assert!(!core.accepts(GROUP));
    assert_eq!(core.seal(&attempt), None, "a write was accepted");
    let order = core.order(GROUP, EPOCH, key(1), 0b01, false, vec![origin]).expect("accepted before");
    commit(&mut core, &order);
    assert_eq!(core.seal(&attempt), None, "the slot has not answered");
    core.offered(GROUP, order.seq, OfferOutcome::Prepared, false);
    core.mark_behind(GROUP, key(9));
    assert_eq!(core.seal(&attempt), None, "a stripe is behind");
    core.leveled(&attempt, key(9));
    let (upto, windows) = core.seal(&attempt).expect("drained");
    assert_eq!((upto, windows[0].seen.clone()), (order.seq, vec![ClientSeq(1)]));
    assert!(core.order(GROUP, EPOCH, key(1), PARITY, true, Vec::new()).is_none(), "nothing is ordered");
    core.end_join(&attempt);
    assert!(core.accepts(GROUP) && core.order(GROUP, EPOCH, key(1), 1, true, Vec::new()).is_some());
}

#[test]
#[should_panic(expected = "writes could be accepted")]
fn an_open_group_is_not_sealed() {
    let (mut core, attempt) = joining(3, Some(None));
    core.seal(&attempt);
}
