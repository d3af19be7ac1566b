//! An object is gone for good: its space comes back.

use types::messages::Done;
use types::messages::brick::Purge;
use types::{Refusal, StripeKey};

use crate::journal::Claim;
use crate::record;
use crate::server::Server;

impl Server {
    /// Forgets an object durably.
    pub(crate) async fn purge(&self, purge: Purge) -> Result<Done, Refusal> {
        let Purge { object, mut stripes } = purge;
        let mut loaded = 0;
        loop {
            for stripe in loaded..stripes {
                self.load(StripeKey { object, stripe }).await?;
            }
            loaded = stripes;
            self.journal.room(Claim::Housekeeping, 4096).await?;
            // What was written beyond the size, and cut off or never told of, goes too: whatever is on its way is here.
            let end = self.slot.borrow().end_of(object);
            if end <= stripes {
                break;
            }
            stripes = end;
        }
        tracing::debug!(%object, stripes, brick = %self.options.brick, "an object is forgotten");
        let record = record::Drop { object, stripes };
        let appended = self.journal.append(&record, &types::Buf::empty());
        self.suspect_units(&record);
        self.slot.borrow_mut().apply_drop(object, stripes, self.stamp(appended));
        self.journal.durable(appended.lsn).await?;
        Ok(Done {})
    }

    /// A slot that is brought level may have been given units of the object by this primary, after it was asked to forget
    /// them: those stripes are looked at again.
    fn suspect_units(&self, drop: &record::Drop) {
        let mut primary = self.primary.borrow_mut();
        if primary.joins() > 0 {
            let slot = self.slot.borrow();
            slot.units_of(drop.object, drop.stripes).for_each(|(key, group)| primary.suspect(group, key));
        }
    }
}
