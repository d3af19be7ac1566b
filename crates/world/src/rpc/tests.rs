//! A call is answered, refused, or its outcome is unknown, and no stranger gets further: servers die, networks break,
//! and clients send wrong keys and garbage, in the simulated world and over real sockets.

mod announced;
mod covered;
mod credit;
mod doubts;
mod rails;
mod real;
mod relay;
mod strangers;
mod unproved;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::select;
use types::messages::Refused;
use types::messages::session::{Hello, Meant, Role};
use types::wire::{
    self, Codec, DecodeError, Flags, Forms, Key, Reader, Record, Request, VERSION, VERSION_MIN,
};
use types::{Buf, ClusterId, Epoch, Refusal};

use super::handshake::{Target, initiate};
use super::{Answer, CallError, Handler, Identity, Peers, serve, serve_on_threads};
use crate::{Frame, SimOptions, Simulation, World};

const CLUSTER: ClusterId = ClusterId([7; 16]);
const SERVER: &str = "server:7";
const TARGET: Target<'static> = Target { meant: Meant::Brick, address: SERVER };
/// Asks for a refusal.
const NO: u64 = 1_000_000;
/// Asks for an answer that never comes.
const NEVER: u64 = 1_000_001;

macro_rules! numbers {
    ($($kind:literal $name:ident)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq)]
        struct $name(u64);

        impl Codec for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }

            fn decode(reader: &mut Reader<'_>) -> Result<$name, DecodeError> {
                u64::decode(reader).map($name)
            }

            fn describe(_: &mut Forms) -> String {
                stringify!($name).to_owned()
            }

            fn sample(_: &mut u8) -> $name {
                $name(0)
            }
        }

        impl Record for $name {
            const KIND: u16 = $kind;
            const NAME: &'static str = stringify!($name);
        }
    )*};
}
numbers! { 9000 Ask 9001 Told 9002 Odd }

impl Request for Ask {
    type Reply = Told;
}

impl Request for Odd {
    type Reply = Odd;
}

fn identity(role: Role) -> Identity {
    Identity { cluster: CLUSTER, key: Key([9; 32]), role, name: String::new() }
}

/// Answers the number plus one and the payload, at once if even, later if odd. `begun` hears each number in order.
fn adder(world: World, begun: impl Fn(u64) + 'static) -> Handler {
    let begun = Rc::new(begun);
    Rc::new(move |call| {
        let (world, begun) = (world.clone(), begun.clone());
        Box::pin(async move {
            assert_eq!((call.role, call.epoch), (Role::Client, Epoch(5)));
            let Ask(number) = call.parse()?;
            begun(number);
            match number {
                NO => return Err(Refusal::NoSpace),
                NEVER => std::future::pending().await,
                _ if number % 2 == 1 => world.sleep(world.random() % 500).await,
                _ => {}
            }
            Ok(Answer::new(&Told(number + 1), call.payload))
        })
    })
}

async fn start(world: &World, begun: impl Fn(u64) + 'static) {
    let listener = world.listen(SERVER).await.unwrap();
    world.spawn("test", serve(world.clone(), listener, identity(Role::Brick), adder(world.clone(), begun)));
}

async fn ask(peers: &Peers, number: u64) -> Result<(Told, Buf), CallError> {
    peers.call(SERVER, Epoch(5), &Ask(number), Buf::from(vec![number as u8; 300])).await
}

fn told(number: u64) -> Result<(Told, Buf), CallError> {
    Ok((Told(number + 1), Buf::from(vec![number as u8; 300])))
}

fn with_threads(
    threads: usize,
    begun: impl Fn(u64) + Send + 'static,
    test: impl AsyncFn(&World, Peers, &str),
) {
    let (tell, told) = std::sync::mpsc::channel();
    let stop = crate::Notify::new();
    let stopped = stop.wait();
    let server = std::thread::spawn(move || {
        let world = World::real().unwrap();
        world.block_on(async {
            // A second address of this machine passes for another machine: large answers need credit.
            let address = if threads == 1 { "127.0.0.1:0" } else { "127.0.0.2:0" };
            let listener = world.listen(address).await.unwrap();
            tell.send(listener.address()).unwrap();
            let handler = adder(world.clone(), begun);
            let identity = identity(Role::Brick);
            let serving = serve_on_threads(&world, listener, &identity, threads, handler).unwrap();
            // When it is dropped, it waits for its threads.
            select(serving, pin!(stopped)).await;
        });
    });
    let address = told.recv().unwrap();
    let world = World::real().unwrap();
    world.block_on(async {
        test(&world, Peers::new(world.clone(), identity(Role::Client)), &address).await;
    });
    stop.notify();
    server.join().unwrap();
}

fn request<R: Record>(record: &R) -> Frame {
    Frame::new(R::KIND, 0, CLUSTER, Epoch(0), Flags::REQUEST, wire::to_bytes(record), Buf::empty())
}

