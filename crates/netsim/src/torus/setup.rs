//! What is to be modelled, and whether it can be.

use layout::topology::Shape;
use types::Code;

use super::engine::Grain;
use crate::setup::{Refused, refuse, within};
use crate::time::{Rate, US};

/// Most nodes: those of a topology.
const NODES_MAX: u64 = 1024;
/// Bytes of a slice.
const SLICE_MIN: u64 = 1 << 10;
const SLICE_MAX: u64 = 1 << 20;
/// Bytes of a unit.
const UNIT_MAX: u64 = 16 << 20;
/// Slices of a unit.
const SLICES_MAX: u64 = 4096;
/// The slowest and the fastest cables.
const RATE_MIN: u64 = 1_000_000;
const RATE_MAX: u64 = 800_000_000_000;
/// Bytes per second of a brick, and of a node that computes.
const WORK_MIN: u64 = 1_000_000;
const WORK_MAX: u64 = 1_000_000_000_000;
/// Stripes that a client, or a new brick, may have in flight.
const STRIPES_MAX: u64 = 1024;
/// Stripes that all clients may have in flight.
const IN_FLIGHT_MAX: u64 = 1 << 16;
/// Bytes of a brick.
const BRICK_MAX: u64 = 1 << 50;
/// The longest time, in microseconds of the model.
const TIME_MAX_US: u64 = 60_000_000;
/// Most slices times links of one experiment: minutes of a core.
const HOPS_MAX: u64 = 200_000_000;

/// A torus with a brick on each node, what is stored on it, and how it is used.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The network: a torus of two or three dimensions.
    pub shape: Shape,
    /// The code of the stripes.
    pub code: Code,
    /// Bytes of a unit.
    pub unit: u64,
    /// Bytes that a node takes in before it forwards them.
    pub slice: u64,
    /// Slices of one unit that may be on their way.
    pub window: u32,
    /// Rate of a cable in each direction.
    pub link: Rate,
    /// A cable and the node at its end that forwards, in microseconds.
    pub hop_us: u64,
    /// Bytes per second from which a node computes units.
    pub compute: u64,
    /// Rate of a client's own cable to its entry node. [`None`]: clients are programs on the nodes.
    pub client: Option<Rate>,
    /// Bytes per second that a brick reads or writes. [`None`]: bricks are no limit.
    pub brick: Option<u64>,
    /// Bytes of a brick, for the time of a rebuild.
    pub brick_bytes: u64,
    /// Clients, each at a node of its own. [`None`]: one at each node.
    pub clients: Option<u32>,
    /// Stripes that each client has in flight.
    pub stripes: u32,
    /// Units that are rebuilt together, for each new brick.
    pub rebuilds: u32,
    /// The load under which a failure is looked at, as a part of what the intact network can take.
    pub load: f64,
    /// How long everything runs before anything counts, in microseconds.
    pub ramp_us: u64,
    /// How long it counts, in microseconds.
    pub time_us: u64,
    /// The source of all chance.
    pub seed: u64,
}

