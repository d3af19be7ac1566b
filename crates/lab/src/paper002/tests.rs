//! The page and its verdicts say what the figures say: they are made from invented measurements whose right verdicts
//! are known.

use layout::{Access, Backend};

use super::chain::HopRun;
use super::claims::claims;
use super::counted::{CountRun, Route, message_hops, predicted};
use super::networks::Place;
use super::report::{files, page};
use super::runs::{CodeRun, Measured, OPERATIONS, Point, Run, System};
use super::scale::{Scale, payload};
use super::sends::SendRun;
use crate::document::MB;
use crate::load::readers::Order;
use crate::load::streams::Way;
use crate::verdict::{Claim, Verdict};

fn hop(hops: u32) -> HopRun {
    HopRun { hops, micros: 7.0 + f64::from(hops), least: 6.5, rate: 11.9, busy: 0.4 }
}

fn codes(scale: &Scale) -> Vec<CodeRun> {
    let mut runs = Vec::new();
    for &stripe in &scale.stripes {
        for backend in Backend::ALL {
            for access in [Access::Hot, Access::Memory] {
                let rate = if backend == Backend::Fast { 12.0 } else { 0.6 };
                runs.extend(OPERATIONS.map(|operation| CodeRun { stripe, backend, access, operation, rate }));
            }
        }
    }
    runs
}

/// Times of one message and of parts, by a cost of each message and of each byte.
fn sent(scale: &Scale, ports: f64) -> Vec<SendRun> {
    let run = |&bytes: &u32| {
        let wire = f64::from(bytes) / 60.0;
        SendRun { bytes, single: (15.0 + wire).round(), parallel: (60.0 + wire / ports).round() }
    };
    scale.sends.iter().map(run).collect()
}

fn count(place: Place, route: Route) -> CountRun {
    let network = place.network().expect("a network");
    let told = predicted(&network, place, route, 8);
    let mut seen = told;
    seen.unit_hops = (told.unit_hops * 11.0).round() / 10.0;
    let messages = message_hops(&network, place, route);
    CountRun { place, route, stripes: 640, staged: 640, messages, predicted: told, measured: seen }
}

/// All measurements; `rate` says how fast a point is, in MB/s.
fn made(rate: impl Fn(Point) -> f64) -> Measured {
    let scale = Scale::full();
    let mut points: Vec<Point> = System::ALL.into_iter().flat_map(|system| scale.points(system)).collect();
    for place in Place::ALL {
        for unit in &scale.route_units {
            for point in scale.routes(System::shoal(place), *unit) {
                if !points.contains(&point) {
                    points.push(point);
                }
            }
        }
    }
    let run = |point| Run { point, bytes: (rate(point) * MB * 2.0) as u64, seconds: 2.0, busy: 0.5 };
    let mut counts = Vec::new();
    for place in Place::ALL {
        counts.extend(Route::ALL.map(|route| count(place, route)));
    }
    Measured {
        cores: 2,
        gluster: Ok("10.3".to_owned()),
        hops: (0..15).map(hop).collect(),
        codes: codes(&scale),
        sends: [sent(&scale, 4.0), sent(&scale, 1.0)],
        counts,
        runs: points.into_iter().map(run).collect(),
        seconds: 500.5,
        scale,
    }
}

/// Cables are the limit, and a system needs as many as it does.
fn by_cables(point: Point) -> f64 {
    let cable = payload(Scale::full().mbit);
    let share = match (point.system, point.way) {
        (System::Torus, _) => 2.0,
        (System::GlusterCopies, Way::Write) => 1.0 / 3.0,
        (System::GlusterCoded, Way::Write) => 0.8,
        (_, Way::Write) => 0.95,
        (System::GlusterCoded, Way::Read) if point.order == Order::Random => 0.2,
        (_, Way::Read) => 0.97,
    };
    share * cable
}

fn verdicts(claims: &[Claim]) -> Vec<Verdict> {
    claims.iter().map(|claim| claim.verdict.0).collect()
}

