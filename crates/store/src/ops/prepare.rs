//! A slot takes an operation from a primary: bytes go to fresh space, the record to the journal; the answer follows
//! when both are durable.
//!
//! # Invariants
//! - Bytes go to exactly as many blocks as they need, all freshly allocated in the data zone.
//! - A record names a place and a checksum for every block of its unit; only the bytes of overlays are in the
//!   journal.
//! - No answer leaves before the operations that it confirms are durable.

use types::checksum::crc;
use types::limits::BLOCK;
use types::messages::brick::{GroupDecision, OpKind, Prepare, Prepared, Span};
use types::{Buf, Epoch, Geometry, Refusal, Seq, StripeKey};
use world::trace::{Stage, span};

use crate::journal::{DiskFailed, Priority};
use crate::record::PrepareRecord;
use crate::recover::load;
use crate::server::Server;
use crate::slot::{PrepareStep, StagedUnit};
use crate::space::{RUNS_MAX, Run};

impl From<DiskFailed> for Refusal {
    fn from(_: DiskFailed) -> Refusal {
        Refusal::DiskFailed
    }
}

impl Server {
    /// Holds an operation durably. For a patch, the payload of the answer is the delta of the data unit.
    pub(crate) async fn prepare(
        &self,
        epoch: Epoch,
        p: &Prepare,
        payload: Buf,
    ) -> Result<(Prepared, Buf), Refusal> {
        self.apply_decisions(&[GroupDecision { group: p.group, epoch, upto: p.decided }]).await?;
        self.load(p.key).await?;
        let geometry = self.tier(p.group)?.geometry;
        let unit = geometry.unit();
        let longer = p.kind == OpKind::Full && payload.len() > unit;
        if longer || !is_unit_of(&geometry, p.slot, &p.unit_blocks, &p.identities) {
            return Err(Refusal::Malformed);
        }
        let delta = loop {
            let progress = self.progress.wait();
            let places = self.places();
            let step = self.slot.borrow_mut().prepare(epoch, p, payload.len(), places, unit)?;
            match step {
                PrepareStep::InFlight => progress.await,
                PrepareStep::Prepared if p.kind == OpKind::Patch && p.identities.is_empty() => {
                    // The answer was lost; the blocks to compute it again are still there.
                    let found = self.slot.borrow().patch_input(p, unit)?;
                    break self.patch_output(p, &found, &[], &payload).await?.delta;
                }
                PrepareStep::Prepared => break Buf::empty(),
                PrepareStep::Write(runs) => {
                    let held = self.hold(p, runs, payload, unit).await;
                    break self.settle_hold(p, held)?;
                }
                PrepareStep::Adopt(staged) => {
                    let held = self.adopt(p, staged).await;
                    break self.settle_hold(p, held)?;
                }
            }
        };
        let lsn = self.journal.last();
        if p.urgent {
            self.journal.request_sync();
        }
        span(&self.world, Stage::Journal, self.journal.durable(lsn)).await?;
        assert!(self.journal.durable_upto() >= lsn, "a power cut could undo a stable write");
        Ok((self.prepared(), delta))
    }

    /// Ends the attempt to hold an operation and wakes those who wait for the end.
    fn settle_hold(&self, p: &Prepare, held: Result<Buf, Refusal>) -> Result<Buf, Refusal> {
        if held.is_err() {
            self.slot.borrow_mut().give_up(p.group, p.seq);
        }
        self.progress.notify();
        held
    }

    /// Writes the bytes and appends the record. Returns the delta of a data unit, if a patch.
    async fn hold(&self, p: &Prepare, fresh: Vec<Run>, payload: Buf, unit: usize) -> Result<Buf, Refusal> {
        let mut hold = prepare_record(p, fresh);
        let (mut bytes, mut delta) = (Buf::empty(), Buf::empty());
        match p.kind {
            OpKind::Overlay => {
                hold.crcs = span_sums(&p.spans, &payload);
                bytes = payload;
            }
            OpKind::Zero => hold.crcs = vec![crc(&[]); p.spans.len()],
            OpKind::Full => {
                // Compared with the payload when the message arrived.
                hold.crcs = p.crcs.clone();
                hold.blocks = hold.crcs.len() as u32;
                self.write_runs(&hold.fresh, &payload).await?;
            }
            OpKind::Patch => {
                let found = self.slot.borrow().patch_input(p, unit)?;
                let change = self.patch_output(p, &found, &hold.fresh, &payload).await?;
                assert!(change.runs.len() <= RUNS_MAX, "a descriptor has no room for where the unit ends");
                self.write_runs(&hold.fresh, &change.bytes).await?;
                hold.blocks = found.blocks.len() as u32;
                (hold.runs, hold.crcs, hold.unit_blocks) = (change.runs, change.crcs, found.unit_blocks);
                delta = change.delta;
            }
        }
        self.record(hold, &bytes).await?;
        Ok(delta)
    }

