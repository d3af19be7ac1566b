//! A replay of the journal finds everything that was reported durable, and nothing of a dead life: the brick dies in
//! every way, again and again on the same disk, and the records are compared.

use std::rc::Rc;

use proptest::prelude::*;
use types::{BrickId, ClusterId, ObjectId};
use world::sim::{SimOptions, Simulation};

use super::*;
use crate::record::Drop;

const SEGMENTS: u32 = 8;
const SEGMENT: u64 = 16 << 10;

/// A brick with small segments.
fn superblock() -> Superblock {
    Superblock {
        segment: SEGMENT,
        segments: SEGMENTS,
        ..Superblock::lay_out(ClusterId([1; 16]), BrickId(1), [2; 16], 32 << 20, None).expect("large enough")
    }
}

/// A record found by a replay: its unique number and the length of its payload.
type Seen = (u64, usize);

/// Opens the journal of a new life, and spawns its syncer.
async fn open(world: &World, superblock: &Superblock) -> Result<(Rc<Journal>, Vec<Seen>), BrickError> {
    let disk = match world.open_disk("disk").await {
        Ok(disk) => disk,
        Err(_) => world.create_disk("disk", superblock.size).await?,
    };
    let mut seen = Vec::new();
    let journal = Journal::open(disk, superblock, world.random() as u32, async |found: ReplayedRecord| {
        assert_eq!(found.kind, Drop::KIND);
        let record: Drop = types::wire::from_bytes(&found.body).expect("its checksum matched");
        assert_eq!(record.stripes, u64::from(found.position.len));
        seen.push((record.object.0, found.position.len as usize));
        Ok(())
    })
    .await?;
    journal.disk.sync().await?;
    let journal = Rc::new(journal);
    let (syncer, on) = (journal.clone(), world.clone());
    world.spawn("test", async move { syncer.run(on, |_| {}).await });
    Ok((journal, seen))
}

fn payload(number: u64, len: usize) -> Buf {
    Buf::from((0..len).map(|i| (number as usize * 31 + i) as u8).collect::<Vec<u8>>())
}

fn append(journal: &Journal, number: u64, len: usize) -> Appended {
    journal.append(&Drop { object: ObjectId(number), stripes: len as u64 }, &payload(number, len))
}

async fn sync(journal: &Journal) -> u64 {
    journal.request_sync();
    journal.durable(journal.last()).await.expect("the disk works");
    journal.durable_upto()
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Sync,
    /// Frees the oldest segments, so many.
    Free(u64),
    Pause(u64),
    /// Reads a payload back.
    Read(usize),
}

#[derive(Clone, Debug)]
struct Life {
    steps: Vec<Step>,
    /// The power fails, or only the process dies.
    power_cut: bool,
    /// How long after the last step, in microseconds.
    after: u64,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        // Equal lengths are the dangerous ones: what an earlier life left behind lies where the next record would.
        6 => prop_oneof![Just(0usize), Just(100), Just(100), Just(4000), 0..6000usize].prop_map(Step::Append),
        2 => Just(Step::Sync),
        1 => (1u64..4).prop_map(Step::Free),
        1 => (0u64..12_000).prop_map(Step::Pause),
        1 => any::<usize>().prop_map(Step::Read),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    (proptest::collection::vec(step(), 0..25), prop::bool::weighted(0.8), 0u64..15_000)
        .prop_map(|(steps, power_cut, after)| Life { steps, power_cut, after })
}

/// A record of the history: number, bytes, serial of its segment, its place.
#[derive(Clone, Debug)]
struct Entry {
    number: u64,
    len: usize,
    position: Position,
}

/// What must and may be there.
#[derive(Default)]
struct History {
    entries: Vec<Entry>,
    /// So many of the first entries may be gone.
    freed: usize,
    /// So many of the first entries must survive.
    durable: usize,
    next: u64,
}

impl History {
    async fn step(&mut self, world: &World, journal: &Journal, step: &Step) {
        match step {
            Step::Append(len) => {
                let room = journal.wait_for_space(Priority::Housekeeping, len + 64);
                if world.timeout(1, room).await.is_none() {
                    self.free(journal, 2).await;
                    let room = journal.wait_for_space(Priority::Housekeeping, len + 64);
                    world.timeout(1_000_000, room).await.expect("freed segments come back").expect("disk");
                }
                self.next += 1;
                let appended = append(journal, self.next, *len);
                self.entries.push(Entry { number: self.next, len: *len, position: appended.position });
            }
            Step::Sync => {
                sync(journal).await;
                self.durable = self.entries.len();
            }
            Step::Free(count) => self.free(journal, *count).await,
            Step::Pause(us) => world.sleep(*us).await,
            Step::Read(which) => {
                let live = &self.entries[self.freed..];
                if let Some(entry) = live.get(which % live.len().max(1)) {
                    let bytes = journal.read(entry.position).await.expect("readable");
                    assert_eq!(bytes, payload(entry.number, entry.len));
                }
            }
        }
    }

