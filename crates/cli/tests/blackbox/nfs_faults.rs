//! An NFS client that writes again when the verifier changes loses nothing: gates are killed and stopped under writers,
//! clients vanish or send garbage, and what was committed is compared.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Pack;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::{Fixture, Prng, kill_now, wait_for, within};
use crate::nfs::Gate;
use crate::nfs_client::{NfsClient, NfsResult, ROOT, writing};

const BLOCK: usize = 64 << 10;

/// A writer as the kernel's client is one: it keeps what is not committed, and writes it again if the verifier changes.
struct Careful {
    file: nfs_fh3,
    /// Written and not committed: bytes and the verifier that came back, by block.
    pending: BTreeMap<u64, (Vec<u8>, u64)>,
    /// What must be in the file.
    right: BTreeMap<u64, Vec<u8>>,
    rewritten: u64,
}

impl Careful {
    fn write(&mut self, nfs: &mut NfsClient, block: u64, bytes: Vec<u8>) -> std::io::Result<()> {
        let at = block * BLOCK as u64;
        let done = patiently(|| nfs.try_write(&self.file, at, &bytes, stable_how::UNSTABLE))?;
        self.pending.insert(block, (bytes, u64::from_be_bytes(done.verf.0)));
        Ok(())
    }

    fn commit(&mut self, nfs: &mut NfsClient) -> std::io::Result<()> {
        loop {
            let verifier = patiently(|| nfs.try_commit(&self.file))?;
            let stable = |_: &u64, (_, written): &mut (Vec<u8>, u64)| *written == verifier;
            for (block, (bytes, _)) in self.pending.extract_if(.., stable) {
                self.right.insert(block, bytes);
            }
            if self.pending.is_empty() {
                return Ok(());
            }
            for (block, (bytes, _)) in self.pending.clone() {
                self.rewritten += 1;
                self.write(nfs, block, bytes)?;
            }
        }
    }

    fn check(&self, bytes: &[u8]) {
        for (block, right) in &self.right {
            let at = *block as usize * BLOCK;
            assert!(bytes.get(at..at + BLOCK) == Some(right), "block {block} is not what was committed");
        }
    }
}

/// Asks until the gate does not say `later`, as clients do.
fn patiently<T>(mut ask: impl FnMut() -> std::io::Result<NfsResult<T>>) -> std::io::Result<T> {
    for _ in 0..300 {
        match ask()? {
            Err(nfsstat3::NFS3ERR_JUKEBOX) => thread::sleep(Duration::from_millis(200)),
            done => return Ok(done.expect("it is carried out")),
        }
    }
    panic!("the gate says `later` for a minute");
}

/// A gate that still joins has nothing to end in order.
#[test]
fn a_gate_that_starts_can_be_stopped() {
    let fixture = Fixture::new("gate-starts");
    fixture.up(3, "2+1", "128M");
    fixture.must(&["volume", "create", "disk", "--block", "64M", "--code", "2+1", "--same-node"]);
    let meta = Pid::from_raw(fixture.pid("meta"));
    for (gate, volume) in [("nfs", "main"), ("nbd", "disk")] {
        kill(meta, Signal::SIGSTOP).expect("the service runs");
        let words = [gate, volume, "--listen", "127.0.0.1:0", "--foreground"];
        let pid = fixture.daemon(gate, &words);
        assert!(wait_for(Duration::from_secs(10), || blocks_sigterm(pid)), "{gate} begins");
        // It asks the metadata service, which does not answer.
        thread::sleep(Duration::from_millis(300));
        kill(Pid::from_raw(pid as i32), Signal::SIGTERM).expect("the gate runs");
        kill(meta, Signal::SIGCONT).expect("the service is there");
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let ends = wait_for(Duration::from_secs(30), || stat().contains(") Z "));
        assert!(ends, "the {gate} gate goes on:\n{}", fixture.said(gate));
    }
}

/// Whether a process has a thread of its own for the signals that ask it to end.
fn blocks_sigterm(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 << (Signal::SIGTERM as u64 - 1) != 0)
}

