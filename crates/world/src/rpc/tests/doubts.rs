//! A server that brings no answers is doubted, and a probe finds out whether it can be reached.

use futures_util::future::join;
use types::messages::brick::Verify;

use super::*;

const SECOND: u64 = 1_000_000;

#[test]
fn silence_raises_a_doubt_and_a_new_connection_decides() {
    let sim = Simulation::new(3, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let listener = server.listen("server:1").await.unwrap();
        let world = server.clone();
        let handler: Handler = Rc::new(move |_| {
            let world = world.clone();
            Box::pin(async move {
                world.sleep(3 * SECOND).await;
                Err(Refusal::Busy)
            })
        });
        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
        let peers = Peers::new(client.clone(), identity(Role::Client));
        // A request for a brick: only these are about what a brick brings.
        let request = <Verify as Codec>::sample(&mut 0);
        let ask = || peers.call_within(2 * SECOND, "server:1", Epoch(0), &request, Buf::empty());
        assert!(!peers.is_doubtful("server:1"), "nobody has called it");
        // A server that is slow, as with a slow disk, is doubted; it takes a connection all the same.
        let doubts = async {
            client.sleep(SECOND * 3 / 2).await;
            assert!(peers.is_doubtful("server:1"));
            assert!(peers.probe("server:1", SECOND).await);
        };
        assert_eq!(join(ask(), doubts).await.0.err(), Some(CallError::Unreachable));
        // One that is cut off takes none.
        sim.partition("client", "server", true);
        let before = client.now();
        assert!(!peers.probe("server:1", SECOND).await && client.now() <= before + SECOND);
        assert_eq!(ask().await.err(), Some(CallError::Unreachable));
        assert!(peers.is_doubtful("server:1"));
        sim.partition("client", "server", false);
        // One of two ways is enough.
        assert!(peers.probe("server:9+server:1", SECOND).await);
        client.sleep(6 * SECOND).await;
        assert_eq!(ask().await.err(), Some(CallError::Unreachable));
        assert!(!peers.is_doubtful("server:1+server:9"), "no connection waits, and one was made");
    });
}
