//! The paper's findings, compared with the results here.

use super::experiments::{bare, rows};
use super::runs::{Measured, Point, Run, Setting, System};
use super::scale::{BLOCKS, CLIENTS};
use crate::load::readers::Order;
use crate::verdict::{Claim, Judged, Verdict, judge};

/// A rate that differs by less is the same.
const SAME: f64 = 0.10;
/// The share of a link's capacity above which the link is full: the rest is for what is not counted, gaps and drops.
const FULL: f64 = 0.85;
/// The share of busy time above which the cores may have been the limit.
pub const BUSY: f64 = 0.85;
/// Least gain of a second client, or of more threads, that counts as one.
const GROWTH: f64 = 1.2;
/// Least gain that comes near that of the paper, for a second client.
const TWICE: f64 = 1.5;

/// A number of the paper: order, bytes of a read, KB/s with the translators, and without.
pub type PaperRow = (&'static str, Order, u32, Option<(f64, f64)>);

/// Figures 4 and 5. At the other sizes of Figure 5 the network was full either way.
pub const PAPER: [PaperRow; 6] = [
    ("000-E1a", Order::Random, BLOCKS[0], Some((33_664.0, 119_539.0))),
    ("000-E1b", Order::Random, BLOCKS[1], Some((504_973.0, 761_079.0))),
    ("000-E1c", Order::Random, BLOCKS[2], Some((914_323.0, 921_774.0))),
    ("000-E2a", Order::Sequential, BLOCKS[0], Some((914_627.0, 1_096_098.0))),
    ("000-E2b", Order::Sequential, BLOCKS[1], None),
    ("000-E2c", Order::Sequential, BLOCKS[2], None),
];

/// Figure 6: bytes of a read, KB/s of two clients without the translators, and how often that is the rate of one.
pub const PAPER_CLIENTS: [(&str, u32, f64, f64); 3] = [
    ("000-E3a", BLOCKS[0], 243_979.0, 2.04),
    ("000-E3b", BLOCKS[1], 1_266_392.0, 1.66),
    ("000-E3c", BLOCKS[2], 1_631_996.0, 1.77),
];

impl Measured {
    /// One client with one thread.
    pub fn point(&self, system: System, order: Order, block: u32, setting: Setting) -> Point {
        Point { order, setting, ..bare(system, block, self.scale.mbit) }
    }

    /// The rate without the translators over that with them.
    pub fn gain(&self, system: System, order: Order, block: u32) -> Option<f64> {
        let of = |setting| self.point(system, order, block, setting);
        self.ratio(of(Setting::Off), of(Setting::On))
    }

    /// Some clients at once, without the translators.
    pub fn clients(&self, system: System, block: u32, clients: u32) -> Point {
        Point { clients, ..bare(system, block, self.scale.mbit_shared) }
    }

    /// A client with one thread, or with the usual number (0).
    pub fn threads(&self, block: u32, threads: u32) -> Point {
        Point { threads, ..bare(System::Shoal, block, self.scale.mbit_wide) }
    }

    /// The rate of two clients over that of one, without the translators.
    pub fn second_client(&self, system: System, block: u32) -> Option<f64> {
        self.ratio(self.clients(system, block, CLIENTS), self.clients(system, block, 1))
    }

    /// The rate with the usual number of threads over that with one.
    pub fn more_threads(&self, block: u32) -> Option<f64> {
        self.ratio(self.threads(block, 0), self.threads(block, 1))
    }

    /// The rate with automatic settings over the better one of on and off.
    pub fn auto(&self, order: Order, block: u32) -> Option<f64> {
        let rate = |setting| self.rate(self.point(System::Shoal, order, block, setting));
        let best = rate(Setting::On)?.max(rate(Setting::Off)?);
        (best > 0.0).then_some(rate(Setting::Auto)? / best)
    }

    fn busy(&self, point: Point) -> bool {
        self.median(point, |run| run.busy) > Some(BUSY)
    }

    fn fills_link(&self, point: Point) -> bool {
        self.median(point, Run::wire_rate) >= Some(FULL * self.scale.wire())
    }
}

fn is_same(ratio: f64) -> bool {
    (ratio - 1.0).abs() <= SAME
}

/// A verdict on a ratio, if it was measured.
fn on(ratio: Option<f64>, verdict: impl FnOnce(f64) -> Judged) -> Judged {
    ratio.map_or((Verdict::NotMeasured, "there are no runs of it"), verdict)
}

/// All findings, in the order of the paper.
pub fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = Vec::new();
    for system in System::ALL {
        if system == System::Shoal || measured.gluster.is_ok() {
            claims.extend(single(measured, system));
            claims.push(wire(measured, system));
            claims.extend(PAPER_CLIENTS.map(|(id, block, ..)| second_client(measured, system, id, block)));
        }
        if system == System::Shoal {
            claims.push(threads(measured));
            claims.push(auto(measured));
        }
    }
    claims
}

