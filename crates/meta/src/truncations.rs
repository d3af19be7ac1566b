//! Truncations of files that several clients have open, and who zeroes the stale bytes that they leave.
//!
//! ```text
//!  client            service                         another client that has it open
//!    ├── SetAttr ─────▶│ Quiesce, number n ───────────────────▶│ ends its reads and writes, begins none
//!    │                 │◀───────────────────────── Quiesced, n ┤
//!    │                 │ truncates, durable                    │
//!    │◀── done ────────┤── done ──────────────────────────────▶│ goes on, by the new attributes
//! ```
//!
//! So no read or write is in progress while a file is truncated: it ends before the truncation, or begins after it with
//! the new attributes. A read that spanned a truncation could return bytes of a later write before other clients see
//! it.
//!
//! The client that next makes the file longer first zeroes the stale bytes: one client at a time, from its `ZeroBegin`
//! to its `Zeroed`. Nobody else writes there until it is done.
//!
//! Each message names the number of its truncation or zeroing, so late copies have no effect. The numbers of
//! truncations begin at random, so those from an earlier life of the service have no effect either. Once the bricks
//! refuse a lost client, the service no longer waits for it.

use std::collections::BTreeMap;

use types::messages::cluster::Quiesce;
use types::{ClientId, cost};

use crate::volume_inode::VolumeInode;

/// A truncation in progress.
#[derive(Debug)]
struct Truncation {
    client: ClientId,
    number: u64,
    /// The clients that have not quiesced, and whether they have been told to.
    going: BTreeMap<ClientId, bool>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Truncations {
    truncations: BTreeMap<VolumeInode, Truncation>,
    /// The number of the last truncation.
    last: u64,
    /// The client that zeroes each file, and the number of its zeroing.
    zeroing: BTreeMap<VolumeInode, (ClientId, u64)>,
}

impl Truncations {
    /// Sets the number before that of the next truncation.
    pub(crate) fn count_from(&mut self, number: u64) {
        self.last = number;
    }

    /// Begins a truncation; false if another one of the file is in progress. Until [`Truncations::end`], opens of other
    /// clients must wait.
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

    /// Ends a truncation, made or cancelled.
    pub(crate) fn end(&mut self, place: VolumeInode) {
        self.truncations.remove(&place);
    }

    /// Whether a client other than `client` is truncating the file.
    pub(crate) fn others_truncate(&self, place: VolumeInode, client: ClientId) -> bool {
        self.truncations.get(&place).is_some_and(|cut| cut.client != client)
    }

    /// Whether all clients with the file open (`is_open`) have quiesced.
    pub(crate) fn is_quiesced(&self, place: VolumeInode, is_open: impl Fn(ClientId) -> bool) -> bool {
        self.truncations.get(&place).is_none_or(|cut| !cut.going.keys().any(|client| is_open(*client)))
    }

    /// A client has quiesced.
    pub(crate) fn stopped(&mut self, place: VolumeInode, client: ClientId, number: u64) {
        if let Some(cut) = self.truncations.get_mut(&place).filter(|cut| cut.number == number) {
            cut.going.remove(&client);
        }
    }

    /// Whether the truncation with this number has ended.
    pub(crate) fn is_over(&self, place: VolumeInode, number: u64) -> bool {
        self.truncations.get(&place).is_none_or(|cut| cut.number != number)
    }

    /// Whether a client must quiesce a file and has not been told.
    pub(crate) fn has_news(&self, client: ClientId) -> bool {
        cost::walked(self.truncations.values()).any(|cut| cut.going.get(&client) == Some(&false))
    }

    /// The files that a client must quiesce and has not.
    pub(crate) fn stops(&mut self, client: ClientId) -> Vec<Quiesce> {
        let stop = |(place, cut): (&VolumeInode, &mut Truncation)| {
            *cut.going.get_mut(&client)? = true;
            Some(Quiesce { inode: place.1, number: cut.number })
        };
        cost::walked(&mut self.truncations).filter_map(stop).collect()
    }

    /// Whether a client may zero the stale bytes: no other client is zeroing them. The client chooses the number.
    pub(crate) fn may_zero(&mut self, place: VolumeInode, client: ClientId, number: u64) -> bool {
        let holder = self.zeroing.entry(place).or_insert((client, number));
        if holder.0 == client {
            holder.1 = number;
        }
        holder.0 == client
    }

    /// Ends a zeroing: none of its writes is in progress any more.
    pub(crate) fn end_zeroing(&mut self, place: VolumeInode, client: ClientId, number: u64) {
        if self.zeroing.get(&place) == Some(&(client, number)) {
            self.zeroing.remove(&place);
        }
    }

    /// A client no longer has the file open.
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
