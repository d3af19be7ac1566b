//! What checkpoints take of a slot.

use types::cost;

use super::*;

#[test]
fn a_checkpoint_in_parts_looks_at_each_unit_once() {
    const UNITS: u64 = 200;
    let mut bench = Bench::serving();
    for n in 0..UNITS {
        let seq = bench.write(n, OpKind::Full, 0, BLOCK).expect("there is room");
        bench.decide(seq);
    }
    cost::take_ns();
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let changes = bench.core.take_changes(u64::MAX, 10, &mut after);
        keys.extend(changes.iter().map(|change| change.key));
        if after.is_none() {
            break;
        }
    }
    let spent = cost::take_ns();
    assert_eq!(keys, (0..UNITS).map(key).collect::<Vec<_>>());
    cost::entries(2 * UNITS as usize);
    assert!(spent <= cost::take_ns(), "one more is looked at for each part");
}
