//! The paper's findings, compared with the results here.

use layout::{Access, Backend, Operation};

use super::chain::Line;
use super::counted::Route;
use super::networks::Place;
use super::runs::{Measured, Point, Run, System};
use super::sends::{SendRun, crossover};
use crate::document::size;
use crate::load::streams::Way;
use crate::verdict::{Claim, Judged, Verdict, judge};

/// The share of busy time above which the cores may have been the limit.
pub const BUSY: f64 = 0.85;
/// Least fit of a straight line (r squared).
const STRAIGHT: f64 = 0.98;
/// Most of the rate that a hop may cost.
const LOSS: f64 = 0.01;
/// GB/s of the paper's code at least: to encode, and to decode.
const CODE: (f64, f64) = (8.0, 4.5);
/// So many times as fast is by far.
const FAR: f64 = 2.0;
/// So much more than predicted may be on the cables: headers, acknowledgements and small messages.
const MORE: f64 = 1.2;
/// So much of another rate is as fast, if a cable is the limit of both.
const EQUAL: f64 = 0.95;
/// Records up to this are small in the paper's exceptions, in bytes.
const SMALL: u32 = 8 << 10;
const NONE: Judged = (Verdict::NotMeasured, "there are no runs of it");

/// All findings.
pub fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = vec![latency(measured), bandwidth(measured), encode(measured), simd(measured)];
    claims.extend([torus_sends(measured), tree_sends(measured), messages(measured)]);
    claims.extend(Place::ALL.map(|place| unit_hops(measured, place)));
    if measured.gluster.is_ok() {
        for &tasks in &measured.scale.tasks {
            for way in [Way::Write, Way::Read] {
                let others = [System::GlusterCoded, System::GlusterCopies];
                claims.extend(others.map(|other| in_order(measured, System::Torus, other, way, tasks)));
            }
        }
        claims.push(small_writes(measured));
        for way in [Way::Read, Way::Write] {
            claims.extend(measured.scale.tasks.iter().map(|tasks| by_chance(measured, way, *tasks)));
        }
        for system in [System::Front, System::Tree] {
            claims.extend([Way::Write, Way::Read].map(|way| one_cable(measured, system, way)));
        }
    }
    claims
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Numbers in a row.
fn row(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ")
}

/// A verdict on some values, if there are any.
fn on(values: &[f64], verdict: impl FnOnce(&[f64]) -> Judged) -> Judged {
    if values.is_empty() { NONE } else { verdict(values) }
}

impl Measured {
    /// Microseconds over hops.
    pub fn latency(&self) -> Option<Line> {
        Line::through(&self.hops.iter().map(|run| (f64::from(run.hops), run.micros)).collect::<Vec<_>>())
    }

    /// What a hop costs of the rate, as a share of the rate without any.
    pub fn loss(&self) -> Option<f64> {
        let line =
            Line::through(&self.hops.iter().map(|run| (f64::from(run.hops), run.rate)).collect::<Vec<_>>())?;
        Some(-line.slope / line.at_0)
    }

    /// The rate of one system over that of another, at a point of the first.
    pub fn ratio(&self, over: Point, other: System) -> Option<f64> {
        let point = Point { system: other, encoder: other.encoder(), ..over };
        let (over, under) = (self.run(over)?.rate(), self.run(point)?.rate());
        (under > 0.0).then_some(over / under)
    }

    /// The same for each record of some tasks in order.
    fn ratios(&self, system: System, other: System, way: Way, tasks: u32) -> Vec<f64> {
        let point = |record| self.scale.in_order(system, way, tasks, record);
        self.scale.records_of(tasks).filter_map(|record| self.ratio(point(record), other)).collect()
    }
}

fn latency(measured: &Measured) -> Claim {
    let line = measured.latency();
    Claim {
        id: "002-E1",
        paper: "latency grows in proportion to the hops (Fig. 1)",
        here: line.map_or("-".to_owned(), |line| {
            format!("{:.1} us and {:.2} us more for each hop, r2 = {:.4}", line.at_0, line.slope, line.fit)
        }),
        verdict: line.map_or(NONE, |line| {
            judge(
                line.fit >= STRAIGHT && line.slope > 0.0,
                (Verdict::Reproduced, "each node on the way forwards in the same time"),
                (
                    Verdict::NotReproduced,
                    "the cores of this machine are shared by all nodes, and were busy otherwise",
                ),
            )
        }),
    }
}

