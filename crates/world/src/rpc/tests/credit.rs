//! Large answers come as the receive window allows, whole and once, whatever breaks; and neither side can make the other keep
//! or send more than it should.

use types::limits::NET_PROBE_MAX;
use types::messages::session::{Grant, NetProbe, Piece};

use super::super::handshake::{Bulk, respond};
use super::*;
use crate::WindowSetting;

const KIB: usize = 1 << 10;

fn options(window: WindowSetting) -> SimOptions {
    SimOptions { receive_window: window, ..SimOptions::default() }
}

/// Answers `Ask(n)` with n bytes.
async fn start_filler(world: &World) {
    let listener = world.listen(SERVER).await.unwrap();
    let handler: Handler = Rc::new(|call| {
        Box::pin(async move {
            let Ask(bytes) = call.parse()?;
            Ok(Answer::new(&Told(bytes), bytes_of(bytes)))
        })
    });
    world.spawn("test", serve(world.clone(), listener, identity(Role::Brick), handler));
}

fn bytes_of(bytes: u64) -> Buf {
    (0..bytes).map(|i| (i * 7 + bytes) as u8).collect::<Vec<u8>>().into()
}

async fn get(peers: &Peers, bytes: u64) -> Result<(Told, Buf), CallError> {
    peers.call(SERVER, Epoch(5), &Ask(bytes), Buf::empty()).await
}

#[test]
fn large_answers_come_whole_through_any_window() {
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
            start_filler(&server).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let done = Rc::new(Cell::new(0));
            for number in 0..100 {
                let (peers, done) = (peers.clone(), done.clone());
                client.spawn("test", async move {
                    let bytes = number * 3001;
                    assert_eq!(get(&peers, bytes).await, Ok((Told(bytes), bytes_of(bytes))));
                    done.set(done.get() + 1);
                });
            }
            while done.get() < 100 {
                client.sleep(1000).await;
            }
            let report = peers.receive_report();
            assert_eq!(report.setting, window);
            assert_eq!(report.stats.granted > 0, window != WindowSetting::Off, "{report:?}");
            assert_eq!(report.cuts, 0);
            // Where there is a window, everything large is in the report as soon as it has come.
            let sizes = (0..100).map(|number| number * 3001);
            let large: u64 = sizes.filter(|bytes| *bytes > client.bulk_min() as u64).sum();
            let counted: Vec<u64> = report.peers.iter().map(|peer| peer.bytes).collect();
            let expected = if window == WindowSetting::Off { vec![] } else { vec![large] };
            assert_eq!(counted, expected);
            // What was granted came while something was awaited, and nothing else did.
            let by_credit: u64 = report.peers.iter().map(|peer| peer.credit_bytes).sum();
            assert_eq!(by_credit, report.stats.granted);
            let awaited_us: u64 = report.peers.iter().map(|peer| peer.credit_us).sum();
            assert_eq!((awaited_us > 0, awaited_us <= client.now()), (by_credit > 0, true), "{report:?}");
        });
    }
}

