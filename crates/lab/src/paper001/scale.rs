//! The sizes of all experiments.

use crate::star::Link;

/// The sizes of a run of all experiments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    /// A short run, which shows that everything works and measures nothing.
    pub is_quick: bool,
    /// Numbers of nodes in the RAID, the largest last (paper: 2 to 16).
    pub widths: Vec<u32>,
    /// The numbers of nodes at which the centralised arrangement is measured too, the largest last.
    pub widths_gathered: Vec<u32>,
    /// Nodes that work at once, at most (paper: 5).
    pub clients: u32,
    /// Bytes that a client writes and reads (paper: 500 MB).
    pub bytes: u64,
    /// Bytes that each client writes and reads if several share one gate.
    pub bytes_shared: u64,
    /// Repetitions at 100 Mbit/s (paper: 10).
    pub repetitions: u32,
    /// Repetitions at 10 Mbit/s.
    pub repetitions_slow: u32,
    /// Small overwrites that are counted.
    pub overwrites: u64,
    /// Bytes of a brick (paper: 1 GB).
    pub brick: u64,
    /// Memory budget of a brick, in bytes.
    pub brick_memory: u64,
    /// Memory budget of a mount, or of a gate with one client, in bytes: three quarters may be writes that are not
    /// stable yet.
    pub client_memory: u64,
    /// Bytes of a unit.
    pub unit: u32,
}

/// Bytes that wait for a link at each end: what a small switch gives a port.
const QUEUE: u32 = 256 << 10;
/// The paper's fast link.
pub const FAST: Link = Link { mbit: 100, queue: QUEUE };
/// The paper's slow link.
pub const SLOW: Link = Link { mbit: 10, queue: QUEUE };
/// The rate of the links while a cluster is made: formatting of remote disks is not measured.
pub const MAKING: Link = Link { mbit: 1000, queue: QUEUE };
/// RAM of a sandbox, in bytes, for bricks and logs.
pub const SANDBOX_BYTES: u64 = 3 << 30;

impl Scale {
    /// The sizes for the page; a run takes less than ten minutes on two cores.
    pub fn full() -> Scale {
        Scale {
            is_quick: false,
            widths: vec![2, 4, 8, 12, 16],
            widths_gathered: vec![4, 16],
            clients: 5,
            bytes: 24 << 20,
            bytes_shared: 12 << 20,
            repetitions: 2,
            repetitions_slow: 1,
            overwrites: 256,
            brick: 256 << 20,
            brick_memory: 32 << 20,
            client_memory: 8 << 20,
            unit: 64 << 10,
        }
    }

    /// The sizes for a run of less than a minute.
    pub fn quick() -> Scale {
        Scale {
            is_quick: true,
            widths: vec![2, 4],
            widths_gathered: vec![2, 4],
            clients: 2,
            bytes: 2 << 20,
            bytes_shared: 1 << 20,
            repetitions: 1,
            overwrites: 32,
            ..Scale::full()
        }
    }

    /// Nodes of the largest RAID, which most experiments have.
    pub fn nodes(&self) -> u32 {
        self.widths.last().copied().unwrap_or(2)
    }

    /// Memory budget of a gate for this number of clients, in bytes.
    ///
    /// It grows with the number of clients. In the memory for one client, five clients could not each have a whole
    /// stripe of 16 nodes: parity would be computed from parts of stripes, and the reads for that would look like the
    /// limit of the gate's link. Half of a mount's budget for each client is enough for three such stripes; two or
    /// four times as much is no faster.
    pub fn gate_memory(&self, clients: u32) -> u64 {
        self.client_memory / 2 * u64::from(clients.max(2))
    }

    /// Most bytes that a mount may buffer.
    pub fn cache(&self) -> u64 {
        held_back(self.client_memory)
    }

    /// Most bytes that a gate may buffer for each of many clients.
    pub fn cache_shared(&self) -> u64 {
        held_back(self.client_memory / 2)
    }
}

/// The share of a memory budget that may be writes that are not stable yet.
fn held_back(memory: u64) -> u64 {
    memory / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_four_times_every_cache() {
        let scale = Scale::full();
        assert!(scale.bytes >= 4 * scale.cache());
        for clients in 2..=scale.clients {
            let all = u64::from(clients) * scale.bytes_shared;
            assert!(all >= 4 * held_back(scale.gate_memory(clients)));
        }
    }

    #[test]
    fn a_gate_has_room_for_whole_stripes_of_each_client() {
        let scale = Scale::full();
        assert_eq!(scale.gate_memory(1), scale.client_memory);
        let stripe = u64::from(scale.nodes()) * u64::from(scale.unit);
        for clients in 1..=scale.clients {
            let each = held_back(scale.gate_memory(clients)) / u64::from(clients);
            assert!(each >= 3 * stripe && each >= scale.cache_shared());
        }
    }

    #[test]
    fn bricks_hold_what_is_written_and_the_room_holds_the_bricks() {
        let scale = Scale::full();
        let data = 2 * scale.bytes * u64::from(scale.clients);
        let nodes = u64::from(scale.nodes());
        assert!(data * nodes / (nodes - 1) * 2 < scale.brick * nodes * 3 / 4);
        // Two nodes hold everything of one client twice.
        assert!(2 * scale.bytes * 2 < scale.brick);
    }
}
