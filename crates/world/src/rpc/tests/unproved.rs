//! Strangers who connect and prove nothing: a listener keeps few of their connections, and honest callers get through.

use super::super::unproved::UNPROVED_MAX;
use super::*;
use crate::{Receiver, Sender};

/// A connection on which nothing was sent.
struct Idle {
    receiver: Receiver,
    /// Keeps it open.
    _sender: Sender,
}

impl Idle {
    async fn from(world: &World) -> Idle {
        let (sender, receiver) = world.connect(SERVER).await.unwrap().split();
        Idle { receiver, _sender: sender }
    }

    /// Whether the server closes it within 100 ms.
    async fn is_closed(&mut self, world: &World) -> bool {
        world
            .timeout(100_000, self.receiver.recv())
            .await
            .is_some_and(|received| !matches!(received, Ok(Some(_))))
    }
}

#[test]
fn the_oldest_connection_without_a_proof_makes_room() {
    let sim = Simulation::new(1, SimOptions::default());
    let (server, stranger) = (sim.node("server"), sim.node("stranger"));
    sim.block_on("stranger", async {
        start(&server, |_| {}).await;
        let mut idle = Vec::new();
        for _ in 0..UNPROVED_MAX {
            idle.push(Idle::from(&stranger).await);
        }
        assert!(!idle[0].is_closed(&stranger).await, "all of them have their time");
        let mut more = Vec::new();
        for _ in 0..3 {
            more.push(Idle::from(&stranger).await);
        }
        for idle in &mut idle[..3] {
            assert!(idle.is_closed(&stranger).await, "an old one is still open");
        }
        assert!(!more[2].is_closed(&stranger).await && !idle[4].is_closed(&stranger).await);
        // A connection that has ended, or has proved the key, does not count.
        more.clear();
        stranger.sleep(100_000).await;
        let peers = Peers::new(sim.node("client"), identity(Role::Client));
        assert_eq!(ask(&peers, 2).await, told(2));
        for _ in 0..3 {
            more.push(Idle::from(&stranger).await);
        }
        assert!(!idle[4].is_closed(&stranger).await);
        assert_eq!(ask(&peers, 4).await, told(4));
    });
}

#[test]
fn a_caller_elsewhere_has_its_time_however_many_strangers_come() {
    let sim = Simulation::new(1, SimOptions::default());
    let (server, stranger, client) = (sim.node("server"), sim.node("stranger"), sim.node("client"));
    sim.block_on("client", async {
        start(&server, |_| {}).await;
        // Its handshake takes its time.
        let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
        client.sleep(100_000).await;
        let mut idle = Vec::new();
        for _ in 0..3 * UNPROVED_MAX {
            idle.push(Idle::from(&stranger).await);
        }
        initiate(&client, &identity(Role::Client), TARGET, &mut sender, &mut receiver).await.expect("room");
        let peers = Peers::new(client.clone(), identity(Role::Client));
        assert_eq!(ask(&peers, 2).await, told(2));
    });
}