#[test]
fn connections_that_break_give_their_credit_back() {
    let all_good = Rc::new(Cell::new(0));
    for seed in 0..seeds(20) {
        let window = WindowSetting::Fixed(16 << 10);
        let options = SimOptions { break_per_million: 3_000, ..options(window) };
        let sim = Simulation::new(seed, options);
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            start_filler(&server).await;
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let (done, good) = (Rc::new(Cell::new(0)), all_good.clone());
            for number in 0..60 {
                let (peers, done, good, world) = (peers.clone(), done.clone(), good.clone(), client.clone());
                client.spawn("test", async move {
                    world.sleep(number * 2000).await;
                    let bytes = 20_000 + number * 3001;
                    // Some callers lose their patience.
                    let patience = if number % 3 == 0 { 3_000 } else { 30_000_000 };
                    match world.timeout(patience, get(&peers, bytes)).await {
                        Some(Ok(answer)) => {
                            assert_eq!(answer, (Told(bytes), bytes_of(bytes)));
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
            assert_eq!(peers.receive_report().open, 0, "every answer has ended");
            assert_eq!(peers.receive_report().held, 0, "all credit has come back");
        });
    }
    assert!(all_good.get() > 100, "{} answers came", all_good.get());
}

#[test]
fn answers_to_calls_that_were_given_up_do_not_stay_at_the_server() {
    let sim = Simulation::new(1, options(WindowSetting::Fixed(16 << 10)));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let listener = server.listen(SERVER).await.unwrap();
        let slow = server.clone();
        let handler: Handler = Rc::new(move |call| {
            let slow = slow.clone();
            Box::pin(async move {
                let Ask(bytes) = call.parse()?;
                slow.sleep(20_000).await;
                Ok(Answer::new(&Told(bytes), bytes_of(bytes)))
            })
        });
        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
        let peers = Peers::new(client.clone(), identity(Role::Client));
        get(&peers, 1).await.unwrap();
        // Given up before the announcement comes: more than a server keeps.
        for _ in 0..20 {
            assert!(client.timeout(5_000, get(&peers, 1 << 20)).await.is_none());
            client.sleep(100_000).await;
        }
        let before = peers.receive_report().stats.granted;
        get(&peers, 1 << 20).await.unwrap();
        let granted = peers.receive_report().stats.granted - before;
        assert_eq!(granted, 1 << 20, "the server still waits for credit");
    });
}

/// A connection of a client that speaks frames itself.
async fn raw(client: &World) -> (crate::Sender, crate::Receiver) {
    let (mut sender, mut receiver) = client.connect(SERVER).await.unwrap().split();
    initiate(client, &identity(Role::Client), TARGET, &mut sender, &mut receiver).await.unwrap();
    (sender, receiver)
}

fn request<R: Record>(record: &R, request: u64, bulk: u32) -> Frame {
    let bytes = wire::to_bytes(record);
    let mut frame = Frame::new(R::KIND, request, CLUSTER, Epoch(5), Flags::REQUEST, bytes, Buf::empty());
    frame.header.bulk = bulk;
    frame
}

#[test]
fn a_client_that_grants_nothing_or_nonsense_fills_no_memory() {
    let sim = Simulation::new(1, SimOptions::default());
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        start_filler(&server).await;
        let (mut sender, mut receiver) = raw(&client).await;
        // Of 20 answers of 1 MiB, 8 MiB wait for credit. The others are sent without.
        for number in 0..20 {
            sender.send(request(&Ask(1 << 20), number, 0)).await.unwrap();
        }
        let mut announced = Vec::new();
        for _ in 0..20 {
            let frame = receiver.recv().await.unwrap().unwrap();
            match frame.header.flags.is_announced() {
                true => {
                    assert_eq!((frame.payload.len(), frame.header.bulk), (0, 1 << 20));
                    announced.push(frame.header.request);
                }
                false => assert_eq!(frame.payload.len(), 1 << 20),
            }
        }
        assert_eq!(announced, (0..8).collect::<Vec<_>>());
        // A grant of too much brings what there is, one of nothing ends it, one for nobody is ignored.
        sender.send(request(&Grant { bytes: 5000 }, 0, 0)).await.unwrap();
        sender.send(request(&Grant { bytes: u32::MAX }, 0, 0)).await.unwrap();
        sender.send(request(&Grant { bytes: 0 }, 1, 0)).await.unwrap();
        sender.send(request(&Grant { bytes: 5000 }, 1, 0)).await.unwrap();
        sender.send(request(&Grant { bytes: 5000 }, 777, 0)).await.unwrap();
        let mut got = Vec::new();
        for _ in 0..2 {
            let frame = receiver.recv().await.unwrap().unwrap();
            assert_eq!((frame.header.kind, frame.header.request), (Piece::KIND, 0));
            got.push(frame.payload.len());
        }
        assert_eq!(got, [5000, (1 << 20) - 5000]);
        // Room for two more.
        for number in 20..23 {
            sender.send(request(&Ask(1 << 20), number, 0)).await.unwrap();
        }
        for expected in [true, true, false] {
            let frame = receiver.recv().await.unwrap().unwrap();
            assert_eq!(frame.header.flags.is_announced(), expected);
        }
        // Two requests of one id have one answer that waits.
        sender.send(request(&Grant { bytes: 0 }, 21, 0)).await.unwrap();
        for _ in 0..20 {
            sender.send(request(&Ask(100_000), 20, 0)).await.unwrap();
            assert!(receiver.recv().await.unwrap().unwrap().header.flags.is_announced());
        }
        // With credit, and below the limit, they come at once.
        sender.send(request(&Ask(1 << 20), 30, 1 << 20)).await.unwrap();
        sender.send(request(&Ask(16 << 10), 31, 0)).await.unwrap();
        for bytes in [1 << 20, 16 << 10] {
            assert_eq!(receiver.recv().await.unwrap().unwrap().payload.len(), bytes);
        }
        // A grant that is none ends the connection.
        let mut broken = request(&Grant { bytes: 1 }, 2, 0);
        broken.record.pop();
        sender.send(broken).await.unwrap();
        assert!(!matches!(receiver.recv().await, Ok(Some(_))));
    });
}

