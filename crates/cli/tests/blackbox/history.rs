//! Every block behaves as one register for all mounts of a volume: two mounts write and read the same blocks while
//! daemons and mounts are killed and stopped, and the history of each block is checked.
//!
//! Each write carries a stamp of its own, so the check is exact (Gibbons and Korach, "Testing shared memories", 1997):
//! a write with its reads is a cluster, from the earliest end of one of them to the latest begin. A history is
//! linearizable if no read ends before its write begins, no two clusters whose end lies before their begin overlap, and
//! no other cluster lies within such a one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use crate::fixture::{Fixture, Prng, kill_now};
use crate::nemesis::{Plan, is_long, stop_for, under_nemesis};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 24;

/// An operation on a block. Times in nanoseconds of one clock.
#[derive(Clone, Debug)]
struct Event {
    block: u64,
    /// The mount that it went through.
    mount: usize,
    /// The stamp written, or read.
    stamp: u64,
    write: bool,
    begin: u64,
    /// When it was answered; never, if it failed: then it may have happened, or happen later.
    end: u64,
}

/// Never.
const OPEN: u64 = u64::MAX;
/// Stands for a page that has bytes of several writes.
const TORN: u64 = u64::MAX;

/// Says why a history of one block is not that of a register which was 0 at first.
fn check(events: &[Event]) -> Result<(), String> {
    /// Earliest end and latest begin of a write and its reads.
    #[derive(Clone, Copy, Debug)]
    struct Cluster {
        first_end: u64,
        last_begin: u64,
    }
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    clusters.insert(0, Cluster { first_end: 0, last_begin: 0 });
    let mut begins: BTreeMap<u64, u64> = BTreeMap::from([(0, 0)]);
    for event in events.iter().filter(|event| event.write) {
        clusters.insert(event.stamp, Cluster { first_end: event.end, last_begin: event.begin });
        begins.insert(event.stamp, event.begin);
    }
    for read in events.iter().filter(|event| !event.write && event.end != OPEN) {
        let cluster = clusters.get_mut(&read.stamp).ok_or(format!("{read:?}: nobody has written that"))?;
        if begins.get(&read.stamp).is_some_and(|begin| *begin > read.end) {
            return Err(format!("{read:?}: read before it was written"));
        }
        cluster.first_end = cluster.first_end.min(read.end);
        cluster.last_begin = cluster.last_begin.max(read.begin);
    }
    // A write that failed may never have happened: it does not count if nobody has read it.
    let (forward, backward): (Vec<_>, Vec<_>) = clusters
        .iter()
        .filter(|(_, cluster)| cluster.first_end != OPEN)
        .partition(|(_, cluster)| cluster.first_end < cluster.last_begin);
    let mut forward: Vec<(u64, u64, u64)> =
        forward.into_iter().map(|(stamp, c)| (c.first_end, c.last_begin, *stamp)).collect();
    forward.sort_unstable();
    if let Some(pair) = forward.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        return Err(format!("stamps {} and {} were there in turns", pair[0].2, pair[1].2));
    }
    for (stamp, cluster) in backward {
        let around =
            forward.iter().find(|(from, to, _)| *from < cluster.last_begin && cluster.first_end < *to);
        if let Some((_, _, other)) = around {
            return Err(format!("stamp {stamp} came and went while {other} was there"));
        }
    }
    Ok(())
}

/// Leaves out reads that overlap in time with a write through the same mount: the kernel shows bytes of a page that is
/// being written, and no brick has them yet.
fn without_reads_beside_writes(events: &[Event]) -> Vec<Event> {
    let beside = |read: &Event| {
        let meets = |write: &Event| write.begin < read.end && read.begin < write.end;
        events.iter().any(|event| event.write && event.mount == read.mount && meets(event))
    };
    events.iter().filter(|event| event.write || !beside(event)).cloned().collect()
}

/// Someone who works through one mount.
struct Worker<'a> {
    path: PathBuf,
    mount: usize,
    file: Option<File>,
    /// For `open`.
    flags: i32,
    prng: Prng,
    clock: &'a Instant,
    /// Numbers of its own: no other worker has them.
    stamps: u64,
    events: &'a Mutex<Vec<Event>>,
    /// Whether its mount may die.
    mortal: bool,
    /// Whether its reads may find half a write that goes on at the same time.
    cached: bool,
    longest: Duration,
}

