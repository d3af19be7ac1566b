//! The page and its verdicts say what the figures say: they are made from invented measurements whose right verdicts
//! are known.

use super::claims::claims;
use super::report::{files, page};
use super::runs::{Measured, Point, ProbeRun, Run, Side, System};
use super::scale::{Scale, payload};
use crate::document::MB;
use crate::load::streams::Way;
use crate::star::Control;
use crate::verdict::Verdict;
use serde_json::json;

fn probes() -> Vec<ProbeRun> {
    let found = json!({
        "burst_whole_bytes": 49_152, "burst_broken_bytes": 65_536, "knee_senders": 4, "mb_per_s": 59.5, "bricks": [{ "least_us": 90 }, { "least_us": 80 }],
        "findings": ["when 4 bricks send at once, packets are lost"],
    });
    let none = json!({ "burst_whole_bytes": 4_194_304, "burst_broken_bytes": null, "knee_senders": null, "mb_per_s": 59.0, "bricks": [{ "least_us": 70 }], "findings": [] });
    [(65_536, found), (16 << 20, none)]
        .into_iter()
        .filter_map(|(port, said)| ProbeRun::read(port, &said))
        .collect()
}

/// A run of each point; `share` says how much of the wire it has.
fn made(share: impl Fn(Point) -> f64) -> Measured {
    let scale = Scale::full();
    let mut measured = Measured {
        scale: scale.clone(),
        cores: 2,
        gluster: Ok("10.3".to_owned()),
        runs: Vec::new(),
        probes: probes(),
        seconds: 500.5,
    };
    let mut points = Vec::new();
    for system in System::ALL {
        for buffer in scale.buffers {
            for way in Way::ALL {
                points.extend(scale.tasks.iter().map(|tasks| measured.tasks(system, way, *tasks, buffer)));
            }
            points.extend((1..=scale.clients).map(|clients| measured.clients(system, clients, buffer)));
        }
        points.extend(scale.sharers.iter().map(|clients| scale.shared(system, *clients)));
        if system != System::Gluster {
            for port in &scale.ports {
                points.extend(scale.senders.iter().map(|senders| measured.senders(system, *senders, *port)));
            }
            points.extend(scale.buffers.map(|buffer| scale.two_mounts(system, buffer)));
            points.extend(scale.writers.iter().map(|clients| scale.write(system, *clients)));
            points.extend(
                [Control::Reno, Control::Bbr].map(|control| Point { control, ..scale.read(system, 65_536) }),
            );
        }
    }
    for point in points {
        let share = share(point);
        let bytes = (share * payload(point.mbit) * MB * 2.0) as u64;
        let slow = f64::from(point.senders * scale.unit) / MB / payload(point.mbit) * 1e3 / share;
        let slow = (slow * f64::from(point.tasks)).round();
        measured.runs.push(Run {
            point,
            bytes: vec![bytes / u64::from(point.mounts); (point.clients * point.mounts) as usize],
            seconds: 2.0,
            millis: [slow, slow * 1.5, slow * 2.0],
            dropped: 7,
            repeated: 5,
            timeouts: if share < 0.5 { 60 } else { 0 },
            windows: if point.system == System::Shoal { vec![65_536] } else { Vec::new() },
            busy: 0.5,
        });
    }
    measured
}

fn is_small(point: Point) -> bool {
    point.buffer <= 128 << 10
}

/// As in the paper, and a window that fills the wire.
fn paper(point: Point) -> f64 {
    match (point.way, point.system) {
        (Way::Write, System::NoWindow) if point.side == Side::Servers => 0.2,
        (Way::Write, _) => 0.8,
        (Way::Read, System::Shoal) => 0.95,
        (Way::Read, _) if is_small(point) => 0.2,
        (Way::Read, _) => 0.9,
    }
}

fn verdicts(measured: &Measured) -> Vec<Verdict> {
    claims(measured).into_iter().map(|claim| claim.verdict.0).collect()
}

