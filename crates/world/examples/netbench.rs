//! Measures requests and replies over loopback between two threads, each with its own world, and compares them with
//! plain blocking sockets.
//!
//! `cargo run --release -p world --example netbench [across|same|free]`: each end on its own processor, both on one,
//! or as the kernel decides. Prints the best of some rounds; the two kinds alternate, because the speed of a machine
//! varies. Frames carry checksums, plain sockets do not: about 5 us for each 128 KiB at each end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use types::wire::Flags;
use types::{Buf, BufMut, ClusterId, Epoch};
use world::{Frame, World};

/// Sizes of request and reply, without the 64 bytes of the header.
const CASES: [(usize, usize); 7] =
    [(0, 0), (0, 4 << 10), (4 << 10, 0), (0, 128 << 10), (128 << 10, 0), (0, 1 << 20), (1 << 20, 0)];
/// Rounds per case.
const TURNS: usize = 7;
/// Bytes moved per round, about.
const BYTES: usize = 128 << 20;
/// Exchanges per round, at most.
const ROUNDS_MAX: usize = 6_000;

fn main() {
    let place = std::env::args().nth(1).unwrap_or_else(|| "across".into());
    println!("{:>17}   {:>27}   {:>27}", "bytes", "plain sockets", "world");
    let columns = format!("{:>7} {:>7} {:>11}", "us", "CPU us", "CPU-s/GiB");
    println!("{:>8} {:>8}   {columns}   {columns}", "request", "reply");
    for (request, reply) in CASES {
        let bytes = request + reply;
        let rounds = (BYTES / bytes.max(1)).min(ROUNDS_MAX);
        let (mut plain_best, mut framed_best) = ((f64::MAX, f64::MAX), (f64::MAX, f64::MAX));
        for _ in 0..TURNS {
            plain_best = better(plain_best, plain(request, reply, rounds, &place));
            framed_best = better(framed_best, framed(request, reply, rounds, &place));
        }
        print!("{request:>8} {reply:>8}");
        for (us, cpu) in [plain_best, framed_best] {
            let per_gib = cpu / 1e6 * (1u64 << 30) as f64 / bytes as f64;
            let per_gib = if bytes == 0 { "-".into() } else { format!("{per_gib:.2}") };
            print!("   {us:>7.1} {cpu:>7.1} {per_gib:>11}");
        }
        println!();
    }
}

fn better(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.min(b.1))
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

/// Microseconds of wall clock and of CPU time.
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
