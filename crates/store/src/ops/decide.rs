//! A slot learns decisions: with other messages, or in the two steps of a take-over.
//!
//! # Invariants
//! - A decision, a promise or the end of a take-over enters RAM in the turn that appends its record.
//! - From a promise until the end of its take-over the group is not served. Both are answered when they are durable.

use types::limits::RECOVER_MAX;
use types::messages::Done;
use types::messages::brick::{Decide, Decided, GroupDecision, NewEpoch, Tail};
use types::messages::recovery::{GroupFloor, GroupsRecovered, HeldGroup, RecoverGroups};
use types::wire::Last;
use types::{Epoch, Refusal};

use crate::journal::{DiskFailed, Priority};
use crate::record;
use crate::server::Server;

impl Server {
    /// Notes decisions. Nobody waits until they are durable: a take-over would decide the same.
    pub(crate) async fn decided(&self, decided: Decided) -> Result<Done, Refusal> {
        self.apply_decisions(&decided.groups).await?;
        Ok(Done {})
    }

    /// Notes decisions of the epochs that this slot serves. It waits for room in the journal, because the sender
    /// sends each decision only once.
    pub(crate) async fn apply_decisions(&self, decisions: &[GroupDecision]) -> Result<(), DiskFailed> {
        let is_news = |decision: &GroupDecision| {
            let slot = self.slot.borrow();
            slot.served(decision.group) == Some(decision.epoch)
                && slot.decided(decision.group) < decision.upto
        };
        for decision in decisions.iter().filter(|decision| is_news(decision)) {
            self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
            // No await from here to the end. A later decision may have arrived during the wait.
            if is_news(decision) {
                let record = record::Decided { group: decision.group, upto: decision.upto };
                let appended = self.journal.append(&record, &types::Buf::empty());
                let mut slot = self.slot.borrow_mut();
                slot.apply_decided(record.group, record.upto, self.stamp(appended));
                let known = slot.decided(record.group);
                assert_eq!(
                    known, record.upto,
                    "a restart would replay a decision that this slot did not have"
                );
            }
        }
        Ok(())
    }

    /// Take-over, first step: makes the promise of the epoch durable and answers with the operations that this slot
    /// holds.
    pub(crate) async fn new_epoch(&self, new: NewEpoch) -> Result<Tail, Refusal> {
        let epoch = new.config.epoch;
        self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
        let promised = self.slot.borrow().promised(new.group);
        if epoch < promised || epoch < self.slot.borrow().floor(new.group) {
            return Err(Refusal::StaleEpoch);
        }
        // An older build has promised without keeping the configuration.
        let kept = self.slot.borrow().held_group(new.group).and_then(|held| held.config);
        if epoch == promised && kept.as_ref().is_some_and(|kept| *kept != new.config) {
            tracing::error!(group = %new.group, %epoch, "two configurations of a group have the same epoch");
            return Err(Refusal::StaleEpoch);
        }
        let is_kept = kept.is_some();
        if epoch > promised || !is_kept {
            let record = record::Configured { group: new.group, config: Last(new.config) };
            let appended = self.journal.append(&record, &types::Buf::empty());
            let mut slot = self.slot.borrow_mut();
            slot.apply_configured(&record, self.stamp(appended));
        }
        if epoch > promised {
            let slot = self.slot.borrow();
            assert_eq!(slot.promised(new.group), epoch, "an older primary could go on writing here");
            assert_eq!(
                slot.served(new.group),
                None,
                "reads would be answered with bytes that the take-over replaces"
            );
        }
        // The held operations and the promise count only once they are durable.
        let lsn = self.journal.last();
        self.journal.request_sync();
        self.journal.durable(lsn).await?;
        assert!(self.journal.durable_upto() >= lsn, "a power cut could undo the promise");
        if self.map_of(new.group.volume).version < new.map {
            self.want_map(new.group.volume);
        }
        if self.slot.borrow().promised(new.group) != epoch {
            return Err(Refusal::StaleEpoch);
        }
        Ok(self.slot.borrow().tail(new.group, self.free_bytes()))
    }

    /// A restored metadata service asks which configurations were promised last. From the answer on, nothing below the
    /// floors is promised, so the answer stays the last word of what the service does not know.
    ///
    /// # Errors
    /// `Invalid`: too many groups.
    pub(crate) async fn recover_groups(&self, request: RecoverGroups) -> Result<GroupsRecovered, Refusal> {
        if request.groups.len() > RECOVER_MAX {
            return Err(Refusal::Invalid);
        }
        self.journal.wait_for_space(Priority::Housekeeping, 64 * request.groups.len() + 4096).await?;
        let mut held = Vec::new();
        for GroupFloor { group, floor } in request.groups {
            // A group of which nothing was ever promised has no live slot here.
            let Some(known) = self.slot.borrow().held_group(group) else { continue };
            if known.floor < floor {
                let record = record::Floor { group, floor };
                let appended = self.journal.append(&record, &types::Buf::empty());
                self.slot.borrow_mut().apply_floor(group, floor, self.stamp(appended));
            }
            held.push(HeldGroup { floor: known.floor.max(floor), ..known });
        }
        let lsn = self.journal.last();
        self.journal.request_sync();
        self.journal.durable(lsn).await?;
        Ok(GroupsRecovered { groups: held })
    }

    /// Take-over, second step: applies the fate of every operation before the epoch, then serves the epoch. The same
    /// message cleans a slot that joins, and goes to every slot before that slot is admitted.
    pub(crate) async fn decide(&self, epoch: Epoch, decide: Decide) -> Result<Done, Refusal> {
        self.journal.wait_for_space(Priority::Housekeeping, 64 * decide.windows.len() + 4096).await?;
        let promised = self.slot.borrow().promised(decide.group);
        if epoch != promised {
            return Err(if epoch < promised { Refusal::StaleEpoch } else { Refusal::NotServing });
        }
        // Applied even if the epoch is served already: a slot that joins is cleaned by it, and before an admission
        // every slot must know the decisions durably. Applying a fate twice changes nothing.
        let Decide { group, upto, aborted, windows } = decide;
        let record = record::Settle { group, epoch, upto, aborted, windows };
        let appended = self.journal.append(&record, &types::Buf::empty());
        {
            let mut slot = self.slot.borrow_mut();
            slot.apply_settle(&record, self.stamp(appended));
            assert_eq!(slot.served(group), Some(epoch), "the primary would wait for this slot forever");
            assert!(slot.decided(group) >= upto, "forwarded operations would be hidden from readers");
        }
        let lsn = self.journal.last();
        self.journal.request_sync();
        self.journal.durable(lsn).await?;
        assert!(self.journal.durable_upto() >= lsn, "a power cut could bring back aborted operations");
        Ok(Done {})
    }
}
