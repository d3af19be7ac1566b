//! Connections that have not proved the key of the cluster yet. A stranger can make any number of them: a listener keeps few.
//!
//! If one more comes, the address that has most of them loses its oldest one. So a stranger closes his own connections first, and a
//! caller elsewhere has all the time that a handshake may take ([`HANDSHAKE_US`](super::handshake::HANDSHAKE_US)). A stranger with
//! many addresses has to make 128 connections within the milliseconds of a caller's handshake: of several addresses with the same
//! number the oldest connection goes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};

use crate::{LineLimit, Notify};

/// Most connections of a listener that have not proved the key.
pub(super) const UNPROVED_MAX: usize = 128;
/// Log lines about closed connections, of all listeners of this process.
static CLOSED: LineLimit = LineLimit::new();

/// The connections of a listener that have not proved the key, of all its threads.
#[derive(Default)]
pub(super) struct Unproved(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    next: u64,
    /// By age.
    connections: BTreeMap<u64, Connection>,
}

struct Connection {
    /// Where it comes from, without the port.
    host: String,
    close: Notify,
}

/// One of these connections, until it is dropped.
pub(super) struct Handshaking {
    unproved: Arc<Unproved>,
    number: u64,
    /// Ends when the connection has to make room.
    closed: Pin<Box<dyn Future<Output = ()>>>,
}

impl Unproved {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection from `host` has come at `now_us`. If there are too many, another one is closed.
    pub(super) fn admit(self: &Arc<Unproved>, host: &str, now_us: u64) -> Handshaking {
        let mut kept = self.lock();
        if kept.connections.len() >= UNPROVED_MAX {
            kept.close_one();
            if let Some(left_out) = CLOSED.admits(now_us) {
                tracing::warn!(
                    host,
                    left_out,
                    "{UNPROVED_MAX} connections have not proved the key, and one more has come: an older one was closed"
                );
            }
        }
        let (number, close) = (kept.next, Notify::new());
        let closed = Box::pin(close.wait());
        kept.next += 1;
        kept.connections.insert(number, Connection { host: host.to_owned(), close });
        Handshaking { unproved: self.clone(), number, closed }
    }
}

impl Kept {
    /// Closes the oldest connection of an address that has most of them.
    fn close_one(&mut self) {
        let mut counts = BTreeMap::<&str, usize>::new();
        for connection in self.connections.values() {
            *counts.entry(&connection.host).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let has_most = |connection: &Connection| counts.get(&*connection.host).copied() == most;
        let oldest = self.connections.iter().find(|(_, connection)| has_most(connection));
        let number = oldest.map(|(number, _)| *number);
        if let Some(connection) = number.and_then(|number| self.connections.remove(&number)) {
            connection.close.notify();
        }
    }
}

impl Handshaking {
    /// The output of `handshake`, or `None` (and it is dropped) if the connection has to make room.
    pub(super) async fn unless_closed<F: Future>(mut self, handshake: F) -> Option<F::Output> {
        match select(pin!(handshake), self.closed.as_mut()).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }
}

impl Drop for Handshaking {
    fn drop(&mut self) {
        self.unproved.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stranger who has many addresses must not choose whom the listener closes.
    #[test]
    fn of_addresses_with_one_connection_each_the_oldest_goes() {
        let unproved = Arc::<Unproved>::default();
        let hosts = (0..UNPROVED_MAX).map(|host| format!("127.0.0.{host}"));
        let mut all: Vec<_> = hosts.map(|host| unproved.admit(&host, 0)).collect();
        let caller = unproved.admit("198.18.0.1", 0);
        let is_kept =
            |handshaking: &Handshaking| unproved.lock().connections.contains_key(&handshaking.number);
        assert!(!is_kept(&all[0]) && all[1..].iter().all(is_kept) && is_kept(&caller));
        all.push(unproved.admit("127.0.1.1", 0));
        assert!(is_kept(&caller) && !is_kept(&all[1]));
        drop((all, caller));
        assert!(unproved.lock().connections.is_empty());
    }
}
