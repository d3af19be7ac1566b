use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::tcp::Receiver;
use crate::time::US;

/// A sender and a receiver with a way of 50 us in each direction, on which chosen packets are lost.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    now: Time,
    /// What arrives when: segments, and acknowledgements.
    down: VecDeque<(Time, u32)>,
    up: VecDeque<(Time, Ack)>,
    delivered: BTreeSet<u32>,
    packets: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            sender: Sender::new(100 * US),
            receiver: Receiver::default(),
            now: 0,
            down: VecDeque::new(),
            up: VecDeque::new(),
            delivered: BTreeSet::new(),
            packets: 0,
        }
    }

    /// Goes on until everything has come. `is_lost`: whether the packet of this number is.
    fn run(&mut self, mut is_lost: impl FnMut(u64) -> bool) {
        loop {
            while let Some(leaving) = self.sender.leave(self.now) {
                self.packets += 1;
                if !is_lost(self.packets) {
                    self.down.push_back((self.now + 50 * US, leaving.segment));
                }
                self.check();
            }
            let next = [self.down.front().map(|(at, _)| *at), self.up.front().map(|(at, _)| *at)];
            let Some(at) = next.into_iter().flatten().chain(self.sender.deadline()).min() else { return };
            assert!(at >= self.now, "time goes on");
            self.now = at;
            if let Some((_, segment)) = self.down.pop_front_if(|(at, _)| *at <= self.now) {
                self.delivered.insert(segment);
                // The last acknowledgement is never held back here.
                if self.receiver.take(segment, 2) || self.down.is_empty() {
                    self.up.push_back((self.now + 50 * US, self.receiver.ack()));
                }
            } else if let Some((_, ack)) = self.up.pop_front_if(|(at, _)| *at <= self.now) {
                self.sender.acked(self.now, &ack);
            } else {
                self.sender.fire(self.now);
            }
            self.check();
        }
    }

    fn check(&self) {
        let sender = &self.sender;
        let count =
            |is: fn(&Segment) -> bool| sender.segments.iter().take(sender.sent).filter(|s| is(s)).count();
        assert_eq!(sender.there, count(|segment| segment.is_there));
        assert_eq!(sender.lost, count(|segment| segment.is_lost));
        assert_eq!(sender.repeated, count(|segment| segment.is_repeated));
        assert!(sender.window >= 1.0, "{}", sender.window);
    }
}

#[test]
fn it_starts_with_ten_segments_and_doubles() {
    let mut pair = Pair::new();
    let end = pair.sender.write(100 * PAYLOAD);
    assert_eq!(end, 100);
    let first = std::iter::from_fn(|| pair.sender.leave(0)).count();
    assert_eq!(first, 10);
    for at in 0..10 {
        pair.receiver.take(at, 2);
    }
    let ack = pair.receiver.ack();
    pair.sender.acked(100 * US, &ack);
    assert_eq!(std::iter::from_fn(|| pair.sender.leave(100 * US)).count(), 20);
}

#[test]
fn one_loss_is_repaired_within_some_round_trips_and_costs_three_tenths() {
    let mut pair = Pair::new();
    pair.sender.write(200 * PAYLOAD);
    pair.run(|packet| packet == 30);
    assert_eq!(pair.receiver.next(), 200);
    assert_eq!((pair.sender.repeats(), pair.sender.timeouts()), (1, 0));
    assert!(pair.now < 3 * MS, "{} us", pair.now / US);
    assert!(pair.sender.threshold < 30.0, "{}", pair.sender.threshold);
}

#[test]
fn a_lost_tail_is_found_by_a_probe() {
    let mut pair = Pair::new();
    pair.sender.write(60 * PAYLOAD);
    pair.run(|packet| (55..=60).contains(&packet));
    assert_eq!((pair.receiver.next(), pair.sender.timeouts()), (60, 0));
    assert!(pair.now < 10 * MS, "{} us", pair.now / US);
}

#[test]
fn where_the_probe_is_lost_too_only_the_timeout_helps() {
    let mut pair = Pair::new();
    pair.sender.write(10 * PAYLOAD);
    pair.run(|packet| packet <= 11);
    assert_eq!((pair.receiver.next(), pair.sender.timeouts()), (10, 1));
    assert!((200 * MS..230 * MS).contains(&pair.now), "{} us", pair.now / US);
}

#[test]
fn a_repeated_segment_that_is_lost_again_is_found() {
    let mut pair = Pair::new();
    pair.sender.write(400 * PAYLOAD);
    let mut repeats = 0;
    pair.run(|packet| {
        // The first packet of a window, and the first that is sent once more.
        repeats += u32::from(packet > 30);
        packet == 20 || packet == 41
    });
    assert_eq!((pair.receiver.next(), pair.sender.timeouts()), (400, 0));
}

#[test]
fn after_a_rest_it_starts_again() {
    let mut pair = Pair::new();
    pair.sender.write(400 * PAYLOAD);
    pair.run(|_| false);
    let before = pair.sender.window;
    assert!(before > 15.0, "{before}");
    pair.now += 10_000 * MS;
    pair.sender.write(400 * PAYLOAD);
    let burst = std::iter::from_fn(|| pair.sender.leave(pair.now)).count();
    assert_eq!(burst, 10);
}

proptest! {
    /// Whatever is lost: everything arrives, once it is sent often enough.
    #[test]
    fn any_losses(
        messages in proptest::collection::vec(1u32..100_000, 1..6),
        lost in proptest::collection::btree_set(1u64..300, 0..120),
    ) {
        let mut pair = Pair::new();
        let end = messages.iter().map(|bytes| pair.sender.write(*bytes)).last().unwrap_or(0);
        pair.run(|packet| lost.contains(&packet));
        prop_assert_eq!(pair.receiver.next(), end);
        prop_assert_eq!(pair.delivered.len() as u32, end);
        prop_assert_eq!(pair.sender.in_flight(), 0);
        prop_assert_eq!(pair.packets, u64::from(end) + pair.sender.repeats());
    }
}
