//! Which bricks bring no answers, and whether a new connection to one of them can be made.

use futures_util::future::select_all;
use types::RAIL;
use types::limits::RAILS_MAX;
use types::messages::session::Meant;

use super::super::Identity;
use super::super::connect::connect_to;
use super::super::handshake::Target;
use super::{Inner, Peers};

/// A server that owes answers and was silent for so long is doubtful, in microseconds.
const DOUBT_US: u64 = 1_000_000;
/// So is one to which no connection could be made so recently, in microseconds.
const FAILED_US: u64 = 3_000_000;

impl Peers {
    /// Whether calls to the brick at `address` bring nothing: no connection can be made, or calls have waited in silence for a
    /// second. Where one of several addresses works, this is false.
    pub fn is_doubtful(&self, address: &str) -> bool {
        let (links, failed, now) = (self.0.links.borrow(), self.0.failed.borrow(), self.0.world.now());
        let has_failed = |rail: &str| failed.get(rail).is_some_and(|tried| now < tried + FAILED_US);
        let rail_of = |rail: &str| match links.get(Meant::Brick, rail) {
            Some(link) if link.open().is_ok() => Some(!link.is_silent(now, DOUBT_US)),
            Some(link) if now < link.since_us + DOUBT_US && !has_failed(rail) => None,
            Some(_) => Some(false),
            None => has_failed(rail).then_some(false),
        };
        let rails: Vec<Option<bool>> = address.split(RAIL).map(rail_of).collect();
        rails.contains(&Some(false)) && !rails.contains(&Some(true))
    }

    /// Whether a new connection to the brick at `address`, over one of its addresses, can be made within `us` microseconds. What
    /// the connections in use do says less: calls over them may wait for a disk.
    pub async fn probe(&self, address: &str, us: u64) -> bool {
        let (world, identity) = (&self.0.world, &self.0.identity);
        let identity = &Identity { cluster: self.0.cluster.get(), ..identity.clone() };
        let rail = |address| Box::pin(connect_to(world, identity, Target { meant: Meant::Brick, address }));
        let mut attempts: Vec<_> = address.split(RAIL).take(RAILS_MAX).map(rail).collect();
        let first = async {
            while !attempts.is_empty() {
                let (opened, _, others) = select_all(attempts).await;
                if opened.is_ok() {
                    return true;
                }
                attempts = others;
            }
            false
        };
        world.timeout(us, first).await == Some(true)
    }
}

impl Inner {
    /// A connection could be made, or not.
    pub(super) fn tried(&self, address: &str, is_made: bool) {
        let (mut failed, now) = (self.failed.borrow_mut(), self.world.now());
        failed.retain(|_, tried| now < *tried + FAILED_US);
        if is_made {
            failed.remove(address);
        } else {
            failed.insert(address.to_owned(), now);
        }
    }
}
