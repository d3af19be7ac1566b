//! The tiers of a volume, and the classes of bricks.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::cluster::{BrickClass, TierInfo, VolumeInfo};
use crate::{Code, Geometry, ObjectId};

impl fmt::Display for BrickClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BrickClass::Ssd => "ssd",
            BrickClass::Hdd => "hdd",
        })
    }
}

impl FromStr for BrickClass {
    type Err = String;

    fn from_str(text: &str) -> Result<BrickClass, String> {
        BrickClass::ALL.iter().copied().find(|class| class.to_string() == text).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            format!("`{text}` is not a class of bricks: write ssd or hdd")
        })
    }
}

/// A tier of a volume: a code, and groups of its own. An object lies in one tier, and its id tells which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Its number: 0 for the first.
    pub number: u8,
    /// How the bytes of its files become stripes.
    pub geometry: Geometry,
    /// The class of its bricks; any for [`None`].
    pub class: Option<BrickClass>,
    /// Its groups in the volume's table.
    pub groups: Range<u32>,
}

impl VolumeInfo {
    /// The tiers, from the first to the last.
    pub fn all_tiers(&self) -> impl Iterator<Item = Tier> + '_ {
        tiers_of((self.geometry, self.class), &self.tiers, self.groups.len())
    }

    /// The tier of an object; [`None`] if the volume has no such tier.
    pub fn tier_of(&self, object: ObjectId) -> Option<Tier> {
        self.all_tiers().nth(object.tier().into())
    }

    /// The tier of a group of the table.
    pub fn tier_of_group(&self, index: u32) -> Option<Tier> {
        self.all_tiers().find(|tier| tier.groups.contains(&index))
    }

    /// The code of a group of the table. An index that the table does not have counts as the first tier's.
    pub fn code_of(&self, index: u32) -> Code {
        self.tier_of_group(index).map_or(self.geometry.code(), |tier| tier.geometry.code())
    }
}

/// The tiers of a volume with a table of `groups` groups.
pub fn tiers_of(
    first: (Geometry, Option<BrickClass>),
    others: &[TierInfo],
    groups: usize,
) -> impl Iterator<Item = Tier> + '_ {
    let end = move |at: usize| others.get(at).map_or(groups as u32, |next| next.first);
    let others = (1..).zip(others).map(move |(number, tier)| Tier {
        number,
        geometry: tier.spec.geometry,
        class: tier.spec.class,
        groups: tier.first..end(number.into()),
    });
    std::iter::once(Tier { number: 0, geometry: first.0, class: first.1, groups: 0..end(0) }).chain(others)
}
