//! What is to be modelled, and whether it can be.

use pace::WindowSetting;

use crate::random::Random;
use crate::time::{NS, Rate, Time, US};
use crate::topology::{Buffers, Topology};

/// Most hosts of a network.
const HOSTS_MAX: u32 = 8192;
/// Most tasks of a client.
const TASKS_MAX: u32 = 64;
/// Most threads of a client that read records.
const THREADS_MAX: u32 = 64;
/// Least and most bytes of a unit.
const UNIT_MIN: u32 = 4 << 10;
const UNIT_MAX: u32 = 4 << 20;
/// The slowest and the fastest links.
const RATE_MIN: Rate = Rate::mbit(1);
const RATE_MAX: Rate = Rate::gbit(800);
/// The smallest buffer: two full packets.
const BUFFER_MIN: u64 = 4 << 10;
/// The largest buffer, in bytes.
const BUFFER_MAX: u64 = 4 << 30;
/// The longest time, in microseconds of the model.
const TIME_MAX_US: u64 = 600_000_000;
/// Most connections: clients, their threads, and the bricks that each of them reads from.
const CONNECTIONS_MAX: u64 = 1 << 18;
/// Most bytes that all tasks may have asked for at once: they bound what is in flight, and so the memory.
const ASKED_MAX: u64 = 4 << 30;
/// Most packets times ports that are expected: some hours of a core.
const HOPS_MAX: u64 = 100_000_000_000;

/// How hosts and switches hang together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// All on one switch.
    Star {
        /// The rate at which it takes packets to the clients' ports, if it is slow.
        inside: Option<Rate>,
    },
    /// Leaves and spines.
    FatTree {
        /// Ports for hosts, of all leaves together.
        ports: u32,
        /// Ports for hosts of a leaf.
        leaf: u32,
        /// The rate of a leaf's hosts over that of its cables to spines; 1: nothing is blocked by rate alone.
        oversubscription: u32,
    },
}

/// How long hosts take, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// From the last packet of a frame until somebody looks at it.
    pub host_us: u64,
    /// How much longer that may take, by chance.
    pub jitter_us: u64,
    /// A brick's work for a unit; one after the other.
    pub brick_us: u64,
    /// A client's work for 1 MiB that has come, before the program has it.
    pub record_us: u64,
    /// One cable and the switch at its end, in nanoseconds.
    pub cable_ns: u64,
}

impl Delays {
    /// Machines of a data centre with cables of some metres, which answer within some tens of microseconds.
    pub const MACHINES: Delays =
        Delays { host_us: 10, jitter_us: 40, brick_us: 20, record_us: 200, cable_ns: 1_000 };
}

/// A network, who reads in it, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The network.
    pub shape: Shape,
    /// Hosts that read.
    pub clients: u32,
    /// Hosts with a brick.
    pub bricks: u32,
    /// Bricks from which a record comes.
    pub width: u32,
    /// Tasks of each client. Each reads record after record from bricks of its own.
    pub tasks: u32,
    /// Threads of each client that read. A thread reads one record, or one part of it of 1 MiB, at a time; it has its
    /// own connections.
    pub threads: u32,
    /// Bytes of a unit; a record has one from each brick.
    pub unit: u32,
    /// Rate of a client's link.
    pub client_rate: Rate,
    /// Rate of a brick's link, and of the cables between switches.
    pub brick_rate: Rate,
    /// Bytes of a port of a switch.
    pub buffer: u64,
    /// Bytes of a switch that its ports share, if they do. A port may still have no more than `buffer`.
    pub shared_buffer: Option<u64>,
    /// Bytes that a port towards a host may send at once after a rest; 0 at a switch.
    pub burst: u64,
    /// The receive window of each client.
    pub window: WindowSetting,
    /// How long everything runs before anything counts, in microseconds.
    pub ramp_us: u64,
    /// How long it counts, in microseconds.
    pub time_us: u64,
    /// The source of all chance.
    pub seed: u64,
    /// How long hosts take.
    pub delays: Delays,
}

/// Why a setup cannot be modelled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// What cannot be.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

pub(crate) fn refuse(what: String, remedy: impl Into<String>) -> Result<(), Refused> {
    Err(Refused { what, remedy: remedy.into() })
}

/// Refuses a number that is out of its range.
pub(crate) fn within(what: &str, number: u64, least: u64, most: u64) -> Result<(), Refused> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    refuse(format!("{what} {number} is out of range"), format!("{what} from {least} to {most}"))
}

impl Setup {
    /// The lab's network: a machine that is the switch itself, whose ports are token buckets.
    ///
    /// From the lab: the rates, the unit, 4 threads of a mount, the token bucket's burst. Measured there, by the probe
    /// and by one task behind a large buffer: `inside`, and the delays. See docs/network-model.md.
    pub fn lab(width: u32, tasks: u32, buffer: u64, window: WindowSetting) -> Setup {
        Setup {
            shape: Shape::Star { inside: Some(Rate::mbit(1050)) },
            clients: 1,
            bricks: 10,
            width,
            tasks,
            threads: 4,
            unit: 128 << 10,
            client_rate: Rate::mbit(500),
            brick_rate: Rate::gbit(5),
            buffer,
            shared_buffer: None,
            burst: 16 << 10,
            window,
            ramp_us: 700_000,
            time_us: 2_000_000,
            seed: 1,
            delays: Delays { host_us: 20, jitter_us: 25, brick_us: 50, record_us: 600, cable_ns: 2_000 },
        }
    }

