//! The page and its verdicts say what the figures say: they are made from invented measurements whose right verdicts
//! are known.

use super::claims::{Claim, Verdict, claims};
use super::report::page;
use super::runs::{Measured, Point, Run};
use super::scale::{FAST, SLOW, Scale};
use super::service::AccessPath;
use super::small_write::{Accesses, SmallWrite};
use crate::load::Item;

/// Two runs of each point that a page needs; `rate` says how fast, in MB/s.
fn made(rate: impl Fn(Point, Item) -> f64) -> Measured {
    let scale = Scale::full();
    let small_write = SmallWrite {
        overwrites: 10,
        durable: Accesses { reads: 0, writes: 20, syncs: 20 },
        later: Accesses { reads: 15, writes: 10, syncs: 1 },
        packets: 110,
        wire: 72_000,
        seconds: 0.5,
    };
    let mut measured = Measured { scale, cores: 2, runs: Vec::new(), small_write, seconds: 321.5 };
    let mut points = AccessPath::ALL.map(|way| measured.service(way)).to_vec();
    points.push(measured.peers(1, SLOW.mbit));
    points.extend((2..=5).flat_map(|n| [measured.peers(n, FAST.mbit), measured.central(n)]));
    points.extend(measured.scale.widths.iter().map(|nodes| measured.width(*nodes)));
    let most = measured.scale.nodes();
    let fewer = measured.scale.widths_gathered.iter().filter(|nodes| **nodes < most);
    points.extend(fewer.map(|nodes| measured.gathered(*nodes)));
    for point in points {
        for (item, repetition) in Item::ALL.into_iter().flat_map(|item| [(item, 1), (item, 2)]) {
            // The mean of the two is what was asked for.
            let rate = rate(point, item) * if repetition == 1 { 0.5 } else { 1.5 };
            let (bytes, busy, wire, dropped) = (50_000_000, 0.25, 51_000_000, 3);
            let seconds = bytes as f64 / 1e6 / rate;
            measured.runs.push(Run { point, item, repetition, bytes, seconds, busy, wire, dropped });
        }
    }
    measured
}

/// As fast as links allow: one for all in the centralised arrangement, one for each otherwise.
fn by_the_wire(point: Point, _: Item) -> f64 {
    let clients = if point.way == AccessPath::Centralised { 1 } else { point.clients };
    if point.way == AccessPath::Local { 1000.0 } else { f64::from(point.mbit) / 8.0 * f64::from(clients) }
}

fn verdicts(measured: &Measured) -> Vec<Verdict> {
    claims(measured).into_iter().map(|claim| claim.verdict.0).collect()
}

#[test]
fn runs_survive_json() {
    let measured = made(by_the_wire);
    let text = measured.to_json().to_string();
    let read = Measured::from_json(&serde_json::from_str(&text).expect("JSON")).expect("runs");
    assert_eq!(read.runs.len(), measured.runs.len());
    assert_eq!(page(&read), page(&measured));
    assert_eq!(read.small_write, measured.small_write);
    assert!(Measured::from_json(&serde_json::json!({ "quick": false })).is_err());
}

#[test]
fn repetitions_are_averaged() {
    let measured = made(by_the_wire);
    let rate = measured.rate(measured.peers(3, FAST.mbit), Item::WriteBlocks).expect("runs");
    assert!((rate - 37.5).abs() < 1e-6, "{rate}");
    assert_eq!(measured.rate(measured.peers(6, FAST.mbit), Item::WriteBlocks), None);
    assert_eq!(measured.saturation(Item::WriteBlocks, |n| measured.peers(n, FAST.mbit)), None);
    assert_eq!(measured.saturation(Item::WriteBlocks, |n| measured.central(n)), Some(1));
    assert!((measured.gain(Item::WriteBlocks) - 5.0).abs() < 1e-6);
    let wire = measured.wire_per_byte(measured.central(2), Item::ReadBlocks).expect("runs");
    assert!((wire - 1.02).abs() < 1e-6, "{wire}");
}

#[test]
fn verdicts_follow_the_figures() {
    use Verdict::{Better, NotComparable, NotMeasured, NotReproduced, Reproduced};
    let figure9 =
        |few| [NotComparable, NotComparable, few, NotComparable, NotComparable, NotMeasured, NotMeasured];
    let ideal = verdicts(&made(by_the_wire));
    let table3 = [NotComparable, Better, Better, Better];
    let figure7 = [Better, NotReproduced, Better, Reproduced];
    let figure8 = [Reproduced, Better];
    let small = [Better, NotReproduced];
    let expected = [&table3[..], &figure7, &figure8, &figure9(NotReproduced), &small].concat();
    assert_eq!(ideal, expected);
    // As the paper has it: a slow server that four clients fill, dear characters, and reads that few nodes speed up.
    let paper = verdicts(&made(|point, item| {
        let chars = if point.mbit == FAST.mbit && matches!(item, Item::PutChars | Item::GetChars) {
            0.33
        } else {
            1.0
        };
        let few = if point.nodes <= 4 && item == Item::ReadBlocks { 1.5 } else { 1.0 };
        let base = match (point.way, item) {
            (AccessPath::Local, _) => 30.0,
            (AccessPath::FileGate, _) if point.mbit == SLOW.mbit => 0.6,
            (AccessPath::FileGate, _) => 8.0 + f64::from(point.clients.min(4)),
            (AccessPath::NfsGate, Item::WriteBlocks) => 7.66,
            (AccessPath::NfsGate, _) => 12.93,
            (AccessPath::BlockGate, Item::WriteBlocks) => 7.23,
            (AccessPath::BlockGate, _) => 11.0,
            (AccessPath::Centralised, Item::WriteBlocks) => 3.99 * f64::from(point.clients.min(4)),
            (AccessPath::Centralised, _) => 10.1,
            (AccessPath::GatheredFileGate, _) => 8.0,
        };
        base * chars * few
    }));
    let table3 = [NotComparable, Reproduced, Reproduced, Reproduced];
    let figure7 = [Better, Reproduced, Reproduced, Reproduced];
    let figure8 = [Reproduced, NotReproduced];
    let expected = [&table3[..], &figure7, &figure8, &figure9(Reproduced), &small].concat();
    assert_eq!(paper, expected);
}

