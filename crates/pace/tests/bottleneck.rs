//! A port with few bytes of queue between ten senders and a machine: the window finds what fits, and keeps the wire busy; several
//! processes of the machine have equal parts of it.

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
/// Time between two exchanges of processes.
const EXCHANGE_NS: u64 = 20_000_000;
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

/// A transfer to a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    process: usize,
    transfer: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet reaches the port's queue.
    Queue { part: Part, bytes: usize },
    /// The receiver looks at a packet.
    Read { part: Part, bytes: usize },
    /// A process sends the requests of a stripe.
    Ask { process: usize },
    /// A caller announces a request to a process, or sends it at once if there is no window.
    Announce { process: usize, sender: u64 },
    /// The processes tell each other of their windows.
    Exchange,
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

    /// A sender sends bytes of a transfer, as fast as its link allows.
    fn send(&mut self, part: Part, sender: u64, mut bytes: usize) {
        let sender = sender as usize;
        while bytes > 0 {
            let packet = bytes.min(PAYLOAD);
            bytes -= packet;
            let from = self.senders[sender].max(self.now + ROUND_NS / 2);
            self.senders[sender] = from + PACKET * 1_000_000 / (RATE * 10);
            self.at(self.senders[sender], Event::Queue { part, bytes: packet });
        }
    }
}

/// A process of the machine behind the port.
struct Process {
    port: Port,
    receiver: Receiver,
    /// Bytes of its transfers that have not come.
    left: BTreeMap<u64, usize>,
    /// The callers of requests.
    owners: BTreeMap<u64, u64>,
    /// Lost packets that it knows of.
    told: u64,
    delivered: u64,
}

impl Process {
    fn new(setting: WindowSetting) -> Process {
        let mut port = Port::new(setting, BULK_MIN);
        let receiver = Receiver::new(&mut port);
        let (left, owners) = (BTreeMap::new(), BTreeMap::new());
        Process { port, receiver, left, owners, told: 0, delivered: 0 }
    }

    fn sender(&self, transfer: u64) -> u64 {
        self.owners.get(&transfer).copied().unwrap_or(transfer % SENDERS)
    }
}

/// What is simulated.
#[derive(Clone, Copy)]
struct Setup {
    load: Load,
    setting: WindowSetting,
    queue: u64,
    seed: u64,
    ms: u64,
    processes: usize,
    /// Whether the processes tell each other of their windows.
    is_shared: bool,
}

struct Outcome {
    /// Payload delivered over what the wire can carry, in the last two thirds of the time.
    share: f64,
    /// Packets lost in the last two thirds.
    late_losses: u64,
    /// How equal the shares of the processes are (Jain).
    fairness: f64,
}

/// One process reads or writes for `ms` milliseconds.
fn run(load: Load, setting: WindowSetting, queue: u64, seed: u64, ms: u64) -> Outcome {
    run_all(Setup { load, setting, queue, seed, ms, processes: 1, is_shared: false })
}

