//! A slot that joins takes a unit from the primary, or forgets one.
//!
//! # Invariants
//! - A filled unit counts as decided when its record is appended; its bytes are durable before that.
//! - A slot forgets only units of which the primary says that they have no bytes.

use types::messages::brick::{Fill, GroupDecision, Prepared};
use types::{Buf, Epoch, Refusal, Seq};

use super::prepare::{check_record, is_unit_of};
use crate::journal::Priority;
use crate::record::Forget;
use crate::server::Server;
use crate::slot::{FillStep, fill_record};
use crate::space::Run;

impl Server {
    /// Brings a unit durably into the state that the primary sends.
    pub(crate) async fn take_fill(
        &self,
        epoch: Epoch,
        fill: Fill,
        payload: Buf,
    ) -> Result<Prepared, Refusal> {
        let upto = fill.decided;
        self.apply_decisions(&[GroupDecision { group: fill.group, epoch, upto }]).await?;
        self.load(fill.key).await?;
        let geometry = self.tier(fill.group)?.geometry;
        let longer = payload.len() > geometry.unit();
        if longer || !is_unit_of(&geometry, fill.slot, &fill.unit_blocks, &fill.identities) {
            return Err(Refusal::Malformed);
        }
        if fill.base != Seq::NONE && self.free_bytes() < payload.len() as u64 {
            return Err(Refusal::NoSpace);
        }
        let places = self.places();
        let step = self.slot.borrow_mut().fill(epoch, &fill, payload.len(), places)?;
        match step {
            FillStep::Held => {}
            FillStep::Forget => {
                assert!(
                    payload.is_empty() && fill.base == Seq::NONE,
                    "a unit that came with bytes would be forgotten"
                );
                self.forget(epoch, &fill).await?;
            }
            FillStep::Write(runs) => {
                let written = self.write_fill(epoch, &fill, runs, &payload).await;
                written.inspect_err(|_| self.slot.borrow_mut().give_up(fill.group, fill.base))?;
            }
        }
        let lsn = self.journal.last();
        self.journal.request_sync();
        self.journal.durable(lsn).await?;
        assert!(self.journal.durable_upto() >= lsn, "a power cut could leave an admitted slot stale");
        Ok(self.prepared())
    }

    async fn forget(&self, epoch: Epoch, fill: &Fill) -> Result<(), Refusal> {
        self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
        // No await from here to the end.
        self.slot.borrow_mut().may_fill(epoch, fill)?;
        let record = Forget { group: fill.group, key: fill.key };
        let appended = self.journal.append(&record, &Buf::empty());
        self.slot.borrow_mut().apply_forget(&record, self.stamp(appended));
        Ok(())
    }

    async fn write_fill(
        &self,
        epoch: Epoch,
        fill: &Fill,
        runs: Vec<Run>,
        payload: &Buf,
    ) -> Result<(), Refusal> {
        self.write_runs(&runs, payload).await?;
        // The record counts as decided, so recovery does not compare these bytes with its checksums: they must be
        // durable first.
        if self.filled.sync(&self.disk).await.is_err() {
            self.journal.fail();
            return Err(Refusal::DiskFailed);
        }
        self.journal.wait_for_space(Priority::Unit, 12 * fill.crcs.len() + 4096).await?;
        // No await from here to the end.
        self.slot.borrow_mut().may_fill(epoch, fill)?;
        let hold = fill_record(fill, runs);
        check_record(&hold, &Buf::empty());
        let decided = self.slot.borrow().decided(hold.group);
        assert!(hold.seq <= decided, "a take-over could abort a unit that only this slot knows to be held");
        let appended = self.journal.append(&hold, &Buf::empty());
        self.slot.borrow_mut().apply_prepare(hold, appended.position, self.stamp(appended));
        Ok(())
    }
}
