//! The run: takes the next event, and lets the host, port or connection that it concerns go on.

use std::collections::BTreeMap;

use pace::BULK_MIN;

use crate::brick::Brick;
use crate::client::{Client, Taken};
use crate::connection::{Connection, Way};
use crate::event::{Event, Queue};
use crate::packet::{Ask, HEADERS, Packet};
use crate::port::{Memory, Port};
use crate::random::{Random, mix};
use crate::report::{Counts, Report, Spread, us};
use crate::setup::{Refused, Setup};
use crate::time::{MS, SECOND, Time, US};
use crate::topology::Topology;

/// Segments in order that are acknowledged together.
const ACK_EVERY: u32 = 2;
/// How long an acknowledgement may be held back. Linux: `TCP_DELACK_MIN`.
const HELD_BACK: Time = 40 * MS;
/// After so long a frame to a brick that was dropped is sent again: these few small packets have no sender of their own
/// here.
const ASK_AGAIN: Time = 200 * MS;

/// A network in virtual time. It owns all of it, and takes memory for what is in flight only.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    now: Time,
    queue: Queue,
    random: Random,
    topology: Topology,
    ports: Vec<Port>,
    memories: Vec<Memory>,
    /// The ports of all ways, one way after the other.
    ways: Vec<u32>,
    connections: Vec<Connection>,
    /// By client, thread and brick.
    by_ends: BTreeMap<(u32, u32, u32), u32>,
    clients: Vec<Client>,
    bricks: Vec<Brick>,
    /// The host of each client, and of each brick.
    client_hosts: Vec<u32>,
    brick_hosts: Vec<u32>,
    /// Frames to bricks that had to be sent again.
    asked_again: u64,
    packets: u64,
    received: u64,
    events: u64,
    records: Spread,
    /// What had been counted when the ramp was over.
    before: Option<Counts>,
}

impl Simulation {
    /// A network at rest, whose tasks are about to begin.
    ///
    /// # Errors
    /// The setup is one that [`Setup::check`] refuses.
    pub fn new(setup: Setup) -> Result<Simulation, Refused> {
        setup.check()?;
        let placed = setup.build();
        let mut random = Random::new(setup.seed);
        let (width, bricks) = (setup.width as usize, setup.bricks as usize);
        let client = |_| {
            let tasks = (0..setup.tasks).map(|_| random.choose(width, bricks)).collect();
            Client::new(setup.window, setup.threads, setup.unit as usize, tasks)
        };
        let clients: Vec<Client> = (0..setup.clients).map(client).collect();
        let ports = placed.topology.kinds().map(Port::new).collect();
        let memories = placed.topology.memories().iter().map(|limit| Memory::new(*limit)).collect();
        let mut simulation = Simulation {
            now: 0,
            queue: Queue::default(),
            random,
            ports,
            memories,
            topology: placed.topology,
            ways: Vec::new(),
            connections: Vec::new(),
            by_ends: BTreeMap::new(),
            clients,
            bricks: (0..bricks).map(|_| Brick::default()).collect(),
            client_hosts: placed.clients,
            brick_hosts: placed.bricks,
            asked_again: 0,
            packets: 0,
            received: 0,
            events: 0,
            records: Spread::default(),
            before: None,
            setup,
        };
        for client in 0..simulation.setup.clients {
            for task in 0..simulation.clients[client as usize].tasks() {
                // Not all in the same moment.
                let at = simulation.random.below(MS);
                simulation.queue.push(at, Event::Begin { client, task });
            }
        }
        Ok(simulation)
    }

    /// What it was made with.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Length of the whole run, in microseconds of the model.
    pub fn length_us(&self) -> u64 {
        self.setup.ramp_us + self.setup.time_us
    }