fn page(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().iter().copied().cycle().take(BLOCK).collect()
}

impl Worker<'_> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn run(&mut self, until: Duration) {
        while self.clock.elapsed() < until {
            let Some(file) = self.file.take() else {
                let mut options = OpenOptions::new();
                self.file = options.read(true).write(true).custom_flags(self.flags).open(&self.path).ok();
                assert!(self.mortal || self.file.is_some(), "the file can be opened");
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let block = self.prng.below(BLOCKS);
            let write = self.prng.below(2) == 0;
            let begin = self.now();
            let done = if write { self.write(&file, block, begin) } else { self.read(&file, block, begin) };
            self.longest = self.longest.max(Duration::from_nanos(self.now() - begin));
            match done {
                Ok(()) => self.file = Some(file),
                Err(error) => assert!(self.mortal, "block {block}, write {write}: {error}"),
            }
        }
    }

    fn note(&self, block: u64, stamp: u64, write: bool, begin: u64, end: u64) {
        let event = Event { block, mount: self.mount, stamp, write, begin, end };
        self.events.lock().expect("nobody panics with it").push(event);
    }

    fn write(&mut self, file: &File, block: u64, begin: u64) -> std::io::Result<()> {
        self.stamps += 1;
        let stamp = self.stamps;
        let done = file.write_all_at(&page(stamp), block * BLOCK as u64);
        self.note(block, stamp, true, begin, if done.is_ok() { self.now() } else { OPEN });
        done
    }

    fn read(&self, file: &File, block: u64, begin: u64) -> std::io::Result<()> {
        let mut bytes = [0; BLOCK];
        file.read_exact_at(&mut bytes, block * BLOCK as u64)?;
        let end = self.now();
        let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let whole = bytes[..] == page(stamp)[..];
        assert!(whole || self.cached, "block {block}: a page of two writes");
        // Of what is torn the check must know, unless a write goes on beside it.
        let stamp = if whole { stamp } else { TORN };
        self.note(block, stamp, false, begin, end);
        Ok(())
    }
}

/// Two workers on each of two mounts. Both mounts are stopped for a while now and then; if `kill_mount`, the second one
/// also for longer than its lease, or it is killed and made again.
fn run(name: &str, plan: &Plan, time: Duration, kill_mount: bool, flags: i32) {
    let cached = flags & libc::O_DIRECT == 0;
    let fixture = Fixture::new(name);
    fixture.up(6, "4+2", "512M");
    let mounts = [fixture.mount("a"), fixture.mount("b")];
    let file = File::create(mounts[0].join("file")).expect("a file");
    file.write_all_at(&vec![0; BLOCK * BLOCKS as usize], 0).expect("zeros");
    file.sync_all().expect("stable");
    drop(file);
    let (clock, events) = (Instant::now(), Mutex::new(Vec::new()));
    let worker = |number: u64, mount: usize| Worker {
        path: mounts[mount].join("file"),
        mount,
        file: None,
        flags,
        prng: Prng::new(number + 1),
        clock: &clock,
        stamps: number << 32,
        events: &events,
        mortal: kill_mount && mount == 1,
        cached,
        longest: Duration::ZERO,
    };
    let (longest, faults) = under_nemesis(&fixture, plan, 5, || {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|number| {
                    let mut worker = worker(number + 1, number as usize / 2);
                    scope.spawn(move || {
                        worker.run(time);
                        (!worker.mortal, worker.longest)
                    })
                })
                .collect();
            let mut prng = Prng::new(17);
            while clock.elapsed() + Duration::from_secs(8) < time {
                thread::sleep(Duration::from_secs(2));
                strike_mount(&fixture, &mounts, kill_mount, &mut prng);
            }
            let ends = workers.into_iter().map(|worker| worker.join().expect("a worker"));
            ends.max().map(|(_, longest)| longest).expect("workers")
        })
    });
    let events = events.into_inner().expect("nobody panicked");
    let mut blocks: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    events.iter().for_each(|event| blocks.entry(event.block).or_default().push(event.clone()));
    println!(
        "{name}: {} operations on {} blocks, {faults} faults, the longest took {longest:?}",
        events.len(),
        blocks.len()
    );
    for (block, events) in &blocks {
        let checked = if cached { check(&without_reads_beside_writes(events)) } else { check(events) };
        if let Err(why) = checked {
            let dump: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            let path = std::env::temp_dir().join(format!("shoal-history-{}.txt", std::process::id()));
            std::fs::write(&path, dump.join("\n")).expect("a dump");
            panic!("block {block} is no register: {why}; the history is in {}", path.display());
        }
    }
    assert!(events.len() > 500, "{} operations", events.len());
    assert!(longest < plan.pause_max(), "a call took {longest:?}");
    fixture.verified();
}

