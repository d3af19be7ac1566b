//! The sizes of all experiments.

use std::time::Duration;

use crate::load::readers::{Order, Until};
use crate::star::Link;

/// Bytes of a read (paper: the same).
pub const BLOCKS: [u32; 3] = [4 << 10, 64 << 10, 128 << 10];
/// Nodes with a brick (paper: the same).
pub const SERVERS: u32 = 2;
/// Nodes that read, at most (paper: the same).
pub const CLIENTS: u32 = 2;
/// Bytes of a page of io-cache (paper: the same).
pub const PAGE: u32 = 128 << 10;
/// RAM of a sandbox, in bytes, for bricks and logs.
pub const SANDBOX_BYTES: u64 = 3 << 30;
/// Bytes that wait for a link at each end: two servers send to one client at once.
const QUEUE: u32 = 1 << 20;
/// The rate of the links while files are made, which is not measured.
pub const MAKING: Link = Link { mbit: 10_000, queue: QUEUE };

/// The links while something is measured.
pub fn link(mbit: u32) -> Link {
    Link { mbit, queue: QUEUE }
}

/// The sizes of a run of all experiments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    /// A short run, which shows that everything works and measures nothing.
    pub is_quick: bool,
    /// Rate of all links, in Mbit/s (paper: 10 Gbit/s).
    pub mbit: u32,
    /// The same where one client is compared with two: they share the cores here, so both together may have what one has
    /// otherwise.
    pub mbit_shared: u32,
    /// The same where one thread is compared with several: more than one thread can fill.
    pub mbit_wide: u32,
    /// Jobs of a client, each with a file (paper: 16).
    pub jobs: u32,
    /// Bytes of a file (paper: 8 GB).
    pub file: u64,
    /// Length of a run at random in milliseconds (paper: 600 s).
    pub millis: u64,
    /// How long it reads before that, in milliseconds.
    pub ramp: u64,
    /// Bytes of its file that a job reads in sequence (paper: as many as in 600 s).
    pub tail: u64,
    /// Runs of each point.
    pub rounds: u32,
    /// Bytes of a brick.
    pub brick: u64,
    /// Memory budget of a brick, in bytes.
    pub brick_memory: u64,
    /// Memory budget of a mount, in bytes.
    pub client_memory: u64,
    /// Bytes of a unit.
    pub unit: u32,
}

impl Scale {
    /// The sizes for the page; a run takes less than ten minutes on two cores.
    pub fn full() -> Scale {
        Scale {
            is_quick: false,
            mbit: 500,
            mbit_shared: 250,
            mbit_wide: 2500,
            jobs: 16,
            file: 32 << 20,
            millis: 2000,
            ramp: 250,
            tail: 10 << 20,
            rounds: 3,
            brick: 768 << 20,
            brick_memory: 64 << 20,
            client_memory: 256 << 20,
            unit: 256 << 10,
        }
    }

    /// The sizes for a run of less than a minute.
    pub fn quick() -> Scale {
        Scale {
            is_quick: true,
            mbit: 300,
            mbit_shared: 150,
            mbit_wide: 500,
            file: 4 << 20,
            millis: 200,
            ramp: 25,
            tail: 1 << 20,
            rounds: 1,
            brick: 256 << 20,
            ..Scale::full()
        }
    }

    /// How much a job reads.
    pub fn until(&self, order: Order) -> Until {
        match order {
            Order::Random => Until::Time {
                ramp: Duration::from_millis(self.ramp),
                time: Duration::from_millis(self.millis),
            },
            Order::Sequential => Until::Tail(self.tail),
        }
    }

    /// The capacity of a link in MB/s.
    pub fn wire(&self) -> f64 {
        f64::from(self.mbit) / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::MB;

    #[test]
    fn a_run_ends_before_its_files_do_and_bricks_hold_them() {
        let scale = Scale::full();
        let all = u64::from(scale.jobs) * scale.file;
        let seconds = (scale.ramp + scale.millis) as f64 / 1e3;
        assert!(scale.wire() * MB * seconds < all as f64 / 2.0);
        // In the worst case one brick has two thirds of them.
        assert!(all / 3 * 2 < scale.brick / 4 * 3);
        // Both systems, one after the other; the first one's bricks are gone by then.
        assert!(u64::from(SERVERS) * scale.brick < SANDBOX_BYTES);
    }
}
