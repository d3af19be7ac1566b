//! Cuts of files that several clients have open, and who zeroes what they have left.
//!
//! ```text
//!  cutter            service                         another client that has it open
//!    ├── SetAttr ─────▶│ Stop, number n ──────────────────────▶│ ends its reads and writes, begins none
//!    │                 │◀────────────────────────── Stopped, n ┤
//!    │                 │ the cut, durable                      │
//!    │◀── done ────────┤── done ──────────────────────────────▶│ goes on, by the new attributes
//! ```
//!
//! So nothing is under way while a file is cut: a read or write is before the cut, or begins after it and knows of it.
//! A read that spanned a cut could find what is written after it, before others can.
//!
//! Whoever then makes the file longer zeroes what the cut has left: one client at a time, from its `Zero` to its
//! `Zeroed`, and nobody else writes there until that is done.
//!
//! A number says which cut or which zeroing a message is about, so late copies mean nothing. Numbers of cuts begin at a
//! random one, so those of an earlier life of the service mean nothing either. A client that is lost is not waited for
//! when the bricks refuse it.

use std::collections::BTreeMap;

use types::messages::cluster::Stop;
use types::{ClientId, cost};

use crate::live::Place;

/// A cut under way.
#[derive(Debug)]
struct Cut {
    client: ClientId,
    number: u64,
    /// The clients that have not stopped, and whether they have been told.
    going: BTreeMap<ClientId, bool>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    cuts: BTreeMap<Place, Cut>,
    /// The number of the last cut.
    last: u64,
    /// Who zeroes what, under which number.
    zeroing: BTreeMap<Place, (ClientId, u64)>,
}

impl Cuts {
    /// The next cut's number is the one after this.
    pub(crate) fn count_from(&mut self, number: u64) {
        self.last = number;
    }

    /// Begins to cut, unless somebody is at it. Nobody else may be let in until [`Cuts::end`].
    pub(crate) fn begin(
        &mut self,
        place: Place,
        client: ClientId,
        others: impl Iterator<Item = ClientId>,
    ) -> bool {
        if self.cuts.contains_key(&place) {
            return false;
        }
        self.last = self.last.wrapping_add(1);
        let going = others.map(|other| (other, false)).collect();
        self.cuts.insert(place, Cut { client, number: self.last, going });
        true
    }

    /// The cut is made, or given up.
    pub(crate) fn end(&mut self, place: Place) {
        self.cuts.remove(&place);
    }

    /// Somebody other than `client` is cutting.
    pub(crate) fn others_cut(&self, place: Place, client: ClientId) -> bool {
        self.cuts.get(&place).is_some_and(|cut| cut.client != client)
    }

    /// Whether nothing is under way any more, at those of whom `is_open` is still true.
    pub(crate) fn is_still(&self, place: Place, is_open: impl Fn(ClientId) -> bool) -> bool {
        self.cuts.get(&place).is_none_or(|cut| !cut.going.keys().any(|client| is_open(*client)))
    }

    /// A client has stopped.
    pub(crate) fn stopped(&mut self, place: Place, client: ClientId, number: u64) {
        if let Some(cut) = self.cuts.get_mut(&place).filter(|cut| cut.number == number) {
            cut.going.remove(&client);
        }
    }

    /// Whether the cut with this number has ended.
    pub(crate) fn is_over(&self, place: Place, number: u64) -> bool {
        self.cuts.get(&place).is_none_or(|cut| cut.number != number)
    }

    /// Whether a client has to stop somewhere and has not been told.
    pub(crate) fn has_news(&self, client: ClientId) -> bool {
        cost::walked(self.cuts.values()).any(|cut| cut.going.get(&client) == Some(&false))
    }

    /// Where a client has to stop, until it has.
    pub(crate) fn stops(&mut self, client: ClientId) -> Vec<Stop> {
        let stop = |(place, cut): (&Place, &mut Cut)| {
            *cut.going.get_mut(&client)? = true;
            Some(Stop { inode: place.1, number: cut.number })
        };
        cost::walked(&mut self.cuts).filter_map(stop).collect()
    }

    /// Whether a client may zero what is left, under a number of its own: nobody else is at it.
    pub(crate) fn may_zero(&mut self, place: Place, client: ClientId, number: u64) -> bool {
        let holder = self.zeroing.entry(place).or_insert((client, number));
        if holder.0 == client {
            holder.1 = number;
        }
        holder.0 == client
    }

    /// Nothing of that is on its way any more.
    pub(crate) fn end_zeroing(&mut self, place: Place, client: ClientId, number: u64) {
        if self.zeroing.get(&place) == Some(&(client, number)) {
            self.zeroing.remove(&place);
        }
    }

    /// A client does not have a file open any more.
    pub(crate) fn closed(&mut self, place: Place, client: ClientId) {
        if self.zeroing.get(&place).is_some_and(|holder| holder.0 == client) {
            self.zeroing.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{InodeId, VolumeId};

    const FILE: Place = (VolumeId(1), InodeId(7));
    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    fn begun() -> Cuts {
        let mut cuts = Cuts::default();
        cuts.count_from(u64::MAX);
        assert!(cuts.begin(FILE, A, [B, C].into_iter()));
        cuts
    }

    #[test]
    fn a_cut_waits_for_everybody() {
        let mut cuts = begun();
        let stop = vec![Stop { inode: FILE.1, number: 0 }];
        assert!(cuts.has_news(B) && !cuts.has_news(A));
        assert_eq!(cuts.stops(B), stop);
        assert!(!cuts.has_news(B));
        assert_eq!(cuts.stops(B), stop, "told again until it has stopped");
        cuts.stopped(FILE, B, 0);
        assert!(cuts.stops(B).is_empty() && !cuts.is_still(FILE, |_| true));
        assert!(cuts.is_still(FILE, |client| client == B), "the other has closed");
        cuts.stopped(FILE, C, 0);
        assert!(cuts.is_still(FILE, |_| true) && !cuts.is_over(FILE, 0));
        assert!(cuts.others_cut(FILE, B) && !cuts.others_cut(FILE, A));
        assert!(!cuts.begin(FILE, B, [A].into_iter()), "one at a time");
        cuts.end(FILE);
        assert!(cuts.is_over(FILE, 0) && !cuts.others_cut(FILE, B));
    }

    #[test]
    fn a_late_copy_stops_nothing() {
        let mut cuts = begun();
        cuts.end(FILE);
        assert!(cuts.begin(FILE, A, [B].into_iter()));
        cuts.stopped(FILE, B, 0);
        assert!(!cuts.is_still(FILE, |_| true) && cuts.is_over(FILE, 0) && !cuts.is_over(FILE, 1));
    }

    #[test]
    fn one_client_zeroes_at_a_time() {
        let mut cuts = Cuts::default();
        assert!(cuts.may_zero(FILE, A, 5) && !cuts.may_zero(FILE, B, 1));
        assert!(cuts.may_zero(FILE, A, 6), "it has forgotten the first one");
        cuts.end_zeroing(FILE, A, 5);
        assert!(!cuts.may_zero(FILE, B, 2), "a late copy");
        cuts.end_zeroing(FILE, A, 6);
        assert!(cuts.may_zero(FILE, B, 3) && !cuts.may_zero(FILE, A, 7));
        cuts.closed(FILE, A);
        assert!(!cuts.may_zero(FILE, A, 8));
        cuts.closed(FILE, B);
        assert!(cuts.may_zero(FILE, A, 9));
    }
}
