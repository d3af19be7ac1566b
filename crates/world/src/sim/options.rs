//! How often and how strongly faults occur in a simulated world.

use std::ops::Range;

use pace::{BULK_MIN, WindowSetting};
use types::limits::{LEASE_MARGIN_US, LEASE_US};

use super::prng::Prng;

/// Largest drift at which leases are safe, in millionths. With two clocks that drift in opposite directions, the
/// lease must have ended on the slow clock when lease and margin are over on the fast one: `lease * (1 + d) <= (lease
/// + margin) * (1 - d)`.
const DRIFT_PPM_MAX: u32 = (LEASE_MARGIN_US * 1_000_000 / (2 * LEASE_US + LEASE_MARGIN_US)) as u32;

/// Options of a simulation. Times in microseconds, probabilities in millionths, ranges exclude their end.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Time of a frame from node to node.
    pub latency_us: Range<u64>,
    /// Probability that a frame is delayed, together with all later ones on its connection.
    pub stall_per_million: u32,
    /// How long such a frame is delayed.
    pub stall_us: Range<u64>,
    /// Probability per frame that the connection breaks.
    pub break_per_million: u32,
    /// Time until an end notices that its connection is broken, or that the other machine has lost its power.
    pub break_us: Range<u64>,
    /// Time until a connect to an unreachable machine fails.
    pub connect_timeout_us: u64,
    /// Most bytes per direction of a connection that are sent and not yet received. Then the sender waits.
    pub window_bytes: usize,
    /// How many bytes may be on their way to a node at once.
    pub receive_window: WindowSetting,
    /// Payloads of up to so many bytes need no credit.
    pub bulk_min: usize,
    /// Time of a read from a disk.
    pub read_us: Range<u64>,
    /// Time of a write to a disk's cache.
    pub write_us: Range<u64>,
    /// Time of a sync.
    pub sync_us: Range<u64>,
    /// Size of a sector, which a device writes whole or not at all, in bytes: a power of two.
    pub sector_bytes: u64,
    /// How far a node's clock may run too fast or too slow, in millionths.
    pub drift_ppm_max: u32,
    /// Largest difference between the clocks of two nodes at the start.
    pub offset_us_max: u64,
    /// Most polls in one `block_on`.
    pub polls_max: u64,
    /// Most polls while time does not move.
    pub polls_stalled_max: u64,
    /// Most simulated time in one `block_on`.
    pub time_us_max: u64,
}

impl Default for SimOptions {
    /// A calm world: nothing breaks by itself, durations vary.
    fn default() -> SimOptions {
        SimOptions {
            latency_us: 30..300,
            stall_per_million: 1_000,
            stall_us: 1_000..20_000,
            break_per_million: 0,
            break_us: 1_000..2_000_000,
            connect_timeout_us: 2_000_000,
            window_bytes: 4 << 20,
            receive_window: WindowSetting::Auto,
            bulk_min: BULK_MIN,
            read_us: 20..300,
            write_us: 2..50,
            sync_us: 200..5_000,
            sector_bytes: 512,
            drift_ppm_max: 0,
            offset_us_max: 0,
            polls_max: 200_000_000,
            polls_stalled_max: 1_000_000,
            time_us_max: 24 * 3_600 * 1_000_000,
        }
    }
}

impl SimOptions {
    /// Random options from `seed`: each fault is off, rare or frequent, so that seeds differ in kind.
    pub fn drawn(seed: u64) -> SimOptions {
        let prng = Prng::new(seed, "options");
        let pick = |choices: [u32; 3]| choices[prng.below(3) as usize];
        let stretch = |range: Range<u64>, factor: u64| range.start..range.end * factor;
        let calm = SimOptions::default();
        SimOptions {
            latency_us: stretch(calm.latency_us, u64::from(pick([1, 3, 30]))),
            stall_per_million: pick([0, 1_000, 30_000]),
            stall_us: stretch(calm.stall_us, u64::from(pick([1, 5, 20]))),
            break_per_million: pick([0, 100, 2_000]),
            sync_us: stretch(calm.sync_us, u64::from(pick([1, 4, 20]))),
            read_us: stretch(calm.read_us, u64::from(pick([1, 4, 20]))),
            drift_ppm_max: pick([0, 10_000, DRIFT_PPM_MAX]),
            offset_us_max: u64::from(pick([0, 1_000, 4_000_000_000])),
            sector_bytes: if prng.coin() { 512 } else { 4096 },
            receive_window: match prng.below(4) {
                0 => WindowSetting::Off,
                1 => WindowSetting::Auto,
                2 => WindowSetting::Fixed(pace::WINDOW_MIN),
                _ => WindowSetting::Fixed(100_000),
            },
            bulk_min: if prng.coin() { BULK_MIN } else { 1024 },
            ..calm
        }
    }
}
