//! A server with several addresses is called over all of them, and goes on being called when some are cut.

use super::*;

/// Starts a server that calls itself `name` at `address`; returns how many calls came to it.
async fn start_at(world: &World, address: &str, name: &str) -> Rc<Cell<u64>> {
    let identity = Identity { name: name.to_owned(), ..identity(Role::Brick) };
    let listener = world.listen(address).await.unwrap();
    let count = Rc::new(Cell::new(0));
    let counting = count.clone();
    let handler = adder(world.clone(), move |_| counting.set(counting.get() + 1));
    world.spawn("test", serve(world.clone(), listener, identity, handler));
    count
}

/// A call with a large payload.
async fn ask_large(peers: &Peers, address: &str, number: u64) -> Result<u64, CallError> {
    let payload = Buf::from(vec![7; 64 << 10]);
    let (Told(told), back) = peers.call(address, Epoch(5), &Ask(number), payload.clone()).await?;
    assert_eq!(back, payload);
    Ok(told)
}

#[test]
fn large_calls_are_spread_and_small_ones_keep_to_the_first() {
    let sim = Simulation::new(1, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let name = "server:1+server:2";
        let (one, two) =
            (start_at(&server, "server:1", name).await, start_at(&server, "server:2", name).await);
        let peers = Peers::new(client.clone(), identity(Role::Client));
        // The first call goes over the first connection that is made.
        assert_eq!(ask_large(&peers, "server:1+server:2", 2).await, Ok(3));
        client.sleep(100_000).await;
        let before = [one.get(), two.get()];
        for _ in 0..20 {
            assert_eq!(ask_large(&peers, "server:1+server:2", 2).await, Ok(3));
        }
        assert_eq!([one.get() - before[0], two.get() - before[1]], [10, 10], "by turns");
        let before = [one.get(), two.get()];
        for _ in 0..20 {
            let small = peers.call("server:1+server:2", Epoch(5), &Ask(2), Buf::empty()).await;
            assert_eq!(small, Ok((Told(3), Buf::empty())));
        }
        assert_eq!([one.get() - before[0], two.get() - before[1]], [20, 0]);
        // While one of them has bytes under way, the other one is free.
        let before = [one.get(), two.get()];
        let (first, second) =
            (ask_large(&peers, "server:1+server:2", 5), ask_large(&peers, "server:1+server:2", 5));
        assert_eq!(futures_util::future::join(first, second).await, (Ok(6), Ok(6)));
        assert_eq!([one.get() - before[0], two.get() - before[1]], [1, 1]);
    });
}