    /// Goes on until a moment of the model, in microseconds, or to the end.
    pub fn advance(&mut self, until_us: u64) {
        let (ramp, until) = (self.setup.ramp_us * US, until_us.min(self.length_us()) * US);
        if self.before.is_none() && until >= ramp {
            self.go(ramp);
            self.before = Some(self.count());
            self.records = Spread::default();
        }
        self.go(until);
    }

    fn go(&mut self, until: Time) {
        while let Some((at, event)) = self.queue.pop(until) {
            debug_assert!(at >= self.now, "time never goes back");
            self.now = at;
            self.events += 1;
            self.step(event);
        }
        self.now = self.now.max(until);
    }

    fn count(&self) -> Counts {
        let mut counts = Counts { at: self.now, ..Counts::default() };
        for (port, number) in self.ports.iter().zip(0..) {
            let is_last = self.topology.is_last(number);
            let place = if is_last { &mut counts.dropped_last } else { &mut counts.dropped_inside };
            *place += port.dropped();
        }
        counts.bytes = self.clients.iter().map(Client::bytes).collect();
        counts.repeated = self.connections.iter().map(|connection| connection.sender.repeats()).sum();
        counts.timeouts = self.connections.iter().map(|connection| connection.sender.timeouts()).sum();
        counts.timeouts += self.asked_again;
        counts
    }

    /// What has been seen since the ramp was over.
    pub fn report(&self) -> Report {
        let now = self.count();
        let zero = Counts { bytes: vec![0; now.bytes.len()], ..Counts::default() };
        let before = self.before.as_ref().unwrap_or(&zero);
        let seconds = (now.at - before.at) as f64 / SECOND as f64;
        Report {
            seconds,
            bytes: now
                .bytes
                .iter()
                .zip(&before.bytes)
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
            possible: self.setup.client_rate.payload() * seconds,
            records: self.records.clone(),
            ideal_us: self.setup.ideal_us(),
            dropped_last: now.dropped_last - before.dropped_last,
            dropped_inside: now.dropped_inside - before.dropped_inside,
            repeated: now.repeated - before.repeated,
            timeouts: now.timeouts - before.timeouts,
            windows: self
                .clients
                .iter()
                .filter_map(|client| client.window().map(|bytes| bytes as u64))
                .collect(),
            cuts: self.clients.iter().map(Client::cuts).sum(),
            hops: self.ports.iter().map(Port::sent).sum(),
            events: self.events,
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Arrive(port) => self.arrive(port),
            Event::Timeout(connection) => self.timeout(connection),
            Event::Acknowledge(connection) => self.acknowledge(connection),
            Event::Take(connection) => self.look(connection),
            Event::Serve(connection) => self.serve(connection),
            Event::Answer(connection) => self.answer(connection),
            Event::Repeat(connection) => {
                if let Some(ask) = self.connections[connection as usize].dropped.pop_front() {
                    self.asked_again += 1;
                    self.send_up(connection, Some(ask));
                }
            }
            Event::Grant { client, thread } => self.wake(client, thread),
            Event::Begin { client, task } => self.begin(client, task),
            Event::Finish { client, thread } => {
                if let Some(record) = self.clients[client as usize].finish(thread) {
                    self.records.add(us(self.now - record.begun));
                    self.begin(client, record.task);
                } else {
                    self.start(client);
                }
            }
        }
    }

    /// The first packet of a port reaches the next node.
    fn arrive(&mut self, port: u32) {
        let Some((packet, next)) = self.ports[port as usize].pop(self.now) else { return };
        if let Some(at) = next {
            self.queue.push(at, Event::Arrive(port));
        }
        if packet.hops > 0 { self.forward(packet) } else { self.receive(packet) }
    }