/// Stops one of the mounts for less than its lease, or makes the second one lose what it has.
fn strike_mount(fixture: &Fixture, mounts: &[PathBuf; 2], mortal: bool, prng: &mut Prng) {
    let longest = if is_long() { 30_000 } else { 6_000 };
    match prng.below(4) {
        0 if mortal => again(fixture, &mounts[1]),
        1 if mortal => stop_for(fixture.mount_pid(&mounts[1]), 4000 + prng.below(longest - 4000)),
        _ => stop_for(fixture.mount_pid(&mounts[prng.below(2) as usize]), 100 + prng.below(1000)),
    }
}

/// Kills the daemon of a mount, and mounts again at the same place.
fn again(fixture: &Fixture, mount: &Path) {
    kill_now(fixture.mount_pid(mount));
    nix::mount::umount2(mount, nix::mount::MntFlags::MNT_DETACH).expect("a dead mount goes");
    fixture.mount(mount.file_name().and_then(|name| name.to_str()).expect("a name"));
}

fn time() -> Duration {
    Duration::from_secs(if is_long() { 300 } else { 20 })
}

#[test]
fn a_block_is_a_register_under_a_nemesis() {
    run("history", &Plan::harsh(6), time(), false, libc::O_DIRECT);
}

#[test]
fn a_block_is_a_register_while_a_mount_dies() {
    run("history-mount", &Plan::harsh(6), time(), true, libc::O_DIRECT);
}

/// Through the page cache. A handle that was opened while its mount had the file alone keeps using the cache when
/// others open the file too.
#[test]
fn a_block_is_a_register_through_the_page_cache() {
    run("history-cache", &Plan::harsh(6), time(), true, 0);
}

fn event(stamp: u64, write: bool, begin: u64, end: u64) -> Event {
    Event { block: 0, mount: 0, stamp, write, begin, end }
}

#[test]
fn the_checker_knows_registers() {
    let (w, r) = (true, false);
    let good: [&[Event]; 5] = [
        &[event(1, w, 1, 2), event(1, r, 3, 4)],
        // A write that is under way may be seen or not, in an order.
        &[event(1, w, 1, 9), event(0, r, 2, 3), event(1, r, 4, 5)],
        // Two at a time come in either order.
        &[event(1, w, 1, 9), event(2, w, 1, 9), event(2, r, 10, 11)],
        // One that failed takes effect late, or never.
        &[event(1, w, 1, OPEN), event(0, r, 5, 6), event(1, r, 7, 8)],
        &[event(1, w, 1, OPEN), event(2, w, 2, 3), event(2, r, 7, 8)],
    ];
    for (number, history) in good.iter().enumerate() {
        assert_eq!(check(history), Ok(()), "good {number}");
    }
    let torn = [event(1, w, 1, 4), event(TORN, r, 3, 5)];
    assert_eq!(check(&without_reads_beside_writes(&torn)), Ok(()));
    let elsewhere = Event { mount: 1, ..event(TORN, r, 3, 5) };
    assert!(check(&without_reads_beside_writes(&[event(1, w, 1, 4), elsewhere])).is_err());
    let bad: [&[Event]; 6] = [
        &[event(7, r, 1, 2)],
        &[event(1, w, 1, 2), event(0, r, 3, 4)],
        &[event(1, w, 5, 6), event(1, r, 1, 2)],
        // Back to the older one.
        &[event(1, w, 1, 9), event(1, r, 2, 3), event(0, r, 4, 5)],
        &[event(1, w, 1, 2), event(2, w, 3, 4), event(1, r, 5, 6)],
        // There, away, there again.
        &[event(1, w, 1, 2), event(2, w, 1, OPEN), event(2, r, 3, 4), event(1, r, 5, 6), event(2, r, 7, 8)],
    ];
    for (number, history) in bad.iter().enumerate() {
        assert!(check(history).is_err(), "bad {number}");
    }
}
