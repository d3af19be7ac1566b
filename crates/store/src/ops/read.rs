//! Reads of one unit: by a client, straight from the brick, or by the group's primary.

use std::cmp::Ordering;
use std::ops::Range;

use types::checksum::crc;
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{GroupDecision, ReadBase, ReadUnit, UnitBytes};
use types::{Buf, BufMut, Epoch, GroupId, Refusal, Seq, StripeKey};

use crate::server::{Server, count};
use crate::slot::{OverlayPiece, ReadPlan, coalesce};

/// Which unit, which part of it, and in which version.
#[derive(Debug)]
pub(crate) struct UnitRead {
    pub(crate) group: GroupId,
    pub(crate) key: StripeKey,
    pub(crate) slot: u8,
    pub(crate) range: Range<usize>,
    /// The base with this identity, or the newest bytes.
    pub(crate) identity: Option<Seq>,
    /// Operations known to be decided.
    pub(crate) decided: Vec<Seq>,
}

impl Server {
    /// Answers a client that reads straight from the brick.
    pub(crate) async fn read_unit(&self, epoch: Epoch, read: ReadUnit) -> Result<(UnitBytes, Buf), Refusal> {
        self.check_lease()?;
        let group = read.group;
        self.check_live(group, epoch)?;
        self.busy_at.set(self.world.now());
        let answer = self
            .unit(
                epoch,
                &UnitRead {
                    group: read.group,
                    key: read.key,
                    slot: read.slot,
                    range: checked_range(read.offset, read.len)?,
                    identity: None,
                    decided: Vec::new(),
                },
            )
            .await?;
        // The lease must still hold when the bytes leave: they could be old otherwise.
        self.check_lease()?;
        self.check_live(group, epoch)?;
        Ok(answer)
    }

    /// Refuses clients unless this brick's slot is live in the epoch, as the newest map has it. A brick that is back has
    /// that map before its lease counts; what it had promised before may be older. And while it is brought level it
    /// serves its primary in an epoch in which it is Out.
    fn check_live(&self, id: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        let map = self.map.borrow().clone();
        let Some((_, config)) = map.group(id) else { return self.refuse_and_fetch_map() };
        let live = config.slot_of(self.options.brick).is_some_and(|slot| config.live() & 1 << slot != 0);
        match config.epoch.cmp(&epoch) {
            Ordering::Greater => Err(Refusal::StaleEpoch),
            Ordering::Equal if live => Ok(()),
            Ordering::Equal => Err(Refusal::StaleEpoch),
            Ordering::Less => self.refuse_and_fetch_map(),
        }
    }

    /// Answers the primary.
    pub(crate) async fn read_base(&self, epoch: Epoch, read: ReadBase) -> Result<(UnitBytes, Buf), Refusal> {
        let range = checked_range(read.offset, read.len)?;
        let ReadBase { group, key, slot, identity, upto, decided, .. } = read;
        self.apply_decisions(&[GroupDecision { group, epoch, upto }]).await?;
        self.unit(epoch, &UnitRead { group, key, slot, range, identity, decided }).await
    }

    /// Reads a range of this brick's unit. The payload ends where only zeros follow.
    pub(crate) async fn unit(&self, epoch: Epoch, read: &UnitRead) -> Result<(UnitBytes, Buf), Refusal> {
        let geometry = self.volume(read.group)?.geometry;
        if read.range.end > geometry.unit() {
            return Err(Refusal::Malformed);
        }
        let at = usize::from(read.slot) * geometry.unit();
        for _ in 0..4 {
            self.check_served(read.group, epoch)?;
            self.load(read.key).await?;
            let plan = {
                let slot = self.slot.borrow();
                slot.plan_read(read.key, read.slot, at, read.range.clone(), read.identity, &read.decided)
            };
            let plan = plan.inspect_err(|refusal| {
                if *refusal == Refusal::Pending {
                    hit(CodeProbe::ReadPending);
                }
            })?;
            let fetched = self.fetch(&plan, &read.range).await;
            self.check_served(read.group, epoch)?;
            // While we read, the base may have been replaced and its blocks given away: then read again.
            let still = self.slot.borrow().plan_read(
                read.key,
                read.slot,
                at,
                read.range.clone(),
                read.identity,
                &read.decided,
            )?;
            if still.blocks == plan.blocks && still.overlays == plan.overlays {
                let bytes = fetched?;
                let crcs = plan.sums_of(&read.range, bytes.len());
                return Ok((UnitBytes { identity: plan.identity, crcs }, bytes));
            }
            hit(CodeProbe::ReadAgain);
        }
        Err(Refusal::NotServing)
    }

