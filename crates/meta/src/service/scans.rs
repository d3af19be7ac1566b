//! The whole store, as it was at one moment, in parts: for the check of names.
//!
//! The moment is a snapshot of the engine, taken after everything that was answered before has reached the engine. It is kept
//! while somebody asks for parts of it; the pages that it needs are not free for others meanwhile, so it does not stay for
//! long after the last request.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::Refusal;
use types::checksum::crc;
use types::messages::replica::{MetaRepair, MetaRepaired, MetaScan, MetaScanned};
use world::Answer;

use super::Shared;
use crate::keys;
use crate::kv::{Reader, packed};
use crate::ops;
use crate::records::from_value;
use crate::state::Change;

/// Most bytes of a part, about.
const PART_MAX: u32 = 512 << 10;
/// Most snapshots at a time. For another one, that which was not used for the longest time goes.
const SCANS_MAX: usize = 4;
/// How long a snapshot is kept that nobody uses, in microseconds.
const UNUSED_US: u64 = 60_000_000;

struct Scan {
    reader: Arc<Reader>,
    /// The last record that it has.
    record: u64,
    used_us: u64,
}

/// The snapshots that somebody uses, by their numbers.
#[derive(Default)]
pub(super) struct Scans {
    scans: BTreeMap<u64, Scan>,
}

impl Scans {
    /// `number`: by chance, so that no other server, and no other life of this one, has a moment with the same number.
    fn begin(&mut self, number: u64, reader: Reader, record: u64, now: u64) -> u64 {
        if self.scans.len() >= SCANS_MAX {
            let oldest = self.scans.iter().min_by_key(|(_, scan)| scan.used_us).map(|(number, _)| *number);
            oldest.and_then(|number| self.scans.remove(&number));
        }
        self.scans.insert(number, Scan { reader: Arc::new(reader), record, used_us: now });
        number
    }

    fn get(&mut self, number: u64, now: u64) -> Option<(Arc<Reader>, u64)> {
        let scan = self.scans.get_mut(&number)?;
        scan.used_us = now;
        Some((Arc::clone(&scan.reader), scan.record))
    }

    fn forget_unused(&mut self, now: u64) {
        self.scans.retain(|_, scan| now < scan.used_us + UNUSED_US);
    }
}

impl Shared {
    /// A part of the store at a moment. The first part begins the moment.
    ///
    /// # Errors
    /// `Unknown`: the moment is forgotten, or was another server's.
    pub(super) async fn scan(&self, request: &MetaScan) -> Result<Answer, Refusal> {
        let now = self.world.now();
        let number = match request.scan {
            0 => self.begin_scan().await?,
            number => number,
        };
        let found = self.scans.borrow_mut().get(number, now);
        let (reader, record) = found.ok_or(Refusal::Unknown)?;
        let bytes = request.bytes.min(PART_MAX) as usize;
        // The disk may be slow.
        let from = request.from.clone();
        let part = self.world.off_thread(move || reader.part(&from, bytes)).await;
        let (pairs, is_last) = part.map_err(|error| {
            tracing::error!(%error, "the metadata store cannot be read");
            Refusal::MetaFailed
        })?;
        let payload = packed(&pairs);
        let reply = MetaScanned { scan: number, record, is_last, sum: crc(&payload) };
        Ok(Answer::new(&reply, payload.into()))
    }

    async fn begin_scan(&self) -> Result<u64, Refusal> {
        self.all_durable().await?;
        self.flush_all().await;
        let engine = self.state.borrow().store.engine().clone();
        let reader = engine.snapshot().map_err(|_| Refusal::MetaFailed)?;
        let record = reader.get(&keys::applied(), from_value::<u64>).map_err(|_| Refusal::MetaFailed)?;
        let record = record.and_then(Result::ok).unwrap_or(0);
        let number = self.world.random().max(1);
        Ok(self.scans.borrow_mut().begin(number, reader, record, self.world.now()))
    }

    /// Forgets the moments that nobody asks about any more.
    pub(super) async fn forget_scans(&self) {
        loop {
            self.world.sleep(UNUSED_US / 4).await;
            self.scans.borrow_mut().forget_unused(self.world.now());
        }
    }

    /// Repairs what a check has found, if it is still so.
    pub(super) async fn repair(&self, request: MetaRepair) -> Result<MetaRepaired, Refusal> {
        self.submit(Change::idempotent(move |txn| ops::repair(txn, &request))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Engine;

    #[test]
    fn few_moments_are_kept_and_not_for_long() {
        let mut scans = Scans::default();
        let begin = |scans: &mut Scans, number, now| {
            scans.begin(number, Engine::memory().snapshot().expect("memory does not fail"), 7, now)
        };
        for number in 1..=4 {
            begin(&mut scans, number, 10 * number);
        }
        assert!(scans.get(1, 50).is_some());
        begin(&mut scans, 5, 60);
        assert!(scans.get(2, 70).is_none(), "the others were used later");
        assert_eq!(scans.get(1, 80).map(|(_, record)| record), Some(7));
        scans.forget_unused(60 + UNUSED_US);
        assert!(scans.get(5, 0).is_none() && scans.get(1, 0).is_some());
    }
}
