//! The page and its verdicts say what the figures say: they are made from invented measurements whose right verdicts
//! are known.

use super::claims::{PAPER, PAPER_CLIENTS, claims};
use super::experiments::rows;
use super::report::{files, page};
use super::runs::{Measured, Point, Run, Setting, System};
use super::scale::{BLOCKS, CLIENTS, PAGE, Scale};
use crate::document::MB;
use crate::load::readers::Order;
use crate::verdict::Verdict;

/// Three runs of each point; `rates` says MB/s of the reads and on the wire, the second run is the median.
fn made(busy: f64, rates: impl Fn(Point) -> (f64, f64)) -> Measured {
    let scale = Scale::full();
    let mut measured =
        Measured { scale, cores: 2, gluster: Ok("10.3".to_owned()), runs: Vec::new(), seconds: 321.5 };
    let mut points = Vec::new();
    for system in System::ALL {
        for (order, block) in rows() {
            let of = |setting| measured.point(system, order, block, setting);
            points.extend([of(Setting::On), of(Setting::Off)]);
            points.extend((system == System::Shoal).then(|| of(Setting::Auto)));
        }
        points.extend(
            BLOCKS.into_iter().flat_map(|block| [1, CLIENTS].map(|n| measured.clients(system, block, n))),
        );
    }
    points.extend(BLOCKS.into_iter().flat_map(|block| [1, 0].map(|n| measured.threads(block, n))));
    for point in points {
        for (round, share) in [(1, 0.5), (2, 1.0), (3, 7.0)] {
            let (rate, wire) = rates(point);
            let bytes = |rate: f64| (rate * share * MB * 2.0) as u64;
            let (bytes, wire) = (bytes(rate), bytes(wire));
            measured.runs.push(Run { point, round, bytes, seconds: 2.0, wire, busy, dropped: 3 });
        }
    }
    measured
}

/// The paper's own numbers, on a link of this page's rate.
fn paper(point: Point) -> (f64, f64) {
    let row = PAPER.iter().find(|(_, order, block, _)| (*order, *block) == (point.order, point.block));
    let (with, without) = row.and_then(|(.., rates)| *rates).unwrap_or((1_000_000.0, 1_000_000.0));
    let scale = Scale::full().wire() / 1e6;
    let clients = PAPER_CLIENTS.iter().find(|(_, block, ..)| *block == point.block).map_or(1.0, |row| row.3);
    let share = if point.clients == 1 && point.threads == 1 { 1.0 } else { clients };
    match point.setting {
        Setting::On if point.order == Order::Random => {
            (with * scale, with * scale * f64::from(PAGE / point.block))
        }
        Setting::On => (with * scale, with * scale),
        Setting::Off | Setting::Auto => (without * scale * share, without * scale * share),
    }
}

fn verdicts(measured: &Measured) -> Vec<Verdict> {
    claims(measured).into_iter().map(|claim| claim.verdict.0).collect()
}

#[test]
fn the_papers_own_numbers_are_reproduced() {
    use Verdict::{Better, Reproduced};
    let measured = made(0.5, paper);
    // Six rows, the wire, and two clients at three sizes.
    let rows = [Reproduced; 10];
    let expected = [&rows[..], &[Reproduced, Better], &rows].concat();
    assert_eq!(verdicts(&measured), expected);
    let gain = measured.gain(System::Shoal, Order::Random, BLOCKS[0]).expect("runs");
    assert!((gain - 3.55).abs() < 0.01, "{gain}");
    let wire = measured.wire_per_byte(measured.point(System::Gluster, Order::Random, BLOCKS[0], Setting::On));
    assert!(wire.is_some_and(|wire| (wire - 32.0).abs() < 0.01), "{wire:?}");
}

#[test]
fn a_stack_that_costs_nothing_and_a_full_machine_are_seen() {
    use Verdict::{Better, NotReproduced, Reproduced};
    let measured = made(0.95, |_| (60.0, 62.0));
    let rows = [NotReproduced, NotReproduced, Reproduced, Better, Reproduced, Reproduced, Reproduced];
    let clients = [NotReproduced; 3];
    let expected = [&rows[..], &clients, &[NotReproduced, Better], &rows, &clients].concat();
    assert_eq!(verdicts(&measured), expected);
    let why = |measured: &Measured| claims(measured)[7].verdict.1;
    assert!(why(&measured).contains("share the cores"), "{}", why(&measured));
    assert!(why(&made(0.5, |_| (60.0, 62.0))).contains("something that both share"));
}

#[test]
fn automatic_settings_are_compared_with_the_better_ones() {
    let slow = |point: Point| {
        let (rate, wire) = paper(point);
        let is_slow = point.setting == Setting::Auto && point.block == BLOCKS[1];
        (if is_slow { rate / 2.0 } else { rate }, wire)
    };
    let measured = made(0.5, slow);
    let claim = claims(&measured).into_iter().find(|claim| claim.id == "000-M2").expect("the claim");
    assert_eq!(claim.verdict.0, Verdict::NotReproduced);
    assert!(claim.here.contains("1.00, 0.50, 1.00"), "{}", claim.here);
}

#[test]
fn what_was_not_measured_is_said() {
    let mut measured = made(0.5, paper);
    measured.gluster = Err("`gluster` is missing: install glusterfs-server".to_owned());
    measured.runs.retain(|run| run.point.system == System::Shoal && run.point.clients == 1);
    assert_eq!(claims(&measured).len(), 12);
    assert_eq!(verdicts(&measured)[7..10], [Verdict::NotMeasured; 3]);
    let text = page(&measured);
    assert!(text.contains("It was not measured: `gluster` is missing"), "{text}");
    assert!(!files(&measured).iter().any(|(name, _)| name.contains("gluster")));
}

#[test]
fn runs_survive_json_and_the_page_names_every_figure() {
    let measured = made(0.5, paper);
    let text = measured.to_json().to_string();
    let read = Measured::from_json(&serde_json::from_str(&text).expect("JSON")).expect("runs");
    assert_eq!(read, measured);
    let text = page(&measured);
    for words in ["Paper 000", "Figures 4 and 5", "Figure 6", "GlusterFS 10.3", "5 min 21 s", "500 Mbit/s"] {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
    assert!(!text.contains("(!) |") && !text.contains("quick run"), "{text}");
    assert!(page(&made(0.9, paper)).contains("(!) |"));
    let files = files(&measured);
    for (name, svg) in files.iter().filter(|(name, _)| name.ends_with(".svg")) {
        assert!(text.contains(name) && svg.starts_with("<svg ") && !svg.contains("NaN"), "{name}");
    }
    assert!(Measured::from_json(&serde_json::json!({ "quick": false })).is_err());
}
