//! A client asks which stripes of an object exist, in a range that may be as long as any file.
//!
//! RAM has the stripes of every object in order, so the cost depends on the stripes that the brick holds in the
//! range, not on the length of the range. A long answer is gathered over several turns.
//!
//! A unit that moves meanwhile is not missed: it enters the index before it leaves RAM, and one turn looks at both.
//! The answer may name a stripe that no longer exists.

use std::collections::BTreeSet;

use types::limits::GROUPS_MAX;
use types::messages::brick::{FindStripes, StripesFound};
use types::messages::cluster::Tier;
use types::{GroupId, ObjectId, Refusal, StripeKey, StripeSet, VolumeId};

use crate::server::Server;

/// Stripes examined in one turn.
const TURN: usize = 4096;
/// The stripes that are asked for: those of some groups.
struct Places {
    volume: VolumeId,
    object: ObjectId,
    /// The object's tier.
    tier: Tier,
    asked: BTreeSet<u32>,
}

impl Places {
    fn has(&self, stripe: u64) -> bool {
        let extent = self.tier.geometry.extent(stripe);
        let group: GroupId = layout::group_of(self.volume, self.object, extent, &self.tier.groups);
        self.asked.contains(&group.index)
    }
}

impl Server {
    /// Finds the stripes of some groups that have a unit here.
    pub(crate) async fn find_stripes(&self, find: FindStripes) -> Result<StripesFound, Refusal> {
        let places = self.places_of(&find)?;
        self.check_groups(&find)?;
        let mut found = StripeSet::new(find.from..find.to);
        // An accepted write may not have reached a slot yet.
        let taken = self.lanes.occupied(find.object, find.from..find.to);
        taken.into_iter().filter(|stripe| places.has(*stripe)).for_each(|stripe| found.put(stripe));
        self.list_stripes(&places, find.from, &mut found).await;
        self.check_groups(&find)?;
        assert!(found.upto() <= find.to, "stripes that were not examined would be taken for holes");
        Ok(StripesFound { words: found.words(), upto: found.upto() })
    }

    fn places_of(&self, find: &FindStripes) -> Result<Places, Refusal> {
        if find.from >= find.to {
            return Err(Refusal::Malformed);
        }
        let volume = find.groups.first().ok_or(Refusal::Malformed)?.0.volume;
        if find.groups.len() > GROUPS_MAX as usize || find.groups.iter().any(|(id, _)| id.volume != volume) {
            return Err(Refusal::Malformed);
        }
        let map = self.map_of(volume);
        let info = map.volume(volume).ok_or(Refusal::NotServing)?;
        Ok(Places {
            volume,
            object: find.object,
            tier: info.tier_of(find.object).ok_or(Refusal::NotServing)?,
            asked: find.groups.iter().map(|(id, _)| id.index).collect(),
        })
    }

    fn check_groups(&self, find: &FindStripes) -> Result<(), Refusal> {
        find.groups.iter().try_for_each(|(id, _)| self.check_lease(id.volume))?;
        find.groups.iter().try_for_each(|(id, epoch)| match find.primary {
            true => self.check_primary(*id, *epoch),
            false => self.check_served(*id, *epoch),
        })
    }

    /// Goes through the stripes of the range that the brick holds.
    async fn list_stripes(&self, places: &Places, from: u64, found: &mut StripeSet) {
        let mut at = from;
        while at < found.upto() {
            at = self.list_some(places, at, found);
            self.world.yield_now().await;
        }
    }

    /// Goes through a bounded number of stripes; returns the end of the part that it has examined.
    fn list_some(&self, places: &Places, from: u64, found: &mut StripeSet) -> u64 {
        let slot = self.slot.borrow();
        let at_rest = self.table.stripes_of(places.object, from, TURN, |key| !slot.is_erased(key));
        let in_ram = slot.stripes_of(places.object, from, TURN);
        let end = |keys: &[StripeKey]| match keys.last() {
            Some(last) if keys.len() == TURN => last.stripe.saturating_add(1),
            _ => u64::MAX,
        };
        let end = end(&at_rest).min(end(&in_ram));
        assert!(end > from, "a search that makes no progress would never be answered");
        let stripes = at_rest.iter().chain(&in_ram).map(|key| key.stripe);
        stripes.filter(|stripe| *stripe < end && places.has(*stripe)).for_each(|stripe| found.put(stripe));
        end
    }
}
