//! The sizes of all experiments.

/// The sizes of a run of all experiments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    /// A short run, which shows that everything works and measures nothing.
    pub is_quick: bool,
    /// Bytes of each of the two loop devices.
    pub device: u64,
    /// How long a timed run of a workload is, in milliseconds.
    pub run_ms: u64,
    /// Turns, at most.
    pub turns: u32,
    /// No turn begins that would end later than this many seconds after the start.
    pub limit_s: u64,
    /// Seconds of the model that count, in milliseconds, and what goes before.
    pub model_ms: u64,
    /// The same before anything counts, in milliseconds.
    pub model_ramp_ms: u64,
    /// Bytes of each file of Fio-A; there are four.
    pub fio_a_file: u64,
    /// Bytes of the file of Fio-B, and of the one for random reads of 4 KiB.
    pub fio_b_file: u64,
    /// Bytes that Postmark reads and writes.
    pub postmark: u64,
    /// Files of Compilebench's tree.
    pub tree_files: u32,
}

/// RAM of a sandbox, in bytes, for logs, and for the metadata.
pub const SANDBOX_BYTES: u64 = 1 << 30;
/// Memory budget of the brick, in bytes: a quarter of it keeps blocks.
pub const BRICK_MEMORY: u64 = 128 << 20;
/// Memory budget of the mount, in bytes.
pub const CLIENT_MEMORY: u64 = 128 << 20;
/// Bytes of a unit of the volume.
pub const UNIT: u32 = 64 << 10;
/// Requests in flight in the comparison of 4-KiB reads.
pub const DEPTH: u32 = 32;

impl Scale {
    /// The sizes for the page; a run takes less than ten minutes on two cores.
    pub fn full() -> Scale {
        Scale {
            is_quick: false,
            device: 3 << 30,
            run_ms: 1_500,
            turns: 5,
            limit_s: 565,
            model_ms: 10_000,
            model_ramp_ms: 2_000,
            fio_a_file: 128 << 20,
            fio_b_file: 512 << 20,
            postmark: 128 << 20,
            tree_files: 800,
        }
    }

    /// The sizes for a run of about a minute.
    pub fn quick() -> Scale {
        Scale {
            is_quick: true,
            device: 1 << 30,
            run_ms: 200,
            turns: 1,
            model_ms: 100,
            model_ramp_ms: 0,
            fio_a_file: 16 << 20,
            fio_b_file: 32 << 20,
            postmark: 4 << 20,
            tree_files: 50,
            ..Scale::full()
        }
    }
}
