//! What a replay may and must find, over many lives of one disk.

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
    let journal = Journal::open(disk, superblock, async |found: Found| {
        assert_eq!(found.kind, Drop::KIND);
        let record: Drop = types::wire::from_bytes(&found.body).expect("its checksum matched");
        assert_eq!(record.stripes, u64::from(found.position.len));
        seen.push((record.object.0, found.position.len as usize));
        Ok(())
    })
    .await?;
    let journal = Rc::new(journal);
    let (syncer, on) = (journal.clone(), world.clone());
    world.spawn(async move { syncer.run(on, |_| {}).await });
    Ok((journal, seen))
}

fn payload(number: u64, len: usize) -> Buf {
    Buf::from((0..len).map(|i| (number as usize * 31 + i) as u8).collect::<Vec<u8>>())
}

fn append(journal: &Journal, number: u64, len: usize) -> Appended {
    journal.append(&Drop { object: ObjectId(number), stripes: len as u64 }, &payload(number, len))
}

async fn sync(journal: &Journal) -> u64 {
    journal.want();
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
                let room = journal.room(Claim::Housekeeping, len + 64);
                if world.timeout(1, room).await.is_none() {
                    self.free(journal, 2).await;
                    let room = journal.room(Claim::Housekeeping, len + 64);
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
        assert!(expected.len() >= end && seen == &expected[start..end], "{seen:?} is not a part of {expected:?}");
        assert!(end >= self.durable, "durable records are gone");
        self.entries.truncate(end);
        self.durable = end;
        self.freed = self.freed.min(end);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

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