#[test]
fn nothing_is_lost_when_a_gate_is_killed_under_load() {
    let fixture = Fixture::new("nfs-kill");
    fixture.up(4, "2+2", "1G");
    // A port that the kernel gives to no client: one that asks for a dead gate could connect to itself, and keep it.
    let at = format!("127.0.0.1:{}", 30_000 + std::process::id() % 2_000);
    let gate = fixture.nfs_at("gate-0", &at, &["--no-root-squash"]);
    let address = gate.address;
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "file", 0o644);
    nfs.write(&file, 0, &[1; 100], stable_how::UNSTABLE).expect("a write");
    let before = nfs.commit(&file).expect("a commit");
    let uncommitted = nfs.write(&file, 0, &[2; 100], stable_how::UNSTABLE).expect("a write");
    assert_eq!(uncommitted, before, "nothing has happened yet");
    kill_now(gate.pid);
    let next = fixture.nfs_at("gate-1", &address.to_string(), &["--no-root-squash"]);
    let mut nfs = next.client(ROOT);
    assert_ne!(
        nfs.commit(&file).expect("a commit"),
        before,
        "the client must learn that its bytes may be gone"
    );
    let seen = nfs.read_all(&file);
    assert!(seen == [1; 100] || seen == [2; 100], "what was committed is there");

    let (over, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let connect = || {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match NfsClient::connect(address, ROOT) {
                Ok(nfs) => return nfs,
                Err(error) => assert!(Instant::now() < end, "no gate comes back: {error}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    let load = |number: u64| {
        let mut nfs = connect();
        let root = nfs.mount("/main").expect("the volume");
        let file = nfs.file(&root, &format!("load-{number}"), 0o644);
        let mut careful = Careful { file, pending: BTreeMap::new(), right: BTreeMap::new(), rewritten: 0 };
        let mut prng = Prng::new(number + 5);
        while !over.load(Ordering::Relaxed) {
            let (block, bytes) = (prng.below(40), prng.bytes(BLOCK));
            let blocks = 1 + prng.below(6);
            let step = |careful: &mut Careful, nfs: &mut NfsClient| {
                if careful.pending.len() as u64 >= blocks {
                    careful.commit(nfs)?;
                    commits.fetch_add(1, Ordering::Relaxed);
                }
                careful.write(nfs, block, bytes.clone())
            };
            while step(&mut careful, &mut nfs).is_err() {
                nfs = connect();
            }
        }
        while careful.commit(&mut nfs).is_err() {
            nfs = connect();
        }
        careful
    };
    let writers = within(Duration::from_secs(100), "writers at a gate that is killed", || {
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3).map(|number| scope.spawn(move || load(number))).collect();
            let mut gate = next;
            for life in 2..4 {
                let enough = commits.load(Ordering::Relaxed) + 6;
                let working = || commits.load(Ordering::Relaxed) >= enough;
                assert!(wait_for(Duration::from_secs(40), working), "the writers go on");
                kill_now(gate.pid);
                gate = fixture.nfs_at(&format!("gate-{life}"), &address.to_string(), &["--no-root-squash"]);
            }
            let enough = commits.load(Ordering::Relaxed) + 6;
            let working = || commits.load(Ordering::Relaxed) >= enough;
            assert!(wait_for(Duration::from_secs(40), working), "the writers go on");
            over.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect::<Vec<_>>()
        })
    });
    assert!(writers.iter().map(|writer| writer.rewritten).sum::<u64>() > 0, "somebody wrote again");
    let mount = fixture.mount("mnt");
    for (number, writer) in writers.iter().enumerate() {
        writer.check(&fs::read(mount.join(format!("load-{number}"))).expect("the file"));
    }
    fixture.verified();
}

/// A gate that stood still for longer than its lease has lost what was not committed. It goes on, and says so.
#[test]
fn a_gate_that_stood_still_goes_on_with_another_verifier() {
    let fixture = Fixture::new("nfs-lease");
    fixture.up(3, "2+1", "512M");
    let (gate, other) = (fixture.nfs("a", &["--no-root-squash"]), fixture.nfs("b", &["--no-root-squash"]));
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "file", 0o644);
    nfs.write(&file, 0, &[1; BLOCK], stable_how::FILE_SYNC).expect("a write");
    let before = nfs.write(&file, 0, &[2; BLOCK], stable_how::UNSTABLE).expect("a write");
    kill(Pid::from_raw(gate.pid), Signal::SIGSTOP).expect("the gate runs");
    // The open waits until the first one's lease has run out.
    let mut theirs = other.client(ROOT);
    theirs.write(&file, BLOCK as u64, &[3; BLOCK], stable_how::FILE_SYNC).expect("the other gate's turn");
    kill(Pid::from_raw(gate.pid), Signal::SIGCONT).expect("the gate is there");
    let after = nfs.commit(&file).expect("the gate goes on");
    assert_ne!(after, before, "the client must learn that its bytes may be gone");
    // Until the gate has its new lease the verifier may change once more.
    let kept = |_| {
        let again = nfs.write(&file, 0, &[2; BLOCK], stable_how::UNSTABLE).expect("once more");
        nfs.commit(&file).expect("a commit") == again
    };
    assert!((0..3).any(kept), "the client's bytes are kept");
    let right = [[2; BLOCK], [3; BLOCK]].concat();
    assert!(nfs.read_all(&file) == right && theirs.read_all(&file) == right);
}

