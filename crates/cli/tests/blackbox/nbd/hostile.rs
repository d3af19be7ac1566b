//! A client that breaks the rules, or goes away in the middle, hurts only itself: each sends something wrong, and
//! another client's bytes are compared.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{Gate, MIB, nbdsh, run};
use crate::fixture::{Fixture, wait_for};

/// A connection that speaks the protocol only as long as it wants to.
struct Raw(UnixStream);

impl Raw {
    fn connect(gate: &Gate) -> Raw {
        let stream = UnixStream::connect(&gate.socket).expect("the gate listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a patience");
        let mut raw = Raw(stream);
        assert_eq!(&raw.take(18).expect("a greeting")[..16], b"NBDMAGICIHAVEOPT");
        raw
    }

    /// With the export, as old clients get it.
    fn enter(gate: &Gate) -> Raw {
        let mut raw = Raw::connect(gate);
        raw.put(&3u32.to_be_bytes());
        raw.option(1, b"vm");
        assert_eq!(raw.take(10).expect("the export").len(), 10);
        raw
    }

    fn put(&mut self, bytes: &[u8]) {
        // The other end may have had enough.
        let _ = self.0.write_all(bytes);
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        let head = [b"IHAVEOPT", &option.to_be_bytes()[..], &(data.len() as u32).to_be_bytes()].concat();
        self.put(&[&head, data].concat());
    }

    fn request(&mut self, kind: u16, flags: u16, offset: u64, len: u32) {
        let (kind, flags) = (kind.to_be_bytes(), flags.to_be_bytes());
        let head = [&[0x25, 0x60, 0x95, 0x13][..], &flags, &kind, &[7; 8]].concat();
        self.put(&[&head[..], &offset.to_be_bytes(), &len.to_be_bytes()].concat());
    }

    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// The error number of a simple reply.
    fn error(&mut self) -> u32 {
        let reply = self.take(16).expect("a reply");
        assert_eq!((&reply[..4], &reply[8..]), (&[0x67, 0x44, 0x66, 0x98][..], &[7; 8][..]));
        u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"))
    }

    /// The gate has closed the connection.
    fn closes(mut self) -> bool {
        let mut rest = Vec::new();
        !matches!(self.0.read_to_end(&mut rest), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn hostile_and_careless_clients_hurt_only_themselves() {
    let fixture = Fixture::new("nbd-hostile");
    fixture.up(3, "2+1", "256M");
    fixture.disk("2+1", "64M");
    let gate = fixture.gate("vm", "gate", &["--connections", "4"]);
    let (end, max) = (64 * MIB, 32 << 20);

    // Before the transmission: unknown flags, no option, an endless option, a name that is no export.
    for bytes in [&9u32.to_be_bytes()[..], &[[0, 0, 0, 3], [7; 4], [7; 4], [7; 4], [7; 4]].concat()] {
        let mut raw = Raw::connect(&gate);
        raw.put(bytes);
        assert!(raw.closes());
    }
    let mut raw = Raw::connect(&gate);
    raw.put(&3u32.to_be_bytes());
    raw.put(&[b"IHAVEOPT", &3u32.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat());
    assert!(raw.closes());
    let mut raw = Raw::connect(&gate);
    raw.put(&3u32.to_be_bytes());
    let name = vec![b'n'; 4096];
    raw.option(7, &[&4096u32.to_be_bytes()[..], &name, &[0, 0]].concat());
    let answer = raw.take(20).expect("an answer");
    assert_eq!(answer[12..16], [0x80, 0, 0, 6], "a name of 4 KiB is unknown");
    let text_len = u32::from_be_bytes(answer[16..20].try_into().expect("four bytes"));
    raw.take(text_len as usize).expect("its text");
    raw.option(1, &name);
    assert!(raw.closes());

    // Requests that are refused, one after the other on one connection, and a sound one after them.
    let mut raw = Raw::enter(&gate);
    let refused = [
        (0, 0, end, 1, 22),
        (0, 0, u64::MAX, 4096, 22),
        (0, 0, 0, max + 1, 22),
        (0, 4, 0, 512, 22),
        (1, 0, end, 512, 28),
        (1, 16, 0, 512, 22),
        (4, 0, end - 1, 2, 22),
        (6, 0, end - 1, 2, 28),
        (7, 0, 0, 512, 22),
        (3, 0, 1, 0, 22),
        (5, 0, 0, 512, 22),
        (77, 0, 0, 512, 22),
    ];
    for (kind, flags, offset, len, code) in refused {
        raw.request(kind, flags, offset, len);
        if kind == 1 {
            raw.put(&vec![1; len as usize]);
        }
        assert_eq!(raw.error(), code, "request {kind} at {offset}");
    }
    raw.request(1, 1, end - 4, 4);
    raw.put(b"last");
    assert_eq!(raw.error(), 0);
    raw.request(0, 0, end - 4, 4);
    assert_eq!((raw.error(), raw.take(4)), (0, Some(b"last".to_vec())));
    // What is no request, and a write that nobody would take.
    raw.put(&[0x55; 28]);
    assert!(raw.closes());
    let mut raw = Raw::enter(&gate);
    raw.request(1, 0, 0, max + 1);
    assert!(raw.closes());

    // Clients that vanish in the middle: of a request, of its bytes, of a reply.
    for _ in 0..8 {
        let mut raw = Raw::enter(&gate);
        raw.put(&[0x25, 0x60]);
        drop(raw);
        let mut raw = Raw::enter(&gate);
        raw.request(1, 0, 0, MIB as u32);
        raw.put(&vec![9; 300_000]);
        drop(raw);
        let mut raw = Raw::enter(&gate);
        (0..32).for_each(|_| raw.request(0, 0, 0, MIB as u32));
        raw.take(16 + 100_000).expect("the beginning of a reply");
        drop(raw);
    }
    nbdsh(&gate.uri, "assert h.pread(2**20, 0) == bytearray(2**20)");

    // One client too many is turned away; another one may come when one has gone.
    let mut four: Vec<Raw> = (0..4).map(|_| Raw::enter(&gate)).collect();
    let mut fifth = UnixStream::connect(&gate.socket).expect("the gate listens");
    assert_eq!(fifth.read(&mut [0; 18]).unwrap_or(0), 0);
    four.pop();
    let again = || run(&["nbdinfo", "--size", &gate.uri]).status.success();
    assert!(wait_for(Duration::from_secs(10), again));
    // They read nothing and hold many requests: the others do not notice.
    for raw in &mut four {
        (0..200).for_each(|_| raw.request(0, 0, 0, 256 << 10));
    }
    nbdsh(&gate.uri, "h.pwrite(b'x' * 2**20, 2**20); h.flush(); assert h.pread(1, 2**20) == b'x'");
    let status = fs::read_to_string(format!("/proc/{}/status", gate.pid)).expect("the gate lives");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < 256 << 10, "{kib} KiB are resident");
    // The gate ends although they do not read.
    fixture.stop_gate("vm", &gate);
    fixture.check_logs(&["a request failed", "one client too many"]);
}