    /// Bytes of a record.
    pub fn record(&self) -> u64 {
        u64::from(self.width) * u64::from(self.unit)
    }

    /// The shortest time in which the records of all tasks of a client can come, in microseconds.
    pub fn ideal_us(&self) -> f64 {
        let bytes = self.record() as f64 * f64::from(self.tasks);
        bytes / self.client_rate.payload() * 1e6
    }

    /// Packets times ports that are expected if all links of clients are busy.
    pub fn hops(&self) -> u64 {
        let ports = match self.shape {
            Shape::Star { inside } => 2 + u64::from(inside.is_some()),
            Shape::FatTree { .. } => 4,
        };
        let bits = u128::from(self.client_rate.0) * u128::from(self.clients);
        let packets = bits * u128::from(self.ramp_us + self.time_us) / 1_000_000 / (8 * 1514);
        // Every second packet is acknowledged.
        u64::try_from(packets * u128::from(ports) * 3 / 2).unwrap_or(u64::MAX)
    }

    /// Refuses what cannot be, and what would take more memory or time than anybody wants to spend.
    ///
    /// # Errors
    /// What cannot be, and what to do.
    pub fn check(&self) -> Result<(), Refused> {
        within("--clients", self.clients.into(), 1, HOSTS_MAX.into())?;
        within("--bricks", self.bricks.into(), 1, HOSTS_MAX.into())?;
        within("--tasks", self.tasks.into(), 1, TASKS_MAX.into())?;
        within("--threads", self.threads.into(), 1, THREADS_MAX.into())?;
        within("--unit", self.unit.into(), UNIT_MIN.into(), UNIT_MAX.into())?;
        within("--width", self.width.into(), 1, self.bricks.into())?;
        within("--buffer", self.buffer, BUFFER_MIN, BUFFER_MAX)?;
        within("--shared-buffer", self.shared_buffer.unwrap_or(BUFFER_MIN), BUFFER_MIN, BUFFER_MAX)?;
        within("--burst", self.burst, 0, 1 << 20)?;
        let inside = match self.shape {
            Shape::Star { inside } => inside.unwrap_or(RATE_MIN),
            Shape::FatTree { ports, leaf, oversubscription } => {
                within("--ports", ports.into(), 2, HOSTS_MAX.into())?;
                within("--leaf", leaf.into(), 1, 1024)?;
                within("--oversubscription", oversubscription.into(), 1, leaf.into())?;
                RATE_MIN
            }
        };
        for (what, rate) in
            [("--client-rate", self.client_rate), ("--brick-rate", self.brick_rate), ("--inside", inside)]
        {
            within(what, rate.0, RATE_MIN.0, RATE_MAX.0)?;
        }
        within("the time before the measurement in us,", self.ramp_us, 0, TIME_MAX_US)?;
        within("the time of the measurement in us,", self.time_us, 1, TIME_MAX_US)?;
        let Delays { host_us, jitter_us, brick_us, record_us, cable_ns } = self.delays;
        for delay in [host_us, jitter_us, brick_us, record_us, cable_ns] {
            within("a delay of", delay, 0, 1_000_000)?;
        }
        self.check_together()
    }

    /// What is fine by itself, but too much together.
    fn check_together(&self) -> Result<(), Refused> {
        let hosts = self.clients + self.bricks;
        let ports = match self.shape {
            Shape::Star { .. } => HOSTS_MAX,
            Shape::FatTree { ports, .. } => ports,
        };
        if hosts > ports {
            let what = format!("{} clients and {} bricks need {hosts} ports", self.clients, self.bricks);
            return refuse(what, format!("fewer of them: there are {ports} ports"));
        }
        let asked = self.record() * u64::from(self.tasks) * u64::from(self.clients);
        if asked > ASKED_MAX {
            let what = format!("{} MiB may be in flight at once", asked >> 20);
            return refuse(
                what,
                format!("less --unit, --width, --tasks or --clients: at most {} MiB", ASKED_MAX >> 20),
            );
        }
        let bricks = (u64::from(self.tasks) * u64::from(self.width)).min(self.bricks.into());
        let connections = u64::from(self.clients) * u64::from(self.threads) * bricks;
        if connections > CONNECTIONS_MAX {
            let what = format!("there would be {connections} connections");
            return refuse(what, format!("fewer --clients, --tasks or bricks: at most {CONNECTIONS_MAX}"));
        }
        let hops = self.hops();
        if hops > HOPS_MAX {
            let what = format!("{} million packets times ports would take hours", hops / 1_000_000);
            return refuse(what, "less --seconds, or fewer --clients");
        }
        Ok(())
    }

