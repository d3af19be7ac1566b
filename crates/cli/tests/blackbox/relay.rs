//! A process between two daemons that passes on what both say, and has no key. It notes how each handshake ends, and can put something
//! of its own among the frames.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use types::messages::session::{Hello, Meant, NetProbe, NetProbed, Proved, Role};
use types::wire::{self, Flags, FrameHeader, HEADER_LEN, Record, VERSION};
use types::{ClusterId, Epoch};

/// The request id of frames that are the relay's own.
const OWN: u64 = u64::MAX - 7;
/// How long the relay waits for a port that a dead daemon had, and for bytes.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the handshake of a caller went.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    pub(crate) caller: Role,
    pub(crate) meant: Meant,
    /// Whether the server has accepted the caller.
    pub(crate) is_proved: bool,
}

/// What the relay does with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgery {
    /// It is passed on, and one of the relay's own follows.
    Add,
    /// One bit of it is changed.
    Change,
    /// It is passed on twice.
    Repeat,
}

/// Where a forged frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Caller,
    Server,
}

/// A forgery that is to be tried once, on a connection of such a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    pub(crate) caller: Role,
    pub(crate) to: To,
    pub(crate) forgery: Forgery,
}

/// What came of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The end that got the frame has closed the connection, and has answered nothing to it.
    Closed,
    /// The frame was answered.
    Answered,
    /// The connection is still open.
    Open,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    connections: AtomicUsize,
    handshakes: Mutex<Vec<Handshake>>,
    attack: Mutex<Option<Attack>>,
    outcome: Mutex<Option<Outcome>>,
}

/// See the module. Ends when dropped.
pub(crate) struct Relay {
    pub(crate) address: String,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// Listens at `address`, as soon as it is free, and passes connections on to each of `servers` in turn.
    pub(crate) fn new(address: &str, servers: &[&str]) -> Relay {
        let began = Instant::now();
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{address}: {error}"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        let address = listener.local_addr().expect("it is bound").to_string();
        let shared = Arc::<Shared>::default();
        let (on, servers) = (shared.clone(), servers.iter().map(|server| server.to_string()).collect());
        let listener = Some(thread::spawn(move || accept(&listener, servers, &on)));
        Relay { address, shared, listener }
    }

    /// The handshakes so far that have come to their end.
    pub(crate) fn handshakes(&self) -> Vec<Handshake> {
        lock(&self.shared.handshakes).clone()
    }