    /// Frees so many segments; as a checkpoint does, only when everything is durable.
    async fn free(&mut self, journal: &Journal, count: u64) {
        sync(journal).await;
        self.durable = self.entries.len();
        let mut serials: Vec<u64> = self.entries.iter().map(|e| e.position.serial).collect();
        serials.dedup();
        let first = serials.partition_point(|serial| *serial < journal.oldest().0);
        let Some(upto) = serials.get(first + count as usize - 1).copied() else { return };
        let upto = upto.min(journal.serial() - 1);
        self.freed = self.freed.max(self.entries.partition_point(|e| e.position.serial <= upto));
        journal.free_upto(upto);
    }

    /// Checks what a replay found, and goes on from there.
    fn found(&mut self, seen: &[Seen]) {
        let expected: Vec<Seen> = self.entries.iter().map(|e| (e.number, e.len)).collect();
        let Some((first, _)) = seen.first() else {
            assert!(self.freed >= self.durable, "durable records are gone: {expected:?}");
            self.entries.clear();
            (self.freed, self.durable) = (0, 0);
            return;
        };
        let start = self.entries.partition_point(|e| e.number < *first);
        assert!(start <= self.freed, "the oldest records are gone");
        let end = start + seen.len();
        assert!(
            expected.len() >= end && seen == &expected[start..end],
            "{seen:?} is not a part of {expected:?}"
        );
        assert!(end >= self.durable, "durable records are gone");
        self.entries.truncate(end);
        self.durable = end;
        self.freed = self.freed.min(end);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// After every kind of death a replay finds exactly the records from some freed one on to some one behind the last
    /// that was reported durable: nothing between is missing, and nothing of a dead life is among them.
    #[test]
    fn a_replay_finds_one_piece_of_the_history(seed: u64, lives in proptest::collection::vec(life(), 1..12)) {
        let sim = Simulation::new(seed, SimOptions::default());
        let driver = sim.node("driver");
        let superblock = superblock();
        sim.block_on("driver", async {
            let mut history = History::default();
            for life in &lives {
                let world = sim.node("brick");
                let (journal, seen) = open(&world, &superblock).await.expect("a journal opens");
                history.found(&seen);
                for step in &life.steps {
                    history.step(&driver, &journal, step).await;
                }
                driver.sleep(life.after).await;
                drop(journal);
                if life.power_cut { sim.power_cut("brick") } else { sim.kill("brick") }
            }
            let (_, seen) = open(&sim.node("brick"), &superblock).await.expect("a journal opens");
            history.found(&seen);
        });
    }
}

/// Runs one story in a fresh world, on a machine "brick" that it may kill.
fn simulate(seed: u64, story: impl AsyncFnOnce(&Simulation, &World, &Superblock)) {
    let sim = Simulation::new(seed, SimOptions::default());
    let driver = sim.node("driver");
    sim.block_on("driver", story(&sim, &driver, &superblock()));
}

#[test]
fn what_was_synced_is_read_back_in_order() {
    simulate(1, async |sim, _, superblock| {
        let (journal, seen) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
        assert_eq!(seen, []);
        let lens = [0, 1, 511, 512, 4096, 7000, 12_000];
        let appended: Vec<Appended> = lens.iter().zip(1..).map(|(l, n)| append(&journal, n, *l)).collect();
        assert!(appended.is_sorted_by_key(|a| a.lsn), "numbers grow");
        for (appended, (len, number)) in appended.iter().zip(lens.iter().zip(1..)) {
            let bytes = journal.read(appended.position).await.expect("readable before it is synced");
            assert_eq!(bytes, payload(number, *len));
        }
        sync(&journal).await;
        drop(journal);
        sim.power_cut("brick");
        let (_, seen) = open(&sim.node("brick"), superblock).await.expect("a journal");
        assert_eq!(seen, (1..).zip(lens).collect::<Vec<Seen>>());
    });
}

/// Segments come round many times, and the room never shrinks.
#[test]
fn segments_are_used_again() {
    simulate(2, async |sim, driver, superblock| {
        let (journal, _) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
        for number in 1..1000 {
            let room = journal.wait_for_space(Priority::Overlay, 3000);
            driver.timeout(1_000_000, room).await.expect("room comes back").expect("the disk works");
            let appended = append(&journal, number, 3000);
            // As a checkpoint does: what lies in the older half is no longer needed.
            if journal.fill() >= 40 {
                sync(&journal).await;
                journal.free_upto(appended.position.serial - 1);
            }
        }
        assert!(journal.serial() - journal.oldest().0 < u64::from(SEGMENTS));
    });
}

/// Any number of lives that write nothing, or little, leave the journal as usable as it was.
#[test]
fn short_lives_do_not_use_the_journal_up() {
    simulate(3, async |sim, driver, superblock| {
        let mut expected = Vec::new();
        for number in 1..100 {
            let (journal, seen) = open(&sim.node("brick"), superblock).await.expect("a journal");
            assert_eq!(seen, expected);
            if number % 3 == 0 {
                append(&journal, number, 10);
                sync(&journal).await;
                expected.push((number, 10));
            }
            driver.sleep(20_000).await;
            drop(journal);
            sim.power_cut("brick");
        }
    });
}

/// Damage at rest. Behind a damaged record nothing is replayed. Where a later segment tells that more was durable,
/// the journal is refused; in the last segments damage looks like a torn end and cannot be told from one: there
/// synced records are lost in silence.
#[test]
fn damage_is_told_where_it_can_be() {
    for (damaged, refused) in [(2, true), (10, true), (11, true), (23, false), (24, false)] {
        simulate(4, async |sim, _, superblock| {
            let (journal, _) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
            let mut positions = Vec::new();
            for number in 1..=24 {
                positions.push(append(&journal, number, 1500).position);
                sync(&journal).await;
            }
            let last = positions[23].serial;
            assert!(
                positions[10].serial < last && positions[22].serial == last,
                "several segments are in use"
            );
            drop(journal);
            sim.kill("brick");
            let Position { offset, len, .. } = positions[damaged - 1];
            sim.damage("brick", "disk", offset, u64::from(len).min(10));
            match open(&sim.node("brick"), superblock).await {
                Ok((_, seen)) => {
                    assert!(!refused, "record {damaged}");
                    assert_eq!(seen, (1..damaged as u64).map(|n| (n, 1500)).collect::<Vec<Seen>>());
                }
                Err(BrickError::JournalDamaged(_)) => assert!(refused, "record {damaged}"),
                Err(other) => panic!("{other}"),
            }
        });
    }
}

/// A segment header that cannot be read.
#[test]
fn a_damaged_header_is_told() {
    for (index, refused) in [(0, true), (1, true), (2, true), (3, false)] {
        simulate(5, async |sim, _, superblock| {
            let (journal, _) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
            for number in 1..=24 {
                append(&journal, number, 1500);
                sync(&journal).await;
            }
            drop(journal);
            sim.kill("brick");
            sim.damage("brick", "disk", superblock.journal_start + index * SEGMENT, 8);
            let opened = open(&sim.node("brick"), superblock).await.map(|(_, seen)| seen.len());
            assert_eq!(opened.is_err(), refused, "header {index}: {opened:?}");
        });
    }
}

#[test]
fn after_a_failed_write_nothing_is_durable_any_more() {
    simulate(6, async |sim, driver, superblock| {
        let (journal, _) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
        append(&journal, 1, 100);
        sync(&journal).await;
        let appended = append(&journal, 2, 100);
        sim.fail_disk("brick", "disk", true);
        assert!(journal.read(appended.position).await.is_err());
        sim.fail_disk("brick", "disk", false);
        append(&journal, 3, 100);
        journal.request_sync();
        let durable = driver.timeout(1_000_000, journal.durable(journal.last())).await;
        assert_eq!(durable, Some(Err(DiskFailed)), "record 2 never reached the disk");
        assert!(journal.has_failed());
    });
}

/// Whoever reads a payload back writes first what is pending, and may be dropped at that.
#[test]
fn a_reader_that_is_dropped_loses_no_record() {
    simulate(8, async |sim, driver, superblock| {
        let (journal, _) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
        sync(&journal).await;
        sim.slow_disk("brick", "disk", 100);
        for number in 0..16 {
            let appended = append(&journal, number, 100);
            let read = driver.timeout(1, journal.read(appended.position)).await;
            assert!(read.is_none(), "a slow disk");
            sync(&journal).await;
        }
        drop(journal);
        sim.power_cut("brick");
        let (_, seen) = open(&sim.node("brick"), superblock).await.expect("a journal");
        assert_eq!(seen, (0..16).map(|number| (number, 100)).collect::<Vec<_>>());
    });
}

/// A record tells how far the journal was synced before it; the last sync is told by nobody until something follows.
#[test]
fn a_replay_knows_what_was_synced_before_its_last_record() {
    simulate(7, async |sim, _, superblock| {
        let (journal, _) = open(&sim.node("brick"), superblock).await.expect("an empty journal");
        let first = append(&journal, 1, 100).lsn;
        sync(&journal).await;
        drop(journal);
        sim.kill("brick");
        let (journal, _) = open(&sim.node("brick"), superblock).await.expect("a journal");
        assert_eq!(journal.synced_upto(), 0);
        let second = append(&journal, 2, 100).lsn;
        assert_eq!(
            journal.synced_upto(),
            0,
            "a replay proves nothing by itself: torn units may be noted behind it"
        );
        sync(&journal).await;
        append(&journal, 3, 100);
        sync(&journal).await;
        drop(journal);
        sim.power_cut("brick");
        let (journal, _) = open(&sim.node("brick"), superblock).await.expect("a journal");
        assert!(first < second);
        assert_eq!(journal.synced_upto(), second);
    });
}