    /// Appends the record of a unit that was staged.
    async fn adopt(&self, p: &Prepare, staged: StagedUnit) -> Result<Buf, Refusal> {
        let mut hold = prepare_record(p, staged.runs);
        hold.blocks = staged.crcs.len() as u32;
        hold.crcs = staged.crcs;
        self.record(hold, &Buf::empty()).await?;
        Ok(Buf::empty())
    }

    /// Appends the record of an operation; `bytes` are those of an overlay.
    async fn record(&self, hold: PrepareRecord, bytes: &Buf) -> Result<(), Refusal> {
        check_record(&hold, bytes);
        let priority = if hold.kind == OpKind::Overlay { Priority::Overlay } else { Priority::Unit };
        let needed = bytes.len() + 12 * (hold.crcs.len() + hold.origins.len()) + 4096;
        span(&self.world, Stage::Queue, self.journal.wait_for_space(priority, needed)).await?;
        // No await from here to the end, so the epoch cannot change between the check and the record.
        self.slot.borrow_mut().may_hold(hold.group, hold.key, hold.seq)?;
        let appended = self.journal.append(&hold, bytes);
        if !hold.fresh.is_empty() {
            self.journal.holds_unit();
        }
        self.slot.borrow_mut().apply_prepare(hold, appended.position, self.stamp(appended));
        Ok(())
    }

    /// Writes a unit's bytes to its runs.
    pub(crate) async fn write_runs(&self, runs: &[Run], payload: &Buf) -> Result<(), Refusal> {
        let within = |run: &Run| run.start + u64::from(run.blocks) <= self.superblock.data_blocks;
        assert!(runs.iter().all(within), "bytes beyond the end of the data zone could not be written");
        assert_eq!(
            blocks_of(runs) * BLOCK as u64,
            payload.len() as u64,
            "bytes without a block would be lost, and a block without bytes would keep those of another unit"
        );
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
        self.journal.request_sync();
        span(&self.world, Stage::Journal, self.journal.durable(lsn)).await?;
        assert!(self.journal.durable_upto() >= lsn, "a power cut could undo a stable write");
        Ok(self.prepared())
    }

    pub(super) fn prepared(&self) -> Prepared {
        Prepared { free: self.free_bytes(), journal_fill: self.fill() }
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

/// The record of an operation whose bytes lie at `fresh`, with the fields that the primary sends.
pub(crate) fn prepare_record(p: &Prepare, fresh: Vec<Run>) -> PrepareRecord {
    PrepareRecord {
        group: p.group,
        seq: p.seq,
        key: p.key,
        slot: p.slot,
        kind: p.kind,
        participants: p.participants,
        spans: p.spans.clone(),
        base: p.base,
        blocks: 0,
        unit_blocks: p.unit_blocks.clone(),
        identities: p.identities.clone(),
        runs: fresh.clone(),
        fresh,
        crcs: Vec::new(),
        origins: p.origins.clone(),
        acked: p.acked.clone(),
    }
}

/// Invariants of a record that replay, reads and checkpoints rely on.
pub(super) fn check_record(hold: &PrepareRecord, bytes: &Buf) {
    let (is_overlay, blocks) = (hold.kind == OpKind::Overlay, u64::from(hold.blocks));
    assert!(bytes.is_empty() != is_overlay, "only the bytes of an overlay are read from the journal");
    assert_eq!(
        blocks_of(&hold.runs),
        blocks,
        "a read of the end of the unit would return another unit's blocks"
    );
    assert!(blocks_of(&hold.fresh) <= blocks, "blocks that the unit does not name would never be free again");
    assert_eq!(
        hold.crcs.len(),
        if hold.spans.is_empty() { hold.blocks as usize } else { hold.spans.len() },
        "bytes without a checksum would be returned unchecked or not at all"
    );
}

/// Blocks of runs.
pub(super) fn blocks_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.blocks)).sum()
}

/// Whether the unit and stripe fields of a message are plausible. Nothing else checks them.
pub(super) fn is_unit_of(geometry: &Geometry, slot: u8, unit_blocks: &[u32], identities: &[Seq]) -> bool {
    let code = geometry.code();
    usize::from(slot) < code.slots()
        && unit_blocks.len() <= code.k()
        && identities.len() <= code.k()
        && unit_blocks.iter().all(|blocks| *blocks as usize <= geometry.unit_blocks())
}

/// The checksum of each span's bytes.
fn span_sums(spans: &[Span], payload: &[u8]) -> Vec<u32> {
    let mut rest = payload;
    let sum = |span: &Span| {
        let (bytes, behind) = rest.split_at(span.len as usize);
        rest = behind;
        crc(bytes)
    };
    let sums = spans.iter().map(sum).collect();
    assert!(rest.is_empty(), "bytes outside all ranges would be in the journal and never be read");
    sums
}
