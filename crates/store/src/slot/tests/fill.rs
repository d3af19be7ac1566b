//! A slot that joins takes what it is given in the place of everything older: units are filled, forgotten and replayed,
//! and late operations come.

use types::messages::brick::Fill;

use super::*;

/// A unit that a slot has missed; none, to be forgotten.
pub(super) fn fill(n: u64, base: Seq, blocks: u32) -> Fill {
    Fill {
        group: GROUP,
        key: key(n),
        slot: 0,
        base,
        unit_blocks: vec![blocks],
        identities: Vec::new(),
        decided: base,
        crcs: vec![3; blocks as usize],
    }
}

impl Bench {
    /// Gives a unit to the slot.
    pub(super) fn fill(&mut self, fill: &Fill) -> Result<(), Refusal> {
        let epoch = Epoch(self.epoch);
        match self.core.fill(epoch, fill, fill.crcs.len() * BLOCK, 1000)? {
            FillStep::Held => {}
            FillStep::Forget => {
                self.record(Recorded::Forget(Forget { group: GROUP, key: fill.key }));
            }
            FillStep::Write(runs) => {
                self.core.may_fill(epoch, fill)?;
                self.record(Recorded::Prepare(fill_record(fill, runs)));
            }
        }
        Ok(())
    }
}

#[test]
fn a_fill_takes_the_place_of_everything_older() {
    let mut bench = Bench::serving();
    bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    let over = bench.write(0, OpKind::Overlay, 10, 20).expect("space");
    bench.decide(over);
    let missed = bench.next_seq();
    assert_eq!(bench.fill(&fill(0, missed, 2)), Err(Refusal::NotServing), "it is not decided here");
    bench.decide(missed);
    bench.fill(&fill(0, missed, 2)).expect("space");
    bench.core.synced(bench.lsn);
    let plan = bench.read(0).expect("decided");
    assert_eq!((plan.identity, plan.blocks.1.len(), plan.overlays.len()), (missed, 2, 0));
    assert_eq!(bench.core.free_blocks(), BLOCKS - 2);
    assert_eq!(bench.fill(&fill(0, missed, 2)), Ok(()), "it has it");
    assert_eq!(bench.core.free_blocks(), BLOCKS - 2);
    // Nothing older comes over it.
    assert_eq!(bench.fill(&fill(0, over, 2)), Err(Refusal::Corrupt));
    bench.fill(&fill(0, Seq::NONE, 0)).expect("nothing is in the way");
    bench.core.synced(bench.lsn);
    assert_eq!((bench.read(0).expect("gone").present, bench.core.free_blocks()), (0, BLOCKS));
    assert_eq!(bench.fill(&fill(0, over, 2)), Ok(()), "once it is forgotten");
}

/// An operation that was decided without a slot which joins, and lands late, is not held: the slot has had it in another
/// way since.
#[test]
fn what_was_decided_without_a_slot_is_not_held_late() {
    let mut bench = Bench::serving();
    let late = bench.request(key(0), OpKind::Full, 0, UNIT);
    let Ok(PrepareStep::Write(_)) = bench.prepare(&late) else { panic!("space") };
    bench.decide(late.seq);
    assert_eq!(bench.core.may_hold(GROUP, late.key, late.seq), Err(Refusal::NotServing));
    assert_eq!(bench.core.free_blocks(), BLOCKS);
}

/// The descriptor at rest is newer than an operation that was forgotten undecided. A replay that meets its record learns
/// nothing of it but whose write it was, and forgets that with the unit.
#[test]
fn a_replay_forgets_the_writers_of_what_was_forgotten() {
    let mut bench = Bench::serving();
    let full = |n, times| vec![Step::Full(n, 0); times];
    let steps = [
        vec![Step::Over(0, OpKind::Overlay, 0, 1); 3],
        full(0, 9),
        vec![Step::Checkpoint(0, true)],
        full(0, 1),
        vec![Step::Over(3, OpKind::Overlay, 0, 1)],
        full(0, 1),
        vec![Step::Forget(3), Step::Decide(0)],
        full(0, 1),
        full(3, 1),
        // Decides everything before it.
        vec![Step::Fill(0, 1)],
        full(0, 1),
        vec![Step::Checkpoint(2, false)],
    ];
    steps.concat().iter().for_each(|step| bench.step(step));
    assert!(bench.at_rest.contains_key(&key(3)), "and the records before it are in the journal still");
    assert_eq!(bench.state(&bench.replay()), bench.state(&bench.core));
}