    /// The network, and which host each client and each brick is.
    pub(crate) fn build(&self) -> Placed {
        let delay = self.delays.cable_ns * NS;
        let buffers = Buffers { port: self.buffer, shared: self.shared_buffer, burst: self.burst };
        let (clients, bricks) = (self.clients as usize, self.bricks as usize);
        match self.shape {
            Shape::Star { inside } => {
                let mut rates = vec![self.client_rate; clients];
                rates.resize(clients + bricks, self.brick_rate);
                let topology = Topology::star(&rates, clients, inside, buffers, delay);
                let hosts: Vec<u32> = (0..(clients + bricks) as u32).collect();
                Placed { topology, clients: hosts[..clients].into(), bricks: hosts[clients..].into() }
            }
            Shape::FatTree { ports, leaf, oversubscription } => {
                // Clients are spread over the leaves, and bricks over what is left.
                let ports = ports as usize;
                let of_clients: Vec<u32> =
                    (0..clients).map(|client| (client * ports / clients) as u32).collect();
                let free: Vec<u32> =
                    (0..ports as u32).filter(|port| of_clients.binary_search(port).is_err()).collect();
                let of_bricks = (0..bricks).map(|brick| free[brick * free.len() / bricks]).collect();
                let mut rates = vec![self.brick_rate; ports];
                for client in &of_clients {
                    rates[*client as usize] = self.client_rate;
                }
                let spines = leaf.div_ceil(oversubscription) as usize;
                let topology =
                    Topology::fat_tree(&rates, leaf as usize, spines, self.brick_rate, buffers, delay);
                Placed { topology, clients: of_clients, bricks: of_bricks }
            }
        }
    }

    /// How long a client works for so many bytes that have come.
    pub(crate) fn work(&self, bytes: u64) -> Time {
        (self.delays.record_us * US * bytes) >> 20
    }

    /// How long a host takes until it looks at a frame.
    pub(crate) fn reaction(&self, random: &mut Random) -> Time {
        self.delays.host_us * US + random.below(self.delays.jitter_us * US + 1)
    }
}

/// A network, and where clients and bricks are in it.
pub(crate) struct Placed {
    pub(crate) topology: Topology,
    pub(crate) clients: Vec<u32>,
    pub(crate) bricks: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn tree() -> Setup {
        Setup {
            shape: Shape::FatTree { ports: 1000, leaf: 32, oversubscription: 1 },
            clients: 100,
            bricks: 900,
            ..Setup::lab(8, 4, 64 << 10, WindowSetting::Auto)
        }
    }

    #[test]
    fn every_host_has_a_port_of_its_own() {
        let mut setup = tree();
        for bricks in [900, 30, 1] {
            (setup.bricks, setup.width) = (bricks, 1);
            assert_eq!(setup.check(), Ok(()));
            let placed = setup.build();
            let ports: BTreeSet<u32> = placed.clients.iter().chain(&placed.bricks).copied().collect();
            assert_eq!(ports.len() as u32, 100 + bricks);
            assert!(ports.iter().all(|port| *port < 1000));
            let leaves: BTreeSet<u32> = placed.clients.iter().map(|port| port / 32).collect();
            assert!(leaves.len() >= 31, "clients are everywhere");
        }
    }

    #[test]
    fn what_is_absurd_is_refused_with_what_to_do() {
        type Change = fn(&mut Setup);
        let refused: [(&str, Change); 12] = [
            ("--clients 0", |setup| setup.clients = 0),
            ("--width 901", |setup| setup.width = 901),
            ("--tasks 4000000000", |setup| setup.tasks = 4_000_000_000),
            ("--unit 100", |setup| setup.unit = 100),
            ("--buffer 10", |setup| setup.buffer = 10),
            ("--shared-buffer 1", |setup| setup.shared_buffer = Some(1)),
            ("--client-rate 0", |setup| setup.client_rate = Rate(0)),
            ("1001 ports", |setup| setup.bricks = 901),
            ("in flight at once", |setup| (setup.unit, setup.tasks) = (4 << 20, 64)),
            ("connections", |setup| {
                (setup.threads, setup.tasks, setup.width, setup.unit) = (64, 64, 8, 4096)
            }),
            ("would take hours", |setup| (setup.client_rate, setup.time_us) = (Rate::gbit(100), TIME_MAX_US)),
            ("--oversubscription 33", |setup| {
                setup.shape = Shape::FatTree { ports: 1000, leaf: 32, oversubscription: 33 };
            }),
        ];
        for (words, change) in refused {
            let mut setup = tree();
            change(&mut setup);
            let refused = setup.check().expect_err(words);
            assert!(refused.to_string().contains(words), "{words}: {refused}");
            assert!(!refused.remedy.is_empty());
        }
    }

    #[test]
    fn ideal_and_work_follow_the_rates() {
        let setup = Setup::lab(8, 2, 64 << 10, WindowSetting::Off);
        assert!((setup.ideal_us() / 1e3 - 35.08).abs() < 0.01, "{}", setup.ideal_us());
        // 41 thousand packets a second for 2.7 s over three ports, and half as many acknowledgements.
        assert_eq!(setup.hops() / 1000, 501);
    }
}