    /// Tries a forgery on the next connection that fits; `work` makes daemons use it. `None` if no frame came that could be forged.
    pub(crate) fn attack(&self, attack: Attack, work: impl Fn()) -> Option<Outcome> {
        *lock(&self.shared.outcome) = None;
        *lock(&self.shared.attack) = Some(attack);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            work();
            if let Some(outcome) = *lock(&self.shared.outcome) {
                return Some(outcome);
            }
            thread::sleep(Duration::from_millis(20));
        }
        // Nobody has taken it up, or the connection stays open.
        lock(&self.shared.attack).take().is_none().then_some(Outcome::Open)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(&self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn accept(listener: &TcpListener, servers: Vec<String>, shared: &Arc<Shared>) {
    while let Ok((caller, _)) = listener.accept() {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        let (server, shared) = (servers[number % servers.len()].clone(), shared.clone());
        // An end that goes away ends the connection, and that is all.
        thread::spawn(move || drop(attend(caller, server, &shared)));
    }
}

/// A frame as it was received.
struct Received {
    header: FrameHeader,
    bytes: Vec<u8>,
}

impl Received {
    fn record(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..HEADER_LEN + self.header.record_len as usize]
    }
}

fn receive(from: &mut TcpStream, shared: &Shared) -> io::Result<Received> {
    let mut head = [0; HEADER_LEN];
    fill(from, &mut head, shared)?;
    let header = FrameHeader::decode(&head).map_err(io::Error::other)?;
    let mut bytes = head.to_vec();
    bytes.resize(HEADER_LEN + header.record_len as usize + header.payload_len as usize, 0);
    fill(from, &mut bytes[HEADER_LEN..], shared)?;
    Ok(Received { header, bytes })
}

/// Reads all of `bytes`, unless the relay ends.
fn fill(from: &mut TcpStream, bytes: &mut [u8], shared: &Shared) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if is_late(&error) && !shared.is_over.load(Ordering::Acquire) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn attend(mut caller: TcpStream, server: String, shared: &Arc<Shared>) -> io::Result<()> {
    let mut on = TcpStream::connect(&server)?;
    for stream in [&caller, &on] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    }
    let first = receive(&mut caller, shared)?;
    let hello: Hello = wire::from_bytes(first.record()).map_err(io::Error::other)?;
    on.write_all(&first.bytes)?;
    caller.write_all(&receive(&mut on, shared)?.bytes)?;
    on.write_all(&receive(&mut caller, shared)?.bytes)?;
    let last = receive(&mut on, shared)?;
    let is_proved = last.header.kind == Proved::KIND && !last.header.flags.is_refusal();
    let Hello { role, meant, .. } = hello;
    lock(&shared.handshakes).push(Handshake { caller: role, meant, is_proved });
    caller.write_all(&last.bytes)?;
    let attacked = Arc::<Mutex<Option<To>>>::default();
    let (from_server, to_caller) = (on.try_clone()?, caller.try_clone()?);
    let answers = {
        let (shared, attacked) = (shared.clone(), attacked.clone());
        thread::spawn(move || pass_on(from_server, to_caller, role, To::Caller, &attacked, &shared))
    };
    pass_on(caller, on, role, To::Server, &attacked, shared);
    let _ = answers.join();
    Ok(())
}

/// Passes frames on in one direction, until an end goes away.
fn pass_on(
    mut from: TcpStream,
    mut on: TcpStream,
    caller: Role,
    to: To,
    attacked: &Mutex<Option<To>>,
    shared: &Shared,
) {
    while let Ok(mut frame) = receive(&mut from, shared) {
        let is_own = frame.header.request == OWN;
        if is_own {
            *lock(&shared.outcome) = Some(Outcome::Answered);
        }
        let mut attack = lock(&shared.attack);
        let forgery = attack.take_if(|attack| attack.caller == caller && attack.to == to);
        drop(attack);
        if let Some(Attack { forgery, .. }) = forgery {
            *lock(attacked) = Some(to);
            match forgery {
                Forgery::Add => frame.bytes.extend(own_frame(frame.header.cluster, to)),
                Forgery::Change => *frame.bytes.last_mut().expect("it has a header") ^= 1,
                Forgery::Repeat => frame.bytes.extend_from_within(..),
            }
        }
        if on.write_all(&frame.bytes).is_err() {
            break;
        }
    }
    // `from` has gone: because of a forged frame, if that came to it, by the other direction. Otherwise nothing follows from its end.
    let forged_to = lock(attacked).take();
    if forged_to.is_some_and(|forged_to| forged_to != to) && !shared.is_over.load(Ordering::Acquire) {
        lock(&shared.outcome).get_or_insert(Outcome::Closed);
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = on.shutdown(Shutdown::Both);
}

/// A frame as somebody without the key can make it: a request that every server would answer, or an answer.
fn own_frame(cluster: ClusterId, to: To) -> Vec<u8> {
    let (kind, flags, record) = match to {
        To::Server => (NetProbe::KIND, Flags::REQUEST, wire::to_bytes(&NetProbe { bytes: 1 })),
        To::Caller => (NetProbed::KIND, Flags::REPLY, wire::to_bytes(&NetProbed { resent: 0 })),
    };
    let header = FrameHeader {
        version: VERSION,
        kind,
        request: OWN,
        cluster,
        epoch: Epoch(0),
        flags,
        record_len: record.len() as u32,
        payload_len: 0,
        record_crc: types::checksum::crc(&record),
        payload_crc: 0,
        bulk: 0,
        tag: Default::default(),
    };
    [&header.encode()[..], &record].concat()
}