/// Runs `test` with a server and a client, calm and rough.
fn with_server(test: impl AsyncFn(&Simulation, &World, Peers)) {
    for seed in 0..10 {
        let sim = Simulation::new(seed, SimOptions::default());
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            start(&server, |_| {}).await;
            test(&sim, &client, Peers::new(client.clone(), identity(Role::Client))).await;
        });
    }
}

#[test]
fn calls_are_answered_or_refused() {
    with_server(async |_, _, peers| {
        assert_eq!(ask(&peers, 2).await, told(2));
        assert_eq!(ask(&peers, 3).await, told(3));
        assert_eq!(ask(&peers, NO).await, Err(CallError::Refused(Refusal::NoSpace)));
        let odd = peers.call(SERVER, Epoch(5), &Odd(1), Buf::empty()).await;
        assert_eq!(odd, Err(CallError::Refused(Refusal::Unsupported)));
        assert_eq!(peers.cluster(), CLUSTER);
    });
}

#[test]
fn a_thousand_at_once_begin_in_order() {
    for seed in 0..5 {
        let sim = Simulation::new(seed, SimOptions::default());
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            let begun = Rc::new(Cell::new(0));
            let witness = begun.clone();
            start(&server, move |number| assert_eq!(number, witness.replace(number + 1))).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            // The waiters for a new connection go on in any order; from then on order is the caller's.
            assert_eq!(ask(&peers, 0).await, told(0));
            let done = Rc::new(Cell::new(0));
            let mut calls: Vec<_> = (1..=1000)
                .map(|number| {
                    let (peers, done) = (peers.clone(), done.clone());
                    Box::pin(async move {
                        assert_eq!(ask(&peers, number).await, told(number));
                        done.set(done.get() + 1);
                    })
                })
                .collect();
            // First polls in order, then each for itself.
            std::future::poll_fn(|cx| {
                calls.iter_mut().for_each(|call| assert!(call.as_mut().poll(cx).is_pending()));
                std::task::Poll::Ready(())
            })
            .await;
            calls.into_iter().for_each(|call| client.spawn("test", call));
            while done.get() < 1000 {
                client.sleep(1000).await;
            }
            assert_eq!(begun.get(), 1001);
        });
    }
}

