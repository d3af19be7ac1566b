//! Ids as newtypes, so that they cannot be confused. No id is ever reused.

use std::fmt;
use std::ops::Range;

use crate::limits::{SHARDS_MAX, TIERS_MAX};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id!(/// A storage device of the cluster.
    BrickId(u32), "b");
id!(/// A machine: the usual failure domain.
    NodeId(u32), "n");
id!(/// A volume.
    VolumeId(u32), "v");
id!(/// A name-space entry: file, directory or symbolic link.
    InodeId(u64), "i");
id!(/// One mount, for as long as it lives. New per mount, never reused.
    ClientId(u64), "c");
id!(/// The number that a client gives to each of its writes; each write lies in one stripe.
    ClientSeq(u64), "w");
id!(/// The version of a group's configuration.
    Epoch(u32), "e");
id!(/// Some of the volumes of a cluster, with metadata servers of their own. The first shard is 0.
    ShardId(u8), "s");
id!(/// The version of the cluster map.
    MapVersion(u64), "m");
id!(/// One run of a process: changes at every start.
    Incarnation(u64), "x");

impl Epoch {
    /// Every epoch is below this one: a [`Seq`] has room for 24 bits of it.
    pub const END: Epoch = Epoch(1 << (64 - Seq::COUNTER_BITS));
}

impl MapVersion {
    /// A restoration raises the version by more than this, and nothing else raises it by as much at a time.
    const OF_A_RESTORATION: u64 = 1 << 38;

    /// Whether a service with this version has not heard of a restoration, after which `later` was given out.
    pub fn is_of_before(self, later: MapVersion) -> bool {
        self.0.saturating_add(MapVersion::OF_A_RESTORATION) < later.0
    }
}

impl InodeId {
    /// The root directory of every volume's tree.
    pub const ROOT: InodeId = InodeId(1);
}

/// Bits of an id of an inode, object or client below its shard.
const NUMBER_SHIFT: u32 = 56;
/// Bits of a volume's id below its shard.
const VOLUME_SHIFT: u32 = 28;
/// Set in the ids of all volumes that are not in the first shard.
const VOLUME_SHARDED: u32 = 1 << 31;

/// The metadata servers of a shard give out ids that no other shard gives out: so an id tells its shard.
impl ShardId {
    /// The first shard. It knows the others; a cluster that nobody has divided has no other.
    pub const FIRST: ShardId = ShardId(0);

    /// Ids of inodes, objects and clients that the shard may give out. In the first shard they count from 1.
    pub fn numbers(self) -> Range<u64> {
        let first = u64::from(self.0) << NUMBER_SHIFT;
        first..first.saturating_add(1 << NUMBER_SHIFT)
    }

    /// Ids of volumes that the shard may give out.
    pub fn volumes(self) -> Range<u32> {
        match self {
            ShardId::FIRST => 0..VOLUME_SHARDED,
            ShardId(shard) => {
                let first = VOLUME_SHARDED | u32::from(shard) << VOLUME_SHIFT;
                first..first + ((1 << VOLUME_SHIFT) - 1)
            }
        }
    }

    fn of_number(number: u64) -> ShardId {
        ShardId((number >> NUMBER_SHIFT) as u8)
    }
}

impl VolumeId {
    /// The shard that has the volume.
    pub fn shard(self) -> ShardId {
        match self.0 & VOLUME_SHARDED {
            0 => ShardId::FIRST,
            _ => ShardId((self.0 >> VOLUME_SHIFT) as u8 & (SHARDS_MAX as u8 - 1)),
        }
    }
}

impl ClientId {
    /// The shard that has given it out.
    pub fn shard(self) -> ShardId {
        ShardId::of_number(self.0)
    }
}

/// The bytes of one file at one data generation. Truncation to zero makes a new one, and so does a move to another tier.
/// The upper four bits are the number of the tier that holds its units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(pub u64);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tier() {
            0 => write!(f, "o{}", self.0),
            tier => write!(f, "o{}@{tier}", self.0 & ((1 << ObjectId::TIER_SHIFT) - 1)),
        }
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ObjectId {
    /// Bits of the id below the tier.
    const TIER_SHIFT: u32 = 60;

    /// The object with a number below 2^60, in a tier.
    ///
    /// # Panics
    /// If the number or the tier is out of range.
    pub fn in_tier(number: u64, tier: u8) -> ObjectId {
        assert!(number >> ObjectId::TIER_SHIFT == 0, "ids are counted one by one");
        assert!(usize::from(tier) < TIERS_MAX, "a volume has at most {TIERS_MAX} tiers");
        ObjectId(u64::from(tier) << ObjectId::TIER_SHIFT | number)
    }

    /// The number of its tier.
    pub fn tier(self) -> u8 {
        (self.0 >> ObjectId::TIER_SHIFT) as u8
    }

    /// Its number within all tiers.
    pub fn number(self) -> u64 {
        self.0 & ((1 << ObjectId::TIER_SHIFT) - 1)
    }
}

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0.checked_add(1).expect("a group's configuration changes fewer than 2^32 times"))
    }
}