    /// A packet is at the next port of its way.
    fn forward(&mut self, mut packet: Packet) {
        let port = self.ways[packet.way as usize];
        (packet.way, packet.hops) = (packet.way + 1, packet.hops - 1);
        match self.ports[port as usize].push(self.now, packet, &mut self.memories) {
            Ok(None) => {}
            Ok(Some(at)) => self.queue.push(at, Event::Arrive(port)),
            Err(()) => {
                let one = &mut self.connections[packet.connection as usize];
                let up = if packet.is_up { one.unload(packet.number) } else { None };
                if let Some(ask) = up.and_then(|up| up.ask) {
                    one.dropped.push_back(ask);
                    self.queue.push(self.now + ASK_AGAIN, Event::Repeat(packet.connection));
                }
            }
        }
    }

    fn inject(&mut self, connection: u32, is_up: bool, wire: u32, number: u32) {
        self.packets += 1;
        let one = &self.connections[connection as usize];
        let Way { first: way, hops } = if is_up { one.up } else { one.down };
        self.forward(Packet { connection, way, hops, is_up, wire: wire as u16, number });
    }

    /// A packet is where it goes.
    fn receive(&mut self, packet: Packet) {
        self.received += 1;
        let (now, number) = (self.now, packet.connection);
        if !packet.is_up {
            return self.receive_data(packet);
        }
        let one = &mut self.connections[number as usize];
        let Some(up) = one.unload(packet.number) else { return };
        one.sender.acked(now, &up.ack);
        if let Some(ask) = up.ask {
            one.asks.push_back(ask);
            one.serve_at = one.serve_at.max(now + self.setup.reaction(&mut self.random));
            self.queue.push(one.serve_at, Event::Serve(number));
        }
        self.send(number);
    }

    fn receive_data(&mut self, packet: Packet) {
        let (now, number) = (self.now, packet.connection);
        let one = &mut self.connections[number as usize];
        let twice = one.receiver.twice();
        let answers = one.receiver.take(packet.number, ACK_EVERY);
        if one.receiver.twice() == twice {
            self.clients[one.client as usize].receive(u32::from(packet.wire) - HEADERS);
        }
        while let Some(frame) = one.next_frame() {
            one.inbox.push_back(frame);
            one.look_at = one.look_at.max(now + self.setup.reaction(&mut self.random));
            self.queue.push(one.look_at, Event::Take(number));
        }
        if answers {
            self.send_up(number, None);
        } else if one.held_until.is_none() {
            one.held_until = Some(now + HELD_BACK);
            self.queue.push(now + HELD_BACK, Event::Acknowledge(number));
        }
    }

    /// The client sends a frame, if there is one, and what it has not acknowledged.
    fn send_up(&mut self, number: u32, ask: Option<Ask>) {
        let up = self.connections[number as usize].carry(ask);
        self.inject(number, true, up.wire(), up.number);
    }

    fn acknowledge(&mut self, number: u32) {
        let one = &mut self.connections[number as usize];
        one.held_until = None;
        if one.receiver.is_silent() {
            self.send_up(number, None);
        }
    }

    /// The brick sends what its connection allows.
    fn send(&mut self, number: u32) {
        while let Some(leaving) = self.connections[number as usize].sender.leave(self.now) {
            self.inject(number, false, leaving.bytes + HEADERS, leaving.segment);
        }
        let one = &mut self.connections[number as usize];
        let Some(at) = one.sender.deadline() else { return };
        if one.timer.is_none_or(|timer| at < timer) {
            one.timer = Some(at);
            self.queue.push(at.max(self.now), Event::Timeout(number));
        }
    }

    fn timeout(&mut self, number: u32) {
        let one = &mut self.connections[number as usize];
        if one.timer.is_none_or(|timer| timer > self.now) {
            return;
        }
        one.timer = None;
        if one.sender.deadline().is_some_and(|at| at <= self.now) {
            one.sender.fire(self.now);
        }
        self.send(number);
    }

