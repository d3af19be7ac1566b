//! Requests and replies over loopback between two threads with a world each, next to plain blocking sockets.
//!
//! `cargo run --release -p world --example netbench [across|same|free]`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use types::wire::Flags;
use types::{Buf, BufMut, ClusterId, Epoch};
use world::{Frame, World};

/// Bytes moved per case, at least.
const BYTES: usize = 1 << 30;
/// Exchanges per case, at most.
const ROUNDS_MAX: usize = 60_000;

fn main() {
    let place = std::env::args().nth(1).unwrap_or_else(|| "across".into());
    println!("{:>9} {:>9}   {:>21}   {:>31}", "request", "reply", "plain sockets", "world");
    println!(
        "{:>9} {:>9}   {:>9} {:>11}   {:>9} {:>9} {:>11}",
        "B", "B", "us", "CPU-s/GiB", "us", "CPU us", "CPU-s/GiB"
    );
    for (request, reply) in
        [(0, 0), (0, 4 << 10), (4 << 10, 0), (0, 128 << 10), (128 << 10, 0), (0, 1 << 20), (1 << 20, 0)]
    {
        let rounds = (BYTES / (request + reply).max(1)).clamp(1_000, ROUNDS_MAX);
        let (us, cpu) = plain(request, reply, rounds, &place);
        let gib = ((request + reply) * rounds) as f64 / (1u64 << 30) as f64;
        let per_gib = |cpu: f64| if request + reply == 0 { 0.0 } else { cpu / 1e6 * rounds as f64 / gib };
        print!("{request:>9} {reply:>9}   {us:>9.1} {:>11.2}", per_gib(cpu));
        let (us, cpu) = framed(request, reply, rounds, &place);
        println!("   {us:>9.1} {cpu:>9.1} {:>11.2}", per_gib(cpu));
    }
}

/// Puts this thread on a processor: `same` for both ends, `across` for one each.
fn settle(end: usize, place: &str) {
    let mut set = CpuSet::new();
    match place {
        "same" => set.set(0),
        "across" => set.set(end),
        _ => return,
    }
    sched_setaffinity(None, &set).expect("the machine has two processors");
}

/// Microseconds of the wall and of all processors.
fn clocks() -> (f64, f64) {
    let us = |id| {
        let time = clock_gettime(id);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    (us(ClockId::Monotonic), us(ClockId::ProcessCPUTime))
}

fn per_round(start: (f64, f64), rounds: usize) -> (f64, f64) {
    let end = clocks();
    ((end.0 - start.0) / rounds as f64, (end.1 - start.1) / rounds as f64)
}

/// One exchange at a time over blocking sockets: no frames, no checksums.
fn plain(request: usize, reply: usize, rounds: usize, place: &str) -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut start = (0.0, 0.0);
    thread::scope(|scope| {
        scope.spawn(move || {
            settle(1, place);
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_nodelay(true).expect("an option");
            let (mut input, output) = (vec![0; 64 + request], vec![0; 64 + reply]);
            while stream.read_exact(&mut input).is_ok() {
                stream.write_all(&output).expect("a reply sent");
            }
        });
        settle(0, place);
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let (output, mut input) = (vec![0; 64 + request], vec![0; 64 + reply]);
        for round in 0..rounds + rounds / 10 {
            if round == rounds / 10 {
                start = clocks();
            }
            stream.write_all(&output).expect("a request sent");
            stream.read_exact(&mut input).expect("a reply");
        }
        per_round(start, rounds)
    })
}

fn frame(payload: Buf) -> Frame {
    Frame::new(1, 2, ClusterId::default(), Epoch(0), Flags::REQUEST, Vec::new(), payload)
}

/// The same over frames, with checksums.
fn framed(request: usize, reply: usize, rounds: usize, place: &str) -> (f64, f64) {
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            settle(1, place);
            let world = World::real().expect("a world");
            world.clone().block_on(async move {
                let listener = world.listen("127.0.0.1:0").await.expect("a free port");
                tell.send(listener.address()).expect("a listener for the address");
                let (mut sender, mut receiver) = listener.accept().await.expect("a connection").split();
                let payload = BufMut::zeroed(reply).freeze();
                while let Some(got) = receiver.recv().await.expect("a frame") {
                    assert_eq!(got.payload.len(), request);
                    sender.send(frame(payload.clone())).await.expect("a reply sent");
                }
            });
        });
        settle(0, place);
        let world = World::real().expect("a world");
        let address = told.recv().expect("an address");
        world.clone().block_on(async move {
            let (mut sender, mut receiver) = world.connect(&address).await.expect("a connection").split();
            let payload = BufMut::zeroed(request).freeze();
            let mut start = clocks();
            for round in 0..rounds + rounds / 10 {
                if round == rounds / 10 {
                    start = clocks();
                }
                sender.send(frame(payload.clone())).await.expect("a request sent");
                let got = receiver.recv().await.expect("a frame").expect("a reply");
                assert_eq!(got.payload.len(), reply);
            }
            per_round(start, rounds)
        })
    })
}
