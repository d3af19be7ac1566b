//! Cuts of files that several clients have open, and who zeroes what they have left.
//!
//! ```text
//!  cutter            service                         another client that has it open
//!    ├── SetAttr ─────▶│ Quiesce, number n ───────────────────▶│ ends its reads and writes, begins none
//!    │                 │◀───────────────────────── Quiesced, n ┤
//!    │                 │ the cut, durable                      │
//!    │◀── done ────────┤── done ──────────────────────────────▶│ goes on, by the new attributes
//! ```
//!
//! So nothing is under way while a file is cut: a read or write is before the cut, or begins after it and knows of it.
//! A read that spanned a cut could find what is written after it, before others can.
//!
//! Whoever then makes the file longer zeroes what the cut has left: one client at a time, from its `ZeroBegin` to its
//! `Zeroed`, and nobody else writes there until that is done.
//!
//! A number says which cut or which zeroing a message is about, so late copies mean nothing. Numbers of cuts begin at a
//! random one, so those of an earlier life of the service mean nothing either. A client that is lost is not waited for
//! when the bricks refuse it.

use std::collections::BTreeMap;

use types::messages::cluster::Quiesce;
use types::{ClientId, cost};

use crate::volatile::VolumeInode;

/// A cut under way.
#[derive(Debug)]
struct Truncation {
    client: ClientId,
    number: u64,
    /// The clients that have not stopped, and whether they have been told.
    going: BTreeMap<ClientId, bool>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    truncations: BTreeMap<VolumeInode, Truncation>,
    /// The number of the last cut.
    last: u64,
    /// Who zeroes what, under which number.
    zeroing: BTreeMap<VolumeInode, (ClientId, u64)>,
}

impl Truncations {
    /// The next cut's number is the one after this.
    pub(crate) fn count_from(&mut self, number: u64) {
        self.last = number;
    }

    /// Begins to cut, unless somebody is at it. Nobody else may be let in until [`Truncations::end`].
    pub(crate) fn begin(
        &mut self,
        place: VolumeInode,
        client: ClientId,
        others: impl Iterator<Item = ClientId>,
    ) -> bool {
        if self.truncations.contains_key(&place) {
            return false;
        }
        self.last = self.last.wrapping_add(1);
        let going = others.map(|other| (other, false)).collect();
        self.truncations.insert(place, Truncation { client, number: self.last, going });
        true
    }

    /// The cut is made, or given up.
    pub(crate) fn end(&mut self, place: VolumeInode) {
        self.truncations.remove(&place);
    }

    /// Somebody other than `client` is cutting.
    pub(crate) fn others_truncate(&self, place: VolumeInode, client: ClientId) -> bool {
        self.truncations.get(&place).is_some_and(|cut| cut.client != client)
    }

    /// Whether nothing is under way any more, at those of whom `is_open` is still true.
    pub(crate) fn is_quiesced(&self, place: VolumeInode, is_open: impl Fn(ClientId) -> bool) -> bool {
        self.truncations.get(&place).is_none_or(|cut| !cut.going.keys().any(|client| is_open(*client)))
    }

    /// A client has stopped.
    pub(crate) fn stopped(&mut self, place: VolumeInode, client: ClientId, number: u64) {
        if let Some(cut) = self.truncations.get_mut(&place).filter(|cut| cut.number == number) {
            cut.going.remove(&client);
        }
    }

    /// Whether the cut with this number has ended.
    pub(crate) fn is_over(&self, place: VolumeInode, number: u64) -> bool {
        self.truncations.get(&place).is_none_or(|cut| cut.number != number)
    }

    /// Whether a client has to stop somewhere and has not been told.
    pub(crate) fn has_news(&self, client: ClientId) -> bool {
        cost::walked(self.truncations.values()).any(|cut| cut.going.get(&client) == Some(&false))
    }

