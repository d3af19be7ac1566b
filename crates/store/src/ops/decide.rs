//! A slot learns decisions: in passing, or as the two steps of a take-over.

use types::messages::Done;
use types::messages::brick::{Decide, Decided, GroupDecision, NewEpoch, Tail};
use types::{Epoch, Refusal};

use crate::journal::{DiskFailed, Priority};
use crate::record;
use crate::server::Server;

impl Server {
    /// Notes decisions. Nobody waits for them to be durable: a take-over would come to the same ones.
    pub(crate) async fn decided(&self, decided: Decided) -> Result<Done, Refusal> {
        self.apply_decisions(&decided.groups).await?;
        Ok(Done {})
    }

    /// Notes decisions of the epochs that this slot serves, when the journal has room: who told them tells them once.
    pub(crate) async fn apply_decisions(&self, decisions: &[GroupDecision]) -> Result<(), DiskFailed> {
        let is_news = |decision: &GroupDecision| {
            let slot = self.slot.borrow();
            slot.served(decision.group) == Some(decision.epoch)
                && slot.decided(decision.group) < decision.upto
        };
        for decision in decisions.iter().filter(|decision| is_news(decision)) {
            self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
            // From here to the end nothing waits; meanwhile others may have told more.
            if is_news(decision) {
                let record = record::Decided { group: decision.group, upto: decision.upto };
                let appended = self.journal.append(&record, &types::Buf::empty());
                self.slot.borrow_mut().apply_decided(record.group, record.upto, self.stamp(appended));
            }
        }
        Ok(())
    }

    /// Take-over, first step: promises the epoch durably, and tells what this slot holds.
    pub(crate) async fn new_epoch(&self, new: NewEpoch) -> Result<Tail, Refusal> {
        let epoch = new.config.epoch;
        self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
        let promised = self.slot.borrow().promised(new.group);
        if epoch < promised {
            return Err(Refusal::StaleEpoch);
        }
        if epoch > promised {
            let record = record::Promise { group: new.group, epoch };
            let appended = self.journal.append(&record, &types::Buf::empty());
            self.slot.borrow_mut().apply_promise(new.group, epoch, self.stamp(appended));
        }
        // What is held counts only once it is durable, and the promise with it.
        self.journal.request_sync();
        self.journal.durable(self.journal.last()).await?;
        if self.map.borrow().version < new.map {
            self.map_wanted.notify();
        }
        if self.slot.borrow().promised(new.group) != epoch {
            return Err(Refusal::StaleEpoch);
        }
        Ok(self.slot.borrow().tail(new.group, self.free_bytes()))
    }

    /// Take-over, second step: the fate of everything before the epoch. From its end on this slot serves it. The same
    /// makes a slot that joins clean, and is told to all before it is admitted.
    pub(crate) async fn decide(&self, epoch: Epoch, decide: Decide) -> Result<Done, Refusal> {
        self.journal.wait_for_space(Priority::Housekeeping, 64 * decide.windows.len() + 4096).await?;
        let promised = self.slot.borrow().promised(decide.group);
        if epoch != promised {
            return Err(if epoch < promised { Refusal::StaleEpoch } else { Refusal::NotServing });
        }
        // Also if the epoch is served already: a slot that joins starts clean, and before it is admitted every slot must
        // know durably what is decided. A fate that is told twice changes nothing.
        let Decide { group, upto, aborted, windows } = decide;
        let record = record::Settle { group, epoch, upto, aborted, windows };
        let appended = self.journal.append(&record, &types::Buf::empty());
        self.slot.borrow_mut().apply_settle(&record, self.stamp(appended));
        self.journal.request_sync();
        self.journal.durable(self.journal.last()).await?;
        Ok(Done {})
    }
}