/// The claim about the order of the four paths, of the rates of a local disk, an NFS gate, a block gate, and NFS over
/// gathered bricks.
fn order(writes: [f64; 4], reads: [f64; 4]) -> Claim {
    let measured = made(|point, item| {
        let rates = if item == Item::WriteBlocks { writes } else { reads };
        match point.way {
            AccessPath::Local => rates[0],
            AccessPath::NfsGate => rates[1],
            AccessPath::BlockGate => rates[2],
            AccessPath::Centralised => rates[3],
            AccessPath::FileGate | AccessPath::GatheredFileGate => 1.0,
        }
    });
    let of = |measured| claims(&measured).into_iter().find(|claim| claim.paper.starts_with("the order"));
    of(measured).expect("the claim")
}

#[test]
fn the_order_of_the_four_paths_is_judged_in_writes_and_in_reads() {
    let paper = [28.8, 7.66, 7.23, 3.99];
    let verdict = |writes, reads| order(writes, reads).verdict.0;
    assert_eq!(verdict(paper, [42.14, 12.93, 11.0, 10.1]), Verdict::Reproduced);
    // File and block service change places in one of the two; or they are level.
    assert_eq!(verdict(paper, [42.14, 11.0, 12.93, 10.1]), Verdict::NotReproduced);
    assert_eq!(verdict([28.8, 7.0, 8.0, 4.0], paper), Verdict::NotReproduced);
    assert_eq!(verdict([28.8, 7.5, 8.0, 4.0], paper), Verdict::Reproduced);
    // The detour costs no read anything, or a write less than a tenth.
    assert_eq!(verdict(paper, [42.14, 12.93, 11.0, 11.5]), Verdict::Better);
    assert_eq!(verdict([28.8, 8.0, 8.5, 7.3], paper), Verdict::Better);
    assert_eq!(verdict([28.8, 8.0, 8.5, 7.1], paper), Verdict::Reproduced);
    // A link that is faster than the disk.
    assert_eq!(verdict([28.8, 30.0, 7.0, 4.0], paper), Verdict::NotReproduced);
    let here = order([1000.0, 7.0, 8.0, 4.0], paper).here;
    let writes =
        "writes: local disk 1000.0, block service 8.0, file service 7.0, file over block 4.0; reads: local";
    assert!(here.starts_with(writes), "{here}");
}

#[test]
fn what_was_not_measured_has_no_order_and_no_ratio() {
    let mut measured = made(by_the_wire);
    let at_four = "1.00 times with 4 nodes, 1.00 times with 16 nodes";
    let told = |measured: &Measured| {
        let of = |claim: &Claim| claim.here.matches(at_four).count();
        claims(measured).iter().map(of).sum::<usize>()
    };
    // Writes and reads of blocks in one claim, those of characters in one each.
    assert_eq!(told(&measured), 4);
    measured.runs.retain(|run| run.point.way != AccessPath::NfsGate);
    measured.runs.retain(|run| run.point != made(by_the_wire).gathered(4));
    assert_eq!(told(&measured), 0);
    let verdicts = verdicts(&measured);
    assert_eq!(verdicts[1], Verdict::NotMeasured);
    assert!(page(&measured).contains("| NFS gate | - | - |"));
}

#[test]
fn the_page_names_every_figure_and_says_when_cores_were_the_limit() {
    let mut measured = made(by_the_wire);
    let calm = page(&measured);
    let sections = ["# Paper 001", "Table 3", "Figure 7", "Figure 8", "Figure 9", "## Mechanisms"];
    for words in sections.into_iter().chain(["2.00", "5 min 21 s", "25 %", "not its memory"]) {
        assert!(calm.contains(words), "`{words}` is not in\n{calm}");
    }
    assert!(calm.contains("In no run over links") && !calm.contains("(!)"), "{calm}");
    assert!(!calm.contains("sent twice") && !calm.contains("parts of them"), "{calm}");
    measured
        .runs
        .iter_mut()
        .filter(|run| run.point.mbit == 10 || run.point.clients == 4)
        .for_each(|run| run.wire *= 4);
    let wasteful = page(&measured);
    assert!(wasteful.contains("sent twice") && wasteful.contains("From 4 nodes at work"), "{wasteful}");
    measured.runs.iter_mut().filter(|run| run.point.clients == 5).for_each(|run| run.busy = 0.97);
    let hot = page(&measured);
    assert!(hot.contains("file gate (5 at work)") && hot.contains("(!)"), "{hot}");
}
