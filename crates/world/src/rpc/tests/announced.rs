//! Large requests come as the server's receive window allows, whole and once, whatever breaks; and neither side can make the
//! other keep or send more than it should.

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::checksum::crc_blocks;
use types::limits::PAYLOAD_MAX;
use types::messages::session::{Grant, Piece};

use super::super::handshake::{Bulk, respond};
use super::super::outgoing::ANNOUNCED_MAX;
use super::super::room::Bounds;
use super::super::server::serve_within;
use super::covered::Cargo;
use super::*;
use crate::{Notify, ReceiveReport, WindowSetting};

const KIB: usize = 1 << 10;
/// As the server of a simulation says it.
const BULK: usize = pace::BULK_MIN;

fn options(window: WindowSetting) -> SimOptions {
    SimOptions { receive_window: window, ..SimOptions::default() }
}

fn bytes_of(bytes: u64) -> Buf {
    (0..bytes).map(|i| (i * 7 + bytes) as u8).collect::<Vec<u8>>().into()
}

/// How often each number was asked.
type Begun = Rc<RefCell<BTreeMap<u64, usize>>>;

/// Takes `Ask(n)` with the n bytes of `bytes_of` and answers with none.
async fn start_taker(world: &World) -> Begun {
    let begun = Begun::default();
    let seen = begun.clone();
    let handler: Handler = Rc::new(move |call| {
        let seen = seen.clone();
        Box::pin(async move {
            let Ask(bytes) = call.parse()?;
            assert_eq!(call.payload, bytes_of(bytes));
            *seen.borrow_mut().entry(bytes).or_default() += 1;
            Ok(Answer::new(&Told(bytes), Buf::empty()))
        })
    });
    serve_with(world, handler).await;
    begun
}

async fn serve_with(world: &World, handler: Handler) {
    let listener = world.listen(SERVER).await.unwrap();
    world.spawn("test", serve(world.clone(), listener, identity(Role::Brick), handler));
}

async fn put(peers: &Peers, bytes: u64) -> Result<Told, CallError> {
    peers.call(SERVER, Epoch(5), &Ask(bytes), bytes_of(bytes)).await.map(|(told, _)| told)
}

/// The window of a node.
fn report(world: &World) -> ReceiveReport {
    world.receive_port().report()
}

fn assert_nothing_is_held(world: &World) {
    let report = report(world);
    assert_eq!((report.open, report.held), (0, 0), "{report:?}");
}

#[test]
fn large_requests_come_whole_and_once_through_any_window() {
    let windows = [
        WindowSetting::Auto,
        WindowSetting::Off,
        WindowSetting::Fixed(16 << 10),
        WindowSetting::Fixed(100_000),
    ];
    for (seed, window) in windows.into_iter().enumerate() {
        let sim = Simulation::new(seed as u64, options(window));
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            let begun = start_taker(&server).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let done = Rc::new(Cell::new(0));
            for number in 0..100 {
                let (peers, done) = (peers.clone(), done.clone());
                client.spawn("test", async move {
                    let bytes = number * 3001;
                    assert_eq!(put(&peers, bytes).await, Ok(Told(bytes)));
                    done.set(done.get() + 1);
                });
            }
            while done.get() < 100 {
                client.sleep(1000).await;
            }
            assert_eq!(begun.borrow().len(), 100);
            assert!(begun.borrow().values().all(|times| *times == 1));
            let stats = report(&server).stats;
            let is_fixed = matches!(window, WindowSetting::Fixed(_));
            assert_eq!((stats.granted > 0, stats.free > 0), (is_fixed, window == WindowSetting::Auto));
            assert_nothing_is_held(&server);
            assert_nothing_is_held(&client);
        });
    }
}

