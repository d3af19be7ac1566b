//! Connects: to one server, or to the one of several that leads.

use futures_util::future::select_all;
use types::messages::session::Meant;
use types::{ClusterId, Refusal};

use super::handshake::{Bulk, Heard, Target, initiate};
use super::peers::Link;
use super::{CallError, Identity};
use crate::{Losses, Receiver, Sender, World};

/// Between the addresses of servers of which one leads.
pub(super) const LIST: char = ',';
/// Longest pause between two times that others are asked meanwhile, in microseconds.
const PAUSE_MAX_US: u64 = 6_000_000;
/// Pause before a server that does not lead is asked again, in microseconds.
const ASK_AGAIN_US: u64 = 200_000;
/// A server of several that owes an answer and was silent for so long may have been followed by another one, in microseconds.
const SILENCE_US: u64 = 1_500_000;

/// A connection after the handshake.
pub(super) struct Opened {
    /// Its address.
    pub(super) server: String,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) losses: Losses,
    pub(super) cluster: ClusterId,
    pub(super) is_local: bool,
    /// What large requests need.
    pub(super) bulk: Bulk,
    /// All addresses of its server, if it says them.
    pub(super) name: String,
}

/// Connects to the server of this kind at `address`. Where this is a list, to the one of them that leads: all are asked at once, and again
/// while one of them says nothing, because it may stand still while another one is elected.
pub(super) async fn connect(
    world: &World,
    identity: &Identity,
    meant: Meant,
    address: &str,
) -> Result<Opened, CallError> {
    let servers: Vec<&str> = address.split(LIST).collect();
    if let [server] = servers.as_slice() {
        return connect_to(world, identity, Target { meant, address: server }).await;
    }
    let attempt = |at: usize, pause_us: u64| {
        let server = servers[at];
        Box::pin(async move {
            world.sleep(pause_us).await;
            (at, connect_to(world, identity, Target { meant, address: server }).await)
        })
    };
    let mut attempts: Vec<_> = (0..servers.len()).map(|at| attempt(at, 0)).collect();
    let (mut silent, mut reason) = (vec![true; servers.len()], CallError::Unreachable);
    loop {
        let ((at, opened), _, mut others) = select_all(attempts).await;
        let error = match opened {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        // While no server leads, that will change. A wrong key will not.
        if !matches!(error, CallError::Unreachable | CallError::Refused(Refusal::NotLeader)) {
            reason = error;
        }
        silent[at] = false;
        if !silent.contains(&true) {
            return Err(reason);
        }
        others.push(attempt(at, ASK_AGAIN_US));
        attempts = others;
    }
}

/// Waits for a server that owes answers and says nothing.
pub(super) struct Silence {
    least_us: u64,
    pause_us: u64,
}

impl Silence {
    /// One of at least so long.
    pub(super) fn of(least_us: u64) -> Silence {
        Silence { least_us, pause_us: least_us / 2 }
    }

    /// Returns while calls wait and nothing has come for so long. If it is called again and again in one silence, it takes longer
    /// each time: a server that is only slow may have thousands of callers, who all ask.
    pub(super) async fn wait(&mut self, world: &World, link: &Link) {
        loop {
            world.sleep(self.pause_us).await;
            if link.is_silent(world.now(), self.least_us) {
                self.pause_us = (2 * self.pause_us).min(PAUSE_MAX_US);
                return;
            }
            self.pause_us = self.least_us / 2;
        }
    }
}

/// Returns when another address of the list leads to a server that leads, while nothing is heard from `server`, for whose answers
/// calls wait: it may stand still, or the way to it is broken. One that is only slow takes a new connection.
pub(super) async fn is_followed(world: &World, identity: &Identity, link: &Link, server: &str) {
    let leads = |address| async move {
        let asked = world
            .timeout(SILENCE_US, connect_to(world, identity, Target { meant: link.meant(), address }))
            .await;
        matches!(asked, Some(Ok(_)))
    };
    let mut silence = Silence::of(SILENCE_US);
    loop {
        silence.wait(world, link).await;
        for other in link.address().split(LIST).filter(|other| *other != server) {
            if leads(other).await && !leads(server).await {
                return tracing::debug!(server, other, "another server leads");
            }
        }
    }
}

/// Connects to one server.
pub(super) async fn connect_to(
    world: &World,
    identity: &Identity,
    target: Target<'_>,
) -> Result<Opened, CallError> {
    let address = target.address;
    let conn = world.connect(address).await.map_err(|error| {
        tracing::debug!(address, %error, "cannot connect");
        CallError::Unreachable
    })?;
    let (losses, is_local) = (conn.losses(), conn.is_local());
    let (mut sender, mut receiver) = conn.split();
    let Heard { cluster, bulk, name } = initiate(world, identity, target, &mut sender, &mut receiver).await?;
    Ok(Opened { server: address.to_owned(), sender, receiver, losses, cluster, is_local, bulk, name })
}
