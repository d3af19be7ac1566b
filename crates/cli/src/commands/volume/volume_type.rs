//! The types of volumes: names that people know from other systems, for codes, numbers of groups and placements.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use types::messages::cluster::VolumeInfo;
use types::{BrickId, Code, limits};

use crate::problem::problem;

/// The types, for help and errors.
pub(super) const TYPES: &str = "\
Types:
  --type distribute                  code 1+0; each file lies whole in one group, which is one brick
  --type replicate N                 code 1+(N-1): N copies
  --type stripe N                    code N+0: nothing is protected
  --type disperse K+M                code K+M
  --type distributed-replicate N     as replicate, over all bricks
  --type distributed-stripe N        as stripe, over all bricks
  --type distributed-disperse K+M    as disperse, over all bricks
The types `replicate`, `stripe` and `disperse` make one group over exactly as many bricks as the code has units. The
`distributed-` types, and --code, make many groups over all bricks: there a large file lies in several groups, because
its extents of 64 stripes are spread. `distribute` keeps each file whole, and so does --whole-files with any code.";

/// The names of the types, for errors.
const NAMES: &str = "one of: distribute, replicate N, stripe N, disperse K+M, distributed-replicate N, \
                     distributed-stripe N, distributed-disperse K+M";

/// What a type stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct VolumeType {
    pub(super) code: Code,
    /// There is one group, not as many as fit the bricks.
    pub(super) one_group: bool,
    /// Each file lies whole in one group.
    pub(super) whole_files: bool,
}

/// Reads a type and its argument.
pub(super) fn parse(name: &str, argument: Option<&str>) -> anyhow::Result<VolumeType> {
    let (shape, one_group) = match name.strip_prefix("distributed-") {
        Some(shape) => (shape, false),
        None => (name, true),
    };
    let code = match shape {
        "replicate" => code(1, number(name, "copies", argument, 2..=1 + limits::M_MAX)? - 1)?,
        "stripe" => code(number(name, "bricks", argument, 2..=limits::K_MAX)?, 0)?,
        "disperse" => dispersed(name, argument)?,
        "distribute" if one_group => {
            if let Some(argument) = argument {
                let what = format!("the type `distribute` takes no argument, and `{argument}` is one");
                return Err(problem(what, "--type distribute"));
            }
            return Ok(VolumeType { code: code(1, 0)?, one_group: false, whole_files: true });
        }
        _ => return Err(problem(format!("there is no type `{name}`"), NAMES)),
    };
    Ok(VolumeType { code, one_group, whole_files: false })
}

fn code(k: u8, m: u8) -> anyhow::Result<Code> {
    Ok(Code::new(k, m)?)
}

/// The argument of a type that takes a number of `things`.
fn number(name: &str, things: &str, argument: Option<&str>, range: RangeInclusive<u8>) -> anyhow::Result<u8> {
    let (least, most) = (range.start(), range.end());
    let found = argument.and_then(|text| text.parse().ok()).filter(|number| range.contains(number));
    found.ok_or_else(|| {
        let what =
            format!("the type `{name}` needs a number of {things} from {least} to {most}{}", not(argument));
        problem(what, format!("--type {name} {}", least.max(&3)))
    })
}

/// The argument of a type that takes a code with parity.
fn dispersed(name: &str, argument: Option<&str>) -> anyhow::Result<Code> {
    let code = argument.and_then(|text| text.parse::<Code>().ok());
    if let Some(code) = code.filter(|code| code.m() == 0) {
        let what = format!("the type `{name}` needs at least one parity unit, and code {code} has none");
        return Err(problem(what, format!("--type {} {}", name.replace("disperse", "stripe"), code.k())));
    }
    code.ok_or_else(|| {
        let (k, m) = (limits::K_MAX, limits::M_MAX);
        let what = format!(
            "the type `{name}` needs a code K+M of 1 to {k} data and 1 to {m} parity units{}",
            not(argument)
        );
        problem(what, format!("--type {name} 4+2"))
    })
}

/// Names an argument that will not do.
fn not(argument: Option<&str>) -> String {
    argument.map(|text| format!(", not `{text}`")).unwrap_or_default()
}