#[test]
fn the_papers_own_numbers_are_reproduced_and_the_window_is_better() {
    use Verdict::{Better, NotReproduced, Reproduced};
    let measured = made(paper);
    assert!(measured.suffers());
    let expected = [
        &[Reproduced; 6][..],
        &[Better; 3],
        // The cure, its gain, calm, the servers.
        &[Better, Reproduced, Better, Better],
        &[NotReproduced, NotReproduced, Better],
        // Clients whose ports share a memory.
        &[Reproduced, Reproduced, Better],
        // Two mounts, and writers.
        &[Better, Better],
    ]
    .concat();
    assert_eq!(verdicts(&measured), expected);
}

#[test]
fn where_nobody_suffers_the_page_says_nothing_about_the_window() {
    // GlusterFS may be slow for other reasons, and a large buffer is no reason at all.
    let calm = |point: Point| {
        let is_slow = point.system == System::Gluster || point.buffer > 1 << 20;
        if is_slow { 0.3 } else { 0.95 }
    };
    let measured = made(calm);
    assert!(!measured.suffers());
    let claims = claims(&measured);
    let gain = claims.iter().find(|claim| claim.here.starts_with("the window: up to")).expect("the claim");
    assert_eq!(gain.verdict.0, Verdict::NotMeasured);
    assert!(page(&measured).contains("this page says nothing about the window"));
}

#[test]
fn a_window_that_leaves_the_wire_unused_is_seen() {
    let lazy =
        |point: Point| if point.system == System::Shoal && point.senders == 2 { 0.6 } else { paper(point) };
    let verdict = |measured: &Measured, begin: &str| {
        claims(measured).into_iter().find(|claim| claim.here.contains(begin)).expect("the claim").verdict.0
    };
    assert_eq!(verdict(&made(lazy), "2, 4, 8, 10 servers"), Verdict::NotReproduced);
    let lazy =
        |point: Point| if point.system == System::Shoal && is_small(point) { 0.85 } else { paper(point) };
    assert_eq!(verdict(&made(lazy), "behind the small buffer:"), Verdict::NotReproduced);
    let mut unfair = made(paper);
    for run in unfair.runs.iter_mut().filter(|run| run.point.clients == 4) {
        run.bytes = vec![10, 1, 1, 1];
    }
    assert_eq!(verdicts(&unfair)[13..18], [Verdict::Reproduced; 5]);
    assert_eq!(verdicts(&unfair)[18], Verdict::NotReproduced, "the window has to share a memory fairly");
}

#[test]
fn runs_survive_json_and_the_page_names_every_figure() {
    let mut measured = made(paper);
    let text = measured.to_json().to_string();
    let read = Measured::from_json(&serde_json::from_str(&text).expect("JSON")).expect("runs");
    assert_eq!(read, measured);
    let files = files(&measured);
    let text = page(&measured);
    for (name, svg) in files.iter().filter(|(name, _)| name.ends_with(".svg")) {
        assert!(text.contains(name) && svg.starts_with("<svg ") && !svg.contains("NaN"), "{name}");
    }
    for words in [
        "Figure 3",
        "Figures 4 and 5",
        "8 min 20 s",
        "code 8+2",
        "bbr",
        "10.3",
        "256 KiB | 10 |",
        "| 64 KiB | 48 KiB | 64 KiB | 4 | 59.5 | 80 |",
    ] {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
    assert!(!text.contains("(!) |") && !text.contains("quick run"), "{text}");
    assert!(!text.contains("| - | - | - |"), "a run is missing in\n{text}");
    measured.gluster = Err("`gluster` is missing: install glusterfs-server".to_owned());
    measured.runs.retain(|run| run.point.system != System::Gluster);
    assert_eq!(claims(&measured).len(), 16);
    assert!(!page(&measured).contains("| GlusterFS |"));
    assert!(Measured::from_json(&serde_json::json!({ "quick": false })).is_err());
}