#[test]
fn a_large_request_may_have_a_large_answer_and_its_own_checksums() {
    for window in [WindowSetting::Auto, WindowSetting::Fixed(16 << 10)] {
        let sim = Simulation::new(1, options(window));
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            let handler: Handler = Rc::new(|call| {
                Box::pin(async move {
                    let Cargo(sums) = call.parse()?;
                    Ok(Answer::new(&Cargo(sums), call.payload))
                })
            });
            serve_with(&server, handler).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let payload = bytes_of(200_000);
            let sums = crc_blocks(&payload);
            let cargo = Cargo(sums.clone());
            let answer = peers.call(SERVER, Epoch(5), &cargo, payload.clone()).await;
            assert_eq!(answer, Ok((cargo, payload.clone())));
            let wrong = Cargo(sums[1..].to_vec());
            let answer = peers.call(SERVER, Epoch(5), &wrong, payload).await;
            assert_eq!(answer, Err(CallError::Refused(Refusal::Malformed)));
            assert_nothing_is_held(&server);
            assert_nothing_is_held(&client);
        });
    }
}

#[test]
fn a_small_request_is_not_held_up_by_a_large_one() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(16 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let seen = order.clone();
        let handler: Handler = Rc::new(move |call| {
            let Ok(Ask(number)) = call.parse() else { panic!("an Ask") };
            seen.borrow_mut().push(number);
            Box::pin(async move { Ok(Answer::new(&Told(number), Buf::empty())) })
        });
        serve_with(&server, handler).await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        put(&peers, 0).await.unwrap();
        let calls = [1 << 20, 1, 2, 3].map(|bytes| put(&peers, bytes));
        let told = futures_util::future::join_all(calls).await;
        assert!(told.iter().all(Result::is_ok));
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 1 << 20]);
    });
}

#[test]
fn connections_that_break_give_credit_and_places_back() {
    let all_good = Rc::new(Cell::new(0));
    for seed in 0..seeds(20) {
        let window = WindowSetting::Fixed(16 << 10);
        let options = SimOptions { break_per_million: 3_000, ..options(window) };
        let sim = Simulation::new(seed, options);
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            let begun = start_taker(&server).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let (done, good) = (Rc::new(Cell::new(0)), all_good.clone());
            for number in 0..60 {
                let (peers, done, good, world) = (peers.clone(), done.clone(), good.clone(), client.clone());
                let begun = begun.clone();
                client.spawn("test", async move {
                    world.sleep(number * 2000).await;
                    let bytes = 20_000 + number * 3001;
                    // Some callers lose their patience.
                    let patience = if number % 3 == 0 { 3_000 } else { 30_000_000 };
                    match world.timeout(patience, put(&peers, bytes)).await {
                        Some(Ok(told)) => {
                            assert_eq!(told, Told(bytes));
                            assert_eq!(begun.borrow()[&bytes], 1);
                            good.set(good.get() + 1);
                        }
                        Some(Err(error)) => assert_eq!(error, CallError::Unreachable),
                        None => {}
                    }
                    done.set(done.get() + 1);
                });
            }
            while done.get() < 60 {
                client.sleep(1000).await;
            }
            // Until the server has noticed that its connections are broken.
            client.sleep(15_000_000).await;
            assert!(begun.borrow().values().all(|times| *times == 1), "nothing was sent twice");
            assert_nothing_is_held(&server);
            assert_nothing_is_held(&client);
        });
    }
    assert!(all_good.get() > 100, "{} requests came", all_good.get());
}

#[test]
fn a_request_that_was_given_up_never_begins() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(16 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let begun = start_taker(&server).await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        put(&peers, 1).await.unwrap();
        // More than a connection may have announced at once.
        for number in 0..2 * ANNOUNCED_MAX as u64 {
            let call = put(&peers, (1 << 20) + number);
            assert!(client.timeout(1_000, call).await.is_none());
        }
        client.sleep(10_000).await;
        assert_eq!(report(&server).open, 0, "the server knows it");
        put(&peers, 1 << 20).await.unwrap();
        assert_eq!(begun.borrow().keys().copied().collect::<Vec<_>>(), [1, 1 << 20]);
        assert_nothing_is_held(&server);
    });
}

/// A connection of a client that speaks frames itself.
async fn raw(client: &World) -> (crate::Sender, crate::Receiver) {
    let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
    let heard = initiate(client, &identity(Role::Client), TARGET, &mut sender, &mut receiver).await.unwrap();
    let bulk = heard.bulk;
    assert_eq!(bulk.bytes, BULK);
    (sender, receiver)
}

