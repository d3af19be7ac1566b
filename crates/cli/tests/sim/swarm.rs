//! What a seed draws: its cluster, its clients, and its own mix of faults, some kinds of them on, the others off.

use client::Encode;
use pace::device::PolicyName;
use types::messages::cluster::{FailureDomain, PlacementSpec};
use types::{Code, Geometry};
use world::DiskMode;
use world::sim::SimOptions;

use crate::prng::Prng;

/// A fault that comes again and again, and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransientFault {
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
    Partition,
    /// One node does not reach another, but the other does.
    OneWayPartition,
    /// Frames between two nodes take long.
    SlowLink,
    /// A disk is slow.
    SlowDisk,
    /// A metadata server and the others do not reach one another, or only one way. Only where there are several.
    MetaCut,
    /// The network falls into two parts, of bricks, clients and the metadata service. Only where the network is known.
    Halves,
    /// Members that send on units of others lie, stall, or one of them dies. Only where the network is known.
    Relay,
    /// A cable of the network is cut. Only where it is known.
    Cable,
    /// One of the two networks of bricks with rails is cut. Only where they have them.
    Rail,
    /// A daemon and some others do not reach each other for seconds, both ways or one (`unreached.rs`).
    Unreached,
}

/// Every kind of transient fault of all networks.
const TRANSIENT_FAULTS: [TransientFault; 10] = [
    TransientFault::Kill,
    TransientFault::KillAtPoll,
    TransientFault::PowerCut,
    TransientFault::PowerCutAll,
    TransientFault::KillMeta,
    TransientFault::PowerCutMeta,
    TransientFault::Partition,
    TransientFault::OneWayPartition,
    TransientFault::SlowLink,
    TransientFault::SlowDisk,
];

/// Something that stays with one brick. A run has no more of them than the code bears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PersistentFault {
    /// It is away for longer than its lease, once.
    Outage,
    /// It runs, and does not reach the metadata service for longer than its lease, once.
    MetaPartition,
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

const PERSISTENT_FAULTS: [PersistentFault; 7] = [
    PersistentFault::Outage,
    PersistentFault::MetaPartition,
    PersistentFault::Rot,
    PersistentFault::Misdirect,
    PersistentFault::ReadErrors,
    PersistentFault::FailSync,
    PersistentFault::Full,
];

/// What one seed is about.
#[derive(Debug)]
pub(crate) struct SwarmConfig {
    pub(crate) code: &'static str,
    pub(crate) slots: u32,
    pub(crate) parity: u32,
    pub(crate) unit: u32,
    pub(crate) extent_stripes: u32,
    pub(crate) groups: u32,
    pub(crate) bricks: u32,
    pub(crate) brick_memory: u64,
    /// How bricks open their disks.
    pub(crate) brick_io: DiskMode,
    /// In which order direct disks are asked.
    pub(crate) policy: PolicyName,
    /// Bytes that a client may hold unstable.
    pub(crate) budget: u64,
    pub(crate) encode: [Encode; 2],
    pub(crate) options: SimOptions,
    /// There are three metadata servers.
    pub(crate) three_metas: bool,
    pub(crate) transient: Vec<TransientFault>,
    /// Longest pause between two transient faults, in microseconds.
    pub(crate) pace_us: u64,
    /// Transient faults that may be there at once.
    pub(crate) together: u32,
    pub(crate) persistent: Vec<(u32, PersistentFault)>,
    /// Each client has a long file.
    pub(crate) long: bool,
    /// Files lie whole in one group.
    pub(crate) whole_files: bool,
    /// The geometry of a second tier, which bears as many losses as the first.
    pub(crate) tier: Option<Geometry>,
    /// The brick that starts after the volume is made, and takes the place of one that is lost.
    pub(crate) spare: Option<u32>,
    /// The network between the nodes, if it is known, and how it decides where groups lie. Packets take no notice.
    pub(crate) topology: Option<(String, PlacementSpec)>,
    /// Bricks have two addresses, in two networks.
    pub(crate) rails: bool,
}

/// One seed in so many has long files.
const LONG_SEEDS: u64 = 10;

/// One seed in so many has a second tier, unless it has long files.
const TIERED_SEEDS: u64 = 3;

/// One seed in so many knows its network.
const KNOWN_NETWORK_SEEDS: u64 = 2;

/// One seed in so many has bricks with two addresses each.
const RAILS_SEEDS: u64 = 4;

/// One seed in so many has three metadata servers.
const THREE_METAS_SEEDS: u64 = 3;

/// One seed of this number has daemons that do not reach each other for seconds.
const UNREACHED_SEEDS: u64 = 4;

/// One seed in so many has bricks with direct disks.
const DIRECT_SEEDS: u64 = 3;