impl Setup {
    /// Checks what can be modelled.
    ///
    /// # Errors
    /// A shape that is no torus, or a number out of range, with what to do.
    pub fn check(&self) -> Result<(), Refused> {
        let Shape::Torus(sizes) = &self.shape else {
            let what = format!("a {} network has switches, or no fixed cables", self.shape);
            return refuse(what, "a torus, such as 8x8x8; `shoal sim net` models switches");
        };
        if sizes.len() < 2 {
            return refuse(format!("a {} has one row only", self.shape), "two or three sizes, such as 8x8");
        }
        let nodes: u64 = sizes.iter().map(|&size| u64::from(size)).product();
        if nodes < self.code.slots() as u64 || nodes > NODES_MAX {
            let what = format!("a {} has {nodes} nodes", self.shape);
            let needed = format!("{} to {NODES_MAX} nodes for {}", self.code.slots(), self.code);
            return refuse(what, needed);
        }
        within("--slice", self.slice, SLICE_MIN, SLICE_MAX)?;
        within("--unit", self.unit, self.slice, UNIT_MAX.min(SLICES_MAX * self.slice))?;
        within("--slices", self.window.into(), 1, SLICES_MAX)?;
        within("--link-rate", self.link.0, RATE_MIN, RATE_MAX)?;
        within("--hop-us", self.hop_us, 0, 1_000_000)?;
        within("--compute", self.compute, WORK_MIN, WORK_MAX)?;
        within("--client-rate", self.client.unwrap_or(self.link).0, RATE_MIN, RATE_MAX)?;
        within("--brick-rate", self.brick.unwrap_or(WORK_MAX), WORK_MIN, WORK_MAX)?;
        within("--brick", self.brick_bytes, self.unit, BRICK_MAX)?;
        let clients = u64::from(self.clients.unwrap_or(nodes as u32));
        within("--clients", clients, 1, nodes)?;
        within("--stripes", self.stripes.into(), 1, STRIPES_MAX.min(IN_FLIGHT_MAX / clients))?;
        within("--rebuilds", self.rebuilds.into(), 1, STRIPES_MAX)?;
        if !(0.01..=0.95).contains(&self.load) {
            return refuse(format!("--load {} is out of range", self.load), "--load from 0.01 to 0.95");
        }
        within("time before the measurement in us,", self.ramp_us, 0, TIME_MAX_US)?;
        within("time of the measurement in us,", self.time_us, 1, TIME_MAX_US)?;
        if self.hops() > HOPS_MAX {
            let what = format!("{} slices times links would take an hour", self.hops());
            return refuse(what, "a shorter time, larger slices or slower cables");
        }
        Ok(())
    }

    /// Slices times links of an experiment whose links are all busy.
    pub fn hops(&self) -> u64 {
        let Shape::Torus(sizes) = &self.shape else { return 0 };
        let nodes: u64 = sizes.iter().map(|&size| u64::from(size)).product();
        let links = nodes * 2 * sizes.len() as u64;
        let bytes = self.link.0 / 8 * (self.ramp_us + self.time_us) / 1_000_000;
        links * (bytes / self.slice)
    }

    pub(crate) fn grain(&self) -> Grain {
        Grain { unit: self.unit, slice: self.slice, window: self.window }
    }

    /// Bytes of user data in a stripe.
    pub(crate) fn stripe(&self) -> u64 {
        self.unit * self.code.k() as u64
    }

    /// How long an experiment runs, and from when on it counts, in picoseconds.
    pub(crate) fn times(&self) -> (u64, u64) {
        let ramp = self.ramp_us * US;
        (ramp + self.time_us * US, ramp)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What `shoal sim torus` takes by default, for another shape.
    pub(in crate::torus) fn setup(sizes: &str) -> Setup {
        Setup {
            shape: format!("torus:{sizes}").parse().expect("a shape"),
            code: "8+2".parse().expect("a code"),
            unit: 256 << 10,
            slice: 64 << 10,
            window: 16,
            link: Rate::gbit(10),
            hop_us: 20,
            compute: 5_000_000_000,
            client: None,
            brick: None,
            brick_bytes: 4 << 40,
            clients: None,
            stripes: 4,
            rebuilds: 32,
            load: 0.5,
            ramp_us: 20_000,
            time_us: 40_000,
            seed: 1,
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        setup("8x8x8").check().expect("the default");
        type Change = fn(&mut Setup);
        let changes: [(&str, Change); 9] = [
            ("has switches", |setup| setup.shape = Shape::FatTree),
            ("one row only", |setup| setup.shape = Shape::Torus(vec![16])),
            ("3x3 has 9 nodes", |setup| setup.shape = Shape::Torus(vec![3, 3])),
            ("16x16x16 has 4096 nodes", |setup| setup.shape = Shape::Torus(vec![16, 16, 16])),
            ("--unit 1024", |setup| setup.unit = 1024),
            ("--slice 1", |setup| setup.slice = 1),
            ("--clients 513", |setup| setup.clients = Some(513)),
            ("--load NaN", |setup| setup.load = f64::NAN),
            ("would take an hour", |setup| setup.time_us = 60_000_000),
        ];
        for (said, change) in changes {
            let mut setup = setup("8x8x8");
            change(&mut setup);
            let refused = setup.check().expect_err(said);
            assert!(refused.what.contains(said), "{said}: {}", refused.what);
        }
    }
}