fn frame<R: Record>(record: &R, request: u64, payload: usize) -> Frame {
    let payload = Buf::from(vec![1; payload]);
    Frame::new(R::KIND, request, CLUSTER, Epoch(5), Flags::REQUEST, wire::to_bytes(record), payload)
}

fn announcement(request: u64, bytes: u32) -> Frame {
    let mut frame = frame(&Ask(request), request, 0);
    frame.header.flags = Flags::REQUEST.with(Flags::ANNOUNCED);
    frame.header.bulk = bytes;
    frame
}

fn piece(request: u64, bytes: usize) -> Frame {
    frame(&Piece { lost: 0, timeouts: 0 }, request, bytes)
}

/// Answers at once, whatever the payload.
async fn start_eater(world: &World) {
    let handler: Handler = Rc::new(|call| {
        Box::pin(async move {
            let Ask(number) = call.parse()?;
            Ok(Answer::new(&Told(number), Buf::empty()))
        })
    });
    serve_with(world, handler).await;
}

/// Whether a server that grants 16 KiB takes these frames, and goes on.
fn takes(frames: Vec<Frame>) -> bool {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(16 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        start_eater(&server).await;
        let (mut sender, mut receiver) = raw(&client).await;
        for frame in frames {
            let _ = sender.send(frame).await;
            // Grants come.
            client.sleep(2_000).await;
        }
        let _ = sender.send(frame(&Ask(77), 77, 0)).await;
        let goes_on = loop {
            match receiver.recv().await {
                Ok(Some(answer)) if answer.header.request == 77 => break true,
                Ok(Some(_)) => {}
                _ => break false,
            }
        };
        drop((sender, receiver));
        client.sleep(1_000_000).await;
        assert_nothing_is_held(&server);
        goes_on
    })
}

#[test]
fn a_caller_that_sends_what_was_not_granted_is_cut_off() {
    let mut broken = frame(&Grant { bytes: 0 }, 1, 0);
    broken.record.pop();
    let with_payload = {
        let mut frame = announcement(1, 100_000);
        frame.payload = Buf::from(vec![1; 10]);
        frame
    };
    let many =
        |count: usize| (0..count as u64).map(|number| announcement(number, 100_000)).collect::<Vec<_>>();
    let within = [
        ("a piece that was granted", vec![announcement(1, 100_000), piece(1, 16 * KIB)]),
        ("all of it", vec![announcement(1, 16 << 10), piece(1, 16 * KIB)]),
        ("given up", vec![announcement(1, 100_000), frame(&Grant { bytes: 0 }, 1, 0), announcement(1, 9)]),
        ("nothing is there to give up", vec![frame(&Grant { bytes: 0 }, 1, 0)]),
        ("a small one that is announced", vec![announcement(1, 5), piece(1, 5)]),
        ("a small one that is not", vec![frame(&Ask(1), 1, BULK)]),
        (
            "a large one from who has not heard yet that it should be announced",
            vec![frame(&Ask(1), 1, BULK + 1)],
        ),
        ("as many as may be announced", many(ANNOUNCED_MAX)),
    ];
    for (what, frames) in within {
        assert!(takes(frames), "{what}");
    }
    let wrong = [
        ("more than was granted", vec![announcement(1, 100_000), piece(1, 17 * KIB)]),
        ("all at once", vec![announcement(1, 100_000), piece(1, 100_000)]),
        ("a small piece", vec![announcement(1, 100_000), piece(1, 100)]),
        ("an empty piece", vec![announcement(1, 100_000), piece(1, 0)]),
        ("a piece of nothing", vec![piece(1, 5000)]),
        ("a piece too many", vec![announcement(1, 8 << 10), piece(1, 8 * KIB), piece(1, 8 * KIB)]),
        ("a piece of what was given up", {
            vec![announcement(1, 100_000), frame(&Grant { bytes: 0 }, 1, 0), piece(1, 8 * KIB)]
        }),
        ("no bytes", vec![announcement(1, 0)]),
        ("too many bytes", vec![announcement(1, PAYLOAD_MAX as u32 + 1)]),
        ("bytes with it", vec![with_payload]),
        ("the same twice", vec![announcement(1, 100_000), announcement(1, 100_000)]),
        ("too many announcements", many(ANNOUNCED_MAX + 1)),
        (
            "a large one that is not, among pieces",
            vec![announcement(1, 100_000), frame(&Ask(2), 2, BULK + 1)],
        ),
        ("a grant that is none", vec![broken]),
    ];
    for (what, frames) in wrong {
        assert!(!takes(frames), "{what}");
    }
}