#[test]
fn a_server_that_sends_what_was_not_granted_is_cut_off() {
    // Announced bytes, bytes of the first piece, and whether that is within the rules.
    let cases = [
        (100_000, 8 * KIB, true),
        (100_000, 100_000, false),
        (100_000, 0, false),
        (100_000, 100, false),
        (0, 0, false),
        (u32::MAX, 0, false),
    ];
    for (announced, piece, is_good) in cases {
        let sim = Simulation::new(1, options(WindowSetting::Fixed(16 << 10)));
        let (server, client) = (sim.node("server"), sim.node("client"));
        sim.block_on("client", async {
            let listener = server.listen(SERVER).await.unwrap();
            let hostile = server.clone();
            server.spawn("test", async move {
                let (mut sender, mut receiver) = listener.accept().await.unwrap().split();
                let identity = identity(Role::Brick);
                let bulk = Bulk { bytes: pace::BULK_MIN, is_crowded: true };
                respond(&hostile, &identity, bulk, &mut sender, &mut receiver).await.map_err(drop).unwrap();
                let asked = receiver.recv().await.unwrap().unwrap();
                let flags = Flags::REPLY.with(Flags::ANNOUNCED);
                let record = wire::to_bytes(&Told(1));
                let mut frame = Frame::new(
                    Told::KIND,
                    asked.header.request,
                    CLUSTER,
                    Epoch(5),
                    flags,
                    record,
                    Buf::empty(),
                );
                frame.header.bulk = announced;
                sender.send(frame).await.unwrap();
                let record = wire::to_bytes(&Piece { lost: 0, timeouts: 0 });
                let payload = Buf::from(vec![1; piece]);
                let frame = Frame::new(
                    Piece::KIND,
                    asked.header.request,
                    CLUSTER,
                    Epoch(5),
                    Flags::REPLY,
                    record,
                    payload,
                );
                let _ = sender.send(frame).await;
                let _ = receiver.recv().await;
                hostile.sleep(60_000_000).await;
            });
            let peers = Peers::new(client.clone(), identity(Role::Client));
            let asking = peers.call_within(2_000_000, SERVER, Epoch(5), &Ask(1), Buf::empty());
            let from = client.now();
            assert_eq!(asking.await, Err(CallError::Unreachable));
            let took = client.now() - from;
            assert_eq!(
                took > 1_000_000,
                is_good,
                "{announced} {piece}: cut off at once if it is wrong, {took} us"
            );
        });
    }
}

#[test]
fn threads_that_share_a_window_wake_each_other() {
    with_threads(
        3,
        |_| {},
        async |_, _, address| {
            let port = std::sync::Arc::new(super::super::ReceivePort::new(
                WindowSetting::Fixed(16 << 10),
                pace::BULK_MIN,
                None,
            ));
            let read = |port: std::sync::Arc<super::super::ReceivePort>| {
                let world = World::real().unwrap();
                let peers = Peers::at(world.clone(), identity(Role::Client), port);
                world.block_on(async {
                    let done = Rc::new(Cell::new(0));
                    for number in 0..40 {
                        let (peers, done, address) = (peers.clone(), done.clone(), address.to_owned());
                        world.spawn("test", async move {
                            let payload = bytes_of(200_000 + number);
                            let answer =
                                peers.call(&address, Epoch(5), &Ask(number * 2), payload.clone()).await;
                            assert_eq!(answer, Ok((Told(number * 2 + 1), payload)));
                            done.set(done.get() + 1);
                        });
                    }
                    while done.get() < 40 {
                        world.sleep(1000).await;
                    }
                });
            };
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| read(port.clone()));
                }
            });
            let report = port.report();
            assert_eq!((report.held, report.open), (0, 0));
            assert!(report.stats.granted > 3 * 40 * 200_000 - 1, "{report:?}");
            assert_eq!(report.stats.expired, 0, "nobody had to wait until credit expired");
        },
    );
}

#[test]
fn a_probe_is_answered_below_all_handlers_and_is_bounded() {
    let sim = Simulation::new(1, options(WindowSetting::Off));
    let (server, client) = (sim.node("server"), sim.node("client"));
    sim.block_on("client", async {
        let listener = server.listen(SERVER).await.unwrap();
        let handler: Handler = Rc::new(|_| panic!("a handler was asked"));
        server.spawn("test", serve(server.clone(), listener, identity(Role::Brick), handler));
        let peers = Peers::new(client.clone(), identity(Role::Client));
        for bytes in [0, 1, 100_000, NET_PROBE_MAX as u32] {
            let (probed, payload) =
                peers.call(SERVER, Epoch(0), &NetProbe { bytes }, Buf::empty()).await.unwrap();
            assert_eq!((probed.resent, payload.len()), (0, bytes as usize));
            assert!(payload.iter().all(|byte| *byte == 0));
        }
        let too_large = NetProbe { bytes: NET_PROBE_MAX as u32 + 1 };
        let said = peers.call(SERVER, Epoch(0), &too_large, Buf::empty()).await;
        assert_eq!(said.unwrap_err(), CallError::Refused(Refusal::Malformed));
    });
}