/// What a row says, and how each of the paper's numbers does.
fn single(measured: &Measured, system: System) -> Vec<Claim> {
    let findings = [
        "4 KiB at random: 3.55 times as fast (+255 %) without the translators",
        "64 KiB at random: 1.51 times as fast (+50 %) without them",
        "128 KiB at random: the same with and without them",
        "4 KiB in sequence: 1.20 times as fast (+20 %) without them",
        "64 KiB in sequence: the network is full either way",
        "128 KiB in sequence: the network is full either way",
    ];
    let one = |((id, order, block, _), paper): (PaperRow, &'static str)| {
        let gain = measured.gain(system, order, block);
        Claim {
            id,
            paper,
            here: here(measured, system, order, block),
            verdict: judge_row(measured, system, id, gain),
        }
    };
    PAPER.into_iter().zip(findings).map(one).collect()
}

fn here(measured: &Measured, system: System, order: Order, block: u32) -> String {
    let of = |setting| measured.point(system, order, block, setting);
    let rates = measured.rate(of(Setting::On)).zip(measured.rate(of(Setting::Off)));
    let Some((with, without)) = rates else { return "-".to_owned() };
    let wire = |setting| measured.wire_per_byte(of(setting)).unwrap_or_default();
    format!(
        "{}: {:.2} times: {with:.1} MB/s with, {without:.1} MB/s without them; {:.1} and {:.2} bytes on the wire for a byte",
        system.title(),
        without / with,
        wire(Setting::On),
        wire(Setting::Off)
    )
}

fn judge_row(measured: &Measured, system: System, id: &str, gain: Option<f64>) -> Judged {
    let sequential = |block| {
        let of = |setting| measured.point(system, Order::Sequential, block, setting);
        measured.fills_link(of(Setting::On)) && measured.fills_link(of(Setting::Off))
    };
    on(gain, |gain| match id {
        "000-E1a" => judge(
            gain >= 2.5,
            (
                Verdict::Reproduced,
                "a page of 128 KiB crosses the link for each 4 KiB; without it only what was asked for. The most is 32 times; how much less depends on what limits small reads",
            ),
            (Verdict::NotReproduced, "the translators cost less than there"),
        ),
        "000-E1b" => judge(
            (1.3..=2.1).contains(&gain),
            (
                Verdict::Reproduced,
                "half of a page is asked for: at most twice as fast, if the link is the limit",
            ),
            (Verdict::NotReproduced, "the gain is not between 1.3 and 2.1 times"),
        ),
        "000-E2a" if is_same(gain) && sequential(BLOCKS[0]) => {
            (Verdict::Better, "the link is full with the translators too: in sequence they cost nothing")
        }
        "000-E2a" => judge(
            gain > 1.0 + SAME / 2.0 && gain < 1.5,
            (Verdict::Reproduced, "also in sequence, the translators cost some of the speed"),
            (Verdict::NotReproduced, "the translators cost nothing, or much more"),
        ),
        "000-E1c" => judge(
            is_same(gain),
            (Verdict::Reproduced, "what is asked for is a page: nothing is fetched in vain"),
            (Verdict::NotReproduced, "they differ by more than a tenth"),
        ),
        _ => judge(
            is_same(gain),
            (Verdict::Reproduced, "so it is: nothing is fetched in vain, and the link is the limit"),
            (Verdict::NotReproduced, "they differ by more than a tenth"),
        ),
    })
}