fn bandwidth(measured: &Measured) -> Claim {
    let loss = measured.loss();
    let busy = measured.hops.iter().map(|run| run.busy).fold(0.0, f64::max);
    Claim {
        id: "002-E1",
        paper: "bandwidth falls by less than 1 % with the hops (Fig. 1)",
        here: loss.map_or("-".to_owned(), |loss| {
            format!(
                "{:+.2} % for each hop; cores busy for at most {:.0} % of the time",
                -loss * 100.0,
                busy * 100.0
            )
        }),
        verdict: loss.map_or(NONE, |loss| match loss < LOSS {
            true => (Verdict::Reproduced, "cables are the limit, and forwarding is not"),
            false if busy > BUSY => {
                (Verdict::NotReproduced, "the cores, which all nodes share, are the limit")
            }
            false => (Verdict::NotReproduced, "each hop costs more than that"),
        }),
    }
}

/// The speed of an operation for each size of stripes, where the stripe is in the cache.
fn speeds(measured: &Measured, operation: Operation, backend: Backend) -> Vec<f64> {
    let speed = |stripe: &u32| measured.code(*stripe, backend, Access::Hot, operation);
    measured.scale.stripes.iter().filter_map(speed).collect()
}

fn encode(measured: &Measured) -> Claim {
    let fast = |operation| speeds(measured, operation, Backend::Fast);
    let (encode, decode) = (fast(Operation::Encode), fast(Operation::DecodeTwo));
    Claim {
        id: "002-E2",
        paper: "the code encodes at least 8 GB/s and decodes 4.5 GB/s: it is no bottleneck (Fig. 2)",
        here: format!(
            "encodes {} GB/s and decodes {} GB/s with two units lost, stripes of {}",
            row(&encode),
            row(&decode),
            sizes(&measured.scale.stripes)
        ),
        verdict: on(&decode, |decode| {
            judge(
                least(&encode) >= CODE.0 && least(decode) >= CODE.1,
                (Verdict::Reproduced, "one core codes faster than any link here"),
                (Verdict::NotReproduced, "some sizes of stripes are slower on this machine"),
            )
        }),
    }
}

fn simd(measured: &Measured) -> Claim {
    let speeds = |backend| speeds(measured, Operation::Encode, backend);
    let (fast, scalar) = (speeds(Backend::Fast), speeds(Backend::Scalar));
    let gains: Vec<f64> = fast.iter().zip(&scalar).map(|(fast, scalar)| fast / scalar).collect();
    Claim {
        id: "002-E2",
        paper: "SIMD code is faster by far than code without (ISA-L against Jerasure)",
        here: format!("encodes {} times as fast as scalar code", row(&gains)),
        verdict: on(&gains, |gains| {
            judge(
                least(gains) >= FAR,
                (Verdict::Reproduced, "the kernels use what the CPU has"),
                (Verdict::NotReproduced, "this CPU gains less"),
            )
        }),
    }
}

fn torus_sends(measured: &Measured) -> Claim {
    let runs = &measured.sends[0];
    let cross = crossover(runs);
    let first = runs.first().is_some_and(|run| run.single < run.parallel);
    Claim {
        id: "002-E3",
        paper: "torus: one message is faster up to 8 KB, four parallel ones from 16 KB on (Fig. 4)",
        here: told(cross, measured.scale.sends_mbit),
        verdict: match cross {
            _ if runs.is_empty() => NONE,
            Some(_) if first => (
                Verdict::Reproduced,
                "there is such a size; it grows with the rate of the links and the cost of a message",
            ),
            Some(_) => {
                (Verdict::NotReproduced, "a message costs little, compared with what a slow link needs")
            }
            None => (Verdict::NotReproduced, "the cores, which all nodes share, do not fill four links"),
        },
    }
}

fn told(cross: Option<u32>, mbit: u32) -> String {
    cross.map_or_else(
        || format!("there is no size from which on four are always faster, links of {mbit} Mbit/s"),
        |bytes| format!("four are always faster from {} on, links of {mbit} Mbit/s", bytes_text(bytes)),
    )
}