/// The name of the type that a volume is of, if it is of any.
pub(crate) fn type_of(volume: &VolumeInfo) -> Option<&'static str> {
    if !volume.tiers.is_empty() {
        return Some("tiered");
    }
    let code = volume.geometry.code();
    let slots = volume.groups.iter().flat_map(|group| &group.slots);
    let bricks: BTreeSet<BrickId> = slots.map(|slot| slot.brick).collect();
    let over_all = bricks.len() > code.slots();
    match (code.k(), code.m(), volume.geometry.has_whole_files()) {
        (1, 0, true) => Some("distribute"),
        (1, 0, false) | (_, _, true) => None,
        (1, _, false) => Some(if over_all { "distributed-replicate" } else { "replicate" }),
        (_, 0, false) => Some(if over_all { "distributed-stripe" } else { "stripe" }),
        (_, _, false) => Some(if over_all { "distributed-disperse" } else { "disperse" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::remedy;
    use types::messages::cluster::{GroupConfig, SlotConfig, SlotState};
    use types::{Epoch, Geometry, VolumeId};

    fn parsed(words: &str) -> anyhow::Result<VolumeType> {
        let mut words = words.split(' ');
        parse(words.next().expect("a type"), words.next())
    }

    #[test]
    fn types_are_codes_groups_and_placements() {
        let types = [
            ("distribute", "1+0", false, true),
            ("replicate 3", "1+2", true, false),
            ("stripe 4", "4+0", true, false),
            ("disperse 4+2", "4+2", true, false),
            ("disperse 1+2", "1+2", true, false),
            ("distributed-replicate 2", "1+1", false, false),
            ("distributed-stripe 32", "32+0", false, false),
            ("distributed-disperse 8+2", "8+2", false, false),
        ];
        for (words, code, one_group, whole_files) in types {
            let code = code.parse().expect("a code");
            let found = parsed(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_eq!(found, VolumeType { code, one_group, whole_files }, "{words}");
        }
    }

    #[test]
    fn what_is_no_type_is_refused_with_what_would_do() {
        let refused = [
            ("raid5", "there is no type `raid5`", "one of: distribute, replicate N, stripe N, disperse K+M"),
            ("distributed-distribute", "no type `distributed-distribute`", "one of: distribute"),
            ("distribute 3", "takes no argument, and `3` is one", "--type distribute"),
            ("replicate", "needs a number of copies from 2 to 7", "--type replicate 3"),
            ("replicate 1", "from 2 to 7, not `1`", "--type replicate 3"),
            ("replicate 8", "from 2 to 7, not `8`", "--type replicate 3"),
            ("replicate three", "not `three`", "--type replicate 3"),
            ("stripe 0", "needs a number of bricks from 2 to 32, not `0`", "--type stripe 3"),
            ("stripe 1", "not `1`", "--type stripe 3"),
            ("distributed-stripe 33", "not `33`", "--type distributed-stripe 3"),
            ("disperse", "needs a code K+M", "--type disperse 4+2"),
            ("disperse 6", "needs a code K+M of 1 to 32 data and 1 to 6 parity units, not `6`", "4+2"),
            ("disperse 4+7", "not `4+7`", "4+2"),
            ("disperse 4+0", "at least one parity unit, and code 4+0 has none", "--type stripe 4"),
            ("distributed-disperse 4+0", "has none", "--type distributed-stripe 4"),
        ];
        for (words, what, instead) in refused {
            let error = parsed(words).expect_err(words);
            assert!(error.to_string().contains(what), "{words}: {error}");
            assert!(
                remedy(&error).is_some_and(|remedy| remedy.contains(instead)),
                "{words}: {:?}",
                remedy(&error)
            );
        }
    }

    #[test]
    fn a_volume_is_of_the_type_that_its_code_and_bricks_say() {
        let slot = |brick| SlotConfig { brick: BrickId(brick), state: SlotState::Live };
        let name = |geometry: Geometry, groups: &[&[u32]]| {
            let group = |bricks: &&[u32]| GroupConfig {
                epoch: Epoch(1),
                slots: bricks.iter().copied().map(slot).collect(),
            };
            let groups = groups.iter().map(group).collect();
            type_of(&VolumeInfo {
                id: VolumeId(1),
                name: "v".into(),
                geometry,
                groups,
                same_node: true,
                block: None,
                tuning: String::new(),
                class: None,
                tiers: Vec::new(),
                placement: None,
                near_writer: false,
            })
        };
        let code = |code: &str| code.parse().expect("a code");
        let spread = |text| Geometry::new(code(text), 4096, 64).expect("a geometry");
        assert_eq!(name(spread("1+2"), &[&[1, 2, 3]]), Some("replicate"));
        assert_eq!(name(spread("1+2"), &[&[1, 2, 3], &[3, 1, 2]]), Some("replicate"));
        assert_eq!(name(spread("1+1"), &[&[1, 2], &[2, 3]]), Some("distributed-replicate"));
        assert_eq!(name(spread("2+0"), &[&[1, 2]]), Some("stripe"));
        assert_eq!(name(spread("2+0"), &[&[1, 2], &[3, 4]]), Some("distributed-stripe"));
        assert_eq!(name(spread("2+1"), &[&[1, 2, 3]]), Some("disperse"));
        assert_eq!(name(spread("2+1"), &[&[1, 2, 3], &[2, 3, 4]]), Some("distributed-disperse"));
        assert_eq!(name(spread("1+0"), &[&[1], &[2]]), None, "extents of a file are spread");
        let whole = Geometry::whole_files(code("1+0"), 4096).expect("a geometry");
        assert_eq!(name(whole, &[&[1], &[2]]), Some("distribute"));
    }
}
