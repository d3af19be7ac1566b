//! The sizes of all experiments.

use std::time::Duration;

use crate::star::Link;

/// RAM of a sandbox, in bytes, for bricks and logs.
pub const SANDBOX_BYTES: u64 = 4 << 30;
/// The rate of a server's link over that of a client's (paper: the same).
pub const FASTER: u32 = 10;
/// Bytes that wait for a server's link at each end, and for a client's own packets: never the limit.
const DEEP: u32 = 4 << 20;
/// The rate of the links while files are made, which is not measured.
pub const MAKING: Link = Link { mbit: 10_000, queue: DEEP };
/// Payload of a full frame over its length, which the rate of a link counts: 1,448 of 1,514 bytes.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// The link of a client: what is sent to it waits in the buffer that is studied.
pub fn client_link(mbit: u32, buffer: u32) -> (Link, Link) {
    (Link { mbit, queue: buffer }, Link { mbit, queue: DEEP })
}

/// The links of a server and of a client where many write, to and from each: what is sent to a server waits in the buffer that
/// is studied.
pub fn written_links(mbit: u32, buffer: u32) -> [(Link, Link); 2] {
    let fast = server_link(mbit);
    [(client_link(mbit, buffer).0, fast), (fast, fast)]
}

/// The link of a server, in both directions.
pub fn server_link(client_mbit: u32) -> Link {
    Link { mbit: client_mbit * FASTER, queue: DEEP }
}

/// The payload that a link can carry, in MB/s.
pub fn payload(mbit: u32) -> f64 {
    f64::from(mbit) / 8.0 * PAYLOAD
}

/// The sizes of a run of all experiments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scale {
    /// A short run, which shows that everything works and measures nothing.
    pub is_quick: bool,
    /// Nodes with a brick: data units and parities of a stripe.
    pub servers: u32,
    /// Of them parities.
    pub parities: u32,
    /// Nodes that read, at most (paper: four, by its numbers).
    pub clients: u32,
    /// Rate of the link of a client that is alone, in Mbit/s (paper: 1 Gbit/s).
    pub mbit: u32,
    /// The same where several clients read at once: they share the cores here.
    pub mbit_shared: u32,
    /// Bytes of a unit; one of each data unit makes a record.
    pub unit: u32,
    /// Tasks of the only client, by turns.
    pub tasks: Vec<u32>,
    /// Tasks of each of several clients, and of one whose number of servers changes.
    pub few_tasks: u32,
    /// Bytes of a client's port, small and large (paper: 3 MB and 768 MB for all ports).
    pub buffers: [u32; 2],
    /// Bytes that the ports of all clients share, where they share a memory.
    pub shared_buffer: u32,
    /// How many clients read through such ports at once, by turns.
    pub sharers: Vec<u32>,
    /// Bytes of a client's port where the number of servers changes.
    pub ports: Vec<u32>,
    /// Servers that answer a read, by turns.
    pub senders: Vec<u32>,
    /// Servers that several clients write to at once; one of them has parities.
    pub written_servers: u32,
    /// How many clients do, by turns, each with one task.
    pub writers: Vec<u32>,
    /// Bytes of a file.
    pub file: u64,
    /// Length of a run in milliseconds.
    pub millis: u64,
    /// What comes before that, in milliseconds.
    pub ramp: u64,
    /// Bytes of a brick.
    pub brick: u64,
    /// Memory budget of a brick, in bytes.
    pub brick_memory: u64,
    /// Memory budget of a mount, in bytes.
    pub client_memory: u64,
}

impl Scale {
    /// The sizes for the page; a run takes less than ten minutes on two cores.
    pub fn full() -> Scale {
        Scale {
            is_quick: false,
            servers: 10,
            parities: 2,
            clients: 4,
            mbit: 500,
            mbit_shared: 125,
            unit: 128 << 10,
            tasks: vec![1, 2, 4, 8, 16],
            few_tasks: 2,
            buffers: [64 << 10, 16 << 20],
            shared_buffer: 128 << 10,
            sharers: vec![1, 4],
            ports: vec![32 << 10, 48 << 10, 64 << 10, 256 << 10],
            senders: vec![2, 4, 8, 10],
            written_servers: 3,
            writers: vec![1, 2, 4, 8, 16],
            file: 20 << 20,
            millis: 2000,
            ramp: 700,
            brick: 256 << 20,
            brick_memory: 64 << 20,
            client_memory: 128 << 20,
        }
    }

    /// The sizes for a run of less than a minute.
    pub fn quick() -> Scale {
        Scale {
            is_quick: true,
            servers: 5,
            parities: 1,
            clients: 2,
            mbit: 200,
            mbit_shared: 100,
            tasks: vec![1, 2],
            few_tasks: 1,
            sharers: vec![1, 2],
            ports: vec![64 << 10],
            senders: vec![2, 5],
            writers: vec![2],
            file: 5 << 20,
            millis: 300,
            ramp: 100,
            ..Scale::full()
        }
    }

    /// Data units of a stripe.
    pub fn data(&self) -> u32 {
        self.servers - self.parities
    }

    /// Data units of a stripe where several clients write.
    pub fn written_data(&self) -> u32 {
        self.written_servers - 1
    }

    /// Clients that are needed, of those that read and those that write.
    pub fn most_clients(&self) -> u32 {
        self.writers.iter().copied().max().unwrap_or(0).max(self.clients)
    }

    /// The length of a run.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// The time before that: the window learns, and TCP too.
    pub fn ramp(&self) -> Duration {
        Duration::from_millis(self.ramp)
    }
}
