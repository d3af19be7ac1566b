//! An operation: transfers of one unit each, which wait for each other; and small messages, if they are counted.

use std::ops::Range;

use types::Code;

use super::messages::Message;
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
    /// Bytes of it, if it is no unit.
    pub(crate) bytes: Option<u64>,
    /// Transfers of the same plan, all of them earlier ones.
    pub(crate) after: Vec<usize>,
    /// It waits for the last slices of these, not for the same ones.
    pub(crate) waits_for_all: bool,
    /// The stations of the way back, if acknowledgements are counted.
    pub(crate) home: Vec<StationId>,
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

/// What is written or read of a stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Bytes of a unit.
    pub(crate) unit: u64,
    /// Data units of the stripe.
    pub(crate) units: u64,
    /// Which of its bytes.
    pub(crate) range: Range<u64>,
}

impl Part {
    /// Bytes of it in a data unit.
    pub(crate) fn of_unit(&self, slot: usize) -> u64 {
        let (from, to) = (slot as u64 * self.unit, (slot as u64 + 1) * self.unit);
        self.range.end.min(to).saturating_sub(self.range.start.max(from))
    }

    /// Whether it is all of the stripe.
    pub(crate) fn is_whole(&self) -> bool {
        self.range == (0..self.units * self.unit)
    }
}

/// Makes a plan.
pub(crate) struct Planner<'a> {
    pub(crate) network: &'a Network,
    pub(crate) plan: Plan,
    code: Code,
    part: Option<&'a Part>,
}

impl<'a> Planner<'a> {
    /// A plan for a part of a stripe; none: for all of it, whatever its length.
    pub(crate) fn new(network: &'a Network, code: Code, part: Option<&'a Part>) -> Planner<'a> {
        Planner { network, plan: Plan::default(), code, part }
    }

    /// The part whose messages are counted.
    fn exact(&self) -> Option<&'a Part> {
        self.part.filter(|_| self.network.is_exact())
    }

    /// Bytes in the unit of a slot, if that is not all of it. Parity is as long as the longest data unit.
    pub(crate) fn bytes_of(&self, slot: usize) -> Option<u64> {
        let part = self.part?;
        let longest = (0..self.code.k()).map(|slot| part.of_unit(slot)).max().unwrap_or(0);
        Some(if slot < self.code.k() { part.of_unit(slot) } else { longest })
    }

    /// Whether the unit of a slot has any bytes.
    pub(crate) fn has(&self, slot: usize) -> bool {
        self.bytes_of(slot) != Some(0)
    }

    /// Sends the unit of a slot within a message. Returns the transfer.
    pub(crate) fn send(
        &mut self,
        (message, slot): (Message, usize),
        from: Place,
        to: Place,
        after: &[usize],
    ) -> usize {
        let hops = self.network.links_between(from.node(), to.node()).len() as u32;
        self.plan.unit_hops += hops;
        let leaves = match from {
            Place::Client(_) => hops > 0 || self.network.is_client_outside(),
            _ => false,
        };
        self.plan.sent += u32::from(leaves);
        let head = self.exact().map_or(0, |part| message.bytes(self.code, part.unit));
        let bytes = self.bytes_of(slot).map(|bytes| bytes + head);
        self.carry(from, to, bytes, after)
    }

    /// Sends a unit within no message that anybody counts. Returns the transfer.
    pub(crate) fn unit(&mut self, from: Place, to: Place, after: &[usize]) -> usize {
        self.send((Message::Further, 0), from, to, after)
    }

    fn carry(&mut self, from: Place, to: Place, bytes: Option<u64>, after: &[usize]) -> usize {
        let home = if self.exact().is_some() { self.network.way(to, from) } else { Vec::new() };
        self.push(Transfer {
            way: self.network.way(from, to),
            weight: 1,
            bytes,
            after: after.to_vec(),
            home,
            back: self.network.delay(to, from),
            ..Transfer::default()
        })
    }

    /// Computes from `units` units those of a slot's length. Returns the transfer that stands for the result.
    pub(crate) fn compute(&mut self, at: Place, units: usize, after: &[usize]) -> usize {
        let (way, bytes) = (vec![self.network.computer(at)], self.bytes_of(self.code.k()));
        self.push(Transfer { way, weight: units as u32, bytes, after: after.to_vec(), ..Transfer::default() })
    }

    /// A message without a unit, when all of the earlier transfers are there. [`None`]: small messages are not counted.
    pub(crate) fn tell(
        &mut self,
        message: Message,
        from: Place,
        to: Place,
        after: &[usize],
    ) -> Option<usize> {
        let part = self.exact()?;
        let told = self.carry(from, to, Some(message.bytes(self.code, part.unit)), after);
        self.plan.transfers[told].waits_for_all = true;
        Some(told)
    }

    /// Where whoever forwards takes in a message as a whole, as servers do: the transfer waits for all of these.
    pub(crate) fn after_all(&mut self, transfer: usize, after: &[usize]) {
        if self.exact().is_some() {
            self.plan.transfers[transfer].after = after.to_vec();
            self.plan.transfers[transfer].waits_for_all = true;
        }
    }

    /// A request on its way. Returns the transfers of its messages, if they are counted, and its time, if they are not.
    pub(crate) fn ask(&mut self, message: Message, ways: &[(Place, Place)]) -> (Vec<usize>, Time) {
        if self.exact().is_none() {
            return (Vec::new(), ways.iter().map(|&(from, to)| self.network.delay(from, to)).sum());
        }
        let mut asked = Vec::new();
        for &(from, to) in ways {
            asked = self.tell(message, from, to, &asked).into_iter().collect();
        }
        (asked, 0)
    }

    /// The transfer is done when an answer has come over this way. Returns the answer's transfer, if it is counted.
    pub(crate) fn answered(
        &mut self,
        message: Message,
        transfer: usize,
        from: Place,
        to: Place,
    ) -> Option<usize> {
        let told = self.tell(message, from, to, &[transfer]);
        if told.is_none() {
            self.plan.transfers[transfer].reply = self.network.delay(from, to);
        }
        told
    }

    fn push(&mut self, transfer: Transfer) -> usize {
        self.plan.transfers.push(transfer);
        self.plan.transfers.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_stripe_is_some_bytes_of_some_units() {
        let part = Part { unit: 4096, units: 4, range: 2048..9000 };
        let bytes: Vec<u64> = (0..4).map(|slot| part.of_unit(slot)).collect();
        assert_eq!(bytes, [2048, 4096, 808, 0]);
        assert!(!part.is_whole() && Part { range: 0..16384, ..part }.is_whole());
    }
}
