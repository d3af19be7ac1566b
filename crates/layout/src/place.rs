//! Computes the group of an extent, without a table and without a request.
//!
//! The consecutive extents of an object form rounds of `groups` extents. A round uses each group exactly once, so
//! large files and block devices fill all bricks evenly. A hash of the volume, the object and the round chooses the
//! first group of a round, so small files are spread evenly too. **This function decides where data lie, so it must
//! never change.**
//!
//! ```text
//! round = extent / groups
//! hash  = mix(mix(mix(volume) ^ object) ^ round)         mix: SplitMix64's step and finaliser
//! group = (hash * groups / 2^64 + extent) mod groups     counted from the first group of the object's tier
//! ```

use std::ops::Range;

use types::{GroupId, ObjectId, VolumeId};

/// The group of extent `extent` of `object`, whose tier has the groups `groups` of the volume's table.
///
/// # Panics
/// If the tier has no groups.
pub fn group_of(volume: VolumeId, object: ObjectId, extent: u64, groups: &Range<u32>) -> GroupId {
    assert!(!groups.is_empty(), "a tier has groups");
    let count = u64::from(groups.end - groups.start);
    let hash = mix(mix(mix(volume.0.into()) ^ object.0) ^ (extent / count));
    let start = (u128::from(hash) * u128::from(count)) >> 64;
    let index = (start as u64 + extent % count) % count;
    GroupId { volume, index: groups.start + index as u32 }
}

/// A pseudo-random number: one step of SplitMix64 (Steele, Lea, Flood 2014) from state `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use types::{Code, Geometry};

    use super::*;

    fn index(volume: u32, object: u64, extent: u64, groups: u32) -> u32 {
        let group = group_of(VolumeId(volume), ObjectId(object), extent, &(0..groups));
        assert_eq!(group.volume, VolumeId(volume));
        group.index
    }

    #[test]
    fn mix_is_splitmix64() {
        // The first outputs of the published generator from seed 0 and 1234567.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    }

    /// If this fails, files are looked for where they are not: the function has changed.
    #[test]
    fn golden_places() {
        let places = [
            (1, 1, 0, 40),
            (1, 1, 1, 40),
            (1, 1, 39, 40),
            (1, 1, 40, 40),
            (1, 2, 0, 40),
            (2, 1, 0, 40),
            (7, 0x1234_5678_9abc, 1_000_000, 4096),
            (u32::MAX, u64::MAX, u64::MAX, 4095),
            (9, 9, 9, 1),
        ];
        let found = places.map(|(volume, object, extent, groups)| index(volume, object, extent, groups));
        assert_eq!(found, [13, 14, 12, 17, 36, 22, 4079, 1048, 0]);
    }

    #[test]
    fn a_large_object_uses_every_group_equally() {
        for groups in [1, 3, 40, 1000] {
            let mut used = vec![0; groups as usize];
            (0..u64::from(groups) * 5).for_each(|extent| used[index(3, 77, extent, groups) as usize] += 1);
            assert!(used.iter().all(|&count| count == 5));
        }
    }

    #[test]
    fn a_whole_file_is_in_one_group_and_files_are_in_all() {
        let geometry = Geometry::whole_files(Code::new(1, 0).expect("a code"), 4096).expect("a geometry");
        let of = |object| {
            let groups =
                [0, 1, 63, 64, 1 << 20, u64::MAX].map(|stripe| index(1, object, geometry.extent(stripe), 40));
            assert!(groups.iter().all(|group| *group == groups[0]), "object {object}: {groups:?}");
            groups[0]
        };
        assert_eq!((0..1000).map(of).collect::<BTreeSet<u32>>().len(), 40);
    }

    #[test]
    fn small_objects_spread_evenly() {
        // Chi-square with 99 degrees of freedom: 148 is the 0.1 % point. Consecutive, strided and odd object ids.
        for step in [1u64, 2, 64, 4096, 0x1_0000_0001] {
            for extent in [0, 1, 100, 12_345] {
                let mut used = [0u32; 100];
                (0..20_000).for_each(|i| used[index(1, i * step, extent, 100) as usize] += 1);
                let chi: f64 = used.iter().map(|&n| (f64::from(n) - 200.0).powi(2) / 200.0).sum();
                assert!(chi < 148.0, "step {step}, extent {extent}: {chi}");
            }
        }
    }
}
