//! An operation: transfers of one unit each, which wait for each other.

use super::network::{Network, Place};
use super::stations::StationId;
use crate::time::Time;

/// The units of an operation are cut into the same slices; a transfer may send its slice `i` as soon as all transfers that it
/// waits for have delivered their slice `i`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfer {
    /// The stations, one after the other. None: what is sent is there at once.
    pub(crate) way: Vec<StationId>,
    /// Bytes that each station serves for a byte of a slice: 1 on links, more where a node computes from several units.
    pub(crate) weight: u32,
    /// Transfers of the same plan, all of them earlier ones.
    pub(crate) after: Vec<usize>,
    /// From the begin of the operation until it may begin: a request travels.
    pub(crate) lead: Time,
    /// From the arrival of a slice until its sender hears of it.
    pub(crate) back: Time,
    /// From its end until it counts as done: an answer travels.
    pub(crate) reply: Time,
}

/// An operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) transfers: Vec<Transfer>,
    /// From the last answer until the operation is done.
    pub(crate) tail: Time,
    /// Units that leave the client.
    pub(crate) sent: u32,
    /// Units times links.
    pub(crate) unit_hops: u32,
}

/// Makes a plan.
pub(crate) struct Planner<'a> {
    pub(crate) network: &'a Network,
    pub(crate) plan: Plan,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(network: &'a Network) -> Planner<'a> {
        Planner { network, plan: Plan::default() }
    }

    /// Sends a unit. Returns the transfer.
    pub(crate) fn send(&mut self, from: Place, to: Place, after: &[usize]) -> usize {
        let hops = self.network.links_between(from.node(), to.node()).len() as u32;
        self.plan.unit_hops += hops;
        let leaves = match from {
            Place::Client(_) => hops > 0 || self.network.is_client_outside(),
            _ => false,
        };
        self.plan.sent += u32::from(leaves);
        self.push(Transfer {
            way: self.network.way(from, to),
            weight: 1,
            after: after.to_vec(),
            back: self.network.delay(to, from),
            ..Transfer::default()
        })
    }

    /// Computes from `units` units. Returns the transfer that stands for the result.
    pub(crate) fn compute(&mut self, at: Place, units: usize, after: &[usize]) -> usize {
        let way = vec![self.network.computer(at)];
        self.push(Transfer { way, weight: units as u32, after: after.to_vec(), ..Transfer::default() })
    }

    /// The transfer begins when a request has come over these ways.
    pub(crate) fn asked_over(&mut self, transfer: usize, ways: &[(Place, Place)]) {
        self.plan.transfers[transfer].lead =
            ways.iter().map(|&(from, to)| self.network.delay(from, to)).sum();
    }

    /// The transfer is done when an answer has come over this way.
    pub(crate) fn answered_over(&mut self, transfer: usize, from: Place, to: Place) {
        self.plan.transfers[transfer].reply = self.network.delay(from, to);
    }

    fn push(&mut self, transfer: Transfer) -> usize {
        self.plan.transfers.push(transfer);
        self.plan.transfers.len() - 1
    }
}