/// Bytes of a unit, the fewest first.
const UNITS: [u32; 3] = [4096, 8192, 16384];

/// Codes with their slots and parity units.
const CODES: [(&str, u32, u32); 6] =
    [("2+1", 3, 1), ("1+2", 3, 2), ("4+2", 6, 2), ("8+2", 10, 2), ("3+3", 6, 3), ("4+0", 4, 0)];

impl SwarmConfig {
    pub(crate) fn draw(seed: u64, prng: &Prng) -> SwarmConfig {
        let (code, slots, parity) = prng.pick(&CODES);
        let bricks = slots + prng.below(3) as u32;
        // Writes need one live slot more than reads where there are two parities: that one is left alone.
        let harmed = prng.below(u64::from(if parity < 2 { parity } else { parity - 1 }) + 1);
        let mut persistent: Vec<(u32, PersistentFault)> = Vec::new();
        while (persistent.len() as u64) < harmed {
            let brick = prng.below(u64::from(bricks)) as u32;
            if persistent.iter().all(|(other, _)| *other != brick) {
                persistent.push((brick, prng.pick(&PERSISTENT_FAULTS)));
            }
        }
        let encode = || prng.pick(&[Encode::Client, Encode::Primary, Encode::Auto]);
        SwarmConfig {
            code,
            slots,
            parity,
            unit: prng.pick(&UNITS),
            extent_stripes: 1 + prng.below(8) as u32,
            groups: 1 + prng.below(8) as u32,
            bricks,
            brick_memory: prng.pick(&[256 << 10, 640 << 10, 1 << 20, 8 << 20]),
            brick_io: DiskMode::Buffered,
            policy: PolicyName::Noop,
            budget: prng.pick(&[0, 256 << 10, 4 << 20]),
            encode: [encode(), encode()],
            options: SimOptions {
                // With slow writes an operation is asked for again while it is still being written.
                write_us: 2..prng.pick(&[50, 50, 2_000, 100_000]),
                ..SimOptions::drawn(seed)
            },
            three_metas: false,
            transient: prng.subset(&TRANSIENT_FAULTS),
            pace_us: prng.pick(&[300_000, 1_000_000, 2_000_000]),
            together: 1 + prng.below(2) as u32,
            persistent,
            long: false,
            whole_files: false,
            spare: None,
            tier: None,
            topology: None,
            rails: false,
        }
        .with_long_files(seed)
        .with_a_second_tier(seed)
        .with_a_topology(seed)
        .with_direct_disks(seed)
        .with_three_metas(seed)
        .with_rails(seed)
        .with_unreached(seed)
    }

    /// Daemons that do not reach each other for some seeds. Its draws are its own.
    fn with_unreached(self, seed: u64) -> SwarmConfig {
        let drawn = Prng::new(seed ^ 0x554e_5243_0000).below(UNREACHED_SEEDS) == 0;
        if !std::env::var("SHOAL_UNREACHED").map_or(drawn, |unreached| unreached == "1") {
            return self;
        }
        let mut transient = self.transient;
        // They last long: half of all faults.
        let others = transient.len().max(1);
        transient.extend(std::iter::repeat_n(TransientFault::Unreached, others));
        SwarmConfig { transient, ..self }
    }

    /// Three metadata servers for some seeds. Its draws are its own.
    fn with_three_metas(self, seed: u64) -> SwarmConfig {
        let prng = Prng::new(seed ^ 0x4d45_5441_0000);
        let drawn = prng.below(THREE_METAS_SEEDS) == 0;
        if !std::env::var("SHOAL_METAS").map_or(drawn, |metas| metas == "3") {
            return self;
        }
        let mut transient = self.transient;
        transient.extend(Some(TransientFault::MetaCut).filter(|_| prng.coin()));
        SwarmConfig { three_metas: true, transient, ..self }
    }

    /// Two addresses of each brick for some seeds, of which one or the other is cut. Its draws are its own.
    fn with_rails(self, seed: u64) -> SwarmConfig {
        let prng = Prng::new(seed ^ 0x5241_494c_0000);
        let drawn = prng.below(RAILS_SEEDS) == 0;
        if !std::env::var("SHOAL_RAILS").map_or(drawn, |rails| rails == "1") {
            return self;
        }
        let mut transient = self.transient;
        transient.push(TransientFault::Rail);
        // Where nobody is told soon, it shows only by its silence that a rail is cut.
        let break_us = 1_000..prng.pick(&[2_000_000, 20_000_000]);
        SwarmConfig { rails: true, transient, options: SimOptions { break_us, ..self.options }, ..self }
    }