/// Bytes, which may be less than a KiB.
pub fn bytes_text(bytes: u32) -> String {
    if bytes < 1 << 10 { format!("{bytes} bytes") } else { size(bytes.into()) }
}

fn tree_sends(measured: &Measured) -> Claim {
    let runs = &measured.sends[1];
    let is_single = |run: &&SendRun| run.single <= run.parallel;
    let single = runs.iter().filter(is_single).count();
    Claim {
        id: "002-E3",
        paper: "tree: one message is mostly faster, by a little (Fig. 3)",
        here: format!("one is faster in {single} of {} sizes", runs.len()),
        verdict: if runs.is_empty() {
            NONE
        } else {
            judge(
                single * 2 > runs.len(),
                (Verdict::Reproduced, "all parts share the sender's only port"),
                (Verdict::NotReproduced, "parts overlap, as their receivers have cores of their own"),
            )
        },
    }
}

/// What the paper counts.
fn messages(measured: &Measured) -> Claim {
    let of = |route| measured.count(Place::Front, route).map(|count| count.messages);
    let both = of(Route::ByClient).zip(of(Route::ByPrimary));
    Claim {
        id: "002-Fig5,6",
        paper: "a client that encodes for five servers, each two hops away, has 10 hops, one with a primary 2",
        here: both.map_or("-".to_owned(), |(client, primary)| {
            format!("messages of the client in front of the torus times hops: {client:.1} and {primary:.1}, by the cables")
        }),
        verdict: both.map_or(NONE, |(client, primary)| {
            judge(
                client / primary >= 5.0,
                (Verdict::Reproduced, "but a message to the primary has all data units: see the next rows"),
                (Verdict::NotReproduced, "the primary is too far away"),
            )
        }),
    }
}

/// What is on the cables.
fn unit_hops(measured: &Measured, place: Place) -> Claim {
    let counts: Vec<_> = Route::ALL.iter().filter_map(|route| measured.count(place, *route)).collect();
    let each = |of: fn(&super::counted::CountRun) -> f64| {
        row(&counts.iter().map(|count| of(count)).collect::<Vec<_>>())
    };
    let ratios: Vec<f64> = counts.iter().map(|count| count.ratio()).collect();
    Claim {
        id: "002-Fig5,6",
        paper: "(not told) units over cables, for each stripe",
        here: format!(
            "client {}: {} unit-hops where the client encodes, where the primary does, and for a read; {} predicted",
            place.title(),
            each(|count| count.measured.unit_hops),
            each(|count| count.predicted.unit_hops)
        ),
        verdict: on(&ratios, |ratios| {
            judge(
                ratios.iter().all(|ratio| (1.0..MORE).contains(ratio)),
                (
                    Verdict::Better,
                    "bytes are counted, and are as predicted; a primary costs more of them, but fewer on the client's cables",
                ),
                (Verdict::NotReproduced, "more is on the cables than units, headers and acknowledgements"),
            )
        }),
    }
}

/// Reproduced if one system is never slower than another.
fn never_slower(ratios: &[f64]) -> Judged {
    match least(ratios) {
        low if low >= FAR => (Verdict::Reproduced, "faster by far with each size"),
        low if low >= 1.0 => (Verdict::Reproduced, "faster with each size"),
        low if low >= EQUAL => (Verdict::Reproduced, "nowhere slower by more than a twentieth"),
        _ => (Verdict::NotReproduced, "slower with some size"),
    }
}

/// Figure 8: one system over another, for all records.
fn in_order(measured: &Measured, system: System, other: System, way: Way, tasks: u32) -> Claim {
    let ratios = measured.ratios(system, other, way, tasks);
    let paper = match (other, tasks, way) {
        (System::GlusterCoded, 1, _) => {
            "1 thread: the prototype is better than coded GlusterFS by far (Fig. 8a)"
        }
        (System::GlusterCoded, _, Way::Write) => {
            "10 threads: better than coded GlusterFS by far, but not in writes of 8 KB or less (Fig. 8b)"
        }
        (System::GlusterCoded, _, Way::Read) => "10 threads: better than coded GlusterFS by far (Fig. 8b)",
        (_, 1, _) => "1 thread: mostly better than GlusterFS with three copies (Fig. 8a)",
        _ => "10 threads: mostly better than GlusterFS with three copies (Fig. 8b)",
    };
    Claim {
        id: "002-E4",
        paper,
        here: format!(
            "{} by {}, {}: {} times {}, records of {}",
            way.title(),
            tasks_text(tasks),
            system.title(),
            row(&ratios),
            other.title(),
            sizes(&measured.scale.records_of(tasks).collect::<Vec<_>>())
        ),
        verdict: on(&ratios, never_slower),
    }
}