    /// Refuses unless this slot serves the epoch.
    pub(crate) fn check_served(&self, id: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        let slot = self.slot.borrow();
        if slot.served(id) == Some(epoch) {
            Ok(())
        } else if epoch < slot.promised(id) {
            Err(Refusal::StaleEpoch)
        } else {
            self.map_wanted.notify();
            Err(Refusal::NotServing)
        }
    }

    /// Fetches what a plan names: blocks of the base, checked one by one, and overlays over them.
    async fn fetch(&self, plan: &ReadPlan, range: &Range<usize>) -> Result<Buf, Refusal> {
        let base = self.fetch_blocks(&plan.blocks.1).await?;
        let skip = range.start % BLOCK;
        let have = base.len().saturating_sub(skip).min(range.len());
        if plan.overlays.is_empty() {
            return Ok(if have == 0 { Buf::empty() } else { base.slice(skip..skip + have) });
        }
        let mut bytes = BufMut::zeroed(plan.present.max(have));
        if have > 0 {
            bytes[..have].copy_from_slice(&base[skip..skip + have]);
        }
        self.lay_over(&mut bytes, &plan.overlays).await?;
        Ok(bytes.freeze())
    }

    /// Lays overlays over bytes, in order.
    pub(crate) async fn lay_over(
        &self,
        bytes: &mut BufMut,
        overlays: &[OverlayPiece],
    ) -> Result<(), Refusal> {
        for piece in overlays {
            let end = bytes.len().min(piece.to + piece.len);
            let Some(target) = bytes.get_mut(piece.to..end) else { continue };
            match self.overlay_bytes(piece).await? {
                None => target.fill(0),
                Some(source) => target.copy_from_slice(&source[..target.len()]),
            }
        }
        Ok(())
    }

    /// The bytes of a piece of an overlay, checked; `None` for zeros.
    pub(crate) async fn overlay_bytes(&self, piece: &OverlayPiece) -> Result<Option<Buf>, Refusal> {
        let Some((position, sum)) = piece.source else { return Ok(None) };
        let source = self.journal.read(position).await.map_err(|_| Refusal::Corrupt)?;
        if crc(&source) != sum {
            self.damaged("an overlay");
            return Err(Refusal::Corrupt);
        }
        Ok(Some(source.slice(piece.from..piece.from + piece.len)))
    }

    /// Reads blocks, each with its checksum, neighbours at once, and checks each.
    pub(crate) async fn fetch_blocks(&self, blocks: &[(u64, u32)]) -> Result<Buf, Refusal> {
        let numbers: Vec<u64> = blocks.iter().map(|(block, _)| *block).collect();
        let bytes = match coalesce(&numbers).as_slice() {
            [] => return Ok(Buf::empty()),
            [run] => self.read_blocks(run.start, run.blocks as usize).await?,
            runs => {
                let mut bytes = BufMut::dirty(blocks.len() * BLOCK);
                let mut at = 0;
                for run in runs {
                    let part = self.read_blocks(run.start, run.blocks as usize).await?;
                    bytes[at..at + part.len()].copy_from_slice(&part);
                    at += part.len();
                }
                bytes.freeze()
            }
        };
        for ((_, sum), block) in blocks.iter().zip(bytes.chunks(BLOCK)) {
            if crc(block) != *sum {
                self.damaged("a block");
                return Err(Refusal::Corrupt);
            }
        }
        Ok(bytes)
    }

    async fn read_blocks(&self, first: u64, count: usize) -> Result<Buf, Refusal> {
        let offset = self.superblock.data_start + first * BLOCK as u64;
        self.disk.read(offset, count * BLOCK).await.map_err(|error| {
            hit(CodeProbe::UnreadableBlock);
            tracing::warn!(%error, "a block cannot be read");
            Refusal::Corrupt
        })
    }

    fn damaged(&self, what: &str) {
        count(&self.counters.damaged);
        hit(CodeProbe::DamagedBlock);
        tracing::warn!(brick = %self.options.brick, "{what} did not match its checksum");
    }
}

fn checked_range(offset: u32, len: u32) -> Result<Range<usize>, Refusal> {
    let end = offset.checked_add(len).ok_or(Refusal::Malformed)?;
    Ok(offset as usize..end as usize)
}
