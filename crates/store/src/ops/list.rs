//! A slot lists the units of a group.
//!
//! Descriptors lie in no order, and most are not in RAM, so a page of the list costs a scan of all of them; in return it
//! may be long. Memory is bounded by the length of the page.

use std::collections::BTreeMap;

use types::messages::brick::{GroupDecision, UnitList, UnitPage, UnitState};
use types::{Epoch, Refusal, StripeKey};

use crate::error::BrickError;
use crate::server::Server;
use crate::slot::Asked;

/// Units of a page, at most.
pub(crate) const LIST_MAX: u32 = 16 << 10;

/// The lowest keys above one, a bounded number of them.
struct Lowest {
    after: Option<StripeKey>,
    max: usize,
    states: BTreeMap<StripeKey, UnitState>,
    /// Keys above this one were left out.
    cut: Option<StripeKey>,
}

impl Lowest {
    /// Whether the key belongs to the page, as far as is known.
    fn wants(&self, key: StripeKey) -> bool {
        self.after.is_none_or(|after| key > after) && self.cut.is_none_or(|cut| key <= cut)
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
    }
}

impl Server {
    /// Answers a primary that wants to know what there is.
    pub(crate) async fn unit_list(&self, epoch: Epoch, list: UnitList) -> Result<UnitPage, Refusal> {
        self.apply_decisions(&[GroupDecision { group: list.group, epoch, upto: list.decided }]).await?;
        self.check_served(list.group, epoch)?;
        let geometry = self.volume(list.group)?.geometry;
        let (code, of) = (geometry.code(), usize::from(list.of));
        if of >= code.slots() || usize::from(list.slot) >= code.slots() {
            return Err(Refusal::Malformed);
        }
        let range = match of < code.k() {
            true => of * geometry.unit()..(of + 1) * geometry.unit(),
            false => 0..geometry.stripe(),
        };
        let asked = Asked { group: list.group, slot: list.slot, of: list.of, range };
        let page = match list.only.is_empty() {
            true => self.list_above(&asked, list.after, list.limit.clamp(1, LIST_MAX) as usize).await?,
            false => self.list_only(&asked, &list.only).await?,
        };
        self.check_served(list.group, epoch)?;
        Ok(page)
    }

    async fn list_only(&self, asked: &Asked, keys: &[StripeKey]) -> Result<UnitPage, Refusal> {
        let mut units = Vec::with_capacity(keys.len().min(LIST_MAX as usize));
        for key in keys {
            self.load(*key).await?;
            units.extend(self.slot.borrow().unit_state(asked, *key));
        }
        units.sort_by_key(|unit| unit.key);
        Ok(UnitPage { units, upto: None, above: 0, life: self.life })
    }

    async fn list_above(
        &self,
        asked: &Asked,
        after: Option<StripeKey>,
        max: usize,
    ) -> Result<UnitPage, Refusal> {
        let _one = self.listing.lock().await;
        match self.scan_above(asked, after, max).await {
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
        asked: &Asked,
        after: Option<StripeKey>,
        max: usize,
    ) -> Result<UnitPage, BrickError> {
        let listing = self.table.list();
        let mut lowest = Lowest { after, max, states: BTreeMap::new(), cut: None };
        let mut all = 0;
        let seen = |descriptor| {
            if let Some(state) = asked.at_rest(&descriptor) {
                all += u64::from(after.is_none_or(|after| state.key > after));
                lowest.put(state.key, Some(state));
            }
        };
        self.table.for_each_listed(&listing, seen).await?;
        // What a checkpoint wrote meanwhile may have moved from a page that was not yet read to one that was, or have
        // left RAM since.
        loop {
            let rewritten = listing.rewritten();
            if rewritten.is_empty() {
                break;
            }
            for key in rewritten {
                if lowest.wants(key) {
                    let found = self.table.find(key).await?;
                    lowest.put(key, found.and_then(|descriptor| asked.at_rest(&descriptor)));
                }
            }
        }
        // From here to the end nothing waits: what is in RAM is newer than what is at rest.
        let slot = self.slot.borrow();
        let newer: Vec<_> = slot.unit_states(asked, after, lowest.cut).collect();
        newer.into_iter().for_each(|(key, state)| lowest.put(key, state));
        let units: Vec<UnitState> = lowest.states.into_values().collect();
        let above = if lowest.cut.is_some() { all.saturating_sub(units.len() as u64) } else { 0 };
        Ok(UnitPage { units, upto: lowest.cut, above, life: self.life })
    }
}
