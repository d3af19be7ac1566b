//! The page, its verdicts and the JSON of made-up runs.

use super::claims::{Verdict, claims};
use super::report::page;
use super::runs::{Measured, Point, Run};
use super::scale::{FAST, SLOW, Scale};
use super::service::Way;
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
    let mut points = Way::ALL.map(|way| measured.service(way)).to_vec();
    points.push(measured.peers(1, SLOW.mbit));
    points.extend((2..=5).flat_map(|n| [measured.peers(n, FAST.mbit), measured.central(n)]));
    points.extend(measured.scale.widths.iter().map(|nodes| measured.width(*nodes)));
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
    let clients = if point.way == Way::Centralised { 1 } else { point.clients };
    if point.way == Way::Local { 1000.0 } else { f64::from(point.mbit) / 8.0 * f64::from(clients) }
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
    use Verdict::{Better, NotComparable, NotReproduced, Reproduced};
    let ideal = verdicts(&made(by_the_wire));
    let expected = [
        NotComparable,
        Better,
        Better,
        Better,
        NotReproduced,
        Better,
        Reproduced,
        Reproduced,
        Better,
        NotComparable,
        NotReproduced,
        Better,
        NotReproduced,
    ];
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
            (Way::Local, _) => 30.0,
            (Way::FileGate, _) if point.mbit == SLOW.mbit => 0.6,
            (Way::FileGate, _) => 8.0 + f64::from(point.clients.min(4)),
            (Way::BlockGate, _) => 7.7,
            (Way::Centralised, Item::WriteBlocks) => 4.0 * f64::from(point.clients.min(4)),
            (Way::Centralised, _) => 8.0,
            (Way::GatheredFileGate, _) => 8.0,
        };
        base * chars * few
    }));
    let expected = [
        NotComparable,
        Reproduced,
        Reproduced,
        Better,
        Reproduced,
        Reproduced,
        Reproduced,
        Reproduced,
        NotReproduced,
        NotComparable,
        Reproduced,
        Better,
        NotReproduced,
    ];
    assert_eq!(paper, expected);
}

#[test]
fn the_page_names_every_figure_and_says_when_cores_were_the_limit() {
    let mut measured = made(by_the_wire);
    let calm = page(&measured);
    for words in ["# Paper 001", "Table 3", "Figure 7", "Figure 8", "Figure 9", "2.00", "5 min 21 s", "25 %"]
    {
        assert!(calm.contains(words), "`{words}` is not in\n{calm}");
    }
    assert!(calm.contains("In no run over links") && !calm.contains("(!)"), "{calm}");
    assert!(!calm.contains("sent twice") && !calm.contains("parts of"), "{calm}");
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