    /// Direct disks for some seeds. Its draws are its own.
    fn with_direct_disks(self, seed: u64) -> SwarmConfig {
        let prng = Prng::new(seed ^ 0x4449_5243_0000);
        let (drawn, policy) = (prng.below(DIRECT_SEEDS) == 0, prng.pick(&PolicyName::ALL));
        let direct = std::env::var("SHOAL_DIRECT").map_or(drawn, |direct| direct == "1");
        let brick_io = if direct { DiskMode::Direct } else { DiskMode::Buffered };
        SwarmConfig { brick_io, policy, ..self }
    }

    /// The geometry of the volume.
    pub(crate) fn geometry(&self) -> Geometry {
        let code: Code = self.code.parse().expect("a code");
        match self.whole_files {
            true => Geometry::whole_files(code, self.unit).expect("a geometry"),
            false => Geometry::new(code, self.unit, self.extent_stripes).expect("a geometry"),
        }
    }

    /// A second tier for some seeds, on the same bricks, with as many parities and fewer data units. Its draws are its
    /// own, too. A long file is one of the first tier.
    fn with_a_second_tier(self, seed: u64) -> SwarmConfig {
        let prng = Prng::new(seed ^ 0x5449_4552_0000);
        let drawn = prng.below(TIERED_SEEDS) == 0;
        let tiered = std::env::var("SHOAL_TIERED").map_or(drawn, |tiered| tiered == "1");
        let data = self.slots - self.parity;
        if !tiered || self.long || data == 1 {
            return self;
        }
        let k = 1 + prng.below(u64::from(data - 1)) as u8;
        let code = Code::new(k, self.parity as u8).expect("a code");
        let tier = Geometry::new(code, prng.pick(&UNITS), 1 + prng.below(8) as u32).expect("a geometry");
        SwarmConfig { tier: Some(tier), ..self }
    }

    /// A topology for some seeds, of any shape; then stripes of some clients go along trees of members. Its draws are its own.
    fn with_a_topology(self, seed: u64) -> SwarmConfig {
        let prng = Prng::new(seed ^ 0x544f_504f_0000);
        let drawn = prng.below(KNOWN_NETWORK_SEEDS) == 0;
        if !std::env::var("SHOAL_TOPOLOGY").map_or(drawn, |wanted| wanted == "1") {
            return self;
        }
        let nodes = self.bricks;
        let mut text = String::new();
        let columns = prng.pick(&[2, 3, 4, nodes]);
        match prng.below(6) {
            // A torus needs a node at every place.
            0 if nodes.is_multiple_of(columns) && nodes / columns > 1 => {
                text += &format!("torus {columns}x{}\n", nodes / columns);
                (0..nodes)
                    .for_each(|id| text += &format!("node {id} at {},{}\n", id % columns, id / columns));
            }
            1 => {
                text += "fat-tree\n";
                (0..nodes).for_each(|id| text += &format!("node {id} at {}\n", id % columns));
            }
            2 => {
                text += "mesh\n";
                (0..nodes).for_each(|id| text += &format!("node {id}\n"));
            }
            3 => {
                text += "flat\n";
                (0..nodes).for_each(|id| text += &format!("node {id}\n"));
            }
            // A tree of cables, or a chain or ring.
            _ => {
                let is_chain = prng.coin();
                text += "links\n";
                (0..nodes)
                    .for_each(|id| text += &format!("node {id}{}\n", if id < 2 { " front" } else { "" }));
                for id in 1..nodes {
                    let other = if is_chain { id - 1 } else { prng.below(id.into()) as u32 };
                    text += &format!("link {other} {id}\n");
                }
                // A chain becomes a ring.
                if is_chain && nodes > 2 && prng.coin() {
                    text += &format!("link 0 {}\n", nodes - 1);
                }
            }
        }
        let (front_primaries, wide) = (prng.below(4) == 0, prng.coin());
        let spec = PlacementSpec { domain: FailureDomain::Node, front_primaries, wide };
        let mut encode = self.encode;
        encode.iter_mut().filter(|_| prng.coin()).for_each(|encode| *encode = Encode::Relay);
        let mut transient = self.transient;
        let of_networks = [TransientFault::Halves, TransientFault::Relay, TransientFault::Cable];
        transient.extend(prng.subset(&of_networks));
        SwarmConfig { encode, transient, topology: Some((text, spec)), ..self }
    }

    /// Long files for some seeds. They have draws of their own: the others run as they would without.
    fn with_long_files(self, seed: u64) -> SwarmConfig {
        let prng = Prng::new(seed ^ 0x4c4f_4e47_0000);
        let drawn = prng.below(LONG_SEEDS) == 0;
        let long = std::env::var("SHOAL_LONG_FILES").map_or(drawn, |long| long == "1");
        if !long {
            return self;
        }
        let (unit, whole_files) = (UNITS[0], prng.below(4) == 0);
        SwarmConfig { unit, long, whole_files, spare: Some(self.bricks), bricks: self.bricks + 1, ..self }
    }
}
