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
        for stripe in 0..purge.stripes {
            self.load(StripeKey { object: purge.object, stripe }).await?;
        }
        self.journal.room(Claim::Housekeeping, 4096).await?;
        let record = record::Drop { object: purge.object, stripes: purge.stripes };
        let appended = self.journal.append(&record, &types::Buf::empty());
        self.slot.borrow_mut().apply_drop(purge.object, purge.stripes, self.stamp(appended));
        self.journal.durable(appended.lsn).await?;
        Ok(Done {})
    }
}
