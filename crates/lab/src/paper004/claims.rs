//! The paper's findings, compared with the results here.

use super::runs::{Measured, Point, Run, System};
use super::scale::payload;
use crate::document::MB;
use crate::load::streams::Way;
use crate::verdict::{Claim, Judged, Verdict, judge};

/// A share below this comes near the paper's collapse, to a quarter of the writes and a fifth of the wire.
const COLLAPSED: f64 = 0.5;
/// Least share of the wire that fills it.
const FULL: f64 = 0.90;
/// The same behind a port with less than [`SHALLOW`] bytes.
const FULL_SHALLOW: f64 = 0.80;
/// Bytes of a port that have to be enough for a full wire.
const SHALLOW: u32 = 48 << 10;
/// Longest 99th percentile of a record, over what the wire needs for it.
const LATE: f64 = 3.0;
/// Least fairness of several clients (Jain).
const FAIR: f64 = 0.95;
/// The share of busy time above which the cores may have been the limit.
pub const BUSY: f64 = 0.85;
/// So many clients that write to one server at once are many.
const MANY: u32 = 8;
/// Least ratio of the 99th percentiles of writes without a window and with it.
const CALMER: f64 = 2.0;
const FULL_CORES: &str = "the cores of this machine are busy before the port is full";
/// Reads suffer if a run has so many timeouts, or a 99th percentile of so many milliseconds with one task, or so small a share
/// of the wire.
const SUFFERING: (u64, f64, f64) = (50, 200.0, 0.6);

impl Measured {
    /// One client's tasks.
    pub fn tasks(&self, system: System, way: Way, tasks: u32, buffer: u32) -> Point {
        Point { way, tasks, ..self.scale.read(system, buffer) }
    }

    /// Several clients that read.
    pub fn clients(&self, system: System, clients: u32, buffer: u32) -> Point {
        Point { clients, mbit: self.scale.mbit_shared, ..self.scale.read(system, buffer) }
    }

    /// One client that reads from so many servers.
    pub fn senders(&self, system: System, senders: u32, buffer: u32) -> Point {
        Point { senders, ..self.scale.read(system, buffer) }
    }

    /// A value of each number of tasks, as far as it was measured.
    fn over_tasks(&self, of: impl Fn(u32) -> Option<f64>) -> Vec<f64> {
        self.scale.tasks.iter().filter_map(|tasks| of(*tasks)).collect()
    }

    /// The rate of one point over that of another.
    pub fn ratio(&self, over: Point, under: Point) -> Option<f64> {
        let (over, under) = (self.run(over)?.rate(), self.run(under)?.rate());
        (under > 0.0).then_some(over / under)
    }

    /// The milliseconds that the wire needs for a record, if nothing else is on it.
    pub fn ideal_millis(&self, senders: u32) -> f64 {
        f64::from(senders * self.scale.unit) / MB / payload(self.scale.mbit) * 1e3
    }

