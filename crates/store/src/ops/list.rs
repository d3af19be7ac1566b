//! A slot lists the units of a group.
//!
//! The index has the keys of all stripes with descriptors, in order. The layout says which of these stripes belong to
//! the group, so only their descriptors are read.

use std::collections::BTreeMap;

use types::messages::brick::{GroupDecision, UnitList, UnitPage, UnitState};
use types::messages::cluster::Tier;
use types::{Epoch, GroupId, ObjectId, Refusal, StripeKey};

use crate::error::BrickError;
use crate::server::Server;
use crate::slot::UnitQuery;
use crate::stripe_index::Row;

/// Most units in a page.
pub(crate) const LIST_MAX: u32 = 16 << 10;
/// Rows of stripes examined in one turn.
const ROWS_A_TURN: usize = 1024;

/// A bounded number of keys: the lowest ones above `after`.
struct Lowest {
    after: Option<StripeKey>,
    max: usize,
    states: BTreeMap<StripeKey, UnitState>,
    /// Keys above this one were left out.
    cut: Option<StripeKey>,
}

impl Lowest {
    /// Whether the key belongs to the page, as far as is known yet.
    fn wants(&self, key: StripeKey) -> bool {
        self.after.is_none_or(|after| key > after) && self.cut.is_none_or(|cut| key <= cut)
    }

    /// Whether a key greater than all of the page would be left out.
    fn is_full(&self) -> bool {
        self.cut.is_some()
    }

    fn put(&mut self, key: StripeKey, state: Option<UnitState>) {
        match state.filter(|_| self.wants(key)) {
            Some(state) => drop(self.states.insert(key, state)),
            None => drop(self.states.remove(&key)),
        }
        if self.states.len() > self.max {
            self.states.pop_last();
            self.cut = self.states.last_key_value().map(|(key, _)| *key);
        }
        assert!(self.states.len() <= self.max, "a page with more units than asked for may not fit a frame");
    }

    /// The page has keys above `after` and up to the cut, and no others.
    fn check(&self) {
        let first = self.states.first_key_value().map(|(key, _)| *key);
        let last = self.states.last_key_value().map(|(key, _)| *key);
        assert!(first.is_none_or(|first| Some(first) > self.after), "a unit would be compared twice");
        assert!(
            self.cut.is_none_or(|cut| last <= Some(cut)),
            "units between the cut and the last one would be in no page"
        );
        assert!(
            self.cut.is_none_or(|cut| Some(cut) > self.after),
            "asking for the next page would return the same page forever"
        );
    }
}

/// Which stripes belong to a group.
struct Members {
    group: GroupId,
    tier: Tier,
}

impl Members {
    fn has(&self, key: StripeKey) -> bool {
        let extent = self.tier.geometry.extent(key.stripe);
        key.object.tier() == self.tier.number
            && layout::group_of(self.group.volume, key.object, extent, &self.tier.groups) == self.group
    }
}

impl Server {
    /// Answers a primary that lists the units of this slot.
    pub(crate) async fn unit_list(&self, epoch: Epoch, list: UnitList) -> Result<UnitPage, Refusal> {
        self.apply_decisions(&[GroupDecision { group: list.group, epoch, upto: list.decided }]).await?;
        self.check_served(list.group, epoch)?;
        let members = self.members(list.group)?;
        let geometry = &members.tier.geometry;
        if list.only.len() > LIST_MAX as usize {
            return Err(Refusal::Malformed);
        }
        let (code, of) = (geometry.code(), usize::from(list.of));
        if of >= code.slots() || usize::from(list.slot) >= code.slots() {
            return Err(Refusal::Malformed);
        }
        let range = match of < code.k() {
            true => of * geometry.unit()..(of + 1) * geometry.unit(),
            false => 0..geometry.stripe(),
        };
        let query = UnitQuery { group: list.group, slot: list.slot, of: list.of, range };
        let page = match list.only.is_empty() {
            true => {
                self.list_above(&query, &members, list.after, list.limit.clamp(1, LIST_MAX) as usize).await?
            }
            false => self.list_only(&query, &list.only).await?,
        };
        self.check_served(list.group, epoch)?;
        Ok(page)
    }