    /// The client of a connection looks at a frame.
    fn look(&mut self, number: u32) {
        let one = &mut self.connections[number as usize];
        let Some(frame) = one.inbox.pop_front() else { return };
        let (client, thread) = (one.client, one.thread);
        let lost = frame.lost.map_or(0, |lost| lost.saturating_sub(std::mem::replace(&mut one.told, lost)));
        let taken = self.clients[client as usize].take(self.now / US, thread, frame, lost);
        if let Some(bytes) = taken.whole {
            self.queue.push(self.now + self.setup.work(bytes), Event::Finish { client, thread });
        }
        self.follow(client, thread, taken);
    }

    /// Sends grants, and wakes those who have room now.
    fn follow(&mut self, client: u32, thread: u32, taken: Taken) {
        for (connection, transfer, bytes) in taken.grants {
            self.send_up(connection, Some(Ask::Grant { transfer, bytes }));
        }
        for other in taken.relieved {
            self.queue.push(self.now, Event::Grant { client, thread: other });
        }
        if let Some(at_us) = self.clients[client as usize].plan(thread) {
            self.queue.push((at_us * US).max(self.now), Event::Grant { client, thread });
        }
    }

    fn wake(&mut self, client: u32, thread: u32) {
        let (now_us, mut taken) = (self.now / US, Taken::default());
        let one = &mut self.clients[client as usize];
        one.woken(now_us, thread);
        one.pump(now_us, thread, &mut taken);
        // Those who have room were woken already, by whoever has left it.
        taken.relieved.clear();
        self.follow(client, thread, taken);
    }

    /// A task begins its next record.
    fn begin(&mut self, client: u32, task: u32) {
        self.clients[client as usize].begin(self.now, task);
        self.start(client);
    }

    /// Gives work to threads that have none.
    fn start(&mut self, client: u32) {
        while let Some((thread, work)) = self.clients[client as usize].next_work() {
            for brick in work.bricks {
                let Some(number) = self.connection(client, thread, brick) else { continue };
                let (transfer, credit) = self.clients[client as usize].open(self.now / US, thread, number);
                self.send_up(number, Some(Ask::Unit { transfer, credit }));
            }
        }
    }

    /// The connection of a client's thread to a brick. Connections are made once, and kept.
    fn connection(&mut self, client: u32, thread: u32, brick: u32) -> Option<u32> {
        let ends = (client, thread, brick);
        if let Some(number) = self.by_ends.get(&ends) {
            return Some(*number);
        }
        let number = self.connections.len() as u32;
        let (at, there) = (self.client_hosts[client as usize], self.brick_hosts[brick as usize]);
        // The ports of both ends are chance, and so is the way of either direction.
        let flow = mix(self.setup.seed ^ mix(u64::from(number)));
        let down = self.topology.path(there, at, flow)?;
        let up = self.topology.path(at, there, mix(flow))?;
        let round_trip = down.iter().chain(&up).map(|port| self.ports[*port as usize].empty_trip()).sum();
        let mut way = |path: &[u32]| {
            let way = Way { first: self.ways.len() as u32, hops: path.len() as u8 };
            self.ways.extend_from_slice(path);
            way
        };
        let (down, up) = (way(&down), way(&up));
        self.connections.push(Connection::new(client, thread, brick, down, up, round_trip));
        self.by_ends.insert(ends, number);
        Some(number)
    }

    /// The brick of a connection looks at a frame.
    fn serve(&mut self, number: u32) {
        let one = &mut self.connections[number as usize];
        let Some(ask) = one.asks.pop_front() else { return };
        let work = self.setup.delays.brick_us * US;
        match self.bricks[one.brick as usize].take(self.now, ask, work, one) {
            Some(at) => self.queue.push(at, Event::Answer(number)),
            None => self.send(number),
        }
    }

    fn answer(&mut self, number: u32) {
        let one = &mut self.connections[number as usize];
        self.bricks[one.brick as usize].answer(self.now, self.setup.unit as usize, BULK_MIN, one);
        self.send(number);
    }
}

#[cfg(test)]
#[path = "simulation_tests.rs"]
mod tests;