#[test]
fn hostile_bytes_and_clients_that_vanish_do_no_harm() {
    let fixture = Fixture::new("nfs-noise");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash", "--connections", "60"]);
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "file", 0o644);
    let right = Prng::new(3).bytes(700_000);
    nfs.write(&file, 0, &right, stable_how::FILE_SYNC).expect("a write");
    let before = resident(&gate);
    let idle = noise(&gate);
    // All come from one address, so that this one, which was idle for longest, has made room.
    let mut nfs = gate.client(ROOT);
    let dir = nfs.mkdir(&root, "dir", 0o755).expect("a directory");
    let victim = nfs.file(&dir, "victim", 0o644);
    let link = nfs.symlink(&dir, "link", "victim").expect("a link");
    extremes(&gate, &[&dir, &victim, &link]);
    vanish(&gate, &file);
    let mut nfs = gate.client(ROOT);
    assert!(within(Duration::from_secs(60), "a read after the noise", || nfs.read_all(&file)) == right);
    // Each of those that stay is owed no more than the record that it has begun.
    let grown = resident(&gate).saturating_sub(before);
    assert!(grown < 160 << 20, "{} MiB more", grown >> 20);
    drop(idle);

    // Of more clients than one address may have, those that were idle for longest make room.
    let mut crowd: Vec<_> = (0..70).map(|_| gate.client(ROOT)).collect();
    assert!(wait_for(Duration::from_secs(10), || gate.client(ROOT).try_commit(&file).is_ok()));
    let served = crowd.iter_mut().filter_map(|nfs| nfs.try_commit(&file).ok()).count();
    assert!((1..=45).contains(&served), "{served} of 70 clients");
    drop(crowd);
    assert!(wait_for(Duration::from_secs(10), || gate.client(ROOT).try_commit(&file).is_ok()));
    let unfinished = noise(&gate);
    fixture.stop_nfs(&gate);
    drop(unfinished);
    // Also the end waits for nobody who has begun a request and goes no further.
    fixture.check_logs(&["one client too many"]);
}

fn resident(gate: &Gate) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", gate.pid)).expect("the gate runs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

/// Connections with noise of several kinds; some of them stay.
fn noise(gate: &Gate) -> Vec<NfsClient> {
    let mut prng = Prng::new(71);
    let mut idle = Vec::new();
    for round in 0..120u32 {
        let mut client = gate.client(ROOT);
        client.conn.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let len = 1 + prng.below(6000) as usize;
        let mut bytes = prng.bytes(len);
        let mark = match round % 4 {
            // Noise from the start.
            0 => None,
            // A record that says how long it is, and is not.
            1 => Some(0x8000_0000 | (1 << 20)),
            // The longest that there is.
            2 => Some(0xffff_ffff),
            // A record of noise.
            _ => Some(0x8000_0000 | len as u32),
        };
        if round % 8 == 3 {
            // As much like a call as noise can be.
            let call = client.record(PROGRAM, round % 23, &nfs3_types::xdr_codec::Void);
            let head = call.len() - 4;
            bytes.splice(..head.min(bytes.len()), call[4..][..head.min(len)].iter().copied());
        }
        // The gate may hang up in the middle.
        let _ = mark.map(|mark: u32| client.conn.write_all(&mark.to_be_bytes()));
        let _ = client.conn.write_all(&bytes);
        let _ = client.conn.read(&mut [0; 64]);
        if round % 4 == 1 && idle.len() < 20 {
            idle.push(client);
        }
    }
    idle
}

/// Calls of every procedure whose handles are good, and nothing else is: lengths, offsets, counts and cookies at their ends.
fn extremes(gate: &Gate, handles: &[&nfs_fh3]) {
    let mut prng = Prng::new(72);
    for round in 0..60 {
        for procedure in 0..=22 {
            let mut client = gate.client(ROOT);
            client.conn.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
            let mut call = client.record(PROGRAM, procedure, &nfs3_types::xdr_codec::Void);
            for _ in 0..1 + round % 2 {
                handles[prng.below(handles.len() as u64) as usize].pack(&mut call).expect("it fits");
            }
            for _ in 0..prng.below(14) {
                let ends = [0, 1, 2, 4, 255, 4096, 1 << 20, i32::MAX as u32, u32::MAX - 1, u32::MAX];
                call.extend(ends[prng.below(ends.len() as u64) as usize].to_be_bytes());
            }
            let mark = 0x8000_0000 | (call.len() - 4) as u32;
            call[..4].copy_from_slice(&mark.to_be_bytes());
            // The gate may hang up in the middle, and it may wait for more.
            let _ = client.conn.write_all(&call);
            let _ = client.conn.read(&mut [0; 64]);
        }
    }
}