    /// Where a client has to stop, until it has.
    pub(crate) fn stops(&mut self, client: ClientId) -> Vec<Quiesce> {
        let stop = |(place, cut): (&VolumeInode, &mut Truncation)| {
            *cut.going.get_mut(&client)? = true;
            Some(Quiesce { inode: place.1, number: cut.number })
        };
        cost::walked(&mut self.truncations).filter_map(stop).collect()
    }

    /// Whether a client may zero what is left, under a number of its own: nobody else is at it.
    pub(crate) fn may_zero(&mut self, place: VolumeInode, client: ClientId, number: u64) -> bool {
        let holder = self.zeroing.entry(place).or_insert((client, number));
        if holder.0 == client {
            holder.1 = number;
        }
        holder.0 == client
    }

    /// Nothing of that is on its way any more.
    pub(crate) fn end_zeroing(&mut self, place: VolumeInode, client: ClientId, number: u64) {
        if self.zeroing.get(&place) == Some(&(client, number)) {
            self.zeroing.remove(&place);
        }
    }

    /// A client does not have a file open any more.
    pub(crate) fn closed(&mut self, place: VolumeInode, client: ClientId) {
        if self.zeroing.get(&place).is_some_and(|holder| holder.0 == client) {
            self.zeroing.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{InodeId, VolumeId};

    const FILE: VolumeInode = (VolumeId(1), InodeId(7));
    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    fn begun() -> Truncations {
        let mut truncations = Truncations::default();
        truncations.count_from(u64::MAX);
        assert!(truncations.begin(FILE, A, [B, C].into_iter()));
        truncations
    }

    #[test]
    fn a_cut_waits_for_everybody() {
        let mut truncations = begun();
        let stop = vec![Quiesce { inode: FILE.1, number: 0 }];
        assert!(truncations.has_news(B) && !truncations.has_news(A));
        assert_eq!(truncations.stops(B), stop);
        assert!(!truncations.has_news(B));
        assert_eq!(truncations.stops(B), stop, "told again until it has stopped");
        truncations.stopped(FILE, B, 0);
        assert!(truncations.stops(B).is_empty() && !truncations.is_quiesced(FILE, |_| true));
        assert!(truncations.is_quiesced(FILE, |client| client == B), "the other has closed");
        truncations.stopped(FILE, C, 0);
        assert!(truncations.is_quiesced(FILE, |_| true) && !truncations.is_over(FILE, 0));
        assert!(truncations.others_truncate(FILE, B) && !truncations.others_truncate(FILE, A));
        assert!(!truncations.begin(FILE, B, [A].into_iter()), "one at a time");
        truncations.end(FILE);
        assert!(truncations.is_over(FILE, 0) && !truncations.others_truncate(FILE, B));
    }

    #[test]
    fn a_late_copy_stops_nothing() {
        let mut truncations = begun();
        truncations.end(FILE);
        assert!(truncations.begin(FILE, A, [B].into_iter()));
        truncations.stopped(FILE, B, 0);
        assert!(
            !truncations.is_quiesced(FILE, |_| true)
                && truncations.is_over(FILE, 0)
                && !truncations.is_over(FILE, 1)
        );
    }

    #[test]
    fn one_client_zeroes_at_a_time() {
        let mut truncations = Truncations::default();
        assert!(truncations.may_zero(FILE, A, 5) && !truncations.may_zero(FILE, B, 1));
        assert!(truncations.may_zero(FILE, A, 6), "it has forgotten the first one");
        truncations.end_zeroing(FILE, A, 5);
        assert!(!truncations.may_zero(FILE, B, 2), "a late copy");
        truncations.end_zeroing(FILE, A, 6);
        assert!(truncations.may_zero(FILE, B, 3) && !truncations.may_zero(FILE, A, 7));
        truncations.closed(FILE, A);
        assert!(!truncations.may_zero(FILE, A, 8));
        truncations.closed(FILE, B);
        assert!(truncations.may_zero(FILE, A, 9));
    }
}