#[test]
fn large_requests_leave_as_a_whole_until_packets_are_lost() {
    let sim = Simulation::new(1, options(WindowSetting::Auto));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        start_eater(&server).await;
        let early = Peers::new(client.clone(), identity(Role::Client));
        put(&early, 100_000).await.unwrap();
        let (mut sender, mut receiver) = raw(&client).await;
        for (request, lost, is_crowded) in [(1, 0, false), (2, 39, false), (3, 40, true)] {
            let mut large = frame(&Ask(request), request, BULK + 1);
            large.header.bulk = lost;
            sender.send(large).await.unwrap();
            let answer = receiver.recv().await.unwrap().unwrap();
            assert_eq!(answer.header.flags.is_crowded(), is_crowded, "{lost} lost packets");
        }
        let free = 100_000 + 3 * (BULK as u64 + 1);
        let of = || (report(&server).stats.free, report(&server).stats.granted);
        assert_eq!(of(), (free, 0));
        // A new connection knows it from the handshake, and one that was there from the next answer.
        let late = Peers::new(client.clone(), identity(Role::Client));
        put(&late, 50_000).await.unwrap();
        assert_eq!(of(), (free, 50_000));
        put(&early, 1).await.unwrap();
        put(&early, 60_000).await.unwrap();
        assert_eq!(of(), (free, 110_000));
        assert_eq!(report(&server).stats.lost, 40);
        assert_nothing_is_held(&server);
    });
}

#[test]
fn a_server_that_grants_nothing_gets_few_announcements_and_small_calls_go_on() {
    let sim = Simulation::new(1, options(WindowSetting::Auto));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let listener = server.listen(SERVER).await.unwrap();
        let announced = Rc::new(RefCell::new(Vec::new()));
        let given_up = Rc::new(Cell::new(0));
        let (seen, gone, world) = (announced.clone(), given_up.clone(), server.clone());
        server.spawn("test", async move {
            let (mut sender, mut receiver) = listener.accept().await.unwrap().split();
            let identity = identity(Role::Brick);
            let heard = respond(
                &world,
                &identity,
                Bulk { bytes: BULK, is_crowded: true },
                &mut sender,
                &mut receiver,
            );
            heard.await.map_err(drop).unwrap();
            let reply = |request, kind, record| {
                Frame::new(
                    kind,
                    request,
                    CLUSTER,
                    Epoch(5),
                    Flags::REPLY.with(Flags::CROWDED),
                    record,
                    Buf::empty(),
                )
            };
            while let Ok(Some(frame)) = receiver.recv().await {
                let request = frame.header.request;
                match frame.header.kind {
                    Grant::KIND => gone.set(gone.get() + 1),
                    Piece::KIND => {
                        assert_eq!(frame.payload, bytes_of(100_000));
                        let told = wire::to_bytes(&Told(100_000));
                        sender.send(reply(request, Told::KIND, told)).await.unwrap();
                    }
                    _ if frame.header.flags.is_announced() => {
                        assert!(frame.payload.is_empty());
                        seen.borrow_mut().push(frame.header.bulk);
                        // One is granted, with more than there is; and one that does not exist.
                        let bytes = u32::from(frame.header.bulk == 100_000) * u32::MAX;
                        if bytes > 0 {
                            let grant = wire::to_bytes(&Grant { bytes });
                            sender.send(reply(request, Grant::KIND, grant.clone())).await.unwrap();
                            sender.send(reply(7777, Grant::KIND, grant)).await.unwrap();
                        }
                    }
                    _ => {
                        let told = wire::to_bytes(&Told(u64::from(frame.header.bulk)));
                        sender.send(reply(request, Told::KIND, told)).await.unwrap();
                    }
                }
            }
        });
        let peers = Peers::new(client.clone(), identity(Role::Client));
        assert_eq!(put(&peers, 100_000).await, Ok(Told(100_000)));
        let done = Rc::new(Cell::new(0));
        for number in 0..100 {
            let (peers, done, world) = (peers.clone(), done.clone(), client.clone());
            client.spawn("test", async move {
                let call = world.timeout(100_000, put(&peers, 200_000 + number));
                assert!(call.await.is_none());
                done.set(done.get() + 1);
            });
        }
        client.sleep(50_000).await;
        assert_eq!(announced.borrow().len(), 1 + ANNOUNCED_MAX);
        assert!(put(&peers, 300).await.is_ok(), "small calls go on");
        client.sleep(200_000).await;
        assert_eq!(done.get(), 100);
        // All that were announced were given up, and in the end nothing is in the way.
        assert_eq!(given_up.get() + 1, announced.borrow().len());
        assert_eq!(put(&peers, 100_000).await, Ok(Told(100_000)));
    });
}

