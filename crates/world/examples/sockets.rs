//! Measures the cost of a brick's connections: `world::serve` on its ring, against plain blocking sockets with a
//! thread for each.
//!
//! `cargo run --release -p world --example sockets [TURNS]`, or bench/spikes/brick_sockets.sh. The server is a
//! separate process, so that the CPU time of both sides is known. The caller is always the same: one thread with a
//! world, as in a mount. All use the same frames with the same checksums; `sealed` is the
//! ring with a key, where frames have tags instead. The kinds alternate; the results are
//! medians.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::time::{ClockId, clock_gettime};
use types::checksum::crc;
use types::messages::session::{Hello, Proved, Role, Welcome};
use types::wire::{self, Flags, FrameHeader, HEADER_LEN, Key, Record, Side, Tag, Transcript, VERSION, prove};
use types::{Buf, BufMut, ClusterId, Epoch};
use world::{Answer, Handler, Identity, Notify, Peers, World, serve};

/// A load: payloads of request and answer in bytes, without 72 bytes of header and record; connections; concurrent
/// calls on each.
const LOADS: [(usize, usize, usize, usize); 6] = [
    (0, 4 << 10, 1, 1),
    (0, 4 << 10, 16, 1),
    (0, 128 << 10, 1, 1),
    (0, 128 << 10, 16, 1),
    (128 << 10, 0, 1, 8),
    (128 << 10, 0, 16, 1),
];
/// The kinds of servers.
const KINDS: [&str; 4] = ["ring", "sealed", "threads", "handed"];
/// The headings of the columns.
const HEAD: &str =
    "request  reply conns depth  answerer  mean us  99 % us  calls/s  asker us answer us  CPU-s/GiB";
/// Most bytes moved per round and load, approximately.
const BYTES: usize = 1 << 30;
/// Most calls per round and load.
const CALLS_MAX: usize = 30_000;
/// The first fifth of the calls is not timed.
const WARM: usize = 5;

const CLUSTER: ClusterId = ClusterId([7; 16]);
/// Of the kind whose frames have tags. The others have no key, and checksums.
const KEY: Key = Key([9; 32]);

types::records! {
    /// Asks for bytes.
    9000 Ask {
        /// Bytes of the answer.
        len: u64,
    } => Told;
    /// The answer.
    9001 Told {
        /// Bytes of the answer.
        len: u64,
    };
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, kind] = words.as_slice()
        && word == "answer"
    {
        return answer(kind);
    }
    let turns = words.get(1).map_or(5, |word| word.parse().expect("a number of turns"));
    println!("medians of {turns} turns; CPU per call, and per GiB of payload");
    println!("{HEAD}");
    for (request, reply, connections, depth) in LOADS {
        let load = Load { request, reply, connections, depth };
        let mut found: [Vec<Figures>; KINDS.len()] = Default::default();
        for _ in 0..turns {
            for (kind, of_kind) in KINDS.iter().zip(&mut found) {
                of_kind.push(turn(kind, load));
            }
        }
        for (kind, of_kind) in KINDS.iter().zip(&found) {
            let median = |of: fn(&Figures) -> f64| {
                let mut all: Vec<f64> = of_kind.iter().map(of).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let per_gib =
                median(|f| f.asker + f.answerer) / 1e6 * (1u64 << 30) as f64 / (request + reply) as f64;
            println!(
                "{request:>7} {reply:>6} {connections:>5} {depth:>5}  {kind:8} {:>8.1} {:>8.1} {:>8.0} {:>9.1} {:>9.1} {per_gib:>10.2}",
                median(|f| f.mean),
                median(|f| f.slow),
                median(|f| f.rate),
                median(|f| f.asker),
                median(|f| f.answerer),
            );
        }
    }
}

#[derive(Clone, Copy)]
struct Load {
    request: usize,
    reply: usize,
    connections: usize,
    depth: usize,
}

/// The result of one round.
struct Figures {
    /// Mean time from request to answer, in microseconds.
    mean: f64,
    /// The 99th percentile of that time.
    slow: f64,
    /// Calls per second.
    rate: f64,
    /// Microseconds of CPU time per call, of the caller.
    asker: f64,
    /// The same for the server.
    answerer: f64,
}