#[test]
fn what_cables_allow_is_reproduced_and_small_writes_are_better() {
    use Verdict::{Better, Reproduced};
    let expected = [
        // The chain, the code, messages.
        &[Reproduced; 4][..],
        &[Reproduced; 3],
        // Unit-hops at three places.
        &[Better; 3],
        // Figure 8, its exception, Figure 9.
        &[Reproduced; 8],
        &[Better],
        &[Reproduced; 4],
        // One cable.
        &[Better; 4],
    ]
    .concat();
    assert_eq!(verdicts(&claims(&made(by_cables))), expected);
}

#[test]
fn what_is_worse_is_told() {
    let slow = |point: Point| {
        let is_small = point.record <= 8 << 10 && point.tasks > 1;
        let is_slow = point.system == System::Torus && point.way == Way::Write && is_small;
        if is_slow { 1.0 } else { by_cables(point) }
    };
    let mut measured = made(slow);
    for run in &mut measured.hops {
        run.rate = 11.9 * (1.0 - f64::from(run.hops) * 0.02);
    }
    measured.hops[14].micros = 200.0;
    measured.sends = [sent(&measured.scale, 1.0), sent(&measured.scale, 1.0)];
    measured.counts[0].measured.unit_hops *= 2.0;
    measured.codes.iter_mut().for_each(|run| run.rate = 1.0);
    let claims = claims(&measured);
    let verdicts = verdicts(&claims);
    // Latency, rate, the code twice, and messages on the torus, which have only one port.
    assert_eq!(verdicts[..5], [Verdict::NotReproduced; 5]);
    assert_eq!(verdicts[7], Verdict::NotReproduced, "{:?}", claims[7]);
    let is_of = |words: &str| claims.iter().filter(|claim| claim.here.contains(words)).collect::<Vec<_>>();
    let small = is_of("up to 8 KiB");
    assert_eq!(small[0].verdict, (Verdict::Reproduced, "small writes cost more here, too"));
    let of_ten = is_of("write by 10 tasks, Shoal, torus");
    assert!(of_ten.iter().all(|claim| claim.verdict.0 == Verdict::NotReproduced), "{of_ten:?}");
    let of_one = is_of("write by 1 task, Shoal, torus");
    assert!(of_one.len() > 1 && of_one.iter().all(|claim| claim.verdict.0 == Verdict::Reproduced));
}

#[test]
fn runs_survive_json_and_the_page_names_every_figure() {
    let mut measured = made(by_cables);
    let text = measured.to_json().to_string();
    let read = Measured::from_json(&serde_json::from_str(&text).expect("JSON")).expect("runs");
    assert!(read == measured, "not all of it survives");
    let files = files(&measured);
    let text = page(&measured);
    for (name, svg) in files.iter().filter(|(name, _)| name.ends_with(".svg")) {
        assert!(text.contains(name) && svg.starts_with("<svg ") && !svg.contains("NaN"), "{name}");
    }
    for words in [
        "Figure 1",
        "Figure 2",
        "Figures 3 and 4",
        "Figures 5 and 6",
        "Figure 8",
        "Figure 9",
        "8 min 20 s",
        "| 14 | 21.0 | 6.5 | 11.90 | 40 % |",
        "| 512 bytes | 24.0 | 62.0 | 0.39 |",
        "| in front of the torus | write, client encodes | 27.0 | 27.00 | 29.70 |",
        "GlusterFS 10.3",
        "four are always faster from 4 KiB on, links of 250",
    ] {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
    assert!(!text.contains("(!) |") && !text.contains("quick run"), "{text}");
    assert!(!text.contains("| - |"), "a run is missing in\n{text}");
    measured.gluster = Err("`gluster` is missing: install glusterfs-server".to_owned());
    measured.runs.retain(|run| !run.point.system.is_gluster());
    let rest = claims(&measured);
    assert_eq!(rest.len(), 10);
    assert!(!page(&measured).contains("GlusterFS coded, tree"));
    assert!(Measured::from_json(&serde_json::json!({ "quick": false })).is_err());
}