    fn members(&self, group: GroupId) -> Result<Members, Refusal> {
        Ok(Members { group, tier: self.tier(group)? })
    }

    async fn list_only(&self, query: &UnitQuery, keys: &[StripeKey]) -> Result<UnitPage, Refusal> {
        let mut units = Vec::with_capacity(keys.len().min(LIST_MAX as usize));
        for key in keys {
            self.load(*key).await?;
            units.extend(self.slot.borrow().unit_state(query, *key));
        }
        units.sort_by_key(|unit| unit.key);
        Ok(UnitPage { units, upto: None, above: 0, incarnation: self.incarnation })
    }

    async fn list_above(
        &self,
        query: &UnitQuery,
        members: &Members,
        after: Option<StripeKey>,
        max: usize,
    ) -> Result<UnitPage, Refusal> {
        let _one = self.listing.lock().await;
        match self.scan_above(query, members, after, max).await {
            Ok(page) => Ok(page),
            Err(error) => {
                tracing::error!(%error, "descriptors cannot be read: the brick counts as lost");
                self.journal.fail();
                Err(Refusal::DiskFailed)
            }
        }
    }

    async fn scan_above(
        &self,
        query: &UnitQuery,
        members: &Members,
        after: Option<StripeKey>,
        max: usize,
    ) -> Result<UnitPage, BrickError> {
        assert!(max > 0, "an empty page gives no key from which to go on");
        let listing = self.table.list();
        let mut lowest = Lowest { after, max, states: BTreeMap::new(), cut: None };
        let mut walk =
            Walk { server: self, next: after.map_or(Some(StripeKey::default()), next_key), rows: 0 };
        while !lowest.is_full()
            && let Some(row) = walk.next_row().await
        {
            for key in row.keys().filter(|key| members.has(*key)) {
                let found = self.table.find(key).await?;
                lowest.put(key, found.and_then(|descriptor| query.at_rest(&descriptor)));
            }
        }
        // A checkpoint may have written descriptors behind the walk, and their units may have left RAM since.
        loop {
            let rewritten = listing.rewritten();
            if rewritten.is_empty() {
                break;
            }
            for key in rewritten {
                if lowest.wants(key) {
                    let found = self.table.find(key).await?;
                    lowest.put(key, found.and_then(|descriptor| query.at_rest(&descriptor)));
                }
            }
        }
        // No await from here to the end: units in RAM are newer than their descriptors.
        let newer: Vec<_> = self.slot.borrow().unit_states(query, after, lowest.cut).collect();
        newer.into_iter().for_each(|(key, state)| lowest.put(key, state));
        lowest.check();
        let above = match lowest.cut {
            Some(cut) if after.is_none() => self.count_above(members, cut).await,
            _ => 0,
        };
        let units: Vec<UnitState> = lowest.states.into_values().collect();
        Ok(UnitPage { units, upto: lowest.cut, above, incarnation: self.incarnation })
    }

    /// Approximate number of descriptors of the group above a key.
    async fn count_above(&self, members: &Members, key: StripeKey) -> u64 {
        let mut walk = Walk { server: self, next: next_key(key), rows: 0 };
        let mut count = 0;
        while let Some(row) = walk.next_row().await {
            count += row.keys().filter(|key| members.has(*key)).count() as u64;
        }
        count
    }
}

/// A walk through the stripes that have descriptors.
struct Walk<'a> {
    server: &'a Server,
    next: Option<StripeKey>,
    rows: usize,
}

impl Walk<'_> {
    async fn next_row(&mut self) -> Option<Row> {
        self.rows += 1;
        if self.rows.is_multiple_of(ROWS_A_TURN) {
            self.server.world.yield_now().await;
        }
        let from = self.next?;
        let row = self.server.table.next_row(from)?;
        self.next = row.end();
        assert!(self.next.is_none_or(|next| next > from), "a walk that makes no progress would never end");
        Some(row)
    }
}

/// The next greater key, if there is one.
fn next_key(key: StripeKey) -> Option<StripeKey> {
    match key.stripe.checked_add(1) {
        Some(stripe) => Some(StripeKey { stripe, ..key }),
        None => Some(StripeKey { object: ObjectId(key.object.0.checked_add(1)?), stripe: 0 }),
    }
}