fn run_all(setup: Setup) -> Outcome {
    let Setup { load, setting, queue, seed, ms, .. } = setup;
    let mut network = Network {
        now: 0,
        events: BinaryHeap::new(),
        count: 0,
        random: seed,
        busy_until: 0,
        queue,
        senders: vec![0; SENDERS as usize],
        lost: 0,
    };
    let mut processes: Vec<Process> = (0..setup.processes).map(|_| Process::new(setting)).collect();
    let (mut lost_early, warm) = (0, ms * 1_000_000 / 3);
    for process in 0..setup.processes {
        // One after the other: later ones find a window that others have.
        let start = process as u64 * warm / 4;
        match load {
            Load::Reads => network.at(start, Event::Ask { process }),
            Load::Writes => {
                (0..SENDERS).for_each(|sender| network.at(start, Event::Announce { process, sender }));
            }
        }
    }
    if setup.is_shared {
        network.at(0, Event::Exchange);
    }
    while let Some(Reverse((time, _, event))) = network.events.pop() {
        if time > ms * 1_000_000 {
            break;
        }
        network.now = time;
        if time < warm {
            processes.iter_mut().for_each(|process| process.delivered = 0);
            lost_early = network.lost;
        }
        let us = time / 1000;
        match event {
            Event::Queue { part, bytes } => {
                let waiting = network.busy_until.saturating_sub(time) * RATE / 1_000_000;
                if waiting + PACKET > network.queue {
                    network.lost += 1;
                    network.at(time + RETRY_NS, Event::Queue { part, bytes });
                    continue;
                }
                network.busy_until = network.busy_until.max(time) + PACKET * 1_000_000 / RATE;
                let reaction = network.random(REACTION_NS);
                network.at(network.busy_until + ROUND_NS / 2 + reaction, Event::Read { part, bytes });
            }
            Event::Read { part, bytes } => {
                let of = &mut processes[part.process];
                of.delivered += bytes as u64;
                let transfer = Transfer(part.transfer);
                of.receiver.arrived(&mut of.port, us, transfer, bytes).expect("senders send what is granted");
                of.port.lost(us, network.lost - of.told);
                of.told = network.lost;
                let rest = of.left.get_mut(&part.transfer).expect("open");
                *rest -= bytes;
                if *rest == 0 {
                    of.left.remove(&part.transfer);
                    of.receiver.close(&mut of.port, transfer);
                    if let Some(sender) = of.owners.remove(&part.transfer) {
                        // The answer, and the next announcement.
                        let reaction = network.random(REACTION_NS);
                        let event = Event::Announce { process: part.process, sender };
                        network.at(time + ROUND_NS + reaction, event);
                    }
                }
                if of.left.is_empty() && load == Load::Reads {
                    network.at(time, Event::Ask { process: part.process });
                }
            }
            Event::Announce { process, sender } => {
                let of = &mut processes[process];
                let (transfer, _) = of.receiver.open(&mut of.port, us, Sender(sender), 0);
                of.left.insert(transfer.0, UNIT);
                of.owners.insert(transfer.0, sender);
                if setting == WindowSetting::Off {
                    network.send(Part { process, transfer: transfer.0 }, sender, UNIT);
                } else {
                    of.receiver.announced(&mut of.port, transfer, UNIT);
                }
            }
            Event::Ask { process } => {
                let of = &mut processes[process];
                for _ in 0..STRIPE {
                    let (transfer, credit) = of.receiver.open(&mut of.port, us, Sender(0), UNIT);
                    of.left.insert(transfer.0, UNIT);
                    if credit > 0 {
                        let sender = of.sender(transfer.0);
                        network.send(Part { process, transfer: transfer.0 }, sender, UNIT);
                    } else {
                        of.receiver.announced(&mut of.port, transfer, UNIT);
                    }
                }
            }
            Event::Exchange => {
                let told: Vec<_> = processes.iter().map(|of| of.port.told(us)).collect();
                for (process, of) in processes.iter_mut().enumerate() {
                    let others = told.iter().enumerate().filter(|(other, _)| *other != process);
                    of.port.hear(us, others.filter_map(|(_, told)| *told).collect());
                }
                network.at(time + EXCHANGE_NS, Event::Exchange);
            }
        }
        for (process, of) in processes.iter_mut().enumerate() {
            while let Some(grant) = of.receiver.grant(&mut of.port, us) {
                let sender = of.sender(grant.transfer.0);
                network.send(Part { process, transfer: grant.transfer.0 }, sender, grant.bytes);
            }
        }
    }
    let could = (ms * 1_000_000 - warm) * RATE / 1_000_000 * PAYLOAD as u64 / PACKET;
    let delivered: Vec<f64> = processes.iter().map(|of| of.delivered as f64).collect();
    let (sum, squares) = (delivered.iter().sum::<f64>(), delivered.iter().map(|of| of * of).sum::<f64>());
    Outcome {
        share: sum / could as f64,
        late_losses: network.lost - lost_early,
        fairness: sum * sum / (delivered.len() as f64 * squares),
    }
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

/// Processes of one machine: together they fill the wire, and each has its part.
#[test]
fn processes_that_share_a_port_have_equal_parts() {
    let mut apart = f64::INFINITY;
    for load in [Load::Reads, Load::Writes] {
        for kib in [48, 256] {
            for processes in [2, 3] {
                let (setting, queue, ms) = (WindowSetting::Auto, kib << 10, 6_000);
                let setup = Setup { load, setting, queue, seed: 1, ms, processes, is_shared: true };
                let outcome = run_all(setup);
                let what = format!("{load:?}, {kib} KiB, {processes} processes");
                assert!(outcome.fairness >= 0.95, "{what}: fairness {:.3}", outcome.fairness);
                assert!(outcome.share >= 0.90, "{what}: {:.2} of the rate", outcome.share);
                assert!(outcome.late_losses <= 500, "{what}: {} packets lost", outcome.late_losses);
                apart = apart.min(run_all(Setup { is_shared: false, ..setup }).fairness);
            }
        }
    }
    assert!(apart < 0.9, "without telling each other they are as fair: {apart:.3}");
}