/// Clients with one request at a time always have room, so there is never enough for the second one of another client. It has its
/// turn all the same, once its first one is answered.
#[test]
fn a_connection_always_has_one_request_in_progress() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(1 << 20)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let world = server.clone();
        let slow: Handler = Rc::new(move |call| {
            let world = world.clone();
            Box::pin(async move {
                let Ask(number) = call.parse()?;
                world.sleep(5_000).await;
                Ok(Answer::new(&Told(number), Buf::empty()))
            })
        });
        let listener = server.listen(SERVER).await.unwrap();
        // 2 MiB of payloads.
        let bounds = Bounds::of_one_in(16);
        server.spawn("test", serve_within(server.clone(), listener, identity(Role::Brick), slow, bounds));
        for _ in 0..30 {
            let (peers, world) = (Peers::new(client.clone(), identity(Role::Client)), client.clone());
            client.spawn("test", async move {
                while world.now() < 3_000_000 {
                    put(&peers, 500_000).await.expect("one at a time goes on");
                }
            });
        }
        client.sleep(100_000).await;
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let from = client.now();
        let told = futures_util::future::join_all([1, 2, 3].map(|_| put(&peers, 500_000))).await;
        assert!(told.iter().all(Result::is_ok));
        let took = client.now() - from;
        assert!(took < 1_000_000, "they waited until the others were done: {took} us");
        client.sleep(4_000_000).await;
        assert_nothing_is_held(&server);
    });
}

/// It has proved that it knows the key, and still must not fill the memory: where no request is large none is announced.
#[test]
fn nothing_is_announced_where_there_is_no_window() {
    let sim = Simulation::new(1, options(WindowSetting::Off));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        start_eater(&server).await;
        let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
        initiate(&client, &identity(Role::Client), TARGET, &mut sender, &mut receiver).await.unwrap();
        sender.send(announcement(1, 1 << 20)).await.unwrap();
        assert!(!matches!(receiver.recv().await, Ok(Some(_))));
    });
}

/// Small calls do not keep the room of a request whose pieces never come.
#[test]
fn a_request_whose_pieces_do_not_come_ends_its_connection() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(64 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        start_eater(&server).await;
        let (mut sender, _receiver) = raw(&client).await;
        sender.send(announcement(1, 1 << 20)).await.unwrap();
        let mut sent = 0;
        while sent < 10 && sender.send(frame(&Ask(7), 100 + sent, 0)).await.is_ok() {
            client.sleep(4_000_000).await;
            sent += 1;
        }
        assert!((4..8).contains(&sent), "it had its room for {sent} times 4 s");
        assert_nothing_is_held(&server);
    });
}

#[test]
fn who_announces_and_sends_nothing_stops_nobody_for_long() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(64 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        start_eater(&server).await;
        let (mut sender, mut receiver) = raw(&client).await;
        // More than there is room for.
        for number in 0..40 {
            sender.send(announcement(number, 1 << 20)).await.unwrap();
        }
        client.sleep(10_000).await;
        let now = report(&server);
        assert_eq!(now.open, 32, "only those with room are granted anything");
        assert_eq!(now.held, 64 << 10);
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let from = client.now();
        for _ in 0..3 {
            put(&peers, 100_000).await.expect("one at a time goes on");
        }
        assert!(client.now() - from < 1_000_000, "others wait until the credit expires, not longer");
        // Together they need room.
        let calls = (0..40).map(|_| put(&peers, 1 << 20));
        let told = futures_util::future::join_all(calls).await;
        assert!(told.iter().filter(|told| told.is_ok()).count() > 0);
        while !matches!(receiver.recv().await, Ok(None) | Err(_)) {}
        assert!(client.now() - from < 15_000_000, "it is cut off");
        drop((sender, receiver));
        let calls = (0..40).map(|_| put(&peers, 1 << 20));
        let told = futures_util::future::join_all(calls).await;
        assert!(told.iter().all(Result::is_ok), "and all of its room is free");
        assert_nothing_is_held(&server);
    });
}

