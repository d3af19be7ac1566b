//! Reads of one unit: direct reads by a client, and reads by the group's primary.
//!
//! # Invariants
//! - A read that asks for a base by identity gets exactly that base, without overlays.
//! - Every byte that leaves the brick was asked for and compared with its checksum.

use std::cmp::Ordering;
use std::ops::Range;

use types::checksum::crc;
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{GroupDecision, ReadBase, ReadUnit, UnitBytes};
use types::{Buf, BufMut, Epoch, GroupId, Refusal, Seq, StripeKey};

use crate::read_cache::BaseName;
use crate::server::{Server, count};
use crate::slot::{OverlayPiece, ReadPlan, coalesce};

/// Which unit, which part of it, and in which version.
#[derive(Debug)]
pub(crate) struct UnitRead {
    pub(crate) group: GroupId,
    pub(crate) key: StripeKey,
    pub(crate) slot: u8,
    pub(crate) range: Range<usize>,
    /// The base with this identity; `None` for the newest bytes.
    pub(crate) identity: Option<Seq>,
    /// Operations known to be decided.
    pub(crate) decided: Vec<Seq>,
    /// Whether blocks may come from the cache: not where damage on the disk is to be found.
    pub(crate) may_use_cache: bool,
}

impl Server {
    /// Answers a direct read by a client.
    pub(crate) async fn read_unit(&self, epoch: Epoch, read: ReadUnit) -> Result<(UnitBytes, Buf), Refusal> {
        let (group, key) = (read.group, read.key);
        self.check_lease(group.volume)?;
        self.check_live(group, epoch)?;
        self.busy_at.set(self.world.turn_began());
        self.count_asked_read(read.len);
        self.check_not_dropped(read.key)?;
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
                    may_use_cache: true,
                },
            )
            .await?;
        // The lease must still hold when the bytes leave; otherwise they could be old.
        self.check_lease(group.volume)?;
        self.check_live(group, epoch)?;
        // What is purged meanwhile reads as zeros.
        self.check_not_dropped(key)?;
        Ok(answer)
    }

    /// Refuses to read an object that is being purged: its units go one after the other, and a reader would find bytes beside
    /// zeros.
    pub(super) fn check_not_dropped(&self, key: StripeKey) -> Result<(), Refusal> {
        if self.slot.borrow().is_dropped(key.object) { Err(Refusal::ObjectRemoved) } else { Ok(()) }
    }

    /// Refuses clients unless this brick's slot is live in the epoch, by the newest map. A brick that returns has
    /// that map before its lease counts, while its promises may be older. And a slot that joins serves its primary in
    /// an epoch in which the slot is Out.
    fn check_live(&self, id: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        let map = self.map_of(id.volume);
        let Some((_, config)) = map.group(id) else { return self.refuse_and_fetch_map(id.volume) };
        let live = config.slot_of(self.options.brick).is_some_and(|slot| config.live() & 1 << slot != 0);
        match config.epoch.cmp(&epoch) {
            Ordering::Greater => Err(Refusal::StaleEpoch),
            Ordering::Equal if live => Ok(()),
            Ordering::Equal => Err(Refusal::StaleEpoch),
            Ordering::Less => self.refuse_and_fetch_map(id.volume),
        }
    }

    /// Answers a read by the primary.
    pub(crate) async fn read_base(&self, epoch: Epoch, read: ReadBase) -> Result<(UnitBytes, Buf), Refusal> {
        let range = checked_range(read.offset, read.len)?;
        let ReadBase { group, key, slot, identity, upto, decided, .. } = read;
        if identity.is_none() {
            self.check_not_dropped(key)?;
        }
        self.apply_decisions(&[GroupDecision { group, epoch, upto }]).await?;
        let read = UnitRead { group, key, slot, range, identity, decided, may_use_cache: false };
        // A base that is gone because its object is being purged is not damaged.
        self.unit(epoch, &read).await.map_err(|refusal| self.check_not_dropped(key).err().unwrap_or(refusal))
    }

    /// Reads a range of this brick's unit. The payload ends where only zeros follow.
    pub(crate) async fn unit(&self, epoch: Epoch, read: &UnitRead) -> Result<(UnitBytes, Buf), Refusal> {
        let geometry = self.tier(read.group)?.geometry;
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
            let fetched = self.fetch(&plan, read).await;
            self.check_served(read.group, epoch)?;
            // During the read the base may have been replaced and its blocks reused: then read again.
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
                assert!(bytes.len() <= read.range.len(), "bytes beyond the range would be returned");
                assert!(
                    crcs.is_empty() || crcs.len() * BLOCK == bytes.len(),
                    "the reader would compare blocks with the checksums of other blocks"
                );
                assert!(
                    read.identity.is_none_or(|wanted| wanted == plan.identity),
                    "units of different writes would meet in a decode"
                );
                assert!(
                    read.identity.is_none() || plan.overlays.is_empty(),
                    "parity does not encode overlays: a decode would give wrong bytes"
                );
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
            self.want_map(id.volume);
            Err(Refusal::NotServing)
        }
    }

    /// Fetches the bytes of a plan: blocks of the base, each one checked, with the overlays over them.
    async fn fetch(&self, plan: &ReadPlan, read: &UnitRead) -> Result<Buf, Refusal> {
        let (first, blocks) = &plan.blocks;
        let base = if read.may_use_cache {
            let volume = read.group.volume;
            let name = BaseName { volume, slot: read.slot, key: read.key, identity: plan.identity };
            self.fetch_through_cache(&name, *first as usize, blocks).await?
        } else {
            self.fetch_blocks(blocks).await?
        };
        let range = &read.range;
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
            assert!(
                piece.to + piece.len <= bytes.len(),
                "old bytes would be read where the overlay is cut off"
            );
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

    /// Reads blocks, adjacent ones in one read, and compares each with its checksum.
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
        assert_eq!(bytes.len(), blocks.len() * BLOCK, "a missing block would be compared with nothing");
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
        let bytes = self.disk.read(offset, count * BLOCK).await.map_err(|error| {
            hit(CodeProbe::UnreadableBlock);
            tracing::warn!(%error, "a block cannot be read");
            Refusal::Corrupt
        })?;
        assert_eq!(bytes.len(), count * BLOCK, "a short read would leave stale bytes in the buffer");
        Ok(bytes)
    }

    fn damaged(&self, what: &str) {
        count(&self.counters.damaged);
        hit(CodeProbe::DamagedBlock);
        tracing::warn!(brick = %self.options.brick, "{what} did not match its checksum");
    }
}

pub(super) fn checked_range(offset: u32, len: u32) -> Result<Range<usize>, Refusal> {
    let end = offset.checked_add(len).ok_or(Refusal::Malformed)?;
    Ok(offset as usize..end as usize)
}