/// Clients without end: what they send at once is bounded for all of them together, and everybody is answered.
#[test]
fn many_clients_payloads_are_bounded_together() {
    const CLIENTS: usize = 6;
    const LEN: usize = 512 << 10;
    let sim = Simulation::new(1, SimOptions::default());
    let server = sim.node("server");
    sim.block_on("client", async {
        let (held, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (on, now, peak) = (server.clone(), held.clone(), most.clone());
        let handler: Handler = Rc::new(move |call| {
            let (world, now, peak) = (on.clone(), now.clone(), peak.clone());
            Box::pin(async move {
                now.set(now.get() + call.payload.len());
                peak.set(now.get().max(peak.get()));
                world.sleep(20_000).await;
                now.set(now.get() - call.payload.len());
                Ok(Answer::new(&Told(0), Buf::empty()))
            })
        });
        let listener = server.listen(SERVER).await.unwrap();
        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
        let answered = Rc::new(Cell::new(0));
        for client in 0..CLIENTS {
            let world = sim.node(&format!("client{client}"));
            let peers = Peers::new(world.clone(), identity(Role::Client));
            for _ in 0..30 {
                let (peers, answered) = (peers.clone(), answered.clone());
                world.spawn("test", async move {
                    let payload = Buf::from(vec![1; LEN]);
                    peers.call(SERVER, Epoch(5), &Ask(1), payload).await.expect("an answer");
                    answered.set(answered.get() + 1);
                });
            }
        }
        let client = sim.node("client");
        for _ in 0..10_000 {
            if answered.get() == CLIENTS * 30 {
                break;
            }
            client.sleep(1000).await;
        }
        assert_eq!((answered.get(), held.get()), (CLIENTS * 30, 0));
        let bound = (32 << 20) + CLIENTS * LEN;
        assert!((16 << 20..=bound).contains(&most.get()), "{} bytes at once", most.get());
    });
}

/// Who asks and does not take the answers is not asked for more: they lie in the server's memory.
#[test]
fn answers_that_nobody_takes_are_bounded() {
    const LEN: usize = 1 << 20;
    let sim = Simulation::new(1, SimOptions::default());
    let server = sim.node("server");
    sim.block_on("client", async {
        let begun = Rc::new(Cell::new(0));
        let count = begun.clone();
        let handler: Handler = Rc::new(move |_| {
            count.set(count.get() + 1);
            Box::pin(async { Ok(Answer::new(&Told(0), Buf::from(vec![1; LEN]))) })
        });
        let listener = server.listen(SERVER).await.unwrap();
        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
        let client = sim.node("client");
        let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
        initiate(&client, &identity(Role::Client), TARGET, &mut sender, &mut receiver).await.unwrap();
        for number in 0..200 {
            let mut asked = request(&Ask(number));
            (asked.header.request, asked.header.epoch) = (number + 1, Epoch(5));
            asked.header.bulk = u32::MAX;
            sender.send(asked).await.unwrap();
        }
        client.sleep(1_000_000).await;
        let window = SimOptions::default().window_bytes;
        let bound = ((16 << 20) + window) / LEN + 2;
        assert!((16..=bound).contains(&begun.get()), "{} answers at once", begun.get());
        for _ in 0..200 {
            assert_eq!(receiver.recv().await.unwrap().unwrap().payload.len(), LEN);
        }
    });
}

#[test]
fn a_server_that_dies_leaves_the_outcome_unknown_and_comes_back() {
    with_server(async |sim, client, peers| {
        assert_eq!(ask(&peers, 2).await, told(2));
        let unknown = Rc::new(Cell::new(0));
        for _ in 0..20 {
            let (peers, unknown) = (peers.clone(), unknown.clone());
            client.spawn("test", async move {
                assert_eq!(ask(&peers, NEVER).await, Err(CallError::Unreachable));
                unknown.set(unknown.get() + 1);
            });
        }
        client.sleep(50_000).await;
        if sim.seed() % 2 == 0 {
            sim.kill("server")
        } else {
            sim.power_cut("server")
        }
        client.sleep(3_000_000).await;
        assert_eq!(unknown.get(), 20);
        assert_eq!(ask(&peers, 2).await, Err(CallError::Unreachable));
        start(&sim.node("server"), |_| {}).await;
        assert_eq!(ask(&peers, 2).await, told(2));
    });
}

#[test]
fn a_late_answer_breaks_the_connection_and_the_next_call_makes_a_new_one() {
    with_server(async |_, client, peers| {
        let others = peers.clone();
        let fate = Rc::new(Cell::new(None));
        let heard = fate.clone();
        client.spawn("test", async move { heard.set(Some(ask(&others, NEVER).await)) });
        let late = peers.call_within(100_000, SERVER, Epoch(5), &Ask(NEVER), Buf::empty()).await;
        assert_eq!(late, Err(CallError::Unreachable));
        client.yield_now().await;
        client.sleep(1).await;
        assert_eq!(fate.take(), Some(Err(CallError::Unreachable)));
        assert_eq!(ask(&peers, 4).await, told(4));
        peers.forget(SERVER);
        assert_eq!(ask(&peers, 4).await, told(4));
    });
}

#[test]
fn a_server_that_is_dropped_lets_go_of_everything() {
    let sim = Simulation::new(1, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let kept = Rc::new(());
        let witness = kept.clone();
        let listener = server.listen(SERVER).await.unwrap();
        let handler = adder(server.clone(), move |_| drop(witness.clone()));
        let serving = serve(server.clone(), listener, identity(Role::Brick), handler);
        let (world, peers2) = (server.clone(), peers.clone());
        server.spawn("test", async move { world.timeout(1_000_000, serving).await.unwrap_or(()) });
        client.spawn("test", async move { drop(ask(&peers2, NEVER).await) });
        client.sleep(500_000).await;
        assert!(Rc::strong_count(&kept) > 1);
        client.sleep(600_000).await;
        assert_eq!(Rc::strong_count(&kept), 1);
        assert_eq!(ask(&peers, 2).await, Err(CallError::Unreachable));
    });
}

/// How many seeds a test tries; `SHOAL_SEEDS` says more.
fn seeds(default: u64) -> u64 {
    std::env::var("SHOAL_SEEDS").map_or(default, |text| text.parse().unwrap())
}

/// On a rough network, with a server that dies now and then, each call is answered rightly or its outcome is unknown,
/// and in the end one is answered.
#[test]
fn on_a_rough_network_answers_are_right_or_none_comes() {
    for seed in 0..seeds(40) {
        let mut options = SimOptions::drawn(seed);
        options.break_per_million *= 10;
        let sim = Simulation::new(seed, options);
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            start(&server, |_| {}).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let done = Rc::new(Cell::new(0));
            for worker in 0..8u64 {
                let (peers, done) = (peers.clone(), done.clone());
                client.spawn("test", async move {
                    for number in 0..50 {
                        let number = worker * 100 + number;
                        let mut answer = ask(&peers, number).await;
                        while answer == Err(CallError::Unreachable) {
                            answer = ask(&peers, number).await;
                        }
                        assert_eq!(answer, told(number));
                    }
                    done.set(done.get() + 1);
                });
            }
            while done.get() < 8 {
                client.sleep(20_000 + client.random() % 200_000).await;
                match client.random() % 16 {
                    0 => sim.kill("server"),
                    1 => sim.power_cut("server"),
                    2 => sim.partition("server", "client", true),
                    _ => continue,
                }
                client.sleep(client.random() % 1_000_000).await;
                sim.partition("server", "client", false);
                let server = sim.node("server");
                match server.listen(SERVER).await {
                    Ok(listener) => {
                        let handler = adder(server.clone(), |_| {});
                        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
                    }
                    // It was not the server that died.
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
                }
            }
        });
    }
}