/// Clients that do not take their answers hold all the room that there is for large ones. The others still get small ones.
#[test]
fn clients_that_take_no_answers_hold_nobody_up() {
    let fixture = Fixture::new("nfs-deaf");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash", "--threads", "1", "--memory", "64M"]);
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "file", 0o644);
    let right = Prng::new(3).bytes(1 << 20);
    nfs.write(&file, 0, &right, stable_how::FILE_SYNC).expect("a write");
    let read = |count| READ3args { file: file.clone(), offset: 0, count };
    // Large answers first, and then smaller ones for what room is left.
    let mut deaf = Vec::new();
    for (clients, answers, count) in [(8, 40, 1 << 20), (2, 800, 32 << 10)] {
        for _ in 0..clients {
            let mut client = gate.client(ROOT);
            for _ in 0..answers {
                client.send(NFS_PROGRAM::NFSPROC3_READ, &read(count)).expect("the gate listens");
            }
            deaf.push(client);
        }
        // Until nothing more of theirs moves.
        thread::sleep(Duration::from_millis(700));
    }
    for round in 0..20u8 {
        nfs.write(&file, 0, &[round; 100], stable_how::UNSTABLE).expect("a small write");
        for _ in 0..2 {
            nfs.send(NFS_PROGRAM::NFSPROC3_READ, &read(60 << 10)).expect("the gate listens");
        }
        (0..2).for_each(|_| drop(nfs.receive().expect("a small answer")));
    }
    // Nobody's connection has been ended for it: whose has been hears so when it says something.
    for client in &mut deaf {
        client.send(NFS_PROGRAM::NFSPROC3_NULL, &nfs3_types::xdr_codec::Void).expect("the gate listens");
    }
    thread::sleep(Duration::from_millis(100));
    let ended = deaf.iter().filter(|client| !matches!(client.conn.take_error(), Ok(None))).count();
    assert_eq!(ended, 0, "connections had to end before others went on");
    fixture.check_logs(&[]);
}

/// A client gives its connection up while writes hang, has one of them carried out on another connection, and then writes
/// something else there. The gate has read the first one, but it must not begin it any more.
#[test]
fn a_write_that_waited_for_a_client_that_went_is_not_carried_out() {
    const AT: u64 = 1 << 20;
    let fixture = Fixture::new("nfs-late");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "file", 0o644);
    nfs.write(&file, AT, &[0; 4096], stable_how::FILE_SYNC).expect("a write");
    let bricks = [1, 2, 3].map(|brick| Pid::from_raw(fixture.pid(&format!("b{brick}"))));
    let all = |signal| bricks.iter().for_each(|brick| kill(*brick, signal).expect("the brick runs"));
    all(Signal::SIGSTOP);
    let mut leaving = gate.client(ROOT);
    // As many as are carried out at a time, each of which waits for the bricks, and behind them the one that matters.
    for _ in 0..64 {
        let write = writing(&file, 0, &[9; 4096], stable_how::FILE_SYNC);
        leaving.send(NFS_PROGRAM::NFSPROC3_WRITE, &write).expect("the gate listens");
    }
    let old = writing(&file, AT, &[1; 4096], stable_how::UNSTABLE);
    leaving.send(NFS_PROGRAM::NFSPROC3_WRITE, &old).expect("the gate listens");
    thread::sleep(Duration::from_millis(300));
    drop(leaving);
    for byte in [1, 2] {
        nfs.write(&file, AT, &[byte; 4096], stable_how::UNSTABLE).expect("a write that waits for nobody");
    }
    all(Signal::SIGCONT);
    nfs.commit(&file).expect("the bricks are back");
    // What was begun on the first connection comes to its end.
    thread::sleep(Duration::from_secs(1));
    let found = nfs.read(&file, AT, 4096).expect("a read").0;
    assert!(found == [2; 4096], "an old write came after a newer one: {}", found[0]);
    fixture.verified();
}

/// Clients that go in the middle of a request, or do not take the answers.
fn vanish(gate: &Gate, file: &nfs_fh3) {
    for _ in 0..10 {
        let mut client = gate.client(ROOT);
        let record = client.record(PROGRAM, 7, &writing(file, 1 << 20, &[9; 300_000], stable_how::UNSTABLE));
        client.conn.write_all(&record[..200_000]).expect("the gate listens");
    }
    for _ in 0..10 {
        let mut client = gate.client(ROOT);
        for _ in 0..40 {
            let read = READ3args { file: file.clone(), offset: 0, count: 1 << 20 };
            client.send(NFS_PROGRAM::NFSPROC3_READ, &read).expect("the gate listens");
        }
    }
}