/// The cluster that a process, a brick or a message belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ClusterId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ClusterId, Self::Err> {
        const BAD: &str = "a cluster id has 32 hexadecimal digits";
        if text.len() != 32 || !text.is_ascii() {
            return Err(BAD);
        }
        let mut id = [0; 16];
        for (i, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| BAD)?;
        }
        Ok(ClusterId(id))
    }
}

/// A group of one volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId {
    /// The volume that the group belongs to.
    pub volume: VolumeId,
    /// Position in the volume's table of groups.
    pub index: u32,
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/g{}", self.volume, self.index)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One stripe of one object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StripeKey {
    /// The object.
    pub object: ObjectId,
    /// Index of the stripe in the object, from 0.
    pub stripe: u64,
}

impl fmt::Display for StripeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.object, self.stripe)
    }
}

impl fmt::Debug for StripeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The place of an operation in its group's order: the epoch that issued it, then a counter. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// Bits of the counter below the epoch.
    const COUNTER_BITS: u32 = 40;
    /// The last operation of an epoch.
    const COUNTER_MAX: u64 = (1 << Self::COUNTER_BITS) - 1;

    /// Before every operation; also the identity of a unit that is absent.
    pub const NONE: Seq = Seq(0);

    /// The `counter`-th operation of `epoch` (counting from 1).
    pub fn new(epoch: Epoch, counter: u64) -> Seq {
        assert!(counter < 1 << Self::COUNTER_BITS, "an epoch orders fewer than 2^40 operations");
        assert!(epoch < Epoch::END, "an epoch fits 24 bits");
        Seq(u64::from(epoch.0) << Self::COUNTER_BITS | counter)
    }

    /// The epoch that issued it.
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> Self::COUNTER_BITS) as u32)
    }

    /// The least sequence number that is greater: within the same epoch, or the first one after it. The greatest one follows
    /// itself: no epoch issues it (see [`Seq::is_last`]), but another server may name it.
    pub fn next(self) -> Seq {
        Seq(self.0.saturating_add(1))
    }

    /// Whether its epoch has no number after it, so that a new epoch must begin.
    pub fn is_last(self) -> bool {
        self.0 & Self::COUNTER_MAX == Self::COUNTER_MAX
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.0 & ((1 << Self::COUNTER_BITS) - 1))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_number_follows_itself_and_ends_its_epoch() {
        let last = Seq::new(Epoch(7), Seq::COUNTER_MAX);
        assert!(last.is_last() && !Seq::new(Epoch(7), 1).is_last());
        assert_eq!(last.next(), Seq::new(Epoch(8), 0), "no number lies between two epochs");
        assert_eq!(Seq(u64::MAX).next(), Seq(u64::MAX));
    }

    #[test]
    fn seq_orders_by_epoch_then_counter() {
        assert!(Seq::new(Epoch(1), 900) < Seq::new(Epoch(2), 1));
        assert_eq!(Seq::new(Epoch(7), 9).epoch(), Epoch(7));
        assert_eq!(Seq::new(Epoch(7), 9001).to_string(), "e7.9001");
    }

    #[test]
    fn ids_tell_their_shard_and_no_two_shards_give_out_the_same() {
        let (mut numbers, mut volumes) = (0, 0);
        for shard in (0..SHARDS_MAX as u8).map(ShardId) {
            let (of_numbers, of_volumes) = (shard.numbers(), shard.volumes());
            assert!(of_numbers.start >= numbers && of_volumes.start >= volumes);
            (numbers, volumes) = (of_numbers.end, of_volumes.end);
            for number in [of_numbers.start, of_numbers.start + 1, of_numbers.end - 1] {
                assert_eq!(ClientId(number).shard(), shard);
                // The upper bits are those of the tier.
                ObjectId::in_tier(number, 3);
            }
            for volume in [of_volumes.start, of_volumes.start + 1, of_volumes.end - 1] {
                assert_eq!(VolumeId(volume).shard(), shard);
            }
        }
    }

    #[test]
    fn cluster_id_round_trips_as_text() {
        let id = ClusterId([0xab; 16]);
        assert_eq!(id.to_string().parse::<ClusterId>(), Ok(id));
        assert!("xyz".parse::<ClusterId>().is_err());
        assert!("é".repeat(16).parse::<ClusterId>().is_err());
    }
}