/// The cause, which the paper's numbers tell though its text does not: with the translators, every row is the same number.
fn wire(measured: &Measured, system: System) -> Claim {
    let of =
        |block| measured.median(measured.point(system, Order::Random, block, Setting::On), Run::wire_rate);
    let rates = BLOCKS.map(of);
    let link = measured.scale.wire();
    let told = rates.map(|rate| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}")));
    Claim {
        id: "000-E1",
        paper: "with the translators, reads of each size bring about 1 GB/s over the wire, which is full (from its numbers)",
        here: format!(
            "{}: {} MB/s on the wire at 4, 64 and 128 KiB, of {link:.1}",
            system.title(),
            told.join(", ")
        ),
        verdict: on(rates[0], |_| {
            judge(
                rates.iter().all(|rate| *rate >= Some(FULL * link)),
                (Verdict::Reproduced, "bytes on the wire explain each rate with the translators"),
                (Verdict::NotReproduced, "something else is the limit at some size"),
            )
        }),
    }
}

fn second_client(measured: &Measured, system: System, id: &'static str, block: u32) -> Claim {
    let paper = match id {
        "000-E3a" => "two clients without the translators, 4 KiB at random: 2.04 times the rate of one",
        "000-E3b" => "64 KiB: 1.66 times",
        _ => "128 KiB: 1.77 times",
    };
    let gain = measured.second_client(system, block);
    let both = measured.clients(system, block, CLIENTS);
    let rate = measured.rate(both).unwrap_or_default();
    let cores = measured.median(both, |run| run.busy).unwrap_or_default() * 100.0;
    Claim {
        id,
        paper,
        here: gain.map_or("-".to_owned(), |gain| {
            format!("{}: {gain:.2} times: {rate:.1} MB/s; cores {cores:.0} % busy", system.title())
        }),
        verdict: on(gain, |gain| match (gain >= TWICE, measured.busy(both)) {
            (true, _) => (Verdict::Reproduced, "a second client brings its own loop and its own link"),
            (false, true) => (
                Verdict::NotReproduced,
                "clients and servers share the cores of this machine, which are busy with one client already",
            ),
            (false, false) => (Verdict::NotReproduced, "something that both share is the limit"),
        }),
    }
}

fn threads(measured: &Measured) -> Claim {
    let gains = BLOCKS.map(|block| measured.more_threads(block));
    let told = gains.map(|gain| gain.map_or("-".to_owned(), |gain| format!("{gain:.2}")));
    let usual = measured.threads(BLOCKS[0], 0);
    Claim {
        id: "000-E3",
        paper: "one client's loop is the limit of small reads; several threads would give one client what two have (not measured there)",
        here: format!(
            "Shoal: {} times at 4, 64 and 128 KiB by the usual threads of a mount",
            told.join(", ")
        ),
        verdict: on(gains[0], |gain| match (gain >= GROWTH, measured.busy(usual)) {
            (true, _) => (Verdict::Reproduced, "several threads serve more small reads than one"),
            (false, true) => (
                Verdict::NotReproduced,
                "clients and servers share the cores of this machine, which are busy with one thread already",
            ),
            (false, false) => (Verdict::NotReproduced, "one thread is not the limit"),
        }),
    }
}

fn auto(measured: &Measured) -> Claim {
    let shares: Vec<Option<f64>> = rows().map(|(order, block)| measured.auto(order, block)).collect();
    let told: Vec<String> =
        shares.iter().map(|share| share.map_or("-".to_owned(), |share| format!("{share:.2}"))).collect();
    let least =
        shares.iter().copied().collect::<Option<Vec<f64>>>().and_then(|all| all.into_iter().reduce(f64::min));
    Claim {
        id: "000-M2",
        paper: "an administrator chooses whether a volume suits large or small reads",
        here: format!(
            "Shoal, set to `auto`: {} times the better one of with and without, in the rows of E1 and E2",
            told.join(", ")
        ),
        verdict: on(least, |least| {
            judge(
                least >= 1.0 - SAME,
                (Verdict::Better, "the client chooses for each file, by how it is read"),
                (Verdict::NotReproduced, "what the client chooses is slower in some row"),
            )
        }),
    }
}