#[test]
fn a_rail_where_nobody_is_costs_nothing() {
    let sim = Simulation::new(2, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    let nobody = sim.node("nobody");
    sim.block_on("client", async {
        start_at(&server, "server:1", "nobody:1+server:9+server:1").await;
        // One refuses, one is far away and never answers.
        sim.partition("client", "nobody", true);
        drop(nobody);
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let before = client.now();
        for _ in 0..100 {
            assert_eq!(ask_large(&peers, "nobody:1+server:9+server:1", 2).await, Ok(3));
        }
        assert!(client.now() - before < 1_000_000, "{} us", client.now() - before);
        // Where none answers, a call fails, and the next one tries anew.
        for _ in 0..3 {
            assert_eq!(ask_large(&peers, "server:8+server:9", 2).await, Err(CallError::Unreachable));
        }
        start_at(&server, "server:9", "server:8+server:9").await;
        assert_eq!(ask_large(&peers, "server:8+server:9", 2).await, Ok(3));
    });
}

#[test]
fn a_rail_that_is_cut_is_left_within_seconds_and_taken_again_later() {
    for seed in 0..seeds(20) {
        let sim = Simulation::new(seed, SimOptions::default());
        // Two machines stand for two ports of one.
        let (left, right, client) = (sim.node("left"), sim.node("right"), sim.node("client"));
        sim.block_on("client", async {
            let name = "left:1+right:1";
            let (one, two) = (start_at(&left, "left:1", name).await, start_at(&right, "right:1", name).await);
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let ask = || ask_large(&peers, "left:1+right:1", 2);
            assert_eq!(ask().await, Ok(3));
            client.sleep(100_000).await;
            assert!(ask().await.is_ok() && ask().await.is_ok());
            sim.partition("client", "left", true);
            let cut_us = client.now();
            // Those that wait for an answer over it fail, and are asked again by their callers.
            let (mut failed, mut done) = (0, 0);
            while done < 100 {
                match ask().await {
                    Ok(_) => done += 1,
                    Err(CallError::Unreachable) => failed += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            let took_us = client.now() - cut_us;
            assert!(failed <= 1 && took_us < 8_000_000, "seed {seed}: {failed} failed, {took_us} us");
            sim.partition("client", "left", false);
            let (before, until) = (one.get(), client.now() + 40_000_000);
            while one.get() < before + 10 && client.now() < until {
                assert!(ask().await.is_ok(), "seed {seed}");
                client.sleep(100_000).await;
            }
            assert!(one.get() >= before + 10, "seed {seed}: it is used again");
            assert!(two.get() > 50);
        });
    }
}

#[test]
fn a_slow_server_keeps_its_connections() {
    for address in ["server:1+server:2", "server:1,server:2"] {
        let sim = Simulation::new(3, SimOptions::default());
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            start_at(&server, "server:1", address).await;
            start_at(&server, "server:2", address).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let from = client.now();
            let never = peers.call(address, Epoch(5), &Ask(NEVER), Buf::empty()).await;
            assert_eq!(never, Err(CallError::Unreachable));
            assert!(
                client.now() - from >= types::limits::CALL_TIMEOUT_US,
                "{address}: it was not given up before"
            );
        });
    }
}

#[test]
fn a_server_that_is_back_is_found_although_another_rail_is_cut() {
    let sim = Simulation::new(4, SimOptions::default());
    let (left, right, client) = (sim.node("left"), sim.node("right"), sim.node("client"));
    sim.block_on("client", async {
        let name = "left:1+right:1";
        start_at(&left, "left:1", name).await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        sim.partition("client", "left", true);
        // Nobody is at the other one yet, so it has failed several times.
        for _ in 0..3 {
            assert_eq!(ask_large(&peers, name, 2).await, Err(CallError::Unreachable));
        }
        start_at(&right, "right:1", name).await;
        let from = client.now();
        assert_eq!(ask_large(&peers, name, 2).await, Ok(3));
        assert!(client.now() - from < 100_000, "{} us", client.now() - from);
    });
}

#[test]
fn an_address_of_another_server_is_not_used() {
    let sim = Simulation::new(5, SimOptions::default());
    let (server, other, client) = (sim.node("server"), sim.node("other"), sim.node("client"));
    sim.block_on("client", async {
        let name = "other:1+server:1";
        start_at(&server, "server:1", name).await;
        let wrong = start_at(&other, "other:1", "other:1").await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        for _ in 0..50 {
            assert_eq!(ask_large(&peers, name, 2).await, Ok(3));
            client.sleep(100_000).await;
        }
        assert_eq!(wrong.get(), 0);
        // Under its own name it is reached as before.
        assert_eq!(ask_large(&peers, "other:1", 2).await, Ok(3));
    });
}

#[test]
fn connected_addresses_are_those_with_a_connection() {
    let sim = Simulation::new(6, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let name = "server:1+server:2";
        start_at(&server, "server:2", name).await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        assert_eq!(peers.connected(name), [name]);
        assert_eq!(ask_large(&peers, name, 2).await, Ok(3));
        assert_eq!(peers.connected(name), ["server:2"]);
        assert_eq!(peers.connected("server:2"), ["server:2"]);
    });
}
