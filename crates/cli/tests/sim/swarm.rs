//! What a seed draws: its cluster, its clients, and its own mix of faults, some kinds of them on, the others off.

use client::Encode;
use world::sim::SimOptions;

use crate::dice::Dice;

/// A fault that comes again and again, and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passing {
    /// A brick's process ends and is started again.
    Kill,
    /// The same, before a certain poll.
    KillAtPoll,
    /// A brick's machine loses power, or at a certain poll.
    PowerCut,
    /// All bricks and the metadata service lose power at once.
    PowerCutAll,
    /// The metadata service's process ends, at a certain poll or between two.
    KillMeta,
    /// Its machine loses power.
    PowerCutMeta,
    /// Two nodes do not reach one another.
    Cut,
    /// One node does not reach another, but the other does.
    OneWay,
    /// Frames between two nodes take long.
    SlowLink,
    /// A disk is slow.
    SlowDisk,
}

/// Every kind of passing fault.
const PASSING: [Passing; 10] = [
    Passing::Kill,
    Passing::KillAtPoll,
    Passing::PowerCut,
    Passing::PowerCutAll,
    Passing::KillMeta,
    Passing::PowerCutMeta,
    Passing::Cut,
    Passing::OneWay,
    Passing::SlowLink,
    Passing::SlowDisk,
];

/// Something that stays with one brick. A run has no more of them than the code bears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lasting {
    /// It is away for longer than its lease, once.
    Outage,
    /// It runs, and does not reach the metadata service for longer than its lease, once.
    CutOff,
    /// Blocks of its data rot.
    Rot,
    /// Some of its writes to data blocks go to other data blocks.
    Misdirect,
    /// Some of its data blocks cannot be read now and then.
    ReadErrors,
    /// A sync fails: it never comes back.
    FailSync,
    /// There is no space left where its file lies: it never comes back.
    Full,
}

const LASTING: [Lasting; 7] = [
    Lasting::Outage,
    Lasting::CutOff,
    Lasting::Rot,
    Lasting::Misdirect,
    Lasting::ReadErrors,
    Lasting::FailSync,
    Lasting::Full,
];

/// What one seed is about.
#[derive(Debug)]
pub(crate) struct Mix {
    pub(crate) code: &'static str,
    pub(crate) slots: u32,
    pub(crate) parity: u32,
    pub(crate) unit: u32,
    pub(crate) extent_stripes: u32,
    pub(crate) groups: u32,
    pub(crate) bricks: u32,
    pub(crate) brick_memory: u64,
    /// Bytes that a client may hold unstable.
    pub(crate) budget: u64,
    pub(crate) encode: [Encode; 2],
    pub(crate) options: SimOptions,
    pub(crate) passing: Vec<Passing>,
    /// Longest pause between two passing faults, in microseconds.
    pub(crate) pace_us: u64,
    /// Passing faults that may be there at once.
    pub(crate) together: u32,
    pub(crate) lasting: Vec<(u32, Lasting)>,
}

/// Codes with their slots and parity units.
const CODES: [(&str, u32, u32); 6] =
    [("2+1", 3, 1), ("1+2", 3, 2), ("4+2", 6, 2), ("8+2", 10, 2), ("3+3", 6, 3), ("4+0", 4, 0)];

impl Mix {
    pub(crate) fn draw(seed: u64, dice: &Dice) -> Mix {
        let (code, slots, parity) = dice.pick(&CODES);
        let bricks = slots + dice.below(3) as u32;
        // Writes need one live slot more than reads where there are two parities: that one is left alone.
        let harmed = dice.below(u64::from(if parity < 2 { parity } else { parity - 1 }) + 1);
        let mut lasting: Vec<(u32, Lasting)> = Vec::new();
        while (lasting.len() as u64) < harmed {
            let brick = dice.below(u64::from(bricks)) as u32;
            if lasting.iter().all(|(other, _)| *other != brick) {
                lasting.push((brick, dice.pick(&LASTING)));
            }
        }
        let encode = || dice.pick(&[Encode::Client, Encode::Primary, Encode::Auto]);
        Mix {
            code,
            slots,
            parity,
            unit: dice.pick(&[4096, 8192, 16384]),
            extent_stripes: 1 + dice.below(8) as u32,
            groups: 1 + dice.below(8) as u32,
            bricks,
            brick_memory: dice.pick(&[256 << 10, 640 << 10, 1 << 20, 8 << 20]),
            budget: dice.pick(&[0, 256 << 10, 4 << 20]),
            encode: [encode(), encode()],
            options: SimOptions {
                // With slow writes an operation is asked for again while it is still being written.
                write_us: 2..dice.pick(&[50, 50, 2_000, 30_000]),
                ..SimOptions::drawn(seed)
            },
            passing: dice.some(&PASSING),
            pace_us: dice.pick(&[300_000, 1_000_000, 2_000_000]),
            together: 1 + dice.below(2) as u32,
            lasting,
        }
    }
}