/// Where the paper's prototype lost.
fn small_writes(measured: &Measured) -> Claim {
    let tasks = measured.scale.tasks.iter().copied().max().unwrap_or(1);
    let small = measured.scale.records_of(tasks).filter(|record| *record <= SMALL);
    let points = small.map(|record| measured.scale.in_order(System::Torus, Way::Write, tasks, record));
    let ratios: Vec<f64> = points
        .flat_map(|point| [System::GlusterCoded, System::GlusterCopies].map(|other| (point, other)))
        .filter_map(|(point, other)| measured.ratio(point, other))
        .collect();
    Claim {
        id: "002-E4",
        paper: "10 threads: writes of 8 KB or less are slower than coded GlusterFS and Ceph's copies (Fig. 8b)",
        here: format!(
            "{} times GlusterFS, coded and with copies, writes up to 8 KiB by {}",
            row(&ratios),
            tasks_text(tasks)
        ),
        verdict: on(&ratios, |ratios| {
            judge(
                least(ratios) > 1.0,
                (Verdict::Better, "small writes are gathered before they are coded"),
                (Verdict::Reproduced, "small writes cost more here, too"),
            )
        }),
    }
}

/// Figure 9.
fn by_chance(measured: &Measured, way: Way, tasks: u32) -> Claim {
    let point = measured.scale.by_chance(System::Torus, way, tasks);
    let others = [System::GlusterCoded, System::GlusterCopies];
    let ratios: Vec<f64> = others.into_iter().filter_map(|other| measured.ratio(point, other)).collect();
    Claim {
        id: "002-E5",
        paper: "random records of 4 KB: the prototype is best, by far but for reads of one thread (Fig. 9)",
        here: format!(
            "{} by {}, {}: {} times GlusterFS coded and with copies",
            way.title(),
            tasks_text(tasks),
            System::Torus.title(),
            row(&ratios)
        ),
        verdict: on(&ratios, never_slower),
    }
}

/// A client with one cable, as all have on the tree.
fn one_cable(measured: &Measured, system: System, way: Way) -> Claim {
    let scale = &measured.scale;
    let all: Vec<Vec<f64>> = [System::GlusterCoded, System::GlusterCopies]
        .into_iter()
        .map(|other| {
            let in_order = scale.tasks.iter().flat_map(|tasks| measured.ratios(system, other, way, *tasks));
            let by_chance = scale.tasks.iter().map(|tasks| scale.by_chance(system, way, *tasks));
            in_order.chain(by_chance.filter_map(|point| measured.ratio(point, other))).collect()
        })
        .collect();
    let ratios = all.concat();
    let slower = ratios.iter().filter(|ratio| **ratio < EQUAL).count();
    let low = |at: usize| all.get(at).map_or(f64::NAN, |ratios| least(ratios));
    Claim {
        id: "002-E4,5",
        paper: "(not told) how much of this is the torus' and how much the system's",
        here: format!(
            "{} of {}, whose client has one cable as GlusterFS's has: at least {:.2} times GlusterFS coded and {:.2} times with copies; slower by more than a twentieth in {slower} of {} rows",
            way.title(),
            system.title(),
            low(0),
            low(1),
            ratios.len()
        ),
        verdict: on(&ratios, |_| {
            judge(
                slower == 0,
                (Verdict::Better, "as fast where the cable is the limit, faster elsewhere"),
                (Verdict::NotReproduced, "some rows are slower with one cable"),
            )
        }),
    }
}

/// A number of tasks.
pub fn tasks_text(tasks: u32) -> String {
    format!("{tasks} task{}", if tasks == 1 { "" } else { "s" })
}

/// Sizes in a row.
pub fn sizes(bytes: &[u32]) -> String {
    bytes.iter().map(|bytes| size(u64::from(*bytes))).collect::<Vec<_>>().join(", ")
}

/// Whether the cores may have been the limit of a run.
pub fn is_hot(run: &Run) -> bool {
    run.busy > BUSY
}
