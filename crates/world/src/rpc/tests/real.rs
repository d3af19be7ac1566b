//! Calls over real sockets.

use super::*;

/// A server in a thread and a ring of its own, for as long as `test` runs.
/// With a server of one thread, and with one of several.
fn with_real_server(test: impl AsyncFn(&World, Peers, &str)) {
    for threads in [1, 3] {
        with_threads(threads, |_| {}, &test);
    }
}

#[test]
fn several_threads_keep_the_order_of_each_connection() {
    let order: std::sync::Arc<std::sync::Mutex<Vec<u64>>> = std::sync::Arc::default();
    let witness = order.clone();
    let (callers, calls) = (8, 500);
    with_threads(
        4,
        move |number| witness.lock().unwrap().push(number),
        async |world, _, address| {
            let done = Rc::new(Cell::new(0));
            for caller in 0..callers {
                let peers = Peers::new(world.clone(), identity(Role::Client));
                // From the second call on, the connection is there and the order is the caller's.
                let first = caller * 10_000;
                peers.call(address, Epoch(5), &Ask(first), Buf::empty()).await.unwrap();
                for number in first + 1..first + calls {
                    let (peers, done, address) = (peers.clone(), done.clone(), address.to_owned());
                    world.spawn("test", async move {
                        let answer = peers.call(&address, Epoch(5), &Ask(number), Buf::empty()).await;
                        assert_eq!(answer, Ok((Told(number + 1), Buf::empty())));
                        done.set(done.get() + 1);
                    });
                }
            }
            while done.get() < callers * (calls - 1) {
                world.sleep(1000).await;
            }
        },
    );
    let order = order.lock().unwrap();
    for caller in 0..callers {
        let own: Vec<u64> = order.iter().copied().filter(|number| number / 10_000 == caller).collect();
        let expected: Vec<u64> = (0..calls).map(|number| caller * 10_000 + number).collect();
        assert_eq!(own, expected);
    }
}

#[test]
fn calls_over_real_sockets_are_answered_or_refused() {
    with_real_server(async |world, peers, address| {
        let ask = async |number: u64| {
            peers.call(address, Epoch(5), &Ask(number), Buf::from(vec![number as u8; 300])).await
        };
        assert_eq!(ask(2).await, told(2));
        assert_eq!(ask(NO).await, Err(CallError::Refused(Refusal::NoSpace)));
        let done = Rc::new(Cell::new(0));
        for number in 0..1000 {
            let (peers, done, address) = (peers.clone(), done.clone(), address.to_owned());
            let payload = Buf::from(vec![1; number as usize * 64]);
            world.spawn("test", async move {
                let answer = peers.call(&address, Epoch(5), &Ask(number), payload.clone()).await;
                assert_eq!(answer, Ok((Told(number + 1), payload)));
                done.set(done.get() + 1);
            });
        }
        while done.get() < 1000 {
            world.sleep(1000).await;
        }
        let late = peers.call_within(50_000, address, Epoch(5), &Ask(NEVER), Buf::empty()).await;
        assert_eq!(late, Err(CallError::Unreachable));
        assert_eq!(ask(2).await, told(2));
        let stranger = Identity { key: Key::OPEN, ..identity(Role::Client) };
        let stranger = Peers::new(world.clone(), stranger);
        let answer = stranger.call(address, Epoch(5), &Ask(2), Buf::empty()).await;
        assert_eq!(answer, Err(CallError::WrongKey));
    });
}

#[test]
fn garbage_over_real_sockets_is_dropped() {
    use std::io::{Read, Write};
    with_real_server(async |_, peers, address| {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &wire::MAGIC.repeat(40)] {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(garbage).unwrap();
            // It may have been reset already.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut back = Vec::new();
            // Closed or reset, and nothing said.
            let _ = stream.read_to_end(&mut back);
            assert!(back.is_empty());
        }
        assert_eq!(peers.call(address, Epoch(5), &Ask(2), Buf::empty()).await, Ok((Told(3), Buf::empty())));
    });
}

/// `cargo test --release -p world -- --ignored --nocapture speed`
#[test]
#[ignore = "prints a figure"]
fn speed_of_simulated_calls() {
    let begun = std::time::Instant::now();
    let (seeds, calls) = (200, 1000);
    for seed in 0..seeds {
        let sim = Simulation::new(seed, SimOptions::default());
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            start(&server, |_| {}).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            for number in 0..calls {
                ask(&peers, number).await.unwrap();
            }
        });
    }
    let each = begun.elapsed().as_nanos() / u128::from(seeds * calls);
    println!("{each} ns for a call, with its answer and all else that it takes");
}

#[test]
#[ignore = "prints a figure"]
fn speed_of_real_calls() {
    with_real_server(async |world, peers, address| {
        let calls = 20_000;
        for payload in [Buf::empty(), Buf::from(vec![1; 4096]), Buf::from(vec![1; 128 << 10])] {
            let begun = world.now();
            for _ in 0..calls {
                peers.call(address, Epoch(5), &Ask(2), payload.clone()).await.unwrap();
            }
            let each = (world.now() - begun) * 1000 / calls;
            println!("{each} ns for a call and its answer of {} bytes over loopback", payload.len());
        }
    });
}
