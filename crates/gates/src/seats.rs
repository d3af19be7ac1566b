//! The seats of a gate: connections at the same time, and who has to give one up.
//!
//! When all seats are taken, or those of one address, the connection that has been idle for the longest time makes room for the
//! next one. One with a request in progress never does. So nobody can keep others out by doing nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use world::{Notify, World};

/// Of this many parts of all seats, one address may take all but one.
const PARTS: usize = 4;

/// The seats of a gate, for all its threads.
pub(crate) struct Seats {
    most: usize,
    taken: Mutex<Taken>,
    /// Notified when a connection has ended.
    gone: Notify,
}

#[derive(Default)]
struct Taken {
    next: u64,
    held: BTreeMap<u64, Held>,
    /// Connections that have not ended yet, those that gave up their seats included.
    connections: usize,
}

struct Held {
    address: Option<IpAddr>,
    /// Requests in progress.
    requests: usize,
    /// Since when there is none, in microseconds.
    idle_us: u64,
    /// It makes room only after it was idle for so long, in microseconds.
    patience_us: u64,
    signal: Arc<Signal>,
}

#[derive(Default)]
struct Signal {
    is_over: AtomicBool,
    over: Notify,
}

/// A connection's seat; given back when dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    world: World,
    signal: Arc<Signal>,
}

/// A request in progress, until dropped.
pub(crate) struct UnderWay<'a>(&'a Seat);

impl Seats {
    /// So many seats.
    pub(crate) fn new(most: usize) -> Arc<Seats> {
        Arc::new(Seats { most, taken: Mutex::default(), gone: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most seats of one address.
    fn most_of_one(&self) -> usize {
        (self.most - self.most / PARTS).max(1)
    }

    /// A seat for a connection from `address`, if that is known. `None` if there is none, and nobody makes room.
    pub(crate) fn take(self: &Arc<Seats>, address: Option<IpAddr>, world: &World) -> Option<Seat> {
        let now = world.now();
        let mut taken = self.lock();
        let same = |held: &Held| address.is_some() && held.address == address;
        if taken.held.values().filter(|held| same(held)).count() >= self.most_of_one() {
            taken.make_room(now, same)?;
        }
        if taken.held.len() >= self.most {
            taken.make_room(now, |_| true)?;
        }
        let (number, signal) = (taken.next, Arc::<Signal>::default());
        taken.next += 1;
        taken.connections += 1;
        let held = Held { address, requests: 0, idle_us: now, patience_us: 0, signal: Arc::clone(&signal) };
        taken.held.insert(number, held);
        Some(Seat { seats: Arc::clone(self), number, world: world.clone(), signal })
    }

    /// Connections that have not ended.
    pub(crate) fn connections(&self) -> usize {
        self.lock().connections
    }

    /// Notified when a connection has ended.
    pub(crate) fn gone(&self) -> &Notify {
        &self.gone
    }
}

impl Taken {
    /// Ends the connection that has been idle for the longest time.
    fn make_room(&mut self, now: u64, is_one: impl Fn(&Held) -> bool) -> Option<()> {
        let may_go =
            |held: &Held| is_one(held) && held.requests == 0 && now >= held.idle_us + held.patience_us;
        let idle = self.held.iter().filter(|(_, held)| may_go(held));
        let number = idle.min_by_key(|(number, held)| (held.idle_us, **number)).map(|(number, _)| *number)?;
        let held = self.held.remove(&number)?;
        held.signal.is_over.store(true, Ordering::Release);
        held.signal.over.notify();
        Some(())
    }
}

impl Seat {
    fn with(&self, f: impl FnOnce(&mut Held)) {
        if let Some(held) = self.seats.lock().held.get_mut(&self.number) {
            f(held);
        }
    }

    /// The connection has shown that it lives.
    pub(crate) fn touch(&self) {
        let now = self.world.now();
        self.with(|held| held.idle_us = now);
    }

    /// From now on it makes room only after it was idle for so long, in microseconds.
    pub(crate) fn set_patience(&self, patience_us: u64) {
        self.with(|held| held.patience_us = patience_us);
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.with(|held| held.requests += 1);
        UnderWay(self)
    }

    /// Whether the connection has to end.
    pub(crate) fn is_over(&self) -> bool {
        self.signal.is_over.load(Ordering::Acquire)
    }

    /// Returns when the connection has to end.
    pub(crate) async fn over(&self) {
        loop {
            let over = self.signal.over.wait();
            if self.is_over() {
                return;
            }
            over.await;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let now = self.0.world.now();
        self.0.with(|held| (held.requests, held.idle_us) = (held.requests - 1, now));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.held.remove(&self.number);
        taken.connections -= 1;
        drop(taken);
        self.seats.gone.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use world::{SimOptions, Simulation};

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)))
    }

    fn in_a_simulation(test: impl AsyncFnOnce(World)) {
        let simulation = Simulation::new(1, SimOptions::default());
        let world = simulation.node("gate");
        simulation.block_on("test", test(world));
    }

    #[test]
    fn the_longest_idle_makes_room_and_never_one_with_a_request() {
        in_a_simulation(async |world| {
            let seats = Seats::new(3);
            let mut held = Vec::new();
            for last in 1..=3 {
                held.push(seats.take(address(last), &world).expect("free"));
                world.sleep(10).await;
            }
            let busy = held[0].begin();
            held[1].touch();
            let fourth = seats.take(address(4), &world).expect("the third is idle for longest");
            let over: Vec<bool> = held.iter().map(Seat::is_over).collect();
            assert_eq!(over, [false, false, true]);
            let rest = [fourth.begin(), held[1].begin()];
            assert!(seats.take(address(5), &world).is_none(), "all have requests in progress");
            drop(rest);
            drop(busy);
            assert_eq!(seats.connections(), 4, "one gave up its seat and has not ended");
            held[2].over().await;
            held.clear();
            assert_eq!(seats.connections(), 1);
        });
    }

    #[test]
    fn one_address_does_not_get_the_last_quarter() {
        in_a_simulation(async |world| {
            let seats = Seats::new(8);
            let mut of_one: Vec<Seat> =
                (0..6).map(|_| seats.take(address(1), &world).expect("free")).collect();
            let others = [seats.take(address(2), &world), seats.take(None, &world)];
            assert!(others.iter().all(Option::is_some));
            // All its connections are busy: it gets no more, and others are not touched.
            let busy: Vec<UnderWay<'_>> = of_one.iter().map(Seat::begin).collect();
            assert!(seats.take(address(1), &world).is_none());
            drop(busy);
            drop(others);
            of_one.push(seats.take(address(1), &world).expect("its own first one makes room"));
            assert!(of_one[0].is_over() && !of_one[1].is_over());
        });
    }

    #[test]
    fn a_patient_one_makes_room_late() {
        in_a_simulation(async |world| {
            let seats = Seats::new(1);
            let first = seats.take(None, &world).expect("free");
            first.set_patience(1000);
            assert!(seats.take(None, &world).is_none());
            world.sleep(1000).await;
            assert!(seats.take(None, &world).is_some() && first.is_over());
        });
    }
}
