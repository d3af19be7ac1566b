//! A port with few bytes of queue between ten senders and a receiver: the window finds what fits, and keeps the wire busy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use pace::{BULK_MIN, Port, Receiver, Sender, Transfer, WindowSetting};

/// Bytes of a packet on the wire, and of its payload.
const PACKET: u64 = 1514;
const PAYLOAD: usize = 1448;
/// Rate of the port, in bytes per millisecond: 1 Gbit/s. Senders have ten times as much.
const RATE: u64 = 125_000;
/// Base round trip, most time until the receiver reacts, and until a lost packet is sent again, in nanoseconds.
const ROUND_NS: u64 = 80_000;
const REACTION_NS: u64 = 250_000;
const RETRY_NS: u64 = 3_000_000;
const UNIT: usize = 256 << 10;
const SENDERS: u64 = 10;
/// Requests of one stripe, whose answers the program waits for before it sends the next ones.
const STRIPE: usize = 8;

/// What comes through the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    /// Answers to the receiver's own requests, stripe after stripe.
    Reads,
    /// Requests of callers, each of which sends its next one when the last one has come.
    Writes,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet reaches the port's queue.
    Queue { transfer: u64, bytes: usize },
    /// The receiver looks at a packet.
    Read { transfer: u64, bytes: usize },
    /// The receiver sends the requests of a stripe.
    Ask,
    /// A caller announces a request to the receiver, or sends it at once if there is no window.
    Announce { sender: u64 },
}

struct Network {
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    random: u64,
    /// Until when the port sends what is in its queue.
    busy_until: u64,
    queue: u64,
    /// When each sender's link is free again.
    senders: Vec<u64>,
    /// The callers of requests.
    owners: BTreeMap<u64, u64>,
    lost: u64,
}

impl Network {
    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// The sender of a transfer sends `bytes`, as fast as its link allows.
    fn send(&mut self, transfer: u64, mut bytes: usize) {
        let sender = self.owners.get(&transfer).copied().unwrap_or(transfer % SENDERS) as usize;
        while bytes > 0 {
            let part = bytes.min(PAYLOAD);
            bytes -= part;
            let from = self.senders[sender].max(self.now + ROUND_NS / 2);
            self.senders[sender] = from + PACKET * 1_000_000 / (RATE * 10);
            self.at(self.senders[sender], Event::Queue { transfer, bytes: part });
        }
    }
}

struct Outcome {
    /// Payload delivered over what the wire can carry, in the last two thirds of the time.
    share: f64,
    /// Packets lost in the last two thirds.
    late_losses: u64,
}

/// Reads or writes for `ms` milliseconds.
fn run(load: Load, setting: WindowSetting, queue: u64, seed: u64, ms: u64) -> Outcome {
    let mut network = Network {
        now: 0,
        events: BinaryHeap::new(),
        count: 0,
        random: seed,
        busy_until: 0,
        queue,
        senders: vec![0; SENDERS as usize],
        owners: BTreeMap::new(),
        lost: 0,
    };
    let mut port = Port::new(setting, BULK_MIN);
    let mut receiver = Receiver::new(&mut port);
    let mut left = BTreeMap::new();
    let (mut delivered, mut lost_early) = (0u64, 0);
    let (mut told, warm) = (0, ms * 1_000_000 / 3);
    match load {
        Load::Reads => network.at(0, Event::Ask),
        Load::Writes => (0..SENDERS).for_each(|sender| network.at(0, Event::Announce { sender })),
    }
    while let Some(Reverse((time, _, event))) = network.events.pop() {
        if time > ms * 1_000_000 {
            break;
        }
        network.now = time;
        if time < warm {
            (delivered, lost_early) = (0, network.lost);
        }
        let us = time / 1000;
        match event {
            Event::Queue { transfer, bytes } => {
                let waiting = network.busy_until.saturating_sub(time) * RATE / 1_000_000;
                if waiting + PACKET > network.queue {
                    network.lost += 1;
                    network.at(time + RETRY_NS, Event::Queue { transfer, bytes });
                    continue;
                }
                network.busy_until = network.busy_until.max(time) + PACKET * 1_000_000 / RATE;
                let reaction = network.random(REACTION_NS);
                network.at(network.busy_until + ROUND_NS / 2 + reaction, Event::Read { transfer, bytes });
            }
            Event::Read { transfer, bytes } => {
                delivered += bytes as u64;
                receiver
                    .arrived(&mut port, us, Transfer(transfer), bytes)
                    .expect("senders send what is granted");
                port.lost(us, network.lost - told);
                told = network.lost;
                let rest = left.get_mut(&transfer).expect("open");
                *rest -= bytes;
                if *rest == 0 {
                    left.remove(&transfer);
                    receiver.close(&mut port, Transfer(transfer));
                    if let Some(sender) = network.owners.remove(&transfer) {
                        // The answer, and the next announcement.
                        let reaction = network.random(REACTION_NS);
                        network.at(time + ROUND_NS + reaction, Event::Announce { sender });
                    }
                }
                if left.is_empty() && load == Load::Reads {
                    network.at(time, Event::Ask);
                }
            }
            Event::Announce { sender } => {
                let (transfer, _) = receiver.open(&mut port, us, Sender(sender), 0);
                left.insert(transfer.0, UNIT);
                network.owners.insert(transfer.0, sender);
                if setting == WindowSetting::Off {
                    network.send(transfer.0, UNIT);
                } else {
                    receiver.announced(&mut port, transfer, UNIT);
                }
            }
            Event::Ask => {
                for _ in 0..STRIPE {
                    let (transfer, credit) = receiver.open(&mut port, us, Sender(0), UNIT);
                    left.insert(transfer.0, UNIT);
                    if credit > 0 {
                        network.send(transfer.0, UNIT);
                    } else {
                        receiver.announced(&mut port, transfer, UNIT);
                    }
                }
            }
        }
        while let Some(grant) = receiver.grant(&mut port, us) {
            network.send(grant.transfer.0, grant.bytes);
        }
    }
    let could = (ms * 1_000_000 - warm) * RATE / 1_000_000 * PAYLOAD as u64 / PACKET;
    Outcome { share: delivered as f64 / could as f64, late_losses: network.lost - lost_early }
}

#[test]
fn without_a_window_a_shallow_port_loses_packets_for_ever() {
    for load in [Load::Reads, Load::Writes] {
        let outcome = run(load, WindowSetting::Off, 64 << 10, 1, 3_000);
        assert!(outcome.late_losses > 1_000, "{load:?}: {}", outcome.late_losses);
    }
}

fn a_window_finds_what_fits(load: Load) {
    for kib in [32, 48, 64, 128, 256, 1024] {
        for seed in 1..3 {
            let outcome = run(load, WindowSetting::Auto, kib << 10, seed, 6_000);
            let wanted = if kib < 48 { 0.80 } else { 0.90 };
            assert!(
                outcome.share >= wanted,
                "{load:?}, {kib} KiB, seed {seed}: {:.2} of the rate",
                outcome.share
            );
            // One packet in a thousand.
            assert!(
                outcome.late_losses <= 330,
                "{load:?}, {kib} KiB, seed {seed}: {} packets lost",
                outcome.late_losses
            );
        }
    }
}

#[test]
fn a_window_finds_what_fits_into_a_shallow_port() {
    a_window_finds_what_fits(Load::Reads);
}

/// Ten callers write to one server.
#[test]
fn a_window_finds_what_fits_when_many_write_to_one() {
    a_window_finds_what_fits(Load::Writes);
}
