//! A slot takes an operation from a primary: bytes to fresh space, record to the journal, answer when durable.

use types::checksum::crc;
use types::limits::BLOCK;
use types::messages::brick::{GroupDecision, OpKind, Prepare, Prepared, Span};
use types::{Buf, Epoch, Refusal, Seq, StripeKey};

use crate::journal::{Claim, DiskFailed};
use crate::record::Hold;
use crate::recover::load;
use crate::server::Server;
use crate::slot::PrepareStep;
use crate::space::Run;

impl From<DiskFailed> for Refusal {
    fn from(_: DiskFailed) -> Refusal {
        Refusal::DiskFailed
    }
}

impl Server {
    /// Holds an operation durably.
    pub(crate) async fn prepare(&self, epoch: Epoch, p: &Prepare, payload: Buf) -> Result<Prepared, Refusal> {
        self.apply_decisions(&[GroupDecision { group: p.group, epoch, upto: p.decided }]);
        self.load(p.key).await?;
        loop {
            let progress = self.progress.wait();
            let places = self.places();
            let step = self.slot.borrow_mut().prepare(epoch, p, payload.len(), places)?;
            match step {
                PrepareStep::Coming => progress.await,
                PrepareStep::Held => break,
                PrepareStep::Hold(runs) => {
                    let held = self.hold(p, runs, payload).await;
                    self.settle_hold(p, held)?;
                    break;
                }
                PrepareStep::Adopt(unit) => {
                    let held = self.record(p, unit.runs, unit.crcs, Buf::empty()).await;
                    self.settle_hold(p, held)?;
                    break;
                }
            }
        }
        let lsn = self.journal.last();
        if p.urgent {
            self.journal.want();
        }
        self.journal.durable(lsn).await?;
        Ok(self.prepared())
    }

    /// The attempt to hold an operation has ended: others may wait for that.
    fn settle_hold(&self, p: &Prepare, held: Result<(), Refusal>) -> Result<(), Refusal> {
        if held.is_err() {
            self.slot.borrow_mut().give_up(p.group, p.seq);
        }
        self.progress.notify();
        held
    }

    /// Writes the bytes and appends the record.
    async fn hold(&self, p: &Prepare, runs: Vec<Run>, payload: Buf) -> Result<(), Refusal> {
        let crcs = match p.kind {
            OpKind::Overlay => span_sums(&p.spans, &payload),
            OpKind::Zero => vec![crc(&[]); p.spans.len()],
            // Compared with the payload when it came.
            _ => p.crcs.clone(),
        };
        self.write_runs(&runs, &payload).await?;
        let bytes = if p.kind == OpKind::Overlay { payload } else { Buf::empty() };
        self.record(p, runs, crcs, bytes).await
    }

    /// Appends the record of an operation: a unit's bytes lie at `runs` already, an overlay's are `bytes`.
    async fn record(&self, p: &Prepare, runs: Vec<Run>, crcs: Vec<u32>, bytes: Buf) -> Result<(), Refusal> {
        let claim = if p.kind == OpKind::Overlay { Claim::Overlay } else { Claim::Unit };
        let blocks = if p.kind == OpKind::Full { crcs.len() as u32 } else { 0 };
        self.journal.room(claim, bytes.len() + 12 * (crcs.len() + p.origins.len()) + 4096).await?;
        // From here to the end nothing waits, so the epoch cannot change between the check and the record.
        self.slot.borrow_mut().may_hold(p.group, p.key, p.seq)?;
        let hold = Hold {
            group: p.group,
            seq: p.seq,
            key: p.key,
            slot: p.slot,
            kind: p.kind,
            participants: p.participants,
            spans: p.spans.clone(),
            base: Seq::NONE,
            blocks,
            unit_blocks: p.unit_blocks.clone(),
            identities: Vec::new(),
            fresh: runs.clone(),
            runs,
            crcs,
            origins: p.origins.clone(),
            acked: p.acked.clone(),
        };
        let appended = self.journal.append(&hold, &bytes);
        self.slot.borrow_mut().apply_hold(hold, appended.position, self.stamp(appended));
        Ok(())
    }

    /// Writes a unit's bytes to its runs.
    pub(crate) async fn write_runs(&self, runs: &[Run], payload: &Buf) -> Result<(), Refusal> {
        let mut at = 0;
        for run in runs {
            let len = run.blocks as usize * BLOCK;
            let offset = self.superblock.data_start + run.start * BLOCK as u64;
            if self.disk.write(offset, vec![payload.slice(at..at + len)]).await.is_err() {
                self.journal.fail();
                return Err(Refusal::DiskFailed);
            }
            at += len;
        }
        self.journal.wrote(at as u64);
        Ok(())
    }

    /// Makes everything held so far durable.
    pub(crate) async fn nudge(&self) -> Result<Prepared, Refusal> {
        let lsn = self.journal.last();
        self.journal.want();
        self.journal.durable(lsn).await?;
        Ok(self.prepared())
    }

    fn prepared(&self) -> Prepared {
        Prepared { free: self.free_bytes(), journal_fill: self.journal.fill() }
    }

    /// Brings a unit's state into RAM.
    pub(crate) async fn load(&self, key: StripeKey) -> Result<(), Refusal> {
        match load(&self.slot, &self.table, key).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(%key, %error, "a descriptor cannot be read: the brick counts as lost");
                self.journal.fail();
                Err(Refusal::DiskFailed)
            }
        }
    }
}

/// The checksum of each span's bytes.
fn span_sums(spans: &[Span], payload: &[u8]) -> Vec<u32> {
    let mut rest = payload;
    let sum = |span: &Span| {
        let (bytes, behind) = rest.split_at(span.len as usize);
        rest = behind;
        crc(bytes)
    };
    spans.iter().map(sum).collect()
}
