//! Reads of whole stripes, by route.

use types::Code;

use super::messages::Message;
use super::network::{Network, Place};
use super::plan::{Part, Plan, Planner};
use super::writes::primary_slot;

/// By which way the units of a stripe reach the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadRoute {
    /// From each brick to the client, which decodes if units are missing.
    Direct,
    /// From each brick to the primary, which decodes, and on to the client.
    Gathered,
}

impl ReadRoute {
    /// All of them.
    pub const ALL: [ReadRoute; 2] = [ReadRoute::Direct, ReadRoute::Gathered];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            ReadRoute::Direct => "direct",
            ReadRoute::Gathered => "gathered",
        }
    }
}

/// The slots of a group whose units are there.
pub(crate) fn live_slots(network: &Network, group: &[u32]) -> Vec<usize> {
    (0..group.len()).filter(|&slot| !network.damage.empty.contains(&group[slot])).collect()
}

/// The slot of the primary: the lowest live parity slot, or the lowest live data slot if no parity is live.
pub(crate) fn acting_primary(code: Code, live: &[usize]) -> Option<usize> {
    live.iter().copied().find(|&slot| slot >= primary_slot(code)).or(live.first().copied())
}

/// A read by the client at node `client`, of a whole stripe if no part is told. [`None`] if more than M units are lost.
pub(crate) fn read(
    network: &Network,
    code: Code,
    route: ReadRoute,
    client: u32,
    group: &[u32],
    part: Option<&Part>,
) -> Option<Plan> {
    let live = live_slots(network, group);
    let primary = Place::Node(group[acting_primary(code, &live)?]);
    let reader = match route {
        ReadRoute::Direct => Place::Client(client),
        ReadRoute::Gathered => primary,
    };
    let slots = slots_to_read(network, code, &live, group, reader.node())?;
    let is_whole = slots.iter().all(|&slot| slot < code.k());
    let mut planner = Planner::new(network, code, part);
    let mut came = Vec::new();
    // A part of a stripe needs only the units that it touches, but all to decode.
    let is_wanted = |planner: &Planner<'_>, slot: usize| !is_whole || planner.has(slot);
    for slot in slots.iter().copied().filter(|&slot| is_wanted(&planner, slot)).collect::<Vec<usize>>() {
        let asked = [(Place::Client(client), reader), (reader, Place::Node(group[slot]))];
        let way = if route == ReadRoute::Direct { &asked[1..] } else { &asked[..] };
        let (asked, lead) = planner.ask(Message::ReadUnit, way);
        let unit = planner.send((Message::UnitBytes, slot), Place::Brick(group[slot]), reader, &asked);
        planner.plan.transfers[unit].lead = lead;
        came.push(unit);
    }
    let decoded = if is_whole { None } else { Some(planner.compute(reader, code.k(), &came)) };
    if route == ReadRoute::Gathered {
        for unit in 0..code.k() {
            let after = slots.iter().position(|&slot| slot == unit).map(|at| came[at]).or(decoded);
            planner.send((Message::UnitBytes, unit), primary, Place::Client(client), after.as_slice());
        }
    }
    Some(planner.plan)
}

/// The data units that are there, and instead of the others the nearest parity.
fn slots_to_read(
    network: &Network,
    code: Code,
    live: &[usize],
    group: &[u32],
    reader: u32,
) -> Option<Vec<usize>> {
    let (mut slots, mut parity): (Vec<usize>, Vec<usize>) = live.iter().partition(|&&slot| slot < code.k());
    parity.sort_by_key(|&slot| network.links_between(group[slot], reader).len());
    slots.extend(parity.into_iter().take(code.k() - slots.len()));
    (slots.len() == code.k()).then_some(slots)
}
