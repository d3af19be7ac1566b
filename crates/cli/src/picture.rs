//! A picture of a volume: one column per brick, one row per group; each cell shows the slot that the brick has in the
//! group.
//!
//! ```text
//!          b1   b2   b3   b4
//!          up   up  out   up
//!   g0     d0   d1   --  [p1]   epoch 2
//! ```
//!
//! `d0` is the first data slot, `p0` the first parity slot, `[..]` the primary, `--` a slot that is lost.

use types::messages::cluster::{BrickInfo, BrickState, ClusterMap, GroupConfig, SlotState, VolumeInfo};
use types::{BrickId, Code};

use crate::tier_code::TierCode;

/// Most groups of a tier that a picture shows.
const GROUPS_SHOWN: usize = 12;
/// Most bricks that a picture shows, so that it fits a terminal.
const BRICKS_SHOWN: usize = 16;

/// Draws a volume, with or without colours.
pub(crate) fn picture(map: &ClusterMap, volume: &VolumeInfo, colours: bool) -> String {
    let bricks: Vec<&BrickInfo> = map.bricks.iter().take(BRICKS_SHOWN).collect();
    let mut text = row("brick", bricks.iter().map(|b| plain(&b.id.to_string())), "", colours);
    text += &row("", bricks.iter().map(|b| state(b.state)), "", colours);
    for tier in volume.all_tiers() {
        let code = tier.geometry.code();
        for (index, group) in
            tier.groups.clone().zip(volume.groups.iter().skip(tier.groups.start as usize)).take(GROUPS_SHOWN)
        {
            let cells = bricks.iter().map(|b| slot(code, group, b.id));
            text += &row(&format!("g{index}"), cells, &format!("epoch {}", group.epoch.0), colours);
        }
        if tier.groups.len() > GROUPS_SHOWN {
            text += &format!("  ... and {} groups more\n", tier.groups.len() - GROUPS_SHOWN);
        }
        let parity = if code.m() == 0 { "" } else { ", p parity" };
        text += &format!("  code {}: d data{parity}, [ ] primary, -- lost\n", TierCode::of(&tier));
    }
    if map.bricks.len() > BRICKS_SHOWN {
        text += &format!("  ... and {} bricks more\n", map.bricks.len() - BRICKS_SHOWN);
    }
    text
}

struct Cell {
    text: String,
    colour: &'static str,
}

fn plain(text: &str) -> Cell {
    Cell { text: text.to_owned(), colour: "" }
}

fn state(state: BrickState) -> Cell {
    match state {
        BrickState::Up => Cell { text: "up".into(), colour: "32" },
        BrickState::Out => Cell { text: "out".into(), colour: "1;31" },
    }
}

fn slot(code: Code, group: &GroupConfig, brick: BrickId) -> Cell {
    let Some((index, config)) = group.slots.iter().enumerate().find(|(_, s)| s.brick == brick) else {
        return plain(".");
    };
    let name = match index.checked_sub(code.k()) {
        None => format!("d{index}"),
        Some(parity) => format!("p{parity}"),
    };
    match config.state {
        SlotState::Out => Cell { text: "--".into(), colour: "1;31" },
        SlotState::Live if group.primary(code) == Some(index) => {
            Cell { text: format!("[{name}]"), colour: "1;36" }
        }
        SlotState::Live if index < code.k() => Cell { text: name, colour: "" },
        SlotState::Live => Cell { text: name, colour: "36" },
    }
}

fn row(head: &str, cells: impl Iterator<Item = Cell>, tail: &str, colours: bool) -> String {
    let mut line = format!("  {head:<6}");
    for cell in cells {
        let shown = format!("{:^6}", cell.text);
        if colours && !cell.colour.is_empty() {
            line += &format!("\x1b[{}m{shown}\x1b[0m", cell.colour);
        } else {
            line += &shown;
        }
    }
    line += "  ";
    line += tail;
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::messages::cluster::BrickClass;
    use types::messages::cluster::SlotConfig;
    use types::{ClusterId, Epoch, Geometry, VolumeId};

    #[test]
    fn a_lost_brick_and_the_next_primary_are_seen() {
        let brick = |id, state| BrickInfo {
            id: BrickId(id),
            node: types::NodeId(1),
            address: String::new(),
            capacity: 0,
            free: 0,
            state,
            class: BrickClass::Ssd,
        };
        let slot = |id, state| SlotConfig { brick: BrickId(id), state };
        let code = "1+2".parse().expect("a code");
        let volume = VolumeInfo {
            id: VolumeId(1),
            name: "main".into(),
            geometry: Geometry::new(code, 4096, 64).expect("a geometry"),
            groups: vec![GroupConfig {
                epoch: Epoch(2),
                slots: vec![slot(1, SlotState::Live), slot(2, SlotState::Out), slot(3, SlotState::Live)],
            }],
            same_node: false,
            block: None,
            tuning: String::new(),
            class: None,
            tiers: Vec::new(),
            placement: None,
            near_writer: false,
        };
        let mut map = ClusterMap::empty(ClusterId::default());
        map.bricks = vec![brick(1, BrickState::Up), brick(2, BrickState::Out), brick(3, BrickState::Up)];
        let text = picture(&map, &volume, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "          up   out    up");
        assert_eq!(lines[2], "  g0      d0    --   [p1]   epoch 2");
    }
}
