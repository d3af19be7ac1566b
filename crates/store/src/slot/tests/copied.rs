//! What a checkpoint copies forward keeps its state: segments of the journal are given up, and a replay of the rest is
//! compared.

use super::*;

/// What a segment told that is given up is told by a later one: held operations as what they are, decisions, promises.
#[test]
fn amendment_9_a_copied_record_keeps_its_state() {
    for freed in [false, true] {
        let mut bench = Bench::serving();
        let decided = bench.write(0, OpKind::Overlay, 10, 10).expect("space");
        bench.decide(decided);
        let undecided = bench.write(1, OpKind::Overlay, 10, 10).expect("space");
        for object in 90..120 {
            bench.record(Recorded::Drop(Drop { object: ObjectId(object), stripes: 1 }));
        }
        bench.core.synced(bench.lsn);
        let first = bench.journal.len();
        bench.checkpoint(3, freed);
        let copies =
            bench.journal.iter().filter(|(_, record)| matches!(record, Recorded::Prepare(_))).count();
        assert_eq!(copies, if freed { 2 } else { 4 }, "two operations, each copied");
        assert_eq!(bench.journal.len() < first, freed);
        let replayed = bench.replay();
        assert_eq!(bench.state(&replayed), bench.state(&bench.core));
        let tail = replayed.tail(GROUP, 0);
        assert_eq!((tail.decided, replayed.promised(GROUP)), (decided, Epoch(1)));
        assert_eq!(tail.held.iter().map(|op| op.seq).collect::<Vec<Seq>>(), [undecided]);
    }
}