#[test]
fn a_connection_that_is_not_read_holds_no_credit() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(64 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let (go, begun) = (Notify::new(), Rc::new(Cell::new(0)));
        let (goes, seen) = (go.clone(), begun.clone());
        let handler: Handler = Rc::new(move |call| {
            let (gone, seen) = (goes.wait(), seen.clone());
            Box::pin(async move {
                let Ask(number) = call.parse()?;
                seen.set(seen.get() + 1);
                if number == NEVER {
                    gone.await;
                }
                Ok(Answer::new(&Told(number), Buf::empty()))
            })
        });
        serve_with(&server, handler).await;
        let (mut sender, mut receiver) = raw(&client).await;
        sender.send(announcement(1, 64 << 10)).await.unwrap();
        let mut granted = 0;
        while granted < 64 << 10 {
            let grant = receiver.recv().await.unwrap().unwrap();
            granted += wire::from_bytes::<Grant>(&grant.record).unwrap().bytes as usize;
        }
        // So many that the piece behind them is not read until some are answered.
        for number in 0..400 {
            sender.send(frame(&Ask(NEVER), 1000 + number, 0)).await.unwrap();
        }
        sender.send(piece(1, 64 * KIB)).await.unwrap();
        client.sleep(100_000).await;
        assert_eq!(begun.get(), 255, "one place is for what was announced");
        assert_eq!(report(&server).held, 0);
        let peers = Peers::new(client.clone(), identity(Role::Client));
        let from = client.now();
        put(&peers, 100_000).await.unwrap();
        assert!(client.now() - from < 100_000);
        assert_eq!(report(&server).stats.expired, 0, "nobody had to wait until credit expired");
        go.notify();
        let mut answers = 0;
        while answers < 256 {
            answers += usize::from(receiver.recv().await.unwrap().unwrap().header.request >= 1000);
            go.notify();
        }
        client.sleep(100_000).await;
        go.notify();
        client.sleep(100_000).await;
        assert_eq!(begun.get(), 402, "all of it was begun");
        assert_nothing_is_held(&server);
    });
}

/// As between bricks that read from and write to each other: what both directions of both need goes through one window each.
#[test]
fn a_window_for_answers_and_requests_serves_both() {
    for seed in 0..seeds(10) {
        let sim = Simulation::new(seed, options(WindowSetting::Fixed(16 << 10)));
        let nodes = ["server", "client"].map(|name| sim.node(name));
        sim.block_on("client", async {
            let done = Rc::new(Cell::new(0));
            for (node, own, other) in
                [(&nodes[0], "server:7", "client:7"), (&nodes[1], "client:7", "server:7")]
            {
                let listener = node.listen(own).await.unwrap();
                let handler = adder(node.clone(), |_| {});
                node.spawn("test", serve(node.clone(), listener, identity(Role::Brick), handler));
                let peers = Peers::new(node.clone(), identity(Role::Client));
                for number in 0..40 {
                    let (peers, done, world) = (peers.clone(), done.clone(), node.clone());
                    node.spawn("test", async move {
                        world.sleep(1000).await;
                        let payload = bytes_of(50_000 + number * 3001);
                        let answer = peers.call(other, Epoch(5), &Ask(number), payload.clone()).await;
                        assert_eq!(answer, Ok((Told(number + 1), payload)));
                        done.set(done.get() + 1);
                    });
                }
            }
            while done.get() < 80 {
                nodes[1].sleep(1000).await;
            }
            nodes.iter().for_each(assert_nothing_is_held);
        });
    }
}