    /// Whether reads without a window suffer anywhere but behind the large buffer: only then does a cure say anything.
    pub fn suffers(&self) -> bool {
        let large = self.scale.buffers[1];
        let is_naive =
            |point: Point| point.system == System::NoWindow && point.way == Way::Read && point.buffer < large;
        let is_bad = |run: &Run| {
            let is_late = run.point.tasks == 1 && run.millis[1] >= SUFFERING.1;
            run.timeouts >= SUFFERING.0 || is_late || run.share() <= SUFFERING.2
        };
        self.runs.iter().any(|run| is_naive(run.point) && is_bad(run))
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Numbers in a row.
fn row(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ")
}

/// A verdict on some values, if there are any.
fn on(values: &[f64], verdict: impl FnOnce(&[f64]) -> Judged) -> Judged {
    if values.is_empty() { (Verdict::NotMeasured, "there are no runs of it") } else { verdict(values) }
}

/// All findings: the paper's, then what the window has to reach.
pub fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = Vec::new();
    for system in System::ALL {
        if system != System::Gluster || measured.gluster.is_ok() {
            claims.extend(paper(measured, system));
        }
    }
    claims.extend([cure(measured), gain(measured), calm(measured), senders(measured)]);
    claims.extend(System::ALL.into_iter().filter_map(|system| fairness(measured, system)));
    claims.extend(System::ALL.into_iter().filter_map(|system| sharers(measured, system)));
    claims.extend(two_mounts(measured));
    claims.push(writers(measured));
    claims
}

/// The paper's three findings, for a system.
fn paper(measured: &Measured, system: System) -> [Claim; 3] {
    let [small, large] = measured.scale.buffers;
    let name = system.title();
    let tasks = format!("with {} tasks", listed(&measured.scale.tasks));
    let read = |tasks, buffer| measured.tasks(system, Way::Read, tasks, buffer);
    let of_writes = measured.over_tasks(|tasks| {
        measured.ratio(read(tasks, small), measured.tasks(system, Way::Write, tasks, small))
    });
    let shares = measured.over_tasks(|tasks| measured.run(read(tasks, small)).map(Run::share));
    let gains = measured.over_tasks(|tasks| measured.ratio(read(tasks, large), read(tasks, small)));
    let is_cured = system == System::Shoal;
    // Who keeps all cores busy never fills the port.
    let is_slow = measured
        .scale
        .tasks
        .iter()
        .filter_map(|tasks| measured.run(read(*tasks, small)))
        .any(|run| run.busy > BUSY)
        && !is_cured;
    let collapse = |values: &[f64]| match least(values) {
        low if low < COLLAPSED => {
            (Verdict::Reproduced, "packets are lost, and the reader waits for timeouts of TCP")
        }
        _ if is_cured => (Verdict::Better, "what is on its way fits into the port"),
        _ if is_slow => (Verdict::NotReproduced, FULL_CORES),
        _ => (Verdict::NotReproduced, "TCP repairs more losses without a timeout than it did then"),
    };
    let deep = |values: &[f64]| match most(values) {
        high if high >= 2.0 => (Verdict::Reproduced, "nothing is lost any more"),
        _ if is_cured => (Verdict::Better, "nothing was lost behind the small one"),
        _ if is_slow => (Verdict::NotReproduced, FULL_CORES),
        _ => (Verdict::NotReproduced, "less is lost behind the small one than in the paper"),
    };
    [
        Claim {
            id: "004-E1",
            paper: "behind the small buffer reads reach a quarter of the writes, whichever file system",
            here: format!("{name}: {} of the writes {tasks}", row(&of_writes)),
            verdict: on(&of_writes, collapse),
        },
        Claim {
            id: "004-E1",
            paper: "behind the small buffer reads reach a fifth of the wire",
            here: format!("{name}: {} of the wire {tasks}", row(&shares)),
            verdict: on(&shares, collapse),
        },
        Claim {
            id: "004-E2",
            paper: "with 256 times the buffer reads are at least four times as fast",
            here: format!("{name}: {} times as fast {tasks}", row(&gains)),
            verdict: on(&gains, deep),
        },
    ]
}

/// What the window has to reach behind the small buffer.
fn cure(measured: &Measured) -> Claim {
    let small = measured.scale.buffers[0];
    let share = |tasks| measured.run(measured.tasks(System::Shoal, Way::Read, tasks, small)).map(Run::share);
    let shares = measured.over_tasks(share);
    Claim {
        id: "004-M3",
        paper: "the cure is a switch with 256 times the buffer",
        here: format!("Shoal with its window, behind the small buffer: {} of the wire", row(&shares)),
        verdict: on(&shares, |shares| {
            judge(
                least(shares) >= FULL,
                (Verdict::Better, "reads fill the wire without another switch"),
                (Verdict::NotReproduced, "more than a tenth of the wire stays unused somewhere"),
            )
        }),
    }
}

/// How much faster than without a window.
fn gain(measured: &Measured) -> Claim {
    let points = measured.runs.iter().map(|run| run.point);
    let cured = points.filter(|point| point.system == System::Shoal && point.way == Way::Read);
    let gains: Vec<f64> = cured
        .filter_map(|point| measured.ratio(point, Point { system: System::NoWindow, ..point }))
        .collect();
    Claim {
        id: "004-M3",
        paper: "another switch: at least four times",
        here: format!("the window: up to {:.2} times the rate without it", most(&gains)),
        verdict: if measured.suffers() {
            judge(
                most(&gains) >= 3.0,
                (Verdict::Reproduced, "the window does what the buffer does"),
                (Verdict::NotReproduced, "reads without it are not slow enough for that"),
            )
        } else {
            (Verdict::NotMeasured, "reads without a window do not suffer on this machine")
        },
    }
}

/// Timeouts, and how late records come.
fn calm(measured: &Measured) -> Claim {
    let small = measured.scale.buffers[0];
    let runs: Vec<&Run> = measured
        .scale
        .tasks
        .iter()
        .filter_map(|tasks| measured.run(measured.tasks(System::Shoal, Way::Read, *tasks, small)))
        .collect();
    let timeouts: u64 = runs.iter().map(|run| run.timeouts).sum();
    let late: Vec<f64> = runs
        .iter()
        .map(|run| run.millis[1] / measured.ideal_millis(run.point.senders) / f64::from(run.point.tasks))
        .collect();
    Claim {
        id: "004-M3",
        paper: "(not told) timeouts of TCP are what makes reads slow",
        here: format!(
            "Shoal with its window: {timeouts} timeouts; 99 of 100 records take at most {} times what the wire needs for the records of all tasks",
            row(&late)
        ),
        verdict: on(&late, |late| {
            judge(
                timeouts == 0 && most(late) <= LATE,
                (Verdict::Better, "nobody waits for a timeout"),
                (Verdict::NotReproduced, "some records come late"),
            )
        }),
    }
}

/// Each number of servers, each port.
fn senders(measured: &Measured) -> Claim {
    let scale = &measured.scale;
    let worst = |is_shallow: bool| {
        let ports = scale.ports.iter().filter(|port| (**port < SHALLOW) == is_shallow);
        let shares: Vec<f64> = ports
            .flat_map(|port| scale.senders.iter().map(move |senders| (*senders, *port)))
            .filter_map(|(senders, port)| measured.run(measured.senders(System::Shoal, senders, port)))
            .map(Run::share)
            .collect();
        shares
    };
    let (shallow, others) = (worst(true), worst(false));
    let text =
        |shares: &[f64]| if shares.is_empty() { "-".to_owned() } else { format!("{:.2}", least(shares)) };
    Claim {
        id: "004-M3",
        paper: "(not told) how many servers it takes",
        here: format!(
            "Shoal with its window, {} servers: at least {} of the wire from {} KiB of buffer on, {} below",
            listed(&scale.senders),
            text(&others),
            SHALLOW >> 10,
            text(&shallow)
        ),
        verdict: on(&others, |others| {
            judge(
                least(others) >= FULL && (shallow.is_empty() || least(&shallow) >= FULL_SHALLOW),
                (Verdict::Better, "it does not depend on how many send"),
                (Verdict::NotReproduced, "some combination leaves more of the wire unused than wanted"),
            )
        }),
    }
}

/// Shares of several clients, at the small buffer.
fn fairness(measured: &Measured, system: System) -> Option<Claim> {
    let clients = measured.scale.clients;
    let run = measured.run(measured.clients(system, clients, measured.scale.buffers[0]))?;
    Some(Claim {
        id: "004-M4",
        paper: "flows get unequal shares (\"bandwidth capture\")",
        here: format!(
            "{}: {clients} clients at once have {:.2} of their wires, fairness {:.3}",
            system.title(),
            run.share(),
            run.fairness()
        ),
        verdict: match (run.fairness() >= FAIR, system) {
            (true, System::Shoal) => (Verdict::Better, "each client has its share"),
            (true, _) => (Verdict::NotReproduced, "each client has a port of its own here"),
            (false, _) => (Verdict::Reproduced, "clients have unequal shares"),
        },
    })
}

/// Shares of several clients whose ports have one memory.
fn sharers(measured: &Measured, system: System) -> Option<Claim> {
    let clients = *measured.scale.sharers.last()?;
    let run = measured.run(measured.scale.shared(system, clients))?;
    let (share, fairness) = (run.share(), run.fairness());
    let collapsed =
        (Verdict::Reproduced, "they take the memory from each other, and wait for timeouts of TCP");
    Some(Claim {
        id: "004-M4",
        paper: "one memory for all ports of the switch: clients disturb each other",
        here: format!(
            "{}: {clients} clients behind {} KiB in all have {share:.2} of their wires, fairness {fairness:.3}, {} timeouts",
            system.title(),
            run.point.buffer >> 10,
            run.timeouts
        ),
        verdict: match system {
            _ if run.busy > BUSY && system != System::Shoal => (Verdict::NotReproduced, FULL_CORES),
            System::Shoal => judge(
                fairness >= FAIR && share >= FULL,
                (Verdict::Better, "each keeps less on its way than its part of the memory"),
                (Verdict::NotReproduced, "they do not share the memory as wanted"),
            ),
            _ if fairness < FAIR => (Verdict::Reproduced, "clients have unequal shares"),
            _ => judge(
                run.timeouts > 0,
                collapsed,
                (Verdict::NotReproduced, "TCP repairs what is lost without timeouts"),
            ),
        },
    })
}

/// Two processes behind one port, the small one.
fn two_mounts(measured: &Measured) -> Option<Claim> {
    let run = measured.run(measured.scale.two_mounts(System::Shoal, measured.scale.buffers[0]))?;
    let (share, fairness) = (run.share(), run.fairness());
    Some(Claim {
        id: "004-M4",
        paper: "flows get unequal shares (\"bandwidth capture\")",
        here: format!(
            "Shoal: two mounts of one client have {share:.2} of its wire, fairness {fairness:.3}, {} timeouts",
            run.timeouts
        ),
        verdict: judge(
            fairness >= FAIR && share >= FULL && run.timeouts == 0,
            (Verdict::Better, "they share one window"),
            (Verdict::NotReproduced, "they do not share the wire as wanted"),
        ),
    })
}

/// Writes of many clients to few servers.
fn writers(measured: &Measured) -> Claim {
    let run = |system, clients| measured.run(measured.scale.write(system, clients));
    let many = measured.scale.writers.iter().filter(|clients| **clients >= MANY);
    let pairs: Vec<(&Run, &Run)> = many
        .filter_map(|clients| run(System::NoWindow, *clients).zip(run(System::Shoal, *clients)))
        .collect();
    let late = |of: fn(&(&Run, &Run)) -> f64| pairs.iter().map(of).collect::<Vec<_>>();
    let (naive, cured) = (late(|pair| pair.0.millis[1]), late(|pair| pair.1.millis[1]));
    let gains = late(|(naive, cured)| naive.millis[1] / cured.millis[1]);
    let naive_timeouts: u64 = pairs.iter().map(|pair| pair.0.timeouts).sum();
    let timeouts: u64 = pairs.iter().map(|pair| pair.1.timeouts).sum();
    Claim {
        id: "004-M3",
        paper: "(not told) writes of many clients to one server",
        here: format!(
            "99 of 100 records take at most {} ms instead of {}, {} timeouts instead of {}, where {MANY} clients or more write",
            whole(&cured),
            whole(&naive),
            timeouts,
            naive_timeouts
        ),
        verdict: on(&gains, |gains| {
            judge(
                least(gains) >= CALMER,
                (Verdict::Better, "the servers' windows keep their ports from losing packets"),
                (Verdict::NotReproduced, "writes without a window suffer little here"),
            )
        }),
    }
}

fn whole(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.0}")).collect::<Vec<_>>().join(", ")
}

/// Numbers with commas.
pub fn listed(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