fn us(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The server process. It answers each line on its input with the microseconds of CPU time that it has used.
struct Answerer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Answerer {
    fn start(kind: &str) -> (Answerer, String) {
        let program = std::env::current_exe().expect("a program has a path");
        let mut child = Command::new(program)
            .args(["answer", kind])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process that answers");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut answerer = Answerer { child, input, output };
        let address = answerer.line();
        (answerer, address)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of the process that answers");
        assert!(!line.is_empty(), "the process that answers has ended");
        line.trim().to_owned()
    }

    fn used(&mut self) -> f64 {
        writeln!(self.input).expect("the process that answers reads");
        self.line().parse().expect("a number")
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn turn(kind: &str, load: Load) -> Figures {
    let (mut answerer, address) = Answerer::start(kind);
    let world = World::real().expect("a world");
    world.clone().block_on(async move {
        // One connection for each: `Peers` has one per address.
        let key = key_of(kind);
        let identity =
            || Identity { cluster: CLUSTER, key: key.clone(), role: Role::Client, name: String::new() };
        let peers: Vec<Rc<Peers>> =
            (0..load.connections).map(|_| Rc::new(Peers::new(world.clone(), identity()))).collect();
        let each = (BYTES / (load.request + load.reply)).min(CALLS_MAX) / load.connections / load.depth;
        calls(&world, &peers, &address, load, each / WARM + 1).await;
        let clocks = || [ClockId::Monotonic, ClockId::ProcessCPUTime].map(us);
        let (before, start) = (answerer.used(), clocks());
        let mut times = calls(&world, &peers, &address, load, each).await;
        let (end, after) = (clocks(), answerer.used());
        times.sort_by(f64::total_cmp);
        let count = times.len() as f64;
        Figures {
            mean: times.iter().sum::<f64>() / count,
            slow: times[times.len() * 99 / 100],
            rate: count / (end[0] - start[0]) * 1e6,
            asker: (end[1] - start[1]) / count,
            answerer: (after - before) / count,
        }
    })
}

/// Makes `each` calls one after the other, in `depth` tasks on each connection. Returns the duration of every call.
async fn calls(world: &World, peers: &[Rc<Peers>], address: &str, load: Load, each: usize) -> Vec<f64> {
    let (done, times) = (Notify::new(), Rc::new(Cell::new(Vec::new())));
    let left = Rc::new(Cell::new(load.connections * load.depth));
    let payload = BufMut::zeroed(load.request).freeze();
    let all_done = done.wait();
    for peer in peers.iter().flat_map(|peer| std::iter::repeat_n(peer, load.depth)) {
        let (peer, address, payload) = (peer.clone(), address.to_owned(), payload.clone());
        let (done, times, left) = (done.clone(), times.clone(), left.clone());
        world.spawn("test", async move {
            let mut mine = Vec::with_capacity(each);
            for _ in 0..each {
                let start = us(ClockId::Monotonic);
                let question = Ask { len: load.reply as u64 };
                let (_, got) =
                    peer.call(&address, Epoch(0), &question, payload.clone()).await.expect("an answer");
                assert_eq!(got.len(), load.reply);
                mine.push(us(ClockId::Monotonic) - start);
            }
            let mut all = times.take();
            all.append(&mut mine);
            times.set(all);
            left.set(left.get() - 1);
            if left.get() == 0 {
                done.notify();
            }
        });
    }
    all_done.await;
    times.take()
}

/// Runs the server process until its input ends.
fn answer(kind: &str) {
    let (tell, told) = mpsc::channel();
    let kind = kind.to_owned();
    thread::spawn(move || match kind.as_str() {
        kind @ ("ring" | "sealed") => answer_on_a_ring(key_of(kind), &tell),
        kind => answer_plainly(kind == "handed", &tell).expect("a listener that lasts"),
    });
    println!("{}", told.recv().expect("an address"));
    for line in io::stdin().lines() {
        line.expect("a line");
        println!("{}", us(ClockId::ProcessCPUTime));
    }
}

/// The key of a kind.
fn key_of(kind: &str) -> Key {
    if kind == "sealed" { KEY } else { Key::OPEN }
}

/// As in a brick: one thread with a ring.
fn answer_on_a_ring(key: Key, tell: &mpsc::Sender<String>) {
    let world = World::real().expect("a world");
    world.clone().block_on(async move {
        let listener = world.listen("127.0.0.1:0").await.expect("a free port");
        tell.send(listener.address()).expect("somebody who asks");
        let stock = BufMut::zeroed(128 << 10).freeze();
        let handler: Handler = Rc::new(move |call| {
            let stock = stock.clone();
            Box::pin(async move {
                let Ask { len } = call.parse()?;
                Ok(Answer::new(&Told { len }, stock.slice(0..len as usize)))
            })
        });
        let identity = Identity { cluster: CLUSTER, key, role: Role::Brick, name: String::new() };
        serve(world.clone(), listener, identity, handler).await;
    });
}

/// A request that a thread hands to the serving thread.
type Asked = (Arc<TcpStream>, FrameHeader, Vec<u8>);

/// An alternative design: a blocking thread per connection. It answers itself, as if a brick's state could be shared,
/// or hands the request to the one thread that has the state.
fn answer_plainly(handed: bool, tell: &mpsc::Sender<String>) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (hand, taken) = mpsc::channel::<Asked>();
    let stock = BufMut::zeroed(128 << 10).freeze();
    let answers = stock.clone();
    thread::spawn(move || {
        for (stream, header, record) in taken {
            // An error of a connection matters only to its own thread.
            let _ = reply(&stream, &header, &record, &answers);
        }
    });
    tell.send(listener.local_addr()?.to_string()).expect("somebody who asks");
    loop {
        let (stream, _) = listener.accept()?;
        let (hand, stock) = (handed.then(|| hand.clone()), stock.clone());
        thread::spawn(move || attend(stream, hand.as_ref(), &stock));
    }
}

/// Serves one connection to its end.
fn attend(stream: TcpStream, hand: Option<&mpsc::Sender<Asked>>, stock: &Buf) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let stream = Arc::new(stream);
    // As large as the staging buffer of the world's receiver, so that a small request needs one read.
    let mut input = BufReader::with_capacity(8 << 10, &*stream);
    let (asked, hello, _) = read(&mut input)?;
    let _: Hello = wire::from_bytes(&hello).map_err(io::Error::other)?;
    let welcome = Welcome { version: VERSION, nonce: [1; 32] };
    let transcript = Transcript::of(asked.cluster, &hello, &wire::to_bytes(&welcome));
    write(&stream, &asked, &welcome, &Buf::empty())?;
    let (asked, ..) = read(&mut input)?;
    let mut proved =
        Proved { proof: [0; 32], cluster: CLUSTER, bulk: u32::MAX, is_crowded: false, name: String::new() };
    proved.proof = prove(&Key::OPEN, Side::Server, &transcript, &wire::to_bytes(&proved));
    write(&stream, &asked, &proved, &Buf::empty())?;
    loop {
        let (header, record, _payload) = read(&mut input)?;
        match hand {
            Some(hand) => hand.send((stream.clone(), header, record)).map_err(io::Error::other)?,
            None => reply(&stream, &header, &record, stock)?,
        }
    }
}

fn reply(stream: &TcpStream, asked: &FrameHeader, record: &[u8], stock: &Buf) -> io::Result<()> {
    let Ask { len } = wire::from_bytes(record).map_err(io::Error::other)?;
    write(stream, asked, &Told { len }, &stock.slice(0..len as usize))
}

/// Reads one frame and verifies its checksums.
fn read(input: &mut BufReader<&TcpStream>) -> io::Result<(FrameHeader, Vec<u8>, Buf)> {
    let mut header = [0; HEADER_LEN];
    input.read_exact(&mut header)?;
    let header = FrameHeader::decode(&header).map_err(io::Error::other)?;
    let mut record = vec![0; header.record_len as usize];
    input.read_exact(&mut record)?;
    let mut payload = BufMut::dirty(header.payload_len as usize);
    input.read_exact(&mut payload)?;
    assert_eq!((crc(&record), crc(&payload)), (header.record_crc, header.payload_crc));
    Ok((header, record, payload.freeze()))
}

/// Answers the request `asked`: one system call unless the socket is full.
fn write<R: Record>(
    mut stream: &TcpStream,
    asked: &FrameHeader,
    record: &R,
    payload: &Buf,
) -> io::Result<()> {
    let record = wire::to_bytes(record);
    let header = FrameHeader {
        version: VERSION,
        kind: R::KIND,
        request: asked.request,
        cluster: CLUSTER,
        epoch: asked.epoch,
        flags: Flags::REPLY,
        record_len: record.len() as u32,
        payload_len: payload.len() as u32,
        record_crc: crc(&record),
        payload_crc: crc(payload),
        bulk: 0,
        tag: Tag::default(),
    };
    let mut head = header.encode().to_vec();
    head.extend_from_slice(&record);
    let (mut at, all) = (0, head.len() + payload.len());
    while at < all {
        let pieces = [&head[at.min(head.len())..], &payload[at.saturating_sub(head.len())..]];
        match stream.write_vectored(&pieces.map(IoSlice::new))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            wrote => at += wrote,
        }
    }
    Ok(())
}
